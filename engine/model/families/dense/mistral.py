"""Mistral 7B and models of its shape: LLaMA with a sliding window, which later versions lack.

Its GGUF files use LLaMA's name.
"""

from __future__ import annotations

from typing import Any

from engine.model.family.family import Family, windows
from engine.model.family.names import HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    size = read.optional("sliding_window", int, None)
    return {"windows": windows(read, fields["n_layers"], size, lambda layer: True)}


MISTRAL = Family(
    name="mistral",
    model_types=("mistral",),
    hf=Layout(HF_NAMES),
    hf_handles=frozenset({"sliding_window"}),
    max_context=32768,
    activation="silu",
    from_hf=_from_hf,
)
