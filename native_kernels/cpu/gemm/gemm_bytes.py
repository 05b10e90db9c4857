"""Products of many tokens as bytes: quants of many rows are interleaved and multiplied in tiles.

Only for CPUs that multiply bytes and accumulate in one instruction (VNNI). Elsewhere the three instructions for it do
as much as three of floats, so little would be gained. gemm lays out the calls.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from native_kernels.cpu.blocks.k_quant_blocks import BLOCKS, COLUMNS, BlockCodec, staged
from native_kernels.cpu.gemm.gemm_sums import ask_for, bytes_of, put_sums, take_sums
from native_kernels.cpu.gemm.tiles import BYTE_ROWS, BYTE_TOKENS, META_ROWS, byte_tile, quantised
from native_kernels.cpu.gemm.transposition import (
    flip_signs,
    lay_bytes,
    lay_nibbles,
    listed_halves,
    split_nibbles,
    turn,
    turn_halves,
    turn_listed,
)
from native_kernels.cpu.runtime.jit import Kernel, inline, kernel
from native_kernels.cpu.runtime.simd import ISA, LANES, get_int, put_floats, put_int

# Panels of rows laid out at a time, and groups of 32 columns of them.
_BLOCK_PANELS = 4
_GROUPS = 64
_SUPERBLOCK = 16
_FEW_TOKENS = min(4, BYTE_TOKENS)
_GROUP_BYTES = 32 * BYTE_ROWS
_META_BYTES = 4 * META_ROWS  # per token and group
_STAGED_BYTES = COLUMNS + 64  # a block of 256 quants on its way into a panel
_TEMPORARY = max(4 * LANES * LANES, LANES * (_STAGED_BYTES + 64))

SCRATCH_BYTES = (
    8 * BYTE_ROWS + _TEMPORARY + 4 * BYTE_TOKENS * BYTE_ROWS + _BLOCK_PANELS * _GROUPS * (_GROUP_BYTES + 8 * BYTE_ROWS)
)


def takes_bytes(codec: str) -> bool:
    """Return whether rows in this codec are multiplied with tokens as bytes on this CPU."""
    return ISA.byte_dot.startswith("vnni") and codec in _LAYERS


@kernel
def pack_bytes(args: int, lo: int, hi: int, worker: int) -> None:
    """Items: groups of 32 columns. args: x, its row stride, D, tokens, values, meta."""
    x, step, n_cols = get_int(args), get_int(args + 8), get_int(args + 16)
    tokens, values, meta = get_int(get_int(args + 24)), get_int(args + 32), get_int(args + 40)
    groups = (n_cols + 31) // 32
    wide = _FEW_TOKENS if tokens <= _FEW_TOKENS else BYTE_TOKENS
    whole = (tokens + wide - 1) // wide * wide
    for t in range(whole):
        for g in range(lo, hi):
            place = (t // wide) * groups + g
            here = values + place * 32 * wide + 4 * (t % wide)
            about = meta + place * _META_BYTES * wide + 4 * (t % wide)
            # Tokens that pad a tile read none of the first token's numbers.
            n = min(32, n_cols - 32 * g) if t < tokens else 0
            quantised(x + t * step + 128 * g if t < tokens else x, n, here, about, wide)


def _ggml_layer(block: int, low: Any, high: Any) -> Any:
    """Interleave rows of GGML's blocks of 32; `high` lays out their second 16 bytes, if there are that many."""

    @inline
    def lay(rows: int, temporary: int, n_cols: int, first: int, n: int, quants: int, scales: int, ahead: int) -> None:
        due, asked = 0, 0
        for i in range(n):
            at = block * (first + i)
            due += LANES
            while due >= n:  # one prefetch per row, evenly spread
                ask_for(get_int(rows + 8 * asked) + block * first + ahead, block * n)
                due -= n
                asked += 1
            low(rows, at + 2, quants + _GROUP_BYTES * i, 4 * BYTE_ROWS)
            if block == 34:
                high(rows, at + 18, quants + _GROUP_BYTES * i + 16 * BYTE_ROWS, 4 * BYTE_ROWS)
            put_floats(scales + 4 * BYTE_ROWS * i, listed_halves(rows, at))

    return lay


