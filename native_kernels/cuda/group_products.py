"""Products that read weights as they are stored, and convert them in registers or shared memory.

Those of groups of positions with a matrix each (group_gemm.cu) are for the experts of a prompt, those of few positions
with whole matrices (few_rows.cu) for batches. With more positions, it is faster to convert the weights once
beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from ctypes import Structure, c_int, c_uint64
from dataclasses import dataclass

from native_kernels.codecs import ROW_CODECS
from native_kernels.cuda.gpu import GpuMatrix
from native_kernels.cuda.layouts import PLANE_FIELDS, UNIT_COLUMNS
from native_kernels.cuda.prompt_rows import Groups, RoundedRows, Rows, Weights
from native_kernels.cuda.runtime.driver import Device, Function, Launch, Launches, Module, Stream
from native_kernels.cuda.runtime.modules import load

# Positions of a group, on average, up to which it is not faster to convert the weights to halves beforehand.
MOST_POSITIONS = 96
_TOKENS, _OUTPUTS, _THREADS, _DEPTH = 64, 128, 256, 64
_DEPTHS = {"q6_k": 128}  # columns that four units share
_ONE_AHEAD = ("q6_k", "q3_k")  # for more units in flight there are no registers
_SMALL_SHARED = 64 << 10  # of a block before compute capability 8.0

_FEW = (8, 16, 32)  # positions of the kernels of few_rows.cu
_FEW_ROWS, _FEW_WARPS, _AT_ONCE = 16, 8, 3  # rows of a warp, warps of a block, and products of a launch there
_WARPS_AT_ONCE = 32  # of a multiprocessor, there: with 16, two matrices of 12288 rows take up to a quarter longer


class _Given(Structure):
    _fields_ = [("planes", c_uint64 * 4), ("out", c_uint64), ("bias", c_uint64)]


class _Job(Structure):
    _fields_ = [
        ("given", _Given * 2), ("x", c_uint64), ("factors", c_uint64), ("starts", c_uint64), ("x_step", c_uint64),
        ("out_step", c_uint64), ("n_groups", c_int), ("n_out", c_int), ("depth", c_int),
    ]  # fmt: skip


class _Product(Structure):
    _fields_ = [("planes", c_uint64 * 4), ("out", c_uint64), ("bias", c_uint64), ("n_out", c_uint64)]


class _Products(Structure):
    _fields_ = [
        ("of", _Product * _AT_ONCE), ("x", c_uint64), ("x_step", c_uint64), ("out_step", c_uint64),
        ("factors", c_uint64), ("n_tokens", c_int), ("depth", c_int), ("adds", c_int), ("split", c_int),
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


class FewProducts:
    """Products with at most 32 positions, in one stream. Raises: CudaError, NoMachineCodeError.

    A position's sums depend on the sizes of the matrices and the GPU alone, but are in another order than those of
    prompts. The first product with a codec takes a second if its kernels must be compiled.
    """

    def __init__(self, device: Device, stream: Stream) -> None:
        self._device, self._stream = device, stream
        self._held, self._launches = ExitStack(), Launches()
        self._functions: dict[str, dict[int, Function]] = {}  # by codec and most positions

    def close(self) -> None:
        """Unload the kernels. A second call does nothing."""
        self._held.close()

    def multiply(
        self, matrices: Sequence[GpuMatrix], x: RoundedRows, n_tokens: int, outs: Sequence[Rows], biases: Sequence[int],
        adds: bool = False,
    ) -> None:  # fmt: skip
        """Compute outs[i] = x times matrices[i] (+ bias), or add it to them, for up to three matrices of one width.

        This is one launch for all that have one codec and whose results have one row stride.
        """
        launches: dict[tuple[str, int], list[tuple[GpuMatrix, Rows, int]]] = {}
        for one in zip(matrices, outs, biases, strict=True):
            launches.setdefault((one[0].codec, one[1].step), []).append(one)
        for given in launches.values():
            key = tuple(given), x, n_tokens, adds
            self._launches.run(key, lambda key=key: self._prepared(*key))  # type: ignore[misc]

    def _prepared(
        self, given: Sequence[tuple[GpuMatrix, Rows, int]], x: RoundedRows, n_tokens: int, adds: bool
    ) -> Launch:
        w, out, _ = given[0]
        if w.codec not in self._functions:
            module = load(self._device, "few_rows", defines_of_few(w.codec))
            self._held.callback(module.close)
            self._functions[w.codec] = {most: module.function(f"multiply_few_{most}") for most in _FEW}
        products = [_Product((c_uint64 * 4)(*one.planes), to.address, bias, one.n_rows) for one, to, bias in given]
        n_tiles, n_units = sum(-(-one.n_rows // _FEW_ROWS) for one, *_ in given), -(-w.n_cols // UNIT_COLUMNS[w.codec])
        split, wanted = 1, _WARPS_AT_ONCE * self._device.n_multiprocessors
        while split < _FEW_WARPS and 8 * split <= n_units and n_tiles * split < wanted:
            split *= 2
        job = _Products(
            (_Product * _AT_ONCE)(*products), x.address, x.step, out.step, x.factors, n_tokens, w.n_cols, adds, split
        )
        blocks = -(-max(one.n_rows for one, *_ in given) * split // (_FEW_ROWS * _FEW_WARPS))
        function = self._functions[w.codec][next(most for most in _FEW if n_tokens <= most)]
        return function.prepared(self._stream, (blocks, len(given)), (32 * _FEW_WARPS,), job)


def defines_of_few(codec: str) -> dict[str, int | str]:
    """Return the macros that few_rows.cu is compiled with for a codec: as many units ahead as registers allow."""
    return {"CODEC": codec.upper(), "UNITS_AHEAD": {1: 4, 32: 2, 256: 1}[ROW_CODECS[codec].block_size]}


def defines_of(codec: str) -> dict[str, int | str]:
    """Return what group_gemm.cu is compiled with for a codec."""
    ahead = 1 if codec in _ONE_AHEAD else 2
    return {"CODEC": codec.upper(), "DEPTH": _DEPTHS.get(codec, _DEPTH), "UNITS_AHEAD": ahead}


def _shared_bytes(codec: str) -> int:
    depth = _DEPTHS.get(codec, _DEPTH)
    return 2 * depth * ((3 if depth == 64 else 2) * _TOKENS + 2 * _OUTPUTS)


__all__ = ["MOST_POSITIONS", "FewProducts", "GroupProduct", "GroupProducts", "defines_of", "defines_of_few"]
