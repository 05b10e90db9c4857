"""The row above the composer's field with the message that is sent after the answer."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QWidget

from app.chat.store.conversation import Unsent
from app.translation import figure, tr, tr_n
from app.ui.look import icons, theme
from app.ui.look.painting import antialiased, block
from app.ui.widgets.controls import IconButton, Label
from app.ui.widgets.floating import announce

LONGEST_TOOLTIP = 600  # characters


class NextMessageRow(QFrame):
    """The queued message, hidden without one. edit_requested: move it back to the field. remove_requested: discard
    it."""

    edit_requested = Signal()
    remove_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.queued: Unsent | None = None
        self._glyph = icons.Glyph("clock", "ink3", 16)
        self._when = Label(tr("Sent after this answer"), "meta")
        self.words = Label("", "small", "ink", elide=True)
        self.edit, self.remove = IconButton("pen", tr("Edit the next message")), IconButton("close", tr("Don't send"))
        for button in (self.edit, self.remove):
            button.glyph_px = 15
            button.height_px = 28
            button.setFixedSize(button.sizeHint())
        self.edit.clicked.connect(self.edit_requested)
        self.remove.clicked.connect(self.remove_requested)
        self._row = QHBoxLayout(self)
        self._row.addWidget(self._glyph)
        self._row.addWidget(self._when)
        self._row.addWidget(self.words, 1)
        self._row.addWidget(self.edit)
        self._row.addWidget(self.remove)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self.hide()

    def show_message(self, queued: Unsent | None) -> None:
        """Show the queued message; None hides the row."""
        before, self.queued = self.queued, queued
        self.setVisible(queued is not None)
        if queued is None or queued == before:
            return
        count = len(queued.attachments)
        attached = tr_n("{n} attachment", "{n} attachments", count, n=figure(count)) if count else ""
        words = " · ".join(part for part in (" ".join(queued.text.split()), attached) if part)
        self.words.setText(words)
        self.setAccessibleName(tr("Sent after this answer: {words}", words=words[:LONGEST_TOOLTIP]))
        self.setToolTip(queued.text[:LONGEST_TOOLTIP])
        announce(self, self.accessibleName())

    def _restyle(self) -> None:
        px = theme.px
        self.setFixedHeight(px(34))
        self._row.setContentsMargins(px(10), 0, px(3), 0)
        self._row.setSpacing(px(7))

    def paintEvent(self, event: QPaintEvent) -> None:
        block(antialiased(self), QRectF(self.rect()), theme.colour("sunken"), theme.px(8))
