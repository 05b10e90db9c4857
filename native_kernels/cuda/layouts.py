"""Layout of a matrix on the GPU, by codec: planes whose rows are aligned to 16 bytes, so that whole lines are read.

Planes hold the bits of the file's rows in another order. f32, f16, bf16: one plane, unchanged. q8_0: bytes; scales f16.
q4_0: 16 bytes per block of 32 columns, column b in the low half of byte b and column b + 16 in the high one; scales
f16. q4_k: per superblock of 256 columns 128 bytes of halves as in the file; its 16 bytes of d, dmin and scales. q6_k:
ql, 128 bytes; qh, 64; scales, 16; d, 2. copy1 to copy4: one plane, unchanged.
"""

from __future__ import annotations

from native_kernels.codecs import ROW_CODECS

_ALIGNMENT = 16
_BLOCKS: dict[str, tuple[int, tuple[int, ...]]] = {  # columns of a block, and its bytes in every plane
    "f32": (1, (4,)),
    "f16": (1, (2,)),
    "bf16": (1, (2,)),
    "q8_0": (32, (32, 2)),
    "q4_0": (32, (16, 2)),
    "q4_k": (256, (128, 16)),
    "q6_k": (256, (128, 64, 16, 2)),
}
COPIES = ("copy1", "copy2", "copy3", "copy4")
GPU_CODECS = (*_BLOCKS, *COPIES)


def plane_row_bytes(codec: str, n_cols: int) -> tuple[int, ...]:
    """Return the row stride in bytes of each plane. Raises: KeyError for a codec without GPU kernels."""
    if codec in COPIES:
        return (_aligned(ROW_CODECS[codec].n_bytes(n_cols)),)
    columns, sizes = _BLOCKS[codec]
    return tuple(_aligned(-(-n_cols // columns) * size) for size in sizes)


def n_gpu_bytes(codec: str, n_rows: int, n_cols: int) -> int:
    """Return the bytes of a matrix on the GPU."""
    return n_rows * sum(plane_row_bytes(codec, n_cols))


def gpu_codec(codec: str) -> str:
    """Return the GPU's codec for rows stored in `codec`: the GPU does not use lane layouts."""
    return codec.partition(".")[0]


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
