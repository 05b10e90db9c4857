"""Times of a token's stages on a GPU, from marks in its captured work that the GPU timestamps itself."""

from __future__ import annotations

import itertools
from collections import defaultdict

from engine.gpu.token.token_steps import Step, stage_begins
from native_kernels.cuda.gpu import Gpu, Mark, Work


class GpuStages:
    """The marks of one token's work, in order. The time between two segments is the stage "wait"."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._marks: list[tuple[str, Mark]] = []
        self._stage = "other"
        self._works: list[Work] = []

    def captured(self, steps: list[Step]) -> Work:
        """Capture the next segment with its marks. Raises: CudaError."""
        work = self._gpu.captured(lambda: self.ask_for(steps))
        self._works.append(work)
        return work

    def ask_for(self, steps: list[Step]) -> None:
        """Queue the next segment with its marks, within a capture."""
        if steps and steps[0].func is not stage_begins:
            self._mark(self._stage)
        for step in steps:
            if step.func is stage_begins:
                self._stage = step.args[0]
                self._mark(self._stage)
            else:
                step()
        self._mark("wait")

    def seconds(self) -> dict[str, float]:
        """Return the stage times of the latest token, which must have ended. Raises: CudaError."""
        found: dict[str, float] = defaultdict(float)
        for (stage, here), (_, there) in itertools.pairwise(self._marks):
            found[stage] += there.seconds_since(here)
        return dict(found)

    def close(self) -> None:
        """Release work and marks. Idempotent."""
        works, self._works = self._works, []
        marks, self._marks = self._marks, []
        for work in works:
            work.close()
        for _, mark in marks:
            mark.close()

    def _mark(self, stage: str) -> None:
        self._marks.append((stage, self._gpu.mark()))
