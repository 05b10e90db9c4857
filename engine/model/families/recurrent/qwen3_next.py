"""Qwen3-Next and Qwen3-Coder-Next (80B-A3B): Qwen3.5's layers with experts, and other fused projections."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.model.families.recurrent.delta_nets import (
    GGUF_DELTA,
    GGUF_DELTA_KEYS,
    HF_DELTA,
    HF_DELTA_KEYS,
    delta_from_gguf,
    delta_from_hf,
)
from engine.model.families.recurrent.qwen3_5 import (
    DRAFT_LAYERS,
    HF_DRAFTS,
    HF_EXPERTS,
    experts_of_gguf,
    experts_of_hf,
)
from engine.model.family.experts import GGUF_EXPERT_KEYS, refuse_layers_without
from engine.model.family.family import Family
from engine.model.family.names import GGUF_DRAFTS, GGUF_EXPERTS, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

_IN = "model.layers.{}.linear_attn.in_proj_"
_HF = HF_NAMES | HF_DELTA | HF_EXPERTS | {"delta.qkvz": f"{_IN}qkvz.weight", "delta.ba": f"{_IN}ba.weight"}
_GGUF = GGUF_DELTA | GGUF_EXPERTS | {"delta.qkvz": "blk.{}.ssm_in.weight", "delta.ba": "blk.{}.ssm_ba.weight"}


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    refuse_layers_without(read)
    normed = read.optional("norm_topk_prob", bool, True)
    return delta_from_hf(read, fields) | experts_of_hf(read) | {"normed_routing": normed}


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return delta_from_gguf(read, "qwen3next", fields, "grouped") | experts_of_gguf(read, "qwen3next")


QWEN3_NEXT = Family(
    name="qwen3_next",
    model_types=("qwen3_next",),
    architectures=("qwen3next",),
    hf=Layout(_HF, plus_one=True, as_trained=True, drafts=HF_DRAFTS, draft_layers=DRAFT_LAYERS),
    gguf=Layout(_GGUF, drafts=GGUF_DRAFTS),
    hf_handles=HF_DELTA_KEYS | {"num_experts", "moe_intermediate_size"},
    gguf_handles=GGUF_DELTA_KEYS | GGUF_EXPERT_KEYS | {"expert_shared_feed_forward_length"},
    drafts=True,
    experts=True,
    max_context=32768,
    activation="silu",
    features={"qk_norm": True, "gated_attention": True},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
