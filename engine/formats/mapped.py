"""Memory-mapped tensor files. Readers check bounds; this module returns and decodes bytes."""

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
    """Return the whole file as u8 [n], read-only; pages are read on first touch.

    Raises: ModelNotFoundError if it is missing or unreadable, ModelFormatError if it is empty.
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
    """A TensorSource over a mapped file whose tensor table was checked against the file's length."""

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
        return [self.path]

    def file_of(self, name: str) -> Path:
        """Return the tensor's file; its offset is relative to that file."""
        self._tensors[name]
        return self.path

    def view(self, name: str) -> NDArray[np.uint8]:
        info = self._tensors[name]
        return self._data[info.offset : info.offset + info.n_bytes]

    def read_f32(self, name: str) -> NDArray[np.float32]:
        return decode(self._tensors[name], self.view(name))


class MergedSource:
    """A TensorSource over the shards of one split model."""

    def __init__(self, parts: Sequence[MappedSource], metadata: Mapping[str, Any]) -> None:
        """Raises: ModelFormatError if two shards have a tensor of the same name."""
        self.parts = list(parts)
        self._metadata = metadata
        self._tensors: dict[str, TensorInfo] = {}
        self._part_of: dict[str, MappedSource] = {}
        for part in parts:
            for name, info in part.tensors.items():
                if name in self._part_of:
                    first = self._part_of[name].path.name
                    raise ModelFormatError(f"The tensor {name[:100]} is both in {first} and in {part.path.name}.")
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
        """The tensors' files in order."""
        return [part.path for part in self.parts]

    def file_of(self, name: str) -> Path:
        """Return the tensor's file; its offset is relative to that file."""
        return self._part_of[name].path

    def view(self, name: str) -> NDArray[np.uint8]:
        return self._part_of[name].view(name)

    def read_f32(self, name: str) -> NDArray[np.float32]:
        return self._part_of[name].read_f32(name)


def decode(info: TensorInfo, data: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Decode the tensor's bytes in its shape. Raises: UnsupportedModelError for a codec that stores no weights."""
    if info.codec not in CODECS:
        raise UnsupportedModelError(
            f"Tensor {info.name} is stored as {info.codec.upper()}; Hearth reads {', '.join(CODECS).upper()}.",
            "Choose a Q8_0 or F16 file of the same model.",
        )
    with np.errstate(invalid="ignore", over="ignore"):  # a damaged scale gives NaN, which loading refuses by name
        return CODECS[info.codec].decode(data).reshape(info.shape)
