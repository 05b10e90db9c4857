"""q4_0 and q8_0 in rows interleaved by SIMD lanes, as in bundles: docs/bundle.md, section 4."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from native_kernels.codecs import lane_packing
from native_kernels.codecs.codec import F32, U8, Codec
from native_kernels.codecs.small_blocks import SMALL_BLOCKS

_PIECE = 1 << 16  # numbers


@dataclass(frozen=True, eq=False)
class LaneCodec(Codec):
    """A codec of rows of any length. An incomplete last group is padded with 0, so n numbers decode to n or more.

    Unlike blocks, a row cannot be cut: the last axis is always one whole row.
    """

    blocks: Codec = SMALL_BLOCKS[0]

    def n_bytes(self, n_numbers: int) -> int:
        return lane_packing.row_bytes(self.blocks.name, n_numbers)

    def decode(self, data: U8, out: F32 | None = None) -> F32:
        """Decode rows. Shapes: data u8 [..., row_bytes] -> [..., 32 times the groups of a row]."""
        n_groups = self._count(data.shape[-1], self.type_size, "bytes")
        shape = (*data.shape[:-1], n_groups * self.block_size)
        if out is None:
            out = np.empty(shape, np.float32)
        elif out.shape != shape or out.dtype != np.float32 or not out.flags.c_contiguous:
            raise ValueError(f"out is {out.dtype} {out.shape}; contiguous float32 {shape} is needed")
        rows, numbers = data.reshape(-1, data.shape[-1]), out.reshape(-1, shape[-1])
        step = max(1, _PIECE // max(1, shape[-1]))
        for start in range(0, len(rows), step):
            blocks = lane_packing.unpack_rows(self.blocks.name, np.ascontiguousarray(rows[start : start + step]))
            numbers[start : start + step] = self.blocks.decode(blocks.reshape(len(blocks), -1))
        return out

    def encode(self, values: F32) -> U8:
        """Encode rows, rounded as the block codec rounds. Shapes: values f32 [..., n] -> u8 [..., row_bytes]."""
        rows = np.ascontiguousarray(values, np.float32).reshape(-1, values.shape[-1])
        missing = lane_packing.n_groups(values.shape[-1]) * self.block_size - values.shape[-1]
        coded = self.blocks.encode(np.pad(rows, ((0, 0), (0, missing))))
        blocks = coded.reshape(len(rows), -1, self.type_size)
        return lane_packing.pack_rows(self.blocks.name, blocks).reshape(*values.shape[:-1], -1)


def codec_by_columns(codec: str) -> str:
    """Return the codec of a stored matrix once its columns are rows: blocks, which span columns, become q8_0.lanes."""
    return codec if codec in ("f32", "f16", "bf16") else "q8_0.lanes"


def _refuse(data: U8, out: F32) -> None:
    raise ValueError("interleaved rows have no consecutive blocks")


LANE_CODECS: dict[str, Codec] = {
    f"{codec.name}.lanes": LaneCodec(
        f"{codec.name}.lanes", codec.block_size, codec.type_size, _refuse, codec.encode_blocks, codec
    )
    for codec in SMALL_BLOCKS
    if codec.name in ("q4_0", "q8_0")
}
