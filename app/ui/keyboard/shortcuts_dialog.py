"""The dialog with all keyboard shortcuts (F1), by group."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.shortcuts import COMMANDS, Command, caps
from app.translation import tr
from app.ui.keyboard.commands import Commands
from app.ui.look import theme
from app.ui.look.painting import antialiased, block, outline
from app.ui.widgets.controls import Label
from app.ui.widgets.dialog import Dialog

WIDE_PX, CAP_PX, PLUS_GAP = 700, 24, 4


class Keys(QWidget):
    """The keys of one shortcut, each painted as a key cap."""

    def __init__(self, keys: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.caps = caps(keys)
        self.setAccessibleName(" ".join(self.caps))
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setFixedSize(self.sizeHint())

    def _widths(self) -> list[int]:
        metrics, least = QFontMetrics(theme.font("meta")), theme.px(CAP_PX)
        return [max(metrics.horizontalAdvance(cap) + theme.px(14), least) for cap in self.caps]

    def sizeHint(self) -> QSize:
        widths = self._widths()
        return QSize(sum(widths) + theme.px(PLUS_GAP) * (len(widths) - 1), theme.px(CAP_PX))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, x = antialiased(self), 0
        painter.setFont(theme.font("meta"))
        for cap, wide in zip(self.caps, self._widths(), strict=True):  # left to right in every script
            box = QRectF(x, 0, wide, self.height())
            block(painter, box, theme.colour("sunken"), theme.px(6))
            outline(painter, box, theme.colour("edge"), theme.px(6))
            painter.setPen(theme.colour("ink2"))
            painter.drawText(box, Qt.AlignmentFlag.AlignCenter, cap)
            x += wide + theme.px(PLUS_GAP)


class ShortcutsDialog(Dialog):
    """A dialog with two columns of groups."""

    def __init__(self, parent: QWidget, commands: Commands) -> None:
        super().__init__(
            parent, tr("Keyboard shortcuts"), tr("Ctrl+K finds these and everything else by name."), WIDE_PX
        )
        groups: dict[str, list[Command]] = {}
        for command in COMMANDS:
            if command.keys and (command.where or commands.knows(command.act)):
                groups.setdefault(command.group, []).append(command)
        halves: tuple[list[str], list[str]] = ([], [])
        # in rows
        high = {name: 1.0 + sum(1.3 if one.where else 1.0 for one in found) for name, found in groups.items()}
        for group in sorted(groups, key=lambda name: -high[name]):  # the longest first, into the shorter column
            sums = [sum(high[name] for name in half) for half in halves]
            halves[sums.index(min(sums))].append(group)
        row = QHBoxLayout()
        row.setSpacing(theme.px(32))
        for half in halves:
            column = QVBoxLayout()
            column.setSpacing(theme.px(6))
            for group in half:
                title = Label(tr(group), "metastrong")
                title.setContentsMargins(0, theme.px(8), 0, 0)
                column.addWidget(title)
                for command in groups[group]:
                    column.addLayout(self._line(command))
            column.addStretch(1)
            row.addLayout(column, 1)
        self.body.addLayout(row)
        self.add_close()

    def _line(self, command: Command) -> QHBoxLayout:
        line = QHBoxLayout()
        line.setSpacing(theme.px(10))
        words = QVBoxLayout()
        words.setSpacing(0)
        words.addWidget(Label(tr(command.words), "small", "ink", wrap=True))
        if command.where:
            words.addWidget(Label(tr(command.where), "meta", wrap=True))
        line.addLayout(words, 1)
        line.addWidget(Keys(command.keys[0]), 0, Qt.AlignmentFlag.AlignVCenter)
        return line
