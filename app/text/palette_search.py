"""Entries of the command palette, and how they match what the user types. No Qt."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

MOST_A_GROUP = 6  # rows of a group in a search over all groups
_STARTS, _WORD, _INSIDE, _ALSO = 0, 1, 2, 4  # how well a typed word matches; less is better


def folded(text: str) -> str:
    """Return text without case and accents."""
    if text.isascii():
        return text.lower()
    parts = unicodedata.normalize("NFKD", text)
    return "".join(part for part in parts if not unicodedata.combining(part)).casefold()


@dataclass(frozen=True)
class Entry:
    """One entry. also: more search terms. figure: keys, a rate or a value."""

    group: str
    words: str
    run: Callable[[], object] = field(compare=False)
    glyph: str = "right"
    figure: str = ""
    also: str = ""
    detail: str = ""  # a second, quieter text after the first
    is_first: bool = True  # shown before anything is typed

    @cached_property
    def found_by(self) -> tuple[str, str]:
        """The folded label and search terms."""
        return folded(self.words), folded(f"{self.detail} {self.also}")

    @property
    def spoken(self) -> str:
        """The entry for screen readers."""
        return ", ".join(part for part in (self.words, self.detail, self.group, self.figure) if part)


def _rank(entry: Entry, typed: Sequence[str]) -> int | None:
    """Return how well an entry matches all words; None if it lacks one."""
    own, also = entry.found_by
    total = 0
    for word in typed:
        at = own.find(word)
        if at < 0:
            if word not in also:
                return None
            total += _ALSO
        elif at == 0:
            total += _STARTS
        elif f" {word}" in own:
            total += _WORD
        else:
            total += _INSIDE
    return total


def matching(entries: Sequence[Entry], text: str, most: int = MOST_A_GROUP) -> list[Entry]:
    """Return the matching entries by group, the group with the best match first.

    Without text: the entries with `is_first`, in order. Within a group the better entry comes first, and of equals the
    earlier one. Cost: one pass over all entries.
    """
    typed = folded(text).split()
    if not typed:
        return [entry for entry in entries if entry.is_first]
    groups: dict[str, list[tuple[int, Entry]]] = {}
    for entry in entries:
        rank = _rank(entry, typed)
        if rank is not None:
            groups.setdefault(entry.group, []).append((rank, entry))
    for found in groups.values():
        found.sort(key=lambda pair: pair[0])
    in_order = sorted(groups.values(), key=lambda found: found[0][0])
    return [entry for found in in_order for _, entry in found[:most]]


def marks(words: str, text: str) -> tuple[tuple[int, int], ...]:
    """Return where the typed words are in an entry's label: first character, and the one after the last."""
    own = folded(words)
    if len(own) != len(words):  # folding moved the characters: no mark is better than a wrong one
        return ()
    found = sorted((at, at + len(word)) for word in folded(text).split() if (at := own.find(word)) >= 0)
    merged: list[tuple[int, int]] = []
    for start, end in found:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
