"""Map a layer's hot neurons to slots. Holds no weights.

The number of slots is fixed when the model is loaded. Kernels look neurons up here when they run, so that neurons can
be exchanged between answers without rebuilding a program.
"""

from __future__ import annotations

import numpy as np

from engine.errors import InvalidRequestError
from native_kernels.backend import I32, I64


class SlotTable:
    """One layer's neurons and slots. The arrays keep their addresses and change in place.

    slot_of i32 [F]: -1 for a cold neuron. neuron_in i32 [S]. hot_slots i32 [S]: slots sorted by neuron. cold i32 [F -
    S]: cold neurons, ascending, at the start of cold_buffer i32 [F]. n_hot, n_cold: i64 [1], their numbers.
    """

    def __init__(self, n_neurons: int, hot: I32) -> None:
        """Create the table. hot: distinct neurons for the slots 0, 1, ..."""
        hot = np.asarray(hot, np.int32)
        if (
            hot.ndim != 1
            or len(np.unique(hot)) != len(hot)
            or (len(hot) and not 0 <= hot.min() <= hot.max() < n_neurons)
        ):
            raise InvalidRequestError(f"The hot neurons of a layer are different numbers below {n_neurons}.")
        self.slot_of: I32 = np.full(n_neurons, -1, np.int32)
        self.neuron_in: I32 = hot.copy()
        self.hot_slots: I32 = np.zeros(len(hot), np.int32)
        self.cold_buffer: I32 = np.zeros(n_neurons, np.int32)
        self.cold: I32 = self.cold_buffer[: n_neurons - len(hot)]
        self.n_hot: I64 = np.array([len(hot)], np.int64)
        self.n_cold: I64 = np.array([n_neurons - len(hot)], np.int64)
        self._list()

    @property
    def n_slots(self) -> int:
        return len(self.neuron_in)

    @property
    def hot(self) -> I32:
        """The hot neurons, ascending."""
        return np.sort(self.neuron_in)

    def put(self, slots: I32, neurons: I32) -> None:
        """Put cold neurons [K] into slots [K]; the former ones become cold."""
        came_from_cold = bool((self.slot_of[neurons] < 0).all())
        if not came_from_cold or len(np.unique(slots)) != len(slots) or len(np.unique(neurons)) != len(neurons):
            raise InvalidRequestError("Only cold neurons can be put into slots, each into one of its own.")
        self.neuron_in[slots] = neurons
        self._list()

    def _list(self) -> None:
        self.slot_of[:] = -1
        self.slot_of[self.neuron_in] = np.arange(self.n_slots, dtype=np.int32)
        self.hot_slots[:] = np.argsort(self.neuron_in, kind="stable")
        self.cold[:] = np.flatnonzero(self.slot_of < 0)
