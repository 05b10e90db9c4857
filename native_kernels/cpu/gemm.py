"""Matrix products of 2 to hundreds of tokens: x [T, D] times the rows of w [N, D], and h [T, F] times w [F, D].

Two ways. *Floats*: pieces of rows are unpacked to float32 once, and tiles of them are multiplied with the tokens, which
lie side by side in panels. *Bytes*, where the processor multiplies bytes (VNNI) and rows hold blocks of quants: the
tokens are quantised to bytes in groups of 32 columns, as at decode, and quants of many rows are laid side by side, so
that a register works for as many rows as it has lanes. Weights are unpacked for a tile, never as a whole.

The tokens are prepared by calls of their own, once for all matrices that read them (`Panels`). How many tokens there
are is read when the calls run. Results do not depend on how rows are dealt out to workers. It does not measure when
another kernel would be the better one for a single token (gemv is).

AMX, where a processor has it, is not used: see tiles. There was none to measure it on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32, I64, PackedMatrix
from native_kernels.codecs import CODECS
from native_kernels.cpu.call import Call, aligned_empty, arguments
from native_kernels.cpu.jit import Kernel, inline, kernel
from native_kernels.cpu.k_quant_blocks import BLOCKS, COLUMNS, BlockCodec, staged
from native_kernels.cpu.simd import (
    ISA,
    LANES,
    floats,
    floats_part,
    get_byte,
    get_float,
    get_int,
    get_int32,
    prefetch,
    put_byte,
    put_float,
    put_floats,
    put_floats_part,
    put_int,
    put_int32,
    zero,
)
from native_kernels.cpu.tiles import (
    BYTE_ROWS,
    BYTE_TOKENS,
    DOT_ROWS,
    DOT_TOKENS,
    DOTS_OF_BFLOATS,
    DOTS_OF_FLOATS,
    DOTS_OF_HALVES,
    META_ROWS,
    PIECE,
    ROW_BYTES,
    TILE_ROWS,
    byte_tile,
    flip_signs,
    float_tile,
    lay_bytes,
    lay_nibbles,
    listed_halves,
    quantised,
    split_nibbles,
    turn,
    turn_halves,
    turn_listed,
    turn_part,
)
from native_kernels.cpu.unpack import UNPACKERS

# Floats: rows unpacked at a time, a multiple of every tile's; tokens whose sums are kept beside them in the cache.
_BLOCK_ROWS = 96 if LANES == 16 else 48
_BLOCK_TOKENS = 512
_PANEL = 2 * LANES  # tokens of a panel
_TWO, _ONE = float_tile(TILE_ROWS, 2, 8 * LANES), float_tile(2 * TILE_ROWS, 1, 4 * LANES)

# Up to so many tokens the tile runs along the columns. Rows in other codecs are unpacked for it in longer pieces.
_DOT_MOST = LANES
_DOT_PIECE = 1024
_DOTS = {"f32": DOTS_OF_FLOATS, "f16": DOTS_OF_HALVES, "bf16": DOTS_OF_BFLOATS}

# Bytes: panels of rows laid out at a time, and groups of 32 columns of them.
_BLOCK_PANELS = 4
_GROUPS = 64
_SUPERBLOCK = 16
_FEW_TOKENS = min(4, BYTE_TOKENS)
_GROUP_BYTES = 32 * BYTE_ROWS
_META_BYTES = 4 * META_ROWS  # of one token and group
_STAGED_BYTES = COLUMNS + 64  # of a block of 256 quants on its way into a panel
_TEMPORARY = max(4 * LANES * LANES, LANES * (_STAGED_BYTES + 64))

# The transposed product: columns unpacked at a time, and the bytes between two neurons of such a piece: 9 x 128, which
# spreads them over all cache sets. Tokens take the place of rows.
_T_COLUMNS = 256
_T_STEP = 4 * _T_COLUMNS + 128
_T_TOKENS = TILE_ROWS
_T_TILE, _T_FEW = float_tile(TILE_ROWS, 2, _T_STEP), float_tile(min(4, TILE_ROWS), 2, _T_STEP)
_T_FEW_TOKENS = min(4, TILE_ROWS)

_SUM_BYTES = 4 * _BLOCK_ROWS * _BLOCK_TOKENS
_SCRATCH_BYTES = max(
    _BLOCK_ROWS * ROW_BYTES + _SUM_BYTES,
    8 * BYTE_ROWS + _TEMPORARY + 4 * BYTE_TOKENS * BYTE_ROWS
    + _BLOCK_PANELS * _GROUPS * (_GROUP_BYTES + 8 * BYTE_ROWS),
    PIECE * _T_STEP + 4 * 2 * LANES * TILE_ROWS,
)  # fmt: skip


def takes_bytes(codec: str) -> bool:
    """Whether rows in this codec are multiplied with tokens as bytes here; else with tokens as floats."""
    return ISA.byte_dot.startswith("vnni") and codec in _LAYERS


@dataclass(frozen=True, eq=False)
class Panels:
    """Tokens as the kernels read them, of either kind; written by the calls of `pack_calls`.

    Shapes of values: f32 [panels, D rounded up to LANES, 2 LANES], or i8 [tiles, G, 8, tokens of a tile, 4]
    with meta [tiles, G, META_ROWS, tokens of a tile]; G groups of 32 columns.
    """

    max_tokens: int
    n_cols: int
    as_bytes: bool
    values: NDArray[Any]
    meta: NDArray[np.int32]

    @classmethod
    def make(cls, max_tokens: int, n_cols: int, as_bytes: bool) -> Panels:
        """Cost: 4 bytes a number as floats, 1.75 as bytes, with T rounded up to whole panels."""
        if as_bytes:
            groups = -(-n_cols // 32)
            tiles = -(-max_tokens // BYTE_TOKENS)
            values = aligned_empty((tiles, groups, 8, BYTE_TOKENS, 4), np.int8)
            return cls(
                max_tokens, n_cols, True, values, aligned_empty((tiles, groups, META_ROWS, BYTE_TOKENS), np.int32)
            )
        panels, columns = -(-max_tokens // _PANEL), -(-n_cols // LANES) * LANES
        return cls(max_tokens, n_cols, False, aligned_empty((panels, columns, _PANEL)), aligned_empty(0, np.int32))


@dataclass(frozen=True, eq=False)
class Scratch:
    """Memory of every worker for the tiles in work; one for all products of an engine, which run one after another."""

    n_workers: int
    memory: NDArray[np.uint8]

    @classmethod
    def make(cls, n_workers: int) -> Scratch:
        """Cost: some 300 KB for each worker."""
        return cls(n_workers, aligned_empty((n_workers, -(-_SCRATCH_BYTES // 4096) * 4096 + 256), np.uint8))


# ---------------------------------------------------------------- calls


def pack_calls(x: F32, tokens: I64, panels: Panels, stage: str = "") -> list[Call]:
    """x [max_tokens, D], of which tokens[0] rows count -> panels."""
    _check_rows(x, panels.max_tokens, panels.n_cols)
    keeps = (x, tokens, panels)
    if panels.as_bytes:
        args = arguments(x, x.strides[0], panels.n_cols, tokens, panels.values, panels.meta)
        return [Call(_pack_bytes, args, -(-panels.n_cols // 32), 4, stage, keeps)]
    args = arguments(x, x.strides[0], panels.n_cols, tokens, panels.values, panels.values.strides[0])
    return [Call(_pack_floats, args, -(-panels.n_cols // LANES), 4, stage, keeps)]


def matmul_calls(
    panels: Panels, w: PackedMatrix, tokens: I64, out: F32, scratch: Scratch, stage: str = ""
) -> list[Call]:
    """x times the rows of w [N, D] -> out [max_tokens, N], for the tokens[0] tokens in the panels.

    Raises: ValueError where shapes do not fit, or the panels are not of the kind that `takes_bytes` says.
    """
    _check_rows(out, panels.max_tokens, w.n_rows)
    if panels.n_cols != w.n_cols or panels.as_bytes != takes_bytes(w.codec):
        raise ValueError(
            f"panels of {panels.n_cols} columns, bytes: {panels.as_bytes}, do not fit {w.codec} {w.n_cols}"
        )
    row_step = w.data.strides[0] if w.n_rows > 1 else w.row_bytes
    memory = (scratch.memory, scratch.memory.strides[0])
    keeps = (panels, w, tokens, out, scratch)
    if panels.as_bytes:
        args = arguments(w.data, row_step, w.n_cols, panels.values, panels.meta, tokens, out, out.strides[0], *memory)
        return [Call(byte_kernel(w.codec), args, w.n_rows, BYTE_ROWS, stage, keeps)]
    panel_step = panels.values.strides[0]
    args = arguments(w.data, row_step, w.n_cols, panels.values, panel_step, tokens, out, out.strides[0], *memory)
    return [Call(float_kernel(w.codec), args, w.n_rows, 2 * TILE_ROWS, stage, keeps)]


@dataclass(frozen=True, eq=False)
class Firing:
    """Which neurons have a value other than 0 for any token, and those values as the transposed product reads them."""

    max_tokens: int
    n_neurons: int
    flags: NDArray[np.uint8]
    ids: NDArray[np.int32]
    count: I64
    tiles: NDArray[np.uint8]

    @classmethod
    def make(cls, max_tokens: int, n_neurons: int) -> Firing:
        """Cost: 4.3 bytes a value and 5 a neuron."""
        tiles, pieces = -(-max_tokens // _T_TOKENS), -(-n_neurons // PIECE)
        return cls(
            max_tokens, n_neurons, aligned_empty(n_neurons, np.uint8), aligned_empty(n_neurons, np.int32),
            aligned_empty(1, np.int64), aligned_empty((tiles, pieces, _T_TOKENS, ROW_BYTES), np.uint8),
        )  # fmt: skip


def matmul_t_calls(
    h: F32, tokens: I64, w: PackedMatrix, out: F32, firing: Firing, scratch: Scratch, stage: str = ""
) -> list[Call]:
    """The sum of the rows of w [F, D] weighted with h [max_tokens, F] -> out [max_tokens, D], for tokens[0] tokens.

    Rows of neurons that are 0 for all these tokens are not read; firing.count and firing.ids say afterwards which were.
    """
    _check_rows(h, firing.max_tokens, w.n_rows)
    _check_rows(out, firing.max_tokens, w.n_cols)
    if firing.n_neurons != w.n_rows:
        raise ValueError(f"{w.n_rows} rows were given for {firing.n_neurons} neurons")
    row_step = w.data.strides[0] if w.n_rows > 1 else w.row_bytes
    tile_step = firing.tiles.strides[0]
    keeps = (h, tokens, w, out, firing, scratch)
    found = arguments(
        h, h.strides[0], tokens, firing.flags, firing.ids, firing.count, w.n_rows, firing.tiles, tile_step
    )
    product = arguments(
        w.data, row_step, w.n_cols, firing.ids, firing.count, firing.tiles, tile_step,
        tokens, out, out.strides[0], scratch.memory, scratch.memory.strides[0],
    )  # fmt: skip
    return [
        Call(_mark, found, w.n_rows, 64, stage, keeps),
        Call(_list, found, 1, 1, stage, keeps),
        Call(_pack_firing, found, -(-w.n_rows // PIECE), 1, stage, keeps),
        Call(transposed_kernel(w.codec), product, w.n_cols, _T_COLUMNS, stage, keeps),
    ]


def _check_rows(array: NDArray[Any], n_rows: int, n_cols: int) -> None:
    if array.shape != (n_rows, n_cols) or array.dtype != np.float32 or (n_cols > 1 and array.strides[1] != 4):
        raise ValueError(f"float32 [{n_rows}, {n_cols}] with numbers side by side was expected, not {array.shape}")


# ---------------------------------------------------------------- tokens into panels


@kernel
def _pack_floats(args: int, lo: int, hi: int, worker: int) -> None:
    """Items: LANES columns. args: x, its row step, D, tokens, panels, panel step."""
    x, step, n_cols = get_int(args), get_int(args + 8), get_int(args + 16)
    tokens, panels, panel_step = get_int(get_int(args + 24)), get_int(args + 32), get_int(args + 40)
    if tokens <= _DOT_MOST:  # rows, as they come
        for t in range(tokens):
            for i in range(lo, hi):
                n, at = min(LANES, n_cols - i * LANES), 4 * LANES * i
                put_floats(panels + t * (panel_step // _PANEL) + at, floats_part(x + t * step + at, n))
        return
    for t in range(0, tokens, LANES):
        for i in range(lo, hi):
            column = i * LANES
            n = min(LANES, n_cols - column)
            here, target = x + t * step + 4 * column, panels + (t // _PANEL) * panel_step
            # A last panel of at most LANES tokens has rows of LANES.
            wide = tokens - (t // _PANEL) * _PANEL > LANES
            row = 8 * LANES if wide else 4 * LANES
            target += column * row + 4 * (t % _PANEL)
            if n == LANES and t + LANES <= tokens:
                turn(here, step, target, row)
            else:
                turn_part(here, step, tokens - t, n, target, row, LANES, LANES)


@kernel
def _pack_bytes(args: int, lo: int, hi: int, worker: int) -> None:
    """Items: groups of 32 columns. args: x, its row step, D, tokens, values, meta."""
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
            # Tokens that fill up a tile are read from the first one, no number of it.
            n = min(32, n_cols - 32 * g) if t < tokens else 0
            quantised(x + t * step + 128 * g if t < tokens else x, n, here, about, wide)


# ---------------------------------------------------------------- products of floats


@cache
def float_kernel(codec: str) -> Kernel:
    """The product with tokens as floats. Items: rows of w.

    args: w, its row step, D, panels, panel step, tokens, out, its row step, scratch, scratch step.
    """
    unpack, dots = UNPACKERS[codec], _few_tokens(codec)
    piece_bytes = _bytes_of(codec, PIECE)

    def matmul(args: int, lo: int, hi: int, worker: int) -> None:
        w, w_step, n_cols = get_int(args), get_int(args + 8), get_int(args + 16)
        panels, panel_step, tokens = get_int(args + 24), get_int(args + 32), get_int(get_int(args + 40))
        out, out_step = get_int(args + 48), get_int(args + 56)
        unpacked = get_int(args + 64) + worker * get_int(args + 72)
        sums = unpacked + _BLOCK_ROWS * ROW_BYTES
        if tokens <= _DOT_MOST:
            for row in range(lo, hi, DOT_ROWS):
                n_rows = min(DOT_ROWS, hi - row)
                here = w + row * w_step
                for t in range(0, tokens, DOT_TOKENS):
                    n_tokens = min(DOT_TOKENS, tokens - t)
                    target = out + t * out_step + 4 * row
                    dots(
                        here, w_step, n_rows, n_cols, panels + t * (panel_step // _PANEL), panel_step // _PANEL,
                        sums, target, out_step, n_tokens,
                    )  # fmt: skip
            return
        for first_token in range(0, tokens, _BLOCK_TOKENS):
            n_tokens = min(_BLOCK_TOKENS, tokens - first_token)
            for first_row in range(lo, hi, _BLOCK_ROWS):
                n_rows = min(_BLOCK_ROWS, hi - first_row)
                for k in range(0, n_cols, PIECE):
                    n = min(PIECE, n_cols - k)
                    # What is unpacked next: the columns behind these, or the first ones of the rows behind these.
                    ahead = piece_bytes if k + PIECE < n_cols else _BLOCK_ROWS * w_step - (k // PIECE) * piece_bytes
                    for r in range(n_rows):
                        row = w + (first_row + r) * w_step
                        _ask_for(row + (k // PIECE) * piece_bytes + ahead, piece_bytes)
                        unpack(row, n_cols, k, n, unpacked + r * ROW_BYTES)
                    for t in range(0, n_tokens, _PANEL):
                        panel = panels + ((first_token + t) // _PANEL) * panel_step
                        c = sums + 4 * _BLOCK_ROWS * t
                        begin = np.int64(k == 0)
                        if n_tokens - t > LANES:
                            for r in range(0, n_rows, TILE_ROWS):
                                _TWO(unpacked + r * ROW_BYTES, panel + 8 * LANES * k, n, c + 8 * LANES * r, begin)
                        else:
                            for r in range(0, n_rows, 2 * TILE_ROWS):
                                _ONE(unpacked + r * ROW_BYTES, panel + 4 * LANES * k, n, c + 4 * LANES * r, begin)
                _write_sums(sums, n_tokens, n_rows, out + first_token * out_step + 4 * first_row, out_step)

    return Kernel(matmul, f"gemm.matmul.{codec}")


def _bytes_of(codec: str, n_cols: int) -> int:
    """Bytes of so many columns; without the scales where they stand apart."""
    if codec.endswith(".lanes"):
        return n_cols if codec == "q8_0.lanes" else n_cols // 2
    return CODECS[codec].n_bytes(n_cols)


@inline
def _ask_for(at: int, n_bytes: int) -> None:
    for line in range(0, n_bytes, 64):
        prefetch(at + line)


def _few_tokens(codec: str) -> Any:
    """Up to DOT_ROWS rows times up to DOT_TOKENS tokens."""
    if codec in _DOTS:
        dots = _DOTS[codec]

        @inline
        def of_numbers(
            w: int, w_step: int, n_rows: int, n_cols: int, x: int, x_step: int, temporary: int, out: int,
            out_step: int, n_tokens: int,
        ) -> None:  # fmt: skip
            second, third, fourth = min(1, n_rows - 1), min(2, n_rows - 1), min(3, n_rows - 1)
            dots(
                w, w + second * w_step, w + third * w_step, w + fourth * w_step, x, x_step, n_cols,
                DOT_ROWS * w_step, temporary,
            )  # fmt: skip
            for r in range(n_rows):
                for t in range(n_tokens):
                    put_float(out + t * out_step + 4 * r, get_float(temporary + 4 * (r * DOT_TOKENS + t)))

        return of_numbers

    unpack = UNPACKERS[codec]

    @inline
    def of_blocks(
        w: int, w_step: int, n_rows: int, n_cols: int, x: int, x_step: int, temporary: int, out: int,
        out_step: int, n_tokens: int,
    ) -> None:  # fmt: skip
        row_bytes = 4 * _DOT_PIECE + 128
        rows = temporary + 4 * LANES
        for first in range(0, n_cols, _DOT_PIECE):
            n = min(_DOT_PIECE, n_cols - first)
            for r in range(n_rows):
                unpack(w + r * w_step, n_cols, first, n, rows + r * row_bytes)
            DOTS_OF_FLOATS(
                rows, rows + row_bytes, rows + 2 * row_bytes, rows + 3 * row_bytes, x + 4 * first, x_step, n, 0,
                temporary,
            )  # fmt: skip
            for r in range(n_rows):
                for t in range(n_tokens):
                    value, place = get_float(temporary + 4 * (r * DOT_TOKENS + t)), out + t * out_step + 4 * r
                    put_float(place, value if first == 0 else get_float(place) + value)

    return of_blocks


@inline
def _write_sums(sums: int, n_tokens: int, n_rows: int, out: int, out_step: int) -> None:
    """Sums [panels, rows, tokens of a panel] -> out [tokens, rows]."""
    for t in range(0, n_tokens, LANES):
        panel = (t // _PANEL) * _PANEL
        step = 8 * LANES if n_tokens - panel > LANES else 4 * LANES
        source = sums + 4 * _BLOCK_ROWS * panel + 4 * (t - panel)
        for r in range(0, n_rows, LANES):
            here = out + t * out_step + 4 * r
            if t + LANES <= n_tokens and r + LANES <= n_rows:
                turn(source + r * step, step, here, out_step)
            else:
                turn_part(
                    source + r * step,
                    step,
                    min(LANES, n_rows - r),
                    LANES,
                    here,
                    out_step,
                    n_tokens - t,
                    min(LANES, n_rows - r),
                )


# ---------------------------------------------------------------- products of bytes


def _ggml_layer(block: int, low: Any, high: Any) -> Any:
    """Lays rows of GGML's blocks of 32 side by side; `high` lays their second 16 bytes, where they have so many."""

    @inline
    def lay(rows: int, temporary: int, n_cols: int, first: int, n: int, quants: int, scales: int) -> None:
        for i in range(n):
            at = block * (first + i)
            low(rows, at + 2, quants + _GROUP_BYTES * i, 4 * BYTE_ROWS)
            if block == 34:
                high(rows, at + 18, quants + _GROUP_BYTES * i + 16 * BYTE_ROWS, 4 * BYTE_ROWS)
            put_floats(scales + 4 * BYTE_ROWS * i, listed_halves(rows, at))

    return lay


