"""Encode numbers as a bundle's rows and back (docs/bundle.md, section 4), via GGML blocks. Touches no files."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.errors import UnsupportedModelError
from engine.formats.quant import CODECS
from native_kernels.codecs.lane_packing import GROUP as GROUP
from native_kernels.codecs.lane_packing import n_groups, pack_rows, unpack_rows

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]

ALIGNMENT = 64
_LARGEST_F16 = float(np.finfo(np.float16).max)


def up64(n_bytes: int) -> int:
    """Round up to a multiple of 64."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def encode_rows(codec: str, values: F32, what: str) -> U8:
    """Encode rows of numbers [n, columns] as a bundle's rows [n, row_bytes].

    what: name of the tensor. Raises: UnsupportedModelError if float16 cannot represent a value or a scale.
    """
    if codec == "f32":
        return np.ascontiguousarray(values, "<f4").view(np.uint8).reshape(len(values), -1)
    if codec == "f16":
        if values.size and float(np.abs(values).max()) > _LARGEST_F16:
            raise _too_large(what)
        return np.ascontiguousarray(values, "<f2").view(np.uint8).reshape(len(values), -1)
    groups = n_groups(values.shape[1])
    if (ragged := groups * GROUP - values.shape[1]) > 0:
        values = np.pad(values, ((0, 0), (0, ragged)))
    blocks = CODECS[codec].encode(values).reshape(len(values), groups, -1)
    check_scales(blocks, what)
    return pack_rows(codec, blocks)


def decode_rows(codec: str, rows: U8, n_cols: int) -> F32:
    """Decode a bundle's rows [n, row_bytes] to numbers [n, columns]; a new array."""
    if codec in ("f32", "f16"):
        dtype = "<f4" if codec == "f32" else "<f2"
        return np.ascontiguousarray(rows).view(dtype).astype(np.float32).reshape(len(rows), n_cols)
    return decode_blocks(codec, unpack_rows(codec, rows)).reshape(len(rows), -1)[:, :n_cols]


def decode_blocks(codec: str, blocks: U8) -> F32:
    """Decode whole GGML blocks in any shape to numbers [n]; for f32, f16 and bf16 a block is one number."""
    return CODECS[codec].decode(np.ascontiguousarray(blocks).reshape(-1))


def check_scales(blocks: U8, what: str) -> None:
    """Raise UnsupportedModelError if a block's scale (its first two bytes) is not finite."""
    scales = np.ascontiguousarray(blocks[..., :2]).view("<f2")
    if not np.isfinite(scales).all():
        raise _too_large(what)


def _too_large(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"Tensor {what} holds values that 16 bits cannot hold.", "Choose another source.")
