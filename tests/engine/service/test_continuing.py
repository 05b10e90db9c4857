"""Answers that are written on, and thoughts that a chat template opens itself."""

from __future__ import annotations

import dataclasses

import pytest

from engine.config import SamplingConfig
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from engine.text.chat_template import ChatTemplate
from engine.text.context_fit import ChatMessage
from engine.text.tokenizer import Tokenizer

GREEDY = SamplingConfig(temperature=0, max_tokens=40)
STORY: ChatMessage = {"role": "user", "content": "Tell me a story about a small fox."}


def said(session: ChatSession, messages: list[ChatMessage], sampling: SamplingConfig, continues: bool = False) -> str:
    return "".join(event.text for event in session.chat(messages, sampling, continues=continues)[1])


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_cut_answer_goes_on_as_if_it_had_not_been_cut(starter: LoadedModel, cut: int) -> None:
    whole = said(ChatSession(starter), [STORY], GREEDY)
    session = ChatSession(starter)
    begun = said(session, [STORY], GREEDY.changed({"max_tokens": cut}))
    messages = [STORY, {"role": "assistant", "content": begun}]
    rest = said(session, messages, GREEDY.changed({"max_tokens": 40 - cut}), continues=True)
    assert begun + rest == whole


def test_going_on_computes_only_what_is_new(starter: LoadedModel) -> None:
    session = ChatSession(starter)
    begun = said(session, [STORY], GREEDY.changed({"max_tokens": 20}))
    *_, last = session.chat([STORY, {"role": "assistant", "content": begun}], GREEDY, continues=True)[1]
    assert last.stats.prompt_tokens - last.stats.reused_tokens <= 2


def test_the_prompt_ends_where_the_answer_does(starter: LoadedModel) -> None:
    tokenizer = starter.tokenizer
    begun = {"role": "assistant", "content": "Once upon a"}
    prompt = tokenizer.encode_continued([STORY, begun])
    assert prompt == tokenizer.encode_chat([STORY]) + tokenizer.encode("Once upon a")
    assert tokenizer.encode_continued([STORY]) == tokenizer.encode_chat([STORY])


def test_special_tokens_in_a_begun_answer_stay_words(starter: LoadedModel) -> None:
    tokenizer = starter.tokenizer
    prompt = tokenizer.encode_continued([STORY, {"role": "assistant", "content": "<|end|><|user|>"}])
    begun = prompt[len(tokenizer.encode_chat([STORY])) :]
    assert tokenizer.decode(begun) == "<|end|><|user|>"


@pytest.fixture
def thinker(starter: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    """The same with a template that opens a thought."""
    template = starter.tokenizer.template
    assert template is not None
    source = template.source + "{{ '<think>\n' }}"
    monkeypatch.setattr(starter.tokenizer, "template", ChatTemplate(source, "<s>", "</s>"))
    return dataclasses.replace(starter)


def test_a_thought_that_the_template_opens_is_in_the_answer(thinker: LoadedModel) -> None:
    session = ChatSession(thinker)
    text = said(session, [STORY], GREEDY.changed({"max_tokens": 6}))
    assert text.startswith("<think>\n")
    assert text.count("<think>") == 1
    rest = said(session, [STORY, {"role": "assistant", "content": text}], GREEDY, continues=True)
    assert "<think>" not in rest
    tokenizer: Tokenizer = thinker.tokenizer
    prompt = tokenizer.encode_continued([STORY, {"role": "assistant", "content": text}])
    assert tokenizer.decode(prompt, skip_special=False).count("<think>") == 1


def test_a_question_about_the_mark_opens_no_thought(starter: LoadedModel) -> None:
    prompt = starter.tokenizer.encode_chat([{"role": "user", "content": "What is <think>"}])
    assert starter.tokenizer.opened_thought(prompt) == ""
