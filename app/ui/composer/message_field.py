"""The field for a message: plain text that grows to eight lines. Up edits or recalls earlier messages."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QMimeData, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QHelpEvent,
    QInputMethodEvent,
    QKeyEvent,
    QKeySequence,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QTextBlockFormat,
    QTextCursor,
)
from PySide6.QtWidgets import QFrame, QSizePolicy, QTextEdit, QToolTip, QWidget

from app.clients.engine_status import EngineStatus
from app.later import Later
from app.shortcuts import keys
from app.text.markdown_blocks import displayable
from app.translation import noted, tr
from app.ui.composer.folded_text import FoldedText
from app.ui.look import theme

if TYPE_CHECKING:
    from app.documents import attachment_texts
else:
    attachment_texts = Later("app.documents.attachment_texts")

MAX_LINES = 8
FOLDED = noted("Folded because the text is very long. It is sent whole. Click, or press {keys}, to show more of it.")
PLACEHOLDER = noted("Write a message")
BASE = noted("Write the beginning of a text; this base model continues it")


def _without_keypad(event: QKeyEvent) -> Qt.KeyboardModifier:
    return event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier


def files_in(source: QMimeData) -> list[Path]:
    """Return the local files that are pasted or dropped."""
    if not source.hasUrls():
        return []
    return [Path(url.toLocalFile()) for url in source.urls() if url.isLocalFile() and url.toLocalFile()]


class MessageField(QTextEdit):
    """Plain text of 1 to 8 lines, then it scrolls. Enter sends, Shift+Enter breaks the line.

    It folds the middle of very long text, so that typing stays fast.
    """

    send_requested = Signal()
    focus_changed = Signal(bool)
    files_given = Signal(list)  # paths that were pasted or dropped

    def __init__(
        self,
        parent: QWidget | None = None,
        take_paste: Callable[[str], bool] = lambda text: False,
        edit_last: Callable[[], bool] = lambda: False,
        history: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Build the field.

        take_paste: may take a long paste as an attachment; returns False to insert it here. edit_last: opens an editor
        for the previous message, for Up in an empty field; returns False if there is none. history: the user's earlier
        messages, oldest first, for Up if there is nothing to edit.
        """
        super().__init__(parent)
        self._take_paste, self._edit_last, self._ask_history = take_paste, edit_last, history
        self._composing = False
        self._folded = FoldedText(self)
        self._text: str | None = ""  # the full text; None: must be read again
        self.document().contentsChange.connect(self._discard_text)
        self._history: Sequence[str] = ()  # a snapshot of the history while the user steps through it
        self._back = 0  # steps back in it; 0: the draft
        self._draft = ""  # the draft while a recalled message is shown
        self._recalled = ""  # the recalled message as it was, to notice edits
        self._placeholder = tr(PLACEHOLDER)
        self.setAccessibleName(tr("Message"))
        self.setAccessibleDescription(tr("Enter sends, Shift+Enter starts a new line"))
        self.setProperty("kind", "plain")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setAcceptRichText(False)
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setProperty("focusRing", False)
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(0)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def set_destination(self, status: EngineStatus) -> None:
        """Show which server the message goes to, if any, and whether the model only continues text."""
        server = status.server
        base = status.is_base and not server
        self._placeholder = tr("Write to {server}", server=server) if server else tr(BASE if base else PLACEHOLDER)
        enter = tr("Enter sends, Shift+Enter starts a new line")
        sent = (tr("Sent to {server}, not on this PC.", server=server) if status.leaves else
                tr("Sent to {server}, another program on this PC.", server=server))  # fmt: skip
        about = tr("This is a base model: it continues text rather than answering.") if base else sent if server else ""
        self.setAccessibleDescription(f"{about} {enter}" if about else enter)
        self.update()

    def text(self) -> str:
        """Return the full plain text, including what is folded. Cost: linear once after a change."""
        if self._text is None:
            self._text = self._folded.text()
        return self._text

    def _discard_text(self) -> None:
        self._text = None

    def set_text(self, text: str) -> None:
        """Set the text and put the cursor at its end."""
        self._back = 0
        self._show(text)

    def insert(self, text: str) -> None:
        self._folded.insert(text)
        self.ensureCursorVisible()

    def _show(self, text: str) -> None:
        self._folded.show(text)
        self.moveCursor(QTextCursor.MoveOperation.End)

    def _restyle(self) -> None:
        self.setFont(theme.font("body"))
        self.document().setDefaultFont(theme.font("body"))
        self._set_line_height()
        self._fit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        # A new parent's style sheet restores the font of an earlier zoom.
        wanted = theme.font("body").pixelSize()
        if event.type() == QEvent.Type.StyleChange and self.font().pixelSize() != wanted:
            self._restyle()

    def _set_line_height(self) -> None:
        shape = QTextBlockFormat()
        shape.setLineHeight(theme.line_height("body"), QTextBlockFormat.LineHeightTypes.MinimumHeight.value)
        cursor = QTextCursor(self.document())
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.mergeBlockFormat(shape)

    def _fit(self) -> None:
        line = theme.line_height("body")
        wanted = math.ceil(self.document().size().height())
        most = MAX_LINES * line
        self.setFixedHeight(min(max(wanted, line), most))
        policy = Qt.ScrollBarPolicy
        self.setVerticalScrollBarPolicy(policy.ScrollBarAsNeeded if wanted > most + 1 else policy.ScrollBarAlwaysOff)

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Attach pasted files and long text; insert short text."""
        if paths := files_in(source):
            self.files_given.emit(paths)
        elif source.hasText() and not (
            len(source.text()) > attachment_texts.PASTE_FROM_CHARS and self._take_paste(source.text())
        ):
            self.insert(displayable(source.text()))

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return source.hasText() or bool(files_in(source))

    def createMimeDataFromSelection(self) -> QMimeData:
        """Return the selected text with what is folded, to be copied, cut or dragged."""
        cursor, data = self.textCursor(), QMimeData()
        data.setText(self._folded.text(cursor.selectionStart(), cursor.selectionEnd()))
        return data

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        selected = self.textCursor().selectionEnd() - self.textCursor().selectionStart()
        place = self._folded.mark_at(event.position().toPoint())
        if event.button() == Qt.MouseButton.LeftButton and place >= 0 and selected <= 1:
            self._folded.open(place)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        on_mark = not event.buttons() and self._folded.mark_at(event.position().toPoint()) >= 0
        self.viewport().setCursor(Qt.CursorShape.PointingHandCursor if on_mark else Qt.CursorShape.IBeamCursor)

    def viewportEvent(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            on_mark = self._folded.mark_at(event.pos()) >= 0
            words = tr(FOLDED, keys=keys("show_folded")) if on_mark else self.toolTip()
            QToolTip.showText(event.globalPos(), words, self)
            return True
        return super().viewportEvent(event)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)
        self.viewport().update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in {Qt.Key.Key_Return, Qt.Key.Key_Enter} and not self._composing:
            if event.modifiers() & (Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.AltModifier):
                self.textCursor().insertBlock()
                self.ensureCursorVisible()
            else:
                self.send_requested.emit()
        elif event.key() == Qt.Key.Key_Escape and not self._composing:
            event.ignore()  # the composer or the page stops the answer
        elif event.matches(QKeySequence.StandardKey.Copy) and not self.textCursor().hasSelection():
            event.ignore()  # the page copies the text selected in messages
        elif event.matches(QKeySequence.StandardKey.SelectAll) and self.document().isEmpty():
            event.ignore()  # the page selects the messages
        elif event.key() == Qt.Key.Key_Down and _without_keypad(event) == Qt.KeyboardModifier.AltModifier:
            self._folded.open_near(self.textCursor().position())
        elif event.key() in {Qt.Key.Key_Up, Qt.Key.Key_Down} and self._may_leave(event):
            is_up = event.key() == Qt.Key.Key_Up
            if is_up and not self._back and not self.text() and self._edit_last():
                return
            if self._walks(is_up):
                self._walk(1 if is_up else -1)
            else:
                super().keyPressEvent(event)
        else:
            super().keyPressEvent(event)

    def _may_leave(self, event: QKeyEvent) -> bool:
        """Return whether an arrow key may do more than move the cursor."""
        return not self._composing and not _without_keypad(event)

    def _walks(self, is_up: bool) -> bool:
        """Return whether the arrow steps through the history: from an empty field or an unchanged recalled message."""
        if self._back and self.text() != self._recalled:
            return False
        if is_up:
            if not self._back and not self.text():
                self._history = self._ask_history()
            at_edge = not self._can_move(QTextCursor.MoveOperation.Up)
            return at_edge and self._back < len(self._history) and (self._back > 0 or not self.text())
        return self._back > 0 and not self._can_move(QTextCursor.MoveOperation.Down)

    def _can_move(self, where: QTextCursor.MoveOperation) -> bool:
        return QTextCursor(self.textCursor()).movePosition(where)

    def _walk(self, step: int) -> None:
        if self._back == 0:
            self._draft = self.text()
        self._back += step
        self._show(self._history[-self._back] if self._back else self._draft)
        self._recalled = self.text()
        # so that the next press continues, even from a message of several lines
        if step > 0 and self._can_move(QTextCursor.MoveOperation.Up):
            self.moveCursor(QTextCursor.MoveOperation.Start)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focus_changed.emit(False)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self.document().isEmpty() or self._composing:
            return
        painter = QPainter(self.viewport())
        painter.setFont(self.font())
        painter.setPen(theme.colour("ink3"))
        # Qt's own placeholder ignores the line height and would be too high.
        content = self.viewport().rect().adjusted(0, theme.line_height("body") - painter.fontMetrics().height(), 0, 0)
        painter.drawText(content, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeading, self._placeholder)
