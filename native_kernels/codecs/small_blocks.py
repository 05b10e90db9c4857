"""Codecs of 32 numbers under one scale: q4_0, q4_1, q5_0, q5_1, q8_0, iq4_nl, mxfp4.

Every number is computed in the order of operations of the format's reference, so that results are equal bit by bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from native_kernels.codecs.bit_fields import field, fill, half, numbers, split_bits
from native_kernels.codecs.codec import F32, U8, Codec

# The sixteen levels of iq4_nl and iq4_xs, and those of mxfp4 (e2m1, doubled).
_NL_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1_LEVELS = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _pairs(levels: tuple[int, ...]) -> NDArray[np.uint64]:
    """For two indices side by side in 16 bits, their two levels as float32 side by side in 64.

    Looking up two at once halves the cost of a lookup, which is that of the index, not that of the bytes.
    """
    both = np.arange(0x0F10)
    table = np.array(levels, np.float32)[np.stack([both & 15, both >> 8], axis=1)]
    found: NDArray[np.uint64] = table.view(np.uint64).reshape(-1)
    return found


_NL_PAIRS, _E2M1_PAIRS = _pairs(_NL_LEVELS), _pairs(_E2M1_LEVELS)

# Half of 2^(e - 127): the levels above are doubled. The first two are below the smallest normal number.
_E8M0_HALVES = np.ldexp(np.float32(1), np.arange(256) - 128).astype(np.float32)


def nl_levels(q: U8) -> F32:
    """The levels of iq4_nl and iq4_xs at indices q [n, b] -> [n, b]."""
    return _look_up(_NL_PAIRS, q)


def _look_up(pairs: NDArray[np.uint64], q: U8) -> F32:
    levels: F32 = np.take(pairs, q.view("<u2"), mode="clip").view(np.float32)
    return levels


def _decode_q4_0(blocks: U8, out: F32) -> None:
    q = split_bits(field(blocks, 2, 18), 4, 16).view(np.int8)
    q -= 8
    fill(out, q, half(blocks, 0))


def _decode_q4_1(blocks: U8, out: F32) -> None:
    fill(out, split_bits(field(blocks, 4, 20), 4, 16), half(blocks, 0))
    out += half(blocks, 2)


def _five_bits(fifth: U8, packed: U8) -> U8:
    """u8 [n, 4] holds the fifth bits in order, u8 [n, 16] the others as nibbles -> u8 [n, 32]."""
    q = np.unpackbits(fifth.reshape(-1), bitorder="little").reshape(-1, 32)
    q <<= 4
    q |= split_bits(packed, 4, 16)
    return q


def _decode_q5_0(blocks: U8, out: F32) -> None:
    q = _five_bits(field(blocks, 2, 6), field(blocks, 6, 22)).view(np.int8)
    q -= 16
    fill(out, q, half(blocks, 0))


def _decode_q5_1(blocks: U8, out: F32) -> None:
    fill(out, _five_bits(field(blocks, 4, 8), field(blocks, 8, 24)), half(blocks, 0))
    out += half(blocks, 2)


def _decode_q8_0(blocks: U8, out: F32) -> None:
    fill(out, field(blocks, 2, 34).view(np.int8), half(blocks, 0))


def _decode_iq4_nl(blocks: U8, out: F32) -> None:
    fill(out, nl_levels(split_bits(field(blocks, 2, 18), 4, 16)), half(blocks, 0))


def _decode_mxfp4(blocks: U8, out: F32) -> None:
    fill(out, _look_up(_E2M1_PAIRS, split_bits(field(blocks, 1, 17), 4, 16)), _E8M0_HALVES[numbers(blocks, 0, "u1")])


def _inverse(scale: F32) -> F32:
    return np.where(scale == 0, np.float32(0), np.float32(1) / scale)


def _encode_q4_0(values: F32) -> U8:
    """The number of the largest magnitude, the first of several, becomes -8; the others are rounded from there."""
    largest = np.take_along_axis(values, np.abs(values).argmax(axis=1, keepdims=True), axis=1)
    scale = largest / np.float32(-8)
    shifted = values * _inverse(scale)
    shifted += np.float32(8.5)
    np.trunc(shifted, out=shifted)
    q = shifted.astype(np.uint8)
    np.minimum(q, 15, out=q)
    out = np.empty((len(values), 18), np.uint8)
    out[:, :2] = scale.astype("<f2").view(np.uint8)
    np.bitwise_or(q[:, :16], q[:, 16:] << 4, out=out[:, 2:])
    return out


def _encode_q8_0(values: F32) -> U8:
    """The largest magnitude becomes 127; halves are rounded away from zero."""
    scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    scaled = values * _inverse(scale)
    magnitude = np.abs(scaled)
    rounded = np.floor(magnitude)
    magnitude -= rounded
    magnitude *= 2  # not floor(x + 0.5), which is 1 for the largest number below a half
    rounded += np.floor(magnitude, out=magnitude)
    np.copysign(rounded, scaled, out=rounded)
    out = np.empty((len(values), 34), np.uint8)
    out[:, :2] = scale.astype("<f2").view(np.uint8)
    out[:, 2:] = rounded.astype(np.int8).view(np.uint8)
    return out


SMALL_BLOCKS = (
    Codec("q4_0", 32, 18, _decode_q4_0, _encode_q4_0),
    Codec("q4_1", 32, 20, _decode_q4_1),
    Codec("q5_0", 32, 22, _decode_q5_0),
    Codec("q5_1", 32, 24, _decode_q5_1),
    Codec("q8_0", 32, 34, _decode_q8_0, _encode_q8_0),
    Codec("iq4_nl", 32, 18, _decode_iq4_nl),
    Codec("mxfp4", 32, 17, _decode_mxfp4),
)
