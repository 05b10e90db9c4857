"""An OpenAI-compatible server for tests, on this PC's loopback alone. It answers as `script` says and records what it
was asked.

    with FakeServer() as server:
        server.script = [Piece("Hello"), Piece(" there")]
        RemoteServer(server.address, "Stand-in").answer("big", [...], {})
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Piece:
    """A piece of an answer. raw: these bytes as they are, in place of an event."""

    text: str = ""
    thought: str = ""
    raw: bytes = b""


DONE = Piece(raw=b"data: [DONE]\n\n")
USAGE: dict[str, Any] = {"prompt_tokens": 7, "completion_tokens": 12, "total_tokens": 19}


@dataclass
class Asked:
    """A request. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class FakeServer:
    """status, headers, failure: what it answers in place of an answer. hold: it waits for that before every piece from
    the second one on; gone: somebody has left it in mid-answer. cut: it ends without a word."""

    models: Sequence[Any] = ("big", "small")
    script: list[Piece] = field(default_factory=lambda: [Piece("Hello"), Piece(" there.")])
    usage: Any = field(default_factory=lambda: dict(USAGE))
    key: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    failure: Any = None
    whole: bytes | None = None
    cut: bool = False
    asked: list[Asked] = field(default_factory=list)
    hold: threading.Event | None = None
    gone: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> FakeServer:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                fake._serve(self, None)

            def do_POST(self) -> None:
                fake._serve(self, json.loads(self.rfile.read(int(self.headers["content-length"]))))

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.hold is not None:
            self.hold.set()
        self._server.shutdown()
        self._thread.join(30)
        self._server.server_close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def chats(self) -> list[Asked]:
        """The requests for an answer."""
        return [one for one in self.asked if one.path.endswith("/chat/completions")]

    def _serve(self, request: BaseHTTPRequestHandler, body: Any) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.asked.append(Asked(request.command, request.path, headers, body))
        request.close_connection = True
        if self.key and headers.get("authorization") != f"Bearer {self.key}":
            self._send(request, 401, {"error": {"message": "Incorrect API key provided."}})
        elif self.status != 200:
            self._send(request, self.status, self.failure)
        elif self.whole is not None:
            self._send(request, 200, self.whole)
        elif request.path.endswith("/models"):
            self._send(
                request, 200, {"object": "list", "data": [{"id": one, "object": "model"} for one in self.models]}
            )
        else:
            with contextlib.suppress(OSError):
                self._stream(request)

    def _send(self, request: BaseHTTPRequestHandler, status: int, values: Any) -> None:
        data = values if isinstance(values, bytes) else json.dumps(values).encode()
        request.send_response(status)
        for name, value in {"Content-Type": "application/json", **self.headers}.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        with contextlib.suppress(OSError):
            request.wfile.write(data)

    def _stream(self, request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream; charset=utf-8")
        for name, value in self.headers.items():
            request.send_header(name, value)
        request.send_header("Connection", "close")
        request.end_headers()
        for number, piece in enumerate(self.script):
            if number and self.hold is not None:
                self._wait(request)
            request.wfile.write(piece.raw or event(delta(piece)))
            request.wfile.flush()
        if self.cut:
            return
        request.wfile.write(event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        if self.usage is not None:
            request.wfile.write(event({"choices": [], "usage": self.usage}))
        request.wfile.write(DONE.raw)

    def _wait(self, request: BaseHTTPRequestHandler) -> None:
        """Until it may go on, or the other side has gone."""
        assert self.hold is not None
        request.connection.settimeout(0.02)
        while not self.hold.is_set():
            try:
                if request.connection.recv(1) == b"":
                    self.gone.set()
                    raise ConnectionResetError
            except TimeoutError:
                continue
        request.connection.settimeout(None)


def delta(piece: Piece) -> dict[str, Any]:
    """A piece as such a server writes it."""
    values = {"content": piece.text} if not piece.thought else {"reasoning_content": piece.thought}
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": values, "finish_reason": None}]}


def event(values: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(values).encode() + b"\n\n"
