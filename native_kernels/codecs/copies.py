"""Low-bit copies of a matrix, rows interleaved by SIMD lanes: copy1 to copy4 (docs/bundle.md, section 6).

value = scale (2 code + 1 - 2^bits) / 2, one float16 scale for every 64 columns: symmetric levels, none of them zero. It
says how codes are stored; which codes are the best ones for a matrix is not decided here.

A row: superblocks of 512 columns, each 16 pieces of 32 (the last one as many as are left, filled up to whole groups);
then the scales. Of a superblock first the lower bits of all codes, then the upper ones: a plane of 4, 2 or 1 bits in
runs of four bytes for every piece. Of a plane of b bits, bits [b i, b i + b) of byte j of run r belong to column
32 r / b + 4 i + j of their piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from native_kernels.codecs.codec import F32, U8, Codec

COPY_GROUP = 64  # columns under one scale
_PIECE = 32  # columns of one lane
_LANES = 16  # pieces in a superblock
_DECODED = 1 << 16  # numbers at a time
_PLANES = {1: (1,), 2: (2,), 3: (2, 1), 4: (4,)}  # bits of each plane, the lowest first


def copy_groups(n_cols: int) -> int:
    """Scales of a row of n_cols columns; the last group may be filled up."""
    return -(-n_cols // COPY_GROUP)


def planes(bits: int) -> tuple[int, ...]:
    """How the bits of a code are dealt to planes, from the lowest."""
    return _PLANES[bits]


@dataclass(frozen=True, eq=False)
class CopyCodec(Codec):
    """Rows of any length: a last group that is not full is filled up, so n numbers come back as n or more.

    Unlike blocks, a row cannot be cut: the last axis is always one whole row.
    """

    bits: int = 1

    def n_bytes(self, n_numbers: int) -> int:
        return copy_groups(n_numbers) * self.type_size

    def split(self, rows: U8) -> tuple[U8, F32]:
        """Shapes: u8 [n, row_bytes] -> codes u8 [n, 64 G], scales f32 [n, G]."""
        n_groups = self._count(rows.shape[-1], self.type_size, "bytes")
        rows = np.ascontiguousarray(rows)
        codes = np.zeros((len(rows), n_groups * COPY_GROUP // _PIECE, _PIECE), np.uint8)
        for at, taken, bits, up in self._planes(n_groups):
            n, runs = taken.stop - taken.start, bits  # a piece's run of 4 bytes holds 32 / bits codes
            packed = rows[:, at : at + 4 * n * runs].reshape(len(rows), runs, n, 4).swapaxes(1, 2)  # [rows, n, runs, 4]
            mask = (1 << bits) - 1
            levels = np.stack([(packed >> (bits * i)) & mask for i in range(8 // bits)], axis=3)
            codes[:, taken] |= levels.reshape(len(rows), n, _PIECE) << np.uint8(up)
        scales = np.ascontiguousarray(rows[:, n_groups * (self.type_size - 2) :]).view("<f2").astype(np.float32)
        return codes.reshape(len(rows), -1), scales

    def join(self, codes: U8, scales: U8) -> U8:
        """Shapes: codes u8 [n, 64 G], scales as bytes u8 [n, 2 G] -> u8 [n, row_bytes]."""
        n_rows, n_groups = len(codes), codes.shape[1] // COPY_GROUP
        out = np.empty((n_rows, n_groups * self.type_size), np.uint8)
        pieces = codes.reshape(n_rows, -1, _PIECE)
        for at, taken, bits, up in self._planes(n_groups):
            n, runs = taken.stop - taken.start, bits
            mask = np.uint8((1 << bits) - 1)
            levels = ((pieces[:, taken] >> np.uint8(up)) & mask).reshape(n_rows, n, runs, 8 // bits, 4)
            packed = np.zeros((n_rows, n, runs, 4), np.uint8)
            for i in range(8 // bits):
                packed |= levels[:, :, :, i] << np.uint8(bits * i)
            out[:, at : at + 4 * n * runs] = packed.swapaxes(1, 2).reshape(n_rows, -1)
        out[:, n_groups * (self.type_size - 2) :] = scales
        return out

    def decode(self, data: U8, out: F32 | None = None) -> F32:
        """Shapes: data u8 [..., row_bytes] -> [..., 64 times the groups of a row]."""
        n_groups = self._count(data.shape[-1], self.type_size, "bytes")
        shape = (*data.shape[:-1], n_groups * COPY_GROUP)
        if out is None:
            out = np.empty(shape, np.float32)
        elif out.shape != shape or out.dtype != np.float32 or not out.flags.c_contiguous:
            raise ValueError(f"out is {out.dtype} {out.shape}; contiguous float32 {shape} is needed")
        rows, numbers = data.reshape(-1, data.shape[-1]), out.reshape(-1, n_groups, COPY_GROUP)
        step = max(1, _DECODED // max(1, shape[-1]))
        middle = np.float32((1 - (1 << self.bits)) / 2)
        for start in range(0, len(rows), step):
            codes, scales = self.split(rows[start : start + step])
            with np.errstate(invalid="ignore", over="ignore"):
                levels = codes.reshape(len(codes), n_groups, COPY_GROUP).astype(np.float32) + middle
                np.multiply(levels, scales[:, :, None], out=numbers[start : start + step])
        return out

    def encode(self, values: F32) -> U8:
        """Shapes: values f32 [..., n] -> u8 [..., row_bytes]. A group's largest magnitude becomes the last level."""
        rows = np.ascontiguousarray(values, np.float32).reshape(-1, values.shape[-1])
        n_groups = copy_groups(values.shape[-1])
        padded = np.pad(rows, ((0, 0), (0, n_groups * COPY_GROUP - rows.shape[1]))).reshape(-1, n_groups, COPY_GROUP)
        last = (1 << self.bits) - 1
        with np.errstate(all="ignore"):  # what overflows becomes infinite
            scales = (np.abs(padded).max(axis=2) * np.float32(2 / last)).astype("<f2")
            steps = scales.astype(np.float32)[:, :, None]
            places = np.floor(padded / np.where(steps == 0, np.float32(1), steps)) + np.float32(1 << (self.bits - 1))
            codes = np.clip(np.nan_to_num(places), 0, last).astype(np.uint8).reshape(len(rows), -1)
        return self.join(codes, scales.view(np.uint8)).reshape(*values.shape[:-1], -1)

    def _planes(self, n_groups: int) -> Iterator[tuple[int, slice, int, int]]:
        """(first byte, pieces, bits, how far up they belong in a code) of every plane of a row's superblocks."""
        n_pieces, at = n_groups * COPY_GROUP // _PIECE, 0
        for first in range(0, n_pieces, _LANES):
            taken, up = slice(first, min(first + _LANES, n_pieces)), 0
            for bits in planes(self.bits):
                yield at, taken, bits, up
                at += 4 * bits * (taken.stop - taken.start)
                up += bits


def _refuse_blocks(data: U8, out: F32) -> None:
    raise ValueError("rows interleaved by lanes hold no blocks one after another")


COPY_CODECS: dict[str, CopyCodec] = {
    f"copy{bits}": CopyCodec(
        f"copy{bits}",
        COPY_GROUP,
        COPY_GROUP // 8 * bits + 2,
        _refuse_blocks,
        lambda values: values.view(np.uint8),
        bits,
    )
    for bits in (1, 2, 3, 4)
}
