"""Rows copied one after another: in order, from rows that lie apart, to places that lie apart."""

from __future__ import annotations

import numpy as np
import pytest

from native_kernels.backend import PackedMatrix
from native_kernels.cpu.gather import gather_call
from native_kernels.cpu.pool import Pool, Program


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize(("stride", "step"), [(34, 34), (34, 48), (102, 34), (102, 48)])
@pytest.mark.parametrize("chosen", ["none", "one", "some", "all", "a run"])
def test_rows_are_copied_as_they_are(n_threads: int, stride: int, step: int, chosen: str) -> None:
    rng = np.random.default_rng(2)
    stored = rng.integers(0, 256, (300, stride), dtype=np.uint8)
    w = PackedMatrix(300, 32, "q8_0", stored[:, stride - 34 :])
    some = np.flatnonzero(rng.random(300) < 0.7)
    ids = {"none": some[:0], "one": some[-1:], "some": some, "all": np.arange(300), "a run": np.arange(40, 133)}[chosen]
    ids = ids.astype(np.int32)
    out = np.zeros((len(ids) + 1, step), np.uint8)
    pool = Pool(n_threads)
    pool.run(Program([gather_call(w, ids, out.ctypes.data, step)]))
    pool.close()
    assert np.array_equal(out[:-1, :34], stored[ids, stride - 34 :])
    assert not out[:-1, 34:].any()
    assert not out[-1].any()
