"""How much of the texts attached to a message the context has room for. It cuts nothing: it says where to cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

CLOSE_ENOUGH = 0.98  # of the tokens there is room for: no further search then
STEPS = 12  # of that search, at most
LINE_SHARE = 0.1  # of what is kept may be given up for ending with a line or a word
_REMEMBERED = 64  # texts whose tokens are known


@dataclass(frozen=True)
class Portion:
    """What of a text there is room for."""

    tokens: int  # of the whole text
    kept_tokens: int
    kept_chars: int  # the beginning up to here


class AttachedTexts:
    """Counts texts, and remembers how many tokens each has: a text is looked at often while a message is written."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self._known: dict[bytes, int] = {}

    def portions(self, texts: Sequence[str], room: int) -> list[Portion]:
        """Portions that together have at most `room` tokens: short texts whole, the others an equal share each.

        Cost: every text is encoded once in its life, and what is kept of one that is cut some five times.
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
    """The end of the last line, or else of the last word, before `end`, where it is near."""
    least = end - int(end * LINE_SHARE)
    line = text.rfind("\n", least, end)
    if line >= 0:
        return line
    word = text.rfind(" ", least, end)
    return word if word >= 0 else end
