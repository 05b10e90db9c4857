"""How far a model's rotary frequencies are slowed down for a longer context than it was first trained with."""

from __future__ import annotations

import numpy as np

from engine.config import ModelConfig
from native_kernels.backend import F32


def rope_factors(config: ModelConfig) -> F32 | None:
    """What each rotary frequency is to be divided by, [rotated / 2]; None where positions are not scaled."""
    scaling = config.rope_scaling
    if scaling is None:
        return None
    if scaling.kind == "linear":
        return np.full(config.rotated // 2, scaling.factor, np.float32)
    # Llama 3: slow waves are stretched by the factor, fast ones left alone, those between blended.
    frequencies = config.rope_theta ** (-np.arange(0, config.rotated, 2, dtype=np.float64) / config.rotated)
    turns = scaling.original_context * frequencies / (2 * np.pi)  # of each wave within the original context
    share = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    share = np.clip(share, 0.0, 1.0)  # how much of a wave's own speed it keeps
    factors: F32 = (1.0 / (share + (1.0 - share) / scaling.factor)).astype(np.float32)
    return factors
