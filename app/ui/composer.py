"""Where a message is written and sent: the field, the model that answers, the context used, Send or Stop.

It sends nothing itself, keeps no draft and loads no model; the page does.
"""

from __future__ import annotations

import math

from PySide6.QtCore import QMimeData, QSize, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QInputMethodEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QTextBlockFormat,
    QTextCursor,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QTextEdit, QVBoxLayout, QWidget

from app.engine_status import EngineStatus, Phase
from app.markdown_blocks import displayable
from app.ui import theme
from app.ui.controls import Button, IconButton, Label, Ring
from app.ui.direction import set_margins
from app.ui.signs import Dot

MAX_LINES = 8
PLACEHOLDER = "Write a message"


class MessageField(QTextEdit):
    """Plain text of 1 to 8 lines, then it scrolls. Enter sends, Shift+Enter breaks the line."""

    send_requested = Signal()
    focus_changed = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._composing = False
        self.setAccessibleName("Message")
        self.setAccessibleDescription("Enter sends, Shift and Enter break the line")
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

    def text(self) -> str:
        """What stands in it, as plain text."""
        return self.toPlainText()

    def set_text(self, text: str) -> None:
        """Put this in, the cursor behind it."""
        self.setPlainText(displayable(text))
        self._set_line_height()
        self.moveCursor(QTextCursor.MoveOperation.End)

    def _restyle(self) -> None:
        self.setFont(theme.font("body"))
        self.document().setDefaultFont(theme.font("body"))
        self._set_line_height()
        self._fit()

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
        """Words only, and only such as a layout can hold."""
        if source.hasText():
            self.insertPlainText(displayable(source.text()))
            self.ensureCursorVisible()

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return source.hasText()

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
        else:
            super().keyPressEvent(event)

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
        # Qt's own placeholder does not know of the line height and would stand higher than what is typed.
        room = self.viewport().rect().adjusted(0, theme.line_height("body") - painter.fontMetrics().height(), 0, 0)
        painter.drawText(room, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeading, PLACEHOLDER)


