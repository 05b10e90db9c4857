"""A place on a GPU to try something out: memory for as long as it lasts, numbers to it and back, and never a wait
without an end. It knows no kernel of a model.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32
from native_kernels.cuda.gpu import Gpu, GpuMatrix, GpuVector, HostMemory
from native_kernels.cuda.layouts import plane_row_bytes

PATIENCE_S = 5.0  # for what takes less than a millisecond; a GPU that also draws a screen may take some frames
_STAGE_BYTES = 1 << 20  # of pinned memory, the most that is taken back at once
_LINE = 64  # bytes between flags


class SlowGpuError(Exception):
    """The GPU did not come to an end in time; what it was given must not be freed, because that would wait too."""

    def __init__(self) -> None:
        super().__init__(f"the GPU did not answer within {PATIENCE_S:.0f} s")


class GpuTrial:
    """Memory of the GPU, given back at the end; random numbers, the same every time.

    The GPU must be the calling thread's.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.random = np.random.default_rng(20)
        self._at_end = ExitStack()
        self._stage: HostMemory | None = None
        self._epoch = self._seen = 0
        self._flag: NDArray[np.int64] = np.zeros(1, np.int64)

    def __enter__(self) -> GpuTrial:
        try:
            self._stage = self.pinned(_STAGE_BYTES + _LINE)
            self._flag = self._stage.as_array(np.int64, 1, _STAGE_BYTES)
            self._flag[0] = 0
            self._epoch = self.put(np.zeros(1, np.int64))
        except BaseException:
            self._at_end.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if isinstance(error, SlowGpuError):
            self._at_end.pop_all()
        else:
            self._at_end.close()

    def numbers(self, n: int) -> F32:
        """Of about one, f32 [n]."""
        return self.random.standard_normal(n, np.float32)

    def room(self, n_bytes: int) -> int:
        """The address of so many bytes."""
        memory = self.gpu.allocate(max(16, n_bytes))
        self._at_end.callback(memory.free)
        return memory.address

    def pinned(self, n_bytes: int) -> HostMemory:
        """Of the host's, until the end."""
        memory = self.gpu.pin(n_bytes)
        self._at_end.callback(memory.free)
        return memory

    def closes(self, what: Any) -> Any:
        """The same, closed at the end."""
        self._at_end.callback(what.close)
        return what

    def put(self, values: NDArray[Any]) -> int:
        """A copy of the values on the GPU; its address."""
        contiguous = np.ascontiguousarray(values)
        address = self.room(contiguous.nbytes)
        self.gpu.upload(address, contiguous.ctypes.data, contiguous.nbytes)
        return address

    def vector(self, values: F32) -> GpuVector:
        """The values with room for their 8-bit form, which is not made yet."""
        n = len(values)
        return GpuVector(n, self.put(values), self.room(-(-n // 64) * 64), self.room(8 * -(-n // 32)))

    def matrix(self, rows: NDArray[np.uint8], codec: str, n_cols: int) -> GpuMatrix:
        """Rows u8 [n, row bytes] as files have them, as the GPU keeps them."""
        planes = tuple(self.room(len(rows) * size) for size in plane_row_bytes(codec, n_cols))
        matrix = GpuMatrix(len(rows), n_cols, codec, planes)
        self.gpu.unpack_rows(self.put(rows), rows.shape[1], len(rows), matrix, codec)
        return matrix

    def take(self, address: int, n: int, dtype: Any = np.float32) -> NDArray[Any]:
        """What lies on the GPU, [n]. Raises: CudaError, SlowGpuError."""
        assert self._stage is not None, "a trial begins with `with`"
        n_bytes = n * np.dtype(dtype).itemsize
        self.gpu.download(self._stage.address, address, n_bytes)
        self.settle()
        taken: NDArray[Any] = self._stage.as_array(dtype, n).copy()
        return taken

    def settle(self) -> None:
        """Waits until all that was asked for is done. Raises: CudaError for what went wrong on it, SlowGpuError."""
        assert self._stage is not None, "a trial begins with `with`"
        self.gpu.publish(self._stage.device_address + _STAGE_BYTES, self._epoch)
        self._seen += 1
        end = time.perf_counter() + PATIENCE_S
        while self._flag[0] < self._seen:
            if time.perf_counter() > end:
                self.gpu.fill(self._epoch, 0, 8)  # raises what went wrong, where something did
                raise SlowGpuError

    def eight_bits(self, vector: GpuVector) -> tuple[NDArray[np.int8], F32, F32]:
        """The 8-bit form: bytes i8 [n], for every 32 of them the scale, and that times their sum."""
        scales = self.take(vector.scales, 2 * -(-vector.n // 32)).reshape(-1, 2)
        return self.take(vector.bytes, vector.n, np.int8), scales[:, 0], scales[:, 1]

    def as_multiplied(self, vector: GpuVector, matrix: GpuMatrix) -> F32:
        """The vector as the matrix sees it: rounded, or as it is."""
        if not matrix.reads_bytes:
            plain: F32 = self.take(vector.values, vector.n)
            return plain
        rounded, scales, _ = self.eight_bits(vector)
        seen: F32 = (rounded.reshape(-1, 32) * scales[:, None]).reshape(-1)
        return seen
