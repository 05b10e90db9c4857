"""Down of several tokens, split by neurons into segments and by columns into chunks of a row.

As in down_parts, an item is a segment's rows over a chunk that is long enough to be read as a stream, and the segments'
sums are then added in order. A worker processes a segment by blocks of neurons: it lists the neurons of each token,
then adds them token by token, chunk by chunk, while the following rows are prefetched. The split depends only on sizes
and on the number of needed neurons, so that the result does not depend on the number of workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from native_kernels.backend import F32, I64, U8, PackedMatrix
from native_kernels.cpu.ffn.down_parts import (
    ITEMS,
    MERGE_GRAIN,
    UNITS,
    first_unit,
    pieces_of,
    segments_of,
    sum_of_parts,
)
from native_kernels.cpu.ffn.needed_ffn import MOST_TOKENS, NeededBuffers, bits_at
from native_kernels.cpu.products.gemv import stride_of
from native_kernels.cpu.products.row_dots import CODECS, rows_at_once
from native_kernels.cpu.products.row_sums import SUMS, LaneSums, PlainSums, emit_add, emit_begin, emit_finish
from native_kernels.cpu.products.vector_math import put_some_floats
from native_kernels.cpu.runtime.call import Call, Listed, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import Kernel, inline, kernel
from native_kernels.cpu.runtime.simd import (
    LANES,
    count_bits,
    get_float,
    get_int,
    get_int32,
    lowest_bit,
    prefetch,
    put_float,
    put_int,
    put_int32,
)

# Limits of the segments' sums: larger ones would not stay in the caches, or cost more than stream reads gain. The share
# is one part in this many of the matrix.
BUFFER_BYTES, _BUFFER_SHARE = 4 << 20, 8  # the share: 1 / n of the matrix
# Minimum neurons of a segment: beginning its sums and adding them to the others moves two vectors a token.
_SHORTEST, _SHORTEST_OF_TOKEN = 32, 8
# Neurons of a block. Each token has some of them, which are added several at a time; with 64, two tokens of q4_0 take a
# tenth longer. The chunks of two blocks fit in a worker's second-level cache.
_BLOCK = 256
_LINE = 64
_STARTS = 64  # int32 at the head of a block's lists: the start of each token's list, and the end of the last


@inline
def _list_opened(fired: int, ids: int, first: int, last: int, listed: int) -> int:
    """List the neurons at places first to last that any token fires; return their number."""
    count = 0
    for start in range(first, last, LANES):
        bits = bits_at(fired, start, last, -1)
        while bits != 0:
            put_int32(listed + 4 * count, get_int32(ids + 4 * (start + lowest_bit(bits))))
            count += 1
            bits &= bits - 1
    return count


class _Hidden(NamedTuple):
    """Addresses of the hidden values of all tokens: values [places, most], marks of the tokens that fire, neurons."""

    values: int
    most: int
    fired: int
    ids: int


class _Pairs(NamedTuple):
    """Addresses of the lists of a block: where each token's list starts, neurons, and their weights."""

    starts: int
    listed: int
    weights: int


@inline
def _list_pairs(hidden: _Hidden, first: int, last: int, tokens: int, rows: int, pairs: _Pairs) -> int:
    """List for each token the neurons at some places that it fires, and its values; return their number.

    Each token's list is padded to whole passes of `rows` rows (1: not padded).
    """
    values, most, fired, ids = hidden
    starts, listed, weights = pairs
    total = 0
    for t in range(tokens):
        put_int32(starts + 4 * t, total)
        mask, begin = 1 << t, total
        for start in range(first, last, LANES):
            bits = bits_at(fired, start, last, mask)
            while bits != 0:
                place = start + lowest_bit(bits)
                rank = count_bits(get_int32(fired + 4 * place) & (mask - 1))
                put_int32(listed + 4 * total, get_int32(ids + 4 * place))
                put_float(weights + 4 * total, get_float(values + 4 * (most * place + rank)))
                total += 1
                bits &= bits - 1
        while (total - begin) % rows != 0:
            put_int32(listed + 4 * total, get_int32(listed + 4 * total - 4))
            put_float(weights + 4 * total, 0.0)
            total += 1
    put_int32(starts + 4 * tokens, total)
    return total


def _unit_bytes(codec: str) -> int:
    """Return the bytes of a unit of row_sums in a row."""
    of = SUMS[codec]
    if isinstance(of, PlainSums):
        return of.unit * of.numbers.item
    if isinstance(of, LaneSums):
        return 64
    return CODECS[codec].step_bytes // (CODECS[codec].step_columns // 32)


@inline
def _ask_for(w: int, stride: int, neurons: int, first: int, last: int, at: int, n_bytes: int) -> None:
    """Prefetch the same chunk of some rows."""
    for j in range(first, last):
        piece = w + get_int32(neurons + 4 * j) * stride + at
        for line in range(0, n_bytes, _LINE):
            prefetch(piece + line)


