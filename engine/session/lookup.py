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
_NEAR = 4  # tokens after a wrong guess among which the right one is looked for
_PRIOR = 4.0  # weight of the assumed chance, in observations


class Lookup:
    """A Guesser by lookup. A guess costs a few microseconds, which count as none.

    After a wrong guess it goes on at the same place, as in a text with edits: behind the token, if the earlier text has
    it soon, else as if one token was replaced.
    """

    name = "lookup"

    def __init__(self) -> None:
        self._text: list[int] = []
        self._places: dict[tuple[int, ...], list[int]] = {}  # by key: the indices in the text right after it
        self._right: dict[int, float] = {}  # right guesses by class of the tokens in common, as in _chance
        self._seen: dict[int, float] = {}  # all checked guesses, by the same class
        self._place = 0  # index in the text of the next guess; 0: none
        self._in_common = 0  # equal tokens before the end of the text and before that place

    def read(self, text: Sequence[int]) -> None:
        """As Guesser.read: compare the new tokens with the guesses, index their keys, and find the next place."""
        for token in islice(text, len(self._text), None):
            if self._place:
                kind, is_right = min(self._in_common, _LONGEST).bit_length(), token == self._text[self._place]
                self._seen[kind] = self._seen.get(kind, 0.0) + 1
                self._right[kind] = self._right.get(kind, 0.0) + is_right
                if is_right:
                    self._place, self._in_common = self._place + 1, self._in_common + 1
                else:
                    self._go_on(token)
            self._text.append(token)
            if len(self._text) >= _KEY:
                places = self._places.setdefault(tuple(self._text[-_KEY:]), [])
                places.append(len(self._text))
                del places[: -_PLACES - 1]
        if self._in_common <= 2 * _KEY:
            self._look_up()

    def prepare(self) -> None:
        """As Guesser.prepare: there is nothing to compute."""

    def chances(self, most: int) -> list[float]:
        return [self._chance(self._in_common + further) for further in range(min(most, _LONGEST) if self._place else 0)]

    def seconds(self, n_guesses: int) -> float:
        return 0.0

    def guess(self) -> Iterator[tuple[int, float]]:
        period = len(self._text) - self._place  # a guess that reaches the end of the text starts again at the place
        for further in range(_LONGEST if self._place else 0):
            yield self._text[self._place + further % period], self._chance(self._in_common + further)

    def computed(self, n_tokens: int, accepted: int) -> None:
        """As Guesser.computed: `read` compares every guess with the text, whether it was computed or not."""

    def _chance(self, in_common: int) -> float:
        """Return the chance that the guess after `in_common` equal tokens is right.

        Numbers of equal tokens with the same bit length form a class, which shares its observations.
        """
        kind = min(in_common, _LONGEST).bit_length()
        prior = in_common / (in_common + _PRIOR)
        return (self._right.get(kind, 0.0) + _PRIOR * prior) / (self._seen.get(kind, 0.0) + _PRIOR)

    def _go_on(self, token: int) -> None:
        """Set the place after a wrong guess, for which the text has this token; 0 after two wrong guesses in a row."""
        place, is_first = self._place, self._in_common > 0
        near = self._text[place - (not is_first) : place + _NEAR]
        if token in near:
            self._place, self._in_common = place - (not is_first) + near.index(token) + 1, 1
        else:
            self._place, self._in_common = (place + 1 if is_first else 0), 0
        if self._place >= len(self._text):
            self._place = 0

    def _look_up(self) -> None:
        """Go to the earlier place with the longest match to the end of the text, if it is longer than the current."""
        end = len(self._text)
        for place in reversed(self._places.get(tuple(self._text[-_KEY:]), ())[:-1]):
            n = _KEY
            while n < min(_LONGEST, place) and self._text[place - 1 - n] == self._text[end - 1 - n]:
                n += 1
            if n > self._in_common:
                self._in_common, self._place = n, place
