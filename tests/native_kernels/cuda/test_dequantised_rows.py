"""Weights as halves, against the codecs: any columns of any rows, however large their scales are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from prefill_on_gpu import PrefillOnGpu
from samples.random_blocks import HALVES, set_halves, weights

from native_kernels.backend import PackedMatrix
from native_kernels.codecs import CODECS, ROW_CODECS
from native_kernels.cuda.layouts import PLANE_FIELDS
from native_kernels.cuda.prompt_rows import StoredMatrix

pytestmark = pytest.mark.gpu

LARGEST = np.float32(65504)
rng = np.random.default_rng(3)


@pytest.fixture(scope="module")
def gpu() -> Iterator[PrefillOnGpu]:
    made = PrefillOnGpu()
    yield made
    made.close()


def _matrix(codec: str, n_rows: int, n_cols: int) -> PackedMatrix:
    """With scales of every size in the first rows: tiny ones, and such that numbers are beyond the largest half."""
    if codec.endswith(".lanes"):
        values = rng.standard_normal((n_rows, n_cols)) * 10.0 ** rng.uniform(-8, 5, (n_rows, 1))
        return PackedMatrix.pack(values.astype(np.float32), codec)
    data = weights(codec, n_rows, n_cols)
    if HALVES[codec] and codec != "f16":
        n_blocks = n_rows // 2 * (n_cols // CODECS[codec].block_size)
        scales = 10.0 ** rng.uniform(-8, 4.8, (n_blocks, len(HALVES[codec]))) * rng.choice([-1, 1], (n_blocks, 1))
        first = np.ascontiguousarray(data[: n_rows // 2])
        set_halves(first, CODECS[codec], scales)
        data[: n_rows // 2] = first
    return PackedMatrix.view(data.reshape(-1), n_rows, n_cols, codec)


def _stored(gpu: PrefillOnGpu, w: PackedMatrix) -> StoredMatrix:
    step = (w.row_bytes + 15) // 16 * 16
    rows = np.full((w.n_rows, step), 0xFF, np.uint8)
    rows[:, : w.row_bytes] = w.data.view(np.uint8)
    return StoredMatrix(w.n_rows, w.n_cols, w.codec, gpu.arrays.put(rows), step)


@pytest.mark.parametrize("codec", ["f32", "bf16", *PLANE_FIELDS, "q8_0.lanes", "q4_0.lanes"])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("first", "n_rows", "column", "n_cols"),
    [(0, 20, 0, 1280), (3, 9, 8, 16), (5, 15, 16, 77), (0, 3, 24, 200), (19, 1, 504, 776), (2, 2, 1272, 8)],
)
def test_any_columns_of_any_rows(
    gpu: PrefillOnGpu, codec: str, stored: bool, first: int, n_rows: int, column: int, n_cols: int
) -> None:
    if codec.endswith(".lanes") and not stored:
        pytest.skip("lanes are stored alone")
    w = _matrix(codec, 20, 1280)
    matrix = _stored(gpu, w) if stored else gpu.arrays.matrix(w)
    step = -(-n_cols // 8) * 8 + 8
    at = gpu.arrays.space(2 * n_rows * step)
    gpu.ops.dequantise(matrix, first, n_rows, column, n_cols, at, step)
    found: NDArray[np.float16] = gpu.arrays.get(at, np.float16, n_rows, step)
    assert np.isnan(found[:, -8:]).all()  # nothing behind a row is touched
    decoded = ROW_CODECS[codec].decode(np.ascontiguousarray(w.data).view(np.uint8))
    wanted = decoded[first : first + n_rows, column : column + n_cols].clip(-LARGEST, LARGEST).astype(np.float16)
    found = found[:, :n_cols]
    if ROW_CODECS[codec].block_size == 256:  # a product and a difference, or two products: the last bit may differ
        assert np.allclose(found.astype(np.float32), wanted.astype(np.float32), rtol=2.0**-10, atol=1e-6)
    else:
        assert np.array_equal(found, wanted)
