"""Gemma 4, text: heads of two shapes, shared keys and values, per-layer embeddings, a FFN beside experts.

Layers with a window have small heads; every sixth or so has full attention with large ones, of which a quarter is
rotated. Vision and audio towers are left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from engine.config import RopeScaling
from engine.errors import UnsupportedModelError
from engine.model.families.dense.gemma2 import GEMMA_NAMES
from engine.model.family.experts import GGUF_EXPERT_KEYS, experts_from_gguf, experts_from_hf
from engine.model.family.family import Family, windows, windows_from_gguf
from engine.model.family.names import GGUF_EXPERTS, GGUF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader, decimal, numbers_by_layer

_PERIOD = 6
_LOCAL_THETA = 10000.0
_PROPORTIONAL = RopeScaling("proportional", 1.0, share=0.25)  # of layers with full attention, where files are silent
# Per-layer embeddings; also of Gemma 3n.
HF_LAYER_EMBEDDINGS = {
    "layer_embeddings": "model.embed_tokens_per_layer.weight",
    "layer_projection": "model.per_layer_model_projection.weight",
    "layer_projection_norm": "model.per_layer_projection_norm.weight",
    "embedding_gate": "model.layers.{}.per_layer_input_gate.weight",
    "embedding_projection": "model.layers.{}.per_layer_projection.weight",
    "post_embedding_norm": "model.layers.{}.post_per_layer_input_norm.weight",
}
GGUF_LAYER_EMBEDDINGS = {
    "layer_embeddings": "per_layer_token_embd.weight",
    "layer_projection": "per_layer_model_proj.weight",
    "layer_projection_norm": "per_layer_proj_norm.weight",
    "embedding_gate": "blk.{}.inp_gate.weight",
    "embedding_projection": "blk.{}.proj.weight",
    "post_embedding_norm": "blk.{}.post_norm.weight",
}


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    if read.optional("use_bidirectional_attention", str, "vision") != "vision":  # which concerns pictures alone
        raise UnsupportedModelError(f"{read.where} asks for attention in both directions, which Hearth does not run.")
    n_layers, n_shared = fields["n_layers"], read.optional("num_kv_shared_layers", int, 0)
    size, last = read.optional("sliding_window", int, 512), n_layers - 1
    of_layers = windows(read, n_layers, size, lambda layer: (layer + 1) % _PERIOD != 0 and layer != last)
    extra = read.optional("hidden_size_per_layer_input", int, 256)
    of_tokens = read.optional("vocab_size_per_layer_input", int, 262144)
    if extra and of_tokens != fields["vocab_size"]:
        raise UnsupportedModelError(
            f"{read.where} has per-layer embeddings of {of_tokens} tokens, and {fields['vocab_size']} tokens."
        )
    wide = read.optional("use_double_wide_mlp", bool, False) and n_shared > 0
    neurons = read.required("intermediate_size", int)
    return {
        **_heads_from_hf(read, of_layers),
        **widths([neurons * (1 + (wide and layer >= n_layers - n_shared)) for layer in range(n_layers)]),
        "windows": of_layers,
        "rope_theta_local": fields["rope_theta_local"] or _LOCAL_THETA,
        "rope_scaling": fields.get("rope_scaling") if read.values.get("rope_parameters") else _PROPORTIONAL,
        "full_v_is_k": read.optional("attention_k_eq_v", bool, False),
        "n_shared_kv_layers": n_shared,
        "layer_embedding_dim": extra,
        "logit_softcap": read.optional("final_logit_softcapping", float, None),
        "embedding_scale": math.sqrt(fields["d_model"]),
        **(_experts_from_hf(read) if read.optional("enable_moe_block", bool, False) else {}),
    }


def _experts_from_hf(read: Reader) -> dict[str, Any]:
    """Return the fields of the experts. The FFN beside them is a shared expert."""
    found = experts_from_hf(read, ("num_experts",), "top_k_experts")
    return {
        **found,
        "shared_apart": True,
        "d_ff": read.required("moe_intermediate_size", int),
        "shared_d_ff": read.required("intermediate_size", int),
    }


def _heads_from_hf(read: Reader, of_layers: tuple[int, ...]) -> dict[str, Any]:
    """Return number and size of the heads. of_layers: the windows.

    Layers with full attention have their own in `global_head_dim` and `num_global_key_value_heads`, or in
    `per_layer_config`, which newer files have instead.
    """
    small, few = read.optional("head_dim", int, 256), read.optional("num_key_value_heads", int, 4)
    full = [str(layer) for layer, window in enumerate(of_layers) if not window]
    large, number = read.optional("global_head_dim", int, 512), few
    if read.optional("attention_k_eq_v", bool, False):
        number = read.optional("num_global_key_value_heads", int, few)
    if by_layer := read.optional("per_layer_config", dict, {}):
        found = list(by_layer.values())
        known = all(isinstance(one, dict) and one.keys() <= {"head_dim", "num_key_value_heads"} for one in found)
        if sorted(by_layer) != sorted(full) or not known or any(one != found[0] for one in found):
            raise UnsupportedModelError(f"per_layer_config in {read.where} is not that of all layers without a window.")
        own = Reader(found[0], f"per_layer_config of {read.where}")
        large, number = own.optional("head_dim", int, small), own.optional("num_key_value_heads", int, few)
    return {"head_dim": large, "n_kv_heads": number, "local_head_dim": small, "local_kv_heads": few}


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    n_layers = fields["n_layers"]
    size = read.required("gemma4.attention.sliding_window", int)
    of_layers = windows_from_gguf(read, "gemma4", n_layers, size, lambda layer: (layer + 1) % _PERIOD != 0)
    small = read.optional("gemma4.attention.key_length_swa", int, fields["head_dim"])
    for key in ("attention.value_length_swa", "rope.dimension_count_swa"):
        if (value := read.optional(f"gemma4.{key}", int, small)) != small:
            raise UnsupportedModelError(f"gemma4.{key} is {value} beside heads of {small}.")
    full = [layer for layer, window in enumerate(of_layers) if not window]
    softcap = read.optional("gemma4.final_logit_softcapping", float, 0.0)
    return {
        **_heads_from_gguf(numbers_by_layer(read, "gemma4.attention.head_count_kv", n_layers), of_layers),
        **widths(numbers_by_layer(read, "gemma4.feed_forward_length", n_layers)),
        "windows": of_layers,
        "local_head_dim": small,
        "rope_theta_local": decimal(read.optional("gemma4.rope.freq_base_swa", float, _LOCAL_THETA)),
        "full_v_is_k": bool(full) and not {GGUF_NAMES[key].format(full[0]) for key in ("v", "qkv")} & set(names),
        "n_shared_kv_layers": read.optional("gemma4.attention.shared_kv_layers", int, 0),
        "layer_embedding_dim": read.optional("gemma4.embedding_length_per_layer_input", int, 0),
        "logit_softcap": decimal(softcap) or None,
        "embedding_scale": math.sqrt(fields["d_model"]),
        **(_experts_from_gguf(read, fields) if read.optional("gemma4.expert_count", int, 0) else {}),
    }


def _experts_from_gguf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    read.required("gemma4.expert_feed_forward_length", int)
    found = experts_from_gguf(read, "gemma4", "softmax")
    return {**found, "shared_apart": True, "rope_theta": fields["rope_theta"], "shared_d_ff": fields["d_ff"]}


def _heads_from_gguf(n_kv_heads: list[int], of_layers: tuple[int, ...]) -> dict[str, Any]:
    """Return the number of key-value heads of layers without and with a window. of_layers: the windows."""
    kinds = ({n for n, window in zip(n_kv_heads, of_layers, strict=True) if (window > 0) == local}
             for local in (False, True))  # fmt: skip
    full, local = (sorted(found) or [max(n_kv_heads)] for found in kinds)
    if len(full) != 1 or len(local) != 1:
        raise UnsupportedModelError("Layers of the same kind have different numbers of key-value heads.")
    return {"n_kv_heads": full[0], "local_kv_heads": local[0]}


def widths(neurons: list[int]) -> dict[str, Any]:
    """Return the fields for the neurons of each layer."""
    return {"d_ff": max(neurons), "d_ff_by_layer": tuple(neurons) if len(set(neurons)) > 1 else ()}


_NORM = "model.layers.{}.%s_feedforward_layernorm_%d.weight"
_HF_EXPERTS = {
    "router": "model.layers.{}.router.proj.weight",
    "router_norm": "model.layers.{}.router.scale",
    "expert_scale": "model.layers.{}.router.per_expert_scale",
    "experts.gate_up": "model.layers.{}.experts.gate_up_proj",
    "experts.down_t": "model.layers.{}.experts.down_proj",
    "experts_norm": _NORM % ("pre", 2),
    "post_shared_norm": _NORM % ("post", 1),
    "post_experts_norm": _NORM % ("post", 2),
}
_GGUF_EXPERTS = {
    **{
        name: GGUF_EXPERTS[name]
        for name in ("router", "experts.gate_up", "experts.gate", "experts.up", "experts.down_t")
    },
    "router_norm": "blk.{}.ffn_gate_inp.scale",
    "expert_scale": "blk.{}.ffn_down_exps.scale",
    "experts_norm": "blk.{}.pre_ffw_norm_2.weight",
    "post_shared_norm": "blk.{}.post_ffw_norm_1.weight",
    "post_experts_norm": "blk.{}.post_ffw_norm_2.weight",
}


def _names(names: dict[str, str], own: dict[str, str]) -> dict[str, str]:
    """Return the names of the format and the family's own; the FFN's are also the shared expert's."""
    return names | own | {f"shared.{part}": names[part] for part in ("gate", "up", "down_t")}


