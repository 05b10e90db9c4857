"""Probabilities of tokens, noted while an answer is generated."""

from __future__ import annotations

import numpy as np
import pytest

from engine.config import SamplingConfig
from engine.local_api.likelihoods import Notes
from engine.session.sampling import make_sampler
from engine.text.tokenizer import TextStream

PIECES = [b"a", b"bc", b"\xc3", b"\xa9", b"", b"def"]
LOGITS = np.array([1.0, 3.0, 3.0, -2.0, 0.5, 2.0], np.float32)


def notes(alternatives: int = 2, first_char: int = 0) -> Notes:
    return Notes(alternatives, PIECES.__getitem__, TextStream(PIECES.__getitem__, False), first_char)


def write(noted: Notes, tokens: list[int]) -> None:
    """As if each of them had been chosen."""
    for token in tokens:
        sample = noted.watched(make_sampler(SamplingConfig(temperature=0)))
        logits = LOGITS.copy()
        logits[token] = 9.0
        assert sample(logits, []) == token
        noted.token(token)


def test_they_are_the_models_own_and_the_likeliest_come_first() -> None:
    noted = notes(alternatives=3)
    assert noted.watched(make_sampler(SamplingConfig(temperature=0, repeat_penalty=5.0, top_k=1)))(LOGITS, [1, 2]) == 5
    noted.token(5)
    (one,) = noted.tokens_of("def", is_last=True)
    expected = np.log(np.exp(LOGITS) / np.exp(LOGITS).sum())
    assert one.logprob == pytest.approx(expected[5], abs=1e-6)
    assert [other.spelt for other in one.others] == [PIECES[1], PIECES[2], PIECES[5]]
    assert [other.logprob for other in one.others] == pytest.approx(list(expected[[1, 2, 5]]), abs=1e-6)


def test_a_token_is_told_with_its_text_and_those_of_a_stop_text_never() -> None:
    noted = notes(alternatives=0)
    write(noted, [0])
    assert [one.text for one in noted.tokens_of("a")] == ["a"]
    write(noted, [1])
    assert noted.tokens_of("") == ()  # held back: it may become the beginning of a stop text
    write(noted, [5])
    assert [one.text for one in noted.tokens_of("b", is_last=True)] == ["bc"]  # "cdef" was the stop text


def test_halves_of_characters_and_invisible_tokens_are_told_in_the_end() -> None:
    noted = notes(alternatives=0, first_char=8)
    write(noted, [2])
    assert noted.tokens_of("<think>\n") == ()
    write(noted, [3])
    assert [(one.spelt, one.start) for one in noted.tokens_of("é")] == [(b"\xc3", 8), (b"\xa9", 8)]
    write(noted, [4])
    assert [(one.spelt, one.start) for one in noted.tokens_of("", is_last=True)] == [(b"", 9)]
