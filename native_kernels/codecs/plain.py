"""Codecs that store numbers one by one: f32, f16, bf16."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from native_kernels.codecs.codec import F32, U8, Codec


def unpack_finite_f16(values: NDArray[np.float16], out: F32 | None = None) -> F32:
    """Convert float16 to float32, same shape; infinities become 65536 and more.

    Moves the bits of a float16 into the fields of a float32 and corrects the exponent by one multiplication: six times
    as fast as NumPy's conversion (0.17 ms against 1.12 ms for 1792 x 512).
    """
    if out is None:
        out = np.empty(values.shape, np.float32)
    bits = out.view(np.int32)
    np.copyto(bits, values.view(np.int16))
    bits <<= 13
    bits &= np.int32(-0x70002000)  # 0x8FFFE000: the sign, then exponent and mantissa
    out *= np.float32(2.0**112)
    return out


def _decode_f32(blocks: U8, out: F32) -> None:
    np.copyto(out, blocks.view("<f4"))


def _encode_f32(values: F32) -> U8:
    return values.view(np.uint8)


def unpack_f16(values: NDArray[np.float16], out: F32 | None = None) -> F32:
    """Convert float16 to float32, same shape; uses the fast conversion if all numbers are finite."""
    if out is None:
        out = np.empty(values.shape, np.float32)
    # As integers, +inf and NaN are the largest signed values, -inf and negative NaN the largest unsigned ones.
    if values.size and (values.view("<i2").max() >= 0x7C00 or values.view("<u2").max() >= 0xFC00):
        np.copyto(out, values)
    else:
        unpack_finite_f16(values, out)
    return out


def _decode_f16(blocks: U8, out: F32) -> None:
    unpack_f16(blocks.view("<f2"), out)


def _encode_f16(values: F32) -> U8:
    return values.astype("<f2").view(np.uint8)


def _decode_bf16(blocks: U8, out: F32) -> None:
    np.left_shift(blocks.view("<u2"), np.uint32(16), out=out.view(np.uint32))


def _encode_bf16(values: F32) -> U8:
    """Return the upper half of a float32, rounded to nearest, ties to even; NaN stays NaN."""
    as_bits = values.view(np.uint32)
    rounded = (as_bits + 0x7FFF + ((as_bits >> 16) & 1)) >> 16
    quiet_nan = (as_bits >> 16) | 0x40
    return np.where(np.isnan(values), quiet_nan, rounded).astype("<u2").view(np.uint8)


F32_CODEC = Codec("f32", 1, 4, _decode_f32, _encode_f32)
F16_CODEC = Codec("f16", 1, 2, _decode_f16, _encode_f16)
BF16_CODEC = Codec("bf16", 1, 2, _decode_bf16, _encode_bf16)
