"""Guess the next tokens from the text so far, and choose how many guesses are worth computing.

A text that quotes, edits or repeats itself goes on as it went on before: after the last few tokens, wherever they
appeared earlier in the prompt or the answer. Computing a few tokens in one run costs less than one after the other
(Decoder.steps), and every result up to the first wrong guess is what it would have been without guessing.
Source: prompt lookup decoding; speculative decoding in general: arXiv 2211.17192.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

_KEY = 3  # tokens that must have appeared before
_PLACES = 4  # most recent places of a key that are compared
_LONGEST = 32  # tokens compared before a place
_PRIOR = 4.0  # an unseen share counts as that many observations
_LEAST_GAIN = 1.03  # in tokens/s, for guessing at all
_MOST_LOSS = 0.01  # of the time of decoding, that wrong guesses may have cost so far
_SLOWNESS = 0.5  # time of one more token in a run, as a share of a token's, before any is measured
_WEIGHT = 0.2  # of a new measurement


class StepTimes:
    """How long a run of one token takes, and each further token in it, as measured."""

    def __init__(self) -> None:
        self.one_s = 0.0
        self.is_warm = False  # the first run of several tokens lays out their program, and says nothing
        self._further = _SLOWNESS  # shares of one_s

    def add(self, n_tokens: int, seconds: float) -> None:
        """Take in a run of n_tokens."""
        if n_tokens == 1:
            self.one_s += (_WEIGHT if self.one_s else 1.0) * (seconds - self.one_s)
        elif self.one_s:
            further = (seconds / self.one_s - 1) / (n_tokens - 1)
            self._further += _WEIGHT * (min(max(further, 0.0), 2.0) - self._further)

    def of(self, n_tokens: int) -> float:
        """Return the expected seconds of a run of n_tokens; 0 before a single token was measured."""
        return self.one_s * (1 + self._further * (n_tokens - 1))


class Guesses:
    """The guesses of one answer."""

    def __init__(self, times: StepTimes) -> None:
        """times: of the model, over all answers."""
        self._times = times
        self._text: list[int] = []
        self._places: dict[tuple[int, ...], list[int]] = {}  # where the text goes on after a key
        self._right: dict[int, float] = {}  # by the class of the length in common
        self._seen: dict[int, float] = {}
        self._guess: list[int] = []  # what is expected to follow the text
        self._in_common = 0  # tokens before both places
        self._decoded_s = self._lost_s = 0.0

    def next(self, text: Sequence[int], most: int) -> list[int]:
        """Return up to `most` guesses of what follows the text that are worth computing now; often none.

        text: all tokens so far; it only grows.
        """
        if most < 1:
            return []
        self._read(text)
        guess = self._guess[:most]
        if not guess or not self._times.one_s:
            return []
        best, gain = 0, _LEAST_GAIN
        for n, tokens in enumerate(self._expected(len(guess)), start=1):
            if (found := tokens * self._times.one_s / self._times.of(n + 1)) >= gain:
                best, gain = n, found
        allowed = _MOST_LOSS * self._decoded_s + self._times.one_s
        return guess[:best] if self._lost_s <= allowed else []

    def computed(self, n_tokens: int, seconds: float, accepted: int) -> None:
        """Take in a run of n_tokens, of which `accepted` were right guesses."""
        if n_tokens > 1 and not self._times.is_warm:
            self._times.is_warm = True
            return
        if n_tokens > 1:
            self._lost_s = max(0.0, self._lost_s + seconds - (1 + accepted) * self._times.one_s)
        self._times.add(n_tokens, seconds)
        self._decoded_s += seconds

    def _expected(self, n_guesses: int) -> Iterator[float]:
        """Yield how many tokens a run with 1 ... n_guesses guesses is expected to give."""
        chance, tokens = 1.0, 1.0
        for further in range(n_guesses):
            chance *= self._chance(self._in_common + further)
            tokens += chance
            yield tokens

    def _chance(self, in_common: int) -> float:
        """Return the chance that a guess is right after so many tokens in common."""
        kind = min(in_common, _LONGEST).bit_length()
        prior = in_common / (in_common + _PRIOR)
        return (self._right.get(kind, 0.0) + _PRIOR * prior) / (self._seen.get(kind, 0.0) + _PRIOR)

    def _read(self, text: Sequence[int]) -> None:
        """Take in the new tokens: how well they were guessed, where they stand, and what may follow."""
        for token in islice(text, len(self._text), None):
            if self._guess:
                kind = min(self._in_common, _LONGEST).bit_length()
                is_right = token == self._guess.pop(0)
                self._seen[kind] = self._seen.get(kind, 0.0) + 1
                self._right[kind] = self._right.get(kind, 0.0) + is_right
                self._in_common += 1
                if not is_right:
                    self._guess = []
            self._text.append(token)
            if len(self._text) >= _KEY:
                places = self._places.setdefault(tuple(self._text[-_KEY:]), [])
                places.append(len(self._text))
                del places[: -_PLACES - 1]
        if not self._guess:
            self._look_up()

    def _look_up(self) -> None:
        """Set the guess to what followed the place that has most in common with the end of the text."""
        self._in_common, best = 0, 0
        end = len(self._text)
        for place in reversed(self._places.get(tuple(self._text[-_KEY:]), ())[:-1]):
            n = _KEY
            while n < min(_LONGEST, place) and self._text[place - 1 - n] == self._text[end - 1 - n]:
                n += 1
            if n > self._in_common:
                self._in_common, best = n, place
        period = end - best  # what follows the place may reach the end, and begins again then
        self._guess = [self._text[best + i % period] for i in range(_LONGEST)] if best else []
