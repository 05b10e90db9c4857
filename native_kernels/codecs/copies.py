"""Low-bit copies of a matrix, rows interleaved by SIMD lanes: copy1 to copy4 (docs/bundle.md, section 6).

value = scale (2 code + 1 - 2^bits) / 2, with one float16 scale for every 512 columns: symmetric levels, none of them
zero. Choosing the codes for a matrix is not done here.

A row holds superblocks of 512 columns, each of 16 pieces of 32 (fewer in the last, padded to whole groups), then
the scales. A superblock holds the lower bits of all codes, then the upper ones: a plane of 4, 2 or 1 bits, in runs of
four bytes for every piece. In a plane of b bits, bits [b i, b i + b) of byte j of run r belong to column
32 r / b + 4 i + j of their piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from native_kernels.codecs.codec import F32, U8, Codec

# Columns under one scale. With codes rounded for the product, more scales gain little (starter model, layer 4, share of
# neurons at recall .995, scales for 64 columns against 512: one bit .264 and .270, two bits .110 and .113), and would
# take a fifth of a one-bit copy.
COPY_GROUP = 512
_FILLED = 64  # rows are padded to a multiple of this many columns
_PIECE = 32  # columns of one lane
_LANES = 16  # pieces in a superblock
_DECODED = 1 << 16  # numbers per chunk
_PLANES = {1: (1,), 2: (2,), 3: (2, 1), 4: (4,)}  # bits of each plane, lowest first


def copy_groups(n_cols: int) -> int:
    """Return the number of scales of a row of n_cols columns; the last group may have fewer columns."""
    return -(-n_cols // COPY_GROUP)


def filled(n_cols: int) -> int:
    """Return the padded number of columns of a row of n_cols."""
    return -(-n_cols // _FILLED) * _FILLED


def planes(bits: int) -> tuple[int, ...]:
    """Return the bits of a code in each plane, lowest first."""
    return _PLANES[bits]


@dataclass(frozen=True, eq=False)
class CopyCodec(Codec):
    """A codec of rows of any length. Rows are padded, so n numbers decode to n or more.

    Unlike blocks, a row cannot be cut: the last axis is always one whole row.
    """

    bits: int = 1

    def n_bytes(self, n_numbers: int) -> int:
        return filled(n_numbers) // 8 * self.bits + 2 * copy_groups(n_numbers)

    def split(self, rows: U8) -> tuple[U8, F32]:
        """Unpack rows. Shapes: u8 [n, row_bytes] -> codes u8 [n, filled], scales f32 [n, G]."""
        n_cols = self._columns(rows.shape[-1])
        rows = np.ascontiguousarray(rows)
        codes = np.zeros((len(rows), n_cols // _PIECE, _PIECE), np.uint8)
        for at, taken, bits, up in self._planes(n_cols):
            n, runs = taken.stop - taken.start, bits  # a piece's run of 4 bytes holds 32 / bits codes
            packed = rows[:, at : at + 4 * n * runs].reshape(len(rows), runs, n, 4).swapaxes(1, 2)  # [rows, n, runs, 4]
            mask = (1 << bits) - 1
            levels = np.stack([(packed >> (bits * i)) & mask for i in range(8 // bits)], axis=3)
            codes[:, taken] |= levels.reshape(len(rows), n, _PIECE) << np.uint8(up)
        scales = np.ascontiguousarray(rows[:, n_cols // 8 * self.bits :]).view("<f2").astype(np.float32)
        return codes.reshape(len(rows), -1), scales

    def join(self, codes: U8, scales: U8) -> U8:
        """Pack rows. Shapes: codes u8 [n, filled], scales as bytes u8 [n, 2 G] -> u8 [n, row_bytes]."""
        n_rows, n_cols = codes.shape
        out = np.empty((n_rows, self.n_bytes(n_cols)), np.uint8)
        pieces = codes.reshape(n_rows, -1, _PIECE)
        for at, taken, bits, up in self._planes(n_cols):
            n, runs = taken.stop - taken.start, bits
            mask = np.uint8((1 << bits) - 1)
            levels = ((pieces[:, taken] >> np.uint8(up)) & mask).reshape(n_rows, n, runs, 8 // bits, 4)
            packed = np.zeros((n_rows, n, runs, 4), np.uint8)
            for i in range(8 // bits):
                packed |= levels[:, :, :, i] << np.uint8(bits * i)
            out[:, at : at + 4 * n * runs] = packed.swapaxes(1, 2).reshape(n_rows, -1)
        out[:, n_cols // 8 * self.bits :] = scales
        return out

    def decode(self, data: U8, out: F32 | None = None) -> F32:
        """Decode rows. Shapes: data u8 [..., row_bytes] -> [..., filled]."""
        n_cols = self._columns(data.shape[-1])
        shape = (*data.shape[:-1], n_cols)
        if out is None:
            out = np.empty(shape, np.float32)
        elif out.shape != shape or out.dtype != np.float32 or not out.flags.c_contiguous:
            raise ValueError(f"out is {out.dtype} {out.shape}; contiguous float32 {shape} is needed")
        rows, numbers = data.reshape(-1, data.shape[-1]), out.reshape(-1, n_cols)
        step = max(1, _DECODED // max(1, n_cols))
        middle = np.float32((1 - (1 << self.bits)) / 2)
        for start in range(0, len(rows), step):
            codes, scales = self.split(rows[start : start + step])
            with np.errstate(invalid="ignore", over="ignore"):
                levels = codes.astype(np.float32) + middle
                np.multiply(levels, _for_columns(scales, n_cols), out=numbers[start : start + step])
        return out

    def encode(self, values: F32) -> U8:
        """Encode rows; a group's largest magnitude becomes the last level. Shapes: values f32 [..., n] -> u8 [...,
        row_bytes].
        """
        rows = np.ascontiguousarray(values, np.float32).reshape(-1, values.shape[-1])
        n_cols = filled(rows.shape[1])
        padded = np.pad(rows, ((0, 0), (0, n_cols - rows.shape[1])))
        last = (1 << self.bits) - 1
        starts = range(0, n_cols, COPY_GROUP)
        with np.errstate(all="ignore"):  # overflow becomes infinite
            tops = np.stack([np.abs(padded[:, at : at + COPY_GROUP]).max(axis=1) for at in starts], axis=1)
            scales = (tops * np.float32(2 / last)).astype("<f2")
            steps = _for_columns(scales.astype(np.float32), n_cols)
            places = np.floor(padded / np.where(steps == 0, np.float32(1), steps)) + np.float32(1 << (self.bits - 1))
            codes = np.clip(np.nan_to_num(places), 0, last).astype(np.uint8)
        return self.join(codes, scales.view(np.uint8)).reshape(*values.shape[:-1], -1)

    def _columns(self, row_bytes: int) -> int:
        """Return the columns of a row of this many bytes. Raises: ValueError if no row has this size."""
        of_group = COPY_GROUP // 8 * self.bits + 2
        whole, rest = divmod(row_bytes, of_group)
        of_rest = max(0, rest - 2) // (_FILLED // 8 * self.bits) * _FILLED
        n_cols = whole * COPY_GROUP + of_rest
        if self.n_bytes(n_cols) != row_bytes:
            raise ValueError(f"{row_bytes} bytes are not a row of {self.name}")
        return n_cols

    def _planes(self, n_cols: int) -> Iterator[tuple[int, slice, int, int]]:
        """Yield (first byte, pieces, bits, shift of these bits in a code) for every plane of a row's superblocks."""
        n_pieces, at = n_cols // _PIECE, 0
        for first in range(0, n_pieces, _LANES):
            taken, up = slice(first, min(first + _LANES, n_pieces)), 0
            for bits in planes(self.bits):
                yield at, taken, bits, up
                at += 4 * bits * (taken.stop - taken.start)
                up += bits


def _for_columns(scales: F32, n_cols: int) -> F32:
    """Repeat the scales for each of their columns: [n, G] -> [n, n_cols]."""
    return np.repeat(scales, COPY_GROUP, axis=1)[:, :n_cols]


def _refuse_blocks(data: U8, out: F32) -> None:
    raise ValueError("interleaved rows have no consecutive blocks")


COPY_CODECS: dict[str, CopyCodec] = {
    f"copy{bits}": CopyCodec(
        f"copy{bits}",
        _FILLED,
        _FILLED // 8 * bits,
        _refuse_blocks,
        lambda values: values.view(np.uint8),
        bits,
    )
    for bits in (1, 2, 3, 4)
}
