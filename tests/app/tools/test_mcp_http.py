"""MCP servers over HTTP: a real one on this machine, and addresses that answer in every other way."""

from __future__ import annotations

import gzip
import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mcp_cases import Make, approve_all, never, only, states, waited_for

from app.tools.mcp.client import ToolState
from app.tools.mcp.connection import Limits
from app.tools.mcp.server_list import ToolServer, ToolServerError
from app.tools.questions import Reply
from app.tools.tool import LONGEST_RESULT, ToolResult

SERVER = Path(__file__).resolve().parents[2] / "support" / "mcp_server.py"
Answer = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


def web(port: int, **values: Any) -> ToolServer:
    return ToolServer("Web", "http", address=f"http://127.0.0.1:{port}/mcp", is_on=True, **values)


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    number = free_port()
    with subprocess.Popen(
        [sys.executable, str(SERVER), "--port", str(number)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert waited_for(lambda: is_open(number))
            yield number
        finally:
            process.kill()


def served(answer: Answer, port: int = 0) -> ThreadingHTTPServer:
    """Start an HTTP server that answers each message in one way."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer(self, json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    return server


@pytest.fixture
def answering() -> Iterator[Callable[[Answer], int]]:
    """Start an HTTP server that answers each message in one way. Returns its port."""
    started: list[ThreadingHTTPServer] = []

    def start(answer: Answer) -> int:
        started.append(served(answer))
        return started[-1].server_port

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def test_a_server_over_http(make: Make, port: int) -> None:
    tools = make(web(port), ask=lambda _: Reply("accept", {"city": "Lima"}))
    definitions = approve_all(tools)
    assert definitions["add"].annotations == {"title": "Sum", "readOnlyHint": True}

    def called(name: str, **arguments: Any) -> ToolResult:
        return tools.call(f"Web_{name}", arguments, never)

    assert called("add", a=1, b=2) == ToolResult("3")
    assert called("fail").is_error
    assert called("ask") == ToolResult("Lima")
    assert len(called("long", n_chars=10_000_000).text) == LONGEST_RESULT
    assert tools.read_resource(only(tools).id, "notes://today") == "buy milk"
    state = tools.state(only(tools).id)
    assert (state.is_running, state.is_confined) == (True, None)
    asked: list[int] = []
    assert tools.call("Web_sleep", {"seconds": 5}, lambda: len(asked) > 2 or bool(asked.append(1))).is_error
    assert called("add", a=1, b=2) == ToolResult("3")
    assert called("change_add") == ToolResult("changed")
    assert waited_for(lambda: states(tools)["add"] is ToolState.CHANGED)
    assert called("add", a=1, b=2).is_error


def test_an_address_where_nobody_listens(make: Make) -> None:
    port = free_port()
    tools = make(web(port))
    with pytest.raises(ToolServerError, match=str(port)):
        tools.look(only(tools).id)
    assert not tools.state(only(tools).id).is_running


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 429, 500, 503])
def test_the_status_of_an_answer_is_named(make: Make, answering: Callable[[Answer], int], status: int) -> None:
    tools = make(web(answering(lambda handler, _: send(handler, status, b"no"))))
    with pytest.raises(ToolServerError, match=str(status)):
        tools.look(only(tools).id)


def test_headers_are_sent_and_a_redirect_to_elsewhere_is_not_followed(
    make: Make, answering: Callable[[Answer], int]
) -> None:
    reached: list[str] = []
    keys: list[str | None] = []
    elsewhere = answering(lambda handler, _: reached.append(handler.path))

    def redirect(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
        keys.append(handler.headers["x-key"])
        send(handler, 307, location=f"http://127.0.0.1:{elsewhere}/mcp")

    tools = make(web(answering(redirect), headers={"X-Key": "hush"}))
    with pytest.raises(ToolServerError):
        tools.look(only(tools).id)
    assert reached == []
    assert set(keys) == {"hush"}


def pages(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
    send(handler, 200, b"<html>", content_type="text/html")


def no_json(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
    send(handler, 200, b"{", content_type="application/json")


def bomb(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
    body = gzip.compress(b" " * (64 << 20), 1)
    send(handler, 200, body, content_type="application/json", content_encoding="gzip")


def too_long(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
    with_suppressed_end(handler, "application/json", b" " * (1 << 20))


def long_event(handler: BaseHTTPRequestHandler, _: dict[str, Any]) -> None:
    with_suppressed_end(handler, "text/event-stream", b"data: " + b"x" * (1 << 20))


def with_suppressed_end(handler: BaseHTTPRequestHandler, kind: str, data: bytes) -> None:
    """Send data again and again until the other side hangs up."""
    handler.send_response(200)
    handler.send_header("content-type", kind)
    handler.end_headers()
    try:
        for _ in range(200):
            handler.wfile.write(data)
    except OSError:
        handler.close_connection = True


@pytest.mark.parametrize("answer", [pages, no_json, bomb, too_long, long_event])
def test_answers_that_are_no_messages(
    make: Make, answering: Callable[[Answer], int], answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.tools.mcp.transports.MAX_MESSAGE_BYTES", 4 << 20)
    tools = make(web(answering(answer)))
    with pytest.raises(ToolServerError):
        tools.look(only(tools).id)


def test_an_address_that_never_answers(make: Make, answering: Callable[[Answer], int]) -> None:
    is_over = threading.Event()
    tools = make(web(answering(lambda *_: void(is_over.wait()))), limits=Limits(start_s=0.3))
    try:
        with pytest.raises(ToolServerError, match=r"0\.3"):
            tools.look(only(tools).id)
    finally:
        is_over.set()


def void(_: object) -> None:
    pass


class Canned:
    """An HTTP server with one tool, and with sessions that can be forgotten."""

    def __init__(self) -> None:
        self.n_sessions = 0
        self.n_calls = 0
        self.forgets = False  # the session, at the next call
        self.status = 200  # of calls

    def __call__(self, handler: BaseHTTPRequestHandler, message: dict[str, Any]) -> None:
        number, method = message.get("id"), message["method"]
        results = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "a", "version": "1"}},
            "tools/list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "3"}]},
        }  # fmt: skip
        if method == "initialize":
            self.n_sessions += 1
            self.forgets = False
        if number is None or method not in results:
            send(handler, 202 if number is None else 400)
        elif method == "tools/call" and (self.forgets or self.status != 200):
            send(handler, 404 if self.forgets else self.status)
        else:
            self.n_calls += method == "tools/call"
            body = json.dumps({"jsonrpc": "2.0", "id": number, "result": results[method]}).encode()
            send(handler, 200, body, content_type="application/json", mcp_session_id=str(self.n_sessions))


def test_a_server_that_fails_once_can_be_called_again(make: Make, answering: Callable[[Answer], int]) -> None:
    server = Canned()
    tools = make(web(answering(server)))
    approve_all(tools)
    server.status = 502
    failed = tools.call("Web_add", {}, never)
    assert failed.is_error
    assert "502" in failed.text
    server.status = 200
    assert tools.call("Web_add", {}, never) == ToolResult("3")
    assert (server.n_sessions, server.n_calls) == (1, 1)


def test_a_server_that_forgot_the_session_is_called_in_a_new_one(
    make: Make, answering: Callable[[Answer], int]
) -> None:
    server = Canned()
    tools = make(web(answering(server)))
    approve_all(tools)
    server.forgets = True
    assert tools.call("Web_add", {}, never) == ToolResult("3")
    assert (server.n_sessions, server.n_calls) == (2, 1)


def test_a_tool_that_is_never_found_is_tried_twice_at_most(make: Make, answering: Callable[[Answer], int]) -> None:
    server = Canned()
    tools = make(web(answering(server)))
    approve_all(tools)
    server.status = 404
    assert tools.call("Web_add", {}, never).is_error
    assert (server.n_sessions, server.n_calls) == (2, 0)


def test_a_server_that_goes_away_and_comes_back(make: Make) -> None:
    number = free_port()
    tools = make(web(number))
    server = served(Canned(), number)
    try:
        approve_all(tools)
    finally:
        server.shutdown()
        server.server_close()
    failed = tools.call("Web_add", {}, never)
    assert failed.is_error
    assert str(number) in failed.text
    server = served(Canned(), number)
    try:
        assert tools.call("Web_add", {}, never) == ToolResult("3")
    finally:
        server.shutdown()
        server.server_close()


def test_addresses_and_messages_are_not_logged(
    make: Make, answering: Callable[[Answer], int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    port = answering(Canned())
    tools = make(ToolServer("Web", "http", address=f"http://127.0.0.1:{port}/mcp?key=hush", is_on=True))
    approve_all(tools)
    assert tools.call("Web_add", {"text": "secret"}, never) == ToolResult("3")
    assert not [one for one in caplog.messages if "hush" in one or "secret" in one]
