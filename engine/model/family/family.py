"""Describe a model family: its configuration keys, its tensor names, and its differences from other families.

The readers here handle what most families share. A `Family` object changes what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.config import ACTIVATIONS, Activation, check_size
from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader, decimal, numbers_by_layer, share_width, token_ids
from engine.model.family.rope import rope_from_gguf, rope_from_hf

ACTIVATION_KEY = "hearth.activation"  # GGUF has no key for it: "llama" means SiLU without this one
THRESHOLD_KEY = "hearth.activation_threshold"

_HF_GATED: dict[str, Activation] = {
    "relu": "relu-glu", "drelu": "drelu-glu", "silu": "silu-glu", "swish": "silu-glu", "fatrelu": "fatrelu-glu",
    "gelu": "gelu-glu", "gelu_new": "gelu-tanh-glu", "gelu_pytorch_tanh": "gelu-tanh-glu", "gelu_fast": "gelu-tanh-glu",
}  # fmt: skip
_HF_PLAIN: dict[str, Activation] = {
    "relu": "relu", "relu2": "relu2", "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
}  # fmt: skip

# Keys of config.json that change the graph, with the values that do not. A family lists the keys it implements.
_HF_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False,), "mlp_bias": (False,), "qkv_bias": (False,), "partial_rotary_factor": (1, 1.0),
    "alibi": (False,), "num_local_experts": (0,), "num_experts": (0,), "n_routed_experts": (0,),
    "moe_intermediate_size": (0,), "sliding_window": (), "attn_logit_softcapping": (), "final_logit_softcapping": (),
    "query_pre_attn_scalar": (), "logit_scale": (1, 1.0), "residual_multiplier": (1, 1.0),
    "embedding_multiplier": (1, 1.0), "attention_multiplier": (), "logits_scaling": (1, 1.0),
    "use_qk_norm": (False,), "qk_layernorm": (False,), "clip_qkv": (), "attention_chunk_size": (),
    "no_rope_layers": (), "use_bidirectional_attention": (False,), "parallel_attn": (False,), "scale_emb": (1, 1.0),
    "scale_depth": (), "lm_head_bias": (False,), "tie_word_embeddings_to_head": (), "use_parallel_residual": (False,),
}  # fmt: skip

# GGUF keys of an architecture that are read here or by a family, or do not affect the graph.
_GGUF_KNOWN = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size", "tensor_data_layout",
    "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
    "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon", "attention.causal", "rope.dimension_count",
    "rope.freq_base", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.attn_factor", "rope.scale_linear",
    "rope.scaling.finetuned", "rope.scaling.original_context_length", "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_ext_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
    "expert_count", "expert_used_count", "use_parallel_residual",
}  # fmt: skip


@dataclass(frozen=True)
class Family:
    """A model family.

    `from_hf` and `from_gguf` return the fields of ModelConfig that differ from the common ones. Both receive the common
    fields; from_gguf also receives the file's tensor names.
    """

    name: str
    model_types: tuple[str, ...]  # model_type in config.json
    hf: Layout
    model_types_with_pictures: tuple[str, ...] = ()  # of files with a vision tower; the text part is in text_config
    hf_architectures: tuple[str, ...] = ()  # `architectures` in config.json that select it, whatever model_type is
    architectures: tuple[str, ...] = ()  # general.architecture in GGUF
    gguf: Layout | None = None
    hf_keys: Mapping[str, str] = field(default_factory=dict)  # common key -> the family's own key
    hf_has_both: bool = False  # files have either key
    hf_defaults: Mapping[str, Any] = field(default_factory=dict)  # values where config.json is silent, beside the below
    hf_handles: frozenset[str] = frozenset()  # keys that change the graph and that the family implements
    gguf_handles: frozenset[str] = frozenset()  # further keys of the architecture that it reads
    by_layer: frozenset[str] = frozenset()  # keys that may be a list with a number for each layer, in either format
    layer_list: str = ""  # key of config.json with the kind of each layer, which may replace their number
    gated: bool = True
    experts: bool = False  # whether its models have experts; from_hf and from_gguf then return their number
    latent: bool = False  # whether its models have latent attention; from_hf and from_gguf then return head sizes
    drafts: bool = False  # whether files have further layers that draft tokens (MTP)
    norm_eps: float = 1e-6  # where config.json is silent
    rope_theta: float = 10000.0  # default of both formats
    max_context: int = 2048  # where config.json is silent
    tied: bool = False  # where config.json is silent
    activation: str = ""  # default of hidden_act; empty: config.json must have it
    gguf_activation: Activation = "silu-glu"  # default without a key in the metadata
    powerinfer_activation: Activation = "relu-glu"  # default for PowerInfer files
    features: Mapping[str, Any] = field(default_factory=dict)  # fields of ModelConfig common to all its models
    from_hf: Callable[[Reader, dict[str, Any]], dict[str, Any]] = lambda read, fields: {}
    from_gguf: Callable[[Reader, dict[str, Any], Collection[str]], dict[str, Any]] = lambda read, fields, names: {}


def fields_from_hf(family: Family, read: Reader, generation: Reader) -> dict[str, Any]:
    """Return the ModelConfig fields from config.json and generation_config.json."""

    def key(name: str) -> str:
        return _hf_key(family, read, name)

    missing = {name: value for name, value in family.hf_defaults.items() if read.values.get(name) is None}
    if read.values.get("rope_scaling"):  # the older name
        missing.pop("rope_parameters", None)
    read = Reader({**read.values, **missing}, read.where)
    _refuse_hf_extras(family, read)
    n_heads = read.required(key("num_attention_heads"), int)
    d_model = read.required(key("hidden_size"), int)
    head_dim = read.optional("head_dim", int, None)
    fields: dict[str, Any] = {
        "family": family.name,
        "n_layers": _n_layers(family, read),
        "d_model": d_model,
        "d_ff": _largest(family, read, key("intermediate_size"), None),
        "n_heads": n_heads,
        "n_kv_heads": read.optional(key("num_key_value_heads"), int, n_heads),
        "head_dim": _head_dim(family, head_dim, d_model, n_heads),
        "vocab_size": read.required("vocab_size", int),
        "norm_eps": read.optional(key("rms_norm_eps"), float, family.norm_eps),
        "tied_embeddings": read.optional("tie_word_embeddings", bool, family.tied),
        "bos_token_id": next(iter(token_ids(read, "bos_token_id")), None),
        "eos_token_ids": tuple(sorted({*token_ids(read, "eos_token_id"), *token_ids(generation, "eos_token_id")})),
        **rope_from_hf(read, family.rope_theta, _max_context(family, read)),
        **_hf_activation(family, read, key("hidden_act")),
        **family.features,
    }
    _check_sizes(fields)
    fields |= family.from_hf(read, fields)
    if fields["d_ff"] is None:
        read.required(key("intermediate_size"), int)
    return fields


def fields_from_gguf(family: Family, read: Reader, arch: str, tensor_names: set[str]) -> dict[str, Any]:
    """Return the ModelConfig fields from a GGUF file's metadata."""
    n_heads = read.required(f"{arch}.attention.head_count", int)
    d_model = read.required(f"{arch}.embedding_length", int)
    stated = read.optional(f"{arch}.attention.key_length", int, None)
    head_dim = _head_dim(family, stated, d_model, n_heads)
    value = read.optional(f"{arch}.attention.value_length", int, head_dim)
    if value != head_dim and not family.latent:
        raise UnsupportedModelError(f"{arch}.attention.value_length is {value} beside heads of {head_dim}.")
    rotated = read.optional(f"{arch}.rope.dimension_count", int, head_dim)
    if rotated != head_dim and family.gguf is not None and family.gguf.rope_pairs:
        raise UnsupportedModelError(f"{arch}.rope.dimension_count is {rotated} beside heads of {head_dim}.")
    tokens = read.optional("tokenizer.ggml.tokens", list, None)
    vocab_size = read.optional(f"{arch}.vocab_size", int, None if tokens is None else len(tokens))
    if vocab_size is None:
        raise ModelFormatError(f"The GGUF metadata has neither {arch}.vocab_size nor a vocabulary.")
    of_layer_norm, eps_key = (f"{arch}.attention.layer_norm_{kind}epsilon" for kind in ("", "rms_"))
    if family.features.get("norm") == "layer" or (read.values.get(eps_key) is None and of_layer_norm in read.values):
        eps_key = of_layer_norm  # Nemotron-H's files have it for their RMS norms
    eos = [read.optional(f"tokenizer.ggml.{kind}_token_id", int, None) for kind in ("eos", "eot")]
    max_context = read.required(f"{arch}.context_length", int)
    check_size("max_context", max_context)
    fields: dict[str, Any] = {
        "family": family.name,
        "n_layers": read.required(f"{arch}.block_count", int),
        "d_model": d_model,
        "d_ff": _largest(family, read, f"{arch}.feed_forward_length", None),
        "n_heads": n_heads,
        "n_kv_heads": _largest(family, read, f"{arch}.attention.head_count_kv", n_heads),
        "head_dim": head_dim,
        "rotary_dim": None if rotated == head_dim else rotated,
        "rope_order": "interleaved" if family.gguf is not None and family.gguf.rope_pairs else "halves",
        "vocab_size": vocab_size,
        "norm_eps": decimal(read.required(eps_key, float)),
        "tied_embeddings": "output.weight" not in tensor_names,
        "bos_token_id": read.optional("tokenizer.ggml.bos_token_id", int, None),
        "eos_token_ids": tuple(sorted({token for token in eos if token is not None})),
        **rope_from_gguf(read, arch, tensor_names, family.rope_theta, max_context),
        **_gguf_activation(family, read, tensor_names),
        **family.features,
    }
    _refuse_gguf_extras(family, read, arch)
    _check_sizes(fields)
    fields |= family.from_gguf(read, fields, tensor_names)
    if fields["d_ff"] is None:
        read.required(f"{arch}.feed_forward_length", int)
    return fields


