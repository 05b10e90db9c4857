"""The address of a server as people type it."""

from __future__ import annotations

import pytest

from engine.errors import InvalidRequestError
from engine.remote_servers.address import checked_address, is_near, is_this_pc, origin_of


@pytest.mark.parametrize(("typed", "address"), [
    (" https://api.example.org ", "https://api.example.org/v1"),
    ("https://api.example.org/v1/", "https://api.example.org/v1"),
    ("api.example.org/openai/v1/chat/completions", "https://api.example.org/openai/v1"),
    ("HTTPS://API.example.org:443/v1/models", "https://api.example.org/v1"),
    ("localhost:8000", "http://localhost:8000/v1"), ("gpu-box:8000/v1", "http://gpu-box:8000/v1"),
    ("http://192.168.1.20:8000", "http://192.168.1.20:8000/v1"), ("http://[::1]:8434/v1", "http://[::1]:8434/v1"),
    ("vllm.lan:8000", "http://vllm.lan:8000/v1"),
])  # fmt: skip
def test_an_address_has_one_form(typed: str, address: str) -> None:
    assert checked_address(typed) == address
    assert checked_address(address) == address


@pytest.mark.parametrize("typed", [
    "", "  ", "ftp://example.org", "https://", "https://me:secret@example.org", "https://example.org/?key=1",
    "https://example.org/#x", "https://exa mple.org", "https://example.org:99999999", "file:///etc/passwd",
    "https://exämple.org", "x" * 600, "http://[::1",
])  # fmt: skip
def test_what_is_no_address_is_refused(typed: str) -> None:
    with pytest.raises(InvalidRequestError):
        checked_address(typed)


@pytest.mark.parametrize("typed", ["http://api.example.org", "http://8.8.8.8/v1"])
def test_plain_http_stays_in_ones_own_network(typed: str) -> None:
    with pytest.raises(InvalidRequestError, match="not encrypted"):
        checked_address(typed)


def test_what_is_near() -> None:
    assert is_near("10.0.0.7")
    assert not is_near("example.org")
    assert is_this_pc("127.0.0.1")
    assert is_this_pc("localhost")
    assert not is_this_pc("10.0.0.7")
    assert origin_of("https://a.org:8443/v1") == "https://a.org:8443"


@pytest.mark.parametrize("host", [
    "127.0.0.1", "127.0.0.2", "127.255.255.254", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "::ffff:7f00:1",
    "::FFFF:127.1.2.3", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "0.0.0.0", "::", "localhost",
    "LocalHost", "localhost.",
])  # fmt: skip
def test_every_spelling_of_a_loopback_address_is_this_pc(host: str) -> None:
    assert is_this_pc(host)


@pytest.mark.parametrize("host", [
    "localhost.evil.com", "127.0.0.1.nip.io", "evil.localhost", "localhost.localdomain", "localhost-1", "my-localhost",
    "127.0.0.1.", "127.0.0.1x", "127.0.0.256", "128.0.0.1", "126.255.255.255", "::2", "::ffff:128.0.0.1",
    "::ffff:10.0.0.1", "::127.0.0.1", "fe80::1", "10.0.0.7", "192.168.1.20", "8.8.8.8", "134744072", "010.0.0.1", "",
    "gpu-box", "1.0.0.127", "127", "localhos", "ip6-localhost.example.org",
])  # fmt: skip
def test_what_only_looks_local_is_not_this_pc(host: str) -> None:
    assert not is_this_pc(host)


@pytest.mark.parametrize("typed", ["http://134744072/v1", "http://0x08080808:8000/v1", "http://010.0.0.1.evil.com/v1"])
def test_a_number_is_no_way_around_https(typed: str) -> None:
    with pytest.raises(InvalidRequestError, match="not encrypted"):
        checked_address(typed)
