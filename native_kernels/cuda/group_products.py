"""Products of groups of positions with a quantised matrix each: those of experts for a prompt. See group_gemm.cu."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from ctypes import Structure, c_int, c_uint64
from dataclasses import dataclass

from native_kernels.cuda.gpu import GpuMatrix
from native_kernels.cuda.layouts import PLANE_FIELDS
from native_kernels.cuda.prompt_rows import Groups, RoundedRows, Rows, Weights
from native_kernels.cuda.runtime.driver import Device, Function, Module, Stream
from native_kernels.cuda.runtime.modules import load

# Positions of a group, on average, up to which it is not faster to convert the weights to halves beforehand.
MOST_POSITIONS = 96
_TOKENS, _OUTPUTS, _THREADS, _DEPTH = 64, 128, 256, 64
_DEPTHS = {"q6_k": 128}  # columns that four units share
_ONE_AHEAD = ("q6_k", "q3_k")  # for more units in flight there are no registers
_SMALL_SHARED = 64 << 10  # of a block before compute capability 8.0


class _Given(Structure):
    _fields_ = [("planes", c_uint64 * 4), ("out", c_uint64), ("bias", c_uint64)]


class _Job(Structure):
    _fields_ = [
        ("given", _Given * 2), ("x", c_uint64), ("factors", c_uint64), ("starts", c_uint64), ("x_step", c_uint64),
        ("out_step", c_uint64), ("n_groups", c_int), ("n_out", c_int), ("depth", c_int),
    ]  # fmt: skip


@dataclass(frozen=True)
class GroupProduct:
    """A stack w [groups * N, K], the result [T, N] and biases f32 [groups, N]; 0: none."""

    w: Weights
    out: Rows
    bias: int


class GroupProducts:
    """The products, in one stream. The first one with a codec takes a second if its kernel must be compiled.

    Raises: CudaError, NoMachineCodeError.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self._device, self._stream = device, stream
        self._held = ExitStack()
        self._functions: dict[str, Function] = {}

    def close(self) -> None:
        """Unload the kernels. A second call does nothing."""
        self._held.close()

    def takes(self, matrices: Sequence[Weights | None], positions: float) -> bool:
        """Return whether products with these stacks are possible and faster here. positions: of a group, on average."""
        given = [w for w in matrices if w is not None]
        if positions > MOST_POSITIONS or not all(isinstance(w, GpuMatrix) and w.codec in PLANE_FIELDS for w in given):
            return False
        return self._device.capability >= (8, 0) or all(_shared_bytes(w.codec) <= _SMALL_SHARED for w in given)

    def multiply(self, products: Sequence[GroupProduct], x: RoundedRows, groups: Groups) -> None:
        """Compute out = x times the group's matrix (+ bias) for stacks of one shape; two of a codec in one launch."""
        for codec in dict.fromkeys(one.w.codec for one in products):
            self._multiply(codec, [one for one in products if one.w.codec == codec], x, groups)

    def _multiply(self, codec: str, products: Sequence[GroupProduct], x: RoundedRows, groups: Groups) -> None:
        w, out, given = products[0].w, products[0].out, []
        n_out = w.n_rows // groups.n
        for one in products:
            assert isinstance(one.w, GpuMatrix), "`takes` said so"
            given.append(_Given((c_uint64 * 4)(*one.w.planes), one.out.address, one.bias))
        job = _Job(
            (_Given * 2)(*given), x.address, x.factors, groups.starts, x.step, out.step, groups.n, n_out, w.n_cols
        )
        grid = -(-groups.most // _TOKENS), -(-n_out // _OUTPUTS), groups.n * len(products)
        self._function(codec).launch(self._stream, grid, (_THREADS,), job, shared_bytes=_shared_bytes(codec))

    def _function(self, codec: str) -> Function:
        found = self._functions.get(codec)
        if found is None:
            module: Module = load(self._device, "group_gemm", defines_of(codec))
            self._held.callback(module.close)
            found = self._functions[codec] = module.function("multiply_groups")
            found.allow_shared(_shared_bytes(codec))
        return found


def defines_of(codec: str) -> dict[str, int | str]:
    """Return what group_gemm.cu is compiled with for a codec."""
    ahead = 1 if codec in _ONE_AHEAD else 2
    return {"CODEC": codec.upper(), "DEPTH": _DEPTHS.get(codec, _DEPTH), "UNITS_AHEAD": ahead}


def _shared_bytes(codec: str) -> int:
    depth = _DEPTHS.get(codec, _DEPTH)
    return 2 * depth * ((3 if depth == 64 else 2) * _TOKENS + 2 * _OUTPUTS)


__all__ = ["MOST_POSITIONS", "GroupProduct", "GroupProducts", "defines_of"]
