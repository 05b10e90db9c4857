"""What is made to hurt, sent to the local API: halves of characters in texts, and models with a hostile template."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from support.serving import KEY, PATIENCE_S, QUESTION, Serving

from engine.service import protocol
from engine.text import chat_template
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer

HALVES = rb"Hi \ud83d there \udc00\ud800"
TEMPLATES = {
    "a long text": "{{ 'a' * 10 ** 9 }}",
    "a text that doubles": "{% set n = namespace(x='ab') %}{% for i in range(64) %}{% set n.x = n.x + n.x %}"
    "{% endfor %}{{ n.x }}",
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a long search": "{% set t = 'a' * 4000000 %}{% for i in range(9999) %}"
    "{% set x = t.rfind('b' + 'a' * 2000000) %}{% endfor %}",
}


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    made = Serving()
    assert isinstance(made.end_of(protocol.Load("load", "starter-chat")), protocol.Finished)
    made.serve("on")
    yield made
    made.close()


def posted(serving: Serving, path: str, body: bytes) -> tuple[int, Any]:
    state = serving.news(lambda state: bool(state.address))
    port = int(state.address.split(":")[2].split("/")[0])
    connected = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connected.request("POST", f"/v1/{path}", body, {"Authorization": f"Bearer {KEY}"})
        reply = connected.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connected.close()


def asked() -> bytes:
    return json.dumps({"model": "Pip", "messages": QUESTION, "max_tokens": 2}).encode()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", b'{"model": "Pip", "messages": [{"role": "user", "content": "%s"}], "max_tokens": 2}'),
        (
            "chat/completions",
            b'{"model": "Pip", "messages": [{"role": "user", "content": [{"type": "text", "text": "%s"}]}],'
            b' "max_tokens": 2}',
        ),
        ("completions", b'{"model": "Pip", "prompt": "%s", "max_tokens": 2}'),
        ("completions", b'{"model": "Pip", "prompt": "Once upon", "stop": "%s", "max_tokens": 2}'),
    ],
)
def test_halves_of_characters_in_a_text_are_replaced(serving: Serving, path: str, body: bytes) -> None:
    status, reply = posted(serving, path, body % HALVES)
    assert status == 200, reply
    assert reply["choices"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "%s", "messages": []}',
        b'{"model": "Pip", "messages": [{"role": "%s", "content": "a"}]}',
        b'{"model": "Pip", "messages": [{"role": "user", "content": [{"type": "%s"}]}]}',
    ],
)
def test_halves_of_characters_in_a_name_are_refused(serving: Serving, body: bytes) -> None:
    status, reply = posted(serving, "chat/completions", body % HALVES)
    assert status in (400, 404)
    assert reply["error"]["message"]


@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES.keys())
def test_a_hostile_template_is_refused_and_the_next_request_answered(serving: Serving, source: str) -> None:
    plain = Tokenizer.encode_chat

    def hostile(tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]], thinking: None) -> list[int]:
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(tokenizer, "template", ChatTemplate(source))
            changed.setattr(chat_template, "TIME_LIMIT_S", 0.1)
            return plain(tokenizer, messages, thinking)

    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(Tokenizer, "encode_chat", hostile)
        status, reply = posted(serving, "chat/completions", asked())
    assert status == 400, reply
    assert reply["error"]["code"] == "chat_template_failed"
    assert posted(serving, "chat/completions", asked())[0] == 200
