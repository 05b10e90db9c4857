"""The model of the sidebar's list: pinned chats, folders, chats by date, or search results."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

from PySide6.QtCore import QModelIndex, QStringListModel, Qt, QTimer, Signal
from PySide6.QtWidgets import QWidget

from app.chat.store.conversation import UNTITLED, Conversation, SearchHit
from app.translation import noted, tr, tr_n
from app.ui.look.painting import Index

FOLDER_LENGTH = 60  # longest name of a folder, in characters
FIRST_TIME = 3_000_000.0  # in February 1970: Windows knows no local time before 1970, which a wrong clock may state
MONTHS = (
    noted("January"), noted("February"), noted("March"), noted("April"), noted("May"), noted("June"), noted("July"),
    noted("August"), noted("September"), noted("October"), noted("November"), noted("December"),
)  # fmt: skip
REGROUP_MS = 600_000  # how often the list checks whether a new day has begun


PINNED, FOLDERS = noted("Pinned"), noted("Folders")


class ChatRow(NamedTuple):
    """A chat in the list; for a search result, with the passage, its message and the marks."""

    conversation: Conversation
    snippet: str = ""
    marks: tuple[tuple[int, int], ...] = ()
    title_marks: tuple[tuple[int, int], ...] = ()
    message_id: str = ""
    folder: str = ""  # the folder it is shown in; empty for a pinned chat

    @property
    def title(self) -> str:
        return self.conversation.title or tr(UNTITLED)


@dataclass(frozen=True)
class FolderRow:
    """The title of a folder, above its chats while it is expanded."""

    name: str
    count: int
    is_open: bool = True


Row = str | ChatRow | FolderRow


def folders_of(conversations: Sequence[Conversation], projects: Set[str] = frozenset()) -> list[str]:
    """Return the names of all folders in alphabetical order. projects: folders that exist without a chat too."""
    names = projects | {c.folder for c in conversations if c.folder}
    return sorted(names, key=lambda name: (name.casefold(), name))


def grouped(
    conversations: Sequence[Conversation],
    today: date,
    closed: Set[str] = frozenset(),
    projects: Set[str] = frozenset(),
) -> list[Row]:
    """Return the rows: pinned chats, folders, then the others by date, newest first.

    closed: names of the collapsed folders. projects: those of the folders with settings.
    """
    newest = sorted(conversations, key=lambda c: c.updated_at, reverse=True)
    rows: list[Row] = [ChatRow(c) for c in newest if c.pinned]
    if rows:
        rows.insert(0, tr(PINNED))
    loose = [c for c in newest if not c.pinned]
    if names := folders_of(newest, projects):
        rows.append(tr(FOLDERS))
        inside: dict[str, list[Conversation]] = {name: [] for name in names}
        for c in loose:
            if c.folder:
                inside[c.folder].append(c)
        for name in names:
            rows.append(FolderRow(name, len(inside[name]), name not in closed))
            rows += [ChatRow(c, folder=name) for c in inside[name] if name not in closed]
    return rows + _by_date([c for c in loose if not c.folder], today)


def _by_date(newest_first: Sequence[Conversation], today: date) -> list[Row]:
    rows: list[Row] = []
    since = math.inf  # where the current group begins
    for conversation in newest_first:
        if conversation.updated_at < since:
            words, since = _group_of(conversation.updated_at, today)
            rows.append(words)
        rows.append(ChatRow(conversation))
    return rows


def _group_of(when: float, today: date) -> tuple[str, float]:
    """Return the date heading for a time, and the earliest time that it covers."""
    midnight = datetime(today.year, today.month, today.day).astimezone()
    for days, words in ((0, tr("Today")), (1, tr("Yesterday")), (7, tr("Last 7 days"))):
        since = (midnight - timedelta(days=days)).timestamp()
        if when >= since:
            return words, since
    day = time.localtime(max(when, FIRST_TIME))
    month = tr(MONTHS[day.tm_mon - 1])
    words = month if day.tm_year == today.year else tr("{month} {year}", month=month, year=day.tm_year)
    if when < FIRST_TIME:
        return words, -math.inf
    return words, time.mktime((day.tm_year, day.tm_mon, 1, 0, 0, 0, 0, 0, -1))


class ChatModel(QStringListModel):
    """Headings, folders and chats as one flat list. A rename shows at once and is emitted.

    It derives from Qt's own list model: a view that lays out 5,000 chats asks 10,000 times for their number.
    """

    renamed = Signal(str, str)  # a chat
    folder_renamed = Signal(str, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows: list[Row] = []
        self.closed: frozenset[str] = frozenset()  # collapsed folders
        self.projects: frozenset[str] = frozenset()  # folders with settings
        self.running = ""  # id of the chat that is being answered
        self.waiting: frozenset[str] = frozenset()  # ids of the chats that wait for the user
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

    @property
    def conversations(self) -> list[Conversation]:
        """All chats, also during a search, newest first."""
        return sorted(self._conversations, key=lambda c: c.updated_at, reverse=True)

    def conversation(self, conversation_id: str) -> Conversation | None:
        """Return a chat, whether or not its row is shown."""
        return next((c for c in self._conversations if c.id == conversation_id), None)

    @property
    def folders(self) -> list[str]:
        """The names of all folders in alphabetical order."""
        return folders_of(self._conversations, self.projects)

    def set_closed(self, folders: Iterable[str]) -> None:
        """Set the collapsed folders."""
        self.closed = frozenset(folders)
        if not self.searching:
            self._show()

    def set_projects(self, folders: Iterable[str]) -> None:
        """Set the folders with settings, which are listed without a chat too."""
        self.projects = frozenset(folders)
        if not self.searching:
            self._show()

    def set_conversations(self, conversations: Sequence[Conversation]) -> None:
        self._conversations = list(conversations)
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

    def set_waiting(self, conversation_id: str, waits: bool) -> None:
        if waits != (conversation_id in self.waiting):
            self.waiting ^= {conversation_id}
            if (index := self.index_of(conversation_id)).isValid():
                self.dataChanged.emit(index, index)

    def regroup(self) -> None:
        """Group again if a new day has begun."""
        if self.today() != self._day and not self.searching:
            self._show()

    def _show(self) -> None:
        self._day = self.today()
        rows: list[Row]
        if self._hits is None:
            rows = grouped(self._conversations, self._day, self.closed, self.projects)
        else:
            known = {one.id: one for one in self._conversations}  # without chats that were deleted since
            rows = [_hit_row(hit, known[hit.conversation.id]) for hit in self._hits if hit.conversation.id in known]
        if not _moved(self.rows, rows):
            # no reset, so that scroll position and cursor stay
            self.rows = rows
            if rows:
                self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
            return
        self.rows = rows
        self._places = {row.conversation.id: i for i, row in enumerate(rows) if isinstance(row, ChatRow)}
        self.setStringList([""] * len(rows))

    def chat(self, index: Index) -> ChatRow | None:
        """Return the chat of a row; None for other rows and outside the list."""
        row = self.row(index)
        return row if isinstance(row, ChatRow) else None

    def folder(self, index: Index) -> FolderRow | None:
        """Return the folder of a row; None for other rows."""
        row = self.row(index)
        return row if isinstance(row, FolderRow) else None

    def row(self, index: Index) -> Row | None:
        return self.rows[index.row()] if index.isValid() and index.row() < len(self.rows) else None

    def folder_index(self, name: str) -> QModelIndex:
        """Return the index of a folder, invalid if not shown."""
        place = next((i for i, row in enumerate(self.rows) if isinstance(row, FolderRow) and row.name == name), -1)
        return self.index(place) if place >= 0 else QModelIndex()

    def index_of(self, conversation_id: str) -> QModelIndex:
        """Return the index of a chat, invalid if not shown."""
        place = self._places.get(conversation_id)
        return QModelIndex() if place is None else self.index(place)

    def flags(self, index: Index) -> Qt.ItemFlag:
        if isinstance(self.row(index), str | None):
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEditable

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        row = self.rows[index.row()]
        if isinstance(row, str):
            return row if role in {Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole} else None
        if isinstance(row, FolderRow):
            return _folder_data(row, role)
        if role == Qt.ItemDataRole.DisplayRole:
            return row.title
        if role == Qt.ItemDataRole.EditRole:
            return row.conversation.title
        if role == Qt.ItemDataRole.AccessibleTextRole:
            title = row.title
            if row.conversation.id in self.waiting:
                title = tr("{title}, waiting for you", title=title)
            elif row.conversation.id == self.running:
                title = tr("{title}, writing", title=title)
            return f"{title}: {row.snippet}" if row.snippet else title
        return None

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        row, title = self.row(index), " ".join(str(value).split())
        if isinstance(row, FolderRow) and role == Qt.ItemDataRole.EditRole and title and title != row.name:
            self.folder_renamed.emit(row.name, title[:FOLDER_LENGTH])  # it moves in the list, so the next list shows it
            return True
        if (
            not isinstance(row, ChatRow)
            or role != Qt.ItemDataRole.EditRole
            or not title
            or title == row.conversation.title
        ):
            return False
        self.rows[index.row()] = row._replace(conversation=replace(row.conversation, title=title))
        self.dataChanged.emit(index, index)
        self.renamed.emit(row.conversation.id, title)
        return True


def _hit_row(hit: SearchHit, now: Conversation) -> ChatRow:
    """Return the row of a search result. now: the current state of the chat."""
    line = re.sub(r"\s", " ", hit.snippet)  # one for one, so that the marks stay valid
    title_marks = hit.title_marks if now.title == hit.conversation.title else ()
    return ChatRow(now, line, hit.marks, title_marks, hit.message_id)


def _folder_data(row: FolderRow, role: int) -> str | None:
    if role == Qt.ItemDataRole.AccessibleTextRole:
        chats = tr_n("{n} chat", "{n} chats", row.count)
        words = noted("{name}, folder, {chats}, open") if row.is_open else noted("{name}, folder, {chats}, closed")
        return tr(words, name=row.name, chats=chats)
    return row.name if role in {Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.EditRole} else None


def _moved(before: Sequence[Row], after: Sequence[Row]) -> bool:
    """Return whether other items are shown, or in another order; otherwise only their content differs."""
    return len(before) != len(after) or not all(map(_is_same, before, after))


def _is_same(a: Row, b: Row) -> bool:
    if isinstance(a, ChatRow):
        return isinstance(b, ChatRow) and a.conversation.id == b.conversation.id and a.folder == b.folder
    if isinstance(a, FolderRow):
        return isinstance(b, FolderRow) and a.name == b.name
    return a == b
