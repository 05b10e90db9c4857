"""The FFN without inactive neurons: the same result as dense, because skipped neurons add zero.

Nothing is predicted: the gate of every neuron is computed (up, if the FFN has no gate), and decides. Paper:
PowerInfer, section 2.1.
"""

from __future__ import annotations

import numpy as np

from engine.config import ModelConfig
from engine.errors import InvalidRequestError
from engine.executor.experts import ExpertExecutor, through_blocks
from engine.executor.feed_forward import activate, down_of_all, down_of_some, everything, first_values, times_up
from engine.model.counters import FfnCounters
from engine.model.graph import graph_of
from engine.model.router import Routing
from engine.model.weights import FfnWeights, ModelWeights
from native_kernels.backend import F32, I32, Operators

# Up to this many positions are computed one by one. From there on a single product over all neurons, zeros included, is
# faster because it reads the weights once. Starter model (1792 x 512, 9 % active), 2 cores, per layer: 6 positions 0.62
# ms against 1.08 ms, 8 positions 0.77 ms against 0.60 ms, 128 positions 9.2 ms against 3.4 ms. Sparse mode (1536 x 512,
# 15 % predicted): 6 positions 0.38 ms against 0.69 ms, 8 positions 0.51 ms against 0.34 ms.
PER_TOKEN_LIMIT = 6


class ExactExecutor:
    """Computes the gate, then up of neurons with an active gate, then down of active neurons.

    Without a gate: up, then down of active neurons. Requires an activation that makes exact zeros, or gates that are
    cut off; layers without either are computed whole.
    """

    name = "exact"

    def __init__(self, config: ModelConfig, weights: ModelWeights, operators: Operators) -> None:
        if not config.has_some_zeros:
            raise InvalidRequestError(
                f"This model's activation ({config.activation}) makes no zeros, so no neuron can be skipped exactly.",
                "Use the dense mode.",
            )
        self.counters = FfnCounters(
            config.n_layers, config.n_neurons, config.n_blocks_used, without=config.mixer_only_layers
        )
        self._graph = graph_of(config)
        self._layers = weights.layers
        self._operators = operators
        self._experts = ExpertExecutor.make(config, weights, operators, self.counters)

    def ffn(self, layer: int, x: F32, residual: F32, routing: Routing | None = None) -> F32:
        """Return what the FFN adds to the residual, [T, D], for normed x [T, D]."""

        skips = self._graph.ffn(layer).spec.has_zeros

        def block(w: FfnWeights, first_neuron: int, x: F32) -> F32:
            if skips and 1 <= x.shape[0] <= PER_TOKEN_LIMIT:
                return np.stack([self._one_token(layer, w, first_neuron, token) for token in x])
            return self._batch(layer, w, first_neuron, x)

        if routing is not None and self._experts is not None and len(x) > PER_TOKEN_LIMIT:
            return self._experts.ffn(layer, x, routing, block, skips=True)
        return through_blocks(self._layers[layer].ffns, x, routing, block)

    def _one_token(self, layer: int, w: FfnWeights, first_neuron: int, x: F32) -> F32:
        ops, spec = self._operators, self._graph.ffn(layer).spec
        gates = first_values(w, x[None], ops)[0]  # [F], of up without a gate
        if spec.cutoff or spec.activation == "relu2":
            gates = activate(spec, gates[None], ops)[0]
        gate_active: I32 = np.flatnonzero(gates > np.float32(spec.threshold)).astype(np.int32)
        fired, h = times_up(spec, w, x, gate_active, gates[gate_active], ops)
        self.counters.add_token(layer, len(gate_active), len(gate_active), fired, first_neuron)
        return down_of_some(w, h, fired, ops)

    def _batch(self, layer: int, w: FfnWeights, first_neuron: int, x: F32) -> F32:
        ops = self._operators
        h, fired, n_gate_active = everything(self._graph.ffn(layer).spec, w, x, ops)
        self.counters.add_batch(layer, n_gate_active, n_gate_active, fired, first_neuron)
        return down_of_all(w, h, ops)
