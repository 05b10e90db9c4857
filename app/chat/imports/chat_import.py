"""One import of chats from another program: reads, stages, and shows them all at once, or none.

The reader's process writes batches; the store takes each in unseen. When all are there, they become visible together.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from PySide6.QtCore import QObject, Signal

from app.chat.imports.export_reader import ExportReader
from app.chat.store.conversation import Conversation, Staged
from app.errors import ChatFileError
from app.translation import noted, tr

_WHY_NOT = {
    "json": noted("This file is not JSON, or it is cut off."),
    "unknown": noted(
        "It contains no chats that Hearth can read. Choose an export of Hearth, ChatGPT, Claude, LM Studio, Jan, "
        "Open WebUI or GPT4All."
    ),
    "zip": noted("This ZIP file is damaged. Download it again."),
    "zip-bomb": noted("This ZIP file would unpack to more than 200 times its size. No real export does."),
    "locked": noted("This ZIP file is protected by a password. Unpack it and choose the folder."),
    "many": noted("There are more than 100,000 files in it. Choose a folder with fewer."),
    "large": noted("Reading it takes more memory than Hearth uses for an import."),
    "died": noted("The process that read it ended unexpectedly. Try again."),
}


class StagedChats(Protocol):
    """The methods of ChatMemory that an import needs."""

    def stage(self, batch: Path, then: Callable[[Staged], None], failed: Callable[[BaseException], None]) -> None: ...

    def show_staged(
        self, then: Callable[[list[Conversation]], None], failed: Callable[[BaseException], None]
    ) -> None: ...

    def drop_staged(self, then: Callable[[object], None]) -> None: ...


@dataclass(frozen=True)
class ImportSummary:
    """An import's result. skipped: chats by reason. left_out: parts of messages by kind. cut: files that end early."""

    chats: Sequence[Conversation] = ()
    staged: Staged = field(default_factory=Staged)
    programs: Sequence[str] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    cut: int = 0


class ChatImport(QObject):
    """Imports one set of files at a time; further ones wait."""

    began = Signal()
    progressed = Signal(float, int)  # share of the bytes; chats so far
    done = Signal(object)  # ImportSummary
    cancelled = Signal()
    failed = Signal(object)  # ChatFileError, OSError or StoreError; nothing was imported

    def __init__(self, chats: StagedChats) -> None:
        super().__init__()
        self._chats = chats
        self._folder: Path | None = None
        self._staged = Staged()
        self._waiting_batches = 0
        self._end: dict[str, Any] | None = None
        self._ending = False
        self._next: list[Sequence[Path]] = []
        self._reader = ExportReader(self)
        self._reader.progressed.connect(self.progressed)
        self._reader.batch.connect(self._take)
        self._reader.ended.connect(self._read_all)
        self._reader.failed.connect(self._not_read)

    @property
    def is_running(self) -> bool:
        return self._folder is not None

    def start(self, paths: Sequence[Path]) -> None:
        """Import these files and folders together."""
        if self.is_running:
            self._next.append(paths)
            return
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="hearth-import-"))
        except OSError as error:
            self.failed.emit(error)
            return
        self._staged, self._waiting_batches, self._end, self._ending = Staged(), 0, None, False
        self.began.emit()
        self._reader.start(paths, self._folder)

    def cancel(self) -> None:
        """End the import. Nothing of it stays."""
        if self.is_running and not self._ending:
            self._drop(self.cancelled.emit)

    def close(self) -> None:
        """End the reader at once. The next start removes what was staged."""
        self._ending = True
        self._next.clear()
        self._reader.stop()
        self._remove_folder()

    def _take(self, batch: Path) -> None:
        self._waiting_batches += 1
        self._chats.stage(batch, partial(self._took, batch), self._not_taken)

    def _took(self, batch: Path, staged: Staged) -> None:
        batch.unlink(missing_ok=True)
        self._waiting_batches -= 1
        self._staged += staged
        if not self._ending:
            self._reader.taken()
            self._show_if_complete()

    def _not_taken(self, error: BaseException) -> None:
        if not self._ending:
            self._drop(lambda: self.failed.emit(error))

    def _read_all(self, end: dict[str, Any]) -> None:
        self._end = end
        self._show_if_complete()

    def _show_if_complete(self) -> None:
        if self._end is not None and not self._waiting_batches and not self._ending:
            self._ending = True  # too late to cancel
            self._chats.show_staged(self._shown, lambda error: self._drop(lambda: self.failed.emit(error)))

    def _shown(self, chats: list[Conversation]) -> None:
        end = self._end or {}
        self._remove_folder()
        summary = ImportSummary(
            chats, self._staged, tuple(map(str, end.get("programs", ()))), end.get("skipped", {}),
            end.get("left_out", {}), int(end.get("cut", 0)),
        )  # fmt: skip
        self.done.emit(summary)
        self._start_next()

    def _not_read(self, why: str, said: dict[str, Any]) -> None:
        error: Exception
        if why == "system":
            error = OSError(int(said.get("errno") or 0), str(said.get("detail", "")))
        else:
            error = ChatFileError(tr(_WHY_NOT.get(why, _WHY_NOT["died"])))
        self._drop(lambda: self.failed.emit(error))

    def _drop(self, then: Callable[[], None]) -> None:
        """Remove what was staged, behind the batches that are still being taken."""
        self._ending = True
        self._reader.stop()

        def dropped(_: object) -> None:
            self._remove_folder()
            then()
            self._start_next()

        self._chats.drop_staged(dropped)

    def _remove_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _start_next(self) -> None:
        if self._next and not self.is_running:
            self.start(self._next.pop(0))
