"""A text that a selection over many texts runs through: it gives positions and characters, and paints its part.

The selection itself is selection.py's. A text hands it the mouse and keeps hovering over links to itself.
"""

from __future__ import annotations

from PySide6.QtGui import QContextMenuEvent, QMouseEvent, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QTextBrowser, QTextEdit, QWidget

from app.text.selected_text import FAR
from app.ui.look import theme
from app.ui.transcript.copied_text import span, verbatim


class SelectableText(QTextBrowser):
    """Read-only text without a selection of its own."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._marked: tuple[int, int] | None = None  # the selected part
        self._shows_mark = False
        self.document().contentsChanged.connect(self._show_mark)

    @property
    def length(self) -> int:
        """Position behind the last character, in UTF-16 units as Qt counts."""
        return self.document().characterCount() - 1

    def plain(self, start: int = 0, end: int = FAR) -> str:
        """Return what is copied of the text between two positions."""
        return verbatim(self.document(), start, min(end, self.length))

    def mark(self, part: tuple[int, int] | None) -> None:
        """Highlight the text from the first position to the second; None: nothing."""
        if part != self._marked:
            self._marked = part
            self._show_mark()

    def around(self, position: int, unit: QTextCursor.SelectionType) -> tuple[int, int]:
        """Return start and end of the word or paragraph at a position."""
        cursor = span(self.document(), position, position)
        if unit is QTextCursor.SelectionType.BlockUnderCursor:  # Qt's would take the line end before it along
            return cursor.block().position(), cursor.block().position() + cursor.block().length() - 1
        cursor.select(unit)
        return cursor.selectionStart(), cursor.selectionEnd()

    def _show_mark(self) -> None:
        """Paint the highlight anew: the document has changed, and the old cursors with it."""
        if self._marked is None:
            if self._shows_mark:
                self.setExtraSelections([])
            self._shows_mark = False
            return
        self._shows_mark = True
        paint = QTextCharFormat()
        paint.setBackground(theme.colour("selection"))
        marks = []
        for start, end in self._spans(self._marked[0], min(self._marked[1], self.length)):
            mark = QTextEdit.ExtraSelection()
            mark.cursor = span(self.document(), start, end)
            mark.format = paint
            marks.append(mark)
        self.setExtraSelections(marks)

    def _spans(self, start: int, end: int) -> list[tuple[int, int]]:
        """Parts that one text cursor each can select."""
        return [(start, end)]

    def _paragraphs(self, start: int, end: int) -> list[tuple[int, int]]:
        """Cut the part at the ends of paragraphs: one cursor would take a table or a quote as a whole, and paint over
        the number of an item."""
        parts = []
        line = self.document().findBlock(start)
        while line.isValid() and line.position() < end:
            part = (max(start, line.position()), min(end, line.position() + line.length() - 1))
            if part[0] < part[1]:  # Qt has empty lines around tables, which nobody selects
                parts.append(part)
            line = line.next()
        return parts

    # The mouse is the selection's, which runs over many texts: presses go on to the page. Hovering over links is Qt's.

    def mousePressEvent(self, event: QMouseEvent) -> None:
        event.ignore()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        event.ignore()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        event.ignore()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons():
            event.ignore()
        else:
            super().mouseMoveEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        event.ignore()
