"""A fake GPU that fails at a call that is chosen by its number, as GPUs do: full, full for a moment, or lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from fakes.gpu import FakeGpu, FakeMemory, FakeWork

from native_kernels.cuda.runtime.driver import OUT_OF_MEMORY, CudaError, CudaOutOfMemoryError

Failure = Literal["full", "full once", "lost", "late loss"]


class FailingGpu(FakeGpu):
    """Works until so many calls were made. n_calls: so far.

    full: from then on there is no memory, once: for one call; lost: every call fails from then on. late loss: what was
    asked for then fails while it runs, and everything after it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.n_calls = 0
        self.is_lost = False
        self._fails_at: int | None = None
        self._failure: Failure = "lost"

    def fail_after(self, n_calls: int, failure: Failure) -> None:
        self._fails_at, self._failure = self.n_calls + n_calls, failure

    def _asked(self, call: str, takes_memory: bool = False) -> None:
        """Raises what the call is to raise."""
        self.n_calls += 1
        is_due = self._fails_at is not None and self.n_calls >= self._fails_at
        if is_due and self._failure in ("full", "full once"):
            if takes_memory:
                self._fails_at = None if self._failure == "full once" else self._fails_at
                raise CudaOutOfMemoryError(call, 2, "CUDA_ERROR_OUT_OF_MEMORY")
        elif is_due and not self.is_lost:
            self.is_lost = True
            if self._failure == "late loss":
                self.between(_illegal)
                return
        if self.is_lost:
            raise CudaError(call, 719, "CUDA_ERROR_LAUNCH_FAILED")

    def enter(self) -> None:
        if self.is_lost:
            raise CudaError("cuCtxSetCurrent", 719, "CUDA_ERROR_LAUNCH_FAILED")

    def allocate(self, n_bytes: int) -> FakeMemory:
        self._asked("cuMemAlloc_v2", takes_memory=True)
        return super().allocate(n_bytes)

    def pin(self, n_bytes: int) -> FakeMemory:
        self._asked("cuMemHostAlloc", takes_memory=True)
        return super().pin(n_bytes)

    def upload(self, to: int, source: int, n_bytes: int) -> None:
        self._asked("cuMemcpyHtoDAsync_v2")
        super().upload(to, source, n_bytes)

    def download(self, to: int, source: int, n_bytes: int) -> None:
        self._asked("cuMemcpyDtoHAsync_v2")
        super().download(to, source, n_bytes)

    def fill(self, to: int, value: int, n_bytes: int) -> None:
        self._asked("cuMemsetD8Async")
        super().fill(to, value, n_bytes)

    def synchronize(self) -> None:
        self._asked("cuStreamSynchronize")
        super().synchronize()

    def captured(self, work: Callable[[], None]) -> FakeWork:
        self._asked("cuStreamBeginCapture", takes_memory=True)
        return super().captured(work)

    def mark(self) -> Any:
        self._asked("cuEventCreate")
        return super().mark()

    def launch(self, work: FakeWork) -> None:
        if (code := self._launched(work.handle, self.stream_handle)) == OUT_OF_MEMORY:
            raise CudaOutOfMemoryError("cuGraphLaunch", code, "CUDA_ERROR_OUT_OF_MEMORY")
        if code:
            raise CudaError("cuGraphLaunch", code, "CUDA_ERROR_LAUNCH_FAILED")

    def take_out(self, memory: FakeMemory) -> None:
        super().take_out(memory)
        if self.is_lost:
            raise CudaError("cuMemFree_v2", 719, "CUDA_ERROR_LAUNCH_FAILED")

    def _launched(self, handle: int | None, stream: int | None) -> int:
        try:
            self._asked("cuGraphLaunch", takes_memory=True)
        except CudaError as error:
            return error.code
        return super()._launched(handle, stream)


def _illegal() -> None:
    raise ArithmeticError("an illegal address")
