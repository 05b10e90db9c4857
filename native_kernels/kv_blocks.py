"""Memory layout of a layer's keys and values: blocks of positions.

A block holds BLOCK positions of one head. First the keys, dimension by dimension, so that a vector of positions is read
at once and no sum runs across a vector; then the values, position by position, rows padded with zeros to a multiple of
ROW. q8_0 has a float16 scale for every GROUP dimensions of a position, rounded to 8 bits; the key scales [groups,
BLOCK] follow the keys, the value scales follow the values.

Where the keys are the values too (`shared`), a block holds them once, as values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

KvCodec = Literal["f32", "f16", "q8_0"]
KV_CODECS: tuple[KvCodec, ...] = get_args(KvCodec)

BLOCK = 32  # positions
ROW = 16  # values are padded to a multiple of the widest vector
GROUP = 32  # dimensions under one scale
_ALIGNMENT = 64
_VALUE_BYTES: dict[KvCodec, int] = {"f32": 4, "f16": 2, "q8_0": 1}


@dataclass(frozen=True)
class KvLayout:
    """Byte offsets within a block."""

    head_dim: int
    codec: KvCodec
    shared: bool = False  # a position's key is its value too, as with a latent vector (MLA)

    @property
    def value_bytes(self) -> int:
        return _VALUE_BYTES[self.codec]

    @property
    def padded_dim(self) -> int:
        """Numbers in a row of values."""
        return -(-self.head_dim // ROW) * ROW

    @property
    def n_groups(self) -> int:
        """Scales of one position; 0 if the codec has none."""
        return -(-self.head_dim // GROUP) if self.codec == "q8_0" else 0

    @property
    def key_scales(self) -> int:
        return 0 if self.shared else BLOCK * self.head_dim * self.value_bytes

    @property
    def values(self) -> int:
        return 0 if self.shared else self.key_scales + 2 * BLOCK * self.n_groups

    @property
    def value_scales(self) -> int:
        return self.values + BLOCK * self.padded_dim * self.value_bytes

    @property
    def block_bytes(self) -> int:
        used = self.value_scales + 2 * BLOCK * self.n_groups
        return -(-used // _ALIGNMENT) * _ALIGNMENT

    @property
    def row_bytes(self) -> int:
        """Bytes of one position of one head, without padding."""
        one = self.head_dim * self.value_bytes + 2 * self.n_groups
        return one if self.shared else 2 * one

    def n_blocks(self, n_positions: int) -> int:
        """Return the number of blocks that hold n_positions."""
        return -(-n_positions // BLOCK)


def allocate(n_layers: int, n_kv_heads: int, n_positions: int, layout: KvLayout) -> U8:
    """Allocate empty blocks [L, H_kv, n_blocks, block_bytes], aligned to a cache line; pages are not touched before
    use.

    Raises: MemoryError.
    """
    shape = (n_layers, n_kv_heads, layout.n_blocks(n_positions), layout.block_bytes)
    raw = np.zeros(math.prod(shape) + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + math.prod(shape)].reshape(shape)


def write(blocks: U8, layout: KvLayout, position: int, k: F32, v: F32) -> None:
    """Store the keys and values of T positions from `position` on.

    Shapes: blocks [H_kv, n_blocks, block_bytes]; k, v [T, H_kv, head_dim]. A shared layout stores v alone.
    """
    done = 0
    while done < len(k):
        block, first = divmod(position + done, BLOCK)
        some = min(len(k) - done, BLOCK - first)
        taken, places = slice(done, done + some), slice(first, first + some)
        parts = _parts(blocks[:, block], layout)
        values, value_scales = _encode(v[taken], layout)
        parts.values[:, places, : layout.head_dim] = values.swapaxes(0, 1)
        if layout.n_groups:
            parts.value_scales[:, :, places] = value_scales.transpose(1, 2, 0)
        if not layout.shared:
            keys, key_scales = _encode(k[taken], layout)
            parts.keys[:, :, places] = keys.transpose(1, 2, 0)
            if layout.n_groups:
                parts.key_scales[:, :, places] = key_scales.transpose(1, 2, 0)
        done += some


def read(blocks: U8, layout: KvLayout, n_positions: int) -> tuple[F32, F32]:
    """Return the keys and values of the first n_positions, [n_positions, H_kv, head_dim] each, as new arrays."""
    n_heads, d = len(blocks), layout.head_dim
    parts = _parts(blocks[:, : layout.n_blocks(n_positions)], layout)
    groups, shape = np.arange(d) // GROUP, (-1, n_heads, d)
    values: F32 = parts.values[..., :d].astype(np.float32)  # [H, n_blocks, BLOCK, head_dim]
    if layout.n_groups:
        values *= parts.value_scales[..., groups, :].swapaxes(-1, -2)
    found = values.transpose(1, 2, 0, 3).reshape(shape)[:n_positions]
    if layout.shared:
        return found, found
    keys: F32 = parts.keys.astype(np.float32)  # [H, n_blocks, head_dim, BLOCK]
    if layout.n_groups:
        keys *= parts.key_scales[..., groups, :]
    return keys.transpose(1, 3, 0, 2).reshape(shape)[:n_positions], found


def to_rows(blocks: U8, layout: KvLayout, n_positions: int) -> U8:
    """Return the first n_positions as a GPU stores them: keys [H_kv, n, head_dim], their scales, values, their scales.

    blocks [H_kv, n_blocks, block_bytes]. The numbers stay as they are encoded. A shared layout has no keys. Result: the
    bytes of all parts in a row, of `row_bytes` for each position and head.
    """
    n_heads, parts = len(blocks), _parts(blocks, layout)
    by_position = (
        parts.keys.swapaxes(-1, -2),
        parts.key_scales.swapaxes(-1, -2),
        parts.values[..., : layout.head_dim],
        parts.value_scales.swapaxes(-1, -2),
    )  # [H, n_blocks, BLOCK, numbers] each
    flat = [part.reshape(n_heads, blocks.shape[1] * BLOCK, part.shape[-1])[:, :n_positions] for part in by_position]
    return np.concatenate([np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in flat])


def from_rows(rows: U8, layout: KvLayout, n_kv_heads: int, n_positions: int) -> U8:
    """The inverse of `to_rows`: blocks [H_kv, n_blocks, block_bytes]. Positions behind the last one are zero."""
    n_blocks = layout.n_blocks(n_positions)
    blocks: U8 = np.zeros((n_kv_heads, n_blocks, layout.block_bytes), np.uint8)
    parts, at = _parts(blocks, layout), 0
    targets = (
        parts.keys.swapaxes(-1, -2),
        parts.key_scales.swapaxes(-1, -2),
        parts.values[..., : layout.head_dim],
        parts.value_scales.swapaxes(-1, -2),
    )
    for target in targets:
        numbers = target.shape[-1]
        n_bytes = n_kv_heads * n_positions * numbers * target.itemsize
        part = rows[at : at + n_bytes].view(target.dtype).reshape(n_kv_heads, n_positions, numbers)
        whole = np.zeros((n_kv_heads, n_blocks * BLOCK, numbers), target.dtype)
        whole[:, :n_positions] = part
        target[...] = whole.reshape(n_kv_heads, n_blocks, BLOCK, numbers)
        at += n_bytes
    return blocks


class _Parts(NamedTuple):
    """Views of blocks. All leading axes are those of the blocks. In a shared layout there are no keys."""

    keys: NDArray[Any]  # [..., head_dim, BLOCK]
    key_scales: NDArray[np.float16]  # [..., groups, BLOCK]
    values: NDArray[Any]  # [..., BLOCK, padded_dim]
    value_scales: NDArray[np.float16]  # [..., groups, BLOCK]


def _parts(blocks: U8, layout: KvLayout) -> _Parts:
    dtype = {"f32": np.float32, "f16": np.float16, "q8_0": np.int8}[layout.codec]
    around, groups = blocks.shape[:-1], layout.n_groups
    of_keys, key_groups = (0, 0) if layout.shared else (layout.head_dim, groups)
    end = layout.value_scales + 2 * BLOCK * groups
    return _Parts(
        blocks[..., : layout.key_scales].view(dtype).reshape(*around, of_keys, BLOCK),
        blocks[..., layout.key_scales : layout.values].view(np.float16).reshape(*around, key_groups, BLOCK),
        blocks[..., layout.values : layout.value_scales].view(dtype).reshape(*around, BLOCK, layout.padded_dim),
        blocks[..., layout.value_scales : end].view(np.float16).reshape(*around, groups, BLOCK),
    )


def _encode(x: F32, layout: KvLayout) -> tuple[NDArray[Any], NDArray[np.float16]]:
    """Encode x [T, H, head_dim]; also return its scales [T, H, groups]."""
    around, groups = x.shape[:2], layout.n_groups
    with np.errstate(over="ignore", invalid="ignore"):  # overflow becomes infinite
        if layout.codec != "q8_0":
            return x.astype(np.float16 if layout.codec == "f16" else np.float32), np.empty((*around, 0), np.float16)
        padded = np.zeros((*around, groups * GROUP), np.float32)
        padded[..., : layout.head_dim] = x
        grouped = padded.reshape(*around, groups, GROUP)
        largest = np.abs(grouped).max(axis=-1)
        scales = (largest * np.float32(1 / 127)).astype(np.float16)
        steps = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
        quants = np.rint(grouped * steps[..., None]).astype(np.int8)
    return quants.reshape(padded.shape)[..., : layout.head_dim], scales