def _largest(family: Family, read: Reader, key: str, default: int | None) -> int | None:
    """Return the number under the key, or the largest of a list with one for each layer, if the family has such."""
    values, short = read.values.get(key), key.partition(".")[2] or key
    if isinstance(values, list) and short in family.by_layer:
        return max(numbers_by_layer(read, key, len(values), least=0), default=None)
    found: int | None = read.optional(key, int, default)
    return found


def _n_layers(family: Family, read: Reader) -> int:
    kinds = read.values.get(family.layer_list)
    if isinstance(kinds, list):
        return len(kinds)
    return read.required(_hf_key(family, read, "num_hidden_layers"), int)


def _hf_key(family: Family, read: Reader, name: str) -> str:
    own = family.hf_keys.get(name, name)
    return name if family.hf_has_both and own not in read.values else own


def _max_context(family: Family, read: Reader) -> int:
    length: int = read.optional("max_position_embeddings", int, family.max_context)
    check_size("max_context", length)
    return length


def _head_dim(family: Family, stated: int | None, d_model: int, n_heads: int) -> int:
    if stated is not None:
        return stated
    return 1 if family.latent else share_width(d_model, n_heads)  # 1: until from_hf or from_gguf return it


def _check_sizes(fields: Mapping[str, Any]) -> None:
    """Check sizes before families compute with them."""
    for name in ("n_layers", "d_model", "n_heads", "n_kv_heads", "head_dim"):
        check_size(name, fields[name])


