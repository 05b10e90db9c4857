"""Reads how a model's positions turn: bases, scaling, the rotated share of a head. What is not done is refused."""

from __future__ import annotations

from typing import Any

from engine.config import RopeScaling
from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.families.reading import Reader, decimal


def rope_from_hf(read: Reader, default_theta: float = 10000.0) -> dict[str, Any]:
    """rope_theta and rope_scaling of a ModelConfig, from the keys of old and from the newer `rope_parameters`.

    With an entry per kind of layer, those with a window get rope_theta_local.
    """
    fields: dict[str, Any] = {"rope_theta": read.optional("rope_theta", float, default_theta)}
    fields["rope_theta_local"] = read.optional("rope_local_base_freq", float, None)
    for key in ("rope_scaling", "rope_parameters"):
        rope = Reader(read.optional(key, dict, {}), f"{key} of {read.where}")
        local = rope.optional("sliding_attention", dict, None)
        if local is not None:
            kind = Reader(local, f"sliding_attention of {rope.where}")
            if _scaling(kind, key) is not None:
                raise UnsupportedModelError(f"Scaled rotary positions ({key}: sliding_attention) are not supported.")
            fields["rope_theta_local"] = kind.optional("rope_theta", float, fields["rope_theta_local"])
        if rope.optional("full_attention", dict, None) is not None:
            rope = Reader(rope.required("full_attention", dict), f"full_attention of {rope.where}")
        fields["rope_theta"] = rope.optional("rope_theta", float, fields["rope_theta"])
        scaling = _scaling(rope, key)
        if scaling is not None:
            fields["rope_scaling"] = scaling
    return fields


def rotary_dim_from_hf(read: Reader, head_dim: int) -> int | None:
    """How much of a head is rotated, where it is a share of it."""
    share = read.optional("partial_rotary_factor", float, 1.0)
    share = Reader(read.optional("rope_parameters", dict, {}), "rope_parameters").optional(
        "partial_rotary_factor", float, share
    )
    if not 0 < share <= 1:
        raise ModelFormatError(f"partial_rotary_factor is {share} in {read.where}; a share up to 1 is needed.")
    return None if share == 1.0 else int(head_dim * share)


def _scaling(rope: Reader, key: str) -> RopeScaling | None:
    kind = rope.optional("rope_type", str, rope.optional("type", str, "default"))
    if kind == "default":
        if "factor" in rope.values:
            raise UnsupportedModelError(f"Scaled rotary positions ({key}: factor) are not supported.")
        return None
    if kind == "linear":
        return RopeScaling("linear", rope.required("factor", float))
    if kind == "llama3":
        return RopeScaling(
            "llama3",
            rope.required("factor", float),
            rope.required("low_freq_factor", float),
            rope.required("high_freq_factor", float),
            rope.required("original_max_position_embeddings", int),
        )
    raise UnsupportedModelError(f"Scaled rotary positions ({key}: {kind[:60]}) are not supported.")


def rope_from_gguf(read: Reader, arch: str, tensor_names: set[str], default_theta: float = 10000.0) -> dict[str, Any]:
    """The same from GGUF's keys; a Llama 3 file holds the divisors of its frequencies as a tensor."""
    fields: dict[str, Any] = {
        "rope_theta": decimal(read.optional(f"{arch}.rope.freq_base", float, default_theta)),
        "rope_factors": "rope_freqs.weight" in tensor_names,
    }
    kind = read.optional(f"{arch}.rope.scaling.type", str, "none")
    factor = 0.0
    for key in (f"{arch}.rope.scaling.factor", f"{arch}.rope.scale_linear"):
        factor = read.optional(key, float, factor)
        if factor not in (0.0, 1.0) and kind == "none" and not key.endswith("scale_linear"):
            raise UnsupportedModelError(f"Scaled rotary positions ({key}: {factor}) are not supported.")
    if kind not in ("none", "linear"):
        raise UnsupportedModelError(
            f"Scaled rotary positions ({arch}.rope.scaling.type: {kind[:60]}) are not supported."
        )
    if factor not in (0.0, 1.0):
        fields["rope_scaling"] = RopeScaling("linear", decimal(factor))
    attention_factor = read.optional(f"{arch}.rope.scaling.attn_factor", float, 1.0)
    if attention_factor != 1.0:
        raise UnsupportedModelError(
            f"Scaled rotary positions ({arch}.rope.scaling.attn_factor: {attention_factor}) are not supported."
        )
    return fields
