"""Common types of files with tensors. engine/model gives tensors their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.errors import UnsupportedModelError


@dataclass(frozen=True, slots=True)  # slots: a file may list 65,536
class TensorInfo:
    """One tensor of a file. shape: outermost dimension first. offset, n_bytes: its range in the file."""

    name: str
    shape: tuple[int, ...]
    codec: str
    offset: int
    n_bytes: int

    @property
    def n_elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


class TensorSource(Protocol):
    """An open file of tensors; nothing is copied before `read_f32`."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """All tensors by name."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Other content of the file by key."""

    def view(self, name: str) -> NDArray[np.uint8]:
        """Return a read-only view of the tensor's bytes in the file, u8 [n_bytes]."""

    def read_f32(self, name: str) -> NDArray[np.float32]:
        """Return the tensor decoded in its shape; a new array. Raises: ModelFormatError if it cannot be decoded."""


def pickle_refused(file_name: str) -> UnsupportedModelError:
    """Return the error for a PyTorch checkpoint, so that users do not mistake it for a damaged download."""
    return UnsupportedModelError(
        f"{file_name} is a pickle, which can run any program when it is opened; Hearth reads GGUF and safetensors.",
        "Choose a GGUF or safetensors file of the same model.",
    )
