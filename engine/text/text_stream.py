"""Turn the tokens of a reply into text while they arrive."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class TextStream:
    """Turns token ids, one at a time, into text that never ends within a character.

    The results of `push`, joined, plus `flush`, equal `Tokenizer.decode` of the same ids. Cost: O(bytes of the token)
    per push; nothing is decoded twice.
    """

    def __init__(self, bytes_of: Callable[[int], bytes], strip_first_space: bool) -> None:
        self._bytes_of = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip_first_space = strip_first_space

    def push(self, token_id: int) -> str:
        """Return the characters that this token completes, possibly none."""
        return self._decode(self._bytes_of(token_id), False)

    def flush(self) -> str:
        """Return the rest of an incomplete character as U+FFFD, and restart the stream."""
        return self._decode(b"", True)

    def _decode(self, data: bytes, final: bool) -> str:
        if self._strip_first_space and data:
            self._strip_first_space = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data, final)
