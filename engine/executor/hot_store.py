"""Interface of a device that holds hot neurons. It addresses slots (slots.py), not neurons of the layer."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import I32, I64


class HotStore(Protocol):
    """A device that holds the hot neurons."""

    def load(self, layer: int, slots: I32, neurons: I32) -> None:
        """Load the gate, up and down rows of the neurons [K] into the slots [K]. Never during an answer."""

    def take_fired(self, layer: int) -> I64:
        """Return how often each slot's neuron was active since the last call, [S]. Never during an answer."""

    def active_slots(self, last: bool = False) -> NDArray[np.bool_] | None:
        """Queue a copy of all counts, and return which slots' neurons were active between the two calls before, all
        layers' slots one after another; None if not known. Call it once after each token. Waits only if `last`, which
        queues no copy and returns what was queued by the call before.
        """
