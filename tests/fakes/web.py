"""A site for tests: this PC's loopback in place of the public web. It answers as `pages` says and records requests.

Names resolve to `addresses`; a connection to any address goes to the test's own server.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from app.tools.page_fetch import Network

PUBLIC = "93.184.216.34"
Answer = Callable[[BaseHTTPRequestHandler], None]


class Site:
    """One server. pages: path to a whole answer, or to a function that writes one."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, dict[str, str], bytes] | Answer] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []  # path with query; headers with names in lower case
        self.addresses: dict[str, Sequence[str]] = {}  # by host; others are public
        self.resolved: list[str] = []
        self.connected: list[tuple[str, int]] = []
        self.trust = ssl.create_default_context
        self.ended = threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                answer = site.pages.get(self.path.partition("?")[0], (404, {}, b"nothing here"))
                with contextlib.suppress(OSError):  # the reader has left
                    if callable(answer):
                        answer(self)
                        return
                    status, headers, body = answer
                    self.send_response(status)
                    for name, value in ({"Content-Length": str(len(body))} | headers).items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def network(self) -> Network:
        return Network(self._resolve, self._connect, lambda: self.trust())

    def html(self, path: str, body: str | bytes, kind: str = "text/html; charset=utf-8") -> None:
        """Answer a path with a page."""
        data = body.encode() if isinstance(body, str) else body
        self.pages[path] = (200, {"Content-Type": kind} if kind else {}, data)

    def redirect(self, path: str, target: str, status: int = 302) -> None:
        self.pages[path] = (status, {"Location": target}, b"")

    def protect(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )  # the handshake is part of reading, so that a reader who refuses it does not stop the server

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()

    def _resolve(self, host: str, port: int) -> Sequence[str]:
        self.resolved.append(host)
        return self.addresses.get(host, [PUBLIC])

    def _connect(self, address: str, port: int, timeout: float) -> socket.socket:
        self.connected.append((address, port))
        return socket.create_connection(("127.0.0.1", self._server.server_port), timeout)
