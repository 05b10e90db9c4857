"""Cancellation and progress of work.

Work that reports progress takes a Job; work that reports none takes only its CancelCheck, `Job.cancelled`. Two bare
callables remain. A pass through the layers takes a ShareProgress, which also cancels it. A function that handles one of
several files or parts takes a CountProgress, because only its caller knows the total.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from engine.errors import Cancelled

CHECK_EVERY_S = 0.05

CancelCheck = Callable[[], bool]  # whether the work is to end
Progress = Callable[[int, int], None]  # done, total; the function that takes it names the unit
CountProgress = Callable[[int], None]  # done so far, usually bytes
ShareProgress = Callable[[float], None]  # the share done, from 0 to 1; an exception that it raises ends the work
Result = TypeVar("Result")


def never() -> bool:
    """Return False: nothing cancels this work."""
    return False


def _ignore(done: int, total: int) -> None:
    """Drop a progress report."""


def _ignore_stage(stage: str) -> Progress:
    return _ignore


@dataclass(frozen=True)
class Job:
    """A cancel check and a progress callback. The default is never cancelled and reports nowhere."""

    cancelled: CancelCheck = never
    progress: Progress = _ignore

    def reporting(self, progress: Progress) -> Job:
        return replace(self, progress=progress)

    def part(self, start: int, stop: int, total: int) -> Job:
        """Return the job of one stage, which takes the whole job from start to stop of total."""
        return self.reporting(lambda done, of: self.progress(start + (stop - start) * done // max(1, of), total))

    def stop_if_cancelled(self) -> None:
        """Raises: Cancelled."""
        if self.cancelled():
            raise Cancelled


@dataclass(frozen=True)
class StagedJob:
    """A job in named stages, each with a progress callback of its own."""

    cancelled: CancelCheck = never
    stage: Callable[[str], Progress] = _ignore_stage

    def at(self, stage: str) -> Job:
        return Job(self.cancelled, self.stage(stage))


def run_cancellable(cancelled: CancelCheck, work: Callable[[], Result], name: str) -> Result:
    """Run work that has no cancel check of its own in a thread of that name, and return its result.

    After a cancel the thread still runs to its end: use it for seconds of computing that hold little memory and no
    device. Raises: what the work raises; Cancelled within CHECK_EVERY_S, as far as the work lets other threads run.
    """
    found: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            found.put((work(), None))
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
            found.put((None, error))

    if cancelled():
        raise Cancelled
    threading.Thread(target=run, name=name, daemon=True).start()
    while True:
        try:
            result, error = found.get(timeout=CHECK_EVERY_S)
        except queue.Empty:
            if cancelled():
                raise Cancelled from None
            continue
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # without an error it is the result of the work
