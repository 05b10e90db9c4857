"""Pages of answers in a real browser: what tries to send something, sends nothing.

Chromium is looked for; without it the headers alone are tested (tests/app/chat/exports/test_browser_page.py).
"""

from __future__ import annotations

import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler

import pytest
from leaking_pages import PAGES

from app.chat.exports.browser_page import BrowserPage

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
WITHIN_S, AFTER_S = 30.0, 2.0
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BROWSER, reason="no Chromium is installed"),
]


class Listener:
    """Counts what arrives at a port, over TCP and UDP. Connections without a byte are counted apart."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.empty = 0
        self._streams = socket.create_server(("127.0.0.1", 0))
        self.port = self._streams.getsockname()[1]
        self._packets = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._packets.bind(("127.0.0.1", self.port))
        self._stop, self._stopper = socket.socketpair()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._streams, self._packets, self._stop], [], [])
            if self._stop in ready:
                return
            if self._packets in ready:
                self.received.append(self._packets.recv(2000))
            if self._streams in ready:
                connection, _ = self._streams.accept()
                with connection:
                    connection.settimeout(0.3)
                    try:
                        data = connection.recv(2000)
                    except OSError:
                        data = b""
                if data:
                    self.received.append(data)
                else:
                    self.empty += 1

    def close(self) -> None:
        self._stopper.send(b"x")
        self._thread.join()
        for one in (self._streams, self._packets, self._stop, self._stopper):
            one.close()


class Watched(BrowserPage):
    """A page that knows when the browser has got it."""

    def __init__(self, code: str) -> None:
        self.seen = threading.Event()
        super().__init__(code, "html")

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        super().answer(request)
        if request.path == self._inner:
            self.seen.set()


def visit(address: str, seen: threading.Event) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                   "--disable-background-networking", f"--user-data-dir={profile}", "--remote-debugging-port=0",
                   address]  # fmt: skip
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert seen.wait(WITHIN_S), "the browser did not load the page"
            time.sleep(AFTER_S)
        finally:
            browser.kill()
            browser.wait()


@pytest.mark.parametrize("name", list(PAGES))
def test_nothing_is_sent(name: str) -> None:
    listener = Listener()
    try:
        host = f"127.0.0.1:{listener.port}"
        page = Watched(PAGES[name].format(to=f"http://{host}", host=host))
        try:
            visit(page.address, page.seen)
        finally:
            page.close()
    finally:
        listener.close()
    assert listener.received == []


def test_the_listener_hears_a_page_that_is_not_closed_off(monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener()
    try:
        page = Watched(f"<img src='http://127.0.0.1:{listener.port}/heard'>")
        plain = {"Content-Type": "text/html"}
        page._pages = {path: (body, plain) for path, (body, _) in page._pages.items()}
        try:
            visit(page.address, page.seen)
        finally:
            page.close()
    finally:
        listener.close()
    assert any(data.startswith(b"GET /heard ") for data in listener.received)
