"""Gemma 2: norms before and after a block, stored minus one; capped scores and logits; windows in half the layers."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from engine.errors import ModelFormatError
from engine.model.family.family import Family, windows, windows_from_gguf
from engine.model.family.names import GGUF_NAMES, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader, decimal

_LAYERS_OF_27B = 46
GEMMA_NAMES = HF_NAMES | {
    "post_attention_norm": "model.layers.{}.post_attention_layernorm.weight",
    "ffn_norm": "model.layers.{}.pre_feedforward_layernorm.weight",
    "post_ffn_norm": "model.layers.{}.post_feedforward_layernorm.weight",
}


def hf_attention_scale(read: Reader) -> float:
    """Return the scale of attention scores, 1 / sqrt(query_pre_attn_scalar)."""
    scalar: float = read.optional("query_pre_attn_scalar", float, 256.0)
    if not 0 < scalar < 1e9:
        raise ModelFormatError(f"query_pre_attn_scalar is {scalar} in {read.where}; a positive number is needed.")
    return 1.0 / math.sqrt(scalar)


def gguf_attention_scale(fields: dict[str, Any], layers_of_27b: int) -> float:
    """Return the scale of attention scores, which GGUF lacks. 27B models use the mean head width."""
    width = fields["d_model"] / fields["n_heads"] if fields["n_layers"] == layers_of_27b else fields["head_dim"]
    return 1.0 / math.sqrt(width)


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    size = read.optional("sliding_window", int, 4096)
    return {
        "head_dim": read.optional("head_dim", int, 256),
        "windows": windows(read, fields["n_layers"], size, lambda layer: layer % 2 == 0),
        "attention_scale": hf_attention_scale(read),
        "attention_softcap": _cap(read, "attn_logit_softcapping", 50.0),
        "logit_softcap": _cap(read, "final_logit_softcapping", 30.0),
        "embedding_scale": math.sqrt(fields["d_model"]),
    }


def _cap(read: Reader, key: str, default: float) -> float | None:
    """Return the cap: the default if the key is missing, None if it is null."""
    cap: float | None = read.optional(key, float, None) if key in read.values else default
    return cap


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    size = read.optional("gemma2.attention.sliding_window", int, 4096)
    return {
        "windows": windows_from_gguf(read, "gemma2", fields["n_layers"], size, lambda layer: layer % 2 == 0),
        "attention_scale": gguf_attention_scale(fields, _LAYERS_OF_27B),
        "attention_softcap": decimal(read.optional("gemma2.attn_logit_softcapping", float, 50.0)),
        "logit_softcap": decimal(read.optional("gemma2.final_logit_softcapping", float, 30.0)),
        "embedding_scale": math.sqrt(fields["d_model"]),
    }


GEMMA2 = Family(
    name="gemma2",
    model_types=("gemma2",),
    architectures=("gemma2",),
    hf=Layout(GEMMA_NAMES, plus_one=True),
    gguf=Layout(GGUF_NAMES),  # GGUF files store the norms with one added
    hf_keys={"hidden_act": "hidden_activation"},
    hf_handles=frozenset(
        {"sliding_window", "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"}
    ),
    gguf_handles=frozenset(
        {
            "attention.sliding_window",
            "attention.sliding_window_pattern",
            "attn_logit_softcapping",
            "final_logit_softcapping",
        }
    ),
    max_context=8192,
    tied=True,
    activation="gelu_pytorch_tanh",
    gguf_activation="gelu-tanh-glu",
    features={"norms": "both"},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
