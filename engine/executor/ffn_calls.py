"""Lays out a token's feed-forward block as calls of kernels, for every mode; the executors are the specification.

It runs nothing and chooses no mode.
"""

from __future__ import annotations

import numpy as np

from engine.config import Mode, ModelConfig
from engine.executor.feed_forward import first_matrix
from engine.model.weights import FfnWeights, ModelWeights
from engine.sparsity.predictor import LayerPredictor, Predictor
from native_kernels.backend import F32, I32, I64, PackedMatrix
from native_kernels.cpu.active_rows import clear_calls, list_calls, scatter_calls
from native_kernels.cpu.call import Call, aligned_empty
from native_kernels.cpu.elementwise import Activation, activation_calls, bias_calls
from native_kernels.cpu.linear import Products, Vector
from native_kernels.cpu.linear import why_not as cannot_multiply

_ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu", "drelu": "relu", "fatrelu": "fatrelu", "silu": "silu", "gelu": "gelu", "gelu-tanh": "gelu-tanh",
}  # fmt: skip

# Words of a worker's counts in a layer: what elementwise counts, and what is listed.
COUNT_WORDS = 8
_OPENED, _FIRED, _LISTED = range(3)


def why_not(mode: Mode, predictor: Predictor | None) -> list[str]:
    """The reasons, one sentence each, why no program computes the feed-forward blocks in this mode."""
    if mode != "sparse":
        return []
    assert predictor is not None, "sparse mode has one"
    matrices = [matrix for layer in predictor.layers for matrix in (layer.a, layer.b)]
    return [reason for matrix in matrices for reason in cannot_multiply(matrix)]


