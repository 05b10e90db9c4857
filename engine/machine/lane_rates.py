"""The rates of a model's own rows in the RAM, which a GPU and the processor read at once: numbers alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LaneRates:
    """Bytes/s of whole tokens. reach: by the GPU over the bus, while the processor reads too; beside: by the processor
    meanwhile; alone: by the processor while the GPU does not."""

    reach: float
    beside: float
    alone: float
