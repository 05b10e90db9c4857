"""Events of a request: throttled progress, failures, and a lost GPU. Used by every service."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable

from engine.errors import EngineError
from engine.job import Progress
from engine.service import protocol
from native_kernels.cuda.runtime.driver import process_failure

log = logging.getLogger(__name__)

PROGRESS_EVERY_S = 0.05

Emit = Callable[[protocol.Event], None]


def progress_of(emit: Emit, request_id: str, stage: str) -> Progress:
    """Return a progress callback that emits at most every PROGRESS_EVERY_S, and always the last step."""
    started = time.perf_counter()
    last = 0.0

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last < PROGRESS_EVERY_S and done < total:
            return
        last = now
        eta_s = (now - started) * (total - done) / done if done else None
        emit(protocol.Progress(request_id, stage, done, total, eta_s))

    return report


def failure_of(request: protocol.Request, error: Exception) -> protocol.Failed:
    """Return the event for a request's exception. Bugs must reach the window, not end the process."""
    if isinstance(error, EngineError):
        log.info("%s failed: %s", request.type, error)
        return protocol.Failed(request.id, type(error).__name__, error.message, error.hint)
    if isinstance(error, MemoryError):
        return protocol.Failed(
            request.id, "HostMemoryError", "The RAM was used up.", "Close other programs or shorten the context."
        )
    details = "".join(traceback.format_exception(error))
    return protocol.Failed(
        request.id, type(error).__name__, str(error) or type(error).__name__, "Report this fault.", True, details
    )


def lost_gpu() -> protocol.News | None:
    """Return the news that this process can use no GPU any more; None if it can, or has used none."""
    failure = process_failure()
    return protocol.News("gpu_lost", {"reason": failure}) if failure else None
