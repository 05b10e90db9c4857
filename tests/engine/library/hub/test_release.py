"""The look for a newer version: only where the build names a place, and whatever that place says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from engine.library.hub import release


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """A place of releases: what it answers, under "says"."""
    answer = {"says": b"{}", "asked": b""}

    class Announcer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer["asked"] = str(self.headers).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer["says"])

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Announcer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}/latest"
        (tmp_path / "release.json").write_text(json.dumps({"feed": address}))
        monkeypatch.setattr(release, "asset_root", lambda: tmp_path)
        yield answer
        server.shutdown()
        thread.join()


def test_a_checkout_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("httpx2.Client", None)
    assert release.feed() == ""
    assert release.newer_release() is None


def test_a_newer_version_is_found_and_nothing_is_told(place: dict[str, bytes]) -> None:
    place["says"] = json.dumps({"tag_name": "v1.10", "html_url": "https://example.org/x"}).encode()
    assert release.newer_release("1.9.3") == release.Release("1.10", "https://example.org/x")
    assert release.newer_release("1.10.0") is None
    names = {line.split(b":")[0].lower() for line in place["asked"].splitlines() if line}
    assert names <= {b"host", b"accept", b"accept-encoding", b"connection", b"user-agent"}


@pytest.mark.parametrize(
    "says",
    [b"", b"[]", b"{}", b'{"tag_name": 3}', b'{"tag_name": "v2.0-rc1"}', b'{"tag_name": null}', b" " * (2 << 20)],
)
def test_whatever_else_is_said_is_no_news(says: bytes, place: dict[str, bytes]) -> None:
    place["says"] = says
    assert release.newer_release("0.1") is None


def test_a_page_that_is_no_address_is_left_out(place: dict[str, bytes]) -> None:
    place["says"] = json.dumps({"tag_name": "2.0", "html_url": "javascript:alert(1)"}).encode()
    assert release.newer_release("0.1") == release.Release("2.0", "")


def test_a_silent_place_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "release.json").write_text(json.dumps({"feed": "http://127.0.0.1:1/"}))
    monkeypatch.setattr(release, "asset_root", lambda: tmp_path)
    assert release.newer_release("0.1") is None
