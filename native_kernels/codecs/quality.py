"""How much an encoding changed the numbers it was made from."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from native_kernels.codecs.codec import F32, U8, Codec

_PIECE = 1 << 18


@dataclass
class Deviation:
    """Differences between numbers and what was stored of them, summed up over any number of pieces."""

    sum_of_squares: float = 0.0
    sum_of_squared_errors: float = 0.0
    max_abs: float = 0.0

    @property
    def relative_rms(self) -> float:
        """The root of the mean squared error over that of the mean square; 0.05 is 5 %, NaN where a number is none."""
        if self.sum_of_squared_errors == 0:
            return 0.0
        if self.sum_of_squares == 0:
            return math.inf
        return math.sqrt(self.sum_of_squared_errors / self.sum_of_squares)

    def add(self, source: F32, stored: F32) -> None:
        """One more piece: the numbers as they were and as they come back, of one shape."""
        exact = source.astype(np.float64)
        with np.errstate(invalid="ignore"):
            error = np.abs(stored - exact)
            self.sum_of_squares += float(np.sum(np.square(exact)))
            self.sum_of_squared_errors += float(np.sum(np.square(error)))
            # np.maximum, because max() would drop what is no number.
            self.max_abs = float(np.maximum(self.max_abs, error.max(initial=0.0)))


def quality(source: F32, codec: Codec, encoded: U8 | None = None) -> Deviation:
    """What the codec does to these numbers: relative RMS error and largest absolute error.

    Shapes: source f32 [..., n * block_size], encoded u8 [..., n * type_size] where the caller has it already.
    Cost: one encoding unless `encoded` is given and one decoding, in pieces of 1 MiB: some MB beside the source.
    Raises: ValueError where the codec cannot encode, or the numbers are no whole blocks.
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
