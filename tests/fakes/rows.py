"""The rows of a GPU's matrices in NumPy: from a file's blocks to the planes of native_kernels/cuda/layouts.py and back
to numbers. It knows no GPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from native_kernels.codecs import ROW_CODECS, lane_packing
from native_kernels.cuda.layouts import PLANE_FIELDS, gpu_codec, plane_row_bytes

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]


def to_planes(rows: U8, source_codec: str, n_cols: int) -> list[U8]:
    """Rows [n, row_bytes] as a file or a bundle stores them -> the planes [n, row bytes of the plane]."""
    codec = gpu_codec(source_codec)
    widths = plane_row_bytes(codec, n_cols)
    if codec in PLANE_FIELDS:
        if source_codec.endswith(".lanes"):
            blocks = lane_packing.unpack_rows(codec, np.ascontiguousarray(rows))
        else:
            blocks = rows.reshape(len(rows), -1, ROW_CODECS[codec].type_size)
        parts = [blocks[:, :, at : at + size].reshape(len(rows), -1) for at, size in PLANE_FIELDS[codec]]
    else:
        parts = [rows]
    return [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part, width in zip(parts, widths, strict=True)]


def from_planes(planes: list[U8], codec: str, n_cols: int) -> F32:
    """Planes [n, row bytes of the plane] -> numbers [n, n_cols]."""
    n_rows = len(planes[0])
    if codec in PLANE_FIELDS:
        n_blocks = -(-n_cols // ROW_CODECS[codec].block_size)
        rows = np.empty((n_rows, n_blocks, ROW_CODECS[codec].type_size), np.uint8)
        for plane, (at, size) in zip(planes, PLANE_FIELDS[codec], strict=True):
            rows[:, :, at : at + size] = plane[:, : n_blocks * size].reshape(n_rows, n_blocks, size)
        rows = rows.reshape(n_rows, -1)
    else:
        rows = planes[0][:, : ROW_CODECS[codec].n_bytes(n_cols)]
    with np.errstate(all="ignore"):
        decoded = ROW_CODECS[codec].decode(np.ascontiguousarray(rows))
    found: F32 = decoded[:, :n_cols]
    return found