@cache
def parts_kernel(codec: str) -> Kernel:
    """Compute the segments' sums. Items represent segments and chunks proportionally.

    args: w, its row stride, D, units of a row, chunks, maximum segments, minimum neurons of a segment, items; values,
    T, fired, ids, their number (address); parts [segments, T, D], address of the resulting number of segments, tokens;
    neurons of a block, lists, their bytes per worker, maximum pairs of a block; sums in the row's order, their bytes
    per worker and per token.
    """
    of = SUMS[codec]
    rows = rows_at_once(CODECS[codec])
    begin, finish = emit_begin(of), emit_finish(of)
    several = emit_add(of, rows)
    two, one = (emit_add(of, rows if of.whole_passes else n) for n in (2, 1))
    fills_up, unit_bytes = of.whole_passes, _unit_bytes(codec)
    filled = _filled_rows(codec)

    def parts(args: int, lo: int, hi: int, worker: int) -> None:
        w, stride, d, units = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        pieces, most_segments = get_int(args + 32), get_int(args + 40)
        shortest, items = get_int(args + 48), get_int(args + 56)
        values, most, fired = get_int(args + 64), get_int(args + 72), get_int(args + 80)
        ids, n = get_int(args + 88), get_int(get_int(args + 96))
        to_parts, tokens, size = get_int(args + 104), get_int(get_int(args + 120)), get_int(args + 128)
        starts, room = get_int(args + 136) + worker * get_int(args + 144), get_int(args + 152)
        scratch, scratch_step = get_int(args + 160) + worker * get_int(args + 168), get_int(args + 176)
        here = starts + 4 * _STARTS
        after, listed = here + 4 * size, here + 8 * size
        weights = listed + 4 * room
        segments = segments_of(n, most_segments, shortest)
        if lo == 0:
            put_int(get_int(args + 112), segments)
        item, end = segments * pieces * lo // items, segments * pieces * hi // items
        while item < end:  # all chunks of a segment that are this worker's
            segment, piece_1 = item // pieces, item % pieces
            piece_n = min(pieces, piece_1 + end - item)
            item += piece_n - piece_1
            low, high = first_unit(piece_1, pieces, units), first_unit(piece_n, pieces, units)
            to = to_parts + 4 * d * most * segment
            for t in range(tokens):
                begin(low, high, d, to + 4 * d * t, 0, scratch + t * scratch_step)
            start, stop = n * segment // segments, n * (segment + 1) // segments
            n_after = _list_opened(fired, ids, start, min(start + size, stop), after)
            second = first_unit(piece_1 + 1, pieces, units)
            _ask_for(w, stride, after, 0, n_after, unit_bytes * low, unit_bytes * (second - low))
            behind = start
            while behind < stop:
                place, behind = behind, min(behind + size, stop)
                hidden, pairs = _Hidden(values, most, fired, ids), _Pairs(starts, listed, weights)
                n_pairs = _list_pairs(hidden, place, behind, tokens, filled, pairs)
                here, after, n_here = after, here, n_after
                n_after = _list_opened(fired, ids, behind, min(behind + size, stop), after)
                for piece in range(piece_1, piece_n):
                    first, last = first_unit(piece, pieces, units), first_unit(piece + 1, pieces, units)
                    # Prefetched between the passes: the next chunk of these rows, or the first one of the next block.
                    asked, n_asked, ask_1, ask_n = after, n_after, low, second
                    if piece + 1 < piece_n:
                        asked, n_asked, ask_1, ask_n = here, n_here, last, first_unit(piece + 2, pieces, units)
                    at, n_bytes, done = unit_bytes * ask_1, unit_bytes * (ask_n - ask_1), 0
                    i = 0
                    for t in range(tokens):
                        last_i, sums = get_int32(starts + 4 * (t + 1)), scratch + t * scratch_step
                        out = to + 4 * d * t
                        while i < last_i:
                            m = min(rows, last_i - i)
                            if m < rows:
                                m = min(2, m)
                            goal = n_asked * (i + m) // n_pairs
                            _ask_for(w, stride, asked, done, goal, at, n_bytes)
                            done = goal
                            if m == rows:
                                several(w, stride, listed, i, i + m, n_pairs - 1, weights, first, last, d, out, sums)
                            elif not fills_up:
                                if m == 2:
                                    two(w, stride, listed, i, i + m, n_pairs - 1, weights, first, last, d, out, sums)
                                else:
                                    one(w, stride, listed, i, i + m, n_pairs - 1, weights, first, last, d, out, sums)
                            i += m
            for t in range(tokens):
                finish(low, high, d, to + 4 * d * t, 0, scratch + t * scratch_step)

    return Kernel(parts, f"needed_down.{codec}")


