"""Run the parts of a batch step on GPU and CPU: one by one in the first step, then as compiled programs.

The GPU's operators between two CPU parts are captured as one CUDA graph segment, which the program launches. A part
that needs Python ends a program.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.errors import DeviceFailedError
from engine.gpu.batch.batch_memory import BatchMemory
from native_kernels.backend import F32, I64
from native_kernels.cpu.runtime.call import Call, aligned_empty
from native_kernels.cpu.runtime.handover import LATE, await_call, launch_call
from native_kernels.cpu.runtime.pool import Pool, Program, ticks_per_s
from native_kernels.cuda.gpu import Gpu, Work
from native_kernels.cuda.runtime.driver import OUT_OF_MEMORY, CudaError, CudaOutOfMemoryError


@dataclass(frozen=True, eq=False)
class OnGpu:
    """GPU operators. ask_for: queues them in order."""

    ask_for: Callable[[], None]


@dataclass(frozen=True, eq=False)
class OnCpu:
    """CPU calls to run after the GPU's next publication."""

    calls: Sequence[Call]


Between = Callable[[F32], F32]  # in Python, on the sequences' rows [B, D]
Part = OnGpu | OnCpu | Between


class BatchRunner:
    """The programs of one step, and the flags by which both sides wait for each other.

    Call `recover` after every step that did not finish.
    """

    def __init__(self, gpu: Gpu, pool: Pool, memory: BatchMemory, parts: Sequence[Part], patience_s: float) -> None:
        """patience_s: time limit for each wait of the CPU."""
        self._gpu, self._pool, self._memory, self._parts = gpu, pool, memory, parts
        self._limit = int(patience_s * ticks_per_s())
        self._seen: I64 = aligned_empty(1, np.int64)
        self._works: list[Work] = []
        self._first: list[Program | Between] = []  # of the first step
        self._programs: list[Program | Between] = []

    def run(self, x: F32) -> F32:
        """Run one step on the sequences' rows; return the rows from the last part in Python.

        The first step loads kernels and allocates memory; the second captures.
        Raises: CudaError, CudaOutOfMemoryError, DeviceFailedError.
        """
        if not self._first:
            return self._run_one_by_one(x)
        if not self._programs:
            self._programs = self._laid_out()
        for program in self._programs:
            x = self._do(program, x)
        return x

    def recover(self) -> None:
        """Reset the flags after an unfinished step. Raises: CudaError if the GPU no longer computes."""
        memory = self._memory
        memory.stop[0] = 1
        with contextlib.suppress(CudaError):  # repeats an earlier error that the caller already has
            self._gpu.synchronize()
        for word in (memory.flag, memory.stop, memory.status, self._seen):
            word[0] = 0
        self._gpu.fill(memory.epoch, 0, 8)
        self._gpu.synchronize()

    def reset_times(self) -> None:
        for program in (*self._first, *self._programs):
            if isinstance(program, Program):
                program.reset_times()

    def stage_seconds(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for program in (*self._first, *self._programs):
            if isinstance(program, Program):
                for stage, seconds in program.stage_seconds().items():
                    found[stage] = found.get(stage, 0.0) + seconds
        return found

    def close(self) -> None:
        """Release the captured work. Idempotent."""
        works, self._works, self._programs = self._works, [], []
        for work in works:
            work.close()

    # --- ways to run

    def _run_one_by_one(self, x: F32) -> F32:
        done: list[Program | Between] = []
        for part in self._parts:
            if isinstance(part, OnGpu):
                part.ask_for()
            else:
                done.append(Program([self._await(), *part.calls]) if isinstance(part, OnCpu) else part)
                x = self._do(done[-1], x)
        self._first = done
        return x

    def _do(self, program: Program | Between, x: F32) -> F32:
        if not isinstance(program, Program):
            return program(x)
        self._pool.run(program, timed=True)
        failure = int(self._memory.status[0])
        if failure == OUT_OF_MEMORY:
            raise CudaOutOfMemoryError("cuGraphLaunch", failure, "CUDA_ERROR_OUT_OF_MEMORY")
        if failure > 0:
            raise DeviceFailedError(f"The GPU did not accept its work: error {failure}.")
        if failure:
            raise DeviceFailedError(f"The GPU did not answer {'in time' if failure == LATE else 'at all'}.")
        return x

    def _laid_out(self) -> list[Program | Between]:
        programs: list[Program | Between] = []
        calls: list[Call] = []
        waiting: list[OnGpu] = []
        for part in [*self._parts, None]:
            if isinstance(part, OnGpu):
                waiting.append(part)
                continue
            if waiting:
                calls.append(self._launch(waiting))
                waiting = []
            if isinstance(part, OnCpu):
                calls += [self._await(), *part.calls]
                continue
            if calls:
                programs.append(Program(calls))
                calls = []
            if part is not None:
                programs.append(part)
        return programs

    def _launch(self, parts: Sequence[OnGpu]) -> Call:
        def ask_for_all() -> None:
            for part in parts:
                part.ask_for()

        work = self._gpu.captured(ask_for_all)
        self._works.append(work)
        return launch_call(self._gpu.launch_function, work.handle, self._gpu.stream_handle, self._memory.status)

    def _await(self) -> Call:
        memory = self._memory
        return await_call(memory.flag.ctypes.data, self._seen, self._limit, memory.stop, memory.status)
