"""Requests of Anthropic's Messages API as plain data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import SamplingConfig
from engine.local_api.failures import ApiError
from engine.local_api.messages_request import read_messages_request
from engine.tool_calls.call_format import Call

HELLO: list[Any] = [{"role": "user", "content": "Hello!"}]
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {"a": 1}}


def read(**values: Any) -> Any:
    return read_messages_request(json.dumps({"model": "Pip", "max_tokens": 9, "messages": HELLO, **values}).encode())


def test_all_fields_are_read() -> None:
    api_request = read(
        system=[{"type": "text", "text": "Be "}, {"type": "text", "text": "kind.", "cache_control": {}}],
        temperature=0.5, top_p=0.9, top_k=7, stop_sequences=["a", "b"], stream=True, metadata={"user_id": "x"},
        thinking={"type": "enabled", "budget_tokens": 2000},
        tools=[TOOL], tool_choice={"type": "any", "disable_parallel_tool_use": True},
        messages=[
            *HELLO,
            {"role": "assistant", "content": [
                {"type": "redacted_thinking", "data": "x"},
                {"type": "thinking", "thinking": "Hm.", "signature": "s"}, {"type": "text", "text": "Let me see."}, USE,
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "is_error": True,
                 "content": [{"type": "text", "text": "dark"}]},
                {"type": "text", "text": "And?"}, {"type": "text", "text": "Well?"},
            ]},
        ],
    )  # fmt: skip
    assert api_request.messages == [
        {"role": "system", "content": "Be kind."},
        *HELLO,
        {"role": "assistant", "content": "Let me see.", "calls": [Call("look", {"a": 1}, "t1")], "reasoning": "Hm."},
        {"role": "tool", "content": "Error: dark", "id": "t1", "name": "look"},
        {"role": "user", "content": "And?\nWell?"},
    ]
    assert api_request.sampling == {
        "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 7, "stop": ["a", "b"], "thinking": "on",
        "thought_tokens": 2000,
    }  # fmt: skip
    assert (api_request.use.choice, api_request.use.is_parallel, api_request.streams) == ("required", False, True)
    assert api_request.ignored == ()


@pytest.mark.parametrize(
    ("thinking", "effort", "read_as"),
    [
        (None, None, {"thinking": "off"}), ({"type": "disabled"}, "high", {"thinking": "off"}),
        ({"type": "adaptive"}, None, {}), ({"type": "adaptive"}, "max", {"thinking": "high"}),
        ({"type": "enabled", "budget_tokens": 5}, "low", {"thinking": "low", "thought_tokens": 5}),
    ],
)  # fmt: skip
def test_how_much_to_think(thinking: Any, effort: Any, read_as: Any) -> None:
    sampling = read(thinking=thinking, output_config={"effort": effort}).sampling
    assert {name: sampling[name] for name in sampling.keys() - {"max_tokens"}} == read_as


@pytest.mark.parametrize(
    ("values", "code", "param"),
    [
        ({"max_tokens": None}, "missing_field", "max_tokens"), ({"max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "invalid_value", "messages[0]"),
        ({"messages": [{"role": "user"}]}, "invalid_type", "messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "invalid_type", "messages[0].content[0]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "unsupported_value", "messages[0].content[0]",
        ),
        ({"messages": [{"role": "user", "content": [USE]}]}, "unsupported_value", "messages[0].content[0]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]}]},
            "invalid_value", "messages[0].content[0].tool_use_id",
        ),
        (
            {"messages": [{"role": "assistant", "content": [USE]}, {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "image"}]}]}]},
            "unsupported_value", "messages[1].content[0].content",
        ),
        ({"messages": [{"role": "assistant", "content": [{**USE, "name": None}]}]}, "missing_field",
         "messages[0].content[0].name"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "unsupported_value", "tools[0].type"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "b"}}, "invalid_value", "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "some"}}, "invalid_value", "tool_choice"),
        ({"tool_choice": {"type": "any"}}, "invalid_value", "tool_choice"),
        ({"tools": [TOOL], "messages": [{"role": "assistant", "content": "I"}]}, "unsupported_value", "messages"),
        ({"thinking": {"type": "much"}}, "invalid_value", "thinking"),
        ({"output_config": {"format": {"type": "xml"}}}, "invalid_value", "output_config.format"),
        ({"stop_sequences": [""]}, "invalid_value", "stop_sequences"),
        ({"system": 5}, "invalid_type", "system"),
    ],
)  # fmt: skip
def test_every_field_that_makes_no_sense_is_named(values: Any, code: str, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        read(**values)
    assert (caught.value.code, caught.value.param) == (code, param), caught.value.message


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["text", "tool_use", "user", "assistant", "enabled"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "text", "name", "input", "id"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)
_NAMES = ["messages", "system", "tools", "tool_choice", "thinking", "output_config", "stop_sequences", "max_tokens"]


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(_NAMES), _JSON))
def test_whatever_comes_is_a_request_or_refused_in_words(values: dict[str, Any]) -> None:
    try:
        api_request = read(**values)
    except ApiError as error:
        json.dumps(error.anthropic_values)
    else:
        SamplingConfig().changed(api_request.sampling)
