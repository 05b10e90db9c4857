"""Qwen3, dense, and the text part of Qwen3-VL: LLaMA with a norm over each head of q and k."""

from __future__ import annotations

from typing import Any

from engine.model.families.dense.qwen2 import windows_of_qwen
from engine.model.family.family import Family
from engine.model.family.names import GGUF_NAMES, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = windows_of_qwen(read, fields)
    if read.optional("head_dim", int, None) is None:
        own["head_dim"] = 128
    if read.optional("attention_bias", bool, False):
        own["biases"] = ("q", "k", "v", "o")
    return own


# Of text, positions are the same in all sections of the rotated values.
PICTURE_KEYS = frozenset({"rope.dimension_sections", "n_deepstack_layers"})

QWEN3 = Family(
    name="qwen3",
    model_types=("qwen3", "qwen3_vl_text"),
    model_types_with_pictures=("qwen3_vl",),
    architectures=("qwen3", "qwen3vl"),
    hf=Layout(HF_NAMES),
    gguf=Layout(GGUF_NAMES),
    hf_handles=frozenset({"sliding_window", "attention_bias"}),
    gguf_handles=PICTURE_KEYS,
    max_context=32768,
    activation="silu",
    features={"qk_norm": True},
    from_hf=_from_hf,
)
