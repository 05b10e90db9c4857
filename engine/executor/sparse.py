"""The FFN restricted to neurons that a predictor selects: as close to dense as the predictor is good.

Runs on one device. Paper: PowerInfer, section 5.1 (predictors). Within the selected set, the gate decides which neurons
are active, as in exact mode.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.config import ModelConfig
from engine.errors import InvalidRequestError
from engine.executor.exact import PER_TOKEN_LIMIT, ExactExecutor
from engine.executor.feed_forward import (
    activate,
    down_of_all,
    down_of_some,
    everything,
    first_values_of_some,
    times_up,
)
from engine.model.counters import FfnCounters
from engine.model.graph import graph_of
from engine.model.router import Routing
from engine.model.weights import ModelWeights
from engine.sparsity.predictor import Predictor
from native_kernels.backend import F32, Operators


class SparseExecutor:
    """Predicts, then computes the gate of the selected neurons, then up and down of the active ones.

    Without a gate: up of the selected neurons, then down of the active ones. If the activation makes no zeros, all
    selected neurons count as active. Each position has its own set, also in a batch. Layers of kind true_gate have no
    predictor and run as in exact mode.
    """

    name = "sparse"

    def __init__(self, config: ModelConfig, weights: ModelWeights, predictor: Predictor, operators: Operators) -> None:
        if config.n_experts:
            raise InvalidRequestError("Predictors of the neurons of experts are not known.", "Use the exact mode.")
        if config.d_ff_by_layer or config.gate_cutoffs:
            reason = "layers of the same width, and gates that are not compared with each other"
            raise InvalidRequestError(f"Predictors need {reason}.", "Use the dense mode.")
        predictor.check_against(config.n_layers, config.d_model, config.d_ff)
        self.counters = FfnCounters(config.n_layers, config.d_ff, without=config.mixer_only_layers)
        self._graph = graph_of(config)
        self._layers = weights.layers
        self.predictor = predictor
        self._operators = operators
        self._exact: ExactExecutor | None = None  # for layers of kind true_gate
        if "true_gate" in predictor.kinds:
            self._exact = ExactExecutor(config, weights, operators)
            self._exact.counters = self.counters

    def ffn(self, layer: int, x: F32, residual: F32, routing: Routing | None = None) -> F32:
        """Return what the FFN adds, [T, D], for normed x [T, D] and the norm's input residual [T, D]."""
        if self._exact is not None and self.predictor.layers[layer].kind == "true_gate":
            return self._exact.ffn(layer, x, residual)
        expected, rows_read = self.predictor.expected(layer, x, residual)
        self.counters.add_copied(layer, rows_read)
        if 1 <= x.shape[0] <= PER_TOKEN_LIMIT:
            return np.stack([self._one_token(layer, token, mask) for token, mask in zip(x, expected, strict=True)])
        return self._batch(layer, x, expected)

    def _one_token(self, layer: int, x: F32, expected: NDArray[np.bool_]) -> F32:
        w, ops, spec = self._layers[layer].ffns[0], self._operators, self._graph.ffn(layer).spec
        predicted = np.flatnonzero(expected).astype(np.int32)
        gates = activate(spec, first_values_of_some(w, x, predicted, ops), ops)  # [K], of up without a gate
        passed = np.not_equal(gates, 0)
        gate_active = predicted[passed]
        fired, h = times_up(spec, w, x, gate_active, gates[passed], ops)
        self.counters.add_token(layer, len(predicted), len(gate_active), fired)
        return down_of_some(w, h, fired, ops)

    def _batch(self, layer: int, x: F32, expected: NDArray[np.bool_]) -> F32:
        w, ops = self._layers[layer].ffns[0], self._operators
        h, fired, n_gate_active = everything(self._graph.ffn(layer).spec, w, x, ops, expected)
        self.counters.add_batch(layer, int(np.count_nonzero(expected)), n_gate_active, fired)
        return down_of_all(w, h, ops)
