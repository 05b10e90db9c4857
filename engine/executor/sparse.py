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
from engine.executor.experts import through_blocks
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
from engine.model.weights import FfnWeights, ModelWeights
from engine.sparsity.predictor import Predictor
from native_kernels.backend import F32, Operators


class SparseExecutor:
    """Predicts, then computes the gate of the selected neurons, then up and down of the active ones.

    Without a gate: up of the selected neurons, then down of the active ones. If the activation makes no zeros, all
    selected neurons count as active. Each position has its own set, also in a batch. Layers of kind true_gate have no
    predictor and run as in exact mode.

    With experts, each chosen expert's neurons are predicted; the shared expert, and more than PER_TOKEN_LIMIT positions
    at once, are computed exactly, because together they need nearly all rows.
    """

    name = "sparse"

    def __init__(
        self, config: ModelConfig, weights: ModelWeights, predictor: Predictor, operators: Operators,
        predicts_prompts: bool = False,
    ) -> None:  # fmt: skip
        """predicts_prompts: predict in experts however many the positions, to measure the loss; slow."""
        if config.d_ff_by_layer or config.gate_cutoffs:
            reason = "layers of the same width, and gates that are not compared with each other"
            raise InvalidRequestError(f"Predictors need {reason}.", "Use the dense mode.")
        predictor.check_against(config.n_layers, config.d_model, config.n_placed_neurons)
        self.counters = FfnCounters(
            config.n_layers, config.n_neurons, config.n_blocks_used, without=config.mixer_only_layers
        )
        self.predicts_prompts = predicts_prompts
        self._graph = graph_of(config)
        self._layers = weights.layers
        self.predictor = predictor
        self._operators = operators
        self._exact: ExactExecutor | None = None  # for layers of kind true_gate, and prompts
        if "true_gate" in predictor.kinds or config.n_experts:
            self._exact = ExactExecutor(config, weights, operators)
            self._exact.counters = self.counters

    def ffn(self, layer: int, x: F32, residual: F32, routing: Routing | None = None) -> F32:
        """Return what the FFN adds, [T, D], for normed x [T, D] and the norm's input residual [T, D]."""
        is_prompt = routing is not None and len(x) > PER_TOKEN_LIMIT and not self.predicts_prompts
        if self._exact is not None and (is_prompt or self.predictor.layers[layer].kind == "true_gate"):
            return self._exact.ffn(layer, x, residual, routing)
        expected, rows_read = self.predictor.expected(layer, x, residual)
        self.counters.add_copied(layer, rows_read)

        def block(w: FfnWeights, first: int, x: F32) -> F32:
            mask = expected[:, first : first + w.up.n_rows]
            if routing is not None:
                mask = mask[np.nonzero(routing.experts == first // w.up.n_rows)[0]]
            if first >= expected.shape[1]:
                mask = np.ones((len(x), w.up.n_rows), np.bool_)  # of the shared expert
            if 1 <= x.shape[0] <= PER_TOKEN_LIMIT:
                return np.stack([self._one_token(layer, w, first, *one) for one in zip(x, mask, strict=True)])
            return self._batch(layer, w, first, x, mask)

        return through_blocks(self._layers[layer].ffns, x, routing, block)

    def _one_token(self, layer: int, w: FfnWeights, first: int, x: F32, expected: NDArray[np.bool_]) -> F32:
        ops, spec = self._operators, self._graph.ffn(layer).spec
        predicted = np.flatnonzero(expected).astype(np.int32)
        gates = activate(spec, first_values_of_some(w, x, predicted, ops), ops)  # [K], of up without a gate
        passed = np.not_equal(gates, 0)
        gate_active = predicted[passed]
        fired, h = times_up(spec, w, x, gate_active, gates[passed], ops)
        self.counters.add_token(layer, len(predicted), len(gate_active), fired, first)
        return down_of_some(w, h, fired, ops)

    def _batch(self, layer: int, w: FfnWeights, first: int, x: F32, expected: NDArray[np.bool_]) -> F32:
        ops = self._operators
        h, fired, n_gate_active = everything(self._graph.ffn(layer).spec, w, x, ops, expected)
        self.counters.add_batch(layer, int(np.count_nonzero(expected)), n_gate_active, fired, first)
        return down_of_all(w, h, ops)
