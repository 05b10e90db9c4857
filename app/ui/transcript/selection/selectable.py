"""The base of texts that can be selected across messages and searched.

It maps positions to characters and paints selection and matches; selection.py and text_find.py decide on them. It
leaves the mouse to the selection, except hovering over links.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right

from PySide6.QtGui import QContextMenuEvent, QMouseEvent, QTextCharFormat, QTextCursor, QTextDocument
from PySide6.QtWidgets import QTextBrowser, QTextEdit, QWidget

from app.text.markdown_blocks import PAD
from app.text.plain_text import places
from app.text.selected_text import FAR
from app.ui.look import theme
from app.ui.transcript.selection.copied_text import OBJECT, formulas_in, span, verbatim

MOST_MARKED = 1000  # matches marked at once, around the current one: Qt takes 8 us for each
_ODD = re.compile(f"{PAD}|{OBJECT}")
_PLAIN = str.maketrans("\u2029\u2028\ufdd0\ufdd1\u00a0", "\n\n\n\n ")  # Qt's ends of lines, paragraphs and cells
_BEYOND = re.compile("[\U00010000-\U0010ffff]")


class SelectableText(QTextBrowser):
    """Read-only text without a selection of its own."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._marked: tuple[int, int] | None = None  # the selected part
        self._shows_mark = False
        self._sought, self._current = "", -1  # the folded search text, and the number of the current match
        self._found: list[tuple[int, int]] | None = None
        self.document().contentsChanged.connect(self._take_change)

    @property
    def length(self) -> int:
        """The position after the last character, in UTF-16 units, as Qt counts."""
        return self.document().characterCount() - 1

    def plain(self, start: int = 0, end: int = FAR) -> str:
        """Return the copied text between two positions."""
        return verbatim(self.document(), start, min(end, self.length))

    def mark(self, part: tuple[int, int] | None) -> None:
        """Highlight the text between two positions; None for nothing."""
        if part != self._marked:
            self._marked = part
            self._show_mark()

    def seek(self, needle: str, current: int = -1) -> None:
        """Mark every match of the folded text, and match `current` more strongly."""
        if needle != self._sought:
            self._found = None
        if (needle, current) != (self._sought, self._current):
            self._sought, self._current = needle, current
            self._show_mark()

    def found(self) -> list[tuple[int, int]]:
        """Return the matches, in Qt's positions."""
        if self._found is None:
            self._found = found_in(self.document(), self._sought) if self._sought else []
        return self._found

    def _take_change(self) -> None:
        self._found = None
        self._show_mark()

    def around(self, position: int, unit: QTextCursor.SelectionType) -> tuple[int, int]:
        """Return start and end of the word or paragraph at a position."""
        cursor = span(self.document(), position, position)
        if unit is QTextCursor.SelectionType.BlockUnderCursor:  # Qt's would include the preceding line end
            return cursor.block().position(), cursor.block().position() + cursor.block().length() - 1
        cursor.select(unit)
        return cursor.selectionStart(), cursor.selectionEnd()

    def _show_mark(self) -> None:
        """Highlight again: the document has changed, so its old cursors are invalid."""
        if self._marked is None and not self._sought:
            if self._shows_mark:
                self.setExtraSelections([])
            self._shows_mark = False
            return
        self._shows_mark = True
        paint = QTextCharFormat()
        paint.setBackground(theme.colour("selection"))
        now = QTextCharFormat()
        now.setBackground(theme.colour("ink"))
        now.setForeground(theme.colour("on_ink"))
        found, first = self.found(), max(self._current - MOST_MARKED // 2, 0)
        spans = [
            (place, now if number == self._current else paint)
            for number, place in enumerate(found[first : first + MOST_MARKED], start=first)
        ]
        if self._marked is not None:
            spans += [(part, paint) for part in self._spans(self._marked[0], min(self._marked[1], self.length))]
        marks = []
        for (start, end), look in spans:
            mark = QTextEdit.ExtraSelection()
            mark.cursor = span(self.document(), start, end)
            mark.format = look
            marks.append(mark)
        self.setExtraSelections(marks)

    def _spans(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return parts that a single text cursor can select."""
        return [(start, end)]

    def _paragraphs(self, start: int, end: int) -> list[tuple[int, int]]:
        """Split a part at the ends of paragraphs.

        One cursor would select a table or quote as a whole, and paint over an item's number.
        """
        parts = []
        line = self.document().findBlock(start)
        while line.isValid() and line.position() < end:
            part = (max(start, line.position()), min(end, line.position() + line.length() - 1))
            if part[0] < part[1]:  # Qt has empty lines around tables
                parts.append(part)
            line = line.next()
        return parts

    # The mouse belongs to the selection, which spans texts: pass presses on to the page. Qt handles hovering over
    # links.

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


def found_in(document: QTextDocument, needle: str) -> list[tuple[int, int]]:
    """Return the matches of a folded needle in a document, in UTF-16 units, as Qt counts.

    A formula is compared by its LaTeX and marked as a whole. Cost: linear in the text.
    """
    raw = document.toRawText()
    plain = raw.translate(_PLAIN)
    starts, offsets = [0], [0]  # where a run of the compared text begins, and its offset in `raw`
    if _ODD.search(raw):
        sources = iter(formulas_in(span(document, 0, document.characterCount())) if OBJECT in raw else ())
        out: list[str] = []
        length = behind = 0
        for odd in _ODD.finditer(raw):
            source = next(sources, "").replace("\n", " ") if odd[0] == OBJECT else ""
            for piece, end in ((plain[behind : odd.start()], odd.start()), (source, odd.end())):
                out.append(piece)
                length += len(piece)
                starts.append(length)
                offsets.append(end)
            behind = odd.end()
        plain = "".join([*out, plain[behind:]])
    beyond = [found.start() for found in _BEYOND.finditer(raw)]  # Qt counts them twice

    def position(at: int, behind: int = 0) -> int:
        run = bisect_right(starts, at) - 1
        ends = offsets[run + 1] if run + 1 < len(offsets) else len(raw)
        is_formula = raw[offsets[run] : ends] == OBJECT
        place = offsets[run] + (0 if is_formula else at - starts[run]) + behind
        return place + bisect_left(beyond, place)

    return [(position(start), position(end - 1, 1)) for start, end in places(plain, needle)]
