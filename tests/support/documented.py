"""Reads README and docs: the commands that they show, their fenced blocks, where their links lead. It runs nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))

_FENCE = re.compile(r"^```(\S*)$")
_OURS = re.compile(r"(?:python3? (?:-m (?:engine|app|pytest)\b|installer/|tests/)|hearth-engine |hearth )")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block. language: what stands behind its fence; line: of its first line, from 1."""

    page: Path
    line: int
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """One command as a shell would take it apart. inline: it stands in a sentence."""

    page: Path
    line: int
    words: tuple[str, ...]
    inline: bool

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: {shlex.join(self.words)}"

    @property
    def engine(self) -> tuple[str, ...] | None:
        """The arguments, where it is the engine's command line."""
        if self.words[0] == "hearth-engine":
            return self.words[1:]
        return self.words[3:] if self.words[1:3] == ("-m", "engine") else None


def blocks(page: Path) -> Iterator[Block]:
    """Every fenced block of a page. Raises: ValueError for one that does not end."""
    language, first, lines = "", 0, None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        found = _FENCE.match(line)
        if lines is None and found:
            language, first, lines = found[1], number + 1, []
        elif lines is not None and line == "```":
            yield Block(page, first, language, "\n".join(lines) + "\n")
            lines = None
        elif lines is not None:
            lines.append(line)
    if lines is not None:
        raise ValueError(f"{page.name}: the block in line {first} does not end")


def commands(page: Path) -> Iterator[Command]:
    """Every line of the page's console blocks, and what stands in its sentences as a command of ours."""
    inside = set()
    for block in blocks(page):
        n_lines = block.text.count("\n")
        inside |= set(range(block.line, block.line + n_lines))
        if block.language == "console":
            for number, line in enumerate(block.text.splitlines(), start=block.line):
                if words := shlex.split(line, comments=True):
                    yield Command(page, number, tuple(words), inline=False)
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if number not in inside:
            for span in re.findall(r"`([^`]+)`", line):
                if _OURS.match(span):
                    yield Command(page, number, tuple(shlex.split(span)), inline=True)


def links(page: Path) -> Iterator[tuple[int, str]]:
    """Every link of a page, by its line; those in blocks are none."""
    inside: set[int] = set()
    for block in blocks(page):
        inside |= set(range(block.line, block.line + block.text.count("\n")))
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if number not in inside:
            for target in _LINK.findall(re.sub(r"`[^`]*`", "", line)):
                yield number, target


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may say behind #."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
