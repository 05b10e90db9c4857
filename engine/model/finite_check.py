"""Check mapped matrices for values that are not finite: small ones whole, large ones by sample.

Unpacked weights are checked when they are unpacked. Reading all mapped weights here would read the whole model before
the first token, which mapping avoids.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError
from engine.model.pages import ask_for
from native_kernels.backend import PackedMatrix
from native_kernels.reference import ReferenceOperators

# Matrices up to this size are read whole, in less than a millisecond. Evenly spaced rows of larger ones reveal
# truncated or overwritten files, but mostly not a single wrong bit.
WHOLE_BYTES = 256 << 10
SAMPLED_ROWS = 8
_PIECE_ROWS = 256


def check_numbers(matrix: PackedMatrix, name: str, whole: bool = False) -> None:
    """Raise ModelFormatError if a checked value is not finite.

    whole: check all rows. Cost: else, reads at most WHOLE_BYTES or SAMPLED_ROWS rows, the first and last included.
    """
    ids = np.arange(matrix.n_rows) if whole else _sample(matrix)
    for start in range(0, len(ids), _PIECE_ROWS):
        if not _are_numbers(matrix, ids[start : start + _PIECE_ROWS]):
            raise ModelFormatError(f"Tensor {name} holds values that are not numbers.")


def ask_for_sample(matrix: PackedMatrix) -> None:
    """Prefetch the rows that `check_numbers` reads."""
    if matrix.n_bytes <= WHOLE_BYTES:
        ask_for(matrix, 0, matrix.n_rows)
        return
    for row in _sample(matrix).tolist():
        ask_for(matrix, row, row + 1)


def _sample(matrix: PackedMatrix) -> NDArray[np.int64]:
    if matrix.n_bytes <= WHOLE_BYTES:
        return np.arange(matrix.n_rows)
    return np.unique(np.linspace(0, matrix.n_rows - 1, SAMPLED_ROWS).astype(np.int64))


def _are_numbers(matrix: PackedMatrix, ids: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bool:
    if matrix.codec in ("f32", "f16"):  # operators read a 16-bit NaN or infinity as a large number
        return bool(np.isfinite(matrix.data[ids]).all())
    return bool(np.isfinite(ReferenceOperators().rows(matrix, ids)).all())
