"""Searching the web: requests to both services, their results, and what goes wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import keyring
import keyring.backend
import pytest
from fakes.web import Site

from app.settings import AppSettings
from app.tools import web_search
from app.tools.tool import ToolResult
from app.tools.web_search import (
    BRAVE_ADDRESS,
    SearchService,
    WebSearch,
    checked_search_address,
    chosen_service,
    key_of_keyring,
)
from engine import __version__
from engine.errors import InvalidRequestError
from engine.remote_servers.keys import ServerKeys

RESULTS = [
    {
        "title": f"Title <strong>{number}</strong>",
        "url": f"https://example.org/{number}",
        "content": f"Text\n &amp; {number}",
    }
    for number in range(12)
]


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def answer(site: Site, values: object, status: int = 200, path: str = "/search") -> None:
    body = values if isinstance(values, bytes) else json.dumps(values).encode()
    site.pages[path] = (status, {"Content-Type": "application/json"}, body)


def search(service: SearchService | None, never: Callable[[], bool] = lambda: False, **arguments: Any) -> ToolResult:
    return WebSearch(lambda: service, lambda address: "").call(
        "search_web", {"query": "red apples", **arguments}, never
    )


def searxng(site: Site, path: str = "") -> SearchService:
    return SearchService("searxng", site.address + path)


def test_searxng(site: Site) -> None:
    answer(site, {"results": RESULTS, "query": "red apples"}, path="/own/search")
    text = search(searxng(site, "/own"), n_results=2).text
    assert text.partition("\n\n")[2] == (
        "1. Title 0\nhttps://example.org/0\nText & 0\n\n2. Title 1\nhttps://example.org/1\nText & 1"
    )
    ((path, headers),) = site.asked
    assert parse_qs(urlsplit(path).query) == {"q": ["red apples"], "format": ["json"]}
    assert headers["user-agent"].startswith(f"Hearth/{__version__} ")
    assert "x-subscription-token" not in headers
    assert "cookie" not in headers


def test_brave(site: Site) -> None:
    listed = [{"title": one["title"], "url": one["url"], "description": one["content"]} for one in RESULTS]
    answer(site, {"web": {"results": listed}}, path="/res/v1/web/search")
    text = search(SearchService("brave", site.address, "BSA-secret")).text
    assert text.count("https://example.org/") == 5
    assert "Text & 4" in text
    ((path, headers),) = site.asked
    assert parse_qs(urlsplit(path).query) == {"q": ["red apples"], "count": ["5"]}
    assert headers["x-subscription-token"] == "BSA-secret"


@pytest.mark.parametrize(
    ("kind", "status", "part"),
    [
        ("searxng", 403, "settings.yml"), ("searxng", 429, "later"), ("searxng", 404, "address"),
        ("searxng", 500, "500"),
        ("searxng", 302, "302"), ("brave", 401, "key"), ("brave", 403, "key"), ("brave", 422, "key"),
        ("brave", 429, "later"),
        ("brave", 500, "500"),
    ],
)  # fmt: skip
def test_refusals_say_what_to_do(site: Site, kind: Any, status: int, part: str) -> None:
    path = "/search" if kind == "searxng" else "/res/v1/web/search"
    answer(site, {"error": {"code": "SUBSCRIPTION_TOKEN_INVALID"}}, status, path)
    result = search(SearchService(kind, site.address, "BSA-secret"))
    assert result.is_error
    assert part in result.text
    assert "secret" not in result.text
    assert len(site.asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"<html>", b"[]", b"3", b"null", b'{"results": 3}', b'{"results": [3]}', b'{"results": {"a": 1}}', b"{}",
        b"[" * 10**6,
        b"\xff\xfe\xff", b"x" * (web_search.MAX_BYTES + 1),
    ],
)  # fmt: skip
def test_broken_answers_are_errors(site: Site, body: bytes) -> None:
    answer(site, body)
    result = search(searxng(site))
    assert result.is_error
    assert "error in Hearth" not in result.text


def test_results_are_bounded_and_foreign_addresses_left_out(site: Site) -> None:
    values = [
        {"title": "T" * 10**5, "url": "https://example.org/1", "content": "c " * 10**5},
        {"title": "script", "url": "javascript:alert(1)"}, {"title": "long", "url": "https://e.org/" + "x" * 5000},
        {"title": None, "url": "https://example.org/2\x07", "content": 5}, {"title": "no address"},
    ]  # fmt: skip
    answer(site, {"results": values})
    text = search(searxng(site)).text
    assert len(text) < 1200
    assert text.endswith("\n\n2. https://example.org/2\ufffd\nhttps://example.org/2\ufffd")
    assert "script" not in text


def test_nothing_found_is_no_error(site: Site) -> None:
    answer(site, {"results": []})
    result = search(searxng(site))
    assert not result.is_error
    assert "red apples" in result.text


@pytest.mark.parametrize(
    "arguments",
    [{"query": ""}, {"query": 3}, {"query": "x" * 401}, {"n_results": 0}, {"n_results": 11}, {"n_results": "many"}],
)
def test_wrong_arguments_are_not_sent(site: Site, arguments: dict[str, Any]) -> None:
    assert search(searxng(site), **arguments).is_error
    assert site.asked == []


def test_a_service_that_is_not_there() -> None:
    result = search(SearchService("searxng", "http://127.0.0.1:1"))
    assert result.is_error
    assert "127.0.0.1" in result.text
    assert "settings" in result.text


def test_a_silent_service_is_given_up_and_can_be_cancelled(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def silent(handler: BaseHTTPRequestHandler) -> None:
        asked.set()
        site.ended.wait(60)

    site.pages["/search"] = silent
    assert "stopped" in search(searxng(site), asked.is_set).text
    monkeypatch.setattr(web_search, "WITHIN_S", 0.2)
    result = search(searxng(site))
    assert result.is_error
    assert "stopped" not in result.text


def test_without_a_service_there_is_no_tool() -> None:
    services: list[SearchService | None] = [None]
    source = WebSearch(lambda: services[0])
    assert source.tools() == ()
    assert source.call("search_web", {"query": "x"}, lambda: False).is_error
    services[0] = SearchService("searxng", "http://192.168.1.5:8888/own")
    (tool,) = source.tools()
    assert not tool.is_local
    scope = source.scope(tool.name, {"query": "x"})
    assert (scope.key, scope.label) == ("search:192.168.1.5", "192.168.1.5")


def test_the_service_of_the_settings() -> None:
    assert chosen_service(AppSettings()) is None
    assert chosen_service(AppSettings(search_service="searxng")) is None
    assert chosen_service(AppSettings(search_service="searxng", search_address="ftp://x")) is None
    found = chosen_service(AppSettings(search_service="searxng", search_address="localhost:8888/search"))
    assert found == SearchService("searxng", "http://localhost:8888")
    brave = chosen_service(AppSettings(search_service="brave", search_address="http://other.lan"), "BSA-secret")
    assert brave == SearchService("brave", BRAVE_ADDRESS, "BSA-secret")
    assert "secret" not in repr(brave)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("search.example.org", "https://search.example.org"), ("http://10.0.0.2:80/", "http://10.0.0.2"),
        ("https://example.org/searx/search/", "https://example.org/searx"),
        ("http://127.0.0.1:8888", "http://127.0.0.1:8888"),
    ],
)  # fmt: skip
def test_addresses_of_searxng(text: str, address: str) -> None:
    assert checked_search_address(text) == address
    assert checked_search_address(address) == address


@pytest.mark.parametrize(
    "text", ["", "http://search.example.org", "https://a:b@example.org", "https://example.org/search?q=1", "x y"]
)
def test_what_is_no_address_of_searxng(text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        checked_search_address(text)
    assert "/v1" not in caught.value.hint


class Kept(keyring.backend.KeyringBackend):
    """A keyring in memory."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        self.secrets: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.secrets.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.secrets[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.secrets[service, username]


def test_the_key_is_the_keyrings(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    before = keyring.get_keyring()
    keyring.set_keyring(Kept())
    try:
        answer(site, {"web": {"results": []}}, path="/res/v1/web/search")
        source = WebSearch(lambda: SearchService("brave", site.address))
        assert "key" in source.call("search_web", {"query": "x"}, lambda: False).text
        assert site.asked == []
        for key in ("BSA-one", "BSA-two"):  # as the library's process keeps it
            assert ServerKeys().keep_for_server(site.address, key)["kept"]
            assert key_of_keyring(site.address) == key
            assert not source.call("search_web", {"query": "x"}, lambda: False).is_error
            assert site.asked[-1][1]["x-subscription-token"] == key
        assert key_of_keyring(BRAVE_ADDRESS) == ""
    finally:
        keyring.set_keyring(before)
