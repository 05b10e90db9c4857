"""Neurons on a GPU against NumPy on the same packed bytes, in float64; without a GPU how the work is cut.

Differences are told in shares of the largest sum of magnitudes that was added up: 2e-6 for float32 sums in another
order, 3e-5 where down's quantised weights meet h as two half-precision numbers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np
import pytest
from fakes.rows import to_planes
from numpy.typing import NDArray
from support.repetitions import slow

from native_kernels.backend import Activation
from native_kernels.cuda.gpu import GpuBlock, GpuMatrix, GpuVector
from native_kernels.cuda.layouts import UNIT_COLUMNS
from native_kernels.cuda.neurons import GpuNeurons, parts_of, split_of, tiles_of
from native_kernels.cuda.runtime.driver import Device, Stream
from native_kernels.cuda.runtime.modules import NoMachineCodeError, source_of
from native_kernels.cuda.runtime.nvrtc import Compiler, CompilerUnavailableError, compiler
from tests.native_kernels.cuda.gpu_arrays import GpuArrays
from tests.native_kernels.cuda.gpu_planes import decoded, some_rows

F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]
ALL_CODECS = tuple(UNIT_COLUMNS)


def random_rows(codec: str, n_rows: int, n_cols: int, seed: int) -> tuple[F64, list[U8]]:
    """Numbers [n_rows, n_cols] as the codec has them, and the GPU's planes of them."""
    rows = some_rows(codec, n_rows, n_cols, seed)
    return decoded(codec, rows, n_cols).astype(np.float64), to_planes(rows, codec, n_cols)


