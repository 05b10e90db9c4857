"""The row of the settings with the user's MCP servers, and the buttons that add some."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QFileDialog, QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.tools.call_text import one_line
from app.tools.mcp.server_list import ToolServer
from app.tools.mcp.servers_controller import ToolServersController
from app.translation import figure, tr, tr_n
from app.ui.look import theme
from app.ui.settings.tool_approvals import is_open, short_target
from app.ui.settings.tool_proposal_dialog import ToolProposalDialog
from app.ui.settings.tool_server_dialog import ToolServerDialog
from app.ui.widgets.controls import Button, IconButton, Label, Rule, Toggle
from app.ui.widgets.flow import Flow


class ToolServerLine(QFrame):
    """A server: its name, what it is, what the user must know of it, a button to change it, and a switch."""

    def __init__(self, server: ToolServer, controller: ToolServersController) -> None:
        super().__init__()
        n = len(server.approved)
        state = controller.state(server.id)
        approved = tr_n("{n} tool approved", "{n} tools approved", n, n=figure(n)) if n else tr("No tool approved")
        self.marks = [tr("Not confined")] if is_open(server) or state.is_confined is False else []
        if controller.has_changed_tools(server.id):
            self.marks.append(tr("Tools changed since you approved them"))
        words = QVBoxLayout()
        words.setSpacing(1)
        words.addWidget(Label(one_line(server.name), "row", "ink", elide=True))
        words.addWidget(Label(one_line(short_target(server)), "small", elide=True))
        words.addWidget(Label(approved, "small", "ink3", wrap=True))
        for mark in self.marks:
            words.addWidget(Label(mark, "small", "warn", wrap=True))
        if state.sentence:
            words.addWidget(Label(state.sentence, "small", "bad", wrap=True))
        self.edit = IconButton("pen", tr("Change {server}", server=one_line(server.name)))
        self.toggle = Toggle(one_line(server.name), server.is_on)
        row = QHBoxLayout(self)
        row.addLayout(words, 1)
        for control in (self.edit, self.toggle):
            row.addWidget(control, 0, Qt.AlignmentFlag.AlignVCenter)
        row.setContentsMargins(0, theme.px(8), 0, theme.px(8))
        row.setSpacing(theme.px(10))


class ToolServerRows(QFrame):
    """All servers, updated with the list. lines: by the server's id."""

    def __init__(self, controller: ToolServersController, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._controller = controller
        self._shown: object = None
        self.lines: dict[str, ToolServerLine] = {}
        self.title = Label(tr("MCP servers"), "label", wrap=True)
        self.description = Label(
            tr("Programs and addresses that offer tools. A chat can call a tool after you approved it here and "
               "switched it on in the chat."), "small", "ink3", wrap=True,
        )  # fmt: skip
        self._list = QVBoxLayout()
        self._list.setSpacing(0)
        self.fault = Label("", "small", "bad", wrap=True)
        self.add = Button(tr("Add…"), "secondary", "plus")
        self.add.setAccessibleName(tr("Add an MCP server"))
        self.add.clicked.connect(self.open_new)
        self.take = Button(tr("Import from a file…"))
        self.take.setToolTip(tr("Reads the servers of another program, such as mcp.json"))
        self.take.clicked.connect(self._choose_file)
        buttons = QWidget()
        self._flow = Flow(buttons)
        self._flow.addWidget(self.add)
        self._flow.addWidget(self.take)
        self._column = QVBoxLayout(self)
        for part in (self.title, self.description):
            self._column.addWidget(part)
        self._column.addLayout(self._list)
        self._column.addWidget(self.fault)
        self._column.addWidget(buttons)
        controller.changed.connect(self._show)
        theme.current().changed.connect(self._restyle)
        self._say("")
        self._restyle()

    def is_found_by(self, words: list[str]) -> bool:
        """Return whether the row's texts contain every word (lower case)."""
        names = (server.name for server in self._controller.servers.servers)
        said = " ".join((self.title.words, self.description.words, tr("Tools"), *names)).casefold()
        return all(word in said for word in words)

    def open_new(self) -> None:
        ToolServerDialog(self.window(), self._controller).open()

    def _open(self, server_id: str) -> None:
        server = self._controller.servers.get(server_id)
        if server is not None:
            ToolServerDialog(self.window(), self._controller, server).open()

    def _choose_file(self) -> None:
        path, _ = QFileDialog.getOpenFileName(
            self, tr("Import MCP servers"), str(Path.home()), tr("Settings of other programs (*.json)")
        )
        if path:
            self.take_over(Path(path))

    def take_over(self, file: Path) -> None:
        """Show the servers of another program's file, to add some."""
        found = self._controller.propose(file)
        if isinstance(found, str):
            self._say(found)
            return
        self._say("")
        ToolProposalDialog(self.window(), self._controller, found, file.name).open()

    def _switch(self, server_id: str, is_on: bool) -> None:
        fault = self._controller.set_on(server_id, is_on)
        self._say(fault)
        if fault:
            self.lines[server_id].toggle.setChecked(not is_on)

    def _say(self, fault: str) -> None:
        self.fault.setText(fault)
        self.fault.setVisible(bool(fault))

    def _show(self) -> None:
        """Show the servers. The control that has the focus gets it again."""
        focus = QApplication.focusWidget()
        focused = focus is not None and self.isAncestorOf(focus)
        name, kind = (focus.accessibleName(), type(focus)) if focus is not None else ("", QWidget)
        while (item := self._list.takeAt(0)) is not None:
            if (gone := item.widget()) is not None:
                gone.hide()
                gone.deleteLater()
        self.lines = {}
        for server in self._controller.servers.servers:
            line = self.lines[server.id] = ToolServerLine(server, self._controller)
            line.edit.clicked.connect(partial(self._open, server.id))
            line.toggle.clicked.connect(lambda on, server_id=server.id: self._switch(server_id, on))
            rule = Rule()
            for part in (rule, line):
                self._list.addWidget(part)
                part.show()
        self.add.setEnabled(not self._controller.is_full)
        self.add.setToolTip(tr("Remove a server first") if self._controller.is_full else "")
        if focused:
            again = (
                one for line in self.lines.values() for one in line.findChildren(kind) if one.accessibleName() == name
            )
            next(again, self.add).setFocus(Qt.FocusReason.OtherFocusReason)

    def _restyle(self) -> None:
        px = theme.px
        self._column.setContentsMargins(px(16), px(12), px(16), px(14))
        self._column.setSpacing(px(6))
        self._flow.setSpacing(px(8))
        self._show()
