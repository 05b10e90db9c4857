"""Whether a pattern of a tokenizer.json costs much more than the text is long: such a one is refused, not run.

Patterns that published families cut by are known (engine/text/splitting.py) and pass. Another is tried once on texts
of growing length; the regex engine gives up by itself after ten million steps, so that each try is bounded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

from engine.errors import UnsupportedModelError
from engine.text.splitting import known_patterns

_LENGTHS = (16, 256, 1024, 4096)
_FLOOR_S = 0.010  # a linear pattern takes 0.3 to 2 ms for 4096 letters
_MOST_RATIO = 9.0  # of the cost of four times the text: linear is 4, quadratic 16
_MOST_PATTERNS = 32
_PUBLISHED = frozenset({r"\s+$"})  # DeepSeek's first models


def check_patterns(parts: object, origin: str, clock: Callable[[], float] = time.thread_time) -> None:
    """Refuse a normalizer or pre-tokenizer with a pattern whose cost outgrows the text.

    parts: as the JSON has them. Raises: UnsupportedModelError.
    """
    found = set(_patterns(parts)) - known_patterns() - _PUBLISHED
    if len(found) > _MOST_PATTERNS:
        raise UnsupportedModelError(f"{origin} has {len(found)} patterns; at most {_MOST_PATTERNS} are accepted.")
    for pattern in sorted(found):
        if _outgrows(pattern, clock):
            raise UnsupportedModelError(
                f"{origin} cuts text by the pattern {pattern[:80]!r}, whose cost grows much faster than the text: a long"
                " message would stop Hearth. Take the model from another source, or as a GGUF file."
            )


def _patterns(part: object, depth: int = 0) -> Iterator[str]:
    if depth > 16:
        return
    if isinstance(part, dict):
        regex = part.get("Regex")
        if isinstance(regex, str):
            yield regex
        for inner in part.values():
            yield from _patterns(inner, depth + 1)
    elif isinstance(part, list):
        for inner in part:
            yield from _patterns(inner, depth + 1)


def _outgrows(pattern: str, clock: Callable[[], float]) -> bool:
    from tokenizers import Regex, pre_tokenizers

    try:
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    except Exception:
        return False  # no pattern: reading the file says so
    own = "".join(dict.fromkeys(re.sub(r"\\.", "", pattern)))[:16]
    for unit in dict.fromkeys([*" \naA1!漢", *own, "a ", "a1"]):
        for end in ("", "x", "!"):
            before = 0.0
            for length in _LENGTHS:
                started = clock()
                try:
                    split.pre_tokenize_str(unit * (length // len(unit)) + end)
                except BaseException as error:
                    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                        return True  # the regex engine gave up
                    raise
                took = clock() - started
                if took > _FLOOR_S and took > _MOST_RATIO * before:
                    return True
                before = took
    return False
