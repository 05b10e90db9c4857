"""Low-bit copies: the documented place of every code, no loss, their values, and how their input is rounded."""

from __future__ import annotations

import numpy as np
import pytest

from native_kernels.backend import PackedMatrix
from native_kernels.codecs.copies import COPY_CODECS, copy_groups, filled
from native_kernels.copies import pack_copy, rounded_to_bytes, signs
from native_kernels.reference import ReferenceOperators

BITS = (1, 2, 3, 4)
WIDTHS = (1, 63, 64, 65, 320, 512, 576, 1100)


def some(bits: int, n_cols: int, n_rows: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8 * n_cols + bits)
    codes = rng.integers(0, 1 << bits, (n_rows, n_cols), dtype=np.uint8)
    return codes, rng.standard_normal((n_rows, copy_groups(n_cols))).astype(np.float16)


def code_at(bits: int, row: np.ndarray, column: int, n_pieces: int) -> int:
    """One code, found as docs/bundle.md, section 6 says."""
    piece, inner = divmod(column, 32)
    superblock, lane = divmod(piece, 16)
    lanes = min(16, n_pieces - 16 * superblock)
    at, code, up = 64 * superblock * bits, 0, 0
    for b in {1: (1,), 2: (2,), 3: (2, 1), 4: (4,)}[bits]:
        run, rest = divmod(inner, 32 // b)
        i, j = divmod(rest, 4)
        byte = int(row[at + 4 * lanes * run + 4 * lane + j])
        code |= (byte >> (b * i) & ((1 << b) - 1)) << up
        at, up = at + 4 * lanes * b, up + b
    return code


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("n_cols", WIDTHS)
def test_every_code_lies_where_the_format_says(bits: int, n_cols: int) -> None:
    codes, scales = some(bits, n_cols, 2)
    packed = pack_copy(codes, scales, bits)
    n_filled = filled(n_cols)
    assert packed.row_bytes == n_filled // 8 * bits + 2 * copy_groups(n_cols)
    for row, source, factors in zip(packed.data, codes, scales, strict=True):
        assert [code_at(bits, row, i, n_filled // 32) for i in range(n_cols)] == source.tolist()
        assert row[n_filled // 8 * bits :].tobytes() == factors.tobytes()


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("n_cols", WIDTHS)
def test_nothing_is_lost_and_levels_lie_about_zero(bits: int, n_cols: int) -> None:
    codes, scales = some(bits, n_cols)
    packed = pack_copy(codes, scales, bits)
    again, factors = COPY_CODECS[packed.codec].split(packed.data)
    np.testing.assert_array_equal(again[:, :n_cols], codes)
    np.testing.assert_array_equal(factors, scales)
    values = packed.block_codec.decode(packed.data)[:, :n_cols]
    levels = (2 * codes.astype(np.float64) + 1 - 2**bits) / 2
    np.testing.assert_array_equal(values, levels * np.repeat(scales.astype(np.float64), 512, axis=1)[:, :n_cols])


@pytest.mark.parametrize("bits", BITS)
def test_numbers_are_rounded_to_the_nearest_level(bits: int) -> None:
    values = np.random.default_rng(0).standard_normal((3, 700)).astype(np.float32)
    values[1, :512] = 0
    packed = PackedMatrix.pack(values, f"copy{bits}")
    found = packed.block_codec.decode(packed.data)[:, :700]
    steps = np.repeat(COPY_CODECS[packed.codec].split(packed.data)[1].astype(np.float32), 512, axis=1)[:, :700]
    assert (np.abs(found - values) <= steps * 0.5001).all()
    assert not found[1, :512].any()


def test_what_is_no_copy_is_refused() -> None:
    codes, scales = some(2, 600)
    for words, make in {
        "of 1 to 4": lambda: pack_copy(codes, scales, 5),
        "not numbers of 1 bits": lambda: pack_copy(codes, scales, 1),
        "of int64": lambda: pack_copy(codes.astype(np.int64), scales, 2),
        r"float16 \(5, 2\) is needed": lambda: pack_copy(codes, scales[:, :1], 2),
    }.items():
        with pytest.raises(ValueError, match=words):
            make()
    assert not set(COPY_CODECS) & {"q4_0", "q4_0.lanes"}


@pytest.mark.parametrize("n_cols", [1, 32, 45, 512])
def test_the_input_is_rounded_in_groups_of_32(n_cols: int) -> None:
    x = np.random.default_rng(1).standard_normal((3, n_cols)).astype(np.float32)
    x[1] = 0
    found = rounded_to_bytes(x)
    for row, rounded in zip(x, found, strict=True):
        for start in range(0, n_cols, 32):
            piece, got = row[start : start + 32], rounded[start : start + 32]
            step = np.abs(piece).max() / 127
            np.testing.assert_allclose(got, np.rint(piece / step) * step if step else 0 * piece, rtol=1e-5, atol=1e-7)
    x[2, 0] = np.inf
    assert np.isnan(rounded_to_bytes(x)[2, : min(32, n_cols)]).all()
    assert np.isfinite(rounded_to_bytes(x)[2, 32:]).all()


def test_a_copy_is_multiplied_with_the_rounded_input() -> None:
    codes, scales = some(3, 100)
    packed = pack_copy(codes, scales, 3)
    x = np.random.default_rng(2).standard_normal((4, 100)).astype(np.float32)
    values = packed.block_codec.decode(packed.data)[:, :100].astype(np.float64)
    wanted = rounded_to_bytes(x).astype(np.float64) @ values.T
    ops = ReferenceOperators()
    np.testing.assert_allclose(ops.matmul(x, packed), wanted, atol=1e-4)
    ids = np.array([0, 3], np.int32)
    np.testing.assert_allclose(ops.sparse_gemv(packed, x[1], ids), wanted[1, ids], atol=1e-4)


def test_signs() -> None:
    assert signs(np.array([-2, -0.0, 0, 3], np.float32)).tolist() == [-1, 1, 1, 1]
