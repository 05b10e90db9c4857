"""How chat templates take tools: found by rendering a sample call, and plain texts for those that know none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from engine.text import chat_template
from engine.text.chat_template import ChatTemplate
from engine.text.chat_templates import BUILT_IN
from engine.tool_calls.call_format import FORMATS, HERMES, Call
from engine.tool_calls.call_style import call_style, short_id

FILES = sorted(Path(os.environ.get("HEARTH_LLAMA_CPP", "/nowhere"), "models", "templates").glob("*.jinja"))
TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Looks around.", "parameters": {"properties": {}}},
}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": "Where are we?"},
    {"role": "assistant", "content": "Let me see.", "calls": [Call("look", {"far": True}, "call_1")]},
    {"role": "tool", "content": "a wood", "id": "call_1", "name": "look"},
]


def wrapped(one: str) -> str:
    """Return a template that writes one call by these expressions."""
    return (
        "{{ tools | tojson }}{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}"
        f"{{% set f = c.function %}}{one}{{% endfor %}}\n{{% endfor %}}"
    )


@pytest.mark.parametrize(
    ("one", "name", "text_arguments"),
    [
        ('<tool_call>{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}</tool_call>', "hermes", False),
        ('<tool_call>{"name": "{{ f.name }}", "arguments": {{ f.arguments + "" }}}</tool_call>', "hermes", True),
        ("[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}", "mistral", False),
        (
            "<|channel|>commentary to=functions.{{ f.name }} <|constrain|>json<|message|>{{ f.arguments | tojson }}",
            "harmony", False,
        ),
        ('{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}', "llama-3", False),
        (
            "[TOOL_CALLS][{{ {'name': f.name, 'arguments': f.arguments, 'id': c.id} | tojson }}]",
            "mistral-list", False,
        ),
        (
            "<tool_call>{{ f.name }}{% for k, v in f.arguments.items() %}<arg_key>{{ k }}</arg_key>"
            "<arg_value>{{ v }}</arg_value>{% endfor %}</tool_call>",
            "glm", False,
        ),
        (
            "<|tool_call_start|>[{{ f.name }}({% for k, v in f.arguments.items() %}{{ ', ' if not loop.first }}{{ k }}="
            """{{ "'" + v + "'" if v is string else v }}{% endfor %})]<|tool_call_end|>""",
            "lfm2", False,
        ),
        ('<tool_calls>\n{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}\n</tool_calls>', "minimax-m1",
         False),
        (
            '<tool_calls>[{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}]</tool_calls>', "apriel",
            False,
        ),
        ('<|tools_prefix|>[{"{{ f.name }}": {{ f.arguments + "" }}}]<|tools_suffix|>', "apertus", True),
        (
            '<｜DSML｜function_calls>\n<｜DSML｜invoke name="{{ f.name }}">\n{% for k, v in f.arguments.items() %}'
            '<｜DSML｜parameter name="{{ k }}" string="{{ "true" if v is string else "false" }}">'
            "{{ v if v is string else v | tojson }}</｜DSML｜parameter>\n{% endfor %}</｜DSML｜invoke>\n"
            "</｜DSML｜function_calls>",
            "deepseek-3.2", False,
        ),
    ],
)  # fmt: skip
def test_the_format_of_a_template_is_found(one: str, name: str, text_arguments: bool) -> None:
    style = call_style(ChatTemplate(wrapped(one)))
    assert (style.format.name, style.renders, style.describes) == (name, True, True)
    assert style.text_arguments == text_arguments
    messages, tools = style.prepare(CONVERSATION, [TOOL])
    assert tools == [TOOL]
    (call,) = messages[1]["tool_calls"]
    assert call["function"]["arguments"] == ('{"far": true}' if text_arguments else {"far": True})
    assert call["id"] == messages[2]["tool_call_id"] == short_id("call_1")


def test_a_template_that_writes_the_id_of_a_call_in_place_of_its_name() -> None:
    source = wrapped(
        "<|tool_calls_section_begin|><|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>"
        "{{ f.arguments | tojson }}<|tool_call_end|><|tool_calls_section_end|>"
    ).replace("{{ m.content }}", "{{ m.tool_call_id or '' }} {{ m.content }}")
    style = call_style(ChatTemplate(source))
    assert (style.format.name, style.renders, style.describes, style.gives_ids) == ("kimi", True, True, True)
    again: list[dict[str, Any]] = [
        {"role": "assistant", "content": "", "calls": [Call("look", {}, "call_2"), Call("go", {}, "call_3")]},
        {"role": "tool", "content": "north", "id": "call_3", "name": "go"},
    ]
    messages, _ = style.prepare([*CONVERSATION, *again], [TOOL])
    ids = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert ids == ["functions.look:0", "functions.look:1", "functions.go:2"]
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == [ids[0], ids[2]]


def test_a_template_that_renders_either_text_or_calls() -> None:
    source = wrapped("[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}")
    style = call_style(ChatTemplate(source.replace("m.tool_calls or []", "(m.tool_calls if not m.content) or []")))
    assert (style.renders, style.takes_text) == (True, False)
    messages, _ = style.prepare(CONVERSATION, [TOOL])
    assert [(message["content"], "tool_calls" in message) for message in messages] == [
        ("Where are we?", False), ("Let me see.", False), ("", True), ("a wood", False),
    ]  # fmt: skip


def test_a_template_that_writes_calls_but_describes_no_tools() -> None:
    source = wrapped("[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}").replace("{{ tools | tojson }}", "")
    style = call_style(ChatTemplate(source))
    assert (style.format.name, style.renders, style.describes) == ("mistral", True, False)
    messages, tools = style.prepare(CONVERSATION, [TOOL])
    assert tools is None
    assert messages[0]["role"] == "system"
    assert "Looks around." in messages[0]["content"]
    assert "[TOOL_CALLS]" in messages[0]["content"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_template_without_tools_gets_plain_texts(name: str) -> None:
    template = ChatTemplate(BUILT_IN[name].source)
    style = call_style(template)
    assert (style.format, style.renders) == (HERMES, False)
    told = [{"role": "system", "content": "Be kind."}, *CONVERSATION, {"role": "user", "content": "Thanks."}]
    messages, tools = style.prepare(told, [TOOL])
    assert tools is None
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    prompt = template.render(messages)
    for said in ("Be kind.", "Looks around.", HERMES.write([Call("look", {"far": True})]), "a wood", "Thanks."):
        assert said in prompt


def test_a_template_without_system_messages_gets_the_tools_in_the_first_question() -> None:
    source = "{% for m in messages %}{{ raise_exception('no') if m.role == 'system' }}{{ m.content }}{% endfor %}"
    style = call_style(ChatTemplate(source))
    assert not style.takes_system
    messages, _ = style.prepare(CONVERSATION, [TOOL])
    assert messages[0]["role"] == "user"
    assert messages[0]["content"].startswith("Where are we?")
    assert "Looks around." in messages[0]["content"]


@pytest.mark.parametrize(
    "source", ["{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "{{"]
)
def test_a_template_that_is_slow_or_wrong_takes_no_tools(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "TIME_LIMIT_S", 0.1)
    assert not call_style(ChatTemplate(source)).renders


def test_ids_are_of_nine_letters_and_digits() -> None:
    assert short_id("abcdefgh1") == "abcdefgh1"
    for text in ("", "call_1", "x" * 100, "ä" * 9, "\ud800"):
        found = short_id(text)
        assert (len(found), found.isascii(), found.isalnum()) == (9, True, True)
        assert found == short_id(text)


# Read in the templates. All others write no call, or one in another format.
EXPECTED = {
    "Apriel-1.6-15b-Thinker-fixed": "apriel", "Bielik-11B-v3.0-Instruct": "hermes", "ByteDance-Seed-OSS": "seed",
    "Cohere2MoE": "command", "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "command", "GLM-4.6": "glm",
    "DeepSeek-V3.2": "deepseek-3.2", "LFM2.5-8B-A1B": "lfm2", "moonshotai-Kimi-K2-Thinking": "kimi",
    "GLM-4.7-Flash": "glm", "GigaChat3.1-10B-A1.8B": "gigachat", "MiMo-VL": "hermes", "MiniMax-M2": "minimax",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral-id", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "qwen-coder",
    "NVIDIA-Nemotron-Nano-v2": "nemotron", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "hermes", "Qwen-QwQ-32B": "hermes",
    "Qwen-Qwen2.5-7B-Instruct": "hermes", "Qwen-Qwen3-0.6B": "hermes", "Qwen3-Coder": "qwen-coder",
    "Qwen3.5-4B": "qwen-coder", "Reka-Edge": "hermes", "Spark2.5": "glm", "StepFun3.5-Flash": "qwen-coder",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek", "deepseek-ai-DeepSeek-V3.1": "deepseek-3.1",
    "google-gemma-4-31B-it": "gemma-4", "google-gemma-4-31B-it-interleaved": "gemma-4",
    "ibm-granite-granite-4.0": "hermes", "ibm-granite-granite-4.1": "hermes", "inclusionai-ling-3.0-flash": "glm",
    "llama-cpp-deepseek-r1": "deepseek", "meetkai-functionary-medium-v3.1": "functionary",
    "meta-llama-Llama-3.1-8B-Instruct": "llama-3", "meta-llama-Llama-3.2-3B-Instruct": "llama-3",
    "meta-llama-Llama-3.3-70B-Instruct": "llama-3", "mistralai-Ministral-3-14B-Reasoning-2512": "mistral",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral-list", "moonshotai-Kimi-K2": "kimi",
    "openai-gpt-oss-120b": "harmony", "openbmb-MiniCPM5-1B": "minicpm", "poolside-Laguna-S-2.1": "glm",
    "poolside-Laguna-XS-2.1": "glm", "poolside-Laguna-XS.2": "glm", "unsloth-Apriel-1.5": "apriel",
    "unsloth-mistral-Devstral-Small-2507": "mistral", "upstage-Solar-Open-100B": "solar",
}  # fmt: skip


@pytest.mark.skipif(not FILES, reason="HEARTH_LLAMA_CPP names no source of llama.cpp")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_templates_of_llama_cpp(file: Path) -> None:
    template = ChatTemplate(file.read_text(encoding="utf-8"), "<s>", "</s>")
    style = call_style(template)
    assert (style.format.name if style.renders else None) == EXPECTED.get(file.stem)
    messages, tools = style.prepare(CONVERSATION, [TOOL])
    if file.stem not in ("fireworks-ai-llama-3-firefunction-v2", "CohereForAI-c4ai-command-r-plus-tool_use"):
        prompt = template.render(messages, tools=tools)
        assert "a wood" in prompt
        assert "Looks around." in prompt
        assert "far" in prompt


def test_each_format_is_that_of_a_template() -> None:
    elsewhere = {"apertus", "minimax-m1"}  # in the templates of the models themselves
    assert set(EXPECTED.values()) | elsewhere == {one.name for one in FORMATS}
