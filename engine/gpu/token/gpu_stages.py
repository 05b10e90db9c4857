"""How long the stages of a token take on a GPU: points in its captured work, whose times the GPU keeps by itself."""

from __future__ import annotations

import itertools
from collections import defaultdict

from engine.gpu.token.token_steps import Step, stage_begins
from native_kernels.cuda.gpu import Gpu, Mark, Work


class GpuStages:
    """The marks of one token's work, in its order. What lies between two stretches of it is "wait"."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._marks: list[tuple[str, Mark]] = []
        self._stage = "other"
        self._works: list[Work] = []

    def captured(self, steps: list[Step]) -> Work:
        """The next stretch, with its marks. Raises: CudaError."""
        work = self._gpu.captured(lambda: self.ask_for(steps))
        self._works.append(work)
        return work

    def ask_for(self, steps: list[Step]) -> None:
        """The same, within a capture."""
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
        """Of the token that ran last, which has come to its end. Raises: CudaError."""
        found: dict[str, float] = defaultdict(float)
        for (stage, here), (_, there) in itertools.pairwise(self._marks):
            found[stage] += there.seconds_since(here)
        return dict(found)

    def close(self) -> None:
        """Gives work and marks back. A second time does nothing."""
        works, self._works = self._works, []
        marks, self._marks = self._marks, []
        for work in works:
            work.close()
        for _, mark in marks:
            mark.close()

    def _mark(self, stage: str) -> None:
        self._marks.append((stage, self._gpu.mark()))
