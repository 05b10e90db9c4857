"""The feed-forward part of several tokens, each on its own neurons: a product for each neuron and token that needs it.

A worker reads gate, then up of its neurons once and multiplies each row with the vectors of the tokens that need it:
where a neuron is needed by one token in ten, that is a tenth of the work of a matrix product, and rows come nearly as
fast as memory gives them. What is not 0 goes through down by columns: blocks of neurons, in a block token by token the
rows that it weights. Nothing depends on how many workers there are. union_ffn decides when it runs so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32, I32, I64, PackedMatrix
from native_kernels.cpu.activation_math import activate
from native_kernels.cpu.activations import QUANTISE_ROWS, Format, quantised_empty
from native_kernels.cpu.call import Call, aligned_empty, arguments
from native_kernels.cpu.gemv import stride_of, vector_format
from native_kernels.cpu.jit import Kernel, inline, kernel
from native_kernels.cpu.needed_dots import list_products, products_over
from native_kernels.cpu.row_dots import CODECS, rows_at_once
from native_kernels.cpu.row_sums import SUMS, LaneSums, PlainSums, emit_add, emit_begin, emit_finish
from native_kernels.cpu.simd import (
    LANES,
    atomic_add,
    bits_of_words,
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

GROUP = 32  # neurons whose gates are multiplied before their ups
MOST_TOKENS = 32  # bits of a word
_LINE = 64
_GRAIN = 16
_WORDS_AT_ONCE = 256  # that a worker looks through at least
# Of a worker: products of a group, words of a group, places of those that fired, addresses of rows and vectors.
_PRODUCTS = GROUP * MOST_TOKENS
_VALUES, _WORDS, _FIRED = 0, 4 * _PRODUCTS, 4 * _PRODUCTS + 4 * GROUP
_ROWS = _FIRED + 4 * GROUP
_VECTORS = _ROWS + 8 * (_PRODUCTS + 4)
SCRATCH_BYTES = _VECTORS + 8 * _PRODUCTS
# Neurons of a block of down, and bytes of a row that a worker takes at a time: the pieces of two blocks lie in its
# second cache. In a block each token has some rows, added up several at a time: of f16, 5120 wide, 32 tokens took
# 3.2 ms with 64 neurons and 2.7 with 256, where a token needs 7 % of 4096.
_BLOCK, _TILE_BYTES = 256, 1024
_STARTS = 64  # int32 in front of a block's lists


@cache
def hidden_kernel(first: str, second: str | None) -> Kernel:
    """Values that go into down. Items stand for the listed neurons, in proportion.

    args: first w, its row step, its vectors, step of those; the same of the second; D, biases of both, kind, threshold,
    words, ids, how many (address), of how many items, values [N, T], T, fired u32 [N], counts i64 [3], address of the
    tally (that: 0: none), scratch, its step.
    """
    first_products, second_products = products_over(first), products_over(second or first)
    two = second is not None

    def hidden(args: int, lo: int, hi: int, worker: int) -> None:
        w1, stride1, x1, step1 = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        w2, stride2, x2, step2 = get_int(args + 32), get_int(args + 40), get_int(args + 48), get_int(args + 56)
        d, bias1, bias2 = get_int(args + 64), get_int(args + 72), get_int(args + 80)
        kind, threshold, words = get_int(args + 88), get_float(args + 96), get_int(args + 104)
        ids, n, of = get_int(args + 112), get_int(get_int(args + 120)), get_int(args + 128)
        values, most, fired = get_int(args + 136), get_int(args + 144), get_int(args + 152)
        counts, tally = get_int(args + 160), get_int(get_int(args + 168))
        scratch = get_int(args + 176) + worker * get_int(args + 184)
        found, own, opened = scratch + _VALUES, scratch + _WORDS, scratch + _FIRED
        rows, xs = scratch + _ROWS, scratch + _VECTORS
        start, stop = n * lo // of, n * hi // of
        n_computed = n_opened = n_fired = 0
        for i in range(start, stop, GROUP):
            m = min(GROUP, stop - i)
            total = 0
            for k in range(m):
                neuron = get_int32(ids + 4 * (i + k))
                bits = get_int32(words + 4 * neuron) & 0xFFFFFFFF
                put_int32(own + 4 * k, bits)
                total = list_products(bits, w1 + neuron * stride1, x1, step1, rows, xs, total)
            for k in range(4):  # what is read then: their ups, or the next group
                if two:
                    after = w2 + get_int32(ids + 4 * min(i + k, stop - 1)) * stride2
                else:
                    after = w1 + get_int32(ids + 4 * min(i + m + k, stop - 1)) * stride1
                put_int(rows + 8 * (total + k), after)
            first_products(rows, xs, total, d, found)
            if bias1 != 0:
                done = 0
                for k in range(m):
                    bias = get_float(bias1 + 4 * get_int32(ids + 4 * (i + k)))
                    for _ in range(count_bits(get_int32(own + 4 * k) & 0xFFFFFFFF)):
                        put_float(found + 4 * done, get_float(found + 4 * done) + bias)
                        done += 1
            n_computed += total
            activate(found, total, kind, threshold)
            done = n_open = 0
            for k in range(m):
                bits, left, count, bit = get_int32(own + 4 * k) & 0xFFFFFFFF, 0, 0, 1
                to = values + 4 * most * (i + k)
                while bits != 0:
                    if bits & 1 != 0:
                        value = get_float(found + 4 * done)
                        done += 1
                        if value != 0.0:
                            put_float(to + 4 * count, value)
                            count += 1
                            left |= bit
                    bits >>= 1
                    bit <<= 1
                put_int32(fired + 4 * (i + k), left)
                n_opened += count
                if left != 0:
                    put_int32(opened + 4 * n_open, i + k)
                    n_open += 1
                    if not two:
                        n_fired += count
                        if tally != 0:
                            neuron = get_int32(ids + 4 * (i + k))
                            put_int(tally + 8 * neuron, get_int(tally + 8 * neuron) + count)
            if two:
                total = 0
                for k in range(n_open):
                    place = get_int32(opened + 4 * k)
                    row = w2 + get_int32(ids + 4 * place) * stride2
                    bits = get_int32(fired + 4 * place) & 0xFFFFFFFF
                    total = list_products(bits, row, x2, step2, rows, xs, total)
                for k in range(4):
                    after = w1 + get_int32(ids + 4 * min(i + m + k, stop - 1)) * stride1
                    put_int(rows + 8 * (total + k), after)
                second_products(rows, xs, total, d, found)
                done = 0
                for k in range(n_open):
                    place = get_int32(opened + 4 * k)
                    neuron = get_int32(ids + 4 * place)
                    to, count = values + 4 * most * place, 0
                    for j in range(count_bits(get_int32(fired + 4 * place) & 0xFFFFFFFF)):
                        value = get_float(found + 4 * done)
                        done += 1
                        if bias2 != 0:
                            value += get_float(bias2 + 4 * neuron)
                        if kind == 1 and value <= threshold:
                            put_float(to + 4 * j, np.float32(0.0))
                        else:
                            put_float(to + 4 * j, get_float(to + 4 * j) * value)
                            count += 1
                    n_fired += count
                    if tally != 0:
                        put_int(tally + 8 * neuron, get_int(tally + 8 * neuron) + count)
        atomic_add(counts, n_computed)
        atomic_add(counts + 8, n_opened)
        atomic_add(counts + 16, n_fired)

    return Kernel(hidden, f"needed_ffn.hidden.{first}" + (f".{second}" if second else ""))


@inline
def _bits_at(words: int, start: int, stop: int) -> int:
    """Which of LANES words are not 0, of those before `stop`."""
    if stop - start >= LANES:
        return int(bits_of_words(words + 4 * start))
    bits = 0
    for i in range(start, stop):
        bits |= (get_int32(words + 4 * i) != 0) << (i - start)
    return bits


@kernel
def list_words(args: int, lo: int, hi: int, worker: int) -> None:
    """Which words are not 0, ascending. Items stand for the words, in proportion; every worker counts those before its
    part, in place of one more hand-over.

    args: words u32, how many (address), of how many items, ids (0: a word's own place), places i32 (0: nobody asks),
    the ids at those places i32, count, totals i64 [2] (0: nobody asks), to which are added how many words there were,
    and how many were found.
    """
    words, n, of, ids = get_int(args), get_int(get_int(args + 8)), get_int(args + 16), get_int(args + 24)
    places, listed, totals = get_int(args + 32), get_int(args + 40), get_int(args + 56)
    first, last = n * lo // of, n * hi // of
    found = 0
    for start in range(0, first, LANES):
        found += count_bits(_bits_at(words, start, first))
    for start in range(first, last, LANES):
        bits = _bits_at(words, start, last)
        while bits != 0:
            i = start + lowest_bit(bits)
            put_int32(listed + 4 * found, get_int32(ids + 4 * i) if ids != 0 else i)
            if places != 0:
                put_int32(places + 4 * found, i)
            found += 1
            bits &= bits - 1
    if hi == of:
        put_int(get_int(args + 48), found)
        if totals != 0:
            put_int(totals, get_int(totals) + n)
            put_int(totals + 8, get_int(totals + 8) + found)


@kernel
def turn_values(args: int, lo: int, hi: int, worker: int) -> None:
    """The values of each block of opened neurons, token by token. Items stand for the blocks, in proportion.

    args: values, T, fired, places, neurons, count (address), neurons of a block, rows of a pass (1: passes are not
    filled up), blocks, bytes of a block, tokens, of how many items. A block: i32 [64], where the pairs of each token
    begin, and behind the last; then the neurons of all pairs, i32, and their values.
    """
    values, most, fired = get_int(args), get_int(args + 8), get_int(args + 16)
    places, neurons, n = get_int(args + 24), get_int(args + 32), get_int(get_int(args + 40))
    size, rows, blocks, block_bytes = get_int(args + 48), get_int(args + 56), get_int(args + 64), get_int(args + 72)
    tokens, of = get_int(get_int(args + 80)), get_int(args + 88)
    room = (size + rows) * most
    n_blocks = (n + size - 1) // size
    for k in range(n_blocks * lo // of, n_blocks * hi // of):
        first, last = size * k, min(n, size * (k + 1))
        starts = blocks + k * block_bytes
        ids = starts + 4 * _STARTS
        weights = ids + 4 * room
        for t in range(tokens + 1):
            put_int32(starts + 4 * t, 0)
        for j in range(first, last):
            bits, at = get_int32(fired + 4 * get_int32(places + 4 * j)) & 0xFFFFFFFF, starts + 4
            while bits != 0:
                put_int32(at, get_int32(at) + (bits & 1))
                bits >>= 1
                at += 4
        total = 0
        for t in range(tokens):
            count = get_int32(starts + 4 * (t + 1))
            put_int32(starts + 4 * t, total)
            total += (count + rows - 1) // rows * rows
        put_int32(starts + 4 * tokens, total)
        for j in range(first, last):
            place = get_int32(places + 4 * j)
            bits, at, value = get_int32(fired + 4 * place) & 0xFFFFFFFF, starts, values + 4 * most * place
            neuron = get_int32(neurons + 4 * j)
            while bits != 0:
                if bits & 1 != 0:
                    to = get_int32(at)
                    put_int32(at, to + 1)
                    put_int32(ids + 4 * to, neuron)
                    put_float(weights + 4 * to, get_float(value))
                    value += 4
                bits >>= 1
                at += 4
        begin = 0
        for t in range(tokens):  # each start stands behind its token's last pair now
            end = get_int32(starts + 4 * t)
            put_int32(starts + 4 * t, begin)
            filled = begin + (end - begin + rows - 1) // rows * rows
            for to in range(end, filled):
                put_int32(ids + 4 * to, get_int32(ids + 4 * (end - 1)))
                put_float(weights + 4 * to, np.float32(0.0))
            begin = filled


@kernel
def spread_values(args: int, lo: int, hi: int, worker: int) -> None:
    """h [T, F] of the opened neurons, at their own places. Items stand for those, in proportion.

    args: values, T, fired, places, neurons, count (address), of how many items, h, its row step, tokens.
    """
    values, most, fired = get_int(args), get_int(args + 8), get_int(args + 16)
    places, neurons, n = get_int(args + 24), get_int(args + 32), get_int(get_int(args + 40))
    of, h, step, tokens = get_int(args + 48), get_int(args + 56), get_int(args + 64), get_int(get_int(args + 72))
    for j in range(n * lo // of, n * hi // of):
        place = get_int32(places + 4 * j)
        bits, at, value = (
            get_int32(fired + 4 * place), h + 4 * get_int32(neurons + 4 * j), values + 4 * most * place
        )  # fmt: skip
        for t in range(tokens):
            put_float(at + t * step, get_float(value) if bits & 1 != 0 else np.float32(0.0))
            value += 4 * (bits & 1)
            bits >>= 1


def _unit_bytes(codec: str) -> int:
    """Bytes of a unit of row_sums, as they lie one behind another."""
    of = SUMS[codec]
    if isinstance(of, PlainSums):
        return of.unit * of.numbers.item
    if isinstance(of, LaneSums):
        return 64
    return CODECS[codec].step_bytes // (CODECS[codec].step_columns // 32)


@inline
def _ask_for_pieces(w: int, stride: int, neurons: int, first: int, last: int, at: int, n_bytes: int) -> None:
    """The same piece of some rows."""
    for j in range(first, last):
        piece = w + get_int32(neurons + 4 * j) * stride + at
        for line in range(0, n_bytes, _LINE):
            prefetch(piece + line)


@cache
def down_kernel(codec: str) -> Kernel:
    """The sums of all tokens. Items: units of columns.

    args: w, its row step, D, neurons, count (address), neurons of a block, values of a block at most, blocks, bytes of
    a block, tokens, out, its row step, sums that are not in order, bytes of those of a worker, and of a token of it.
    """
    of = SUMS[codec]
    rows = rows_at_once(CODECS[codec])
    begin, finish = emit_begin(of), emit_finish(of)
    several = emit_add(of, rows)
    two, one = (emit_add(of, rows if of.whole_passes else n) for n in (2, 1))
    fills_up, unit_bytes = of.whole_passes, _unit_bytes(codec)
    tile = max(1, _TILE_BYTES // unit_bytes)

    def down(args: int, lo: int, hi: int, worker: int) -> None:
        w, stride, d, neurons = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        n, size, room = get_int(get_int(args + 32)), get_int(args + 40), get_int(args + 48)
        blocks, block_bytes, tokens = get_int(args + 56), get_int(args + 64), get_int(get_int(args + 72))
        out, out_step = get_int(args + 80), get_int(args + 88)
        scratch, scratch_step = get_int(args + 96) + worker * get_int(args + 104), get_int(args + 112)
        n_tiles = (hi - lo + tile - 1) // tile
        for piece in range(n_tiles):
            first, last = lo + (hi - lo) * piece // n_tiles, lo + (hi - lo) * (piece + 1) // n_tiles
            at, n_bytes = unit_bytes * first, unit_bytes * (last - first)
            for t in range(tokens):
                begin(first, last, d, out + t * out_step, 0, scratch + t * scratch_step)
            _ask_for_pieces(w, stride, neurons, 0, min(size, n), at, n_bytes)
            for block in range((n + size - 1) // size):
                starts = blocks + block * block_bytes
                ids = starts + 4 * _STARTS
                weights = ids + 4 * room
                following, n_following = size * (block + 1), max(0, min(size, n - size * (block + 1)))
                for t in range(tokens):
                    _ask_for_pieces(
                        w, stride, neurons, following + n_following * t // tokens,
                        following + n_following * (t + 1) // tokens, at, n_bytes,
                    )  # fmt: skip
                    i, end = get_int32(starts + 4 * t), get_int32(starts + 4 * (t + 1))
                    to, sums = out + t * out_step, scratch + t * scratch_step
                    while i + rows <= end:
                        several(w, stride, ids, i, i + rows, end - 1, weights, first, last, d, to, sums)
                        i += rows
                    if not fills_up:
                        while i + 2 <= end:
                            two(w, stride, ids, i, i + 2, end - 1, weights, first, last, d, to, sums)
                            i += 2
                        if i < end:
                            one(w, stride, ids, i, i + 1, end - 1, weights, first, last, d, to, sums)
                            i += 1
            for t in range(tokens):
                finish(first, last, d, out + t * out_step, 0, scratch + t * scratch_step)

    return Kernel(down, f"needed_ffn.down.{codec}")


@dataclass(frozen=True, eq=False)
class NeededBuffers:
    """What the calls write between each other, of layers after each other; made for a batch of so many tokens.

    values: f32 [F, T]. fired: u32 [F]. blocks: u8, the lists of each block. sums: u8 [workers, T, ...].
    """

    values: F32
    fired: I32
    blocks: NDArray[np.uint8]
    sums: NDArray[np.uint8]
    scratch: NDArray[np.uint8]

    @classmethod
    def make(cls, max_tokens: int, f: int, n_workers: int, down: PackedMatrix | None = None) -> NeededBuffers:
        """For layers with such a matrix as down, if it can be added up so. Cost: 12 bytes for each neuron and token, of
        which what is used is touched; where sums are not in order, a row for each worker and token, too."""
        blocks = sums = 0
        if down is not None and down.codec in SUMS:
            blocks = -(-f // _block_of(down.codec)[0]) * _block_bytes(down.codec, max_tokens)
            sums = SUMS[down.codec].scratch_bytes(down.n_cols)
        return cls(
            aligned_empty((f, max_tokens)), aligned_empty(f, np.int32), aligned_empty(blocks, np.uint8),
            aligned_empty((n_workers, max_tokens, -(-sums // 64) * 64), np.uint8),
            aligned_empty((n_workers, SCRATCH_BYTES), np.uint8),
        )  # fmt: skip


def _block_of(codec: str) -> tuple[int, int]:
    """Neurons of a block, and rows of a pass that is filled up."""
    return _BLOCK, rows_at_once(CODECS[codec]) if SUMS[codec].whole_passes else 1


def _block_bytes(codec: str, max_tokens: int) -> int:
    size, rows = _block_of(codec)
    return -(-(4 * _STARTS + 8 * max_tokens * (size + rows)) // 64) * 64


Vectors = dict[tuple[Format, int], NDArray[np.uint8]]


def vector_calls(
    x: F32, codecs: set[str], made: Vectors, stage: str
) -> tuple[dict[Format, NDArray[Any]], list[Call]]:  # fmt: skip
    """The rows of x as rows of these codecs are multiplied with, by format, and the calls that make them so; made:
    where they lie, of layers after each other."""
    forms: dict[Format, NDArray[Any]] = {"f32": x}
    calls = []
    n, d = x.shape
    for form in sorted({vector_format(codec) for codec in codecs} - {"f32"}):
        if (form, d) not in made:  # rows of a line more, so that they do not share cache sets
            made[form, d] = aligned_empty((n, -(-len(quantised_empty(form, d)) // 64) * 64 + 64), np.uint8)
        own = forms[form] = made[form, d]
        args = arguments(x, x.strides[0], own, own.strides[0], d)
        calls.append(Call(QUANTISE_ROWS[form], args, n, 1, stage, (x, own)))
    return forms, calls


def hidden_calls(
    gate: PackedMatrix | None, up: PackedMatrix, forms: dict[Format, NDArray[Any]], words: NDArray[np.uint32], ids: I32,
    n_ids: I64, kind: int, threshold: float, gate_bias: F32 | None, up_bias: F32 | None, counts: I64, tally: I64,
    places: I32, neurons: I32, n_opened: I64, buffers: NeededBuffers, stage: str,
) -> list[Call]:  # fmt: skip
    """buffers.values of the listed neurons, of those tokens that fire, and the list of neurons that any fires."""
    n, n_all = up.n_rows, np.array([up.n_rows])
    first, second = (up, None) if gate is None else (gate, up)
    biases = (up_bias, None) if gate is None else (gate_bias, up_bias)
    of_second: tuple[Any, ...] = (0, 0, 0, 0) if second is None else _matrix_words(second, forms)
    args = arguments(
        *_matrix_words(first, forms), *of_second, up.n_cols, *(0 if one is None else one for one in biases), kind,
        float(threshold), words, ids, n_ids, up.n_rows, buffers.values, buffers.values.shape[1], buffers.fired, counts,
        tally, buffers.scratch, buffers.scratch.shape[1],
    )  # fmt: skip
    keeps = (gate, up, forms, words, ids, n_ids, n_all, gate_bias, up_bias, counts, tally, buffers)
    needing = arguments(words, n_all, n, 0, 0, ids, n_ids, 0)
    listing = arguments(buffers.fired, n_ids, n, ids, places, neurons, n_opened, counts[3:])
    made = hidden_kernel(first.codec, None if second is None else second.codec)
    return [
        Call(list_words, needing, n, _WORDS_AT_ONCE, stage, keeps),
        Call(made, args, n, _GRAIN, stage, keeps, shared=True),
        Call(list_words, listing, n, _WORDS_AT_ONCE, stage, (*keeps, places, neurons, n_opened)),
    ]


def spread_calls(
    h: F32, tokens: I64, places: I32, neurons: I32, n_opened: I64, buffers: NeededBuffers, stage: str
) -> list[Call]:
    """The values into h [T, F], for another product."""
    args = arguments(
        buffers.values, buffers.values.shape[1], buffers.fired, places, neurons, n_opened, h.shape[1], h, h.strides[0],
        tokens,
    )  # fmt: skip
    return [Call(spread_values, args, h.shape[1], _GRAIN, stage, (h, tokens, places, neurons, n_opened, buffers))]


def adds_up(down_t: PackedMatrix) -> bool:
    """Whether rows of this matrix are added up by `down_calls`."""
    return down_t.codec in SUMS


def down_calls(
    w: PackedMatrix, tokens: I64, out: F32, places: I32, neurons: I32, n_opened: I64, buffers: NeededBuffers, stage: str
) -> list[Call]:
    """out [T, D] = the opened rows of w, weighted with each token's values."""
    size, rows = _block_of(w.codec)
    max_tokens, block_bytes = buffers.values.shape[1], _block_bytes(w.codec, buffers.values.shape[1])
    keeps = (w, tokens, out, places, neurons, n_opened, buffers)
    n_items = -(-w.n_rows // size)
    turning = arguments(
        buffers.values, max_tokens, buffers.fired, places, neurons, n_opened, size, rows, buffers.blocks, block_bytes,
        tokens, n_items,
    )  # fmt: skip
    args = arguments(
        w.data, stride_of(w), w.n_cols, neurons, n_opened, size, max_tokens * (size + rows), buffers.blocks,
        block_bytes, tokens, out, out.strides[0], buffers.sums, buffers.sums.strides[0], buffers.sums.strides[1],
    )  # fmt: skip
    return [
        Call(turn_values, turning, n_items, 1, stage, keeps),
        Call(down_kernel(w.codec), args, SUMS[w.codec].units(w.n_cols), 1, stage, keeps),
    ]


def _matrix_words(w: PackedMatrix, forms: dict[Format, NDArray[Any]]) -> tuple[Any, ...]:
    x = forms[vector_format(w.codec)]
    return w.data, stride_of(w), x, x.strides[0]
