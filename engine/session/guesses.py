"""Guess the next tokens from the text so far, and choose how many guesses are worth computing.

A text that quotes, edits or repeats earlier text often continues as it did there. So the guess is what followed the
last few tokens where they appeared before, in the prompt or the answer. A few tokens take less time in one run than one
after the other (Decoder.steps), and every result up to the first wrong guess is the same as without guessing.
Source: prompt lookup decoding; speculative decoding in general: arXiv 2211.17192.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

_KEY = 3  # last tokens of the text that must have appeared before
_PLACES = 4  # most recent places of a key that are compared
_LONGEST = 32  # most tokens compared before a place, and most tokens guessed
_PRIOR = 4.0  # weight of the assumed chance, in observations
_LEAST_GAIN = 1.03  # least expected tokens/s, relative to no guesses, for computing any
_MOST_LOSS = 0.01  # share of the decode time so far that wrong guesses may have cost
_FURTHER = 0.5  # time of each further token in a run, relative to a run of one token, until measured
_WEIGHT = 0.2  # of a new measurement in the moving average


class StepTimes:
    """Measured times of a run of one token, and of each further token in a run."""

    def __init__(self) -> None:
        self.one_s = 0.0
        self._further = _FURTHER  # time of a further token, as a share of one_s

    def add(self, n_tokens: int, seconds: float) -> None:
        """Record the time of a run of n_tokens."""
        if n_tokens == 1:
            self.one_s += (_WEIGHT if self.one_s else 1.0) * (seconds - self.one_s)
        elif self.one_s:
            further = (seconds / self.one_s - 1) / (n_tokens - 1)
            self._further += _WEIGHT * (min(max(further, 0.0), 2.0) - self._further)

    def of(self, n_tokens: int) -> float:
        """Return the expected seconds of a run of n_tokens; 0 before a run of one token was measured."""
        return self.one_s * (1 + self._further * (n_tokens - 1))


class Guesses:
    """The guesses of one answer."""

    def __init__(self, times: StepTimes) -> None:
        """times: of the model, shared by all its answers."""
        self._times = times
        self._text: list[int] = []
        self._places: dict[tuple[int, ...], list[int]] = {}  # by key: the indices in the text right after it
        self._right: dict[int, float] = {}  # right guesses by class of the tokens in common, as in _chance
        self._seen: dict[int, float] = {}  # all checked guesses, by the same class
        self._guess: list[int] = []  # tokens expected to follow the text
        self._in_common = 0  # equal tokens before the end of the text and before the place the guess is from
        self._decoded_s = self._lost_s = 0.0

    def next(self, text: Sequence[int], most: int) -> list[int]:
        """Return the guesses of the next tokens that are worth computing now: up to `most`, often none.

        text: all tokens so far; it only grows from call to call.
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
        """Record a run of n_tokens, of which `accepted` were right guesses."""
        if n_tokens > 1:
            self._lost_s = max(0.0, self._lost_s + seconds - (1 + accepted) * self._times.one_s)
        self._times.add(n_tokens, seconds)
        self._decoded_s += seconds

    def _expected(self, n_guesses: int) -> Iterator[float]:
        """Yield the expected number of tokens from a run with 1 ... n_guesses guesses."""
        chance, tokens = 1.0, 1.0
        for further in range(n_guesses):
            chance *= self._chance(self._in_common + further)
            tokens += chance
            yield tokens

    def _chance(self, in_common: int) -> float:
        """Return the chance that the guess after `in_common` equal tokens is right.

        Numbers of equal tokens with the same bit length form a class, which shares its observations.
        """
        kind = min(in_common, _LONGEST).bit_length()
        prior = in_common / (in_common + _PRIOR)
        return (self._right.get(kind, 0.0) + _PRIOR * prior) / (self._seen.get(kind, 0.0) + _PRIOR)

    def _read(self, text: Sequence[int]) -> None:
        """Process the new tokens: compare them with the guess, index their keys, and guess what follows."""
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
        """Set the guess to the tokens after the earlier place with the longest match to the end of the text."""
        self._in_common, best = 0, 0
        end = len(self._text)
        for place in reversed(self._places.get(tuple(self._text[-_KEY:]), ())[:-1]):
            n = _KEY
            while n < min(_LONGEST, place) and self._text[place - 1 - n] == self._text[end - 1 - n]:
                n += 1
            if n > self._in_common:
                self._in_common, best = n, place
        period = end - best  # a guess that reaches the end of the text starts again at the place
        self._guess = [self._text[best + i % period] for i in range(_LONGEST)] if best else []
