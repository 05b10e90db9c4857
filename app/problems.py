"""Decides which problem the window shows. Each belongs to one chat or to all, until it is solved or closed.

The newest problem of what is in view is shown; the others wait. Unsaved chats come before problems of no chat.
"""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.user_messages import UserMessage

ANYWHERE = None  # in place of a chat's id: the problem belongs to no chat
NOT_SAVED = ("store", ANYWHERE)


class Problems(QObject):
    """shown: the message to show now, if it changed. none: there is no message to show."""

    shown = Signal(UserMessage)
    none = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[str, str | None], UserMessage] = {}  # newest last
        self._chat = ""
        self._now: tuple[str, str | None] | None = None

    def report(self, what: str, message: UserMessage, chat: str | None = ANYWHERE) -> None:
        """Add a problem. It replaces the older one of the same kind and chat.

        chat: id of the chat that it belongs to; "" for a chat that is not stored yet.
        """
        key = (what, chat)
        self._known.pop(key, None)
        self._known[key] = message
        if key == self._now:
            self._now = None  # show the new message
        self._choose()

    def solve(self, *kinds: str, chat: str | None = ANYWHERE) -> None:
        """Remove the problems of these kinds: those of `chat`, or those of no chat."""
        for what in kinds:
            self._known.pop((what, chat), None)
        self._choose()

    def close(self) -> None:
        """Remove the shown problem: the user closed it."""
        if self._now is not None:
            self._known.pop(self._now, None)
            self._choose()

    def show_chat(self, chat: str) -> None:
        """Show the problems of this chat; "" for a new one."""
        self._chat = chat
        self._choose()

    def discard_chat(self, chat: str) -> None:
        """Remove all problems of a deleted chat."""
        for key in [key for key in self._known if key[1] == chat]:
            del self._known[key]
        self._choose()

    def _belongs(self, key: tuple[str, str | None]) -> bool:
        return key[1] in (ANYWHERE, self._chat)

    def _choose(self) -> None:
        now = next((key for key in reversed(self._known) if self._belongs(key)), None)
        if now is not None and now[1] is ANYWHERE and NOT_SAVED in self._known:
            now = NOT_SAVED
        if now == self._now:
            return
        self._now = now
        if now is None:
            self.none.emit()
        else:
            self.shown.emit(self._known[now])
