"""Translates what other projects call things into our terms, once: configurations to ModelConfig, tensor names to ours.

What Hearth does not implement is refused by name, never passed over. Nothing here reads tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from engine.config import Activation, ModelConfig, SamplingConfig
from engine.errors import InvalidRequestError, ModelFormatError, UnsupportedModelError

SUPPORTED_FAMILIES = ("llama",)
ACTIVATION_KEY = "hearth.activation"  # GGUF has no key of its own for it: "llama" means SiLU unless this says otherwise

_HF_ACTIVATIONS: dict[str, Activation] = {"relu": "relu-glu", "silu": "silu-glu"}
_ACTIVATIONS: tuple[Activation, ...] = ("relu-glu", "silu-glu")

# How a foreign matrix becomes ours. "rope pairs": the rows of each head lie as GGUF's LLaMA stores them, the two
# halves of a head interleaved; ours is the half-rotation layout.
Treatment = Literal["as is", "transposed", "rope pairs"]


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor that the configuration calls for: our name, its foreign name and shape, and how to make it ours."""

    name: str  # "embedding", "head", "final_norm", or "<layer>.<field of LayerWeights>"
    foreign_name: str
    shape: tuple[int, ...]
    treatment: Treatment = "as is"


# ------------------------------------------------------------------ configurations