def windows(read: Reader, n_layers: int, size: int | None, default: Callable[[int], bool]) -> tuple[int, ...]:
    """Return the attention window of each layer from `layer_types`, or from `default(layer)`; 0: none."""
    if not size:
        return ()
    kinds = read.optional("layer_types", list, None)
    if kinds is None:
        return tuple(size if default(layer) else 0 for layer in range(n_layers))
    if len(kinds) != n_layers or not all(kind in ("full_attention", "sliding_attention") for kind in kinds):
        raise UnsupportedModelError(f"layer_types in {read.where} is not a list of {n_layers} known kinds of layer.")
    return tuple(size if kind == "sliding_attention" else 0 for kind in kinds)


def windows_from_gguf(
    read: Reader, arch: str, n_layers: int, size: int, default: Callable[[int], bool]
) -> tuple[int, ...]:
    """Return the attention window of each layer from a period or list in the metadata, or from `default`."""
    key = f"{arch}.attention.sliding_window_pattern"
    if isinstance(read.values.get(key), list):
        pattern = read.required(key, list)
        if len(pattern) != n_layers or not all(isinstance(windowed, bool) for windowed in pattern):
            raise ModelFormatError(f"{key} is not a list of {n_layers} truth values.")
        return tuple(size if windowed else 0 for windowed in pattern)
    if (period := read.optional(key, int, 0)) > 0:
        return tuple(size if (layer + 1) % period else 0 for layer in range(n_layers))
    return tuple(size if default(layer) else 0 for layer in range(n_layers))


