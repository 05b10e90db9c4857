"""Lay out one layer's predictor as kernel calls, for every kind. sparsity/predictor_kinds.py is the specification."""

from __future__ import annotations

import numpy as np

from engine.config import ModelConfig
from engine.sparsity.predictor import GateCopy, LowRank, Predictor
from native_kernels.backend import F32, I64
from native_kernels.cpu.ffn.predicting import Passed, second_score_calls, sign_calls
from native_kernels.cpu.ffn.sparse_ffn import Buffers, Predicted, predictor_calls
from native_kernels.cpu.products.linear import Products, Vector
from native_kernels.cpu.products.linear import why_not as cannot_multiply
from native_kernels.cpu.runtime.call import Call, aligned_empty

STAGE = "predictor"


def why_not(predictor: Predictor) -> list[str]:
    """Return why no program computes this predictor, one sentence per reason."""
    matrices = [matrix for layer in predictor.layers for matrix in layer.matrices]
    return [reason for matrix in matrices for reason in cannot_multiply(matrix)]


class PredictorCalls:
    """The buffers of one model's predictors, shared by all layers, and the calls over them."""

    def __init__(self, config: ModelConfig, predictor: Predictor, products: Products, buffers: Buffers) -> None:
        self.kinds = np.array([layer.kind for layer in predictor.layers])
        self._layers = predictor.layers
        self._d_ff = config.d_ff
        self._products = products
        self._buffers = buffers
        self._scores: F32 = aligned_empty(config.d_ff)
        self._passed = Passed.make(config.d_ff)
        self._signs = Vector(aligned_empty(config.d_model))

    def of_layer(self, i: int, x: Vector, residual: Vector, copied: I64) -> tuple[list[Call], Predicted | None]:
        """Return the calls that select neurons; None: the model's first matrix decides.

        x, residual [D]: inputs of the layer's FFN. copied i64 [1]: receives the number of rows read from a cascade's
        copy.
        """
        part = self._layers[i]
        if part.low_rank is not None:
            calls, found = self._of_low_rank(part.low_rank, residual if part.input == "residual" else x)
            return self._of_cascade(part.copy, x, calls, found, copied) if part.copy is not None else (calls, found)
        return ([], None) if part.copy is None else self._of_copy(part.copy, x)

    def copied(self, counted: I64) -> I64:
        """Return the rows read of each layer's copy, [L]: counted ones for a cascade, otherwise all or none."""
        some: I64 = np.where(self.kinds == "cascade", counted, 0)
        return np.where((self.kinds == "gate_copy") | (self.kinds == "sign"), self._d_ff, some)

    def _of_low_rank(self, part: LowRank, x: Vector) -> tuple[list[Call], Predicted]:
        values, calls = x.as_read_by(part.a.codec, STAGE)
        calls += predictor_calls(part.a, part.b, values, self._scores, bias1=part.a_bias, bias2=part.b_bias)
        return calls, Predicted(self._scores, part.threshold)

    def _of_copy(self, copy: GateCopy, x: Vector) -> tuple[list[Call], Predicted]:
        source, calls = self._input(copy, x)
        calls += self._products.calls(copy.matrix, source, self._scores, STAGE, bias=copy.bias)
        return calls, Predicted(self._scores, copy.threshold)

    def _of_cascade(
        self, copy: GateCopy, x: Vector, calls: list[Call], first: Predicted, copied: I64
    ) -> tuple[list[Call], Predicted]:
        source, more = self._input(copy, x)
        values, quantised = source.as_read_by(copy.matrix.codec, STAGE)
        passed = self._passed
        calls = calls + more + quantised
        calls += second_score_calls(copy.matrix, values, first, passed, self._buffers, bias=copy.bias, also=copied)
        return calls, Predicted(passed.scores, copy.threshold, passed.listed)

    def _input(self, copy: GateCopy, x: Vector) -> tuple[Vector, list[Call]]:
        if not copy.signed_input:
            return x, []
        self._signs.renew()
        return self._signs, sign_calls(x.values, self._signs.values, STAGE)