def config_from_hf(config: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelConfig:
    """The ModelConfig that a Hugging Face config.json (and generation_config.json, may be empty) describes.

    Raises: ModelFormatError for a missing or wrong value, UnsupportedModelError for what Hearth does not implement.
    """
    read = _Reader(config, "config.json")
    family = read.required("model_type", str)
    _require_family(family)
    _refuse_hf_extras(read)
    n_heads = read.required("num_attention_heads", int)
    d_model = read.required("hidden_size", int)
    return ModelConfig(
        family=family,
        n_layers=read.required("num_hidden_layers", int),
        d_model=d_model,
        d_ff=read.required("intermediate_size", int),
        n_heads=n_heads,
        n_kv_heads=read.optional("num_key_value_heads", int, n_heads),
        head_dim=_head_dim(read.optional("head_dim", int, None), d_model, n_heads),
        vocab_size=read.required("vocab_size", int),
        rope_theta=_hf_rope_theta(read),
        norm_eps=read.optional("rms_norm_eps", float, 1e-6),
        activation=_hf_activation(read),
        max_context=read.optional("max_position_embeddings", int, 2048),
        tied_embeddings=read.optional("tie_word_embeddings", bool, False),
        bos_token_id=read.optional("bos_token_id", int, None),
        eos_token_ids=tuple(sorted({*_token_ids(read), *_token_ids(_Reader(generation, "generation_config.json"))})),
    )


def config_from_gguf(metadata: Mapping[str, Any], tensor_names: set[str]) -> ModelConfig:
    """The ModelConfig that a GGUF file's metadata describes.

    Raises: ModelFormatError for a missing or wrong value, UnsupportedModelError for what Hearth does not implement.
    """
    read = _Reader(metadata, "the GGUF metadata")
    family = read.required("general.architecture", str)
    _require_family(family)
    _refuse_gguf_extras(read)
    n_heads = read.required("llama.attention.head_count", int)
    d_model = read.required("llama.embedding_length", int)
    head_dim = _head_dim(read.optional("llama.attention.key_length", int, None), d_model, n_heads)
    for key in ("llama.attention.value_length", "llama.rope.dimension_count"):
        if (value := read.optional(key, int, head_dim)) != head_dim:
            raise UnsupportedModelError(f"{key} is {value} beside heads of {head_dim}; they must be equal.")
    tokens = read.optional("tokenizer.ggml.tokens", list, None)
    vocab_size = read.optional("llama.vocab_size", int, None if tokens is None else len(tokens))
    if vocab_size is None:
        raise ModelFormatError("The GGUF metadata has neither llama.vocab_size nor a vocabulary.")
    activation = read.optional(ACTIVATION_KEY, str, "silu-glu")
    if activation not in _ACTIVATIONS:
        raise UnsupportedModelError(f"The activation {activation!r} is unknown; known are {', '.join(_ACTIVATIONS)}.")
    eos = [read.optional(f"tokenizer.ggml.{kind}_token_id", int, None) for kind in ("eos", "eot")]
    return ModelConfig(
        family=family,
        n_layers=read.required("llama.block_count", int),
        d_model=d_model,
        d_ff=read.required("llama.feed_forward_length", int),
        n_heads=n_heads,
        n_kv_heads=read.optional("llama.attention.head_count_kv", int, n_heads),
        head_dim=head_dim,
        vocab_size=vocab_size,
        rope_theta=_decimal(read.optional("llama.rope.freq_base", float, 10000.0)),
        norm_eps=_decimal(read.required("llama.attention.layer_norm_rms_epsilon", float)),
        activation=activation,
        max_context=read.required("llama.context_length", int),
        tied_embeddings="output.weight" not in tensor_names,
        bos_token_id=read.optional("tokenizer.ggml.bos_token_id", int, None),
        eos_token_ids=tuple(sorted({token for token in eos if token is not None})),
    )


def sampling_from_hf(generation: Mapping[str, Any]) -> dict[str, Any]:
    """The model's own sampling defaults: fields of SamplingConfig. Raises ModelFormatError for senseless values.

    Not its max_new_tokens: an answer ends where the model ends it, unless the person sets a limit.
    """
    read = _Reader(generation, "generation_config.json")
    names = {"temperature": ("temperature", float), "top_k": ("top_k", int), "top_p": ("top_p", float),
             "min_p": ("min_p", float), "repeat_penalty": ("repetition_penalty", float)}  # fmt: skip
    values = {ours: read.optional(theirs, kind, None) for ours, (theirs, kind) in names.items()}
    if read.optional("do_sample", bool, True) is False:
        values["temperature"] = 0.0
    return _sampling(values)


def sampling_from_gguf(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The same from GGUF's `general.sampling.*`."""
    read = _Reader(metadata, "the GGUF metadata")
    names = {"temperature": ("general.sampling.temp", float), "top_k": ("general.sampling.top_k", int),
             "top_p": ("general.sampling.top_p", float), "min_p": ("general.sampling.min_p", float),
             "repeat_penalty": ("general.sampling.penalty_repeat", float)}  # fmt: skip
    values = {ours: read.optional(theirs, kind, None) for ours, (theirs, kind) in names.items()}
    return _sampling({k: _decimal(v) if isinstance(v, float) else v for k, v in values.items()})


def _sampling(values: dict[str, Any]) -> dict[str, Any]:
    """Those of the values that are given, once SamplingConfig has accepted them."""
    given = {name: value for name, value in values.items() if value is not None}
    try:
        SamplingConfig(**given)
    except InvalidRequestError as error:
        raise ModelFormatError(f"The model's own sampling defaults are wrong: {error.message}") from error
    return given


# ------------------------------------------------------------------ tensor names


def planned_tensors(config: ModelConfig, kind: Literal["safetensors", "gguf", "bundle"]) -> list[PlannedTensor]:
    """Every tensor that the configuration calls for, in the order of the graph."""
    if kind == "bundle":
        return [_in_own_terms(tensor) for tensor in planned_tensors(config, "safetensors")]
    names, pairs = (_HF_NAMES, False) if kind == "safetensors" else (_GGUF_NAMES, True)
    d, f = config.d_model, config.d_ff
    q_rows, kv_rows = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
    rope: Treatment = "rope pairs" if pairs else "as is"
    per_layer: dict[str, tuple[tuple[int, ...], Treatment]] = {
        "attention_norm": ((d,), "as is"),
        "q": ((q_rows, d), rope),
        "k": ((kv_rows, d), rope),
        "v": ((kv_rows, d), "as is"),
        "o": ((d, q_rows), "as is"),
        "ffn_norm": ((d,), "as is"),
        "gate": ((f, d), "as is"),
        "up": ((f, d), "as is"),
        "down_t": ((d, f), "transposed"),
    }
    plan = [PlannedTensor("embedding", names["embedding"], (config.vocab_size, d))]
    for layer in range(config.n_layers):
        for name, (shape, treatment) in per_layer.items():
            plan.append(PlannedTensor(f"{layer}.{name}", names[name].format(layer), shape, treatment))
    plan.append(PlannedTensor("final_norm", names["final_norm"], (d,)))
    if not config.tied_embeddings:
        plan.append(PlannedTensor("head", names["head"], (config.vocab_size, d)))
    return plan


def _in_own_terms(tensor: PlannedTensor) -> PlannedTensor:
    """The tensor as a bundle holds it: under our name, in our orientation."""
    shape = tensor.shape[::-1] if tensor.treatment == "transposed" else tensor.shape
    return PlannedTensor(tensor.name, tensor.name, shape)


def is_surplus(config: ModelConfig, foreign_name: str) -> bool:
    """Whether a tensor outside the plan may be left out: a copy of a tied head, or rotary tables that we compute."""
    tied_head = config.tied_embeddings and foreign_name == _HF_NAMES["head"]
    return tied_head or foreign_name.endswith("rotary_emb.inv_freq")


_HF_NAMES = {
    "embedding": "model.embed_tokens.weight",
    "attention_norm": "model.layers.{}.input_layernorm.weight",
    "q": "model.layers.{}.self_attn.q_proj.weight",
    "k": "model.layers.{}.self_attn.k_proj.weight",
    "v": "model.layers.{}.self_attn.v_proj.weight",
    "o": "model.layers.{}.self_attn.o_proj.weight",
    "ffn_norm": "model.layers.{}.post_attention_layernorm.weight",
    "gate": "model.layers.{}.mlp.gate_proj.weight",
    "up": "model.layers.{}.mlp.up_proj.weight",
    "down_t": "model.layers.{}.mlp.down_proj.weight",
    "final_norm": "model.norm.weight",
    "head": "lm_head.weight",
}
_GGUF_NAMES = {
    "embedding": "token_embd.weight",
    "attention_norm": "blk.{}.attn_norm.weight",
    "q": "blk.{}.attn_q.weight",
    "k": "blk.{}.attn_k.weight",
    "v": "blk.{}.attn_v.weight",
    "o": "blk.{}.attn_output.weight",
    "ffn_norm": "blk.{}.ffn_norm.weight",
    "gate": "blk.{}.ffn_gate.weight",
    "up": "blk.{}.ffn_up.weight",
    "down_t": "blk.{}.ffn_down.weight",
    "final_norm": "output_norm.weight",
    "head": "output.weight",
}

# ------------------------------------------------------------------ typed reads

T = TypeVar("T")


class _Reader:
    """Reads a foreign dictionary: required means required, and a value of the wrong type is an error."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where

    def required(self, key: str, kind: type[T]) -> T:
        if self.values.get(key) is None:
            raise ModelFormatError(f"{self.where} lacks {key!r}.")
        return self._typed(key, kind)

    def optional(self, key: str, kind: type[T], default: Any) -> Any:
        return default if self.values.get(key) is None else self._typed(key, kind)

    def _typed(self, key: str, kind: type[T]) -> T:
        value: Any = self.values[key]
        if kind is float and type(value) is int:
            try:
                value = float(value)
            except OverflowError as error:
                raise ModelFormatError(f"{key} in {self.where} is beyond every sensible number.") from error
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            shown = repr(value)
            shown = shown if len(shown) <= 60 else shown[:57] + "..."
            raise ModelFormatError(f"{key} in {self.where} is {shown}; expected is {_KINDS[kind]}.")
        return value


_KINDS: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text",
                           list: "a list", dict: "an object"}  # fmt: skip


def _require_family(family: str) -> None:
    if family not in SUPPORTED_FAMILIES:
        raise UnsupportedModelError(
            f"The architecture {family[:60]!r} is not supported; Hearth runs {', '.join(SUPPORTED_FAMILIES)}."
        )


def _head_dim(given: int | None, d_model: int, n_heads: int) -> int:
    """Heads need not fill the width exactly where the file says how wide they are."""
    if given is not None:
        return given
    if n_heads < 1 or d_model % n_heads:
        raise ModelFormatError(f"A width of {d_model} cannot be shared by {n_heads} attention heads.")
    return d_model // n_heads


def _decimal(value: float) -> float:
    """The decimal number that was meant by a float32 of a file: 0.3, which would come back as 0.30000001192."""
    return float(f"{value:.7g}")


def _hf_activation(read: _Reader) -> Activation:
    name = read.required("hidden_act", str)
    if name not in _HF_ACTIVATIONS:
        known = ", ".join(_HF_ACTIVATIONS)
        raise UnsupportedModelError(f"The activation {name[:60]!r} is not supported; Hearth runs {known}.")
    return _HF_ACTIVATIONS[name]


def _hf_rope_theta(read: _Reader) -> float:
    """rope_theta, from its own key or from the newer `rope_parameters`; scaled positions are refused."""
    theta = read.optional("rope_theta", float, 10000.0)
    for key in ("rope_scaling", "rope_parameters"):
        rope = _Reader(read.optional(key, dict, {}), f"{key} of {read.where}")
        kind = rope.optional("rope_type", str, rope.optional("type", str, "default"))
        if kind != "default":
            raise UnsupportedModelError(f"Scaled rotary positions ({key}: {kind[:60]}) are not supported.")
        if "factor" in rope.values:
            raise UnsupportedModelError(f"Scaled rotary positions ({key}: factor) are not supported.")
        theta = rope.optional("rope_theta", float, theta)
    return float(theta)


def _refuse_hf_extras(read: _Reader) -> None:
    for key in ("attention_bias", "mlp_bias"):
        if read.optional(key, bool, False):
            raise UnsupportedModelError(f"{key} is on in {read.where}; Hearth runs models without biases.")
    if (share := read.optional("partial_rotary_factor", float, 1.0)) != 1.0:
        raise UnsupportedModelError(f"Rotary positions on {share} of a head are not supported.")
    if read.optional("quantization_config", dict, {}):
        raise UnsupportedModelError(
            f"{read.where} names a quantization_config; Hearth reads safetensors in F32, F16 and BF16.",
            "Choose the unquantised model or a Q8_0 GGUF file.",
        )


def _refuse_gguf_extras(read: _Reader) -> None:
    if (kind := read.optional("llama.rope.scaling.type", str, "none")) != "none":
        raise UnsupportedModelError(
            f"Scaled rotary positions (llama.rope.scaling.type: {kind[:60]}) are not supported."
        )
    for key in ("llama.rope.scaling.factor", "llama.rope.scale_linear"):
        if (factor := read.optional(key, float, 1.0)) not in (0.0, 1.0):
            raise UnsupportedModelError(f"Scaled rotary positions ({key}: {factor}) are not supported.")
    if experts := read.optional("llama.expert_count", int, 0):
        raise UnsupportedModelError(f"The model has {experts} experts; Hearth runs models without experts.")


def _token_ids(read: _Reader) -> list[int]:
    """eos_token_id, which is a number, a list of numbers or nothing."""
    value = read.values.get("eos_token_id")
    if value is None:
        return []
    ids = value if isinstance(value, list) else [value]
    if not all(type(token) is int for token in ids):
        raise ModelFormatError(f"eos_token_id in {read.where} is {str(value)[:60]}; expected are whole numbers.")
    return ids
