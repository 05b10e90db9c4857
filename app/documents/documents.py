"""The folders of documents that the user named: their list, their index, and what is found in them for a question."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from app.chat.store.conversation import Attachment
from app.chat.store.operations import Operations
from app.chat.store.preset_store import PresetStoreError, keep_aside, read_json, write_json
from app.documents.gathering import Given, gathered
from app.documents.index_file import IndexedFile, IndexFile
from app.documents.indexing import FolderState, Indexer, is_within
from app.documents.passage_vectors import EmbeddingEngine, PassageVectors
from app.documents.search import Asked
from app.tools.tool_error import ToolError
from app.translation import tr

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1
MOST_FOLDERS, LONGEST_MODEL = 100, 1_000
TELL_EVERY_MS = 300

Save = Callable[[str, Callable[[], object]], None]  # name of the file, and what writes it in the background


class Documents(QObject):
    """Adds, indexes and searches folders. No method blocks, unless its docstring says so. changed: a folder or its
    state, at most every TELL_EVERY_MS."""

    changed = Signal()
    said = Signal(str, object)  # text, and a callable that undoes the action, or None
    _moved = Signal()  # from the indexer's thread

    def __init__(self, list_file: Path | None, index_file: Path | None, save: Save) -> None:
        """Read nothing. list_file, index_file: None keeps them in memory. save: writes a small file in the
        background.
        """
        super().__init__()
        self._list_file, self._save = list_file, save
        self._folders: list[str] = []
        self._paused = False
        self._keeps_file = False  # the list is a newer version's or cannot be read, and is not written
        self._index = IndexFile(index_file)
        self._indexer = Indexer(self._index, self._moved.emit)
        self._searches = Operations(self)
        self.vectors: PassageVectors | None = None  # once there is an engine
        self._model = ""  # for vectors; "": words alone are searched
        self._timer = QTimer(self, singleShot=True, interval=TELL_EVERY_MS)
        self._timer.timeout.connect(self.changed)
        self._moved.connect(lambda: self._timer.isActive() or self._timer.start())

    def use_engine(self, engine: EmbeddingEngine) -> None:
        """Let this engine turn passages and questions into vectors. Call once, before `read`."""
        self.vectors = PassageVectors(self._index, engine, self._searches, self)
        self.vectors.changed.connect(self._moved)
        self._moved.connect(self._go_on_with_vectors)

    def _go_on_with_vectors(self) -> None:
        vectors = self.vectors
        if vectors is not None and self.is_idle and not vectors.n_left and not vectors.is_waiting:
            vectors.go_on()

    # --- the folders

    def read(self) -> None:
        """Read the list of folders and begin to index them. A damaged file is renamed; invalid folders are skipped."""
        values = None
        try:
            values = read_json(self._list_file) if self._list_file is not None else None
        except FileNotFoundError:
            pass
        except OSError:
            self._keeps_file = True
        except PresetStoreError as error:
            self._keeps_file = self._list_file is not None and not keep_aside(self._list_file, error)
        if isinstance(values, dict):
            version, folders = values.get("schema_version"), values.get("folders")
            self._keeps_file = type(version) is int and version > SCHEMA_VERSION
            if not self._keeps_file and isinstance(folders, list):
                good = [one for one in folders if isinstance(one, str) and os.path.isabs(one)]
                self._folders = list(dict.fromkeys(good))[:MOST_FOLDERS]
                self._paused = values.get("paused") is True
                model = values.get("model")
                self._model = model if isinstance(model, str) and len(model) <= LONGEST_MODEL else ""
        if self.vectors is not None:
            self.vectors.pause(self._paused)
            self.vectors.set_model(self._model)
        self._indexer.pause(self._paused)
        self._indexer.set_folders(self._folders)
        self.changed.emit()

    def close(self) -> None:
        """End the indexing; blocks for a few seconds at most."""
        if self.vectors is not None:
            self.vectors.close()
        self._searches.close()
        self._indexer.close()
        self._index.close()

    @property
    def folders(self) -> tuple[str, ...]:
        """The named folders, in the order in which they were added."""
        return tuple(self._folders)

    @property
    def states(self) -> list[FolderState]:
        return self._indexer.states()

    @property
    def is_paused(self) -> bool:
        return self._paused

    @property
    def fault(self) -> str:
        """Why the index cannot be read or written now; "" if it can. It is tried again by itself."""
        return self._indexer.fault

    @property
    def is_idle(self) -> bool:
        """Whether all documents have been read."""
        return self._indexer.is_idle

    def add(self, folder: Path) -> bool:
        """Name a folder, and index it. Return False if it cannot be named; `said` tells why."""
        path = os.path.abspath(folder)
        why = self._why_not(path)
        if why:
            self.said.emit(why, "warn")
            return False
        self._folders.append(path)
        self._list_changed()
        return True

    def _why_not(self, path: str) -> str:
        name = os.path.basename(path) or path
        if not os.path.isdir(path):
            return tr("{name} is not a folder", name=name)
        if path in self._folders:
            return tr("{name} is already there", name=name)
        above = next((one for one in self._folders if is_within(path, one)), None)
        if above is not None:
            return tr("{name} is in {folder}, which is already there", name=name, folder=os.path.basename(above))
        if len(self._folders) >= MOST_FOLDERS:
            return tr("There are {n} folders already. Remove one first.", n=MOST_FOLDERS)
        return ""

    def remove(self, folder: str) -> None:
        """Forget a folder and all that was kept of its documents. The documents stay where they are."""
        if folder in self._folders:
            at = self._folders.index(folder)
            self._folders.remove(folder)
            self._list_changed()
            self.said.emit(
                tr("{name} is no longer searched", name=os.path.basename(folder) or folder),
                partial(self._put_back, at, folder),
            )

    def _put_back(self, at: int, folder: str) -> None:
        if folder not in self._folders:
            self._folders.insert(at, folder)
            self._list_changed()

    def pause(self, paused: bool) -> None:
        """Read no more documents until this is called with False, also after a restart."""
        self._paused = paused
        self._indexer.pause(paused)
        if self.vectors is not None:
            self.vectors.pause(paused)
        self._keep()
        self.changed.emit()

    @property
    def model(self) -> str:
        """Id of the installed model that finds passages by their meaning; "": words alone are searched."""
        return self._model

    def set_model(self, model: str) -> None:
        """Find passages by their meaning with this model as well; "" for words alone."""
        self._model = model
        if self.vectors is not None:
            self.vectors.set_model(model)
        self._keep()
        self.changed.emit()

    def failures(self, folder: str) -> list[tuple[str, str]]:
        """Return the documents of a folder that could not be read: path, and why."""
        return sorted((one.path, one.why) for one in self._indexer.files([folder]) if one.why)

    def _list_changed(self) -> None:
        self._indexer.set_folders(self._folders)
        self._keep()
        self.changed.emit()

    def _keep(self) -> None:
        written = {"schema_version": SCHEMA_VERSION, "folders": list(self._folders), "paused": self._paused,
                   "model": self._model}  # fmt: skip
        self._save("save the list of documents", lambda: self._write(written))

    def _write(self, values: dict[str, Any]) -> None:
        if self._list_file is not None and not self._keeps_file:
            write_json(self._list_file, values)

    # --- what is found

    def chosen(self, folders: Iterable[str]) -> list[str]:
        """Return those of these folders that are named."""
        return [one for one in folders if one in self._folders]

    def knows(self, path: str) -> bool:
        """Whether a file is in a named folder, so that it may be shown as a source. A path from a stranger's chat may
        lead out of the folder, by ".." or a link, or to another computer: nothing outside is looked at.
        """
        folder = next((folder for folder in self._folders if is_within(path, folder)), None)
        if folder is None or path != os.path.abspath(path):
            return False
        return is_within(os.path.realpath(path), os.path.realpath(folder))

    def find(
        self,
        question: str,
        folders: Collection[str],
        space: int,
        given: Given,
        then: Callable[[tuple[Attachment, ...]], None],
    ) -> None:
        """Call back with what of these folders goes along with a question; nothing if the search fails.

        space: free characters of the context. given: what earlier messages carry.
        """
        files = self._indexer.files(self.chosen(folders))
        if not files or not question.strip():
            then(())
            return

        def search(asked: Asked | None) -> None:
            self._searches.run(
                "search the documents",
                partial(self._gathered, question, files, space, given, asked),
                lambda found: then(tuple(found)),
                lambda error: self._not_found(error, then),
            )

        if self.vectors is None:
            search(None)
        else:
            self.vectors.of_question(question, search)

    def search(self, question: str, space: int) -> list[Attachment]:
        """Return what of all folders fits a question. Thread-safe; blocks. Raises: ToolError."""
        try:
            return self._gathered(question, self._indexer.files(self.folders), space, Given())
        except (sqlite3.Error, OSError) as error:
            log.warning("The documents could not be searched: %s", error)
            raise ToolError("The documents could not be searched.") from error

    def _gathered(
        self, question: str, files: Sequence[IndexedFile], space: int, given: Given, asked: Asked | None = None
    ) -> list[Attachment]:
        self._index.open()
        return gathered(self._index, question, files, space, given, asked)

    def _not_found(self, error: BaseException, then: Callable[[tuple[Attachment, ...]], None]) -> None:
        then(())  # first: the answer waits for it
        if not isinstance(error, sqlite3.Error | OSError):
            raise error
        log.warning("The documents could not be searched: %s", error)
        self.said.emit(tr("Couldn't search the documents. The answer does without them."), "warn")
