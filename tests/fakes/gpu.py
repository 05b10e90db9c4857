"""A GPU of NumPy, so that what runs on GPUs is tested where there is none: native_kernels/cuda/gpu.py.

Its memory is the host's. What it is asked for is computed by a thread of its own, in order and sometimes while the
caller goes on, as a GPU does it; every address is looked up, so that one that is not the GPU's is an error. It is no
measure of speed.
"""

from __future__ import annotations

import bisect
import ctypes
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from fakes.operators import FakeOperators
from numpy.typing import NDArray

from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError

_PINNED = 1 << 60  # by which the GPU's name for pinned memory differs from the host's
_FAILED = 719  # what launches answer after something has failed
# Share of launches that return when their work is done. CPU kernels spin for the flag of a GPU, which took half of the
# tests' time; the other launches go on beside their work, so that a missing wait is found.
_WAITS = 0.9
_SWITCH_S = 1e-4  # A caller that spins for a flag keeps the GIL this long. With Python's 5 ms, a self-test took 1.1 s.
_PYTHONS_SWITCH_S = sys.getswitchinterval()
_MOST_WAIT_S = 0.1  # for work that a test holds up


class FakeMemory:
    """No numbers at first, as nobody promises any. n_bytes: as asked for; address: aligned to 256 bytes."""

    def __init__(self, gpu: FakeGpu, n_bytes: int, pinned: bool) -> None:
        raw = np.full(n_bytes + 256, 0xFF, np.uint8)
        start = -raw.ctypes.data % 256
        self.bytes = raw[start : start + n_bytes]
        self.address = int(self.bytes.ctypes.data)
        self.n_bytes = n_bytes
        self.device_address = self.address + (_PINNED if pinned else 0)
        self._gpu: FakeGpu | None = gpu
        gpu.add(self)

    def as_array(self, dtype: Any, count: int, offset: int = 0) -> NDArray[Any]:
        size = count * np.dtype(dtype).itemsize
        assert 0 <= offset <= offset + size <= self.n_bytes
        return self.bytes[offset : offset + size].view(dtype)

    def free(self) -> None:
        if self._gpu is not None:
            gpu, self._gpu = self._gpu, None
            gpu.take_out(self)


class FakeWork:
    def __init__(self, gpu: FakeGpu, steps: list[tuple[str, Callable[[], None]]], handle: int) -> None:
        self.steps = steps
        self.handle = handle
        self._gpu = gpu

    @property
    def names(self) -> list[str]:
        """The operators in their order."""
        return [name for name, _ in self.steps]

    def close(self) -> None:
        self._gpu.works.pop(self.handle, None)


class FakeMark:
    reached_at = 0.0

    def reach(self) -> None:
        self.reached_at = time.perf_counter()

    def seconds_since(self, earlier: FakeMark) -> float:
        return self.reached_at - earlier.reached_at

    def close(self) -> None:
        """Nothing was taken."""


