"""Phi-3.5-MoE: attention and experts like Mixtral's behind layer norms, with biases, and a router of its own.

The router weighs each expert among those whose scores lie near it (SparseMixer). llama.cpp weighs the chosen ones by
a softmax over them instead, and takes the layer norms for RMS norms.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.model.family.experts import GGUF_EXPERT_KEYS, experts_from_gguf, experts_from_hf
from engine.model.family.family import Family, windows
from engine.model.family.names import GGUF_EXPERTS, GGUF_NAMES, HF_NAMES, biases_in, hf_experts
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

_EXPERTS = hf_experts("block_sparse_moe.gate", "block_sparse_moe.experts", "w1", "w3", "w2")
_BIASES = ("q", "k", "v", "o")
_JITTER = 0.01  # GGUF does not state it


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    attention = _BIASES if read.optional("attention_bias", bool, False) else ()
    head = ("head",) if read.optional("lm_head_bias", bool, False) else ()
    window = read.optional("sliding_window", int, None)
    return {
        **experts_from_hf(read, ("num_local_experts",), "num_experts_per_tok"),
        **_router(read.optional("router_jitter_noise", float, _JITTER)),
        "biases": ("norm", *attention, *head),
        "windows": windows(read, fields["n_layers"], _felt(window, fields), lambda layer: True),
    }


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    window = _felt(read.optional("phimoe.attention.sliding_window", int, 0), fields)
    return {
        **experts_from_gguf(read, "phimoe", "softmax"),
        **_router(_JITTER),
        "biases": ("norm", *biases_in(names, *_BIASES), *(("head",) if "output.bias" in names else ())),
        "windows": (window,) * fields["n_layers"] if window else (),
    }


def _router(jitter: float) -> dict[str, Any]:
    # Below the norm, because the epsilon's key says RMS norm in both formats.
    return {"norm": "layer", "router": "softmax", "normed_routing": False, "router_margin": 2 * jitter}


def _felt(window: int | None, fields: dict[str, Any]) -> int | None:
    """Return the window, which published files give the size of the context; None if it hides nothing."""
    return None if window is None or window >= fields["max_context"] else window


PHIMOE = Family(
    name="phimoe",
    model_types=("phimoe",),
    architectures=("phimoe",),
    hf=Layout(HF_NAMES | _EXPERTS),
    gguf=Layout(GGUF_NAMES | GGUF_EXPERTS),
    hf_handles=frozenset({"sliding_window", "num_local_experts", "attention_bias", "lm_head_bias"}),
    gguf_handles=GGUF_EXPERT_KEYS | {"attention.sliding_window"},
    norm_eps=1e-5,
    rope_theta=1000000.0,
    max_context=131072,
    activation="silu",
    experts=True,
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
