"""Pieces of rows in every codec as float32, for the kernels that multiply floats; it multiplies nothing itself.

UNPACKERS[codec](row, n_cols, first, n, target) writes the columns first to first + n of the row at that address, and
up to 31 numbers more behind them. `first` is a multiple of PIECE, or of the codec's block for codecs of 32 and less.
The numbers are those of native_kernels.codecs, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from native_kernels.cpu.jit import inline
from native_kernels.cpu.simd import (
    LANES,
    bfloats,
    bfloats_part,
    floats,
    floats_part,
    get_half,
    halves,
    halves_part,
    put_floats,
    put_floats_part,
)
from native_kernels.cpu.tiles import floats_of_bytes, floats_of_lane_bytes, floats_of_lane_nibbles, floats_of_nibbles

Unpacker = Callable[[int, int, int, int, int], None]


def _of_numbers(size: int, whole: Any, part: Any) -> Unpacker:
    """For codecs that store numbers one by one."""

    @inline
    def unpack(row: int, n_cols: int, first: int, n: int, target: int) -> None:
        at, i = row + size * first, 0
        while i + LANES <= n:
            put_floats(target + 4 * i, whole(at + size * i))
            i += LANES
        if i < n:
            put_floats_part(target + 4 * i, n - i, part(at + size * i, n - i))

    return unpack


def _of_blocks(size: int, quants: int, emit: Any) -> Unpacker:
    """For blocks of 32 that begin with a float16 scale."""

    @inline
    def unpack(row: int, n_cols: int, first: int, n: int, target: int) -> None:
        at = row + (first // 32) * size
        for i in range((n + 31) // 32):
            emit(at + size * i + quants, get_half(at + size * i), target + 128 * i)

    return unpack


def _of_lanes(fours: int, emit: Any) -> Unpacker:
    """For lane-interleaved groups of 32, `fours` times four bytes each."""

    @inline
    def unpack(row: int, n_cols: int, first: int, n: int, target: int) -> None:
        groups = (n_cols + 31) // 32
        scales = row + 4 * fours * groups
        for i in range((n + 31) // 32):
            group = first // 32 + i
            start = group & -16
            step = 4 * min(16, groups - start)
            at = row + 4 * fours * start + 4 * (group - start)
            emit(at, step, get_half(scales + 2 * group), target + 128 * i)

    return unpack


UNPACKERS: dict[str, Unpacker] = {
    "f32": _of_numbers(4, floats, floats_part),
    "f16": _of_numbers(2, halves, halves_part),
    "bf16": _of_numbers(2, bfloats, bfloats_part),
    "q4_0": _of_blocks(18, 2, floats_of_nibbles),
    "q8_0": _of_blocks(34, 2, floats_of_bytes),
    "q4_0.lanes": _of_lanes(4, floats_of_lane_nibbles),
    "q8_0.lanes": _of_lanes(8, floats_of_lane_bytes),
}
