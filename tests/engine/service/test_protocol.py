"""The vocabulary between window and engine: what is written is what is read, and garbage is refused in words."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ContextOverflowError, EngineError
from engine.service import protocol
from engine.service.protocol import ProtocolError, decode, encode

MESSAGES: list[protocol.Message] = [
    protocol.Hello(app_version="0.1.0", pid=7),
    protocol.Load("1", "starter-chat", {"threads": 2}),
    protocol.Load("1", "/home/caf\udce9"),  # a path that is no UTF-8
    protocol.Unload("2"),
    protocol.Generate("3", [{"role": "user", "content": "Zürich 🏔️\n\u2028"}], {"seed": 1}, mode="dense"),
    protocol.Generate("3", [{"role": "user", "content": "Hi"}], overflow="stop"),
    protocol.Generate("3", [], inspect=True, prompt=[1, 2, 3], n_begun=1),
    protocol.Count("8", [{"role": "user", "content": "Hi"}], {"max_tokens": 5}, "middle", ["a text"]),
    protocol.StorePrompts("keep-1", "/somewhere", ["a", "b"], 8_000_000_000),
    protocol.ChooseDraft("9", "off"),
    protocol.Cancel("4", target="3"),
    protocol.Job("5", "solve", {"tokens": 5}),
    protocol.Serve("6", port=8080, on=False, key="12345678"),
    protocol.Watch("8", on=False),
    protocol.Embed("9", ["one", "two"], "qwen3-embedding", 256, "query"),
    protocol.Shutdown("7"),
    protocol.Progress("1", "loading", 10, 20, eta_s=0.5),
    protocol.Progress("1", "loading", 10, 20),
    protocol.Token("3", "日本", 2),
    protocol.Inspected("3", [1, 5], [{"id": 7, "p": 0.5, "top": [[7, 0.5]], "us": 12}], {"7": "\n"}, 8),
    protocol.Stats("3", 2, 10, None, 5, 1024),
    protocol.Live("3", "sparse", 9, 39.1, cpu_s={"ffn": 0.01}, on_gpu=[0.5], fired=[[100, 0]]),
    protocol.Live(""),
    protocol.Finished("3", {"text": "x"}),
    protocol.Failed("3", "ContextOverflowError", "Too long.", "Shorten it."),
    protocol.News("model", {"notes": ["日本"]}),
    protocol.Heartbeat(ram_bytes=5),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.type)
def test_a_message_survives_the_wire_on_one_line(message: protocol.Message) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert line.isascii()
    assert decode(line) == message
    assert json.loads(line)["type"] == message.type


def test_every_message_type_is_covered() -> None:
    assert {type(message) for message in MESSAGES} == set(protocol._TYPES.values())


def test_a_failure_names_its_class_and_becomes_that_error_again() -> None:
    line = encode(protocol.Failed("3", "ContextOverflowError", "Too long.", "Shorten it."))
    assert json.loads(line)["class"] == "ContextOverflowError"
    failed = decode(line)
    assert isinstance(failed, protocol.Failed)
    error = failed.as_error()
    assert type(error) is ContextOverflowError
    assert (error.message, error.hint) == ("Too long.", "Shorten it.")
    assert type(dataclasses.replace(failed, error="FromTheFuture").as_error()) is EngineError


def test_fields_of_a_newer_version_are_passed_over() -> None:
    line = json.dumps({"type": "unload", "id": "1", "gently": True}).encode()
    assert decode(line) == protocol.Unload("1")


@pytest.mark.parametrize(
    "line",
    [
        b"", b"\n", b"hello", b"[]", b"1", b'{"id": "1"}', b'{"type": 5}', b'{"type": "dance", "id": "1"}',
        b'{"type": "load", "id": "1"}', b'{"type": "load", "id": 1, "model": "x"}',
        b'{"type": "generate", "id": "1", "messages": "hi"}',
        b'{"type": "token", "id": "1", "text": "x", "tokens": "2"}',
        b"\xff\xfe", b"[" * 100_000, b'{"type": ["load"]}', b'{"type": "load", "id": "1", "model": null}',
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(line)


KEYS = st.sampled_from(["type", "id", "model", "class", "messages", "tokens"]) | st.text(max_size=4)
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(sorted(protocol._TYPES))
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner))


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_nothing_but_a_protocol_error_comes_out_of_garbage(line: bytes) -> None:
    try:
        message = decode(line)
    except ProtocolError:
        return
    assert decode(encode(message)) == message
