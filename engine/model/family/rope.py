"""Read a model's RoPE parameters: bases, scaling, rotated share of a head. Refuse what is not implemented."""

from __future__ import annotations

import math
from typing import Any

from engine.config import RopeScaling
from engine.errors import ModelFormatError, UnsupportedModelError
from engine.model.family.reading import Reader, decimal
from native_kernels.specs import Temperature


def rope_from_hf(read: Reader, default_theta: float, max_context: int) -> dict[str, Any]:
    """Return the RoPE fields of a ModelConfig from the old keys or from `rope_parameters`.

    Among them is attention's temperature, which is stored there. With an entry per kind of layer, layers with a window
    use rope_theta_local. max_context: from config.json. The result has the stretched length if a scaling applies and
    config.json states the original one.
    """
    fields: dict[str, Any] = {"rope_theta": read.optional("rope_theta", float, default_theta)}
    fields["rope_theta_local"] = read.optional("rope_local_base_freq", float, None)
    for key in ("rope_scaling", "rope_parameters"):
        rope = Reader(read.optional(key, dict, {}), f"{key} of {read.where}")
        local = rope.optional("sliding_attention", dict, None)
        if local is not None:
            kind = Reader(local, f"sliding_attention of {rope.where}")
            if _scaling(kind, key, read, max_context) is not None:
                raise UnsupportedModelError(f"Scaled rotary positions ({key}: sliding_attention) are not supported.")
            fields["rope_theta_local"] = kind.optional("rope_theta", float, fields["rope_theta_local"])
        if rope.optional("full_attention", dict, None) is not None:
            rope = Reader(rope.required("full_attention", dict), f"full_attention of {rope.where}")
        fields["rope_theta"] = rope.optional("rope_theta", float, fields["rope_theta"])
        scaling = _scaling(rope, key, read, max_context)
        if scaling is not None:
            fields["rope_scaling"] = scaling
        if strength := rope.optional("llama_4_scaling_beta", float, 0.0):
            length = rope.required("original_max_position_embeddings", int)
            fields["attention_temperature"] = Temperature(strength, length)
    return fields | _stretched(fields.get("rope_scaling"), max_context)


def _stretched(scaling: RopeScaling | None, max_context: int) -> dict[str, Any]:
    """Return the stretched context. With YaRN and dynamic NTK, config.json often keeps the original length."""
    if scaling is not None and scaling.kind in ("yarn", "dynamic"):
        max_context = max(max_context, int(min(scaling.original_context * scaling.factor, 1 << 24)))
    return {"max_context": max_context}


def rotary_dim_from_hf(read: Reader, head_dim: int, default: float = 1.0) -> int | None:
    """Return how many values of a head are rotated; None for all. default: the share if config.json has none."""
    share = read.optional("partial_rotary_factor", float, default)
    share = Reader(read.optional("rope_parameters", dict, {}), "rope_parameters").optional(
        "partial_rotary_factor", float, share
    )
    if not 0 < share <= 1:
        raise ModelFormatError(f"partial_rotary_factor is {share} in {read.where}; a share up to 1 is needed.")
    return None if share == 1.0 else int(head_dim * share)


def _scaling(rope: Reader, key: str, read: Reader, max_context: int) -> RopeScaling | None:
    kind = rope.optional("rope_type", str, rope.optional("type", str, "default"))
    if kind == "default":
        if "factor" in rope.values:
            raise UnsupportedModelError(f"Scaled rotary positions ({key}: factor) are not supported.")
        return None
    if kind == "linear":
        return RopeScaling("linear", rope.required("factor", float))
    if kind == "proportional":
        share = rope.optional("partial_rotary_factor", float, 1.0)
        return RopeScaling("proportional", rope.optional("factor", float, 1.0), share=share)
    if kind == "llama3":
        return RopeScaling(
            "llama3",
            rope.required("factor", float),
            rope.required("low_freq_factor", float),
            rope.required("high_freq_factor", float),
            rope.required("original_max_position_embeddings", int),
        )
    if kind == "dynamic":
        return RopeScaling("dynamic", rope.required("factor", float), original_context=max_context)
    if kind in ("longrope", "su") or (kind == "yarn" and "long_factor" in rope.values):  # as in Phi-3's first files
        scale = _scale_of_phimoe(rope) if read.values.get("model_type") == "phimoe" else None
        return _longrope(rope, *_original_context(rope, read, max_context), scale)
    if kind == "yarn":
        if "factor" not in rope.values:
            rope.required("factor", float)
        return _yarn(rope, *_original_context(rope, read, max_context))
    raise UnsupportedModelError(f"Scaled rotary positions ({key}: {kind[:60]}) are not supported.")


def _original_context(rope: Reader, read: Reader, max_context: int) -> tuple[int, float]:
    """Return the context before stretching, and the factor."""
    original = rope.optional("original_max_position_embeddings", int, max_context)
    original = read.optional("original_max_position_embeddings", int, original)  # Phi-3 stores it here, with precedence
    if original < 1:
        raise ModelFormatError(f"original_max_position_embeddings is {original} in {read.where}.")
    return original, rope.optional("factor", float, max_context / original)


def _yarn(rope: Reader, original: int, factor: float) -> RopeScaling:
    scale, every = rope.optional("mscale", float, 0.0), rope.optional("mscale_all_dim", float, 0.0)
    attention = yarn_attention(factor)
    if scale and every:
        attention = yarn_attention(factor, scale) / _positive(yarn_attention(factor, every), rope, "mscale_all_dim")
    return RopeScaling(
        "yarn",
        factor,
        original_context=original,
        beta_fast=rope.optional("beta_fast", float, 32.0),
        beta_slow=rope.optional("beta_slow", float, 1.0),
        truncate=rope.optional("truncate", bool, True),
        attention_factor=rope.optional("attention_factor", float, attention),
    )


