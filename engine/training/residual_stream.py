"""Values of many positions, such as the residual stream between layers: in RAM, or in a file if that is too small."""

from __future__ import annotations

import os
import tempfile
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from engine.errors import DiskSpaceError, HostMemoryError
from engine.machine.cpu_and_ram import memory_limits, read_ram
from engine.sparsity.artifact_files import DISK_FULL

SHARE_OF_FREE_RAM = 0.25  # the most that the stream may use
_CHUNK_BYTES = 4 << 20


class ResidualStream:
    """`values` [N, D], changed in place; all zeros at first. Its file has no name and is deleted with it."""

    def __init__(
        self, n_positions: int, width: int, most_ram_bytes: int | None = None, dtype: DTypeLike = np.float32
    ) -> None:
        """most_ram_bytes: the size from which a file is used; None: a quarter of the free RAM.

        Raises: HostMemoryError, DiskSpaceError with the bytes needed and free.
        """
        import psutil

        n_bytes = np.dtype(dtype).itemsize * n_positions * width
        if most_ram_bytes is None:
            most_ram_bytes = int(SHARE_OF_FREE_RAM * read_ram(psutil, memory_limits()).free_bytes)
        self._file: BinaryIO | None = None
        if n_bytes <= most_ram_bytes:
            try:
                self.values: NDArray[Any] = np.zeros((n_positions, width), dtype)
            except MemoryError as error:
                raise HostMemoryError(f"The states of {n_positions} positions need {n_bytes} bytes of RAM.") from error
            return
        self._file = tempfile.TemporaryFile(prefix="hearth-")  # noqa: SIM115 - lives as long as this object
        try:
            _reserve(self._file, n_bytes)
        except OSError as error:
            self._file.close()
            if error.errno not in DISK_FULL:
                raise
            raise DiskSpaceError(
                f"The states of {n_positions} positions need {n_bytes / 2**30:.2f} GiB in {tempfile.gettempdir()}, "
                "and so much is not free there."
            ) from error
        self.values = np.memmap(self._file, dtype, mode="r+", shape=(n_positions, width))

    def close(self) -> None:
        """Release RAM and disk."""
        self.values = np.zeros((0, self.values.shape[1]), self.values.dtype)
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> ResidualStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _reserve(file: BinaryIO, n_bytes: int) -> None:
    """Allocate the disk space: writing to a mapped page without any would end the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, n_bytes)
        return
    zeros = bytes(_CHUNK_BYTES)
    for start in range(0, n_bytes, _CHUNK_BYTES):
        file.write(zeros[: n_bytes - start])
    file.flush()
