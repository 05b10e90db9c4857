"""The popover with all figures of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QGridLayout, QWidget

from app.chat.answers.answer_labels import figures_of
from app.translation import tr
from app.ui.look import theme
from app.ui.widgets.controls import Label
from app.ui.widgets.popover import Popover


class AnswerFigures(Popover):
    """Names at the left, figures at the right. It is deleted when it closes."""

    def __init__(self, stats: Mapping[str, Any], window: QWidget) -> None:
        super().__init__(tr("Figures of this answer"), window)
        rows = figures_of(stats)
        self.body.setSpacing(theme.px(10))
        self.body.addWidget(Label(tr("This answer, measured on this PC"), "smallstrong", wrap=True))
        grid = QGridLayout()
        grid.setHorizontalSpacing(theme.px(20))
        grid.setVerticalSpacing(theme.px(6))
        grid.setColumnStretch(1, 1)
        trailing = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        for row, (name, value) in enumerate(rows):
            grid.addWidget(Label(name, "small"), row, 0)
            figure = Label(value, "small", "ink", elide=True)
            figure.setAlignment(trailing)
            figure.setAccessibleName(f"{name}: {value}")
            grid.addWidget(figure, row, 1)
        self.body.addLayout(grid)
        self.setAccessibleDescription("; ".join(f"{name}: {value}" for name, value in rows))
        escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), self)
        escape.activated.connect(self.dismiss)
        self.closed.connect(self.deleteLater)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
