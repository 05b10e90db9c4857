"""Anthropic's Messages API, asked by hand: blocks, events, tokens and refusals."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest
from support.serving import ANSWER, CALLS, KEY, NOW, PATIENCE_S, QUESTION, WEATHER, Script, Serving

from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from engine.tool_calls.call_format import HERMES

TOOLS = [
    {"name": "get_weather", "cache_control": {"type": "ephemeral"}, "input_schema": WEATHER},
    {"name": "now", "input_schema": NOW},
]


class Port:
    """Posts requests to a running server."""

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.port = int(serving.serve("on").address.split(":")[2].split("/")[0])

    def post(self, path: str, values: Any, headers: dict[str, str] | None = None) -> tuple[int, Any, Any]:
        """Return status, headers and body."""
        connected = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connected.request("POST", f"/v1/{path}", json.dumps(values), headers or {"x-api-key": KEY})
            reply = connected.getresponse()
            text = reply.read().decode()
            return reply.status, dict(reply.getheaders()), text if text.startswith("event:") else json.loads(text)
        finally:
            connected.close()

    def ask(self, path: str, values: Any) -> Any:
        status, _, body = self.post(path, values)
        assert status == 200, body
        return body

    def events(self, path: str, values: Any) -> list[Any]:
        """Return the events of a stream, whose types are those of their data."""
        found = []
        for one in self.ask(path, {**values, "stream": True}).strip().split("\n\n"):
            kind, data = one.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert kind == f"event: {found[-1]['type']}"
        return found


@pytest.fixture
def port(loaded: Serving) -> Port:
    return Port(loaded)


def asked(**changes: Any) -> dict[str, Any]:
    return {"model": "Pip", "max_tokens": 300, "messages": QUESTION, **changes}


def gathered(events: list[Any]) -> dict[str, Any]:
    """Return the message that a client makes of a stream's events."""
    assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]
    message = events[0]["message"]
    opened = -1
    for one in events[1:-1]:
        if one["type"] == "content_block_start":
            assert (one["index"], opened) == (len(message["content"]), -1)
            opened = one["index"]
            message["content"].append({**one["content_block"], "json": ""})
        elif one["type"] == "content_block_delta":
            assert one["index"] == opened
            (field,) = one["delta"].keys() - {"type"}
            name = "json" if field == "partial_json" else field
            message["content"][opened][name] += one["delta"][field]
        elif one["type"] == "content_block_stop":
            assert one["index"] == opened
            opened = -1
            block = message["content"][-1]
            if arguments := block.pop("json"):
                block["input"] = json.loads(arguments)
        else:
            assert one["type"] == "message_delta"
            message |= {**one["delta"], "usage": one["usage"]}
    return message


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    blocks = [{key: value for key, value in block.items() if key != "id"} for block in message["content"]]
    return {key: message[key] for key in ("role", "model", "stop_reason", "stop_sequence")} | {"content": blocks}


def test_an_answer_comes_whole_and_streamed(port: Port) -> None:
    values = asked(temperature=0)
    whole = port.ask("messages", values)
    assert whole["content"] == [{"type": "text", "text": ANSWER}]
    assert (whole["type"], whole["stop_reason"], whole["usage"]["output_tokens"]) == ("message", "end_turn", 9)
    streamed = gathered(port.events("messages", values))
    assert without_ids(streamed) == without_ids(whole)
    assert streamed["usage"]["cache_read_input_tokens"] + streamed["usage"]["input_tokens"] == 12
    assert port.ask("messages", {**values, "max_tokens": 3})["stop_reason"] == "max_tokens"
    stopped = port.ask("messages", {**values, "stop_sequences": ["never", " capital"]})
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", " capital")
    assert stopped["content"] == [{"type": "text", "text": "Lima is the"}]
    begun = {**values, "messages": [*QUESTION, {"role": "assistant", "content": "Lima is the"}]}
    assert port.ask("messages", begun)["content"] == [{"type": "text", "text": " capital of Peru."}]


