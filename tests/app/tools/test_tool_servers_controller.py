"""What the window does with MCP servers: kept, changed, looked at in the background, removed; and how it fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mcp_cases import Make, only
from pytestqt.qtbot import QtBot

from app.tools.mcp.client import McpTools, ToolState
from app.tools.mcp.server_list import MAX_SERVERS, Definition, Proposal, ToolServer
from app.tools.mcp.servers_controller import ToolServersController

PROGRAM = str(Path(__file__).resolve().parents[2] / "support" / "mcp_server.py")
OLD_ADD = Definition("add", "", "Add.", {"type": "object"})


def program(**values: object) -> ToolServer:
    return replace(ToolServer("SDK", "stdio", command=sys.executable, args=(PROGRAM,)), **values)  # type: ignore[arg-type]


def controlled(tools: McpTools) -> tuple[ToolServersController, list[str]]:
    saved: list[str] = []

    def save(name: str, write: Callable[[], object]) -> None:
        saved.append(name)

    return ToolServersController(tools.servers, tools, save), saved


def test_what_is_wrong_is_said_of_its_field(make: Make, qtbot: QtBot) -> None:
    controller, saved = controlled(make())
    wrong = ToolServer("", "stdio", args=("a\0",), folders=("notes", str(Path.home())), variables={"1": ""})
    assert set(controller.faults(wrong)) == {"command", "args", "folders", "variables"}
    assert set(controller.faults(ToolServer("", "http", address="http://far.example.org"))) == {"address"}
    assert set(controller.faults(ToolServer("", "http", address="https://a.org", headers={"a b": ""}))) == {"headers"}
    assert controller.faults(program()) == {}
    assert isinstance(controller.put(wrong), str)
    assert (controller.servers.servers, saved) == ([], [])


def test_a_change_is_saved_and_told_once(make: Make, qtbot: QtBot) -> None:
    controller, saved = controlled(make())
    told: list[int] = []
    controller.changed.connect(lambda: told.append(1))
    kept = controller.put(program())
    assert isinstance(kept, ToolServer)
    assert controller.set_on(kept.id, True) == ""
    controller.refresh()
    assert only_of(controller).is_on
    assert (len(saved), len(told)) == (2, 2), "nothing changed since the second time"


def only_of(controller: ToolServersController) -> ToolServer:
    (server,) = controller.servers.servers
    return server


def test_another_program_has_no_approved_tools(make: Make, qtbot: QtBot) -> None:
    controller, _ = controlled(make(program(approved=(OLD_ADD,))))
    server = only_of(controller)
    controller.put(replace(server, name="Other"))
    assert only_of(controller).approved == (OLD_ADD,)
    controller.put(replace(server, args=("other.py",)))
    assert only_of(controller).approved == ()


def test_no_more_servers_than_the_list_holds(make: Make, qtbot: QtBot) -> None:
    controller, saved = controlled(make(*(program(name=str(n), id=str(n)) for n in range(MAX_SERVERS))))
    assert controller.is_full
    assert isinstance(controller.put(program()), str)
    assert saved == []


def test_looking_finds_a_changed_tool_which_is_off_until_it_is_approved(make: Make, qtbot: QtBot) -> None:
    tools = make(program(approved=(OLD_ADD,), is_on=True))
    controller, _ = controlled(tools)
    server_id = only(tools).id
    assert [one.title for one in tools.tools()] == ["add"], "as far as is known"
    assert not controller.has_changed_tools(server_id)
    with qtbot.waitSignal(controller.looked, timeout=60_000) as looked:
        controller.look(server_id)
    assert looked.args is not None
    assert looked.args[0] == server_id
    found = {one.definition.name: one for one in looked.args[1]}
    assert found["add"].state is ToolState.CHANGED
    assert found["crash"].state is ToolState.NEW
    assert controller.has_changed_tools(server_id)
    assert tools.tools() == ()
    assert controller.approve(server_id, (found["add"].definition,)) == ""
    assert [one.title for one in tools.tools()] == ["Sum"]
    assert not controller.has_changed_tools(server_id)


def test_a_program_that_is_not_there_is_a_sentence(make: Make, qtbot: QtBot) -> None:
    tools = make(program(command="/no/such/program"))
    controller, _ = controlled(tools)
    with qtbot.waitSignal(controller.looked, timeout=60_000) as looked:
        controller.look(only(tools).id)
    assert looked.args is not None
    assert isinstance(looked.args[1], str)
    assert looked.args[1]


def test_a_look_that_is_stopped_tells_nothing(make: Make, qtbot: QtBot) -> None:
    tools = make(program(args=("-c", "import time; time.sleep(600)")))
    controller, _ = controlled(tools)
    told: list[object] = []
    controller.looked.connect(lambda *values: told.append(values))
    with qtbot.waitSignal(controller._done, timeout=60_000):
        controller.look(only(tools).id)
        controller.stop_looking(only(tools).id)
    qtbot.wait(20)
    assert told == []


def test_a_removed_server_ends_and_its_folder_goes(make: Make, qtbot: QtBot, tmp_path: Path) -> None:
    tools = make(program(is_on=True))
    controller, saved = controlled(tools)
    server_id = only(tools).id
    with qtbot.waitSignal(controller.looked, timeout=60_000):
        controller.look(server_id)
    private = tmp_path / "private" / server_id
    assert private.is_dir()
    controller.remove(server_id)
    assert (controller.servers.servers, len(saved)) == ([], 1)
    qtbot.waitUntil(lambda: not private.exists(), timeout=60_000)
    qtbot.waitUntil(lambda: not tools.state(server_id).is_running, timeout=60_000)
    assert controller.set_on(server_id, True) == "", "the list may have shown it still"
    assert controller.approve(server_id, ()) != ""


@pytest.mark.parametrize("text", ["", "[]", "{", '{"mcpServers": []}'])
def test_a_file_without_servers_is_a_sentence(make: Make, qtbot: QtBot, tmp_path: Path, text: str) -> None:
    controller, _ = controlled(make())
    file = tmp_path / "mcp.json"
    assert isinstance(controller.propose(file), str), "there is no file"
    file.write_text(text)
    assert isinstance(controller.propose(file), str)
    file.write_text(json.dumps({"mcpServers": {"a": {"command": "npx"}, "b": {}}}))
    found = controller.propose(file)
    assert isinstance(found, Proposal)
    assert ([one.name for one in found.servers], [name for name, _ in found.refused]) == (["a"], ["b"])
    assert controller.servers.servers == []
