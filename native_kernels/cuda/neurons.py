"""Hot neurons of the FFN on a GPU: gate and up, transposed down, activations.

Compiles neurons.cu, down.cu and activate.cu for the codecs in use, divides work into blocks, and prepares arguments.
Allocates nothing and never waits, so everything can be captured.
"""

from __future__ import annotations

from ctypes import Structure, c_float, c_int, c_uint64
from typing import Any

from native_kernels.backend import Activation
from native_kernels.cuda.gpu import GpuBlock, GpuMatrix, GpuVector
from native_kernels.cuda.layouts import UNIT_COLUMNS
from native_kernels.cuda.operands import Rounded
from native_kernels.cuda.runtime.driver import Device, Function, Module, Stream
from native_kernels.cuda.runtime.modules import load

_ACTIVATIONS: dict[Activation, int] = {
    "relu": 0, "fatrelu": 0, "drelu": 1, "silu": 2, "gelu": 3, "gelu-tanh": 4, "clamped-silu": 5,
    "relu2": 6,
}  # fmt: skip

_WARPS = 4  # per block of neurons.cu and activate.cu
# down.cu
_DOWN_THREADS, _ROW_GROUPS = 256, 4
_MOST_SLOTS_OF_PART = 2048
_LEAST_SLOTS_OF_PART = 64
_MOST_PARTS = 64
_UNITS_OF_WARP = 8  # for the codecs with tensor core products
_FLOATS = ("f32", "f16", "bf16")


class _Planes(Structure):
    _fields_ = [("at", c_uint64 * 4)]


class _Vector(Structure):
    _fields_ = [("values", c_uint64), ("bytes", c_uint64), ("scales", c_uint64), ("n", c_int)]


class _Neurons(Structure):
    _fields_ = [
        ("first", _Planes), ("second", _Planes), ("first_bias", c_uint64), ("second_bias", c_uint64), ("x", _Vector),
        ("neuron_in", c_uint64), ("bits", c_uint64), ("fired", c_uint64), ("h", c_uint64), ("counts", c_uint64),
        ("n_slots", c_int), ("activation", c_int), ("threshold", c_float), ("split", c_int),
    ]  # fmt: skip


class _Down(Structure):
    _fields_ = [("planes", _Planes), ("h", c_uint64), ("parts", c_uint64), ("n_slots", c_int), ("n_cols", c_int)]


class _Elements(Structure):
    _fields_ = [
        ("first", c_uint64), ("second", c_uint64), ("to", Rounded), ("counts", c_uint64), ("activation", c_int),
        ("threshold", c_float),
    ]  # fmt: skip


