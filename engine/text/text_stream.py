"""Turn the tokens of a reply into text while they arrive."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass


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


@dataclass(frozen=True)
class Spelling:
    """How a model spells its replies.

    opening, end: of a thought, which is shown between <think> and </think>; "": as thoughts.MARKS has it. header: of
    the answer. dropped: texts that are not shown. last: not shown either, at the end of a reply. marks: the special
    tokens of these texts.
    """

    opening: str = ""
    end: str = ""
    header: str = ""
    dropped: tuple[str, ...] = ()
    last: str = ""
    marks: tuple[str, ...] = ()

    @property
    def tags(self) -> dict[str, str]:
        """The text shown in place of each tag."""
        spelt = {self.opening: "<think>", self.end: "</think>"} if self.opening else {}
        return spelt | dict.fromkeys(self.dropped, "")

    def own(self, mark: str) -> str:
        """Return the model's own text for a mark that is shown."""
        return next((text for text, shown in self.tags.items() if shown == mark), mark)


# Kimi K3: a thought, the answer and calls of tools are sections of one message, with tags of special tokens.
KIMI_MARKS = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
_KIMI_HEADER = "<|open|>response<|sep|>"
KIMI = Spelling(
    header=_KIMI_HEADER, dropped=(_KIMI_HEADER, "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
    marks=KIMI_MARKS[:3],
)  # fmt: skip
# Solar Open: a thought, the answer and calls of tools are messages of their own.
_SOLAR_HEADER = "<|content|>"
SOLAR = Spelling(
    header=_SOLAR_HEADER, dropped=(_SOLAR_HEADER,), last="<|end|>",
    marks=("<|begin|>", "<|think|>", _SOLAR_HEADER, "<|end|>"),
)  # fmt: skip
SOLAR_ENDS = ("<|flush|>", "<|calls|>")
# Apriel: texts without special tokens, so only its chat template tells.
APRIEL = Spelling("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", dropped=("[END FINAL RESPONSE]",))


class TagStream(TextStream):
    """A TextStream of replies in a spelling. bytes_of: the tokens of Spelling.marks have their texts.

    The opening counts at the beginning of a reply, and the first end alone: later ones are plain text.
    """

    _held = ""  # text that may be the beginning of a tag

    def __init__(self, bytes_of: Callable[[int], bytes], strip_first_space: bool, spelling: Spelling) -> None:
        super().__init__(bytes_of, strip_first_space)
        self._tags, self._opening, self._last = spelling.tags, spelling.opening, spelling.last

    def _decode(self, data: bytes, final: bool) -> str:
        text = self._held + super()._decode(data, final)
        begun, opening = text.lstrip(), self._opening
        if begun and not begun.startswith(opening) and not opening.startswith(begun):
            self._tags.pop(opening, None)
        for tag, shown in [*self._tags.items()]:
            if shown and tag in text:
                del self._tags[tag]
            text = text.replace(tag, shown, 1 if shown else -1)
        if final:
            self._held = ""
            return text.removesuffix(self._last)
        longest = max(map(len, (*self._tags, self._last)))
        tail = range(max(0, len(text) - longest), len(text))
        at = next((i for i in tail if any(tag.startswith(text[i:]) for tag in (*self._tags, self._last))), len(text))
        self._held = text[at:]
        return text[:at]
