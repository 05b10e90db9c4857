"""The reference operators on weights in every codec against loops in float64: odd shapes, mapped files, rows apart."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from samples import random_blocks
from support.repetitions import some_daily

from native_kernels.backend import PackedMatrix
from native_kernels.codecs import CODECS
from native_kernels.reference import ReferenceOperators

OPS = ReferenceOperators()
# Numbers of each codec are decoded by functions that test_codecs has; the operators take them in the same way.
NAMES = some_daily(CODECS, ("f32", "f16", "q4_0", "q6_k"))
# Rows and blocks of 256 numbers; the last spans several tiles of 1 MiB.
SHAPES = [(1, 1), (3, 1), (33, 3), (701, 5)]


def random(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def packed(name: str, n_rows: int, n_blocks: int) -> tuple[PackedMatrix, NDArray[np.float64]]:
    """Random weights and what they are in float64."""
    n_cols = 256 * n_blocks - (256 - CODECS[name].block_size if n_blocks > 1 else 0)  # odd where the codec allows it
    data = random_blocks.weights(name, n_rows, n_cols)
    return PackedMatrix.view(data, n_rows, n_cols, name), CODECS[name].decode(data).astype(np.float64)


def close(found: NDArray[np.float32], wanted: NDArray[np.float64]) -> None:
    assert found.dtype == np.float32
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5 * max(1.0, float(np.abs(wanted).max(initial=0))))


def dot(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return math.fsum((a * b).tolist())


def weighted_sum(values: NDArray[np.float32], rows: NDArray[np.float64]) -> NDArray[np.float64]:
    total = np.zeros(rows.shape[1])
    for value, row in zip(values, rows, strict=True):
        total += float(value) * row
    return total


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("t", [0, 1, 3])
@pytest.mark.parametrize(("n_rows", "n_blocks"), SHAPES)
def test_matrix_products(name: str, n_rows: int, n_blocks: int, t: int) -> None:
    w, exact = packed(name, n_rows, n_blocks)
    x, h = random(t, w.n_cols), random(t, n_rows, seed=1)
    products = np.array([[dot(row, exact_row) for exact_row in exact] for row in x.astype(np.float64)])
    close(OPS.matmul(x, w), products.reshape(t, n_rows))
    sums = np.array([weighted_sum(row, exact) for row in h])
    close(OPS.matmul_t(h, w), sums.reshape(t, w.n_cols))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kept", ["none", "first", "last", "some", "all"])
@pytest.mark.parametrize(("n_rows", "n_blocks"), SHAPES)
def test_sparse_products_touch_only_the_given_rows(name: str, n_rows: int, n_blocks: int, kept: str) -> None:
    w, exact = packed(name, n_rows, n_blocks)
    chosen = {"none": [], "first": [0], "last": [n_rows - 1], "some": range(0, n_rows, 3), "all": range(n_rows)}
    ids = np.array(chosen[kept], np.int32)
    spoilt = w.data.copy()
    spoilt.view(np.uint8)[np.setdiff1d(np.arange(n_rows), ids)] = 0xFF  # reading one of these would show
    w = PackedMatrix(w.n_rows, w.n_cols, w.codec, spoilt)
    x, values = random(w.n_cols), random(len(ids), seed=2)
    close(OPS.sparse_gemv(w, x, ids), np.array([dot(exact[i], x.astype(np.float64)) for i in ids]))
    close(OPS.sparse_axpy(w, values, ids), weighted_sum(values, exact[ids]))


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_looked_up(name: str) -> None:
    w, exact = packed(name, 701, 3)
    ids = np.random.default_rng(0).integers(0, 701, 1000)  # several tiles
    np.testing.assert_array_equal(OPS.rows(w, ids), exact[ids])
    assert OPS.rows(w, ids[:0]).shape == (0, w.n_cols)


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_read_where_they_lie(name: str, tmp_path: Path) -> None:
    """Rows of three matrices side by side in a mapped file, at an odd offset: results equal, and nothing is copied."""
    w, exact = packed(name, 33, 3)
    row, other = w.row_bytes, 7
    file = np.full(3 + 33 * (row + other), 0xFF, np.uint8)
    file[3:].reshape(33, -1)[:, :row] = w.data.view(np.uint8)
    file.tofile(tmp_path / "weights")
    mapped = np.asarray(np.memmap(tmp_path / "weights", np.uint8, mode="r"))
    apart = PackedMatrix.view(mapped[3:].reshape(33, -1)[:, :row], 33, w.n_cols, name)
    assert np.shares_memory(apart.data, mapped)
    assert (apart.row_bytes, apart.n_bytes) == (row, 33 * row)
    x, h, ids = random(2, w.n_cols), random(2, 33, seed=1), np.array([0, 5, 32], np.int32)
    close(OPS.matmul(x, apart), x.astype(np.float64) @ exact.T)
    close(OPS.matmul_t(h, apart), h.astype(np.float64) @ exact)
    close(OPS.sparse_gemv(apart, x[0], ids), exact[ids] @ x[0].astype(np.float64))
    close(OPS.sparse_axpy(apart, h[0, ids], ids), h[0, ids].astype(np.float64) @ exact[ids])
    np.testing.assert_array_equal(OPS.rows(apart, ids.astype(np.int64)), exact[ids])


@pytest.mark.parametrize("name", NAMES)
def test_mapped_weights_are_never_copied_whole(name: str, tmp_path: Path) -> None:
    """16 Mi numbers: unpacked they would take 64 MiB, in f32 the file itself does."""
    row = random_blocks.weights(name, 1, 4096)
    np.tile(np.concatenate([np.zeros((1, 1), np.uint8), row], axis=1), (4096, 1)).tofile(tmp_path / "weights")
    mapped = np.asarray(np.memmap(tmp_path / "weights", np.uint8, mode="r")).reshape(4096, -1)
    w = PackedMatrix.view(mapped[:, 1:], 4096, 4096, name)
    exact, x, h = CODECS[name].decode(row)[0].astype(np.float64), random(1, 4096), random(1, 4096, seed=1)
    ids = np.arange(0, 4096, 2, dtype=np.int32)
    tracemalloc.start()
    try:
        by_rows, by_columns = OPS.matmul(x, w), OPS.matmul_t(h, w)
        gathered, summed = OPS.sparse_gemv(w, x[0], ids), OPS.sparse_axpy(w, h[0, ids], ids)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    close(by_rows, np.full((1, 4096), dot(exact, x[0].astype(np.float64))))
    close(by_columns[0], exact * math.fsum(h[0].tolist()))
    close(gathered, np.full(2048, dot(exact, x[0].astype(np.float64))))
    close(summed, exact * math.fsum(h[0, ids].tolist()))


@pytest.mark.parametrize("name", ["bf16", "q8_0", "q4_0"])
def test_packing_encodes(name: str) -> None:
    values = random(5, 96)
    w = PackedMatrix.pack(values, name)
    np.testing.assert_array_equal(w.data, CODECS[name].encode(values))
    assert w.block_codec is CODECS[name]
    np.testing.assert_array_equal(PackedMatrix.pack(values.T.copy().T, name).data, w.data)


def test_an_empty_matrix_is_viewed() -> None:
    for name, codec in CODECS.items():
        w = PackedMatrix.view(np.zeros(0, np.uint8), 0, 256, name)
        assert (w.n_bytes, w.row_bytes) == (0, 256 // codec.block_size * codec.type_size)
        assert OPS.matmul(random(2, 256), w).shape == (2, 0)
        np.testing.assert_array_equal(OPS.matmul_t(random(2, 0), w), np.zeros((2, 256)))


def test_a_matrix_of_blocks_that_lies_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown codec 'q9_9'"):
        PackedMatrix(1, 32, "q9_9", np.zeros((1, 18), np.uint8))
    with pytest.raises(ValueError, match=r"uint8 \(2, 36\), was declared"):
        PackedMatrix(2, 64, "q4_0", np.zeros((2, 18), np.uint8))
    with pytest.raises(ValueError, match="was declared"):
        PackedMatrix(2, 32, "q4_0", np.zeros((2, 18), np.int8))
    with pytest.raises(ValueError, match="33 numbers are not whole blocks"):
        PackedMatrix(2, 33, "q4_0", np.zeros((2, 18), np.uint8))
    with pytest.raises(ValueError, match="each in one piece"):
        PackedMatrix(2, 32, "q4_0", np.zeros((2, 36), np.uint8)[:, ::2])
    with pytest.raises(ValueError, match="one after another"):
        PackedMatrix(2, 32, "q4_0", np.broadcast_to(np.zeros((1, 18), np.uint8), (2, 18)))
    with pytest.raises(ValueError, match="q4_k is only read"):
        PackedMatrix.pack(np.zeros((1, 256), np.float32), "q4_k")
    with pytest.raises(ValueError, match="was declared"):
        PackedMatrix.view(np.zeros(36, np.uint8), 2, 64, "q4_0")
