"""The tools of MCP servers: listed, approved, called, and every way in which a server can fail."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp_cases import WINDOWS_VARIABLES, Make, approve_all, left_of, never, only, states, waited_for
from support.systems import ON_WINDOWS, UNDER_WINE, children

from app.tools.mcp.client import LONGEST_NAME, ToolState, named
from app.tools.mcp.confined import can_confine
from app.tools.mcp.connection import MOST_OPEN_QUESTIONS, Connection, Limits
from app.tools.mcp.server_list import Definition, ToolServer, ToolServerError
from app.tools.questions import Field, Question, Reply
from app.tools.tool import LONGEST_RESULT, ToolResult

SUPPORT = Path(__file__).resolve().parents[2] / "support"


def tool(name: str, description: str = "", **schema: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object", **schema}}


def scripted(*pages: list[dict[str, Any]], **script: Any) -> ToolServer:
    """A server that follows a script (tests/support/mcp_script.py)."""
    text = json.dumps({"tools": pages or [[]], **script})
    return ToolServer(
        "Script", "stdio", command=sys.executable, args=(str(SUPPORT / "mcp_script.py"), text), is_on=True
    )


def of_the_sdk(**values: Any) -> ToolServer:
    return ToolServer(
        "SDK", "stdio", command=sys.executable, args=(str(SUPPORT / "mcp_server.py"),), is_on=True, **values
    )


# --- tools and their names


def test_nothing_is_started_before_a_tool_is_needed(make: Make) -> None:
    add = Definition("add", "", "Add.", {"type": "object"})
    tools = make(replace(scripted([tool("add", "Add.")]), approved=(add,)))
    (offered,) = tools.tools()
    assert offered.title == "add"
    assert (offered.name, offered.source, offered.digest, offered.is_local) == (
        "Script_add",
        "Script",
        add.digest,
        False,
    )
    assert states(tools) == {"add": ToolState.APPROVED}
    assert children() == []
    assert not [one for one in threading.enumerate() if one.name == "mcp"]
    assert tools.call("Script_add", {}, never) == ToolResult("add")
    assert len(children()) == 1
    assert tools.state(only(tools).id).is_running
    assert tools.state(only(tools).id).is_confined is can_confine()


def test_the_window_loads_the_sdk_with_the_first_server_only() -> None:
    code = "import app.tools.mcp.client, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=SUPPORT.parents[1], capture_output=True, check=True)
    assert not {"mcp", "pydantic", "httpx2", "PySide6"} & set(done.stdout.decode().split())


def test_all_pages_are_listed_and_nothing_is_offered_before_it_is_approved(make: Make) -> None:
    tools = make(scripted([tool("a"), tool("b")], [tool("c")], [tool("a", "twice")]))
    assert [one.definition.name for one in tools.look(only(tools).id)] == ["a", "b", "c"]
    assert set(states(tools).values()) == {ToolState.NEW}
    assert tools.tools() == ()
    assert tools.call("Script_a", {}, never).is_error
    definitions = approve_all(tools)
    tools.approve(only(tools).id, (definitions["b"],))
    assert [one.name for one in tools.tools()] == ["Script_b"]


def test_a_server_that_is_off_offers_nothing_but_can_be_looked_at(make: Make) -> None:
    tools = make(replace(scripted([tool("a")]), is_on=False))
    assert set(approve_all(tools)) == {"a"}
    assert tools.tools() == ()
    assert tools.call("Script_a", {}, never).is_error


@pytest.mark.parametrize(
    "server",
    [
        scripted(made=[201, 0]),
        scripted(made=[1, 200_000]),
        scripted(made=[20, 10_000]),
        scripted([tool("a", **json.loads('{"a":' * 60 + "1" + "}" * 60))]),
        scripted([{"name": "a"}]),
        scripted(["no tool"]),
    ],
    ids=["many", "long", "long together", "deep", "no schema", "no tool"],
)
def test_lists_out_of_bounds_are_refused(make: Make, server: ToolServer) -> None:
    tools = make(server)
    with pytest.raises(ToolServerError):
        tools.look(only(tools).id)
    assert not tools.state(only(tools).id).is_running


def test_an_endless_list_ends(make: Make) -> None:
    tools = make(scripted([], listed="endless"))
    assert tools.look(only(tools).id) == ()


def test_names_for_the_model_are_clean_bounded_unique_and_stable() -> None:
    server = ToolServer("Über files", "stdio", command="a")
    other = ToolServer("a", "stdio", command="a")
    another = ToolServer("a_b", "stdio", command="a")
    tools = [
        (server, Definition("read file!")), (other, Definition("b_c")), (another, Definition("c")),
        (server, Definition("x" * 100)), (server, Definition("x" * 100 + "y")), (server, Definition("")),
    ]  # fmt: skip
    names = named(tools)
    assert list(names.values()) == tools
    assert all(0 < len(name) <= LONGEST_NAME and name.replace("-", "").replace("_", "a").isalnum() for name in names)
    assert all(name.isascii() for name in names)
    assert {value[1].name: name for name, value in named(tools[::-1]).items()} == {
        value[1].name: name for name, value in names.items()
    }


def test_a_consent_covers_this_server_this_tool_and_this_definition(make: Make) -> None:
    add, other = Definition("add"), Definition("other")
    server = replace(scripted([]), approved=(add, other))
    tools = make(server)

    def key(name: str = "Script_add") -> str:
        return tools.scope(name, {"a": 1}).key

    first = key()
    assert tools.scope("Script_add", {}).key == first
    assert "Script" in tools.scope("Script_add", {}).label
    seen = {first, key("Script_other"), key("gone")}
    tools.approve(server.id, (replace(add, description="Add, and tell a friend."),))
    seen.add(key())
    tools.servers.put(replace(server, args=("other.py",)))
    tools.approve(server.id, (add,))
    seen.add(key())
    assert len(seen) == 5


# --- changed definitions


def test_a_changed_definition_switches_its_tool_off_until_it_is_approved_again(make: Make) -> None:
    changes: list[int] = []
    pages = [[tool("change"), tool("add", "Add."), tool("gone")]]
    changed = [[tool("change"), tool("add", "Add, and tell a friend."), tool("fresh")]]
    tools = make(scripted(*pages, changed=changed), changed=lambda: changes.append(1))
    before = approve_all(tools)
    assert tools.call("Script_add", {}, never) == ToolResult("add")
    assert tools.call("Script_change", {}, never) == ToolResult("change")
    assert waited_for(lambda: states(tools).get("add") is ToolState.CHANGED)
    assert states(tools) == {
        "change": ToolState.APPROVED, "add": ToolState.CHANGED, "fresh": ToolState.NEW, "gone": ToolState.GONE,
    }  # fmt: skip
    assert changes
    assert [one.name for one in tools.tools()] == ["Script_change"]
    assert tools.call("Script_add", {}, never).is_error
    (shown,) = (one for one in tools.listed(only(tools).id) if one.state is ToolState.CHANGED)
    assert (shown.approved, shown.definition.description) == (before["add"], "Add, and tell a friend.")
    approve_all(tools)
    assert tools.call("Script_add", {}, never) == ToolResult("add")


@pytest.mark.parametrize("listed", [[tool("add", "Another.")], [tool("other")]])
def test_a_definition_that_changed_while_the_server_was_off_is_not_called(
    make: Make, listed: list[dict[str, Any]]
) -> None:
    tools = make(replace(scripted(listed), approved=(Definition("add", "", "Add.", {"type": "object"}),)))
    assert [one.name for one in tools.tools()] == ["Script_add"]
    assert tools.call("Script_add", {}, never).is_error
    assert tools.tools() == ()


# --- calls


def test_a_server_of_the_sdk(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    named_folder, outside = tmp_path / "named", tmp_path / "outside"
    named_folder.mkdir()
    tools = make(of_the_sdk(folders=(str(named_folder),), variables={"MINE": "1"}))
    definitions = approve_all(tools)
    assert definitions["add"].annotations == {"title": "Sum", "readOnlyHint": True}
    assert definitions["add"].parameters["required"] == ["a", "b"]

    def called(name: str, **arguments: Any) -> ToolResult:
        return tools.call(f"SDK_{name}", arguments, never)

    assert [one.title for one in tools.tools() if one.name == "SDK_add"] == ["Sum"]
    assert called("add", a=1, b=2) == ToolResult("3")
    assert called("picture") == ToolResult("a dot\n\n[image, image/png, 3 KB]")
    assert called("fail").is_error
    assert called("add", a="no number", b=2).is_error
    environment = json.loads(called("environment").text)["environment"]
    needed = {"PATH", "HOME", "TMPDIR", "MINE", *(WINDOWS_VARIABLES if ON_WINDOWS else ())}
    assert needed <= set(environment)
    assert UNDER_WINE or set(environment) - {"LC_CTYPE", "LANG"} == needed  # Wine adds variables of its own
    long = called("long", n_chars=10_000_000)
    assert len(long.text) == LONGEST_RESULT
    assert "10000000" in long.text[-100:]
    assert called("write", path=str(named_folder / "a")) == ToolResult("written")
    if can_confine():
        assert called("write", path=str(outside)).is_error
        assert not outside.exists()
        assert called("kill", pid=os.getpid()).is_error
    server_id = only(tools).id
    content = tools.content(server_id)
    assert [one.address for one in content.resources] == ["notes://today"]
    assert tools.read_resource(server_id, "notes://today") == "buy milk"
    (notes,) = content.templates
    fields = (Field("day", "day", is_required=True), Field("topic", "topic", is_required=True), Field("words", "words"))
    assert (notes.name, notes.arguments, content.completes) == ("Notes of a day", fields, True)
    address = notes.filled({"day": "mon day", "topic": "a/b"}).address
    assert address == "notes://mon%20day/a/b"
    assert tools.read_resource(server_id, address) == "mon day, a/b, all"
    assert tools.complete(server_id, notes, "day", "mon", {}) == ("monday",), "without the one that hides a part"
    assert tools.complete(server_id, notes, "topic", "", {"day": "friday"}) == ("friday/food",)
    (greet,) = content.prompts
    assert tools.complete(server_id, greet, "name", "", {}) == ("Ada",)
    assert (greet.name, greet.arguments) == ("greet", (Field("name", "name", is_required=True),))
    assert tools.prompt(server_id, "greet", {"name": "Ada"}) == (("user", "Greet Ada."),)
    ((_, hiding),) = tools.prompt(server_id, "greet", {"name": "\u202eA\U000e0041 👩\u200d🔬"})
    assert hiding == "Greet \\u202eA\\U000e0041 👩\u200d🔬."
    with pytest.raises(ToolServerError):
        tools.read_resource(server_id, "notes://never")
    processes = set(json.loads(called("start_child").text))
    assert called("crash", code=7).is_error
    state = tools.state(server_id)
    assert not state.is_running
    assert "7" in state.sentence
    assert "the disk is on fire" in state.sentence
    assert left_of(processes) == set()
    assert called("add", a=1, b=2) == ToolResult("3")  # it starts again


def test_the_newer_protocol_tells_of_changes_too(make: Make) -> None:
    tools = make(of_the_sdk())
    approve_all(tools)
    assert tools.call("SDK_change_add", {}, never) == ToolResult("changed")
    assert waited_for(lambda: states(tools)["add"] is ToolState.CHANGED)


def test_a_call_can_be_cancelled_and_the_server_goes_on(make: Make) -> None:
    tools = make(scripted([tool("never"), tool("add")]))
    approve_all(tools)
    pid = children()[0].pid
    asked: list[int] = []
    result = tools.call("Script_never", {}, lambda: len(asked) > 3 or bool(asked.append(1)))
    assert result.is_error
    assert tools.call("Script_add", {}, never) == ToolResult("add")
    assert children()[0].pid == pid


def test_several_calls_at_once(make: Make) -> None:
    tools = make(scripted([tool("never"), tool("add")]))
    approve_all(tools)
    is_over = threading.Event()
    results: list[ToolResult] = []
    waiting = threading.Thread(target=lambda: results.append(tools.call("Script_never", {}, is_over.is_set)))
    waiting.start()
    assert tools.call("Script_add", {}, never) == ToolResult("add")
    assert results == []
    is_over.set()
    waiting.join()
    assert results[0].is_error


def test_a_call_without_an_answer_ends(make: Make) -> None:
    tools = make(scripted([tool("never"), tool("add")]), limits=Limits(call_s=0.2))
    approve_all(tools)
    result = tools.call("Script_never", {}, never)
    assert result.is_error
    assert "0.2" in result.text
    assert "thinking" in result.text
    assert tools.call("Script_add", {}, never) == ToolResult("add")


def test_a_failed_call_and_a_wrong_answer_are_errors(make: Make) -> None:
    tools = make(scripted([tool("fails"), tool("wrong"), tool("add")]))
    approve_all(tools)
    assert tools.call("Script_fails", {}, never) == ToolResult("fails", is_error=True)
    assert tools.call("Script_wrong", {}, never).is_error
    assert tools.call("Script_add", {}, never) == ToolResult("add")


# --- servers that fail


def test_a_command_that_is_not_there_is_named(make: Make) -> None:
    tools = make(ToolServer("Files", "stdio", command="no-such-command", is_on=True))
    with pytest.raises(ToolServerError, match="no-such-command"):
        tools.look(only(tools).id)
    assert "no-such-command" in tools.state(only(tools).id).sentence


def test_a_private_folder_that_cannot_be_made(make: Make, tmp_path: Path) -> None:
    (tmp_path / "private").write_text("a file")
    tools = make(scripted([]))
    with pytest.raises(ToolServerError, match="started"):
        tools.look(only(tools).id)


def test_a_server_that_ends_at_once_is_quoted(make: Make) -> None:
    tools = make(scripted([], starts="dies"))
    with pytest.raises(ToolServerError) as caught:
        tools.look(only(tools).id)
    assert " 3." in caught.value.message
    assert "no such module" in caught.value.message


def test_a_server_that_never_answers_is_ended(make: Make) -> None:
    tools = make(scripted([], starts="silent"), limits=Limits(start_s=0.3))
    with pytest.raises(ToolServerError, match=r"0\.3"):
        tools.look(only(tools).id)
    assert children() == []


def test_a_start_can_be_cancelled(make: Make) -> None:
    tools = make(scripted([], starts="silent"))
    with pytest.raises(ToolServerError):
        tools.look(only(tools).id, lambda: True)


def test_a_message_without_end_ends_the_server(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.tools.mcp.transports.MAX_MESSAGE_BYTES", 1 << 20)
    tools = make(scripted([], starts="floods"))
    with pytest.raises(ToolServerError, match="without end"):
        tools.look(only(tools).id)
    assert children() == []


def test_an_idle_server_ends_and_starts_again(make: Make) -> None:
    tools = make(scripted([tool("add")]), limits=Limits(idle_s=0.1))
    approve_all(tools)
    assert waited_for(lambda: not tools.state(only(tools).id).is_running)
    assert tools.state(only(tools).id).sentence == ""
    assert children() == []
    assert tools.call("Script_add", {}, never) == ToolResult("add")


def test_a_stopped_server_ends_and_a_removed_one_leaves_no_folder(make: Make, tmp_path: Path) -> None:
    tools = make(scripted([tool("add")]))
    approve_all(tools)
    server = only(tools)
    tools.stop(server.id)
    assert waited_for(lambda: not tools.state(server.id).is_running)
    assert tools.call("Script_add", {}, never) == ToolResult("add")
    assert (tmp_path / "private" / server.id).is_dir()
    tools.servers.remove(server.id)
    tools.discard(server.id)
    assert children() == []
    assert not (tmp_path / "private" / server.id).exists()
    assert tools.call("Script_add", {}, never).is_error


def test_a_server_with_other_settings_starts_again(make: Make) -> None:
    tools = make(scripted([tool("add")]))
    approve_all(tools)
    (first,) = children()
    tools.servers.put(replace(only(tools), variables={"KEY": "1"}))
    assert tools.call("Script_add", {}, never) == ToolResult("add")
    (second,) = children()
    assert first.pid != second.pid


def test_closing_ends_running_calls_and_nothing_starts_afterwards(make: Make) -> None:
    tools = make(scripted([tool("never")]))
    approve_all(tools)
    results: list[ToolResult] = []
    calling = threading.Thread(target=lambda: results.append(tools.call("Script_never", {}, never)))
    calling.start()
    time.sleep(0.1)
    tools.close()
    calling.join()
    assert results[0].is_error
    assert tools.call("Script_never", {}, never).is_error
    assert children() == []


HEARTH = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from app.tools.mcp.client import McpTools
from app.tools.mcp.server_list import ToolServer, ToolServerList
servers = ToolServerList()
server = servers.put(ToolServer("SDK", "stdio", command=sys.executable, args=(sys.argv[2],), is_on=True,
                                variables={"MARK": sys.argv[4]}))
tools = McpTools(servers, Path(sys.argv[3]))
print("ready", flush=True)
tools.approve(server.id, tuple(one.definition for one in tools.look(server.id)))
print(tools.call("SDK_start_child", {}, lambda: False).text, flush=True)
tools.call("SDK_sleep", {"seconds": 600}, lambda: False)
"""


