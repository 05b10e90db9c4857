"""Convert GGML's Q4_0 and Q8_0 blocks to rows interleaved by SIMD lanes and back, without loss.

The layout is docs/bundle.md, section 4. Nothing is quantised: scales and quants keep their values.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

U8 = NDArray[np.uint8]

GROUP = 32  # columns under one scale
_LANES = 16  # groups in a superblock
_QUANT_BYTES = {"q4_0": 16, "q8_0": 32}  # of one group


def n_groups(n_cols: int) -> int:
    """Return the groups in a row of n_cols columns; the last may be padded."""
    return -(-n_cols // GROUP)


def row_bytes(codec: str, n_cols: int) -> int:
    """Return the bytes of one row of n_cols columns, without padding."""
    if codec == "f32":
        return 4 * n_cols
    if codec == "f16":
        return 2 * n_cols
    return n_groups(n_cols) * (_QUANT_BYTES[codec] + 2)


def pack_rows(codec: str, blocks: U8) -> U8:
    """Convert GGML blocks to lane-interleaved rows.

    Shapes: blocks [n_rows, G, 18 or 34] (scale first, then quants) -> [n_rows, row_bytes].
    """
    n_rows, groups, _ = blocks.shape
    quants = blocks[:, :, 2:]
    if codec == "q4_0":  # GGML: byte i holds columns i (low) and 16 + i (high); here: 8 c + b and 8 c + 4 + b
        columns = np.concatenate([quants & 15, quants >> 4], axis=2).reshape(n_rows, groups, 4, 2, 4)
        quants = columns[:, :, :, 0] | (columns[:, :, :, 1] << 4)  # [n_rows, G, 4, 4]
    chunks = quants.reshape(n_rows, groups, -1, 4)
    out = np.empty((n_rows, groups * (_QUANT_BYTES[codec] + 2)), np.uint8)
    for at, taken, part in _superblocks(codec, groups):
        interleaved = chunks[:, taken].swapaxes(1, 2)  # [n_rows, chunks, t, 4]
        out[:, at : at + part] = interleaved.reshape(n_rows, part)
    out[:, groups * _QUANT_BYTES[codec] :] = np.ascontiguousarray(blocks[:, :, :2]).reshape(n_rows, 2 * groups)
    return out


def unpack_rows(codec: str, rows: U8) -> U8:
    """Convert lane-interleaved rows to GGML blocks. Shapes: [n_rows, row_bytes] -> [n_rows, G, 18 or 34]."""
    n_rows, n_bytes = rows.shape
    groups = n_bytes // (_QUANT_BYTES[codec] + 2)
    chunks = np.empty((n_rows, groups, _QUANT_BYTES[codec] // 4, 4), np.uint8)
    for at, taken, part in _superblocks(codec, groups):
        interleaved = rows[:, at : at + part].reshape(n_rows, -1, taken.stop - taken.start, 4)
        chunks[:, taken] = interleaved.swapaxes(1, 2)
    out = np.empty((n_rows, groups, _QUANT_BYTES[codec] + 2), np.uint8)
    out[:, :, :2] = rows[:, groups * _QUANT_BYTES[codec] :].reshape(n_rows, groups, 2)
    if codec == "q4_0":
        columns = np.stack([chunks & 15, chunks >> 4], axis=3).reshape(n_rows, groups, 32)
        out[:, :, 2:] = columns[:, :, :16] | (columns[:, :, 16:] << 4)
    else:
        out[:, :, 2:] = chunks.reshape(n_rows, groups, 32)
    return out


def _superblocks(codec: str, groups: int) -> Iterator[tuple[int, slice, int]]:
    """Yield (first byte, groups, bytes) of each superblock of a row."""
    for first in range(0, groups, _LANES):
        last = min(first + _LANES, groups)
        yield first * _QUANT_BYTES[codec], slice(first, last), (last - first) * _QUANT_BYTES[codec]
