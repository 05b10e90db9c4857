"""The download queue: two at once, the others in order; paused, resumed, cancelled, and saved across restarts.

download_job.py downloads a model. Downloads run in their own threads; all methods are thread-safe.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import filelock
import platformdirs

from engine.errors import (
    Cancelled,
    DiskSpaceError,
    EngineError,
    HubError,
    InvalidRequestError,
    LibraryError,
    RepositoryNotFoundError,
)
from engine.library.hub import download_request
from engine.library.hub.download import RetryPolicy, Stop
from engine.library.hub.download_entry import ACTIVE, Entry, record_of, total_bytes
from engine.library.hub.download_job import (
    NO_MODEL,
    DownloadJob,
    JobCallbacks,
    Resolved,
    delete_parts,
    fetched_bytes,
    staging_folder,
)
from engine.library.hub.download_queue import Kept, read_queue, write_queue
from engine.library.hub.download_request import DownloadRequest, ModelStore
from engine.library.hub.hub import Hub
from engine.library.records import CatalogueEntry, Download, DownloadState, InstalledModel

log = logging.getLogger(__name__)

AT_ONCE = 2
REPORT_EVERY_S = 0.2
CLOSE_S = 0.8
LOCK_WAIT_S = 3.0  # for another process of Hearth that is ending


class Downloads:
    """All downloads of this user. Call close() at the end; running downloads continue at the next start.

    on_change: receives the whole list, in a separate thread and at most five times a second. on_done: receives each
    registered model. home: the folder of the queue; None: the user's data folder. Raises: LibraryError if another
    Hearth process has the queue.
    """

    def __init__(
        self,
        library: ModelStore,
        hub: Hub,
        on_change: Callable[[list[Download]], None] | None = None,
        on_done: Callable[[InstalledModel], None] | None = None,
        home: Path | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> None:
        self._library, self._hub = library, hub
        self._on_change, self._on_done = on_change, on_done
        self._patience = retry_policy if retry_policy is not None else RetryPolicy()
        folder = home if home is not None else Path(platformdirs.user_data_dir("Hearth", appauthor=False)) / "downloads"
        self._path = folder / "queue.json"
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._news = threading.Event()
        self._teller: threading.Thread | None = None
        self._process_lock = filelock.FileLock(folder / "queue.lock", thread_local=False)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._process_lock.acquire(timeout=LOCK_WAIT_S)
        except filelock.Timeout:
            raise LibraryError("Another Hearth is downloading.", "Close the other one.") from None
        except OSError as error:
            raise LibraryError(f"{folder} cannot be written: {error.strerror or error}.") from error
        self._entries = {kept.id: Entry(kept) for kept in read_queue(self._path)}
        self._restore()

    # --- requested downloads

    def add(self, entry: CatalogueEntry) -> Download:
        """Queue a catalogue model. If it is in the queue already, it continues."""
        return self._queue(download_request.of_entry(entry, self._library))

    def add_variant(
        self, repo: str, variant: str = "", revision: str = "", name: str = "", n_bytes: int = 0
    ) -> Download:
        """Queue a variant of a repository, named as in engine/library/hub/variants.py, or its only one.

        Raises: InvalidRequestError if it is not a repository.
        """
        wanted = download_request.of_variant(repo, variant, self._library, self._hub.endpoint)
        return self._queue(
            replace(wanted, revision=revision or wanted.revision, name=name or wanted.name, n_bytes=n_bytes)
        )

    def repair(
        self, model: InstalledModel, damaged: Sequence[str] = (), entry: CatalogueEntry | None = None
    ) -> Download:
        """Download the files of an installed model that differ from the hub's.

        damaged: their names; empty: check all files. entry: the model's catalogue entry, if any. Raises:
        InvalidRequestError for a model that did not come from a hub.
        """
        return self._queue(download_request.of_repair(model, damaged, entry), anew=True)

    def list(self) -> list[Download]:
        """Return all downloads in order."""
        with self._lock:
            return [record_of(entry) for entry in self._entries.values() if not entry.kept.cancelled]

    @property
    def is_busy(self) -> bool:
        with self._lock:
            return any(entry.kept.state in ("queued", *ACTIVE) for entry in self._entries.values())

    def pause(self, id: str) -> None:
        """Stop a download and keep its bytes. Does nothing if it is not running. Raises: InvalidRequestError for an
        unknown id.
        """
        with self._lock:
            entry = self._entry(id)
            if entry.kept.state in ("queued", *ACTIVE):
                self._stop(entry)
                self._set(entry, "paused")
            self._pump()

    def resume(self, id: str) -> None:
        """Queue a download again, after a pause or a failure."""
        with self._lock:
            entry = self._entry(id)
            if entry.kept.state in ("paused", "failed"):
                self._set(entry, "queued")
            self._pump()

    def cancel(self, id: str) -> None:
        """Stop a download, remove it from the list and delete its bytes."""
        with self._lock:
            entry = self._entry(id)
            self._stop(entry)
            entry.kept = replace(entry.kept, cancelled=True, state="paused")
            self._changed()
            self._clear_away(entry)
            self._pump()

    def remove(self, id: str) -> None:
        """Remove a finished download from the list; the model stays. Cancels one that is not finished."""
        with self._lock:
            if self._entry(id).kept.state != "done":
                self.cancel(id)
                return
            del self._entries[id]
            self._changed()

    def close(self) -> None:
        """End all threads within a second. Running downloads are queued at the next start."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            self._save()
            for entry in self._entries.values():
                self._stop(entry)
            threads = [entry.thread for entry in self._entries.values() if entry.thread is not None]
        self._news.set()
        until = time.monotonic() + CLOSE_S
        for thread in (*threads, self._teller):
            if thread is not None and thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))
        self._process_lock.release()

    # --- the queue

    def _queue(self, wanted: DownloadRequest, anew: bool = False) -> Download:
        """anew: resolve its files again."""
        staging = staging_folder(self._library.folder, wanted)
        with self._lock:
            entry = self._entries.get(staging.name)
            if entry is not None and entry.kept.state in ("queued", *ACTIVE) and not entry.kept.cancelled:
                return record_of(entry)
            known = entry.kept.resolved if entry is not None and not anew and entry.kept.state != "done" else None
            kept = Kept(staging.name, wanted, str(staging), "queued", known)
            thread = entry.thread if entry is not None else None
            self._entries.pop(staging.name, None)  # to the end of the queue
            entry = self._entries[staging.name] = Entry(kept, thread=thread)
            self._count_parts(entry)
            self._changed()
            self._pump()
            return record_of(entry)

    def _restore(self) -> None:
        """Restore an earlier process's queue: queue downloads that were running, clean up cancelled ones."""
        with self._lock:
            for entry in list(self._entries.values()):
                if entry.kept.cancelled:
                    self._clear_away(entry)
                    continue
                if entry.kept.state in ACTIVE:
                    entry.kept = replace(entry.kept, state="queued", error="", message="", hint="")
                self._count_parts(entry)
            self._pump()
            if self._entries:
                self._changed()

    def _pump(self) -> None:
        """Start the next downloads, up to the limit."""
        if self._closing.is_set():
            return
        running = sum(entry.kept.state in ACTIVE for entry in self._entries.values())
        for entry in self._entries.values():
            if running >= AT_ONCE:
                return
            if entry.kept.state == "queued" and not entry.kept.cancelled:
                running += 1
                stop = entry.stop = Stop()
                entry.began = time.monotonic()
                entry.came.clear()
                self._set(entry, "downloading")
                name = f"download {entry.kept.wanted.model}"
                work = (entry, stop, entry.thread)
                entry.thread = threading.Thread(target=self._work, args=work, daemon=True, name=name)
                entry.thread.start()

    def _work(self, entry: Entry, stop: Stop, before: threading.Thread | None) -> None:
        """Run a download. before: the thread of the previous run, which may still be ending."""
        job = DownloadJob(
            entry.kept.wanted, entry.kept.resolved, self._hub, self._library, Path(entry.kept.staging),
            self._patience, stop, self._telling(entry, stop),
        )  # fmt: skip
        try:
            while before is not None and before.is_alive():
                stop.check()
                before.join(0.05)
            model = job.run(lambda resolved: self._settle(entry, stop, resolved))
        except Cancelled:
            return  # the caller that stopped it has set its state
        except DiskSpaceError as error:
            self._end(entry, stop, "paused", error)
        except EngineError as error:
            if isinstance(error, (RepositoryNotFoundError, *NO_MODEL)):  # the next try asks for a newer commit
                self._settle(entry, stop, None)
            self._end(entry, stop, "failed", error)
        except Exception:
            log.exception("a download failed in a way that was not foreseen")
            self._end(entry, stop, "failed", EngineError("The download failed.", "Resume it; the log says more."))
        else:
            with self._lock:
                entry.done_bytes = max(entry.done_bytes, job.resolved.n_bytes if job.resolved else 0)
            self._end(entry, stop, "done", None)
            if self._on_done is not None:
                self._on_done(model)

    def _end(self, entry: Entry, stop: Stop, state: DownloadState, error: EngineError | None) -> None:
        with self._lock:
            if entry.stop is stop:
                entry.stop = None
                entry.file = ""
                self._set(entry, state, error)
            self._pump()

    def _settle(self, entry: Entry, stop: Stop, resolved: Resolved | None) -> None:
        with self._lock:
            if entry.stop is stop and entry.kept.resolved != resolved:
                entry.kept = replace(entry.kept, resolved=resolved)
                self._changed()

    def _telling(self, entry: Entry, stop: Stop) -> JobCallbacks:
        def doing(what: str, file: str) -> None:
            with self._lock:
                if entry.stop is stop:
                    entry.file = file
                    self._show(entry, "checking" if what == "checking" else "downloading")

        def done(n_bytes: int) -> None:
            with self._lock:
                if entry.stop is stop:
                    entry.done_bytes = n_bytes
            self._tell()

        def came(n_bytes: int) -> None:
            with self._lock:
                if entry.stop is stop:
                    entry.came.append((time.monotonic(), n_bytes))

        def waiting(file: str, error: HubError | None) -> None:
            with self._lock:
                if entry.stop is stop:
                    entry.file = file or entry.file
                    self._show(entry, "downloading" if error is None else "waiting", error)

        return JobCallbacks(doing, done, came, waiting, others=lambda: self._to_write(entry))

    def _show(self, entry: Entry, state: DownloadState, error: EngineError | None = None) -> None:
        """Report an intermediate state, which is not worth writing to the disk."""
        message = error.message if error is not None else ""
        if (entry.kept.state, entry.kept.message) != (state, message):
            entry.kept = entry.kept.now(state, error)
            if state == "downloading":  # the pace before the wait says nothing
                entry.came.clear()
                entry.began = time.monotonic()
        self._tell()

    def _set(self, entry: Entry, state: DownloadState, error: EngineError | None = None) -> None:
        entry.kept = entry.kept.now(state, error)
        self._changed()

    def _stop(self, entry: Entry) -> None:
        if entry.stop is not None:
            entry.stop.now()
            entry.stop = None

    def _clear_away(self, entry: Entry) -> None:
        """Delete the parts of a cancelled download once its thread has ended."""
        id, staging, before = entry.kept.id, Path(entry.kept.staging), entry.thread

        def clear() -> None:
            if before is not None:
                before.join()
            with self._lock:
                if self._entries.get(id) is not entry:  # requested again meanwhile: keep the bytes
                    return
            delete_parts(staging)
            with self._lock:
                if self._entries.get(id) is entry and not self._closing.is_set():
                    del self._entries[id]
                    self._changed()

        threading.Thread(target=clear, daemon=True, name="clear away a download").start()

    def _count_parts(self, entry: Entry) -> None:
        if entry.kept.resolved is not None:
            whole = entry.kept.resolved.n_bytes
            done = entry.kept.state == "done"
            entry.done_bytes = whole if done else fetched_bytes(Path(entry.kept.staging), entry.kept.resolved)

    def _to_write(self, mine: Entry) -> int:
        """Return the bytes that the other running downloads have yet to write."""
        with self._lock:
            others = [e for e in self._entries.values() if e is not mine and e.kept.state in ACTIVE]
            return sum(max(0, total_bytes(entry) - entry.done_bytes) for entry in others)

    def _entry(self, id: str) -> Entry:
        entry = self._entries.get(id)
        if entry is None or entry.kept.cancelled:
            raise InvalidRequestError(f"There is no download {id!r}.", "Check the list of downloads.")
        return entry

    # --- what is reported and kept

    def _changed(self) -> None:
        self._save()
        self._tell()

    def _save(self) -> None:
        try:
            write_queue(self._path, [entry.kept for entry in self._entries.values()])
        except OSError as error:  # the disk is full: running downloads continue, or pause by themselves
            log.info("the queue of downloads cannot be written: %s", error)

    def _tell(self) -> None:
        self._news.set()
        if self._on_change is not None and self._teller is None and not self._closing.is_set():
            self._teller = threading.Thread(target=self._report_changes, daemon=True, name="download news")
            self._teller.start()

    def _report_changes(self) -> None:
        """Report changes and, while a download runs, its speed each second."""
        assert self._on_change is not None
        while not self._closing.is_set():
            if self._news.wait(1.0 if self.is_busy else None) and self._closing.is_set():
                return
            self._news.clear()
            self._on_change(self.list())
            self._closing.wait(REPORT_EVERY_S)
