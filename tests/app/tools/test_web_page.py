"""Reading a web page: which hosts are contacted, what is sent, and what comes of pages of every kind."""

from __future__ import annotations

import gzip
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from fakes.web import PUBLIC, Site
from pdf_files import pdf_with

from app.tools import page_fetch, web_page
from app.tools.page_fetch import MAX_BYTES, is_public, web_address
from app.tools.tool import ToolResult
from app.tools.tool_error import ToolError
from app.tools.web_page import WebPages
from engine import __version__


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def read(
    site: Site, url: str, limit: int = 12_000, never: Callable[[], bool] = lambda: False, **more: Any
) -> ToolResult:
    return WebPages(limit, site.network).call("read_web_page", {"url": url, **more}, never)


def body_of(result: ToolResult) -> str:
    assert not result.is_error, result.text
    return result.text.partition("\n\n")[2]


# --- whom it contacts


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1", "::1", "::", "fe80::1",
        "fe80::1%eth0",
        "fc00::1", "fd12::1", "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1",
        "2001:db8::1",
        "2002:7f00:1::", "2002:a00:1::", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2001:0:1::1",
        "host",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str, site: Site) -> None:
    assert not is_public(address)
    site.addresses["trap.example.org"] = [PUBLIC, address]
    result = read(site, "https://trap.example.org/")
    assert result.is_error
    assert "private network" in result.text
    assert site.connected == []


@pytest.mark.parametrize("address", ["8.8.8.8", PUBLIC, "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::1"])
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "localhost", "[::1]", "[::ffff:7f00:1]"]
)
def test_this_pc_is_refused_in_every_spelling(host: str) -> None:
    result = WebPages().call("read_web_page", {"url": f"http://{host}:8080/"}, lambda: False)
    assert result.is_error
    assert "private network" in result.text or "not found" in result.text  # where the resolver knows no such spelling


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org", "file:///etc/passwd", "javascript:alert(1)", "data:text/html,x", "about:blank",
        "https://",
        "https:///x", "http://user:pw@example.org/", "http://example.org@127.0.0.1/",
        "http://example.org\\@127.0.0.1/",
        "http://exa mple.org/", "http://example.org\n.evil.org/", "http://example.org:22/", "http://example.org:0/",
        "http://example.org:99999/", "http://[::1", "http://[fe80::1%25eth0]/", "http://" + "a" * 300 + ".org/",
        "/page",
        "https://example.org/" + "x" * 2000, "http://exa\u2100mple.org/", "http://-\udcff.org/", "example", "", "   ",
    ],
)  # fmt: skip
def test_what_is_no_address_of_the_web_is_refused_unsent(url: str, site: Site) -> None:
    assert read(site, url).is_error
    assert site.resolved == []
    assert WebPages().scope("read_web_page", {"url": url}).key == "web:"


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("example.org", "https://example.org/"), ("example.org/a?b#c", "https://example.org/a?b"),
        ("HTTP://Example.ORG.:80/a b", "http://example.org/a%20b"),
        ("https://müller.example/ü?ä", "https://xn--mller-kva.example/%C3%BC?%C3%A4"),
        ("https://example.org:8443/%20", "https://example.org:8443/%20"),
        ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
        (" https://example.org?q=1 ", "https://example.org/?q=1"),
    ],
)  # fmt: skip
def test_addresses_are_put_in_order(url: str, same: str) -> None:
    assert web_address(url).url == same


def test_the_scope_is_the_site() -> None:
    scope = WebPages().scope("read_web_page", {"url": "https://www.Example.org:8080/a?secret=1"})
    assert (scope.key, scope.label) == ("web:example.org", "example.org")
    assert WebPages().scope("read_web_page", {"url": "http://sub.example.org"}).key == "web:sub.example.org"
    assert WebPages().scope("read_web_page", {"url": 5}).key == "web:"


def test_the_connection_goes_to_the_address_that_was_checked(site: Site) -> None:
    site.html("/", "<p>hello")
    answers = iter([[PUBLIC], ["127.0.0.1"]])  # a name that changes its address in between
    network = page_fetch.Network(lambda host, port: next(answers), site.network.connect, ssl.create_default_context)
    result = WebPages(network=network).call("read_web_page", {"url": "http://example.org/"}, lambda: False)
    assert body_of(result) == "hello"
    assert site.connected == [(PUBLIC, 80)]


def test_another_address_is_tried_if_one_does_not_answer(site: Site) -> None:
    site.html("/", "<p>hello")
    site.addresses["example.org"] = ["8.8.8.8", PUBLIC]

    def connect(address: str, port: int, timeout: float) -> Any:
        if address == "8.8.8.8":
            raise ConnectionRefusedError
        return site.network.connect(address, port, timeout)

    network = page_fetch.Network(site.network.resolve, connect, ssl.create_default_context)
    assert body_of(WebPages(network=network).call("read_web_page", {"url": "http://example.org/"}, lambda: False))
    site.addresses["example.org"] = ["8.8.8.8"]
    result = WebPages(network=network).call("read_web_page", {"url": "http://example.org/"}, lambda: False)
    assert result.is_error
    assert "example.org" in result.text


