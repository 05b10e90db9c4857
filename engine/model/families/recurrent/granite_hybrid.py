"""Granite 4: Mamba-2 in most layers and attention in some, with Granite's multipliers, dense or with experts.

A dense model has only what is the shared expert of the others. Models of attention alone have rotary positions, the
others none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.families.dense.granite import MULTIPLIERS, scales, scales_from_gguf
from engine.model.families.recurrent.mamba import (
    GGUF_MAMBA,
    GGUF_MAMBA_KEYS,
    hf_mamba,
    mamba_from_gguf,
    refuse_limits,
    with_mamba,
)
from engine.model.family.experts import GGUF_EXPERT_KEYS, experts_from_gguf, experts_from_hf
from engine.model.family.family import Family
from engine.model.family.names import GGUF_EXPERTS, HF_NAMES, fused
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader, numbers_by_layer
from native_kernels.specs import DeltaSpec

_LAYER = "model.layers.{}"
_SHARED = f"{_LAYER}.shared_mlp.input_linear.weight"
_HF = fused(HF_NAMES, gate_up=_SHARED) | hf_mamba(f"{_LAYER}.mamba") | {
    "down_t": f"{_LAYER}.shared_mlp.output_linear.weight",
    "router": f"{_LAYER}.block_sparse_moe.router.layer.weight",
    "experts.gate_up": f"{_LAYER}.block_sparse_moe.input_linear.weight",
    "experts.down_t": f"{_LAYER}.block_sparse_moe.output_linear.weight",
    "shared.gate_up": _SHARED,
    "shared.down_t": f"{_LAYER}.shared_mlp.output_linear.weight",
}  # fmt: skip
_KINDS = {"mamba": True, "linear_attention": True, "attention": False, "full_attention": False}


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    if read.values.get("mamba_proj_bias"):
        raise UnsupportedModelError(f"mamba_proj_bias is set in {read.where}, which Hearth does not run.")
    refuse_limits(read)
    if (positions := read.optional("position_embedding_type", str, "nope")) not in ("nope", "rope"):
        raise UnsupportedModelError(f"position_embedding_type is {positions[:60]}; Hearth runs rope and nope.")
    n_layers, kinds = fields["n_layers"], read.required("layer_types", list)
    if len(kinds) != n_layers or not all(isinstance(kind, str) and kind in _KINDS for kind in kinds):
        raise UnsupportedModelError(f"layer_types in {read.where} is not a list of {n_layers} known kinds of layer.")
    layers = tuple(i for i, kind in enumerate(kinds) if _KINDS[kind])
    multipliers = scales(fields, [read.optional(key, float, 1.0) for key in MULTIPLIERS])
    return multipliers | {
        **(with_mamba(_mamba_from_hf(read, fields), layers) if layers else {}),
        **_ffn_from_hf(read, fields),
        "unrotated": () if positions == "rope" else tuple(range(n_layers)),
    }


def _mamba_from_hf(read: Reader, fields: dict[str, Any]) -> DeltaSpec:
    heads, groups = read.optional("mamba_n_heads", int, 128), read.optional("mamba_n_groups", int, 1)
    size = read.values.get("mamba_d_head", "auto")
    inner = read.optional("mamba_expand", int, 2) * fields["d_model"]
    if size == "auto" and (heads < 1 or inner % heads):
        raise ModelFormatError(f"{heads} heads of Mamba-2 cannot share {inner} values in {read.where}.")
    return DeltaSpec(
        key_heads=groups,
        value_heads=heads,
        key_dim=read.optional("mamba_d_state", int, 256),
        value_dim=inner // heads if size == "auto" else read.required("mamba_d_head", int),
        conv_width=read.optional("mamba_d_conv", int, 4),
        mamba=True,
        norm_groups=groups,
        conv_bias=read.optional("mamba_conv_bias", bool, True),
        epsilon=fields["norm_eps"],
    )


def _ffn_from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    shared = read.required("shared_intermediate_size", int)
    if not read.optional("num_local_experts", int, 8):
        return {"d_ff": shared}
    return {**experts_from_hf(read, ("num_local_experts",), "num_experts_per_tok"), "shared_d_ff": shared}


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    arch, n_layers = "granitehybrid", fields["n_layers"]
    kv_heads = numbers_by_layer(read, f"{arch}.attention.head_count_kv", n_layers, least=0)
    layers = tuple(i for i, heads in enumerate(kv_heads) if not heads)
    found = scales_from_gguf(read, arch, fields)
    found |= mamba_from_gguf(read, arch, layers, epsilon=fields["norm_eps"])
    found["unrotated"] = () if read.optional(f"{arch}.rope.scaling.finetuned", bool, False) else tuple(range(n_layers))
    shared = read.optional(f"{arch}.expert_shared_feed_forward_length", int, 0)
    if not read.optional(f"{arch}.expert_count", int, 0):
        return found | ({"d_ff": shared} if shared else {})
    return found | experts_from_gguf(read, arch, "softmax") | {"shared_d_ff": shared}


GRANITE_HYBRID = Family(
    name="granite_hybrid",
    model_types=("granitemoehybrid",),
    architectures=("granitehybrid",),
    hf=Layout(_HF, as_trained=True),
    gguf=Layout(GGUF_MAMBA | GGUF_EXPERTS, rope_pairs=True, mamba_columns=True),
    hf_handles=frozenset({"layer_types", "num_local_experts", *MULTIPLIERS}),
    gguf_handles=GGUF_MAMBA_KEYS
    | GGUF_EXPERT_KEYS
    | {"embedding_scale", "residual_scale", "logit_scale", "attention.scale", "expert_shared_feed_forward_length"},
    by_layer=frozenset({"attention.head_count_kv"}),
    experts=True,
    activation="silu",
    features={"shared_gated": False},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
