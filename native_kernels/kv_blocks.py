"""How the keys and values of a layer lie in memory for the kernels: in blocks of positions. It multiplies nothing.

A block holds BLOCK positions of one head: the keys, dimension by dimension, so that a vector of positions is read at
once and no sum runs across a vector; then the values, position by position, their rows filled up with zeros to a
multiple of ROW. q8_0 has a float16 scale for every GROUP dimensions of a position, rounded to 8 bits; all keys' scales
lie behind the keys, [groups, BLOCK], and the values' likewise behind the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32, U8

KvCodec = Literal["f32", "f16", "q8_0"]
KV_CODECS: tuple[KvCodec, ...] = get_args(KvCodec)

BLOCK = 32  # positions
ROW = 16  # what values are filled up to a multiple of: the widest vector
GROUP = 32  # dimensions under one scale
_ALIGNMENT = 64
_VALUE_BYTES: dict[KvCodec, int] = {"f32": 4, "f16": 2, "q8_0": 1}


@dataclass(frozen=True)
class KvLayout:
    """The places within a block, in bytes."""

    head_dim: int
    codec: KvCodec

    @property
    def value_bytes(self) -> int:
        """Of one number."""
        return _VALUE_BYTES[self.codec]

    @property
    def padded_dim(self) -> int:
        """Numbers of a row of values."""
        return -(-self.head_dim // ROW) * ROW

    @property
    def n_groups(self) -> int:
        """Scales of one position; 0 where the codec has none."""
        return -(-self.head_dim // GROUP) if self.codec == "q8_0" else 0

    @property
    def key_scales(self) -> int:
        return BLOCK * self.head_dim * self.value_bytes

    @property
    def values(self) -> int:
        return self.key_scales + 2 * BLOCK * self.n_groups

    @property
    def value_scales(self) -> int:
        return self.values + BLOCK * self.padded_dim * self.value_bytes

    @property
    def block_bytes(self) -> int:
        used = self.value_scales + 2 * BLOCK * self.n_groups
        return -(-used // _ALIGNMENT) * _ALIGNMENT

    def n_blocks(self, n_positions: int) -> int:
        """Blocks that so many positions take."""
        return -(-n_positions // BLOCK)


def write(blocks: U8, layout: KvLayout, position: int, k: F32, v: F32) -> None:
    """Stores the keys and values of T positions from `position` on.

    Shapes: blocks [H_kv, n_blocks, block_bytes]; k, v [T, H_kv, head_dim].
    """
    for at, taken, some in _runs(position, len(k)):
        block, first = divmod(at, BLOCK)
        of_keys, of_values = _sections(blocks[:, block], layout)
        places = slice(first, first + some)
        keys, key_scales = _encode(k[taken], layout)
        values, value_scales = _encode(v[taken], layout)
        of_keys[0][:, :, places] = keys.transpose(1, 2, 0)
        of_values[0][:, places, : layout.head_dim] = values.swapaxes(0, 1)
        if layout.n_groups:
            of_keys[1][:, :, places] = key_scales.transpose(1, 2, 0)
            of_values[1][:, :, places] = value_scales.transpose(1, 2, 0)


def read(blocks: U8, layout: KvLayout, n_positions: int) -> tuple[F32, F32]:
    """The keys and values of the first positions, [n_positions, H_kv, head_dim] each, as new arrays."""
    n_heads = len(blocks)
    k = np.empty((n_positions, n_heads, layout.head_dim), np.float32)
    v = np.empty_like(k)
    for at, taken, some in _runs(0, n_positions):
        of_keys, of_values = _sections(blocks[:, at // BLOCK], layout)
        keys = of_keys[0][:, :, :some].astype(np.float32)
        values = of_values[0][:, :some, : layout.head_dim].astype(np.float32)
        if layout.n_groups:
            groups = np.arange(layout.head_dim) // GROUP
            keys *= of_keys[1][:, groups, :some]
            values *= of_values[1][:, groups, :some].swapaxes(1, 2)
        k[taken], v[taken] = keys.transpose(2, 0, 1), values.swapaxes(0, 1)
    return k, v


def _runs(position: int, count: int) -> list[tuple[int, slice, int]]:
    """(first position, which of the count, how many) of each block that they touch."""
    runs, done = [], 0
    while done < count:
        some = min(count - done, BLOCK - (position + done) % BLOCK)
        runs.append((position + done, slice(done, done + some), some))
        done += some
    return runs


def _sections(block: U8, layout: KvLayout) -> tuple[tuple[NDArray[np.generic], NDArray[np.float16]], ...]:
    """Views of one block of every head: (keys [H, head_dim, BLOCK], their scales [H, groups, BLOCK]), and of values."""
    dtype = {"f32": np.float32, "f16": np.float16, "q8_0": np.int8}[layout.codec]
    n_heads, d, groups = len(block), layout.head_dim, layout.n_groups
    used = layout.value_scales + 2 * BLOCK * groups
    keys = block[:, : layout.key_scales].view(dtype).reshape(n_heads, d, BLOCK)
    key_scales = block[:, layout.key_scales : layout.values].view(np.float16).reshape(n_heads, groups, BLOCK)
    values = block[:, layout.values : layout.value_scales].view(dtype).reshape(n_heads, BLOCK, layout.padded_dim)
    value_scales = block[:, layout.value_scales : used].view(np.float16).reshape(n_heads, groups, BLOCK)
    return (keys, key_scales), (values, value_scales)


def _encode(x: F32, layout: KvLayout) -> tuple[NDArray[np.generic], NDArray[np.float16]]:
    """x [T, H, head_dim] in the codec, and its scales [T, H, groups]."""
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows becomes infinite
        if layout.codec != "q8_0":
            return x.astype(np.float16 if layout.codec == "f16" else np.float32), np.empty(
                (*x.shape[:2], 0), np.float16
            )
        padded = np.zeros((*x.shape[:2], layout.n_groups * GROUP), np.float32)
        padded[..., : layout.head_dim] = x
        groups = padded.reshape(*x.shape[:2], layout.n_groups, GROUP)
        largest = np.abs(groups).max(axis=-1)
        scales = (largest * np.float32(1 / 127)).astype(np.float16)
        steps = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
        quants = np.rint(groups * steps[..., None]).astype(np.int8)
    return quants.reshape(padded.shape)[..., : layout.head_dim], scales
