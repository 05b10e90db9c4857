"""The local API as programs find it: asked with OpenAI's own client, beside a window that talks to the same model."""

from __future__ import annotations

import http.client
import json
import random
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import openai
import pytest
from support.serving import ANSWER, KEY, PATIENCE_S, QUESTION, Serving, is_end

from engine.local_api import connection
from engine.local_api.access import MOST_BODY_BYTES
from engine.local_api.turns import MOST_WAITING, Turn
from engine.service import protocol
from engine.service.host import EngineHost
from engine.text.chat_template import ChatTemplate

LONG: dict[str, Any] = {"model": "Pip", "prompt": "Once upon a time", "temperature": 10, "seed": 1, "max_tokens": 60}


@pytest.fixture
def serving(loaded: Serving, monkeypatch: pytest.MonkeyPatch) -> Serving:
    from engine.local_api.answering import ApiAnswers

    loaded.events.clear()
    loaded.on_event = lambda event: None
    loaded.at_token = lambda turn: None
    pass_on = ApiAnswers._pass_on

    def with_a_look(answers: Any, turn: Turn, session: Any, events: Any, *others: Any) -> Any:
        def watched() -> Iterator[Any]:
            for event in events:
                yield event
                if event.token_id is not None:
                    loaded.at_token(turn)

        return pass_on(answers, turn, session, watched(), *others)

    monkeypatch.setattr(ApiAnswers, "_pass_on", with_a_look)
    return loaded


def test_the_official_client_gets_its_answers_whole_and_streamed(client: openai.OpenAI) -> None:
    (model,) = client.models.list()
    assert (model.id, client.models.retrieve("pip").id) == ("Pip", "Pip")
    whole = client.chat.completions.create(
        model="Pip", messages=QUESTION, temperature=0, logprobs=True, top_logprobs=2, max_completion_tokens=50
    )  # type: ignore[call-overload]
    (choice,) = whole.choices
    assert (choice.message.content, choice.message.role, choice.finish_reason) == (ANSWER, "assistant", "stop")
    assert whole.usage.completion_tokens == len(choice.logprobs.content) == 9
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 9
    assert "".join(one.token for one in choice.logprobs.content) == ANSWER
    for one in choice.logprobs.content:
        likeliest = one.top_logprobs[0]
        assert (likeliest.token, likeliest.logprob) == (one.token, one.logprob)
        assert bytes(one.bytes).decode() == one.token
    chunks = list(client.chat.completions.create(
        model="starter-chat", messages=QUESTION, temperature=0, stream=True, stream_options={"include_usage": True},
        logprobs=True,
    ))  # type: ignore[call-overload]  # fmt: skip
    said = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(one.delta.content or "" for one in said) == ANSWER
    assert [one.finish_reason for one in said] == [None] * (len(said) - 1) + ["stop"]
    assert "".join(one.token for part in said if part.logprobs for one in part.logprobs.content) == ANSWER
    assert chunks[-1].usage.completion_tokens == 9
    raw = client.chat.completions.with_raw_response.create(
        model="Pip", messages=QUESTION, temperature=0, extra_body={"mood": "good"}
    )  # type: ignore[call-overload]
    assert raw.headers["Hearth-Ignored-Fields"] == "mood"
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == whole.usage.prompt_tokens - 1


FOX = {
    "type": "object", "additionalProperties": False, "required": ["name", "legs", "wild"],
    "properties": {"name": {"type": "string", "maxLength": 12}, "legs": {"type": "integer", "maximum": 9},
                   "wild": {"type": "boolean"}},
}  # fmt: skip


def test_an_answer_follows_its_schema_whole_and_streamed(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": "Pip", "messages": QUESTION, "temperature": 0, "max_tokens": 100,
        "response_format": {"type": "json_schema", "json_schema": {"name": "fox", "schema": FOX, "strict": True}},
    }  # fmt: skip
    whole = client.chat.completions.create(**asked).choices[0]
    found = json.loads(whole.message.content)
    assert list(found) == ["name", "legs", "wild"]
    assert whole.finish_reason == "stop"
    chunks = client.chat.completions.create(**asked, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.message.content
    with pytest.raises(openai.BadRequestError, match="schema"):
        client.chat.completions.create(**{
            **asked, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}},
        })  # fmt: skip


