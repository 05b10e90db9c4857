"""Decodes JSON in short steps, so that a thread that reads a large file does not block the window.

Python's own decoder is C and holds the GIL until it is done: 0.4 s for 50 MB. Here containers are decoded in Python and
long strings in chunks. Each string is decoded from UTF-8 by itself: with one emoji, a text of the whole file would have
four bytes for each character, and 57 MB held the GIL for 0.1 to 0.4 s.
"""

from __future__ import annotations

import codecs
import re
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]  # which no stub names
from typing import Any

_utf8 = codecs.getincrementaldecoder("utf-8")
DEEPEST = 200  # levels of nesting
MOST_VALUES = 10_000_000  # texts, numbers and words: each takes some microseconds, and up to 60 bytes
STEP_BYTES = 1 << 20
_SPACE = re.compile(rb"[ \t\n\r]{0,65536}")
_WORD = re.compile(rb"[-+.0-9A-Za-z]{0,5000}")
_SHORT = re.compile(rb'"([^"\\\x00-\x1f]{0,8192})"')  # a string without escapes
# At most 4 MB of a string, without splitting surrogate pairs.
_PART = re.compile(
    rb'(?:[^"\\\x00-\x1f]{1,8192}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}'
    rb"|\\u[0-9a-fA-F]{4}|\\[^u]){0,512}+"
)


def require_utf8(data: bytes) -> None:
    """Raises UnicodeDecodeError."""
    decoder = _utf8()
    for at in range(0, len(data), STEP_BYTES):
        decoder.decode(data[at : at + STEP_BYTES])
    decoder.decode(b"", final=True)


class TooManyContainersError(ValueError):
    """The JSON has more lists and objects than the caller allows, or more than MOST_VALUES other values."""


def decoded(data: bytes, most_containers: int) -> Any:
    """Return what json.loads returns for UTF-8 with or without a BOM. Rejects NaN and Infinity, which JSON lacks.

    Raises ValueError if it is not JSON or nested deeper than DEEPEST; TooManyContainersError.
    """
    return _Reader(data, most_containers).value()


def _refuse(word: str) -> float:
    raise ValueError(word)


class _Reader:
    def __init__(self, data: bytes, most_containers: int) -> None:
        self._data, self._at = data, len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
        self._left, self._values_left = most_containers, MOST_VALUES
        self._scan = JSONDecoder(parse_constant=_refuse).scan_once  # type: ignore[attr-defined]  # of C
        self._names: dict[str, str] = {}  # one string object for equal names

    def value(self) -> Any:
        open_ones: list[tuple[list[Any] | dict[str, Any], str]] = []  # with the name of the next value
        while True:
            first = self._peek()
            if first and first in b"[{":
                self._at += 1
                self._left -= 1
                if self._left < 0:
                    raise TooManyContainersError
                if len(open_ones) == DEEPEST:
                    raise ValueError("too deep")
                new: list[Any] | dict[str, Any] = [] if first == b"[" else {}
                if self._peek() != (b"]" if first == b"[" else b"}"):
                    open_ones.append((new, self._name() if isinstance(new, dict) else ""))
                    continue
                self._at += 1
                value: Any = new
            else:
                self._values_left -= 1
                if self._values_left < 0:
                    raise TooManyContainersError
                value = self._string() if first == b'"' else self._plain()
            while open_ones:  # the value is complete, and so may be its container
                container, name = open_ones[-1]
                if isinstance(container, dict):
                    container[name] = value
                else:
                    container.append(value)
                mark = self._peek()
                self._at += 1
                if mark == b",":
                    if isinstance(container, dict):
                        open_ones[-1] = (container, self._name())
                    break
                if mark != (b"}" if isinstance(container, dict) else b"]"):
                    raise ValueError("no end")
                value = container
                open_ones.pop()
            else:
                if self._peek():
                    raise ValueError("more behind the end")
                return value

    def _peek(self) -> bytes:
        """Return the next character that is not whitespace; empty at the end."""
        while True:
            found = _SPACE.match(self._data, self._at)
            start, self._at = self._at, found.end() if found else self._at
            if self._at - start < 65536:
                return self._data[self._at : self._at + 1]

    def _plain(self) -> Any:
        word = _WORD.match(self._data, self._at)
        try:
            value, length = self._scan(word[0].decode() if word else "", 0)
        except StopIteration:
            raise ValueError("no value") from None
        self._at += length
        return value

    def _name(self) -> str:
        if self._peek() != b'"':
            raise ValueError("no name")
        name = self._string()
        if self._peek() != b":":
            raise ValueError("no value behind a name")
        self._at += 1
        return self._names.setdefault(name, name)

    def _string(self) -> str:
        if found := _SHORT.match(self._data, self._at):
            self._at = found.end()
            return found[1].decode("utf-8", "surrogatepass")
        parts, decoder = [], _utf8("surrogatepass")
        self._at += 1
        while True:
            part = _PART.match(self._data, self._at)
            end = part.end() if part else self._at
            is_last = self._data[end : end + 1] == b'"'
            if not is_last and end == self._at:
                raise ValueError("no end of a string")
            parts.append(scanstring(decoder.decode(self._data[self._at : end], is_last) + '"', 0)[0])
            self._at = end
            if is_last:
                self._at += 1
                return parts[0] if len(parts) == 1 else "".join(parts)
