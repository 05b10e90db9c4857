"""Placements that nobody solved, for tests of what runs by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.sparsity.placement import RAM_PARTS, VRAM_PARTS, Origins, Placement
from native_kernels.backend import I32


def a_placement(hot: Sequence[I32], neurons: int, reached: Sequence[I32] = (), **changes: Any) -> Placement:
    """Return a placement of all layers on the GPU with these hot and zero-copy (`reached`) neurons."""
    values: dict[str, Any] = {
        "hot": tuple(hot), "zero_copy": tuple(reached), "predictor": ("gpu",) * len(hot),
        "attention": ("gpu",) * len(hot), "embedding": "cpu", "head": "cpu", "neurons": neurons,
        "statistics": "none", "fired_share": 0.3,
        "vram_parts_bytes": dict.fromkeys(VRAM_PARTS, 1), "ram_parts_bytes": dict.fromkeys(RAM_PARTS, 1),
        "position": 8, "objective": 1e-3, "gap": 0.0, "gpu_neuron_load": 0.5,
        "origins": Origins("", "", "", "", "", 1, None, 64, "f16", "exact", 2),
    }  # fmt: skip
    return Placement(**{**values, **changes})
