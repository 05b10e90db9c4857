"""Low-bit copies of a matrix: every way of multiplying them, in every shape."""

from __future__ import annotations

import copy_checks
import numpy as np
import pytest
from row_checks import matrix, random
from support.repetitions import some_daily

from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.reference import ReferenceOperators

# Planes of 1 and 2 bits, and of 4; of two more codecs only the others' parts are made.
CODECS = some_daily(copy_checks.CODECS, ("copy3", "copy4"))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("n_cols", copy_checks.WIDTHS)
def test_rows_and_batches(codec: str, n_cols: int) -> None:
    copy_checks.check_rows(codec, n_cols)
    for n_rows in (1, 16, 21):
        copy_checks.check_batch(codec, n_cols, n_rows)


@pytest.mark.parametrize("codec", CODECS)
def test_only_rows_that_a_first_score_lets_pass_are_read(codec: str) -> None:
    for n_cols in (64, 700):
        copy_checks.check_second_score(codec, n_cols)


def test_the_feed_forward_part_of_a_second_score() -> None:
    copy_checks.check_ffn_of_a_second_score()


def test_signs() -> None:
    copy_checks.check_signs()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_operators_multiply_as_the_reference_does(codec: str, n_threads: int) -> None:
    """Both round x alike; what is left is the order of additions."""
    pool = Pool(n_threads)
    ours, reference = CpuOperators(pool), ReferenceOperators()
    assert ours.reads(codec)
    w = matrix(codec, 37, 320)
    for n_tokens in (0, 1, 3, 40):
        x = random(n_tokens, 320, seed=1)
        np.testing.assert_allclose(ours.matmul(x, w), reference.matmul(x, w), rtol=1e-4, atol=1e-4)
    ids = np.array([0, 5, 36], np.int32)
    np.testing.assert_array_equal(ours.sparse_gemv(w, x[0], ids), ours.matmul(x, w)[0, ids])
    assert {kernel.name for kernel in ours.kernels([codec])} >= {f"gemv.{codec}", f"copy_batch.matmul.{codec}"}
    pool.close()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_no_number_stays_none(codec: str, value: float) -> None:
    x = random(3, 128, seed=1)
    x[1, 40] = value
    pool = Pool(1)
    found = CpuOperators(pool).matmul(x, matrix(codec, 5, 128))
    assert np.isfinite(found[[0, 2]]).all()
    assert not np.isfinite(found[1]).any()
    pool.close()
