"""One row of a matrix as float32: the embedding of a token, or of its position."""

from __future__ import annotations

from native_kernels.backend import F32, I64, PackedMatrix
from native_kernels.cpu.call import Call, arguments
from native_kernels.cpu.jit import kernel
from native_kernels.cpu.simd import LANES, get_float, get_int, halves, halves_part, mul, spread
from native_kernels.cpu.vector_math import put_some_floats, some_floats


@kernel
def _row_f32(args: int, lo: int, hi: int, worker: int) -> None:
    """args: matrix, bytes of a row, address of the row's number, what is added to it, out, scale."""
    row = get_int(args) + get_int(args + 8) * (get_int(get_int(args + 16)) + get_int(args + 24))
    out, scale = get_int(args + 32), spread(get_float(args + 40))
    for i in range(lo, hi, LANES):
        put_some_floats(out + 4 * i, hi - i, mul(some_floats(row + 4 * i, hi - i), scale))


@kernel
def _row_f16(args: int, lo: int, hi: int, worker: int) -> None:
    row = get_int(args) + get_int(args + 8) * (get_int(get_int(args + 16)) + get_int(args + 24))
    out, scale = get_int(args + 32), spread(get_float(args + 40))
    for i in range(lo, hi, LANES):
        n = hi - i
        if n >= LANES:
            value = halves(row + 2 * i)
        else:
            value = halves_part(row + 2 * i, n)
        put_some_floats(out + 4 * i, n, mul(value, scale))


def embedding_calls(
    w: PackedMatrix, state: I64, word: int, out: F32, *, offset: int = 0, scale: float = 1.0
) -> list[Call]:
    """out [D] = scale times the row of w whose number is a word of the state, plus offset. Items: columns."""
    args = arguments(w.data, w.data.strides[0], state[word:], offset, out, float(scale))
    kernel = {"f32": _row_f32, "f16": _row_f16}[w.codec]
    return [Call(kernel, args, w.n_cols, 512, "embedding", (w, state, out))]