@kernel
def add_parts(args: int, lo: int, hi: int, worker: int) -> None:
    """Set out [T, D] to the sum of all parts. Items: LANES columns of a token.

    args: parts [segments, T, D], number of segments (address), T, D, tokens, out, its row stride.
    """
    parts, n, most, d = get_int(args), get_int(get_int(args + 8)), get_int(args + 16), get_int(args + 24)
    tokens, out, step = get_int(get_int(args + 32)), get_int(args + 40), get_int(args + 48)
    vectors = (d + LANES - 1) // LANES
    for i in range(lo, min(hi, tokens * vectors)):
        token, column = i // vectors, LANES * (i % vectors)
        left = d - column
        total = sum_of_parts(parts + 4 * (d * token + column), 4 * d * most, n, left)
        put_some_floats(out + token * step + 4 * column, left, total)


def _filled_rows(codec: str) -> int:
    """Return the rows of a padded pass; 1 if passes are not padded."""
    return rows_at_once(CODECS[codec]) if SUMS[codec].whole_passes else 1


def _pairs(codec: str, max_tokens: int) -> int:
    """Return the maximum pairs of neurons and tokens in a block."""
    return max_tokens * (_BLOCK + _filled_rows(codec))


def cut_of(w: PackedMatrix, max_tokens: int) -> tuple[int, int]:
    """Return the number of chunks of a row, and the maximum number of segments."""
    room = min(BUFFER_BYTES, w.n_rows * w.row_bytes // _BUFFER_SHARE) // (4 * max_tokens * w.n_cols)
    wide = pieces_of(w)
    segments = max(1, min(room, ITEMS // wide))
    return max(wide, min(ITEMS // segments, -(-SUMS[w.codec].units(w.n_cols) // UNITS))), segments


def adds_up(down_t: PackedMatrix) -> bool:
    """Return whether `down_calls` supports this matrix."""
    return down_t.codec in SUMS


@dataclass(frozen=True, eq=False)
class DownBuffers:
    """Intermediate arrays of the calls, shared by all layers, for a fixed number of tokens.

    parts: f32 [segments, T, D]. n_parts: i64 [1]. lists: u8 [workers, ...]. sums: u8 [workers, T, ...].
    """

    parts: F32
    n_parts: I64
    lists: U8
    sums: U8

    @classmethod
    def make(cls, max_tokens: int, w: PackedMatrix, n_workers: int) -> DownBuffers:
        """Allocate for layers with a down matrix like w, which `adds_up` accepts.

        Cost: at most BUFFER_BYTES or a row per token; for codecs with reordered sums also a row per worker and token.
        """
        assert 1 <= max_tokens <= MOST_TOKENS < _STARTS, "every token has a start in front of a block's lists"
        size = 4 * _STARTS + 8 * _BLOCK + 8 * _pairs(w.codec, max_tokens)
        sums = SUMS[w.codec].scratch_bytes(w.n_cols)
        return cls(
            aligned_empty((cut_of(w, max_tokens)[1], max_tokens, w.n_cols)), aligned_empty(1, np.int64),
            aligned_empty((n_workers, -(-size // 64) * 64), np.uint8),
            aligned_empty((n_workers, max_tokens, -(-sums // 64) * 64), np.uint8),
        )  # fmt: skip


def down_calls(
    w: PackedMatrix, tokens: I64, out: F32, needed: Listed, hidden: NeededBuffers, buffers: DownBuffers, stage: str
) -> list[Call]:  # fmt: skip
    """Compute out [T, D] = the needed rows of w that hidden.fired marks, weighted by each token's values."""
    max_tokens, d = hidden.values.shape[1], w.n_cols
    pieces, segments = cut_of(w, max_tokens)
    items = pieces * segments
    shortest = max(_SHORTEST, _SHORTEST_OF_TOKEN * max_tokens)
    args = arguments(
        w.data, stride_of(w), d, SUMS[w.codec].units(d), pieces, segments, shortest, items, hidden.values, max_tokens,
        hidden.fired, *needed, buffers.parts, buffers.n_parts, tokens, _BLOCK, buffers.lists,
        buffers.lists.shape[1], _pairs(w.codec, max_tokens), buffers.sums, buffers.sums.strides[0],
        buffers.sums.strides[1],
    )  # fmt: skip
    adding = arguments(buffers.parts, buffers.n_parts, max_tokens, d, tokens, out, out.strides[0])
    keeps = (w, tokens, out, needed, hidden, buffers)
    return [
        Call(parts_kernel(w.codec), args, items, 1, stage, keeps, shared=True),
        Call(add_parts, adding, max_tokens * -(-d // LANES), MERGE_GRAIN, stage, keeps),
    ]
