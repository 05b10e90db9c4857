"""Pack low-bit copies of a matrix, and round their inputs as the kernels do.

Choosing the best codes is not done here. No paper; PowerInfer, section 5.1 predicts by low rank instead.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32, U8, PackedMatrix
from native_kernels.codecs.copies import COPY_CODECS, copy_groups, filled

_INPUT_GROUP = 32  # columns of the input under one scale


def pack_copy(codes: U8, scales: NDArray[np.float16], bits: int) -> PackedMatrix:
    """Build the copy whose values are scale (2 code + 1 - 2^bits) / 2.

    Shapes: codes u8 [F, D], each below 2^bits; scales f16 [F, ceil(D / 512)], one for each 512 columns.
    Raises: ValueError if bits is not 1 to 4, a code is too large, or the shapes do not match.
    """
    codec = COPY_CODECS.get(f"copy{bits}")
    if codec is None:
        raise ValueError(f"a copy of {bits} bits was asked for; there are copies of 1 to 4")
    n_rows, n_cols = codes.shape
    if codes.dtype != np.uint8 or (codes.size and int(codes.max()) >> bits):
        raise ValueError(f"codes of {codes.dtype} are not numbers of {bits} bits")
    wanted = (n_rows, copy_groups(n_cols))
    if scales.shape != wanted or scales.dtype != np.float16:
        raise ValueError(f"scales are {scales.dtype} {scales.shape}; float16 {wanted} is needed")
    padded = np.pad(codes, ((0, 0), (0, filled(n_cols) - n_cols)))
    rows = codec.join(padded, np.ascontiguousarray(scales.astype("<f2")).view(np.uint8))
    return PackedMatrix(n_rows, n_cols, codec.name, rows)


def signs(x: F32) -> F32:
    """Return 1 where x >= 0, else -1: the input [...] of a copy with signed input. NaN stays NaN."""
    return np.where(np.isnan(x), x, np.where(x < 0, np.float32(-1), np.float32(1)))


def rounded_to_bytes(x: F32) -> F32:
    """Round x [..., D] as the kernels of copies do: to 255 steps per 32 columns, ties to even.

    A group with a value that is not finite becomes NaN.
    """
    n_cols = x.shape[-1]
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -n_cols % _INPUT_GROUP)]).astype(np.float32, copy=False)
    groups = padded.reshape(-1, _INPUT_GROUP)
    with np.errstate(all="ignore"):
        top = np.abs(groups).max(axis=1, keepdims=True, initial=0)
        step = top * np.float32(1 / 127)
        inverse = np.where((step > 0) & np.isfinite(top), np.float32(127) / top, np.float32(0))
        whole = np.rint(groups * inverse)
        rounded = np.where(np.isfinite(top), whole * step, np.float32(np.nan))
    found: F32 = rounded.reshape(padded.shape)[..., :n_cols]
    return found
