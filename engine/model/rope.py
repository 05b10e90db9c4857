"""RoPE frequencies for a sequence length: base, divisors and scale.

Most models rotate the same way at any length. Two schemes do not; both follow transformers:

- LongRoPE has one set of divisors up to the original context and another beyond. All positions of a sequence use the
  same set. When a sequence grows across the border, or is cut back across it, the cached keys and values become invalid
  and are computed again.
- Dynamic NTK raises the base with every token beyond the original context. Cached keys keep the rotation for the
  sequence length known when they were computed, because computing all of them again for every token is too expensive.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from engine.config import ModelConfig, RopeScaling
from engine.model.weights import ModelWeights
from native_kernels.backend import F32


@dataclass(frozen=True, eq=False)
class Rotation:
    """Angles are position x theta ^ (-2i / R) / factors[i]; cosines and sines are multiplied by scale."""

    theta: float
    factors: F32 | None = None  # [R / 2]
    scale: float = 1.0


class RotaryPositions:
    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        self._config = config
        self._scaling = config.rope_scaling
        scale = 1.0 if self._scaling is None else self._scaling.attention_factor
        if self._scaling is not None and self._scaling.kind == "longrope":
            long, short = weights.rope_factors_long, weights.rope_factors_short
            if self._scaling.long_factors:
                long = np.array(self._scaling.long_factors, np.float32)
                short = np.array(self._scaling.short_factors, np.float32)
            self._long = Rotation(config.rope_theta, long, scale)
            self._fixed = Rotation(config.rope_theta, short, scale)
        else:
            factors = weights.rope_factors if config.rope_factors else _factors(config)
            self._fixed = Rotation(config.rope_theta, factors, scale)

    def rotation(self, length: int) -> Rotation:
        scaling, config = self._scaling, self._config
        if scaling is None or length <= scaling.original_context:
            return self._fixed
        if scaling.kind == "longrope":
            return self._long
        if scaling.kind == "dynamic":
            stretch = scaling.factor * length / scaling.original_context - (scaling.factor - 1)
            return Rotation(config.rope_theta * stretch ** (config.rotated / (config.rotated - 2)))
        return self._fixed

    def keys_stay_valid(self, before: int, after: int) -> bool:
        """Return whether keys computed for one sequence length are valid for another."""
        scaling = self._scaling
        if scaling is None or scaling.kind != "longrope":
            return True
        return (before > scaling.original_context) == (after > scaling.original_context)


def _factors(config: ModelConfig) -> F32 | None:
    """Return the divisors of the rotary frequencies, [R / 2]; None for plain frequencies."""
    scaling = config.rope_scaling
    if scaling is None or scaling.kind == "dynamic":
        return None
    if scaling.kind == "linear":
        return np.full(config.rotated // 2, scaling.factor, np.float32)
    if scaling.kind == "proportional":
        turns = np.arange(config.rotated // 2) < int(scaling.share * config.rotated // 2)
        return np.where(turns, np.float32(scaling.factor), np.float32(np.inf))
    share = _llama3_share(config, scaling) if scaling.kind == "llama3" else _yarn_share(config, scaling)
    factors: F32 = (1.0 / (share + (1.0 - share) / scaling.factor)).astype(np.float32)
    return factors


def _llama3_share(config: ModelConfig, scaling: RopeScaling) -> F32:
    """Return the share of its frequency that each wave keeps: none for slow ones, all for fast ones."""
    frequencies = config.rope_theta ** (-np.arange(0, config.rotated, 2, dtype=np.float64) / config.rotated)
    turns = scaling.original_context * frequencies / (2 * np.pi)  # of each wave in the original context
    between = scaling.high_freq_factor - scaling.low_freq_factor
    if not between:
        return (turns >= scaling.low_freq_factor).astype(np.float32)
    share = (turns - scaling.low_freq_factor) / between
    kept: F32 = np.clip(share, 0.0, 1.0)
    return kept


def _yarn_share(config: ModelConfig, scaling: RopeScaling) -> F32:
    """Return the same for YaRN, which interpolates over the wave index.

    Paper: YaRN, arXiv 2309.00071.
    """
    waves = config.rotated // 2

    def wave_of(turns: float) -> float:
        """Return the index of the wave with this many rotations in the original context."""
        return waves * math.log(scaling.original_context / (turns * 2 * math.pi)) / math.log(config.rope_theta)

    low, high = wave_of(scaling.beta_fast), wave_of(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, config.rotated - 1)
    width = high - low if high != low else 0.001
    kept: F32 = 1.0 - np.clip((np.arange(waves) - low) / width, 0.0, 1.0)
    return kept