def hearth(folder: Path, mark: str) -> subprocess.Popen[bytes]:
    """Start a process that uses a server as Hearth does. mark: in the environment of all its processes."""
    command = [sys.executable, "-c", HEARTH, str(SUPPORT.parents[1]), str(SUPPORT / "mcp_server.py"), str(folder), mark]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "MARK": mark}, start_new_session=True)


def marked(mark: str) -> set[int]:
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process.pid)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="uses Linux's ways to end processes")
@pytest.mark.parametrize("n_kills", [1, pytest.param(30, marks=pytest.mark.slow)])
def test_nothing_is_left_when_hearth_is_killed_in_a_call(tmp_path: Path, n_kills: int) -> None:
    for n in range(n_kills):
        with hearth(tmp_path / "private", f"{tmp_path}-{n}") as process:
            assert process.stdout is not None
            try:
                process.stdout.readline()
                pids = set(json.loads(process.stdout.readline()))
            finally:
                process.kill()
        assert len(pids) == 2
        assert left_of(pids) == set()
        assert waited_for(lambda mark=f"{tmp_path}-{n}": marked(mark) == set())  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="uses Linux's ways to end processes")
def test_nothing_is_left_when_hearth_is_killed_at_any_moment_of_a_start(tmp_path: Path) -> None:
    for n in range(50):
        with hearth(tmp_path / "private", f"{tmp_path}-{n}") as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert marked(f"{tmp_path}-{n}")
            time.sleep(n * 0.04)  # the SDK is loaded, the supervisor starts, the server starts, a child starts
            process.kill()
        assert waited_for(lambda mark=f"{tmp_path}-{n}": marked(mark) == set())  # type: ignore[misc]


