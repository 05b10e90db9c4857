"""Read and check matrices, biases and numbers of predictors, whatever their meaning."""

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
_CHUNK_BYTES = 4 << 20
_PLAIN = ("f32", "f16")
_WHOLE_EXPONENT = 0x7C00  # of a float16: all set for NaN and infinity
# Codecs whose blocks start with a float16 scale of small integers: bytes per block.
_SCALED_BLOCKS = {"q4_0": 18, "q8_0": 34}


def matrix(
    source: TensorSource, name: str, as_stored: bool = False, codec: str | None = None, n_cols: Any = None
) -> PackedMatrix:
    """Return the tensor as a matrix: mapped if stored as f32 or f16, otherwise decoded.

    as_stored: stay mapped in every codec that the operators read, and unpack on use. codec, n_cols: content of a tensor
    of plain bytes [n_rows, bytes per row].
    Raises: ModelFormatError if it is missing, no matrix, or has values that are not finite.
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
        return finite_matrix(source.read_f32(name), name)  # raises with the actual content
    rows = source.view(name).reshape(info.shape[0], -1)
    return packed_matrix(rows, name, info.codec, info.shape[1], as_stored)


def packed_matrix(rows: NDArray[np.uint8], name: str, codec: str, n_cols: Any, as_stored: bool) -> PackedMatrix:
    """Return the matrix of these byte rows, mapped or unpacked to float32.

    Raises: ModelFormatError if the rows do not fit the codec or have values that are not finite.
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
    return ModelFormatError(f"The predictor's {name} is {dtype} {list(shape)}, which is not a matrix in {codec}.")


def codec_name(value: Any, where: str) -> str | None:
    """Return the codec of a packed matrix; None for plain numbers. Raises: ModelFormatError for an unknown name."""
    if value is None:
        return None
    if not isinstance(value, str) or value not in ROW_CODECS or value in _PLAIN or value in COPY_CODECS:
        raise ModelFormatError(f"A matrix of {where} has the codec {str(value)[:40]!r}, which is not a packed codec.")
    return value


def copy_codec_name(value: Any, where: str) -> str:
    """Return the codec of a copy. Raises: ModelFormatError for an unknown name."""
    if not isinstance(value, str) or value not in COPY_CODECS:
        raise ModelFormatError(
            f"The copy of {where} has the codec {str(value)[:40]!r}, which is not a codec for copies."
        )
    return value


def finite_matrix(values: NDArray[Any], name: str) -> PackedMatrix:
    """Wrap f32 or f16 values [n_rows, n_cols]. Raises: ModelFormatError unless all are finite."""
    if values.ndim != 2 or not values.size or values.dtype not in (np.float32, np.float16):
        raise ModelFormatError(f"The predictor's {name} is {values.dtype} {list(values.shape)}, which is not a matrix.")
    step = max(1, _CHUNK_BYTES // values[0].nbytes)
    for start in range(0, len(values), step):
        _refuse_unless(_are_numbers(values[start : start + step]), name)
    return PackedMatrix.pack(values, "f32" if values.dtype == np.float32 else "f16")


def _check_scales(rows: NDArray[np.uint8], name: str, block_bytes: int) -> None:
    """Raise ModelFormatError unless every block's scale is finite, which makes all its values finite."""
    step = max(1, _CHUNK_BYTES // rows.shape[1])
    for start in range(0, len(rows), step):
        words = rows[start : start + step].view(np.uint16).reshape(-1, block_bytes // 2)
        _refuse_unless(_are_numbers(words[:, 0].view(np.float16)), name)


def _are_numbers(values: NDArray[Any]) -> bool:
    if values.dtype == np.float16:  # NumPy's test takes fifteen times as long
        return int((values.view(np.uint16) & _WHOLE_EXPONENT).max()) != _WHOLE_EXPONENT
    return bool(np.isfinite(values).all())


def _refuse_unless(are_numbers: bool, name: str) -> None:
    if not are_numbers:
        raise ModelFormatError(f"The predictor's {name} holds values that are not numbers.")


def bias(source: TensorSource, name: str) -> F32 | None:
    """Return the tensor as float32 [n]; None if missing."""
    if name not in source.tensors:
        return None
    return finite_bias(source.read_f32(name), name)


def finite_bias(values: NDArray[Any], name: str) -> F32:
    """Return the values as float32. Raises: ModelFormatError unless all are finite."""
    numbers: F32 = np.asarray(values, np.float32)
    _refuse_unless(_are_numbers(numbers), name)
    return numbers


def optional_number(value: Any, what: str) -> float | None:
    """Return a finite number or None. Raises: ModelFormatError for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
        raise ModelFormatError(f"{what} is {str(value)[:60]!r}; a number is needed.")
    return float(value)


def sparse_threshold(values: Mapping[str, Any], key: str, where: str) -> float:
    """Return the publisher's threshold for all layers; 0, a probability of one half, if not stated."""
    return optional_number(values.get(key), f"{key} in {where}") or 0.0