def _lane_layer(fours: int) -> Any:
    """Interleave rows of the lane layout; fours: four-byte words in a group, 4 or 8."""

    @inline
    def lay(rows: int, temporary: int, n_cols: int, first: int, n: int, quants: int, scales: int, ahead: int) -> None:
        groups = (n_cols + 31) // 32
        due, asked, steps = 0, 0, (n + LANES - 1) // LANES * fours
        for start in range(0, n, LANES):
            group = first + start
            superblock = group & -_SUPERBLOCK
            in_superblock = min(_SUPERBLOCK, groups - superblock)
            found = min(LANES, n - start)
            at = 4 * fours * superblock + 4 * (group - superblock)
            for k in range(fours):
                due += LANES
                while due >= steps:  # one prefetch per row, evenly spread
                    ask_for(get_int(rows + 8 * asked) + 4 * fours * first + ahead, 4 * fours * n)
                    due -= steps
                    asked += 1
                turn_listed(rows, at + 4 * in_superblock * k, found, temporary, 4 * LANES)
                for i in range(found):
                    target = quants + _GROUP_BYTES * (start + i)
                    if fours == 4:
                        split_nibbles(
                            temporary + 4 * LANES * i,
                            target + 8 * BYTE_ROWS * k,
                            target + 8 * BYTE_ROWS * k + 4 * BYTE_ROWS,
                        )
                    else:
                        flip_signs(temporary + 4 * LANES * i, target + 4 * BYTE_ROWS * k)
            turn_halves(rows, 4 * fours * groups + 2 * group, found, scales + 4 * BYTE_ROWS * start, 4 * BYTE_ROWS)

    return lay


