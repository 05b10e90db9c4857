"""Runs the parts of a batch's step on GPU and CPU, the first time one by one, from then on as compiled programs.

What the GPU does between two parts of the CPU is captured as one piece of work, which the program launches; what
only Python can do ends a program. It knows no layer and no model.
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
    """Operators that are asked for one after another."""

    ask_for: Callable[[], None]


@dataclass(frozen=True, eq=False)
class OnCpu:
    """Calls behind the GPU's next word that what they read is there."""

    calls: Sequence[Call]


Between = Callable[[F32], F32]  # of the sequences' rows, [B, D]
Part = OnGpu | OnCpu | Between


class BatchRunner:
    """The programs of one step, and the words by which both sides wait for each other.

    A step that did not come to its end must be followed by `recover`.
    """

    def __init__(self, gpu: Gpu, pool: Pool, memory: BatchMemory, parts: Sequence[Part], patience_s: float) -> None:
        """patience_s: how long the CPU waits for the GPU."""
        self._gpu, self._pool, self._memory, self._parts = gpu, pool, memory, parts
        self._limit = int(patience_s * ticks_per_s())
        self._seen: I64 = aligned_empty(1, np.int64)
        self._works: list[Work] = []
        self._first: list[Program | Between] = []
        self._pieces: list[Program | Between] = []

    def run(self, x: F32) -> F32:
        """One step, from the sequences' rows on; what the last part in Python left of them.

        The first one loads and allocates what there is to, the second captures.
        Raises: CudaError, CudaOutOfMemoryError, DeviceFailedError.
        """
        if not self._first:
            return self._run_one_by_one(x)
        if not self._pieces:
            self._pieces = self._laid_out()
        for piece in self._pieces:
            x = self._do(piece, x)
        return x

    def recover(self) -> None:
        """Both sides agree again, whatever went wrong, where the GPU still computes. Raises: CudaError."""
        memory = self._memory
        memory.stop[0] = 1
        with contextlib.suppress(CudaError):  # an error of earlier work is told here once, and is known already
            self._gpu.synchronize()
        for word in (memory.flag, memory.stop, memory.status, self._seen):
            word[0] = 0
        self._gpu.fill(memory.epoch, 0, 8)
        self._gpu.synchronize()

    def forget_times(self) -> None:
        """Back to nothing measured."""
        for piece in (*self._first, *self._pieces):
            if isinstance(piece, Program):
                piece.forget_times()

    def stage_seconds(self) -> dict[str, float]:
        """Seconds of every stage of the programs."""
        found: dict[str, float] = {}
        for piece in (*self._first, *self._pieces):
            if isinstance(piece, Program):
                for stage, seconds in piece.stage_seconds().items():
                    found[stage] = found.get(stage, 0.0) + seconds
        return found

    def close(self) -> None:
        """Gives the captured work back. A second time does nothing."""
        works, self._works, self._pieces = self._works, [], []
        for work in works:
            work.close()

    # -------------------------------------------------------------- ways to run

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

    def _do(self, piece: Program | Between, x: F32) -> F32:
        if not isinstance(piece, Program):
            return piece(x)
        self._pool.run(piece, timed=True)
        failure = int(self._memory.status[0])
        if failure == OUT_OF_MEMORY:
            raise CudaOutOfMemoryError("cuGraphLaunch", failure, "CUDA_ERROR_OUT_OF_MEMORY")
        if failure > 0:
            raise DeviceFailedError(f"The GPU could not be given its work: error {failure}.")
        if failure:
            raise DeviceFailedError(f"The GPU did not answer {'in time' if failure == LATE else 'at all'}.")
        return x

    def _laid_out(self) -> list[Program | Between]:
        pieces: list[Program | Between] = []
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
                pieces.append(Program(calls))
                calls = []
            if part is not None:
                pieces.append(part)
        return pieces

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
