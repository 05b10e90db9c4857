"""Attention of one or many queries over the blocks of a KV cache: exact softmax in one pass over keys and values.

Specification: attention of native_kernels.reference. Queries that share a key-value head are rows of one item, so that
its keys and values are read and converted once for all of them. For a single token the positions are split; the number
of splits follows from the model's shape alone, and the worker that finishes a head's last split combines them in order.
So the result does not depend on the number of threads. Softmax is computed block by block relative to the largest score
so far (Milakov and Gimelshein, arXiv 1805.02867).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from native_kernels.backend import F32, I64, PLAIN_SCORING, Scoring
from native_kernels.cpu.attention.attention_tiles import TILE, BlockValues, converted_of, mix_of, row_of, scores_of
from native_kernels.cpu.attention.kv_store import CachePlace
from native_kernels.cpu.products.vector_math import exp, put_some_floats, some_floats, tanh
from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import Kernel
from native_kernels.cpu.runtime.simd import (
    LANES,
    VF,
    VI,
    F,
    add,
    atomic_add,
    atomic_put,
    constant,
    div,
    floats,
    fma,
    get_float,
    get_int,
    i64,
    mul,
    operation,
    put_float,
    put_floats,
    splat,
    spread,
    total,
    zero,
)
from native_kernels.kv_blocks import BLOCK, KvCodec, KvLayout
from native_kernels.specs import Temperature

LOWEST = -3.0e38  # "no score yet"; finite, so that differences are not NaN
PARTS = 64  # minimum splits of one token's work over all key-value heads, to share it evenly among many threads
# Rows from which a block is converted once for all of them, as in prefill. q8_0 gains 9 to 40 %; float16 loses 1 to 4 %
# on Zen 5 and gains 6 to 18 % on a Xeon, where two instructions convert it.
_CONVERTED_FOR: dict[KvCodec, int] = {"f32": 1 << 30, "f16": 1 << 30, "q8_0": 17}
_QUERY_ROWS = 32  # rows of an item in prefill: queries times heads that share keys


@operation(F, F, i64, i64, i64)
def _between(b: Any, x: Any, first: Any, lower: Any, upper: Any) -> Any:
    """x where the lane's position, counted from `first`, is in [lower, upper), else minus infinity."""
    from llvmlite import ir

    i32 = ir.IntType(32)
    places = b.add(ir.Constant(VI, list(range(LANES))), splat(b, b.trunc(first, i32), VI))
    seen = b.and_(
        b.icmp_signed(">=", places, splat(b, b.trunc(lower, i32), VI)),
        b.icmp_signed("<", places, splat(b, b.trunc(upper, i32), VI)),
    )
    return b.select(seen, x, constant(VF, float("-inf")))


