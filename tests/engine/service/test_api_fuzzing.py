"""Random requests to every address of the local API: each is answered or refused, none fails or hangs."""

from __future__ import annotations

import copy
import http.client
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from support.serving import KEY, PATIENCE_S, Serving

from engine.service import protocol

SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}, "b": {"enum": [1, "x"]}},
          "required": ["b"], "additionalProperties": False}  # fmt: skip
FUNCTION = {"name": "look", "description": "Looks.", "parameters": SCHEMA}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"b": 1}'}}
COMMON: dict[str, Any] = {"model": "Pip", "temperature": 1, "top_p": 0.9, "top_k": 5, "seed": 1, "stream": False}
REQUESTS: dict[str, dict[str, Any]] = {
    "completions": {**COMMON, "prompt": "Once", "max_tokens": 2, "stop": ["a"], "logprobs": 2},
    "chat/completions": {
        **COMMON, "max_tokens": 3, "stream_options": None, "logprobs": True, "top_logprobs": 1,
        "reasoning_effort": "low", "tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "auto",
        "parallel_tool_calls": True, "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}},
        "messages": [
            {"role": "system", "content": "Be kind."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "Hm."},
            {"role": "tool", "tool_call_id": "c1", "content": "dark"}, {"role": "user", "content": "And?"},
        ],
    },
    "responses": {
        **COMMON, "max_output_tokens": 3, "instructions": "Be kind.", "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}, "store": False,
        "tools": [{"type": "function", **FUNCTION}], "tool_choice": {"type": "function", "name": "look"},
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"b": 1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "dark"},
        ],
    },
    "messages": {
        **COMMON, "max_tokens": 3, "system": [{"type": "text", "text": "Be kind."}], "stop_sequences": ["a"],
        "thinking": {"type": "enabled", "budget_tokens": 5}, "tool_choice": {"type": "any"},
        "tools": [{"name": "look", "input_schema": SCHEMA}], "output_config": {"effort": "low"},
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""},
                                              {"type": "tool_use", "id": "c1", "name": "look", "input": {"b": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "dark"}]},
        ],
    },
}  # fmt: skip
REQUESTS["messages/count_tokens"] = REQUESTS["messages"]
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 1.5, 10**30, "", "x", "none", "auto", "required", "user", "assistant", "tool",
    "\ud800", "ä\n\0", "<|end|>", "<tool_call>", [], {}, [[]], [None], [{}], {"a": {}}, {"type": "text"},
    {"type": "object"}, {"type": "string", "pattern": "("}, {"$ref": "#/$defs/a"}, {"enum": []}, {"anyOf": []},
    {"type": "array", "items": {"type": "integer"}}, "word " * 300, [{"type": "text", "text": "a"}],
]  # fmt: skip


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    serving = Serving()
    assert isinstance(serving.end_of(protocol.Load("load", "starter-chat")), protocol.Finished)
    yield int(serving.serve("on").address.split(":")[2].split("/")[0])
    serving.close()


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return all places in nested lists and dictionaries: what holds a value, and its key."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in [(value, key), *places(value[key])]]


def damaged(request: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    request = copy.deepcopy(request)
    for name in chance.sample(sorted(request.keys() - {"model"}), chance.randrange(len(request))):
        if chance.random() < 0.5:
            del request[name]
    for _ in range(chance.choice((0, 1, 1, 1, 2, 4))):
        found = places(request)
        holder, key = chance.choice(found)
        what = chance.randrange(5)
        if what == 0:
            del holder[key]
        elif what == 1 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif what == 2:
            other, name = chance.choice(found)
            holder[key] = copy.deepcopy(other.get(name) if isinstance(other, dict) else None)
        else:
            holder[key] = copy.deepcopy(chance.choice(ODD))
    if chance.random() < 0.3:
        request["stream"] = True
    for name in ("max_tokens", "max_output_tokens"):  # without it, an answer may be as long as the context
        if not isinstance(request.get(name), int) or request[name] > 9:
            request[name] = 2
    return request


def check(port: int, path: str, request: dict[str, Any]) -> int:
    """Return the status of the reply, which is whole and says no fault of the server."""
    connected = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connected.request("POST", f"/v1/{path}", json.dumps(request), {"Authorization": f"Bearer {KEY}"})
        reply = connected.getresponse()
        body = reply.read().decode()
    finally:
        connected.close()
    told = json.dumps(request)[:2000]
    assert reply.status < 500, (path, told, body)
    if not (reply.getheader("content-type") or "").startswith("text/event-stream"):
        assert ("error" in json.loads(body)) == (reply.status >= 400) or json.loads(body)["error"] is None, told
        return reply.status
    last = body.strip().split("\n\n")[-1]
    ends = ("data: [DONE]", "event: message_stop", "event: error", "event: response.", 'data: {"error"')
    assert last.startswith(ends), (path, told, last)
    assert "internal_error" not in last, (path, told)
    return reply.status


def damage_many(port: int, n_requests: int, seed: int) -> None:
    chance, seen = random.Random(seed), set[tuple[str, int]]()
    for i in range(n_requests):
        path = list(REQUESTS)[i % len(REQUESTS)]
        seen.add((path, check(port, path, damaged(REQUESTS[path], chance))))
    assert {(path, status) for path in REQUESTS for status in (200, 400)} <= seen


def test_random_requests_are_answered_or_refused(port: int) -> None:
    damage_many(port, 75, 0)


@pytest.mark.slow
def test_thousands_of_random_requests_are_answered_or_refused(port: int) -> None:
    damage_many(port, 5000, 1)
