"""Seed-OSS 36B: LLaMA with biases on q, k and v."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.model.family.family import Family
from engine.model.family.names import GGUF_NAMES, HF_NAMES, biases_in
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    qkv = ("q", "k", "v") if read.optional("attention_bias", bool, True) else ()
    o = ("o",) if read.optional("attention_out_bias", bool, False) else ()
    return {"biases": qkv + o}


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {"biases": biases_in(names, "q", "k", "v", "o")}


SEED_OSS = Family(
    name="seed_oss",
    model_types=("seed_oss",),
    architectures=("seed_oss",),
    hf=Layout(HF_NAMES),
    gguf=Layout(GGUF_NAMES | {"ffn_norm": "blk.{}.post_attention_norm.weight"}),
    hf_handles=frozenset({"attention_bias"}),
    max_context=524288,
    activation="silu",
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
