"""A code block: a head with language and Copy, and highlighted code."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from itertools import islice

from PySide6.QtCore import Qt, QTimer, QUrl, Signal
from PySide6.QtGui import (
    QDesktopServices,
    QFontMetricsF,
    QGuiApplication,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.text.code_colours import HIGHLIGHT_UP_TO, coloured_spans
from app.text.markdown_blocks import CodeBlock
from app.text.selected_text import FAR
from app.text.text_pages import broken, page_end, unbroken
from app.translation import tr, tr_n
from app.ui.look import diagrams, theme
from app.ui.look.direction import set_margins
from app.ui.transcript.text.diagram_view import DiagramView
from app.ui.transcript.text.document_style import LIST_INDENT
from app.ui.transcript.text.slices import later
from app.ui.transcript.text.text_view import TextView, scroll_sideways
from app.ui.widgets.controls import COPIED_MS, Button, IconButton, Label

log = logging.getLogger(__name__)

FOLD_OVER = 30  # lines
FOLDED_LINES = 16
PAGE, PAGE_LINES = 30_000, 1000  # characters and lines shown before the user asks for more
SPANS_AT_ONCE = 150  # coloured before the window is painted again


class CodeText(TextView):
    """The code, highlighted once it is complete. Long lines scroll sideways or wrap.

    `code` is all of it; the document holds what is shown.
    """

    overflows = Signal(bool)  # whether a line is wider than the widget

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(tr("Code"), parent)
        self.code = ""
        self.language = ""
        self.max_lines: int | None = None
        self.pages = 1
        self._shown = ""
        self._highlighted = False
        self._uncoloured: Iterator[tuple[int, int, str]] = iter(())  # spans still to be coloured
        self.setLineWrapMode(TextView.LineWrapMode.NoWrap)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self.horizontalScrollBar().rangeChanged.connect(self._fit)
        self._style()
        self._fit()

    def set_width(self, width: int) -> None:
        """Do nothing: code keeps its own width."""

    def plain(self, start: int = 0, end: int = FAR) -> str:
        before = unbroken(super().plain(0, start), self.code)
        return unbroken(super().plain(0, end), self.code)[len(before) :]

    @property
    def lines_left(self) -> int:
        """The number of lines that are not in the document."""
        return self.code.count("\n", self._end) + 1 if self._end < len(self.code) else 0

    @property
    def _end(self) -> int:
        """The index in the code after the last shown character."""
        lines = PAGE_LINES * self.pages
        return page_end(
            self.code, 0, PAGE * self.pages, lines if self.max_lines is None else min(self.max_lines, lines)
        )

    def set_code(self, code: str) -> None:
        """Show this code; if it continues the shown code, only the rest is inserted."""
        self.code = code
        end = self._end
        shown = broken(code[:end].removesuffix("\n") if end < len(code) else code)
        if shown == self._shown:
            return
        sideways = self.horizontalScrollBar().value()
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        if shown.startswith(self._shown) and not self._highlighted:
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(shown[len(self._shown) :])
        else:
            cursor.select(QTextCursor.SelectionType.Document)
            cursor.insertText(shown, QTextCharFormat())
            self._highlighted = False
        cursor.endEditBlock()
        self._shown = shown
        if not self.textCursor().hasSelection():  # otherwise Qt scrolls to its own cursor at the end
            self.moveCursor(QTextCursor.MoveOperation.Start)
        self.horizontalScrollBar().setValue(sideways)
        self.verticalScrollBar().setValue(0)

    def highlight(self) -> None:
        """Highlight the code, the end of long code in slices; unknown languages stay plain."""
        if self._highlighted or not self.language or len(self._shown) > HIGHLIGHT_UP_TO:
            return
        self._highlighted = True
        self._uncoloured = coloured_spans(self.language, self._shown)
        if self._colour():
            later(self, self._colour)

    def _colour(self) -> bool:
        """Colour the next spans. Return whether there are more."""
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        count = 0
        for start, length, token in islice(self._uncoloured, SPANS_AT_ONCE):
            cursor.setPosition(start)
            cursor.setPosition(start + length, QTextCursor.MoveMode.KeepAnchor)
            ink = QTextCharFormat()
            ink.setForeground(theme.colour(token))
            cursor.setCharFormat(ink)
            count += 1
        cursor.endEditBlock()
        return count == SPANS_AT_ONCE

    def set_max_lines(self, lines: int | None) -> None:
        """Show only the first lines; None shows all."""
        self.max_lines = lines
        self.set_code(self.code)
        self._fit()

    def _style(self) -> None:
        self.document().setDefaultFont(theme.font("code"))
        option = self.document().defaultTextOption()
        option.setTabStopDistance(4 * QFontMetricsF(theme.font("code")).horizontalAdvance(" "))
        option.setTextDirection(Qt.LayoutDirection.LeftToRight)
        self.document().setDefaultTextOption(option)
        shape = QTextBlockFormat()
        shape.setLineHeight(theme.line_height("code"), QTextBlockFormat.LineHeightTypes.FixedHeight.value)
        cursor = QTextCursor(self.document())
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.setBlockFormat(shape)

    def _restyle(self) -> None:
        self._style()
        if self._highlighted:
            cursor = QTextCursor(self.document())
            cursor.select(QTextCursor.SelectionType.Document)
            cursor.setCharFormat(QTextCharFormat())
            self._highlighted = False
            self.highlight()
        self._fit()

    def set_wrapped(self, wrapped: bool) -> None:
        """Wrap long lines, or let them scroll."""
        modes = TextView.LineWrapMode
        self.setLineWrapMode(modes.WidgetWidth if wrapped else modes.NoWrap)
        self._fit()

    def _fit(self) -> None:
        if self.lineWrapMode() is TextView.LineWrapMode.NoWrap:
            self.overflows.emit(self.horizontalScrollBar().maximum() > 0)
        height = math.ceil(self.document().size().height())
        if self.max_lines is not None:
            height = min(height, self.max_lines * theme.line_height("code"))
        bar = self.horizontalScrollBar()
        if bar.maximum() > 0:
            height += bar.sizeHint().height()
        if height != self.height() or self.minimumHeight() != height:
            self.setFixedHeight(height)

    def wheelEvent(self, event: QWheelEvent) -> None:
        scroll_sideways(self, event)


class CodeBlockView(QFrame):
    """A code block. More than FOLD_OVER lines fold behind "Show 84 lines", unless they were shown while being
    written."""

    def __init__(self, block: CodeBlock, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "code")
        self.shows_diagram: bool = False  # instead of the code
        self._label = Label("", "meta")
        self._copy = Button(tr("Copy"), "quiet", "copy")
        self._copy.glyph_px = 15
        self._copy.clicked.connect(self.copy)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(COPIED_MS)
        self._timer.timeout.connect(self._show_copy)
        self._wrap = IconButton("wrap", tr("Wrap long lines"))
        self._wrap.glyph_px = 16
        self._wrap.setCheckable(True)
        self._wrap.toggled.connect(self._set_wrapped)
        self._wrap.hide()
        self._fold: Button | None = None  # created for long blocks only
        self._switch = IconButton("code", tr("Show the code"))
        self._switch.glyph_px = 16
        self._switch.hide()
        self._switch.clicked.connect(lambda: self.show_diagram(not self.shows_diagram))
        self._browse = IconButton("browser", tr("Open in the browser, without network access"))
        self._browse.glyph_px = 16
        self._browse.hide()
        self._browse.clicked.connect(self.open_in_browser)
        self.diagram: DiagramView | None = None  # created for a diagram of a complete answer
        self._refused = Label(tr("This diagram cannot be drawn. It may have an error."), "meta")
        self._refused.hide()
        self.text = CodeText(self)
        self.text.overflows.connect(lambda over: self._wrap.setVisible(over or self._wrap.isChecked()))
        self._folds = block.closed and block.code.count("\n") >= FOLD_OVER
        self._opened = False
        self._closed = block.closed

        head = QHBoxLayout()
        head.addWidget(self._label, 1)
        head.addWidget(self._wrap)
        head.addWidget(self._switch)
        head.addWidget(self._browse)
        head.addWidget(self._copy)
        self._head = head
        body = QVBoxLayout()
        body.setSpacing(theme.px(8))
        body.addWidget(self.text)
        body.addWidget(self._refused)
        self._body = body
        foot = QHBoxLayout()
        foot.addStretch(1)
        self._foot = foot
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(0)
        for row in (head, body, foot):
            self._column.addLayout(row)
        theme.current().changed.connect(self._restyle)
        self.level = block.depth
        self._restyle()
        self.update_block(block)

    @property
    def indent(self) -> int:
        """The indentation in pixels, from the list item that contains the block."""
        return self.level * theme.px(LIST_INDENT)

    def update_block(self, block: CodeBlock) -> None:
        if block.language != self.text.language or not self._label.words:
            self.text.language = block.language
            self._label.setText(block.language or tr("code"))
            language = block.language
            self.text.setAccessibleName(tr("{language} code", language=language) if language else tr("Code"))
            self._copy.setAccessibleName(tr("Copy {language} code", language=language) if language else tr("Copy code"))
            if not block.closed and diagrams.can_draw(language):
                diagrams.current().warm()
        self._closed = block.closed
        self._browse.setVisible(block.closed and block.language in ("html", "svg"))
        self.text.code = block.code
        self._show_fold()

    def set_width(self, width: int) -> None:
        """Do nothing: code keeps its own width."""

    def open_in_browser(self) -> None:
        """Show HTML or SVG in the browser: its scripts run there, and reach neither the network nor other pages."""
        from app.chat.exports.browser_page import serve  # imported with the first use: it loads an HTTP server

        try:
            address = serve(self.text.code, "svg" if self.text.language == "svg" else "html")
        except OSError:
            log.exception("a page for the browser could not be served")
            return
        QDesktopServices.openUrl(QUrl(address))

    def draw_diagram(self) -> None:
        """Draw a diagram instead of showing its code, because the answer is complete."""
        if not diagrams.can_draw(self.text.language) or not self._closed:
            return
        if self.diagram is None:
            self.diagram = DiagramView(self)
            self.diagram.drawn.connect(self._take_diagram)
            self._body.insertWidget(0, self.diagram)
        self.diagram.show_source(self.text.code)

    def _take_diagram(self, is_drawn: bool) -> None:
        self._refused.setVisible(not is_drawn)
        if is_drawn and not self._switch.isVisibleTo(self):
            self._switch.show()
            self.show_diagram(True)
        elif not is_drawn:
            self._switch.hide()
            self.show_diagram(False)

    def show_diagram(self, shown: bool) -> None:
        self.shows_diagram = shown
        self._switch.set_name(tr("Show the code") if shown else tr("Show the diagram"))
        self._switch.set_glyph("code" if shown else "diagram")
        if self.diagram is not None:
            self.diagram.setVisible(shown)
        self._show_fold()

    def set_caret(self, shown: bool) -> None:
        """Show or hide the ember caret after the last character."""
        self.text.set_caret(shown)

    def copy(self) -> None:
        """Copy the code, and confirm on the button for a moment."""
        QGuiApplication.clipboard().setText(self.text.code)
        self._copy.setText(tr("Copied"))
        self._copy.set_glyph("check")
        self._timer.start()

    def show_more(self) -> bool:
        """Show all lines, or one more page of very long code. Return whether there was more."""
        if self.shows_diagram:
            self.show_diagram(False)
            return True
        if not self.text.lines_left:
            return False
        self._toggle()
        return True

    def _set_wrapped(self, wrapped: bool) -> None:
        self._wrap.set_name(tr("Let long lines scroll") if wrapped else tr("Wrap long lines"))
        self.text.set_wrapped(wrapped)

    def _show_copy(self) -> None:
        self._copy.setText(tr("Copy"))
        self._copy.set_glyph("copy")

    def _toggle(self) -> None:
        if self._opened and self.text.lines_left:
            self.text.pages += 1
        else:
            self._opened, self.text.pages = not self._opened, 1
        self._show_fold()

    def _show_fold(self) -> None:
        if self._fold is not None:
            self._fold.setVisible(not self.shows_diagram)
        if self.shows_diagram:
            self.text.set_max_lines(0)  # it stays in its place, so that a selection over it copies the code
            return
        self.text.set_max_lines(FOLDED_LINES if self._folds and not self._opened else None)
        if self._closed:
            self.text.highlight()
        left = self.text.lines_left
        if left and not self._folds:  # it was shown while being written, until it became too long
            self._folds = self._opened = True
        if not self._folds:
            return
        if self._fold is None:
            self._fold = Button("", "quiet", "down", parent=self)
            self._fold.clicked.connect(self._toggle)
            self._foot.insertWidget(0, self._fold)
        n = self.text.code.count("\n") + 1
        if not self._opened:
            words = tr_n("Show {n} line", "Show {n} lines", n)
        elif left:
            words = tr_n("Show {n} more line", "Show {n} more lines", left)
        else:
            words = tr("Show fewer lines")
        self._fold.setText(words)
        self._fold.set_glyph("up" if self._opened and not left else "down")

    def _restyle(self) -> None:
        px = theme.px
        set_margins(self._head, px(14), px(3), px(5), px(3), self.isRightToLeft())
        self._body.setContentsMargins(px(14), 0, px(14), px(12))
        self._foot.setContentsMargins(px(5), 0, px(5), px(5) if self._folds else 0)
