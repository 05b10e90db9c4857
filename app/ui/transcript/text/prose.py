"""Formatted text of an answer: paragraphs, headings, lists and quotes, and tables.

The HTML comes from app.text.markdown_blocks. Formulas appear once formulas.py has laid them out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import (
    QPainter,
    QPaintEvent,
    QPen,
    QTextBlockFormat,
    QTextCursor,
    QTextLength,
    QTextListFormat,
    QTextOption,
    QWheelEvent,
)
from PySide6.QtWidgets import QWidget

from app.text.selected_text import FAR
from app.ui.look import formulas, theme
from app.ui.look.painting import block
from app.ui.transcript.selection.copied_text import running_text, table_in, table_text
from app.ui.transcript.text.document_style import LIST_INDENT, PARAGRAPH_GAP, directed, style_sheet, table_sheet
from app.ui.transcript.text.slices import soon
from app.ui.transcript.text.text_view import TextView, scroll_sideways

# Qt paints its own bullets larger, in ink and close to the text, with no way to change that.
BULLET, BULLET_GAP = 5, 10
TASK_BOX = 14
_BULLETED = {
    QTextListFormat.Style.ListDisc, QTextListFormat.Style.ListCircle, QTextListFormat.Style.ListSquare
}  # fmt: skip


class Prose(TextView):
    """Paragraphs, headings, lists and quotes of an answer; content wider than the column scrolls."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(name, parent)
        self._html = ""
        self._sources: list[str] = []  # of its formulas
        self._objects: formulas.FormulaObject | None = None  # paints the formulas
        self._bullets: list[int] = []  # positions of list items with a bullet
        self._outdated = False  # whether the theme has changed since it was rendered
        theme.current().changing.connect(self._set_outdated)
        self._style()

    def show_html(self, html: str) -> None:
        """Show HTML, keeping the selection. Cost: linear in the HTML."""
        if html == self._html:
            return
        self._html = html
        self._render()

    def plain(self, start: int = 0, end: int = FAR) -> str:
        return running_text(self.document(), start, min(end, self.length))

    def _spans(self, start: int, end: int) -> list[tuple[int, int]]:
        return self._paragraphs(start, end)

    def _style(self) -> None:
        self.document().setDefaultFont(theme.font("body"))
        self.document().setIndentWidth(theme.px(LIST_INDENT))
        self.document().setDefaultStyleSheet(style_sheet())

    def set_width(self, width: int) -> None:
        if self._outdated:  # it is laid out when the theme is applied
            self._has_width = True
            self.resize(width, self.height())
            self.viewport().resize(width, self.viewport().height())
        else:
            super().set_width(width)

    def _set_outdated(self) -> None:
        self._outdated = True

    def _restyle(self) -> None:
        """Apply the theme now; if scrolled out of view, once in a later slice."""
        soon(self, self._restyle_now)

    def _restyle_now(self) -> bool:
        cursor, self._outdated = self.textCursor(), False
        place = cursor.anchor(), cursor.position()
        self.document().clear()  # otherwise it is laid out in the old width and with every new font
        if self._has_width:
            self.document().setTextWidth(self.viewport().width())
        self._style()
        self._render(place)
        return False

    def _render(self, place: tuple[int, int] | None = None) -> None:
        """Render the text. place: anchor and position of the cursor, if not the current ones."""
        before = self.textCursor()
        anchor, position = place or (before.anchor(), before.position())
        self._take_up_formulas()
        whole = QTextCursor(self.document())
        whole.beginEditBlock()  # otherwise every change below lays everything out again
        self.setHtml(directed(formulas.shown(self._html)))
        self._trim()
        whole.endEditBlock()
        self._describe()
        has_links = "<a " in self._html
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus if has_links else Qt.FocusPolicy.ClickFocus)
        end = self.document().characterCount() - 1
        cursor = self.textCursor()  # the edit has moved it to the end
        cursor.setPosition(min(anchor, end))
        cursor.setPosition(min(position, end), QTextCursor.MoveMode.KeepAnchor)
        self.setTextCursor(cursor)

    def _fit(self) -> None:
        size, policy = self.document().size(), Qt.ScrollBarPolicy
        # A table of 100 % is one pixel wider than its column, which is no reason to scroll; a long formula is.
        scrolls = size.width() > self.document().textWidth() + 2
        self.setHorizontalScrollBarPolicy(policy.ScrollBarAlwaysOn if scrolls else policy.ScrollBarAlwaysOff)
        height = math.ceil(size.height()) + (self.horizontalScrollBar().sizeHint().height() if scrolls else 0)
        if height != self.height() or self.minimumHeight() != height:
            self.setFixedHeight(height)

    def wheelEvent(self, event: QWheelEvent) -> None:
        scroll_sideways(self, event)

    def _take_up_formulas(self) -> None:
        """Request the formulas; `_show_formulas` shows those that take longer."""
        self._sources = formulas.sources_in(self._html)
        if not self._sources:
            return
        if self._objects is None:
            self._objects = formulas.FormulaObject(self.document())
            formulas.current().arrived.connect(self._show_formulas)
        formulas.current().request(self._sources)

    def _describe(self) -> None:
        """Describe the text with formulas in words for screen readers, which would read object characters."""
        if self._sources:
            text = self.plain()
            for source in set(self._sources):
                text = text.replace(source, formulas.accessible_text(source))
            self.setAccessibleDescription(text)
        elif self.accessibleDescription():
            self.setAccessibleDescription("")

    def _show_formulas(self, arrived: str) -> None:
        """Lay the text out again once all its formulas are known."""
        known = formulas.current()
        if arrived not in self._sources or not all(known.known(source) for source in self._sources):
            return
        if any(known.refused(source) for source in self._sources):
            self._render()
        else:
            self.document().markContentsDirty(0, self.document().characterCount())

    def _trim(self) -> None:
        """Fix what a style sheet cannot express: margins at both ends and after lists, and our own bullets."""
        document = self.document()
        for end, edge in ((document.begin(), "setTopMargin"), (document.lastBlock(), "setBottomMargin")):
            cursor = QTextCursor(end)
            if cursor.currentTable() is None:
                shape = cursor.blockFormat()
                getattr(shape, edge)(0)
                cursor.setBlockFormat(shape)
        self._bullets = []
        line = document.begin()
        while "<li" in self._html and line.isValid():
            points = line.textList()
            if points is not None and line.next().isValid() and line.next().textList() is None:
                shape = line.blockFormat()
                shape.setBottomMargin(theme.px(PARAGRAPH_GAP))
                QTextCursor(line).setBlockFormat(shape)
            if points is not None and points.format().style() in _BULLETED:
                plain = points.format()
                plain.setStyle(QTextListFormat.Style.ListStyleUndefined)
                points.setFormat(plain)
                self._bullets += [points.item(index).position() for index in range(points.count())]
            line = line.next()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._bullets:
            return
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        document, side = self.document(), theme.px(BULLET)
        for position in self._bullets:
            item = document.findBlock(position)
            layout = item.layout()
            if layout.lineCount() == 0:
                continue
            first = layout.lineAt(0)
            origin = document.documentLayout().blockBoundingRect(item).topLeft()
            text = first.naturalTextRect().translated(origin)
            gap = theme.px(BULLET_GAP)
            rightward = item.textDirection() == Qt.LayoutDirection.RightToLeft
            x = text.right() + gap if rightward else text.left() - gap - side
            middle = origin.y() + first.y() + first.ascent() - theme.px(4)  # of a small letter
            marker = item.blockFormat().marker()
            if marker != QTextBlockFormat.MarkerType.NoMarker:
                box = theme.px(TASK_BOX)
                x = text.right() + gap - box / 4 if rightward else text.left() - gap + box / 4 - box
                is_done = marker == QTextBlockFormat.MarkerType.Checked
                paint_task(painter, QRectF(x, middle - box / 2, box, box), is_done)
                continue
            block(painter, QRectF(x, middle - side / 2, side, side), theme.colour("ink3"), side / 2)


