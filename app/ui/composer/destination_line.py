"""The line in the composer that says where messages go if another server answers the chat.

A server elsewhere has a cloud icon and its own colour, which mean that text leaves this PC. Another program on this PC
has neither.
"""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QWidget

from app.clients.engine_status import EngineStatus
from app.translation import tr
from app.ui.look import icons, theme
from app.ui.look.painting import antialiased, block
from app.ui.widgets.controls import Button, Label

SENT_TO = "sentTo"  # property of a page: the EngineStatus of its chat


def sent_to(widget: QWidget) -> EngineStatus:
    """Return the status of the chat that a widget's text is sent to, from the page around it."""
    around: QWidget | None = widget
    while around is not None:
        if isinstance(status := around.property(SENT_TO), EngineStatus):
            return status
        around = around.parentWidget()
    return EngineStatus()


class DestinationLine(QFrame):
    """The line "Sent to NAME" with the host and a button back to this PC. back_requested: the button was pressed.

    with_way_back: whether to show the button.
    """

    back_requested = Signal()

    def __init__(self, with_way_back: bool = True, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._glyph = icons.Glyph("away", "away", 16)
        self._where = Label("", "chip", "away")
        self._host = Label("", "meta", "away", elide=True)
        self._leaves = False
        self.back = Button(
            tr("Answer on this PC"), "secondary", tooltip=tr("From the next message on, this chat stays on this PC")
        )
        self.back.height_px, self.back.padding_px = 26, 8
        self.back.setVisible(with_way_back)
        self.back.clicked.connect(self.back_requested)
        self._row = QHBoxLayout(self)
        self._row.addWidget(self._glyph)
        self._row.addWidget(self._where)
        self._row.addWidget(self._host, 1)
        self._row.addWidget(self.back, 0, Qt.AlignmentFlag.AlignVCenter)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self.show_server(EngineStatus())

    def show_server(self, status: EngineStatus) -> None:
        """Show where messages go; hidden for a chat without a server."""
        server, host = status.server, status.host
        self.setVisible(bool(server))
        self._leaves = status.leaves
        look = "away" if status.leaves else "ink2"
        self._glyph.set_look("away" if status.leaves else "chip", look)
        self._where.set_look("chip", look)
        self._host.set_look("meta", look)
        self.back.setText(tr("Answer on this PC") if status.leaves else tr("Answer with Hearth"))
        shown = server if len(server) <= 40 else server[:39] + "…"
        self._where.setText(tr("Sent to {server}", server=shown))
        self._host.setText(host if host != server else "")
        if status.leaves:
            said = tr("What you write is sent to {server}, {host}. It leaves this PC.", server=server, host=host)
            self.setToolTip(tr("What you write in this chat leaves this PC."))
        else:
            if server:
                self._host.setText(tr("another program on this PC"))
            said = tr("What you write is sent to {server}, another program on this PC.", server=server)
            self.setToolTip(said)
        self.setAccessibleName(said)
        self.update()

    def words(self) -> str:
        """Return the text, for tests."""
        return self._where.words if not self.isHidden() else ""

    def _restyle(self) -> None:
        px = theme.px
        self.setFixedHeight(px(32))
        self._row.setContentsMargins(px(10), 0, px(3), 0)
        self._row.setSpacing(px(7))

    def paintEvent(self, event: QPaintEvent) -> None:
        ground = theme.colour("away_soft" if self._leaves else "sunken")
        block(antialiased(self), QRectF(self.rect()), ground, theme.px(8))
