"""Agents with tools, as Codex asks the Responses API and Claude Code the Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from samples.tiny_model import make_tiny_model
from support.call_templates import template_of
from support.serving import Script, Serving
from test_messages_api import Port, gathered
from test_responses_api import plain, streamed

from engine.service import protocol
from engine.text.chat_template import ChatTemplate
from engine.tool_calls.call_format import HERMES, Call

COUNTED = ("model", "system", "tools", "messages")
SHELL = {
    "type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}},
    "required": ["command"], "additionalProperties": False,
}  # fmt: skip
READ = {"type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"]}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A small model whose context holds all turns."""
    folder = make_tiny_model(tmp_path_factory.mktemp("agents") / "Pip", max_context=32768)
    serving = Serving()
    assert isinstance(serving.end_of(protocol.Load("load", str(folder))), protocol.Finished)
    assert serving.host.session is not None
    serving.host.session.model.tokenizer.template = ChatTemplate(template_of(HERMES))
    yield serving
    serving.close()


turns_of_each = pytest.mark.parametrize("turns", [6, pytest.param(100, marks=pytest.mark.slow)])


def done(turn: int) -> str:
    """What a tool gives back."""
    return f"{turn} \u2713 passed\n" + "x" * (turn % 7)


@turns_of_each
def test_an_agent_of_the_responses_api(client: openai.OpenAI, script: Script, turns: int) -> None:
    tools = [
        {"type": "function", "name": "shell", "strict": False, "parameters": SHELL},
        {"type": "function", "name": "update_plan", "strict": False, "parameters": {"type": "object"}},
    ]
    developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Mend the tests."}]}
    items: list[Any] = [developer, asked]
    used = list[int]()
    for turn in range(turns):
        last = turn == turns - 1
        call = Call("shell", {"command": ["bash", "-lc", f'grep -n "\u00e9" {turn}.py']})
        script.text = "All pass." if last else ("" if turn % 3 else "I look.\n") + HERMES.write([call])
        response = streamed(
            client, instructions="You are an agent.", input=items, tools=tools, tool_choice="auto",
            parallel_tool_calls=False, store=False, include=["reasoning.encrypted_content"],
            prompt_cache_key="a-session", reasoning={"effort": "medium", "summary": "auto"},
        )  # fmt: skip
        assert response.status == "completed"
        texts = [] if turn % 3 else [("message", "I look.\n")]
        assert plain(response) == ([("message", "All pass.")] if last else [*texts, (call.name, call.arguments)])
        items += [item.model_dump(exclude_none=True) for item in response.output]
        if not last:
            (made,) = (item for item in response.output if item.type == "function_call")
            output = json.dumps({"output": done(turn), "metadata": {"exit_code": 0, "duration_seconds": 0.1}})
            items.append({"type": "function_call_output", "call_id": made.call_id, "output": output})
        used.append(response.usage.input_tokens - response.usage.input_tokens_details.cached_tokens)
    assert max(used[1:]) < 500, "each turn reads what is new alone"


@turns_of_each
def test_an_agent_of_the_messages_api(loaded: Serving, script: Script, turns: int) -> None:
    port, cached = Port(loaded), {"cache_control": {"type": "ephemeral"}}
    tools = [
        {"name": "Bash", "description": "Runs a command.", "input_schema": SHELL},
        {"name": "Read", "description": "Reads a file.", "input_schema": READ, **cached},
    ]
    system = [{"type": "text", "text": "You are an agent."}, {"type": "text", "text": "Be brief.", **cached}]
    reminder = {"type": "text", "text": "<system-reminder>Today is Saturday.</system-reminder>"}
    messages: list[Any] = [{"role": "user", "content": [reminder, {"type": "text", "text": "Mend it.", **cached}]}]
    used = list[int]()
    for turn in range(turns):
        last = turn == turns - 1
        calls = [Call("Bash", {"command": ["ls", f"{turn} \u00e9"]}), Call("Read", {"file_path": f"/a/{turn}.py"})]
        calls = calls[: 1 + turn % 2]
        script.text = "All pass." if last else ("" if turn % 3 else "I look.\n") + HERMES.write(calls)
        values = {
            "model": "Pip", "max_tokens": 4000, "system": system, "tools": tools, "messages": messages,
            "metadata": {"user_id": "user_1_account__session_2"}, "temperature": 1,
        }  # fmt: skip
        if turn % 10 == 0:
            counted = port.ask("messages/count_tokens", {key: values[key] for key in values if key in COUNTED})
        message = gathered(port.events("messages?beta=true", values))
        usage = message["usage"]
        used.append(usage["input_tokens"])
        if turn % 10 == 0:
            assert counted["input_tokens"] == usage["input_tokens"] + usage["cache_read_input_tokens"]
        assert message["stop_reason"] == ("end_turn" if last else "tool_use")
        made = [block for block in message["content"] if block["type"] == "tool_use"]
        assert [(one["name"], one["input"]) for one in made] == (
            [] if last else [(call.name, call.arguments) for call in calls]
        )
        messages.append({"role": "assistant", "content": message["content"]})
        results = [
            {"type": "tool_result", "tool_use_id": one["id"], "is_error": turn % 5 == 0, **cached,
             "content": done(turn) if turn % 2 else [{"type": "text", "text": done(turn)}]}
            for one in made
        ]  # fmt: skip
        messages.append({"role": "user", "content": [*results, reminder]})
    assert max(used[1:]) < 500, "each turn reads what is new alone"
