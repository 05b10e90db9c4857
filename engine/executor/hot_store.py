"""The border to a device that holds hot neurons: it is spoken to in slots (slots.py), not in neurons of the layer."""

from __future__ import annotations

from typing import Protocol

from native_kernels.backend import I32, I64


class HotStore(Protocol):
    """A device that holds the hot neurons."""

    def load(self, layer: int, slots: I32, neurons: I32) -> None:
        """The rows of the neurons [K] of the layer's gate, up and down into its slots [K]. Never during an answer."""

    def take_fired(self, layer: int) -> I64:
        """How often what lies in each slot has fired since this was last asked, [S]. Never during an answer."""
