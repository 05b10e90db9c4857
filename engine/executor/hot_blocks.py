"""The hot neurons of a loaded model: their slots and device, and their exchange between answers.

One object per model, for all modes. It neither selects nor computes neurons.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from engine.config import ModelConfig
from engine.errors import InvalidRequestError
from engine.executor.hot_store import HotStore
from engine.executor.slots import SlotTable
from engine.model.weights import ModelWeights
from native_kernels.backend import I32, I64


class HotBlocks:
    """The hot neurons. tables [L]: neurons and slots. hot: the device that holds and computes them.

    placement: fingerprint of the initially placed neurons, whatever was exchanged since.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        placed: Sequence[I32],
        hot: Callable[[Sequence[int]], HotStore],
        learned: Sequence[I32] | None = None,
    ) -> None:
        """Load the hot neurons on the device.

        placed [L]: hot neurons of each layer. hot: creates the device for these numbers of slots. learned: neurons to
        start with instead, the same number per layer, in slot order.
        Raises: InvalidRequestError for a model whose neurons cannot be split between devices.
        """
        if reason := why_not(config, weights):
            raise InvalidRequestError(reason, "Run it without a placement.")
        if len(placed) != config.n_layers:
            raise InvalidRequestError(f"Neurons of {len(placed)} layers are placed; the model has {config.n_layers}.")
        self.placement = placement_fingerprint(placed)
        of_layers = enumerate(placed if learned is None else learned)
        self.tables = tuple(SlotTable(config.ffn_width(layer), ids) for layer, ids in of_layers)
        if learned is not None and [len(ids) for ids in placed] != [table.n_slots for table in self.tables]:
            raise InvalidRequestError("Other numbers of neurons were learned than were placed.", "Forget what was.")
        self.hot = hot([table.n_slots for table in self.tables])
        for layer, table in enumerate(self.tables):
            self.hot.load(layer, np.arange(table.n_slots, dtype=np.int32), table.neuron_in)
        self._held: list[tuple[int, I32, I64]] = []  # layer, neurons, activity counts from before an exchange

    def exchange(self, layer: int, slots: I32, neurons: I32) -> None:
        """Move cold neurons [K] of a layer into slots [K]; the former ones become cold. Only between answers.

        Cost: reads and writes the rows of K neurons.
        Raises: InvalidRequestError if a neuron is hot already.
        """
        table = self.tables[layer]
        before = table.neuron_in.copy()
        fired = self.hot.take_fired(layer)  # first: if the device fails, nothing has changed yet
        table.put(slots, neurons)
        if fired.any():
            self._held.append((layer, before, fired))
        self.hot.load(layer, slots, neurons)

    def collect(self, per_neuron: I64 | None) -> None:
        """Add the hot neurons' activity counts since the last call to [L, F]; None discards them."""
        held, self._held = self._held, []
        for layer, table in enumerate(self.tables):
            held.append((layer, table.neuron_in, self.hot.take_fired(layer)))
        if per_neuron is not None:
            for layer, neurons, fired in held:
                per_neuron[layer, neurons] += fired


def why_not(config: ModelConfig, weights: ModelWeights) -> str:
    """Return why a model's neurons cannot be split between two devices, in one sentence; empty if they can."""
    if config.n_experts:
        return "The neurons of experts are not placed one by one."
    if weights.down_is_row_wise:
        return "The model's file stores down row-wise, so the weights of a neuron are not contiguous."
    return ""


def placement_fingerprint(placed: Sequence[I32]) -> str:
    """Return SHA-256 over the hot neurons of all layers, independent of their order."""
    digest = hashlib.sha256()
    for ids in placed:
        digest.update(len(ids).to_bytes(8, "little"))
        digest.update(np.sort(ids).astype("<i4").tobytes())
    return digest.hexdigest()
