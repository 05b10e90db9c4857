"""The FFN with every neuron computed: the oracle of every executor that skips some."""

from __future__ import annotations

from engine.config import ModelConfig
from engine.executor.counters import FfnCounters
from engine.executor.feed_forward import down_of_all, everything
from engine.model.weights import ModelWeights
from native_kernels.backend import F32, Operators


class DenseExecutor:
    """down(act(gate(x)) * up(x)), or down(act(up(x))) where there is no gate; all of it."""

    name = "dense"

    def __init__(self, config: ModelConfig, weights: ModelWeights, operators: Operators) -> None:
        self.counters = FfnCounters(config.n_layers, config.d_ff)
        self._config = config
        self._layers = weights.layers
        self._operators = operators

    def ffn(self, layer: int, x: F32, residual: F32) -> F32:
        """x [T, D], normed -> what the block adds to the residual, [T, D]."""
        w, ops = self._layers[layer], self._operators
        h, fired, opened = everything(self._config, w, x, ops)
        self.counters.add_batch(layer, h.size, opened, fired)
        return down_of_all(w, h, ops)
