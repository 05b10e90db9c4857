"""How far back the model's context reaches in a chat, shown by one mark above the first message in it."""

from __future__ import annotations

from collections.abc import Sequence

from app.chat.answers.answer_settings import ids_sent
from app.chat.store.conversation import Message, Role
from app.ui.transcript.message_column import MessageColumn


class ContextReach:
    def __init__(self, column: MessageColumn) -> None:
        self._column = column
        # Id of the first kept message; number of dropped messages; number before them; the dropped messages; summary.
        self._marked: tuple[str, int, int, list[Message], str] | None = None

    def find(self) -> None:
        """Place the mark for the shown branch, from the newest answer that has the figure."""
        self._unmark()
        for message in reversed(self._column.messages):
            if self.hear(message):
                break

    def hear(self, answer: Message) -> bool:
        """Place the mark from a finished answer. Return False if it has no figure."""
        stats = answer.stats or {}
        if answer.role is not Role.ASSISTANT or stats.get("dropped_messages") is None:
            return False
        count = int(stats["dropped_messages"]) + int(stats.get("summarised") or 0)
        self.set_dropped(answer.id, count, int(stats.get("dropped_at") or 0), str(stats.get("summary") or ""))
        return True

    def set_dropped(self, message_id: str, count: int, at: int = 0, summary: str = "") -> None:
        """Mark where the context of that answer begins: `count` sent messages after the first `at` were dropped.

        summary: what the model reads instead of them.
        """
        self._unmark()
        question = self._question_of(message_id)
        if question and count:
            before = self._column.messages[: self._column.index(question) + 1]
            said = ids_sent(before, question)  # a message with calls is sent as several
            kept = said[at + count] if len(said) > at + count else question
            gone = set(said[at : at + count]) - {kept}
            dropped = [message for message in before if message.id in gone]
            self._marked = (kept, len(dropped), len(set(said[:at])), dropped, summary)
        self.show()

    def _unmark(self) -> None:
        if self._marked is not None:
            self._tell(self._marked[0], 0)
        self._marked = None

    def show(self) -> None:
        """Show the mark, if the view below it is built."""
        if self._marked is not None:
            self._tell(*self._marked)

    def _question_of(self, message_id: str) -> str | None:
        messages = self._column.messages
        before = range(self._column.index(message_id) - 1, -1, -1)
        return next((messages[i].id for i in before if messages[i].role is Role.USER), None)

    def _tell(self, message_id: str, count: int, at: int = 0, messages: Sequence[Message] = (),
              summary: str = "") -> None:  # fmt: skip
        view = self._column.view(message_id)
        if view is not None:
            view.set_dropped(count, at, messages, summary)
