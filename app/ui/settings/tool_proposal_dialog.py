"""The dialog with the MCP servers that a file of another program lists. Only those that the user ticks are added."""

from __future__ import annotations

from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.tools.call_text import breakable, visible
from app.tools.mcp.server_list import Proposal, ToolServer
from app.tools.mcp.servers_controller import ToolServersController
from app.translation import tr
from app.ui.look import theme
from app.ui.models.model_dialogs import card_of_rows
from app.ui.settings.tool_approvals import command_line, is_open
from app.ui.widgets.controls import Button, Label, Toggle
from app.ui.widgets.dialog import Dialog


class ToolProposalDialog(Dialog):
    """Each server with its whole command line or address, and why others cannot be used."""

    def __init__(self, parent: QWidget, controller: ToolServersController, proposal: Proposal, file_name: str) -> None:
        super().__init__(
            parent, tr("MCP servers in {file}", file=file_name),
            tr("Choose those to add. They stay off until you switch them on. A program runs with your rights; where "
               "it is not confined, it can do whatever you can do."), 560,
        )  # fmt: skip
        self._controller = controller
        self.toggles = [(Toggle(tr("Add {name}", name=server.name)), server) for server in proposal.servers]
        if self.toggles:
            self.body.addWidget(card_of_rows([self._server_row(server, toggle) for toggle, server in self.toggles]))
        else:
            self.body.addWidget(Label(tr("It holds no server that Hearth can use."), "small", wrap=True))
        if proposal.refused:
            self.body.addWidget(Label(tr("These cannot be added:"), "small", "ink2"))
            for name, why in proposal.refused:
                sentence = why if name in why else f"{name}: {why}"
                self.body.addWidget(Label(breakable(visible(sentence)), "small", "ink3", wrap=True))
        self.fault = Label("", "small", "bad", wrap=True)
        self.fault.hide()
        self.body.addWidget(self.fault)
        self.add_close(tr("Cancel") if self.toggles else tr("Close"))
        self.add = self.add_button(Button(tr("Add"), "primary"))
        self.add.setVisible(bool(self.toggles))
        self.add.clicked.connect(self._add)
        self._show_enough()

    def _server_row(self, server: ToolServer, toggle: Toggle) -> QFrame:
        px = theme.px
        row = QFrame()
        across = QHBoxLayout(row)
        across.setContentsMargins(px(14), px(10), px(12), px(10))
        across.setSpacing(px(12))
        words = QVBoxLayout()
        words.setSpacing(px(2))
        words.addWidget(Label(breakable(visible(server.name)), "label", wrap=True))
        words.addWidget(Label(breakable(command_line(server)), "code", "ink2", wrap=True))
        named = ", ".join(server.variables or server.headers)
        if named:
            sentence = tr("Sets: {names}", names=named) if server.variables else tr("Sends: {names}", names=named)
            words.addWidget(Label(breakable(visible(sentence)), "small", wrap=True))
        if is_open(server):
            words.addWidget(Label(tr("Not confined"), "small", "warn"))
        across.addLayout(words, 1)
        across.addWidget(toggle)
        toggle.toggled.connect(lambda _: self._show_enough())
        return row

    def _show_enough(self) -> None:
        self.add.setEnabled(any(toggle.isChecked() for toggle, _ in self.toggles))

    def return_pressed(self) -> None:
        if self.add.isEnabled():
            self.add.click()

    def _add(self) -> None:
        """Add the ticked servers. Those that cannot be added stay ticked, and the dialog says why."""
        faults = []
        for toggle, server in self.toggles:
            if toggle.isChecked():
                stored = self._controller.put(server)
                if isinstance(stored, str):
                    faults.append(stored)
                else:
                    toggle.setChecked(False)
                    toggle.setEnabled(False)
        if not faults:
            self.accept()
            return
        self.fault.setText(" ".join(dict.fromkeys(faults)))
        self.fault.show()
        self.fit()
