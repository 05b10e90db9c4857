"""Cohere's Command R (cohere) and Command R7B, A (cohere2): both blocks read one layer norm; scaled logits.

In cohere2 layers with a window rotate and those without do not. The norms of q and k in Command R+ are refused.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from engine.model.family.family import Family, windows, windows_from_gguf
from engine.model.family.names import GGUF_NAMES, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader, decimal

_PERIOD = 4  # of layers without a window in cohere2
_LOGIT_SCALE = 0.0625


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "biases": ("q", "k", "v", "o") if read.optional("attention_bias", bool, False) else (),
        "logit_scale": read.optional("logit_scale", float, _LOGIT_SCALE),
    }


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {"logit_scale": decimal(read.required("command-r.logit_scale", float))}


def _cohere2_from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    period = max(1, read.optional("sliding_window_pattern", int, _PERIOD))
    size = read.optional("sliding_window", int, 4096)
    return _from_hf(read, fields) | _windows(
        windows(read, fields["n_layers"], size, lambda layer: (layer + 1) % period > 0), fields["n_layers"]
    )


def _cohere2_from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    size, n_layers = read.required("cohere2.attention.sliding_window", int), fields["n_layers"]
    sizes = windows_from_gguf(read, "cohere2", n_layers, size, lambda layer: (layer + 1) % _PERIOD > 0)
    return _windows(sizes, n_layers) | {"logit_scale": decimal(read.required("cohere2.logit_scale", float))}


def _windows(sizes: tuple[int, ...], n_layers: int) -> dict[str, Any]:
    return {"windows": sizes, "unrotated": tuple(i for i in range(n_layers) if not sizes or not sizes[i])}


COHERE = Family(
    name="cohere",
    model_types=("cohere",),
    architectures=("command-r",),
    hf=Layout(HF_NAMES | {"shared_norm": HF_NAMES["attention_norm"]}),
    gguf=Layout(GGUF_NAMES | {"shared_norm": GGUF_NAMES["attention_norm"]}),
    hf_keys={"rms_norm_eps": "layer_norm_eps"},
    hf_handles=frozenset({"attention_bias", "logit_scale"}),
    gguf_handles=frozenset({"logit_scale"}),
    norm_eps=1e-5,
    rope_theta=500000.0,
    max_context=8192,
    tied=True,
    activation="silu",
    features={"norm": "layer", "parallel": True, "shared_norm": True, "rope_order": "interleaved"},
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
COHERE2 = replace(
    COHERE,
    name="cohere2",
    model_types=("cohere2",),
    architectures=("cohere2",),
    hf_handles=COHERE.hf_handles | {"sliding_window"},
    gguf_handles=COHERE.gguf_handles | {"attention.sliding_window", "attention.sliding_window_pattern"},
    rope_theta=10000.0,
    from_hf=_cohere2_from_hf,
    from_gguf=_cohere2_from_gguf,
)