# --- questions to the user


@pytest.mark.parametrize("server", [scripted([tool("ask")]), of_the_sdk()], ids=["older", "newer"])
def test_a_server_asks_the_user(make: Make, server: ToolServer) -> None:
    replies = [Reply("accept", {"city": "Lima"}), Reply("decline"), Reply("cancel")]
    asked: list[Question] = []

    def ask(question: Question) -> Reply:
        asked.append(question)
        if server.name == "Script" and len(asked) == 1:
            time.sleep(0.4)  # longer than a call of it may take
        return replies[len(asked) - 1]

    tools = make(server, ask=ask, limits=Limits(call_s=0.3 if server.name == "Script" else 120))
    approve_all(tools)
    for reply in replies:
        result = tools.call(f"{server.name}_ask", {}, never)
        assert not result.is_error
        assert (reply.values.get("city") or reply.action) in result.text
    assert [(question.server, question.message) for question in asked] == [(server.name, "Which city?")] * 3
    assert all(list(question.schema["properties"]) == ["city"] for question in asked)


def test_a_question_is_declined_where_nobody_is_asked(make: Make) -> None:
    tools = make(scripted([tool("ask")]))
    approve_all(tools)
    assert "code" in json.loads(tools.call("Script_ask", {}, never).text)


def test_a_page_that_a_server_wants_to_open_is_declined(make: Make) -> None:
    asked: list[Question] = []

    def ask(question: Question) -> Reply:
        asked.append(question)
        return Reply("accept")

    tools = make(scripted([tool("ask")]), ask=ask)
    approve_all(tools)
    assert json.loads(tools.call("Script_ask", {"mode": "url"}, never).text) == {"action": "decline"}
    assert asked == []


