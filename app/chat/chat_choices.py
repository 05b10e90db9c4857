"""The choices made for the open chat, or for a new chat that has no message yet.

They are in Conversation.choices, by name: persona, preset, sampling, mode and others. A new chat's choices stay in
memory until its first message creates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.chat.chat_memory import ChatMemory
from app.chat.store.conversation import Conversation


class ChatChoices(QObject):
    """One for the window."""

    changed = Signal()

    def __init__(self, memory: ChatMemory) -> None:
        super().__init__()
        self._memory = memory
        self._open: str | None = None
        self._new: dict[str, Any] = {}  # of the new chat

    @property
    def values(self) -> dict[str, Any]:
        """Return the choices by name; without those that were not made."""
        return dict(self.of(self._memory.conversation(self._open) if self._open else None))

    def of(self, conversation: Conversation | None) -> Mapping[str, Any]:
        """Return a chat's choices; None: the new chat's."""
        return self._new if conversation is None else conversation.choices

    def show(self, conversation: Conversation | None) -> None:
        """Switch to this chat; None: a new one without choices."""
        self._open = conversation.id if conversation is not None else None
        self._new = {}
        self.changed.emit()

    def set(self, **values: Any) -> None:
        """Change choices of the open chat; None removes one."""
        before = self.values
        after = {name: value for name, value in {**before, **values}.items() if value is not None}
        if after == before:
            return
        if self._open is not None and self._memory.conversation(self._open) is not None:
            self._memory.set_choices(self._open, after)
        else:
            self._new = after
        self.changed.emit()
