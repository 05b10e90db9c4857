"""Down of several tokens, cut both ways: the needed neurons into segments, the columns into pieces of a row.

As in down_parts an item is a segment's rows over a piece that is long enough to be read as a stream, and what the
segments come to is added up behind it, in their order. A worker goes through a segment by blocks of neurons: it lists
which of them each token is to add, then adds them token by token, piece by piece, while the rows that follow are on
their way. How it is cut depends on sizes and on how many neurons are needed alone, so that a result does not depend on
the number of workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from native_kernels.backend import F32, I32, I64, U8, PackedMatrix
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
from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments
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

# Of the segments' sums: more of them would not stay in the caches, or cost more than reading in a stream gains.
ROOM_BYTES, _ROOM_SHARE = 4 << 20, 8  # the share is one part of so many of the matrix
# Neurons of a segment: beginning its sums and adding them to the others moves two vectors a token.
_SHORTEST, _SHORTEST_OF_TOKEN = 32, 8
# Neurons of a block: of those each token has some, added up several at a time; of q4_0, two tokens take a tenth longer
# with 64. The pieces of two blocks lie in a worker's second cache.
_BLOCK = 256
_LINE = 64
_STARTS = 64  # int32 in front of a block's lists: where each token's begins, and behind the last


@inline
def _list_opened(fired: int, ids: int, first: int, last: int, listed: int) -> int:
    """The neurons that any token fires, of those at some places; how many."""
    count = 0
    for start in range(first, last, LANES):
        bits = bits_at(fired, start, last, -1)
        while bits != 0:
            put_int32(listed + 4 * count, get_int32(ids + 4 * (start + lowest_bit(bits))))
            count += 1
            bits &= bits - 1
    return count


@inline
def _list_pairs(
    values: int, most: int, fired: int, ids: int, first: int, last: int, tokens: int, rows: int, starts: int,
    listed: int, weights: int,
) -> int:  # fmt: skip
    """Token by token the neurons at some places that it fires, and its values, each token's filled up to whole passes
    of so many rows (1: not filled up); how many."""
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
    """Bytes of a unit of row_sums, as they lie one behind another."""
    of = SUMS[codec]
    if isinstance(of, PlainSums):
        return of.unit * of.numbers.item
    if isinstance(of, LaneSums):
        return 64
    return CODECS[codec].step_bytes // (CODECS[codec].step_columns // 32)


@inline
def _ask_for(w: int, stride: int, neurons: int, first: int, last: int, at: int, n_bytes: int) -> None:
    """The same piece of some rows."""
    for j in range(first, last):
        piece = w + get_int32(neurons + 4 * j) * stride + at
        for line in range(0, n_bytes, _LINE):
            prefetch(piece + line)


@cache
def parts_kernel(codec: str) -> Kernel:
    """The sums of the segments. Items stand for segments and pieces, in proportion.

    args: w, its row step, D, units of a row, pieces, segments at most, neurons of a segment at least, items; values,
    T, fired, ids, how many (address); parts [segments, T, D], where the number of segments is left (address), tokens;
    neurons of a block, lists, bytes of a worker's, pairs of a block at most; sums that are not in order, bytes of those
    of a worker, and of a token of it.
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
        while item < end:  # of a segment all pieces that are this worker's
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
                n_pairs = _list_pairs(
                    values, most, fired, ids, place, behind, tokens, filled, starts, listed, weights
                )  # fmt: skip
                here, after, n_here = after, here, n_after
                n_after = _list_opened(fired, ids, behind, min(behind + size, stop), after)
                for piece in range(piece_1, piece_n):
                    first, last = first_unit(piece, pieces, units), first_unit(piece + 1, pieces, units)
                    # Asked for between the passes: the next piece of these rows, or the first one of the next block's.
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
    """out [T, D] = all parts. Items: LANES columns of a token.

    args: parts [segments, T, D], how many segments (address), T, D, tokens, out, its row step.
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
    """Rows of a pass that is filled up; 1: passes are not."""
    return rows_at_once(CODECS[codec]) if SUMS[codec].whole_passes else 1


def _pairs(codec: str, max_tokens: int) -> int:
    """Of neurons and tokens, in a block, at most."""
    return max_tokens * (_BLOCK + _filled_rows(codec))


def cut_of(w: PackedMatrix, max_tokens: int) -> tuple[int, int]:
    """Into how many pieces its rows are cut, and into how many segments the neurons at most."""
    room = min(ROOM_BYTES, w.n_rows * w.row_bytes // _ROOM_SHARE) // (4 * max_tokens * w.n_cols)
    wide = pieces_of(w)
    segments = max(1, min(room, ITEMS // wide))
    return max(wide, min(ITEMS // segments, -(-SUMS[w.codec].units(w.n_cols) // UNITS))), segments


def adds_up(down_t: PackedMatrix) -> bool:
    """Whether rows of this matrix are added up by `down_calls`."""
    return down_t.codec in SUMS


@dataclass(frozen=True, eq=False)
class DownBuffers:
    """What the calls write between each other, of layers after each other; made for a batch of so many tokens.

    parts: f32 [segments, T, D]. n_parts: i64 [1]. lists: u8 [workers, ...]. sums: u8 [workers, T, ...].
    """

    parts: F32
    n_parts: I64
    lists: U8
    sums: U8

    @classmethod
    def make(cls, max_tokens: int, w: PackedMatrix, n_workers: int) -> DownBuffers:
        """For layers with such a matrix as down. Cost: ROOM_BYTES or less, or a row for each token; where sums are not
        in order, a row for each worker and token, too. w: as `adds_up` has it."""
        assert 1 <= max_tokens <= MOST_TOKENS < _STARTS, "every token has a start in front of a block's lists"
        size = 4 * _STARTS + 8 * _BLOCK + 8 * _pairs(w.codec, max_tokens)
        sums = SUMS[w.codec].scratch_bytes(w.n_cols)
        return cls(
            aligned_empty((cut_of(w, max_tokens)[1], max_tokens, w.n_cols)), aligned_empty(1, np.int64),
            aligned_empty((n_workers, -(-size // 64) * 64), np.uint8),
            aligned_empty((n_workers, max_tokens, -(-sums // 64) * 64), np.uint8),
        )  # fmt: skip


def down_calls(
    w: PackedMatrix, tokens: I64, out: F32, ids: I32, n_ids: I64, hidden: NeededBuffers, buffers: DownBuffers,
    stage: str,
) -> list[Call]:  # fmt: skip
    """out [T, D] = the rows of w of those listed neurons that hidden.fired names, weighted with each token's values."""
    max_tokens, d = hidden.values.shape[1], w.n_cols
    pieces, segments = cut_of(w, max_tokens)
    items = pieces * segments
    shortest = max(_SHORTEST, _SHORTEST_OF_TOKEN * max_tokens)
    args = arguments(
        w.data, stride_of(w), d, SUMS[w.codec].units(d), pieces, segments, shortest, items, hidden.values, max_tokens,
        hidden.fired, ids, n_ids, buffers.parts, buffers.n_parts, tokens, _BLOCK, buffers.lists,
        buffers.lists.shape[1], _pairs(w.codec, max_tokens), buffers.sums, buffers.sums.strides[0],
        buffers.sums.strides[1],
    )  # fmt: skip
    adding = arguments(buffers.parts, buffers.n_parts, max_tokens, d, tokens, out, out.strides[0])
    keeps = (w, tokens, out, ids, n_ids, hidden, buffers)
    return [
        Call(parts_kernel(w.codec), args, items, 1, stage, keeps, shared=True),
        Call(add_parts, adding, max_tokens * -(-d // LANES), MERGE_GRAIN, stage, keeps),
    ]
