"""The FFN of several tokens, each on its own neurons: one product per neuron and token that needs it.

A worker reads gate, then up of its neurons once and multiplies each row by the vectors of the tokens that need it. If a
neuron is needed by one token in ten, that is a tenth of the work of a matrix product, and rows are read at nearly the
speed of memory. Nonzero values go through down in needed_down. Results do not depend on the number of workers.
union_ffn decides when this is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32, I32, I64, PackedMatrix
from native_kernels.cpu.ffn.activation_math import NUMBERS, activate
from native_kernels.cpu.ffn.matrices import FfnMatrices
from native_kernels.cpu.ffn.needed_dots import list_products, products_over
from native_kernels.cpu.products.activations import QUANTISE_ROWS, Format, quantised_empty
from native_kernels.cpu.products.gemv import stride_of, vector_format
from native_kernels.cpu.runtime.call import Call, Listed, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import Kernel, inline, kernel
from native_kernels.cpu.runtime.simd import (
    LANES,
    atomic_add,
    bits_of_words,
    count_bits,
    get_float,
    get_int,
    get_int32,
    lowest_bit,
    put_float,
    put_int,
    put_int32,
)

GROUP = 32  # neurons whose gates are multiplied before their ups
MOST_TOKENS = 32  # bits of a word
_GRAIN = 16
_WORDS_AT_ONCE = 256  # minimum number that a worker scans
# Layout of a worker's scratch: products of a group, words of a group, places that fired, addresses of rows and vectors.
_PRODUCTS = GROUP * MOST_TOKENS
_VALUES, _WORDS, _FIRED = 0, 4 * _PRODUCTS, 4 * _PRODUCTS + 4 * GROUP
_ROWS = _FIRED + 4 * GROUP
_VECTORS = _ROWS + 8 * (_PRODUCTS + 4)
SCRATCH_BYTES = _VECTORS + 8 * _PRODUCTS


@cache
def hidden_kernel(first: str, second: str | None) -> Kernel:
    """Compute the inputs of down. Items represent the listed neurons proportionally.

    args: first w, its row stride, its vectors, their stride; the same of the second; D, biases of both, kind,
    threshold, words, ids, their number (address), number of items, values [N, T], T, fired u32 [N], counts i64 [5],
    address of the tally's address (which may be 0: none), scratch, its stride.
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
        n_computed = n_opened = n_any = n_fired = 0
        for i in range(start, stop, GROUP):
            m = min(GROUP, stop - i)
            total = 0
            for k in range(m):
                neuron = get_int32(ids + 4 * (i + k))
                bits = get_int32(words + 4 * neuron) & 0xFFFFFFFF
                put_int32(own + 4 * k, bits)
                total = list_products(bits, w1 + neuron * stride1, x1, step1, rows, xs, total)
            for k in range(4):  # read next: their ups, or the next group
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
            n_any += n_open
        atomic_add(counts, n_computed)
        atomic_add(counts + 8, n_opened)
        atomic_add(counts + 16, n_fired)
        atomic_add(counts + 24, stop - start)
        atomic_add(counts + 32, n_any)

    return Kernel(hidden, f"needed_ffn.hidden.{first}" + (f".{second}" if second else ""))


@inline
def bits_at(words: int, start: int, stop: int, mask: int) -> int:
    """Return which of LANES words, among those before `stop`, share a bit with the mask (-1: any bit)."""
    if stop - start >= LANES:
        return int(bits_of_words(words + 4 * start, mask))
    bits = 0
    for i in range(start, stop):
        bits |= (get_int32(words + 4 * i) & mask != 0) << (i - start)
    return bits


@kernel
def list_words(args: int, lo: int, hi: int, worker: int) -> None:
    """List the nonzero words, ascending. Items represent the words proportionally.

    Every worker counts those before its range, which saves a barrier.
    args: words u32, their number (address), number of items, ids (0: a word's own place), places i32 (0: not wanted),
    the ids at those places i32, count.
    """
    words, n, of, ids = get_int(args), get_int(get_int(args + 8)), get_int(args + 16), get_int(args + 24)
    places, listed = get_int(args + 32), get_int(args + 40)
    first, last = n * lo // of, n * hi // of
    found = 0
    for start in range(0, first, LANES):
        found += count_bits(bits_at(words, start, first, -1))
    for start in range(first, last, LANES):
        bits = bits_at(words, start, last, -1)
        while bits != 0:
            i = start + lowest_bit(bits)
            put_int32(listed + 4 * found, get_int32(ids + 4 * i) if ids != 0 else i)
            if places != 0:
                put_int32(places + 4 * found, i)
            found += 1
            bits &= bits - 1
    if hi == of:
        put_int(get_int(args + 48), found)


