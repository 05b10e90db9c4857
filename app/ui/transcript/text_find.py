"""Search in the shown chat: marks all matches and moves the view from one to the next.

app/chat/chat_find.py counts matches; this module marks them in built texts and unfolds what hides them. Both run in
slices of the GUI thread, so that a chat of any length can be searched while typing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QRect, QTimer, Signal
from PySide6.QtWidgets import QWidget
from shiboken6 import isValid

from app.chat.chat_find import ChatFind, Match, Spot
from app.chat.store.conversation import MessageState, Role
from app.later import Later
from app.ui.transcript.message_view import MessageView
from app.ui.transcript.selection.copied_text import span
from app.ui.transcript.selection.selectable import SelectableText

if TYPE_CHECKING:
    from app.ui.transcript import answer_view
    from app.ui.transcript.message_column import MessageColumn
else:
    answer_view = Later("app.ui.transcript.answer_view")

SLICE_S = 0.008
BUILDING_MS = 15  # between two checks whether the match is built
GROW_MS = 400  # between two counts of an answer in progress


class TextFind(QObject):
    """The search in one transcript.

    changed: the text, the count or the current match changed. go: scrolls a message, by index, to the top of the view.
    show: scrolls a part of a text into view. top: returns the index of the first visible message.
    """

    changed = Signal()

    def __init__(
        self,
        parent: QObject,
        column: MessageColumn,
        go: Callable[[int], None],
        show: Callable[[QWidget, QRect], None],
        top: Callable[[], int],
    ) -> None:
        super().__init__(parent)
        self._column, self._go, self._show, self._top = column, go, show, top
        self._find = ChatFind()
        self._only = ""  # id of the only message to search
        self._is_on = False
        self.text = ""
        self._spot: Spot | None = None  # the first match from here on becomes the current one
        self._current: Match | None = None
        self._place: tuple[SelectableText, int] | None = None  # of the current match
        self._wanted: bool | None = None  # look for the current match in its view; True: and scroll to it
        self._unmarked: deque[SelectableText] = deque()
        self._said: tuple[object, ...] = ()
        self._slices = self._timer(self._run)
        self._growing = self._timer(self._grow)
        self._settling = self._timer(self._show_place)

    def _timer(self, then: Callable[[], None]) -> QTimer:
        timer = QTimer(self, singleShot=True)
        timer.timeout.connect(then)
        return timer

    # --- results

    @property
    def is_on(self) -> bool:
        """Whether a search is active."""
        return self._is_on

    @property
    def is_counting(self) -> bool:
        """Whether `total` may still grow."""
        return bool(self._find.needle) and self._find.share < 1

    @property
    def is_in_one_message(self) -> bool:
        """Whether only the message of an opened search result is searched."""
        return bool(self._only)

    @property
    def is_opening(self) -> bool:
        """Whether the current match is still being built, far down in a long message."""
        return bool(self._wanted)

    @property
    def share(self) -> float:
        """The searched share of the chat, 0 to 1."""
        return self._find.share

    @property
    def total(self) -> int:
        """The number of matches."""
        return self._find.total

    @property
    def number(self) -> int:
        """The number of the current match, from 1; 0 for none."""
        return self._find.number(self._current) if self._current is not None else 0

    # --- searching

    def seek(self, text: str, only: str = "") -> None:
        """Mark a text, in all messages or in message `only`, and go to the first match from here on.

        In all messages, that starts at the current match, else at the first visible message.
        """
        if self._is_on and (text, only) == (self.text, self._only):
            return
        spot = self._find.spot(self._current) if self._current is not None else None
        first_in_view = self._column.messages[self._top()].id if self._column.messages else ""
        self._is_on, self.text, self._only = True, text, only
        self._take_messages()
        answer = only and self._column.messages[self._column.index(only)].role is Role.ASSISTANT
        # For a search result, search the answer first, because its thought is folded.
        self._spot = Spot(only, 1 if answer else 0) if only else spot or Spot(first_in_view)
        self._find.seek(text, self._spot.message)
        self._set_current(None)
        self._mark_all()
        self._run()

    def step(self, by: int) -> None:
        """Go to the next match (1) or the previous one (-1), wrapping around."""
        if self._current is None:
            return
        self._set_current(self._find.beside(self._current, by), in_view=True)
        self._run()

    def clear(self) -> None:
        """End the search and forget the chat's text."""
        if not self._is_on:
            return
        self._is_on, self.text, self._only, self._spot = False, "", "", None
        self._find = ChatFind()
        self._set_current(None)
        self._mark_all()
        self._run()

    # --- changes of the chat

    def sync(self) -> None:
        """Search again after messages were added, removed or changed."""
        if self._is_on:
            self._take_messages()
            if self._current is not None and self._current.message not in {m.id for m in self._column.messages}:
                self._set_current(None)
            self._slices.start(0)

    def grew(self) -> None:
        """Search the new text of an answer in progress."""
        if self._is_on and not self._only and not self._growing.isActive():
            self._growing.start(GROW_MS)

    def _grow(self) -> None:
        column = self._column
        for view in column.views[-2:]:
            if isinstance(view, answer_view.AnswerView) and view.is_writing and self._is_on:
                self._find.put(column.as_it_stands(column.index(view.message.id)), view.pieces())
                self._slices.start(0)

    def _take_messages(self) -> None:
        column = self._column
        self._find.take(
            [column.as_it_stands(index) for index, m in enumerate(column.messages) if self._only in ("", m.id)]
        )
        if any(m.state is MessageState.WRITING for m in column.messages[-2:]):
            self._grow()

    # --- marks

    def show_in(self, view: MessageView) -> None:
        """Mark the matches in a message that was just built or has changed."""
        if not self._is_on:
            return
        for text in view.searched():
            self._mark(text)
        if self._current is not None and self._current.message == view.message.id and self._wanted is None:
            self._wanted = False
            self._slices.start(0)

    def _mark_all(self) -> None:
        """Mark all built texts again, visible ones first."""
        column, top = self._column, self._top() - self._column.first
        views = [*column.views[max(top, 0) :], *reversed(column.views[: max(top, 0)])]
        self._unmarked = deque(text for view in views for text in view.searched())

    def _mark(self, text: SelectableText) -> None:
        place = self._place
        mine = not self._only or any(
            text in view.searched() for view in self._column.views if view.message.id == self._only
        )
        text.seek(self._find.needle if mine else "", place[1] if place is not None and place[0] is text else -1)

    def found_in(self, text: SelectableText) -> list[tuple[int, int]]:
        self._mark(text)
        return text.found()

    def count_in(self, pieces: Sequence[str]) -> int:
        """Return the number of matches in plain texts."""
        return self._find.count_in(pieces)

    def _set_current(self, match: Match | None, in_view: bool = False) -> None:
        before, self._place = self._place, None
        self._current, self._wanted = match, in_view if match is not None else None
        if before is not None and isValid(before[0]):
            self._mark(before[0])

    # --- slices

    def _run(self) -> None:
        until = time.perf_counter() + SLICE_S
        more, known = True, -1
        while more and time.perf_counter() < until:
            more = self._is_on and self._find.step()
            # otherwise only matches before the spot may have been found
            is_news = not more or self._find.total != known
            if self._spot is not None and self._current is None and self._find.total and is_news:
                known = self._find.total
                first = self._find.first_from(self._spot)
                if first is not None:
                    self._spot = None
                    self._set_current(first, in_view=True)
        if not more:
            self._spot = None
            if self._current is not None and not self._find.holds(self._current):
                self._set_current(None)
        while self._unmarked and time.perf_counter() < until:
            text = self._unmarked.popleft()
            if isValid(text):
                self._mark(text)
        if self._wanted is not None:
            self._find_place(self._wanted)
        if more or self._unmarked:
            self._slices.start(0)
        elif self._wanted is not None:
            self._slices.start(BUILDING_MS)
        said = (self._is_on, self.text, self.total, self._current, self.is_counting, self.is_opening, self.share)
        if said != self._said:
            self._said = said
            self.changed.emit()

    def _find_place(self, in_view: bool) -> None:
        """Build and unfold what hides the current match, mark it, and scroll to it."""
        match, column = self._current, self._column
        if match is None or (index := column.index(match.message)) < 0:
            self._wanted = None
            return
        view = column.view(match.message)
        if view is None:
            if not in_view:
                self._wanted = None  # it is marked when it becomes visible
                return
            self._go(index)
            view = column.view(match.message)
            if view is None:
                return
        place = view.reveal(match.piece, match.nth, self)
        if place is None:
            return
        self._wanted = None
        text, nth = place
        nth = max(min(nth, len(self.found_in(text)) - 1), 0)
        self._place = (text, nth)
        self._mark(text)
        if in_view:
            self._show_place()
            self._settling.start(0)  # unfolded parts have their position only after the event loop turns

    def _show_place(self) -> None:
        """Scroll to the current match."""
        if self._place is None or not isValid(self._place[0]):
            return
        text, nth = self._place
        start, end = text.found()[nth] if nth < len(text.found()) else (0, 0)
        first, last = (text.cursorRect(span(text.document(), at, at)) for at in (start, end))
        self._show(text, first.united(last) if first.y() == last.y() else first)