def _lane_layer(fours: int) -> Any:
    """Lays lane-interleaved rows side by side; fours: of bytes in a group, 4 or 8."""

    @inline
    def lay(rows: int, temporary: int, n_cols: int, first: int, n: int, quants: int, scales: int) -> None:
        groups = (n_cols + 31) // 32
        for start in range(0, n, LANES):
            group = first + start
            superblock = group & -_SUPERBLOCK
            in_superblock = min(_SUPERBLOCK, groups - superblock)
            found = min(LANES, n - start)
            at = 4 * fours * superblock + 4 * (group - superblock)
            for k in range(fours):
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
    """Lays rows of blocks of 256 side by side, for tiles of this kind."""
    n_bytes = codec.n_bytes
    stage = staged(codec, kind)

    @inline
    def lay(rows: int, temporary: int, n_cols: int, first: int, n: int, quants: int, scales: int) -> None:
        factors = temporary + LANES * _STAGED_BYTES
        for i in range(n // 8):
            at = (first // 8 + i) * n_bytes
            for r in range(LANES):
                stage(get_int(rows + 8 * r) + at, temporary + r * _STAGED_BYTES, factors + 64 * r)
            for k in range(0, COLUMNS // 4, LANES):
                target = quants + 8 * _GROUP_BYTES * i + 4 * BYTE_ROWS * k
                turn(temporary + 4 * k, _STAGED_BYTES, target, 4 * BYTE_ROWS)
            for k in range(0, 16, LANES):
                turn(factors + 4 * k, 64, scales + 4 * BYTE_ROWS * (16 * i + k), 4 * BYTE_ROWS)

    return lay


# How LANES listed rows are laid side by side, the kind of tile for them, and which row of meta has the products with
# their quants' offset.
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
    """The product with tokens as bytes. Items: rows of w.

    args: w, its row step, D, values, meta, tokens, out, its row step, scratch, scratch step.
    """
    lay, kind, offset_row = _LAYERS[codec]
    many, few = byte_tile(BYTE_TOKENS, kind), byte_tile(_FEW_TOKENS, kind)
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
                    for r in range(BYTE_ROWS):  # rows that fill up a panel are the last one again
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
                        )
                for t in range(0, tokens, wide):
                    place = (t // wide) * groups + first
                    x, about = values + place * 32 * wide, meta + place * _META_BYTES * wide
                    for p in range(n_panels):
                        row = first_row + p * BYTE_ROWS
                        n_rows, n_tokens = min(BYTE_ROWS, last_row - row), min(wide, tokens - t)
                        here = out + t * out_step + 4 * row
                        _take_sums(sums, here, out_step, n_tokens, n_rows, wide, first == 0)
                        panel = quants + _GROUPS * _GROUP_BYTES * p
                        factors = scales + _GROUPS * scale_bytes * p
                        if wide == BYTE_TOKENS:
                            many(panel, factors, x, about, 4 * wide * offset_row, n, sums)
                        else:
                            few(panel, factors, x, about, 4 * wide * offset_row, n, sums)
                        _put_sums(sums, here, out_step, n_tokens, n_rows)

    return Kernel(matmul, f"gemm.matmul_bytes.{codec}")


@inline
def _take_sums(sums: int, out: int, out_step: int, n_tokens: int, n_rows: int, wide: int, begin: bool) -> None:
    """sums [wide, BYTE_ROWS] as they stand in out; 0 at the beginning, and for tokens and rows that are none."""
    for t in range(wide):
        for v in range(2):
            target = sums + 4 * BYTE_ROWS * t + 4 * LANES * v
            left = min(LANES, n_rows - v * LANES)
            if begin or t >= n_tokens or left <= 0:
                put_floats(target, zero())
            elif left == LANES:
                put_floats(target, floats(out + t * out_step + 4 * LANES * v))
            else:
                put_floats(target, floats_part(out + t * out_step + 4 * LANES * v, left))


@inline
def _put_sums(sums: int, out: int, out_step: int, n_tokens: int, n_rows: int) -> None:
    for t in range(n_tokens):
        for v in range(2):
            left = min(LANES, n_rows - v * LANES)
            if left == LANES:
                put_floats(out + t * out_step + 4 * LANES * v, floats(sums + 4 * BYTE_ROWS * t + 4 * LANES * v))
            elif left > 0:
                put_floats_part(
                    out + t * out_step + 4 * LANES * v, left, floats(sums + 4 * BYTE_ROWS * t + 4 * LANES * v)
                )


# ---------------------------------------------------------------- the transposed product


@kernel
def _mark(args: int, lo: int, hi: int, worker: int) -> None:
    """Which neurons are not 0 for every token. Items: neurons. args: h, its row step, tokens, flags."""
    h, step, tokens, flags = get_int(args), get_int(args + 8), get_int(get_int(args + 16)), get_int(args + 24)
    for f in range(lo, hi):
        put_byte(flags + f, 0)
    for t in range(tokens):
        row = h + t * step
        for f in range(lo, hi):
            if get_float(row + 4 * f) != 0.0:
                put_byte(flags + f, 1)


@kernel
def _list(args: int, lo: int, hi: int, worker: int) -> None:
    """One item: the numbers of marked neurons, ascending. args: as _mark, then ids, count, F."""
    flags, ids, count, n = get_int(args + 24), get_int(args + 32), get_int(args + 40), get_int(args + 48)
    found = 0
    for f in range(n):
        put_int32(ids + 4 * found, f)
        found += get_byte(flags + f)
    put_int(count, found)


@kernel
def _pack_firing(args: int, lo: int, hi: int, worker: int) -> None:
    """Items: PIECE of the neurons found. args: as _list, then tiles, tile step."""
    h, step, tokens = get_int(args), get_int(args + 8), get_int(get_int(args + 16))
    ids, count = get_int(args + 32), get_int(get_int(args + 40))
    tiles, tile_step = get_int(args + 56), get_int(args + 64)
    for piece in range(lo, hi):
        first = piece * PIECE
        last = min(count, first + PIECE)
        for t in range(tokens):
            source = h + t * step
            target = tiles + (t // _T_TOKENS) * tile_step + (piece * _T_TOKENS + t % _T_TOKENS) * ROW_BYTES
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
    """The weighted sum of the rows that are listed. Items: columns of w.

    args: w, its row step, D, ids, count, tiles, tile step, tokens, out, its row step, scratch, scratch step.
    """
    unpack = UNPACKERS[codec]

    def matmul_t(args: int, lo: int, hi: int, worker: int) -> None:
        w, w_step, n_cols = get_int(args), get_int(args + 8), get_int(args + 16)
        ids, count = get_int(args + 24), get_int(get_int(args + 32))
        tiles, tile_step, tokens = get_int(args + 40), get_int(args + 48), get_int(get_int(args + 56))
        out, out_step = get_int(args + 64), get_int(args + 72)
        sums = get_int(args + 80) + worker * get_int(args + 88)
        unpacked = sums + 4 * 2 * LANES * _T_TOKENS
        for column in range(lo, hi, _T_COLUMNS):
            n_columns = min(_T_COLUMNS, hi - column)
            for first in range(0, max(count, 1), PIECE):  # of none the sum is 0
                n = min(PIECE, count - first)
                for i in range(n):
                    row = w + get_int32(ids + 4 * (first + i)) * w_step
                    unpack(row, n_cols, column, n_columns, unpacked + i * _T_STEP)
                for t in range(0, tokens, _T_TOKENS):
                    a = tiles + (t // _T_TOKENS) * tile_step + first * (_T_TOKENS * ROW_BYTES // PIECE)
                    n_tokens = min(_T_TOKENS, tokens - t)
                    for c in range(0, n_columns, 2 * LANES):
                        here = out + t * out_step + 4 * (column + c)
                        begin = np.int64(first == 0)
                        if first > 0:
                            _take_sums(sums, here, out_step, n_tokens, n_columns - c, _T_TOKENS, False)
                        if n_tokens <= _T_FEW_TOKENS:
                            _T_FEW(a, unpacked + 4 * c, n, sums, begin)
                        else:
                            _T_TILE(a, unpacked + 4 * c, n, sums, begin)
                        _put_sums(sums, here, out_step, n_tokens, n_columns - c)

    return Kernel(matmul_t, f"gemm.matmul_t.{codec}")
