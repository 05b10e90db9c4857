"""gpt-oss (20B, 120B): experts with biases and a clamped SiLU, attention sinks, a window in every other layer.

OpenAI's safetensors are quantised in their own format and refused; the GGUF files have the same numbers as MXFP4.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from engine.config import RopeScaling
from engine.errors import UnsupportedModelError
from engine.model.family.experts import GGUF_EXPERT_KEYS, experts_from_gguf, experts_from_hf
from engine.model.family.family import Family, windows, windows_from_gguf
from engine.model.family.names import GGUF_EXPERTS, GGUF_NAMES, HF_NAMES
from engine.model.family.plan import Layout
from engine.model.family.reading import Reader

_LIMIT, _ALPHA = 7.0, 1.702
_ROPE_THETA = 150000.0
_EXPERTS = {
    "router": "model.layers.{}.mlp.router.weight",
    "sinks": "model.layers.{}.self_attn.sinks",
    "experts.gate_up columns": "model.layers.{}.mlp.experts.gate_up_proj",
    "experts.down_t": "model.layers.{}.mlp.experts.down_proj",
}


def _from_hf(read: Reader, fields: dict[str, Any]) -> dict[str, Any]:
    alpha = read.optional("swiglu_alpha", float, _ALPHA)
    if alpha != _ALPHA:
        raise UnsupportedModelError(f"swiglu_alpha is {alpha:g} in {read.where}; Hearth runs {_ALPHA}.")
    size = read.optional("sliding_window", int, 128)
    biased = read.optional("attention_bias", bool, True)
    return {
        **experts_from_hf(read, ("num_local_experts", "num_experts"), "num_experts_per_tok"),
        **_activation(read.optional("swiglu_limit", float, _LIMIT)),
        "windows": windows(read, fields["n_layers"], size, _is_windowed),
        "biases": (*(("q", "k", "v", "o") if biased else ()), "router", "gate", "up", "down"),
    }


def _from_gguf(read: Reader, fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    size = read.required("gpt-oss.attention.sliding_window", int)
    own = experts_from_gguf(read, "gpt-oss", "softmax")
    own["rope_theta"] = fields.get("rope_theta", _ROPE_THETA)
    scaling: RopeScaling | None = fields.get("rope_scaling")
    return {
        **own,
        **_activation(_LIMIT),
        "windows": windows_from_gguf(read, "gpt-oss", fields["n_layers"], size, _is_windowed),
        "rope_scaling": None if scaling is None else replace(scaling, truncate=False),  # as in config.json
    }


def _activation(limit: float) -> dict[str, Any]:
    return {"activation": "clamped-silu-glu", "activation_threshold": limit}


def _is_windowed(layer: int) -> bool:
    return layer % 2 == 0


GPT_OSS = Family(
    name="gpt_oss",
    model_types=("gpt_oss",),
    architectures=("gpt-oss",),
    hf=Layout(HF_NAMES | _EXPERTS),
    gguf=Layout(
        GGUF_NAMES
        | GGUF_EXPERTS
        | {"sinks": "blk.{}.attn_sinks.weight", "ffn_norm": "blk.{}.post_attention_norm.weight"}
    ),
    hf_handles=frozenset({"sliding_window", "attention_bias", "num_experts", "num_local_experts"}),
    gguf_handles=GGUF_EXPERT_KEYS | {"attention.sliding_window", "attention.sliding_window_pattern"},
    norm_eps=1e-5,
    rope_theta=_ROPE_THETA,
    max_context=131072,
    activation="silu",
    experts=True,
    features={
        "attention_sinks": True,
        "biases": ("q", "k", "v", "o", "router", "gate", "up", "down"),
    },
    from_hf=_from_hf,
    from_gguf=_from_gguf,
)
