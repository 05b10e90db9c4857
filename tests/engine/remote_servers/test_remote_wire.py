"""What a server sends, read with bounds, whatever it is."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.remote_servers import wire
from engine.remote_servers.wire import AnswerText, EventReader, StrangeAnswerError, clean, models_in, parsed, said_in


def said(text: Any = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text, **delta}, "finish_reason": None}]}


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_events_are_read_however_the_bytes_are_cut(step: int) -> None:
    stream = b': keep\r\n\r\ndata: {"a": 1}\r\n\r\nevent: x\ndata: one\ndata:two\n\ndata: \xc3\xa9\n\ndata: [DONE]'
    reader, found = EventReader(), []
    for at in range(0, len(stream), step):
        found += reader.feed(stream[at : at + step])
    assert [*found, *reader.end()] == ['{"a": 1}', "one\ntwo", "é", "[DONE]"]


def test_a_line_and_an_event_without_an_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_LINE_BYTES", 1000)
    with pytest.raises(StrangeAnswerError, match="line has no end"):
        list(EventReader().feed(b"data: " + b"x" * 2000))
    with pytest.raises(StrangeAnswerError, match="event has no end"):
        list(EventReader().feed(b"data: x\n" * 400))
    with pytest.raises(StrangeAnswerError, match="not text"):
        list(EventReader().feed(b"data: \xff\n\n"))


def test_an_answer_grows_and_ends() -> None:
    answer = AnswerText()
    assert [answer.take(said("Good ")), answer.take(said("day"))] == ["Good ", "day"]
    answer.take({"choices": [{"delta": {}, "finish_reason": "length"}], "usage": None})
    answer.take({"choices": [], "usage": {"completion_tokens": 3, "prompt_tokens": True}})
    assert (answer.finish_reason, answer.tokens, answer.prompt_tokens, answer.pieces) == ("length", 3, None, 2)


def test_thoughts_stand_between_marks() -> None:
    answer = AnswerText()
    events = [said(reasoning_content="Let me"), said(reasoning="see"), said("42"), said("!")]
    assert "".join(map(answer.take, events)) == "<think>Let mesee</think>42!"
    alone = AnswerText()
    alone.take(said(reasoning_content="Hm"))
    assert alone.take({"choices": [{"delta": {}, "finish_reason": "stop"}]}) == "</think>"


@pytest.mark.parametrize("event", [
    [], "x", 3, None, {"choices": [3]}, {"choices": [{"delta": 3}]}, {"error": {"message": "no room"}}, {"error": "x"},
])  # fmt: skip
def test_what_is_no_piece_of_an_answer_is_refused(event: Any) -> None:
    with pytest.raises(StrangeAnswerError):
        AnswerText().take(event)


def test_an_answer_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_TEXT_CHARACTERS", 100)
    answer = AnswerText()
    for _ in range(11):
        answer.take(said("x" * 10))
    assert answer.is_full
    assert answer.finish_reason == "length"


def test_no_event_breaks_the_reader() -> None:
    """Two thousand random ones: read, or refused as strange."""
    chance = random.Random(7)
    values: list[Any] = [None, 0, -1, 1e9, True, "", "x", [], {}, [[]], {"message": 3}, "\ud800", "\x00\x1b[31m"]
    names = ("choices", "delta", "message", "content", "error", "usage", "finish_reason", "completion_tokens", "id")

    def one(depth: int) -> Any:
        if depth == 0 or chance.random() < 0.3:
            return chance.choice(values)
        if chance.random() < 0.3:
            return [one(depth - 1) for _ in range(chance.randrange(3))]
        return {chance.choice(names): one(depth - 1) for _ in range(chance.randrange(4))}

    for _ in range(2000):
        event = {"choices": [{"delta": one(3), "finish_reason": one(1)}], "usage": one(2)}
        try:
            AnswerText().take(event if chance.random() < 0.7 else one(4)).encode()
        except StrangeAnswerError as error:
            str(error).encode()


def test_models_are_bounded_and_named() -> None:
    listed = {
        "data": [{"id": "a"}, {"id": "a"}, {"id": 3}, 7, {"id": "x" * 500}, {"id": "b\n"}, {"id": "b"}, {"id": "c"}]
    }
    assert models_in(listed, 7) == ["a", "b"]
    for strange in ([], {"data": {}}, "x", None):
        with pytest.raises(StrangeAnswerError):
            models_in(strange, 10)


def test_text_is_what_a_file_can_hold() -> None:
    assert clean("a\x00b\x1b[0m\n\tc\ud800\u202e") == "ab[0m\n\tc\ufffd\u202e"
    assert parsed('{"a": "\\ud83d\\ude00"}') == {"a": "😀"}
    with pytest.raises(StrangeAnswerError):
        parsed("[" * 100_000)
    assert said_in({"error": {"message": "No\x1b room\n" + "x" * 999}}) == ("No room " + "x" * 999)[:300]
    assert said_in({"detail": [1]}) == ""
