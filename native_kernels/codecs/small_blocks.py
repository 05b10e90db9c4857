"""Codecs of 32 numbers under one scale: q4_0, q4_1, q5_0, q5_1, q8_0, iq4_nl, mxfp4.

Operations run in the order of the format's reference, so that results are equal bit by bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from native_kernels.codecs.bit_fields import add, field, fill, half, numbers, put, scale, split_bits
from native_kernels.codecs.codec import F32, U8, Codec

# The sixteen levels of iq4_nl and iq4_xs, and those of mxfp4 (e2m1, doubled).
_NL_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1_LEVELS = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _pairs(levels: tuple[int, ...]) -> NDArray[np.uint64]:
    """Return for each pair of 4-bit indices in 16 bits their two levels as float32 in 64 bits.

    A lookup costs per index, not per byte, so two at once halve the cost.
    """
    both = np.arange(0x0F10)
    table = np.array(levels, np.float32)[np.stack([both & 15, both >> 8], axis=1)]
    found: NDArray[np.uint64] = table.view(np.uint64).reshape(-1)
    return found


_NL_PAIRS, _E2M1_PAIRS = _pairs(_NL_LEVELS), _pairs(_E2M1_LEVELS)

# 2^(e - 127) / 2, because the levels above are doubled. The first two are subnormal.
_E8M0_HALVES = np.ldexp(np.float32(1), np.arange(256) - 128).astype(np.float32)


def fill_nl(out: F32, q: U8, factors: F32) -> None:
    """Set out [n, b] to the iq4_nl levels at indices q [n, b] times factors [n, g]."""
    _look_up(_NL_PAIRS, q, out)
    scale(out, factors)


def _look_up(pairs: NDArray[np.uint64], q: U8, out: F32) -> None:
    np.take(pairs, q.view("<u2"), mode="clip", out=out.view(np.uint64))


def _decode_q4_0(blocks: U8, out: F32) -> None:
    q = split_bits(field(blocks, 2, 18), 4, 16).view(np.int8)
    q -= 8
    fill(out, q, half(blocks, 0))


def _decode_q4_1(blocks: U8, out: F32) -> None:
    fill(out, split_bits(field(blocks, 4, 20), 4, 16), half(blocks, 0))
    add(out, half(blocks, 2))


def _five_bits(fifth: U8, packed: U8) -> U8:
    """Combine fifth bits u8 [n, 4], in order, with nibbles u8 [n, 16] -> u8 [n, 32]."""
    q = np.unpackbits(fifth.reshape(-1), bitorder="little").reshape(-1, 32)
    four = q.view(np.uint32)
    four <<= np.uint32(4)
    q |= split_bits(packed, 4, 16)
    return q


def _decode_q5_0(blocks: U8, out: F32) -> None:
    q = _five_bits(field(blocks, 2, 6), field(blocks, 6, 22)).view(np.int8)
    q -= 16
    fill(out, q, half(blocks, 0))


def _decode_q5_1(blocks: U8, out: F32) -> None:
    fill(out, _five_bits(field(blocks, 4, 8), field(blocks, 8, 24)), half(blocks, 0))
    add(out, half(blocks, 2))


def _decode_q8_0(blocks: U8, out: F32) -> None:
    fill(out, field(blocks, 2, 34).view(np.int8), half(blocks, 0))


def _decode_iq4_nl(blocks: U8, out: F32) -> None:
    fill_nl(out, split_bits(field(blocks, 2, 18), 4, 16), half(blocks, 0))


def _decode_mxfp4(blocks: U8, out: F32) -> None:
    _look_up(_E2M1_PAIRS, split_bits(field(blocks, 1, 17), 4, 16), out)
    scale(out, _E8M0_HALVES[numbers(blocks, 0, "u1")])


def _largest(values: F32) -> F32:
    """Return the number of largest magnitude of every block, the first of equals: [n, 1]. Faster than NumPy's max."""
    found: F32 = np.take_along_axis(values, np.abs(values).argmax(axis=1, keepdims=True), axis=1)
    return found


def _inverse(d: F32) -> F32:
    return np.where(d == 0, np.float32(0), np.float32(1) / d)


def _encode_q4_0(values: F32) -> U8:
    """Encode: the number of largest magnitude becomes -8, the others are rounded on that scale."""
    d = _largest(values) / np.float32(-8)
    shifted = values * _inverse(d)
    shifted += np.float32(8.5)
    np.trunc(shifted, out=shifted)
    q = shifted.astype(np.uint8)
    np.minimum(q, 15, out=q)
    low, high = field(q, 0, 16), field(q, 16, 32)
    low |= high * np.uint8(16)
    out = np.empty((len(values), 18), np.uint8)
    put(out, 0, d.astype("<f2"))
    put(out, 2, low)
    return out


def _encode_q8_0(values: F32) -> U8:
    """Encode: the largest magnitude becomes 127; halves are rounded away from zero."""
    d = np.abs(_largest(values) / np.float32(127))
    scaled = values * _inverse(d)
    whole = np.trunc(scaled)
    scaled -= whole
    scaled *= 2  # not trunc(x + 0.5), which gives 1 for the largest number below a half
    whole += np.trunc(scaled, out=scaled)
    out = np.empty((len(values), 34), np.uint8)
    put(out, 0, d.astype("<f2"))
    put(out, 2, whole.astype(np.int8))
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
