"""The worker thread that owns the host of engine or library and passes plain dataclasses between it and the window."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import QObject, QThread, Signal, Slot

from app.clients.engine_process import Emit, EngineStarted, Host, ProcessHost
from app.later import Later

if TYPE_CHECKING:
    from engine.service import protocol
else:
    protocol = Later("engine.service.protocol")

log = logging.getLogger(__name__)

MakeHost = Callable[[Emit], Host]


class Service(Protocol):
    """The service behind a host: engine.service.host.EngineHost or engine.library.service.host.LibraryHost."""

    def submit(self, request: protocol.Request) -> None: ...

    def run_pending(self, block: bool = False) -> None: ...

    def close(self) -> None: ...


class InThreadHost:
    """The engine inside the worker thread: for debugging, and where processes are not wanted.

    While it generates, the worker thread's event loop is blocked, so `cancel` may be called from any thread.
    """

    def __init__(self, emit: Emit, make_engine: Callable[[Emit], Service] | None = None) -> None:
        self._emit = emit
        self._make_engine = make_engine
        self._engine: Service | None = None
        self._lock = threading.Lock()
        self._early_cancels: set[str] = set()  # of requests that have not reached this thread yet

    def start(self) -> None:
        if self._engine is None:
            if self._make_engine is None:
                from engine.service.host import EngineHost

                self._make_engine = partial(EngineHost, serves=False)  # it waits idle between requests
            self._engine = self._make_engine(self._emit)
            self._emit(EngineStarted())

    def submit(self, request: protocol.Request) -> None:
        """Run the request; returns when it is done. A bug in the engine becomes a `Failed` with its traceback."""
        if self._engine is None:
            return
        self._engine.submit(request)
        with self._lock:
            cancelled = request.id in self._early_cancels
        if cancelled:
            self._engine.submit(protocol.Cancel(f"cancel-{request.id}", request.id))
        try:
            self._engine.run_pending(block=False)
        except Exception as error:  # noqa: BLE001 - the caller must get any error
            self._emit(protocol.Failed(request.id, type(error).__name__, str(error), "", True, traceback.format_exc()))

    def cancel(self, request: protocol.Cancel) -> None:
        """Cancel at once. Thread-safe."""
        with self._lock:
            self._early_cancels.add(request.target)
        if self._engine is not None:
            self._engine.submit(request)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None


class EngineWorker(QObject):
    """Lives in a thread of its own. All methods are thread-safe and return at once.

    `happened` carries protocol events, EngineStarted and EngineDied; connect it to a slot of an object in the receiving
    thread.
    """

    happened = Signal(object)
    _started = Signal(object)
    _requested = Signal(object, object)
    _ended = Signal(object)
    _rested = Signal(object)
    _closed = Signal()

    def __init__(self, location: str, makers: Mapping[str, MakeHost], name: str = "engine") -> None:
        """location: a key of `makers`, "process" or "in-thread". name: of the thread and in the log."""
        super().__init__()
        self._makers = dict(makers)
        self._location = location
        self._under_way: set[str] = set()
        self._ending = False
        self._lock = threading.Lock()
        self._home = self.thread()  # where signals are connected and hosts are destroyed
        self._thread = QThread()
        self._name = name
        self._thread.setObjectName(f"{name}-worker")
        self.moveToThread(self._thread)
        self._host = self._make_host()
        self._started.connect(self._start)
        self._requested.connect(self._submit)
        self._ended.connect(self._end)
        self._rested.connect(self._rest)
        self._closed.connect(self._close)

    # --- for any thread

    @property
    def location(self) -> str:
        return self._location

    def start(self) -> None:
        self._thread.start()
        self._started.emit(self._host)

    def submit(self, request: protocol.Request) -> None:
        """Pass a request to the host; `happened` carries its events."""
        with self._lock:
            self._under_way.add(request.id)
        self._requested.emit(self._host, request)

    def cancel(self, target: str) -> None:
        """Cancel a request: a prompt between two layers, an answer within a token."""
        request = protocol.Cancel(f"cancel-{target}", target)
        if isinstance(self._host, InThreadHost):  # the worker's event loop is busy with that request
            self._host.cancel(request)
        else:
            self._requested.emit(self._host, request)

    def rest(self) -> None:
        """End the host's process while it is not needed; `start` brings it back."""
        self._rested.emit(self._host)

    def use(self, location: str) -> None:
        """Restart the engine in another location; running requests are lost silently."""
        if location != self._location:
            self._location = location
            self.restart()

    def restart(self) -> None:
        """Restart the engine; running requests are lost silently."""
        self._cancel_all()
        self._ended.emit(self._host)
        self._host = self._make_host()
        self._started.emit(self._host)

    def begin_shutdown(self) -> None:
        """Start to end the engine and the thread; `shutdown` waits for it."""
        if self._thread.isRunning() and not self._ending:
            self._ending = True
            self._cancel_all()
            self._closed.emit()

    def shutdown(self, timeout_s: float = 5.0) -> bool:
        """End the engine and the thread. Returns whether the thread ended within `timeout_s`."""
        if not self._thread.isRunning():
            return True
        began = time.monotonic()
        self.begin_shutdown()
        ended = self._thread.wait(int(timeout_s * 1000))
        log.info(
            "the %s's thread %s after %.2f s", self._name, "ended" if ended else "still runs", time.monotonic() - began
        )
        return ended

    def _make_host(self) -> Host:
        host = self._makers[self._location](self._emit)
        if isinstance(host, QObject):
            host.moveToThread(self._thread)
        return host

    def _cancel_all(self) -> None:
        with self._lock:
            under_way = list(self._under_way)
            self._under_way.clear()
        for target in under_way:
            self.cancel(target)

    def _emit(self, event: object) -> None:
        if isinstance(event, protocol.Finished | protocol.Failed):
            with self._lock:
                self._under_way.discard(event.id)
        self.happened.emit(event)

    # --- in the worker thread

    @Slot(object)
    def _start(self, host: Host) -> None:
        host.start()

    @Slot(object, object)
    def _submit(self, host: Host, request: protocol.Request) -> None:
        host.submit(request)

    @Slot(object)
    def _end(self, host: Host) -> None:
        host.close()
        if isinstance(host, QObject):
            host.moveToThread(self._home)
            host.deleteLater()

    @Slot(object)
    def _rest(self, host: Host) -> None:
        host.close()

    @Slot()
    def _close(self) -> None:
        self._end(self._host)
        self._thread.quit()


def default_makers(log_folder: Path) -> dict[str, MakeHost]:
    """Return the makers of both locations of the engine."""
    return {"process": lambda emit: ProcessHost(emit, log_folder), "in-thread": lambda emit: InThreadHost(emit)}
