"""Lays out a token's feed-forward block on two sides as calls of kernels; HybridExecutor is the specification.

The hot side is a share of the same threads, on rows of its own. It runs nothing and places no neurons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.config import ModelConfig
from engine.decode.ffn_calls import COPIED
from engine.decode.predictor_calls import PredictorCalls
from engine.executor.hot_side import HotRows
from engine.executor.slots import SlotTable
from engine.model.weights import FfnWeights, ModelWeights
from engine.sparsity.predictor import Predictor
from native_kernels.backend import F32, I32, I64
from native_kernels.cpu.ffn.elementwise import bias_calls
from native_kernels.cpu.ffn.sparse_ffn import Buffers, ffn_calls
from native_kernels.cpu.ffn.two_sides import both, part_calls, room_for
from native_kernels.cpu.products.gemv import vector_format
from native_kernels.cpu.products.linear import Products, Vector
from native_kernels.cpu.products.row_sums import SUMS
from native_kernels.cpu.runtime.call import Call, aligned_empty
from native_kernels.cpu.runtime.tallies import Tally, TallyBlock

# Words of a layer's counts: computed, opened and fired of each side, around what the predictors count.
_COLD, _HOT = slice(0, 3), slice(COPIED + 1, COPIED + 4)


def why_not(weights: ModelWeights) -> list[str]:
    """The reasons, one sentence each, why no program computes both sides."""
    codecs = {w.down_t.codec for layer in weights.layers for w in layer.ffns if w.down_t is not None}
    return [f"No CPU kernel adds up listed rows of {codec}." for codec in sorted(codecs - set(SUMS))]


class HybridCalls:
    """The buffers of both sides, and the calls over them; else as FfnCalls.

    What is hot is looked up when the calls run: neurons may change places between two tokens.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        products: Products,
        predictor: Predictor | None,
        tables: tuple[SlotTable, ...],
        hot: HotRows,
    ) -> None:
        self.tallies = TallyBlock()
        self._hot_tallies = TallyBlock()
        self._hot_tallies.point_to(hot.fired)
        self._config = config
        self._layers = [layer.ffns[0] for layer in weights.layers]
        self._products = products
        self._tables = tables
        self._hot = hot
        f = config.d_ff
        self._active: I32 = aligned_empty(f, np.int32)
        self._hot_out: F32 = aligned_empty(config.d_model)
        self._slots, self._n_slots = room_for(f)
        self._cold, self._n_cold = room_for(f)
        self._buffers = Buffers.make(f, config.d_model, products.n_workers)
        self._hot_buffers = Buffers.make(f, config.d_model, products.n_workers)
        self._predicting: PredictorCalls | None = None
        if predictor is not None:
            self._predicting = PredictorCalls(config, predictor, products, self._buffers)

    def select(self, layer: int, x: Vector) -> list[Call]:
        """Nothing: predictors run in `of_layer`."""
        return []

    def of_layer(self, layer: int, x: Vector, residual: Vector, out: F32, counts: I64) -> list[Call]:
        """out [D] = what the block adds to the stream; x [D] normed, residual [D] what the norm read."""
        w, block, table = self._layers[layer], self._hot.blocks[layer], self._tables[layer]
        calls: list[Call] = []
        cold, hot = (table.cold, table.n_cold), (table.hot_slots, table.n_hot)
        flat, predicted = counts.reshape(-1), None
        if self._predicting is not None:
            calls, predicted = self._predicting.of_layer(layer, x, residual, flat[COPIED:])
        if predicted is not None:
            cold, hot = (self._cold, self._n_cold), (self._slots, self._n_slots)
            calls += part_calls(predicted, table.slot_of, self._active, *hot, *cold)
        forms: dict[str, NDArray[Any]] = {}
        for matrix in (w.up, *([] if w.gate is None else [w.gate])):
            forms[vector_format(matrix.codec)], more = x.as_read_by(matrix.codec, "ffn")
            calls += more
        ours = self._side(
            w, forms, out, self._buffers, cold, flat[_COLD], Tally(self.tallies, layer * self._config.d_ff)
        )
        if not table.n_slots:
            return calls + ours
        theirs = self._side(
            block, forms, self._hot_out, self._hot_buffers, hot, flat[_HOT],
            Tally(self._hot_tallies, self._hot.first[layer]),
        )  # fmt: skip
        n = self._products.n_workers
        n_hot = min(max(1, round(n * table.n_slots / self._config.d_ff)), max(1, n - 1))
        calls += [both(here, there, n, n_hot) for here, there in zip(theirs, ours, strict=True)]
        return calls + bias_calls(out, self._hot_out, "exchange")

    def totals(self, counts: I64) -> I64:
        """What a token's counts [L, workers, words] say of every layer, in the order of FfnCounters.layers."""
        flat = counts.reshape(len(counts), -1)
        found = np.zeros((len(counts), 4), np.int64)
        found[:, :3] = flat[:, _COLD] + flat[:, _HOT]
        if not self._config.gated:  # sparse_ffn then counts as opened what has been computed
            found[:, 1] = found[:, 2]
        decided: NDArray[np.bool_] = np.ones(len(counts), np.bool_)  # by the first matrix
        if self._predicting is not None:
            decided = self._predicting.kinds == "true_gate"
            found[:, 3] = self._predicting.copied(counts[:, 0, COPIED])
        if self._config.has_zeros:
            found[decided, 0] = found[decided, 1]
        return found

    def _side(
        self,
        w: FfnWeights,
        forms: dict[str, NDArray[Any]],
        out: F32,
        buffers: Buffers,
        listed: tuple[I32, I64],
        counts: I64,
        tally: Tally,
    ) -> list[Call]:
        assert w.down_t is not None, "what can be parted is neuron-major"
        ids, n_ids = listed
        return ffn_calls(
            w.gate, w.up, w.down_t, forms, out, self._config.kernel_activation,
            buffers, threshold=self._config.activation_threshold, ids=ids, n_ids=n_ids, gate_bias=w.gate_bias,
            up_bias=w.up_bias, down_bias=w.down_bias, counts=counts, tally=tally,
        )  # fmt: skip
