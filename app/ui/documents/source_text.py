"""A text with a marked passage, scrolled to it, and with line numbers if it is a text file."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent, QResizeEvent, QTextCursor, QTextOption
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QTextEdit, QWidget

from app.text.text_pages import broken, page_end, page_start
from app.ui.look import theme

AROUND_CHARS, AROUND_LINES = 30_000, 400  # shown before a passage, and after it


@dataclass(frozen=True)
class Excerpt:
    """A passage with the text around it. first_line: number of the text's first line, from 1; 0: without numbers."""

    before: str
    passage: str
    after: str = ""
    first_line: int = 0

    @classmethod
    def around(cls, text: str, passage: str, line: int, has_lines: bool) -> Excerpt | None:
        """Return a passage with what surrounds it; None if the text does not hold it.

        line: where it begins, from 1; of several equal passages, the nearest one counts.
        """
        places, at = [], text.find(passage) if passage else -1
        while at >= 0:
            places.append(at)
            at = text.find(passage, at + len(passage))
        if not places:
            return None
        at = min(places, key=lambda place: abs(text.count("\n", 0, place) + 1 - line))
        end = at + len(passage)
        start = page_start(text[:at], 0, AROUND_CHARS, AROUND_LINES)
        start = text.rfind("\n", 0, start) + 1 if at - start < AROUND_CHARS else start
        stop = page_end(text, end, AROUND_CHARS, AROUND_LINES)
        first = text.count("\n", 0, start) + 1 if has_lines else 0
        return cls(text[start:at], passage, text[end:stop], first)


class _Numbers(QWidget):
    """The line numbers beside a text."""

    def __init__(self, view: SourceText) -> None:
        super().__init__(view)
        self._view = view

    def sizeHint(self) -> QSize:
        return QSize(self._view.numbers_width(), 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        self._view.paint_numbers(event)


class SourceText(QPlainTextEdit):
    """An excerpt to read and to copy."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._excerpt = Excerpt("", "")
        self._numbers = _Numbers(self)
        self.setReadOnly(True)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.document().setDocumentMargin(theme.px(4))
        self.updateRequest.connect(lambda rect, by: self._numbers.update())
        theme.current().changed.connect(self._restyle)
        self._restyle()

    @property
    def passage(self) -> str:
        marks = self.extraSelections()
        return marks[0].cursor.selectedText().replace("\u2029", "\n") if marks else ""

    def show_excerpt(self, excerpt: Excerpt) -> None:
        """Show a text, and scroll to its passage."""
        self._excerpt = excerpt
        self.setPlainText(broken(excerpt.before) + broken(excerpt.passage) + broken(excerpt.after))
        self._numbers.setVisible(excerpt.first_line > 0)
        self.setViewportMargins(self.numbers_width(), 0, 0, 0)
        self._restyle()
        self.show_passage()

    def height_for_text(self) -> int:
        """Return the height that shows all of the text, px."""
        lines = self.document().size().height()  # of a plain text, Qt counts lines
        return round((lines + 1) * QFontMetrics(self.font()).lineSpacing())

    def show_passage(self) -> None:
        cursor = self.textCursor()
        cursor.setPosition(_in_qt(broken(self._excerpt.before)))
        self.setTextCursor(cursor)
        bar = self.verticalScrollBar()  # in lines
        bar.setValue(max(cursor.block().firstLineNumber() - 3, 0))

    def _mark(self) -> None:
        if not (self._excerpt.before or self._excerpt.after):
            self.setExtraSelections([])  # it is all that is shown
            return
        start, length = _in_qt(broken(self._excerpt.before)), _in_qt(broken(self._excerpt.passage))
        mark = QTextEdit.ExtraSelection()
        cursor = QTextCursor(self.document())
        cursor.setPosition(start)
        cursor.setPosition(start + length, QTextCursor.MoveMode.KeepAnchor)
        mark.cursor = cursor
        mark.format.setBackground(theme.colour("selection"))
        mark.format.setForeground(theme.colour("ink"))
        self.setExtraSelections([mark])

    # --- line numbers

    def numbers_width(self) -> int:
        """Return the width of the line numbers, px; 0 without."""
        if not self._excerpt.first_line:
            return 0
        last = self._excerpt.first_line + self.blockCount()
        return QFontMetrics(theme.font("code")).horizontalAdvance(str(last)) + theme.px(16)

    def paint_numbers(self, event: QPaintEvent) -> None:
        """Paint the numbers of the visible lines. A line that was broken, because it is very long, has one."""
        painter = QPainter(self._numbers)
        painter.setFont(theme.font("code"))
        painter.setPen(theme.colour("ink3"))
        line, metrics = self.firstVisibleBlock(), QFontMetrics(theme.font("code"))
        while line.isValid():
            place = self.blockBoundingGeometry(line).translated(self.contentOffset())
            if place.top() > event.rect().bottom():
                break
            if line.isVisible() and place.bottom() >= event.rect().top():
                box = QRect(0, round(place.top()), self._numbers.width() - theme.px(10), metrics.height())
                number = str(self._excerpt.first_line + line.blockNumber())
                painter.drawText(box, Qt.AlignmentFlag.AlignRight, number)
            line = line.next()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        inside = self.contentsRect()
        self._numbers.setGeometry(inside.left(), inside.top(), self.numbers_width(), inside.height())

    def _restyle(self) -> None:
        self.setFont(theme.font("code" if self._excerpt.first_line else "row"))
        self._mark()


def _in_qt(text: str) -> int:
    """Return a text's length in UTF-16 code units, which Qt counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
