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


# Kimi K3's format: a thought, the answer and calls of tools are sections of one message, with tags of special tokens.
KIMI_MARKS = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
KIMI_HEADER = "<|open|>response<|sep|>"
_DROPPED = (KIMI_HEADER, "<|close|>response<|sep|>", "<|close|>message<|sep|>")


class KimiStream(TextStream):
    """A TextStream that omits the tags of the answer and of the message. bytes_of: KIMI_MARKS have their texts."""

    _held = ""  # text that may be the beginning of a tag

    def _decode(self, data: bytes, final: bool) -> str:
        text = self._held + super()._decode(data, final)
        for tag in _DROPPED:
            text = text.replace(tag, "")
        start = text.rfind("<|")
        is_open = not final and start >= 0 and any(tag.startswith(text[start:]) for tag in _DROPPED)
        text, self._held = (text[:start], text[start:]) if is_open else (text, "")
        return text