def paint_task(painter: QPainter, place: QRectF, is_done: bool) -> None:
    """Paint the box of a task, which is not clickable."""
    width = place.width() / 10
    inside = place.adjusted(width / 2, width / 2, -width / 2, -width / 2)
    pen = QPen(theme.colour("ink3"), width)
    pen.setCapStyle(Qt.PenCapStyle.RoundCap)
    pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
    painter.setPen(pen)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRoundedRect(inside, 2 * width, 2 * width)
    if is_done:
        side = place.width()
        pen.setWidthF(1.6 * width)
        pen.setColor(theme.colour("ink"))
        painter.setPen(pen)
        corners = ((0.27, 0.53), (0.44, 0.69), (0.74, 0.33))
        painter.drawPolyline([QPointF(place.x() + x * side, place.y() + y * side) for x, y in corners])
    painter.setPen(Qt.PenStyle.NoPen)


class Table(Prose):
    """One table, as wide as the column.

    columns: widths in px, if it continues another table; its own head is then removed.
    """

    def __init__(self, name: str, parent: QWidget | None = None, columns: Sequence[float] = ()) -> None:
        self._columns = list(columns)
        super().__init__(name, parent)
        # a column is at least as wide as its longest word, then the table scrolls
        self.setWordWrapMode(QTextOption.WrapMode.WordWrap)

    def _style(self) -> None:
        super()._style()
        self.document().setDefaultStyleSheet(table_sheet())

    def _trim(self) -> None:
        """Flatten the empty lines that Qt puts around a table."""
        document = self.document()
        for end in (document.begin(), document.lastBlock()):
            cursor = QTextCursor(end)
            if cursor.currentTable() is None:
                shape = cursor.blockFormat()
                shape.setLineHeight(0, 1)  # fixed
                cursor.setBlockFormat(shape)

    def _render(self, place: tuple[int, int] | None = None) -> None:
        super()._render(place)
        self._take_columns()  # a table has its columns only after the edit

    def _take_columns(self) -> None:
        table = QTextCursor(self.document().begin().next()).currentTable()
        if self._columns and table is not None and table.columns() == len(self._columns):
            table.removeRows(0, 1)
            form = table.format()
            fixed = QTextLength.Type.FixedLength
            form.setColumnWidthConstraints([QTextLength(fixed, width) for width in self._columns])
            table.setFormat(form)

    def column_widths(self) -> list[float]:
        """Return the widths of the columns as laid out, px."""
        table = QTextCursor(self.document().begin().next()).currentTable()
        if table is None:
            return []
        layout = self.document().documentLayout()
        cells = [table.cellAt(0, column).firstCursorPosition().block() for column in range(table.columns())]
        edges = [layout.blockBoundingRect(cell).x() for cell in cells]
        edges.append(edges[0] + layout.frameBoundingRect(table).width())
        return [right - left for left, right in pairwise(edges)]

    def plain(self, start: int = 0, end: int = FAR) -> str:
        return table_text(self.document(), start, min(end, self.length))

    def _spans(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return whole cells if the selection spans cells, else characters within one."""
        table = table_in(self.document())
        if table is None:
            return [(start, end)]
        first = table.cellAt(max(start, table.firstPosition()))
        last = table.cellAt(min(end, table.lastPosition()))
        if not first.isValid() or not last.isValid():
            return [(start, end)]
        if first == last:
            return [(max(start, first.firstPosition()), min(end, first.lastPosition()))]
        one, other, width = first.row(), last.row(), table.columns() - 1

        def cells(row: int, column: int, row_end: int, column_end: int) -> tuple[int, int]:
            return table.cellAt(row, column).firstPosition(), table.cellAt(row_end, column_end).lastPosition()

        if one == other:
            return [cells(one, first.column(), one, last.column())]
        middle = [cells(one + 1, 0, other - 1, width)] if other - one > 1 else []
        return [cells(one, first.column(), one, width), *middle, cells(other, 0, other, last.column())]
