"""Matrices and arrays on a GPU, for tests: planes made in NumPy as native_kernels/cuda/layouts.py says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from native_kernels.backend import PackedMatrix
from native_kernels.codecs.lane_packing import unpack_rows
from native_kernels.cuda.gpu import GpuMatrix
from native_kernels.cuda.layouts import plane_row_bytes
from native_kernels.cuda.runtime.driver import CudaError, CudaUnavailableError, Device, Stream, driver
from native_kernels.cuda.runtime.memory import DeviceMemory

_BLOCK_BYTES = {"q8_0": 34, "q4_0": 18, "q4_k": 144, "q6_k": 210}
_PARTS = {  # of a block in a file, in the order of the planes
    "q8_0": ((2, 34), (0, 2)),
    "q4_0": ((2, 18), (0, 2)),
    "q4_k": ((16, 144), (0, 16)),
    "q6_k": ((0, 128), (128, 192), (192, 208), (208, 210)),
}


def planes_of(codec: str, rows: NDArray[Any], n_cols: int) -> list[NDArray[np.uint8]]:
    """The rows of a file (u8 [n, row_bytes]) as the GPU's planes, u8 [n, bytes of a plane's row]."""
    rows = np.ascontiguousarray(rows).view(np.uint8)
    if codec in _PARTS:
        blocks = rows.reshape(len(rows), -1, _BLOCK_BYTES[codec])
        parts = [blocks[:, :, a:b].reshape(len(rows), -1) for a, b in _PARTS[codec]]
    else:
        parts = [rows.reshape(len(rows), -1)]
    widths = plane_row_bytes(codec, n_cols)
    return [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part, width in zip(parts, widths, strict=True)]


def entered_device() -> Device:
    """The first GPU, entered; what asks is skipped where there is none. For a module: a context costs 0.3 s."""
    try:
        found = Device(0) if driver().n_devices else None
    except (CudaUnavailableError, CudaError) as error:
        pytest.skip(f"no GPU: {error}")
    if found is None:
        pytest.skip("the NVIDIA driver sees no GPU")
    found.enter()
    return found


class GpuArrays:
    """Puts arrays on a GPU and takes them back; what it put there is freed by `close`."""

    def __init__(self, device: Device) -> None:
        self.device, self.stream = device, Stream(device)
        self._kept: list[DeviceMemory] = []

    def space(self, n_bytes: int, value: int = 0xFF) -> int:
        """Memory in which every byte is the value: what nobody wrote shows."""
        memory = DeviceMemory(self.device, max(16, n_bytes))
        self._kept.append(memory)
        self.stream.fill(memory.address, value, max(16, n_bytes))
        self.stream.synchronize()
        return memory.address

    def put(self, array: NDArray[Any]) -> int:
        array = np.ascontiguousarray(array)
        at = self.space(array.nbytes)
        self.stream.upload(at, array.ctypes.data, array.nbytes)
        self.stream.synchronize()
        return at

    def get(self, at: int, dtype: Any, *shape: int) -> NDArray[Any]:
        out = np.empty(shape, dtype)
        self.device.synchronize()
        self.stream.download(out.ctypes.data, at, out.nbytes)
        self.stream.synchronize()
        return out

    def matrix(self, w: PackedMatrix) -> GpuMatrix:
        """w on the GPU; lanes as blocks."""
        codec, _, lanes = w.codec.partition(".")
        rows = unpack_rows(codec, np.ascontiguousarray(w.data)).reshape(w.n_rows, -1) if lanes else w.data
        planes = tuple(self.put(plane) for plane in planes_of(codec, rows, w.n_cols))
        return GpuMatrix(w.n_rows, w.n_cols, codec, planes)

    def close(self) -> None:
        for memory in self._kept:
            memory.free()
        self.stream.close()
