"""Very long text in a field: the field shows the beginning and the end, and a mark stands for everything between.

Qt lays out the whole paragraph after every keystroke: for a word of 1 MB that takes a minute. A click on a mark, or
Alt+Down, shows the next page of its text. No text is lost or changed.
"""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, QRectF, QSizeF, Qt
from PySide6.QtGui import (
    QFontMetricsF,
    QPainter,
    QPyTextObject,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
)
from PySide6.QtWidgets import QTextEdit

from app.text.markdown_blocks import displayable
from app.text.selected_text import FAR
from app.text.text_pages import page_end, page_start
from app.translation import figure, tr_n
from app.ui.look import theme
from app.ui.look.painting import block, outline

MOST, MOST_LINES = 24_000, 1000  # characters and lines that a field shows
PAGE, PAGE_LINES = 6_000, 250  # shown of a longer text at its beginning, at its end, and after each click
LEAST = 200  # characters; shorter text is not worth folding
MARK = "\ufffc"  # Qt's object character; `displayable` removes it from text
PADDING, RADIUS, HEIGHT = 8, 6, 20
_KIND = QTextFormat.ObjectTypes.UserObject.value + 1
_KEY = QTextFormat.Property.UserProperty.value + 1


class FoldedText(QPyTextObject):
    """The marks of one field, with the text behind them."""

    def __init__(self, field: QTextEdit) -> None:
        super().__init__(field)
        self._field = field
        self._document = field.document()
        self._texts: dict[int, str] = {}
        self._document.documentLayout().registerHandler(_KIND, self)

    # --- setting and reading text

    def show(self, text: str) -> None:
        """Replace the whole text; clears the undo history. Cost: bounded for any length."""
        self._document.setUndoRedoEnabled(False)
        cursor = QTextCursor(self._document)
        cursor.beginEditBlock()
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.setCharFormat(QTextCharFormat())
        cursor.removeSelectedText()
        self._texts.clear()
        self._insert(cursor, text)
        cursor.endEditBlock()
        self._document.setUndoRedoEnabled(True)

    def insert(self, text: str) -> None:
        """Replace the selection by a text, folded if it is long."""
        cursor = self._field.textCursor()
        cursor.beginEditBlock()
        cursor.removeSelectedText()
        self._insert(cursor, text)
        cursor.endEditBlock()
        self._field.setTextCursor(cursor)

    def text(self, start: int = 0, end: int = FAR) -> str:
        """Return the full text between two positions."""
        if start == 0 and end >= self._document.characterCount() - 1:
            shown = self._document.toRawText()  # keeps no-break spaces
        else:
            shown = self._span(start, end).selectedText()
        parts = shown.replace("\u2029", "\n").replace("\u2028", "\n").split(MARK)
        out, place = parts[:1], start
        for part in parts[1:]:
            mark = self._document.find(MARK, place)
            place = mark.position()
            out += [self._texts.get(self._key(mark), MARK), part]
        return "".join(out)

    def _insert(self, cursor: QTextCursor, text: str) -> None:
        free = MOST - self._document.characterCount()
        free_lines = MOST_LINES - self._document.blockCount()
        if len(text) <= free and text.count("\n") <= free_lines:
            cursor.insertText(displayable(text))
            return
        head, tail = 0, len(text)
        if min(free // 2, PAGE) >= LEAST and free_lines >= 2:
            head = page_end(text, 0, min(free // 2, PAGE), min(free_lines // 2, PAGE_LINES))
            tail = page_start(text, head, min(free // 2, PAGE), min(free_lines // 2, PAGE_LINES))
        cursor.insertText(displayable(text[:head]))
        self._insert_mark(cursor, text[head:tail])
        cursor.insertText(displayable(text[tail:]))

    def _insert_mark(self, cursor: QTextCursor, text: str) -> None:
        if not text:
            return
        key = max(self._texts, default=0) + 1  # Undo may restore older marks
        self._texts[key] = text
        form = QTextCharFormat()
        form.setObjectType(_KIND)
        form.setProperty(_KEY, key)
        form.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignMiddle)
        cursor.insertText(MARK, form)
        cursor.setCharFormat(QTextCharFormat())

    def _key(self, mark: QTextCursor) -> int:
        return int(mark.charFormat().property(_KEY) or 0)

    def _span(self, start: int, end: int) -> QTextCursor:
        cursor = QTextCursor(self._document)
        cursor.setPosition(start)
        cursor.setPosition(min(end, self._document.characterCount() - 1), QTextCursor.MoveMode.KeepAnchor)
        return cursor

    # --- showing more

    def mark_at(self, point: QPoint) -> int:
        """Return the position of the mark at a point of the viewport, or -1."""
        hit = self._field.cursorForPosition(point).position()
        for place in (hit - 1, hit):
            if place < 0 or self._document.characterAt(place) != MARK:
                continue
            before, behind = (self._field.cursorRect(self._span(at, at)) for at in (place, place + 1))
            one_line = before.y() == behind.y()
            area = QRect(before.topLeft(), behind.bottomRight()).normalized() if one_line else before
            if area.contains(point):
                return place
        return -1

    def open_near(self, place: int) -> bool:
        """Unfold a page at the mark beside a position, else at the next mark, else at the last one before.

        Return False if nothing is folded.
        """
        before = self._document.find(MARK, place, QTextDocument.FindFlag.FindBackward)
        behind = self._document.find(MARK, place)
        marks = [mark for mark in (before, behind) if not mark.isNull()]
        if marks:
            is_beside = not before.isNull() and before.selectionEnd() == place
            self.open((marks[0] if is_beside else marks[-1]).selectionStart())
        return bool(marks)

    def open(self, place: int) -> None:
        """Unfold a page of a mark's text; if too much is shown then, fold what is farthest away."""
        mark = self._span(place, place + 1)
        text = self._texts.get(self._key(mark))
        if text is None:
            return
        backward = place == 0  # nothing is shown before the mark: unfold from its end
        mark.beginEditBlock()
        mark.removeSelectedText()
        if backward:
            cut = page_start(text, 0, PAGE, PAGE_LINES)
            self._insert_mark(mark, text[:cut])
            start = mark.position()
            mark.insertText(displayable(text[cut:]))
            end = mark.position()
        else:
            cut = page_end(text, 0, PAGE, PAGE_LINES)
            start = mark.position()
            mark.insertText(displayable(text[:cut]))
            end = mark.position()
            self._insert_mark(mark, text[cut:])
        first, last = self._span(start, start), self._span(end, end)  # these cursors move with the text
        if self._shows_too_much and not backward:
            self._fold(0, self._near(first, -1))
        if self._shows_too_much:
            self._fold(self._near(last, 1), FAR)
        mark.endEditBlock()
        self._field.setTextCursor(last if backward else first)
        self._field.ensureCursorVisible()

    @property
    def _shows_too_much(self) -> bool:
        return self._document.characterCount() > MOST or self._document.blockCount() > MOST_LINES

    def _near(self, cursor: QTextCursor, direction: int) -> int:
        """Return a position half a page before (-1) or after (1) a cursor, never between two surrogates."""
        place = min(max(cursor.position() + direction * PAGE // 2, 0), self._document.characterCount() - 1)
        line = cursor.blockNumber() + direction * PAGE_LINES // 2
        if 0 <= line < self._document.blockCount():
            start = self._document.findBlockByNumber(line).position()
            place = max(place, start) if direction < 0 else min(place, start)
        return place - ("\udc00" <= self._document.characterAt(place) <= "\udfff")

    def _fold(self, start: int, end: int) -> None:
        """Replace a part of the text by a mark."""
        text, part = self.text(start, end), self._span(start, end)
        if len(text) >= LEAST:
            part.removeSelectedText()
            self._insert_mark(part, text)

    # --- painting

    def _words(self, form: QTextFormat) -> str:
        n = len(self._texts.get(int(form.property(_KEY) or 0), ""))
        return f"⋯ {tr_n('{n} character', '{n} characters', n, n=figure(n))} ⋯"

    def intrinsicSize(self, document: QTextDocument, position: int, form: QTextFormat) -> QSizeF:
        width = QFontMetricsF(theme.font("chip")).horizontalAdvance(self._words(form))
        return QSizeF(width + 2 * theme.px(PADDING), theme.px(HEIGHT))

    def drawObject(
        self, painter: QPainter, rect: QRectF | QRect, document: QTextDocument, position: int, form: QTextFormat
    ) -> None:
        rect = QRectF(rect)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        block(painter, rect, theme.colour("sunken"), theme.px(RADIUS))
        outline(painter, rect, theme.colour("edge"), theme.px(RADIUS))
        painter.setFont(theme.font("chip"))
        painter.setPen(theme.colour("ink2"))
        painter.drawText(rect, Qt.AlignmentFlag.AlignCenter, self._words(form))
        painter.restore()
