"""Granite 3 and 4, dense: LLaMA with multipliers of embedding, attention scores, residual sums and logits.

A block's result is multiplied before it is added to the stream. Hearth keeps the stream divided by that multiplier:
only the embedding's scale changes, and the epsilon of the norms, which read nothing but the stream.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.errors import ModelFormatError
from engine.model.family.family import Family
from engine.model.family.names import GGUF_NAMES, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader, decimal

MULTIPLIERS = ("embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier")


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    attention = ("q", "k", "v", "o") if read.optional("attention_bias", bool, False) else ()
    ffn = ("gate", "up", "down") if read.optional("mlp_bias", bool, False) else ()
    return {"biases": attention + ffn, **scales(fields, [read.optional(key, float, 1.0) for key in MULTIPLIERS])}


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return scales_from_gguf(read, "granite", fields)


def scales_from_gguf(read: Reader, arch: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the four multipliers from GGUF keys."""
    keys = ("embedding_scale", "residual_scale", "logit_scale")
    given = [decimal(read.optional(f"{arch}.{key}", float, 1.0)) for key in keys]
    attention = decimal(read.optional(f"{arch}.attention.scale", float, fields["head_dim"] ** -0.5))
    return scales(fields, [*given, attention])


def scales(fields: dict[str, Any], multipliers: list[float]) -> dict[str, Any]:
    """Return the fields of the four multipliers, in the order of MULTIPLIERS."""
    for value in multipliers:
        if not 1e-4 < value < 1e6:
            raise ModelFormatError(f"A multiplier of the model is {value!r}; a number from 0.0001 on is needed.")
    embedding, residual, logits, attention = multipliers
    return {
        "embedding_scale": embedding / residual,
        "norm_eps": fields["norm_eps"] / residual**2,
        "attention_scale": attention,
        "logit_scale": 1 / logits,
    }


GRANITE = Family(
    name="granite",
    model_types=("granite",),
    architectures=("granite",),
    hf=Layout(HF_NAMES),
    gguf=Layout(GGUF_NAMES, rope_pairs=True),
    hf_handles=frozenset({"attention_bias", "mlp_bias", *MULTIPLIERS}),
    gguf_handles=frozenset({"embedding_scale", "residual_scale", "logit_scale", "attention.scale"}),
    activation="silu",
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