@pytest.mark.parametrize(
    "extra",
    [
        {"grammar": 'root ::= "fox" [!?]{2}'}, {"structured_outputs": {"regex": "fox[!?]{2}"}},
        {"guided_choice": ["fox!?", "fox??"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_chat_and_a_completion_match_a_grammar(client: openai.OpenAI, extra: Any) -> None:
    chat = client.chat.completions.create(model="Pip", messages=QUESTION, extra_body=extra).choices[0]  # type: ignore[arg-type]
    completion = client.completions.create(model="Pip", prompt="Once", extra_body=extra).choices[0]
    for text, reason in (
        (chat.message.content or "", chat.finish_reason), (completion.text, completion.finish_reason)
    ):  # fmt: skip
        assert re.fullmatch(r"fox[!?]{2}", text), text
        assert reason == "stop"


@pytest.mark.parametrize("schema", [None, FOX])
def test_a_thought_comes_apart_from_the_answer(
    client: openai.OpenAI, serving: Serving, monkeypatch: pytest.MonkeyPatch, schema: Any
) -> None:
    assert serving.host.session is not None
    tokenizer = serving.host.session.model.tokenizer
    source = "{% for m in messages %}{{ m.content }} {% endfor %}{{ '<think>\\n' }}"
    monkeypatch.setattr(tokenizer, "template", ChatTemplate(source))
    made = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
    asked: dict[str, Any] = {
        "model": "Pip", "messages": QUESTION, "temperature": 0, "max_tokens": 80,
        "extra_body": {"thinking_budget": 6}, **(made if schema else {}),
    }  # fmt: skip
    message = client.chat.completions.create(**asked).choices[0].message
    assert message.model_extra["reasoning_content"]
    assert message.content
    assert "think>" not in message.model_extra["reasoning_content"] + message.content
    noted = client.chat.completions.create(**asked, logprobs=True).choices[0]
    told = "".join(one.token for one in noted.logprobs.content)
    assert told.partition("</think>")[0] == message.model_extra["reasoning_content"].removeprefix("\n")
    assert told.partition("</think>")[2].lstrip() == message.content
    deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**asked, stream=True)]
    thoughts = [(delta.model_extra or {}).get("reasoning_content", "") for delta in deltas]
    assert "".join(thoughts) == message.model_extra["reasoning_content"]
    assert "".join(delta.content or "" for delta in deltas) == message.content
    if schema:
        assert json.loads(message.content).keys() == {"name", "legs", "wild"}


def test_a_completion_keeps_to_its_seed_its_length_and_its_stop_texts(client: openai.OpenAI) -> None:
    asked = {**LONG, "max_tokens": 12, "logprobs": 1}
    first = client.completions.create(**asked)
    assert first.choices[0].text == client.completions.create(**asked).choices[0].text
    assert (first.choices[0].finish_reason, first.usage.completion_tokens) == ("length", 12)
    offsets, text = first.choices[0].logprobs.text_offset, first.choices[0].text
    assert offsets == sorted(offsets)
    assert "".join(first.choices[0].logprobs.tokens) == text
    plain = {"model": "Pip", "prompt": "What is", "max_tokens": 20, "temperature": 0}
    whole = client.completions.create(**plain).choices[0].text
    stop = whole[4:7]
    cut = client.completions.create(**plain, stop=[stop, "never"], logprobs=0).choices[0]
    assert (cut.text, cut.finish_reason) == (whole[: whole.index(stop)], "stop")
    assert len("".join(cut.logprobs.tokens)) <= len(cut.text) + len(cut.logprobs.tokens[-1])
    parts = client.completions.create(**plain, stream=True)
    assert "".join(part.choices[0].text for part in parts) == whole


def test_what_cannot_be_answered_is_refused_as_the_client_expects(client: openai.OpenAI, serving: Serving) -> None:
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="another-key").models.list()
    large = [{"role": "user", "content": "x" * (MOST_BODY_BYTES // 2)}]
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="another-key").chat.completions.create(model="Pip", messages=large)
    with pytest.raises(openai.APIStatusError, match="larger than 4 MiB"):
        client.chat.completions.create(model="Pip", messages=large * 4)
    with pytest.raises(openai.NotFoundError, match="'Pip' is loaded"):
        client.chat.completions.create(model="gpt-9", messages=QUESTION)
    with pytest.raises(openai.BadRequestError, match="only functions"):
        client.chat.completions.create(model="Pip", messages=QUESTION, tools=[{"type": "web_search"}])
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(
                model="Pip", messages=[{"role": "user", "content": "word " * 1200}], stream=stream
            )
        assert caught.value.code == "context_length_exceeded"
    for prompt in ("x" * 200_000, [10**9], [5] * 2000):
        with pytest.raises(openai.BadRequestError):
            client.completions.create(model="Pip", prompt=prompt)
    with pytest.raises(openai.NotFoundError, match="/v1/chat/completions"):
        client.moderations.create(model="Pip", input="x")
    told = serving.news(lambda state: state.refused >= 11 and "moderations" in state.last_error)
    assert "/v1/moderations" in told.last_error


def test_requests_by_hand_get_words_in_the_same_shape(client: openai.OpenAI) -> None:
    port = int(client.base_url.port)
    bearer = {"Authorization": f"Bearer {KEY}"}

    def ask(method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any, Any]:
        connected = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        connected.request(method, path, body, {**bearer, **headers})
        reply = connected.getresponse()
        read = reply.status, dict(reply.getheaders()), json.loads(reply.read())
        connected.close()
        return read

    for status, code, asked in (
        (403, "host_not_allowed", ask("GET", "/v1/models", Host="rebound.example")),
        (401, "invalid_api_key", ask("GET", "/nowhere", Authorization="Bearer guess-guess")),
        (404, "not_found", ask("GET", "/v1/models/../../etc")),
        (404, "not_found", ask("GET", "/docs")),
        (405, "method_not_allowed", ask("GET", "/v1/completions")),
        (405, "method_not_allowed", ask("OPTIONS", "/v1/completions", Origin="http://evil.example")),
        (413, "body_too_large", ask("POST", "/v1/completions", b"", **{"Content-Length": str(1 << 40)})),
        (400, "invalid_json", ask("POST", "/v1/completions", b"[" * 100_000)),
    ):
        assert asked[0] == status
        assert asked[2]["error"]["code"] in (code, "model_not_found")
        assert not {name.lower() for name in asked[1]} & {"access-control-allow-origin", "server"}


def test_who_is_silent_or_senseless_is_cut_off(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.05)
    for said in (b"", b"GET /v1/models HTT", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 what is this\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", int(client.base_url.port)), PATIENCE_S) as connected:
            connected.sendall(said)
            with suppress(ConnectionResetError):
                while connected.recv(4096):
                    pass


def test_connections_without_the_key_lock_nobody_out(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 4)
    address = "127.0.0.1", int(client.base_url.port)
    silent = [socket.create_connection(address, PATIENCE_S) for _ in range(12)]
    try:
        assert client.with_options(max_retries=0).models.list().data
    finally:
        for one in silent:
            one.close()


def test_a_body_without_the_key_is_not_read_on_and_on(client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_UNREAD_BYTES", 1 << 20)
    port = int(client.base_url.port)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {1 << 40}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connected:
        connected.sendall(head.encode())
        assert connected.recv(12) == b"HTTP/1.1 401"
        with pytest.raises(ConnectionError):
            connected.sendall(bytes(256 << 20))


@pytest.mark.slow
def test_two_thousand_damaged_requests_leave_it_answering(client: openai.OpenAI) -> None:
    chance = random.Random(0)
    port = int(client.base_url.port)
    body = json.dumps({**LONG, "max_tokens": 1, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {KEY}\r\n"
    whole = f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    seen = set()
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(damaged))
            if chance.random() < 0.5:
                damaged[at] = chance.randrange(256)
            else:
                del damaged[at : at + chance.randrange(1, 40)]
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connected, suppress(ConnectionError):
            connected.sendall(damaged)
            connected.shutdown(socket.SHUT_WR)
            reply = b"".join(iter(lambda: connected.recv(65536), b""))
            seen.add(reply[9:12])
    assert {b"200", b"400", b"401"} <= seen <= {b"", *(b"%d" % status for status in range(200, 505))}
    assert b"500" not in seen
    assert client.completions.create(**{**LONG, "max_tokens": 1}).usage.completion_tokens == 1


def test_an_answer_nobody_waits_for_any_more_is_stopped(client: openai.OpenAI, serving: Serving) -> None:
    stopped_at: list[int] = []
    is_there = threading.Event()  # the fifth token

    def wait(turn: Turn) -> None:
        if turn.tokens == 5:
            is_there.set()
            assert turn._gone.wait(PATIENCE_S)
        stopped_at.append(turn.tokens)

    serving.at_token = wait
    with client.completions.create(**LONG, stream=True) as stream:
        chunks = iter(stream)
        next(chunks)
        told = serving.news(lambda state: state.active == 1).talking[0]
        assert (told["what"], told["state"], told["client"].split("/")[0]) == ("completion", "answering", "OpenAI")
        assert is_there.wait(PATIENCE_S)
    serving.news(lambda state: state.active == 0 and stopped_at[-1:] == [5])
    assert stopped_at == [1, 2, 3, 4, 5]
    # The same of an answer that is not streamed.
    stopped_at.clear()
    is_there.clear()
    with socket.create_connection(("127.0.0.1", int(client.base_url.port)), PATIENCE_S) as connected:
        body = json.dumps(LONG).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{client.base_url.port}\r\nAuthorization: Bearer {KEY}"
        connected.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        assert is_there.wait(PATIENCE_S)
    serving.news(lambda state: state.active == 0 and stopped_at[-1:] == [5])
    assert stopped_at == [1, 2, 3, 4, 5]


def test_the_window_goes_first_and_finds_its_conversation_again(client: openai.OpenAI, serving: Serving) -> None:
    undisturbed = client.completions.create(**LONG).choices[0].text
    before = serving.end_of(protocol.Generate("before", QUESTION, {"temperature": 0})).result
    talk = [*QUESTION, {"role": "assistant", "content": before["text"]}, {"role": "user", "content": "And of France?"}]
    tokens_then: list[int] = []

    def interrupt(turn: Turn) -> None:
        if turn.tokens == 5:
            serving.host.submit(protocol.Count("count", talk))
            serving.host.submit(protocol.Generate("between", talk, {"temperature": 0}))
            serving.on_event = lambda event: tokens_then.append(turn.tokens) if is_end(event, "between") else None

    serving.at_token = interrupt
    assert client.completions.create(**LONG).choices[0].text == undisturbed
    between = serving.until(lambda event: is_end(event, "between")).result
    assert tokens_then == [6]  # the window's answer came while this one paused
    assert between["reused_tokens"] >= before["context_used"] - 1  # what the API asked left its cache alone
    assert isinstance(serving.until(lambda event: is_end(event, "count")), protocol.Finished)


def test_a_prompt_that_is_being_read_is_put_back_for_the_window(
    client: openai.OpenAI, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.local_api.answering import ApiAnswers

    undisturbed = client.completions.create(**LONG).choices[0].text
    asked, times = ApiAnswers._asked, []

    def interrupted(answers: Any, session: Any, turn: Turn) -> Any:
        times.append(turn.tokens)
        if len(times) == 1:
            serving.host.submit(protocol.Generate("first", QUESTION, {"temperature": 0}))
        return asked(answers, session, turn)

    monkeypatch.setattr(ApiAnswers, "_asked", interrupted)
    assert client.completions.create(**LONG).choices[0].text == undisturbed
    assert times == [0, 0]
    assert serving.until(lambda event: is_end(event, "first")).result["text"] == ANSWER


def test_a_stream_that_waits_long_says_that_it_lives(
    client: openai.OpenAI, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.local_api.routes.STILL_HERE_EVERY_S", 0.01)
    hold = threading.Event()
    serving.at_token = lambda turn: None if turn.tokens > 1 else (hold.wait(PATIENCE_S), None)[1]
    create = client.completions.with_streaming_response.create
    with create(**{**LONG, "max_tokens": 2}, stream=True) as response:
        lines = response.iter_lines()
        assert ": one moment" in iter(lines.__next__, "data: [DONE]")
        hold.set()
        assert "data: [DONE]" in lines


def test_the_line_is_bounded_and_those_in_it_are_answered_in_turn(client: openai.OpenAI, serving: Serving) -> None:
    hold, held = threading.Event(), threading.Event()

    def wait(turn: Turn) -> None:
        if turn.tokens == 1 and not held.is_set():
            held.set()
            assert hold.wait(PATIENCE_S)

    serving.at_token = wait
    texts: list[str] = []
    short = {**LONG, "max_tokens": 2}
    threads = [
        threading.Thread(target=lambda: texts.append(client.completions.create(**short).choices[0].text))
        for _ in range(MOST_WAITING + 1)
    ]
    threads[0].start()
    assert held.wait(PATIENCE_S)
    for thread in threads[1:]:
        thread.start()
    serving.news(lambda state: (state.active, state.waiting) == (1, MOST_WAITING))
    with pytest.raises(openai.RateLimitError) as caught:
        client.completions.create(**short)
    assert (caught.value.code, caught.value.response.headers["Retry-After"]) == ("queue_full", "2")
    hold.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(texts) == MOST_WAITING + 1
    assert len(set(texts)) == 1
    serving.news(lambda state: (state.active, state.waiting, state.answered >= len(texts)) == (0, 0, True))


def test_switching_off_ends_what_is_under_way_and_frees_the_port(client: openai.OpenAI, serving: Serving) -> None:
    hold = threading.Event()

    def wait(turn: Turn) -> None:
        if turn.tokens == 3:
            assert hold.wait(PATIENCE_S)

    serving.at_token = wait
    port = int(client.base_url.port)
    stream = iter(client.completions.create(**LONG, stream=True))
    next(stream)
    serving.host.submit(protocol.Serve("off", on=False))
    with pytest.raises(openai.APIError, match="switched off"):
        list(stream)
    hold.set()
    end = serving.until(lambda event: is_end(event, "off"))
    assert (end.result["on"], end.result["address"]) == (False, "")
    with pytest.raises(openai.APIConnectionError):
        client.models.list()
    with socket.create_server(("127.0.0.1", port)) as taken:
        failed = serving.end_of(protocol.Serve("taken", True, taken.getsockname()[1], KEY))
        assert (failed.error, failed.crash) == ("ServerError", False)
        assert f"{port} is in use" in failed.message


def test_a_new_key_counts_at_once_and_bad_wishes_change_nothing(client: openai.OpenAI, serving: Serving) -> None:
    port = int(client.base_url.port)
    assert serving.serve("same", port, "another-key").address == str(client.base_url).rstrip("/")
    with pytest.raises(openai.AuthenticationError):
        client.models.list()
    for name, port_asked, key in (("a", port, ""), ("b", 70_000, KEY), ("c", -1, KEY), ("d", 0, "with space")):
        failed = serving.end_of(protocol.Serve(name, True, port_asked, key))
        assert (failed.error, failed.crash) == ("InvalidRequestError", False)
    assert client.with_options(api_key="another-key").models.list().data[0].id == "Pip"
    moved = serving.serve("moved", _free_port())
    assert moved.address != str(client.base_url).rstrip("/")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def test_without_a_model_it_is_on_and_says_what_is_missing() -> None:
    serving = Serving()
    try:
        state = serving.serve("on")
        assert (state.on, state.model) == (True, "")
        with openai.OpenAI(base_url=state.address, api_key=KEY, max_retries=0, timeout=PATIENCE_S) as client:
            assert client.models.list().data == []
            with pytest.raises(openai.InternalServerError, match="Load one in Hearth"):
                client.chat.completions.create(model="Pip", messages=QUESTION)
    finally:
        serving.close()


def test_an_engine_within_the_window_serves_nobody() -> None:
    events: list[Any] = []
    host = EngineHost(events.append, serves=False)
    host.submit(protocol.Serve("1", True, 0, KEY))
    assert [(event.error, event.crash) for event in events] == [("ServerError", False)]
