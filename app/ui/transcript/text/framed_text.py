"""Text of a tool's call in a frame: plain, selectable by itself, of bounded height.

The selection and the search of the transcript take no part in it.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QKeySequence, QMouseEvent, QTextCursor, QWheelEvent
from PySide6.QtWidgets import QFrame, QTextBrowser, QVBoxLayout, QWidget

from app.text.text_pages import broken
from app.ui.look import theme
from app.ui.transcript.text.text_view import TextView, set_line_height
from app.ui.widgets.controls import Label

HIGHEST_PX = 100_000  # the layout of a column of messages has a limit


class CallText(TextView):
    """Text of a call. It has a selection of its own, and scrolls if it is higher than `most` pixels."""

    selected = Signal()
    _most = HIGHEST_PX

    def __init__(self, name: str, role: str, parent: QWidget | None = None) -> None:
        """Build the text. role: "code" for arguments, which are always left to right."""
        super().__init__(name, parent)
        self._role, self._text = role, ""
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.copyAvailable.connect(lambda some: self.selected.emit() if some else None)
        self._restyle()

    @property
    def text(self) -> str:
        return self._text

    def show_text(self, text: str, most: int) -> None:
        """Show a text, at most `most` pixels high; the rest scrolls."""
        self._most = most
        if text != self._text:
            self._text = text
            self._restyle()
        self._fit()

    def set_width(self, width: int) -> None:
        """Lay the text out for a width now, so that the height is right before the next event."""
        document = self.document()
        if document.textWidth() == width and document.size().height() <= self._most:
            return
        document.setTextWidth(width)
        if document.size().height() > self._most:
            document.setTextWidth(width - self.verticalScrollBar().sizeHint().width())
        self._fit()

    def _restyle(self) -> None:
        self.document().clear()
        self.document().setDefaultFont(theme.font(self._role))
        colours = self.palette()
        colours.setColor(colours.ColorRole.Text, theme.colour("ink2" if self._role == "small" else "ink"))
        self.setPalette(colours)
        if self._role == "code":
            option = self.document().defaultTextOption()
            option.setTextDirection(Qt.LayoutDirection.LeftToRight)
            self.document().setDefaultTextOption(option)
        set_line_height(self, self._role)
        QTextCursor(self.document()).insertText(broken(self._text))
        self.moveCursor(QTextCursor.MoveOperation.Start)

    def _fit(self) -> None:
        height = min(round(self.document().size().height() + 0.5), self._most)
        scrolls = height == self._most
        # what fits needs no stop of Tab; what scrolls must be within reach of the keyboard
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus if scrolls else Qt.FocusPolicy.ClickFocus)
        if height != self.height() or self.minimumHeight() != height:
            self.setFixedHeight(height)

    # The selection of the transcript takes no part here: presses are handled by Qt.

    def mousePressEvent(self, event: QMouseEvent) -> None:
        QTextBrowser.mousePressEvent(self, event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        QTextBrowser.mouseMoveEvent(self, event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        QTextBrowser.mouseReleaseEvent(self, event)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        QTextBrowser.mouseDoubleClickEvent(self, event)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if event.reason() not in (Qt.FocusReason.PopupFocusReason, Qt.FocusReason.ActiveWindowFocusReason):
            cursor = self.textCursor()
            cursor.clearSelection()
            self.setTextCursor(cursor)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys = QKeySequence.StandardKey
        moves = {Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_PageUp,
                 Qt.Key.Key_PageDown, Qt.Key.Key_Home, Qt.Key.Key_End}  # fmt: skip
        if event.key() in moves or event.matches(keys.Copy) or event.matches(keys.SelectAll):
            QTextBrowser.keyPressEvent(self, event)
        else:
            super().keyPressEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll the text; at its ends, the page."""
        bar, up = self.verticalScrollBar(), event.angleDelta().y() > 0
        if bar.value() == (bar.minimum() if up else bar.maximum()) or event.modifiers():
            event.ignore()
        else:
            QTextBrowser.wheelEvent(self, event)


class FramedText(QFrame):
    """A caption, and a text of a call in a frame."""

    def __init__(self, caption: str, role: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.caption = Label(caption, "meta")
        self.text = CallText(caption, role)
        self._frame = QFrame()
        self._frame.setProperty("kind", "code")
        self._box = QVBoxLayout(self._frame)
        self._box.addWidget(self.text)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.addWidget(self.caption)
        self._column.addWidget(self._frame)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def set_width(self, width: int) -> None:
        """Lay the text out for a frame of that width."""
        self.text.set_width(max(width - 2 * (theme.px(12) + 1), theme.px(40)))  # 1: the border

    def _restyle(self) -> None:
        px = theme.px
        self._column.setSpacing(px(4))
        self._box.setContentsMargins(px(12), px(8), px(12), px(8))
