"""OpenAI's Responses API, asked with its own client: items, events, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from support.serving import ANSWER, CALLS, NOW, WEATHER, Script

from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from engine.tool_calls.call_format import HERMES

QUESTION = "What is the capital of Peru?"
TOOLS: list[Any] = [
    {"type": "function", "name": "get_weather", "strict": True, "parameters": WEATHER},
    {"type": "function", "name": "now", "parameters": NOW},
]


def ask(client: openai.OpenAI, **changes: Any) -> Any:
    return client.responses.create(**{"model": "Pip", "input": QUESTION, "max_output_tokens": 300, **changes})


def streamed(client: openai.OpenAI, **changes: Any) -> Any:
    """Return the response at the end of a stream, after its events were found to agree with it."""
    items: list[dict[str, Any]] = []
    texts: dict[int, str] = {}
    for number, event in enumerate(ask(client, stream=True, **changes)):
        assert event.sequence_number == number
        if event.type == "response.output_item.added":
            assert event.output_index == len(items)
            items.append({"added": event.item, "text": ""})
        elif event.type.endswith(".delta"):
            assert items[event.output_index]["added"].id == event.item_id
            items[event.output_index]["text"] += event.delta
        elif event.type.endswith(("text.done", "arguments.done")):
            texts[event.output_index] = event.arguments if event.type.endswith("arguments.done") else event.text
        elif event.type == "response.output_item.done":
            items[event.output_index]["done"] = event.item
        elif event.type in ("response.completed", "response.incomplete"):
            assert [item["done"] for item in items] == event.response.output
            assert {i: item["text"] for i, item in enumerate(items)} == texts
            return event.response
    raise AssertionError("the stream has no end")


def plain(response: Any) -> list[Any]:
    found: list[Any] = []
    for item in response.output:
        if item.type == "function_call":
            found.append((item.name, json.loads(item.arguments)))
        else:
            found.append((item.type, "".join(part.text for part in item.content)))
    return found


def test_an_answer_comes_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = ask(client, temperature=0)
    assert (whole.output_text, whole.status, whole.usage.output_tokens) == (ANSWER, "completed", 9)
    found = streamed(client, temperature=0)
    assert (found.output_text, found.status) == (ANSWER, "completed")
    assert found.usage.total_tokens == whole.usage.total_tokens
    cut = streamed(client, temperature=0, max_output_tokens=3)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    parts = [{"type": "input_text", "text": QUESTION}]
    items = [{"role": "user", "content": parts}]
    assert ask(client, temperature=0, input=items, store=True, user="me").output_text == ANSWER


def test_calls_come_whole_and_streamed_and_results_go_back(client: openai.OpenAI, script: Script) -> None:
    script.text = "Let me look.\n" + HERMES.write(CALLS)
    wanted = [("message", "Let me look.\n"), *((call.name, call.arguments) for call in CALLS)]
    for response in (ask(client, tools=TOOLS), streamed(client, tools=TOOLS)):
        assert plain(response) == wanted
        assert response.status == "completed"
    script.text = "Sunny."
    items = [{"role": "user", "content": QUESTION}, *(item.model_dump(exclude_none=True) for item in response.output)]
    items += [
        {"type": "function_call_output", "call_id": item.call_id, "output": "fine"}
        for item in response.output
        if item.type == "function_call"
    ]
    assert ask(client, tools=TOOLS, input=items).output_text == "Sunny."
    (item,) = ask(
        client, tools=TOOLS, tool_choice={"type": "function", "name": "now"}, parallel_tool_calls=False
    ).output
    assert (item.type, item.name, item.status) == ("function_call", "now", "completed")
    script.text = HERMES.write(CALLS)
    some = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]}
    allowed = ask(client, tools=TOOLS, tool_choice=some, parallel_tool_calls=False).output
    assert [item.name for item in allowed] == ["get_weather"]
    cut = streamed(client, tools=TOOLS, max_output_tokens=25)
    assert (cut.status, cut.output[-1].status) == ("incomplete", "incomplete")


def test_instructions_and_developers_are_one_system_message(
    client: openai.OpenAI, tokenizer: Tokenizer, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = (
        "{% for m in messages %}{{ raise_exception('late') if m.role == 'system' and loop.index > 1 }}{{ m.content }}"
    )
    monkeypatch.setattr(tokenizer, "template", ChatTemplate(strict + "{% endfor %}"))
    script.text = "Yes."
    items = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": "Shall I?"}]
    response = ask(client, instructions="Be kind.", input=items)
    assert response.instructions == "Be kind."
    assert response.output_text == "Yes."
    prompt = tokenizer.encode("Be kind.\n\nBe short.Shall I?")
    assert response.usage.input_tokens == len(prompt)


def test_a_thought_is_an_item_of_its_own(
    client: openai.OpenAI, tokenizer: Tokenizer, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer, "template", ChatTemplate("{{ messages[-1].content }}<think>"))
    script.text = "Hm, Peru.</think>\n\nLima."
    for response in (ask(client), streamed(client)):
        assert plain(response) == [("reasoning", "Hm, Peru."), ("message", "Lima.")]
        assert 0 < response.usage.output_tokens_details.reasoning_tokens < response.usage.output_tokens
    items = [item.model_dump(exclude_none=True) for item in response.output]
    assert ask(client, input=[{"role": "user", "content": "a"}, *items, {"role": "user", "content": "b"}]).output_text


def test_an_answer_follows_a_schema(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    made = {"format": {"type": "json_schema", "name": "one", "schema": schema, "strict": True}}
    assert json.loads(ask(client, text=made).output_text)["a"] in (1, 2)
    assert isinstance(json.loads(streamed(client, text={"format": {"type": "json_object"}}, input="{}", temperature=0,
                                          max_output_tokens=900).output_text), dict)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"), ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"), ({"input": []}, "input"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"), ({"tool_choice": "required"}, "tool_choice"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content"),
        ({"input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call", "call_id": "x", "name": "y", "arguments": "{"}]}, "input[0].arguments"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"), ({"reasoning": {"effort": "some"}}, "reasoning_effort"),
        ({"max_output_tokens": 0}, "max_tokens"), ({"input": "word " * 3000}, None),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused(client: openai.OpenAI, changes: Any, param: str | None) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **changes)
    assert caught.value.param == param, caught.value


def test_unknown_fields_are_named(client: openai.OpenAI) -> None:
    raw = client.responses.with_raw_response.create(
        model="Pip", input=QUESTION, max_output_tokens=1, extra_body={"mood": "good", "reasoning": {"depth": 1}}
    )
    assert raw.headers["Hearth-Ignored-Fields"] == "mood, reasoning.depth"
