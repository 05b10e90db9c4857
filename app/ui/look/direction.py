"""Writing direction where Qt has no support: painted lines, and margins of mirrored layouts."""

from __future__ import annotations

import re
import unicodedata

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLayout

_ANY_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")


def is_right_to_left(words: str) -> bool:
    """Return whether text is right to left, by its first letter with a direction."""
    if not _ANY_RIGHT_TO_LEFT.search(words):
        return False
    return next((kind for kind in map(unicodedata.bidirectional, words) if kind in {"L", "R", "AL"}), "L") != "L"


def leading(mirrored: bool) -> Qt.AlignmentFlag:
    """Return the leading edge, whatever the script of the text: titles in a column share one edge."""
    return (Qt.AlignmentFlag.AlignRight if mirrored else Qt.AlignmentFlag.AlignLeft) | Qt.AlignmentFlag.AlignAbsolute


def order(words: str) -> Qt.TextFlag:
    """Return the text direction for QPainter. Without it, a mirrored layout puts an English question mark in front."""
    leftwards = is_right_to_left(words)
    return Qt.TextFlag.TextForceRightToLeft if leftwards else Qt.TextFlag.TextForceLeftToRight


def set_margins(layout: QLayout, start: int, top: int, end: int, bottom: int, mirrored: bool) -> None:
    """Set margins by leading and trailing edge. Qt mirrors a layout's items, but not its margins."""
    layout.setContentsMargins(end if mirrored else start, top, start if mirrored else end, bottom)
