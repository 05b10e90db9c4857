"""The rows of the sidebar's list: chats grouped by date, or the hits of a search. It paints and stores nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt, QTimer, Signal
from PySide6.QtWidgets import QWidget

from app.conversation import Conversation, SearchHit

Index = QModelIndex | QPersistentModelIndex
UNTITLED = "New chat"
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")  # fmt: skip
REGROUP_MS = 600_000  # how often the list looks whether another day has begun


@dataclass(frozen=True)
class ChatRow:
    """A chat in the list; `snippet` is the passage that a search found."""

    conversation: Conversation
    snippet: str = ""

    @property
    def title(self) -> str:
        return self.conversation.title or UNTITLED


def grouped(conversations: Sequence[Conversation], today: date) -> list[str | ChatRow]:
    """Rows of the list, newest first: a word for the time, then its chats, and so on."""
    midnight = datetime(today.year, today.month, today.day).astimezone()

    def starts(days: int) -> float:
        return (midnight - timedelta(days=days)).timestamp()

    recent = ((starts(0), "Today"), (starts(1), "Yesterday"), (starts(7), "Last 7 days"))
    rows: list[str | ChatRow] = []
    head = ""
    for conversation in sorted(conversations, key=lambda c: c.updated_at, reverse=True):
        group = next((words for start, words in recent if conversation.updated_at >= start), "")
        if not group:
            day = datetime.fromtimestamp(conversation.updated_at).astimezone()
            month = MONTHS[day.month - 1]
            group = month if day.year == today.year else f"{month} {day.year}"
        if group != head:
            rows.append(group)
            head = group
        rows.append(ChatRow(conversation))
    return rows


class ChatModel(QAbstractListModel):
    """Section words and chats as one flat list. Renaming shows at once and is told by `renamed`."""

    renamed = Signal(str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows: list[str | ChatRow] = []
        self.running = ""  # id of the chat that is being answered
        self.today = date.today
        self._conversations: list[Conversation] = []
        self._hits: list[SearchHit] | None = None
        self._places: dict[str, int] = {}
        self._day = self.today()
        self._clock = QTimer(self)
        self._clock.setInterval(REGROUP_MS)
        self._clock.timeout.connect(self.regroup)
        self._clock.start()

    @property
    def searching(self) -> bool:
        return self._hits is not None

    def set_conversations(self, conversations: Sequence[Conversation]) -> None:
        self._conversations = list(conversations)
        if not self.searching:
            self._show()

    def set_hits(self, hits: Sequence[SearchHit] | None) -> None:
        self._hits = None if hits is None else list(hits)
        self._show()

    def set_running(self, conversation_id: str) -> None:
        old, self.running = self.running, conversation_id
        for one in (old, conversation_id):
            index = self.index_of(one)
            if index.isValid():
                self.dataChanged.emit(index, index)

    def regroup(self) -> None:
        """Group anew if another day has begun."""
        if self.today() != self._day and not self.searching:
            self._show()

    def _show(self) -> None:
        self._day = self.today()
        rows: list[str | ChatRow]
        if self._hits is None:
            rows = grouped(self._conversations, self._day)
        else:
            rows = [ChatRow(hit.conversation, " ".join(hit.snippet.split())) for hit in self._hits]
        if _shape(rows) == _shape(self.rows):
            # Nothing moved: no reset, so scroll position and cursor stay.
            self.rows = rows
            if rows:
                self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
            return
        self.beginResetModel()
        self.rows = rows
        self._places = {row.conversation.id: i for i, row in enumerate(rows) if isinstance(row, ChatRow)}
        self.endResetModel()

    def chat(self, index: Index) -> ChatRow | None:
        """The chat of a row; None for a section and for no row."""
        row = self.rows[index.row()] if index.isValid() and index.row() < len(self.rows) else None
        return row if isinstance(row, ChatRow) else None

    def index_of(self, conversation_id: str) -> QModelIndex:
        """The row of a chat, invalid if it is not shown."""
        place = self._places.get(conversation_id)
        return QModelIndex() if place is None else self.index(place)

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 - Qt's own signature
        return 0 if parent.isValid() else len(self.rows)

    def flags(self, index: Index) -> Qt.ItemFlag:
        if self.chat(index) is None:
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEditable

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row = self.rows[index.row()]
        if isinstance(row, str):
            return row if role in {Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole} else None
        if role == Qt.ItemDataRole.DisplayRole:
            return row.title
        if role == Qt.ItemDataRole.EditRole:
            return row.conversation.title
        if role == Qt.ItemDataRole.AccessibleTextRole:
            running = ", writing" if row.conversation.id == self.running else ""
            return f"{row.title}{running}" + (f": {row.snippet}" if row.snippet else "")
        return None

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        row, title = self.chat(index), " ".join(str(value).split())
        if row is None or role != Qt.ItemDataRole.EditRole or not title or title == row.conversation.title:
            return False
        self.rows[index.row()] = replace(row, conversation=replace(row.conversation, title=title))
        self.dataChanged.emit(index, index)
        self.renamed.emit(row.conversation.id, title)
        return True


def _shape(rows: Sequence[str | ChatRow]) -> list[str]:
    return [row if isinstance(row, str) else row.conversation.id for row in rows]