class FfnCalls:
    """The buffers of one model's feed-forward blocks, and the calls over them.

    counts passed in: i64 [workers, COUNT_WORDS], the layer's, zero before every token.
    """

    def __init__(
        self, mode: Mode, config: ModelConfig, weights: ModelWeights, products: Products, predictor: Predictor | None
    ) -> None:
        self._mode = mode
        self._config = config
        self._layers = [layer.ffns[0] for layer in weights.layers]  # experts have no program
        self._products = products
        self._predictor = predictor
        self._activation = _ACTIVATIONS[config.activation.removesuffix("-glu")]
        self._first: F32 = aligned_empty(config.d_ff)
        self._up: F32 = aligned_empty(config.d_ff)
        self._found: F32 = aligned_empty(config.d_ff)  # for listed neurons, in the order of the list
        self._hidden = Vector(aligned_empty(config.d_ff))
        self._predicted: I32 = aligned_empty(config.d_ff, np.int32)
        self._firing: I32 = aligned_empty(config.d_ff, np.int32)
        self._n_predicted: I64 = aligned_empty(1, np.int64)
        self._n_firing: I64 = aligned_empty(1, np.int64)
        if predictor is not None:
            widest = max(layer.rank for layer in predictor.layers)
            self._ranked: F32 = aligned_empty(widest)
            self._scores: F32 = aligned_empty(config.d_ff)

    def of_layer(self, layer: int, x: Vector, residual: Vector, out: F32, counts: I64) -> list[Call]:
        """out [D] = what the block adds to the stream; x [D] normed, residual [D] what the norm read."""
        w = self._layers[layer]
        if self._mode == "dense":
            calls = self._all(w, x, counts)
        else:
            calls = self._some(w, x, counts) if self._mode == "exact" else self._expected(layer, x, residual, counts)
        self._hidden.renew()
        return calls + self._down(w, out)

    def totals(self, counts: I64) -> tuple[int, int, int]:
        """Computed, opened and fired over all layers, of a token: counts [L, workers, COUNT_WORDS]."""
        opened, fired, listed = (int(counts[:, :, word].sum()) for word in (_OPENED, _FIRED, _LISTED))
        if self._mode == "dense":
            return self._config.n_layers * self._config.d_ff, opened, fired
        return (opened if self._mode == "exact" else listed), opened, fired

    # -------------------------------------------------------------- what goes into down

    def _all(self, w: FfnWeights, x: Vector, counts: I64) -> list[Call]:
        """As DenseExecutor: every neuron's hidden value."""
        first, bias = first_matrix(w)
        gated = w.gate is not None
        calls = self._products.calls(first, x, self._first, "ffn", barrier=not gated)
        if gated:
            calls += self._products.calls(w.up, x, self._up, "ffn")
        return calls + activation_calls(
            self._activation,
            self._first,
            self._hidden.values,
            bias=bias,
            up=self._up if gated else None,
            up_bias=w.up_bias if gated else None,
            relu_on_up=self._config.activation == "drelu-glu",
            threshold=self._config.activation_threshold,
            counts=counts,
        )

    def _some(self, w: FfnWeights, x: Vector, counts: I64) -> list[Call]:
        """As ExactExecutor: the first matrix whole, up where it fires."""
        first, bias = first_matrix(w)
        return self._products.calls(first, x, self._first, "ffn") + self._opened(w, x, bias, counts)

    def _expected(self, i: int, x: Vector, residual: Vector, counts: I64) -> list[Call]:
        """As SparseExecutor: the first matrix where the predictor expects it, up where it fires."""
        assert self._predictor is not None, "sparse mode has one"
        part, w = self._predictor.layers[i], self._layers[i]
        calls = self._predict(part, residual if self._predictor.input == "residual" else x)
        calls += clear_calls(self._first, barrier=False)
        calls += list_calls(
            self._scores, self._predicted, self._n_predicted, also=counts[0, _LISTED:],
            bias=part.b_bias, threshold=part.threshold, stage="predictor",
        )  # fmt: skip
        first, bias = first_matrix(w)
        calls += self._listed(first, x, self._predicted, self._n_predicted, self._first, bias=bias)
        return calls + self._opened(w, x, None, counts)

    def _predict(self, part: LayerPredictor, x: Vector) -> list[Call]:
        """Scores of all neurons, without their bias."""
        ranked = Vector(self._ranked[: part.rank])
        calls = self._products.calls(part.a, x, ranked.values, "predictor")
        calls += activation_calls("relu", ranked.values, ranked.values, bias=part.a_bias, stage="predictor")
        return calls + self._products.calls(part.b, ranked, self._scores, "predictor")

    def _opened(self, w: FfnWeights, x: Vector, bias: F32 | None, counts: I64) -> list[Call]:
        """The activation of the first matrix, and up where it is not zero."""
        hidden = self._hidden.values
        calls = activation_calls(
            self._activation, self._first, hidden, bias=bias, threshold=self._config.activation_threshold,
            counts=counts if w.gate is None or self._config.activation != "drelu-glu" else None,
        )  # fmt: skip
        if w.gate is None:
            return calls
        drelu = self._config.activation == "drelu-glu"
        calls += list_calls(hidden, self._firing, self._n_firing, also=counts[0, _OPENED:] if drelu else None)
        return calls + self._listed(
            w.up, x, self._firing, self._n_firing, hidden, bias=w.up_bias, multiplied=True, relu=drelu,
            counts=counts[:, _FIRED:] if drelu else None,
        )  # fmt: skip

    def _listed(
        self,
        w: PackedMatrix,
        x: Vector,
        ids: I32,
        count: I64,
        out: F32,
        *,
        bias: F32 | None = None,
        multiplied: bool = False,
        relu: bool = False,
        counts: I64 | None = None,
    ) -> list[Call]:
        calls = self._products.calls(w, x, self._found, "ffn", bias=bias, ids=ids, n_ids=count)
        return calls + scatter_calls(
            self._found, ids, count, out, multiplied=multiplied, relu=relu, counts=counts
        )  # fmt: skip

    # -------------------------------------------------------------- down

    def _down(self, w: FfnWeights, out: F32) -> list[Call]:
        if w.down_t is not None:
            calls = self._products.transposed_calls(w.down_t, self._hidden.values, out, "ffn")
            return calls + ([] if w.down_bias is None else bias_calls(out, w.down_bias, "ffn"))
        assert w.down is not None, "a layer has down_t or down"
        return self._products.calls(w.down, self._hidden, out, "ffn", bias=w.down_bias)
