"""Reads the matrices, biases and numbers of predictors, every value checked. What they mean is not known here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError
from engine.formats import TensorSource
from native_kernels.backend import F32, PackedMatrix
from native_kernels.codecs import CODECS, COPY_CODECS, ROW_CODECS
from native_kernels.reference import ReferenceOperators

_PIECE_ROWS = 256
_PIECE_BYTES = 4 << 20
_PLAIN = ("f32", "f16")
_WHOLE_EXPONENT = 0x7C00  # of a float16: all its bits are set where it is no number
# Codecs whose blocks begin with a float16 by which small whole numbers are multiplied: bytes of a block.
_SCALED_BLOCKS = {"q4_0": 18, "q8_0": 34}


def matrix(
    source: TensorSource, name: str, as_stored: bool = False, codec: str | None = None, n_cols: Any = None
) -> PackedMatrix:
    """The tensor as a matrix: mapped where it is stored as f32 or f16, otherwise decoded.

    as_stored: mapped in every codec that the operators read, to be unpacked on use. codec and n_cols: what the tensor
    holds where it is plain bytes [n_rows, bytes of a row].
    Raises: ModelFormatError where it is missing, no matrix, or holds values that are no numbers.
    """
    info = source.tensors.get(name)
    if info is None or len(info.shape) != 2 or not all(info.shape):
        raise ModelFormatError(f"The predictor lacks the matrix {name}.")
    if codec is not None:
        if info.codec != "u8":
            raise _no_matrix(name, info.codec, info.shape, codec)
        return packed_matrix(source.view(name).reshape(info.shape), name, codec, n_cols, as_stored)
    if info.codec in _PLAIN:
        dtype = "<f4" if info.codec == "f32" else "<f2"
        return finite_matrix(source.view(name).view(dtype).reshape(info.shape), name)
    if info.codec not in CODECS:
        return finite_matrix(source.read_f32(name), name)  # which says what it holds instead
    rows = source.view(name).reshape(info.shape[0], -1)
    return packed_matrix(rows, name, info.codec, info.shape[1], as_stored)


def packed_matrix(rows: NDArray[np.uint8], name: str, codec: str, n_cols: Any, as_stored: bool) -> PackedMatrix:
    """The matrix that these rows of bytes hold, as it lies or unpacked to float32.

    Raises: ModelFormatError where they are no such rows, or hold values that are no numbers.
    """
    kept = ROW_CODECS[codec]
    sound = type(n_cols) is int and 0 < n_cols < 1 << 40 and (codec not in CODECS or n_cols % kept.block_size == 0)
    if not sound or rows.shape[1] != kept.n_bytes(n_cols):
        raise _no_matrix(name, "u8", rows.shape, codec)
    stored = PackedMatrix.view(rows, len(rows), n_cols, codec)
    if not as_stored:
        return finite_matrix(ReferenceOperators().rows(stored, np.arange(stored.n_rows)), name)
    if codec in _SCALED_BLOCKS:
        _check_scales(rows, name, _SCALED_BLOCKS[codec])
        return stored
    for start in range(0, stored.n_rows, _PIECE_ROWS):
        ids = np.arange(start, min(start + _PIECE_ROWS, stored.n_rows))
        finite_matrix(ReferenceOperators().rows(stored, ids), name)
    return stored


def _no_matrix(name: str, dtype: str, shape: tuple[int, ...], codec: str) -> ModelFormatError:
    return ModelFormatError(f"The predictor's {name} is {dtype} {list(shape)}, which is no matrix in {codec}.")


def codec_name(value: Any, where: str) -> str | None:
    """The codec in which a matrix is packed; None for plain numbers. Raises ModelFormatError for another word."""
    if value is None:
        return None
    if not isinstance(value, str) or value not in ROW_CODECS or value in _PLAIN or value in COPY_CODECS:
        raise ModelFormatError(f"A matrix of {where} is said to be in {str(value)[:40]!r}, which is no packed codec.")
    return value


def copy_codec_name(value: Any, where: str) -> str:
    """The codec of a copy. Raises ModelFormatError for another word."""
    if not isinstance(value, str) or value not in COPY_CODECS:
        raise ModelFormatError(
            f"The copy of {where} is said to be in {str(value)[:40]!r}, which is no codec of copies."
        )
    return value


def finite_matrix(values: NDArray[Any], name: str) -> PackedMatrix:
    """The f32 or f16 values [n_rows, n_cols] as they lie. Raises ModelFormatError unless all of them are numbers."""
    if values.ndim != 2 or not values.size or values.dtype not in (np.float32, np.float16):
        raise ModelFormatError(f"The predictor's {name} is {values.dtype} {list(values.shape)}, which is no matrix.")
    step = max(1, _PIECE_BYTES // values[0].nbytes)
    for start in range(0, len(values), step):
        _refuse_unless(_are_numbers(values[start : start + step]), name)
    return PackedMatrix.pack(values, "f32" if values.dtype == np.float32 else "f16")


def _check_scales(rows: NDArray[np.uint8], name: str, block_bytes: int) -> None:
    """Raises ModelFormatError unless every block's scale is a number: then all that is multiplied with it are."""
    step = max(1, _PIECE_BYTES // rows.shape[1])
    for start in range(0, len(rows), step):
        words = rows[start : start + step].view(np.uint16).reshape(-1, block_bytes // 2)
        _refuse_unless(_are_numbers(words[:, 0].view(np.float16)), name)


def _are_numbers(values: NDArray[Any]) -> bool:
    if values.dtype == np.float16:  # NumPy's own test takes fifteen times as long
        return int((values.view(np.uint16) & _WHOLE_EXPONENT).max()) != _WHOLE_EXPONENT
    return bool(np.isfinite(values).all())


def _refuse_unless(are_numbers: bool, name: str) -> None:
    if not are_numbers:
        raise ModelFormatError(f"The predictor's {name} holds values that are no numbers.")


def bias(source: TensorSource, name: str) -> F32 | None:
    """The tensor as float32 [n]; None where there is none."""
    if name not in source.tensors:
        return None
    return finite_bias(source.read_f32(name), name)


def finite_bias(values: NDArray[Any], name: str) -> F32:
    """The values as float32. Raises ModelFormatError unless all of them are numbers."""
    numbers: F32 = np.asarray(values, np.float32)
    _refuse_unless(_are_numbers(numbers), name)
    return numbers


def optional_number(value: Any, what: str) -> float | None:
    """A finite number of a file, or None where it gives none. Raises ModelFormatError for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
        raise ModelFormatError(f"{what} is {str(value)[:60]!r}; expected is a number.")
    return float(value)


def sparse_threshold(values: Mapping[str, Any], key: str, where: str) -> float:
    """The threshold that a publisher wrote down for all layers; 0, one half as a probability, where none is given."""
    return optional_number(values.get(key), f"{key} in {where}") or 0.0
