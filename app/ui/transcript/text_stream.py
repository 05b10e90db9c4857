"""Collects the text of answers in progress and paints it at a limited rate."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from app.later import Later
from app.ui.transcript.message_column import MessageColumn

if TYPE_CHECKING:
    from app.ui.transcript import answer_view
else:
    answer_view = Later("app.ui.transcript.answer_view")

FLUSH_MS = 60
SLOWEST_FLUSH_MS = 250
PLAIN_TAIL = 2000  # characters of an unfinished block that is painted at the full rate


class TextStream(QObject):
    """flushed: collected text was painted."""

    flushed = Signal()

    def __init__(self, column: MessageColumn) -> None:
        super().__init__(column)
        self._column = column
        self._pending: dict[str, list[str]] = {}
        self.flushed_at = 0.0  # time.monotonic()
        self.timer = QTimer(self, singleShot=True)
        self.timer.timeout.connect(self.flush)

    def append(self, message_id: str, text: str) -> None:
        """Add text, to be painted by the next flush."""
        self._pending.setdefault(message_id, []).append(text)
        if not self.timer.isActive():
            self.timer.start(self.interval(message_id))

    def clear(self) -> None:
        """Forget text that is not painted, because another chat is shown."""
        self.timer.stop()
        self._pending.clear()

    def flush(self) -> None:
        self.timer.stop()
        if not self._pending:
            return
        self.flushed_at = time.monotonic()
        pending, self._pending = self._pending, {}
        for message_id, pieces in pending.items():
            self._column.add_text(message_id, "".join(pieces))
        self.flushed.emit()

    def flush_if_due(self) -> None:
        """Flush if the next flush is near, because something else of the answer is painted now."""
        since_ms = 1000 * (time.monotonic() - self.flushed_at)
        if self._pending and since_ms > self.interval(next(iter(self._pending))) - FLUSH_MS / 2:
            self.flush()

    def interval(self, message_id: str) -> int:
        """Return the ms between flushes: more for a long unfinished block, so that repainting stays a small share."""
        view = self._column.view(message_id)
        tail = view.tail_length if isinstance(view, answer_view.AnswerView) else 0
        return min(max(FLUSH_MS, FLUSH_MS * tail // PLAIN_TAIL), SLOWEST_FLUSH_MS)
