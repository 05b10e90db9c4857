"""The FFN with every neuron computed: the reference for executors that skip some."""

from __future__ import annotations

from engine.config import ModelConfig
from engine.executor.experts import ExpertExecutor, through_blocks
from engine.executor.feed_forward import down_of_all, everything
from engine.model.counters import FfnCounters
from engine.model.graph import graph_of
from engine.model.router import Routing
from engine.model.weights import FfnWeights, ModelWeights
from native_kernels.backend import F32, Operators


class DenseExecutor:
    """Computes down(act(gate(x)) * up(x)), or down(act(up(x))) without a gate, for every expert used."""

    name = "dense"

    def __init__(self, config: ModelConfig, weights: ModelWeights, operators: Operators) -> None:
        self.counters = FfnCounters(
            config.n_layers, config.n_neurons, config.n_blocks_used, without=config.mixer_only_layers
        )
        self._graph = graph_of(config)
        self._layers = weights.layers
        self._operators = operators
        self.experts = ExpertExecutor.make(config, weights, operators, self.counters)

    def ffn(self, layer: int, x: F32, residual: F32, routing: Routing | None = None) -> F32:
        """Return what the FFN adds to the residual, [T, D], for normed x [T, D]."""

        def block(w: FfnWeights, first_neuron: int, x: F32) -> F32:
            h, fired, n_gate_active = everything(self._graph.ffn(layer).spec, w, x, self._operators)
            self.counters.add_batch(layer, h.size, n_gate_active, fired, first_neuron)
            return down_of_all(w, h, self._operators)

        if routing is not None and self.experts is not None:
            return self.experts.ffn(layer, x, routing, block, skips=False)
        return through_blocks(self._layers[layer].ffns, x, routing, block)
