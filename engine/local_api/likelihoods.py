"""Probabilities of an answer's tokens and of their alternatives, recorded while tokens are chosen.

They are the model's own: from its logits before temperature, penalties and the like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.session.sampling import Sampler, forced_tokens
from engine.text.tokenizer import TextStream

Logits = NDArray[np.float32]  # [V]


@dataclass(frozen=True)
class Likelihood:
    """A token as bytes, and the logarithm of its probability."""

    spelt: bytes
    logprob: float

    @property
    def text(self) -> str:
        return self.spelt.decode("utf-8", "replace")


@dataclass(frozen=True)
class TokenLikelihood(Likelihood):
    """The probabilities of one token in an answer. start: the position of its text, in characters. others: the most
    likely ones.
    """

    start: int = 0
    others: tuple[Likelihood, ...] = ()


class Notes:
    """The probabilities of one answer. Generate it with a sampler from `watched`; `tokens_of` returns the tokens
    whose text was sent.
    """

    def __init__(
        self, alternatives: int, spelt: Callable[[int], bytes], stream: TextStream, first_char: int = 0
    ) -> None:
        """spelt: a token's bytes. stream: like the answer's own, to find where each token's text begins; the first at
        `first_char`, after text without a chosen token.
        """
        self._alternatives, self._spelt, self._stream = alternatives, spelt, stream
        self._noted: tuple[int, Logits] | None = None  # the token chosen last, and the likelihoods beside it
        self._waiting: list[TokenLikelihood] = []
        self._chars, self._shown_chars = first_char, 0

    def watched(self, sampler: Sampler) -> Sampler:
        """Return a sampler that also records each choice and its logits. Cost: a pass over the logits per token."""
        return _Watched(self, sampler)

    def choose(self, sampler: Sampler, logits: Logits, history: Sequence[int]) -> int:
        token = sampler(logits, history)
        self._noted = token, _log_softmax(logits)
        return token

    def token(self, token: int) -> None:
        assert self._noted is not None, "the sampler chose it"
        chosen, logprobs = self._noted
        assert chosen == token, "the sampler chose it"
        others = tuple(self._likelihood(int(i), logprobs) for i in _likeliest(logprobs, self._alternatives))
        one = self._likelihood(token, logprobs)
        self._waiting.append(TokenLikelihood(one.spelt, one.logprob, self._chars, others))
        self._chars += len(self._stream.push(token))

    def tokens_of(self, text: str, is_last: bool = False) -> tuple[TokenLikelihood, ...]:
        """Return the tokens of this text, which follows the previously sent text. Tokens of a stop text are never
        included.
        """
        self._shown_chars += len(text)
        everything = is_last and self._shown_chars >= self._chars
        n = sum(everything or token.start < self._shown_chars for token in self._waiting)
        shown, self._waiting = self._waiting[:n], self._waiting[n:]
        return tuple(shown)

    def _likelihood(self, token: int, logprobs: Logits) -> Likelihood:
        return Likelihood(self._spelt(token), float(logprobs[token]))


@dataclass(frozen=True)
class _Watched:
    notes: Notes
    sampler: Sampler

    def __call__(self, logits: Logits, history: Sequence[int]) -> int:
        return self.notes.choose(self.sampler, logits, history)

    def forced(self, history: Sequence[int]) -> list[int]:
        return forced_tokens(self.sampler, history)


def _log_softmax(logits: Logits) -> Logits:
    shifted = logits.astype(np.float64) - float(logits.max())
    found: Logits = (shifted - np.log(np.exp(shifted).sum())).astype(np.float32)
    return found


def _likeliest(logprobs: Logits, n: int) -> NDArray[np.int64]:
    """Return the ids of the n largest, largest first, the lower id first among equals."""
    if not n:
        return np.empty(0, np.int64)
    n = min(n, logprobs.size)
    floor = np.partition(logprobs, logprobs.size - n)[logprobs.size - n]
    candidates = np.flatnonzero(logprobs >= floor)
    return candidates[np.argsort(-logprobs[candidates], kind="stable")[:n]]
