"""Products of groups with their quantised matrices, against the codecs and against matrices converted beforehand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from prefill_on_gpu import PrefillOnGpu
from samples.random_blocks import weights

from native_kernels.backend import F32, PackedMatrix
from native_kernels.codecs import ROW_CODECS
from native_kernels.cuda.group_products import MOST_POSITIONS, GroupProduct
from native_kernels.cuda.layouts import PLANE_FIELDS
from native_kernels.cuda.prompt_rows import Groups, RoundedRows, Rows, Tile

pytestmark = pytest.mark.gpu

rng = np.random.default_rng(3)


@pytest.fixture(scope="module")
def gpu() -> Iterator[PrefillOnGpu]:
    made = PrefillOnGpu()
    yield made
    made.close()


def _rounded(gpu: PrefillOnGpu, x: F32) -> RoundedRows:
    n_tokens, n = x.shape
    to = RoundedRows(gpu.arrays.space(2 * n_tokens * n), n, gpu.arrays.space(4 * n_tokens))
    gpu.ops.round(Rows(gpu.arrays.put(x), n), n_tokens, n, to)
    return to


@pytest.mark.parametrize("codec", PLANE_FIELDS)
@pytest.mark.parametrize(
    ("sizes", "n_out", "depth"), [((0, 3, 130, 1, 64, 17), 200, 512), ((5, 0, 70), 128, 768), ((33,), 8, 256)]
)
def test_every_group_has_a_matrix_of_its_own(
    gpu: PrefillOnGpu, codec: str, sizes: tuple[int, ...], n_out: int, depth: int
) -> None:
    n, first, n_groups = sum(sizes), 2, len(sizes)  # rows before those of the groups belong to others
    x = rng.standard_normal((first + n, depth)).astype(np.float32)
    starts = first + np.append(0, np.cumsum(sizes)).astype(np.int32)
    stacks = [PackedMatrix.view(weights(codec, n_groups * n_out, depth).reshape(-1), n_groups * n_out, depth, codec)
              for _ in range(2)]  # fmt: skip
    biases = [rng.standard_normal((n_groups, n_out)).astype(np.float32), None]
    groups = Groups(n_groups, gpu.arrays.put(starts), 0, max(sizes))
    rounded, given, converted = _rounded(gpu, x), [], []
    for w, bias in zip(stacks, biases, strict=True):
        at, matrix = (0 if bias is None else gpu.arrays.put(bias)), gpu.arrays.matrix(w)
        given.append(GroupProduct(matrix, Rows(gpu.arrays.space(4 * (first + n) * n_out), n_out), at))
        tile = Tile(gpu.arrays.space(2 * w.n_rows * depth), 2 * w.n_rows * depth)
        address, step = gpu.ops.as_halves(matrix, 0, w.n_rows, tile)
        converted.append((address, Rows(gpu.arrays.space(4 * (first + n) * n_out), n_out), at))
        gpu.ops.multiply_groups(converted[-1:], step, rounded, groups, n_out, depth)
    if not gpu.ops.groups.takes([one.w for one in given], MOST_POSITIONS):
        assert codec == "q6_k"
        assert gpu.device.capability < (8, 0)
        pytest.skip("a block's shared memory is too small for it")
    gpu.ops.groups.multiply(given, rounded, groups)
    for w, bias, one, other in zip(stacks, biases, given, converted, strict=True):
        found, same = (gpu.arrays.get(to.address, np.float32, first + n, n_out) for to in (one.out, other[1]))
        assert np.isnan(found[:first]).all()  # rows of others are not touched
        decoded = ROW_CODECS[codec].decode(np.ascontiguousarray(w.data).view(np.uint8))
        decoded = decoded.reshape(n_groups, n_out, depth)
        for i, (start, end) in enumerate(itertools.pairwise(starts.tolist())):
            wanted = x[start:end] @ decoded[i].T + (0 if bias is None else bias[i])
            assert np.allclose(found[start:end], wanted, atol=2e-3 * np.sqrt(depth) * max(1, np.abs(decoded[i]).max()))
        if ROW_CODECS[codec].block_size == 32:  # of others the last bit of a weight may differ
            assert np.array_equal(found[first:], same[first:])


def test_large_groups_and_plain_floats_are_for_others(gpu: PrefillOnGpu) -> None:
    w = gpu.arrays.matrix(PackedMatrix.view(weights("q4_0", 8, 64).reshape(-1), 8, 64, "q4_0"))
    floats = gpu.arrays.matrix(PackedMatrix.view(weights("f16", 8, 64).reshape(-1), 8, 64, "f16"))
    assert gpu.ops.groups.takes((None, w), 1)
    assert not gpu.ops.groups.takes((w,), MOST_POSITIONS + 1)
    assert not gpu.ops.groups.takes((w, floats), 1)