def rounded(x: NDArray[np.float32]) -> tuple[U8, NDArray[np.float32], F64]:
    """Bytes and scales of a vector as gpu.py describes them, and what they stand for."""
    n = len(x)
    groups = np.pad(x, (0, -n % 32)).reshape(-1, 32)
    top = np.abs(groups).max(axis=1)
    step = top * np.float32(1 / 127)
    inverse = np.divide(np.float32(127), top, out=np.zeros_like(top), where=top > 0)
    whole = np.rint(groups * inverse[:, None])
    scales = np.stack([step, step * whole.sum(axis=1, dtype=np.float32)], axis=1).astype(np.float32)
    held = np.zeros(-(-n // 64) * 64, np.int8)
    held[: whole.size] = whole.reshape(-1)
    numbers = (whole * step[:, None].astype(np.float64)).reshape(-1)[:n]
    return held.view(np.uint8), scales, numbers


class OnGpu:
    """Arrays on a GPU, and its kernels."""

    def __init__(self, device: Device) -> None:
        self.stream = Stream(device)
        self.arrays = GpuArrays(device, self.stream)
        self.neurons = GpuNeurons(device, self.stream)
        self.put = self.arrays.put

    def get(self, address: int, like: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = self.arrays.get(address, like.dtype, *like.shape)
        return found

    def vector(self, x: NDArray[np.float32]) -> GpuVector:
        held, scales, _ = rounded(x)
        return GpuVector(len(x), self.put(x), self.put(held), self.put(scales))


@pytest.fixture(scope="module")
def kernels(device: Device) -> Iterator[OnGpu]:
    found = OnGpu(device)
    yield found
    found.neurons.close()
    found.stream.close()


@pytest.fixture
def gpu(kernels: OnGpu) -> Iterator[OnGpu]:
    yield kernels
    kernels.arrays.close()


def activated(activation: Activation, x: F64, threshold: float) -> F64:
    if activation in ("relu", "drelu", "fatrelu"):
        return np.where(x <= threshold, 0.0, x)
    found: F64
    if activation == "relu2":
        found = np.square(np.maximum(x, 0))
        return found
    if activation == "silu":
        found = x / (1 + np.exp(-x))
        return found
    if activation == "gelu":
        found = 0.5 * x * (1 + np.vectorize(erf)(x * np.sqrt(0.5)))
        return found
    found = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return found


@dataclass
class Case:
    """A block with its numbers, and what `hidden` should find."""

    gpu: OnGpu
    n_slots: int
    n_cols: int
    gate_codec: str | None
    up_codec: str
    biases: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        rng = self.rng = np.random.default_rng(self.seed)
        self.x = (rng.standard_normal(self.n_cols) * 2 / np.sqrt(self.n_cols)).astype(np.float32)
        self.n_neurons = 2 * self.n_slots + 5
        self.neuron_in = rng.permutation(self.n_neurons)[: self.n_slots].astype(np.int32)
        self.neuron_in[7::50] = -1  # empty slots
        self.fired = rng.integers(0, 9, self.n_slots).astype(np.uint32)
        self.first, self.gate, self.gate_bias = self._side(self.gate_codec)
        self.second, self.up, self.up_bias = self._side(self.up_codec)

    def _side(self, codec: str | None) -> tuple[F64, GpuMatrix | None, NDArray[np.float32]]:
        """The products with x, bias and all."""
        bias = np.zeros(self.n_slots, np.float32)
        if codec is None:
            return bias.astype(np.float64), None, bias
        numbers, planes = random_rows(codec, self.n_slots, self.n_cols, int(self.rng.integers(1000)))
        if self.biases:
            bias = self.rng.standard_normal(self.n_slots).astype(np.float32)
        x = self.x.astype(np.float64) if codec in ("f32", "f16", "bf16") else rounded(self.x)[2]
        self.magnitude = float((np.abs(numbers) @ np.abs(x)).max())
        return numbers @ x + bias, self.gpu.arrays.matrix(codec, planes, self.n_slots, self.n_cols), bias

    def run(
        self, activation: Activation, threshold: float = 0.0, share: float | None = None, gate_first: bool = False
    ) -> NDArray[np.float32]:
        """Compares everything that `hidden` leaves; returns h."""
        gpu = self.gpu
        wanted = self.neuron_in >= 0
        bits = 0
        if share is not None:
            expected = self.rng.random(self.n_neurons) < share
            wanted &= expected[self.neuron_in]
            bits = gpu.put(np.packbits(np.resize(expected, -(-self.n_neurons // 32) * 32), bitorder="little"))
        first, second = (self.second, np.ones_like(self.second)) if self.gate is None else (self.first, self.second)
        value = activated(activation, first, threshold)
        opened = wanted & (value != 0)
        if activation == "drelu":
            second = np.where(second <= threshold, 0.0, second)
        should = np.where(opened, value * second, 0.0)
        assert self.up is not None
        block = GpuBlock(
            self.gate, self.up, self.up, gpu.put(self.gate_bias) if self.biases else 0,
            gpu.put(self.up_bias) if self.biases else 0, gpu.put(self.neuron_in), gpu.put(self.fired),
        )  # fmt: skip
        h = np.full(self.n_slots, np.nan, np.float32)
        counts = np.array([3, 2, 1], np.uint32)
        h_at, counts_at = gpu.put(h), gpu.put(counts)
        vector = gpu.vector(self.x)
        gpu.neurons.hidden(block, vector, bits, activation, threshold, h_at, counts_at, gate_first)
        h = gpu.get(h_at, h)
        largest = max(float(np.abs(first).max()), float(np.abs(second).max()), 1.0)
        largest **= 2 if activation == "relu2" else 1
        assert np.abs(h - should).max() <= 2e-6 * self.magnitude * largest * 4
        assert (h[~wanted] == 0).all()
        n_fired = np.count_nonzero(h)
        found = gpu.get(counts_at, counts) - np.array([3, 2, 1], np.uint32)
        assert [found[0], found[2]] == [np.count_nonzero(wanted), n_fired]
        if "relu" in activation:
            assert found[1] == np.count_nonzero(opened)
        else:  # far below 0 they are 0 or nearly so, as they are computed
            assert np.count_nonzero(np.abs(value[wanted]) > 1e-4) <= found[1] <= found[0]
        assert np.array_equal(gpu.get(block.fired, self.fired) - self.fired, (h != 0).astype(np.uint32))
        gpu.neurons.hidden(block, vector, bits, activation, threshold, h_at, 0, gate_first)
        assert np.array_equal(gpu.get(h_at, h).view(np.uint32), h.view(np.uint32))
        return h


# --- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("n_cols", [256, 1280, 5376])
@pytest.mark.parametrize("codec", ALL_CODECS)
def test_gate_and_up_of_every_codec(gpu: OnGpu, codec: str, n_cols: int) -> None:
    for n_slots, share, gate_first in ((300, 0.3, False), (37, None, True), (1, 1.0, False), (33, 0.0, True)):
        Case(gpu, n_slots, n_cols, codec, codec, seed=n_slots).run("relu", 0.0, share, gate_first)
    Case(gpu, 131, n_cols, codec, codec, biases=True).run("relu", 0.0, 0.5, False)
    Case(gpu, 131, n_cols, codec, codec, biases=True).run("relu", 0.0, 0.5, True)


@pytest.mark.gpu
@pytest.mark.parametrize("codec", ALL_CODECS)
def test_without_a_gate(gpu: OnGpu, codec: str) -> None:
    Case(gpu, 203, 768, None, codec, biases=True).run("relu", 0.0, 0.4)
    Case(gpu, 5, 768, None, codec).run("gelu")


@pytest.mark.gpu
@pytest.mark.parametrize("n_cols", [8, 40, 64, 200, 2056])
@pytest.mark.parametrize("codec", ["f32", "f16", "bf16"])
def test_widths_that_are_no_multiple_of_anything(gpu: OnGpu, codec: str, n_cols: int) -> None:
    Case(gpu, 70, n_cols, codec, codec).run("relu", 0.0, 0.5)


@pytest.mark.gpu
@pytest.mark.parametrize("n_cols", [32, 64, 96, 2080])
@pytest.mark.parametrize("codec", ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4"])
def test_narrow_and_odd_widths_of_blocks(gpu: OnGpu, codec: str, n_cols: int) -> None:
    Case(gpu, 70, n_cols, codec, codec).run("relu", 0.0, 0.5)
    Case(gpu, 70, n_cols, codec, codec).run("relu", 0.0, 0.5, gate_first=True)


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["relu", "relu2", "drelu", "fatrelu", "silu", "gelu", "gelu-tanh"])
@pytest.mark.parametrize("gate_first", [False, True])
def test_every_activation(gpu: OnGpu, activation: Activation, gate_first: bool) -> None:
    threshold = 0.2 if activation == "fatrelu" else 0.0
    h = Case(gpu, 500, 512, "f16", "f16", biases=True).run(activation, threshold, 0.6, gate_first)
    assert 20 < np.count_nonzero(h) < 400


@pytest.mark.gpu
@pytest.mark.parametrize("codecs", [("q4_k", "q6_k"), ("f16", "q4_0"), ("q8_0", "bf16"), ("mxfp4", "q5_k")])
@pytest.mark.parametrize("gate_first", [False, True])
def test_gate_and_up_of_different_codecs(gpu: OnGpu, codecs: tuple[str, str], gate_first: bool) -> None:
    Case(gpu, 90, 512, *codecs, biases=True).run("relu", 0.0, 0.5, gate_first)


@pytest.mark.gpu
def test_many_slots(gpu: OnGpu) -> None:
    Case(gpu, 28673, 64, "q4_0", "q4_0").run("relu", 0.0, 0.1)


@pytest.mark.gpu
@pytest.mark.parametrize("n_cols", [256, 1280, 4864])
@pytest.mark.parametrize("codec", ALL_CODECS)
def test_down_of_every_codec(gpu: OnGpu, codec: str, n_cols: int) -> None:
    rng = np.random.default_rng(3)
    for n_slots, share in ((1, 1.0), (67, 0.4), (700, 0.1), (700, 0.0), (1031, 1.0)):
        _compare_down(gpu, codec, n_slots, n_cols, share, rng)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("codec", "n_cols"), [("f32", 4), ("f16", 8), ("f16", 200), ("q4_0", 32), ("q8_0", 96), ("mxfp4", 96), ("q5_1", 32)]
)
def test_down_of_narrow_rows(gpu: OnGpu, codec: str, n_cols: int) -> None:
    rng = np.random.default_rng(4)
    for n_slots, share in ((5, 1.0), (3000, 0.3)):
        _compare_down(gpu, codec, n_slots, n_cols, share, rng)


@pytest.mark.gpu
@pytest.mark.parametrize("codec", ["f16", "q4_0"])
def test_down_of_more_slots_than_the_largest_model_has(gpu: OnGpu, codec: str) -> None:
    _compare_down(gpu, codec, 140001, 32, 0.5, np.random.default_rng(5))


@pytest.mark.gpu
@pytest.mark.parametrize("codec", ["f16", "q4_0", "q4_k", "mxfp4", "q5_k"])
def test_down_of_tiny_and_of_huge_values(gpu: OnGpu, codec: str) -> None:
    rng = np.random.default_rng(6)
    for size in (1e-30, 1e-5, 1e5, 1e30):
        _compare_down(gpu, codec, 100, 256, 0.5, rng, size)


def _compare_down(
    gpu: OnGpu, codec: str, n_slots: int, n_cols: int, share: float, rng: np.random.Generator, size: float = 1.0
) -> None:
    """Rows that are not active are made of bytes that would show."""
    numbers, planes = random_rows(codec, n_slots, n_cols, 1)
    active = rng.random(n_slots) < share
    h = np.where(active, rng.standard_normal(n_slots) * size, 0.0).astype(np.float32)
    for plane in planes:
        plane[~active] = 0xFF
    down_t = gpu.arrays.matrix(codec, planes, n_slots, n_cols)
    block = GpuBlock(None, down_t, down_t, 0, 0, 0, 0)
    n_parts = gpu.neurons.down_parts(block)
    parts = np.full((n_parts, n_cols), np.nan, np.float32)
    h_at, parts_at = gpu.put(h), gpu.put(parts)
    gpu.neurons.down(block, h_at, parts_at)
    found = gpu.get(parts_at, parts)
    should = h[active].astype(np.float64) @ numbers[active]
    magnitude = (np.abs(h[active]).astype(np.float64) @ np.abs(numbers[active])).max() + 1e-45
    exact = codec in ("f32", "f16", "bf16")
    worst = np.abs(found.sum(axis=0, dtype=np.float64) - should).max() / magnitude
    assert worst <= (2e-6 if exact else 3e-5), worst
    gpu.neurons.down(block, h_at, parts_at)
    assert np.array_equal(gpu.get(parts_at, parts).view(np.uint32), found.view(np.uint32))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1, 64, 100, 11008])
@pytest.mark.parametrize("activation", ["relu", "drelu", "silu", "gelu-tanh"])
def test_elementwise(gpu: OnGpu, activation: Activation, n: int) -> None:
    rng = np.random.default_rng(n)
    first, up = rng.standard_normal((2, n)).astype(np.float32)
    to = GpuVector(
        n, gpu.put(np.zeros(n, np.float32)), gpu.put(np.full(-(-n // 64) * 64, 0xEE, np.uint8)),
        gpu.put(np.zeros((-(-n // 32), 2), np.float32)),
    )  # fmt: skip
    for second in (up, None) if activation != "drelu" else (up,):
        counts = gpu.put(np.zeros(3, np.uint32))
        gpu.neurons.activate(gpu.put(first), 0 if second is None else gpu.put(second), n, activation, 0.0, to, counts)
        found = gpu.get(to.values, first)
        value = activated(activation, first.astype(np.float64), 0.0)
        factor = np.ones(n) if second is None else second.astype(np.float64)
        if activation == "drelu":
            factor = np.maximum(factor, 0)
        assert np.allclose(found, value * factor, rtol=1e-5, atol=1e-6)
        assert gpu.get(counts, np.zeros(3, np.uint32)).tolist() == [
            n, np.count_nonzero(value), np.count_nonzero(found),
        ]  # fmt: skip
        held, scales, _ = rounded(found)
        assert np.array_equal(gpu.get(to.bytes, held), held)
        assert np.array_equal(gpu.get(to.scales, scales), scales)


# --- without a GPU


@pytest.fixture(scope="module")
def nvrtc() -> Compiler:
    try:
        return compiler()
    except CompilerUnavailableError as error:
        pytest.skip(str(error))


DAILY = {"neurons": ("q8_0", "q4_k", "mxfp4", "q3_k"), "down": ("q4_0", "q6_k", "q5_k", "iq4_xs")}


ON_EACH = [(name, codec, architecture) for name in DAILY for codec in ALL_CODECS for architecture in (75, 90)]


@pytest.mark.parametrize(
    ("name", "codec", "architecture"),
    [one if one[1] in DAILY[one[0]][one[2] == 90 :: 2] else slow(*one) for one in ON_EACH],
)
def test_no_codec_spills(nvrtc: Compiler, name: str, codec: str, architecture: int) -> None:
    source, headers = source_of(name)
    defines = {"FIRST" if name == "neurons" else "CODEC": codec.upper(), "COMPILED_ANEW": time.time_ns()}
    compiled = nvrtc.compile(source, f"{name}.cu", architecture, defines, headers)
    if "ptxas" not in compiled.log:
        pytest.skip(f"NVRTC {nvrtc.version} reports nothing of what it has kept")
    assert not any(int(n) for n in re.findall(r"(\d+) bytes spill", compiled.log)), compiled.log


def matrix(codec: str, n_rows: int, n_cols: int) -> GpuMatrix:
    return GpuMatrix(n_rows, n_cols, codec, (0,))


@pytest.mark.parametrize("codec", ALL_CODECS)
@pytest.mark.parametrize("n_multiprocessors", [34, 68, 132, 170])
def test_partial_sums_are_few_beside_the_weights(codec: str, n_multiprocessors: int) -> None:
    for n_cols in (2048, 4096, 5120, 8192, 12288):
        for n_slots in (1, 500, 6400, 28672, 60000):
            n_parts = parts_of(matrix(codec, n_slots, n_cols), n_multiprocessors)
            assert 1 <= n_parts <= 64
            assert n_parts * 2048 >= n_slots
            assert n_parts == 1 or 4 * 4 * n_parts * n_cols <= matrix(codec, n_slots, n_cols).n_bytes


def test_few_slots_make_one_part_and_no_slots_too() -> None:
    assert parts_of(matrix("f16", 30, 8192), 132) == parts_of(matrix("f16", 0, 8192), 132) == 1


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_tiles_hold_all_slots(codec: str) -> None:
    for n_slots in (1, 3, 4, 5, 31, 1000, 6400, 15104, 28672, 100000):
        for gated in (True, False):
            n_tiles = tiles_of(codec, gated, n_slots, 132)
            assert n_tiles <= n_slots <= 32 * n_tiles


def test_short_rows_are_not_shared() -> None:
    assert [split_of("f16", n) for n in (64, 256, 512, 1024, 8192)] == [1, 1, 2, 4, 4]
    assert [split_of("q4_0", n) for n in (64, 1024, 2048, 8192)] == [1, 1, 2, 2]


def test_what_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        n_multiprocessors = 8

    def refuse(*_: object) -> None:
        raise NoMachineCodeError("none")

    monkeypatch.setattr("native_kernels.cuda.neurons.load", refuse)
    some: Any = Nothing()
    neurons = GpuNeurons(some, some)
    x = GpuVector(64, 16)
    block = GpuBlock(None, matrix("q4_0", 4, 64), matrix("copy1", 4, 64), 0, 0, 0, 0)
    with pytest.raises(ValueError, match="a vector without bytes was given to q4_0"):
        neurons.hidden(block, x, 0, "relu", 0.0, 0, 0, False)
    with pytest.raises(ValueError, match="64 columns was given a vector of 32"):
        neurons.hidden(block, GpuVector(32, 16, 16, 16), 0, "relu", 0.0, 0, 0, False)
    with pytest.raises(ValueError, match="drelu needs a gate"):
        neurons.hidden(block, x, 0, "drelu", 0.0, 0, 0, False)
    with pytest.raises(ValueError, match="does not read neurons in copy1"):
        neurons.down(block, 0, 0)
    with pytest.raises(ValueError, match="5 neurons do not fit a vector of 64"):
        neurons.activate(0, 0, 5, "relu", 0.0, x, 0)
    with pytest.raises(NoMachineCodeError):
        neurons.activate(0, 0, 64, "relu", 0.0, x, 0)
