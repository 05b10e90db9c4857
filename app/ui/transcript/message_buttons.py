"""The small buttons of a message: Copy, hover buttons, and the version switch."""

from __future__ import annotations

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.translation import figure, tr
from app.ui.transcript.selection.copied_text import copy_message_text
from app.ui.widgets.controls import COPIED_MS, IconButton, Label


class HoverButton(IconButton):
    """An icon button. only_on_hover: painted while its message is hovered or it has the focus; it always takes its
    space."""

    def __init__(self, glyph: str, words: str, only_on_hover: bool = False, parent: QWidget | None = None) -> None:
        super().__init__(glyph, words, parent=parent)
        self._hidden = only_on_hover
        self.glyph_px = 16

    def reveal(self, shown: bool) -> None:
        """Show or hide it, as the mouse enters or leaves its message."""
        self._hidden = not shown
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._hidden or self.hasFocus():
            super().paintEvent(event)


class CopyButton(HoverButton):
    """Copies `text_to_copy`, the Markdown of an answer or plain text, and confirms for a moment."""

    def __init__(self, words: str, is_answer: bool, only_on_hover: bool = False) -> None:
        super().__init__("copy", words, only_on_hover)
        self._is_answer = is_answer
        self._words = words
        self.text_to_copy = ""
        self.clicked.connect(self._copy)
        self._resting: QTimer | None = None  # runs during the confirmation

    def _copy(self) -> None:
        copy_message_text(self.text_to_copy, self._is_answer)
        self.set_name(tr("Copied"))
        self.set_glyph("check")
        if self._resting is None:
            self._resting = QTimer(self, singleShot=True, interval=COPIED_MS)
            self._resting.timeout.connect(self._rest)
        self._resting.start()

    def _rest(self) -> None:
        self.set_name(self._words)
        self.set_glyph("copy")

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._resting is not None and self._resting.isActive():
            IconButton.paintEvent(self, event)
        else:
            super().paintEvent(event)


class VersionSwitch(QWidget):
    """A switch between a message's versions, like "‹ 2 / 3 ›"."""

    stepped = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.back = HoverButton("left", tr("Previous version"))
        self.on = HoverButton("right", tr("Next version"))
        self.label = Label("", "meta", "ink2")
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.setSpacing(0)
        for part in (self.back, self.label, self.on):
            self._row.addWidget(part)
        self.back.clicked.connect(lambda: self.stepped.emit(-1))
        self.on.clicked.connect(lambda: self.stepped.emit(1))

    def show_place(self, which: int, count: int) -> None:
        """Show that this is version `which` (from 1) of `count`."""
        self.label.setText(f"{which:,} / {count:,}")
        self.setAccessibleName(tr("Version {which} of {count}", which=figure(which), count=figure(count)))
        self.back.setEnabled(which > 1)
        self.on.setEnabled(which < count)


def reveal_all(buttons: list[HoverButton], shown: bool) -> None:
    """Show or hide hover buttons."""
    for button in buttons:
        button.reveal(shown)
