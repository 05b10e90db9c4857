"""Lay out a token's FFN as kernel calls, for every mode. The executors are the specification. Runs nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.config import Mode, ModelConfig
from engine.decode.predictor_calls import PredictorCalls
from engine.decode.predictor_calls import why_not as cannot_predict
from engine.executor.feed_forward import ffn_matrices, first_matrix
from engine.model.graph import graph_of
from engine.model.weights import FfnWeights, ModelWeights
from engine.sparsity.predictor import Predictor
from native_kernels.backend import F32, I64, PackedMatrix
from native_kernels.cpu.ffn.active_rows import clear_calls, list_calls, scatter_calls, take_calls
from native_kernels.cpu.ffn.elementwise import activation_calls, bias_calls
from native_kernels.cpu.ffn.sparse_ffn import Buffers, axpy_calls, ffn_calls
from native_kernels.cpu.ffn.streams import cut_off_calls
from native_kernels.cpu.products.gemv import vector_format
from native_kernels.cpu.products.linear import Products, Vector
from native_kernels.cpu.products.row_sums import SUMS
from native_kernels.cpu.runtime.call import Call, Listed, aligned_empty
from native_kernels.cpu.runtime.tallies import Counting, Tally, TallyBlock, tally_calls

# A worker's counts in a layer: by elementwise kernels, listed neurons, rows read of a copy; the last two only for the
# first worker. sparse_ffn uses the first three words of a layer.
COUNT_WORDS = 8
_OPENED, _FIRED, _LISTED, COPIED = range(4)


def why_not(mode: Mode, predictor: Predictor | None) -> list[str]:
    """Return why no program computes the FFNs in this mode, one sentence per reason."""
    if mode != "sparse":
        return []
    assert predictor is not None, "sparse mode has one"
    return cannot_predict(predictor)


class FfnCalls:
    """The buffers of one model's FFNs, and the calls over them.

    counts i64 [workers, COUNT_WORDS]: the layer's, zero before every token. tallies: where each active neuron is
    counted, i64 [L, F], while per-neuron counting is on.
    """

    def __init__(
        self, mode: Mode, config: ModelConfig, weights: ModelWeights, products: Products, predictor: Predictor | None
    ) -> None:
        self.tallies = TallyBlock()
        self._mode = mode
        self._config = config
        self._layers = [layer.ffns[0] for layer in weights.layers]  # experts have no program
        self._products = products
        self._graph = graph_of(config)
        self._first: F32 = aligned_empty(config.d_ff)
        self._up: F32 = aligned_empty(config.d_ff)
        self._found: F32 = aligned_empty(config.d_ff)  # for listed neurons, in list order
        hidden: F32 = aligned_empty(config.d_ff)
        widths = {self._graph.ffn(layer).spec.width for layer in range(config.n_layers)}
        self._hidden = {n: Vector(hidden[:n]) for n in widths}  # by the number of neurons
        self._n_neurons = np.array([w.up.n_rows for w in self._layers])
        self._are_fused = np.array([self._is_fused(layer, w) for layer, w in enumerate(self._layers)])
        self._predicted = Listed.empty(config.d_ff)
        self._firing = Listed.empty(config.d_ff)
        self._buffers = Buffers.make(config.d_ff, config.d_model, products.n_workers)
        self._whole = {
            n: replace(self._buffers, h=hidden[:n], ids=np.arange(n, dtype=np.int32), n=np.array([n], np.int64))
            for n in widths
        }
        self._predicting: PredictorCalls | None = None
        if mode == "sparse" and predictor is not None:
            self._predicting = PredictorCalls(config, predictor, products, self._buffers)

    def select(self, layer: int, x: Vector) -> list[Call]:
        """Return no calls: predictors run in `of_layer`."""
        return []

    def of_layer(
        self, layer: int, x: Vector, residual: Vector, out: F32, counts: I64, of_shared: Vector | None = None
    ) -> list[Call]:
        """Return the calls that set out [D] to the FFN's result for normed x [D] and the norm's input residual [D]."""
        w = self._layers[layer]
        if self._is_fused(layer, w):
            return self._fused(layer, x, residual, out, counts.reshape(-1))
        if self._mode == "dense" or not self._skips(layer):
            calls = self._all(layer, w, x, counts)
        else:
            calls = (
                self._some(layer, w, x, counts) if self._mode == "exact" else self._expected(layer, x, residual, counts)
            )
        hidden = self._hidden[w.up.n_rows]
        hidden.renew()
        return (
            calls
            + tally_calls(hidden.values, self._tally(layer))
            + self._down(w, hidden, out, skips=self._mode == "exact" and self._skips(layer))
        )

    def totals(self, counts: I64) -> I64:
        """Return each layer's totals from counts [L, workers, COUNT_WORDS], in the order of FfnCounters.layers."""
        found = np.zeros((len(self._layers), 4), np.int64)
        fused = self._are_fused
        for place, word in enumerate((_LISTED, _OPENED, _FIRED)):
            found[fused, place] = counts[fused, 0, place]
            found[~fused, place] = counts[~fused, :, word].sum(axis=1)
        if not self._config.gated:  # here sparse_ffn counts computed neurons as opened
            found[fused, 1] = found[fused, 2]
        if self._mode == "dense":
            found[:, 0] = self._n_neurons
        elif self._mode == "exact":
            found[:, 0] = found[:, 1]
        elif self._predicting is not None:
            kinds = self._predicting.kinds
            found[:, 0] = np.where(kinds == "true_gate", found[:, 1], found[:, 0])
            found[:, 3] = self._predicting.copied(counts[:, 0, COPIED])
        return found

    def _skips(self, layer: int) -> bool:
        """Return whether neurons of the layer are skipped: a predictor selects them, or its gates are zero."""
        return self._mode == "sparse" or self._graph.ffn(layer).spec.has_zeros

    def _is_fused(self, layer: int, w: FfnWeights) -> bool:
        """Return whether the layer runs as sparse_ffn's two calls: neurons are skipped and down is neuron-major.

        A cut-off needs all gates before any is activated.
        """
        fits = self._skips(layer) and not self._graph.ffn(layer).spec.cutoff
        return self._mode != "dense" and fits and w.down_t is not None and w.down_t.codec in SUMS

    def _fused(self, i: int, x: Vector, residual: Vector, out: F32, counts: I64) -> list[Call]:
        """Lay out ExactExecutor or SparseExecutor. counts: [at least 3]."""
        w = self._layers[i]
        assert w.down_t is not None, "else the layer is not fused"
        calls: list[Call] = []
        predicted = None
        if self._predicting is not None:
            calls, predicted = self._predicting.of_layer(i, x, residual, counts[COPIED:])
        forms: dict[str, NDArray[Any]] = {}
        for matrix in (w.up, *([] if w.gate is None else [w.gate])):
            forms[vector_format(matrix.codec)], more = x.as_read_by(matrix.codec, "ffn")
            calls += more
        matrices = ffn_matrices(self._graph.ffn(i).spec, w)
        return calls + ffn_calls(
            matrices, forms, out, self._buffers, neurons=predicted, down_bias=w.down_bias,
            counting=Counting(counts, self._tally(i)),
        )  # fmt: skip

    def _tally(self, layer: int) -> Tally:
        return Tally(self.tallies, layer * self._config.d_ff)

    # --- input of down

    def _all(self, i: int, w: FfnWeights, x: Vector, counts: I64) -> list[Call]:
        """Lay out DenseExecutor: every neuron's hidden value."""
        spec, n = self._graph.ffn(i).spec, w.up.n_rows
        matrix, bias = first_matrix(w)
        gated, first, up = w.gate is not None, self._first[:n], self._up[:n]
        calls = self._products.calls(matrix, x, first, "ffn", barrier=not gated or spec.cutoff > 0)
        if spec.cutoff:
            calls += cut_off_calls(first, spec.cutoff)
        if gated:
            calls += self._products.calls(w.up, x, up, "ffn")
        return calls + activation_calls(
            spec.activation,
            first,
            self._hidden[n].values,
            up=up if gated else None,
            biases=(bias, w.up_bias if gated else None),
            relu_on_up=spec.relu_on_up,
            threshold=spec.threshold,
            counts=counts,
        )

    def _some(self, i: int, w: FfnWeights, x: Vector, counts: I64) -> list[Call]:
        """Lay out ExactExecutor: the whole first matrix, then up of neurons with an active gate."""
        first, bias = first_matrix(w)
        values, cutoff = self._first[: w.up.n_rows], self._graph.ffn(i).spec.cutoff
        calls = self._products.calls(first, x, values, "ffn")
        return calls + (cut_off_calls(values, cutoff) if cutoff else []) + self._opened(i, w, x, bias, counts)

    def _expected(self, i: int, x: Vector, residual: Vector, counts: I64) -> list[Call]:
        """Lay out SparseExecutor: the first matrix of selected neurons, then up of those with an active gate."""
        assert self._predicting is not None, "sparse mode has one"
        w = self._layers[i]
        calls, predicted = self._predicting.of_layer(i, x, residual, counts[0, COPIED:])
        if predicted is None:
            return self._some(i, w, x, counts)
        calls += clear_calls(self._first, barrier=False)
        calls += list_calls(
            predicted.logits, self._predicted, also=counts[0, _LISTED:], threshold=predicted.threshold,
            among=predicted.among, stage="predictor",
        )  # fmt: skip
        first, bias = first_matrix(w)
        calls += self._listed(first, x, self._predicted, self._first, bias=bias)
        return calls + self._opened(i, w, x, None, counts)

    def _opened(self, i: int, w: FfnWeights, x: Vector, bias: F32 | None, counts: I64) -> list[Call]:
        """Lay out the activation of the first matrix, and up where it is not zero."""
        hidden, spec = self._hidden[w.up.n_rows].values, self._graph.ffn(i).spec
        drelu = w.gate is not None and spec.relu_on_up
        calls = activation_calls(
            spec.activation, self._first[: w.up.n_rows], hidden, biases=(bias, None), threshold=spec.threshold,
            counts=None if drelu else counts,
        )  # fmt: skip
        if w.gate is None:
            return calls
        calls += list_calls(hidden, self._firing, also=counts[0, _OPENED:] if drelu else None)
        return calls + self._listed(
            w.up, x, self._firing, hidden, bias=w.up_bias, multiplied=True, relu=drelu,
            counts=counts[:, _FIRED:] if drelu else None,
        )  # fmt: skip

    def _listed(
        self,
        w: PackedMatrix,
        x: Vector,
        listed: Listed,
        out: F32,
        *,
        bias: F32 | None = None,
        multiplied: bool = False,
        relu: bool = False,
        counts: I64 | None = None,
    ) -> list[Call]:
        calls = self._products.calls(w, x, self._found, "ffn", bias=bias, listed=listed)
        return calls + scatter_calls(self._found, listed, out, multiplied=multiplied, relu=relu, counts=counts)

    # --- down

    def _down(self, w: FfnWeights, hidden: Vector, out: F32, skips: bool) -> list[Call]:
        """skips: only the neurons listed as firing have hidden values, and no others' rows of down_t are read."""
        if w.down_t is not None:
            if w.down_t.codec in SUMS and skips:
                some = replace(self._buffers, h=self._found, ids=self._firing.ids, n=self._firing.n)
                calls = take_calls(hidden.values, self._firing, self._found)
                calls += axpy_calls(w.down_t, some, out, stage="ffn")
            elif w.down_t.codec in SUMS:
                calls = axpy_calls(w.down_t, self._whole[w.down_t.n_rows], out, stage="ffn")
            else:
                calls = self._products.transposed_calls(w.down_t, hidden.values, out, "ffn")
            return calls + ([] if w.down_bias is None else bias_calls(out, w.down_bias, "ffn"))
        assert w.down is not None, "a layer has down_t or down"
        return self._products.calls(w.down, hidden, out, "ffn", bias=w.down_bias)
