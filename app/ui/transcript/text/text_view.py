"""Text of messages in a widget as high as the text. It passes the wheel on and loads nothing."""

from __future__ import annotations

import math
from typing import Any

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, QUrl, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QResizeEvent, QTextCursor, QTextOption, QWheelEvent
from PySide6.QtWidgets import QAbstractScrollArea, QFrame, QSizePolicy, QTextEdit, QWidget

from app.text.markdown_blocks import displayable, web_address
from app.ui.look import theme
from app.ui.look.painting import block
from app.ui.transcript.selection.selectable import SelectableText


class TextView(SelectableText):
    """Read-only text as high as its document. link_activated: the address of a link that was followed."""

    link_activated = Signal(str)

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._caret = False
        self._has_width = False  # whether set_width was called
        self.setAccessibleName(name)
        self.setProperty("kind", "prose")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setOpenLinks(False)
        self.setUndoRedoEnabled(False)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.document().setDocumentMargin(0)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        self.anchorClicked.connect(self._follow)
        theme.current().changed.connect(self._restyle)

    def set_width(self, width: int) -> None:
        """Lay the text out for a width now, so that the height is right before the next event."""
        self._has_width = True
        # Otherwise Qt would first lay the text out for the width it has when it is shown.
        self.resize(width, self.height())
        self.viewport().resize(width, self.viewport().height())
        if width != self.document().textWidth():  # Qt would lay it out again
            self.document().setTextWidth(width)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() in {QEvent.Type.FontChange, QEvent.Type.ApplicationFontChange}:
            # QTextEdit would lay it out again; its font comes from the theme
            QAbstractScrollArea.changeEvent(self, event)
        else:
            super().changeEvent(event)

    def setHtml(self, text: str) -> None:
        self.document().setHtml(text)  # QTextEdit's own lays it out before it is styled

    def resizeEvent(self, event: QResizeEvent) -> None:
        if self._has_width:  # Qt would lay it out for every intermediate width
            event = QResizeEvent(event.size(), event.size())
        super().resizeEvent(event)

    def set_caret(self, shown: bool) -> None:
        """Show or hide the ember caret after the last character."""
        if shown != self._caret:
            self._caret = shown
            self.viewport().update()

    def _restyle(self) -> None:
        """Apply fonts and colours; subclasses render again."""

    def _fit(self) -> None:
        height = math.ceil(self.document().size().height())
        if height != self.height() or self.minimumHeight() != height:
            self.setFixedHeight(height)

    def _follow(self, url: QUrl) -> None:
        words = url.toString()
        address = words if words.startswith("#") else web_address(words)
        if address:
            self.link_activated.emit(address)

    def place_of(self, anchor: str) -> int | None:
        """Return the offset of an anchor from the top, px; None if the document has none of that name."""
        line = self.document().begin()
        while line.isValid():
            pieces = line.begin()
            while not pieces.atEnd():
                if anchor in pieces.fragment().charFormat().anchorNames():
                    return round(self.document().documentLayout().blockBoundingRect(line).y())
                pieces += 1
            line = line.next()
        return None

    def loadResource(self, kind: int, name: QUrl | str) -> Any:
        """Load nothing: an answer must not read files or addresses."""
        return None

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()  # the page scrolls, not the text

    def keyPressEvent(self, event: QKeyEvent) -> None:
        moves_among_links = event.key() in {Qt.Key.Key_Tab, Qt.Key.Key_Backtab, Qt.Key.Key_Return, Qt.Key.Key_Enter}
        if moves_among_links:
            super().keyPressEvent(event)
        else:
            event.ignore()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._caret:
            return
        end = QTextCursor(self.document())
        end.movePosition(QTextCursor.MoveOperation.End)
        place = self.cursorRect(end)
        height = min(theme.px(18), place.height())
        # A line's extra height is above its text, so align the caret with the bottom.
        corner = QPointF(min(place.x() + 2, self.viewport().width() - 2), place.bottom() + 1 - height)
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        block(painter, QRectF(corner, corner + QPointF(2, height)), theme.colour("hot_fill"), 1)


class PlainText(TextView):
    """Text as typed: no Markdown, line breaks kept."""

    def __init__(self, text: str, name: str, parent: QWidget | None = None) -> None:
        super().__init__(name, parent)
        self._text = displayable(text)
        self._restyle()

    def natural_width(self, most: int) -> int:
        """Return the preferred width, at most `most`."""
        if len(self._text) > 2000:  # certainly wider, and measuring would lay it out again
            return most
        self.document().setTextWidth(-1)
        return min(most, math.ceil(self.document().idealWidth()) + 1)

    def _restyle(self) -> None:
        self.document().clear()  # so that it is laid out once
        self.document().setDefaultFont(theme.font("body"))
        set_line_height(self, "body")
        QTextCursor(self.document()).insertText(self._text)


def set_line_height(view: QTextEdit, role: str) -> None:
    """Give every line of a plain document at least the role's line height."""
    cursor = QTextCursor(view.document())
    cursor.select(QTextCursor.SelectionType.Document)
    shape = cursor.blockFormat()
    shape.setLineHeight(theme.line_height(role), 3)  # QTextBlockFormat.LineHeightTypes.MinimumHeight
    cursor.setBlockFormat(shape)


def scroll_sideways(view: TextView, event: QWheelEvent) -> None:
    """Scroll a wide part sideways with a sideways wheel (or Shift); everything else goes to the page."""
    angle = event.angleDelta()
    sideways = angle.x() if abs(angle.x()) > abs(angle.y()) else 0
    if not sideways and event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
        sideways = angle.y()
    bar = view.horizontalScrollBar()
    if not sideways or bar.value() == (bar.minimum() if sideways > 0 else bar.maximum()):
        event.ignore()
        return
    bar.setValue(bar.value() - sideways // 2)
    event.accept()
