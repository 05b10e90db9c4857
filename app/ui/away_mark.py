"""The mark of what is not on this PC: a cloud in a colour of its own, and where the words that are written will go.

It stands wherever a message is written while the chat is sent to a server elsewhere.
"""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QWidget

from app.translation import tr
from app.ui import icons, theme
from app.ui.controls import Button, Label
from app.ui.painting import antialiased, block

SENT_TO = "sentTo"  # property of a page: the server that what is written on it goes to


def sent_to(widget: QWidget) -> str:
    """The server elsewhere that words written in a widget go to, by the page around it; empty: they stay here."""
    around: QWidget | None = widget
    while around is not None:
        if (server := around.property(SENT_TO)) is not None:
            return str(server)
        around = around.parentWidget()
    return ""


class AwayMark(QFrame):
    """A line on a soft ground: "Sent to NAME", its host, and the way back. back_asked: that was pressed.

    with_way_back: whether it offers that.
    """

    back_asked = Signal()

    def __init__(self, with_way_back: bool = True, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._glyph = icons.Glyph("away", "away", 16)
        self._where = Label("", "chip", "away")
        self._host = Label("", "meta", "away", elide=True)
        self.back = Button(tr("Answer on this PC"), "quiet", tooltip=tr("From the next message on, nothing is sent"))
        self.back.height_px = 26
        self.back.setVisible(with_way_back)
        self.back.clicked.connect(self.back_asked)
        self._row = QHBoxLayout(self)
        self._row.addWidget(self._glyph)
        self._row.addWidget(self._where)
        self._row.addWidget(self._host, 1)
        self._row.addWidget(self.back, 0, Qt.AlignmentFlag.AlignVCenter)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self.show_server("", "")

    def show_server(self, server: str, host: str = "") -> None:
        """Where words go from now on; an empty name hides the mark."""
        self.setVisible(bool(server))
        shown = server if len(server) <= 40 else server[:39] + "…"
        self._where.setText(tr("Sent to {server}", server=shown))
        self._host.setText(host if host != server else "")
        self.setAccessibleName(
            tr("What you write is sent to {server}, {host}. It leaves this PC.", server=server, host=host)
        )
        self.setToolTip(tr("What you write in this chat leaves this PC."))

    def words(self) -> str:
        """What it says, for tests."""
        return self._where.words if not self.isHidden() else ""

    def _restyle(self) -> None:
        px = theme.px
        self.setFixedHeight(px(32))
        self._row.setContentsMargins(px(10), 0, px(3), 0)
        self._row.setSpacing(px(7))

    def paintEvent(self, event: QPaintEvent) -> None:
        block(antialiased(self), QRectF(self.rect()), theme.colour("away_soft"), theme.px(8))
