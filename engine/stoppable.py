"""Runs a piece of work that asks nobody whether it should go on, so that whoever waits for it can leave at once."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from engine.errors import Cancelled

LOOK_EVERY_S = 0.05

Result = TypeVar("Result")


def run_unless(cancelled: Callable[[], bool], work: Callable[[], Result], name: str) -> Result:
    """What the work returns or raises. It runs in a thread of its own, of that name.

    Who cancels leaves it to end by itself: fit for seconds of computing that hold little memory and no device.
    Raises: Cancelled within LOOK_EVERY_S, as far as the work lets other threads run.
    """
    found: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            found.put((work(), None))
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for it
            found.put((None, error))

    if cancelled():
        raise Cancelled
    threading.Thread(target=run, name=name, daemon=True).start()
    while True:
        try:
            result, error = found.get(timeout=LOOK_EVERY_S)
        except queue.Empty:
            if cancelled():
                raise Cancelled from None
            continue
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # without an error it is what the work returned


def stop_if(cancelled: Callable[[], bool]) -> None:
    """Raises: Cancelled, where somebody wants that."""
    if cancelled():
        raise Cancelled
