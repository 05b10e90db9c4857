"""Measure the error of an encoding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from native_kernels.codecs.codec import F32, U8, Codec

_PIECE = 1 << 18


@dataclass
class Deviation:
    """Differences between numbers and their stored form, accumulated over any number of chunks."""

    sum_of_squares: float = 0.0
    sum_of_squared_errors: float = 0.0
    max_abs: float = 0.0

    @property
    def relative_rms(self) -> float:
        """Root mean square error relative to the root mean square; 0.05 is 5 %. NaN if any number is NaN."""
        if self.sum_of_squared_errors == 0:
            return 0.0
        if self.sum_of_squares == 0:
            return math.inf
        return math.sqrt(self.sum_of_squared_errors / self.sum_of_squares)

    def add(self, source: F32, stored: F32) -> None:
        """Add a chunk: the original numbers and the decoded ones, of the same shape."""
        exact = source.astype(np.float64)
        with np.errstate(invalid="ignore"):
            error = np.abs(stored - exact)
            self.sum_of_squares += float(np.sum(np.square(exact)))
            self.sum_of_squared_errors += float(np.sum(np.square(error)))
            # np.maximum, because max() would drop NaN.
            self.max_abs = float(np.maximum(self.max_abs, error.max(initial=0.0)))


def quality(source: F32, codec: Codec, encoded: U8 | None = None) -> Deviation:
    """Return the relative RMS error and largest absolute error of a codec on these numbers.

    Shapes: source f32 [..., n * block_size]; encoded u8 [..., n * type_size], if the caller has it already.
    Cost: one decoding, and one encoding unless `encoded` is given, in chunks of 1 MiB: some MB beside the source.
    Raises: ValueError if the codec cannot encode, or the numbers are not whole blocks.
    """
    numbers = source.reshape(-1)
    n_bytes = codec.n_bytes(len(numbers))
    if encoded is not None and encoded.size != n_bytes:
        raise ValueError(f"{encoded.size} bytes were given for {len(numbers)} numbers; {codec.name} takes {n_bytes}")
    found = Deviation()
    coded = None if encoded is None else encoded.reshape(-1, codec.type_size)
    for start in range(0, len(numbers), _PIECE):  # a multiple of every block size
        piece = numbers[start : start + _PIECE]
        first = start // codec.block_size
        taken = codec.encode(piece) if coded is None else coded[first : first + len(piece) // codec.block_size]
        found.add(piece, codec.decode(taken).reshape(-1))
    return found
