"""A row of an answer that opens and closes the content below it."""

from __future__ import annotations

from PySide6.QtCore import QEasingCurve, QVariantAnimation
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.ui.look import theme
from app.ui.widgets.controls import Button

SLIDE_MS = 160
ANY_HEIGHT = 16_777_215  # QWIDGETSIZE_MAX: no bound


class FoldingRow(QWidget):
    """A row that begins with `head`, and a hidden room with the content.

    Subclasses add widgets to `row` and `inside`, name the head, and open or close the room unless `chosen`.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.head = self.make_head()
        self.head.padding_px = 4
        self.head.align_left = True
        self.head.clicked.connect(self._toggle)
        self.row = QHBoxLayout()
        self.row.addWidget(self.head)
        self.room = QWidget()  # shows a part of the content while it slides open or shut
        self.inside = QVBoxLayout(self.room)
        self.inside.setSpacing(0)
        self._slide: QVariantAnimation | None = None
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(self.row)
        column.addWidget(self.room)
        self._open = False
        self.chosen = False  # the user opened or closed it
        self.room.hide()

    def make_head(self) -> Button:
        """Return the button that opens and closes the room."""
        head = Button("", "quiet", "right")
        head.glyph_px = 15
        return head

    @property
    def is_open(self) -> bool:
        """Whether the content is shown."""
        return self._open

    def set_open(self, shown: bool) -> None:
        self._open = shown
        self.move_room(theme.duration(SLIDE_MS) if self.isVisible() else 0)
        self.head.set_glyph("down" if shown else "right" if not self.isRightToLeft() else "left")
        self.update()

    def _toggle(self) -> None:
        self.chosen = True
        self.set_open(not self._open)

    def move_room(self, took_ms: int) -> None:
        """Animate opening or closing, or skip the animation if `took_ms` is 0."""
        if self._slide is not None:
            self._slide.stop()
        if not took_ms:
            self._arrive()
            return
        if self._slide is None:
            self._slide = QVariantAnimation(self)
            self._slide.setEasingCurve(QEasingCurve.Type.OutCubic)
            self._slide.valueChanged.connect(self._show_part)
            self._slide.finished.connect(self._arrive)
        self._slide.setDuration(took_ms)
        self._slide.setStartValue(0 if self.room.isHidden() else self.room.height())
        self._slide.setEndValue(self.inside.sizeHint().height() if self._open else 0)
        self._slide.start()
        self.room.show()

    def _show_part(self, height: int) -> None:
        self.room.setMaximumHeight(height)

    def _arrive(self) -> None:
        self.room.setMaximumHeight(ANY_HEIGHT)
        self.room.setVisible(self._open)
