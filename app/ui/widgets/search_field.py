"""Fields with a magnifying glass, and one that has a cross too. Both icons grow with the text, which those of
QLineEdit's actions do not."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QWidget

from app.translation import tr
from app.ui.look import icons, theme
from app.ui.look.painting import antialiased
from app.ui.widgets.controls import IconButton

GLASS_PX, INSET_PX = 16, 9


class GlassField(QLineEdit):
    """A field that filters or searches. name: its accessible name; None: the placeholder."""

    def __init__(self, placeholder: str, name: str | None = None, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "field")
        self.setProperty("glyph", "true")
        self.setPlaceholderText(placeholder)
        self.setAccessibleName(name or placeholder)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self.setFont(theme.font("row"))
        self.setTextMargins(theme.px(GLASS_PX + 8), 0, 0, 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        side = theme.px(GLASS_PX)
        place = QRectF(theme.px(INSET_PX), (self.height() - side) / 2, side, side)
        icons.paint(antialiased(self), "search", place, theme.colour("ink3"))


class SearchField(GlassField):
    """A search field. left: Esc or the cross. stepped: 1 for Down, -1 for Up. entered:
    Return."""

    left = Signal()
    stepped = Signal(int)
    entered = Signal()
    rename_requested = Signal()  # F2
    focus_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(tr("Search chats"), parent=parent)
        self._clear = IconButton("close", tr("Close the search  (Esc)"))
        self._clear.glyph_px, self._clear.height_px = GLASS_PX, 30  # inside the border
        self._clear.setFixedSize(self._clear.sizeHint())
        self._clear.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._clear.setCursor(Qt.CursorShape.ArrowCursor)
        self._clear.clicked.connect(lambda _=False: self.left.emit())
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self._clear, 0, Qt.AlignmentFlag.AlignTrailing | Qt.AlignmentFlag.AlignVCenter)

    def _restyle(self) -> None:
        super()._restyle()
        self.setTextMargins(self.textMargins().left(), 0, self.textMargins().left(), 0)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        if key == Qt.Key.Key_Escape:
            self.left.emit()
        elif key in {Qt.Key.Key_Up, Qt.Key.Key_Down}:
            self.stepped.emit(1 if key == Qt.Key.Key_Down else -1)
        elif key in {Qt.Key.Key_Return, Qt.Key.Key_Enter}:
            self.entered.emit()
        elif key == Qt.Key.Key_F2:
            self.rename_requested.emit()
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focus_changed.emit()