def _super_block_layer(codec: BlockCodec, kind: str) -> Any:
    """Interleave rows of blocks of 256, for tiles of this kind."""
    n_bytes = codec.n_bytes
    stage = staged(codec, kind)

    @inline
    def lay(rows: int, temporary: int, n_cols: int, first: int, n: int, quants: int, scales: int, ahead: int) -> None:
        factors = temporary + LANES * _STAGED_BYTES
        due, asked = 0, 0
        for i in range(n // 8):
            at = (first // 8 + i) * n_bytes
            for r in range(LANES):
                due += 8
                if due >= n:  # one prefetch per row, evenly spread
                    ask_for(get_int(rows + 8 * asked) + n_bytes * (first // 8) + ahead, n_bytes * (n // 8))
                    due -= n
                    asked += 1
                stage(get_int(rows + 8 * r) + at, temporary + r * _STAGED_BYTES, factors + 64 * r)
            for k in range(0, COLUMNS // 4, LANES):
                target = quants + 8 * _GROUP_BYTES * i + 4 * BYTE_ROWS * k
                turn(temporary + 4 * k, _STAGED_BYTES, target, 4 * BYTE_ROWS)
            for k in range(0, 16, LANES):
                turn(factors + 4 * k, 64, scales + 4 * BYTE_ROWS * (16 * i + k), 4 * BYTE_ROWS)

    return lay


# How to interleave LANES listed rows, the kind of tile for them, and the row of meta with the products of their quants'
# offset.
_LAYERS: dict[str, tuple[Any, str, int]] = {
    "q4_0": (_ggml_layer(18, lay_nibbles, lay_nibbles), "offset", 1),
    "q8_0": (_ggml_layer(34, lay_bytes, lay_bytes), "offset", 2),
    "q4_0.lanes": (_lane_layer(4), "offset", 1),
    "q8_0.lanes": (_lane_layer(8), "offset", 2),
    "q4_k": (_super_block_layer(BLOCKS["q4_k"], "minima"), "minima", 0),
    "q5_k": (_super_block_layer(BLOCKS["q5_k"], "minima"), "minima", 0),
    "iq4_xs": (_super_block_layer(BLOCKS["iq4_xs"], "minima"), "minima", 0),
    "q3_k": (_super_block_layer(BLOCKS["q3_k"], "sixteens"), "sixteens", 0),
    "q6_k": (_super_block_layer(BLOCKS["q6_k"], "sixteens"), "sixteens", 0),
}


@cache
def byte_kernel(codec: str) -> Kernel:
    """Multiply rows by tokens as bytes. Items: rows of w.

    args: w, its row stride, D, values, meta, tokens, out, its row stride, scratch, scratch stride.
    """
    lay, kind, offset_row = _LAYERS[codec]
    many, few = byte_tile(BYTE_TOKENS, kind), byte_tile(_FEW_TOKENS, kind)
    piece_bytes = bytes_of(codec, 32 * _GROUPS)
    scale_bytes = 4 * BYTE_ROWS * (1 if kind == "offset" else 2)  # of a group

    def matmul(args: int, lo: int, hi: int, worker: int) -> None:
        w, w_step, n_cols = get_int(args), get_int(args + 8), get_int(args + 16)
        values, meta, tokens = get_int(args + 24), get_int(args + 32), get_int(get_int(args + 40))
        out, out_step = get_int(args + 48), get_int(args + 56)
        rows = get_int(args + 64) + worker * get_int(args + 72)
        temporary = rows + 8 * BYTE_ROWS
        sums = temporary + _TEMPORARY
        quants = sums + 4 * BYTE_TOKENS * BYTE_ROWS
        scales = quants + _BLOCK_PANELS * _GROUPS * _GROUP_BYTES
        groups = (n_cols + 31) // 32
        wide = _FEW_TOKENS if tokens <= _FEW_TOKENS else BYTE_TOKENS
        for first_row in range(lo, hi, _BLOCK_PANELS * BYTE_ROWS):
            last_row = min(hi, first_row + _BLOCK_PANELS * BYTE_ROWS)
            n_panels = (last_row - first_row + BYTE_ROWS - 1) // BYTE_ROWS
            for first in range(0, groups, _GROUPS):
                n = min(_GROUPS, groups - first)
                for p in range(n_panels):
                    # Laid out next: the next panel, or the next columns of the first one.
                    ahead = BYTE_ROWS * w_step
                    if p == n_panels - 1 and first + _GROUPS < groups:
                        ahead = piece_bytes - (n_panels - 1) * BYTE_ROWS * w_step
                    for r in range(BYTE_ROWS):  # padding rows repeat the last one
                        put_int(rows + 8 * r, w + min(first_row + p * BYTE_ROWS + r, last_row - 1) * w_step)
                    for v in range(2):
                        lay(
                            rows + 8 * LANES * v,
                            temporary,
                            n_cols,
                            first,
                            n,
                            quants + _GROUPS * _GROUP_BYTES * p + 4 * LANES * v,
                            scales + _GROUPS * scale_bytes * p + 4 * LANES * v,
                            ahead,
                        )
                for t in range(0, tokens, wide):
                    place = (t // wide) * groups + first
                    x, about = values + place * 32 * wide, meta + place * _META_BYTES * wide
                    for p in range(n_panels):
                        row = first_row + p * BYTE_ROWS
                        n_rows, n_tokens = min(BYTE_ROWS, last_row - row), min(wide, tokens - t)
                        here = out + t * out_step + 4 * row
                        take_sums(sums, here, out_step, n_tokens, n_rows, wide, first == 0)
                        panel = quants + _GROUPS * _GROUP_BYTES * p
                        factors = scales + _GROUPS * scale_bytes * p
                        if wide == BYTE_TOKENS:
                            many(panel, factors, x, about, 4 * wide * offset_row, n, sums)
                        else:
                            few(panel, factors, x, about, 4 * wide * offset_row, n, sums)
                        put_sums(sums, here, out_step, n_tokens, n_rows)

    return Kernel(matmul, f"gemm.matmul_bytes.{codec}")
