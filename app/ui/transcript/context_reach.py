"""How far back the model reads in a chat, and the one mark that says so, above the first message that is kept.

It looks into the messages of a TurnColumn and tells the view of that message; it builds no view.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.chat.conversation import Message, Role
from app.ui.transcript.context_mark import sent
from app.ui.transcript.turn_column import TurnColumn


class ContextReach:
    """The mark of one transcript."""

    def __init__(self, turns: TurnColumn) -> None:
        self._turns = turns
        # Id of the first message that is kept; messages left out, those before them, and what is here of them.
        self._marked: tuple[str, int, int, list[Message]] | None = None

    def find(self) -> None:
        """Another chat, or another branch of it, is shown: its newest answer that tells of it decides."""
        self._unmark()
        for message in reversed(self._turns.messages):
            if self.hear(message):
                break

    def hear(self, answer: Message) -> bool:
        """Take what a finished answer tells; False: it tells nothing of it."""
        stats = answer.stats or {}
        if answer.role is not Role.ASSISTANT or stats.get("dropped_messages") is None:
            return False
        self.set_dropped(answer.id, int(stats["dropped_messages"]), int(stats.get("dropped_at") or 0))
        return True

    def set_dropped(self, message_id: str, count: int, at: int = 0) -> None:
        """Mark where the context of that answer begins: it was given without `count` messages behind the first `at`."""
        self._unmark()
        question = self._question_of(message_id)
        if question and count:
            said = sent(self._turns.messages[: self._turns.index(question)])
            kept = said[at + count].id if len(said) > at + count else question
            self._marked = (kept, count, at, said[at : at + count])
        self.show()

    def _unmark(self) -> None:
        if self._marked is not None:
            self._tell(self._marked[0], 0)
        self._marked = None

    def show(self) -> None:
        """Show the mark, if the view that it stands above is built."""
        if self._marked is not None:
            self._tell(*self._marked)

    def _question_of(self, message_id: str) -> str | None:
        messages = self._turns.messages
        before = range(self._turns.index(message_id) - 1, -1, -1)
        return next((messages[i].id for i in before if messages[i].role is Role.USER), None)

    def _tell(self, message_id: str, count: int, at: int = 0, messages: Sequence[Message] = ()) -> None:
        view = self._turns.view(message_id)
        if view is not None:
            view.set_dropped(count, at, messages)
