"""Keep the index like the documents: scan folders, watch them, read what changed. No Qt.

One thread reads file after file; a file is one transaction, so that a kill loses at most the one being read.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.documents.index_file import IndexedFile, IndexFile, is_passing
from app.documents.passages import divided
from app.documents.reading.document import SUFFIXES, ReadError
from app.documents.reading.reader import DocumentReader
from engine.errors import Cancelled

log = logging.getLogger(__name__)

MOST_FILES = 50_000  # of a folder; the rest is left out, with a note
_SKIPPED_FOLDERS = frozenset(
    {"node_modules", "__pycache__", "venv", "env", "target", "dist", "build", "site-packages", "$RECYCLE.BIN"}
)
_DEBOUNCE_MS, _STEP_MS = 600, 100  # of the watch: an editor's several writes are one change
_WATCH_AGAIN_S = 5.0  # after a fault of the watch
_SCAN_AGAIN_S = 600.0  # where a folder cannot be watched, such as on some network drives
_LOOK_AGAIN_S = 10.0  # whether a folder has come or gone, with its drive
# A file that is read again and again, such as a log, rests 30 times as long as each reading took, within these limits.
_REST_S, _REST_COSTS, _LONGEST_REST_S = 1.0, 30.0, 600.0
_REST_CREDIT_S = 120.0  # of this rest is put off: a document that is saved a few times is read each time at once
_AGAIN_S = 30.0  # after a fault of the index, such as a full disk
_STOPS_WITHIN_S = 5.0


@dataclass(frozen=True)
class FolderState:
    """The state of a folder. n_files: read. n_failed: unreadable. n_waiting: not yet read.
    is_there: whether it was found; if not, such as on a drive that is not connected, what was read of it stays.
    has_more: more files than MOST_FILES.
    """

    path: str
    n_files: int = 0
    n_failed: int = 0
    n_waiting: int = 0
    chars: int = 0
    is_there: bool = True
    has_more: bool = False


@dataclass
class _Work:
    """The values that the thread shares with others, guarded by the lock."""

    folders: list[str] = field(default_factory=list)
    waiting: dict[str, None] = field(default_factory=dict)  # paths to read, in order
    changed: set[str] = field(default_factory=set)  # those that the watch named, until their reading begins
    seen: set[str] = field(default_factory=set)  # folders that were scanned
    gone: set[str] = field(default_factory=set)  # folders that are not there
    full: set[str] = field(default_factory=set)  # folders with more files than are read
    scans: bool = True  # a scan is due
    watched: bool = False  # the watch has begun: a scan is due for what changed before, and the watch continues
    paused: bool = False
    ends: bool = False
    fault: str = ""  # of the index, for which indexing waits


class Indexer:
    """Reads the documents of folders into an index, in a thread of its own."""

    def __init__(self, index: IndexFile, changed: Callable[[], None], reader: DocumentReader | None = None) -> None:
        """changed: called in the thread after each file and each scan; it must be quick."""
        self._index, self._changed = index, changed
        self._reader = reader or DocumentReader()
        self._work = _Work()
        self._files: dict[str, IndexedFile] = {}
        self._there = threading.Condition()
        self._thread: threading.Thread | None = None
        self._watch: tuple[threading.Thread, threading.Event] | None = None
        self._scanned_at = 0.0
        self._rests: dict[str, float] = {}  # files that were read lately: monotonic() from which they are read again

    # --- from other threads

    def set_folders(self, folders: Iterable[str]) -> None:
        """Index these folders and no others. The first call with one starts the thread."""
        with self._there:
            self._work.folders = list(dict.fromkeys(folders))
            self._work.scans = True
            self._there.notify_all()
            if self._thread is None and self._work.folders:
                self._thread = threading.Thread(target=self._run, name="documents", daemon=True)
                self._thread.start()

    def pause(self, paused: bool) -> None:
        """Read nothing while paused; the file that is being read is finished."""
        with self._there:
            self._work.paused = paused
            self._there.notify_all()

    def close(self) -> None:
        """End the thread; blocks for a few seconds at most."""
        with self._there:
            self._work.ends = True
            self._there.notify_all()
        if self._thread is not None:
            self._thread.join(_STOPS_WITHIN_S)
        self._end_watch()
        self._reader.close()

    @property
    def fault(self) -> str:
        """Why the index cannot be read or written now; "" if it can."""
        with self._there:
            return self._work.fault

    @property
    def is_idle(self) -> bool:
        """Whether every file of every folder has been read."""
        with self._there:
            work = self._work
            return not work.folders or (not work.scans and not work.waiting and work.seen >= set(work.folders))

    def states(self) -> list[FolderState]:
        with self._there:
            work, files = self._work, list(self._files.values())
            waiting, folders = list(work.waiting), list(work.folders)
            gone, full = set(work.gone), set(work.full)
        found = []
        for folder in folders:
            own = [one for one in files if is_within(one.path, folder)]
            found.append(
                FolderState(
                    folder, sum(not one.why for one in own), sum(bool(one.why) for one in own),
                    sum(is_within(path, folder) for path in waiting), sum(one.chars for one in own),
                    folder not in gone, folder in full,
                )
            )  # fmt: skip
        return found

    def files(self, folders: Iterable[str]) -> list[IndexedFile]:
        """Return the files of these folders that are in the index."""
        wanted = list(folders)
        with self._there:
            files = list(self._files.values())
        return [one for one in files if any(is_within(one.path, folder) for folder in wanted)]

    # --- the thread

    def _run(self) -> None:
        while not self._ended():
            try:
                self._index.open()
                with self._there:
                    self._files = self._index.files()
                self._changed()
                while self._step():
                    pass
            except (sqlite3.Error, OSError) as error:
                log.warning("The documents could not be indexed and are indexed again later: %s", error)
                self._mend(error)

    def _mend(self, error: sqlite3.Error | OSError) -> None:
        """Replace the index if it is damaged, and wait before the next attempt."""
        if isinstance(error, sqlite3.DatabaseError) and not is_passing(error):
            with contextlib.suppress(sqlite3.Error, OSError):
                self._index.remake()
        with self._there:
            self._work.fault = str(error)
        self._changed()
        with self._there:
            self._there.wait_for(lambda: self._work.ends, _AGAIN_S)
            self._work.scans = True

    def _step(self) -> bool:
        """Do the next piece of work. Returns whether there will be another."""
        with self._there:
            work = self._work
            if not work.ends and not work.scans and not work.watched and (work.paused or self._ready() is None):
                self._reader.close()  # its process keeps memory
                rests = [self._rests.get(path, 0.0) - time.monotonic() for path in work.waiting if not work.paused]
                self._there.wait(max(min([_LOOK_AGAIN_S, *rests]), 0.0))
            if work.ends:
                return False
            scans, folders, gone = work.scans or work.watched, list(work.folders), set(work.gone)
            is_due = not work.paused and time.monotonic() - self._scanned_at > _SCAN_AGAIN_S
            path = self._ready() if not work.paused and not scans else None
        if path is None and not scans:  # without the lock: a network drive may take long
            scans = is_due or {one for one in folders if not os.path.isdir(one)} != gone
        if scans:
            self._scan(folders)
        elif path is not None:
            self._read(path)
        with self._there:
            if not scans or not self._work.waiting:  # a scan alone may have written nothing
                self._work.fault = ""
        return True

    def _ready(self) -> str | None:
        """Return the next file to read. One that always changes, such as a log, rests between its readings."""
        now = time.monotonic()
        return next((path for path in self._work.waiting if self._rests.get(path, 0.0) <= now), None)

    def _ended(self) -> bool:
        return self._work.ends

    def _scan(self, folders: list[str]) -> None:
        """Find new, changed and missing files of all folders, and forget those of other folders. What is in a folder
        that is missing or cannot be listed is not forgotten.
        """
        with self._there:
            begins, self._work.scans, self._work.watched = self._work.scans or not self._work.watched, False, False
        self._scanned_at = time.monotonic()
        if begins:
            self._begin_watch(folders)
        there: dict[str, os.stat_result] = {}
        away, too_many, unseen = set[str](), set[str](), set[str]()
        for folder in folders:
            for n, (path, what) in enumerate(documents_in(folder, unseen)):
                if n >= MOST_FILES:
                    too_many.add(folder)
                    break
                there[path] = what
                if self._ended():
                    return
            if not os.path.isdir(folder):  # last, because a drive may go during the scan
                away.add(folder)
        kept = away | unseen
        lost = [
            path for path in self._files
            if path not in there and path not in kept and not any(is_within(path, folder) for folder in kept)
        ]  # fmt: skip
        is_shorter = any(not any(is_within(path, folder) for folder in folders) for path in lost)
        self._index.remove(lost)
        with self._there:
            for path in lost:
                self._files.pop(path, None)
            self._work.gone, self._work.full, self._work.seen = away, too_many, set(folders)
            known = self._files
            changed = [path for path, what in there.items() if _differs(known.get(path), what)]
            during = [path for path in self._work.waiting if path in self._work.changed and _is_document(path, folders)]
            newest = sorted(changed, key=lambda path: -there[path].st_mtime_ns)
            self._work.waiting = dict.fromkeys([*during, *newest])
        if is_shorter:
            self._index.shrink()
        self._changed()

    def _read(self, path: str) -> None:
        file, passages, began = None, [], time.monotonic()
        with self._there:
            self._work.changed.discard(path)
        try:
            what = os.stat(path)
            file = IndexedFile(0, path, what.st_size, what.st_mtime_ns)
            document = self._reader.read(Path(path), self._ended)
            passages = divided(document.parts)
            file = replace(
                file, kind=document.kind, n_parts=document.n_parts, n_scanned=document.n_scanned, is_cut=document.cut
            )
        except FileNotFoundError:
            pass
        except Cancelled:
            return
        except ReadError as error:
            if file is not None and error.reason != "gone":
                file = replace(file, reason=error.reason, why=error.message)
            else:
                file = None
        except OSError as error:
            file = IndexedFile(0, path, 0, 0, reason="unreadable", why=error.strerror or str(error))
        if (file is None or file.why) and self._is_away(path):
            with self._there:
                self._work.waiting.pop(path, None)
                self._work.scans = True
            return
        if file is None:
            self._index.remove([path])
        else:
            self._index.put(file, passages)
        known = self._index.file(path)
        with self._there:
            now = time.monotonic()
            self._rests = {one: until for one, until in self._rests.items() if until > now - _REST_CREDIT_S}
            rest = min(max(_REST_S, _REST_COSTS * (now - began)), _LONGEST_REST_S)
            self._rests[path] = max(self._rests.get(path, 0.0), now - _REST_CREDIT_S) + rest
            self._work.waiting.pop(path, None)
            if path in self._work.changed:  # last: a log that always grows holds up no other file
                self._work.waiting[path] = None
            if known is None:
                self._files.pop(path, None)
            else:
                self._files[path] = known
        self._changed()

    def _is_away(self, path: str) -> bool:
        """Whether the folder that was named for a file is missing."""
        with self._there:
            folder = next((folder for folder in self._work.folders if is_within(path, folder)), None)
        return folder is not None and not os.path.isdir(folder)

    # --- watching

    def _begin_watch(self, folders: list[str]) -> None:
        self._end_watch()
        watched = [folder for folder in folders if os.path.isdir(folder)]
        if not watched:
            return
        stop = threading.Event()
        thread = threading.Thread(target=self._watching, args=(watched, stop), name="documents-watch", daemon=True)
        self._watch = thread, stop
        thread.start()

    def _end_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch[1].set()
            watch[0].join(_STOPS_WITHIN_S)

    def _watching(self, folders: list[str], stop: threading.Event) -> None:
        from watchfiles import watch

        has_begun = False
        try:
            for changes in watch(
                *folders, stop_event=stop, debounce=_DEBOUNCE_MS, step=_STEP_MS, rust_timeout=1_000,
                raise_interrupt=False, ignore_permission_denied=True, watch_filter=None, yield_on_timeout=True,
            ):  # fmt: skip
                if not has_begun:
                    has_begun = True
                    with self._there:
                        self._work.watched = True
                        self._there.notify_all()
                self._have_changed({path for _, path in changes})
        except OSError as error:  # too many folders for the system's watches
            log.info("A folder of documents cannot be watched: %s", error)
        except RuntimeError as error:  # a name that is not valid text has changed
            log.info("A folder of documents is watched anew: %s", error)
            if not stop.wait(_WATCH_AGAIN_S):
                with self._there:
                    self._work.scans = True  # which begins the watch again
                    self._there.notify_all()

    def _have_changed(self, paths: set[str]) -> None:
        """Put files that changed first; a change of a folder leads to a scan."""
        if not paths:
            return
        with self._there:
            work = self._work
            first = [path for path in paths if _is_document(path, work.folders) and os.path.isfile(path)]
            others = [path for path in paths if path in self._files or os.path.isdir(path)]
            work.scans = work.scans or any(path not in first for path in others)
            new = [path for path in first if path not in work.changed or path not in work.waiting]
            work.waiting = dict.fromkeys([*new, *work.waiting])
            work.changed.update(first)
            self._there.notify_all()


def is_within(path: str, folder: str) -> bool:
    """Whether a file is in a folder, by their absolute names."""
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def documents_in(folder: str, unseen: set[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the documents in a folder and the folders in it. Left out are links, hidden ones, and names that are not
    valid text. Files and folders that are there but cannot be looked at are added to `unseen`.
    """
    left = [folder]
    while left:
        above = left.pop()
        try:
            entries = sorted(os.scandir(above), key=lambda one: one.name)
        except (FileNotFoundError, ValueError):  # ValueError: a damaged list names it with a null character
            continue
        except OSError:
            unseen.add(above)
            continue
        for entry in entries:
            try:
                if entry.name.startswith((".", "~$")) or entry.is_symlink() or not _is_text(entry.name):
                    continue
                if entry.is_dir():
                    if entry.name not in _SKIPPED_FOLDERS:
                        left.append(entry.path)
                elif _has_kind(entry.name) and entry.is_file():
                    yield entry.path, entry.stat()
            except FileNotFoundError:
                continue
            except OSError:
                unseen.add(entry.path)


def _has_kind(name: str) -> bool:
    return os.path.splitext(name)[1].casefold() in SUFFIXES


def _is_document(path: str, folders: Iterable[str]) -> bool:
    """Whether a scan of one of these folders would find a file."""
    above = max((folder for folder in folders if is_within(path, folder)), key=len, default=None)
    parts = Path(path).relative_to(above).parts if above is not None else (".",)
    hidden = any(part.startswith((".", "~$")) or part in _SKIPPED_FOLDERS for part in parts)
    return _has_kind(path) and not hidden and _is_text(path) and not os.path.islink(path)


def _is_text(name: str) -> bool:
    """Whether a name is valid text: neither the index nor a chat could hold another one."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def _differs(known: IndexedFile | None, what: os.stat_result) -> bool:
    return known is None or (known.size, known.modified) != (what.st_size, what.st_mtime_ns)
