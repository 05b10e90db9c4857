"""Blind votes over the results of `hearth-engine compare`: two answers without names, then who won."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QScrollArea,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.chat.store.conversation import Message, Role
from app.translation import figure, noted, tr
from app.ui.chat.answer_columns import QUESTION_CHARS, ColumnAnswer
from app.ui.look import theme
from app.ui.widgets import focus_ring
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.floating import announce, resize_within_screen
from app.units import rate, seconds
from engine.errors import EngineError
from engine.evaluation.comparison import Choice, ComparisonFile

WIDE, HIGH = 980, 700
# What is chosen, its key, and that key on the button.
CHOICES: tuple[tuple[Choice, str, Qt.Key, str], ...] = (
    ("left", noted("The left one"), Qt.Key.Key_Left, "←"),
    ("right", noted("The right one"), Qt.Key.Key_Right, "→"),
    ("equal", noted("Equally good"), Qt.Key.Key_Down, "↓"),
    ("neither", noted("Neither"), Qt.Key.Key_Up, "↑"),
)


class BlindAnswer(QScrollArea):
    """An answer without the name of its model. It scrolls by itself."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setProperty("kind", "plain")
        self.setAccessibleName(name)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.answer: ColumnAnswer | None = None

    def show_text(self, text: str) -> None:
        """Show the text of an answer from its beginning."""
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 0, theme.px(10), 0)
        self.answer = ColumnAnswer(Message(Role.ASSISTANT, text), inside)
        self.answer.stats.hide()
        column.addWidget(self.answer)
        column.addStretch(1)
        self.setWidget(inside)
        inside.setAutoFillBackground(False)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        if self.answer is not None:
            self.answer.set_width(max(self.width() - theme.px(24), theme.px(120)))


