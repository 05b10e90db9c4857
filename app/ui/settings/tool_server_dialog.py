"""The dialog for one MCP server: how it is started or reached, and which of its tools are approved.

Nothing is started before the user presses the button that looks at the tools.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QFrame, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.chat.store.preset_store import NAME_LENGTH
from app.tools.mcp.client import ListedTool
from app.tools.mcp.confined import can_confine
from app.tools.mcp.server_list import Definition, ToolServer
from app.tools.mcp.servers_controller import ToolServersController
from app.translation import tr
from app.ui.look import theme
from app.ui.models.model_dialogs import card_of_rows, two_lines
from app.ui.settings.tool_approvals import ApprovalRow, command_line, fit_lines, read_only, rights_text
from app.ui.widgets.controls import Button, Dot, Label, Segments, Toggle
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.floating import confirm
from app.ui.widgets.named_field import NamedField

WIDE_PX = 560
MOST_OUTPUT = 6  # lines of a failed program's output, before it scrolls
MOST_COMMAND = 10  # lines of a command line, before it scrolls


class StartsProgramDialog(Dialog):
    """Asks before a program is kept that Hearth will start. It shows the whole command line."""

    def __init__(self, parent: QWidget, server: ToolServer, on_yes: Callable[[], None]) -> None:
        super().__init__(
            parent, tr("Let Hearth start this program?"),
            tr("Hearth starts it when you look at its tools, or when a chat calls one of them.") + " "
            + rights_text(server), 480,
        )  # fmt: skip
        self.command = read_only(tr("Command line"), command_line(server))
        fit_lines(self.command, MOST_COMMAND)
        self.body.addWidget(self.command)
        self.add_close(tr("Cancel"))
        self.yes = self.add_button(Button(tr("Allow")))
        self.yes.clicked.connect(self.accept)
        self.accepted.connect(on_yes)


class ToolServerDialog(Dialog):
    """Adds a server, or shows one. A server that was added stays shown, so that its tools can be looked at."""

    def __init__(self, parent: QWidget, controller: ToolServersController, server: ToolServer | None = None) -> None:
        super().__init__(parent, "", wide_px=WIDE_PX)
        self._controller, self.server = controller, server
        self.rows: list[ApprovalRow] = []
        self.kind = Segments(
            [("stdio", tr("Program on this PC")), ("http", tr("Address"))], "stdio", tr("Kind of server")
        )
        self._entry = QFrame()  # folded for a server that is known
        self.fold = Button(tr("Settings of this server"), "quiet", "right")
        self.fold.clicked.connect(lambda: self._set_open(self._entry.isHidden()))
        self.body.addWidget(self.fold, 0, Qt.AlignmentFlag.AlignLeading)
        self._column = QVBoxLayout(self._entry)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.addWidget(self.kind, 0, Qt.AlignmentFlag.AlignLeading)
        self.body.addWidget(self._entry)
        self.fields: dict[str, NamedField] = {}
        self._add_fields()
        self._add_confined()
        self._add_tools()
        self.remove = self.add_button(Button(tr("Remove"), "danger"), at_start=True)
        self.close_button = self.add_close(tr("Cancel"))
        self.keep = self.add_button(Button(tr("Add"), "primary"))
        self.kind.picked.connect(lambda _: self._show_kind())
        self.remove.clicked.connect(self._ask_remove)
        self.keep.clicked.connect(lambda: self._save(self._added if self.server is None else self.accept))
        self.finished.connect(lambda _: self._stop_looking())
        controller.looked.connect(self._show_looked)
        theme.current().changed.connect(self._restyle)
        self._show_server()
        self._restyle()
        (self.fields["name"].edit if server is None else self.look).setFocus()

    # --- the server

    def _add_fields(self) -> None:
        private = tr("Values are stored in a file that only you can read.")
        self.fields = {
            "name": NamedField(tr("Name"), tr("Any name")),
            "command": NamedField(tr("Command"), "npx"),
            "args": NamedField(tr("Arguments, one per line"), "-y\n@modelcontextprotocol/server-everything", n_lines=3),
            "folders": NamedField(
                tr("Folders that it may read and change, one per line"), "",
                tr("Without one, it can change nothing but a folder of its own.") if can_confine() else "", 2,
            ),
            "variables": NamedField(tr("Variables, one NAME=value per line"), "API_KEY=…", private, 2),
            "address": NamedField(tr("Address"), "https://example.org/mcp"),
            "headers": NamedField(tr("Headers, one per line"), tr("Authorization: Bearer …"), private, 2),
        }  # fmt: skip
        name = self.fields["name"].edit
        assert isinstance(name, QLineEdit)
        name.setMaxLength(NAME_LENGTH)
        self.choose = Button(tr("Add a folder…"), "quiet")
        self.choose.clicked.connect(self._choose_folder)
        self.fields["folders"].head.addWidget(self.choose)
        for field in self.fields.values():
            self._column.addWidget(field)
            field.edit.textChanged.connect(lambda *_: self.fit())

    def _add_confined(self) -> None:
        title = tr("Confine it")
        self.confined = Toggle(title, True)
        self.confined_row = two_lines(
            title, tr("Landlock keeps it out of your other files. A server that needs Docker or a desktop cannot work "
                      "this way."), self.confined,
        )  # fmt: skip
        self.confined_row.layout().setContentsMargins(0, 0, 0, 0)  # type: ignore[union-attr]
        self.unconfined = Label(
            tr("This system cannot confine programs: it can do whatever you can do."), "small", "warn", wrap=True
        )
        self._column.addWidget(self.confined_row)
        self._column.addWidget(self.unconfined)

    def _show_server(self) -> None:
        server = self.server
        title = tr("Add an MCP server") if server is None else server.name
        self.heading.setText(title)
        self.setWindowTitle(title)
        self.setAccessibleName(title)
        if server is not None:
            self.kind.set_value(server.kind)
            shown = {
                "name": (server.name,), "command": (server.command,), "args": server.args, "folders": server.folders,
                "variables": tuple(f"{name}={value}" for name, value in server.variables.items()),
                "address": (server.address,),
                "headers": tuple(f"{name}: {value}" for name, value in server.headers.items()),
            }  # fmt: skip
            for name, lines in shown.items():
                self.fields[name].show_lines(lines)
            self.confined.setChecked(server.is_confined)
            self.keep.setText(tr("Keep"))
        for part in (self.remove, self.tools, self.fold):
            part.setVisible(server is not None)
        self._set_open(server is None)
        self._show_kind()

    def _set_open(self, is_open: bool) -> None:
        self._entry.setVisible(is_open)
        self.fold.set_glyph("down" if is_open else "right")
        self.fold.setAccessibleDescription(tr("Expanded") if is_open else tr("Collapsed"))
        self.fit()

    def _show_kind(self) -> None:
        is_program = self.kind.value() == "stdio"
        for name in ("command", "args", "folders", "variables"):
            self.fields[name].setVisible(is_program)
        for name in ("address", "headers"):
            self.fields[name].setVisible(not is_program)
        self.confined_row.setVisible(is_program and can_confine())
        self.unconfined.setVisible(is_program and not can_confine())
        self.say(
            tr("A program that offers tools. Hearth starts it when one of them is called.")
            if is_program
            else tr("A server that offers tools. What a chat sends to a tool goes to this address.")
        )

    def _now(self) -> ToolServer | None:
        """Return the server as it is in the list, with its approvals."""
        return None if self.server is None else self._controller.servers.get(self.server.id)

    def _entered(self) -> ToolServer | None:
        """Return the server as it is entered; None if a field is wrong, which then says so."""
        for field in self.fields.values():
            field.set_fault("")
        faults: dict[str, str] = {}
        pairs = {
            name: self._pairs(name, sign, faults) for name, sign in (("variables", "="), ("headers", ":"))
        }  # fmt: skip
        server = replace(
            self._now() or ToolServer("", "stdio"),
            name=self.fields["name"].text, kind=self.kind.value(), command=self.fields["command"].text.strip(),
            args=self.fields["args"].lines(), folders=tuple(line.strip() for line in self.fields["folders"].lines()),
            variables=pairs["variables"], address=self.fields["address"].text.strip(), headers=pairs["headers"],
            is_confined=self.confined.isChecked(),
        )  # fmt: skip
        faults = {**self._controller.faults(server), **faults}
        shown = [name for name in self.fields if name in faults and not self.fields[name].isHidden()]
        for name in shown:
            self.fields[name].set_fault(faults[name])
        if shown:
            self._set_open(True)
            self.fields[shown[0]].edit.setFocus()
        self.fit()
        return None if shown else server

    def _pairs(self, name: str, sign: str, faults: dict[str, str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for line in self.fields[name].lines():
            key, separator, value = line.partition(sign)
            key, value = key.strip(), value if sign == "=" else value.strip()
            if not separator or not key:
                faults[name] = tr("“{line}” has no {sign}.", line=line, sign=sign)
            elif key in found:
                faults[name] = tr("{name} is there twice.", name=key)
            found[key] = value
        return found

    def _save(self, then: Callable[[], None]) -> None:
        """Keep what is entered, after a question if Hearth would start another program or let it do more."""
        server = self._entered()
        if server is None:
            return

        def save() -> None:
            stored = self._controller.put(server)
            if isinstance(stored, str):
                self._say(stored, "bad")
                return
            self.server = stored
            then()

        before = self._now()
        is_new = before is None or before.target != server.target or (before.is_confined and not server.is_confined)
        if server.kind == "stdio" and is_new:
            StartsProgramDialog(self, server, save).open()
        else:
            save()

    def _added(self) -> None:
        assert self.server is not None
        self._show_server()
        self._say(tr("{name} is added, and off. Look at its tools, and approve those that chats may call.",
                     name=self.server.name), "ink2")  # fmt: skip
        self.close_button.setText(tr("Close"))
        self.look.setFocus()

    def return_pressed(self) -> None:
        self.keep.click()

    def _choose_folder(self) -> None:
        path = QFileDialog.getExistingDirectory(self, tr("Folder that it may read and change"))
        if path:
            field = self.fields["folders"]
            field.show_lines((*field.lines(), str(Path(path))))

    def _ask_remove(self) -> None:
        server = self.server
        if server is None:
            return

        def remove() -> None:
            self.reject()
            self._controller.remove(server.id)

        confirm(
            self, tr("Remove {server}?", server=server.name),
            tr("It is ended, and its approvals and its private folder are deleted. The program itself stays."),
            tr("Keep"), tr("Remove"), remove,
        )  # fmt: skip

    # --- its tools

    def _add_tools(self) -> None:
        self.tools = QFrame()
        column = self._tools_column = QVBoxLayout(self.tools)
        column.setContentsMargins(0, 0, 0, 0)
        head = QHBoxLayout()
        head.addWidget(Label(tr("Tools"), "label"), 1)
        self.dot = Dot("hot_fill", working=True)
        self.dot.hide()
        self.look = Button(tr("Look at its tools"))
        self.look.clicked.connect(self._press_look)
        head.addWidget(self.dot)
        head.addWidget(self.look)
        column.addLayout(head)
        self.says = Label("", "small", wrap=True)
        column.addWidget(self.says)
        self.output = read_only(tr("Last lines of its output"), "")
        self.output.hide()
        column.addWidget(self.output)
        self._list = QVBoxLayout()
        column.addLayout(self._list)
        self.body.addWidget(self.tools)
        if self.server is not None:
            self._show_listed(self._controller.listed(self.server.id))

    def _press_look(self) -> None:
        if self.dot.isHidden():
            self._save(self._look)
        else:
            self._stop_looking()
            self._say(tr("Cancelled."), "ink2")

    def _look(self) -> None:
        if self.server is not None:
            self._show_server()
            self._set_looking(True)
            self._show_listed(())
            words = tr("Starting it, and asking for its tools") if self.server.kind == "stdio" else tr(
                "Asking for its tools")  # fmt: skip
            self._say(words, "ink2")
            self._controller.look(self.server.id)

    def _stop_looking(self) -> None:
        self._set_looking(False)
        if self.server is not None:
            self._controller.stop_looking(self.server.id)

    def _set_looking(self, looking: bool) -> None:
        self.dot.setVisible(looking)
        self.look.setText(tr("Cancel") if looking else tr("Look at its tools"))
        self.keep.setEnabled(not looking)

    def _show_looked(self, server_id: str, found: tuple[ListedTool, ...] | str) -> None:
        if self.server is None or server_id != self.server.id:
            return
        self._set_looking(False)
        if isinstance(found, str):
            self._say(found, "bad")
            self._show_output(self._controller.state(server_id).last_lines)
            return
        self._show_listed(found)
        if not found:
            self._say(tr("It offers no tools."), "ink2")
        elif self.server.is_on:
            self._say(tr("A chat can call the tools that you approve."), "ink2")
        else:
            self._say(
                tr("A chat can call the tools that you approve, once you switch the server on in the settings."), "ink2"
            )

    def _show_listed(self, found: tuple[ListedTool, ...]) -> None:
        while (item := self._list.takeAt(0)) is not None:
            if (gone := item.widget()) is not None:
                gone.hide()
                gone.deleteLater()
        self._show_output("")
        self.rows = [ApprovalRow(one, self._approve, self.fit) for one in found]
        if self.rows:
            card = card_of_rows(self.rows)
            self._list.addWidget(card)
            card.show()
        self.fit()

    def _approve(self, definition: Definition, on: bool) -> str:
        server = self._now()
        if server is None:
            return tr("That MCP server was removed or switched off.")
        approved = {one.name: one for one in server.approved}
        approved.pop(definition.name, None)
        if on:
            approved[definition.name] = definition
        return self._controller.approve(server.id, tuple(approved.values()))

    def _show_output(self, lines: str) -> None:
        self.output.setPlainText(lines)
        self.output.setVisible(bool(lines.strip()))
        fit_lines(self.output, MOST_OUTPUT)
        self.fit()

    def _say(self, words: str, token: str) -> None:
        if self.tools.isHidden():  # it could not be added
            self.fields["name"].set_fault(words)
        self.says.setText(words)
        self.says.set_look("small", token)
        self.says.setVisible(bool(words))
        self.fit()

    def _restyle(self) -> None:
        self._tools_column.setSpacing(theme.px(8))
        self._column.setSpacing(theme.px(10))
        fit_lines(self.output, MOST_OUTPUT)
