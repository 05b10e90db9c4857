"""Whether the numbers of a matrix that stays in its file are numbers: all of a small one, a sample of a large one.

Unpacked weights are checked where they are unpacked. Reading all of a mapped matrix here would read the whole model
before the first token, which mapping is there to spare.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError
from engine.model.pages import ask_for
from native_kernels.backend import PackedMatrix
from native_kernels.reference import ReferenceOperators

# A matrix up to this size is read whole, in less than a millisecond. Of a larger one rows at even distances are read: a
# file that was cut off, or filled up with nonsense, is found; a single wrong bit mostly is not.
WHOLE_BYTES = 256 << 10
SAMPLED_ROWS = 8
_PIECE_ROWS = 256


def check_numbers(matrix: PackedMatrix, name: str) -> None:
    """Raises ModelFormatError where a value that is looked at is no number.

    Cost: reads WHOLE_BYTES or SAMPLED_ROWS rows at most, the first and the last among them.
    """
    ids = _sample(matrix)
    for start in range(0, len(ids), _PIECE_ROWS):
        if not _are_numbers(matrix, ids[start : start + _PIECE_ROWS]):
            raise ModelFormatError(f"Tensor {name} holds values that are no numbers.")


def ask_for_sample(matrix: PackedMatrix) -> None:
    """Has the system read what `check_numbers` will look at, beside whoever goes on."""
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
    if matrix.codec in ("f32", "f16"):  # operators read a 16-bit value that is no number as a large one
        return bool(np.isfinite(matrix.data[ids]).all())
    return bool(np.isfinite(ReferenceOperators().rows(matrix, ids)).all())
