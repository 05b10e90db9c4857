"""How chats are kept in order: pinned, put into folders, written to files and read from them; every act on the list
with the way back.

What is said in a chat is the chat controller's. It shows nothing: words for a note are a signal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, QSignalBlocker, Signal

from app.chat_files import ChatFileError
from app.chat_memory import ChatMemory
from app.conversation import Conversation
from app.store import StoreError
from app.user_messages import UserMessage, describe


class ChatShelf(QObject):
    """All methods come back at once; the list of chats follows by the memory's `changed`."""

    toast = Signal(str, object)  # words, and a callable that undoes it, or None
    problem = Signal(UserMessage)

    def __init__(self, memory: ChatMemory) -> None:
        super().__init__()
        self._memory = memory

    def place(self, conversation_id: str, pinned: bool, folder: str) -> None:
        """Pin a chat or not, and put it into a folder; an empty one is none."""
        chat = self._memory.conversation(conversation_id)
        if chat is None or (chat.pinned, chat.folder) == (pinned, folder):
            return
        if folder != chat.folder:
            words = f"Moved to “{folder}”" if folder else f"Taken out of “{chat.folder}”"
        else:
            words = "Chat pinned" if pinned else "Chat unpinned"
        self._put(conversation_id, pinned, folder)
        self.toast.emit(words, partial(self._put, conversation_id, chat.pinned, chat.folder))

    def _put(self, conversation_id: str, pinned: bool, folder: str) -> None:
        if self._memory.conversation(conversation_id) is not None:
            self._memory.set_pinned(conversation_id, pinned)
            self._memory.set_folder(conversation_id, folder)

    def rename_folder(self, name: str, new_name: str) -> None:
        """Give a folder another name; where there is one of that name, both become one."""
        new_name = " ".join(new_name.split())
        moved = [c for c in self._memory.conversations() if c.folder == name]
        if not moved or not new_name or new_name == name:
            return
        merges = any(c.folder == new_name for c in self._memory.conversations())
        before = {c.id: c.folder for c in moved}
        self._memory.set_folders(dict.fromkeys(before, new_name))
        if merges:
            self.toast.emit(f"Moved into “{new_name}”, which was there already", partial(self._put_back, before))

    def take_out(self, name: str) -> None:
        """Take every chat out of a folder; it is gone then."""
        before = {c.id: c.folder for c in self._memory.conversations() if c.folder == name}
        if before:
            self._memory.set_folders(dict.fromkeys(before, ""))
            self.toast.emit(f"Taken out of “{name}”: {_chats(len(before))}", partial(self._put_back, before))

    # -------------------------------------------------------------- files

    def export_chats(self, path: Path, conversation_ids: Sequence[str] | None = None) -> None:
        """Write chats, or all of them: JSON into .json, one chat as Markdown into .md, else Markdown into a folder."""
        self._memory.export_chats(
            path, conversation_ids, partial(self._exported, path), partial(self._not_done, "exported", path)
        )

    def _exported(self, path: Path, count: int) -> None:
        self.toast.emit(f"{_chats(count)} exported to {path.name}", None)

    def import_chats(self, path: Path) -> None:
        """Read the chats of a JSON file, all or none of them."""
        self._memory.import_chats(path, self._imported, partial(self._not_done, "imported", path))

    def _imported(self, added: list[Conversation], known: int) -> None:
        here = "" if not known else " was here already" if known == 1 else " were here already"
        if not added:
            self.toast.emit(f"{_chats(known)}{here}" if known else "There is no chat in this file", None)
            return
        words = f"{_chats(len(added))} imported" + (f", {known}{here}" if known else "")
        self.toast.emit(words, partial(self._delete, [chat.id for chat in added]))

    def _delete(self, conversation_ids: Sequence[str]) -> None:
        with QSignalBlocker(self._memory):  # the list is told once, not for each of thousands
            for conversation_id in conversation_ids:
                if self._memory.conversation(conversation_id) is not None:
                    self._memory.delete(conversation_id)
        self._memory.changed.emit()

    def _not_done(self, what: str, path: Path, error: BaseException) -> None:
        if isinstance(error, StoreError):
            self.problem.emit(describe(error))
        elif isinstance(error, OSError):
            why = error.strerror or str(error)
            sentence = f"{path.name} could not be {'written' if what == 'exported' else 'read'}: {why}."
            self.problem.emit(UserMessage(f"The chats were not {what}", sentence, details=str(error), severity="warn"))
        elif isinstance(error, ChatFileError):
            sentence = f"{path.name}: {error}"
            self.problem.emit(UserMessage(f"The chats were not {what}", sentence, severity="warn"))
        else:
            self.problem.emit(describe(error))

    def _put_back(self, folders: Mapping[str, str]) -> None:
        known = {key: folder for key, folder in folders.items() if self._memory.conversation(key) is not None}
        self._memory.set_folders(known)


def _chats(count: int) -> str:
    return "1 chat" if count == 1 else f"{count:,} chats"
