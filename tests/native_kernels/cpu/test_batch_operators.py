"""Products that are laid out once give what those laid out anew give, whatever comes between them."""

from __future__ import annotations

import numpy as np
import pytest

from native_kernels.backend import PackedMatrix
from native_kernels.cpu.batch_operators import BatchOperators
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.pool import Pool


@pytest.mark.parametrize("codec", ["f32", "f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("rows", [1, 3, 16])
def test_the_same_as_without(codec: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    pool = Pool(2)
    kept = BatchOperators(pool, rows)
    shapes = [(96, 64), (32, 64), (96, 64), (64, 96)]  # some share inputs, some results
    matrices = [PackedMatrix.pack(rng.standard_normal(shape).astype(np.float32), codec) for shape in shapes]
    for _ in range(3):
        for n in (rows, rows + 1):
            inputs = [rng.standard_normal((n, w.n_cols)).astype(np.float32) for w in matrices]
            found = [kept.matmul(x, w) for x, w in zip(inputs, matrices, strict=True)]
            for x, w, out in zip(inputs, matrices, found, strict=True):
                fresh = BatchOperators(pool, rows) if n == rows else CpuOperators(pool)
                np.testing.assert_array_equal(out, fresh.matmul(x, w))
    pool.close()