GEMMA4 = Family(
    name="gemma4",
    model_types=("gemma4_text",),
    model_types_with_pictures=("gemma4",),
    architectures=("gemma4",),
    hf=Layout(_names(GEMMA_NAMES, HF_LAYER_EMBEDDINGS | _HF_EXPERTS | {"layer_scale": "model.layers.{}.layer_scalar"})),
    gguf=Layout(
        _names(GGUF_NAMES, GGUF_LAYER_EMBEDDINGS | _GGUF_EXPERTS | {"layer_scale": "blk.{}.layer_output_scale.weight"})
    ),
    experts=True,
    hf_keys={"hidden_act": "hidden_activation"},
    hf_handles=frozenset(
        {"sliding_window", "final_logit_softcapping", "use_bidirectional_attention", "num_experts",
         "moe_intermediate_size"}
    ),
    gguf_handles=GGUF_EXPERT_KEYS | frozenset(
        {"attention.sliding_window", "attention.sliding_window_pattern", "attention.key_length_swa",
         "attention.value_length_swa", "attention.shared_kv_layers", "rope.freq_base_swa", "rope.dimension_count_swa",
         "embedding_length_per_layer_input", "final_logit_softcapping"}
    ),
    by_layer=frozenset({"feed_forward_length", "attention.head_count_kv"}),
    rope_theta=1e6,
    max_context=131072,
    tied=True,
    activation="gelu_pytorch_tanh",
    gguf_activation="gelu-tanh-glu",
    features={"norms": "both", "qk_norm": True, "v_norm": True, "layer_scale": True, "attention_scale": 1.0,
              "shared_gated": False},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)  # fmt: skip