def _hf_activation(family: Family, read: Reader, key: str) -> dict[str, Any]:
    name = read.optional(key, str, family.activation) if family.activation else read.required(key, str)
    known = _HF_GATED if family.gated else _HF_PLAIN
    if name not in known:
        raise UnsupportedModelError(
            f"The activation {name[:60]!r} is not supported; Hearth runs {', '.join(known)} in this family."
        )
    if name != "fatrelu":
        return {"activation": known[name]}
    threshold = read.optional("hidden_act_threshold", float, None)
    threshold = read.required("hidden_act_param", float) if threshold is None else threshold
    return {"activation": known[name], "activation_threshold": threshold}


def _gguf_activation(family: Family, read: Reader, tensor_names: set[str]) -> dict[str, Any]:
    powerinfer = "blk.0.ffn_down_t.weight" in tensor_names
    default = family.powerinfer_activation if powerinfer else family.gguf_activation
    activation = read.optional(ACTIVATION_KEY, str, default)
    if activation not in ACTIVATIONS or activation.endswith("-glu") != family.gated:
        known = ", ".join(name for name in ACTIVATIONS if name.endswith("-glu") == family.gated)
        raise UnsupportedModelError(f"The activation {activation[:60]!r} is unknown; supported: {known}.")
    threshold = decimal(read.optional(THRESHOLD_KEY, float, 0.0))
    return {"activation": activation, "activation_threshold": threshold}


def _refuse_hf_extras(family: Family, read: Reader) -> None:
    for key, neutral in _HF_NEUTRAL.items():
        value = read.values.get(key)
        if key in family.hf_handles or value is None or value in neutral:
            continue
        shown = str(value)[:60]
        if not family.experts and ("expert" in key or "moe" in key):
            raise UnsupportedModelError(
                f"The model has experts ({key}: {shown}); Hearth runs {family.name} without experts."
            )
        raise UnsupportedModelError(f"{key} is {shown} in {read.where}, which Hearth does not run in {family.name}.")
    kinds = read.optional("layer_types", list, [])
    if not {"sliding_window", "layer_types"} & family.hf_handles and any(kind != "full_attention" for kind in kinds):
        raise UnsupportedModelError(f"layer_types in {read.where} names attention that Hearth does not run.")
    if read.optional("quantization_config", dict, {}):
        raise UnsupportedModelError(
            f"{read.where} names a quantization_config; Hearth reads safetensors in F32, F16 and BF16.",
            "Choose the unquantised model or a Q8_0 GGUF file.",
        )


def _refuse_gguf_extras(family: Family, read: Reader, arch: str) -> None:
    if (experts := read.optional(f"{arch}.expert_count", int, 0)) and not family.experts:
        raise UnsupportedModelError(f"The model has {experts} experts; Hearth runs {family.name} without experts.")
    for key in read.values:
        short = key.removeprefix(f"{arch}.")
        if short != key and short not in _GGUF_KNOWN and short not in family.gguf_handles:
            raise UnsupportedModelError(f"The metadata names {key[:100]}, which Hearth does not know.")
