"""Arrays on a GPU for tests: put there, looked at again, and all given back at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.gpu import GpuNorm, GpuVector, HostMemory, Memory


class OnGpu:
    """Arrays on one GPU. Memory that nothing was put into holds 0xff bytes: NaN as floats."""

    def __init__(self, gpu: CudaGpu) -> None:
        self.gpu = gpu
        self._held: list[Memory] = []

    def put(self, array: Any) -> int:
        """Its address on the GPU."""
        data = np.ascontiguousarray(array)
        at = self.room(data.nbytes)
        self.gpu.upload(at, data.ctypes.data, data.nbytes)
        self.gpu.synchronize()
        return at

    def room(self, n_bytes: int) -> int:
        memory = self.gpu.allocate(n_bytes)
        self._held.append(memory)
        self.gpu.fill(memory.address, 0xFF, n_bytes)
        return memory.address

    def pin(self, n_bytes: int) -> HostMemory:
        memory = self.gpu.pin(n_bytes)
        self._held.append(memory)
        memory.as_array(np.uint8, n_bytes)[:] = 0
        return memory

    def get(self, at: int, shape: int | tuple[int, ...], dtype: Any = np.float32) -> Any:
        """What lies there when all work is done."""
        out = np.empty(shape, dtype)
        self.gpu.download(out.ctypes.data, at, out.nbytes)
        self.gpu.synchronize()
        return out

    def vector(self, n: int, in_bytes: bool = True) -> GpuVector:
        if not in_bytes:
            return GpuVector(n, self.room(4 * n))
        return GpuVector(n, self.room(4 * n), self.room(-(-n // 64) * 64), self.room(8 * -(-n // 32)))

    def norm(self, kind: Any, weight: Any, bias: Any, eps: float) -> GpuNorm:
        return GpuNorm(kind, self.put(weight), 0 if bias is None else self.put(bias), eps)

    def check_bytes(self, vector: GpuVector) -> None:
        """That the 8-bit form is that of the values, bit for bit."""
        values = self.get(vector.values, vector.n)
        places = -(-vector.n // 64) * 64
        padded = np.zeros(places, np.float32)
        padded[: vector.n] = values
        groups = padded.reshape(-1, 32)
        largest = np.abs(groups).max(axis=1)
        steps = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
        wanted = np.rint(groups * steps[:, None]).astype(np.int8)
        scales = largest * np.float32(1 / 127)
        n_scales = -(-vector.n // 32)
        assert np.array_equal(self.get(vector.bytes, places, np.int8), wanted.ravel())
        found = self.get(vector.scales, (n_scales, 2))
        assert np.array_equal(found[:, 0], scales[:n_scales])
        assert np.array_equal(found[:, 1], (scales * wanted.sum(axis=1, dtype=np.float32))[:n_scales])

    def free(self) -> None:
        for memory in self._held:
            memory.free()
