"""The message that a chat sends next, written while its answer is still running. One for each chat, stored with it.

It is sent when the answer ends by itself. If the answer fails or is stopped, the message returns to the composer, since
it was written in expectation of that answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal

from app.chat.answers.answer_queue import Answer, AnswerQueue
from app.chat.chat_memory import ChatMemory
from app.chat.store.conversation import Attachment, CallState, MessageState, Unsent
from app.translation import tr

# Calls back with what of a message's attachments the context of its chat has room for.
Cut = Callable[[str, Unsent, Callable[[tuple[Attachment, ...]], None]], None]
_ENDED_BY_ITSELF = {MessageState.COMPLETE, MessageState.LENGTH}


class NextMessage(QObject):
    """All signals but `due` concern the open chat."""

    shown = Signal(object)  # the Unsent that waits, or None
    returned = Signal(object, bool)  # Unsent for the composer; whether to send it once its attachments are counted
    due = Signal(str, str, object)  # chat, text, attachments: to send now
    said = Signal(str, object)  # text for a toast, and what undoes the action

    def __init__(self, memory: ChatMemory, answers: AnswerQueue, cut: Cut) -> None:
        """cut: measures the attachments of a message in a chat that is not open."""
        super().__init__()
        self._cut = cut
        self._memory, self._answers = memory, answers
        self._open = ""
        self._ending = False
        answers.ended.connect(self._answer_ended)

    def of(self, chat: str) -> Unsent | None:
        conversation = self._memory.conversation(chat)
        return conversation.queued if conversation is not None else None

    def show(self, chat: str) -> None:
        """Switch to another chat. A message left by an answer that failed meanwhile returns to its composer."""
        self._open = chat
        if self._answers.of(chat) is None and not self._goes_on(chat):
            self.take_back()
        self.shown.emit(self.of(chat))

    def add(self, chat: str, text: str, attachments: tuple[Attachment, ...]) -> None:
        """Let a message wait, as another paragraph of the waiting one."""
        self._set(chat, (self.of(chat) or Unsent("")).and_then(text, attachments))

    def take_back(self) -> None:
        """Return the open chat's waiting message to the composer."""
        if (queued := self._take(self._open)) is not None:
            self.returned.emit(queued, False)

    def remove(self) -> None:
        """Remove the open chat's waiting message."""
        chat, queued = self._open, self._take(self._open)
        if queued is not None:
            self.said.emit(tr("Message removed"), partial(self._put_back, chat, queued))

    def end(self) -> None:
        """End the program: a waiting message stays with its chat and is in the composer at the next start."""
        self._ending = True

    def _put_back(self, chat: str, queued: Unsent) -> None:
        if self._answers.of(chat) is not None:
            self.add(chat, queued.text, queued.attachments)
        elif chat == self._open:
            self.returned.emit(queued, False)
        elif self._memory.conversation(chat) is not None:
            self._set(chat, queued)

    def _set(self, chat: str, queued: Unsent | None) -> None:
        self._memory.set_queued(chat, queued)
        if chat == self._open:
            self.shown.emit(queued)

    def _take(self, chat: str) -> Unsent | None:
        if (queued := self.of(chat)) is not None:
            self._set(chat, None)
        return queued

    def _answer_ended(self, answer: Answer) -> None:
        chat = answer.conversation_id
        if self._ending or self.of(chat) is None:
            return
        if answer.message.state in _ENDED_BY_ITSELF:
            QTimer.singleShot(0, self, partial(self._send, chat))  # after all listeners have seen the end
        elif chat == self._open:
            self.take_back()

    def _send(self, chat: str) -> None:
        queued = self.of(chat)
        if queued is None or self._ending or self._answers.of(chat) is not None or self._goes_on(chat):
            return
        if not queued.attachments:
            self._take(chat)
            self.due.emit(chat, queued.text, ())
        elif chat == self._open:  # the composer shows how much of them fits into the context
            self._take(chat)
            self.returned.emit(queued, True)
        else:
            self._cut(chat, queued, partial(self._send_cut, chat, queued))

    def _goes_on(self, chat: str) -> bool:
        """Whether the model will continue once the calls of its last answer have ended."""
        shown = self._memory.branch_of(chat) or []
        return any(call.state is not CallState.NOT_RUN for last in shown[-1:] for call in last.calls)

    def _send_cut(self, chat: str, queued: Unsent, attachments: tuple[Attachment, ...]) -> None:
        if not self._ending and self.of(chat) == queued and self._answers.of(chat) is None:
            self._take(chat)
            self.due.emit(chat, queued.text, attachments)
