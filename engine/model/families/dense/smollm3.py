"""SmolLM3: LLaMA without rotation in every fourth layer."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.family.family import Family
from engine.model.family.names import GGUF_NAMES, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

_INTERVAL = 4  # of layers without rotation; GGUF does not state it


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    if read.optional("use_sliding_window", bool, False):
        raise UnsupportedModelError(f"use_sliding_window is on in {read.where}, which Hearth does not run in smollm3.")
    n_layers = fields["n_layers"]
    rotated = read.optional("no_rope_layers", list, None)
    if rotated is None:
        return {"unrotated": _every(read.optional("no_rope_layer_interval", int, _INTERVAL), n_layers)}
    if len(rotated) != n_layers or not all(type(on) is int and on in (0, 1) for on in rotated):
        raise ModelFormatError(f"no_rope_layers in {read.where} is not a list of {n_layers} ones and zeros.")
    return {"unrotated": tuple(layer for layer, on in enumerate(rotated) if not on)}


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {"unrotated": _every(_INTERVAL, fields["n_layers"])}


def _every(interval: int, n_layers: int) -> tuple[int, ...]:
    if interval < 1:
        raise ModelFormatError(f"no_rope_layer_interval is {interval}; a positive number is needed.")
    return tuple(range(interval - 1, n_layers, interval))


SMOLLM3 = Family(
    name="smollm3",
    model_types=("smollm3",),
    architectures=("smollm3",),
    hf=Layout(HF_NAMES),
    gguf=Layout(GGUF_NAMES, rope_pairs=True),
    hf_handles=frozenset({"no_rope_layers"}),
    rope_theta=2000000.0,
    max_context=32768,
    tied=True,
    activation="silu",
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
