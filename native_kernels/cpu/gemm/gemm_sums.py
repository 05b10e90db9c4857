"""Shared by the products of many tokens: load and store a tile's sums, and prefetch."""

from __future__ import annotations

from native_kernels.codecs import CODECS
from native_kernels.cpu.runtime.jit import inline
from native_kernels.cpu.runtime.simd import LANES, floats, floats_part, prefetch, put_floats, put_floats_part, zero

_TILE_BYTES = 8 * LANES  # a row of a tile of two vectors


def bytes_of(codec: str, n_cols: int) -> int:
    """Return the bytes of n_cols columns, without scales that are stored separately."""
    if codec.endswith(".lanes"):
        return n_cols if codec == "q8_0.lanes" else n_cols // 2
    return CODECS[codec].n_bytes(n_cols)


@inline
def ask_for(at: int, n_bytes: int) -> None:
    """Prefetch n_bytes."""
    for line in range(0, n_bytes, 64):
        prefetch(at + line)


@inline
def take_sums(sums: int, out: int, out_step: int, n_tokens: int, n_rows: int, wide: int, begin: bool) -> None:
    """Load sums [wide, 2 * LANES] from out; 0 at the beginning, and for padding tokens and rows."""
    for t in range(wide):
        for v in range(2):
            target = sums + _TILE_BYTES * t + 4 * LANES * v
            left = min(LANES, n_rows - v * LANES)
            if begin or t >= n_tokens or left <= 0:
                put_floats(target, zero())
            elif left == LANES:
                put_floats(target, floats(out + t * out_step + 4 * LANES * v))
            else:
                put_floats(target, floats_part(out + t * out_step + 4 * LANES * v, left))


@inline
def put_sums(sums: int, out: int, out_step: int, n_tokens: int, n_rows: int) -> None:
    """Store the sums of real tokens and rows to out."""
    for t in range(n_tokens):
        for v in range(2):
            left = min(LANES, n_rows - v * LANES)
            if left == LANES:
                put_floats(out + t * out_step + 4 * LANES * v, floats(sums + _TILE_BYTES * t + 4 * LANES * v))
            elif left > 0:
                put_floats_part(
                    out + t * out_step + 4 * LANES * v, left, floats(sums + _TILE_BYTES * t + 4 * LANES * v)
                )