@cache
def _kernel(codec: KvCodec, shared: bool) -> Kernel:
    scores_of_block, mix_block = scores_of(codec, by_position=shared), mix_of(codec)
    convert_keys, convert_values = converted_of(codec)
    scores_of_floats, mix_floats = scores_of("f32", asks=False, by_position=shared), mix_of("f32", asks=False)
    converted_for = _CONVERTED_FOR[codec]
    peak_of_block, weigh_block = row_of(BLOCK)
    peak_of_tile, weigh_tile = row_of(TILE)

    def attend(args: int, lo: int, hi: int, worker: int) -> None:
        """args, in words: 0 q, 1 token stride, 2 out, 3 token stride, 4 to 14 CachePlace.words, 15 heads, 16 tokens, 17
        scale, 18 softcap, 19 window, 20 tokens of an item, 21 splits, 22 scratch, 23 its bytes per worker, 24 partial
        sums, 25 counts of finished splits, 26 sinks, 27 to 29 the temperature's strength, length and offset, 30
        whether the window is a chunk, 31 whether the queries see all positions. 0: no cap, no window, no sinks, no
        temperature.
        """
        position, layer_bytes = get_int(get_int(args + 32)), get_int(get_int(args + 48))
        n_kv_heads, head_dim, padded_dim = get_int(args + 64), get_int(args + 72), get_int(args + 80)
        block_bytes, values_at, scales_at = get_int(args + 88), get_int(args + 104), get_int(args + 112)
        n_heads, n_tokens = get_int(args + 120), get_int(args + 128)
        scale, cap = spread(get_float(args + 136)), get_float(args + 144)
        window, tile, parts = get_int(args + 152), get_int(args + 160), get_int(args + 168)
        sinks, strength, length = get_int(args + 208), get_float(args + 216), get_int(args + 224)
        offset, chunked, sees_all = get_int(args + 232), get_int(args + 240), get_int(args + 248)
        group = n_heads // n_kv_heads
        head_bytes = layer_bytes // n_kv_heads
        key_dim = padded_dim if shared else head_dim
        layer = get_int(get_int(args + 40)) + get_int(args + 56) * layer_bytes
        skipped = position & (tile - 1)  # of the first tile
        n_tiles = (skipped + n_tokens + tile - 1) // tile
        most_rows = tile * group
        # scratch: queries [rows, padded_dim], scores [rows, TILE], weight sums [rows, LANES], maxima [rows],
        # sums [rows, padded_dim], a block's keys or values as float32 [BLOCK, padded_dim]
        queries = get_int(args + 176) + get_int(args + 184) * worker
        weights = queries + 4 * most_rows * padded_dim
        normals = weights + 4 * most_rows * TILE
        peaks = normals + 4 * most_rows * LANES
        own_sums = peaks + (4 * most_rows + 63) // 64 * 64
        converted = own_sums + 4 * most_rows * padded_dim
        partial_bytes = 4 * group * (padded_dim + LANES)  # sums and, per row, its normaliser and its maximum
        for item in range(lo, hi):
            part, rest = item % parts, item // parts
            # Alternate first and last tiles: later tiles see more positions.
            turn = rest % n_tiles
            place = turn // 2 if turn % 2 == 0 else n_tiles - 1 - turn // 2
            head = rest // n_tiles
            if head >= n_kv_heads:
                continue
            first_token = max(0, place * tile - skipped)
            tokens = min((place + 1) * tile - skipped, n_tokens) - first_token
            rows = tokens * group
            begin, end = 0, position + (n_tokens if sees_all != 0 else first_token + tokens)
            if window > 0:
                begin = max(0, position - skipped + place * tile + 1 - window)
                if chunked != 0:
                    begin = (position - skipped + place * tile) // window * window
            number = begin // BLOCK
            n_blocks = (end + BLOCK - 1) // BLOCK - number
            used = min(parts, max(1, n_blocks * BLOCK // TILE))  # a split has at least one tile
            if part >= used:
                continue
            last = number + n_blocks * (part + 1) // used
            number += n_blocks * part // used
            sums = own_sums
            if used > 1:
                sums = get_int(args + 192) + partial_bytes * (head * parts + part)
            for row in range(rows):
                source = get_int(args) + get_int(args + 8) * (first_token + row // group)
                source += 4 * head_dim * (head * group + row % group)
                factor = scale
                if strength > 0.0:
                    number_of_lengths = (position + offset + first_token + row // group) // length
                    factor = mul(scale, spread(1.0 + strength * math.log(1.0 + number_of_lengths)))
                for d in range(0, padded_dim, LANES):
                    value = mul(some_floats(source + 4 * d, max(0, head_dim - d)), factor)
                    put_floats(queries + 4 * (padded_dim * row + d), value)
                    put_floats(sums + 4 * (padded_dim * row + d), zero())
                put_floats(normals + 4 * LANES * row, zero())
                put_float(peaks + 4 * row, LOWEST)
                if sinks != 0 and part == 0:  # the first score, whose value is 0
                    put_float(peaks + 4 * row, get_float(sinks + 4 * (head * group + row % group)))
                    put_float(normals + 4 * LANES * row, np.float32(1.0))
            while number < last:
                # A tile at once, for the sake of softmax. A single row is memory-bound and reads straight on: 0.75 of
                # the speed of a stream instead of 0.5 (q8_0, 32 heads of 128).
                size = min(TILE // BLOCK, last - number)
                if size < TILE // BLOCK or most_rows == 1:
                    size = 1
                blocks = layer + head_bytes * head + block_bytes * number
                start = number * BLOCK
                ahead = size * block_bytes  # as far as the other product reads meanwhile
                for i in range(size):
                    block = blocks + block_bytes * i
                    mine = weights + 4 * BLOCK * i
                    if rows >= converted_for:
                        if shared:
                            convert_values(block, block + scales_at, padded_dim, BLOCK, converted, ahead)
                        else:
                            convert_keys(block, head_dim, converted, ahead)
                        scores_of_floats(queries, 4 * padded_dim, rows, converted, key_dim, mine, 0)
                    else:
                        scores_of_block(queries, 4 * padded_dim, rows, block, key_dim, mine, ahead)
                for row in range(rows):
                    mine = weights + 4 * TILE * row
                    upper = end if sees_all != 0 else position + first_token + row // group + 1
                    lower = max(0, upper - window) if window > 0 else 0
                    if chunked != 0:
                        lower = (upper - 1) // window * window
                    if cap > 0.0 or start + size * BLOCK > upper or start < lower:
                        for i in range(0, size * BLOCK, LANES):
                            value = floats(mine + 4 * i)
                            if cap > 0.0:
                                value = mul(tanh(mul(value, spread(1.0 / cap))), spread(cap))
                            put_floats(mine + 4 * i, _between(value, start + i, lower, upper))
                    before, own = get_float(peaks + 4 * row), normals + 4 * LANES * row
                    highest = peak_of_block(mine) if size == 1 else peak_of_tile(mine)
                    if highest > before:
                        factor = exp(spread(before - highest))
                        put_float(peaks + 4 * row, highest)
                        put_floats(own, mul(floats(own), factor))
                        for d in range(0, padded_dim, LANES):
                            place = sums + 4 * (padded_dim * row + d)
                            put_floats(place, mul(floats(place), factor))
                    else:
                        highest = before
                    added = weigh_block(mine, highest) if size == 1 else weigh_tile(mine, highest)
                    put_floats(own, add(floats(own), added))
                for i in range(size):
                    block = blocks + block_bytes * i
                    n = min(BLOCK, end - start - BLOCK * i)
                    mine = weights + 4 * BLOCK * i
                    if rows >= converted_for:
                        convert_values(block + values_at, block + scales_at, padded_dim, n, converted, ahead)
                        mix_floats(mine, rows, BlockValues(converted, 0), padded_dim, n, sums, 0)
                    else:
                        values = BlockValues(block + values_at, block + scales_at)
                        mix_block(mine, rows, values, padded_dim, n, sums, ahead)
                number += size
            if used == 1:
                for row in range(rows):
                    target = get_int(args + 16) + get_int(args + 24) * (first_token + row // group)
                    target += 4 * head_dim * (head * group + row % group)
                    over = spread(1.0 / total(floats(normals + 4 * LANES * row)))
                    for d in range(0, head_dim, LANES):
                        value = mul(floats(sums + 4 * (padded_dim * row + d)), over)
                        put_some_floats(target + 4 * d, head_dim - d, value)
                continue
            for row in range(rows):
                kept = sums + 4 * (group * padded_dim + LANES * row)
                put_float(kept, total(floats(normals + 4 * LANES * row)))
                put_float(kept + 4, get_float(peaks + 4 * row))
            count = get_int(args + 200) + 64 * head
            if atomic_add(count, 1) != used - 1:
                continue
            atomic_put(count, 0)
            all_sums = get_int(args + 192) + partial_bytes * head * parts
            for row in range(rows):
                target = get_int(args + 16) + 4 * head_dim * (head * group + row)
                kept = all_sums + 4 * (group * padded_dim + LANES * row)
                highest = LOWEST
                for other in range(used):
                    highest = max(highest, get_float(kept + partial_bytes * other + 4))
                normal = zero()
                for other in range(used):
                    one = kept + partial_bytes * other
                    factor = exp(spread(get_float(one + 4) - highest))
                    put_floats(one, mul(factor, spread(get_float(one))))
                    normal = add(normal, floats(one))
                    put_floats(one, factor)
                for d in range(0, head_dim, LANES):
                    value = zero()
                    for other in range(used):
                        place = all_sums + partial_bytes * other + 4 * (padded_dim * row + d)
                        value = fma(floats(kept + partial_bytes * other), floats(place), value)
                    put_some_floats(target + 4 * d, head_dim - d, div(value, normal))

    return Kernel(attend, f"attention.attend-{codec}{'-shared' if shared else ''}")


@dataclass(frozen=True, eq=False)
class AttentionBuffers:
    """Working memory of attention, shared by all layers, because calls run one after another."""

    scratch: F32
    partial: F32
    counts: I64


def attention_buffers(
    n_heads: int, n_kv_heads: int, layout: KvLayout, n_tokens: int, n_workers: int
) -> AttentionBuffers:
    """Allocate buffers for attention_calls with up to n_tokens tokens and n_workers threads."""
    group, parts = n_heads // n_kv_heads, _parts(n_kv_heads, n_tokens)
    scratch = _scratch_floats(_tile(group, n_tokens) * group, layout)
    partial = n_kv_heads * parts * group * (layout.padded_dim + LANES) if parts > 1 else 1
    counts: I64 = aligned_empty(8 * n_kv_heads, np.int64)
    return AttentionBuffers(aligned_empty((n_workers, scratch)), aligned_empty(partial), counts)


def attention_calls(
    q: F32,
    out: F32,
    place: CachePlace,
    layer: int,
    buffers: AttentionBuffers,
    scoring: Scoring = PLAIN_SCORING,
    stage: str = "attention",
) -> list[Call]:
    """Write to out the attention of q over the cache, which already holds the keys and values of these tokens.

    Shapes: q, out [T, H, head_dim], heads contiguous.
    """
    n_tokens, n_heads, head_dim = q.shape
    scale, softcap, window, sinks, temperature, chunked, causal = scoring
    growth = Temperature(0.0, 1) if temperature is None else temperature
    layout, n_kv_heads = place.layout, place.n_kv_heads
    assert head_dim == layout.head_dim
    assert q.strides[1:] == out.strides[1:] == (4 * head_dim, 4)
    group, parts = n_heads // n_kv_heads, _parts(n_kv_heads, n_tokens)
    tile = _tile(group, n_tokens)
    args = arguments(
        q, q.strides[0], out, out.strides[0], *place.words(layer), n_heads, n_tokens,
        float(head_dim**-0.5 if scale is None else scale), float(softcap or 0.0), window or 0, tile, parts,
        buffers.scratch, buffers.scratch.strides[0], buffers.partial, buffers.counts, 0 if sinks is None else sinks,
        float(growth.strength), growth.length, growth.offset, int(chunked and window is not None),
        int(not causal),
    )  # fmt: skip
    items = n_kv_heads * parts * (-(-n_tokens // tile) + (tile > 1))  # one more if the ends are not aligned
    keeps = (q, out, place, buffers, sinks)
    return [Call(_kernel(layout.codec, layout.shared), args, items, 1, stage, keeps, tile=1)]


def _parts(n_kv_heads: int, n_tokens: int) -> int:
    """Return the splits of one head's positions; 1 unless there is a single token."""
    return max(1, PARTS // n_kv_heads) if n_tokens == 1 else 1


def _tile(group: int, n_tokens: int) -> int:
    """Return the tokens of an item. Those of a prompt have a power of two, and begin at a multiple of it.

    So their positions lie in one block, and results do not depend on where a prompt is cut.
    """
    return 1 if n_tokens == 1 else 1 << (max(1, _QUERY_ROWS // group).bit_length() - 1)


def _scratch_floats(rows: int, layout: KvLayout) -> int:
    """Return one worker's scratch size, in whole cache lines."""
    queries, peaks = rows * layout.padded_dim, -(-rows // 16) * 16
    return queries + rows * (TILE + LANES + layout.padded_dim) + peaks + BLOCK * layout.padded_dim
