"""The rates of a model's own rows in the RAM, which a GPU and the CPU read at once: numbers alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LaneRates:
    """Bytes/s of whole tokens. reach: by the GPU over the bus, while the CPU reads too; beside: by the CPU
    meanwhile; alone: by the CPU while the GPU does not."""

    reach: float
    beside: float
    alone: float
