"""The dialog of deleted chats, to restore or erase."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.chat.chat_memory import BIN_DAYS
from app.chat.store.conversation import UNTITLED, BinnedChat
from app.translation import figure, tr, tr_n
from app.ui.look import theme
from app.ui.widgets.controls import Button, IconButton, Label
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.floating import confirm

MOST_ROWS = 100  # rows that are built; a fuller bin is emptied as a whole


def days_left(deleted_at: float, now: float) -> int:
    """Return the days until a chat is erased, at least 0. Times in seconds since the epoch."""
    return max(math.ceil(BIN_DAYS - max(now - deleted_at, 0) / (24 * 3600)), 0)


class BinRow(QFrame):
    """Title and remaining time of a chat, with buttons to restore and erase it."""

    def __init__(self, chat: BinnedChat, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        title = chat.conversation.title or tr(UNTITLED)
        left = days_left(chat.deleted_at, time.time())
        self.restore = Button(tr("Restore"))
        self.restore.setAccessibleName(tr("Restore “{title}”", title=title))
        self.erase = IconButton("trash", tr("Delete “{title}” for good", title=title))
        words = QVBoxLayout()
        words.setSpacing(theme.px(2))
        words.addWidget(Label(title, "row", "ink", elide=True))
        words.addWidget(Label(tr_n("{n} day left", "{n} days left", left, n=figure(left)), "meta"))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(theme.px(6))
        row.addLayout(words, 1)
        row.addWidget(self.restore)
        row.addWidget(self.erase)


class BinDialog(Dialog):
    """restore_requested: restore a chat. erase_requested: erase these chats for good."""

    restore_requested = Signal(str)
    erase_requested = Signal(list)

    def __init__(self, parent: QWidget, chats: Sequence[BinnedChat]) -> None:
        super().__init__(parent, tr("Bin"), "", 480)
        self._chats = {chat.conversation.id: chat for chat in chats}
        self.rows: dict[str, BinRow] = {}
        self._more = Label("", "meta", wrap=True)
        self.body.addWidget(self._more)
        self.empty = self.add_button(Button(tr("Empty the bin"), "danger"), at_start=True)
        self.empty.clicked.connect(self._ask_to_empty)
        self.close_button = self.add_close()
        self._fill()

    def _fill(self) -> None:
        """Fill in the rows of the most recently deleted chats."""
        for chat_id, chat in list(self._chats.items())[:MOST_ROWS]:
            if chat_id not in self.rows:
                row = self.rows[chat_id] = BinRow(chat)
                row.restore.clicked.connect(partial(self._restore, chat_id))
                row.erase.clicked.connect(partial(self._ask_to_erase, chat_id))
                self.body.insertWidget(self.body.count() - 1, row)
        more = len(self._chats) - len(self.rows)
        self._more.setText(tr_n("And {n} more chat", "And {n} more chats", more, n=figure(more)))
        self._more.setVisible(more > 0)
        self.empty.setVisible(bool(self._chats))
        kept = tr_n(
            "Deleted chats are kept for {n} day. Searches and exports leave them out.",
            "Deleted chats are kept for {n} days. Searches and exports leave them out.",
            BIN_DAYS,
        )
        self.say(kept if self._chats else tr("The bin is empty."))

    def _take_away(self, chat_ids: Sequence[str]) -> None:
        self.close_button.setFocus()  # the pressed button is removed
        for chat_id in chat_ids:
            del self._chats[chat_id]
            if row := self.rows.pop(chat_id, None):
                self.body.removeWidget(row)
                row.hide()
                row.deleteLater()
        self._fill()

    def _restore(self, chat_id: str) -> None:
        self._take_away([chat_id])
        self.restore_requested.emit(chat_id)

    def _ask_to_erase(self, chat_id: str) -> None:
        title = self._chats[chat_id].conversation.title or tr(UNTITLED)
        self._ask(tr("Delete “{title}” for good?", title=title), tr("It cannot be restored afterwards."), [chat_id])

    def _ask_to_empty(self) -> None:
        count = len(self._chats)
        title = tr_n("Delete {n} chat for good?", "Delete {n} chats for good?", count, n=figure(count))
        self._ask(title, tr("What is in the bin cannot be restored afterwards."), list(self._chats))

    def _ask(self, title: str, sentence: str, chat_ids: list[str]) -> None:
        def erase() -> None:
            self._take_away(chat_ids)
            self.erase_requested.emit(chat_ids)

        confirm(self, title, sentence, tr("Keep"), tr("Delete"), erase)
