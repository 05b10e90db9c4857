"""Concurrent read rates of a model's own rows in RAM, by the GPU and by the CPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadRates:
    """Bytes/s measured over whole tokens.

    zero_copy: by the GPU over the bus while the CPU reads too; beside: by the CPU at the same time; alone: by the CPU
    while the GPU does not read.
    """

    zero_copy: float
    beside: float
    alone: float
