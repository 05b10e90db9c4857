"""Qwen2 and Qwen2.5, dense: LLaMA with biases on q, k and v."""

from __future__ import annotations

from typing import Any

from engine.model.family.family import Family, windows
from engine.model.family.names import GGUF_NAMES, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader


def windows_of_qwen(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    """Return windows for layers from max_window_layers on, if use_sliding_window is set."""
    size = read.optional("sliding_window", int, 4096) if read.optional("use_sliding_window", bool, False) else None
    first = read.optional("max_window_layers", int, 28)
    return {"windows": windows(read, fields["n_layers"], size, lambda layer: layer >= first)}


QWEN2 = Family(
    name="qwen2",
    model_types=("qwen2",),
    architectures=("qwen2",),
    hf=Layout(HF_NAMES),
    gguf=Layout(GGUF_NAMES),
    hf_handles=frozenset({"sliding_window"}),
    max_context=32768,
    activation="silu",
    features={"biases": ("q", "k", "v")},
    from_hf=windows_of_qwen,
)
