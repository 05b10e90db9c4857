"""Run each position through its experts and sum their weighted outputs. The caller computes one expert's block."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.config import ModelConfig
from engine.model.counters import FfnCounters
from engine.model.graph import graph_of
from engine.model.router import Routing
from engine.model.weights import FfnWeights, ModelWeights
from native_kernels.backend import F32, I64, ExpertBatch, Operators, PackedMatrix

Block = Callable[[FfnWeights, int, F32], F32]


def through_blocks(blocks: Sequence[FfnWeights], x: F32, routing: Routing | None, block: Block) -> F32:
    """Return x [T, D] through the layer's only block, or through each position's weighted experts -> [T, D].

    block: (weights, number of their first neuron in the layer, x [T', D]) -> [T', D].
    """
    if routing is None:
        return block(blocks[0], 0, x)
    out = np.zeros_like(x)
    for expert in np.unique(routing.experts).tolist():
        positions, places = np.nonzero(routing.experts == expert)  # each position at most once
        w = blocks[expert]
        read, weights = np.ascontiguousarray(x[positions]), routing.weights[positions, places, None]
        if routing.of_inputs:
            read, weights = read * weights, np.ones_like(weights)
        out[positions] += weights * block(w, expert * blocks[0].up.n_rows, read)
    return out


class ExpertExecutor:
    """A model's experts for many positions at once, if the operators compute them as one program.

    Same results as `through_blocks`, its specification, which also computes the shared expert.
    """

    def __init__(self, config: ModelConfig, weights: ModelWeights, batch: ExpertBatch, counters: FfnCounters) -> None:
        self._config = config
        self._layers = weights.layers
        self._reads = weights.expert_reads
        self._batch = batch
        self._counters = counters

    @classmethod
    def make(
        cls, config: ModelConfig, weights: ModelWeights, operators: Operators, counters: FfnCounters
    ) -> ExpertExecutor | None:
        """Return None without experts, or if the operators compute them one by one."""
        if not config.n_experts:
            return None
        last = max(i for i in range(config.n_layers) if config.ffn_width(i))
        spec = graph_of(config).ffn(last).spec  # all layers with experts have the same
        batch = operators.expert_batch(spec.activation, spec.threshold, spec.relu_on_up)
        blocks = [layer.routed for layer in weights.layers]
        if batch is None or not all(batch.takes(layer, *_parts(of)) for layer, of in enumerate(blocks) if of):
            return None
        return cls(config, weights, batch, counters)

    def ffn(self, layer: int, x: F32, routing: Routing, block: Block, skips: bool) -> F32:
        """Return the weighted outputs of the experts [T, D] for normed x [T, D].

        block: as above, for the shared expert. skips: count only neurons with a nonzero activation as computed. routing
        may leave out the shared expert, or consist of it.
        """
        config, n_used = self._config, self._config.n_experts_used
        first_shared, w_shared = config.n_experts * config.d_ff, self._layers[layer].shared
        if w_shared is not None and routing.experts.shape[1] == 1:
            return routing.weights * block(w_shared, first_shared, x)
        ids, weights = routing.experts[:, :n_used], routing.weights[:, :n_used]
        step = self._batch.most_tokens(layer, n_used)
        chunks = [slice(start, start + step) for start in range(0, len(x), step)]
        out = np.concatenate([self.chosen(layer, x[rows], ids[rows], weights[rows], skips) for rows in chunks])
        if w_shared is not None and routing.experts.shape[1] > n_used:
            out += routing.weights[:, n_used:] * block(w_shared, first_shared, x)
        return out

    def chosen(self, layer: int, x: F32, ids: I64, weights: F32, skips: bool) -> F32:
        """Return the weighted outputs of experts ids [T, K], negative: none, for normed x [T, D]."""
        if not self._config.weighed_inputs:
            return self._at_once(layer, x, ids, weights, skips)
        read = (x[:, None] * weights[..., None]).reshape(-1, x.shape[1])
        alone = ids.reshape(-1, 1)
        said = self._at_once(layer, read, alone, np.ones(alone.shape, np.float32), skips)
        found: F32 = said.reshape(*ids.shape, -1).sum(axis=1)
        return found

    def _at_once(self, layer: int, x: F32, ids: I64, weights: F32, skips: bool) -> F32:
        """Return the same where weights multiply outputs."""
        counters, width = self._counters, self._config.d_ff
        if self._reads is not None:
            self._reads.choose(layer, np.unique(ids).tolist())
        out, hidden = self._batch.run(layer, x, ids, weights)
        computed = hidden.opened if skips else hidden.values.size
        counters.add_counted(layer, len(hidden.values), computed, hidden.opened, hidden.fired)
        counts = counters.recent(1) if len(x) == 1 else counters.per_neuron
        if counts is not None and len(hidden.values):
            fired = np.add.reduceat(hidden.values != 0, hidden.first, axis=0, dtype=np.int64)
            neurons = counts[layer, : self._config.n_experts * width]
            neurons.reshape(-1, width)[hidden.experts] += fired.astype(counts.dtype)
        return out


def _parts(blocks: Sequence[FfnWeights]) -> tuple[dict[str, list[PackedMatrix]], dict[str, list[F32]]]:
    """Return the matrices and the biases of a layer's experts, by name."""
    matrices: dict[str, list[PackedMatrix]] = {}
    biases: dict[str, list[F32]] = {}
    for block in blocks:
        for name, value in vars(block).items():
            if isinstance(value, PackedMatrix):
                matrices.setdefault(name, []).append(value)
            elif value is not None:
                biases.setdefault(name, []).append(value)
    return matrices, biases
