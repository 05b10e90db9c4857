"""The FFN with every neuron computed: the oracle of every executor that skips some."""

from __future__ import annotations

import numpy as np

from engine.config import ModelConfig
from engine.executor.counters import FfnCounters
from engine.model.weights import ModelWeights
from native_kernels.backend import F32, Operators


class DenseExecutor:
    """down(act(gate(x)) * up(x)), all of it."""

    name = "dense"

    def __init__(self, config: ModelConfig, weights: ModelWeights, operators: Operators) -> None:
        self.counters = FfnCounters(config.n_layers, config.d_ff)
        self._layers = weights.layers
        self._operators = operators
        self._activation = operators.relu if config.activation == "relu-glu" else operators.silu

    def ffn(self, layer: int, x: F32) -> F32:
        """x [T, D], normed -> what the block adds to the residual, [T, D]."""
        w, ops = self._layers[layer], self._operators
        h = self._activation(ops.matmul(x, w.gate))
        self.counters.add_batch(layer, h.size, np.not_equal(h, 0))
        h *= ops.matmul(x, w.up)
        return ops.matmul_t(h, w.down_t)
