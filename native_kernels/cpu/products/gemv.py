"""Weight rows times one vector: all rows of a matrix, or listed ones; or all rows times the vectors of several tokens.

The loops are row_dots'.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32, PackedMatrix
from native_kernels.cpu.products.activations import Format
from native_kernels.cpu.products.row_dots import (
    CODECS,
    ON_THE_WAY,
    OUT_WORD,
    X_WORD,
    Codec,
    emit_dots,
    emit_dots_of_several,
    emit_total,
    rows_at_once,
)
from native_kernels.cpu.runtime.call import ALIGNMENT, Call, Listed, arguments
from native_kernels.cpu.runtime.jit import Kernel, inline
from native_kernels.cpu.runtime.side_by_side import BLOCKS, tokens_here
from native_kernels.cpu.runtime.simd import (
    LANES,
    Rows,
    get_float,
    get_int,
    get_int32,
    i64,
    operation,
    put_float,
    room,
)

GRAIN = 16  # rows: one cache line of results
PART_BYTES = 16 << 10  # of the vectors that are multiplied at once: they stay in the L1 cache, beside the rows
TILE_BYTES = 64 << 10  # of weights that stay in a core's L2 cache, beside the vectors


def vector_format(codec: str) -> Format:
    """Return the input format of rows in this codec, one of activations.py."""
    return CODECS[codec].vector


def rows_ahead(w: PackedMatrix) -> int:
    """Return the prefetch distance, packed into a word.

    Lower half: passes, more than one if rows are short. Upper half: single rows, if rows are contiguous; else 0.
    """
    row_bytes = max(1, w.row_bytes)
    without_gap = w.n_rows > 1 and stride_of(w) - w.row_bytes < ALIGNMENT
    return max(1, ON_THE_WAY // rows_at_once(CODECS[w.codec]) // row_bytes) | (
        max(1, round(ON_THE_WAY / row_bytes)) << 32 if without_gap else 0
    )


def stride_of(w: PackedMatrix) -> int:
    return int(w.data.strides[0])


def dots_over(codec: Codec) -> Any:
    """Return the function (w, ids, lo, hi, x, d, out, ahead): out[i] = row ids[i] times x, lo <= i < hi."""
    rows = rows_at_once(codec)
    several, one = emit_dots(codec, rows), emit_dots(codec, 1)

    @inline
    def over(w: Rows, ids: int, lo: int, hi: int, x: int, d: int, out: int, ahead: int) -> None:
        i, first, stride = lo, w.start, w.step
        in_one_stream = ahead >> 32 if ids == 0 else 0
        if in_one_stream == 0:
            passes = ahead & 0xFFFFFFFF
            while i + rows <= hi:
                several(first, stride, ids, i, i + rows * passes, hi - 1, x, d, out)
                i += rows
        while i < hi:
            one(first, stride, ids, i, i + max(1, in_one_stream), hi - 1, x, d, out)
            i += 1

    return over


OVER: dict[str, Any] = {name: dots_over(codec) for name, codec in CODECS.items()}


def _gemv(codec: str) -> Kernel:
    over = OVER[codec]

    def gemv(args: int, lo: int, hi: int, worker: int) -> None:
        w, stride, ids, x = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + X_WORD)
        d, out, bias, ahead = get_int(args + 32), get_int(args + OUT_WORD), get_int(args + 48), get_int(args + 56)
        positive = get_int(args + 64)
        over(Rows(w, stride), ids, lo, hi, x, d, out, ahead)
        if bias != 0:
            for i in range(lo, hi):
                n = get_int32(ids + 4 * i) if ids != 0 else i
                put_float(out + 4 * i, get_float(out + 4 * i) + get_float(bias + 4 * n))
        if positive != 0:
            for i in range(lo, hi):
                if get_float(out + 4 * i) < 0:
                    put_float(out + 4 * i, np.float32(0.0))

    return Kernel(gemv, f"gemv.{codec}")


def _gemv_of_several(codec: str) -> Kernel:
    of = CODECS[codec]
    steps_of, rest_of, total = emit_dots_of_several(of), emit_dots_of_several(of, is_rest=True), emit_total(of)
    most, step_columns, sums_bytes = rows_at_once(of), of.step_columns, 4 * LANES * of.sums()
    part = max(1, PART_BYTES // (most * (4 if of.vector == "f32" else 1)) // step_columns)  # steps
    part_bytes = part * of.step_bytes

    @operation(i64)
    def sums_of_tile(b: Any) -> Any:
        return room(b, GRAIN * most * sums_bytes)

    def several(args: int, lo: int, hi: int, worker: int) -> None:
        """Do as run_side_by_side with gemv, for whole matrices only; read each row once for up to `most` tokens.

        Rows are multiplied part by part, so that the parts of the vectors stay in the core's first-level cache.
        """
        used, tile, block = tokens_here(args), get_int(args + 24), get_int(args + BLOCKS)
        w, stride, d, bias = get_int(block), get_int(block + 8), get_int(block + 32), get_int(block + 48)
        ahead = stride * (max(1, ON_THE_WAY // min(part_bytes, stride)) if get_int(block + 56) >> 32 != 0 else 1)
        steps, end_of_all, sums = d // step_columns, w + stride * (hi - 1), sums_of_tile()
        at = lo
        while at < hi:
            end = min(hi, at + tile)
            done = 0
            while done < used:
                left, blocks = used - done, args + BLOCKS + 8 * done
                passes = (left + most - 1) // most
                n = (left + passes - 1) // passes  # 3 and 2 take less time than 4 and 1
                if n == 5 or n == 7:  # not among NUMBERS
                    n = (n + 1) // 2
                for start in range(at, end, GRAIN):
                    stop = min(end, start + GRAIN)
                    rows, n_rows = w + stride * start, stop - start
                    for first in range(0, steps, part):
                        last = min(steps, first + part)
                        steps_of(n, rows, n_rows, stride, ahead, end_of_all, d, first, last, blocks, sums)
                    if steps * step_columns < d:
                        rest_of(n, rows, n_rows, stride, ahead, end_of_all, d, 0, steps, blocks, sums)
                    for token in range(n):
                        out = get_int(get_int(blocks + 8 * token) + OUT_WORD)
                        for i in range(start, stop):
                            total(sums + sums_bytes * (n * (i - start) + token), out + 4 * i)
                done += n
            if bias != 0:
                for token in range(used):
                    out = get_int(get_int(args + BLOCKS + 8 * token) + OUT_WORD)
                    for i in range(at, end):
                        put_float(out + 4 * i, get_float(out + 4 * i) + get_float(bias + 4 * i))
            at = end

    return Kernel(several, f"gemv.several.{codec}")


GEMV: dict[str, Kernel] = {codec: _gemv(codec) for codec in CODECS}
GEMV_OF_SEVERAL: dict[str, Kernel] = {codec: _gemv_of_several(codec) for codec in CODECS}


def gemv_calls(
    w: PackedMatrix,
    x: NDArray[Any],
    out: F32,
    *,
    listed: Listed | None = None,
    bias: F32 | None = None,
    relu: bool = False,
    stage: str = "gemv",
) -> list[Call]:
    """Compute out[i] = row i of w times x, plus bias[i]; for listed ids row ids[i] times x, plus bias[ids[i]].

    relu: negative results become 0.
    x: float32 [D], or the buffer of activations.quantised_empty in vector_format(w.codec).
    """
    words = (
        w.data,
        stride_of(w),
        0 if listed is None else listed.ids,
        x,
        w.n_cols,
        out,
        0 if bias is None else bias,
        rows_ahead(w),
        int(relu),
    )
    check_vector(w, x)
    keeps = (w, x, out, listed, bias)
    n_items = w.n_rows if listed is None else listed.n
    together = GEMV_OF_SEVERAL[w.codec] if listed is None and not relu else None
    return [Call(GEMV[w.codec], arguments(*words), n_items, GRAIN, stage, keeps, tile=tile_of(w), together=together)]


def tile_of(w: PackedMatrix) -> int:
    """Return how many rows of w stay in a core's cache: a multiple of GRAIN, at least GRAIN."""
    return max(GRAIN, TILE_BYTES // max(1, w.row_bytes) // GRAIN * GRAIN)


def check_vector(w: PackedMatrix, x: NDArray[Any]) -> None:
    """Check the input of rows of w. Raises: ValueError for a wrong format or size."""
    wanted = np.float32 if vector_format(w.codec) == "f32" else np.uint8
    if x.dtype != wanted:
        raise ValueError(f"x is {x.dtype}; {w.codec} is multiplied with {vector_format(w.codec)}")
