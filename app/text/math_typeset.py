r"""LaTeX to outlines that can be painted in any size and colour.

ziamath lays a formula out (math_drawing.py). This module bounds what reaches it: length, depth and commands are
checked here, and the work of one formula is counted there. No macros: a formula that defines or uses an unknown command
is refused whole, and the caller shows its source.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

MOST_CHARACTERS = 4000
MOST_DEPTH = 16  # of groups, environments, fences and scripts
MOST_CHAIN = 64  # of commands and scripts with nothing between them
MOST_CELLS = 400  # of all tables in a formula

ENVIRONMENTS = (  # that are formulas without dollars around them
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

Step = tuple[str, tuple[float, ...]]  # one of M, L, Q, C, Z with its coordinates


@dataclass(frozen=True)
class Drawing:
    """A formula as outlines to fill, in units of the text's size: x to the right, y downwards, the baseline at 0."""

    width: float
    ascent: float
    descent: float
    steps: tuple[Step, ...]


Words = Callable[[str], Drawing]


def formula(source: str) -> tuple[str, bool]:
    """Return the LaTeX within its delimiters, and whether it is set as a display."""
    source = source.strip()
    for opening, closing, display in _DELIMITERS:
        if source.startswith(opening) and len(source) > len(opening):
            return source[len(opening) :].removesuffix(closing).strip(), display
    return source, True


def is_bounded(tex: str) -> bool:
    """Return whether a formula is short, shallow and plain enough to be laid out. Cost: at most MOST_CHARACTERS."""
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
    """Lay out a formula that stands in its delimiters. None: it is out of bounds or not understood.

    words: draws text in scripts that the font of formulas lacks, as Chinese; without it such a formula is refused.
    The first call loads ziamath and its font (0.3 s); a formula of an answer takes 2 to 30 ms.
    """
    tex, display = formula(source)
    if not is_bounded(tex):
        return None
    from app.text import math_drawing

    try:
        return math_drawing.draw(tex, display, words)
    except Exception:  # noqa: BLE001  # the parsers raise whatever they meet first
        return None
