"""Matrices and arrays on a GPU, for tests: planes made in NumPy as native_kernels/cuda/layouts.py says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes.rows import to_planes
from numpy.typing import NDArray

from native_kernels.backend import PackedMatrix
from native_kernels.cuda.gpu import GpuMatrix
from native_kernels.cuda.layouts import gpu_codec
from native_kernels.cuda.runtime.driver import CudaError, CudaUnavailableError, Device, Stream, driver
from native_kernels.cuda.runtime.memory import DeviceMemory


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
        rows = np.ascontiguousarray(w.data).view(np.uint8)
        planes = tuple(self.put(plane) for plane in to_planes(rows, w.codec, w.n_cols))
        return GpuMatrix(w.n_rows, w.n_cols, gpu_codec(w.codec), planes)

    def close(self) -> None:
        for memory in self._kept:
            memory.free()
        self.stream.close()
