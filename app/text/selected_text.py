"""A selection over several messages, as positions and strings, and the text that is copied.

The texts of a message are numbered; selection.py knows their widgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

FAR = 2**31 - 1  # a position after the end of any text


class Place(NamedTuple):
    """A position between two characters: index of the message, of the text in it, and position in the text."""

    message: int
    text: int
    position: int


@dataclass(frozen=True)
class Selection:
    """Everything between two places. The anchor is where the selection began; the caret follows the pointer."""

    anchor: Place
    caret: Place

    @property
    def start(self) -> Place:
        return min(self.anchor, self.caret)

    @property
    def end(self) -> Place:
        return max(self.anchor, self.caret)

    @property
    def is_empty(self) -> bool:
        return self.anchor == self.caret

    def within(self, message: int, text: int) -> tuple[int, int] | None:
        """Return start and end of the selected part of a text (FAR: its end); None: nothing is selected."""
        here = (message, text)
        if self.is_empty or not self.start[:2] <= here <= self.end[:2]:
            return None
        first = self.start.position if here == self.start[:2] else 0
        end = self.end.position if here == self.end[:2] else FAR
        return (first, end) if first < end else None


def whole_message(index: int) -> Selection:
    return Selection(Place(index, 0, 0), Place(index, FAR, FAR))


class Cut(NamedTuple):
    """The selected part of one block as plain text, and whether it is the whole block."""

    text: str
    whole: bool


def cut(texts: Sequence[str], full: str, start: int, end: int) -> list[Cut] | None:
    """Return the part of each block between two offsets of the full text, which shows all blocks in order.

    None: a block's text is not in the full text.
    """
    out: list[Cut] = []
    begin = 0
    for text in texts:
        begin = full.find(text, begin)
        if begin < 0:
            return None
        first, last = max(start - begin, 0), min(end - begin, len(text))
        out.append(Cut(text[first:last] if first < last else "", first == 0 and last == len(text)))
        begin += len(text)
    return out


def markdown_of(sources: Sequence[tuple[str, int]], cuts: Sequence[Cut]) -> str | None:
    """Return the Markdown of a selection: the source of each whole block, else its selected text.

    sources: Markdown of each top-level block of the message, and the number of `cuts` that show it. None: they do not
    match.
    """
    if sum(count for _, count in sources) != len(cuts):
        return None
    out: list[str] = []
    place = 0
    for source, count in sources:
        shown = cuts[place : place + count]
        place += count
        if not any(part.text for part in shown):
            continue
        if all(part.whole for part in shown):
            out.append(source)
        else:
            out.append("\n\n".join(part.text.strip("\n") for part in shown if part.text))
    return "\n\n".join(out)


class Passage(NamedTuple):
    """The selected part of one message. own: the user's message."""

    plain: str
    markdown: str
    html: str = ""
    own: bool = False


def plain_text(passages: Iterable[Passage]) -> str:
    """Return the passages as plain text, with a blank line between messages."""
    return "\n\n".join(passage.plain for passage in passages if passage.plain)


def markdown_text(passages: Sequence[Passage]) -> str:
    """Return the passages as Markdown. Besides other messages, the user's text is quoted, as in an exported chat."""
    several = len(passages) > 1
    return "\n\n".join(
        quoted(passage.markdown) if passage.own and several else passage.markdown
        for passage in passages
        if passage.markdown
    )


def html_text(passages: Sequence[Passage]) -> str:
    """Return the passages as HTML. Besides other messages, the user's text is quoted."""
    several = len(passages) > 1
    return "\n".join(
        f"<blockquote>{passage.html}</blockquote>" if passage.own and several else passage.html for passage in passages
    )


def quoted(text: str) -> str:
    """Return text as a Markdown quote."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
