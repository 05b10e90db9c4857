"""Products of many tokens in bfloat16 tiles, for CPUs with AMX; rows are decoded and rounded chunk by chunk.

Quantised weights and their tokens are rounded to bfloat16's eight bits: the relative error of a product is at most 2^-7
+ 2^-16. float16 weights and their tokens are split into two parts, as are the tokens of bfloat16 weights: at most 3 *
2^-16. Sums are float32, in a fixed order. Byte tiles would need a separate sum for every 32 columns with one scale,
converted, scaled and added outside of the tiles, which takes longer than the products.

gemm lays out the calls.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from native_kernels.cpu.blocks.unpack import UNPACKERS
from native_kernels.cpu.gemm.amx import (
    AHEAD_BYTES,
    CONFIGURATION_BYTES,
    SIDE,
    STEP,
    Factor,
    configure,
    pairs_of_columns,
    pairs_of_rows,
    product,
    release,
    rounding,
)
from native_kernels.cpu.gemm.gemm_floats import write_sums
from native_kernels.cpu.gemm.gemm_sums import ask_for, bytes_of, put_sums, take_sums
from native_kernels.cpu.runtime.jit import Kernel
from native_kernels.cpu.runtime.simd import (
    ISA,
    LANES,
    Rows,
    floats,
    get_float,
    get_int,
    get_int32,
    put_float,
    put_floats,
    zero,
)

PANEL = 2 * SIDE  # tokens of a panel
PIECE = 256  # columns decoded at a time: whole blocks of every codec
_ROW_BYTES = 2 * PIECE + 64  # of a decoded row; not a power of two, so that rows do not share cache sets
# Rows decoded at a time. 512 tokens of Q4_0 reach 715 to 760 billion products a second on one thread of a Xeon of 2023;
# with half as many rows 580 to 660, and in chunks of twice the columns 620 to 645.
_BLOCK_ROWS = 256
_BLOCK_TOKENS = 512  # tokens whose sums stay in the cache beside the rows

# For the transposed product: columns decoded at a time, the stride of pairs of neurons in such a chunk, and its number
# of neurons, whose values are in rows of ROW_BYTES.
COLUMNS = 256
_PAIR_BYTES = 4 * COLUMNS + 64
NEURONS = 512
ROW_BYTES = 2 * NEURONS + 64
_AHEAD = 8  # prefetch distance in neurons

_TEMPORARY = 4 * max(PIECE, COLUMNS, NEURONS) + 256  # a row as float32
SCRATCH_BYTES = CONFIGURATION_BYTES + max(
    _TEMPORARY + 2 * _BLOCK_ROWS * _ROW_BYTES + 4 * _BLOCK_ROWS * _BLOCK_TOKENS,
    2 * _TEMPORARY + NEURONS * _PAIR_BYTES + 4 * PANEL * PANEL,
)

# Parts of weights and of tokens; 1 for every other codec.
_PARTS = {"f16": (2, 2), "bf16": (1, 2)}


def takes_tiles(codec: str) -> bool:
    """Return whether rows in this codec have a tile product on this CPU. float32 has none, because it keeps all its
    bits.
    """
    return ISA.tiles and codec in UNPACKERS and codec != "f32"


def weight_parts(codec: str) -> int:
    return _PARTS.get(codec, (1, 1))[0]


def token_parts(codec: str) -> int:
    return _PARTS.get(codec, (1, 1))[1]


def partial_products(codec: str) -> int:
    """Return how many bfloat16 products one product takes."""
    return weight_parts(codec) + token_parts(codec) - 1


@cache
def pack_tiles(parts: int) -> Kernel:
    """Items: STEP columns. args: x, its row stride, D, tokens, panels, panel stride."""
    lay = pairs_of_columns(parts)

    def pack(args: int, lo: int, hi: int, worker: int) -> None:
        x, step, n_cols = get_int(args), get_int(args + 8), get_int(args + 16)
        tokens, panels, panel_step = get_int(get_int(args + 24)), get_int(args + 32), get_int(args + 40)
        for t in range(0, tokens, LANES):
            panel = panels + (t // PANEL) * panel_step + 4 * (t % PANEL)
            for column in range(STEP * lo, STEP * hi, LANES):
                left = max(0, min(LANES, n_cols - column))
                target = panel + 2 * PANEL * column
                lay(x + t * step + 4 * column, step, tokens - t, left, target, 4 * PANEL, panel_step // parts)

    return Kernel(pack, f"gemm.pack_tiles.{parts}")


@cache
def tile_kernel(codec: str) -> Kernel:
    """Multiply rows by tokens in tiles. Items: rows of w.

    args: w, its row stride, D, panels, panel stride, tokens, out, its row stride, scratch, scratch stride.
    """
    unpack, in_weights, in_tokens = UNPACKERS[codec], weight_parts(codec), token_parts(codec)
    rounded = rounding(in_weights)
    many, few = (product(in_weights, in_tokens, wide) for wide in (True, False))
    piece_bytes = bytes_of(codec, PIECE)
    low = _BLOCK_ROWS * _ROW_BYTES

    def matmul(args: int, lo: int, hi: int, worker: int) -> None:
        w, w_step, n_cols = get_int(args), get_int(args + 8), get_int(args + 16)
        panels, panel_step, tokens = get_int(args + 24), get_int(args + 32), get_int(get_int(args + 40))
        out, out_step = get_int(args + 48), get_int(args + 56)
        memory = get_int(args + 64) + worker * get_int(args + 72)
        temporary = memory + CONFIGURATION_BYTES
        unpacked = temporary + _TEMPORARY
        sums = unpacked + in_weights * low
        token_low = panel_step // in_tokens
        configure(memory)
        for first_token in range(0, tokens, _BLOCK_TOKENS):
            n_tokens = min(_BLOCK_TOKENS, tokens - first_token)
            for first_row in range(lo, hi, _BLOCK_ROWS):
                n_rows = min(_BLOCK_ROWS, hi - first_row)
                for k in range(0, n_cols, PIECE):
                    n = min(PIECE, n_cols - k)
                    steps = (n + STEP - 1) // STEP
                    # Decoded next: the following columns, or the first columns of the following rows.
                    ahead = piece_bytes if k + PIECE < n_cols else _BLOCK_ROWS * w_step - (k // PIECE) * piece_bytes
                    for r in range(n_rows):
                        row = w + (first_row + r) * w_step
                        ask_for(row + (k // PIECE) * piece_bytes + ahead, piece_bytes)
                        unpack(row, n_cols, k, n, temporary)
                        for i in range(n, STEP * steps):
                            put_float(temporary + 4 * i, np.float32(0.0))
                        rounded(temporary, STEP * steps, unpacked + r * _ROW_BYTES, low)
                    begin = np.int64(k == 0)
                    for t in range(0, n_tokens, PANEL):
                        panel = panels + ((first_token + t) // PANEL) * panel_step + 2 * PANEL * k
                        # Read after this panel: the next one, or the next columns of the first one.
                        later = panel + panel_step
                        if t + PANEL >= n_tokens:
                            later = panels + first_token // PANEL * panel_step + 2 * PANEL * (k + PIECE)
                        for r in range(0, n_rows, PANEL):
                            a = Factor(unpacked + r * _ROW_BYTES, _ROW_BYTES, low)
                            x = Factor(panel, 4 * PANEL, token_low)
                            c = Rows(sums + 4 * (_BLOCK_ROWS * t + PANEL * r), 4 * PANEL)
                            asked = later + r // PANEL * steps * AHEAD_BYTES
                            if n_tokens - t > SIDE:
                                many(a, x, steps, c, begin, asked)
                            else:
                                few(a, x, steps, c, begin, asked)
                for t in range(0, n_tokens, PANEL):
                    here = out + (first_token + t) * out_step + 4 * first_row
                    write_sums(sums + 4 * _BLOCK_ROWS * t, 4 * PANEL, min(PANEL, n_tokens - t), n_rows, here, out_step)
        release()

    return Kernel(matmul, f"gemm.matmul_tiles.{codec}")


@cache
def pack_firing_tiles(parts: int) -> Kernel:
    """Items: NEURONS of the listed neurons. args: as gemm_transposed.list_marked, then tiles, tile stride, scratch, its
    stride.

    Tiles: bfloat16 [tiles, chunks, parts, PANEL, ROW_BYTES / 2].
    """
    rounded = rounding(parts)
    low = PANEL * ROW_BYTES

    def pack(args: int, lo: int, hi: int, worker: int) -> None:
        h, step, tokens = get_int(args), get_int(args + 8), get_int(get_int(args + 16))
        ids, count = get_int(args + 32), get_int(get_int(args + 40))
        tiles, tile_step = get_int(args + 56), get_int(args + 64)
        temporary = get_int(args + 72) + worker * get_int(args + 80) + CONFIGURATION_BYTES
        for piece in range(lo, hi):
            first = piece * NEURONS
            last = min(count, first + NEURONS)
            if last <= first:
                return
            n = (last - first + STEP - 1) // STEP * STEP
            for t in range(tokens):
                source, target = h + t * step, temporary
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
                for rest in range(last - first, n):
                    put_float(temporary + 4 * rest, np.float32(0.0))
                tile = tiles + (t // PANEL) * tile_step + piece * (parts * low)
                rounded(temporary, n, tile + (t % PANEL) * ROW_BYTES, low)

    return Kernel(pack, f"gemm.pack_firing_tiles.{parts}")


@cache
def transposed_tile_kernel(codec: str) -> Kernel:
    """Sum the listed rows, weighted. Items: columns of w.

    args: w, its row stride, D, ids, count, tiles, tile stride, tokens, out, its row stride, scratch, scratch stride.
    """
    unpack, in_weights, in_tokens = UNPACKERS[codec], weight_parts(codec), token_parts(codec)
    rounded = pairs_of_rows(in_weights)
    multiply = product(in_tokens, in_weights, True)
    piece_bytes = bytes_of(codec, COLUMNS)
    low = NEURONS // 2 * _PAIR_BYTES
    token_low = PANEL * ROW_BYTES

    def matmul_t(args: int, lo: int, hi: int, worker: int) -> None:
        w, w_step, n_cols = get_int(args), get_int(args + 8), get_int(args + 16)
        ids, count = get_int(args + 24), get_int(get_int(args + 32))
        tiles, tile_step, tokens = get_int(args + 40), get_int(args + 48), get_int(get_int(args + 56))
        out, out_step = get_int(args + 64), get_int(args + 72)
        memory = get_int(args + 80) + worker * get_int(args + 88)
        even = memory + CONFIGURATION_BYTES
        odd = even + _TEMPORARY
        sums = odd + _TEMPORARY
        unpacked = sums + 4 * PANEL * PANEL
        configure(memory)
        for column in range(lo, hi, COLUMNS):
            n_columns = min(COLUMNS, hi - column)
            wide = (n_columns + 2 * SIDE - 1) // (2 * SIDE) * (2 * SIDE)
            skipped = column * piece_bytes // COLUMNS
            for first in range(0, max(count, 1), NEURONS):  # an empty list gives a sum of 0
                n = min(NEURONS, count - first)
                steps = (n + STEP - 1) // STEP
                for i in range(0, STEP * steps, 2):
                    for one in range(2):
                        target = even if one == 0 else odd
                        if i + one < n:
                            later = get_int32(ids + 4 * min(first + i + one + _AHEAD, count - 1))
                            ask_for(w + later * w_step + skipped, piece_bytes)
                            row = w + get_int32(ids + 4 * (first + i + one)) * w_step
                            unpack(row, n_cols, column, n_columns, target)
                        else:
                            for place in range(0, wide, LANES):
                                put_floats(target + 4 * place, zero())
                    rounded(even, odd, wide, unpacked + i // 2 * _PAIR_BYTES, low)
                begin = np.int64(first == 0)
                for t in range(0, tokens, PANEL):
                    a = tiles + (t // PANEL) * tile_step + first // NEURONS * (in_tokens * token_low)
                    n_tokens = min(PANEL, tokens - t)
                    for c in range(0, n_columns, 2 * SIDE):
                        here = out + t * out_step + 4 * (column + c)
                        hidden, rows = Factor(a, ROW_BYTES, token_low), Factor(unpacked + 4 * c, _PAIR_BYTES, low)
                        asked = a + tile_step + c // (2 * SIDE) * steps * AHEAD_BYTES
                        if n_tokens == PANEL and n_columns - c >= 2 * SIDE:
                            multiply(hidden, rows, steps, Rows(here, out_step), begin, asked)
                        else:
                            if first > 0:
                                take_sums(sums, here, out_step, n_tokens, n_columns - c, PANEL, False)
                            multiply(hidden, rows, steps, Rows(sums, 4 * PANEL), begin, asked)
                            put_sums(sums, here, out_step, n_tokens, n_columns - c)
        release()

    return Kernel(matmul_t, f"gemm.matmul_t_tiles.{codec}")
