"""How chats are kept in order: pinned, put into folders, taken out again; every such act with the way back.

What is said in a chat is the chat controller's. It shows nothing: words for a note are a signal.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from PySide6.QtCore import QObject, Signal

from app.chat_memory import ChatMemory


class ChatShelf(QObject):
    """All methods come back at once; the list of chats follows by the memory's `changed`."""

    toast = Signal(str, object)  # words, and a callable that undoes it, or None

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
            chats = "1 chat" if len(before) == 1 else f"{len(before)} chats"
            self.toast.emit(f"Taken out of “{name}”: {chats}", partial(self._put_back, before))

    def _put_back(self, folders: Mapping[str, str]) -> None:
        known = {key: folder for key, folder in folders.items() if self._memory.conversation(key) is not None}
        self._memory.set_folders(known)
