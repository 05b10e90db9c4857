"""Thinking levels of every known kind of template, found by rendering, and the prompt for each level."""

from __future__ import annotations

import time

import pytest

from engine.config import SamplingConfig
from engine.errors import InvalidRequestError
from engine.session.loaded_model import LoadedModel
from engine.text.chat_template import ChatTemplate
from engine.text.thinking import Thinking, Way, thinking_of
from engine.text.tokenizer import Tokenizer
from engine.thinking_level import LEVELS

CHAT = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"
# Source, levels, default; and the ends of prompts by level.
TEMPLATES: dict[str, tuple[str, str, str | None, dict[str, str]]] = {
    "off ends an empty thought": (
        CHAT + "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}", "off on", "on",
        {"off": "[assistant]<think></think>", "on": "[assistant]", "low": "[assistant]"},
    ),
    "on opens a thought": (
        CHAT + "{% if thinking %}<think>{% else %}</think>{% endif %}", "off on", "off",
        {"off": "</think>", "on": "[assistant]<think>", "high": "[assistant]<think>"},
    ),
    "the model decides": (
        CHAT + "{% if enable_thinking is defined %}{{ '<think>' if enable_thinking else '</think>' }}{% endif %}",
        "off on", None, {"on": "<think>", "off": "</think>"},
    ),
    "always opens a thought": (
        CHAT + "{{ '<think>\\n' }}", "off on", "on",
        {"off": "<think>\n\n</think>\n\n", "on": "<think>\n", "low": "<think>\n"},
    ),
    "always opens a thought with marks in capitals": (
        CHAT + "[THINK]", "off on", "on", {"off": "[THINK]\n[/THINK]\n\n"},
    ),
    "effort in the instructions": (
        "Effort: {{ reasoning_effort | default('medium') }}\n" + CHAT, "low medium high", "medium",
        {"low": "Effort: low\n[user] Hello\n[assistant]", "off": "Effort: low\n[user] Hello\n[assistant]",
         "on": "Effort: medium\n[user] Hello\n[assistant]"},
    ),
    "two efforts and a switch": (
        "{% if effort_of is defined %}{% endif %}{% if thinking_effort is defined and thinking_effort not in "
        "['low', 'high'] %}{{ raise_exception('no') }}{% endif %}{% if thinking_effort is defined %}Effort "
        "{{ thinking_effort }}\n{% endif %}" + CHAT
        + "{% if thinking is defined and not thinking %}</think>{% else %}<think>{% endif %}",
        "off on low high", "on",
        {"off": "[assistant]</think>", "low": "Effort low\n[user] Hello\n[assistant]<think>",
         "medium": "Effort high\n[user] Hello\n[assistant]<think>"},
    ),
    "efforts, and nothing without one": (
        CHAT + "{% if reasoning_effort in ['low', 'high'] %}<think>{{ reasoning_effort }}{% else %}<think></think>"
        "{% endif %}", "off low high", "off", {"off": "<think></think>", "low": "<think>low", "on": "<think>high"},
    ),
    "no tokens for a thought": (
        CHAT + "{% if thinking_budget == 0 %}</seed:think>{% endif %}", "off on", "on", {"off": "</seed:think>"},
    ),
    "a mode with a name": (
        "Mode {{ thinking_mode }}\n" + CHAT + "{% if thinking_mode == 'disabled' %}</mm:think>"
        "{% elif thinking_mode == 'enabled' %}<mm:think>{% endif %}", "off on", None,
        {"off": "</mm:think>", "on": "<mm:think>"},
    ),
    "a word in the instructions": (
        "{% set ns = namespace(on=true) %}{% for m in messages %}{% if '/no_think' in m.content %}"
        "{% set ns.on = false %}{% endif %}[{{ m.role }}] {{ m.content.replace('/no_think', '') | trim }}\n"
        "{% endfor %}[assistant]{{ '<think>' if ns.on else '<think></think>' }}", "off on", "on",
        {"off": "[assistant]<think></think>", "on": "[assistant]<think>"},
    ),
    "any value is passed on": ("Effort: {{ reasoning_effort }}\n" + CHAT, "low medium high", None, {}),
    "nothing": (CHAT, "", None, {"off": "[assistant]", "on": "[assistant]", "medium": "[assistant]"}),
    "read and without effect": (CHAT + "{% if enable_thinking %}{% endif %}", "", None, {"off": "[assistant]"}),
    "fails if asked": (
        CHAT + "{% if enable_thinking is defined %}{{ raise_exception('no') }}{% endif %}", "", None,
        {"off": "[assistant]"},
    ),
    "always fails": ("{{ raise_exception('no') }}", "", None, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", TEMPLATES)
def test_levels_are_those_that_change_the_prompt(name: str) -> None:
    source, levels, default, _ = TEMPLATES[name]
    found = thinking_of(ChatTemplate(source))
    assert (" ".join(found.levels), found.default) == (levels, default)


@pytest.mark.parametrize("name", TEMPLATES)
def test_prompts_of_each_level(name: str, starter: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    source, _, default, ends = TEMPLATES[name]
    tokenizer = with_template(starter.tokenizer, source, monkeypatch)
    question = [{"role": "user", "content": "Hello"}]
    for level, end in ends.items():
        prompt = tokenizer.decode(tokenizer.encode_chat(question, level), skip_special=False)  # type: ignore[arg-type]
        assert prompt.endswith(end), level
    if default is not None:
        assert tokenizer.encode_chat(question, default) == tokenizer.encode_chat(question)  # type: ignore[arg-type]


def test_a_word_joins_the_instructions_that_there_are(starter: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = with_template(starter.tokenizer, TEMPLATES["a word in the instructions"][0], monkeypatch)
    chat = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
    prompt = tokenizer.decode(tokenizer.encode_chat(chat, "off"), skip_special=False)
    assert prompt == "[system] Be kind.\n[user] Hello\n[assistant]<think></think>"
    assert chat[0]["content"] == "Be kind."


LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(("source", "longest_s", "times"), [
    (CHAT + "{% if enable_thinking %}a{% endif %}", 0.0, 2),  # every template is slower than this
    (CHAT + "{% if thinking is defined %}" + LOOPS + "{% endif %}", 0.05, 3),
    (LOOPS + "enable_thinking", 0.05, 1),
])  # fmt: skip
def test_a_slow_template_is_not_asked_for_more(
    monkeypatch: pytest.MonkeyPatch, source: str, longest_s: float, times: int
) -> None:
    rendered, real = [0], ChatTemplate.render

    def counted(self: ChatTemplate, *arguments: object, **more: object) -> str:
        rendered[0] += 1
        return real(self, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(ChatTemplate, "render", counted)
    monkeypatch.setattr("engine.text.chat_template.TIME_LIMIT_S", 0.1)
    monkeypatch.setattr("engine.text.thinking._LONGEST_PROBE_S", longest_s)
    assert thinking_of(ChatTemplate(source)).levels == ()
    assert rendered[0] == times


def test_a_long_prompt_of_marks_is_read_at_its_end_alone() -> None:
    source = "{{ '</' ~ ('think' * 50000) ~ ('<think> ' * 20000) }}x{{ reasoning_effort in ['low', 'high'] }}"
    began = time.process_time()
    thinking_of(ChatTemplate(source))
    assert time.process_time() - began < 10


@pytest.mark.parametrize("mark", ["<th\u0131nk>", "<|\u017ftart_thinking|>", "<thin\u212a>"])
def test_letters_that_only_look_like_a_mark_are_none(mark: str) -> None:
    assert thinking_of(ChatTemplate(CHAT + mark)).levels == ()


@pytest.mark.parametrize("levels", ["", "on", "off on", "low high", "low medium high", "off low high", "off on high"])
def test_the_nearest_level_is_always_one_of_the_template(levels: str) -> None:
    thinking = Thinking({level: Way({"level": level}) for level in levels.split()})  # type: ignore[misc]
    for level in LEVELS:
        nearest = thinking.nearest(level)
        assert nearest is None or nearest in levels.split()
        assert nearest == level or level not in levels.split() or len(levels.split()) < 2
        assert thinking.way(nearest) == thinking.way(level)
    assert thinking.nearest(None) is None


def test_settings_are_checked() -> None:
    assert SamplingConfig().changed({"thinking": "low", "thought_tokens": 0}).thought_tokens == 0
    for wrong in ({"thinking": "much"}, {"thinking": 1}, {"thought_tokens": -1}, {"thought_tokens": True}):
        with pytest.raises(InvalidRequestError, match=next(iter(wrong))):
            SamplingConfig().changed(wrong)


def with_template(tokenizer: Tokenizer, source: str, monkeypatch: pytest.MonkeyPatch) -> Tokenizer:
    """Return the tokenizer with another template, for this test."""
    monkeypatch.setattr(tokenizer, "template", ChatTemplate(source))
    monkeypatch.setattr(tokenizer, "thinking", thinking_of(ChatTemplate(source)), raising=False)
    return tokenizer


@pytest.mark.parametrize("name", ["on opens a thought", "always opens a thought"])
def test_a_continued_answer_stays_on_its_side_of_the_thought(
    name: str, starter: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever level was chosen after it began."""
    tokenizer = with_template(starter.tokenizer, TEMPLATES[name][0], monkeypatch)
    for level in ("on", "off", None):
        for said, thinks in (("Hello the", False), ("<think>\nLet me", True)):
            chat = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": said}]
            prompt = tokenizer.decode(tokenizer.encode_continued(chat, level), skip_special=False)  # type: ignore[arg-type]
            assert prompt.endswith(said.removeprefix("<think>\n"))
            assert (prompt.rfind("<think>") > prompt.rfind("</think>")) == thinks, (level, prompt)
            assert prompt.count("<think>") <= 1


def test_a_continued_answer_ends_the_thought_with_the_mark_of_its_kind(
    starter: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no level is known, as of a template that is slow, and the template opens a thought."""
    tokenizer = with_template(starter.tokenizer, CHAT + "<seed:think>\n", monkeypatch)
    monkeypatch.setattr(tokenizer, "thinking", Thinking({}))
    chat = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello the"}]
    prompt = tokenizer.decode(tokenizer.encode_continued(chat), skip_special=False)
    assert prompt.endswith("<seed:think>\n</seed:think>\n\nHello the")
