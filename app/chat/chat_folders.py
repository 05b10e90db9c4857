"""Organizes chats: pins, folders, export, import and the bin. Every action on the list can be undone.

It shows nothing: texts for a toast are a signal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QObject, QSignalBlocker, Signal

from app.chat.chat_memory import ChatMemory
from app.chat.store.conversation import BinnedChat, Conversation, WholeChat
from app.translation import figure, tr, tr_n
from app.user_messages import UserMessage, describe

T = TypeVar("T")


class ChatFolders(QObject):
    """All methods return at once; the memory's `changed` follows with the new list."""

    toast = Signal(str, object)  # text, and a callable that undoes the action, or None
    problem = Signal(str, UserMessage)  # "import" or "export", and why it failed
    solved = Signal(str)  # "import" or "export" succeeded

    def __init__(self, memory: ChatMemory) -> None:
        super().__init__()
        self._memory = memory

    def place(self, conversation_id: str, pinned: bool, folder: str) -> None:
        """Pin or unpin a chat and set its folder; empty: none."""
        chat = self._memory.conversation(conversation_id)
        if chat is None or (chat.pinned, chat.folder) == (pinned, folder):
            return
        if folder != chat.folder:
            words = (
                tr("Moved to “{folder}”", folder=folder)
                if folder
                else tr("Removed from “{folder}”", folder=chat.folder)
            )
        else:
            words = tr("Chat pinned") if pinned else tr("Chat unpinned")
        self._put(conversation_id, pinned, folder)
        self.toast.emit(words, partial(self._put, conversation_id, chat.pinned, chat.folder))

    def _put(self, conversation_id: str, pinned: bool, folder: str) -> None:
        if self._memory.conversation(conversation_id) is not None:
            self._memory.set_pinned(conversation_id, pinned)
            self._memory.set_folder(conversation_id, folder)

    def rename_folder(self, name: str, new_name: str) -> None:
        """Rename a folder. If the name exists, merge both."""
        new_name = " ".join(new_name.split())
        moved = [c for c in self._memory.conversations() if c.folder == name]
        if not moved or not new_name or new_name == name:
            return
        merges = any(c.folder == new_name for c in self._memory.conversations())
        before = {c.id: c.folder for c in moved}
        self._memory.set_folders(dict.fromkeys(before, new_name))
        if merges:
            self.toast.emit(
                tr("Moved to “{folder}”, which already existed", folder=new_name),
                partial(self._put_back, before),
            )

    def take_out(self, name: str) -> None:
        """Remove a folder; its chats stay."""
        before = {c.id: c.folder for c in self._memory.conversations() if c.folder == name}
        if before:
            self._memory.set_folders(dict.fromkeys(before, ""))
            self.toast.emit(
                tr("Removed from “{folder}”: {chats}", folder=name, chats=_chats(len(before))),
                partial(self._put_back, before),
            )

    # -------------------------------------------------------------- the bin

    def read_bin(self, then: Callable[[list[BinnedChat]], None]) -> None:
        """Pass the deleted chats that can still be restored to `then`, last deleted first."""
        self._memory.read_bin(then)

    def restore(self, conversation_id: str) -> None:
        """Restore a deleted chat."""
        if self._memory.restore(conversation_id):
            self.toast.emit(tr("Chat restored"), None)

    def erase(self, conversation_ids: Sequence[str]) -> None:
        """Delete chats for good."""
        self._memory.erase(conversation_ids)

    # -------------------------------------------------------------- files

    def export_chats(
        self,
        path: Path,
        conversation_ids: Sequence[str] | None = None,
        write_one: Callable[[Path, WholeChat], None] | None = None,
    ) -> None:
        """Export chats, or all of them: JSON to .json, one chat as Markdown to .md, else Markdown files in a folder.

        write_one: writes one chat in another format, in another thread.
        """
        done, failed = partial(self._exported, path), partial(self._not_done, "export")
        self._memory.export_chats(path, conversation_ids, done, failed, write_one)

    def read_chat(self, conversation_id: str, make: Callable[[WholeChat], T], then: Callable[[T], None]) -> None:
        """Pass what `make` returns for a chat, in another thread, to `then`."""
        self._memory.read_chat(conversation_id, make, then, partial(self._not_done, "export"))

    def _exported(self, path: Path, count: int) -> None:
        self.solved.emit("export")
        self.toast.emit(
            tr_n("{n} chat exported to {name}", "{n} chats exported to {name}", count, n=figure(count), name=path.name),
            None,
        )

    def import_chats(self, path: Path) -> None:
        """Import the chats of a JSON file, all or none."""
        self._memory.import_chats(path, self._imported, partial(self._not_done, "import"))

    def _imported(self, added: list[Conversation], known: int) -> None:
        self.solved.emit("import")
        if not added:
            here = tr_n("{n} chat was already here", "{n} chats were already here", known, n=figure(known))
            self.toast.emit(here if known else tr("There is no chat in this file"), None)
            return
        words = tr_n("{n} chat imported", "{n} chats imported", len(added), n=figure(len(added)))
        if known:
            words += ", " + tr_n("{n} was already here", "{n} were already here", known)
        self.toast.emit(words, partial(self._undo_import, added))

    def _undo_import(self, added: Sequence[Conversation]) -> None:
        """Remove imported chats. One that has changed since goes to the bin."""
        unchanged = [chat.id for chat in added if self._memory.conversation(chat.id) == chat]
        with QSignalBlocker(self._memory):  # emit the list once, not for each of thousands
            for chat in added:
                if self._memory.conversation(chat.id) is not None:
                    self._memory.delete(chat.id)
        self._memory.erase(unchanged)
        self._memory.changed.emit()

    def _not_done(self, during: str, error: BaseException) -> None:
        self.problem.emit(during, describe(error, during=during))

    def _put_back(self, folders: Mapping[str, str]) -> None:
        known = {key: folder for key, folder in folders.items() if self._memory.conversation(key) is not None}
        self._memory.set_folders(known)


def _chats(count: int) -> str:
    return tr_n("{n} chat", "{n} chats", count, n=figure(count))