def yarn_attention(factor: float, scale: float = 1.0) -> float:
    """Return YaRN's factor on attention for a context that is `factor` times as long; scale: of the logarithm."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _scale_of_phimoe(rope: Reader) -> float:
    """Return the factor of cosines and sines that config.json states for short and for long sequences."""
    short, long = rope.required("short_mscale", float), rope.required("long_mscale", float)
    if short != long:
        raise UnsupportedModelError(f"short_mscale and long_mscale differ in {rope.where}, which Hearth does not run.")
    return short


def _longrope(rope: Reader, original: int, factor: float, scale: float | None) -> RopeScaling:
    for key in ("short_mscale", "long_mscale") if scale is None else ():
        if rope.values.get(key) is not None:
            raise UnsupportedModelError(f"{key} in {rope.where} is not supported.")
    attention = 1.0 if scale is None else scale
    if factor > 1 and scale is None:
        attention = math.sqrt(1 + math.log(factor) / math.log(max(2, original)))
    return RopeScaling(
        "longrope",
        factor,
        original_context=original,
        attention_factor=rope.optional("attention_factor", float, attention),
        short_factors=_divisors(rope, "short_factor"),
        long_factors=_divisors(rope, "long_factor"),
    )


def _divisors(rope: Reader, key: str) -> tuple[float, ...]:
    values = rope.required(key, list)
    if not values or not all(type(value) in (int, float) and abs(value) < 1 << 64 for value in values):
        raise ModelFormatError(f"{key} in {rope.where} is not a list of numbers.")
    return tuple(float(value) for value in values)


def _positive(value: float, rope: Reader, key: str) -> float:
    if not value > 0:
        raise ModelFormatError(f"{key} in {rope.where} is invalid.")
    return value


def rope_from_gguf(
    read: Reader, arch: str, tensor_names: set[str], default_theta: float, max_context: int
) -> dict[str, Any]:
    """Return the RoPE fields from GGUF keys.

    Frequency divisors are tensors: one for Llama 3, two for LongRoPE.
    """
    fields: dict[str, Any] = {
        "rope_theta": decimal(read.optional(f"{arch}.rope.freq_base", float, default_theta)),
        "rope_factors": "rope_freqs.weight" in tensor_names,
    }
    kind = read.optional(f"{arch}.rope.scaling.type", str, "none")
    factor = 0.0
    for key in (f"{arch}.rope.scaling.factor", f"{arch}.rope.scale_linear"):
        factor = decimal(read.optional(key, float, factor))
        if factor not in (0.0, 1.0) and kind == "none" and not key.endswith("scale_linear"):
            raise UnsupportedModelError(f"Scaled rotary positions ({key}: {factor}) are not supported.")
    attention = decimal(read.optional(f"{arch}.rope.scaling.attn_factor", float, 1.0))
    original = read.optional(f"{arch}.rope.scaling.original_context_length", int, max_context)
    if {"rope_factors_long.weight", "rope_factors_short.weight"} <= tensor_names and kind in ("none", "longrope"):
        fields["rope_scaling"] = RopeScaling(
            "longrope", factor or 1.0, original_context=original, attention_factor=attention
        )
        return fields | {"max_context": max_context}
    if kind == "yarn":
        fields["rope_scaling"] = _yarn_from_gguf(read, f"{arch}.rope.scaling", factor or 1.0, original, attention)
        return fields | _stretched(fields["rope_scaling"], max_context)
    if kind not in ("none", "linear"):
        raise UnsupportedModelError(
            f"Scaled rotary positions ({arch}.rope.scaling.type: {kind[:60]}) are not supported."
        )
    if factor not in (0.0, 1.0):
        fields["rope_scaling"] = RopeScaling("linear", factor)
    if attention != 1.0:
        raise UnsupportedModelError(
            f"Scaled rotary positions ({arch}.rope.scaling.attn_factor: {attention}) are not supported."
        )
    return fields | {"max_context": max_context}


def temperature_from_gguf(read: Reader, arch: str) -> dict[str, Any]:
    """Return the temperature of attention from GGUF keys; nothing without one."""
    strength = decimal(read.optional(f"{arch}.attention.temperature_scale", float, 0.0))
    if not strength:
        return {}
    key = f"{arch}.attention.temperature_length"
    key = key if key in read.values else f"{arch}.rope.scaling.original_context_length"
    return {"attention_temperature": Temperature(strength, read.required(key, int))}


def _yarn_from_gguf(read: Reader, key: str, factor: float, original: int, attention: float) -> RopeScaling:
    usual = yarn_attention(factor)
    if (
        every := decimal(read.optional(f"{key}.yarn_log_multiplier", float, 0.0))
    ) > 0:  # as mscale_all_dim, mscale is 1
        attention /= yarn_attention(factor, every)
    stated = read.optional(f"{key}.yarn_attn_factor", float, usual)
    if not math.isclose(stated, usual, rel_tol=1e-4) and stated != 1.0:  # llama.cpp replaces 1.0 by the usual value
        raise UnsupportedModelError(f"{key}.yarn_attn_factor is {stated}; Hearth supports {usual:.4f} for this model.")
    if (share := read.optional(f"{key}.yarn_ext_factor", float, 1.0)) != 1.0:
        raise UnsupportedModelError(f"{key}.yarn_ext_factor is {share}; Hearth supports only 1.")
    return RopeScaling(
        "yarn",
        factor,
        original_context=original,
        beta_fast=decimal(read.optional(f"{key}.yarn_beta_fast", float, 32.0)),
        beta_slow=decimal(read.optional(f"{key}.yarn_beta_slow", float, 1.0)),
        attention_factor=usual * attention,
    )
