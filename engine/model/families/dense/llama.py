"""LLaMA 1 to 3 with SiLU, and its ReLU variants: ReluLLaMA, ProSparse (FATReLU)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.model.family.family import Family
from engine.model.family.names import GGUF_NAMES, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    attention = ("q", "k", "v", "o") if read.optional("attention_bias", bool, False) else ()
    ffn = ("gate", "up", "down") if read.optional("mlp_bias", bool, False) else ()
    return {"biases": attention + ffn}


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    # Mistral uses this name in GGUF, and its first version had a window.
    window = read.optional("llama.attention.sliding_window", int, 0)
    return {"windows": (window,) * fields["n_layers"] if window else ()}


LLAMA = Family(
    name="llama",
    model_types=("llama", "sparsellama"),  # the second: ProSparse
    architectures=("llama",),
    hf=Layout(HF_NAMES),
    gguf=Layout(GGUF_NAMES, rope_pairs=True),
    hf_handles=frozenset({"attention_bias", "mlp_bias"}),
    gguf_handles=frozenset({"attention.sliding_window"}),
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
