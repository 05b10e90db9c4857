"""Which problem the window tells of: each belongs to a chat or to none, and goes when it is solved or closed.

The newest one that belongs to what is shown is the one to show; the others wait. Knows no widget.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.user_messages import UserMessage

ANYWHERE = None  # in place of a chat's id: the problem is no single chat's


class Problems(QObject):
    """shown: the message to show now, where another one was. none: nothing is to be shown any more."""

    shown = Signal(UserMessage)
    none = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[str, str | None], UserMessage] = {}  # the newest last
        self._chat = ""
        self._now: tuple[str, str | None] | None = None

    def tell(self, what: str, message: UserMessage, chat: str | None = ANYWHERE) -> None:
        """There is a problem. what: its kind; a newer one of a kind and chat takes the place of the older.

        chat: id of the chat that it is shown with, "" for a chat that is not stored yet.
        """
        key = (what, chat)
        self._known.pop(key, None)
        self._known[key] = message
        if self._belongs(key):
            self._now = key
            self.shown.emit(message)

    def solve(self, *kinds: str, chat: str | None = ANYWHERE) -> None:
        """Problems of these kinds are over: those of a chat, or those of no chat."""
        for what in kinds:
            self._known.pop((what, chat), None)
        self._choose()

    def close(self) -> None:
        """The person has closed the one that is shown."""
        if self._now is not None:
            self._known.pop(self._now, None)
            self._choose()

    def show_chat(self, chat: str) -> None:
        """This chat is in view now; "" for a new one."""
        self._chat = chat
        self._choose()

    def forget_chat(self, chat: str) -> None:
        """A chat is gone, and with it what troubled it."""
        for key in [key for key in self._known if key[1] == chat]:
            del self._known[key]
        self._choose()

    def _belongs(self, key: tuple[str, str | None]) -> bool:
        return key[1] in (ANYWHERE, self._chat)

    def _choose(self) -> None:
        now = next((key for key in reversed(self._known) if self._belongs(key)), None)
        if now == self._now:
            return
        self._now = now
        if now is None:
            self.none.emit()
        else:
            self.shown.emit(self._known[now])