@kernel
def spread_values(args: int, lo: int, hi: int, worker: int) -> None:
    """Scatter the values of the active neurons to their places in h [T, F]. Items represent those neurons
    proportionally.

    args: values, T, fired, places, neurons, count (address), number of items, h, its row stride, tokens.
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


@dataclass(frozen=True, eq=False)
class NeededBuffers:
    """Intermediate arrays of the calls, shared by all layers, for a fixed number of tokens.

    values: f32 [F, T], per neuron the contiguous values of the tokens that fire it. fired: u32 [F], one bit per such
    token. Both are indexed by place in the list of needed neurons. scratch: u8 [workers, ...].
    """

    values: F32
    fired: I32
    scratch: NDArray[np.uint8]

    @classmethod
    def make(cls, max_tokens: int, f: int, n_workers: int) -> NeededBuffers:
        """Allocate. Cost: 4 bytes per neuron and token; untouched pages cost nothing."""
        return cls(
            aligned_empty((f, max_tokens)), aligned_empty(f, np.int32),
            aligned_empty((n_workers, SCRATCH_BYTES), np.uint8),
        )  # fmt: skip


Vectors = dict[tuple[Format, int], NDArray[np.uint8]]


def vector_calls(
    x: F32, codecs: set[str], made: Vectors, stage: str
) -> tuple[dict[Format, NDArray[Any]], list[Call]]:  # fmt: skip
    """Return the rows of x in the input formats of these codecs, and the calls that convert them.

    made: the arrays by format and width, shared by all layers. The calls have no barrier: a call with one that reads
    none of them must follow.
    """
    forms: dict[Format, NDArray[Any]] = {"f32": x}
    calls = []
    n, d = x.shape
    for form in sorted({vector_format(codec) for codec in codecs} - {"f32"}):
        if (form, d) not in made:  # padded by a line per row, so that rows do not share cache sets
            made[form, d] = aligned_empty((n, -(-len(quantised_empty(form, d)) // 64) * 64 + 64), np.uint8)
        own = forms[form] = made[form, d]
        args = arguments(x, x.strides[0], own, own.strides[0], d)
        calls.append(Call(QUANTISE_ROWS[form], args, n, 1, stage, (x, own), barrier=False))
    return forms, calls


def hidden_calls(
    ffn: FfnMatrices, forms: dict[Format, NDArray[Any]], words: NDArray[np.uint32], needed: Listed, counts: I64,
    tally: I64, buffers: NeededBuffers, stage: str,
) -> list[Call]:  # fmt: skip
    """List the neurons that any token needs, and compute buffers.values and buffers.fired for them.

    counts: as in union_ffn.union_calls. tally i64 [1]: as in UnionBuffers.
    """
    first, second, n = ffn.first, ffn.second, ffn.up.n_rows
    n_all = np.array([n])
    of_second: tuple[Any, ...] = (0, 0, 0, 0) if second is None else _matrix_words(second, forms)
    args = arguments(
        *_matrix_words(first, forms), *of_second, ffn.up.n_cols, *(0 if one is None else one for one in ffn.biases),
        NUMBERS[ffn.activation], float(ffn.threshold), words, *needed, n, buffers.values, buffers.values.shape[1],
        buffers.fired, counts, tally, buffers.scratch, buffers.scratch.shape[1],
    )  # fmt: skip
    keeps = (ffn, forms, words, needed, n_all, counts, tally, buffers)
    listing = arguments(words, n_all, n, 0, 0, *needed)
    made = hidden_kernel(first.codec, None if second is None else second.codec)
    return [
        Call(list_words, listing, n, _WORDS_AT_ONCE, stage, keeps),
        Call(made, args, n, _GRAIN, stage, keeps, shared=True),
    ]


def spread_calls(
    h: F32, tokens: I64, needed: Listed, places: I32, active: Listed, buffers: NeededBuffers, stage: str
) -> list[Call]:  # fmt: skip
    """List the neurons that any token fires in `active`, and scatter their values to h [T, F] for another product.

    places: their places in the list of needed neurons.
    """
    f = h.shape[1]
    listing = arguments(buffers.fired, needed.n, f, needed.ids, places, *active)
    args = arguments(
        buffers.values, buffers.values.shape[1], buffers.fired, places, *active, f, h, h.strides[0], tokens
    )
    keeps = (h, tokens, needed, places, active, buffers)
    return [
        Call(list_words, listing, f, _WORDS_AT_ONCE, stage, keeps),
        Call(spread_values, args, f, _GRAIN, stage, keeps),
    ]


def _matrix_words(w: PackedMatrix, forms: dict[Format, NDArray[Any]]) -> tuple[Any, ...]:
    x = forms[vector_format(w.codec)]
    return w.data, stride_of(w), x, x.strides[0]
