"""The base of small dialogs: heading, sentence, content, buttons at the end.

Frameless, like the confirmation dialog. Esc closes it.
"""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QKeyEvent, QPaintEvent, QShowEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QBoxLayout,
    QDialog,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLineEdit,
    QPlainTextEdit,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.translation import tr
from app.ui.look import compositor, theme
from app.ui.look.painting import antialiased, outline
from app.ui.widgets import focus_ring, tab_order
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.floating import PAD, confirm, paint_floating
from app.ui.widgets.switches import Segments

HIGHEST = 0.86  # of the height of its parent window


class Dialog(QDialog):
    """A dialog with heading, sentence, `body` and a row of buttons. Content higher than the window scrolls."""

    def __init__(self, parent: QWidget | None, title: str, sentence: str = "", wide_px: int = 440) -> None:
        super().__init__(parent, Qt.WindowType.Dialog | Qt.WindowType.FramelessWindowHint)
        self._pad = PAD if compositor.see_through() else 0  # space for the shadow, if the desktop can show one
        self._safe: Button | None = None
        self._wide_px = wide_px
        self.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground, self._pad > 0)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        self.setAccessibleName(title)
        self.setAccessibleDescription(sentence)
        column = QVBoxLayout(self)
        inset = self._pad + theme.px(20)
        column.setContentsMargins(inset, inset, inset, inset)
        column.setSpacing(theme.px(6))
        self.heading, self.sentence = Label(title, "heading", wrap=True), Label(sentence, "small", wrap=True)
        self.sentence.setVisible(bool(sentence))
        column.addWidget(self.heading)
        column.addWidget(self.sentence)
        self._area = QScrollArea()
        self._area.setProperty("kind", "plain")
        self._area.setFrameShape(QFrame.Shape.NoFrame)
        self._area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._area.viewport().setAutoFillBackground(False)
        self._inner = QFrame()
        self._inner.setAutoFillBackground(False)
        self.body = QVBoxLayout(self._inner)
        self.body.setContentsMargins(0, theme.px(4), 0, theme.px(4))
        self.body.setSpacing(theme.px(10))
        self._area.setWidget(self._inner)
        self._inner.setAutoFillBackground(False)
        column.addWidget(self._area)
        column.addSpacing(theme.px(8))
        self._row = QHBoxLayout()
        self._row.setSpacing(theme.px(8))
        self._row.addStretch(1)
        column.addLayout(self._row)
        focus_ring.install(self)

    def add_button(self, button: Button, at_start: bool = False) -> Button:
        """Add a button to the last row: at its end, or alone at its start."""
        if at_start:
            self._row.insertWidget(0, button)
        else:
            self._row.addWidget(button)
        return button

    def add_close(self, words: str = "") -> Button:
        """Add the safe button and focus it."""
        button = self._safe = self.add_button(Button(words or tr("Close")))
        button.clicked.connect(self.reject)
        button.setDefault(True)
        button.setFocus()
        return button

    def focusNextPrevChild(self, forward: bool) -> bool:
        return tab_order.move_on(self, forward)  # rows that were added later come before the buttons

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_return = event.key() in {Qt.Key.Key_Return, Qt.Key.Key_Enter}
        if is_return and self._safe is not None and isinstance(self.focusWidget(), QLineEdit | QAbstractButton):
            self.return_pressed()  # Qt would press the default, the safe button, and drop what was entered
        else:
            super().keyPressEvent(event)

    def reject(self) -> None:
        """Close. Ask first if a text of several lines would be lost, unless the program ends."""
        owner, texts = self.parentWidget(), self.findChildren(QPlainTextEdit)
        is_lost = any(text.document().isModified() and not text.isReadOnly() for text in texts)
        if not is_lost or owner is None or not owner.window().isVisible():
            super().reject()
            return
        lost = tr("What you wrote in this dialog is not saved.")
        confirm(
            self, tr("Discard your changes?"), lost, tr("Keep writing"), tr("Discard"), lambda: QDialog.reject(self)
        )

    def return_pressed(self) -> None:
        """Handle Return in a field or on a switch of a dialog with a safe button: do nothing. Subclasses continue."""

    def say(self, sentence: str) -> None:
        """Set the sentence below the heading."""
        self.sentence.setText(sentence)
        self.sentence.setVisible(bool(sentence))
        self.setAccessibleDescription(sentence)
        self.fit()

    def fit(self) -> None:
        """Resize the dialog to its preferred width and its content's height, within the window."""
        owner = self.parentWidget()
        most = owner.window().size() if owner is not None else self.screen().availableSize()
        self._row.setDirection(QBoxLayout.Direction.LeftToRight)
        buttons = self._row.sizeHint().width() + 2 * theme.px(20)
        wide = min(max(theme.px(self._wide_px), buttons), most.width() - theme.px(32))
        rows = 1
        if buttons > wide:
            self._row.setDirection(QBoxLayout.Direction.TopToBottom)
            rows = sum((item := self._row.itemAt(i)) is not None and item.widget() is not None
                       for i in range(self._row.count()))  # fmt: skip
        room = wide - 2 * theme.px(20)
        bar = self._area.verticalScrollBar().sizeHint().width() + theme.px(6)
        for segments in self._inner.findChildren(Segments):
            segments.fit(room - bar)
        # a height that changed deep within reaches the layouts around it one event later
        for part in reversed(self._inner.findChildren(QFrame)):
            if (layout := part.layout()) is not None:
                layout.activate()
        # A layout gives wrapping text more height than it needs, so every height is computed here.
        used = 2 * theme.px(20) + rows * theme.px(8 + 32) + 4 * theme.px(6)
        for label in (self.heading, self.sentence):
            if not label.isHidden():
                label.fix_height(room)
                used += label.height()
        high = _height(self.body, room)
        shown = min(high, max(int(HIGHEST * most.height()) - used, theme.px(80 if rows == 1 else 40)))
        if shown < high:
            high = _height(self.body, room - bar)
            self._inner.setFixedSize(room - bar, high)
        else:
            self._inner.setFixedSize(room, high)
        self._area.setVisible(self.body.count() > 0)
        self._area.setFixedHeight(shown)
        self.setFixedSize(wide + 2 * self._pad, used + (shown if self.body.count() else 0) + 2 * self._pad)

    def showEvent(self, event: QShowEvent) -> None:
        self.fit()
        super().showEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        pad, painter = self._pad, antialiased(self)
        if pad:
            paint_floating(painter, QRectF(self.rect()).adjusted(pad, pad, -pad, -pad), theme.px(14))
        else:
            painter.fillRect(self.rect(), theme.colour("card"))
            outline(painter, QRectF(self.rect()), theme.colour("edge"), 0.5)


def _height(layout: QVBoxLayout, width: int) -> int:
    layout.activate()
    return layout.totalHeightForWidth(width) if layout.hasHeightForWidth() else layout.totalSizeHint().height()


class Facts(QFrame):
    """Rows of names with values beside them; long values wrap."""

    NAME_PX = 120

    def __init__(self, rows: list[tuple[str, str]], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(theme.px(12))
        grid.setVerticalSpacing(theme.px(6))
        grid.setColumnMinimumWidth(0, theme.px(self.NAME_PX))  # longer names widen the column
        grid.setColumnStretch(1, 1)
        for at, (name, value) in enumerate(rows):
            words = Label(value, "small", "ink", wrap=True)
            words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            words.setAccessibleName(f"{name}: {value}")
            grid.addWidget(Label(name, "small", "ink3"), at, 0, Qt.AlignmentFlag.AlignTop)
            grid.addWidget(words, at, 1)