class GpuNeurons:
    """The group `neurons` of native_kernels/cuda/gpu.py's `Gpu`; methods and shapes are documented there.

    Planes and vectors are aligned to 16 bytes. Cost of a call: about 10 us of the caller's time; the first with new
    codecs 1 ms, or 1 s if they must be compiled.
    Raises: CudaError, NoMachineCodeError; ValueError for sizes that do not match.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self._device, self._stream, self._n_multiprocessors = device, stream, device.n_multiprocessors
        self._modules: dict[tuple[str, ...], Module] = {}
        self._functions: dict[tuple[str, ...], Function] = {}

    def close(self) -> None:
        """Unload the kernels. A second call does nothing."""
        for module in self._modules.values():
            module.close()

    def hidden(
        self, block: GpuBlock, x: GpuVector, bits: int, activation: Activation, threshold: float, h: int,
        counts: int, gate_first: bool,
    ) -> None:  # fmt: skip
        """Compute h. A neuron counts as fired if its h is not 0, in `fired` too."""
        gate, up = block.gate, block.up
        if gate is None and activation == "drelu":
            raise ValueError("drelu needs a gate")
        first, second = (up, up) if gate is None else (gate, up)
        kernel = "hidden_of_one" if gate is None else "hidden_in_turn" if gate_first else "hidden_together"
        _check_vector(x, first, second)
        job = _Neurons(
            _planes(first), _planes(second), block.up_bias if gate is None else block.gate_bias, block.up_bias,
            _Vector(x.values, x.bytes, x.scales, x.n), block.neuron_in, bits, block.fired, h, counts, block.n_slots,
            _ACTIVATIONS[activation], threshold, split_of(first.codec, x.n),
        )  # fmt: skip
        if block.n_slots:
            function = self._function("neurons", kernel, FIRST=first.codec, SECOND=second.codec)
            n_tiles = tiles_of(first.codec, gate is not None, block.n_slots, self._n_multiprocessors)
            function.launch(self._stream, (n_tiles,), (32 * _WARPS,), job)

    def down_parts(self, block: GpuBlock) -> int:
        """Return at least 1. Cost: none."""
        return parts_of(block.down_t, self._n_multiprocessors)

    def down(self, block: GpuBlock, h: int, parts: int) -> None:
        """Compute parts. Parts without an active slot become 0."""
        down_t = block.down_t
        if down_t.n_rows != block.n_slots:
            raise ValueError(f"down has {down_t.n_rows} rows, up {block.n_slots}")
        function = self._function("down", "down", CODEC=down_t.codec)
        job = _Down(_planes(down_t), h, parts, down_t.n_rows, down_t.n_cols)
        function.launch(self._stream, (_column_blocks(down_t), self.down_parts(block)), (_DOWN_THREADS,), job)

    def activate(
        self, first: int, up: int, n: int, activation: Activation, threshold: float, to: GpuVector, counts: int
    ) -> None:  # fmt: skip
        """Compute the activation. `to` may lack values or its 8-bit form."""
        if to.n != n:
            raise ValueError(f"{n} neurons do not fit a vector of {to.n}")
        rounded = Rounded(0, to.values, to.bytes, to.scales, n)
        job = _Elements(first, up, rounded, counts, _ACTIVATIONS[activation], threshold)
        if n:
            threads = 32 * _WARPS
            self._function("activate", "activate").launch(self._stream, (-(-n // (4 * threads)),), (threads,), job)

    def _function(self, name: str, kernel: str, **codecs: str) -> Function:
        """Return a compiled kernel. Raises: ValueError for a codec that these kernels do not read."""
        key = (name, *codecs.values())
        found = self._functions.get((*key, kernel))
        if found is None:
            for codec in codecs.values():
                if codec not in UNIT_COLUMNS:
                    raise ValueError(f"a GPU does not read neurons in {codec}")
            if key not in self._modules:
                defines = {macro: codec.upper() for macro, codec in codecs.items()}
                self._modules[key] = load(self._device, name, defines)
            found = self._functions[(*key, kernel)] = self._modules[key].function(kernel)
        return found


def split_of(codec: str, n_cols: int) -> int:
    """Return how many warps share a row of gate or up, so that no warp works on a long row alone at the end."""
    wanted = 4 if codec in _FLOATS else 2
    n_units = -(-n_cols // UNIT_COLUMNS.get(codec, 1))
    while wanted > 1 and 32 * wanted > n_units:
        wanted //= 2
    return wanted


def tiles_of(codec: str, gated: bool, n_slots: int, n_multiprocessors: int) -> int:
    """Return the number of tiles of gate and up.

    Large tiles cost little when few slots fire; small ones balance the load when many do. The numbers are the best on
    an H200 for gated neurons of 8192 and 5120 columns. Without a gate, a tile of floats has the same number of bytes.
    """
    of_multiprocessor, most = (24, 4 if gated else 8) if codec in _FLOATS else (13, 16)
    slots = max(2, min(most, n_slots // (of_multiprocessor * n_multiprocessors)))
    return -(-n_slots // slots)


def parts_of(down_t: GpuMatrix, n_multiprocessors: int) -> int:
    """Return the number of partial sums: two blocks per multiprocessor, but fewer if each would have too few slots."""
    wanted = 2 * n_multiprocessors // _column_blocks(down_t)
    wanted = min(wanted, _MOST_PARTS, -(-down_t.n_rows // _LEAST_SLOTS_OF_PART))
    return max(wanted, -(-down_t.n_rows // _MOST_SLOTS_OF_PART), 1)


def _column_blocks(down_t: GpuMatrix) -> int:
    threads = _DOWN_THREADS // _ROW_GROUPS
    units = threads if down_t.codec in _FLOATS else threads // 32 * _UNITS_OF_WARP
    return -(-down_t.n_cols // (units * UNIT_COLUMNS.get(down_t.codec, 1)))


def _planes(matrix: GpuMatrix) -> Any:
    return _Planes((c_uint64 * 4)(*matrix.planes))


def _check_vector(x: GpuVector, *matrices: GpuMatrix) -> None:
    """Check x. Raises: ValueError if a matrix has other columns, or reads a form that the vector lacks."""
    for matrix in matrices:
        if matrix.n_cols != x.n:
            raise ValueError(f"a matrix of {matrix.n_cols} columns was given a vector of {x.n}")
        if not (x.bytes and x.scales if matrix.reads_bytes else x.values):
            raise ValueError(
                f"a vector without {'bytes' if matrix.reads_bytes else 'values'} was given to {matrix.codec}"
            )


__all__ = ["GpuNeurons", "parts_of", "split_of", "tiles_of"]
