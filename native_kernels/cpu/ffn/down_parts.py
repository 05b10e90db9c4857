"""Down of one token, split by neurons into segments and by columns into chunks of a row.

If many workers each took a few columns of every row, they would read a few cache lines here and there, for which a CPU
reaches less than half of the memory's rate. So an item is a segment's rows over a chunk that is long enough to be read
as a stream, and the segments' sums are then added in order. Their number depends only on how many neurons fired, so
that the result does not depend on the number of workers. sparse_ffn decides when this is used.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from native_kernels.backend import F32, I64, PackedMatrix
from native_kernels.cpu.products.row_dots import CODECS, ON_THE_WAY, rows_at_once
from native_kernels.cpu.products.row_sums import SUMS, Codec, emit_add, emit_begin, emit_finish
from native_kernels.cpu.products.vector_math import put_some_floats, some_floats
from native_kernels.cpu.runtime.call import aligned_empty
from native_kernels.cpu.runtime.jit import Kernel, inline, kernel
from native_kernels.cpu.runtime.simd import (
    LANES,
    add,
    bits_not_zero,
    count_bits,
    floats,
    floats_part,
    get_float,
    get_int,
    get_int32,
    lowest_bit,
    put_float,
    put_int,
    put_int32,
)
from native_kernels.cpu.runtime.tallies import counts_at, tally_listed

ITEMS = 64  # items of down when all segments have neurons
LEAST_BYTES = 8 << 20  # minimum size of a matrix; smaller ones stay in the caches
# Bytes of a chunk. 15 threads of a Xeon read rows of q4_0, 8192 wide, fastest in chunks of 1,152 bytes (of 576, 1152
# and 2304), rows of f16, 5120 wide, in chunks of 2,048 (of 1024 and 2048): 88 and 113 GB/s instead of 45 and 86.
_PIECE_BYTES, _FEW_PIECES = 1024, 4
UNITS = 16  # a chunk is a multiple of this many units of row_sums
_SHORTEST = 32  # neurons of a segment: beginning its sum and adding that to the others moves two vectors
MERGE_GRAIN = 8


def pieces_of(w: PackedMatrix) -> int:
    """Return how many chunks a row is cut into."""
    blocks = -(-SUMS[w.codec].units(w.n_cols) // UNITS)
    short = w.row_bytes // _PIECE_BYTES
    return max(1, min(blocks, max(short // 2, min(_FEW_PIECES, short)), ITEMS))


def most_segments(w: PackedMatrix) -> int:
    """Return the largest number of segments."""
    return max(1, ITEMS // pieces_of(w))


@inline
def segments_of(count: int, most: int, shortest: int) -> int:
    """Return the number of segments for this many neurons."""
    return max(1, min(most, count // shortest))


@inline
def first_unit(piece: int, pieces: int, units: int) -> int:
    """Return the unit at which a chunk begins; after the last chunk, the end of the row."""
    return min(units, UNITS * ((units + UNITS - 1) // UNITS * piece // pieces))


@inline
def sum_of_parts(at: int, step: int, n: int, left: int) -> Any:
    """Sum LANES columns, of which `left` exist, over n segments that are `step` bytes apart."""
    total = some_floats(at, left)
    for k in range(1, n):
        total = add(total, some_floats(at + step * k, left))
    return total


@inline
def _fired(h: int, start: int, n: int) -> int:
    """Return which of LANES values, among the first n, are not 0."""
    left = n - start
    if left >= LANES:
        return int(bits_not_zero(floats(h + 4 * start)))
    return int(bits_not_zero(floats_part(h + 4 * start, left))) & ((1 << left) - 1)


@inline
def _list_some(h: int, n: int, ids: int, first: int, last: int, listed: int, values: int) -> None:
    """List the neurons and values of the first to the last nonzero value. ids 0: places are neurons."""
    found = 0
    for start in range(0, n, LANES):
        bits = _fired(h, start, n)
        if found + count_bits(bits) <= first:
            found += count_bits(bits)
            continue
        if found >= last:
            break
        while bits != 0:
            if first <= found < last:
                place = start + lowest_bit(bits)
                put_float(values + 4 * (found - first), get_float(h + 4 * place))
                put_int32(listed + 4 * (found - first), get_int32(ids + 4 * place) if ids != 0 else place)
            found += 1
            bits &= bits - 1


@cache
def parts_kernel(codec: str) -> Kernel:
    """Compute the segments' sums. Items represent segments and chunks proportionally.

    args: w, its row stride, its row bytes, D, h, ids (0: places are neurons), n (address), parts [segments, D], maximum
    segments, chunks, items, F, counts (0: none), scratch, its stride, the two words of a tally, units of a row, address
    of the resulting number of segments, the n from which another kernel sums instead and this one writes 0 segments.
    """
    of: Codec = SUMS[codec]
    begin, finish = emit_begin(of), emit_finish(of)
    rows = rows_at_once(CODECS[codec])
    several, one = emit_add(of, rows), emit_add(of, rows if of.whole_passes else 1)
    fills_up = of.whole_passes

    def parts(args: int, lo: int, hi: int, worker: int) -> None:
        w, stride, row_bytes, d = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        h, ids, n = get_int(args + 32), get_int(args + 40), get_int(get_int(args + 48))
        sums_at, most, pieces, items = get_int(args + 56), get_int(args + 64), get_int(args + 72), get_int(args + 80)
        f, counts = get_int(args + 88), get_int(args + 96)
        scratch = get_int(args + 104) + worker * get_int(args + 112)
        tally = counts_at(get_int(args + 120), get_int(args + 128))
        units = get_int(args + 136)
        if n >= get_int(args + 152):
            if lo == 0:
                put_int(get_int(args + 144), 0)
            return
        active, values, room = scratch, scratch + 4 * f + 64, scratch + 8 * f + 128
        count = 0
        for start in range(0, n, LANES):
            count += count_bits(_fired(h, start, n))
        segments = segments_of(count, most, _SHORTEST)
        if lo == 0:
            put_int(get_int(args + 144), segments)
            if counts != 0:
                put_int(counts + 16, get_int(counts + 16) + count)
        passes = (count + rows - 1) // rows
        begins, ends = segments * pieces * lo // items, segments * pieces * hi // items
        if begins == ends:
            return
        # List the neurons of this range's segments, relative to the first of them.
        base = rows * (passes * (begins // pieces) // segments)
        end = min(count, rows * (passes * ((ends - 1) // pieces + 1) // segments)) - base
        _list_some(h, n, ids, base, base + end, active, values)
        own = end
        if fills_up:
            while end % rows != 0:
                put_float(values + 4 * end, np.float32(0.0))
                put_int32(active + 4 * end, get_int32(active + 4 * (own - 1)))
                end += 1
        for item in range(begins, ends):
            segment, piece = item // pieces, item % pieces
            i = rows * (passes * segment // segments) - base
            stop = min(end, rows * (passes * (segment + 1) // segments) - base)
            first, last = first_unit(piece, pieces, units), first_unit(piece + 1, pieces, units)
            to = sums_at + 4 * d * segment
            if tally != 0 and piece == 0:
                tally_listed(tally, active, i, min(own, stop))
            begin(first, last, d, to, 0, room)
            ahead = rows * max(1, ON_THE_WAY * units // (rows * row_bytes * (last - first)))
            while i + rows <= stop:
                several(w, stride, active, i, i + ahead, end - 1, values, first, last, d, to, room)
                i += rows
            if not fills_up:
                while i < stop:
                    one(w, stride, active, i, i + 1, end - 1, values, first, last, d, to, room)
                    i += 1
            finish(first, last, d, to, 0, room)

    return Kernel(parts, f"down_parts.{codec}")


@kernel
def add_parts(args: int, lo: int, hi: int, worker: int) -> None:
    """Set out [D] to the sum of all parts and the bias; without parts it stays unchanged. Items: LANES columns.

    args: parts, their number (address), out, bias (0: none), D.
    """
    parts, n, out = get_int(args), get_int(get_int(args + 8)), get_int(args + 16)
    bias, d = get_int(args + 24), get_int(args + 32)
    if n == 0:
        return
    for i in range(lo, hi):
        at, left = 4 * LANES * i, d - LANES * i
        total = sum_of_parts(parts + at, 4 * d, n, left)
        if bias != 0:
            total = add(total, some_floats(bias + at, left))
        put_some_floats(out + at, left, total)


class Parts(NamedTuple):
    """The segments' sums, f32 [ITEMS, D], and their number, i64 [1]. Untouched pages cost nothing."""

    sums: F32
    n: I64

    @classmethod
    def make(cls, d: int) -> Parts:
        """Allocate for width d."""
        return cls(aligned_empty((ITEMS, d)), aligned_empty(1, np.int64))


def serves(w: PackedMatrix) -> bool:
    """Return whether down of this matrix is split both ways."""
    return w.n_rows * w.row_bytes >= LEAST_BYTES
