"""Norms, activations, lists, embeddings and the whole operators on kernels."""

from __future__ import annotations

import numpy as np
import operator_checks
import pytest

from native_kernels.backend import PackedMatrix
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators


@pytest.mark.parametrize(
    "check", ["check_norms", "check_activations", "check_lists", "check_embeddings", "check_no_numbers"]
)
def test_small_kernels(check: str) -> None:
    getattr(operator_checks, check)()


@pytest.mark.parametrize("n_threads", [1, 2, 5, 8])
def test_operators(n_threads: int) -> None:
    operator_checks.check_operators(n_threads)


@pytest.mark.parametrize("n", [0, 1, 127, 128, 500])
def test_threads_change_no_embedding_or_angle(n: int) -> None:
    ours, reference = CpuOperators(Pool(3)), ReferenceOperators()
    w = PackedMatrix.pack(np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32), "q4_0")
    ids, positions, factors = np.arange(n) * 7 % 40, np.arange(n) + 5, np.linspace(1, 2, 4, dtype=np.float32)
    assert np.array_equal(ours.rows(w, ids), reference.rows(w, ids))
    found, wanted = (one.rope_angles(positions, 8, 1e4, factors) for one in (ours, reference))
    assert np.array_equal(found, wanted)
    ours.pool.close()
