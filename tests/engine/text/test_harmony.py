"""Harmony, gpt-oss's format: what is a thought, what the answer, what ends a reply, and how one is continued."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from engine.session.thought_limit import limit_thought
from engine.text.chat_templates import choose_template
from engine.text.harmony import HarmonyStream
from engine.text.tokenizer import Tokenizer
from engine.text.vocabulary import Vocabulary, ends_of

MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|constrain|>")
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>"
    "{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}{# <|return|> #}"
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(list(MARKS))
    special = {backend.token_to_id(mark): mark for mark in MARKS}
    ends = ends_of((backend.token_to_id("<|return|>"), backend.token_to_id("<|end|>")), special)
    made: Any = Vocabulary(
        backend=backend, bos_token_id=None, eos_token_ids=ends, adds_bos=False, chat_template=TEMPLATE,
        pieces="byte-level", origin="here",
    )  # fmt: skip
    return Tokenizer(made)


def said(tokenizer: Tokenizer, text: str) -> str:
    ids = tokenizer.encode(text, special=True)
    stream = tokenizer.stream()
    pushed = [stream.push(i) for i in ids]
    found = "".join(pushed) + stream.flush()
    assert isinstance(stream, HarmonyStream)
    assert found == tokenizer.decode(ids)
    return found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("<|channel|>final<|message|>Hello", "Hello"),
        (
            "<|channel|>analysis<|message|>They greet me.<|end|><|start|>assistant<|channel|>final<|message|>Hello 漢",
            "<think>They greet me.</think>Hello 漢",
        ),
        ("<|channel|>analysis<|message|>They", "<think>They"),
        (
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>"
            "<|start|>assistant<|channel|>final<|message|>c",
            "<think>a\n\nb</think>c",
        ),
        (
            "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
            "<think>{}",
        ),
        (" to=x<|channel|>analysis<|message|>a<|end|>", " to=x<think>a"),
        ("no header at all", "no header at all"),
        (" goes on<|end|><|start|>assistant<|channel|>final<|message|>c", " goes on</think>c"),
    ],
)  # fmt: skip
def test_thoughts_are_marked_and_headers_left_out(tokenizer: Tokenizer, text: str, wanted: str) -> None:
    assert said(tokenizer, text) == wanted


@given(st.lists(st.sampled_from([*MARKS, "analysis", "final", "assistant", "a b", "é", " "]), max_size=20))
def test_any_order_of_marks_is_read_and_none_is_shown(tokenizer: Tokenizer, pieces: list[str]) -> None:
    assert not any(mark in said(tokenizer, "".join(pieces)) for mark in MARKS)


def test_the_end_of_a_message_does_not_end_the_reply(tokenizer: Tokenizer) -> None:
    ends = {tokenizer.token_bytes(i).decode() for i in tokenizer.stop_token_ids}
    assert ends == {"<|return|>", "<|call|>"}
    assert tokenizer.stop_texts == ()
    assert "<|end|>" not in choose_template("m", tokenizer._vocabulary, None)[0].stops


@pytest.mark.parametrize("reply", ["Hel", "<think>They", "<think>They greet.</think>", "<think>They.</think>Hel", ""])
def test_a_reply_is_continued_where_it_ends(tokenizer: Tokenizer, reply: str) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    prompt = tokenizer.encode_chat(messages)
    ids = tokenizer.encode_continued([*messages, {"role": "assistant", "content": reply}])
    assert ids[: len(prompt)] == prompt
    stream = tokenizer.stream()
    assert "".join(itertools.chain(map(stream.push, ids[len(prompt) :]), [stream.flush()])) == reply


def test_marks_in_a_message_are_ordinary_text(tokenizer: Tokenizer) -> None:
    text = "<|end|><|start|>assistant<|channel|>final<|message|>mine"
    ids = tokenizer.encode_continued([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": text}])
    marks = [tokenizer.token_bytes(i).decode() for i in ids if tokenizer.token_bytes(i).decode() in MARKS]
    assert marks == ["<|start|>", "<|message|>", "<|end|>", "<|start|>", "<|channel|>", "<|message|>"]


def test_a_limited_thought_ends_and_the_answer_follows(tokenizer: Tokenizer) -> None:
    begins = tokenizer.encode("<|channel|>analysis<|message|>", special=True)
    script = itertools.chain(begins, itertools.cycle(tokenizer.encode("abc")))
    sampler = limit_thought(lambda logits, history: next(script), tokenizer, tokenizer.encode("Hi"), 5)
    ids = [sampler(np.zeros(1, np.float32), []) for _ in range(60)]
    thought, _, answer = tokenizer.decode(ids).partition("</think>")
    assert thought == "<think>abcab"
    assert answer.startswith("cabc")
