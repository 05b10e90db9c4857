"""GLM-4-0414 and GLM-Z1 (9B, 32B): norms before and after each block, half of each head rotated, fused gate and up."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.model.family.family import Family
from engine.model.family.names import GGUF_NAMES, HF_NAMES, biases_in, fused
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader
from engine.model.family.rope import rotary_dim_from_hf

_NAMES = HF_NAMES | {
    "post_attention_norm": "model.layers.{}.post_self_attn_layernorm.weight",
    "post_ffn_norm": "model.layers.{}.post_mlp_layernorm.weight",
}


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "rotary_dim": rotary_dim_from_hf(read, fields["head_dim"], 0.5),
        "biases": ("q", "k", "v") if read.optional("attention_bias", bool, True) else (),
    }


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {"biases": biases_in(names, "q", "k", "v")}


GLM4 = Family(
    name="glm4",
    model_types=("glm4",),
    architectures=("glm4",),
    hf=Layout(fused(_NAMES, gate_up="model.layers.{}.mlp.gate_up_proj.weight")),
    gguf=Layout(fused(GGUF_NAMES, gate_up="blk.{}.ffn_up.weight")),
    hf_handles=frozenset({"attention_bias", "partial_rotary_factor"}),
    norm_eps=1.5625e-07,
    max_context=131072,
    activation="silu",
    features={"norms": "both", "rope_order": "interleaved"},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
