"""What is chosen for the chat that is open, or for the new one that nothing was said in yet.

The values lie in Conversation.choices, by name: persona, preset, sampling and mode here, and what others keep there. A
new chat's wait in memory until its first message makes it a chat. It shows nothing and asks no engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.chat.chat_memory import ChatMemory
from app.chat.conversation import Conversation


class ChatChoices(QObject):
    """One a window."""

    changed = Signal()

    def __init__(self, memory: ChatMemory) -> None:
        super().__init__()
        self._memory = memory
        self._open: str | None = None
        self._new: dict[str, Any] = {}  # of the chat that is not there yet

    @property
    def values(self) -> dict[str, Any]:
        """What is chosen, by name; what nobody chose is not in it."""
        return dict(self.of(self._memory.conversation(self._open) if self._open else None))

    def of(self, conversation: Conversation | None) -> Mapping[str, Any]:
        """What is chosen for a chat; None: for the new one."""
        return self._new if conversation is None else conversation.choices

    def show(self, conversation: Conversation | None) -> None:
        """This chat is open now; None: a new one, for which nothing is chosen yet."""
        self._open = conversation.id if conversation is not None else None
        self._new = {}
        self.changed.emit()

    def set(self, **values: Any) -> None:
        """Choose for the chat that is open; None takes a choice away."""
        before = self.values
        after = {name: value for name, value in {**before, **values}.items() if value is not None}
        if after == before:
            return
        if self._open is not None and self._memory.conversation(self._open) is not None:
            self._memory.set_choices(self._open, after)
        else:
            self._new = after
        self.changed.emit()
