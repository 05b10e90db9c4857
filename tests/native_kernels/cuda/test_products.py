"""A GPU's products against the codecs in double precision, its planes byte by byte, its rounding bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fakes.rows import to_planes
from gpu_arrays import GpuArrays
from gpu_planes import SOURCES, columns_for, decoded, read_planes, some_rows

from native_kernels.copies import rounded_to_bytes, signs
from native_kernels.cuda.gpu import GpuMatrix, GpuVector, VectorBatch
from native_kernels.cuda.layouts import COPIES, GPU_CODECS, gpu_codec, plane_row_bytes
from native_kernels.cuda.products import GpuProducts, split_of
from native_kernels.cuda.runtime.driver import Device, Stream

MULTIPLIED = tuple(codec for codec in GPU_CODECS if codec not in COPIES)
TOLERANCE = 3e-6  # of the sum of the products' magnitudes: float32, added up in another order


@pytest.mark.parametrize("codec", [codec for codec in SOURCES if codec not in COPIES])
@pytest.mark.parametrize("n_cols", [96, 512, 1100])
def test_planes_hold_the_codecs_numbers(codec: str, n_cols: int) -> None:
    n_cols = columns_for(codec, n_cols)
    rows = some_rows(codec, 5, n_cols)
    planes = to_planes(rows, codec, n_cols)
    assert [plane.shape[1] for plane in planes] == list(plane_row_bytes(gpu_codec(codec), n_cols))
    assert all(plane.shape[1] % 16 == 0 for plane in planes)
    wanted = decoded(codec, rows, n_cols)
    np.testing.assert_allclose(read_planes(gpu_codec(codec), planes, n_cols), wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("n_rows", [1, 7, 1000, 28672, 256000])
@pytest.mark.parametrize("n_units", [1, 12, 64, 256, 1024, 3584])
def test_a_row_is_shared_by_as_many_warps_as_it_feeds(n_rows: int, n_units: int) -> None:
    split = split_of(n_rows, n_units, 132)
    assert split in (1, 2, 4, 8)
    assert split == 1 or 32 * split <= n_units


# --- on a GPU


class Bench:
    """A GPU with its products, and what a test puts onto it."""

    def __init__(self, device: Device) -> None:
        self.stream = Stream(device)
        self.products = GpuProducts(device, self.stream)
        self.arrays = GpuArrays(device, self.stream)

    def matrix(self, codec: str, rows: Any, n_cols: int) -> GpuMatrix:
        """Rows of a file on the GPU, by way of unpack_rows."""
        sizes = plane_row_bytes(gpu_codec(codec), n_cols)
        planes = tuple(self.arrays.empty(len(rows) * size) for size in sizes)
        to = GpuMatrix(len(rows), n_cols, gpu_codec(codec), planes)
        self.products.unpack_rows(self.arrays.put(rows), rows.shape[1], len(rows), to, codec)
        return to

    def vector(self, x: Any) -> GpuVector:
        vector = self.arrays.vector(x)
        self.products.quantise(vector)
        return vector

    def bits(self, address: int, n: int) -> Any:
        words = self.arrays.get(address, np.uint8, -(-n // 32) * 4)
        return np.unpackbits(words, bitorder="little").astype(bool)

    def close(self) -> None:
        self.arrays.close()
        self.products.close()
        self.stream.close()


@pytest.fixture
def bench(device: Device) -> Iterator[Bench]:
    made = Bench(device)
    yield made
    made.close()


def some_numbers(n: int, seed: int = 1) -> Any:
    return np.random.default_rng((seed, n)).standard_normal(n).astype(np.float32)


def products_of(codec: str, rows: Any, x: Any) -> tuple[Any, Any]:
    """(products, what they may differ by): with x rounded where the codec is multiplied so."""
    plain = gpu_codec(codec) in ("f32", "f16", "bf16")
    numbers = x if plain else rounded_to_bytes(x)
    weights = decoded(codec, rows, len(x)).astype(np.float64)
    return weights @ numbers, TOLERANCE * (np.abs(weights) @ np.abs(numbers)) + 1e-9


@pytest.mark.gpu
@pytest.mark.parametrize("source", SOURCES)
def test_rows_are_unpacked_byte_by_byte(bench: Bench, source: str) -> None:
    for n_rows, wide in ((7, 96), (33, 512), (5, 1100), (3, 11008)):
        n_cols = columns_for(source, wide)
        rows = some_rows(source, n_rows, n_cols)
        matrix = bench.matrix(source, rows, n_cols)
        for plane, wanted in zip(matrix.planes, to_planes(rows, source, n_cols), strict=True):
            np.testing.assert_array_equal(bench.arrays.get(plane, np.uint8, *wanted.shape), wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("codec", MULTIPLIED)
def test_several_vectors_have_the_products_of_each_alone(bench: Bench, codec: str, n: int) -> None:
    for n_rows, wide in ((7, 96), (65, 1100), (1030, 4096)):
        n_cols = columns_for(codec, wide)
        matrices = [bench.matrix(codec, some_rows(codec, rows, n_cols), n_cols) for rows in (n_rows, n_rows + 3)]
        biases = [bench.arrays.put(some_numbers(matrix.n_rows)) for matrix in matrices]
        step = 4 * (2 * n_cols + 4 * n_rows) + 1024 & -256  # of a vector in both forms, and of its results
        room = bench.arrays.put(np.zeros(n * step, np.uint8))
        found = []
        for k in range(n):
            at = room + k * step
            x = GpuVector(n_cols, at, at + 4 * n_cols + 255 & -256, at + 6 * n_cols + 511 & -256)
            values = some_numbers(n_cols, k)
            bench.stream.upload(x.values, values.ctypes.data, values.nbytes)
            bench.products.quantise(x)
            ends = x.scales + (n_cols // 32 + 1) * 8 + 255 & -256
            outs = (ends, ends + 4 * matrices[0].n_rows)
            assert outs[1] + 4 * matrices[1].n_rows <= at + step
            bench.products.multiply(matrices, x, outs, biases, relu=n == 4)
            found.append([bench.arrays.get(out, np.float32, m.n_rows) for out, m in zip(outs, matrices, strict=True)])
            bench.stream.fill(ends, 0xFF, 4 * (matrices[0].n_rows + matrices[1].n_rows))
            if k == 0:
                first, first_outs = x, outs
        bench.products.multiply(matrices, first, first_outs, biases, n == 4, VectorBatch(n, step))
        for k in range(n):
            for wanted, out in zip(found[k], first_outs, strict=True):
                again = bench.arrays.get(out + k * step, np.float32, len(wanted))
                np.testing.assert_array_equal(again.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.gpu
@pytest.mark.parametrize("codec", MULTIPLIED)
def test_parts_of_a_matrix_have_their_own_part_of_the_vector(bench: Bench, codec: str) -> None:
    for n, rows_each, wide, out_step in ((3, 6, 96, 10), (5, 40, 192, 40), (16, 128, 512, 576), (2, 4, 24, 4)):
        n_cols = columns_for(codec, wide)
        rows, x = some_rows(codec, n * rows_each, n_cols), some_numbers(n * n_cols)
        matrix, out = bench.matrix(codec, rows, n_cols), bench.arrays.empty(4 * n * out_step)
        bench.products.multiply_each(matrix, n, bench.vector(x), out, out_step)
        found = bench.arrays.get(out, np.float32, n, out_step)[:, :rows_each]
        for i in range(n):
            some = rows[i * rows_each : (i + 1) * rows_each]
            wanted, near = products_of(codec, some, x[i * n_cols : (i + 1) * n_cols])
            assert (np.abs(found[i] - wanted) <= near).all()


@pytest.mark.gpu
@pytest.mark.parametrize("source", ["f16", "q4_0", "q6_k", "mxfp4", "q8_0.lanes", "copy3"])
def test_rows_go_where_they_are_wanted(bench: Bench, source: str) -> None:
    n_cols = columns_for(source, 320)
    rows, more = some_rows(source, 9, n_cols), some_rows(source, 4, n_cols, seed=5)
    to = bench.matrix(source, rows, n_cols)
    apart = np.zeros((4, more.shape[1] + 6), np.uint8)  # rows with a gap between them
    apart[:, : more.shape[1]] = more
    places = bench.arrays.put(np.array([7, 0, -1, 3], np.int32))
    bench.products.unpack_rows(bench.arrays.put(apart), apart.shape[1], 4, to, source, rows=places)
    bench.products.unpack_rows(bench.arrays.put(more[:2]), more.shape[1], 2, to, source, first=8)  # one too many
    wanted = rows.copy()
    wanted[[7, 0, 3]], wanted[8] = more[[0, 1, 3]], more[0]
    for plane, numbers in zip(to.planes, to_planes(wanted, source, n_cols), strict=True):
        np.testing.assert_array_equal(bench.arrays.get(plane, np.uint8, *numbers.shape), numbers)


def odd_numbers() -> Any:
    """Ordinary groups, and such that are 0, tiny, halves, one number or none."""
    x = some_numbers(1000)
    x[32:64] = 0
    x[64:96] = 1e-36
    x[96:128] = (np.arange(32) - 15.5) * 4
    x[96] = 127
    x[128], x[161], x[190] = np.nan, np.inf, -np.inf
    x[192:224] = 3e38
    return x


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 31, 64, 1000, 8192])
def test_numbers_are_rounded_as_the_cpu_rounds_them(bench: Bench, n: int) -> None:
    x = odd_numbers()[:n] if n <= 1000 else some_numbers(n)
    vector = bench.vector(x)
    n_groups = -(-n // 32)
    scales = bench.arrays.get(vector.scales, np.float32, n_groups, 2)
    whole = bench.arrays.get(vector.bytes, np.int8, -(-n // 64) * 64)
    groups = whole.reshape(-1, 32)[:n_groups].astype(np.float32)
    np.testing.assert_array_equal((groups * scales[:, :1]).reshape(-1)[:n], rounded_to_bytes(x))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(scales[:, 1], scales[:, 0] * groups.sum(axis=1))
    assert not whole[n:].any()


@pytest.mark.gpu
def test_numbers_too_small_for_a_scale_count_as_none(bench: Bench) -> None:
    vector = bench.vector(np.full(64, 1e-42, np.float32))
    assert not bench.arrays.get(vector.bytes, np.int8, 64).any()


@pytest.mark.gpu
@pytest.mark.parametrize("n", [5, 96, 4096])
def test_signs_are_numbers_and_rounded_ones(bench: Bench, n: int) -> None:
    x = some_numbers(n)
    x[0], x[3] = 0, -0.0
    to = bench.arrays.vector(np.zeros(n, np.float32))
    bench.products.signs(bench.arrays.vector(x), to)
    np.testing.assert_array_equal(bench.arrays.get(to.values, np.float32, n), signs(x))
    whole = bench.arrays.get(to.bytes, np.int8, -(-n // 64) * 64)
    np.testing.assert_array_equal(whole[:n], 127 * signs(x))
    assert not whole[n:].any()


@pytest.mark.gpu
@pytest.mark.parametrize("codec", [*MULTIPLIED, "q4_0.lanes", "q8_0.lanes"])
def test_matrices_are_multiplied(bench: Bench, codec: str) -> None:
    for wide in (96, 512, 1000, 5120, 11008):
        n_cols = columns_for(codec, wide)
        vector = bench.vector(x := some_numbers(n_cols))
        for n_rows in (1, 7, 33, 1000):
            rows = some_rows(codec, n_rows, n_cols)
            matrix, out = bench.matrix(codec, rows, n_cols), bench.arrays.empty(4 * n_rows)
            found = []
            for _ in range(2):
                bench.products.multiply([matrix], vector, [out])
                found.append(bench.arrays.get(out, np.float32, n_rows))
            wanted, tolerance = products_of(codec, rows, x)
            assert (np.abs(found[0] - wanted) <= tolerance).all(), (n_cols, n_rows)
            np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.gpu
@pytest.mark.parametrize(
    "codecs",
    [("f16",) * 3, ("q4_0",) * 3, ("q4_k", "q4_k", "q6_k"), ("f32", "q8_0", "bf16"), ("mxfp4", "q5_k", "mxfp4")],
)
def test_several_matrices_share_a_vector(bench: Bench, codecs: tuple[str, ...]) -> None:
    n_cols = 768
    vector = bench.vector(x := some_numbers(n_cols))
    sizes = (500, 65, 31)
    given = [some_rows(codec, n, n_cols, seed=n) for codec, n in zip(codecs, sizes, strict=True)]
    matrices = [bench.matrix(codec, rows, n_cols) for codec, rows in zip(codecs, given, strict=True)]
    outs = [bench.arrays.empty(4 * n) for n in sizes]
    biases = [some_numbers(sizes[0], 9), None, some_numbers(sizes[2], 8)]
    places = [0 if bias is None else bench.arrays.put(bias) for bias in biases]
    for relu in (False, True):
        bench.products.multiply(matrices, vector, outs, places, relu)
        for codec, rows, out, bias in zip(codecs, given, outs, biases, strict=True):
            wanted, tolerance = products_of(codec, rows, x)
            wanted = wanted + (0 if bias is None else bias)
            found = bench.arrays.get(out, np.float32, len(rows))
            assert (np.abs(found - (np.maximum(wanted, 0) if relu else wanted)) <= tolerance + 1e-6).all()


@pytest.mark.gpu
@pytest.mark.parametrize("codec", GPU_CODECS)
def test_bits_are_set_where_the_threshold_is_reached(bench: Bench, codec: str) -> None:
    for wide, n in ((96, 7), (1000, 1000), (1024, 2048), (4096, 333)):
        n_cols = columns_for(codec, wide)
        vector = bench.vector(x := some_numbers(n_cols))
        rows, bias = some_rows(codec, n, n_cols), some_numbers(n, 3)
        scores, tolerance = products_of(codec, rows, x)
        scores, tolerance = scores + bias, tolerance + 1e-6
        threshold = float(np.float32(np.quantile(scores, 0.6)))
        n_words = -(-n // 32)
        matrix, bits = bench.matrix(codec, rows, n_cols), bench.arrays.empty(4 * n_words)
        rng = np.random.default_rng(n)
        for share in (None, 0.03, 0.3, 1.0):
            mask = np.ones(n, bool) if share is None else rng.random(n) < share
            padded = np.pad(mask, (0, 32 * n_words - n), constant_values=True)  # bits behind the end are nobody's
            among = 0 if share is None else bench.arrays.put(np.packbits(padded, bitorder="little"))
            copied = bench.arrays.put(np.array([10], np.uint32))
            bench.products.expect(matrix, vector, bench.arrays.put(bias), threshold, bits, among, copied)
            found = bench.bits(bits, n)
            assert not found[n:].any()
            sure = np.abs(scores - threshold) > tolerance
            np.testing.assert_array_equal(found[:n][sure], (mask & (scores >= threshold))[sure])
            assert not found[:n][~mask].any()
            assert bench.arrays.get(copied, np.uint32, 1)[0] == 10 + mask.sum()


@pytest.mark.gpu
def test_what_is_no_number_spreads_to_its_products_and_fires_nobody(bench: Bench) -> None:
    x = some_numbers(512)
    x[100] = np.nan
    for codec in ("f16", "q4_0"):
        rows = some_rows(codec, 40, 512)
        matrix, out, bits = bench.matrix(codec, rows, 512), bench.arrays.empty(160), bench.arrays.empty(8)
        vector = bench.vector(x)
        bench.products.multiply([matrix], vector, [out], relu=True)
        bench.products.expect(matrix, vector, 0, -1e30, bits)
        assert np.isnan(bench.arrays.get(out, np.float32, 40)).all()
        assert not bench.bits(bits, 40).any()


@pytest.mark.gpu
def test_a_matrix_without_rows_leaves_nothing(bench: Bench) -> None:
    vector, out = bench.vector(some_numbers(64)), bench.arrays.empty(64)
    rows = some_rows("f16", 3, 64)
    nothing = GpuMatrix(0, 64, "f16", (0,))
    bench.products.multiply([nothing, bench.matrix("f16", rows, 64), nothing], vector, [out, out, out])
    bench.products.expect(nothing, vector, 0, 0.0, out + 32)
    bench.products.unpack_rows(0, 128, 0, nothing, "f16")
    found = bench.arrays.get(out, np.float32, 16)
    assert np.isfinite(found[:3]).all()
    assert np.isnan(found[3:]).all()


@pytest.mark.gpu
def test_products_can_be_captured(bench: Bench) -> None:
    rows = some_rows("q4_0", 100, 512)
    matrix, out = bench.matrix("q4_0", rows, 512), bench.arrays.empty(400)
    vector = bench.arrays.vector(x := some_numbers(512))

    def work() -> None:
        bench.products.quantise(vector)
        bench.products.multiply([matrix], vector, [out])

    graph = bench.stream.captured(work)
    graph.launch(bench.stream)
    wanted, tolerance = products_of("q4_0", rows, x)
    assert (np.abs(bench.arrays.get(out, np.float32, 100) - wanted) <= tolerance).all()
    graph.close()


@pytest.mark.gpu
def test_what_does_not_fit_is_refused(bench: Bench) -> None:
    matrix = bench.matrix("q4_0", some_rows("q4_0", 4, 64), 64)
    out = bench.arrays.empty(16)
    with pytest.raises(ValueError, match="64 columns was given a vector of 32"):
        bench.products.multiply([matrix], bench.vector(some_numbers(32)), [out])
    with pytest.raises(ValueError, match="without bytes"):
        bench.products.multiply([matrix], GpuVector(64, out), [out])
    with pytest.raises(ValueError, match="q8_0"):
        bench.products.unpack_rows(0, 68, 1, matrix, "q8_0")
