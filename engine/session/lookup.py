"""Guess the next tokens by looking up the last few tokens where they appeared before.

A text that quotes, edits or repeats earlier text often continues as it did there. So the guess is what followed the
last few tokens in the prompt or the answer. Source: prompt lookup decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

_KEY = 3  # last tokens of the text that must have appeared before
_PLACES = 4  # most recent places of a key that are compared
_LONGEST = 32  # most tokens compared before a place, and most tokens guessed
_PRIOR = 4.0  # weight of the assumed chance, in observations


class Lookup:
    """A Guesser by lookup. A guess costs a few microseconds, which count as none."""

    name = "lookup"

    def __init__(self) -> None:
        self._text: list[int] = []
        self._places: dict[tuple[int, ...], list[int]] = {}  # by key: the indices in the text right after it
        self._right: dict[int, float] = {}  # right guesses by class of the tokens in common, as in _chance
        self._seen: dict[int, float] = {}  # all checked guesses, by the same class
        self._guess: list[int] = []  # tokens expected to follow the text
        self._in_common = 0  # equal tokens before the end of the text and before the place the guess is from

    def read(self, text: Sequence[int]) -> None:
        """As Guesser.read: compare the new tokens with the guess, index their keys, and guess what follows."""
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

    def prepare(self) -> None:
        """As Guesser.prepare: there is nothing to compute."""

    def chances(self, most: int) -> list[float]:
        return [self._chance(self._in_common + further) for further in range(min(most, len(self._guess)))]

    def seconds(self, n_guesses: int) -> float:
        return 0.0

    def guess(self) -> Iterator[tuple[int, float]]:
        for further, token in enumerate(self._guess):
            yield token, self._chance(self._in_common + further)

    def computed(self, n_tokens: int, accepted: int) -> None:
        """As Guesser.computed: `read` compares every guess with the text, whether it was computed or not."""

    def _chance(self, in_common: int) -> float:
        """Return the chance that the guess after `in_common` equal tokens is right.

        Numbers of equal tokens with the same bit length form a class, which shares its observations.
        """
        kind = min(in_common, _LONGEST).bit_length()
        prior = in_common / (in_common + _PRIOR)
        return (self._right.get(kind, 0.0) + _PRIOR * prior) / (self._seen.get(kind, 0.0) + _PRIOR)

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
