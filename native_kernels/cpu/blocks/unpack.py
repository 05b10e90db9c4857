"""Decode rows in every codec to float32, chunk by chunk, for kernels that multiply floats.

UNPACKERS[codec](row, n_cols, first, n, target) writes the columns first to first + n of the row at that address, and up
to 31 more numbers after them. `first` is a multiple of PIECE, or of the codec's block size if that is at most 32. The
numbers equal those of native_kernels.codecs, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from native_kernels.cpu.blocks.group_floats import (
    floats_of_bytes,
    floats_of_lane_bytes,
    floats_of_lane_nibbles,
    floats_of_nibbles,
)
from native_kernels.cpu.blocks.k_quant_blocks import BLOCKS, COLUMNS, GROUPS, Block, BlockCodec, pick
from native_kernels.cpu.blocks.small_block_reads import SMALL_BLOCKS, SmallCodec
from native_kernels.cpu.runtime.jit import inline
from native_kernels.cpu.runtime.simd import (
    I32,
    LANES,
    bfloats,
    bfloats_part,
    constant,
    floats,
    floats_part,
    get_half,
    halves,
    halves_part,
    i64,
    offset,
    operation,
    put_floats,
    put_floats_part,
    store,
    void,
)

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
    """For lane-interleaved groups of 32, `fours` four-byte words each."""

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


def _unpacked(codec: BlockCodec, read: Callable[[Any, Any], Block], parts: int) -> Any:
    """Return the operation (block, target): decode a block to float32, in `parts` vectors of 16 columns."""

    @operation(void, i64, i64)
    def block(b: Any, at: Any, target: Any) -> None:
        found = read(b, at)
        integers = ir.VectorType(I32, 16)
        for part in range(parts):
            quants = pick(b, found.quants[part // 4], list(range(16 * (part % 4), 16 * (part % 4) + 16)))
            whole = (b.sext if codec.signed else b.zext)(quants, integers)
            if codec.offset:
                whole = b.sub(whole, constant(integers, codec.offset))
            made = b.fmul(b.sitofp(whole, GROUPS), pick(b, found.scales, [part] * 16))
            if found.minima is not None:
                made = b.fsub(made, pick(b, found.minima, [part] * 16))
            store(b, offset(b, target, 64 * part), made)

    return block


def _of_super_blocks(codec: BlockCodec) -> Unpacker:
    """For blocks of 256."""
    n_bytes, block = codec.n_bytes, _unpacked(codec, codec.read, 16)

    @inline
    def unpack(row: int, n_cols: int, first: int, n: int, target: int) -> None:
        for i in range(n // COLUMNS):
            block(row + (first // COLUMNS + i) * n_bytes, target + 4 * COLUMNS * i)

    return unpack


def _of_small_blocks(codec: SmallCodec) -> Unpacker:
    """For blocks of 32, eight at a time and then one by one."""
    n_bytes, eight, single = codec.n_bytes // 8, _unpacked(codec, codec.read, 16), _unpacked(codec, codec.one, 2)

    @inline
    def unpack(row: int, n_cols: int, first: int, n: int, target: int) -> None:
        at, i = row + (first // 32) * n_bytes, 0
        while i + 8 <= n // 32:
            eight(at + i * n_bytes, target + 128 * i)
            i += 8
        while i < n // 32:
            single(at + i * n_bytes, target + 128 * i)
            i += 1

    return unpack


UNPACKERS: dict[str, Unpacker] = {
    "f32": _of_numbers(4, floats, floats_part),
    "f16": _of_numbers(2, halves, halves_part),
    "bf16": _of_numbers(2, bfloats, bfloats_part),
    "q4_0": _of_blocks(18, 2, floats_of_nibbles),
    "q8_0": _of_blocks(34, 2, floats_of_bytes),
    "q4_0.lanes": _of_lanes(4, floats_of_lane_nibbles),
    "q8_0.lanes": _of_lanes(8, floats_of_lane_bytes),
    **{name: _of_super_blocks(codec) for name, codec in BLOCKS.items()},
    **{name: _of_small_blocks(codec) for name, codec in SMALL_BLOCKS.items()},
}