def test_a_flood_of_questions_reaches_the_user_in_part(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Question] = []
    cancelled, all_cancelled = list[Any](), threading.Event()
    answer = Connection._on_question

    async def counted(self: Connection, context: Any, params: Any) -> Any:
        result = await answer(self, context, params)
        cancelled.extend([result] if getattr(result, "action", "") == "cancel" else [])
        if len(cancelled) == 300 - MOST_OPEN_QUESTIONS:
            all_cancelled.set()
        return result

    def ask(question: Question) -> Reply:
        asked.append(question)
        all_cancelled.wait(60)
        return Reply("decline")

    monkeypatch.setattr(Connection, "_on_question", counted)

    tools = make(scripted([tool("ask")]), ask=ask)
    approve_all(tools)
    actions = [one["action"] for one in json.loads(tools.call("Script_ask", {"times": 300}, never).text)]
    assert len(asked) == actions.count("decline") == MOST_OPEN_QUESTIONS
    assert actions.count("cancel") == 300 - MOST_OPEN_QUESTIONS
    tools.call("Script_ask", {}, never)
    assert len(asked) == MOST_OPEN_QUESTIONS + 1, "each call has its own number"


def test_a_question_that_is_nested_too_deeply_is_cancelled(make: Make) -> None:
    asked, deep = list[Question](), '{"a":' * 60 + "1" + "}" * 60

    def ask(question: Question) -> Reply:
        asked.append(question)
        return Reply("accept")

    tools = make(scripted([tool("ask")], schema={"type": "object", "properties": json.loads(deep)}), ask=ask)
    approve_all(tools)
    assert "accept" not in tools.call("Script_ask", {}, never).text
    assert asked == []
