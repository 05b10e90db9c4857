"""ERNIE 4.5, dense (0.3B): LLaMA that rotates neighbouring values of a head."""

from __future__ import annotations

from typing import Any

from engine.model.family.family import Family
from engine.model.family.names import GGUF_NAMES, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    biased = read.optional("use_bias", bool, False)
    return {"biases": ("q", "k", "v", "o", "gate", "up", "down") if biased else ()}


ERNIE4_5 = Family(
    name="ernie4_5",
    model_types=("ernie4_5",),
    architectures=("ernie4_5",),
    hf=Layout(HF_NAMES),
    gguf=Layout(GGUF_NAMES),
    norm_eps=1e-5,
    rope_theta=500000.0,
    max_context=131072,
    tied=True,
    activation="silu",
    features={"rope_order": "interleaved"},
    from_hf=_from_hf,
)
