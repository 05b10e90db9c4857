"""Matrices times one vector, or a few, on a GPU, rounding of vectors, and conversion of stored rows to planes.

Prepares the arguments of products.cu, products_several.cu and repack.cu. Nothing waits for the GPU, so everything can
be captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, c_float, c_int, c_uint64
from typing import Any

from native_kernels.codecs import ROW_CODECS
from native_kernels.cuda.gpu import ONE_VECTOR, GpuMatrix, GpuVector, VectorBatch
from native_kernels.cuda.layouts import GPU_CODECS, PLANE_FIELDS, UNIT_COLUMNS, gpu_codec, plane_row_bytes
from native_kernels.cuda.operands import Rounded
from native_kernels.cuda.runtime.driver import Device, Function, Module, Stream
from native_kernels.cuda.runtime.modules import load

_THREADS = 256
_WARPS = _THREADS // 32
_ROWS = 2  # per warp at a time, in products.cu
_AT_ONCE = 3  # matrices per launch
_SIZES = (1, 2, 4, 8)  # vectors per launch
_ONE_AHEAD = ("q4_k", "q5_k", "q6_k", "q3_k", "iq4_xs")  # products read one unit of a row ahead; of other codecs, two
_FEW_WARPS = ("q4_0", "copy3", "copy4")  # codecs whose `expect` kernel uses half as many threads per block
_QUANT_BYTES = {"q8_0.lanes": 32, "q4_0.lanes": 16}


class _Planes(Structure):
    _fields_ = [("at", c_uint64 * 4)]


class _Vector(Structure):
    _fields_ = [("values", c_uint64), ("bytes", c_uint64), ("scales", c_uint64), ("n", c_int)]


class _Part(Structure):
    _fields_ = [
        ("planes", _Planes), ("out", c_uint64), ("bias", c_uint64), ("n_rows", c_int), ("n_blocks", c_int),
    ]  # fmt: skip


class _Products(Structure):
    _fields_ = [("parts", _Part * _AT_ONCE), ("x", _Vector), ("split", c_int), ("relu", c_int),
                ("rows_each", c_int), ("out_step", c_int), ("vector_step", c_uint64)]  # fmt: skip


class _Expected(Structure):
    _fields_ = [
        ("planes", _Planes), ("x", _Vector), ("bias", c_uint64), ("among", c_uint64), ("bits", c_uint64),
        ("copied", c_uint64), ("n_rows", c_int), ("threshold", c_float),
    ]  # fmt: skip


class _Plane(Structure):
    _fields_ = [
        ("to", c_uint64), ("n_lines", c_int), ("field_bytes", c_int), ("block_bytes", c_int), ("offset", c_int),
        ("n_bytes", c_int),
    ]  # fmt: skip


class _Repacked(Structure):
    _fields_ = [
        ("raw", c_uint64), ("stride", c_uint64), ("rows", c_uint64), ("first", c_int), ("n_rows", c_int),
        ("n_planes", c_int), ("lanes", c_int), ("n_groups", c_int), ("planes", _Plane * 4),
    ]  # fmt: skip


class GpuProducts:
    """The group `products` of native_kernels/cuda/gpu.py's `Gpu`; methods and shapes are documented there.

    Planes, and a vector's values, bytes and scales, are aligned to 16 bytes. Cost of a call: about 10 us of the
    caller's time.
    Raises: CudaError, NoMachineCodeError; ValueError for sizes that do not match.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self._device, self._stream, self._n_multiprocessors = device, stream, device.n_multiprocessors
        self._modules: list[Module] = []
        self._functions: dict[str, Function] = {}
        try:
            for name, kernels in (("products", _kernels()), ("repack", ["unpack_rows"])):
                self._load(name, kernels)
        except BaseException:
            self.close()
            raise

    def _of_several(self, codec: str, n: int) -> str:
        """Return the name of the kernel that multiplies n vectors, and load it if needed."""
        name = f"multiply_{codec}_{n}"
        if name not in self._functions:
            module = load(self._device, "products_several", defines_of_several(codec))
            self._modules.append(module)
            self._functions |= {f"multiply_{codec}_{k}": module.function(f"multiply_{k}") for k in _SIZES[1:]}
        return name

    def _load(self, source: str, kernels: Sequence[str]) -> None:
        module = load(self._device, source)
        self._modules.append(module)
        self._functions |= {kernel: module.function(kernel) for kernel in kernels}

    def close(self) -> None:
        """Unload the kernels. A second call does nothing."""
        for module in self._modules:
            module.close()

    def unpack_rows(
        self, raw: int, raw_stride: int, n_rows: int, to: GpuMatrix, source_codec: str, rows: int = 0, first: int = 0
    ) -> None:
        """Convert rows; row numbers outside the matrix are skipped."""
        if gpu_codec(source_codec) != to.codec:
            raise ValueError(f"rows of {source_codec} were given for a matrix of {to.codec}")
        if not n_rows:
            return
        planes = _sources(source_codec, to)
        lanes = _QUANT_BYTES.get(source_codec, 0)
        job = _Repacked(
            raw, raw_stride, rows, first, to.n_rows, len(planes), lanes, -(-to.n_cols // 32), (_Plane * 4)(*planes)
        )
        threads = min(_THREADS, 32 * -(-max(plane.n_lines for plane in planes) // 32))
        self._launch("unpack_rows", n_rows, job, threads)

    def quantise(self, x: GpuVector) -> None:
        """Quantise x. A group of 32 with a value that is not finite gets a NaN scale, as on the CPU."""
        job = Rounded(x.values, 0, x.bytes, x.scales, x.n)
        self._launch("quantise", _rounding_blocks(x.n), job)

    def signs(self, x: GpuVector, to: GpuVector) -> None:
        """Compute signs; NaN stays NaN. `to` may lack values or rounded ones."""
        if to.n != x.n:
            raise ValueError(f"signs of {x.n} numbers do not fit a vector of {to.n}")
        self._launch("signs", _rounding_blocks(x.n), Rounded(x.values, to.values, to.bytes, to.scales, x.n))

    def multiply(
        self, matrices: Sequence[GpuMatrix], x: GpuVector, outs: Sequence[int], biases: Sequence[int] = (),
        relu: bool = False, batch: VectorBatch = ONE_VECTOR,
    ) -> None:  # fmt: skip
        """Multiply, with one launch per three matrices of one codec.

        The first call for several vectors takes a second if its kernel must be compiled.
        """
        if batch.n not in _SIZES:
            raise ValueError(f"no kernel multiplies {batch.n} vectors at once")
        biases = biases or (0,) * len(matrices)
        given = list(zip(matrices, outs, biases, strict=True))
        for codec in dict.fromkeys(matrix.codec for matrix in matrices):
            if codec not in UNIT_COLUMNS:
                raise ValueError(f"a GPU does not multiply {codec}")
            same = [one for one in given if one[0].codec == codec]
            name = f"multiply_{codec}" if batch.n == 1 else self._of_several(codec, batch.n)
            for start in range(0, len(same), _AT_ONCE):
                self._multiply(name, same[start : start + _AT_ONCE], x, relu, vector_step=batch.step)

    def multiply_each(self, matrix: GpuMatrix, n: int, x: GpuVector, out: int, out_step: int) -> None:
        """Multiply parts. Each has an even number of rows, and its columns are a multiple of 4."""
        rows_each, n_cols = matrix.n_rows // n, matrix.n_cols
        if matrix.n_rows % (2 * n) or n_cols % 4 or x.n != n * n_cols:
            raise ValueError(f"{n} parts of {matrix.n_rows} x {n_cols} numbers do not fit a vector of {x.n}")
        name = f"multiply_each_{matrix.codec}"
        if name not in self._functions:
            self._load("products_each", [f"multiply_each_{codec}" for codec in UNIT_COLUMNS])
        part = GpuVector(n_cols, x.values, x.bytes, x.scales)
        self._multiply(name, [(matrix, out, 0)], part, False, rows_each, out_step)

    def _multiply(
        self, name: str, given: Sequence[tuple[GpuMatrix, int, int]], x: GpuVector, relu: bool,
        rows_each: int = 0, out_step: int = 0, vector_step: int = 0,
    ) -> None:  # fmt: skip
        vector = _vector(x, *(matrix for matrix, _, _ in given))
        n_rows = sum(matrix.n_rows for matrix, _, _ in given)
        split = split_of(n_rows, -(-x.n // UNIT_COLUMNS[given[0][0].codec]), self._n_multiprocessors)
        of_block = _ROWS * _WARPS // split
        parts = [
            _Part(_planes(matrix), out, bias, matrix.n_rows, -(-matrix.n_rows // of_block))
            for matrix, out, bias in given
        ]
        job = _Products((_Part * _AT_ONCE)(*parts), vector, split, relu, rows_each, out_step, vector_step)
        self._launch(name, sum(part.n_blocks for part in parts), job)

    def expect(
        self, matrix: GpuMatrix, x: GpuVector, bias: int, threshold: float, bits: int, among: int = 0,
        copied: int = 0,
    ) -> None:  # fmt: skip
        """Predict; a row whose product is NaN is not expected to fire."""
        vector = _vector(x, matrix)
        job = _Expected(_planes(matrix), vector, bias, among, bits, copied, matrix.n_rows, threshold)
        threads = _THREADS // 2 if matrix.codec in _FEW_WARPS else _THREADS
        self._launch(f"expect_{matrix.codec}", -(-matrix.n_rows // 32), job, threads)

    def _launch(self, name: str, blocks: int, job: Structure, threads: int = _THREADS) -> None:
        if blocks:
            self._functions[name].launch(self._stream, (blocks,), (threads,), job)


def split_of(n_rows: int, n_units: int, n_multiprocessors: int) -> int:
    """Return how many warps share a row, 1, 2, 4 or 8, so that every multiprocessor has enough warps in flight."""
    split = 1
    while split < _WARPS and 64 * split <= n_units and n_rows * split < 16 * _ROWS * n_multiprocessors:
        split *= 2
    return split


def defines_of_several(codec: str) -> dict[str, int | str]:
    """Return the macros that products_several.cu is compiled with for a codec."""
    return {"CODEC": codec.upper(), "UNITS_AHEAD": 1 if codec in _ONE_AHEAD else 2}


def _kernels() -> list[str]:
    of_codecs = [f"expect_{codec}" for codec in GPU_CODECS] + [f"multiply_{codec}" for codec in UNIT_COLUMNS]
    return ["quantise", "signs", *of_codecs]


def _rounding_blocks(n: int) -> int:
    return -(-n // (4 * _THREADS))


def _planes(matrix: GpuMatrix) -> Any:
    return _Planes((c_uint64 * 4)(*matrix.planes))


def _vector(x: GpuVector, *matrices: GpuMatrix) -> _Vector:
    """Check and pass x. Raises: ValueError if a matrix has other columns, or reads a form that x lacks."""
    for matrix in matrices:
        if matrix.n_cols != x.n:
            raise ValueError(f"a matrix of {matrix.n_cols} columns was given a vector of {x.n}")
        if not (x.bytes and x.scales if matrix.reads_bytes else x.values):
            form = "bytes" if matrix.reads_bytes else "values"
            raise ValueError(f"a vector without {form} was given to a matrix of {matrix.codec}")
    return _Vector(x.values, x.bytes, x.scales, x.n)


def _sources(source_codec: str, to: GpuMatrix) -> list[_Plane]:
    """Return how each plane of a matrix is built from rows in a codec."""
    n_bytes = ROW_CODECS[source_codec].n_bytes(to.n_cols)
    lines = [row // 16 for row in plane_row_bytes(to.codec, to.n_cols)]
    if source_codec in _QUANT_BYTES:
        numbers = _QUANT_BYTES[source_codec] * -(-to.n_cols // 32)
        shapes = [(16, 16, 0, numbers), (16, 16, numbers, n_bytes - numbers)]
    elif to.codec in PLANE_FIELDS:
        block = ROW_CODECS[to.codec].type_size
        shapes = [(size, block, at, n_bytes // block * size) for at, size in PLANE_FIELDS[to.codec]]
    else:
        shapes = [(16, 16, 0, n_bytes)]
    return [_Plane(at, n, *shape) for at, n, shape in zip(to.planes, lines, shapes, strict=True)]


__all__ = ["GpuProducts", "defines_of_several", "split_of"]
