"""The codec type: two functions on blocks of numbers, applied to chunks that stay in the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

# Decoded numbers per chunk. Its temporary memory, less than twice its size, stays in a core's cache.
_PIECE = 1 << 16


@dataclass(frozen=True, eq=False)
class Codec:
    """A way to store float32 numbers in blocks: block_size numbers take type_size bytes.

    Bytes may be read-only, mapped or unaligned. Infinite or NaN scales decode to infinite or NaN numbers, without a
    warning.

    decode_blocks: fills f32 [n, block_size] from contiguous u8 [n, type_size].
    encode_blocks: contiguous f32 [n, block_size] -> u8 [n, type_size]; None for a codec that only decodes.
    """

    name: str
    block_size: int
    type_size: int
    decode_blocks: Callable[[U8, F32], None]
    encode_blocks: Callable[[F32], U8] | None = None

    def decode(self, data: U8, out: F32 | None = None) -> F32:
        """Decode bytes along the last axis into a new array, or into `out`.

        Shapes: data u8 [..., n * type_size] -> [..., n * block_size]; a block, a flat array or a matrix of rows.
        Cost: at most half a MB beside the result; strided rows are copied in chunks of about that size.
        Raises: ValueError if the last axis is not whole blocks or `out` does not fit.
        """
        shape = (*data.shape[:-1], self._count(data.shape[-1], self.type_size, "bytes") * self.block_size)
        if out is None:
            out = np.empty(shape, np.float32)
        elif out.shape != shape or out.dtype != np.float32 or not out.flags.c_contiguous:
            raise ValueError(f"out is {out.dtype} {out.shape}; contiguous float32 {shape} is needed")
        with np.errstate(invalid="ignore", over="ignore"):
            for piece, target in _contiguous_pieces(data, out):
                blocks = piece.reshape(-1, self.type_size)
                numbers = target.reshape(-1, self.block_size)
                step = max(1, _PIECE // self.block_size)
                for start in range(0, len(blocks), step):
                    self.decode_blocks(blocks[start : start + step], numbers[start : start + step])
        return out

    @property
    def can_encode(self) -> bool:
        """Whether the codec can encode as well as decode."""
        return self.encode_blocks is not None

    def encode(self, values: F32) -> U8:
        """Encode numbers along the last axis, rounded as the format's reference does.

        Shapes: values f32 [..., n * block_size] -> u8 [..., n * type_size].
        Raises: ValueError if the codec only decodes, or the last axis is not whole blocks.
        """
        if self.encode_blocks is None:
            raise ValueError(f"{self.name} is only read")
        shape = (*values.shape[:-1], self._count(values.shape[-1], self.block_size, "numbers") * self.type_size)
        out = np.empty(shape, np.uint8)
        blocks = np.ascontiguousarray(values, np.float32).reshape(-1, self.block_size)
        coded = out.reshape(-1, self.type_size)
        step = max(1, _PIECE // self.block_size)
        with np.errstate(all="ignore"):  # overflow becomes infinite, as in the format
            for start in range(0, len(blocks), step):
                coded[start : start + step] = self.encode_blocks(blocks[start : start + step])
        return out

    def n_bytes(self, n_numbers: int) -> int:
        """Return the bytes that this many numbers of one row take. Raises: ValueError unless they are whole blocks."""
        return self._count(n_numbers, self.block_size, "numbers") * self.type_size

    def _count(self, size: int, of_block: int, what: str) -> int:
        if size % of_block:
            raise ValueError(f"{size} {what} are not whole blocks of {self.name}: a block has {of_block}")
        return size // of_block


def _contiguous_pieces(data: U8, out: F32) -> Iterator[tuple[U8, F32]]:
    """Yield everything at once if it is contiguous, else copies of some rows of the first axis at a time."""
    if data.flags.c_contiguous or data.ndim < 2:
        yield np.ascontiguousarray(data), out
        return
    step = max(1, _PIECE * len(data) // max(1, out.size))
    for start in range(0, len(data), step):
        yield np.ascontiguousarray(data[start : start + step]), out[start : start + step]
