"""Writing direction where Qt leaves it to us: painted lines, margins of mirrored layouts. It translates nothing."""

from __future__ import annotations

import re
import unicodedata

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLayout

_ANY_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")


def runs_leftwards(words: str) -> bool:
    """Whether words are of a script from right to left, by their first letter that has a direction."""
    if not _ANY_RIGHT_TO_LEFT.search(words):
        return False
    return next((kind for kind in map(unicodedata.bidirectional, words) if kind in {"L", "R", "AL"}), "L") != "L"


def leading(mirrored: bool) -> Qt.AlignmentFlag:
    """The edge that lines begin at, whatever script they are in: titles one below the other keep one edge."""
    return (Qt.AlignmentFlag.AlignRight if mirrored else Qt.AlignmentFlag.AlignLeft) | Qt.AlignmentFlag.AlignAbsolute


def order(words: str) -> Qt.TextFlag:
    """How QPainter is to order words: else a mirrored layout puts the question mark of an English one in front."""
    leftwards = runs_leftwards(words)
    return Qt.TextFlag.TextForceRightToLeft if leftwards else Qt.TextFlag.TextForceLeftToRight


def set_margins(layout: QLayout, start: int, top: int, end: int, bottom: int, mirrored: bool) -> None:
    """Margins by leading and trailing edge; Qt mirrors what is in a layout, but not its margins."""
    layout.setContentsMargins(end if mirrored else start, top, start if mirrored else end, bottom)
