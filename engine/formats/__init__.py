"""Files that hold tensors: what they have in common. Names and meaning are engine/model's business."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.errors import UnsupportedModelError


@dataclass(frozen=True, slots=True)  # slots: a file may list 65,536 of them
class TensorInfo:
    """One tensor of a file. shape: outermost dimension first. offset and n_bytes: its range in the file."""

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
    """An open file of tensors; nothing is copied until `read_f32`."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its name in the file."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What else the file says, by key."""

    def view(self, name: str) -> NDArray[np.uint8]:
        """The tensor's bytes as they lie in the file: u8 [n_bytes], read-only, not copied."""

    def read_f32(self, name: str) -> NDArray[np.float32]:
        """The tensor decoded, in its shape; a new array. Raises ModelFormatError where it cannot be decoded."""


def pickle_refused(file_name: str) -> UnsupportedModelError:
    """Why a PyTorch checkpoint is not opened: nobody shall take a sound download for a damaged one."""
    return UnsupportedModelError(
        f"{file_name} is a pickle, which can run any program when it is opened; Hearth reads GGUF and safetensors.",
        "Choose a GGUF or safetensors file of the same model.",
    )
