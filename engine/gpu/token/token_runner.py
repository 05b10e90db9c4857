"""Runs a token's plans on GPU and CPU: captures the GPU's part, and lets the CPU's threads launch and
await it. It knows no layer and no model.

segments: the CPU launches each stretch when it has done its part. eager: every operator is launched from here and
waited for, to be looked at closely.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Literal

import numpy as np

from engine.errors import DeviceFailedError
from engine.gpu.token.gpu_stages import GpuStages
from engine.gpu.token.token_memory import SharedMemory, TokenPlaces
from engine.gpu.token.token_plan import TokenPlan, TokenPlans
from engine.gpu.token.token_steps import Step, stage_begins
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
    """The captured work of a model's tokens, their programs, and the words by which both sides wait for each other.

    A token that did not come to its end, with or without an error, must be followed by `recover`.
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
        """patience_s: how long either side waits for the other."""
        self._gpu = gpu
        self._pool = pool
        self._plans = plans
        self._places = places
        self._shared = shared
        self._execution: Execution = execution
        self._patience_s = patience_s
        self._seen: I64 = aligned_empty(1, np.int64)
        self._status: I64 = aligned_empty(1, np.int64)
        self._works: dict[int, Work] = {}  # by the list of steps that was captured; the plans keep those
        self._programs: dict[Ending, Program] = {}
        self._pieces: dict[Ending, list[Program]] = {}
        self._eager_s: dict[str, float] = defaultdict(float)
        self._stages = GpuStages(gpu)
        self._marked: Program | None = None  # a token with its logits, with marks
        self._cannot_mark = execution == "eager"
        self._gpu_s: dict[str, float] = {}
        self._is_read = True  # the times of the last token with marks

    def run(
        self, ending: Ending, cancelled: Callable[[], bool], timed: bool = False, marked: bool = False
    ) -> bool:  # fmt: skip
        """One token; False where it was stopped on the way. marked: `gpu_seconds` is of this one, where it can be;
        it ends with its logits then.

        Raises: CudaError, CudaOutOfMemoryError; DeviceFailedError where one side did not come in time, or a launch
        failed.
        """
        if self._execution == "eager":
            return self._run_eagerly(ending, cancelled, timed)
        program = self._with_marks() if marked else None
        finished = self._pool.run(program or self.program(ending), cancelled, timed)
        if program is not None:
            self._is_read = not finished
        failure = int(self._status[0])
        if finished and failure == OUT_OF_MEMORY:
            raise CudaOutOfMemoryError("cuGraphLaunch", failure, "CUDA_ERROR_OUT_OF_MEMORY")
        if finished and failure:
            raise DeviceFailedError(self._words_for(failure))
        return finished

    def plan(self, ending: Ending) -> TokenPlan:
        """What is run."""
        return self._plans.logits if ending == "logits" else self._plans.hidden

    def program(self, ending: Ending) -> Program:
        """The token as one program; captured when it is first asked for. Raises: CudaError."""
        if ending not in self._programs:
            self._programs[ending] = Program(self._by_turns(self.plan(ending)))
        return self._programs[ending]

    def capture(self, ending: Ending) -> None:
        """Captures what `program` launches; then that needs the GPU no more, and may run in any thread.

        Raises: CudaError, CudaOutOfMemoryError.
        """
        if self._execution == "segments":
            for steps in self.plan(ending).stretches:
                self._captured(steps)

    def run_head(self) -> None:
        """From what the head reads to the logits, where the head is on the GPU. Raises: CudaError."""
        self._gpu.launch(self._captured(self._plans.head_alone))
        self._gpu.synchronize()

    def recover(self) -> None:
        """Both sides agree again. Raises: CudaError for what has gone wrong on the GPU."""
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

    def forget_times(self) -> None:
        """Back to nothing measured."""
        self._eager_s.clear()
        for program in self._all_programs():
            program.forget_times()

    def stage_seconds(self) -> dict[str, float]:
        """Seconds of every stage; eager: also of the GPU's operators, by their names."""
        found: dict[str, float] = defaultdict(float, self._eager_s)
        for program in self._all_programs():
            for stage, seconds in program.stage_seconds().items():
                found[stage] += seconds
        return dict(found)

    def gpu_seconds(self) -> dict[str, float]:
        """Seconds of the GPU's stages in the last token with marks; empty before one. Waits for what runs there.

        Raises: CudaError.
        """
        if not self._is_read:
            self._gpu.synchronize()
            self._gpu_s, self._is_read = self._stages.seconds(), True
        return self._gpu_s

    def forget_marks(self) -> None:
        """Gives back what tokens with marks take on the GPU; the next one captures it anew. Between tokens."""
        self._marked, self._gpu_s, self._is_read = None, {}, True
        self._stages.close()

    def close(self) -> None:
        """Gives the captured work back. A second time does nothing."""
        self._marked = None
        self._stages.close()
        works, self._works = self._works, {}
        self._programs.clear()
        for work in works.values():
            work.close()

    # -------------------------------------------------------------- ways to run

    def _with_marks(self) -> Program | None:
        """The program of a token with marks; None where they cannot be had."""
        if self._marked is None and not self._cannot_mark:
            try:
                self._marked = Program(self._by_turns(self.plan("logits"), True))
            except CudaError as error:
                log.info("The GPU's stages are not measured: %s", error)
                self._cannot_mark = True
                self._stages.close()
        return self._marked

    def _by_turns(self, plan: TokenPlan, marked: bool = False) -> list[Call]:
        first, *rest = plan.calls
        calls = list(first)
        captured = self._stages.captured if marked else self._captured
        for steps, behind in zip(plan.stretches, rest, strict=True):
            calls += [self._launch(captured(steps)), self._await(), *behind]
        return calls

    def _run_eagerly(self, ending: Ending, cancelled: Callable[[], bool], timed: bool) -> bool:
        plan = self.plan(ending)
        if ending not in self._pieces:
            self._pieces[ending] = [Program(calls) for calls in plan.calls]
        for piece, steps in zip(self._pieces[ending], [*plan.stretches, []], strict=True):
            if cancelled() or (piece.calls and not self._pool.run(piece, cancelled, timed)):
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
            self._works[id(steps)] = self._gpu.captured(lambda: _ask_for(steps))
        return self._works[id(steps)]

    def _launch(self, work: Work) -> Call:
        return launch_call(self._gpu.launch_function, work.handle, self._gpu.stream_handle, self._status)

    def _await(self) -> Call:
        shared, limit = self._shared, int(self._patience_s * ticks_per_s())
        return await_call(shared.flag.array.ctypes.data, self._seen, limit, shared.stop.array, self._status)

    def _all_programs(self) -> list[Program]:
        marked = [] if self._marked is None else [self._marked]
        return [*self._programs.values(), *marked, *(piece for pieces in self._pieces.values() for piece in pieces)]

    def _words_for(self, failure: int) -> str:
        if failure == LATE:
            return f"The GPU did not answer within {self._patience_s:g} seconds."
        return f"The GPU could not be given its work: error {failure}."


def _ask_for(steps: list[Step]) -> None:
    for step in steps:
        step()
