"""Rows copied one after another: in order, from rows that lie apart, to places that lie apart."""

from __future__ import annotations

import numpy as np
import pytest

from native_kernels.backend import PackedMatrix
from native_kernels.cpu.runtime.gather import Gathering, gather_call
from native_kernels.cpu.runtime.pool import Pool, Program


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


def test_a_call_that_is_told_anew_what_to_copy() -> None:
    rng = np.random.default_rng(2)
    stored = rng.integers(0, 256, (50, 96), dtype=np.uint8)
    gathering, pool, out = Gathering(), Pool(2), np.zeros((40, 128), np.uint8)
    program = Program([gathering.call])
    pool.run(program)
    assert not out.any()
    for n in (40, 3):
        ids = rng.permutation(50)[:n].astype(np.int32)
        gathering.set(ids.ctypes.data, n, stored[:, 16:].ctypes.data, 80, 96, out.ctypes.data, 128)
        out[:] = 0
        pool.run(program)
        assert np.array_equal(out[:n, :80], stored[ids, 16:])
        assert not out[:n, 80:].any()
        assert not out[n:].any()
    gathering.clear()
    out[:] = 0
    pool.run(program)
    assert not out.any()
    pool.close()
