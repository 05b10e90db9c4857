"""Products of many tokens as floats: rows are decoded to float32 chunk by chunk and multiplied in tiles.

gemm lays out the calls.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from native_kernels.cpu.blocks.unpack import UNPACKERS
from native_kernels.cpu.gemm.gemm_sums import ask_for, bytes_of
from native_kernels.cpu.gemm.tiles import (
    DOT_ROWS,
    DOT_TOKENS,
    DOTS_OF_BFLOATS,
    DOTS_OF_FLOATS,
    DOTS_OF_HALVES,
    FEW_TILES,
    FEW_TOKENS,
    PIECE,
    ROW_BYTES,
    TILE_ROWS,
    float_tile,
)
from native_kernels.cpu.gemm.transposition import turn, turn_part
from native_kernels.cpu.runtime.jit import Kernel, inline, kernel
from native_kernels.cpu.runtime.simd import (
    LANES,
    Rows,
    floats,
    floats_part,
    get_float,
    get_int,
    put_float,
    put_floats,
    put_floats_part,
)

# Rows decoded at a time, a multiple of every tile's; tokens whose sums stay in the cache beside them.
_BLOCK_ROWS = 96 if LANES == 16 else 48
_BLOCK_TOKENS = 512
PANEL = 2 * LANES  # tokens of a panel
_TWO, _ONE = float_tile(TILE_ROWS, 2, 8 * LANES), float_tile(2 * TILE_ROWS, 1, 4 * LANES)

# Up to this many tokens of a panel, rows fill the registers instead. Sums run through the columns in the same order.
_FEW = LANES

# Dots run along the columns. Rows in other codecs are then decoded in longer chunks.
DOT_MOST = LANES
_DOT_PIECE = 1024
_DOT_BLOCK = 8 * DOT_ROWS  # rows that stay in the cache while all tokens pass
_DOTS = {"f32": DOTS_OF_FLOATS, "f16": DOTS_OF_HALVES, "bf16": DOTS_OF_BFLOATS}

SCRATCH_BYTES = _BLOCK_ROWS * ROW_BYTES + 4 * _BLOCK_ROWS * _BLOCK_TOKENS


@kernel
def pack_floats(args: int, lo: int, hi: int, worker: int) -> None:
    """Items: LANES columns. args: x, its row stride, D, tokens, panels, panel stride."""
    x, step, n_cols = get_int(args), get_int(args + 8), get_int(args + 16)
    tokens, panels, panel_step = get_int(get_int(args + 24)), get_int(args + 32), get_int(args + 40)
    if tokens <= _FEW:  # in pieces of columns, as rows of ROW_BYTES
        for t in range(tokens):
            for column in range(LANES * lo, LANES * hi, LANES):
                target = panels + (column // PIECE * _FEW + t) * ROW_BYTES + 4 * (column % PIECE)
                put_floats(target, floats_part(x + t * step + 4 * column, min(LANES, n_cols - column)))
        return
    for t in range(0, tokens, LANES):
        for i in range(lo, hi):
            column = i * LANES
            n = min(LANES, n_cols - column)
            here, target = x + t * step + 4 * column, panels + (t // PANEL) * panel_step
            # A last panel of at most LANES tokens has rows of LANES.
            wide = tokens - (t // PANEL) * PANEL > LANES
            row = 8 * LANES if wide else 4 * LANES
            target += column * row + 4 * (t % PANEL)
            if n == LANES and t + LANES <= tokens:
                turn(here, step, target, row)
            else:
                turn_part(Rows(here, step), tokens - t, n, Rows(target, row), LANES, LANES)


@cache
def float_kernel(codec: str) -> Kernel:
    """Multiply rows by tokens as floats. Items: rows of w.

    args: w, its row stride, D, panels, panel stride, tokens, out, its row stride, scratch, scratch stride.
    """
    unpack, (some, more) = UNPACKERS[codec], FEW_TILES
    piece_bytes = bytes_of(codec, PIECE)

    def matmul(args: int, lo: int, hi: int, worker: int) -> None:
        w, w_step, n_cols = get_int(args), get_int(args + 8), get_int(args + 16)
        panels, panel_step, tokens = get_int(args + 24), get_int(args + 32), get_int(get_int(args + 40))
        out, out_step = get_int(args + 48), get_int(args + 56)
        unpacked = get_int(args + 64) + worker * get_int(args + 72)
        sums = unpacked + _BLOCK_ROWS * ROW_BYTES
        if tokens <= _FEW:
            for first_row in range(lo, hi, LANES):
                n_rows, here = min(LANES, hi - first_row), w + first_row * w_step
                for k in range(0, n_cols, PIECE):
                    n, begin = min(PIECE, n_cols - k), np.int64(k == 0)
                    x = panels + k // PIECE * (_FEW * ROW_BYTES)
                    ahead = piece_bytes if k + PIECE < n_cols else LANES * w_step - (k // PIECE) * piece_bytes
                    for r in range(n_rows):
                        ask_for(here + r * w_step + (k // PIECE) * piece_bytes + ahead, piece_bytes)
                        unpack(here + r * w_step, n_cols, k, n, unpacked + r * ROW_BYTES)
                        for i in range(n, (n + LANES - 1) // LANES * LANES):
                            put_float(unpacked + r * ROW_BYTES + 4 * i, np.float32(0.0))
                    padded = (n + LANES - 1) // LANES * LANES
                    for t in range(0, tokens, FEW_TOKENS[1]):
                        of_tokens, of_rows = x + t * ROW_BYTES, sums + 4 * LANES * t
                        if tokens - t <= FEW_TOKENS[0]:
                            some(unpacked, ROW_BYTES, of_tokens, padded, of_rows, begin)
                        else:
                            more(unpacked, ROW_BYTES, of_tokens, padded, of_rows, begin)
                for t in range(tokens):
                    target = out + t * out_step + 4 * first_row
                    if n_rows == LANES:
                        put_floats(target, floats(sums + 4 * LANES * t))
                    else:
                        put_floats_part(target, n_rows, floats(sums + 4 * LANES * t))
            return
        for first_token in range(0, tokens, _BLOCK_TOKENS):
            n_tokens = min(_BLOCK_TOKENS, tokens - first_token)
            for first_row in range(lo, hi, _BLOCK_ROWS):
                n_rows = min(_BLOCK_ROWS, hi - first_row)
                for k in range(0, n_cols, PIECE):
                    n = min(PIECE, n_cols - k)
                    # Decoded next: the following columns, or the first columns of the following rows.
                    ahead = piece_bytes if k + PIECE < n_cols else _BLOCK_ROWS * w_step - (k // PIECE) * piece_bytes
                    for r in range(n_rows):
                        row = w + (first_row + r) * w_step
                        ask_for(row + (k // PIECE) * piece_bytes + ahead, piece_bytes)
                        unpack(row, n_cols, k, n, unpacked + r * ROW_BYTES)
                    for t in range(0, n_tokens, PANEL):
                        panel = panels + ((first_token + t) // PANEL) * panel_step
                        c = sums + 4 * _BLOCK_ROWS * t
                        begin = np.int64(k == 0)
                        if n_tokens - t > LANES:
                            for r in range(0, n_rows, TILE_ROWS):
                                _TWO(unpacked + r * ROW_BYTES, panel + 8 * LANES * k, n, c + 8 * LANES * r, begin)
                        else:
                            for r in range(0, n_rows, 2 * TILE_ROWS):
                                _ONE(unpacked + r * ROW_BYTES, panel + 4 * LANES * k, n, c + 4 * LANES * r, begin)
                for t in range(0, n_tokens, PANEL):
                    here = out + (first_token + t) * out_step + 4 * first_row
                    in_panel = min(PANEL, n_tokens - t)
                    step = 8 * LANES if in_panel > LANES else 4 * LANES
                    write_sums(sums + 4 * _BLOCK_ROWS * t, step, in_panel, n_rows, here, out_step)

    return Kernel(matmul, f"gemm.matmul.{codec}")


@kernel
def pack_rows(args: int, lo: int, hi: int, worker: int) -> None:
    """As pack_floats, for dots: the rows, unchanged."""
    x, step, n_cols = get_int(args), get_int(args + 8), get_int(args + 16)
    tokens, panels, row_step = get_int(get_int(args + 24)), get_int(args + 32), get_int(args + 40)
    for t in range(tokens):
        for i in range(lo, hi):
            n, at = min(LANES, n_cols - i * LANES), 4 * LANES * i
            put_floats(panels + t * row_step + at, floats_part(x + t * step + at, n))


@cache
def dot_kernel(codec: str) -> Kernel:
    """As float_kernel, for tokens packed by pack_rows. Sums are in another order."""
    dots = _few_dots(codec)

    def matmul(args: int, lo: int, hi: int, worker: int) -> None:
        w, w_step, n_cols = get_int(args), get_int(args + 8), get_int(args + 16)
        x, x_step, tokens = get_int(args + 24), get_int(args + 32), get_int(get_int(args + 40))
        out, out_step = get_int(args + 48), get_int(args + 56)
        temporary = get_int(args + 64) + worker * get_int(args + 72)
        for block in range(lo, hi, _DOT_BLOCK):
            for t in range(0, tokens, DOT_TOKENS):
                some = Rows(x + t * x_step, x_step)
                for row in range(block, min(block + _DOT_BLOCK, hi), DOT_ROWS):
                    here, target = Rows(w + row * w_step, w_step), Rows(out + t * out_step + 4 * row, out_step)
                    n_rows = min(DOT_ROWS, hi - row)
                    dots(here, n_rows, n_cols, some, temporary, target, min(DOT_TOKENS, tokens - t))

    return Kernel(matmul, f"gemm.dots.{codec}")


def _few_dots(codec: str) -> Any:
    """Return a function that multiplies up to DOT_ROWS rows by up to DOT_TOKENS tokens."""
    if codec in _DOTS:
        dots = _DOTS[codec]

        @inline
        def of_numbers(
            w: Rows, n_rows: int, n_cols: int, x: Rows, temporary: int, out: Rows, n_tokens: int
        ) -> None:  # fmt: skip
            second, third, fourth = min(1, n_rows - 1), min(2, n_rows - 1), min(3, n_rows - 1)
            dots(
                w.start, w.start + second * w.step, w.start + third * w.step, w.start + fourth * w.step,
                x.start, x.step, n_cols, DOT_ROWS * w.step, temporary,
            )  # fmt: skip
            for r in range(n_rows):
                for t in range(n_tokens):
                    put_float(out.start + t * out.step + 4 * r, get_float(temporary + 4 * (r * DOT_TOKENS + t)))

        return of_numbers

    unpack = UNPACKERS[codec]

    @inline
    def of_blocks(
        w: Rows, n_rows: int, n_cols: int, x: Rows, temporary: int, out: Rows, n_tokens: int
    ) -> None:  # fmt: skip
        row_bytes = 4 * _DOT_PIECE + 128
        rows = temporary + 4 * LANES
        for first in range(0, n_cols, _DOT_PIECE):
            n = min(_DOT_PIECE, n_cols - first)
            for r in range(n_rows):
                unpack(w.start + r * w.step, n_cols, first, n, rows + r * row_bytes)
            DOTS_OF_FLOATS(
                rows, rows + row_bytes, rows + 2 * row_bytes, rows + 3 * row_bytes, x.start + 4 * first, x.step,
                n, 0, temporary,
            )  # fmt: skip
            for r in range(n_rows):
                for t in range(n_tokens):
                    value, place = get_float(temporary + 4 * (r * DOT_TOKENS + t)), out.start + t * out.step + 4 * r
                    put_float(place, value if first == 0 else get_float(place) + value)

    return of_blocks


@inline
def write_sums(sums: int, step: int, n_tokens: int, n_rows: int, out: int, out_step: int) -> None:
    """Transpose one panel's sums [rows, tokens of the panel], row stride `step` bytes -> out [tokens, rows]."""
    for t in range(0, n_tokens, LANES):
        for r in range(0, n_rows, LANES):
            source, here = sums + r * step + 4 * t, out + t * out_step + 4 * r
            if t + LANES <= n_tokens and r + LANES <= n_rows:
                turn(source, step, here, out_step)
            else:
                rows = min(LANES, n_rows - r)
                turn_part(Rows(source, step), rows, LANES, Rows(here, out_step), n_tokens - t, rows)
