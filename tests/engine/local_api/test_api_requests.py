"""Requests of the local API as plain data: what is taken, and in which words everything else is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import SamplingConfig
from engine.local_api.access import IGNORED_FIELDS, reply_headers
from engine.local_api.api_request import MOST_MESSAGES, What, read_api_request
from engine.local_api.failures import ApiError
from engine.session.constraint import MOST_RULES, Constraint
from engine.tool_calls.call_format import Call

HELLO = [{"role": "user", "content": "Hello!"}]
CHAT: dict[str, Any] = {"model": "Pip", "messages": HELLO}
COMPLETION: dict[str, Any] = {"model": "Pip", "prompt": "Once"}


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
FUNCTION, ARGUMENTS = "messages[0].tool_calls[0].function", "messages[0].tool_calls[0].function.arguments"


def call(arguments: str) -> dict[str, Any]:
    return {**CALL, "function": {"name": "look", "arguments": arguments}}


def tool(**about: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {}, **about}}


def refused(what: What, body: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read_api_request(what, body if isinstance(body, bytes) else json.dumps(body).encode())
    error = caught.value
    assert error.status == 400
    assert error.message.endswith(".")
    assert error.values["error"]["type"] == "invalid_request_error"
    return error


def test_a_chat_is_read_with_all_that_differs_from_the_models_defaults() -> None:
    api_request = read_api_request("chat", json.dumps({
        **CHAT, "temperature": 0, "top_p": 0.5, "seed": 7, "stop": "\n", "max_completion_tokens": 9, "max_tokens": 4,
        "logprobs": True, "top_logprobs": 3, "stream": True, "stream_options": {"include_usage": True}, "n": 1,
        "top_k": 5, "tools": [], "tool_choice": "none", "presence_penalty": 0.0, "user": "me", "logit_bias": None,
        "response_format": {"type": "text"},
    }).encode())  # fmt: skip
    assert api_request.messages == HELLO
    assert api_request.sampling == {
        "temperature": 0, "top_p": 0.5, "seed": 7, "top_k": 5, "max_tokens": 9, "stop": ["\n"],
    }  # fmt: skip
    assert (api_request.alternatives, api_request.streams, api_request.tells_usage) == (3, True, True)
    SamplingConfig().changed(api_request.sampling)


def test_tools_calls_and_results_are_read() -> None:
    chosen = {"type": "function", "function": {"name": "look"}}
    api_request = read_api_request("chat", json.dumps({
        **CHAT, "tools": [tool(strict=True), tool(name="find", colour="red")], "tool_choice": chosen,
        "parallel_tool_calls": False,
        "messages": [
            *HELLO, {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "Hm."},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "seen"}]},
        ],
    }).encode())  # fmt: skip
    assert api_request.messages[1:] == [
        {"role": "assistant", "content": "", "calls": [Call("look", {"a": 1}, "c1")], "reasoning": "Hm."},
        {"role": "tool", "content": "seen", "id": "c1", "name": "look"},
    ]
    use = api_request.use
    assert [(one.name, one.description, one.parameters) for one in use.tools] == [
        ("look", "Looks.", {"type": "object"}), ("find", "Looks.", {"type": "object"}),
    ]  # fmt: skip
    assert (use.choice, [one.name for one in use.callable], use.is_parallel) == ("required", ["look"], False)
    assert api_request.ignored == ("tools[1].function.colour",)
    for choice in ("none", "auto", "required", None):
        values = {**CHAT, "tools": [tool()], "tool_choice": choice}
        assert read_api_request("chat", json.dumps(values).encode()).use.choice == choice or "auto"


@pytest.mark.parametrize(
    ("what", "values", "ignored"),
    [
        ("chat", {"colour": "red", "prompt": "x", "user": "me"}, ["colour", "prompt"]),
        ("chat", {"messages": [{"role": "user", "content": "x", "mood": 1, "name": "a"}]}, ["messages[0].mood"]),
        (
            "chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "mood": 1}]}]},
            ["messages[0].content[0].mood"],
        ),
        ("chat", {"stream": True, "stream_options": {"x": 1}}, ["stream_options.x"]),
        ("chat", {"response_format": {"type": "text", "x": 1}}, ["response_format.x"]),
        (
            "chat", {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "y": 2}}},
            ["response_format.json_schema.y"],
        ),
        ("chat", {"chat_template_kwargs": {"x": 1, "thinking": True}}, ["chat_template_kwargs.x"]),
        ("completion", {"messages": HELLO, "reasoning_effort": "low"}, ["messages", "reasoning_effort"]),
        ("chat", {"metadata": {}, "service_tier": "x", "safety_identifier": "x", "prompt_cache_key": "x"}, []),
    ],
)  # fmt: skip
def test_unknown_fields_are_ignored_and_named(what: What, values: Any, ignored: list[str]) -> None:
    body = json.dumps({**(CHAT if what == "chat" else COMPLETION), **values}).encode()
    assert list(read_api_request(what, body).ignored) == ignored


def test_any_name_of_a_field_fits_into_a_header() -> None:
    names = ["colour", "a\r\nSet-Cookie: x", "größe", "x" * 500, *(f"n{i}" for i in range(40))]
    value = reply_headers(names)[IGNORED_FIELDS]
    assert value.startswith("colour, a??Set-Cookie??x, gr??e, xxx")
    assert re.fullmatch(r"[ -~]{1,500}", value)
    assert value.endswith("and others")
    assert IGNORED_FIELDS not in reply_headers()


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"enum": [1]}}}, {"enum": [1]}),
    ],
)
def test_a_format_of_the_answer_is_a_schema(given: Any, schema: Any) -> None:
    constraint = read_api_request("chat", json.dumps({**CHAT, "response_format": given}).encode()).constraint
    assert constraint == (None if schema is None else Constraint("json_schema", schema))


@pytest.mark.parametrize("base", [("chat", CHAT), ("completion", COMPLETION)])
@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ({"grammar": 'root ::= "a"'}, Constraint("grammar", 'root ::= "a"')),
        ({"grammar": ""}, None),
        ({"json_schema": {"enum": [1]}}, Constraint("json_schema", {"enum": [1]})),
        ({"guided_regex": "a+"}, Constraint("regex", "a+")),
        ({"guided_grammar": 'start: "a"'}, Constraint("grammar", 'start: "a"')),
        ({"guided_json": '{"enum": [1]}'}, Constraint("json_schema", {"enum": [1]})),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Constraint("choice", ["a", "b"])),
        ({"structured_outputs": {"json_object": True}}, Constraint("json_schema", {"type": "object"})),
        ({"structured_outputs": {"regex": "a+", "json_object": False}}, Constraint("regex", "a+")),
    ],
)
def test_fields_of_other_servers_say_what_the_answer_must_be(base: Any, values: Any, constraint: Any) -> None:
    what, fields = base
    api_request = read_api_request(what, json.dumps({**fields, **values}).encode())
    assert (api_request.constraint, api_request.ignored) == (constraint, ())


@pytest.mark.parametrize(
    ("values", "read"),
    [
        ({"reasoning_effort": "none"}, {"thinking": "off"}),
        ({"reasoning_effort": "minimal"}, {"thinking": "low"}),
        ({"reasoning_effort": "xhigh", "thinking_budget": 0}, {"thinking": "high", "thought_tokens": 0}),
        ({"chat_template_kwargs": {"enable_thinking": False}}, {"thinking": "off"}),
        ({"chat_template_kwargs": {"thinking": True, "reasoning_effort": "low"}}, {"thinking": "low"}),
        ({"chat_template_kwargs": {}}, {}),
    ],
)
def test_how_much_to_think_can_be_said_in_several_ways(values: Any, read: Any) -> None:
    api_request = read_api_request("chat", json.dumps({**CHAT, **values}).encode())
    assert api_request.sampling == read
    SamplingConfig().changed(api_request.sampling)


def test_contents_may_come_in_parts_and_developers_speak_for_the_system() -> None:
    messages = [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}], "name": "ann"},
        {"role": "assistant", "content": "Hi", "tool_calls": None, "refusal": None},
    ]
    assert read_api_request("chat", json.dumps({**CHAT, "messages": messages}).encode()).messages == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi"},
    ]


@pytest.mark.parametrize(
    ("prompt", "read"),
    [("Once", "Once"), (["Once"], "Once"), ([1, 2], [1, 2]), ([[1, 2]], [1, 2]), ("", "")],
)
def test_a_completion_takes_one_prompt_as_text_or_tokens(prompt: object, read: object) -> None:
    api_request = read_api_request("completion", json.dumps({**COMPLETION, "prompt": prompt, "logprobs": 0}).encode())
    assert (api_request.prompt, api_request.alternatives, api_request.sampling) == (read, 0, {"max_tokens": 16})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b"[]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b'{"model": NaN}', "not a number of JSON"),
        (b'{"model": "\xff"}', "not UTF-8"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "not JSON"),
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(body: bytes, words: str) -> None:
    error = refused("chat", body)
    assert (error.code, words in error.message) == ("invalid_json", True), error.message


@pytest.mark.parametrize(
    ("values", "code", "param", "words"),
    [
        ({"model": None}, "missing_field", "model", "/v1/models"),
        ({"model": 3}, "invalid_type", "model", "a text"),
        ({"messages": None}, "missing_field", "messages", "missing"),
        ({"messages": []}, "missing_field", "messages", "empty"),
        ({"messages": "Hello"}, "invalid_type", "messages", "a list"),
        ({"messages": ["Hello"]}, "invalid_type", "messages[0]", "an object"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "invalid_value", "messages[0]", "robot"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "invalid_value", "messages[0]", "role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "invalid_value", "messages[0].tool_call_id", "no call"),
        (
            {"messages": [{"role": "user", "content": "x", "tool_calls": [CALL]}]},
            "invalid_value", "messages[0]", "assistant",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "missing_field", FUNCTION, "function"),
        ({"messages": [{"role": "assistant", "tool_calls": [call("[1]")]}]}, "invalid_value", ARGUMENTS, "JSON object"),
        ({"messages": [{"role": "assistant", "tool_calls": [call("{")]}]}, "invalid_value", ARGUMENTS, "JSON object"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [call('{"a":' * 90 + "1" + "}" * 90)]}]},
            "invalid_value", ARGUMENTS, "48 levels",
        ),
        ({"messages": [{"role": "user", "content": None}]}, "invalid_type", "messages[0].content", "a text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
            "unsupported_value", "messages[0].content", "only text",
        ),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "unsupported_value", "messages[0].content", "only text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "invalid_type", "messages[0].content", "text part",
        ),
        ({"messages": HELLO * (MOST_MESSAGES + 1)}, "invalid_value", "messages", "4096"),
        ({"n": 2}, "unsupported_value", "n", "one answer"),
        ({"n": True}, "unsupported_value", "n", "one answer"),
        ({"tools": [{"type": "function"}]}, "missing_field", "tools[0].function", "missing"),
        ({"tools": [{"type": "web_search"}]}, "unsupported_value", "tools[0].type", "only functions"),
        ({"tools": [tool(name="a b")]}, "invalid_value", "tools[0].function.name", "letters"),
        ({"tools": [tool(), tool()]}, "invalid_value", "tools", "same name"),
        ({"tools": [tool(name=f"t{i}") for i in range(129)]}, "invalid_value", "tools", "128"),
        ({"tools": [tool(parameters={"type": "array"})]}, "invalid_value", "tools[0].function.parameters", "an object"),
        (
            {"tools": [tool(parameters={"enum": ["x" * 70_000]})]},
            "invalid_value", "tools[0].function.parameters", "characters",
        ),
        (
            {"tools": [tool(name=f"t{i}", parameters={"enum": ["x" * 60_000]}) for i in range(5)]},
            "invalid_value", "tools", "all tools",
        ),
        ({"tool_choice": "required"}, "invalid_value", "tool_choice", "no tools"),
        ({"tools": [tool()], "tool_choice": "sometimes"}, "invalid_value", "tool_choice", "sometimes"),
        (
            {"tools": [tool()], "tool_choice": {"type": "function", "function": {"name": "b"}}},
            "invalid_value", "tool_choice", "one of the tools",
        ),
        ({"functions": [{}]}, "unsupported_value", "functions", "tools"),
        ({"response_format": {"type": "xml"}}, "invalid_value", "response_format", "json_schema"),
        ({"grammar": "root ::=\n\"a"}, "invalid_value", "grammar", "line 2"),
        ({"grammar": "root ::= a"}, "invalid_value", "grammar", "'a'"),
        ({"grammar": 'start: "a"\n' + 'a: "b"\n' * MOST_RULES}, "invalid_value", "grammar", "rules"),
        ({"guided_choice": ["a", 5]}, "invalid_type", "guided_choice", "texts"),
        ({"guided_regex": "a" * 70_000}, "invalid_value", "guided_regex", "characters"),
        ({"guided_json": "{"}, "invalid_json", None, "JSON"),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "invalid_value",
            "structured_outputs.regex", "one of them",
        ),
        ({"response_format": {"type": "json_schema"}}, "missing_field", "response_format", "json_schema.schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}},
            "invalid_type", "schema", "object",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": ["x" * 70_000]}}}},
            "invalid_value", "response_format", "characters",
        ),
        ({"presence_penalty": 0.5}, "unsupported_value", "presence_penalty", "presence_penalty"),
        ({"logit_bias": {"5": 1}}, "unsupported_value", "logit_bias", "logit_bias"),
        ({"temperature": "warm"}, "invalid_type", "temperature", "a number"),
        ({"temperature": True}, "invalid_type", "temperature", "a number"),
        ({"temperature": -1}, "invalid_value", "temperature", "between"),
        ({"temperature": 1e400}, "invalid_json", None, "JSON"),
        ({"top_p": 2}, "invalid_value", "top_p", "between"),
        ({"seed": 1.5}, "invalid_type", "seed", "a whole number"),
        ({"seed": -1}, "invalid_value", "seed", "between"),
        ({"max_tokens": 0}, "invalid_value", "max_tokens", "at least 1"),
        ({"stop": 5}, "invalid_type", "stop", "a text"),
        ({"stop": ["a"] * 5}, "invalid_value", "stop", "up to 4"),
        ({"stop": [""]}, "invalid_value", "stop", "1 to 1000"),
        ({"stream": "yes"}, "invalid_type", "stream", "true or false"),
        ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options", "only for streams"),
        ({"top_logprobs": 2}, "invalid_value", "top_logprobs", "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "invalid_value", "top_logprobs", "between 0 and 20"),
        ({"reasoning_effort": "much"}, "invalid_value", "reasoning_effort", "minimal"),
        ({"reasoning_effort": 3}, "invalid_type", "reasoning_effort", "a text"),
        ({"thinking_budget": -1}, "invalid_value", "thinking_budget", "between"),
        ({"chat_template_kwargs": {"enable_thinking": 1}}, "invalid_type", "enable_thinking", "true or false"),
    ],
)  # fmt: skip
def test_every_field_that_makes_no_sense_is_named(values: Any, code: str, param: str | None, words: str) -> None:
    error = refused("chat", {**CHAT, **values})
    assert (error.code, error.param) == (code, param), error.message
    assert words in error.message


@pytest.mark.parametrize(
    ("values", "code", "words"),
    [
        ({"prompt": None}, "missing_field", "missing"),
        ({"prompt": ["a", "b"]}, "unsupported_value", "one prompt"),
        ({"prompt": [[1], [2]]}, "unsupported_value", "one prompt"),
        ({"prompt": [1, "a"]}, "missing_field", "token ids"),
        ({"echo": True}, "unsupported_value", "echo"),
        ({"best_of": 3}, "unsupported_value", "one answer"),
        ({"suffix": "end"}, "unsupported_value", "suffix"),
        ({"logprobs": 6}, "invalid_value", "between 0 and 5"),
    ],
)
def test_completions_refuse_in_words_too(values: Any, code: str, words: str) -> None:
    error = refused("completion", {**COMPLETION, **values})
    assert (error.code, words in error.message) == (code, True), error.message


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_NAMES = ["model", "messages", "prompt", "stop", "n", "stream", "stream_options", "logprobs", "seed", "tools", "top_k"]


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(_NAMES), _JSON), st.sampled_from(["chat", "completion"]))
def test_whatever_comes_is_a_wish_or_refused_in_words(values: dict[str, Any], what: What) -> None:
    for body in (values, {**(CHAT if what == "chat" else COMPLETION), **values}):
        try:
            api_request = read_api_request(what, json.dumps(body).encode())
        except ApiError as error:
            json.dumps(error.values)
        else:
            SamplingConfig().changed(api_request.sampling)


@pytest.mark.parametrize("name", [rb"\ud800", rb"\udfff\ud800"])
def test_half_a_character_in_a_name_can_be_told(name: bytes) -> None:
    body = rb'{"model": "m", "messages": [{"role": "%s", "content": "x", "%s": 1}], "%s": 1}' % (b"user", name, name)
    reply_headers(read_api_request("chat", body).ignored)[IGNORED_FIELDS].encode("ascii")
    with pytest.raises(ApiError) as caught:
        read_api_request("chat", body.replace(b'"user"', b'"%s"' % name))
    json.dumps(caught.value.values, ensure_ascii=False).encode()
