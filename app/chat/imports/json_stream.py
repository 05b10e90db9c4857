"""Reads the values of a JSON file of any size, one at a time.

The file is one array of chats, or one chat. Memory is bounded by the largest value, at most MOST_VALUE_CHARS. A value
that is damaged, too deep or too large is skipped, and reading continues behind it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from json.decoder import JSONDecodeError, JSONDecoder
from typing import Any, BinaryIO

CHUNK_BYTES = 16 << 20
MOST_VALUE_CHARS = 256 << 20
MOST_CONTAINERS = 8_000_000  # lists and objects of one value: each takes about 100 bytes
_OUTSIDE, _INSIDE = re.compile(r'["\[\]{},]'), re.compile(r'["\\]')
_NO_SPACE = re.compile(r"[^ \t\n\r]")


class NotJsonError(ValueError):
    """The file does not begin with a JSON array or object."""


@dataclass(frozen=True)
class Skipped:
    """A value that was not read. why: "damaged" or "large"."""

    why: str


class JsonStream:
    """The values of one file. is_cut: the file ended before its last value or its array did."""

    def __init__(self, stream: BinaryIO, read: Callable[[int], None] = lambda n: None) -> None:
        """read: called with the number of bytes of each chunk."""
        self._stream, self._read = stream, read
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")  # a bad byte costs a character, not a chat
        self._scan = JSONDecoder().scan_once  # type: ignore[attr-defined]  # which no stub names
        self._text, self._at, self._ended = "", 0, False
        self.is_cut = False

    def values(self) -> Iterator[Any]:
        """Yield the values of the array, or the only object. A value that cannot be read is a Skipped.

        Raises NotJsonError, and OSError and zipfile.BadZipFile of the stream.
        """
        first = self._next_mark()
        if first == "{":
            yield self._value()
            return
        if first != "[":
            raise NotJsonError
        self._at += 1
        while (mark := self._next_mark()) != "]":
            if not mark:
                self.is_cut = True
                return
            if mark == ",":
                self._at += 1
            else:
                yield self._value()

    def _next_mark(self) -> str:
        """Move to the next character that is not white space, and return it; "" at the end."""
        while True:
            if found := _NO_SPACE.search(self._text, self._at):
                self._at = found.start()
                return found[0]
            self._at = len(self._text)
            if not self._more():
                return ""

    def _more(self, size: int = 0) -> bool:
        """Read on, and drop the text that was used. size: in bytes; 0: a chunk. Returns False at the end."""
        if self._ended:
            return False
        data = self._stream.read(size or CHUNK_BYTES)
        self._ended = not data
        self._read(len(data))
        self._text = self._text[self._at :] + self._decoder.decode(data, final=self._ended)
        self._at = 0
        return True

    def _value(self) -> Any:
        size = CHUNK_BYTES
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except (StopIteration, JSONDecodeError) as error:
                if not self._ended and self._may_be_cut(error):
                    if not self._grow(size):
                        return self._skip("large")
                    size *= 2
                    continue
                return self._skip("damaged")
            except (ValueError, RecursionError):  # a number of thousands of digits; nested too deep
                return self._skip("damaged")
            except MemoryError:
                return self._skip("large")
            if end == len(self._text) and not self._ended:  # a number may continue
                self._more()
                continue
            self._at = end
            return value

    def _grow(self, size: int) -> bool:
        """Read on in a value. Returns False if it is too large."""
        length = len(self._text) - self._at
        containers = self._text.count("[", self._at) + self._text.count("{", self._at)
        if length > MOST_VALUE_CHARS or containers > MOST_CONTAINERS:
            return False
        self._more(min(size, MOST_VALUE_CHARS + 1 - length))
        return True

    def _may_be_cut(self, error: StopIteration | JSONDecodeError) -> bool:
        """Whether the text after this could make the value whole."""
        if isinstance(error, StopIteration):
            return int(error.value) >= len(self._text) - 16
        return error.pos >= len(self._text) - 16 or error.msg.startswith("Unterminated string")

    def _skip(self, why: str) -> Skipped:
        """Move behind the value that begins here, by its brackets and quotes alone."""
        depth, in_string = 0, False
        while True:
            found = (_INSIDE if in_string else _OUTSIDE).search(self._text, self._at)
            if found is None:
                self._at = len(self._text)
                if not self._more():
                    self.is_cut = True
                    return Skipped(why)
                continue
            mark, self._at = found[0], found.end()
            if in_string:
                if mark == '"':
                    in_string = False
                elif self._at == len(self._text):  # the escaped character is in the next chunk
                    self._more()
                    self._at = min(1, len(self._text))
                else:
                    self._at += 1
                continue
            if mark == '"':
                in_string = True
            elif mark in "[{":
                depth += 1
            elif mark in "]}" and depth > 0:
                depth -= 1
                if depth == 0:
                    return Skipped(why)
            elif depth == 0 and mark in ",]":
                self._at -= 1
                return Skipped(why)
