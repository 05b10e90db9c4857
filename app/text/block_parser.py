"""Parses Markdown into blocks in bounded steps, so that no text blocks the window's thread. No Qt.

A step parses one chunk of at most STEP characters. A chunk ends where a top-level block begins; a block longer than a
chunk is cut at a line end, or within a line that has none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any

from app.later import Later
from app.text.markdown_blocks import GROWING, Block, CodeBlock, TableBlock, displayable

if TYPE_CHECKING:
    from markdown_it.token import Token

    from app.text import markdown_parser
else:
    markdown_parser = Later("app.text.markdown_parser")

# One chunk. Parsing and layout take 15 ms for ordinary prose of this length, 60 ms for the worst known texts.
STEP, STEP_LINES = 4000, 150
# Code and formulas of one chunk. Each becomes a widget of about ten; 80 of them hold the window 200 ms at a zoom step.
STEP_PARTS = 12
OPEN_STEP = 60_000  # characters of an open fence or table per step: their lines need no parser
MOST_DEFINITIONS, DEFINITION_LENGTH = 200, 250  # link definitions in a long text that may come after their use
_DEFINITION = re.compile(r"^ {0,3}\[[^\]\n]+\]:.*", re.MULTILINE)
_TABLE_END = re.compile(
    r"\s*$| {4}|\t| {0,3}(?:>|#{1,6}\s|[-+*](?:\s|$)|\d{1,9}[.)]\s|```|~~~|([-*_])(?:\s*\1){2,}\s*$)"
)


def parse(text: str, sources: Collection[int] = ()) -> list[Block]:
    """Return the blocks of a finished answer, as BlockParser does. Cost: linear in the text."""
    parser = BlockParser(sources)
    parser.feed(text)
    parser.end()
    while parser.step():
        pass
    return parser.blocks


class BlockParser:
    """Blocks of a text that is complete or grows.

    `blocks` can be shown at any time. A block is settled when complete lines have started another one after it, or when
    it fills a chunk. Settled text is not parsed again until `finish`.

    Cost of a step: STEP characters. Of an append: the last open block (at most STEP) and the new text; in an open fence
    or table only the new text.
    """

    def __init__(self, sources: Collection[int] = ()) -> None:
        """sources: numbers that become links to sources, where the text names them as [1]."""
        self.sources_known = frozenset(sources)
        self.blocks: list[Block] = []
        self.spans: list[tuple[int, int]] = []  # for each settled block: start and end of its source in `text`
        self.changed = 0  # index of the first block that may have changed since `take_changed`
        self.weight = 0  # of the settled blocks: about the number of characters shown at once
        self._env: dict[str, Any] = {GROWING: True, "sources": self.sources_known}
        self._raw = ""  # not processed yet
        self._text = ""  # displayable
        self._from = 0  # start of the text that is not settled
        self._tried = 0  # end of the lines that were tried
        self._settled = 0  # number of settled blocks
        self._open: _OpenFence | _OpenTable | None = None  # while the text from there on is one of them
        self._opened_at = 0  # where it begins
        self._ended = False

    @property
    def text(self) -> str:
        """The text so far, as far as it can be shown."""
        return self._text + displayable(self._raw)

    def sources(self) -> list[tuple[str, int]]:
        """Return the Markdown of each top-level block, and the number of blocks that show it."""
        text = self.text
        out = [(text[start:end].strip("\n"), len(list(same))) for (start, end), same in groupby(self.spans)]
        tail = len(self.blocks) - len(self.spans)
        return [*out, (text[self._opened_at if self._open else self._from :].strip("\n"), tail)] if tail > 0 else out

    @property
    def tail_length(self) -> int:
        """Number of characters that the next append parses again."""
        return 0 if self._open else len(self._text) - self._from

    @property
    def unread(self) -> str:
        """The text after the settled part."""
        return self._text[self._from :] + displayable(self._raw)

    @property
    def share_read(self) -> float:
        """The fraction of the text that is read, 0 to 1."""
        return self._from / max(len(self._text) + len(self._raw), 1)

    def append(self, text: str) -> int:
        """Append text and read it. Return the index of the first block that may have changed (len: none)."""
        if not text:
            return len(self.blocks)
        self.feed(text)
        while self.step():
            pass
        return self.take_changed()

    def finish(self) -> int:
        """Read the rest: the answer is complete. Return the index of the first block that changed."""
        before = list(self.blocks)
        self.end()
        while self.step():
            pass
        self.take_changed()
        same = 0
        while same < min(len(before), len(self.blocks)) and before[same] == self.blocks[same]:
            same += 1
        return same

    def feed(self, text: str) -> None:
        """Append text, to be read by `step`."""
        self._raw += text

    def end(self) -> bool:
        """End the text. Return whether all of it is read again, because a definition may change earlier blocks."""
        self._ended = True
        self._env.pop(GROWING, None)
        whole = self._text + displayable(self._raw)
        if len(whole) <= STEP and whole.count("\n") <= STEP_LINES:
            self._env = {"sources": self.sources_known}
        elif not self._learn_definitions(whole):
            return False
        self._env["notes"] = dict.fromkeys(self._env.get("notes", {}), 0)
        self._env.pop("used_notes", None)
        again = self._from > 0 or bool(self.blocks)
        self.blocks, self.spans = [], []
        self.weight = self.changed = self._from = self._settled = self._tried = 0
        self._open = None
        return again

    def take_changed(self) -> int:
        """Return the index of the first block that may have changed since the last call."""
        changed, self.changed = self.changed, len(self.blocks)
        return changed

    # --- steps

    def step(self) -> bool:
        """Read one chunk. Return whether there is more to read before more text comes."""
        self.changed = min(self.changed, self._settled)
        self._look_at_raw()
        if self._open is not None:
            more = self._read_open(self._open)
        elif self._ended and self._is_one_piece():
            more = self._settle(self._text[self._from :], complete=True)
        else:
            more = self._read_piece()
        if not more:
            self._show_tail()
        return more

    @property
    def _has_raw(self) -> bool:
        return bool(self._raw) and (self._ended or self._raw != "\r")

    def _look_at_raw(self) -> None:
        """Make more of the text displayable, in chunks."""
        if not self._raw or len(self._text) - self._from > OPEN_STEP:
            return
        taken, self._raw = self._raw[:OPEN_STEP], self._raw[OPEN_STEP:]
        if taken.endswith("\r") and not (self._ended and not self._raw):  # a line feed may follow
            taken, self._raw = taken[:-1], "\r" + self._raw
        self._text += displayable(taken)

    def _is_one_piece(self) -> bool:
        """Return whether the whole rest is short enough to be parsed at once."""
        length = len(self._text) - self._from
        return length + len(self._raw) <= STEP and self._text.count("\n", self._from) <= STEP_LINES

    def _read_piece(self) -> bool:
        window = self._text[self._from : self._from + STEP]
        end = _nth_line_end(window, STEP_LINES)
        is_full = len(window) == STEP or end < len(window)
        complete = window[: window.rfind("\n", 0, end) + 1]
        if is_full:
            return self._settle(complete or window[: _cut_in_line(window)], must_settle=True)
        if self._from + len(complete) <= self._tried or not complete.strip():
            return False
        self._tried = self._from + len(complete)
        return self._settle(complete)

    def _settle(self, piece: str, complete: bool = False, must_settle: bool = False) -> bool:
        """Settle the closed blocks of a chunk: all but the last, and the last too if it is `complete` or fills the
        chunk. Return whether there is more to read."""
        groups = markdown_parser.read(piece, self._env)
        starts = [group[0].map[0] if group[0].map else 0 for group in groups]
        lines = piece.split("\n")
        parts = [index for index, group in enumerate(groups) if group[0].type in {"fence", "code_block", "math_block"}]
        if len(parts) > STEP_PARTS:
            cut = parts[STEP_PARTS]
            self._add(groups[:cut], lines)
            self._advance(lines, starts[cut])
            return True
        for index, group in enumerate(groups):
            fills_piece = must_settle and group is groups[-1] and group[0].type == "table_open"
            if fills_piece or "cut" in group[0].meta:  # a long table: its other rows need no parser
                rows = starts[index] + group[0].meta.get("cut", len(lines) - starts[index] - 1)
                self._add(groups[: index + 1], lines)
                self._advance(lines, rows)
                self._begin_table(lines[starts[index] : starts[index] + 2])
                return True
        if complete:
            self._add(groups, lines)
            self._from = len(self._text)
            return False
        if not groups:
            self._from += len(piece) if must_settle else 0
            return must_settle
        last = groups[-1]
        # An indented fence stays with Markdown-it, which handles tabs, unless it is long.
        is_plain = last[0].type == "fence" and lines[starts[-1]].startswith(last[0].markup)
        if (is_plain or must_settle) and self._begin_fence(groups, lines):
            return True
        if len(groups) > 1 and starts[-1] > 0:
            self._add(groups[:-1], lines)
            self._advance(lines, starts[-1])
            return must_settle
        if not must_settle:
            return False
        items = [t.map[0] for t in last if t.type == "list_item_open" and t.level == 1 and t.map and t.map[0] > 0]
        if items and lines[items[-1]][:1].strip():  # the next chunk continues with another item
            groups = markdown_parser.read("\n".join(lines[: items[-1]]) + "\n", self._env)
            self._add(groups, lines)
            self._advance(lines, items[-1])
        else:
            self._add(groups, lines)
            self._from += len(piece)
        return True

    def _advance(self, lines: list[str], count: int) -> None:
        self._from += min(sum(map(len, lines[:count])) + count, len(self._text) - self._from)

    def _add(self, groups: list[list[Token]], lines: list[str]) -> None:
        """Settle the blocks of these tokens. lines: of the chunk, which begins at the first unsettled character."""
        del self.blocks[self._settled :], self.spans[self._settled :]
        begins = [self._from, *accumulate((len(line) + 1 for line in lines), initial=self._from)][1:]
        for group in groups:
            first, last = group[0].map or [0, len(lines)]
            blocks = markdown_parser.blocks_of(group, self._env)
            self.blocks += blocks
            self.spans += [(begins[first], begins[min(last, len(lines))])] * len(blocks)
            self.weight += sum(_weight(block) for block in blocks)
        self._settled_here()

    def _settled_here(self) -> None:
        self._settled = len(self.blocks)

    def _begin_fence(self, groups: list[list[Token]], lines: list[str]) -> bool:
        """If the chunk ends in an open fence, perhaps in a list, settle what is before it."""
        inside = [index for index, token in enumerate(groups[-1]) if token.nesting >= 0]
        fence = groups[-1][inside[-1]]
        if fence.type != "fence" or fence.map is None or markdown_parser.is_closed(groups[-1]):
            return False
        block = markdown_parser.blocks_of(groups[-1], self._env)[-1]
        if not isinstance(block, CodeBlock):  # in a quote
            return False
        self._add(groups, lines)
        self.blocks.pop()
        self.spans.pop()
        self._settled_here()
        self._opened_at = self._from + sum(len(line) + 1 for line in lines[: fence.map[0]])
        indent = lines[fence.map[0]].find(fence.markup)
        self._open = _OpenFence(fence.markup, block.language, indent, block.depth)
        self._advance(lines, fence.map[0] + 1)
        return True

    def _begin_table(self, head: list[str]) -> None:
        table = self.blocks[-1]
        assert isinstance(table, TableBlock)
        self._settled -= 1  # it still grows
        self._opened_at = self.spans.pop()[0]
        self._open = _OpenTable(table.html, "\n".join(head) + "\n")

    def _read_open(self, part: _OpenFence | _OpenTable) -> bool:
        """Move complete lines into the open fence or table. Returns whether there is more to read now."""
        end = min(self._from + OPEN_STEP, len(self._text))
        stop = self._text.rfind("\n", self._from, end) + 1
        if stop == 0 and (self._ended or end - self._from == OPEN_STEP):
            stop = end  # a line without an end
        taken, closed = part.take(self._text[self._from : stop]) if stop else (0, False)
        self._from += taken
        if closed or (self._ended and not self._raw and self._from == len(self._text)):
            self.blocks[self._settled :] = [part.block("", closed=True)]
            self.spans.append((self._opened_at, self._from))
            self.weight += _weight(self.blocks[-1])
            self._settled_here()
            self._open = None
            return self._from < len(self._text) or self._has_raw
        return taken > 0 and (self._has_raw or self._ended or self._text.find("\n", self._from) >= 0)

    def _show_tail(self) -> None:
        """Show the unsettled text as it is."""
        if self._open is not None:
            self.blocks[self._settled :] = [self._open.block(self._text[self._from :])]
        elif not self._ended:
            groups = markdown_parser.read(self._text[self._from :], _copied(self._env))
            tail = [block for group in groups for block in markdown_parser.blocks_of(group, self._env)]
            if tail and isinstance(tail[-1], CodeBlock) and not markdown_parser.is_closed(groups[-1]):
                tail[-1] = CodeBlock(tail[-1].language, tail[-1].code, False, tail[-1].depth)
            self.blocks[self._settled :] = tail

    # --- definitions

    def _learn_definitions(self, whole: str) -> bool:
        """Read the link definitions of the whole text. Return whether there are any."""
        if "]:" not in whole:
            return False
        found = _DEFINITION.finditer(whole)
        lines = [line[0][:DEFINITION_LENGTH] for line, _ in zip(found, range(MOST_DEFINITIONS), strict=False)]
        if lines:
            markdown_parser.read("\n\n".join(lines), self._env)
        return bool(lines)


class _OpenFence:
    """A fence without its end mark so far. indent: of its start mark, in spaces. depth: number of lists around it."""

    def __init__(self, markup: str, language: str, indent: int = 0, depth: int = 0) -> None:
        mark = re.escape(markup[0])
        left = rf"^(?! {{{indent}}})(?=[ \t]*\S)" if depth else r"(?!)"  # a line to the left of its list item
        self._end = re.compile(
            rf"^ {{0,{indent + 3}}}{mark}{{{len(markup)},}}[ \t]*$|(?P<left>{left})", re.MULTILINE
        )  # fmt: skip
        self._indents = re.compile(rf"^ {{1,{indent}}}", re.MULTILINE) if indent else None
        self._mark, self._language, self._depth = markup[0], language, depth
        self.code = ""

    def take(self, text: str) -> tuple[int, bool]:
        """Take complete lines. Return the number of characters, and whether the fence closed."""
        end = self._end.search(text)
        self.code += self._within(text[: end.start()] if end else text)
        if end is None:
            return len(text), False
        return end.start() if end["left"] is not None else min(end.end() + 1, len(text)), True

    def block(self, partial: str, closed: bool = False) -> CodeBlock:
        """Return the block as it is, without a last line that may become the end mark."""
        shown = "" if partial and not partial.strip().strip(self._mark) else self._within(partial)
        code = (self.code + shown) if shown else self.code.removesuffix("\n")
        return CodeBlock(self._language, code, closed, self._depth)

    def _within(self, text: str) -> str:
        return self._indents.sub("", text) if self._indents else text


class _OpenTable:
    """The rows of a long table after those that are drawn."""

    def __init__(self, html: str, head: str) -> None:
        self._html, self._head = html, head
        self.rows = ""

    def take(self, text: str) -> tuple[int, bool]:
        """Take complete lines. Return the number of characters, and whether the table ended before the rest."""
        taken = 0
        for line in text.splitlines(keepends=True):
            if _TABLE_END.match(line):
                self.rows += text[:taken]
                return taken, True
            taken += len(line)
        self.rows += text
        return len(text), False

    def block(self, partial: str, closed: bool = False) -> TableBlock:
        return TableBlock(self._html, self._head, self.rows)


def _weight(block: Block) -> int:
    if isinstance(block, CodeBlock):
        return 800 + min(len(block.code), 4000)  # the rest is folded
    return (400 if isinstance(block, TableBlock) else 40) + len(block.html)


def _nth_line_end(text: str, count: int) -> int:
    """Return the index after the `count`-th line end; the text's length if it has fewer."""
    place = -1
    for _ in range(count):
        place = text.find("\n", place + 1)
        if place < 0:
            return len(text)
    return place + 1


def _cut_in_line(line: str) -> int:
    """Return where to cut a line without an end: after a space, else not within a character of several code points."""
    space = line.rfind(" ", len(line) // 2)
    if space > 0:
        return space + 1
    place = len(line)
    while place > len(line) - 40 and (unicodedata.combining(line[place - 1]) or line[place - 1] in "\u200d\ufe0f"):
        place -= 1
    return place


def _copied(env: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the environment for parsing the tail, whose definitions are not kept."""
    own: dict[str, Any] = {name: dict(env[name]) for name in ("references", "notes", "used_notes") if name in env}
    return {**env, **own}
