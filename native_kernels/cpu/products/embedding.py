"""Decode one row of a matrix to float32: the embedding of a token or of its position."""

from __future__ import annotations

from functools import cache

from native_kernels.backend import F32, I64, PackedMatrix
from native_kernels.cpu.blocks.unpack import UNPACKERS
from native_kernels.cpu.products.vector_math import put_some_floats, some_floats
from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import Kernel
from native_kernels.cpu.runtime.simd import LANES, get_float, get_int, mul, spread

_SPARE = 32  # numbers after a row that decoding may overwrite


@cache
def _row_kernel(codec: str) -> Kernel:
    unpack = UNPACKERS[codec]

    def row(args: int, lo: int, hi: int, worker: int) -> None:
        """args: matrix, row stride, address of the row's index, offset added to it, columns, scratch for decoding, out,
        scale.
        """
        start = get_int(args) + get_int(args + 8) * (get_int(get_int(args + 16)) + get_int(args + 24))
        n, room, out, scale = get_int(args + 32), get_int(args + 40), get_int(args + 48), spread(get_float(args + 56))
        unpack(start, n, 0, n, room)
        for i in range(0, n, LANES):
            put_some_floats(out + 4 * i, n - i, mul(some_floats(room + 4 * i, n - i), scale))

    return Kernel(row, f"embedding.row-{codec}")


def embedding_calls(
    w: PackedMatrix, state: I64, word: int, out: F32, *, offset: int = 0, scale: float = 1.0
) -> list[Call]:
    """Write scale times a row of w to out [D]; its index is a word of the state plus offset. One item."""
    room = aligned_empty(w.n_cols + _SPARE)
    step = w.data.strides[0] if w.n_rows > 1 else w.row_bytes
    args = arguments(w.data, step, state[word:], offset, w.n_cols, room, out, float(scale))
    return [Call(_row_kernel(w.codec), args, 1, 1, "embedding", (w, state, room, out))]
