"""A device for hot neurons that computes nothing: it remembers which neuron is in which slot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from native_kernels.backend import I32, I64


class FakeHotStore:
    """neurons: [L], of each layer's slots. fired: [L], what the next `take_fired` says."""

    def __init__(self, slots: Sequence[int]) -> None:
        self.neurons: list[I32] = [np.full(n, -1, np.int32) for n in slots]
        self.fired: list[I64] = [np.zeros(n, np.int64) for n in slots]

    def load(self, layer: int, slots: I32, neurons: I32) -> None:
        self.neurons[layer][slots] = neurons

    def take_fired(self, layer: int) -> I64:
        taken = self.fired[layer].copy()
        self.fired[layer][:] = 0
        return taken
