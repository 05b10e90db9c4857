"""Qwen3.5, 3.6 and 3.8, dense and with experts: three gated delta nets, then a layer with gated attention.

Their files hold a vision tower, which is left out. A text's positions are the same in all sections of the rotated
values, so the sections are not needed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from engine.model.families.recurrent.delta_nets import (
    GGUF_DELTA,
    GGUF_DELTA_KEYS,
    HF_DELTA,
    HF_DELTA_KEYS,
    delta_from_gguf,
    delta_from_hf,
)
from engine.model.family.experts import GGUF_EXPERT_KEYS, experts_from_gguf, experts_from_hf
from engine.model.family.family import Family
from engine.model.family.names import GGUF_DRAFTS, GGUF_EXPERTS, HF_NAMES, hf_experts
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

_IN = "model.layers.{}.linear_attn.in_proj_"
_HF = HF_NAMES | HF_DELTA | {
    "delta.qkv": f"{_IN}qkv.weight",
    "delta.attention_gate": f"{_IN}z.weight",
    "delta.beta": f"{_IN}b.weight",
    "delta.alpha": f"{_IN}a.weight",
}  # fmt: skip
_GGUF = GGUF_DELTA | {"delta.beta": "blk.{}.ssm_beta.weight", "delta.alpha": "blk.{}.ssm_alpha.weight"}
# Also of Qwen3-Next, as the next.
HF_DRAFTS = {
    "draft.project": "mtp.fc.weight",
    "draft.embedding_norm": "mtp.pre_fc_norm_embedding.weight",
    "draft.hidden_norm": "mtp.pre_fc_norm_hidden.weight",
    "draft.final_norm": "mtp.norm.weight",
}
DRAFT_LAYERS = "mtp.layers."
_SHARED = "model.layers.{}.mlp.shared_expert"
HF_EXPERTS = hf_experts("mlp.gate", "mlp.experts", "gate_proj", "up_proj", "down_proj") | {
    "experts.gate_up": "model.layers.{}.mlp.experts.gate_up_proj",
    "experts.down_t": "model.layers.{}.mlp.experts.down_proj",
    "shared.gate": f"{_SHARED}.gate_proj.weight",
    "shared.up": f"{_SHARED}.up_proj.weight",
    "shared.down_t": f"{_SHARED}.down_proj.weight",
    "shared_gate row": f"{_SHARED}_gate.weight",
}


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return delta_from_gguf(read, "qwen35", fields, "tiled")


def experts_of_hf(read: Reader) -> dict[str, Any]:
    """Return the fields of the experts and of the shared one."""
    return {
        **experts_from_hf(read, ("num_experts",), "num_experts_per_tok"),
        "d_ff": read.required("moe_intermediate_size", int),
        "shared_d_ff": read.required("shared_expert_intermediate_size", int),
    }


def experts_of_gguf(read: Reader, arch: str) -> dict[str, Any]:
    """Return the same from GGUF keys."""
    read.required(f"{arch}.expert_feed_forward_length", int)
    shared = read.required(f"{arch}.expert_shared_feed_forward_length", int)
    return {**experts_from_gguf(read, arch, "softmax"), "shared_d_ff": shared}


def _moe_from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    return delta_from_hf(read, fields) | experts_of_hf(read)


def _moe_from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return delta_from_gguf(read, "qwen35moe", fields, "tiled") | experts_of_gguf(read, "qwen35moe")


QWEN3_5 = Family(
    name="qwen3_5",
    model_types=("qwen3_5_text",),
    model_types_with_pictures=("qwen3_5",),
    architectures=("qwen35",),
    hf=Layout(_HF, plus_one=True, as_trained=True, drafts=HF_DRAFTS, draft_layers=DRAFT_LAYERS),
    gguf=Layout(_GGUF, drafts=GGUF_DRAFTS),
    hf_handles=HF_DELTA_KEYS,
    gguf_handles=GGUF_DELTA_KEYS,
    drafts=True,
    max_context=32768,
    activation="silu",
    features={"qk_norm": True, "gated_attention": True},
    from_hf=delta_from_hf,
    from_gguf=_from_gguf,
)
QWEN3_5_MOE = replace(
    QWEN3_5,
    name="qwen3_5_moe",
    model_types=("qwen3_5_moe_text",),
    model_types_with_pictures=("qwen3_5_moe",),
    architectures=("qwen35moe",),
    hf=replace(QWEN3_5.hf, names=_HF | HF_EXPERTS),
    gguf=Layout(_GGUF | GGUF_EXPERTS, drafts=GGUF_DRAFTS),
    hf_handles=HF_DELTA_KEYS | {"num_experts", "moe_intermediate_size"},
    gguf_handles=GGUF_DELTA_KEYS | GGUF_EXPERT_KEYS | {"expert_shared_feed_forward_length"},
    experts=True,
    from_hf=_moe_from_hf,
    from_gguf=_moe_from_gguf,
)
