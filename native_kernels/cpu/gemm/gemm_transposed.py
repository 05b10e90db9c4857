"""The transposed product of many tokens: rows weighted by each token's values and summed.

Rows of neurons that fire for no token are not read. gemm lays out the calls.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from native_kernels.cpu.blocks.unpack import UNPACKERS
from native_kernels.cpu.gemm.gemm_sums import ask_for, bytes_of, put_sums, take_sums
from native_kernels.cpu.gemm.tiles import PIECE, ROW_BYTES, TILE_ROWS, float_tile
from native_kernels.cpu.runtime.jit import Kernel, kernel
from native_kernels.cpu.runtime.simd import (
    LANES,
    floats,
    get_byte,
    get_float,
    get_int,
    get_int32,
    put_byte,
    put_float,
    put_floats,
    put_int,
    put_int32,
)

# Columns decoded at a time, and the stride of neurons in such a chunk: 9 x 128 bytes, which spreads them over all cache
# sets. Tokens take the place of rows.
COLUMNS = 256
_STEP = 4 * COLUMNS + 128
TOKENS = TILE_ROWS
_AHEAD = 8  # prefetch distance in neurons
_TILE, _FEW = float_tile(TILE_ROWS, 2, _STEP), float_tile(min(4, TILE_ROWS), 2, _STEP)
_FEW_TOKENS = min(4, TILE_ROWS)

SCRATCH_BYTES = PIECE * _STEP + 4 * 2 * LANES * TILE_ROWS


@kernel
def mark(args: int, lo: int, hi: int, worker: int) -> None:
    """Mark the neurons that are not 0 for every token. Items: neurons. args: h, its row stride, tokens, flags."""
    h, step, tokens, flags = get_int(args), get_int(args + 8), get_int(get_int(args + 16)), get_int(args + 24)
    for f in range(lo, hi):
        put_byte(flags + f, 0)
    for t in range(tokens):
        row = h + t * step
        for f in range(lo, hi):
            if get_float(row + 4 * f) != 0.0:
                put_byte(flags + f, 1)


@kernel
def list_marked(args: int, lo: int, hi: int, worker: int) -> None:
    """List the marked neurons, ascending. One item. args: as mark, then ids, count, F."""
    flags, ids, count, n = get_int(args + 24), get_int(args + 32), get_int(args + 40), get_int(args + 48)
    found = 0
    for f in range(n):
        put_int32(ids + 4 * found, f)
        found += get_byte(flags + f)
    put_int(count, found)


@kernel
def pack_firing(args: int, lo: int, hi: int, worker: int) -> None:
    """Items: PIECE of the listed neurons. args: as list_marked, then tiles, tile stride."""
    h, step, tokens = get_int(args), get_int(args + 8), get_int(get_int(args + 16))
    ids, count = get_int(args + 32), get_int(get_int(args + 40))
    tiles, tile_step = get_int(args + 56), get_int(args + 64)
    for piece in range(lo, hi):
        first = piece * PIECE
        last = min(count, first + PIECE)
        for t in range(tokens):
            source = h + t * step
            target = tiles + (t // TOKENS) * tile_step + (piece * TOKENS + t % TOKENS) * ROW_BYTES
            i = first
            while i < last:
                f = get_int32(ids + 4 * i)
                if i + LANES <= last and get_int32(ids + 4 * (i + LANES - 1)) - f == LANES - 1:
                    put_floats(target, floats(source + 4 * f))
                    i += LANES
                    target += 4 * LANES
                else:
                    put_float(target, get_float(source + 4 * f))
                    i += 1
                    target += 4


@cache
def transposed_kernel(codec: str) -> Kernel:
    """Sum the listed rows, weighted. Items: columns of w.

    args: w, its row stride, D, ids, count, tiles, tile stride, tokens, out, its row stride, scratch, scratch stride.
    """
    unpack = UNPACKERS[codec]
    piece_bytes = bytes_of(codec, COLUMNS)

    def matmul_t(args: int, lo: int, hi: int, worker: int) -> None:
        w, w_step, n_cols = get_int(args), get_int(args + 8), get_int(args + 16)
        ids, count = get_int(args + 24), get_int(get_int(args + 32))
        tiles, tile_step, tokens = get_int(args + 40), get_int(args + 48), get_int(get_int(args + 56))
        out, out_step = get_int(args + 64), get_int(args + 72)
        sums = get_int(args + 80) + worker * get_int(args + 88)
        unpacked = sums + 4 * 2 * LANES * TOKENS
        for column in range(lo, hi, COLUMNS):
            n_columns = min(COLUMNS, hi - column)
            skipped = column * piece_bytes // COLUMNS
            for first in range(0, max(count, 1), PIECE):  # an empty list gives a sum of 0
                n = min(PIECE, count - first)
                for i in range(n):
                    later = get_int32(ids + 4 * min(first + i + _AHEAD, count - 1))
                    ask_for(w + later * w_step + skipped, piece_bytes)
                    row = w + get_int32(ids + 4 * (first + i)) * w_step
                    unpack(row, n_cols, column, n_columns, unpacked + i * _STEP)
                for t in range(0, tokens, TOKENS):
                    a = tiles + (t // TOKENS) * tile_step + first // PIECE * (TOKENS * ROW_BYTES)
                    n_tokens = min(TOKENS, tokens - t)
                    for c in range(0, n_columns, 2 * LANES):
                        here = out + t * out_step + 4 * (column + c)
                        begin = np.int64(first == 0)
                        if first > 0:
                            take_sums(sums, here, out_step, n_tokens, n_columns - c, TOKENS, False)
                        if n_tokens <= _FEW_TOKENS:
                            _FEW(a, unpacked + 4 * c, n, sums, begin)
                        else:
                            _TILE(a, unpacked + 4 * c, n, sums, begin)
                        put_sums(sums, here, out_step, n_tokens, n_columns - c)

    return Kernel(matmul_t, f"gemm.matmul_t.{codec}")
