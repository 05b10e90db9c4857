"""Paints one line of text with highlighted search matches.

A line that is too long is cut so that the first match stays visible.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QTextCharFormat, QTextLayout, QTextOption

from app.ui.look import theme
from app.ui.look.direction import is_right_to_left
from app.ui.look.painting import block

Mark = tuple[int, int]
MORE = "…"


def in_sight(words: str, marks: Sequence[Mark], font: QFont, room: float) -> tuple[str, list[Mark]]:
    """Elide text at both ends to a width, keeping the first mark visible. Return the text and its shifted marks."""
    metrics = QFontMetricsF(font)
    shift = 0
    if marks and metrics.horizontalAdvance(words[: marks[0][1]] + MORE) > room:
        # keep a little of the text before
        budget = max(room - metrics.horizontalAdvance(words[slice(*marks[0])]), 0) / 3
        start = marks[0][0]
        while start > 0 and metrics.horizontalAdvance(words[start - 1 : marks[0][0]]) < budget:
            start -= 1
        space = words.find(" ", start, marks[0][0])
        start = space + 1 if space >= 0 else start
        if start > 0:
            words, shift = MORE + words[start:], start - len(MORE)
    cut = metrics.elidedText(words, Qt.TextElideMode.ElideRight, room)
    end = len(cut) if cut == words else len(cut) - len(MORE)
    moved = [(max(a - shift, 0), min(b - shift, end)) for a, b in marks]
    return cut, [(a, b) for a, b in moved if a < b]


def paint_line(
    painter: QPainter, room: QRect, words: str, role: str, colour: QColor, marks: Sequence[Mark], mirrored: bool
) -> None:
    """Paint one line, vertically centred, from the leading edge."""
    font = theme.font(role)
    shown, places = in_sight(words, marks, font, room.width())
    layout = QTextLayout(shown, font)
    option = QTextOption(Qt.AlignmentFlag.AlignLeft)
    option.setWrapMode(QTextOption.WrapMode.NoWrap)
    leftwards = is_right_to_left(shown)
    option.setTextDirection(Qt.LayoutDirection.RightToLeft if leftwards else Qt.LayoutDirection.LeftToRight)
    # Always left, whatever the direction of the text: x below accounts for the leading edge.
    option.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignAbsolute)
    layout.setTextOption(option)
    formats = []
    for start, end in places:
        one = QTextLayout.FormatRange()
        one.start, one.length = _in_qt(shown, start), _in_qt(shown, end) - _in_qt(shown, start)
        one.format = QTextCharFormat()
        one.format.setForeground(theme.colour("ink"))
        one.format.setFontWeight(QFont.Weight.DemiBold)
        formats.append(one)
    layout.setFormats(formats)
    layout.beginLayout()
    line = layout.createLine()
    line.setLineWidth(1 << 20)
    layout.endLayout()
    wide = min(line.naturalTextWidth(), room.width())
    x = room.right() + 1 - wide if mirrored else room.left()
    y = room.top() + (room.height() - line.height()) / 2
    offset = QPointF(x - line.naturalTextRect().left(), y)
    painter.save()
    painter.setClipRect(room)
    for one in formats:
        ends = [float(line.cursorToX(at)[0]) for at in (one.start, one.start + one.length)]  # type: ignore[index]
        ground = QRectF(offset.x() + min(ends) - 1.5, y, abs(ends[1] - ends[0]) + 3, line.height())
        block(painter, ground, theme.wash("pressed"), theme.px(3))
    painter.setPen(colour)
    layout.draw(painter, offset)
    painter.restore()


def _in_qt(words: str, at: int) -> int:
    """Convert an index of Python characters to Qt's, which counts UTF-16 code units."""
    return at if words.isascii() else len(words[:at].encode("utf-16-le")) // 2
