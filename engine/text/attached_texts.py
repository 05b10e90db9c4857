"""Determine how much of a message's attached texts fits the context window, and where to cut them. It does not cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

CLOSE_ENOUGH = 0.98  # of the available tokens: stop searching
STEPS = 12  # of that search, at most
LINE_SHARE = 0.1  # of what is kept, may be given up to end with a line or a word
_REMEMBERED = 64  # texts whose tokens are known


@dataclass(frozen=True)
class Portion:
    """The part of a text that fits."""

    tokens: int  # of the whole text
    kept_tokens: int
    kept_chars: int  # the beginning up to here


class AttachedTexts:
    """Counts the tokens of texts and remembers them, because a text is checked often while a message is written."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self._known: dict[bytes, int] = {}

    def portions(self, texts: Sequence[str], room: int) -> list[Portion]:
        """Return portions with at most `room` tokens in all: short texts whole, an equal share for each of the others.

        Cost: each text is encoded once; the kept part of a cut one about five times.
        """
        tokens = [self._tokens(text) for text in texts]
        shares, left = [0] * len(texts), max(room, 0)
        by_length = sorted(range(len(texts)), key=tokens.__getitem__)
        for position, i in enumerate(by_length):
            shares[i] = min(tokens[i], left // (len(texts) - position))
            left -= shares[i]
        return [self._portion(text, n, share) for text, n, share in zip(texts, tokens, shares, strict=True)]

    def _tokens(self, text: str) -> int:
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.pop(next(iter(self._known)))
            self._known[key] = len(self._encode(text))
        return self._known[key]

    def _portion(self, text: str, tokens: int, share: int) -> Portion:
        if share >= tokens:
            return Portion(tokens, tokens, len(text))
        fits, fits_tokens, too_long = 0, 0, len(text)
        at = len(text) * share // tokens
        for _ in range(STEPS):
            if share < 1 or fits_tokens >= share * CLOSE_ENOUGH or too_long - fits <= 1:
                break
            at = min(max(at, fits + 1), too_long - 1)
            n = len(self._encode(text[:at]))
            if n <= share:
                fits, fits_tokens = at, n
            else:
                too_long = at
            at = at * share // n if n else too_long - 1
        cut = _whole_words(text, fits)
        return Portion(tokens, fits_tokens if cut == fits else len(self._encode(text[:cut])), cut)


def _whole_words(text: str, end: int) -> int:
    """Return the end of the last line, or else of the last word, before `end`, if it is near."""
    least = end - int(end * LINE_SHARE)
    line = text.rfind("\n", least, end)
    if line >= 0:
        return line
    word = text.rfind(" ", least, end)
    return word if word >= 0 else end
