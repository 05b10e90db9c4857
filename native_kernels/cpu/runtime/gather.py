"""Copy some rows of a matrix into consecutive memory, to be uploaded to a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from native_kernels.backend import I32, PackedMatrix
from native_kernels.cpu.runtime.call import Call, address, arguments
from native_kernels.cpu.runtime.jit import inline, kernel
from native_kernels.cpu.runtime.simd import (
    BIT,
    I8,
    I64,
    LANES,
    VF,
    external,
    get_int,
    get_int32,
    i64,
    load,
    offset,
    operation,
    pointer,
    void,
)

_GRAIN = 16
_LINE = 64  # bytes


@operation(void, i64, i64, i64)
def copy_bytes(b: Any, to: Any, source: Any, n_bytes: Any) -> None:
    place = I8.as_pointer()
    copy = external(b, "llvm.memcpy.p0.p0.i64", ir.VoidType(), [place, place, I64, BIT])
    b.call(copy, [pointer(b, to, I8), pointer(b, source, I8), n_bytes, ir.Constant(BIT, 0)])


@operation(void, i64, i64)
def _copy_line(b: Any, to: Any, source: Any) -> None:
    """Copy a cache line to an aligned address, bypassing the caches: a plain store would read the line first."""
    vectors = [load(b, offset(b, source, at), VF) for at in range(0, _LINE, 4 * LANES)]
    for i, vector in enumerate(vectors):
        at = offset(b, to, 4 * LANES * i)
        stored = b.store(vector, pointer(b, at, VF), align=4 * LANES)
        stored.set_metadata("nontemporal", b.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))


@inline
def _copy(to: int, source: int, n_bytes: int) -> None:
    done = 0
    if to % _LINE == 0:
        while done + _LINE <= n_bytes:
            _copy_line(to + done, source + done)
            done += _LINE
    copy_bytes(to + done, source + done, n_bytes - done)


@kernel
def _gather(args: int, lo: int, hi: int, worker: int) -> None:
    """args: ids i32, the matrix, row bytes, row stride, target, target stride.

    Rows that are adjacent in both source and target are copied at once.
    """
    ids, rows, n_bytes, stride = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
    to, step = get_int(args + 32), get_int(args + 40)
    joined = n_bytes == stride and n_bytes == step
    i = lo
    while i < hi:
        first = get_int32(ids + 4 * i)
        n = 1
        while joined and i + n < hi and get_int32(ids + 4 * (i + n)) == first + n:
            n += 1
        _copy(to + step * i, rows + stride * first, n_bytes * n)
        i += n


def gather_call(w: PackedMatrix, ids: I32, to: int, step: int, stage: str = "ring") -> Call:
    """Copy row ids[i] of w to the address `to` + i * step, for all ids [K]. The next call may run concurrently."""
    stride = w.data.strides[0] if w.n_rows > 1 else w.row_bytes
    args = arguments(ids, address(w.data), w.row_bytes, stride, to, step)
    return Call(_gather, args, len(ids), _GRAIN, stage, (ids, w), barrier=False)


class Gathering:
    """A reusable call that gathers; set before each run, initially it copies nothing."""

    def __init__(self, stage: str = "ring") -> None:
        self._args, self._count = arguments(0, 0, 0, 0, 0, 0), np.zeros(1, np.int64)
        self.call = Call(_gather, self._args, self._count, _GRAIN, stage, barrier=False)

    def set(self, ids: int, n: int, rows: int, row_bytes: int, stride: int, to: int, step: int) -> None:
        """Copy the n rows listed as i32 at the address `ids` from a matrix at `rows`, `stride` bytes apart, to the
        address `to`, `step` bytes apart. The caller keeps all memory alive.
        """
        self._args[:6] = (ids, rows, row_bytes, stride, to, step)
        self._count[0] = n

    def clear(self) -> None:
        """Copy nothing."""
        self._count[0] = 0
