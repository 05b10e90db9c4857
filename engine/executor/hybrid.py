"""The FFN on two devices at once: hot neurons where they were placed, cold ones on the processor, one exchange a layer.

Predict, part the active neurons by their place, compute both sides at the same time, add the two sums. It places no
neurons. Paper: PowerInfer, sections 4 and 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.config import ModelConfig
from engine.errors import InvalidRequestError
from engine.executor.counters import FfnCounters
from engine.executor.hot_side import HotSide
from engine.executor.listed_neurons import some_of_each
from engine.executor.slots import SlotTable
from engine.model.router import Routing
from engine.model.weights import ModelWeights
from engine.sparsity.predictor import Predictor
from native_kernels.backend import F32, I32, Operators


class HybridExecutor:
    """Sparse mode where there is a predictor, else exact mode, or dense where the activation makes no zeros: the same
    neurons, each on its side, and the same result to rounding, wherever they are.

    tables: [L], where the neurons are. hot: the device of the hot ones.
    """

    name = "hybrid"

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        predictor: Predictor | None,
        placed: Sequence[I32],
        hot: Callable[[Sequence[int]], HotSide],
        operators: Operators,
    ) -> None:
        """placed: [L], the hot neurons of each layer, in the order of their slots. hot: makes the device for so many
        slots in each layer; it is loaded here.

        Raises: InvalidRequestError for a model whose neurons cannot be parted, ArtifactMismatchError for a predictor of
        another one.
        """
        if reason := why_not(config, weights):
            raise InvalidRequestError(reason, "Run it without a placement.")
        if predictor is not None:
            predictor.check_against(config.n_layers, config.d_model, config.d_ff)
        if len(placed) != config.n_layers:
            raise InvalidRequestError(f"Neurons of {len(placed)} layers are placed; the model has {config.n_layers}.")
        self.tables = tuple(SlotTable(config.d_ff, ids) for ids in placed)
        self.hot = hot([table.n_slots for table in self.tables])
        for layer, table in enumerate(self.tables):
            self.hot.load(layer, np.arange(table.n_slots, dtype=np.int32), table.neuron_in)
        self.predictor = predictor
        self.counters = FfnCounters(config.n_layers, config.d_ff, collect=self._collect)
        self._config = config
        self._layers = weights.layers
        self._operators = operators
        self._all: I32 = np.arange(config.d_ff, dtype=np.int32)

    def ffn(self, layer: int, x: F32, residual: F32, routing: Routing | None = None) -> F32:
        """x [T, D], normed; residual [T, D], before the norm -> what the block adds to the residual, [T, D]."""
        active = [self._all] * len(x)
        if self.predictor is not None:
            expected = self.predictor.expected(layer, residual if self.predictor.input == "residual" else x)
            active = [np.flatnonzero(mask).astype(np.int32) for mask in expected]
        parts = [self.tables[layer].part(ids) for ids in active]
        self.hot.start(layer, x, [slots for slots, _ in parts])
        w = self._layers[layer].ffns[0]
        try:
            out, fired, opened = some_of_each(self._config, w, x, [cold for _, cold in parts], self._operators)
        finally:
            theirs = self.hot.result()
        opened += theirs.opened
        computed = sum(map(len, active))
        if self.predictor is None and self._config.has_zeros:  # as exact mode counts: the gate is read of all
            computed = opened
        self.counters.add_batch(layer, computed, opened, fired)
        self.counters.fired += theirs.fired
        return out + theirs.out

    def exchange(self, layer: int, slots: I32, neurons: I32) -> None:
        """Cold neurons [K] of a layer into slots [K]; what lay there becomes cold. Between answers.

        Cost: reads and writes the rows of K neurons.
        Raises: InvalidRequestError where a neuron is hot already.
        """
        if self.counters.per_neuron is not None:
            self._collect()  # what was counted there was another neuron
        self.tables[layer].put(slots, neurons)
        self.hot.load(layer, slots, neurons)

    def _collect(self) -> None:
        """What the hot side has counted, to the neurons that it was counted for."""
        for layer, table in enumerate(self.tables):
            fired = self.hot.take_fired(layer)
            if self.counters.per_neuron is not None:
                self.counters.per_neuron[layer, table.neuron_in] += fired


def why_not(config: ModelConfig, weights: ModelWeights) -> str:
    """Why the neurons of a model cannot be parted between two devices, in one sentence; empty where they can."""
    if config.n_experts:
        return "The neurons of experts are not placed one by one."
    if weights.down_is_row_wise:
        return "The model's file stores down row-wise, so that no neuron's weights lie together."
    return ""
