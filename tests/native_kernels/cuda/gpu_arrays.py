"""NumPy arrays on a GPU and back, for tests: simple, and every call waits."""

from __future__ import annotations

from typing import Any

import numpy as np

from native_kernels.cuda.gpu import GpuMatrix, GpuVector
from native_kernels.cuda.runtime.driver import Device, Stream
from native_kernels.cuda.runtime.memory import DeviceMemory, PinnedMemory


class GpuArrays:
    """What was put onto a GPU, until `close`."""

    def __init__(self, device: Device, stream: Stream) -> None:
        self._device, self._stream = device, stream
        self._held: list[DeviceMemory] = []

    def put(self, values: Any) -> int:
        """A copy of the array on the GPU."""
        flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        address = self.empty(flat.nbytes)
        if flat.nbytes:
            host = PinnedMemory(self._device, flat.nbytes)
            host.as_array(np.uint8, flat.nbytes)[:] = flat
            self._stream.upload(address, host.address, flat.nbytes)
            self._stream.synchronize()
            host.free()
        return address

    def empty(self, n_bytes: int) -> int:
        """Memory of the GPU, every byte 0xff: as floats no numbers."""
        memory = DeviceMemory(self._device, n_bytes)
        self._held.append(memory)
        if n_bytes:
            self._stream.fill(memory.address, 0xFF, n_bytes)
        return memory.address

    def get(self, address: int, dtype: Any, *shape: int) -> Any:
        """What lies there once all that was asked for is done."""
        count = int(np.prod(shape))
        host = PinnedMemory(self._device, count * np.dtype(dtype).itemsize)
        self._stream.download(host.address, address, host.n_bytes)
        self._stream.synchronize()
        found = host.as_array(dtype, count).copy().reshape(shape)
        host.free()
        return found

    def matrix(self, codec: str, planes: list[Any], n_rows: int, n_cols: int) -> GpuMatrix:
        return GpuMatrix(n_rows, n_cols, codec, tuple(self.put(plane) for plane in planes))

    def vector(self, x: Any) -> GpuVector:
        """The numbers, and room for their bytes and scales."""
        n = len(x)
        return GpuVector(n, self.put(x.astype(np.float32)), self.empty(-(-n // 64) * 64), self.empty(-(-n // 32) * 8))

    def close(self) -> None:
        for memory in self._held:
            memory.free()
        self._held.clear()
