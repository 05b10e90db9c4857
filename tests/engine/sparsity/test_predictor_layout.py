"""Narrow q4_0 matrices of predictors, laid out by lanes: the same numbers, and all others where they lie."""

from __future__ import annotations

import numpy as np
from samples.predictors import dense_of

from engine.sparsity.predictor import GateCopy, LayerPredictor, LowRank, Predictor
from engine.sparsity.predictor_layout import laid_out_by_lanes
from native_kernels.backend import PackedMatrix
from native_kernels.reference import ReferenceOperators


def packed(n_rows: int, n_cols: int, codec: str) -> PackedMatrix:
    return PackedMatrix.pack(np.random.default_rng(n_cols).standard_normal((n_rows, n_cols)).astype("f4"), codec)


def test_narrow_matrices_are_laid_out_anew_and_keep_their_numbers() -> None:
    narrow, wide = (
        LowRank(packed(96, 512, "q4_0"), packed(40, 96, "q4_0")),
        LowRank(packed(512, 512, "q8_0"), packed(40, 512, "q4_0"), threshold=0.5),
    )
    copy = GateCopy(packed(40, 512, "copy2"))
    before = Predictor((LayerPredictor(narrow, copy), LayerPredictor(wide), LayerPredictor()), "abc")
    after = laid_out_by_lanes(before)
    assert (after.kinds, after.model, after.n_bytes) == (before.kinds, "abc", before.n_bytes)
    first, second = after.layers[0].low_rank, after.layers[1].low_rank
    assert first is not None
    assert second is not None
    assert (first.a, first.b.codec) == (narrow.a, "q4_0.lanes")
    assert (second.a, second.b, second.threshold) == (wide.a, wide.b, 0.5)
    np.testing.assert_array_equal(dense_of(first.b), dense_of(narrow.b))
    assert after.layers[0].copy is copy
    x = np.random.default_rng(0).standard_normal((5, 512)).astype("f4")
    ops = ReferenceOperators()
    np.testing.assert_allclose(first.scores(x, ops), narrow.scores(x, ops), rtol=1e-5, atol=1e-4)