class FakeCopier:
    """Copies at last when they are waited for, and mostly not before it is asked about them more than once."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self._copies: list[Callable[[], None]] = []

    def follow(self) -> None:
        self._copies.append(lambda: self._gpu.settle() and None)

    def upload(self, to: int, source: int, n_bytes: int) -> None:
        self._copies.append(
            lambda: ctypes.memmove(self._gpu.bytes_at(to, n_bytes).ctypes.data, source, n_bytes) and None
        )

    def upload_rows(self, to: int, to_step: int, source: int, source_step: int, n_bytes: int, n_rows: int) -> None:
        for row in range(n_rows):
            self.upload(to + row * to_step, source + row * source_step, n_bytes)

    def has_ended(self) -> bool:
        if random.random() < 0.5:
            self.wait()
        return not self._copies

    def wait(self) -> None:
        copies, self._copies = self._copies, []
        for copy in copies:
            copy()

    def close(self) -> None:
        if not self._gpu.closed:
            self.wait()


class FakeGpu(FakeOperators):
    """The GPU. memory_bytes: all that can be allocated. n_launches: of captured work, so far.

    Errors of what runs are raised by `synchronize`. Threads other than the one that made it must `enter` it first.
    """

    stream_handle = 0x5EA
    n_multiprocessors = 2

    def __init__(self, memory_bytes: int = 1 << 34) -> None:
        self.memory_bytes = memory_bytes
        self.used_bytes = 0
        self.n_launches = 0
        self._chance = random.Random(1)
        self.works: dict[int, FakeWork] = {}
        self.closed = False
        self._starts: list[int] = []
        self._memory: dict[int, FakeMemory] = {}
        self._captured: list[tuple[str, Callable[[], None]]] | None = None
        self._handles = 0
        self._lock = threading.Lock()
        self._entered = {threading.get_ident()}
        self._error: BaseException | None = None
        self._queue: queue.SimpleQueue[tuple[Callable[[], None], bool] | None] = queue.SimpleQueue()
        self._launch = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(self._launched)
        self.launch_function = ctypes.cast(self._launch, ctypes.c_void_p).value or 0
        self._thread = threading.Thread(target=self._live, name="fake-GPU", daemon=True)
        sys.setswitchinterval(_SWITCH_S)
        self._thread.start()

    # --- memory and execution

    def enter(self) -> None:
        if self.closed:
            raise RuntimeError("a GPU that is entered after it was closed keeps its context, and memory, for good")
        self._entered.add(threading.get_ident())

    def _entered_for(self, call: str) -> None:
        if threading.get_ident() not in self._entered:
            raise CudaError(call, 201, "CUDA_ERROR_INVALID_CONTEXT")

    def allocate(self, n_bytes: int) -> FakeMemory:
        self._entered_for("cuMemAlloc_v2")
        if self.used_bytes + n_bytes > self.memory_bytes:
            raise CudaOutOfMemoryError("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY")
        self.used_bytes += n_bytes
        return FakeMemory(self, n_bytes, pinned=False)

    def pin(self, n_bytes: int) -> FakeMemory:
        self._entered_for("cuMemHostAlloc")
        return FakeMemory(self, n_bytes, pinned=True)

    def upload(self, to: int, source: int, n_bytes: int) -> None:
        if self._find(source + _PINNED, n_bytes) is None:  # pageable memory is read before the call returns
            data = np.frombuffer(ctypes.string_at(source, n_bytes), np.uint8)
            self.do("upload", lambda: np.copyto(self.bytes_at(to, n_bytes), data))
        else:
            self.do("upload", lambda: np.copyto(self.bytes_at(to, n_bytes), self.bytes_at(source + _PINNED, n_bytes)))

    def download(self, to: int, source: int, n_bytes: int) -> None:
        self.do("download", lambda: ctypes.memmove(to, self.bytes_at(source, n_bytes).ctypes.data, n_bytes) and None)

    def upload_rows(self, to: int, to_step: int, source: int, source_step: int, n_bytes: int, n_rows: int) -> None:
        for row in range(n_rows):
            self.upload(to + row * to_step, source + row * source_step, n_bytes)

    def download_rows(self, to: int, to_step: int, source: int, source_step: int, n_bytes: int, n_rows: int) -> None:
        for row in range(n_rows):
            self.download(to + row * to_step, source + row * source_step, n_bytes)

    def move_rows(self, to: int, source: int, step: int, n_bytes: int, n_rows: int) -> None:
        def move() -> None:
            for at in range(0, n_rows * step, step):
                self.bytes_at(to + at, n_bytes)[:] = self.bytes_at(source + at, n_bytes)

        assert abs(to - source) >= n_bytes, "the rows overlap"
        self.do("move_rows", move)
        self.synchronize()  # before the fake operators of prompts, which do not queue

    def fill(self, to: int, value: int, n_bytes: int) -> None:
        self.do("fill", lambda: self.bytes_at(to, n_bytes).fill(value))

    def copier(self) -> FakeCopier:
        return FakeCopier(self)

    def synchronize(self) -> None:
        if not self.settle():
            raise CudaError("cuStreamSynchronize", 702, "CUDA_ERROR_LAUNCH_TIMEOUT")
        error, self._error = self._error, None
        if error is not None:
            raise CudaError("cuStreamSynchronize", _FAILED, f"{type(error).__name__}: {error}") from error

    def side_by_side(self, works: Sequence[Callable[[], None]]) -> None:
        """In any order, which stands for at the same time."""
        for work in random.sample(list(works), len(works)):
            work()

    def captured(self, work: Callable[[], None]) -> FakeWork:
        assert self._captured is None, "one capture at a time"
        self._entered_for("cuStreamBeginCapture_v2")
        self._captured = steps = []
        try:
            work()
        finally:
            self._captured = None
        self._handles += 1
        self.works[self._handles] = FakeWork(self, steps, self._handles)
        return self.works[self._handles]

    def mark(self) -> FakeMark:
        assert self._captured is not None, "marks are points of captured work"
        mark = FakeMark()
        self.do("mark", mark.reach)
        return mark

    def launch(self, work: FakeWork) -> None:
        assert self._captured is None, "nothing is launched while work is captured"
        if code := self._launched(work.handle, self.stream_handle):
            raise CudaError("cuGraphLaunch", code, "CUDA_ERROR_LAUNCH_FAILED")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._queue.put(None)
            self._thread.join()
            sys.setswitchinterval(_PYTHONS_SWITCH_S)

    def settle(self) -> bool:
        """Waits until the stream has come here, failed or not; False where that takes a minute."""
        reached = threading.Event()
        self._queue.put((reached.set, True))
        return reached.wait(60)

    def between(self, step: Callable[[], None]) -> None:
        """Runs it in the stream, behind what was asked for so far."""
        self._queue.put((step, False))

    def add(self, memory: FakeMemory) -> None:
        with self._lock:
            bisect.insort(self._starts, memory.device_address)
            self._memory[memory.device_address] = memory

    def take_out(self, memory: FakeMemory) -> None:
        if not self.closed:
            self.settle()
        with self._lock:
            self._starts.remove(memory.device_address)
            del self._memory[memory.device_address]
        if memory.device_address == memory.address:
            self.used_bytes -= memory.n_bytes

    def _launched(self, handle: int | None, stream: int | None) -> int:
        if stream != self.stream_handle or handle not in self.works:
            return 400
        if self._error is not None:
            return _FAILED
        self.n_launches += 1
        steps = self.works[handle].steps
        self._queue.put((lambda: [step() for _, step in steps] and None, False))
        if self._chance.random() < _WAITS:
            done = threading.Event()
            self._queue.put((done.set, True))
            done.wait(_MOST_WAIT_S)
        return 0

    def _live(self) -> None:
        while (taken := self._queue.get()) is not None:
            step, even_after_errors = taken
            try:
                if self._error is None or even_after_errors:
                    with np.errstate(all="ignore"):
                        step()
            except BaseException as error:  # noqa: BLE001 - whatever it is, `synchronize` raises it
                self._error = error

    def do(self, name: str, step: Callable[[], None]) -> None:
        self._entered_for(name)
        if self._captured is not None:
            self._captured.append((name, step))
        else:
            self._queue.put((step, False))

    def _find(self, address: int, n_bytes: int) -> FakeMemory | None:
        with self._lock:
            place = bisect.bisect_right(self._starts, address) - 1
            memory = self._memory[self._starts[place]] if place >= 0 else None
        inside = memory is not None and address + n_bytes <= memory.device_address + memory.n_bytes
        return memory if inside else None

    def bytes_at(self, address: int, n_bytes: int) -> NDArray[np.uint8]:
        memory = self._find(address, n_bytes)
        if memory is None:
            raise MemoryError(f"{n_bytes} bytes at {address:#x} are not the GPU's")
        start = address - memory.device_address
        return memory.bytes[start : start + n_bytes]
