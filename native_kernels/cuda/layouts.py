"""Layout of a matrix on the GPU, by codec: planes whose rows are aligned to 16 bytes, so that whole lines are read.

Planes hold the bytes of the file's rows in another order. f32, f16, bf16 and copy1 to copy4 have one plane, unchanged.
For the others, each plane has one field of every block (PLANE_FIELDS): first the numbers' low bits, then their upper
bits, then scales.
"""

from __future__ import annotations

from functools import cache

from native_kernels.codecs import CODECS, ROW_CODECS

_ALIGNMENT = 16
PLANE_FIELDS: dict[str, tuple[tuple[int, int], ...]] = {  # first byte and size of each plane's field in a file's block
    "q8_0": ((2, 32), (0, 2)),
    "q4_0": ((2, 16), (0, 2)),
    "q4_1": ((4, 16), (0, 4)),
    "q5_0": ((6, 16), (2, 4), (0, 2)),
    "q5_1": ((8, 16), (4, 4), (0, 4)),
    "iq4_nl": ((2, 16), (0, 2)),
    "mxfp4": ((1, 16), (0, 1)),
    "q2_k": ((16, 64), (0, 16), (80, 4)),
    "q3_k": ((32, 64), (0, 32), (96, 12), (108, 2)),
    "q4_k": ((16, 128), (0, 16)),
    "q5_k": ((48, 128), (16, 32), (0, 16)),
    "q6_k": ((0, 128), (128, 64), (192, 16), (208, 2)),
    "iq4_xs": ((8, 128), (0, 8)),
}
# Columns that a thread reads at a time, as in weights.cuh.
UNIT_COLUMNS = {"f32": 4, "f16": 8, "bf16": 8, **dict.fromkeys(PLANE_FIELDS, 32), "q8_0": 16}
COPIES = ("copy1", "copy2", "copy3", "copy4")
GPU_CODECS = (*UNIT_COLUMNS, *COPIES)


@cache
def plane_row_bytes(codec: str, n_cols: int) -> tuple[int, ...]:
    """Return the row stride in bytes of each plane. Raises: KeyError for a codec without GPU kernels."""
    if codec not in GPU_CODECS:
        raise KeyError(codec)
    if codec not in PLANE_FIELDS:
        return (_aligned(ROW_CODECS[codec].n_bytes(n_cols)),)
    n_blocks = -(-n_cols // CODECS[codec].block_size)
    return tuple(_aligned(n_blocks * size) for _, size in PLANE_FIELDS[codec])


def n_gpu_bytes(codec: str, n_rows: int, n_cols: int) -> int:
    return n_rows * sum(plane_row_bytes(codec, n_cols))


def gpu_codec(codec: str) -> str:
    """Return the GPU's codec for rows stored in `codec`: the GPU does not use lane layouts."""
    return codec.partition(".")[0]


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
