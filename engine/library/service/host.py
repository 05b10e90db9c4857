"""The library behind the protocol: accepts jobs, runs them in parallel, and reports changes.

It runs as the window's second process (`engine host --library`), or in its worker thread. It holds no model and
computes no answers. library_jobs.py has the jobs.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from engine.errors import Cancelled, EngineError, InvalidRequestError
from engine.library.service.library_jobs import JOBS, LibraryContext, LibraryJob, QueueName
from engine.library.service.services import UNDO_S, Services
from engine.service import protocol
from engine.service.jobs import checked_arguments, unknown_job
from engine.service.request_events import PROGRESS_EVERY_S, Emit, failure_of, progress_of

log = logging.getLogger(__name__)

NEWS_EVERY_S = 0.2
NICENESS = 10  # chatting goes first
# Threads per queue. A job that waits for a network must not delay one that needs none.
QUEUES: dict[QueueName, int] = {"quick": 2, "hub": 3, "files": 2, "servers": 3, "prepare": 1}
WORKING_STATES = ("queued", "downloading", "waiting", "checking")  # of downloads that continue by themselves

Values = dict[str, Any]


class LibraryHost:
    """All methods are thread-safe. A request whose id is in progress is ignored, because a client may repeat requests
    after a restart.
    """

    def __init__(
        self,
        emit: Emit,
        home: Path | None = None,
        jobs: Mapping[str, LibraryJob] | None = None,
        services: Callable[[Callable[[str], None]], Services] | None = None,
    ) -> None:
        """home: the folder of library.json. jobs, services: fakes in place of the real ones."""
        self._emit = emit
        self._jobs = JOBS if jobs is None else jobs
        self._services = (services or (lambda changed: Services(home, changed)))(self._changed)
        self._lock = threading.Lock()
        self._known: dict[str, threading.Event] = {}  # by request: set once it is to stop
        self._queues: dict[QueueName, queue.Queue[protocol.Job]] = {queue_name: queue.Queue() for queue_name in QUEUES}
        self._closed = threading.Event()
        self._topics: set[str] = set()
        self._news_wanted = threading.Event()
        self._waits = False  # whether run_pending waits for the end, and then looks after it
        self._downloading = False  # as last reported
        self._busy = False
        for queue_name, count in QUEUES.items():
            for number in range(count):
                self._start(f"{queue_name}-{number}", partial(self._work, queue_name))
        self._start("news", self._report_changes)
        self._start("opening", self._open)

    # --- what is asked

    def submit(self, request: protocol.Request) -> None:
        """Accept a request and return at once."""
        match request:
            case protocol.Cancel():
                with self._lock:
                    if request.target in self._known:
                        self._known[request.target].set()
                self._emit(protocol.Finished(request.id))
            case protocol.Shutdown():
                self._emit(protocol.Finished(request.id))
                self.close()
            case protocol.Job():
                self._take(request)
            case _:
                wrong = InvalidRequestError(f"The library's process has no {request.type} requests.", "Update Hearth.")
                self._emit(failure_of(request, wrong))

    def _take(self, request: protocol.Job) -> None:
        kind = self._jobs.get(request.job)
        if kind is None:
            self._emit(failure_of(request, unknown_job(request.job, self._jobs)))
            return
        with self._lock:
            if request.id in self._known:
                return
            self._known[request.id] = threading.Event()
        self._queues[kind.queue_name].put(request)

    def run_pending(self, block: bool = False) -> None:
        """With `block`, wait until `close` is called and background work has ended. The work has its own threads."""
        if block:
            self._waits = True
            self._closed.wait()
            self._services.close()

    def close(self) -> None:
        """Stop running jobs and discard queued ones; `run_pending` then returns."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._news_wanted.set()
        if not self._waits:
            self._services.close()

    # --- threads

    def _start(self, name: str, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name=f"library-{name}", daemon=True).start()

    def _work(self, queue_name: QueueName) -> None:
        waiting = self._queues[queue_name]
        while not self._closed.is_set():
            try:
                request = waiting.get(timeout=1.0)
            except queue.Empty:
                continue
            self._run(request)

    def _run(self, request: protocol.Job) -> None:
        stop = self._known[request.id]
        kind = self._jobs[request.job]

        def cancelled() -> bool:
            return stop.is_set() or self._closed.is_set()

        job = LibraryContext(
            cancelled, lambda stage: progress_of(self._emit, request.id, stage), _teller(self._emit, request.id),
            lambda text, pieces: self._emit(protocol.Token(request.id, text, pieces)),
        )  # fmt: skip
        try:
            if cancelled():
                raise Cancelled
            given = checked_arguments(request.job, kind.needs, kind.takes, request.arguments)
            event: protocol.Event = protocol.Finished(request.id, _plain(kind.run(self._services, given, job)))
        except Cancelled:
            event = protocol.Finished(request.id, {"cancelled": True})
        except Exception as error:  # noqa: BLE001 - the caller must get any error
            event = failure_of(request, error)
        with self._lock:
            self._known.pop(request.id, None)
        self._emit(event)

    def _open(self) -> None:
        """Resume an earlier process's work: delete what was removed long ago, continue downloads."""
        try:
            self._services.library.purge(UNDO_S)
        except (EngineError, OSError) as error:
            log.info("what was removed stays for now: %s", error)
        try:
            downloads = self._services.downloads.list()
        except Cancelled:
            return
        except (EngineError, OSError) as error:
            log.info("the downloads cannot be read: %s", error)
            return
        if downloads:
            self._changed("downloads")

    # --- news

    def _changed(self, topic: str) -> None:
        with self._lock:
            self._topics.add(topic)
        self._news_wanted.set()

    def _report_changes(self) -> None:
        while not self._closed.is_set():
            self._news_wanted.wait()
            self._news_wanted.clear()
            if self._closed.is_set():
                return
            with self._lock:
                topics, self._topics = self._topics, set()
            for topic in sorted(topics - {"work"}):
                self._tell(topic)
            self._report_work()
            time.sleep(NEWS_EVERY_S)  # report changes of this interval together

    def _tell(self, topic: str) -> None:
        try:
            values = _plain(self._services.news(topic))
        except (Cancelled, EngineError, OSError) as error:
            log.info("no news of %s: %s", topic, error)
            return
        if topic == "downloads":
            self._downloading = any(download["state"] in WORKING_STATES for download in values["downloads"])
        self._emit(protocol.News(topic, values))

    def _report_work(self) -> None:
        """Report whether background work is running, so that the process is not ended."""
        training = self._services.training.running
        busy = self._downloading or bool(training)
        if busy != self._busy or training:
            self._busy = busy
            self._emit(protocol.News("work", {"busy": busy, "training": training}))


def _teller(emit: Emit, request_id: str) -> Callable[[str, int, int, float | None], None]:
    """Return a progress callback like `progress_of`, for jobs that know the seconds left."""
    last, last_stage = 0.0, ""

    def tell(stage: str, done: int, total: int, eta_s: float | None) -> None:
        nonlocal last, last_stage
        now = time.perf_counter()
        if stage == last_stage and now - last < PROGRESS_EVERY_S and done < total:
            return
        last, last_stage = now, stage
        emit(protocol.Progress(request_id, stage, done, total, eta_s))

    return tell


def _plain(value: Any) -> Any:
    """Return the value as JSON holds it, also without a pipe: tuples become lists."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def serve() -> int:
    """Run the library over stdin and stdout. Returns the exit code."""
    from engine.service.stdio import serve_stdio

    with contextlib.suppress(OSError):
        _be_nice()
    return serve_stdio(LibraryHost)


def _be_nice() -> None:
    import psutil

    psutil.Process().nice(getattr(psutil, "BELOW_NORMAL_PRIORITY_CLASS", NICENESS))  # the former on Windows
