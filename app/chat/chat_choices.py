"""The choices made for the open chat, or for a new chat that has no message yet.

They are in Conversation.choices, by name: persona, preset, sampling, mode and others. A new chat's choices and its
folder stay in memory until its first message creates it. What a chat did not choose it inherits from its project.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.chat.chat_memory import ChatMemory
from app.chat.projects.project import Projects
from app.chat.store.conversation import Conversation


class ChatChoices(QObject):
    """Reads and changes the open chat's choices and its folder. changed: any of them."""

    changed = Signal()

    def __init__(self, memory: ChatMemory, projects: Projects) -> None:
        super().__init__()
        self._memory, self._projects = memory, projects
        self._open: str | None = None
        self._new: dict[str, Any] = {}  # of the new chat
        self._new_folder = ""
        self._folder = ""  # as of the last `changed`
        memory.changed.connect(self._check_folder)

    @property
    def values(self) -> dict[str, Any]:
        """Return the chat's own choices by name; without those that were not made."""
        conversation = self._conversation
        return dict(self._new if conversation is None else conversation.choices)

    @property
    def folder(self) -> str:
        """The folder of the chat; empty: none."""
        return self.folder_of(self._conversation)

    @property
    def inherited(self) -> dict[str, Any]:
        """What the chat would choose without choices of its own: those of its project."""
        return dict(self._projects.in_force({}, self.folder))

    @property
    def in_force(self) -> Mapping[str, Any]:
        """The chat's own choices, and those that it inherits."""
        return self.of(self._conversation)

    def of(self, conversation: Conversation | None) -> Mapping[str, Any]:
        """Return a chat's own and inherited choices; None: the new chat's."""
        own = self._new if conversation is None else conversation.choices
        return self._projects.in_force(own, self.folder_of(conversation))

    def folder_of(self, conversation: Conversation | None) -> str:
        """Return a chat's folder; None: the new chat's."""
        return self._new_folder if conversation is None else conversation.folder

    def show(self, conversation: Conversation | None, folder: str = "") -> None:
        """Switch to this chat; None: a new one without choices, in that folder."""
        self._open = conversation.id if conversation is not None else None
        self._new, self._new_folder = {}, folder
        self._folder = self.folder
        self.changed.emit()

    def rename_folder(self, folder: str, name: str) -> None:
        """Let a new chat in a folder follow its new name."""
        if folder and self._new_folder == folder:
            self._new_folder = name

    def _check_folder(self) -> None:
        """Tell that the open chat inherits something else, once it is in another folder."""
        if self.folder != self._folder:
            self._folder = self.folder
            self.changed.emit()

    @property
    def _conversation(self) -> Conversation | None:
        return self._memory.conversation(self._open) if self._open else None

    def set(self, **values: Any) -> None:
        """Change choices of the open chat; None removes one."""
        before = self.values
        after = {name: value for name, value in {**before, **values}.items() if value is not None}
        if after == before:
            return
        if self._open is not None and self._conversation is not None:
            self._memory.set_choices(self._open, after)
        else:
            self._new = after
        self.changed.emit()
