"""Tensor files mapped into memory: bounds are the readers' business, bytes and decoding are here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError, ModelNotFoundError, UnsupportedModelError
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
        self, path: Path, data: NDArray[np.uint8], tensors: Mapping[str, TensorInfo], metadata: Mapping[str, Any]
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

    @property
    def paths(self) -> list[Path]:
        """The files that the tensors lie in."""
        return [self.path]

    def file_of(self, name: str) -> Path:
        """The file that this tensor lies in; its offset counts from that file's start."""
        self._tensors[name]
        return self.path

    def view(self, name: str) -> NDArray[np.uint8]:
        info = self._tensors[name]
        return self._data[info.offset : info.offset + info.n_bytes]

    def read_f32(self, name: str) -> NDArray[np.float32]:
        return decode(self._tensors[name], self.view(name))


class MergedSource:
    """A TensorSource over the parts of one split model, as if they were one file."""

    def __init__(self, parts: Sequence[MappedSource], metadata: Mapping[str, Any]) -> None:
        """Raises ModelFormatError where two parts hold a tensor of the same name."""
        self.parts = list(parts)
        self._metadata = metadata
        self._tensors: dict[str, TensorInfo] = {}
        self._part_of: dict[str, MappedSource] = {}
        for part in parts:
            for name, info in part.tensors.items():
                if name in self._part_of:
                    first = self._part_of[name].path.name
                    raise ModelFormatError(f"The tensor {name[:100]} lies both in {first} and in {part.path.name}.")
                self._tensors[name] = info
                self._part_of[name] = part

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._metadata

    @property
    def paths(self) -> list[Path]:
        """The files that the tensors lie in, in their order."""
        return [part.path for part in self.parts]

    def file_of(self, name: str) -> Path:
        """The file that this tensor lies in; its offset counts from that file's start."""
        return self._part_of[name].path

    def view(self, name: str) -> NDArray[np.uint8]:
        return self._part_of[name].view(name)

    def read_f32(self, name: str) -> NDArray[np.float32]:
        return self._part_of[name].read_f32(name)


def decode(info: TensorInfo, data: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The tensor's bytes as numbers in its shape. Raises UnsupportedModelError for a codec that holds no weights."""
    if info.codec not in CODECS:
        raise UnsupportedModelError(
            f"Tensor {info.name} is stored as {info.codec.upper()}; Hearth reads {', '.join(CODECS).upper()}.",
            "Choose a Q8_0 or F16 file of the same model.",
        )
    with np.errstate(invalid="ignore", over="ignore"):  # a damaged scale gives NaN, which loading refuses by name
        return CODECS[info.codec].decode(data).reshape(info.shape)
