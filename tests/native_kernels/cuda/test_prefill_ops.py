"""The operators on many positions against NumPy: products in every codec, attention, norms, rotation, activations."""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from samples.random_blocks import weights
from support.arrays_on_gpu import GpuArrays, entered_device

from native_kernels import kv_blocks
from native_kernels.backend import PackedMatrix, Scoring
from native_kernels.codecs import ROW_CODECS
from native_kernels.cuda.gpu import GpuChoice, GpuHeads, GpuKv, GpuNorm, GpuScoring
from native_kernels.cuda.layouts import UNIT_COLUMNS
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.prompt_rows import Groups, HostRows, RoundedRows, RowAngles, Rows, StoredMatrix, Tile
from native_kernels.cuda.runtime.driver import Device, Stream
from native_kernels.cuda.runtime.memory import PinnedMemory
from native_kernels.cuda.runtime.registered import RegisteredMemory
from native_kernels.kv_blocks import KvLayout
from native_kernels.reference import ReferenceOperators

pytestmark = pytest.mark.gpu

F32 = NDArray[np.float32]
REFERENCE = ReferenceOperators()
rng = np.random.default_rng(5)


class Setting:
    """The operators, arrays on the GPU, and a tile."""

    def __init__(self, device: Device) -> None:
        self.arrays = GpuArrays(device)
        self.copy_stream = Stream(device)
        self.ops = GpuPrefillOps(device, self.arrays.stream, self.copy_stream)
        self.tile = Tile(self.arrays.space(1 << 20), 1 << 20)

    def rounded(self, x: F32) -> RoundedRows:
        n_tokens, n = x.shape
        step = -(-n // 8) * 8
        to = RoundedRows(self.arrays.space(2 * n_tokens * step), step, self.arrays.space(4 * n_tokens))
        self.ops.round(Rows(self.arrays.put(x), n), n_tokens, n, to)
        return to

    def close(self) -> None:
        self.ops.close()
        self.arrays.close()
        self.copy_stream.close()


@pytest.fixture(scope="module")
def gpu() -> Iterator[Setting]:
    device = entered_device()
    made = Setting(device)
    yield made
    made.close()
    device.close()


def _matrix(codec: str, n_rows: int, n_cols: int) -> PackedMatrix:
    return PackedMatrix.view(weights(codec, n_rows, n_cols).reshape(-1), n_rows, n_cols, codec)


def _values(w: PackedMatrix) -> F32:
    out: F32 = ROW_CODECS[w.codec].decode(np.ascontiguousarray(w.data).view(np.uint8))[:, : w.n_cols]
    return out


def _check_product(found: F32, x: NDArray[Any], w: NDArray[Any], before: Any = 0.0) -> None:
    """Halves round each factor by 2^-11 of it at most; the errors of a sum's terms add up like their squares."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    size = np.sqrt(np.square(x) @ np.square(w).T)
    error = np.abs(found - (before + x @ w.T))
    assert (error <= 4 * 2.0**-11 * size + 1e-6).all(), float((error / (size + 1e-9)).max())


@pytest.mark.parametrize("codec", list(UNIT_COLUMNS))
@pytest.mark.parametrize(("n_tokens", "n_rows", "n_cols"), [(1, 5, 256), (130, 300, 512), (37, 129, 768)])
def test_products_in_every_codec(gpu: Setting, codec: str, n_tokens: int, n_rows: int, n_cols: int) -> None:
    w = _matrix(codec, n_rows, n_cols)
    on_gpu = gpu.arrays.matrix(w)
    x = rng.standard_normal((n_tokens, n_cols)).astype(np.float32) * 10.0 ** rng.uniform(-6, 6, (n_tokens, 1))
    x = x.astype(np.float32)
    bias = rng.standard_normal(n_rows).astype(np.float32)
    out = Rows(gpu.arrays.space(4 * n_tokens * (n_rows + 3)), n_rows + 3)
    gpu.ops.multiply(on_gpu, gpu.rounded(x), n_tokens, out, gpu.tile, bias=gpu.arrays.put(bias))
    found = gpu.arrays.get(out.address, np.float32, n_tokens, n_rows + 3)
    assert np.isnan(found[:, n_rows:]).all()  # nothing behind a row is touched
    _check_product(found[:, :n_rows], x, _values(w), bias)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("row_bytes", "stride", "first"),
    [(1, 1, 0), (16, 16, 0), (18, 18, 32), (36, 54, 2), (1890, 1890, 4), (2940, 8820, 12), (4201, 4203, 7),
     (10240, 10240, 4096), (10240, 30720, 48), (520, 520, 8)],
)  # fmt: skip
def test_rows_of_the_host_are_gathered_in_place(
    gpu: Setting, tmp_path: Path, row_bytes: int, stride: int, first: int, read_only: bool
) -> None:
    """As a file has them: rows of any length from any byte on; three matrices at once of different shapes."""
    n_rows, n, device = 90, 53, gpu.ops.device
    size = first + n_rows * stride + 4096
    stored = rng.integers(1, 256, size, dtype=np.uint8)
    if read_only:
        (tmp_path / "rows").write_bytes(stored.tobytes())
        stored = np.asarray(np.memmap(tmp_path / "rows", np.uint8, mode="r"))
    else:  # pages of its own: nobody else's arrays are registered along
        own = np.frombuffer(mmap.mmap(-1, size), np.uint8)
        own[:] = stored
        stored = own
    if read_only and not device.registers_read_only:
        pytest.skip("this driver registers no memory that cannot be written")
    memory = RegisteredMemory(device, stored.ctypes.data, stored.nbytes, read_only)
    at = memory.device_address + stored.ctypes.data - memory.address
    ids = rng.permutation(n_rows)[:n].astype(np.int32)
    shapes = [(row_bytes, stride, first), (row_bytes, stride, first + stride - row_bytes), (1, stride, 0)]
    rows, wanted = [], []
    for length, apart, begin in shapes:
        step = (length + 31) // 16 * 16
        rows.append(HostRows(at + begin, apart, length, gpu.arrays.space(n * step), step))
        out = np.full((n, step), 0xFF, np.uint8)
        out[:, : -(-length // 16) * 16] = 0
        for i, row in enumerate(ids.tolist()):
            out[i, :length] = stored[begin + row * apart :][:length]
        wanted.append(out)
    for some in (rows, rows[:2], rows[:1]):
        for one, out in zip(some, wanted, strict=False):
            gpu.copy_stream.fill(one.to, 0xFF, out.nbytes)
        gpu.ops.gather(some, gpu.arrays.put(ids), n)
        gpu.copy_stream.synchronize()
        for one, out in zip(some, wanted, strict=False):
            assert np.array_equal(gpu.arrays.get(one.to, np.uint8, *out.shape), out)
    memory.free()
    memory.free()


def test_rows_that_follow_each_other_are_gathered_without_numbers(gpu: Setting) -> None:
    stored = rng.integers(1, 256, (40, 48), dtype=np.uint8)
    memory = PinnedMemory(gpu.ops.device, stored.nbytes)
    memory.as_array(np.uint8, stored.size)[:] = stored.reshape(-1)
    to = gpu.arrays.space(40 * 32)
    gpu.ops.gather([HostRows(memory.device_address + 16, 48, 32, to, 32)], 0, 40)
    gpu.copy_stream.synchronize()
    assert np.array_equal(gpu.arrays.get(to, np.uint8, 40, 32), stored[:, 16:])
    memory.free()


@pytest.mark.parametrize("codec", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("dim", [128, 80, 8])
def test_blocks_of_keys_and_values_keep_their_bits(gpu: Setting, codec: Any, dim: int) -> None:
    """To the GPU's rows and back, from a block on and up to a position."""
    layout, n_heads, capacity = KvLayout(dim, codec), 3, 150
    blocks = kv_blocks.allocate(1, n_heads, capacity, layout)[0]
    keys, values = rng.standard_normal((2, capacity, n_heads, dim)).astype(np.float32)
    kv_blocks.write(blocks, layout, 0, keys, values)
    numbers, scales = n_heads * capacity * dim * layout.value_bytes, 2 * n_heads * capacity * layout.n_groups
    planes = [gpu.arrays.space(n_bytes) for n_bytes in (numbers, numbers, scales, scales)]
    kv = GpuKv(codec, *planes, n_heads, dim, capacity)
    for head in range(n_heads):
        gpu.ops.read_blocks(gpu.arrays.put(blocks[head, :3]), 3, kv, head, 0, capacity)
        gpu.ops.read_blocks(gpu.arrays.put(blocks[head, 3:]), 2, kv, head, 3, capacity)
    stored = gpu.arrays.get(kv.keys, np.uint8, n_heads, capacity, dim * layout.value_bytes)
    if codec != "q8_0":
        dtype = np.float32 if codec == "f32" else np.float16
        assert np.array_equal(stored.view(dtype), keys.astype(dtype).swapaxes(0, 1))
    for first, end in ((0, 150), (1, 96), (2, 101)):
        n = -(-end // 32) - first
        to = gpu.arrays.space(n_heads * n * layout.block_bytes)
        gpu.ops.write_blocks(to, n, kv, first, end)
        found = gpu.arrays.get(to, np.uint8, n_heads, n, layout.block_bytes)
        wanted = kv_blocks.read(blocks[:, first:], layout, end - 32 * first)
        for some, others in zip(kv_blocks.read(found, layout, 32 * n), wanted, strict=True):
            assert np.array_equal(some[: len(others)], others)
            assert not some[len(others) :].any()


@pytest.mark.parametrize(("n_tokens", "n_used", "n_experts"), [(1, 1, 1), (5, 2, 3), (700, 8, 130), (300, 4, 1024)])
def test_rows_are_grouped_by_expert(gpu: Setting, n_tokens: int, n_used: int, n_experts: int) -> None:
    """By the ranks of their experts, and by positions within."""
    ids = np.argsort(rng.random((n_tokens, n_experts)), axis=1)[:, :n_used].astype(np.int32)
    ranks = rng.permutation(n_experts).astype(np.int32)
    n = n_tokens * n_used
    places, groups = (
        gpu.arrays.space(4 * n),
        Groups(n_experts, gpu.arrays.space(4100), gpu.arrays.space(4 * n), n_tokens),
    )
    gpu.ops.group(gpu.arrays.put(ids), n_tokens, n_used, gpu.arrays.put(ranks), n_experts, groups, places)
    wanted = ranks[ids.reshape(-1)]
    order = np.argsort(wanted, kind="stable")
    starts = gpu.arrays.get(groups.starts, np.int32, n_experts + 1)
    assert np.array_equal(starts, np.searchsorted(wanted[order], np.arange(n_experts + 1)))
    assert np.array_equal(gpu.arrays.get(groups.positions, np.int32, n), order // n_used)
    assert np.array_equal(gpu.arrays.get(places, np.int32, n)[order], np.arange(n))
    check_weighed_rows(gpu, n_tokens, n_used, groups.positions, places)


def check_weighed_rows(gpu: Setting, n_tokens: int, n_used: int, positions: int, places: int) -> None:
    """Rows are weighed where experts read them, or where their outputs are added up."""
    n, width = n_tokens * n_used, 24
    x, by = rng.standard_normal((n_tokens, width)).astype(np.float32), rng.random((n_tokens, n_used + 1), np.float32)
    choice = GpuChoice(n_used, 0, gpu.arrays.put(by), 0)
    source, row_of = gpu.rounded(x), gpu.arrays.get(places, np.int32, n_tokens, n_used)
    for given in (None, choice):
        to = RoundedRows(gpu.arrays.space(2 * n * source.step), source.step, gpu.arrays.space(4 * n))
        gpu.ops.take(source, positions, n, to, given, places)
        halves = gpu.arrays.get(to.address, np.float16, n, source.step)[:, :width].astype(np.float32)
        found = (halves * gpu.arrays.get(to.factors, np.float32, n)[:, None])[row_of]
        factors = np.ones_like(by) if given is None else by
        assert np.abs(found - x[:, None] * factors[:, :-1, None]).max() < 4e-3
    y, out = rng.standard_normal((n, width)).astype(np.float32), Rows(gpu.arrays.space(4 * n_tokens * width), width)
    for given in (choice, replace(choice, weights=0)):
        gpu.ops.sum_experts(gpu.arrays.put(y), places, given, gpu.arrays.put(x), n_tokens, width, out, False)
        factors = by if given.weights else np.ones_like(by)
        wanted = np.einsum("tkd,tk->td", y[row_of], factors[:, :-1]) + factors[:, -1:] * x
        assert np.abs(gpu.arrays.get(out.address, np.float32, n_tokens, width) - wanted).max() < 1e-4


@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize(("sizes", "n_out", "depth"), [((0, 3, 130, 1, 257), 96, 72), ((5, 0), 2048, 768)])
def test_every_group_has_a_matrix_of_its_own(
    gpu: Setting, by_rows: bool, sizes: tuple[int, ...], n_out: int, depth: int
) -> None:
    n, first = sum(sizes), 2  # rows before those of the groups belong to others
    x = rng.standard_normal((first + n, depth)).astype(np.float32)
    starts = first + np.append(0, np.cumsum(sizes)).astype(np.int32)
    matrices = rng.standard_normal((2, len(sizes), n_out, depth)).astype(np.float16)
    biases = rng.standard_normal((2, len(sizes), n_out)).astype(np.float32)
    stored = matrices if by_rows else np.ascontiguousarray(matrices.swapaxes(2, 3))
    outs = [Rows(gpu.arrays.space(4 * (first + n) * n_out), n_out) for _ in range(2)]
    given = [(gpu.arrays.put(w), out, gpu.arrays.put(bias)) for w, out, bias in zip(stored, outs, biases, strict=True)][
        : 2 if by_rows else 1
    ]
    groups = Groups(len(sizes), gpu.arrays.put(starts), 0, max(sizes))
    gpu.ops.multiply_groups(given, stored.shape[-1], gpu.rounded(x), groups, n_out, depth, by_rows)
    for (_, out, _), w, bias in zip(given, matrices.astype(np.float32), biases, strict=False):
        found = gpu.arrays.get(out.address, np.float32, first + n, n_out)
        for i, (start, end) in enumerate(itertools.pairwise(starts.tolist())):
            wanted = x[start:end] @ w[i].T + bias[i]
            assert np.allclose(found[start:end], wanted, atol=2e-3 * np.sqrt(depth))


def test_rows_on_the_gpu_begin_where_sixteen_bytes_do(gpu: Setting) -> None:
    for to, step in ((8, 32), (16, 24), (16, 16)):
        with pytest.raises(ValueError, match="sixteen"):
            gpu.ops.gather([HostRows(0, 20, 20, to, step)], 0, 1)


STORED = [*UNIT_COLUMNS, "q8_0.lanes", "q4_0.lanes"]


def _stored(gpu: Setting, w: PackedMatrix) -> StoredMatrix:
    """The rows as they are, 16 bytes and more from one to the next."""
    step = (w.row_bytes + 31) // 16 * 16
    rows = np.full((w.n_rows, step), 0xFF, np.uint8)
    rows[:, : w.row_bytes] = w.data.view(np.uint8)
    return StoredMatrix(w.n_rows, w.n_cols, w.codec, gpu.arrays.put(rows), step)


def _in_lanes(codec: str, n_rows: int, n_cols: int) -> PackedMatrix:
    if not codec.endswith(".lanes"):
        return _matrix(codec, n_rows, n_cols)
    return PackedMatrix.pack(rng.standard_normal((n_rows, n_cols)).astype(np.float32), codec)


@pytest.mark.parametrize("codec", STORED)
@pytest.mark.parametrize(("n_tokens", "n_rows", "n_cols"), [(3, 140, 256), (130, 33, 1280)])
def test_rows_as_they_are_stored(gpu: Setting, codec: str, n_tokens: int, n_rows: int, n_cols: int) -> None:
    w = _in_lanes(codec, n_rows, n_cols)
    stored = _stored(gpu, w)
    x = rng.standard_normal((n_tokens, n_cols)).astype(np.float32)
    out = Rows(gpu.arrays.space(4 * n_tokens * n_cols), n_rows)
    gpu.ops.multiply(stored, gpu.rounded(x), n_tokens, out, gpu.tile)
    _check_product(gpu.arrays.get(out.address, np.float32, n_tokens, n_rows), x, _values(w))
    turned, h = Rows(out.address, n_cols), rng.standard_normal((n_tokens, n_rows)).astype(np.float32)
    gpu.ops.multiply_transposed(stored, gpu.rounded(h), n_tokens, turned, gpu.tile)
    _check_product(gpu.arrays.get(turned.address, np.float32, n_tokens, n_cols), h, _values(w).T)


@pytest.mark.parametrize(
    ("codec", "other"), [("f16", "f16"), ("q4_0", "q4_0"), ("q4_k", "q6_k"), ("mxfp4", "mxfp4"), ("f32", "f16")]
)
@pytest.mark.parametrize("kind", ["planes", "stored"])
def test_two_products_at_once(gpu: Setting, codec: str, other: str, kind: str) -> None:
    n_tokens, n_rows, n_cols = 70, 600, 512
    matrices = _matrix(codec, n_rows, n_cols), _matrix(other, n_rows, n_cols)
    on_gpu = tuple(gpu.arrays.matrix(w) if kind == "planes" else _stored(gpu, w) for w in matrices)
    x = rng.standard_normal((n_tokens, n_cols)).astype(np.float32)
    biases = rng.standard_normal((2, n_rows)).astype(np.float32)
    at = gpu.arrays.space(8 * n_tokens * n_rows)
    outs = Rows(at, 2 * n_rows), Rows(at + 4 * n_rows, 2 * n_rows)
    shifts = gpu.arrays.put(biases[0]), gpu.arrays.put(biases[1])
    gpu.ops.multiply_two(on_gpu, gpu.rounded(x), n_tokens, outs, gpu.tile, shifts)  # type: ignore[arg-type]
    found = gpu.arrays.get(at, np.float32, n_tokens, 2, n_rows)
    for i, w in enumerate(matrices):
        _check_product(found[:, i], x, _values(w), biases[i])
    shifts = shifts[0] + 4 * 100, 0
    gpu.ops.multiply_two(on_gpu, gpu.rounded(x), n_tokens, outs, gpu.tile, shifts, range(100, 433))  # type: ignore[arg-type]
    found = gpu.arrays.get(at, np.float32, n_tokens, 2, n_rows)[..., :333]
    _check_product(found[:, 0], x, _values(matrices[0])[100:433], biases[0, 100:433])
    _check_product(found[:, 1], x, _values(matrices[1])[100:433])


@pytest.mark.parametrize("codec", ["f32", "f16", "q8_0", "q4_0"])
@pytest.mark.parametrize(
    ("n", "n_out", "n_cols", "x_apart", "out_apart"), [(20, 512, 192, 256, 576), (3, 12, 32, 40, 12)]
)
def test_parts_of_a_matrix_with_their_own_columns(
    gpu: Setting, codec: str, n: int, n_out: int, n_cols: int, x_apart: int, out_apart: int
) -> None:
    """The larger matrix does not fit into the tile at once."""
    n_tokens, w = 140, _matrix(codec, n * n_out, n_cols)
    x = rng.standard_normal((n_tokens, n * x_apart)).astype(np.float32)
    out = Rows(gpu.arrays.space(4 * n_tokens * n * out_apart), n * out_apart)
    gpu.ops.multiply_each(
        gpu.arrays.matrix(w), n, gpu.rounded(x), x_apart, n_tokens, out, out_apart, gpu.tile
    )  # fmt: skip
    found = gpu.arrays.get(out.address, np.float32, n_tokens, n, out_apart)
    assert np.isnan(found[..., n_out:]).all()
    for i in range(n):
        some = _values(w)[i * n_out : (i + 1) * n_out]
        _check_product(found[:, i, :n_out], x[:, i * x_apart : i * x_apart + n_cols], some)


@pytest.mark.parametrize("codec", ["f32", "f16", "q8_0", "q4_0"])
@pytest.mark.parametrize(("n_tokens", "n_neurons", "n_cols"), [(1, 3, 64), (140, 700, 288), (33, 1025, 512)])
def test_a_down_that_lies_neuron_by_neuron(
    gpu: Setting, codec: str, n_tokens: int, n_neurons: int, n_cols: int
) -> None:
    w = _matrix(codec, n_neurons, n_cols)
    h = rng.standard_normal((n_tokens, n_neurons)).astype(np.float32)
    before = rng.standard_normal((n_tokens, n_cols)).astype(np.float32)
    out = Rows(gpu.arrays.put(before), n_cols)
    tile = Tile(gpu.tile.address, 2 * 256 * n_cols)
    gpu.ops.multiply_transposed(gpu.arrays.matrix(w), gpu.rounded(h), n_tokens, out, tile, adds=True)
    found = gpu.arrays.get(out.address, np.float32, n_tokens, n_cols)
    _check_product(found, h, _values(w).T, before)
    first, some = n_neurons // 2, n_neurons - n_neurons // 2 - 1
    gpu.ops.multiply_transposed(
        gpu.arrays.matrix(w), gpu.rounded(h[:, :some]), n_tokens, out, tile, rows=range(first, first + some)
    )
    if some:
        found = gpu.arrays.get(out.address, np.float32, n_tokens, n_cols)
        _check_product(found, h[:, :some], _values(w)[first : first + some].T)


@pytest.mark.parametrize("codec", [codec for codec in UNIT_COLUMNS if codec != "f32"])
def test_some_columns_of_a_row_wise_down(gpu: Setting, codec: str) -> None:
    w = _matrix(codec, 200, 1024)
    h = rng.standard_normal((50, 512)).astype(np.float32)
    out = Rows(gpu.arrays.space(4 * 50 * 200), 200)
    gpu.ops.multiply_columns(gpu.arrays.matrix(w), gpu.rounded(h), 50, out, gpu.tile, columns=range(256, 768))
    _check_product(gpu.arrays.get(out.address, np.float32, 50, 200), h, _values(w)[:, 256:768])


def test_a_width_that_is_no_multiple_of_eight(gpu: Setting) -> None:
    w = _matrix("f32", 70, 77)
    x = rng.standard_normal((9, 77)).astype(np.float32)
    out = Rows(gpu.arrays.space(4 * 9 * 70), 70)
    gpu.ops.multiply(gpu.arrays.matrix(w), gpu.rounded(x), 9, out, gpu.tile)
    _check_product(gpu.arrays.get(out.address, np.float32, 9, 70), x, _values(w))


def test_large_and_tiny_rows_are_rounded_alike(gpu: Setting) -> None:
    x = np.array(
        [[3e30, -1e25, 2e30], [1e-20, 5e-21, 0], [0, 0, 0], [np.inf, 1, 2], [70000, 1, 1e-3], [32767, 1, -3],
         [0.008, 0, 0], [0.0078, 0, 0], [32768, 0, 0], [1e-30, 0, 0]], np.float32,
    )  # fmt: skip
    rounded = gpu.rounded(x)
    halves = gpu.arrays.get(rounded.address, np.float16, len(x), 8)[:, :3].astype(np.float64)
    factors = gpu.arrays.get(rounded.factors, np.float32, len(x))
    back = halves * factors[:, None]
    exact = np.arange(len(x)) % 6 != 3
    assert np.allclose(back[exact], x[exact], rtol=2.0**-11, atol=0)
    assert np.isinf(back[3, 0])
    assert np.allclose(back[9, 0], 1e-30, rtol=0.1)  # no row is multiplied with more than 2^80
    assert np.frexp(factors)[0].tolist() == [0.5] * len(x)
    assert (factors == 1).tolist() == [False, False, True, True, False, True, True, False, False, False]
    assert factors.min() == 2.0**-80


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("n", [8, 300, 301, 5120, 20000])
def test_norms_of_rows(gpu: Setting, kind: Any, n: int) -> None:
    x = (rng.standard_normal((6, n)) * 3 + 1).astype(np.float32)
    weight, bias = rng.standard_normal((2, n)).astype(np.float32)
    bias_at = gpu.arrays.put(bias) if kind == "layer" else 0
    norm = GpuNorm(kind, gpu.arrays.put(weight), bias_at, 1e-5)
    wanted = REFERENCE.rms_norm(x, weight, 1e-5) if kind == "rms" else REFERENCE.layer_norm(x, weight, bias, 1e-5)
    at, before = Rows(gpu.arrays.put(x), n), rng.standard_normal((6, n)).astype(np.float32)
    out = Rows(gpu.arrays.put(before), n)
    gpu.ops.round(at, 6, n, None, norm, out, adds=True)
    gpu.ops.round(at, 6, n, None, norm, at)
    assert np.allclose(gpu.arrays.get(out.address, np.float32, 6, n), before + wanted, atol=2e-5)
    assert np.allclose(gpu.arrays.get(at.address, np.float32, 6, n), wanted, atol=2e-5)


def _gpu_kv(gpu: Setting, codec: Any, n_kv_heads: int, dim: int, capacity: int) -> GpuKv:
    width = {"f32": 4, "f16": 2, "q8_0": 1}[codec]
    room = n_kv_heads * capacity
    places = [gpu.arrays.space(room * dim * width) for _ in range(2)]
    scales = [gpu.arrays.space(room * -(-dim // 32) * 2) for _ in range(2)]
    return GpuKv(codec, *places, *scales, n_kv_heads, dim, capacity)


@pytest.mark.parametrize("codec", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize(
    ("dim", "n_heads", "n_kv_heads", "pieces", "softcap", "window"),
    [(16, 4, 2, (5, 3), None, None), (64, 4, 4, (70, 130), None, None), (128, 8, 2, (129, 64, 1), 30.0, None),
     (128, 2, 1, (200, 100), None, 50), (80, 3, 1, (65,), None, 9), (36, 2, 2, (70,), None, None),
     (128, 2, 1, (1500, 300), None, None), (256, 1, 1, (777,), None, 300), (96, 4, 1, (1, 300), None, 70),
     (256, 2, 1, (40, 90), 50.0, 33),
     (512, 4, 2, (49, 130), None, 40), (200, 2, 1, (100,), None, None), (512, 1, 1, (1, 97), 30.0, None)],
)  # fmt: skip
def test_attention_over_the_cache(
    gpu: Setting, codec: Any, dim: int, n_heads: int, n_kv_heads: int, pieces: tuple[int, ...],
    softcap: float | None, window: int | None,
) -> None:  # fmt: skip
    capacity, scale = sum(pieces) + 3, dim**-0.5
    layout = KvLayout(dim, codec)
    blocks = kv_blocks.allocate(1, n_kv_heads, capacity, layout)[0]
    kv = _gpu_kv(gpu, codec, n_kv_heads, dim, capacity)
    start = 0
    for n_tokens in pieces:
        qkv = (2 * rng.standard_normal((n_tokens, n_heads + 2 * n_kv_heads, dim))).astype(np.float32)
        at, step = Rows(gpu.arrays.put(qkv), qkv[0].size), n_heads * dim
        gpu.ops.place_heads(at, n_tokens, GpuHeads(n_heads), kv, start, RowAngles(0, 0, 0, "halves"))
        out = Rows(gpu.arrays.space(4 * n_tokens * step), step)
        sinks = rng.standard_normal(n_heads).astype(np.float32) if n_kv_heads > 1 else None
        sinks_at = 0 if sinks is None else gpu.arrays.put(sinks)
        q, k, v = np.split(qkv, [n_heads, n_heads + n_kv_heads], axis=1)
        for chunked in {False, window is not None}:
            gpu.ops.attend(at, n_tokens, n_heads, kv, start, out, GpuScoring(scale, softcap, window, sinks_at, chunked))
            found = gpu.arrays.get(out.address, np.float32, n_tokens, n_heads, dim)
            how = Scoring(scale, softcap, window, sinks, chunked=chunked)
            wanted = REFERENCE.cached_attention(q, k, v, blocks, layout, start, how)
            of_halves = codec != "f32" and dim % 8 == 0
            assert np.abs(found - wanted).max() < (2e-2 if of_halves else 1e-4)
            assert np.abs(found - wanted).mean() < (1e-3 if of_halves else 1e-5)
        start += n_tokens


@pytest.mark.parametrize("order", ["halves", "interleaved"])
@pytest.mark.parametrize(("dim", "n_angles"), [(64, 32), (80, 16), (256, 128)])
def test_heads_are_normed_turned_and_stored(gpu: Setting, order: Any, dim: int, n_angles: int) -> None:
    n_tokens, n_heads, n_kv_heads, start, capacity = 7, 3, 2, 4, 12
    qkv = rng.standard_normal((n_tokens, n_heads + 2 * n_kv_heads, dim)).astype(np.float32)
    cos, sin = REFERENCE.rope_angles(np.arange(start, start + n_tokens), 2 * n_angles, 10000.0)
    q_weight, k_weight = rng.standard_normal((2, dim)).astype(np.float32)
    kv = _gpu_kv(gpu, "f32", n_kv_heads, dim, capacity)
    at = Rows(gpu.arrays.put(qkv), qkv[0].size)
    q_norm, k_norm = (GpuNorm("rms", gpu.arrays.put(weight), 0, 1e-6) for weight in (q_weight, k_weight))
    angles = RowAngles(gpu.arrays.put(cos), gpu.arrays.put(sin), n_angles, order)
    gpu.ops.place_heads(at, n_tokens, GpuHeads(n_heads, q_norm, k_norm), kv, start, angles)
    q, k, v = np.split(qkv, [n_heads, n_heads + n_kv_heads], axis=1)
    q = REFERENCE.rope(REFERENCE.rms_norm(q, q_weight, 1e-6), cos, sin, order)
    k = REFERENCE.rope(REFERENCE.rms_norm(k, k_weight, 1e-6), cos, sin, order)
    found = gpu.arrays.get(at.address, np.float32, *qkv.shape)
    assert np.allclose(found[:, :n_heads], q, atol=1e-5)
    keys, values = (gpu.arrays.get(one, np.float32, n_kv_heads, capacity, dim) for one in (kv.keys, kv.values))
    here = slice(start, start + n_tokens)
    assert np.allclose(keys[:, here], k.swapaxes(0, 1), atol=1e-5)
    assert np.array_equal(values[:, here], v.swapaxes(0, 1))
    assert np.isnan(keys[:, start + n_tokens :]).all()
    assert np.isnan(keys[:, :start]).all()


@pytest.mark.parametrize("activation", ["relu", "relu2", "drelu", "fatrelu", "silu", "gelu", "gelu-tanh"])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("n", [600, 1003, 9002, 16003])
def test_hidden_values(gpu: Setting, activation: Any, gated: bool, n: int) -> None:
    n_tokens, threshold, step = 5, 0.25, -(-n // 8) * 8
    first, up = rng.standard_normal((2, n_tokens, n)).astype(np.float32)
    neuron_in = np.where(rng.random(n) < 0.1, -1, np.arange(n)).astype(np.int32)
    function = {"fatrelu": lambda x: REFERENCE.relu(x, threshold), "silu": REFERENCE.silu, "gelu": REFERENCE.gelu,
                "gelu-tanh": REFERENCE.gelu_tanh, "relu2": REFERENCE.relu2}.get(activation, REFERENCE.relu)  # fmt: skip
    opened = function(first) * (neuron_in >= 0)
    other = REFERENCE.relu(up) if activation == "drelu" else up
    wanted = opened * other if gated else opened
    fired = (opened != 0) & (other != 0) if activation == "drelu" and gated else opened != 0
    at = Rows(gpu.arrays.put(first), n)
    to = RoundedRows(gpu.arrays.space(2 * n_tokens * step), step, gpu.arrays.space(4 * n_tokens))
    counts, tally = gpu.arrays.put(np.ones((n_tokens, 2), np.uint32)), gpu.arrays.put(np.ones(n, np.uint32))
    others = Rows(gpu.arrays.put(up), n) if gated else None
    gpu.ops.activate(at, others, n_tokens, n, activation, threshold, to, counts, gpu.arrays.put(neuron_in))
    gpu.ops.tally(at, n_tokens, n, tally, gpu.arrays.put(neuron_in))
    assert np.allclose(gpu.arrays.get(at.address, np.float32, n_tokens, n), wanted, atol=1e-5)
    halves = gpu.arrays.get(to.address, np.float16, n_tokens, step)[:, :n].astype(np.float32)
    factors = gpu.arrays.get(to.factors, np.float32, n_tokens)
    assert np.allclose(halves * factors[:, None], wanted, rtol=2.0**-10, atol=1e-5)
    found = gpu.arrays.get(counts, np.uint32, n_tokens, 2)
    assert found.tolist() == [[1 + int((a != 0).sum()), 1 + int(b.sum())] for a, b in zip(opened, fired, strict=True)]
    assert np.array_equal(gpu.arrays.get(tally, np.uint32, n), 1 + (wanted != 0).sum(axis=0))
    again = RoundedRows(gpu.arrays.space(2 * n_tokens * step), step, gpu.arrays.space(4 * n_tokens))
    at, empty = Rows(gpu.arrays.put(first), n), gpu.arrays.put(neuron_in)
    gpu.ops.activate(at, others, n_tokens, n, activation, threshold, again, counts, empty, keeps=False)
    halves = gpu.arrays.get(to.address, np.uint16, n_tokens, step)[:, :n]
    assert np.array_equal(gpu.arrays.get(again.address, np.uint16, n_tokens, step)[:, :n], halves)


@pytest.mark.parametrize(("n", "step", "column"), [(256, 35 * 256, 512), (8, 24, 16), (30, 91, 7)])
def test_hidden_values_beside_rows_that_are_farther_apart(gpu: Setting, n: int, step: int, column: int) -> None:
    """What a token adds to a layer is one part of what it adds to all."""
    n_tokens, padded = 5, -(-n // 8) * 8
    first, others = (rng.standard_normal((n_tokens, width)).astype(np.float32) for width in (n, step))
    at, up = Rows(gpu.arrays.put(first), n), Rows(gpu.arrays.put(others) + 4 * column, step)
    to = RoundedRows(gpu.arrays.space(2 * n_tokens * padded), padded, gpu.arrays.space(4 * n_tokens))
    counts = gpu.arrays.put(np.zeros((n_tokens, 2), np.uint32))
    gpu.ops.activate(at, up, n_tokens, n, "gelu-tanh", 0.0, to, counts)
    wanted = REFERENCE.gelu_tanh(first) * others[:, column : column + n]
    assert np.allclose(gpu.arrays.get(at.address, np.float32, n_tokens, n), wanted, atol=1e-5)
