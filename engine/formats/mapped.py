"""A tensor file mapped into memory: bounds are the reader's business, bytes and decoding are here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError, ModelNotFoundError
from engine.formats import TensorInfo
from engine.formats.quant import CODECS


def map_file(path: Path) -> NDArray[np.uint8]:
    """The whole file as u8 [n], read-only; pages are read when touched.

    Raises: ModelNotFoundError where there is no such file or it may not be read, ModelFormatError when it is empty.
    """
    try:
        if not path.is_file():
            raise ModelNotFoundError(f"There is no file {path}.")
        if path.stat().st_size == 0:
            raise ModelFormatError(f"{path.name} is empty.")
        return np.asarray(np.memmap(path, np.uint8, mode="r"))
    except OSError as error:
        raise ModelNotFoundError(f"{path} cannot be read: {error.strerror or error}.") from error


class MappedSource:
    """A TensorSource over a mapped file whose tensor table has been checked against the file's length."""

    def __init__(
        self, path: Path, data: NDArray[np.uint8], tensors: dict[str, TensorInfo], metadata: dict[str, Any]
    ) -> None:
        self.path = path
        self._data = data
        self._tensors = tensors
        self._metadata = metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._metadata

    def view(self, name: str) -> NDArray[np.uint8]:
        info = self._tensors[name]
        return self._data[info.offset : info.offset + info.n_bytes]

    def read_f32(self, name: str) -> NDArray[np.float32]:
        info = self._tensors[name]
        if info.codec not in CODECS:
            raise ModelFormatError(f"Tensor {name} is stored as {info.codec}; weights are {', '.join(CODECS)}.")
        with np.errstate(invalid="ignore", over="ignore"):  # a damaged scale gives NaN, which loading refuses by name
            return CODECS[info.codec].decode(self.view(name)).reshape(info.shape)
