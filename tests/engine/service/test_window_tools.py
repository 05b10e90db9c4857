"""Tools in the window's requests: calls end an answer, results go into the next, and no call is shown as text."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from support.serving import CALLS, NOW, QUESTION, WEATHER, Script, Serving

from engine.service import protocol
from engine.service.chat_requests import read_messages
from engine.service.protocol import CountResult, GenerationResult
from engine.session.summaries import without_calls
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from engine.tool_calls.call_format import HERMES

TOOLS: list[dict[str, Any]] = [
    {"name": "get_weather", "description": "The weather in a city.", "parameters": WEATHER},
    {"name": "now", "description": "", "parameters": NOW},
]
NAMED = [(call.name, dict(call.arguments)) for call in CALLS]
_ids = itertools.count()


def answered(serving: Serving, messages: list[Any] = QUESTION, **more: Any) -> tuple[GenerationResult, str]:
    """The result, and the text of the token events."""
    request = protocol.Generate(f"tools {next(_ids)}", messages, {"max_tokens": 200}, tools=TOOLS, **more)
    end = serving.end_of(request)
    assert isinstance(end, protocol.Finished), end
    told = [event.text for event in serving.events if isinstance(event, protocol.Token) and event.id == request.id]
    return GenerationResult.from_dict(end.result), "".join(told)


@pytest.mark.parametrize(
    "before",
    [
        "",
        "Let me look.\n",
        "<think>The weather? And the time.</think>\n\nI ask.\n",
        "[THINK]The weather?[/THINK]\n\nI ask.\n",
    ],
)
def test_an_answer_ends_with_calls_which_are_no_text(serving: Serving, script: Script, before: str) -> None:
    script.text = before + HERMES.write(CALLS)
    result, text = answered(serving)
    assert result.finish_reason == "tool_calls"
    assert [(call["name"], call["arguments"]) for call in result.calls] == NAMED
    assert result.text == text
    assert text.rstrip() == before.rstrip()


def test_an_answer_without_calls_and_one_that_is_cut_in_a_call_have_none(serving: Serving, script: Script) -> None:
    script.text = "It is <sunny>, I think."
    result, text = answered(serving)
    assert (result.finish_reason, result.calls, text) == ("stop", [], script.text)
    script.text = HERMES.write(CALLS)
    request = protocol.Generate("cut", QUESTION, {"max_tokens": 12}, tools=TOOLS)
    cut = GenerationResult.from_dict(serving.end_of(request).result)
    assert (cut.finish_reason, cut.calls, cut.text) == ("length", [], "")


def test_the_next_answer_reads_calls_and_results(serving: Serving, script: Script, tokenizer: Tokenizer) -> None:
    calls = [{"id": f"call{n}abcd", "name": name, "arguments": given} for n, (name, given) in enumerate(NAMED)]
    results = [{"role": "tool", "id": one["id"], "name": one["name"], "content": f"zq{n}"} for n, one in
               enumerate(calls)]  # fmt: skip
    messages = [*QUESTION, {"role": "assistant", "content": "I ask.", "calls": calls}, *results]
    script.text = "Sunny."
    result, text = answered(serving, messages)
    assert (result.finish_reason, text) == ("stop", "Sunny.")
    session = serving.host.session
    assert session is not None
    prompt = tokenizer.decode(session._tokens, skip_special=False)
    assert all(part in prompt for part in ("zq0", "zq1", '"get_weather"', "The weather in a city.", "I ask."))
    assert prompt.index("zq0") < prompt.index("zq1") < prompt.index("Sunny.")


def test_a_stop_text_ends_the_text_and_not_a_call(serving: Serving, script: Script) -> None:
    script.text = HERMES.write(CALLS)
    request = protocol.Generate("in a call", QUESTION, {"max_tokens": 200, "stop": ["Lima"]}, tools=TOOLS)
    result = GenerationResult.from_dict(serving.end_of(request).result)
    assert result.calls[0]["arguments"]["city"] == "Lima"
    script.text = "In Lima, it rains."
    request = protocol.Generate("in the text", QUESTION, {"max_tokens": 200, "stop": ["Lima"]}, tools=TOOLS)
    result = GenerationResult.from_dict(serving.end_of(request).result)
    assert (result.text, result.finish_reason, result.calls) == ("In ", "stop", [])


def test_a_continued_answer_goes_on_within_its_thought(serving: Serving, script: Script) -> None:
    begun = {"role": "assistant", "content": "<think>So the"}
    script.text = " weather.</think>\n\n" + HERMES.write(CALLS)
    result, text = answered(serving, [*QUESTION, begun], continues=True)
    assert text.rstrip() == " weather.</think>"
    assert len(result.calls) == 2


@pytest.mark.parametrize("begun", ["<think>done</think>\n\n", "[THINK]done[/THINK]\n\n", "It is 2 <", "a <tool"])
def test_what_was_shown_before_is_not_shown_again(serving: Serving, script: Script, begun: str) -> None:
    script.text = "bcd"
    result, text = answered(serving, [*QUESTION, {"role": "assistant", "content": begun}], continues=True)
    assert (result.text, text) == ("bcd", "bcd")


@pytest.mark.parametrize("begun", [[], [{"role": "system", "content": "Be kind."}]])
@pytest.mark.parametrize("has_own", [False, True])
def test_tools_are_counted(serving: Serving, monkeypatch: pytest.MonkeyPatch, begun: list[Any], has_own: bool) -> None:
    """has_own: the template writes a system message of its own where there is neither another one nor a tool."""
    if has_own:
        assert serving.host.session is not None
        source = (
            "{% if tools %}{{ tools | tojson }}{% elif messages[0].role != 'system' %}You are a model that helps in "
            "many ways.{% endif %}{% for m in messages %}{{ m.role }} {{ m.content }}\n{% endfor %}"
        )
        monkeypatch.setattr(serving.host.session.model.tokenizer, "template", ChatTemplate(source))

    def count(tools: list[Any]) -> CountResult:
        end = serving.end_of(protocol.Count(f"count {next(_ids)}", [*begun, *QUESTION], tools=tools))
        return CountResult.from_dict(end.result)

    without, with_tools = count([]), count(TOOLS)
    assert without.tool_tokens == 0
    assert with_tools.tool_tokens == with_tools.tokens - without.tokens > 50


@pytest.mark.parametrize("messages", [
    [{"role": "tool", "content": "a result of nothing"}],
    [{"role": "assistant", "content": "", "calls": [{"id": "a", "name": "now"}]}],
    [{"role": "assistant", "content": "", "calls": [{"id": 5, "name": "now", "arguments": {}}]}],
    [{"role": "user", "content": None}],
])  # fmt: skip
def test_malformed_messages_are_refused(serving: Serving, messages: list[Any]) -> None:
    end = serving.end_of(protocol.Generate(f"bad {next(_ids)}", [*messages, *QUESTION]))
    assert isinstance(end, protocol.Failed)
    assert end.error == "InvalidRequestError"


@pytest.mark.parametrize("tool", [{"name": "now"}, "now", {"name": "now", "description": "", "parameters": 5}])
def test_malformed_tools_are_refused(serving: Serving, tool: Any) -> None:
    end = serving.end_of(protocol.Generate(f"bad {next(_ids)}", QUESTION, tools=[tool]))
    assert isinstance(end, protocol.Failed)
    assert end.error == "InvalidRequestError"


def test_a_summary_reads_calls_and_results_as_texts_of_turns_that_alternate() -> None:
    read = read_messages([
        *QUESTION,
        {"role": "assistant", "content": "I ask.", "calls": [{"id": "a", "name": "now", "arguments": {"zone": "utc"}}]},
        {"role": "tool", "content": "noon", "id": "a", "name": "now"},
        {"role": "assistant", "content": "It is noon."},
        {"role": "user", "content": "Thanks."},
    ])  # fmt: skip
    told = without_calls(read)
    assert [one["role"] for one in told] == ["user", "assistant", "user"]
    assert all(part in told[1]["content"] for part in ("I ask.", "now", "utc", "noon", "It is noon."))
