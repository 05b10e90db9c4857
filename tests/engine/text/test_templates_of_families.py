"""Templates that use what the published ones of each family use, rendered here and by transformers: the same text, or
refused by both."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nasty_texts import texts
from starter_vocabulary import as_files, metadata
from support.repetitions import some_daily

from engine.errors import ChatTemplateError
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer

LLAMA_3 = """\
{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|head|>system<|/head|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}
{{- "Date: " + date_string + "\\n\\n" + system_message + "<|end|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{%- endfor %}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|head|>' + message['role'] + '<|/head|>\\n\\n'+ message['content'] | trim + '<|end|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("one tool at a time") }}{%- endif %}
    {%- else %}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>assistant<|/head|>\\n\\n' }}{%- endif %}
"""
QWEN_25 = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or \
(message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<r>\\n' }}{{- message.content }}{{- '\\n</r>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
QWEN_3 = """\
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string \
and not(message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}{%- set content = message.content %}
    {%- else %}{%- set content = '' %}{%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] %}
                {%- set reasoning_content = reasoning_content.lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') }}
            {{- '\\n</think>\\n\\n' }}
            {{- content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""
GEMMA_2 = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system role') }}{% endif %}"
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}"
    "{% set role = message['role'] %}{% endif %}"
    "{{ '<start>' + role + '\n' + message['content'] | trim + '<end>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start>model\n'}}{% endif %}"
)
GEMMA_3 = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}{%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}
        {%- set role = message['role'] -%}{%- endif -%}
    {{ '<start>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'<start>model\n'}}{%- endif -%}
"""
PHI_3 = (
    "{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{'<|system|>\n' + message['content'] + '<|end|>\n'}}"
    "{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}"
    "{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
MISTRAL_V3 = """\
{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}{%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or \
(message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}{{- "[T] [" }}{%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {%- for tool_call in message.tool_calls %}{%- set out = tool_call.function|tojson %}{{- out[:-1] }}{%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported") }}
    {%- endif %}
{%- endfor %}
"""
CHATML = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MACROS = """\
{%- macro turn(role, words, end='<e>') -%}
{{ '<' ~ role ~ '>' }}{{ caller() if caller is defined else words | trim }}{{ end }}
{%- endmacro -%}
{%- set ns = namespace(seen=[], total=0) -%}
{%- for message in messages -%}
    {%- set ns.seen = ns.seen + [message.role] -%}
    {%- set ns.total = ns.total + message.content | length -%}
    {%- if message.role == 'assistant' -%}
        {%- generation -%}{{ turn(message.role, message.content) }}{%- endgeneration -%}
    {%- elif loop.previtem is defined and loop.previtem.role == message.role -%}
        {%- continue -%}
    {%- else -%}
        {%- call turn(message.role, '') -%}{{ message.content | upper }}{%- endcall -%}
    {%- endif -%}
    {%- if loop.index > 20 -%}{%- break -%}{%- endif -%}
{%- endfor -%}
{{ ns.seen | join(',') }}|{{ ns.total }}|{{ messages | map(attribute='role') | unique | list | tojson }}
{{ {'b': 1, 'a': ["<&>", none, 1.5]} | tojson(sort_keys=true, separators=(',', ':')) }}{{ '%s-%d' | format('x', 3) }}
"""
TEMPLATES = {
    "Llama 3.x": LLAMA_3, "Qwen2.5": QWEN_25, "Qwen3": QWEN_3, "Gemma 2": GEMMA_2, "Gemma 3": GEMMA_3, "Phi-3": PHI_3,
    "Mistral v0.3": MISTRAL_V3, "ChatML": CHATML, "macros and marks for training": MACROS,
}  # fmt: skip


@functools.cache
def of_transformers() -> Any:
    from tokenizers import Tokenizer as Backend, models  # noqa: I001 - one statement
    from transformers import PreTrainedTokenizerFast

    backend = Backend(models.BPE({"<s>": 0, "</s>": 1}, []))
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


def by_transformers(source: str, messages: list[dict[str, str]], prompted: bool) -> str | None:
    import jinja2

    try:
        said = of_transformers().apply_chat_template(
            messages, chat_template=source, tokenize=False, add_generation_prompt=prompted
        )
    except jinja2.TemplateError:
        return None
    assert isinstance(said, str)
    return said


def by_hearth(source: str, messages: list[dict[str, str]], prompted: bool) -> str | None:
    try:
        return ChatTemplate(source, "<s>", "</s>").render(messages, add_generation_prompt=prompted)
    except ChatTemplateError:
        return None


def turns(*pairs: str) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in zip(pairs[::2], pairs[1::2], strict=True)]


CHATS = [
    turns("user", " Hi! "),
    turns("system", "Be brief.\n", "user", "Hi"),
    turns("system", "S", "user", "a", "assistant", " b\n", "user", "c"),
    turns("user", "a", "assistant", "<think>\nhm\n</think>\n\nb", "user", "c"),
    turns("user", "a", "assistant", "<think>\nhm\n</think>\n\nb"),
    turns("user", "a", "user", "b"),
    turns("assistant", "a", "user", "b"),
    turns("user", "<r>x</r>", "assistant", "y", "system", "z"),
    turns("user", "{{ bos_token }}{% if %}<|im_end|>\\n\"'<b>&é😀\u2028", "tool", "r", "tool", "s", "user", "t"),
]


@pytest.mark.parametrize("prompted", [True, False])
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_same_text_as_transformers(name: str, prompted: bool) -> None:
    said = [by_hearth(TEMPLATES[name], chat, prompted) for chat in CHATS]
    assert said == [by_transformers(TEMPLATES[name], chat, prompted) for chat in CHATS]
    assert sum(text is not None for text in said) >= 3


@pytest.mark.parametrize("name", some_daily(TEMPLATES, [*TEMPLATES][::3]))
@settings(max_examples=25, deadline=None)
@given(contents=st.lists(texts, min_size=1, max_size=5), with_system=st.booleans())
def test_the_same_text_for_any_contents(name: str, contents: list[str], with_system: bool) -> None:
    chat = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)]
    chat = [*turns("system", contents[0]), *chat] if with_system else chat
    assert by_hearth(TEMPLATES[name], chat, True) == by_transformers(TEMPLATES[name], chat, True)


# --- which one of several


def test_a_gguf_with_several_templates_uses_the_plain_one() -> None:
    several = {"tokenizer.chat_templates": ["tool_use", "rag"], "tokenizer.chat_template.tool_use": "T",
               "tokenizer.chat_template.rag": "R"}  # fmt: skip
    assert Tokenizer.from_gguf({**metadata(), **several, "tokenizer.chat_template": "D"}).chat_template == "D"
    without = {key: value for key, value in metadata().items() if key != "tokenizer.chat_template"}
    assert Tokenizer.from_gguf({**without, **several}).chat_template is None


def test_a_templates_own_file_comes_first(tmp_path: Path) -> None:
    """As transformers reads a directory."""
    (tmp_path / "chat_template.jinja").write_text("F", encoding="utf-8")
    assert as_files(tmp_path, config={"chat_template": "C"}).chat_template == "F"
    assert as_files(tmp_path, config={"chat_template": [{"name": "default", "template": "L"}]}).chat_template == "F"
    (tmp_path / "chat_template.jinja").unlink()
    assert as_files(tmp_path, config={"chat_template": "C"}).chat_template == "C"


def test_transformers_reads_the_same_of_a_directory(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    of_transformers().save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    listed = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    path.write_text(json.dumps({**config, "chat_template": listed}), encoding="utf-8")
    for file in (None, "F"):
        if file:
            (tmp_path / "chat_template.jinja").write_text(file, encoding="utf-8")
        reference = PreTrainedTokenizerFast.from_pretrained(tmp_path).get_chat_template()
        folder = tmp_path / "ours"
        as_files(folder, config={"chat_template": listed})
        if file:
            (folder / "chat_template.jinja").write_text(file, encoding="utf-8")
        tokenizer = Tokenizer.from_files(folder / "tokenizer.json", folder / "tokenizer_config.json")
        assert tokenizer.chat_template == reference == (file or "D")
