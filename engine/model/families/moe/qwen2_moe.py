"""Qwen2 with experts (1.5-MoE-A2.7B, 57B-A14B): many small experts and a larger shared expert."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.model.families.dense.qwen2 import windows_of_qwen
from engine.model.family.experts import (
    GGUF_EXPERT_KEYS,
    experts_from_gguf,
    experts_from_hf,
    refuse_layers_without,
)
from engine.model.family.family import Family
from engine.model.family.names import GGUF_EXPERTS, GGUF_NAMES, HF_NAMES, hf_experts
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

_SHARED = "model.layers.{}.mlp.shared_expert"
_EXPERTS = hf_experts("mlp.gate", "mlp.experts", "gate_proj", "up_proj", "down_proj") | {
    "shared.gate": f"{_SHARED}.gate_proj.weight",
    "shared.up": f"{_SHARED}.up_proj.weight",
    "shared.down_t": f"{_SHARED}.down_proj.weight",
    "shared_gate row": f"{_SHARED}_gate.weight",
}


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    refuse_layers_without(read)
    own: dict[str, Any] = windows_of_qwen(read, fields)
    own |= experts_from_hf(read, ("num_experts", "num_local_experts"), "num_experts_per_tok")
    own["d_ff"] = read.required("moe_intermediate_size", int)
    own["shared_d_ff"] = read.required("shared_expert_intermediate_size", int)
    own["normed_routing"] = read.optional("norm_topk_prob", bool, False)
    own["biases"] = ("q", "k", "v") if read.optional("qkv_bias", bool, True) else ()
    return own


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    read.required("qwen2moe.expert_feed_forward_length", int)  # feed_forward_length is for layers without experts
    shared = read.required("qwen2moe.expert_shared_feed_forward_length", int)
    return {**experts_from_gguf(read, "qwen2moe", "softmax", normed=False), "shared_d_ff": shared}


QWEN2_MOE = Family(
    name="qwen2_moe",
    model_types=("qwen2_moe",),
    architectures=("qwen2moe",),
    hf=Layout(HF_NAMES | _EXPERTS),
    gguf=Layout(GGUF_NAMES | GGUF_EXPERTS),
    hf_handles=frozenset({"sliding_window", "qkv_bias", "num_experts", "num_local_experts", "moe_intermediate_size"}),
    gguf_handles=GGUF_EXPERT_KEYS | {"expert_shared_feed_forward_length"},
    max_context=32768,
    activation="silu",
    experts=True,
    features={"biases": ("q", "k", "v")},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
