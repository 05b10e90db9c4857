"""The dialogs and rows of MCP servers: what they keep, what they ask first, and what they mark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.settings import AppSettings
from app.tools.mcp.client import ListedTool, McpTools, ToolState
from app.tools.mcp.server_list import MAX_SERVERS, Definition, Proposal, ToolServer, ToolServerError, ToolServerList
from app.tools.mcp.servers_controller import ToolServersController
from app.ui.settings.settings_dialog import SettingsDialog
from app.ui.settings.tool_proposal_dialog import ToolProposalDialog
from app.ui.settings.tool_server_dialog import StartsProgramDialog, ToolServerDialog
from app.ui.settings.tool_server_rows import ToolServerRows
from app.ui.widgets.floating import ConfirmDialog

pytestmark = pytest.mark.gui

READ, WRITE = Definition("read", "Read", "Reads.", {"type": "object"}), Definition("write", "", "Writes.", {})
NEW_READ = replace(READ, description="Reads, and tells a friend.")
FILES = ToolServer("Files", "stdio", command="npx", args=("-y", "files"), variables={"KEY": "a=b"})


class FakeTools(McpTools):
    """Lists what it is given, and starts nothing."""

    offered: tuple[Definition, ...] | str = ()

    def look(self, server_id: str, is_cancelled: Callable[[], bool] = lambda: False) -> tuple[ListedTool, ...]:
        if isinstance(self.offered, str):
            raise ToolServerError(self.offered)
        self._listed[server_id] = self.offered
        return self.listed(server_id)


class Settings:
    """The settings dialog with some servers, and what opens above it."""

    def __init__(self, qtbot: QtBot, folder: Path, *servers: ToolServer) -> None:
        self.qtbot = qtbot
        listed = ToolServerList()
        for server in servers:
            listed.put(server)
        self.tools = FakeTools(listed, folder)
        self.controller = ToolServersController(listed, self.tools, lambda name, write: None)
        self.dialog = SettingsDialog(AppSettings())
        qtbot.addWidget(self.dialog)
        self.dialog.add_tools(self.controller)
        self.dialog.show()

    @property
    def rows(self) -> ToolServerRows:
        return self.dialog.tool_servers

    @property
    def servers(self) -> list[ToolServer]:
        return self.controller.servers.servers

    def above(self, kind: type[Any]) -> Any:
        """The dialog that is open above the others."""
        self.qtbot.waitUntil(lambda: isinstance(QApplication.activeModalWidget(), kind))
        return QApplication.activeModalWidget()

    def opened(self, n: int = 0) -> ToolServerDialog:
        self.rows.lines[self.servers[n].id].edit.click()
        dialog = self.above(ToolServerDialog)
        assert isinstance(dialog, ToolServerDialog)
        return dialog

    def look(self, dialog: ToolServerDialog) -> None:
        with self.qtbot.waitSignal(self.controller.looked):
            dialog.look.click()


@pytest.fixture
def settings(qtbot: QtBot, tmp_path: Path) -> Callable[..., Settings]:
    return lambda *servers: Settings(qtbot, tmp_path, *servers)


Make = Callable[..., Settings]


def bad(dialog: ToolServerDialog) -> set[str]:
    return {name for name, field in dialog.fields.items() if field.edit.property("state") == "bad"}


def test_each_wrong_field_says_so_and_nothing_is_kept(settings: Make) -> None:
    at = settings()
    at.rows.add.click()
    dialog = at.above(ToolServerDialog)
    dialog.fields["folders"].edit.setPlainText("notes")
    dialog.fields["variables"].edit.setPlainText("KEY")
    dialog.keep.click()
    assert bad(dialog) == {"command", "folders", "variables"}
    dialog.fields["folders"].edit.setPlainText(str(Path("/srv/notes").absolute()))
    assert bad(dialog) == {"command", "variables"}, "an edited field is not judged until the next try"
    dialog.fields["variables"].edit.setPlainText("KEY=1\nKEY=2")
    dialog.keep.click()
    assert bad(dialog) == {"command", "variables"}
    dialog.kind.buttons["http"].click()
    dialog.fields["address"].edit.setText("http://far.example.org")
    dialog.fields["headers"].edit.setPlainText("no colon")
    dialog.keep.click()
    assert {"address", "headers"} <= bad(dialog)
    assert at.servers == []


def test_an_address_is_added_without_a_question_and_off(settings: Make) -> None:
    at = settings()
    at.rows.add.click()
    dialog = at.above(ToolServerDialog)
    dialog.kind.buttons["http"].click()
    dialog.fields["address"].edit.setText("https://example.org")
    dialog.fields["headers"].edit.setPlainText("Authorization: Bearer a:b\n\n")
    dialog.keep.click()
    (server,) = at.servers
    assert (server.kind, server.address, server.is_on) == ("http", "https://example.org/mcp", False)
    assert dict(server.headers) == {"Authorization": "Bearer a:b"}
    assert not dialog.tools.isHidden(), "its tools can be looked at"


def test_another_command_is_asked_about_and_another_name_is_not(settings: Make) -> None:
    at = settings(replace(FILES, args=("-c", "one\ntwo", ""), approved=(READ,)))
    dialog = at.opened()
    dialog.fields["name"].edit.setText("Notes")
    dialog.keep.click()
    (server,) = at.servers
    assert (server.name, server.args, server.approved) == ("Notes", ("-c", "one\ntwo", ""), (READ,))
    assert dict(server.variables) == {"KEY": "a=b"}
    dialog = at.opened()
    dialog.fields["command"].edit.setText("uvx")
    dialog.keep.click()
    question = at.above(StartsProgramDialog)
    assert "uvx" in question.command.toPlainText()
    question.reject()
    assert at.servers[0].command == "npx"
    dialog.keep.click()
    at.above(StartsProgramDialog).yes.click()
    assert (at.servers[0].command, at.servers[0].approved) == ("uvx", ())


def test_one_of_two_tools_is_approved(settings: Make) -> None:
    at = settings(replace(FILES, is_on=True))
    at.tools.offered = (READ, WRITE)
    dialog = at.opened()
    at.look(dialog)
    assert [(row.listed.state, row.toggle.isChecked()) for row in dialog.rows] == [(ToolState.NEW, False)] * 2
    dialog.rows[1].toggle.click()
    assert at.servers[0].approved == (WRITE,)
    assert [tool.title for tool in at.tools.tools()] == ["write"]
    dialog.keep.click()
    assert at.servers[0].approved == (WRITE,), "keeping the settings keeps what was approved meanwhile"
    dialog = at.opened()
    at.look(dialog)
    dialog.rows[1].toggle.click()
    assert at.servers[0].approved == ()


def test_a_changed_tool_is_marked_and_off_and_shows_both_definitions(settings: Make) -> None:
    at = settings(replace(FILES, is_on=True, approved=(READ, WRITE)))
    at.tools.offered = (NEW_READ,)
    marks = len(at.rows.lines[at.servers[0].id].marks)
    dialog = at.opened()
    at.look(dialog)
    assert [row.listed.state for row in dialog.rows] == [ToolState.CHANGED, ToolState.GONE]
    changed, gone = dialog.rows
    assert not changed.toggle.isChecked()
    assert len(at.rows.lines[at.servers[0].id].marks) == marks + 1
    assert at.tools.tools() == ()
    changed.fold.click()
    assert changed.text is not None
    assert READ.description in changed.text.toPlainText()
    assert NEW_READ.description in changed.text.toPlainText()
    changed.toggle.click()
    gone.toggle.click()
    assert at.servers[0].approved == (NEW_READ,)
    assert len(at.rows.lines[at.servers[0].id].marks) == marks


def test_a_server_that_fails_says_why_and_can_be_tried_again(settings: Make) -> None:
    at = settings(FILES)
    at.tools.offered = "It is broken."
    dialog = at.opened()
    at.look(dialog)
    assert (dialog.says.words, dialog.says.token, dialog.rows) == ("It is broken.", "bad", [])
    assert dialog.keep.isEnabled()
    at.tools.offered = (READ,)
    at.look(dialog)
    assert len(dialog.rows) == 1


def test_a_definition_hides_no_characters(settings: Make) -> None:
    at = settings(FILES)
    at.tools.offered = (Definition("read", "", "Reads.\u202ednes\u200b", {}),)
    dialog = at.opened()
    at.look(dialog)
    dialog.rows[0].fold.click()
    shown = dialog.rows[0].text
    assert shown is not None
    assert "\\u202e" in shown.toPlainText()
    assert "\\u200b" in shown.toPlainText()


def test_a_server_is_removed_after_a_question(settings: Make) -> None:
    at = settings(FILES, ToolServer("Web", "http", address="https://example.org/mcp"))
    at.opened().remove.click()
    at.above(ConfirmDialog).safe.click()
    assert len(at.servers) == 2
    at.above(ToolServerDialog).remove.click()
    at.above(ConfirmDialog).danger.click()
    assert [one.name for one in at.servers] == ["Web"]
    assert list(at.rows.lines) == [at.servers[0].id]


def test_a_switch_switches_and_a_program_that_is_not_confined_is_marked(settings: Make) -> None:
    at = settings(replace(FILES, is_confined=False), ToolServer("Web", "http", address="https://example.org/mcp"))
    files, web = (at.rows.lines[one.id] for one in at.servers)
    assert (len(files.marks), len(web.marks)) == (1, 0)
    web.toggle.click()
    assert [one.is_on for one in at.servers] == [False, True]


def test_only_ticked_servers_of_a_file_are_added(settings: Make, qtbot: QtBot) -> None:
    at = settings(*(replace(FILES, name=str(n), id=str(n)) for n in range(MAX_SERVERS - 1)))
    three = tuple(replace(FILES, name=name, id=name) for name in ("a", "b", "c"))
    dialog = ToolProposalDialog(at.dialog, at.controller, Proposal(three), "mcp.json")
    dialog.open()
    for n in (0, 2):
        dialog.toggles[n][0].click()
    dialog.add.click()
    assert [one.name for one in at.servers[MAX_SERVERS - 1 :]] == ["a"], "there is room for one"
    assert not dialog.fault.isHidden()
    assert [toggle.isChecked() for toggle, _ in dialog.toggles] == [False, False, True]
    dialog.reject()
    assert not at.rows.add.isEnabled()


def test_a_file_that_cannot_be_used_says_so_in_the_row(settings: Make, tmp_path: Path) -> None:
    at = settings()
    at.rows.take_over(tmp_path / "none.json")
    assert not at.rows.fault.isHidden()


def test_a_dialog_without_a_controller_has_no_row_of_servers(qtbot: QtBot) -> None:
    dialog = SettingsDialog(AppSettings())
    qtbot.addWidget(dialog)
    dialog.add_tools()
    assert not dialog.findChildren(ToolServerRows)