class VotesDialog(QDialog):
    """The dialog of one file. Each vote is stored in it at once."""

    def __init__(self, parent: QWidget, file: ComparisonFile) -> None:
        super().__init__(parent)
        self.setProperty("kind", "page")
        self.setWindowTitle(tr("Blind votes"))
        self.setAccessibleName(tr("Blind votes"))
        self.file = file
        self._pairs = file.pairs()
        self._at = next((i for i, pair in enumerate(self._pairs) if pair.key not in file.votes), len(self._pairs))
        self.title = Label("", "title")
        self.line = Label("", "small", wrap=True)
        self.prompt = Label("", "body", wrap=True)
        self.sides = (BlindAnswer(tr("Left answer")), BlindAnswer(tr("Right answer")))
        self.buttons: dict[Choice, Button] = {}
        self.problem = Label("", "small", "bad", wrap=True)
        self.back = Button(tr("Previous pair"), "quiet", "left")
        self.back.clicked.connect(self._go_back)
        self.close_button = Button(tr("Close"))
        self.close_button.clicked.connect(self.accept)
        bubble = QFrame()
        bubble.setProperty("kind", "bubble")
        inside = QVBoxLayout(bubble)
        inside.setContentsMargins(theme.px(16), theme.px(10), theme.px(16), theme.px(10))
        inside.addWidget(self.prompt)
        pair, across, keys = QWidget(), QHBoxLayout(), QGridLayout()
        for side in self.sides:
            card = QFrame()
            card.setProperty("kind", "card")
            within = QVBoxLayout(card)
            within.setContentsMargins(theme.px(16), theme.px(14), theme.px(6), theme.px(14))
            within.addWidget(side)
            across.addWidget(card, 1)
        across.setSpacing(theme.px(14))
        keys.setSpacing(theme.px(8))
        for n, (choice, words, key, shown) in enumerate(CHOICES):
            button = self.buttons[choice] = Button(f"{tr(words)}  {shown}")
            button.setAccessibleName(tr(words))
            button.clicked.connect(lambda _=False, choice=choice: self.vote(choice))
            QShortcut(QKeySequence(key), self).activated.connect(button.click)
            keys.addWidget(button, n // 2, n % 2)  # the first two below their answers
        column = QVBoxLayout(pair)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.px(12))
        column.addWidget(bubble)
        column.addLayout(across, 1)
        column.addLayout(keys)
        self._results = QWidget()
        self._table = QVBoxLayout(self._results)
        self._table.setContentsMargins(0, 0, 0, 0)
        self._stack = QStackedWidget()
        self._stack.addWidget(pair)
        self._stack.addWidget(self._results)
        foot = QHBoxLayout()
        foot.addWidget(self.back)
        foot.addWidget(self.problem, 1)
        foot.addWidget(self.close_button)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(theme.px(24), theme.px(20), theme.px(24), theme.px(20))
        whole.setSpacing(theme.px(12))
        for part in (self.title, self.line):
            whole.addWidget(part)
        whole.addWidget(self._stack, 1)
        whole.addLayout(foot)
        self.grid: QGridLayout | None = None
        focus_ring.install(self)
        self.setMinimumSize(theme.px(640), theme.px(460))
        resize_within_screen(self, theme.px(WIDE), theme.px(HIGH))
        self._show()

    def vote(self, choice: Choice) -> None:
        """Store a vote for the shown pair and show the next one."""
        if self._at >= len(self._pairs):
            return
        try:
            self.file.add_vote(self._pairs[self._at], choice)
        except EngineError as error:
            self.problem.setText(tr("The vote was not stored. {why} Try again.", why=error.message))
            return
        voted = (i for i in range(self._at + 1, len(self._pairs)) if self._pairs[i].key not in self.file.votes)
        self._at = next(voted, len(self._pairs))
        self._show()

    def _go_back(self) -> None:
        self._at = max(self._at - 1, 0)
        self._show()

    def _show(self) -> None:
        self.problem.setText("")
        n, is_over = len(self._pairs), self._at >= len(self._pairs)
        self.back.setVisible(self._at > 0)
        self._stack.setCurrentIndex(1 if is_over else 0)
        if is_over:
            self._show_results()
        else:
            pair = self._pairs[self._at]
            self.title.setText(tr("Which answer is better?"))
            self.line.setText(
                tr(
                    "Pair {n} of {count}. The models appear after the last pair.",
                    n=figure(self._at + 1),
                    count=figure(n),
                )
            )
            asked = pair.left.task.prompt.text
            self.prompt.setText(asked if len(asked) <= QUESTION_CHARS else asked[:QUESTION_CHARS] + "…")
            for side, answer in zip(self.sides, (pair.left, pair.right), strict=True):
                side.show_text(answer.text)
        announce(self, self.line.words)

    def _show_results(self) -> None:
        rows = self.file.rows()
        self.title.setText(tr("Results"))
        self.line.setText(
            tr("{n} of {count} pairs have a vote.", n=figure(len(self.file.votes)), count=figure(len(self._pairs)))
            if self._pairs
            else tr("The file has no two different answers to the same prompt, so there is nothing to vote on.")
        )
        if self.grid is not None:
            while (item := self.grid.takeAt(0)) is not None:
                if (old := item.widget()) is not None:
                    old.hide()
                    old.deleteLater()
            self._table.removeItem(self.grid)
        grid = self.grid = QGridLayout()
        grid.setHorizontalSpacing(theme.px(20))
        grid.setVerticalSpacing(theme.px(6))
        grid.setColumnStretch(0, 1)
        heads = [tr("Model and mode"), tr("Won"), tr("Wins"), tr("Losses"), tr("Equal"), tr("Neither")]
        lines = [heads]
        for row in rows:
            share = "–" if row.win_share is None else f"{figure(100 * row.win_share, '.0f')}%"
            lines.append([row.label, share, *map(figure, (row.wins, row.losses, row.equal, row.neither))])
        trailing = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        for y, line in enumerate(lines):
            for x, words in enumerate(line):
                role, token = ("metastrong", "ink2") if y == 0 else ("cell", "ink")
                grid.addWidget(Label(words, role, token, elide=x == 0, align=None if x == 0 else trailing), 2 * y, x)
        for y, row in enumerate(rows, 1):
            speed = [rate(row.decode_tok_s), tr("first after {time}", time=seconds(row.ttft_s))]
            grid.addWidget(Label("  ·  ".join(speed), "meta"), 2 * y + 1, 0, 1, len(heads))
        self._table.insertLayout(0, grid)
        if self._table.count() == 1:
            self._table.addStretch(1)
        self.close_button.setFocus()


def open_votes(parent: QWidget, path: Path) -> QDialog:
    """Open the dialog of a file, or one that says why the file cannot be used."""
    try:
        dialog: QDialog = VotesDialog(parent, ComparisonFile(path))
    except EngineError as error:
        next_step = tr("Choose a file of results that the command hearth-engine compare has written.")
        refusal = Dialog(parent, tr("Couldn't open {name}", name=path.name), f"{error.message} {next_step}")
        refusal.add_close()
        dialog = refusal
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.open()
    return dialog
