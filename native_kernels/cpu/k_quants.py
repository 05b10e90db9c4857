"""Rows of blocks of 256 numbers, as they lie in a GGUF, times one vector, and unpacked.

The vector is quantised to bytes ("q8": signed bytes in the order of the columns, a float32 scale for every 32, and the
int32 sum of every 16). The dot products of quants with its bytes are exact integers; scales are applied in float32, and
minima and offsets through the sums. Products of many tokens are gemm's.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir

from native_kernels.cpu.jit import Kernel, inline
from native_kernels.cpu.k_quant_blocks import BLOCKS, COLUMNS, GROUPS, QUARTER, BlockCodec, pick
from native_kernels.cpu.simd import (
    F32 as FLOAT,
)
from native_kernels.cpu.simd import (
    I32 as INT,
)
from native_kernels.cpu.simd import (
    LANES,
    VB,
    VI,
    call_same,
    constant,
    dot_signed,
    dot_unsigned,
    get_int,
    get_int32,
    i64,
    load,
    offset,
    operation,
    prefetch,
    store,
    void,
)
from native_kernels.cpu.tiles import repeat, times

_INTS = ir.VectorType(INT, 16)
ROWS = 2 if LANES == 16 else 1  # at a time, which share what is loaded of the vector


_AHEAD = 4  # rows between the ones in work and those that are prefetched


def _dots(b: Any, quants: Any, columns: Any, signed: bool) -> Any:
    """64 products of bytes, four added up in each of 16 lanes."""
    dot = dot_signed if signed else dot_unsigned
    parts = []
    for start in range(0, 64, 4 * LANES):
        pieces = (
            b.bitcast(pick(b, x, list(range(start, start + 4 * LANES))) if LANES < 16 else x, VB)
            for x in (quants, columns)
        )
        parts.append(dot.emit(b, constant(VI, 0), *pieces))
    if len(parts) == 1:
        return parts[0]
    return b.shuffle_vector(*parts, ir.Constant(_INTS, list(range(16))))


def _halves_added(b: Any, x: Any) -> Any:
    """The sum of 16 lanes, halves first."""
    count = 16
    while count > 1:
        count //= 2
        x = b.fadd(pick(b, x, list(range(count))), pick(b, x, list(range(count, 2 * count))))
    return b.extract_element(x, ir.Constant(INT, 0))


def _row_dots(codec: BlockCodec, n_rows: int) -> Any:
    """(row..., next row..., n, xq, xs, sums, out): n blocks of each row times the vector -> float32 out [n_rows].

    The next rows are prefetched meanwhile.
    """

    def emit(b: Any, *values: Any) -> None:
        rows, following = values[:n_rows], values[n_rows : 2 * n_rows]
        n, xq, xs, xsums, out = values[2 * n_rows :]

        def body(i: Any, state: list[Any]) -> list[Any]:
            quants, scales, sums = (b.add(x, times(b, i, size)) for x, size in ((xq, 256), (xs, 32), (xsums, 64)))
            columns = [load(b, offset(b, quants, 64 * c), QUARTER) for c in range(4)]
            eight = load(b, scales, ir.VectorType(FLOAT, 8))
            factors = pick(b, eight, [place for place in range(8) for _ in range(2)])
            totals = b.fmul(b.sitofp(load(b, sums, _INTS), GROUPS), factors)
            made = []
            for r in range(n_rows):
                at = b.add(rows[r], times(b, i, codec.n_bytes))
                ahead = b.add(following[r], times(b, i, codec.n_bytes))
                for line in range(0, codec.n_bytes, 64):
                    prefetch.emit(b, offset(b, ahead, line))
                block = codec.read(b, at)
                taken, less = state[2 * r : 2 * r + 2]
                product = b.fmul(block.scales, factors)
                for c in range(4):
                    dots = b.sitofp(_dots(b, block.quants[c], columns[c], codec.signed), GROUPS)
                    spread = pick(b, product, [4 * c + lane // 4 for lane in range(16)])
                    taken = call_same(b, "fma", dots, spread, taken)
                if block.minima is not None:
                    less = call_same(b, "fma", block.minima, totals, less)
                if codec.offset:
                    less = call_same(b, "fma", block.scales, totals, less)
                made += [taken, less]
            return made

        state = repeat(b, n, [constant(GROUPS, 0.0)] * (2 * n_rows), body)
        for r in range(n_rows):
            taken, less = state[2 * r : 2 * r + 2]
            if codec.offset:
                less = b.fmul(less, constant(GROUPS, float(codec.offset)))
            store(b, offset(b, out, 4 * r), _halves_added(b, b.fsub(taken, less)))

    return operation(void, *[i64] * (2 * n_rows + 5))(emit)


@cache
def gemv_kernel(codec: str) -> Kernel:
    """Rows times the vector. Items: rows, or places in a list of rows.

    args: w, its row step, D, xq, xs, sums, out, ids (0: the rows themselves).
    """
    many, one = _row_dots(BLOCKS[codec], ROWS), _row_dots(BLOCKS[codec], 1)

    def gemv(args: int, lo: int, hi: int, worker: int) -> None:
        w, w_step, n = get_int(args), get_int(args + 8), get_int(args + 16) // COLUMNS
        xq, xs, sums = get_int(args + 24), get_int(args + 32), get_int(args + 40)
        out, ids = get_int(args + 48), get_int(args + 56)
        i = lo
        while i + ROWS <= hi:
            if ROWS == 2:
                many(
                    _row(w, w_step, ids, i), _row(w, w_step, ids, i + 1),
                    _row(w, w_step, ids, min(i + _AHEAD, hi - 1)), _row(w, w_step, ids, min(i + _AHEAD + 1, hi - 1)),
                    n, xq, xs, sums, out + 4 * i,
                )  # fmt: skip
            else:
                one(
                    _row(w, w_step, ids, i), _row(w, w_step, ids, min(i + _AHEAD, hi - 1)), n, xq, xs, sums, out + 4 * i
                )
            i += ROWS
        while i < hi:
            one(_row(w, w_step, ids, i), _row(w, w_step, ids, i), n, xq, xs, sums, out + 4 * i)
            i += 1

    return Kernel(gemv, f"k_quants.gemv.{codec}")


@inline
def _row(w: int, w_step: int, ids: int, i: int) -> int:
    """The address of row i, or of the i-th one listed."""
    row: int = i if ids == 0 else get_int32(ids + 4 * i)
    return w + row * w_step
