"""How chat templates take tools: found by rendering a sample call, and plain texts for those that know none."""

from __future__ import annotations

import os
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.call_templates import template_of, wrapped

from engine.text import chat_template
from engine.text.chat_template import ChatTemplate
from engine.text.chat_templates import BUILT_IN
from engine.text.thinking import thinking_of
from engine.tool_calls.call_format import FORMATS, HERMES, Call, CallFormat
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


@pytest.mark.parametrize(
    "one", [one for one in FORMATS if not (one.text_mark or one.tag_mark)], ids=lambda one: one.name
)
@pytest.mark.parametrize("text_arguments", [False, True])
def test_the_format_of_a_template_is_found(one: CallFormat, text_arguments: bool) -> None:
    if text_arguments and (one.parameter or one.assign):
        return
    arguments = 'f.arguments + ""' if text_arguments else "f.arguments | tojson"
    style = call_style(ChatTemplate(template_of(one, arguments)))
    assert (style.format, style.renders, style.describes, style.writes_calls) == (one, True, True, True)
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


def test_a_template_that_describes_tools_and_renders_results_gets_calls_as_texts() -> None:
    lfm2 = next(one for one in FORMATS if one.name == "lfm2")
    style = call_style(ChatTemplate("List of tools: " + wrapped("")))
    assert (style.format, style.renders, style.describes, style.writes_calls) == (lfm2, True, True, False)
    messages, tools = style.prepare(CONVERSATION, [TOOL])
    assert (tools, messages[1]["content"]) == ([TOOL], f"Let me see.{lfm2.write([Call('look', {'far': True})])}")
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]


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
TEMPLATES = """
apertus: Apertus-8B-Instruct
gigachat-3: GigaChat3-10B-A1.8B
kimi: Kimi-K2-Instruct Kimi-K2-Thinking moonshotai-Kimi-K2
kimi-k3: Kimi-K3
lfm2: LFM2-8B-A1B LFM2.5-8B-A1B LFM2.5-Instruct
minimax-m1: MiniMax-M1
minimax-m3: MiniMax-M3
deepseek-4: deepseek-ai-DeepSeek-V4 deepseek-ai-DeepSeek-V4-Flash-0731
granite-3: ibm-granite-granite-3.3-2B-Instruct
functionary-3.2: meetkai-functionary-medium-v3.2
hunyuan-3: tencent-Hy3
apriel: Apriel-1.6-15b-Thinker-fixed unsloth-Apriel-1.5
hermes: Bielik-11B-v3.0-Instruct MiMo-VL NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use
  NousResearch-Hermes-3-Llama-3.1-8B-tool_use Qwen-QwQ-32B Qwen-Qwen2.5-7B-Instruct Qwen-Qwen3-0.6B Reka-Edge
  ibm-granite-granite-4.0 ibm-granite-granite-4.1
seed: ByteDance-Seed-OSS
command: Cohere2MoE CohereForAI-c4ai-command-r7b-12-2024-tool_use
glm: GLM-4.6 GLM-4.7-Flash Spark2.5 inclusionai-ling-3.0-flash poolside-Laguna-S-2.1 poolside-Laguna-XS-2.1
  poolside-Laguna-XS.2
deepseek-3.2: deepseek-ai-DeepSeek-V3.2
gigachat: GigaChat3.1-10B-A1.8B
minimax: MiniMax-M2
mistral-id: Mistral-Small-3.2-24B-Instruct-2506
qwen-coder: NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 Qwen3-Coder Qwen3.5-4B StepFun3.5-Flash
nemotron: NVIDIA-Nemotron-Nano-v2
deepseek: deepseek-ai-DeepSeek-R1-Distill-Qwen-32B llama-cpp-deepseek-r1
deepseek-3.1: deepseek-ai-DeepSeek-V3.1
gemma-4: google-gemma-4-31B-it google-gemma-4-31B-it-interleaved
functionary: meetkai-functionary-medium-v3.1
llama-3: meta-llama-Llama-3.1-8B-Instruct meta-llama-Llama-3.2-3B-Instruct meta-llama-Llama-3.3-70B-Instruct
mistral: mistralai-Ministral-3-14B-Reasoning-2512 unsloth-mistral-Devstral-Small-2507
mistral-list: mistralai-Mistral-Nemo-Instruct-2407
harmony: openai-gpt-oss-120b
minicpm: openbmb-MiniCPM5-1B
solar: upstage-Solar-Open-100B
"""
EXPECTED = {
    file: name
    for name, files in re.findall(r"^(\S+): (.*(?:\n .*)*)", TEMPLATES, re.MULTILINE)
    for file in files.split()
}


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
    assert set(EXPECTED.values()) == {one.name for one in FORMATS}


ON = """
ByteDance-Seed-OSS Cohere2MoE GLM-4.6 GLM-4.7-Flash HuggingFaceTB-SmolLM3-3B MiniMax-M2
NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 NVIDIA-Nemotron-Nano-v2 Qwen-Qwen3-0.6B Qwen3.5-4B Spark2.5 StepFun3.5-Flash
deepseek-ai-DeepSeek-R1-Distill-Llama-8B inclusionai-ling-3.0-flash llama-cpp-deepseek-r1 poolside-Laguna-S-2.1
"""
OFF = """
Apertus-8B-Instruct Bielik-11B-v3.0-Instruct CohereForAI-c4ai-command-r7b-12-2024-tool_use Qwen-QwQ-32B Reka-Edge
deepseek-ai-DeepSeek-R1-Distill-Qwen-32B deepseek-ai-DeepSeek-V3.1 deepseek-ai-DeepSeek-V3.2 deepseek-ai-DeepSeek-V4
deepseek-ai-DeepSeek-V4-Flash-0731 google-gemma-4-31B-it google-gemma-4-31B-it-interleaved
ibm-granite-granite-3.3-2B-Instruct poolside-Laguna-XS-2.1 poolside-Laguna-XS.2
"""
LEVELS = {
    **dict.fromkeys(ON.split(), ("off on", "on")), **dict.fromkeys(OFF.split(), ("off on", "off")),
    **dict.fromkeys(("MiniMax-M3", "llama-cpp-rwkv-world", "openbmb-MiniCPM5-1B"), ("off on", None)),
    "Kimi-K3": ("off on low high", "on"), "muse-glimmer": ("low medium high", "high"),
    "openai-gpt-oss-120b": ("low medium high", "medium"), "tencent-Hy3": ("off low high", "off"),
}  # fmt: skip


@pytest.mark.skipif(not FILES, reason="HEARTH_LLAMA_CPP names no source of llama.cpp")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_thinking_levels_of_the_templates_of_llama_cpp(file: Path) -> None:
    found = thinking_of(ChatTemplate(file.read_text(encoding="utf-8"), "<s>", "</s>"))
    assert (" ".join(found.levels), found.default) == LEVELS.get(file.stem, ("", None))


@pytest.mark.skipif(not FILES, reason="HEARTH_LLAMA_CPP names no source of llama.cpp")
def test_each_named_template_is_there() -> None:
    assert EXPECTED.keys() | LEVELS.keys() <= {file.stem for file in FILES}


def test_a_busy_pc_does_not_make_a_template_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter", count().__next__)
    template = ChatTemplate(template_of(HERMES) + "{{ enable_thinking }}")
    assert (call_style(template).renders, thinking_of(template).levels) == (True, ("off", "on"))
