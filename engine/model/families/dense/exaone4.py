"""EXAONE 4 (1.2B, 32B): norms of the blocks' outputs alone, and of each head of q and k.

In the 32B three of four layers have a window, and only these rotate.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.model.families.dense.olmo2 import OUTPUT_NORMS
from engine.model.family.family import Family, windows, windows_from_gguf
from engine.model.family.names import GGUF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

_PERIOD = 4  # of layers without a window


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    size = read.optional("sliding_window", int, None)
    return _windowed(windows(read, fields["n_layers"], size, _is_windowed))


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    size = read.optional("exaone4.attention.sliding_window", int, 0)
    return _windowed(windows_from_gguf(read, "exaone4", fields["n_layers"], size, _is_windowed) if size else ())


def _windowed(sizes: tuple[int, ...]) -> dict[str, Any]:
    return {"windows": sizes, "unrotated": tuple(layer for layer, size in enumerate(sizes) if not size)}


def _is_windowed(layer: int) -> bool:
    return (layer + 1) % _PERIOD > 0


EXAONE4 = Family(
    name="exaone4",
    model_types=("exaone4",),
    architectures=("exaone4",),
    hf=Layout(OUTPUT_NORMS),
    gguf=Layout(GGUF_NAMES),
    hf_handles=frozenset({"sliding_window"}),
    gguf_handles=frozenset({"attention.sliding_window", "attention.sliding_window_pattern"}),
    norm_eps=1e-5,
    activation="silu",
    features={"norms": "output", "qk_norm": True},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
