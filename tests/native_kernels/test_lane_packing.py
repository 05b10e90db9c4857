"""Rows interleaved by lanes: the documented place of every column, for whole and ragged superblocks, and no loss."""

from __future__ import annotations

import numpy as np
import pytest

from native_kernels.codecs.lane_packing import n_groups, pack_rows, row_bytes, unpack_rows

SIZES = {"q4_0": 18, "q8_0": 34}


def random_blocks(codec: str, n_rows: int, groups: int) -> np.ndarray:
    rng = np.random.default_rng(groups)
    return rng.integers(0, 256, (n_rows, groups, SIZES[codec]), dtype=np.uint8)


def column(codec: str, row: np.ndarray, n: int, groups: int) -> int:
    """The quant of column n, found as docs/bundle.md, section 4 says, one column at a time."""
    group, inner = divmod(n, 32)
    s, j = divmod(group, 16)
    t = min(16, groups - 16 * s)
    if codec == "q8_0":
        k, b = divmod(inner, 4)
        return int(row[512 * s + 4 * t * k + 4 * j + b].view(np.int8))
    c, rest = divmod(inner, 8)
    half, b = divmod(rest, 4)
    byte = int(row[256 * s + 4 * t * c + 4 * j + b])
    return byte >> 4 if half else byte & 15


def ggml_column(codec: str, block: np.ndarray, inner: int) -> int:
    if codec == "q8_0":
        return int(block[2 + inner].view(np.int8))
    return int(block[2 + inner % 16]) >> (4 * (inner // 16)) & 15


@pytest.mark.parametrize("codec", ["q4_0", "q8_0"])
@pytest.mark.parametrize("groups", [1, 2, 15, 16, 17, 32, 46])
def test_every_column_lies_where_the_format_says(codec: str, groups: int) -> None:
    blocks = random_blocks(codec, 2, groups)
    rows = pack_rows(codec, blocks)
    assert rows.shape == (2, row_bytes(codec, 32 * groups))
    for row, source in zip(rows, blocks, strict=True):
        for n in range(32 * groups):
            assert column(codec, row, n, groups) == ggml_column(codec, source[n // 32], n % 32)
        scales = row[groups * (SIZES[codec] - 2) :]
        assert scales.tobytes() == source[:, :2].tobytes()


@pytest.mark.parametrize("codec", ["q4_0", "q8_0"])
@pytest.mark.parametrize("groups", [1, 16, 19, 142])
def test_nothing_is_lost(codec: str, groups: int) -> None:
    blocks = random_blocks(codec, 5, groups)
    np.testing.assert_array_equal(unpack_rows(codec, pack_rows(codec, blocks)), blocks)


def test_a_dot_product_of_bytes_leaves_one_sum_per_lane() -> None:
    """What the layout is for: multiply, add four neighbours, and lane j of 16 holds the sum of group j."""
    rng = np.random.default_rng(0)
    quants, x = (rng.integers(-127, 128, (16, 32)).astype(np.int8) for _ in range(2))
    blocks = np.zeros((2, 16, 34), np.uint8)
    blocks[0, :, 2:], blocks[1, :, 2:] = quants.view(np.uint8), x.view(np.uint8)
    w, a = (row[:512].view(np.int8).astype(np.int32).reshape(8, 16, 4) for row in pack_rows("q8_0", blocks))
    lanes = (w * a).sum(axis=(0, 2))
    np.testing.assert_array_equal(lanes, (quants.astype(np.int32) * x).sum(axis=1))
    # The same activations serve 4 bits: low halves against the even chunks, high halves against the odd ones.
    blocks = random_blocks("q4_0", 1, 16)
    row = pack_rows("q4_0", blocks)[0, :256].reshape(4, 16, 4).astype(np.int32)
    found = ((row & 15) * a[0::2] + (row >> 4) * a[1::2]).sum(axis=(0, 2))
    values = np.array([[ggml_column("q4_0", block, n) for n in range(32)] for block in blocks[0]])
    np.testing.assert_array_equal(found, (values * x).sum(axis=1))


def test_sizes() -> None:
    assert n_groups(33) == 2
    assert row_bytes("q4_0", 4096) == 2304  # 36 lines of 64 bytes
    assert row_bytes("q8_0", 4544) == 142 * 34
    assert row_bytes("q4_0", 33) == 36
    assert (row_bytes("f16", 33), row_bytes("f32", 33)) == (66, 132)
