"""How the GPU keeps the rows of a matrix, codec by codec: in planes whose rows begin on 16 bytes, so that it reads
them in whole lines. What is in them is what the file's rows hold, bit for bit; only the order is another.

f32, f16, bf16: one plane, as they are. q8_0: bytes; scales f16. q4_0: 16 bytes a block of 32 columns, column b in the
low half of byte b and column b + 16 in the high one; scales f16. q4_k: of a superblock of 256 columns 128 bytes of
halves as in the file; its 16 bytes of d, dmin and scales. q6_k: ql, 128 bytes; qh, 64; scales, 16; d, 2. copy1 to
copy4: one plane, rows as they are.
"""

from __future__ import annotations

from native_kernels.codecs import ROW_CODECS

_ALIGNMENT = 16
_BLOCKS: dict[str, tuple[int, tuple[int, ...]]] = {  # columns of a block, its bytes in every plane
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
    """Bytes from one row to the next in each plane. Raises: KeyError for a codec that GPUs have no kernels for."""
    if codec in COPIES:
        return (_aligned(ROW_CODECS[codec].n_bytes(n_cols)),)
    columns, sizes = _BLOCKS[codec]
    return tuple(_aligned(-(-n_cols // columns) * size) for size in sizes)


def n_gpu_bytes(codec: str, n_rows: int, n_cols: int) -> int:
    """What a matrix takes on the GPU."""
    return n_rows * sum(plane_row_bytes(codec, n_cols))


def gpu_codec(codec: str) -> str:
    """The codec under which the GPU keeps rows that are stored so: lanes are a matter of the CPU's."""
    return codec.partition(".")[0]


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
