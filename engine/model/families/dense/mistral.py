"""Mistral 7B and models of its shape: LLaMA with a sliding window, which later versions lack. Ministral 3.

GGUF files of the former use LLaMA's name. The latter, and Devstral 2, have YaRN and an attention whose temperature
depends on the position. Files from Hugging Face of 2025 and later hold a vision tower too, which is left out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.model.family.family import Family, windows
from engine.model.family.names import GGUF_NAMES, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader
from engine.model.family.rope import temperature_from_gguf

# transformers' default of Ministral 3.
_ROPE = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384,
         "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
         "llama_4_scaling_beta": 0.1}  # fmt: skip


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    size = read.optional("sliding_window", int, None)
    return {"windows": windows(read, fields["n_layers"], size, lambda layer: True)}


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return temperature_from_gguf(read, "mistral3")


MISTRAL = Family(
    name="mistral",
    model_types=("mistral",),
    model_types_with_pictures=("mistral3",),  # Mistral Small 3.1 and later
    hf=Layout(HF_NAMES),
    hf_handles=frozenset({"sliding_window"}),
    max_context=32768,
    activation="silu",
    from_hf=_from_hf,
)
MINISTRAL3 = Family(
    name="ministral3",
    model_types=("ministral3",),
    model_types_with_pictures=("mistral3",),
    architectures=("mistral3",),
    hf=Layout(HF_NAMES),
    hf_defaults={"rope_parameters": _ROPE},
    gguf=Layout(GGUF_NAMES, rope_pairs=True),
    hf_handles=frozenset({"sliding_window"}),
    gguf_handles=frozenset({"attention.temperature_scale", "rope.scaling.yarn_log_multiplier"}),
    norm_eps=1e-5,
    rope_theta=1000000.0,
    max_context=262144,
    activation="silu",
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
