"""Refuse patterns of a tokenizer.json whose cost grows much faster than the text.

Patterns of published families (engine/text/splitting.py) are accepted. Others are tried on texts of two lengths. The
regex engine gives up after ten million steps, so each try is bounded.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator

from engine.errors import UnsupportedModelError
from engine.text.splitting import known_patterns

_SHORT, _LONG = 512, 8192  # characters
_FLOOR_S = 0.008  # for the long text; below that times say little. A linear pattern takes 0.6 to 6 ms
_MOST_RATIO = 40.0  # of the cost of 16 times the text: linear is 16, quadratic 256; a busy CPU doubles either cost
_CERTAIN_RATIO = 100.0  # below it, four times the long text decides: memory for many pieces can cost a ratio of 50
_MOST_LAST_RATIO = 9.0  # of the cost of four times the text: linear patterns take up to 7, quadratic ones 12 to 16
_TRIES = 3  # of which the least counts: a busy machine refuses nothing
_MORE_TRIES = 12  # before a refusal: on a shared machine several tries in a row may take twice as long
_MOST_SECONDS = 2.0  # CPU time of this thread per pattern; texts not tried by then do not count against it
_MOST_PATTERNS = 32
_PUBLISHED = frozenset({r"\s+$"})  # DeepSeek's first models

# Windows counts a thread's CPU time in ticks of 15.6 ms, so a short text would cost nothing there.
_clock = time.perf_counter if sys.platform == "win32" else time.thread_time

Cost = Callable[[str, str], float]  # (pattern, text) -> seconds; infinite where the regex engine gave up


def cost_of(pattern: str, text: str) -> float:
    """Return the seconds to split the text by the pattern: this thread's CPU time, and elapsed time on Windows.

    Raises: ValueError for an invalid pattern.
    """
    from tokenizers import Regex, pre_tokenizers

    try:
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    except Exception as error:
        raise ValueError(pattern) from error
    started = _clock()
    try:
        split.pre_tokenize_str(text)
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":  # Rust's, no Exception
            return float("inf")
        raise
    return _clock() - started


def check_patterns(parts: object, origin: str, cost: Cost = cost_of) -> None:
    """Refuse a normalizer or pre-tokenizer with a pattern whose cost outgrows the text.

    parts: as in the JSON. Raises: UnsupportedModelError.
    """
    found = set(_patterns(parts)) - known_patterns() - _PUBLISHED
    if len(found) > _MOST_PATTERNS:
        raise UnsupportedModelError(f"{origin} has {len(found)} patterns; at most {_MOST_PATTERNS} are accepted.")
    for pattern in sorted(found):
        until = time.thread_time() + _MOST_SECONDS
        try:
            refused = any(_outgrows(pattern, unit, end, cost) for unit, end in _texts(pattern, until))
        except ValueError:
            continue  # reading the file says that it is not a pattern
        if refused:
            raise UnsupportedModelError(
                f"{origin} splits text by the pattern {pattern[:80]!r}. Its cost grows much faster than the text, so "
                "a long message would stop Hearth.",
                "Take the model from another source, or as a GGUF file.",
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


def _texts(pattern: str, until: float) -> Iterator[tuple[str, str]]:
    """Yield what to repeat and what to end with: the letters in the pattern, also in pairs, and some of each kind."""
    own = "".join(dict.fromkeys(re.sub(r"\\.", "", pattern)))[:16]
    own_units = [own[i : i + n] for i in range(len(own)) for n in (1, 2)]
    for unit in dict.fromkeys([*own_units, *" \naA1!漢", "a ", "a1"]):
        for end in ("", "x", "!", "!" + own):  # all letters that a match needs are there, and there is none before
            if time.thread_time() > until:
                return
            yield unit, end


def _outgrows(pattern: str, unit: str, end: str, cost: Cost) -> bool:
    def least(length: int, tries: int) -> float:
        return min(cost(pattern, unit * (length // len(unit)) + end) for _ in range(tries))

    first = cost(pattern, unit * (_LONG // len(unit)) + end)
    if first <= _FLOOR_S or first == float("inf"):
        return first > _FLOOR_S
    for tries in (_TRIES, _MORE_TRIES):
        long, short = least(_LONG, tries), least(_SHORT, tries)
        if long <= _FLOOR_S or long <= _MOST_RATIO * short:
            return False
        if long > _CERTAIN_RATIO * short:
            return True
    return least(4 * _LONG, _TRIES) > _MOST_LAST_RATIO * long
