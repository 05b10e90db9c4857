"""A menu of rows with a switch each, which stays open while they are switched: the base of tools and documents."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.ui.look import theme
from app.ui.widgets.controls import Label, Toggle
from app.ui.widgets.pick_menu import PickMenu
from app.ui.widgets.pick_row import INSET, ROW

TWO_LINES = 46


class SwitchRow(QWidget):
    """A title, a line below it if one is set, and a switch. switched: its key, and whether it is on now."""

    switched = Signal(str, bool)

    def __init__(self, key: str, title: str, tooltip: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.key = key
        self.setToolTip(tooltip)
        self.title = Label(title, "row", "ink", elide=True)
        self.line = Label("", "meta", elide=True)
        self.line.hide()
        self.toggle = Toggle(title)
        self.toggle.setToolTip(tooltip)
        self.toggle.toggled.connect(lambda _: self.update())
        self.toggle.clicked.connect(lambda on: self.switched.emit(key, on))
        self._words = QVBoxLayout()
        self._words.setSpacing(0)
        self._words.addStretch(1)
        self._words.addWidget(self.title)
        self._words.addWidget(self.line)
        self._words.addStretch(1)
        self._row = QHBoxLayout(self)
        self._row.addLayout(self._words, 1)
        self._row.addWidget(self.toggle)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def set_line(self, words: str, token: str = "ink3") -> None:
        """Set the line below the title."""
        if (words, token) != (self.line.words, self.line.token):
            self.line.set_look("meta", token)
            self.line.setText(words)
            self.line.setVisible(bool(words))
            self.toggle.setAccessibleDescription(words)
            self._restyle()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        event.accept()  # otherwise the release goes to the widget below

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and self.rect().contains(event.position().toPoint()):
            self.toggle.click()

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.underMouse():
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.wash("hover"))
            painter.drawRoundedRect(self.rect(), theme.px(8), theme.px(8))

    def _restyle(self) -> None:
        self._row.setContentsMargins(theme.px(INSET), 0, theme.px(INSET), 0)
        self._row.setSpacing(theme.px(12))
        self.setFixedHeight(theme.px(TWO_LINES if self.line.words else ROW))


class SwitchMenu(PickMenu):
    """switches: the column of the rows, which the subclass adds to its body. Return presses the focused switch."""

    def __init__(self, name: str, window: QWidget, width: int) -> None:
        super().__init__(name, window, width)
        self.switches = QVBoxLayout()
        self.switches.setSpacing(0)

    def add_row(self, row: SwitchRow) -> None:
        """Append a row, shown at once, so that the card's height is right."""
        row.switched.connect(self.switch)
        self.switches.addWidget(row)
        row.show()

    def switch(self, key: str, is_on: bool) -> None:
        """Switch a row's item."""

    def rows(self) -> list[SwitchRow]:
        found = (self.switches.itemAt(i) for i in range(self.switches.count()))
        return [row for item in found if item is not None and isinstance(row := item.widget(), SwitchRow)]

    def open_at(self, anchor: QWidget) -> None:
        if self.is_open:
            return
        super().open_at(anchor)
        self.focus_first()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        focus = self.window().focusWidget()
        if event.key() in {Qt.Key.Key_Return, Qt.Key.Key_Enter} and isinstance(focus, Toggle):
            focus.click()
        else:
            super().keyPressEvent(event)
