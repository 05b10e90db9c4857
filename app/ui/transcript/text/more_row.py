"""A row with a button that shows more, and how much there is."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.ui.look import theme
from app.ui.widgets.controls import Button, Label


class MoreRow(QWidget):
    """A button and text beside it. clicked: show more."""

    clicked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.button = Button("", "quiet", "down")
        self.button.clicked.connect(self.clicked)
        self.note = Label("", "meta", elide=True)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(theme.px(8))
        row.addWidget(self.button)
        row.addWidget(self.note, 1)

    def show_text(self, button: str, note: str) -> None:
        """Set the button's text and the note."""
        self.button.setText(button)
        self.note.setText(note)
