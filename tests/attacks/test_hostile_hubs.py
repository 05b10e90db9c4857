"""Hubs that lie: huge and strange values, bombs, lists without end, addresses that are none."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from engine.errors import EngineError, HubError, InvalidRequestError
from engine.library.hub import hub as hub_module
from engine.library.hub.hub import Hub
from engine.library.hub.hub_failures import retry_after_s
from engine.library.hub.hub_names import check_file_names

HEAD = b'{"id": "a/b", "sha": "' + b"0" * 40 + b'"}'
Answer = tuple[int, Mapping[str, str], bytes]


class HostileHub:
    """Answers what `say` returns for a path, and counts how often it was asked."""

    def __init__(self) -> None:
        self.say: Callable[[str], Answer] = lambda path: (200, {}, b"[]")
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                outer.asked.append(self.path)
                status, headers, body = outer.say(self.path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileHub]:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    found = HostileHub()
    yield found
    found.server.shutdown()
    found.server.server_close()


def tree(entries: object) -> Callable[[str], Answer]:
    body = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return lambda path: (200, {}, body if "/tree/" in path else HEAD)


@pytest.mark.parametrize(
    "body",
    [b'[{"id":"a/b","downloads":1e400}]', b'[{"id":"a/b","likes":1e999}]',
     b'[{"id":"a/b","downloads":1' + b"0" * 4000 + b"}]", b"[" * 200_000, b"[" + b"[]," * 600_000 + b"[]]"],
    ids=["endless downloads", "endless likes", "4000 digits", "deep", "many"],
)  # fmt: skip
def test_strange_numbers_and_shapes_are_told_as_that(hostile: HostileHub, body: bytes) -> None:
    hostile.say = lambda path: (200, {}, body)
    with pytest.raises(HubError):
        Hub(endpoint=hostile.url).search("x")


def test_models_whose_name_would_write_to_the_terminal_are_left_out(hostile: HostileHub) -> None:
    names = ["a/\ud800", "a/\x1b[2J", "../b", "a/b", "gpt2", "a/b/c", 5]
    hostile.say = lambda path: (200, {}, json.dumps([{"id": name} for name in names]).encode())
    assert [model.repo for model in Hub(endpoint=hostile.url).search("x")] == ["a/b", "gpt2"]


@pytest.mark.parametrize("size", ["1e400", "1" + "0" * 4000, '"x"'])
def test_sizes_that_are_none(hostile: HostileHub, size: str) -> None:
    hostile.say = tree(f'[{{"type":"file","path":"m.gguf","size":{size},"oid":"x"}}]'.encode())
    with pytest.raises(HubError):
        Hub(endpoint=hostile.url).listing("a/b")


@pytest.mark.parametrize(
    "name", ["\ud800.gguf", "\x1b[2J.gguf", "\x9b2J.gguf", "a\u202efugg.gguf", "a" * 2000 + ".gguf"]
)
def test_names_that_must_not_be_shown(hostile: HostileHub, name: str) -> None:
    hostile.say = tree([{"type": "file", "path": name, "size": 5, "oid": "x"}])
    with pytest.raises(HubError) as caught:
        Hub(endpoint=hostile.url).listing("a/b")
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()


def test_a_list_without_end_is_left(hostile: HostileHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MAX_PAGES", 5)

    def endless(path: str) -> Answer:
        if "/tree/" not in path:
            return 200, {}, HEAD
        following = f'<{hostile.url}/api/models/a/b/tree/{"0" * 40}?cursor={time.monotonic()}>; rel="next"'
        return 200, {"Link": following}, b'[{"type": "directory", "path": "d"}]'

    hostile.say = endless
    with pytest.raises(HubError):
        Hub(endpoint=hostile.url).listing("a/b")
    assert len(hostile.asked) <= 8


def test_a_page_that_trickles_is_left(hostile: HostileHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "MAX_ANSWER_S", -1.0)
    with pytest.raises(HubError, match="too slow"):
        Hub(endpoint=hostile.url).search("x")


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "zstd", "deflate"])
def test_nothing_is_unpacked(hostile: HostileHub, encoding: str) -> None:
    bomb = gzip.compress(gzip.compress(bytes(16 << 20)))
    hostile.say = lambda path: (200, {"Content-Encoding": encoding}, bomb)
    with pytest.raises(HubError, match="compresses"):
        Hub(endpoint=hostile.url).search("x")


@pytest.mark.parametrize(
    "address",
    ["http://a:99999999/", "http://a:0/", "http://[::1", "http://" + "a" * 300 + "/", "file:///etc/passwd", "mailto:x"],
)
def test_redirects_to_what_is_no_address(hostile: HostileHub, address: str) -> None:
    hostile.say = lambda path: (302, {"Location": address}, b"")
    with pytest.raises(EngineError):
        Hub(endpoint=hostile.url).search("x")


def test_an_endpoint_with_a_port_that_is_none() -> None:
    with pytest.raises(InvalidRequestError):
        Hub(endpoint="http://localhost:99999999")


def test_a_moment_with_an_endless_time_zone() -> None:
    assert retry_after_s("Thu, 01 Jan 2026 00:00:00 +99999999999999") is None


def test_names_that_differ_only_in_how_an_accent_is_written() -> None:
    with pytest.raises(HubError, match="two files"):
        check_file_names(["caf\u00e9.gguf", "cafe\u0301.gguf"])
