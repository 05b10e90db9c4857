"""Codecs of 256 numbers whose groups of 16 or 32 have small scales under one large one: q2_k to q6_k, iq4_xs.

They only decode, with operations in the order of the format's reference.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from native_kernels.codecs.bit_fields import add, field, fill, half, numbers, split_bits
from native_kernels.codecs.codec import F32, U8, Codec
from native_kernels.codecs.small_blocks import fill_nl


def _decode_q2_k(blocks: U8, out: F32) -> None:
    """Decode: 16 bytes of scales (low nibble) and minima (high nibble), 64 of quants, two large scales."""
    small = field(blocks, 0, 16)
    scales = half(blocks, 80) * (small & 15).astype(np.float32)
    minima = half(blocks, 82) * (small >> 4).astype(np.float32)
    fill(out, split_bits(field(blocks, 16, 80), 2, 32), scales)
    add(out, -minima)


def _decode_q3_k(blocks: U8, out: F32) -> None:
    """Decode: 32 bytes of third bits (a 0 subtracts 4), 64 of quants, 12 of scales, the large scale."""
    q = split_bits(field(blocks, 0, 32), 1, 32, up=2)
    q += split_bits(field(blocks, 32, 96), 2, 32)
    signed = q.view(np.int8)
    signed -= 4
    fill(out, signed, half(blocks, 108) * _q3_k_scales(field(blocks, 96, 108)).astype(np.float32))


def _q3_k_scales(packed: U8) -> NDArray[np.int8]:
    """Unpack sixteen 6-bit scales: nibbles in eight bytes, the upper two bits in four. u8 [n, 12] -> i8 [n, 16]."""
    four = packed.view("<u4")  # four bytes at a time
    upper = four[:, 2]
    out = np.empty((len(packed), 4), np.uint32)
    for lane in range(4):
        low = (four[:, lane % 2] >> (4 * (lane // 2))) & 0x0F0F0F0F
        out[:, lane] = low | (((upper >> (2 * lane)) & 0x03030303) << 4)
    scales: NDArray[np.int8] = out.view(np.int8)
    scales -= 32
    return scales


def _decode_q4_k(blocks: U8, out: F32) -> None:
    """Decode: large scale and minimum, 12 bytes of small ones, 128 of quants."""
    scales, minima = _scales_and_minima(blocks)
    fill(out, split_bits(field(blocks, 16, 144), 4, 32), scales)
    add(out, -minima)


def _decode_q5_k(blocks: U8, out: F32) -> None:
    """Decode: as q4_k, with 32 bytes of fifth bits before the quants."""
    scales, minima = _scales_and_minima(blocks)
    q = split_bits(field(blocks, 16, 48), 1, 32, up=4)
    q |= split_bits(field(blocks, 48, 176), 4, 32)
    fill(out, q, scales)
    add(out, -minima)


def _scales_and_minima(blocks: U8) -> tuple[F32, F32]:
    """Return eight scales and eight minima, packed as 6 bits in bytes 4 to 16, times the large ones: f32 [n, 8] each.

    The first four of each are the lower six bits of a byte. The lower halves of the other four share bytes; their upper
    two bits are the top bits of the first four.
    """
    packed = field(blocks, 4, 16).view("<u4")  # four bytes at a time
    first, second, shared = packed[:, 0], packed[:, 1], packed[:, 2]
    small = np.empty((2, len(blocks), 2), np.uint32)
    small[0, :, 0] = first & 0x3F3F3F3F
    small[0, :, 1] = (shared & 0x0F0F0F0F) | ((first >> 2) & 0x30303030)
    small[1, :, 0] = second & 0x3F3F3F3F
    small[1, :, 1] = ((shared >> 4) & 0x0F0F0F0F) | ((second >> 2) & 0x30303030)
    scales, minima = small.view(np.uint8).astype(np.float32)
    scales *= half(blocks, 0)
    minima *= half(blocks, 2)
    return scales, minima


def _decode_q6_k(blocks: U8, out: F32) -> None:
    """Decode: 128 bytes of lower halves, 64 of upper bit pairs, 16 scales, the large scale."""
    q = split_bits(field(blocks, 128, 192), 2, 32, up=4)
    q |= split_bits(field(blocks, 0, 128), 4, 64)
    signed = q.view(np.int8)
    signed -= 32
    scales = half(blocks, 208) * field(blocks, 192, 208).view(np.int8).astype(np.float32)
    fill(out, signed, scales)


def _decode_iq4_xs(blocks: U8, out: F32) -> None:
    """Decode: the large scale, upper bits of eight scales in 2 bytes, their lower halves in 4, 128 bytes of indices."""
    upper = (numbers(blocks, 2, "<u2") >> np.arange(0, 16, 2, dtype=np.uint16)).astype(np.uint8) & 3
    small = (split_bits(field(blocks, 4, 8), 4, 1) | (upper << 4)).view(np.int8)
    small -= 32
    fill_nl(out, split_bits(field(blocks, 8, 136), 4, 16), half(blocks, 0) * small.astype(np.float32))


SUPER_BLOCKS = (
    Codec("q2_k", 256, 84, _decode_q2_k),
    Codec("q3_k", 256, 110, _decode_q3_k),
    Codec("q4_k", 256, 144, _decode_q4_k),
    Codec("q5_k", 256, 176, _decode_q5_k),
    Codec("q6_k", 256, 210, _decode_q6_k),
    Codec("iq4_xs", 256, 136, _decode_iq4_xs),
)
