"""The section of servers on the Models page, with the models to offer and whether each server is on this PC."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.clients.servers import Place, Server
from app.translation import tr
from app.ui.look import icons, theme
from app.ui.models.model_dialogs import card_of_rows
from app.ui.widgets.controls import Button, Chip, IconButton, Label


class ServerSection(QFrame):
    """chosen: a Place to chat with. edit_requested: a server's id. add_requested: add a server."""

    chosen = Signal(object)
    edit_requested = Signal(str)
    add_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(tr("Servers"))
        self._head = QHBoxLayout()
        self._head.addWidget(icons.Glyph("server", "ink2", 17))
        self._head.addWidget(Label(tr("Servers"), "heading"))
        self._says = Label(tr("Only chats for which you choose one are sent there."), "small", elide=True)
        self._head.addWidget(self._says, 1)
        self.add = Button(tr("Add a server"), "secondary", "plus")
        self.add.clicked.connect(self.add_requested)
        self._head.addWidget(self.add)
        self._rows = QVBoxLayout()
        self._column = QVBoxLayout(self)
        self._column.addLayout(self._head)
        self._column.addLayout(self._rows)
        self._servers: list[Server] = []
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def set_servers(self, servers: Sequence[Server]) -> None:
        """Set the servers. An unchanged list keeps its rows and the focus."""
        if list(servers) != self._servers:
            self._servers = list(servers)
            self._build()

    def _build(self) -> None:
        focus = QApplication.focusWidget()
        focused = focus is not None and self.isAncestorOf(focus)
        held = focus.accessibleName() if focus is not None else ""
        while (item := self._rows.takeAt(0)) is not None:
            if (gone := item.widget()) is not None:
                gone.hide()
                gone.deleteLater()
        rows = [
            self._row(server, model, n) for server in self._servers for n, model in enumerate(server.models or ("",))
        ]
        if rows:
            self._rows.addWidget(card_of_rows(rows))
        if focused:
            again = (button for row in rows for button in row.findChildren(Button) if button.accessibleName() == held)
            next(again, self.add).setFocus(Qt.FocusReason.OtherFocusReason)

    def _row(self, server: Server, model: str, number: int) -> QFrame:
        px = theme.px
        row = QFrame()
        across = QHBoxLayout(row)
        across.setContentsMargins(px(14), px(9), px(12), px(9))
        across.setSpacing(px(10))
        words = QVBoxLayout()
        words.setSpacing(1)
        words.addWidget(Label(model or tr("No model chosen"), "label", elide=True))
        words.addWidget(Label(" · ".join(dict.fromkeys((server.name, server.host))), "small", elide=True))
        across.addLayout(words, 1)
        where = Chip(tr("On this PC")) if server.is_here else Chip(tr("Not on this PC"), "away")
        across.addWidget(where, 0, Qt.AlignmentFlag.AlignVCenter)
        if model:
            use = Button(tr("New chat"), "secondary")
            use.setAccessibleName(tr("New chat with {model} on {server}", model=model, server=server.name))
            use.clicked.connect(partial(self.chosen.emit, Place(server, model)))
            across.addWidget(use)
        if number == 0:
            edit = IconButton("pen", tr("Change {server}", server=server.name))
            edit.clicked.connect(partial(self.edit_requested.emit, server.id))
            across.addWidget(edit)
        else:
            across.addSpacing(px(32 + 10))
        return row

    def _restyle(self) -> None:
        px = theme.px
        self._column.setContentsMargins(0, px(16), 0, 0)
        self._column.setSpacing(px(10))
        self._head.setSpacing(px(8))
        self._build()
