"""Columns of stored matrices as rows: the same numbers, or the bytes that the codec's reference encodes."""

from __future__ import annotations

import numpy as np
import pytest
from product_checks import check_transposed
from support.repetitions import some_daily

from native_kernels.backend import PackedMatrix
from native_kernels.codecs import CODECS, ROW_CODECS
from native_kernels.cpu.products.transposed import PLAIN, transpose_calls, transposed, transposed_empty
from native_kernels.cpu.runtime.pool import Pool


# Rows are decoded as in check_rows, in every codec; every day one with blocks of 32 and one with blocks of 256.
@pytest.mark.parametrize("name", some_daily([name for name in CODECS if name not in PLAIN], ("q4_0", "q4_k")))
def test_blocks_become_rows_of_bytes_bit_by_bit(name: str) -> None:
    rest = 32 if CODECS[name].block_size == 32 else 0
    check_transposed(name, 40, 512 + rest)
    for n_rows, n_cols in [(1, 256), (32, 256 + rest), (512, 768), (1100, 256)] if name in ("q4_0", "q4_k") else ():
        check_transposed(name, n_rows, n_cols)


@pytest.mark.parametrize("name", PLAIN)
def test_other_numbers_stay_as_they_are(name: str) -> None:
    for n_rows, n_cols in ((1, 1), (7, 300), (16, 16), (530, 257)):
        check_transposed(name, n_rows, n_cols)


def test_halves_zeros_and_what_is_not_finite() -> None:
    values = np.zeros((64, 256), np.float32)
    values[:, 1] = np.arange(64)
    values[:2, 2] = 127, 2.5  # a scale of 1: the half is rounded away from zero
    values[32:34, 3] = -127, -2.5
    values[0, 4], values[1, 5] = np.nan, np.inf
    w = PackedMatrix.pack(values.astype(np.float16), "f16")
    blocks = PackedMatrix.pack(np.where(np.isfinite(values), values, 0), "q8_0")
    out = transposed(blocks, Pool(1))
    wanted = ROW_CODECS["q8_0.lanes"].encode(np.ascontiguousarray(CODECS["q8_0"].decode(blocks.data).T))
    np.testing.assert_array_equal(out.data, wanted)
    np.testing.assert_array_equal(transposed(w, Pool(1)).data, w.data.T)
    blocks.data[0, :2] = 0xFF, 0x7F  # a scale that is not a number: so are those of the columns that it spans
    scales = transposed(blocks, Pool(1)).data[:, 64:].view(np.float16)
    assert not np.isfinite(scales[:32, 0]).any()
    assert np.isfinite(scales[32:]).all()


def test_another_shape_is_refused() -> None:
    w, other = (PackedMatrix.pack(np.zeros((n, 64), np.float32), "q8_0") for n in (32, 64))
    with pytest.raises(ValueError, match="needed"):
        transpose_calls(w, transposed_empty(other), 1)
