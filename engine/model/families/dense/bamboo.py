"""Bamboo and TurboSparse-Mistral: Mistral with ReLU on gate and up (dReLU), so that few neurons are active."""

from __future__ import annotations

from typing import Any

from engine.errors import UnsupportedModelError
from engine.model.family.family import Family, windows
from engine.model.family.names import GGUF_NAMES, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    if fields["activation"] not in ("relu-glu", "drelu-glu"):  # "relu" means ReLU on both in its configurations
        raise UnsupportedModelError(f"The activation {fields['activation']} is not supported in bamboo; relu is.")
    size = read.optional("sliding_window", int, None)
    return {"activation": "drelu-glu", "windows": windows(read, fields["n_layers"], size, lambda layer: True)}


BAMBOO = Family(
    name="bamboo",
    model_types=("bamboo", "turbosparsemistral"),
    hf_architectures=("BambooForCausalLM", "TurboSparseMistralForCausalLM"),
    architectures=("bamboo",),
    hf=Layout(HF_NAMES),
    gguf=Layout(GGUF_NAMES, rope_pairs=True),
    hf_handles=frozenset({"sliding_window"}),
    max_context=32768,
    activation="relu",
    gguf_activation="drelu-glu",
    powerinfer_activation="drelu-glu",
    from_hf=_from_hf,
)
