"""Background work for the window: one thread, first in first out, results on the main thread.

A StoreError may be temporary: a save can be retried until it succeeds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from PySide6.QtCore import QCoreApplication, QObject, Qt, Signal, Slot

from app.errors import StoreError

T = TypeVar("T")

RETRY_S = 2.0
_PASSING = {"full", "read-only", "locked"}  # the user or another program can resolve these; damage stays


@dataclass(frozen=True)
class _Operation:
    name: str
    work: Callable[[], Any]
    on_success: Callable[[Any], None] | None
    on_failure: Callable[[BaseException], None] | None
    persistent: bool


class Operations(QObject):
    """Runs work in a thread of its own. Create it and call its methods on the main thread.

    A failure without on_failure, or an exception in a callback, is a bug: it reaches sys.excepthook on the main thread.
    """

    stalled = Signal(object)  # StoreError: saves fail, and everything behind them waits
    resumed = Signal()  # saves work again
    _finished = Signal(object)  # a callable for the main thread

    def __init__(self, parent: QObject | None = None, retry_s: float = RETRY_S) -> None:
        super().__init__(parent)
        self._retry_s = retry_s
        self._queue: deque[_Operation] = deque()  # the running one stays first until it ends
        self._changed = threading.Condition()
        self._retry_wanted = False
        self._closing_at: float | None = None  # time.monotonic() at which close() gives up
        self._finished.connect(self._call, Qt.ConnectionType.QueuedConnection)
        self._thread = threading.Thread(target=self._work, name="operations", daemon=True)
        self._thread.start()

    # --- main thread

    def run(
        self,
        name: str,
        work: Callable[[], T],
        on_success: Callable[[T], None] | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Run the work once, after all earlier work."""
        self._enqueue(_Operation(name, work, on_success, on_failure, persistent=False))

    def keep_trying(
        self,
        name: str,
        work: Callable[[], T],
        on_success: Callable[[T], None] | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Run work that must not be lost: wait while the disk is full, the folder read-only or the file locked.

        Later work waits meanwhile, so the order is kept. The work may be called again: it must be idempotent.
        """
        self._enqueue(_Operation(name, work, on_success, on_failure, persistent=True))

    def retry_now(self) -> None:
        """Retry a stalled save now."""
        with self._changed:
            self._retry_wanted = True
            self._changed.notify_all()

    def waiting(self) -> list[str]:
        """Return the names of running and waiting work, in order."""
        with self._changed:
            return [operation.name for operation in self._queue]

    def close(self, timeout: float = 5.0) -> list[str]:
        """Finish all work and end the thread. Returns the names of what was not done within `timeout`.

        A stalled save is retried until then. Callbacks of finished work are called before this returns.
        """
        with self._changed:
            if self._closing_at is None:
                self._closing_at = time.monotonic() + timeout
            self._changed.notify_all()
        self._thread.join(timeout)
        left = self.waiting()
        QCoreApplication.sendPostedEvents(self)
        return left

    def _enqueue(self, operation: _Operation) -> None:
        with self._changed:
            if self._closing_at is not None:
                raise RuntimeError(f"{operation.name!r} was asked for after close().")
            self._queue.append(operation)
            self._changed.notify_all()

    @Slot(object)
    def _call(self, ending: Callable[[], None]) -> None:
        ending()

    # --- the thread

    def _work(self) -> None:
        while (operation := self._next()) is not None:
            ending = self._ending(operation)
            with self._changed:
                if ending is None:  # given up at close: it stays in the queue, to be named
                    return
                self._finished.emit(ending)
                self._queue.popleft()

    def _next(self) -> _Operation | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing_at is not None)
            return self._queue[0] if self._queue and not self._too_late() else None

    def _too_late(self) -> bool:
        return self._closing_at is not None and time.monotonic() >= self._closing_at

    def _ending(self, operation: _Operation) -> Callable[[], None] | None:
        """Run an operation to its end. Returns what to call on the main thread; None: given up."""
        kind: str | None = None  # of the temporary failure
        while True:
            try:
                result = operation.work()
            except StoreError as error:
                if not operation.persistent or error.kind not in _PASSING:
                    return self._after_stall(kind, _failure_ending(operation, error))
                if error.kind != kind:
                    kind = error.kind
                    self._finished.emit(_bound(self.stalled.emit, error))
                if not self._wait_for_retry():
                    return None
            except BaseException as error:  # noqa: BLE001 - it ends on the main thread, in on_failure or the excepthook
                return self._after_stall(kind, _failure_ending(operation, error))
            else:
                if operation.on_success is None:
                    return self._after_stall(kind, _nothing)
                return self._after_stall(kind, _bound(operation.on_success, result))

    def _after_stall(self, kind: str | None, ending: Callable[[], None]) -> Callable[[], None]:
        if kind is not None:
            self._finished.emit(self.resumed.emit)
        return ending

    def _wait_for_retry(self) -> bool:
        """Wait until the next try. Returns False when close() gives up."""
        with self._changed:
            wait_s = self._retry_s
            if self._closing_at is not None:
                wait_s = min(wait_s, max(0.0, self._closing_at - time.monotonic()))
            closing = self._closing_at is not None
            self._changed.wait_for(lambda: self._retry_wanted or (self._closing_at is not None and not closing), wait_s)
            self._retry_wanted = False
            return not self._too_late()


def _nothing() -> None:
    pass


def _bound(function: Callable[[Any], None], value: object) -> Callable[[], None]:
    return lambda: function(value)


def _failure_ending(operation: _Operation, error: BaseException) -> Callable[[], None]:
    if operation.on_failure is not None:
        return _bound(operation.on_failure, error)

    def raise_it() -> None:
        raise error

    return raise_it
