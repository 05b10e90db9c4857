"""Which chat is open, and at which message. Reads a chat from the store before it is shown."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.chat.store.conversation import Conversation

if TYPE_CHECKING:
    from app.chat.chat_memory import ChatMemory


class OpenChat(QObject):
    """id: of the open chat; None for a new one."""

    opening = Signal(object)  # Conversation: it will be open once it is read
    shown = Signal(object, list)  # Conversation | None, its messages: another chat is open now
    stayed = Signal(object)  # Conversation | None: the other one could not be read, and this one is still open
    branch_changed = Signal(str, str)  # chat, the message whose branch is shown now
    message_wanted = Signal(str, str)  # message to scroll to, text to mark in it

    def __init__(self, memory: ChatMemory) -> None:
        super().__init__()
        self.id: str | None = None
        self._memory = memory
        self._wanted: str | None = None  # the chat that is being read from the store
        self._wanted_message = ("", "")  # to show in that chat, and the text to mark

    def is_or_will_be(self, conversation_id: str) -> bool:
        return conversation_id in (self.id, self._wanted)

    def show(self, conversation: Conversation | None) -> None:
        """Show a chat that is in memory, or a new one."""
        self.id, self._wanted = (conversation.id if conversation else None), None
        self.shown.emit(conversation, (self._memory.branch_of(conversation.id) if conversation else None) or [])

    def open(self, conversation_id: str) -> None:
        """Open a chat at its end, or at the wanted message."""
        conversation = self._memory.conversation(conversation_id)
        if conversation is None:
            self._not_read(conversation_id)
            return
        self._wanted = conversation_id
        if self._memory.messages(conversation_id) is None:
            self.opening.emit(conversation)
            read, failed = partial(self._read, conversation_id), partial(self._not_read, conversation_id)
            self._memory.read(conversation_id, read, failed)
            return
        self.show(conversation)
        (at, text), self._wanted_message = self._wanted_message, ("", "")
        if at:
            self._go_to(conversation_id, at, text)

    def open_at(self, conversation_id: str, message_id: str, text: str = "") -> None:
        """Open a chat on the branch with that message, scroll to it and mark the text."""
        self._wanted_message = (message_id, text)
        if conversation_id == self.id:
            self._wanted_message = ("", "")
            self._go_to(conversation_id, message_id, text)
        else:
            self.open(conversation_id)

    def reopen(self, conversation_id: str) -> None:
        """Open the chat of the last run, unless the user has opened another one."""
        if self.id is None and self._wanted is None:
            self.open(conversation_id)

    def _read(self, conversation_id: str) -> None:
        if self._wanted == conversation_id:
            self.open(conversation_id)

    def _not_read(self, conversation_id: str) -> None:
        if self._wanted == conversation_id:
            self._wanted = None
            self.stayed.emit(None if self.id is None else self._memory.conversation(self.id))

    def _go_to(self, conversation_id: str, message_id: str, text: str) -> None:
        if all(message.id != message_id for message in self._memory.messages(conversation_id) or []):
            return
        if all(message.id != message_id for message in self._memory.branch_of(conversation_id) or []):
            self._memory.set_leaf(conversation_id, message_id)
            self.branch_changed.emit(conversation_id, message_id)
        self.message_wanted.emit(message_id, text)
