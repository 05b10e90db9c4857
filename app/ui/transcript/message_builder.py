"""Builds the messages of a transcript near the view, in slices of idle time, and removes those far from it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from app.later import Later
from app.ui.transcript.message_column import MessageColumn

if TYPE_CHECKING:
    from app.ui.transcript import answer_view
else:
    answer_view = Later("app.ui.transcript.answer_view")

NEWEST = 60  # messages that are built soon after a chat opens
BATCH = 20  # built when the user scrolls towards them
MOST_BUILT = 120  # beyond this, those farthest from the view are removed
# Before anything else, build enough messages to fill the view this many times, within these limits; an answer with a
# table and code takes 10 ms. If the time is not enough, the next slices continue, and the view is painted after them.
AT_ONCE, VIEWS_AT_ONCE, AT_ONCE_S = 12, 1.5, 0.02
SLICE_S = 0.008  # of the GUI thread per slice for the others


class MessageBuilder(QObject):
    """built: messages were built or removed, so the view must be put in place again."""

    built = Signal()

    def __init__(self, column: MessageColumn, top: Callable[[], int]) -> None:
        """top: returns the height in the column where the viewport begins, px."""
        super().__init__(column)
        self._column, self._top = column, top
        self._above = self._below = 0  # messages to build before and after the built ones
        self._unfilled = 0  # px of the view that nothing is built for yet
        self._fills_above = False  # the view is filled from its end upwards
        self.timer = QTimer(self, singleShot=True)
        self.timer.timeout.connect(self._build_slice)

    @property
    def is_busy(self) -> bool:
        """Whether messages are still to be built."""
        return self.timer.isActive()

    @property
    def is_filling(self) -> bool:
        """Whether messages are still to be built before the view can be painted."""
        return self._unfilled > 0 and self.timer.isActive()

    def build_end(self, view_height: int) -> None:
        """Build the newest messages, in slices: those that fill the view first, then up to NEWEST."""
        column = self._column
        column.first = len(column.messages)
        self._fill(view_height, above=True)
        column.fit_room()
        self.mark_last()
        self.want(NEWEST - len(column.views), 0)

    def fill_below(self, view_height: int) -> None:
        """Build messages after the built ones until the view is filled. The caller requests the next slices."""
        self._fill(view_height, above=False)

    def _fill(self, view_height: int, above: bool) -> None:
        self._unfilled, self._fills_above = int(VIEWS_AT_ONCE * view_height), above
        until = time.thread_time() + AT_ONCE_S
        for _ in range(AT_ONCE):
            if not self._build_to_fill() or time.thread_time() >= until:
                return
        self._unfilled = 0

    def _build_to_fill(self) -> bool:
        """Build the next message that fills the view. Return False if it is filled, or none is left."""
        column = self._column
        left = column.first if self._fills_above else len(column.messages) - column.last
        if left <= 0:
            self._unfilled = 0
        if self._unfilled > 0:
            view = column.build_above() if self._fills_above else column.build_below()
            self._above -= self._fills_above
            self._below -= not self._fills_above
            self._unfilled -= view.sizeHint().height()
        return self._unfilled > 0

    def want(self, above: int, below: int) -> None:
        """Request further messages before and after the built ones, in slices."""
        self._above = min(above, self._column.first)
        self._below = min(below, len(self._column.messages) - self._column.last)
        self.timer.start(0)

    def shed(self, view_height: int) -> None:
        """Before a change of theme, remove the messages out of view; they are built again in slices.

        A new style sheet costs 0.35 ms per widget: 60 messages would take half a second.
        """
        column, top = self._column, self._top()
        seen = range(column.first_visible(top), column.first_visible(top + view_height) + 1)
        kept = [index for index, view in enumerate(column.views) if index in seen or column.is_in_use(view)]
        above = kept[0] if kept else 0
        below = len(column.views) - 1 - kept[-1] if kept else 0
        column.drop_below(below, at_once=True)
        column.drop_above(above, at_once=True)
        if above or below:
            column.fit_room()
            self.want(max(self._above, 0) + above, max(self._below, 0) + below)

    def mark_last(self) -> None:
        """Tell the answers at the end what follows them."""
        column = self._column
        for index, view in enumerate(column.views[-3:], start=column.first + max(len(column.views) - 3, 0)):
            if isinstance(view, answer_view.AnswerView):
                column.mark_place(view, index)

    def _build_slice(self) -> None:
        column, filling = self._column, self._unfilled > 0
        until = time.perf_counter() + (AT_ONCE_S if filling else SLICE_S)
        while filling and self._build_to_fill() and time.perf_counter() < until:
            pass
        while not filling and (self._above > 0 or self._below > 0):
            if self._above > 0 and column.first:
                self._above -= 1
                column.build_above()
            else:
                self._above = 0
            if self._below > 0 and column.last < len(column.messages):
                self._below -= 1
                column.build_below()
            else:
                self._below = 0
            if time.perf_counter() >= until:
                self.timer.start(0)  # if that was the last one, the next slice does nothing
                break
        else:
            if not filling:
                self._remove_the_farthest()
        if filling:
            self.timer.start(0)
        column.fit_room()
        self.mark_last()
        self.built.emit()

    def _remove_the_farthest(self) -> None:
        """Remove the messages farthest from the view beyond MOST_BUILT, except those in use."""
        column = self._column
        too_many = len(column.views) - MOST_BUILT
        if too_many <= 0:
            return
        seen = column.first_visible(self._top())
        if seen > len(column.views) // 2:
            going = column.views[: min(too_many, max(seen - BATCH, 0))]
        else:
            going = column.views[max(len(column.views) - too_many, seen + BATCH) :]
        if going and not any(column.is_in_use(view) for view in going):
            if going[0] is column.views[0]:
                column.drop_above(len(going))
            else:
                column.drop_below(len(going))