def test_it_says_who_it_is_and_nothing_else(site: Site) -> None:
    site.pages["/a"] = (302, {"Location": "/b?c=d#e", "Set-Cookie": "id=1"}, b"")
    site.html("/b", "<p>hello")
    assert body_of(read(site, "http://example.org/a#x")) == "hello"
    (_, first), (path, second) = site.asked
    assert path == "/b?c=d"
    assert set(first) == set(second) == {"host", "user-agent", "accept", "accept-encoding", "connection"}
    assert second["host"] == "example.org"
    assert second["user-agent"].startswith(f"Hearth/{__version__} ")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate and its key, for example.org, which nobody but the test trusts."""
    folder = tmp_path_factory.mktemp("certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key", "-out", "cert", "-days",
               "2", "-subj", "/CN=example.org", "-addext", "subjectAltName=DNS:example.org"]  # fmt: skip
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no openssl to make a certificate with")
    return folder


def test_https_checks_the_hosts_certificate(site: Site, certificate: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate / "cert", certificate / "key")
    site.protect(server)
    site.html("/", "<p>hello")
    result = read(site, "https://example.org/")
    assert result.is_error
    assert "certificate" in result.text
    site.trust = lambda: ssl.create_default_context(cafile=certificate / "cert")
    assert body_of(read(site, "https://example.org/")) == "hello"
    assert "certificate" in read(site, "https://example.net/").text
    assert [headers["host"] for _, headers in site.asked] == ["example.org"]


# --- redirects


def test_redirects_within_the_site_are_followed(site: Site) -> None:
    site.redirect("/1", "//www.example.org/2", 301)
    site.redirect("/2", "3", 307)
    site.redirect("/3", "http://example.org:8080/4", 308)
    site.html("/4", "<p>there")
    result = read(site, "http://example.org/1")
    assert body_of(result) == "there"
    assert "Address: http://example.org:8080/4\n" in result.text
    assert site.connected == [(PUBLIC, 80)] * 3 + [(PUBLIC, 8080)]


def test_a_redirect_to_another_site_is_named_and_not_followed(site: Site) -> None:
    for target in ("https://other.org/x?y", "https://sub.example.org/", "http://127.0.0.1/admin"):
        site.redirect("/", target)
        result = read(site, "http://example.org/")
        assert not result.is_error
        assert target in result.text
    assert site.resolved == ["example.org"] * 3


def test_a_redirect_is_checked_like_any_address(site: Site) -> None:
    site.redirect("/", "http://www.example.org/secret")
    site.addresses["www.example.org"] = ["10.0.0.1"]
    assert read(site, "http://example.org/").is_error
    assert len(site.connected) == 1
    for target in ("file:///etc/passwd", "http://a@example.org/", "gopher://example.org", "http://[", "http://x:y"):
        site.redirect("/", target)
        assert read(site, "http://example.org/").is_error


def test_https_never_becomes_http() -> None:
    assert web_address("http://example.org").may_lead_to(web_address("https://www.example.org/x"))
    assert not web_address("https://example.org").may_lead_to(web_address("http://example.org/x"))


def test_redirects_in_a_circle_end(site: Site) -> None:
    site.redirect("/", "/")
    assert read(site, "http://example.org/").is_error
    assert len(site.asked) == 6


# --- hostile answers


def test_an_endless_page_is_cut(site: Site) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/plain")
        handler.end_headers()
        while not site.ended.is_set():
            handler.wfile.write(b"word " * 13_000)

    site.pages["/"] = endless
    result = read(site, "http://example.org/", start=MAX_BYTES - 100)
    assert f"{MAX_BYTES:,} bytes" in result.text
    assert len(result.text) < 1000


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_page_that_drips_is_given_up(site: Site, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"X: " if part == "head" else b"\r\n"))
        while not site.ended.wait(0.01):
            handler.wfile.write(b"x")

    site.pages["/"] = drip
    monkeypatch.setattr(web_page, "WITHIN_S", 0.3)
    result = read(site, "http://example.org/")
    assert result.is_error
    assert "example.org" in result.text


def test_a_silent_page_can_be_cancelled(site: Site) -> None:
    asked = threading.Event()

    def silent(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nbeginning")
        asked.set()
        site.ended.wait(60)

    site.pages["/"] = silent
    result = read(site, "http://example.org/", never=asked.is_set)
    assert result.is_error
    assert "stopped" in result.text


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"\r\n", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000,
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"x" * 10**6),
        b"HTTP/1.1 302 Found\r\n\r\n", b"HTTP/1.1 404 Not Found\r\n\r\n<p>text", b"HTTP/1.1 500 No\r\n\r\n",
        b"HTTP/1.1 429 No\r\n\r\n",
        b"HTTP/1.1 999 What\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Type: \xff\xfe\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n\0\0\0binary",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<script>x</script>",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\n\r\n%PDF-broken",
    ],
)  # fmt: skip
def test_broken_answers_are_errors(site: Site, answer: bytes) -> None:
    site.pages["/"] = lambda handler: handler.wfile.write(answer) and None
    result = read(site, "http://example.org/")
    assert result.is_error
    assert "error in Hearth" not in result.text
    assert len(result.text) < 400


def test_a_page_that_is_cut_off_says_so(site: Site) -> None:
    site.pages["/"] = (200, {"Content-Type": "text/plain", "Content-Length": "500"}, b"only this")
    assert "9 bytes" in body_of(read(site, "http://example.org/"))


# --- kinds of pages

LATIN_XML = "<?xml version='1.0' encoding='iso-8859-1'?><r>é</r>"


def test_html(site: Site) -> None:
    site.html("/a/", "<title>Fruit</title><nav>menu</nav><h1>Apples</h1><p>See <a href='../b'>pears</a>.")
    result = read(site, "http://example.org/a/")
    assert "Title: Fruit\nAddress: http://example.org/a/\n" in result.text
    assert body_of(result) == "# Apples\n\nSee pears (http://example.org/b)."


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("text/plain", b"a <b> & c\r\n\r\nd\x07", "a <b> & c\n\nd\ufffd"),
        ("application/json", json.dumps({"a": [1, 2]}).encode(), '{"a": [1, 2]}'),
        ("application/ld+json", b"[]", "[]"),
        ("text/markdown; charset=UTF-8", "# Ü".encode(), "# Ü"),
        ("application/rss+xml", LATIN_XML.encode("latin-1"), LATIN_XML),
        ("", b"<!DOCTYPE html><p>hi", "hi"), ("", b"plain <p>", "plain <p>"),
        ("text/html; charset=windows-1251", "<p>Привет".encode("cp1251"), "Привет"),
        ("text/html", "<meta charset='windows-1251'><p>Привет".encode("cp1251"), "Привет"),
        ("text/html", "<meta content='text/html; charset=shift_jis'><p>日本①".encode("cp932"), "日本①"),
        ("text/html; charset=gb2312", "<p>镕".encode("gbk"), "镕"),
        ("text/html; charset=iso-8859-1", "<p>“€”".encode("cp1252"), "“€”"),
        ("text/html; charset=utf-8", "<p>Ü".encode("utf-16"), "Ü"),
        ("text/html; charset=iso-8859-1", b"\xef\xbb\xbf<p>\xc3\x9c", "Ü"),
        ("text/html", "<meta charset=utf-16><p>Ü".encode(), "Ü"),
        ("text/html; charset=punycode", "<p>Ü".encode(), "Ü"), ("text/html; charset=utf-7", b"<p>+AGE-", "+AGE-"),
        ("text/html; charset=unicode_escape", b"<p>\\x41", "\\x41"), ("text/html; charset=zlib", b"<p>x", "x"),
        ("text/html; charset=nonsense", b"<p>\xff\xc3\x9c", "\ufffdÜ"), ("text/html; charset=", b"<p>x", "x"),
        ("application/xhtml+xml", b"<html><script/><p>x</p></html>", "x"),
        ("application/pdf", pdf_with(["Hello there"]), "Hello there"),
        ("text/plain", pdf_with(["Hello there"]), "Hello there"),
    ],
)  # fmt: skip
def test_kinds_and_character_sets(site: Site, kind: str, data: bytes, text: str) -> None:
    site.html("/", data, kind)
    assert body_of(read(site, "http://example.org/")) == text


def test_a_pdf_that_is_too_long_is_refused(site: Site) -> None:
    site.html("/", pdf_with(["Hello"]) + b" " * MAX_BYTES, "application/pdf")
    assert read(site, "http://example.org/").is_error


def test_a_long_page_is_read_in_parts(site: Site) -> None:
    whole = " ".join(f"word{number}" for number in range(500))
    site.html("/", whole, "text/plain")
    start, parts = 0, []
    while start < len(whole):
        text, _, note = body_of(read(site, "http://example.org/", limit=1000, start=start)).partition("\n\n[")
        assert len(text) <= 1000
        assert (f"start={start + 1000}" in note) == (start + 1000 < len(whole))
        parts.append(text)
        start += 1000
    assert "".join(parts) == whole
    for start in (len(whole), -1, 1.5, "x", True, 10**30):  # type: ignore[assignment]
        assert read(site, "http://example.org/", start=start).is_error
    assert body_of(read(site, "http://example.org/", start="3000")) == whole[3000:]


def test_the_tool_asks_for_consent() -> None:
    (tool,) = WebPages().tools()
    assert not tool.is_local
    assert tool.parameters["required"] == ["url"]


def test_a_host_that_is_not_found(site: Site) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    network = page_fetch.Network(resolve, site.network.connect, ssl.create_default_context)
    with pytest.raises(ToolError, match=r"example\.org"):
        page_fetch.fetch(web_address("http://example.org"), 20, network)
