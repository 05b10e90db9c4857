"""Phi-3: fused q, k and v, fused gate and up; plain positions (4k) or LongRoPE (128k)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.model.family.family import Family, windows
from engine.model.family.names import GGUF_NAMES, HF_NAMES, fused
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader
from engine.model.family.rope import rotary_dim_from_hf


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    size = read.optional("sliding_window", int, None)
    return {
        "windows": windows(read, fields["n_layers"], size, lambda layer: True),
        "rotary_dim": rotary_dim_from_hf(read, fields["head_dim"]),
    }


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    size = read.optional("phi3.attention.sliding_window", int, 0)
    return {"windows": (size,) * fields["n_layers"] if size else ()}


PHI3 = Family(
    name="phi3",
    model_types=("phi3",),
    architectures=("phi3",),
    hf=Layout(
        fused(
            HF_NAMES,
            qkv="model.layers.{}.self_attn.qkv_proj.weight",
            gate_up="model.layers.{}.mlp.gate_up_proj.weight",
        )
    ),
    gguf=Layout(fused(GGUF_NAMES, qkv="blk.{}.attn_qkv.weight", gate_up="blk.{}.ffn_up.weight")),
    hf_handles=frozenset({"sliding_window", "partial_rotary_factor"}),
    gguf_handles=frozenset({"attention.sliding_window"}),
    norm_eps=1e-5,
    max_context=4096,
    activation="silu",
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
