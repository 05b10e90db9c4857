"""A search field with an icon and a cross. The sidebar, the find bar and the Models page use it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent
from PySide6.QtWidgets import QLineEdit, QWidget

from app.translation import tr
from app.ui.look import icons, theme


class SearchField(QLineEdit):
    """A search field. left: Esc or the cross. stepped: 1 for Down, -1 for Up. entered:
    Return."""

    left = Signal()
    stepped = Signal(int)
    entered = Signal()
    focus_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "field")
        self.setProperty("glyph", "true")
        self.setPlaceholderText(tr("Search chats"))
        self.setAccessibleName(tr("Search chats"))
        self._icon = self.addAction(icons.icon("search", "ink3", 16), QLineEdit.ActionPosition.LeadingPosition)
        self._clear = self.addAction(icons.icon("close", "ink2", 16), QLineEdit.ActionPosition.TrailingPosition)
        self._clear.setToolTip(tr("Close the search  (Esc)"))
        self._clear.triggered.connect(lambda _=False: self.left.emit())
        theme.current().changed.connect(self._restyle)

    def _restyle(self) -> None:
        self._icon.setIcon(icons.icon("search", "ink3", 16))
        self._clear.setIcon(icons.icon("close", "ink2", 16))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        if key == Qt.Key.Key_Escape:
            self.left.emit()
        elif key in {Qt.Key.Key_Up, Qt.Key.Key_Down}:
            self.stepped.emit(1 if key == Qt.Key.Key_Down else -1)
        elif key in {Qt.Key.Key_Return, Qt.Key.Key_Enter}:
            self.entered.emit()
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focus_changed.emit()
