r"""Converts LaTeX to outlines that can be painted in any size and colour.

ziamath lays formulas out (math_drawing.py). This module limits length, depth and commands; math_drawing.py counts the
work of one formula. No macros: a formula that defines or uses an unknown command is rejected, and the caller shows its
source.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

MOST_CHARACTERS = 4000
MOST_DEPTH = 16  # of groups, environments, fences and scripts
MOST_CHAIN = 64  # commands and scripts with nothing between them
MOST_CELLS = 400  # of all tables in a formula

ENVIRONMENTS = (  # formulas without dollar signs around them
    "align|aligned|alignat|gather|gathered|equation|split|multline|eqnarray|displaymath|math|cases|matrix|smallmatrix"
    "|array|pmatrix|bmatrix|Bmatrix|vmatrix|Vmatrix"
)

_REFUSED = re.compile(
    r"\\(?:[egx]?def|let|(?:re|provide)?newcommand|newenvironment|DeclareMathOperator|require|input|include|csname|href"
    r"|url|style|class|cssId|unicode|verb|rule|mathchoice|raise|lower|moveleft|moveright|includegraphics)(?![A-Za-z])"
)
_TOKENS = re.compile(r"\\(?:[A-Za-z]+|.)|\S", re.DOTALL)
_OPENING, _CLOSING = {"{", "\\begin", "\\left"}, {"}", "\\end", "\\right"}
_DELIMITERS = (("$$", "$$", True), ("\\[", "\\]", True), ("\\(", "\\)", False), ("$", "$", False))

Step = tuple[str, tuple[float, ...]]  # M, L, Q, C or Z with its coordinates


@dataclass(frozen=True)
class Drawing:
    """A formula as outlines to fill, in units of the text size: x to the right, y down, baseline at 0."""

    width: float
    ascent: float
    descent: float
    steps: tuple[Step, ...]


Words = Callable[[str], Drawing]
_LOCK = threading.Lock()  # ziamath counts and keeps its fonts in globals


def formula(source: str) -> tuple[str, bool]:
    """Return the LaTeX inside the delimiters, and whether it is a display formula."""
    source = source.strip()
    for opening, closing, display in _DELIMITERS:
        if source.startswith(opening) and len(source) > len(opening):
            return source[len(opening) :].removesuffix(closing).strip(), display
    return source, True


def is_bounded(tex: str) -> bool:
    """Return whether a formula is short, shallow and simple enough to be laid out. Cost: at most MOST_CHARACTERS."""
    if len(tex) > MOST_CHARACTERS or not tex.strip() or _REFUSED.search(tex):
        return False
    if tex.count("&") + tex.count("\\\\") > MOST_CELLS:
        return False
    depth = chain = 0
    for token in _TOKENS.findall(tex):
        depth += (token in _OPENING) - (token in _CLOSING)
        chain = chain + 1 if token in "_^" or token[1:].isalpha() else 0  # each can be the argument of the one before
        if depth > MOST_DEPTH or chain > MOST_CHAIN:
            return False
    return True


def typeset(source: str, words: Words | None = None) -> Drawing | None:
    """Lay out a formula in its delimiters. None: out of bounds or not understood.

    words: draws text that the formula font lacks, such as Chinese; without it such formulas are rejected. Threads take
    turns. The first call loads ziamath and its font (0.3 s); a formula of an answer takes 2 to 30 ms.
    """
    tex, display = formula(source)
    if not is_bounded(tex):
        return None
    from app.text import math_drawing

    try:
        with _LOCK:
            return math_drawing.draw(tex, display, words)
    except Exception:  # noqa: BLE001  # the parsers raise whatever they meet first
        return None
