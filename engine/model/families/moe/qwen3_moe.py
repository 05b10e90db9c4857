"""Qwen3 with experts (30B-A3B, 235B-A22B, Coder): Qwen3's attention with a router and many small experts.

Of Qwen3-VL, the text part.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.model.families.dense.qwen2 import windows_of_qwen
from engine.model.families.dense.qwen3 import PICTURE_KEYS
from engine.model.family.experts import GGUF_EXPERT_KEYS, experts_from_gguf, experts_from_hf, refuse_layers_without
from engine.model.family.family import Family
from engine.model.family.names import GGUF_EXPERTS, GGUF_NAMES, HF_NAMES, hf_experts
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

_EXPERTS = hf_experts("mlp.gate", "mlp.experts", "gate_proj", "up_proj", "down_proj") | {
    "experts.gate_up": "model.layers.{}.mlp.experts.gate_up_proj",
    "experts.down_t": "model.layers.{}.mlp.experts.down_proj",
}


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    refuse_layers_without(read)
    own: dict[str, Any] = windows_of_qwen(read, fields)
    own |= experts_from_hf(read, ("num_experts", "num_local_experts"), "num_experts_per_tok")
    own["d_ff"] = read.required("moe_intermediate_size", int)
    own["normed_routing"] = read.optional("norm_topk_prob", bool, read.values["model_type"] == "qwen3_vl_moe_text")
    if read.optional("attention_bias", bool, False):
        own["biases"] = ("q", "k", "v", "o")
    return own


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    arch = read.required("general.architecture", str)
    read.required(f"{arch}.expert_feed_forward_length", int)  # feed_forward_length is for layers without experts
    return experts_from_gguf(read, arch, "softmax")


QWEN3_MOE = Family(
    name="qwen3_moe",
    model_types=("qwen3_moe", "qwen3_vl_moe_text"),
    model_types_with_pictures=("qwen3_vl_moe",),
    architectures=("qwen3moe", "qwen3vlmoe"),
    hf=Layout(HF_NAMES | _EXPERTS),
    gguf=Layout(GGUF_NAMES | GGUF_EXPERTS),
    hf_handles=frozenset(
        {"sliding_window", "attention_bias", "num_experts", "num_local_experts", "moe_intermediate_size"}
    ),
    gguf_handles=GGUF_EXPERT_KEYS | PICTURE_KEYS,
    max_context=32768,
    activation="silu",
    experts=True,
    features={"qk_norm": True},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