class ModelButton(Button):
    """The model that answers, or what it is doing, as a button that opens the menu of models. Long names are cut."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("", "quiet", "chip", parent=parent)
        self.glyph_px = 16
        self.dot = Dot("hot_fill", working=True, parent=self)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.set_state("Loading", True)

    @property
    def words(self) -> str:
        """What it says, whole."""
        return self.text().replace("&&", "&")

    def set_state(self, words: str, working: bool) -> None:
        """What to say; `working` puts the ember dot in the icon's place."""
        if words != self.words:
            self.setText(words.replace("&", "&&"))
            self.updateGeometry()
        self.glyph = "none" if working else "chip"
        self.dot.setVisible(working)
        self._place_dot()
        self.update()

    def minimumSizeHint(self) -> QSize:
        return QSize(min(theme.px(96), self.sizeHint().width()), self.sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_dot()

    def _place_dot(self) -> None:
        inset = theme.px(self.padding_px) + 1
        x = self.width() - inset - self.dot.width() if self.isRightToLeft() else inset
        self.dot.move(x, (self.height() - self.dot.height()) // 2)


class LoadButton(Button):
    """Brings a model back that was let go."""

    def minimumSizeHint(self) -> QSize:
        return QSize(min(theme.px(96), self.sizeHint().width()), self.sizeHint().height())


class Composer(QFrame):
    """The card at the foot of a chat.

    submitted: the text to send. stop_requested: end the running answer. model_menu_asked: the model's name was
    pressed. load_stop_asked: the model that is on its way is not wanted. load_asked: bring the last one back.
    """

    submitted = Signal(str)
    stop_requested = Signal()
    model_menu_asked = Signal()
    load_stop_asked = Signal()
    load_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "composer")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._status = EngineStatus()
        self.field = MessageField(self)
        self._model = ModelButton()
        self._stop_load = IconButton("close", "Stop loading")
        self._stop_load.glyph_px = 15
        self._load = LoadButton("", "secondary")
        self._load.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self._ring = Ring()
        self._context = Label("", "meta")
        self.send = Button("", "primary", "send")
        self.send.height_px, self.send.radius_px, self.send.glyph_px = 34, 10, 18
        self.send.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self._bar = QHBoxLayout()
        self._bar.addWidget(self._model)
        self._bar.addWidget(self._stop_load)
        self._bar.addWidget(self._load)
        self._bar.addStretch(1)
        self._bar.addWidget(self._ring)
        self._bar.addWidget(self._context)
        self._bar.addSpacing(theme.px(6))
        self._bar.addWidget(self.send)
        self._column = QVBoxLayout(self)
        self._words = QHBoxLayout()
        self._words.addWidget(self.field)
        self._column.addLayout(self._words)
        self._column.addLayout(self._bar)

        self.field.textChanged.connect(self._refresh)
        self.field.send_requested.connect(self._submit)
        self.field.focus_changed.connect(self._on_focus)
        self.send.clicked.connect(self._on_button)
        self._model.clicked.connect(self.model_menu_asked)
        self._stop_load.clicked.connect(self.load_stop_asked)
        self._load.clicked.connect(self.load_asked)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self.set_status(self._status)

    def text(self) -> str:
        """The draft."""
        return self.field.text()

    def set_text(self, text: str) -> None:
        """Put a draft in."""
        self.field.set_text(text)

    def set_status(self, status: EngineStatus) -> None:
        """What the engine is doing: it decides between Send and Stop, and what stands beside them."""
        self._status = status
        settled = status.phase is Phase.READY or (status.answering and status.phase is not Phase.OFF)
        words = status.model if settled and status.model else status.word
        self._model.set_state(words, status.working and not settled)
        self._model.setAccessibleName(f"Model: {words}")
        about = " · ".join(part for part in (status.model, status.device) if part)
        self._model.setToolTip("\n".join(part for part in ("Choose a model  (Ctrl+L)", about) if part))
        loading = status.phase is Phase.LOADING and not status.cancelling
        self._show_part(self._stop_load, loading)
        self._load.setText(f"Load {status.can_load}".replace("&", "&&"))
        self._load.setToolTip(f"Load {status.can_load}; the chat stays")
        self._show_part(self._load, bool(status.can_load))
        used, total = status.context_used, status.context_total
        known = used is not None and bool(total) and used > 0
        self._ring.setVisible(known)
        self._context.setVisible(known)
        if used is not None and total and known:
            share = min(used / total, 1.0)
            self._ring.set_share(share)
            self._context.setText(f"{100 * share:.0f}% of {total:,}")
            words = f"{used:,} of {total:,} tokens of context are used. When it is full, the oldest messages drop out."
            self._ring.setToolTip(words)
            self._context.setToolTip(words)
        self._refresh()

    @property
    def model_button(self) -> ModelButton:
        """What the menu of models opens at."""
        return self._model

    def _show_part(self, part: QWidget, shown: bool) -> None:
        if not shown and part.hasFocus():
            self.field.setFocus(Qt.FocusReason.OtherFocusReason)  # else Qt hands it to some neighbour
        part.setVisible(shown)

    def _can_send(self) -> bool:
        return self._status.takes_messages and bool(self.text().strip())

    def _refresh(self) -> None:
        status = self._status
        if status.answering:
            stopping = status.phase is Phase.STOPPING
            self._name_button("Stopping" if stopping else "Stop", "Stopping" if stopping else "Stop  (Esc)", "stop")
            self.send.setEnabled(not stopping)
            return
        if not status.takes_messages:
            reason = "No model is loaded"
        elif not self.text().strip():
            reason = "Write a message first"
        elif status.phase is Phase.READY:
            reason = "Send  (Enter)"
        else:
            reason = f"Send  (Enter)\n{status.word}: the answer begins once the model is there"
        self._name_button("Send", reason, "send")
        self.send.setEnabled(self._can_send())

    def _name_button(self, name: str, tooltip: str, glyph: str) -> None:
        self.send.setAccessibleName(name)
        self.send.setToolTip(tooltip)
        if self.send.glyph != glyph:
            self.send.set_glyph(glyph)

    def _submit(self) -> None:
        if not self._can_send():
            return  # what was typed stays
        text = self.text().strip("\n")
        self.field.set_text("")
        self.submitted.emit(text)

    def _stop(self) -> None:
        if self._status.answering and self._status.phase is not Phase.STOPPING:
            self.stop_requested.emit()

    def _on_button(self) -> None:
        if self._status.answering:
            self._stop()
        else:
            self._submit()

    def _on_focus(self, focused: bool) -> None:
        theme.set_property(self, "state", "focus" if focused else "")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self._status.answering:
            self._stop()
        else:
            super().keyPressEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.field.setFocus(Qt.FocusReason.MouseFocusReason)  # the whole card is the field
        super().mousePressEvent(event)

    def _restyle(self) -> None:
        px = theme.px
        # The text stands on the left edge of the messages: the card reaches 24 beyond the column.
        inset = px(self._model.padding_px)
        set_margins(self._column, px(23) - inset, px(13), px(10), px(9), self.isRightToLeft())
        set_margins(self._words, inset, 0, 0, 0, self.isRightToLeft())
        self._column.setSpacing(px(8))
        self._bar.setSpacing(px(6))
        self.send.setFixedSize(px(34), px(34))
