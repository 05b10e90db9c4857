"""The library's process for the window: started by the first request, ended when idle.

Requests that a dead process had not answered are sent again.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.clients.engine_process import EngineDied, EngineStarted, ProcessHost, default_command
from app.clients.engine_worker import EngineWorker, InThreadHost, MakeHost
from app.later import Later

if TYPE_CHECKING:
    from engine.service import protocol

    FailedThen = Callable[[protocol.Failed], None]
    OnProgress = Callable[[protocol.Progress], None]
else:
    protocol = Later("engine.service.protocol")

log = logging.getLogger(__name__)

IDLE_S = 60.0
TRIES = 2  # a request that was running may be what killed the process

# Idempotent jobs: the library keeps what the first try did.
_REPEATABLE = {
    "machine", "catalogue", "estimate", "search", "look", "library", "downloads", "download", "pause", "resume",
    "cancel_download", "remove_download", "relocate", "verify", "repair", "prepare_plan", "prepare", "idle", "token",
    "measured",
}  # fmt: skip

Values = dict[str, Any]
Done = Callable[[Values], None]


class Library(Protocol):
    """The window's interface to the library's process. Implemented by LibraryClient."""

    news: Any  # Signal(str, object): topic and its whole new state
    died: Any  # Signal(object): EngineDied

    def ask(self, job: str, arguments: Values | None = None, done: Done | None = None,
            failed: FailedThen | None = None, progress: OnProgress | None = None,
            said: Callable[[protocol.Token], None] | None = None) -> str: ...  # fmt: skip

    def cancel(self, request_id: str) -> None: ...

    def begin_close(self) -> None: ...

    def close(self, timeout_s: float = 5.0) -> bool: ...


@dataclass
class _Asked:
    request: protocol.Job
    done: Callable[[Values], None] | None
    failed: Callable[[protocol.Failed], None] | None
    progress: Callable[[protocol.Progress], None] | None
    said: Callable[[protocol.Token], None] | None = None
    tries: int = 1
    cancelled: bool = False


class LibraryClient(QObject):
    """Use it on the main thread, where callbacks come too. All methods return at once."""

    news = Signal(str, object)  # topic, and its whole new state
    died = Signal(object)  # EngineDied
    running_changed = Signal(bool)  # whether the process is wanted
    started = Signal(int)  # its pid; 0 in the window's own process

    def __init__(self, worker: EngineWorker, idle_s: float = IDLE_S) -> None:
        super().__init__()
        self._worker = worker
        self._numbers = itertools.count(1)
        self._asked: dict[str, _Asked] = {}
        self._running = False
        self._busy = False  # with background work: downloads, training
        self._rest = QTimer(self, singleShot=True, interval=int(idle_s * 1000))
        self._rest.timeout.connect(self._end)
        worker.happened.connect(self._on_event)

    @property
    def is_running(self) -> bool:
        return self._running

    # --- asking

    def open(self) -> None:
        """Start the process without a request: interrupted downloads continue."""
        if not self._running:
            self._running = True
            self._worker.start()
            self.running_changed.emit(True)
        self._check_idle()

    def ask(
        self,
        job: str,
        arguments: Values | None = None,
        done: Callable[[Values], None] | None = None,
        failed: Callable[[protocol.Failed], None] | None = None,
        progress: Callable[[protocol.Progress], None] | None = None,
        said: Callable[[protocol.Token], None] | None = None,
    ) -> str:
        """Request a job. Returns its id. done: called with the result, or {"cancelled": True}. said: called with each
        piece of an answer's text."""
        request = protocol.Job(f"library-{next(self._numbers)}", job, dict(arguments or {}))
        self._asked[request.id] = _Asked(request, done, failed, progress, said)
        self.open()
        self._worker.submit(request)
        return request.id

    def cancel(self, request_id: str) -> None:
        """Cancel a job. It ends as cancelled."""
        asked = self._asked.get(request_id)
        if asked is not None:
            asked.cancelled = True
            self._worker.cancel(request_id)

    def begin_close(self) -> None:
        """Start to end the process; no more callbacks. `close` waits for it."""
        self._rest.stop()
        self._asked.clear()
        self._running = False
        self._worker.begin_shutdown()

    def close(self, timeout_s: float = 5.0) -> bool:
        """End the process. Returns whether it ended in time."""
        self.begin_close()
        return self._worker.shutdown(timeout_s)

    # --- events

    @Slot(object)
    def _on_event(self, event: object) -> None:
        match event:
            case protocol.Progress():
                asked = self._asked.get(event.id)
                if asked is not None and asked.progress is not None:
                    asked.progress(event)
            case protocol.Token():
                asked = self._asked.get(event.id)
                if asked is not None and asked.said is not None:
                    asked.said(event)
            case protocol.Finished():
                asked = self._asked.pop(event.id, None)
                if asked is not None and asked.done is not None:
                    asked.done(event.result)
                self._check_idle()
            case protocol.Failed():
                self._fail(event)
                self._check_idle()
            case protocol.News():
                self._take_news(event)
            case EngineStarted():
                self.started.emit(event.pid)
            case EngineDied():
                self._recover(event)

    def _take_news(self, event: protocol.News) -> None:
        if event.topic == "work":
            self._busy = bool(event.values.get("busy"))
            self._check_idle()
        self.news.emit(event.topic, event.values)

    def _fail(self, event: protocol.Failed) -> None:
        asked = self._asked.pop(event.id, None)
        if asked is None:
            if not event.id:
                log.warning("the library could not read a request: %s", event.message)
            return
        if asked.failed is not None:
            asked.failed(event)
        else:
            log.info("%s failed: %s", asked.request.job, event.message)

    def _recover(self, died: EngineDied) -> None:
        """Send the repeatable requests again; the others have failed."""
        log.info("%s", died.reason)
        self._busy = False
        for asked in list(self._asked.values()):
            request = asked.request
            if asked.cancelled:
                self._on_event(protocol.Finished(request.id, {"cancelled": True}))
            elif died.restarting and request.job in _REPEATABLE and asked.tries < TRIES:
                asked.tries += 1
                self._worker.submit(request)
            else:
                self._on_event(protocol.Failed(request.id, "EngineProcessError", died.reason, "Try again."))
        if not died.restarting:
            self._rest.stop()
            self._running = False  # the next request restarts it
            self.running_changed.emit(False)
        self.died.emit(died)

    # --- its end

    def _check_idle(self) -> None:
        if self._asked or self._busy or not self._running:
            self._rest.stop()
        elif not self._rest.isActive():
            self._rest.start()

    @Slot()
    def _end(self) -> None:
        if self._running and not self._asked and not self._busy:
            log.info("the library has nothing to do and is ended")
            self._running = False
            self._worker.rest()
            self.running_changed.emit(False)


def library_makers(log_folder: Path) -> dict[str, MakeHost]:
    """Return the makers of both locations of the library."""

    def in_thread(emit: Any) -> InThreadHost:
        from engine.library.service.host import LibraryHost

        return InThreadHost(emit, LibraryHost)

    command = default_command("--library")
    return {"process": lambda emit: ProcessHost(emit, log_folder, command, name="library"), "in-thread": in_thread}
