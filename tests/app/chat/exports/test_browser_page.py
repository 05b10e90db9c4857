"""HTML of an answer in the browser: exact headers, addresses that nobody guesses, an end."""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from app.chat.exports import browser_page
from app.chat.exports.browser_page import BrowserPage

CODE = "<!DOCTYPE html><script>document.title = '</script>'</script><p>Grüße"


@pytest.fixture
def page() -> Iterator[BrowserPage]:
    served = BrowserPage(CODE, "html")
    yield served
    served.close()


def get(page: BrowserPage, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=5)
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers={"Host": f"127.0.0.1:{page.port}"} | sent)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def outer(page: BrowserPage) -> str:
    return page.address.removeprefix(f"http://127.0.0.1:{page.port}")


def inner(page: BrowserPage) -> str:
    found = re.search(rb'src="http://127\.0\.0\.1:\d+(/[^"]+)"', get(page, outer(page))[2])
    assert found is not None
    return found[1].decode()


def test_the_page_has_exactly_these_headers(page: BrowserPage) -> None:
    status, headers, body = get(page, inner(page), Sec_Fetch_Dest="iframe")
    text = f"<!DOCTYPE html>{browser_page._NO_WEBRTC}{CODE}"
    assert (status, body.decode()) == (200, text)
    origin = f"http://127.0.0.1:{page.port}"
    assert headers.pop("Date")
    permissions = headers.pop("Permissions-Policy").split(", ")
    assert all(one.endswith("=()") for one in permissions)
    assert {"camera=()", "microphone=()", "geolocation=()", "clipboard-read=()", "display-capture=()"} <= set(
        permissions
    )
    assert headers == {
        "Server": "Hearth",
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": (
            "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
            "img-src data:; font-src data:; media-src data:; connect-src 'none'; form-action 'none'; base-uri 'none'; "
            f"webrtc 'block'; frame-ancestors {origin}"
        ),
        "X-DNS-Prefetch-Control": "off",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Content-Length": str(len(text.encode())),
        "Connection": "close",
    }


def test_the_wrapper_allows_one_frame_of_its_origin(page: BrowserPage) -> None:
    status, headers, body = get(page, outer(page))
    assert status == 200
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy.pop("style-src").startswith("'sha256-")
    assert policy == {
        "default-src": "'none'", "frame-src": f"http://127.0.0.1:{page.port}", "form-action": "'none'",
        "base-uri": "'none'", "frame-ancestors": "'none'", "webrtc": "'block'",
    }  # fmt: skip
    assert body.count(b"<iframe") == 1
    assert b'sandbox="allow-scripts"' in body
    assert b"<script" not in body


@pytest.mark.parametrize(
    "host", ["localhost:{port}", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}"]
)
def test_another_host_gets_nothing(page: BrowserPage, host: str) -> None:
    status, _, body = get(page, outer(page), Host=host.format(port=page.port))
    assert (status, body) == (421, b"")


def test_other_addresses_and_methods_get_nothing(page: BrowserPage) -> None:
    way = inner(page)
    for path in (
        "/",
        "/favicon.ico",
        way[:-1],
        way + "x",
        way + "/",
        way + "?x",
    ):
        assert get(page, path)[0] == 404, path
    assert get(page, way, "POST")[0] == 501
    assert get(page, way, "OPTIONS")[0] == 501
    assert get(page, way, "HEAD")[::2] == (200, b"")
    assert len(way) > 40
    assert way != outer(page)


@pytest.mark.parametrize("kind", ["document", "script", "image", "empty", "worker"])
def test_the_page_is_served_to_its_frame_alone(page: BrowserPage, kind: str) -> None:
    assert get(page, inner(page), Sec_Fetch_Dest=kind)[0] == 403


def test_a_page_is_closed_without_waiting_for_its_server(page: BrowserPage) -> None:
    callers, shutdown, ended = list[threading.Thread](), page._server.shutdown, threading.Event()

    def noted() -> None:
        callers.append(threading.current_thread())
        shutdown()
        ended.set()

    page._server.shutdown = noted  # type: ignore[method-assign]
    path = outer(page)
    page.close()
    assert threading.current_thread() not in callers
    with contextlib.suppress(OSError):  # the server has ended
        assert get(page, path)[0] == 404
    assert ended.wait(5)


def test_a_page_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_page, "OPEN_S", 0.05)
    page = BrowserPage(CODE, "html")
    page._end.join(5)
    with pytest.raises(OSError):  # noqa: PT011
        get(page, outer(page))


def test_the_oldest_of_many_pages_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    class Fake:
        def __init__(self, code: str, kind: str) -> None:
            self.address, self.closed = code, False
            opened.append(self)

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(browser_page, "BrowserPage", Fake)
    monkeypatch.setattr(browser_page, "_open", type(browser_page._open)())
    for number in range(browser_page.MOST_OPEN + 2):
        assert browser_page.serve(str(number), "html") == str(number)
    assert [one.closed for one in opened] == [True, True] + [False] * browser_page.MOST_OPEN


def test_svg_is_shown_in_a_page_of_its_own() -> None:
    page = BrowserPage("<svg><circle r='9'/></svg>", "svg")
    try:
        body = get(page, inner(page))[2]
        assert body.startswith(b"<!DOCTYPE html>")
        assert body.endswith(b"<svg><circle r='9'/></svg>")
    finally:
        page.close()
