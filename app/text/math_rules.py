r"""Markdown-it rules for formulas: $...$ and \(...\) within a line, $$...$$, \[...\] and \begin{...} as blocks.

A formula that is not closed yet is shown as its source. app/text/math_typeset.py lays formulas out.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

from app.text.markdown_blocks import GROWING
from app.text.math_typeset import ENVIRONMENTS, MOST_CHARACTERS

OPEN = "open"  # info of a math_block without its end so far

# As in Pandoc: no space inside the dollar signs and no digit after them, so "$5 and $10" stays money.
_DOLLARS = re.compile(r"\$(?![\s$])((?:\\.|[^$\\\n]|\n(?!\n))*?(?:\\\S|[^\s\\$]))\$(?![\d$])")
_PAIRS = (("\\(", "\\)"), ("\\[", "\\]"), ("$$", "$$"))
_ENVIRONMENT = re.compile(rf"\\begin\{{((?:{ENVIRONMENTS})\*?)\}}")
_REST = re.compile(r"[.,;:]?\s*$")


def add_to(md: MarkdownIt) -> None:
    """Add formulas to a parser: tokens math_inline and math_block, whose content is LaTeX with its delimiters."""
    md.inline.ruler.before("escape", "math_inline", find_inline)
    md.block.ruler.before(
        "fence", "math_block", _block, {"alt": ["paragraph", "reference", "blockquote", "list"]}
    )  # fmt: skip
    md.inline.add_terminator_char("$")


def find_inline(state: StateInline, silent: bool) -> bool:
    """Match a formula within a line."""
    start = state.pos
    if state.src[start] not in "$\\":
        return False
    content, end = "", -1
    for opening, closing in _PAIRS:
        if state.src.startswith(opening, start):
            close = state.src.find(closing, start + 2, start + MOST_CHARACTERS)
            if close > start + 2:
                content, end = state.src[start + 2 : close], close + 2
            elif close < 0 and GROWING in state.env and opening != "$$":
                return _open(state, silent)
            break
    else:
        if found := _DOLLARS.match(state.src, start, min(state.posMax, start + MOST_CHARACTERS)):
            content, end = found[1], found.end()
    if end < 0 or end > state.posMax or not content.strip():
        return False
    if not silent:
        state.push("math_inline", "", 0).content = state.src[start:end]
    state.pos = end
    return True


def _open(state: StateInline, silent: bool) -> bool:
    """Keep a formula whose end may still come as its source, not as Markdown."""
    if not silent:
        state.push("text", "", 0).content = state.src[state.pos : state.posMax]
    state.pos = state.posMax
    return True


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]


def _block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    if state.is_code_block(start):
        return False
    first = _line(state, start)
    environment = _ENVIRONMENT.match(first)
    if environment:
        closing, lines = f"\\end{{{environment[1]}}}", [first]
    elif first.startswith(("$$", "\\[")):
        closing, lines = "$$" if first.startswith("$") else "\\]", [first[2:]]
    else:
        return False
    number, closed, ends = start, closing in lines[0], False
    while not closed:
        number += 1
        ends = number >= end
        line = "" if ends else _line(state, number)
        if not line.strip() or state.sCount[number] < state.blkIndent:
            break
        lines.append(line)
        closed = closing in line
    opening = "" if environment else first[:2]
    if closed:
        last, rest = lines[-1].split(closing, 1)
        if not _REST.match(rest):
            return False
        lines[-1] = last + closing
    elif GROWING in state.env and ends:
        number -= 1
    elif environment is None and (lines[0].strip() or number < end):
        return False  # an opening mark alone, followed by a gap, is not a formula
    else:
        number -= 1
    if silent:
        return True
    token = state.push("math_block", "", 0)
    token.content = opening + "\n".join(lines).rstrip()
    token.info = "" if closed else OPEN
    token.map = [start, number + 1]
    token.block = True
    state.line = number + 1
    return True
