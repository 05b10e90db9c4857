"""A server elsewhere, asked over a real connection: models, answers, a stop, and all that goes wrong."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.server import DONE, FakeServer, Piece, event

from engine.errors import (
    Cancelled,
    ContextOverflowError,
    EngineError,
    RemoteKeyError,
    RemoteServerError,
    RemoteUnreachableError,
)
from engine.remote_servers import client, connection
from engine.remote_servers.client import RemoteServer

CHAT = [{"role": "user", "content": "Hello?"}]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as found:
        yield found


def asked(server: FakeServer, **more: Any) -> dict[str, Any]:
    return RemoteServer(server.address, "Rack", server.key).answer("big", CHAT, {}, **more)


def test_models_are_listed(server: FakeServer) -> None:
    server.key = "sk-1"
    assert RemoteServer(server.address, "Rack", "sk-1").models() == ["big", "small"]
    assert server.asked[0].headers["authorization"] == "Bearer sk-1"


def test_an_answer_is_streamed_with_its_figures(server: FakeServer) -> None:
    told: list[tuple[str, int]] = []
    result = asked(server, say=lambda text, pieces: told.append((text, pieces)))
    assert "".join(text for text, _ in told) == result["text"] == "Hello there."
    assert told[-1][1] == 2
    assert (result["finish_reason"], result["tokens"], result["prompt_tokens"]) == ("stop", 12, 7)
    assert 0 < result["ttft_s"] <= result["total_s"]


def test_only_what_such_servers_take_is_sent(server: FakeServer) -> None:
    sampling = {"temperature": 0.0, "top_k": 40, "min_p": 0.1, "repeat_penalty": 1.1, "top_p": None, "seed": 3,
                "max_tokens": 9, "stop": ("a", "b", "c", "d", "e")}  # fmt: skip
    RemoteServer(server.address, "Rack").answer("big", [{**CHAT[0], "secret": "x"}], sampling)
    (sent,) = server.chats
    assert sent.body == {
        "model": "big", "messages": CHAT, "stream": True, "stream_options": {"include_usage": True},
        "temperature": 0.0, "seed": 3, "max_tokens": 9, "stop": ["a", "b", "c", "d"],
    }  # fmt: skip
    assert "authorization" not in sent.headers
    assert sent.headers["accept-encoding"] == "identity"


def test_a_stop_ends_the_connection_at_once(server: FakeServer) -> None:
    server.hold, stop = threading.Event(), threading.Event()
    result = asked(server, say=lambda text, pieces: stop.set(), cancelled=stop.is_set)
    assert (result["text"], result["finish_reason"]) == ("Hello", "cancelled")
    assert server.gone.wait(30), "the server sees that nobody listens"


def test_a_stop_before_anything_came(server: FakeServer) -> None:
    server.script, server.hold = [Piece(raw=b": wait\n\n"), Piece("never")], threading.Event()
    result = asked(server, cancelled=lambda: bool(server.chats))
    assert (result["text"], result["finish_reason"]) == ("", "cancelled")
    assert server.gone.wait(30)


def test_an_answer_in_one_piece_is_taken(server: FakeServer) -> None:
    server.whole = b'{"choices": [{"message": {"content": "Whole."}, "finish_reason": "stop"}], "usage": {}}'
    assert asked(server)["text"] == "Whole."


def test_figures_that_nobody_counts_are_unknown(server: FakeServer) -> None:
    server.usage = None
    result = asked(server)
    assert (result["tokens"], result["prompt_tokens"], result["decode_tok_s"]) == (None, None, None)


@pytest.mark.parametrize(("status", "failure", "kind", "words"), [
    (401, {"error": {"message": "bad key"}}, RemoteKeyError, "key"),
    (403, None, RemoteKeyError, "key"),
    (404, {"error": "no such model"}, RemoteServerError, "big"),
    (400, {"error": {"message": "The maximum context length is 4096 tokens."}}, ContextOverflowError, "longer"),
    (400, {"detail": "what?"}, RemoteServerError, "what?"),
    (429, None, RemoteServerError, "wait"), (503, b"<html>", RemoteServerError, "failed"),
])  # fmt: skip
def test_refusals_are_told_in_words(
    server: FakeServer, status: int, failure: Any, kind: type[EngineError], words: str
) -> None:
    server.status, server.failure = status, failure
    with pytest.raises(kind, match=words) as caught:
        asked(server)
    assert caught.value.hint


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(server: FakeServer, status: int) -> None:
    with FakeServer() as other:
        server.status, server.headers = status, {"Location": f"{other.address}/chat/completions"}
        with pytest.raises(RemoteServerError, match="another address"):
            asked(server)
        assert other.asked == []


def test_a_server_that_is_not_there() -> None:
    with FakeServer() as gone:
        address = gone.address
    with pytest.raises(RemoteUnreachableError, match="cannot be reached"):
        RemoteServer(address, "Rack").answer("big", CHAT, {})


def test_an_answer_that_is_cut_keeps_what_came(server: FakeServer) -> None:
    server.cut, told = True, []
    with pytest.raises(RemoteUnreachableError, match="was lost"):
        asked(server, say=lambda text, pieces: told.append(text))
    assert "".join(told) == "Hello there."


@pytest.mark.parametrize("raw", [
    b"data: {\n\n", b"data: [1]\n\n", b'data: {"error": {"message": "out of memory"}}\n\n', b"data: \xff\xfe\n\n",
])  # fmt: skip
def test_a_strange_event_ends_the_answer(server: FakeServer, raw: bytes) -> None:
    server.script = [Piece("Hello"), Piece(raw=raw)]
    with pytest.raises(RemoteServerError, match="in another way"):
        asked(server)


def test_silence_and_floods_have_an_end(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.script = [Piece(raw=b": " + b"x" * 5000 + b"\n\n")] * 40
    monkeypatch.setattr(connection, "MAX_BYTES", 50_000)
    with pytest.raises(RemoteServerError, match="more than an answer"):
        asked(server)
    server.script, server.hold = [Piece("Hello"), Piece("never")], threading.Event()
    monkeypatch.setattr(connection, "STALL_S", 0.2)
    with pytest.raises(RemoteUnreachableError, match="went silent"):
        asked(server)


def test_what_is_packed_is_not_unpacked(server: FakeServer) -> None:
    server.headers = {"Content-Encoding": "gzip"}
    with pytest.raises(RemoteServerError, match="packed"):
        asked(server)


def test_a_list_that_is_too_long_is_left(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_LIST_BYTES", 100)
    server.models = ["x" * 50] * 50
    with pytest.raises(RemoteServerError, match="in another way"):
        RemoteServer(server.address, "Rack").models()


def test_certificates_are_checked(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ssl.SSLContext] = []
    real = ssl.SSLContext.wrap_socket

    def noted(self: ssl.SSLContext, *args: Any, **options: Any) -> ssl.SSLSocket:
        made.append(self)
        return real(self, *args, **options)

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", noted)
    with pytest.raises((RemoteServerError, RemoteUnreachableError)):
        RemoteServer(server.address.replace("http:", "https:"), "Rack", "sk-secret").models()
    assert made
    assert all(one.verify_mode is ssl.CERT_REQUIRED and one.check_hostname for one in made)
    assert server.asked == []


def test_a_key_is_in_no_words(server: FakeServer) -> None:
    server.key = "right"
    wrong = RemoteServer(server.address, "Rack", "sk-very-secret")
    assert "secret" not in repr(wrong)
    with pytest.raises(RemoteKeyError) as caught:
        wrong.models()
    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_loopback_goes_through_no_proxy(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeServer() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.address.removesuffix("/v1"))
        assert asked(server)["text"] == "Hello there."
        assert proxy.asked == []


def test_a_list_can_be_cancelled(server: FakeServer) -> None:
    with pytest.raises(Cancelled):
        RemoteServer(server.address, "Rack").models(lambda: True)


def test_done_needs_no_reason(server: FakeServer) -> None:
    server.script, server.cut = [Piece("Yes"), DONE, Piece(raw=event({"choices": []}))], True
    assert asked(server)["finish_reason"] == "stop"
