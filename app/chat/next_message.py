"""The message that a chat sends next, written while its answer is still on its way. One a chat, kept with the chat.

It is sent when the answer ends by itself. When the answer fails or is stopped, the message returns to the composer: it
was written in the belief that the answer would be there. It shows nothing and asks no engine.
"""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal

from app.chat.answers.answer_queue import Answer, AnswerQueue
from app.chat.chat_memory import ChatMemory
from app.chat.conversation import Attachment, MessageState, Unsent
from app.translation import tr

_ENDED_BY_ITSELF = {MessageState.COMPLETE, MessageState.LENGTH}


class NextMessage(QObject):
    """Every signal but `due` concerns the open chat."""

    shown = Signal(object)  # Unsent that waits, or None
    returned = Signal(object, bool)  # Unsent, for the composer; whether it is sent once its attachments are counted
    due = Signal(str, str)  # chat, text: to be sent now
    said = Signal(str, object)  # words for a note, and what undoes it

    def __init__(self, memory: ChatMemory, answers: AnswerQueue) -> None:
        super().__init__()
        self._memory, self._answers = memory, answers
        self._open = ""
        self._ending = False
        answers.ended.connect(self._answer_ended)

    def of(self, chat: str) -> Unsent | None:
        """What waits in a chat."""
        conversation = self._memory.conversation(chat)
        return conversation.queued if conversation is not None else None

    def show(self, chat: str) -> None:
        """Another chat is open. What was left over from an answer that failed meanwhile returns to its composer."""
        self._open = chat
        if self._answers.of(chat) is None:
            self.take_back()
        self.shown.emit(self.of(chat))

    def add(self, chat: str, text: str, attachments: tuple[Attachment, ...]) -> None:
        """Have this wait, as a further paragraph of what waits already."""
        self._set(chat, (self.of(chat) or Unsent("")).and_then(text, attachments))

    def take_back(self) -> None:
        """Return what waits in the open chat to its composer."""
        if (queued := self._take(self._open)) is not None:
            self.returned.emit(queued, False)

    def remove(self) -> None:
        """Drop what waits in the open chat."""
        chat, queued = self._open, self._take(self._open)
        if queued is not None:
            self.said.emit(tr("Message removed"), partial(self._put_back, chat, queued))

    def end(self) -> None:
        """The program ends: what waits stays with its chat, and is in the composer at the next start."""
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
            QTimer.singleShot(0, self, partial(self._send, chat))  # once everybody has heard of the end
        elif chat == self._open:
            self.take_back()

    def _send(self, chat: str) -> None:
        queued = self.of(chat)
        if queued is None or self._ending or self._answers.of(chat) is not None:
            return
        if not queued.attachments:
            self._take(chat)
            self.due.emit(chat, queued.text)
        elif chat == self._open:  # only there the engine is asked how much of them the context has room for
            self._take(chat)
            self.returned.emit(queued, True)
