"""A thought ends at its limit of tokens, with the end mark that belongs to its opening mark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from engine.config import SamplingConfig
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from engine.session.thought_limit import limit_thought
from engine.text.chat_template import ChatTemplate
from engine.text.thoughts import split
from engine.text.tokenizer import Tokenizer

LOGITS = np.zeros(1, np.float32)
LONG = "one two three four five six seven eight nine ten eleven twelve"


class Script:
    """A fake sampler that returns the tokens of a text, over and over."""

    def __init__(self, tokenizer: Tokenizer, text: str) -> None:
        self.tokens, self.said = tokenizer.encode(text, special=True), 0

    def __call__(self, logits: np.ndarray, history: Sequence[int]) -> int:
        self.said += 1
        return self.tokens[(self.said - 1) % len(self.tokens)]


def reply(tokenizer: Tokenizer, script: str, most: int | None, opened: str = "", tokens: int = 60) -> str:
    """Return the reply to a prompt that ends with `opened`, under a limit of `most` tokens."""
    sampler = limit_thought(Script(tokenizer, script), tokenizer, tokenizer.encode(f"Hi {opened}"), most)
    return opened + tokenizer.decode([sampler(LOGITS, []) for _ in range(tokens)], skip_special=False)


@pytest.mark.parametrize("opened", ["", "<think>\n", "[THINK]"])
@pytest.mark.parametrize("most", [0, 1, 5])
def test_a_long_thought_is_ended(starter: LoadedModel, opened: str, most: int) -> None:
    tokenizer = starter.tokenizer
    begins = opened or "<think>"
    text = reply(tokenizer, (begins if not opened else "") + LONG, most, opened)
    found = split(text)
    assert not found.is_thinking
    thought = tokenizer.encode(found.thought)
    assert len(thought) <= most + 1  # the same text may take one token more by itself
    assert found.answer.count("one") >= 2


def test_a_short_thought_and_an_answer_are_left_alone(starter: LoadedModel) -> None:
    tokenizer = starter.tokenizer
    for text in (f"<think>\nshort\n</think>\n\n{LONG}", LONG):
        n = len(tokenizer.encode(text, special=True))
        assert reply(tokenizer, text, 20, tokens=n) == tokenizer.decode(tokenizer.encode(text, special=True))
        sampler = Script(tokenizer, text)
        assert limit_thought(sampler, tokenizer, [], None) is sampler


def test_an_answer_that_opens_a_thought_of_its_own_is_not_ended(starter: LoadedModel) -> None:
    text = f"Write <think> {LONG} </think> so."
    n = len(starter.tokenizer.encode(text, special=True))
    assert "</think> so." in reply(starter.tokenizer, text, 2, tokens=n)


@pytest.mark.parametrize("most", [0, 3])
def test_a_session_ends_what_the_prompt_opens(
    starter: LoadedModel, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:  # fmt: skip
    source = "{% for m in messages %}{{ m.content }} {% endfor %}{{ '<think>\\n' }}"
    monkeypatch.setattr(starter.tokenizer, "template", ChatTemplate(source))
    session = ChatSession(starter)
    events = list(
        session.chat([{"role": "user", "content": "Tell me a story"}],
                     SamplingConfig(temperature=0.0, max_tokens=30, thought_tokens=most))[1]
    )  # fmt: skip
    text = "".join(event.text for event in events)
    assert text.startswith("<think>\n")
    assert "</think>" in text
    assert len(starter.tokenizer.encode(split(text).thought)) <= most + 1
    assert split(text).answer.strip()
