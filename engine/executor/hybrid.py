"""The FFN on two devices at once: hot neurons where they were placed, cold ones on the CPU, one exchange a layer.

Predict, part the active neurons by their place, compute both sides at the same time, add the two sums. It places no
neurons. Paper: PowerInfer, sections 4 and 5.3.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from engine.config import ModelConfig
from engine.executor.hot_blocks import HotBlocks
from engine.executor.hot_side import HotSide
from engine.executor.listed_neurons import some_of_each
from engine.model.counters import FfnCounters
from engine.model.router import Routing
from engine.model.weights import ModelWeights
from engine.sparsity.predictor import Predictor
from native_kernels.backend import F32, I32, Operators


class HybridExecutor:
    """Sparse mode where there is a predictor, else exact mode, or dense where the activation makes no zeros: the same
    neurons, each on its side, and the same result to rounding, wherever they are.
    """

    name = "hybrid"

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        predictor: Predictor | None,
        blocks: HotBlocks,
        operators: Operators,
    ) -> None:
        """blocks: of these weights, on a HotSide. operators: what computes the cold neurons.

        Raises: ArtifactMismatchError for a predictor of another model.
        """
        if predictor is not None:
            predictor.check_against(config.n_layers, config.d_model, config.d_ff)
        self.blocks = blocks
        self._hot = cast(HotSide, blocks.hot)
        self.predictor = predictor
        self.counters = FfnCounters(
            config.n_layers, config.d_ff, collect=lambda: blocks.collect(self.counters.per_neuron)
        )
        self._config = config
        self._layers = weights.layers
        self._operators = operators
        self._all: I32 = np.arange(config.d_ff, dtype=np.int32)

    def ffn(self, layer: int, x: F32, residual: F32, routing: Routing | None = None) -> F32:
        """x [T, D], normed; residual [T, D], before the norm -> what the block adds to the residual, [T, D]."""
        predicted = self._predicts(layer)
        active = [self._all] * len(x)
        if predicted and self.predictor is not None:
            expected, copied = self.predictor.expected(layer, x, residual)
            self.counters.add_copied(layer, copied)
            active = [np.flatnonzero(mask).astype(np.int32) for mask in expected]
        parts = [self.blocks.tables[layer].part(ids) for ids in active]
        self._hot.start(layer, x, [slots for slots, _ in parts])
        w = self._layers[layer].ffns[0]
        try:
            out, fired, opened = some_of_each(self._config, w, x, [cold for _, cold in parts], self._operators)
        finally:
            theirs = self._hot.result()
        opened += theirs.opened
        computed = sum(map(len, active))
        if not predicted and self._config.has_zeros:  # as exact mode counts: the first matrix decides, read whole
            computed = opened
        self.counters.add_batch(layer, computed, opened, fired)
        self.counters.layers[layer, 2] += theirs.fired
        return out + theirs.out

    def _predicts(self, layer: int) -> bool:
        """Whether a predictor decides in the layer, and not its own first matrix."""
        return self.predictor is not None and self.predictor.layers[layer].kind != "true_gate"
