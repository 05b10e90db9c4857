"""The chat template: what honest templates of known families need, rendered as transformers would."""

from __future__ import annotations

import json
import sys
import threading
from datetime import datetime
from pathlib import Path

import pytest

from engine.errors import ChatTemplateError
from engine.text.chat_template import SOURCE_LIMIT_CHARS, ChatTemplate

CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Hi! "},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Bye"},
]

CHATML = """\
{%- for message in messages %}
    {%- if loop.first and messages[0]['role'] != 'system' %}
        {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)

QWEN3_THINKING = """\
{%- set ns = namespace(last=messages|length - 1, seen=false) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if not ns.seen and message.role == "user" and not(message.content.startswith('<tool>')) %}
        {%- set ns.seen = true %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.reasoning_content is defined and message.reasoning_content is not none %}r{%- endif %}
    {%- if '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<' ~ message.role ~ '|' ~ loop.index0 ~ '|' ~ (loop.index0 > ns.last) ~ '>' ~ content ~ '\\n' }}
{%- endfor %}
"""


def test_chatml() -> None:
    assert ChatTemplate(CHATML).render(CONVERSATION[1:2]) == (
        "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\n Hi! <|im_end|>\n<|im_start|>assistant\n"
    )
    assert ChatTemplate(CHATML).render(CONVERSATION, add_generation_prompt=False).endswith("user\nBye<|im_end|>\n")


def test_llama2() -> None:
    template = ChatTemplate(LLAMA2, "<s>", "</s>")
    assert template.render(CONVERSATION) == (
        "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n Hi! [/INST] Hello. </s><s>[INST] Bye [/INST]"
    )
    with pytest.raises(ChatTemplateError, match="Conversation roles must alternate"):
        template.render(CONVERSATION[2:])


def test_thinking_parts_are_cut() -> None:
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "x</think>\n\nb"}]
    assert ChatTemplate(QWEN3_THINKING).render(turns) == "<user|0|False>a\n<assistant|1|True>b\n"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("  {% if true %}\n  x\n  {% endif %}\n", "  x\n"),  # trim_blocks and lstrip_blocks
        ("{{ bos_token }}|{{ eos_token }}|{{ pad_token }}", "<s>|</s>|"),
        ("{{ tools is none }}{{ documents is none }}{{ other is defined }}", "TrueTrueFalse"),
        ("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{ i }}"
         "{% endfor %}", "02"),
        ("{% generation %}a{{ 1 + 1 }}{% endgeneration %}b", "a2b"),
        ("{% macro f(x, y='d') %}[{{ x }}{{ y }}{{ caller() if caller }}]{% endmacro %}{{ f(1) }}{{ f(2, y=3) }}",
         "[1d][23]"),
        ("{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}in{% endcall %}", "[in]"),
        ("{{ messages | map(attribute='role') | join(', ') }}", "system, user, assistant, user"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "2"),
        ("{{ (messages | rejectattr('role', 'equalto', 'user') | first).content }}", "Be brief."),
        ("{{ messages[0] | tojson }}", '{"role": "system", "content": "Be brief."}'),
        ("{{ {'a': ['<é>', none, true]} | tojson(indent=1) }}", '{\n "a": [\n  "<é>",\n  null,\n  true\n ]\n}'),
        ("{{ messages[1].content | trim }}|{{ messages[1]['content'].strip() }}", "Hi!|Hi!"),
        ("{{ 'a-b'.replace('-', '+') }}{{ 'a-b' | replace('-', '') }}{{ '-'.join(['x', 'y']) }}", "a+babx-y"),
        ("{{ [1] + [2] }}{{ 2 * [3] }}", "[1, 2][3, 3]"),
        ("{{ 'x\ny' | indent(2) }}", "x\n  y"),
        ("{{ '%02d|%s' % (7, 'a') }}{{ 2 ** 10 }}{{ 7 // 2 }}{{ 'ab' * 2 }}{{ 10 ** 9 * 1.5 }}",
         "07|a10243abab1500000000.0"),
        ("{% set d = dict(a=1, b=2) %}{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}{{ d.get('c', 3) }}",
         "a1b23"),
        ("{% for a, b in {'x': 1} | dictsort %}{{ a }}{{ b }}{% endfor %}{{ (1, 2)[1] }}", "x12"),
        ("{% set ns = namespace(n=0) %}{% for m in messages if m.role == 'user' %}{% set ns.n = ns.n + 1 %}{% endfor %}"
         "{{ ns.n }}", "2"),
        ("{% set x %}a{{ 1 }}{% endset %}{{ x ~ x ~ none }}{% filter upper %}b{% endfilter %}", "a1a1NoneB"),
        ("{% for x in [[1, [2]], [3]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}", "123"),
        ("{{ 1 if messages[0].role in ['system', 'developer'] else 0 }}{{ messages[-1].content[:2] }}", "1By"),
        ("{{ '😀é' | length }}{{ 3.5 | int }}{{ '4' | int + 1 }}{{ missing | default('d') }}", "235d"),
    ],
)  # fmt: skip
def test_what_templates_use(source: str, text: str) -> None:
    assert ChatTemplate(source, "<s>", "</s>").render(CONVERSATION) == text


def test_today_is_told() -> None:
    said = ChatTemplate("{{ strftime_now('%Y-%m-%d') }}").render([])
    today = datetime.now().astimezone().date()
    assert abs((datetime.strptime(said, "%Y-%m-%d").date() - today).days) <= 1  # noqa: DTZ007 - a date has no zone


def test_a_day_is_written_without_its_zero_on_every_system() -> None:
    day, rest = ChatTemplate("{{ strftime_now('%-d|%%-d') }}").render([]).split("|")
    assert 1 <= int(day) <= 31
    assert (day[0] != "0", rest) == (True, "%-d")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('no system role, please') }}", "refuses these messages: no system role, please"),
        ("a\n{% if %}", "wrong in line 2"),
        ("{% unknown %}", "unknown"),
        ("{{ x | nosuchfilter }}", "nosuchfilter"),
        ("{{ messages.nothing.at_all }}", "failed: .*has no attribute 'nothing'"),
        ("{{ 1 / 0 }}", "failed: division by zero"),
        ("{{ 1 + 'a' }}", "failed: unsupported operand"),
        ("{% include 'x' %}", "failed"),
    ],
)
def test_failures_are_one_sentence(source: str, words: str) -> None:
    with pytest.raises(ChatTemplateError, match=words) as caught:
        ChatTemplate(source).render(CONVERSATION)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 600
    assert caught.value.hint


def test_a_bad_template_hurts_only_when_rendered_and_every_time() -> None:
    template = ChatTemplate("{% if %}")
    for _ in range(2):
        with pytest.raises(ChatTemplateError):
            template.render([])


def test_messages_cannot_be_changed_by_the_template() -> None:
    messages = [{"role": "user", "content": "x"}]
    with pytest.raises(ChatTemplateError, match="forbidden"):
        ChatTemplate("{{ messages.append(1) }}").render(messages)
    with pytest.raises(ChatTemplateError, match="forbidden"):
        ChatTemplate("{{ messages[0].update({'role': 'system'}) }}").render(messages)
    with pytest.raises(ChatTemplateError, match="forbidden"):
        ChatTemplate("{% set a = [messages] %}{% set _ = a[0].append(1) %}").render(messages)
    assert messages == [{"role": "user", "content": "x"}]


def test_a_template_may_change_its_own_lists() -> None:
    source = "{% set a = [] %}{% for m in messages %}{% set _ = a.append(m.role) %}{% endfor %}{{ a.pop(0) }}{{ a }}"
    assert ChatTemplate(source).render([{"role": "user"}, {"role": "tool"}]) == "user['tool']"


def test_a_list_of_many_messages_is_cheap() -> None:
    source = "{% set a = [] %}{% for m in messages %}{% set _ = a.append(m) %}{% endfor %}{{ a|length }}"
    assert ChatTemplate(source).render([{"role": "user", "content": "x"}] * 5000) == "5000"


def test_renderings_in_several_threads() -> None:
    template = ChatTemplate(CHATML)
    expected = template.render(CONVERSATION)
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(template.render(CONVERSATION))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 8


def test_a_trace_function_stays_as_it_was() -> None:
    """Debuggers and coverage keep working while templates are bounded."""

    def trace(*_: object) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        ChatTemplate(CHATML).render(CONVERSATION)
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)


def test_a_long_honest_conversation_fits() -> None:
    messages = [{"role": "user" if n % 2 == 0 else "assistant", "content": "word " * 200} for n in range(2000)]
    assert len(ChatTemplate(CHATML).render(messages)) > 2_000_000
    assert len(ChatTemplate(QWEN3_THINKING).render(messages)) > 2_000_000


def test_a_large_honest_template_fits() -> None:
    source = "{% if messages %}{{ messages[0].role }}{% endif %}\n" * 600
    assert len(source) < SOURCE_LIMIT_CHARS
    assert ChatTemplate(source).render(CONVERSATION) == "system" * 600


def test_the_reference_prompts(shared_starter: Path) -> None:
    config = json.loads((shared_starter / "tokenizer_config.json").read_text(encoding="utf-8"))
    template = ChatTemplate(config["chat_template"], config["bos_token"], config["eos_token"])
    assert template.render([{"role": "user", "content": "Hello! Who are you?"}]) == (
        "<|begin|><|user|>Hello! Who are you?<|end|><|assistant|>"
    )


@pytest.mark.parametrize(
    "expression",
    [
        "'{}: {}'.format(message.role, message.content)",
        "'{1} {0!r:>20} {name:^{width}}'.format(1, 'b', name='c', width=9)",
        "'{m[role]} {n:08.3f} {n:,}'.format(m=message, n=12345.678)",
        "'{role}|{content!s:.3}|{{}}'.format_map(message)",
        "'{:x}{}'.format(255, ())",
    ],
)
def test_format_is_as_the_official_sandbox_has_it(expression: str) -> None:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    source = "{% for message in messages %}{{ " + expression + " }}{% endfor %}"
    official = ImmutableSandboxedEnvironment().from_string(source).render(messages=CONVERSATION)
    assert ChatTemplate(source).render(CONVERSATION) == official
