"""Run a token's plans on GPU and CPU: capture the GPU's segments, which the CPU's threads launch and await.

Execution "segments": the CPU launches each CUDA graph segment after its own part. "eager": this module launches every
operator and waits for it, for debugging.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from typing import Literal

import numpy as np

from engine.errors import DeviceFailedError
from engine.gpu.token.gpu_stages import GpuStages
from engine.gpu.token.token_memory import SharedMemory, TokenPlaces
from engine.gpu.token.token_plan import TokenPlan, TokenPlans
from engine.gpu.token.token_steps import Step, stage_begins
from engine.job import CancelCheck
from native_kernels.backend import I64
from native_kernels.cpu.runtime.call import Call, aligned_empty
from native_kernels.cpu.runtime.handover import LATE, await_call, launch_call
from native_kernels.cpu.runtime.pool import Pool, Program, ticks_per_s
from native_kernels.cuda.gpu import Gpu, Work
from native_kernels.cuda.runtime.driver import OUT_OF_MEMORY, CudaError, CudaOutOfMemoryError

log = logging.getLogger(__name__)

Execution = Literal["segments", "eager"]
Ending = Literal["logits", "hidden"]


class TokenRunner:
    """The captured work of a model's tokens, their programs, and the flags by which both sides wait for each other.

    Call `recover` after every token that did not finish, with or without an error.
    """

    def __init__(
        self,
        gpu: Gpu,
        pool: Pool,
        plans: TokenPlans,
        places: TokenPlaces,
        shared: SharedMemory,
        execution: Execution,
        patience_s: float,
    ) -> None:
        """patience_s: time limit for either side waiting for the other."""
        self._gpu = gpu
        self._pool = pool
        self._plans = plans
        self._places = places
        self._shared = shared
        self._execution: Execution = execution
        self._patience_s = patience_s
        self._seen: I64 = aligned_empty(1, np.int64)
        self._status: I64 = aligned_empty(1, np.int64)
        self._works: dict[int, Work] = {}  # by id of the captured list of steps, which the plans keep alive
        self._programs: dict[Ending, Program] = {}
        self._eager_programs: dict[Ending, list[Program]] = {}
        self._eager_s: dict[str, float] = defaultdict(float)
        self._stages = GpuStages(gpu)
        self._marked: Program | None = None  # a token with its logits, with marks
        self._cannot_mark = execution == "eager"
        self._gpu_s: dict[str, float] = {}
        self._is_read = True  # whether _gpu_s is up to date

    def run(
        self, ending: Ending, cancelled: CancelCheck, timed: bool = False, marked: bool = False
    ) -> bool:  # fmt: skip
        """Run one token; return False if it was cancelled.

        marked: measure the GPU's stages for `gpu_seconds`, if possible; the token then ends with its logits.

        Raises: CudaError, CudaOutOfMemoryError; DeviceFailedError if one side timed out or a launch failed.
        """
        if self._execution == "eager":
            return self._run_eagerly(ending, cancelled, timed)
        program = self._with_marks() if marked else None
        self._seen[0] = self._shared.flag.array[0]  # runs of other sizes advance this flag too
        finished = self._pool.run(program or self.program(ending), cancelled, timed)
        if program is not None:
            self._is_read = not finished
        failure = int(self._status[0])
        if finished and failure == OUT_OF_MEMORY:
            raise CudaOutOfMemoryError("cuGraphLaunch", failure, "CUDA_ERROR_OUT_OF_MEMORY")
        if finished and failure:
            raise DeviceFailedError(self._message_of(failure))
        return finished

    def plan(self, ending: Ending) -> TokenPlan:
        return self._plans.logits if ending == "logits" else self._plans.hidden

    def program(self, ending: Ending) -> Program:
        """Return the token as one program, captured at the first call. Raises: CudaError."""
        if ending not in self._programs:
            self._programs[ending] = Program(self._calls_of(self.plan(ending)))
        return self._programs[ending]

    def capture(self, ending: Ending) -> None:
        """Capture what `program` launches, so that `program` no longer needs the GPU and may run in any thread.

        Raises: CudaError, CudaOutOfMemoryError.
        """
        if self._execution == "segments":
            for steps in self.plan(ending).segments:
                self._captured(steps)

    def run_head(self) -> None:
        """Compute the logits of the hidden state in pinned memory, with the head on the GPU. Raises: CudaError."""
        self._gpu.launch(self._captured(self._plans.head_alone))
        self._gpu.synchronize()

    def recover(self) -> None:
        """Reset the flags after an unfinished token. Raises: CudaError, the error of the GPU's earlier work."""
        shared = self._shared
        failure: CudaError | None = None
        try:
            self._gpu.synchronize()
        except CudaError as error:
            failure = error
        for word in (shared.flag, shared.stop):
            word.array[0] = 0
        self._seen[0] = self._status[0] = 0
        self._gpu.fill(self._places.epoch, 0, 8)
        self._gpu.synchronize()
        if failure is not None:
            raise failure

    def reset_times(self) -> None:
        self._eager_s.clear()
        for program in self._all_programs():
            program.reset_times()

    def stage_seconds(self) -> dict[str, float]:
        """Return seconds by stage; in eager execution also by GPU operator."""
        found: dict[str, float] = defaultdict(float, self._eager_s)
        for program in self._all_programs():
            for stage, seconds in program.stage_seconds().items():
                found[stage] += seconds
        return dict(found)

    def gpu_seconds(self) -> dict[str, float]:
        """Return the GPU's seconds by stage in the last marked token; empty before one. Waits for the GPU.

        Raises: CudaError.
        """
        if not self._is_read:
            self._gpu.synchronize()
            self._gpu_s, self._is_read = self._stages.seconds(), True
        return self._gpu_s

    def release_marks(self) -> None:
        """Release the captured work of marked tokens; the next one captures again. Call this between tokens."""
        self._marked, self._gpu_s, self._is_read = None, {}, True
        self._stages.close()

    def close(self) -> None:
        """Release the captured work. Idempotent."""
        self._marked = None
        self._stages.close()
        works, self._works = self._works, {}
        self._programs.clear()
        for work in works.values():
            work.close()

    # --- ways to run

    def _with_marks(self) -> Program | None:
        """Return the program of a marked token; None if the GPU cannot capture marks."""
        if self._marked is None and not self._cannot_mark:
            try:
                self._marked = Program(self._calls_of(self.plan("logits"), True))
            except CudaError as error:
                log.info("The GPU's stages are not measured: %s", error)
                self._cannot_mark = True
                self._stages.close()
        return self._marked

    def _calls_of(self, plan: TokenPlan, marked: bool = False) -> list[Call]:
        first, *rest = plan.calls
        calls = list(first)
        captured = self._stages.captured if marked else self._captured
        for steps, behind in zip(plan.segments, rest, strict=True):
            calls += [self._launch(captured(steps)), self._await(), *behind]
        return calls

    def _run_eagerly(self, ending: Ending, cancelled: CancelCheck, timed: bool) -> bool:
        plan = self.plan(ending)
        if ending not in self._eager_programs:
            self._eager_programs[ending] = [Program(calls) for calls in plan.calls]
        for program, steps in zip(self._eager_programs[ending], [*plan.segments, []], strict=True):
            if cancelled() or (program.calls and not self._pool.run(program, cancelled, timed)):
                return False
            for step in steps:
                if step.func is stage_begins:
                    continue
                started = time.perf_counter()
                step()
                self._gpu.synchronize()
                if timed:
                    self._eager_s[f"GPU: {step.func.__name__}"] += time.perf_counter() - started
        return True

    def _captured(self, steps: list[Step]) -> Work:
        if id(steps) not in self._works:
            self._works[id(steps)] = self._gpu.captured(lambda: _queue(steps))
        return self._works[id(steps)]

    def _launch(self, work: Work) -> Call:
        return launch_call(self._gpu.launch_function, work.handle, self._gpu.stream_handle, self._status)

    def _await(self) -> Call:
        shared, limit = self._shared, int(self._patience_s * ticks_per_s())
        return await_call(shared.flag.array.ctypes.data, self._seen, limit, shared.stop.array, self._status)

    def _all_programs(self) -> list[Program]:
        marked = [] if self._marked is None else [self._marked]
        eager = (program for programs in self._eager_programs.values() for program in programs)
        return [*self._programs.values(), *marked, *eager]

    def _message_of(self, failure: int) -> str:
        if failure == LATE:
            return f"The GPU did not answer within {self._patience_s:g} seconds."
        return f"The GPU did not accept its work: error {failure}."


def _queue(steps: list[Step]) -> None:
    for step in steps:
        step()
