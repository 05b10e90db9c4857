"""The hot neurons of a loaded model: where each lies, on what, and how they change places between answers.

It neither chooses nor computes them. One for a model, whatever modes it runs in.
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
    """tables: [L], which neuron lies in which slot. hot: the device that holds and computes them.

    placement: fingerprint of the neurons that were placed at first, whatever has been exchanged since.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        placed: Sequence[I32],
        hot: Callable[[Sequence[int]], HotStore],
        learned: Sequence[I32] | None = None,
    ) -> None:
        """placed: [L], the hot neurons of each layer. hot: makes the device for so many slots in each layer; it is
        loaded here. learned: the neurons to begin with instead, as many in each layer, in the order of their slots.

        Raises: InvalidRequestError for a model whose neurons cannot be parted.
        """
        if reason := why_not(config, weights):
            raise InvalidRequestError(reason, "Run it without a placement.")
        if len(placed) != config.n_layers:
            raise InvalidRequestError(f"Neurons of {len(placed)} layers are placed; the model has {config.n_layers}.")
        self.placement = placement_fingerprint(placed)
        self.tables = tuple(SlotTable(config.d_ff, ids) for ids in (placed if learned is None else learned))
        if learned is not None and [len(ids) for ids in placed] != [table.n_slots for table in self.tables]:
            raise InvalidRequestError("Other numbers of neurons were learned than were placed.", "Forget what was.")
        self.hot = hot([table.n_slots for table in self.tables])
        for layer, table in enumerate(self.tables):
            self.hot.load(layer, np.arange(table.n_slots, dtype=np.int32), table.neuron_in)
        self._held: list[tuple[int, I32, I64]] = []  # layer, neurons, how often they fired: from before an exchange

    def exchange(self, layer: int, slots: I32, neurons: I32) -> None:
        """Cold neurons [K] of a layer into slots [K]; what lay there becomes cold. Between answers.

        Cost: reads and writes the rows of K neurons.
        Raises: InvalidRequestError where a neuron is hot already.
        """
        table = self.tables[layer]
        before = table.neuron_in.copy()
        fired = self.hot.take_fired(layer)  # first, for where a device fails nothing has changed yet
        table.put(slots, neurons)
        if fired.any():
            self._held.append((layer, before, fired))
        self.hot.load(layer, slots, neurons)

    def collect(self, per_neuron: I64 | None) -> None:
        """Adds how often hot neurons fired since this was last asked to [L, F], or forgets it where there is none."""
        held, self._held = self._held, []
        for layer, table in enumerate(self.tables):
            held.append((layer, table.neuron_in, self.hot.take_fired(layer)))
        if per_neuron is not None:
            for layer, neurons, fired in held:
                per_neuron[layer, neurons] += fired


def why_not(config: ModelConfig, weights: ModelWeights) -> str:
    """Why the neurons of a model cannot be parted between two devices, in one sentence; empty where they can."""
    if config.n_experts:
        return "The neurons of experts are not placed one by one."
    if weights.down_is_row_wise:
        return "The model's file stores down row-wise, so that no neuron's weights lie together."
    return ""


def placement_fingerprint(placed: Sequence[I32]) -> str:
    """SHA-256 over which neurons of which layer are hot; their order does not count."""
    digest = hashlib.sha256()
    for ids in placed:
        digest.update(len(ids).to_bytes(8, "little"))
        digest.update(np.sort(ids).astype("<i4").tobytes())
    return digest.hexdigest()
