"""LFM2 and LFM2.5, dense and with experts: short convolutions in most layers, attention in the others.

The convolution sees a few positions and stands between two multiplications; its state is what it saw last. The vision
tower of LFM2-VL is left out.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.family.experts import (
    GGUF_EXPERT_KEYS,
    experts_from_gguf,
    experts_from_hf,
    layers_without_experts,
)
from engine.model.family.family import Family
from engine.model.family.names import GGUF_EXPERTS, GGUF_NAMES, HF_NAMES, hf_experts
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader, numbers_by_layer
from native_kernels.specs import ShortConvSpec

_LAYER = "model.layers.{}"
_HF = HF_NAMES | {
    "attention_norm": f"{_LAYER}.operator_norm.weight",
    "ffn_norm": f"{_LAYER}.ffn_norm.weight",
    "q_norm": f"{_LAYER}.self_attn.q_layernorm.weight",
    "k_norm": f"{_LAYER}.self_attn.k_layernorm.weight",
    "o": f"{_LAYER}.self_attn.out_proj.weight",
    "delta.in": f"{_LAYER}.conv.in_proj.weight",
    "delta.conv": f"{_LAYER}.conv.conv.weight",
    "delta.o": f"{_LAYER}.conv.out_proj.weight",
    "gate": f"{_LAYER}.feed_forward.w1.weight",
    "up": f"{_LAYER}.feed_forward.w3.weight",
    "down_t": f"{_LAYER}.feed_forward.w2.weight",
    "final_norm": "model.embedding_norm.weight",
}
_HF_EXPERTS = hf_experts("feed_forward.gate", "feed_forward.experts", "w1", "w3", "w2") | {
    "selection_bias": f"{_LAYER}.feed_forward.expert_bias",
}
_GGUF = GGUF_NAMES | {
    "delta.in": "blk.{}.shortconv.in_proj.weight",
    "delta.conv": "blk.{}.shortconv.conv.weight",
    "delta.o": "blk.{}.shortconv.out_proj.weight",
    "final_norm": "token_embd_norm.weight",
}


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    return _layers_from_hf(read, fields) | {"d_ff": _neurons(read)}


def _layers_from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    if read.optional("conv_bias", bool, False):
        raise UnsupportedModelError(f"conv_bias is set in {read.where}, which Hearth does not run in lfm2.")
    n_layers, kinds = fields["n_layers"], read.optional("layer_types", list, None)
    if kinds is None:
        attending = read.optional("full_attn_idxs", list, list(range(n_layers)))
        kinds = ["full_attention" if i in attending else "conv" for i in range(n_layers)]
    if len(kinds) != n_layers or not all(kind in ("full_attention", "conv") for kind in kinds):
        raise UnsupportedModelError(f"layer_types in {read.where} is not a list of {n_layers} known kinds of layer.")
    layers = tuple(i for i, kind in enumerate(kinds) if kind == "conv")
    tied = read.optional("tie_embedding", bool, fields["tied_embeddings"])
    return {**_with(layers, fields, read.optional("conv_L_cache", int, 3)), "tied_embeddings": tied}


def _with(layers: tuple[int, ...], fields: dict[str, Any], width: int) -> dict[str, Any]:
    """Return the fields of a model in which these layers have a convolution; of one without such layers, no spec."""
    return {"short_conv": ShortConvSpec(fields["d_model"], width) if layers else None, "delta_layers": layers}


def _neurons(read: Reader) -> int:
    """Return the neurons of an FFN, which are mostly two thirds of the stated number, rounded up to whole blocks."""
    neurons = read.required("intermediate_size" if read.values.get("block_ff_dim") is None else "block_ff_dim", int)
    if not read.optional("block_auto_adjust_ff_dim", bool, True):
        return neurons
    block: int = read.optional("block_multiple_of", int, 256)
    if block < 1:
        raise ModelFormatError(f"block_multiple_of is {block} in {read.where}; at least 1 is needed.")
    neurons = 2 * neurons // 3
    if read.values.get("block_ffn_dim_multiplier", 1.0) is None:
        return neurons
    factor: float = read.optional("block_ffn_dim_multiplier", float, 1.0)
    if not 0 < factor < 1e3:
        raise ModelFormatError(f"block_ffn_dim_multiplier is {factor} in {read.where}; a positive number is needed.")
    return -(-int(factor * neurons) // block) * block


def _moe_from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        **_layers_from_hf(read, fields),
        **experts_from_hf(read, ("num_experts",), "num_experts_per_tok"),
        **layers_without_experts(read.optional("num_dense_layers", int, 2), fields["d_ff"]),
        "d_ff": read.required("moe_intermediate_size", int),
        "selection_bias": read.optional("use_expert_bias", bool, True),
        "normed_routing": read.optional("norm_topk_prob", bool, True),
        "routing_scale": read.optional("routed_scaling_factor", float, 1.0),
    }


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    arch, n_layers = read.required("general.architecture", str), fields["n_layers"]
    kv_heads = numbers_by_layer(read, f"{arch}.attention.head_count_kv", n_layers, least=0)
    layers = tuple(i for i, heads in enumerate(kv_heads) if not heads)
    return _with(layers, fields, read.required(f"{arch}.shortconv.l_cache", int))


def _moe_from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    dense = read.optional("lfm2moe.leading_dense_block_count", int, 0)
    return {
        **_from_gguf(read, fields, names),
        **experts_from_gguf(read, "lfm2moe", "sigmoid"),
        **layers_without_experts(dense, fields["d_ff"]),
        "d_ff": read.required("lfm2moe.expert_feed_forward_length", int),
        "selection_bias": GGUF_EXPERTS["selection_bias"].format(dense) in names,
    }


LFM2 = Family(
    name="lfm2",
    model_types=("lfm2",),
    model_types_with_pictures=("lfm2_vl",),
    architectures=("lfm2",),
    hf=Layout(_HF, as_trained=True),
    gguf=Layout(_GGUF),
    hf_keys={"rms_norm_eps": "norm_eps"},
    hf_handles=frozenset({"layer_types"}),
    gguf_handles=frozenset({"shortconv.l_cache"}),
    by_layer=frozenset({"attention.head_count_kv"}),
    norm_eps=1e-5,
    rope_theta=1000000.0,
    max_context=128000,
    tied=True,
    activation="silu",
    features={"qk_norm": True},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
LFM2_MOE = replace(
    LFM2,
    name="lfm2_moe",
    model_types=("lfm2_moe",),
    model_types_with_pictures=(),
    architectures=("lfm2moe",),
    hf=Layout(_HF | _HF_EXPERTS, as_trained=True),
    gguf=Layout(_GGUF | GGUF_EXPERTS),
    hf_handles=frozenset({"layer_types", "num_experts", "moe_intermediate_size"}),
    gguf_handles=GGUF_EXPERT_KEYS | {"shortconv.l_cache", "leading_dense_block_count"},
    experts=True,
    features={"qk_norm": True, "router": "sigmoid", "shared_gated": False},
    from_hf=_moe_from_hf,
    from_gguf=_moe_from_gguf,
)
