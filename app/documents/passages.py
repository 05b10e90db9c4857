"""Divide a document into passages: what the search finds and what an answer names as its source. No Qt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.documents.reading.document import Part

WANTED_CHARS, MOST_CHARS = 900, 1_500
_HEADING_FROM_CHARS = 250  # a heading begins a new passage after this many characters
_HEADING = re.compile(r"\n*(#{1,6})[ \t]+(\S.*)")
_BLOCK = re.compile(r"(?:[^\n]|\n(?![ \t]*\n))+\n?|\n+")
_ENDS = ("\n", ". ", "! ", "? ", "。", "; ", ", ", " ")  # where a long block is cut, best first
_LONGEST_HEADING = 120


@dataclass(frozen=True)
class Passage:
    """A section of a part's text. The passages of a part, joined, are its text.

    part: its page, slide, sheet or chapter, from 1. name: of the part. heading: the headings above it.
    line: its first line in the part, from 1.
    """

    part: int
    name: str
    heading: str
    line: int
    text: str


def divided(parts: Sequence[Part]) -> list[Passage]:
    """Return the passages of a document, in order. Cost: linear."""
    return [passage for part in parts for passage in _of(part)]


def _of(part: Part) -> Iterator[Passage]:
    headings: dict[int, str] = {}  # by level
    text, line, above = "", 1, ""
    for block in _blocks(part.text):
        heading = _HEADING.match(block)
        if text.strip() and (
            len(text) + len(block) > MOST_CHARS
            or len(text) >= WANTED_CHARS
            or (heading is not None and len(text) >= _HEADING_FROM_CHARS)
        ):
            yield Passage(part.number, part.name, above, line, text)
            line += text.count("\n")
            text = ""
        if heading is not None:
            level = len(heading[1])
            headings = {at: name for at, name in headings.items() if at < level}
            headings[level] = heading[2].strip()[:_LONGEST_HEADING]
        if not text.strip():
            above = " · ".join(headings.values())
        text += block
    if text.strip():
        yield Passage(part.number, part.name, above, line, text)


def _blocks(text: str) -> Iterator[str]:
    """Yield paragraphs and the blank lines between them; a long paragraph in several pieces."""
    for found in _BLOCK.finditer(text):
        block = found[0]
        while len(block) > MOST_CHARS:
            at = _cut_at(block)
            yield block[:at]
            block = block[at:]
        yield block


def _cut_at(block: str) -> int:
    for end in _ENDS:
        at = block.rfind(end, WANTED_CHARS // 2, WANTED_CHARS)
        if at >= 0:
            return at + len(end)
    return WANTED_CHARS