def test_calls_come_whole_and_streamed(port: Port, script: Script) -> None:
    script.text = "Let me look.\n" + HERMES.write(CALLS)
    blocks = [
        {"type": "text", "text": "Let me look.\n"},
        *({"type": "tool_use", "name": call.name, "input": call.arguments} for call in CALLS),
    ]
    for message in (port.ask("messages", asked(tools=TOOLS)), gathered(port.events("messages", asked(tools=TOOLS)))):
        found = without_ids(message)
        assert (found["content"], found["stop_reason"]) == (blocks, "tool_use")
    script.text = "\n" + HERMES.write(CALLS)
    (block,) = gathered(port.events("messages", asked(tools=TOOLS, tool_choice={
        "type": "tool", "name": "now", "disable_parallel_tool_use": True,
    })))["content"]  # fmt: skip
    assert (block["type"], block["name"]) == ("tool_use", "now")
    assert port.ask("messages", asked(tools=TOOLS, tool_choice={"type": "any"}))["content"][0]["type"] == "tool_use"
    cut = port.ask("messages", asked(tools=TOOLS, tool_choice={"type": "any"}, max_tokens=20))
    assert (cut["content"], cut["stop_reason"]) == ([], "max_tokens")


def test_a_thought_has_a_block_of_its_own(
    port: Port, tokenizer: Tokenizer, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "template", ChatTemplate("{{ messages[0].content }}<think>"))
    script.text = "Hm, Peru.</think>\n\nLima."
    values = asked(thinking={"type": "enabled", "budget_tokens": 1024})
    for message in (port.ask("messages", values), gathered(port.events("messages", values))):
        assert [(one["type"], one.get("thinking"), one.get("text")) for one in message["content"]] == [
            ("thinking", "Hm, Peru.", None), ("text", None, "Lima."),
        ]  # fmt: skip


def test_an_answer_follows_a_schema(port: Port) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    values = asked(output_config={"format": {"type": "json_schema", "schema": schema}, "effort": "low"})
    assert json.loads(port.ask("messages", values)["content"][0]["text"])["a"] in (1, 2)


def test_tokens_are_counted_as_the_answer_would(port: Port) -> None:
    messages = [
        *QUESTION,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "now", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "noon"}]},
    ]  # fmt: skip
    for changes in ({}, {"tools": TOOLS, "messages": messages, "system": "Be kind."}):
        values = asked(**changes, max_tokens=1)
        usage = port.ask("messages", values)["usage"]
        counted = port.ask("messages/count_tokens", {key: values[key] for key in values if key != "max_tokens"})
        assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


def test_the_key_may_come_in_either_header(port: Port) -> None:
    bearer, key = {"Authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}
    for headers in (bearer, key, {**bearer, "x-api-key": "another-key"}, {"Authorization": "Bearer other-key", **key}):
        assert port.post("messages", asked(max_tokens=1), headers)[0] == 200
    for headers in ({"x-api-key": "another-key"}, {"x-api-key": ""}, {"Accept": "*/*"}, {"Authorization": KEY}):
        status, _, body = port.post("messages", asked(), headers)
        assert (status, body["type"], body["error"]["type"]) == (401, "error", "authentication_error")


@pytest.mark.parametrize(
    ("changes", "status", "kind", "param"),
    [
        ({"model": "claude"}, 404, "not_found_error", "model"),
        ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens"),
        ({"messages": []}, 400, "invalid_request_error", "messages"),
        ({"messages": [{"role": "user", "content": "word " * 3000}]}, 400, "invalid_request_error", None),
    ],
)
def test_refusals_have_the_shape_of_this_api(port: Port, changes: Any, status: int, kind: str, param: Any) -> None:
    found, _, body = port.post("messages", asked(**changes))
    assert (found, body["type"], body["error"]["type"], body["error"]["param"]) == (status, "error", kind, param)
    assert body["error"]["message"]


def test_unknown_fields_are_named(port: Port) -> None:
    _, headers, _ = port.post("messages", asked(max_tokens=1, mood="good", metadata={"user_id": "me"}))
    assert headers["hearth-ignored-fields"] == "mood"
