"""A model's thought before its answer: one row, and the text behind it, which opens on a click."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QRectF, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QTextCursor
from PySide6.QtWidgets import QWidget

from app.chat.answers.answer_labels import count, thought_text
from app.text.markdown_blocks import displayable
from app.text.text_pages import LONGEST_LINE, broken, page_end
from app.translation import figure, tr
from app.ui.look import theme
from app.ui.look.direction import set_margins
from app.ui.transcript.folding_row import FoldingRow
from app.ui.transcript.text.more_row import MoreRow
from app.ui.transcript.text.text_view import TextView, set_line_height
from app.ui.widgets.controls import Dot, Label

INDENT, LINE = 14, 2
PAGE, PAGE_LINES = 20_000, 400  # characters and lines shown before the user asks for more


class _ThoughtText(TextView):
    """The thought's text, small and unformatted; grows at its end."""

    grown = Signal()  # the shown share has changed

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(tr("Thought"), parent)
        self._pieces: list[str] = []
        self._length = self._lines = 0
        self._end = 0  # how much of the text is in the document
        self._most, self._most_lines = PAGE, PAGE_LINES
        self._line = 0  # characters in the last line, to break endless words
        self._restyle()

    @property
    def has_text(self) -> bool:
        """Whether there is any text."""
        return self._length > 0

    @property
    def share_shown(self) -> float:
        """The shown share of the thought, 0 to 1."""
        return self._end / max(self._length, 1)

    def add(self, text: str) -> None:
        """Append text; only the last paragraph is laid out again."""
        shown = displayable(text)
        is_whole = self._end == self._length
        self._pieces.append(shown)
        self._length += len(shown)
        if is_whole:
            self._insert(shown)

    def set_text(self, text: str) -> None:
        shown = displayable(text)
        if shown != "".join(self._pieces):
            self._pieces, self._length = [shown], len(shown)
            self._restyle()

    def show_more(self) -> None:
        self._most, self._most_lines = self._most + PAGE, self._most_lines + PAGE_LINES
        self._insert("".join(self._pieces)[self._end :])

    def _insert(self, text: str) -> None:
        """Append text to the document, as far as the pages allow."""
        end = page_end(text, 0, max(self._most - self._end, 0), max(self._most_lines - self._lines, 0))
        if end:
            taken = text[:end]
            self._end += end
            self._lines += taken.count("\n")
            for line in broken(taken).splitlines(keepends=True):
                if self._line + len(line) > LONGEST_LINE and self._line:
                    line, self._line = "\n" + line, 0
                self._line = 0 if line.endswith("\n") else self._line + len(line)
                cursor = QTextCursor(self.document())
                cursor.movePosition(QTextCursor.MoveOperation.End)
                cursor.insertText(line)
        self.grown.emit()

    def _restyle(self) -> None:
        self.clear()  # so that it is laid out once
        self.document().setDefaultFont(theme.font("small"))
        colours = self.palette()
        colours.setColor(colours.ColorRole.Text, theme.colour("ink2"))
        self.setPalette(colours)
        set_line_height(self, "small")
        self._end = self._lines = self._line = 0
        self._insert("".join(self._pieces))


class ThoughtView(FoldingRow):
    """Open while the model thinks, closed when its answer begins, unless the user has toggled it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._dot = Dot("hot_fill", working=True)
        self._tokens = Label("", "meta")
        self.words = _ThoughtText()
        self._left = MoreRow()
        self._left.hide()
        self._left.clicked.connect(self.words.show_more)
        self.words.grown.connect(self._show_left)
        self.inside.addWidget(self.words)
        self.inside.addWidget(self._left)
        self.row.addWidget(self._dot)
        self.row.addWidget(self._tokens, 1)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self.set_open(False)

    def set_width(self, width: int) -> None:
        """Lay the text out for a column of that width."""
        self.words.set_width(max(width - theme.px(INDENT + LINE), theme.px(40)))

    def _show_left(self) -> None:
        share = self.words.share_shown
        note = tr("{share}% of this thought is shown. Export includes all of it.", share=figure(100 * share, ".0f"))
        self._left.show_text(tr("Show more"), note)
        self._left.setVisible(share < 1 and self.words.has_text)

    def reveal(self, has_place: bool) -> bool:
        """Open the thought at once; if the shown text lacks the match, show one more page.

        has_place: whether the shown text has the match. Return whether there is nothing more to show.
        """
        self.chosen = True
        if not self.is_open:
            self.set_open(True)
            self.move_room(0)
        shown = has_place or self.words.share_shown == 1
        if not shown:
            self.words.show_more()
        return shown

    def begin(self) -> None:
        self._show(tr("Thinking"), "", working=True)
        if not self.chosen:
            self.set_open(True)

    def add(self, text: str) -> None:
        self.words.add(text if self.words.has_text else text.lstrip("\n"))
        self._dot.set_state("hot_fill", working=True)

    def set_text(self, text: str) -> None:
        self.words.set_text(text)

    def end(self, stats: Mapping[str, Any]) -> None:
        """End the thought. stats: thought_s and thought_tokens, if known."""
        tokens = stats.get("thought_tokens")
        self._show(thought_text(stats), count(int(tokens)) if tokens else "", working=False)
        if not self.chosen:
            self.set_open(False)

    def _show(self, words: str, tokens: str, working: bool) -> None:
        self.head.setText(words)
        self._dot.setVisible(working)
        self._tokens.setText(tokens)
        self._name()

    def _name(self) -> None:
        self.head.setAccessibleName(f"{self.head.text()}, {'shown' if self.is_open else 'hidden'}")
        self.head.setToolTip(tr("Hide the thought") if self.is_open else tr("Show the thought"))

    def set_open(self, shown: bool) -> None:
        super().set_open(shown)
        self._restyle()
        self._name()

    def _restyle(self) -> None:
        px = theme.px
        self.row.setSpacing(px(8))
        set_margins(self.inside, px(INDENT), px(2), 0, px(6), self.isRightToLeft())
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.room.isHidden():
            return
        place = self.words.geometry().translated(self.room.pos()).intersected(self.room.geometry())
        x = self.width() - theme.px(LINE) if self.isRightToLeft() else 0
        QPainter(self).fillRect(
            QRectF(x, place.y(), theme.px(LINE), place.height()), theme.colour("edge")
        )  # fmt: skip
