"""A scope for checks on a GPU: memory released at its end, uploads and downloads, and waits with a time limit."""

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

PATIENCE_S = 5.0  # for work of less than a millisecond; a GPU that also drives a display may need some frames
_STAGE_BYTES = 1 << 20  # of pinned memory; limit of a download
_LINE = 64  # bytes between flags


class SlowGpuError(Exception):
    """The GPU did not finish in time. Its memory must not be freed, because that would wait too."""

    def __init__(self) -> None:
        super().__init__(f"the GPU did not answer within {PATIENCE_S:.0f} s")


class GpuTrial:
    """Memory on a GPU, released at the end, and seeded random numbers.

    The calling thread must have entered the GPU.
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
        """Return normally distributed f32 [n]."""
        return self.random.standard_normal(n, np.float32)

    def room(self, n_bytes: int) -> int:
        """Allocate n_bytes on the GPU until the end; return their address."""
        memory = self.gpu.allocate(max(16, n_bytes))
        self._at_end.callback(memory.free)
        return memory.address

    def pinned(self, n_bytes: int) -> HostMemory:
        """Pin host memory until the end."""
        memory = self.gpu.pin(n_bytes)
        self._at_end.callback(memory.free)
        return memory

    def closes(self, what: Any) -> Any:
        """Close the object at the end; return it."""
        self._at_end.callback(what.close)
        return what

    def put(self, values: NDArray[Any]) -> int:
        """Copy values to the GPU; return their address."""
        contiguous = np.ascontiguousarray(values)
        address = self.room(contiguous.nbytes)
        self.gpu.upload(address, contiguous.ctypes.data, contiguous.nbytes)
        return address

    def vector(self, values: F32) -> GpuVector:
        """Copy values to the GPU, with memory for their 8-bit form, which is not computed yet."""
        n = len(values)
        return GpuVector(n, self.put(values), self.room(-(-n // 64) * 64), self.room(8 * -(-n // 32)))

    def matrix(self, rows: NDArray[np.uint8], codec: str, n_cols: int) -> GpuMatrix:
        """Convert stored rows u8 [n, row bytes] to the GPU's layout."""
        planes = tuple(self.room(len(rows) * size) for size in plane_row_bytes(codec, n_cols))
        matrix = GpuMatrix(len(rows), n_cols, codec, planes)
        self.gpu.unpack_rows(self.put(rows), rows.shape[1], len(rows), matrix, codec)
        return matrix

    def take(self, address: int, n: int, dtype: Any = np.float32) -> NDArray[Any]:
        """Download n values from an address. Raises: CudaError, SlowGpuError."""
        assert self._stage is not None, "a trial begins with `with`"
        n_bytes = n * np.dtype(dtype).itemsize
        self.gpu.download(self._stage.address, address, n_bytes)
        self.settle()
        taken: NDArray[Any] = self._stage.as_array(dtype, n).copy()
        return taken

    def settle(self) -> None:
        """Wait for all queued work. Raises: CudaError for failed work, SlowGpuError."""
        assert self._stage is not None, "a trial begins with `with`"
        self.gpu.publish(self._stage.device_address + _STAGE_BYTES, self._epoch)
        self._seen += 1
        end = time.perf_counter() + PATIENCE_S
        while self._flag[0] < self._seen:
            if time.perf_counter() > end:
                self.gpu.fill(self._epoch, 0, 8)  # raises the error of earlier work, if any
                raise SlowGpuError

    def eight_bits(self, vector: GpuVector) -> tuple[NDArray[np.int8], F32, F32]:
        """Return the 8-bit form: bytes i8 [n], and for every 32 of them the scale, and the scale times their sum."""
        scales = self.take(vector.scales, 2 * -(-vector.n // 32)).reshape(-1, 2)
        return self.take(vector.bytes, vector.n, np.int8), scales[:, 0], scales[:, 1]

    def as_multiplied(self, vector: GpuVector, matrix: GpuMatrix) -> F32:
        """Return the vector as the matrix reads it: rounded to 8 bits, or in f32."""
        if not matrix.reads_bytes:
            plain: F32 = self.take(vector.values, vector.n)
            return plain
        rounded, scales, _ = self.eight_bits(vector)
        seen: F32 = (rounded.reshape(-1, 32) * scales[:, None]).reshape(-1)
        return seen
