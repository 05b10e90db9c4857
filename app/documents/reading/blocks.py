"""A document's text as it is written, block by block: paragraphs, headings, items of lists and tables."""

from __future__ import annotations

from collections.abc import Sequence

_DEEPEST_ITEM = 8


class Full(Exception):  # noqa: N818 - no error
    """Raised when the text has reached its limit."""


class Blocks:
    """Collects blocks until there are more than `most` characters. Items of a list, and rows of a table, follow each
    other closely.
    """

    def __init__(self, most: int) -> None:
        self._parts: list[str] = []
        self._left = most
        self._group = ""  # of the last block

    def add(self, text: str, level: int = 0) -> None:
        """Add a paragraph, or a heading of a level. Raises Full."""
        if text := text.strip():
            self._put(f"{'#' * min(level, 6)} {' '.join(text.split())}" if level else text)

    def add_item(self, text: str, depth: int = 0, mark: str = "-") -> None:
        """Add an item of a list. Raises Full."""
        if text := text.strip():
            self._put(f"{'  ' * min(depth, _DEEPEST_ITEM)}{mark} {text}".rstrip(), "items")

    def add_row(self, cells: Sequence[str]) -> None:
        """Add a row of a table. Raises Full."""
        if text := row(cells):
            self._put(text, "rows")

    def end_group(self) -> None:
        """Let the next item or row belong to another list or table."""
        self._group = ""

    def _put(self, text: str, group: str = "") -> None:
        if self._parts:
            self._parts.append("\n" if group and group == self._group else "\n\n")
        self._parts.append(text)
        self._group = group
        self._left -= len(text) + 2
        if self._left < 0:
            raise Full

    @property
    def text(self) -> str:
        return "".join(self._parts)


def row(cells: Sequence[str]) -> str:
    """Return a row of a table as a line, without the empty cells at its end."""
    texts = [" ".join(cell.split()).replace("|", "\\|") for cell in cells]
    while texts and not texts[-1]:
        texts.pop()
    return " | ".join(texts)
