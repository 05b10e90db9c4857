"""Interface of a device that holds hot neurons. It addresses slots (slots.py), not neurons of the layer."""

from __future__ import annotations

from typing import Protocol

from native_kernels.backend import I32, I64


class HotStore(Protocol):
    """A device that holds the hot neurons."""

    def load(self, layer: int, slots: I32, neurons: I32) -> None:
        """Load the gate, up and down rows of the neurons [K] into the slots [K]. Never during an answer."""

    def take_fired(self, layer: int) -> I64:
        """Return how often each slot's neuron was active since the last call, [S]. Never during an answer."""
