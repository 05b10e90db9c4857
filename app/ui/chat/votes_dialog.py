"""Blind votes over the results of `hearth-engine compare`: two answers without names, then who won."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QDialog, QGridLayout, QHBoxLayout, QStackedWidget, QVBoxLayout, QWidget

from app.chat.store.conversation import Message, Role
from app.translation import figure, noted, tr
from app.ui.chat.answer_columns import AnswerColumns
from app.ui.look import theme
from app.ui.widgets import focus_ring, tab_order
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.floating import announce, resize_within_screen, set_smallest
from app.units import rate, seconds
from engine.errors import EngineError
from engine.evaluation.comparison import Choice, ComparisonFile

WIDE, HIGH = 980, 700
# What is chosen, its key, and that key on the button. The first two are below their answers.
CHOICES: tuple[tuple[Choice, str, Qt.Key, str], ...] = (
    ("left", noted("Left answer"), Qt.Key.Key_Left, "←"),
    ("right", noted("Right answer"), Qt.Key.Key_Right, "→"),
    ("equal", noted("Equally good"), Qt.Key.Key_Down, "↓"),
    ("neither", noted("Neither"), Qt.Key.Key_Up, "↑"),
)


class VotesDialog(QDialog):
    """The dialog of one file. Each vote is stored in it at once."""

    def __init__(self, parent: QWidget, file: ComparisonFile) -> None:
        super().__init__(parent)
        self.setProperty("kind", "page")
        self.setWindowTitle(tr("Blind votes"))
        self.setAccessibleName(tr("Blind votes"))
        self.file, self._pairs = file, file.pairs()
        self._at = self._next(0)
        self.title, self.line = Label("", "title"), Label("", "small", wrap=True)
        self.columns = AnswerColumns()
        self.problem = Label("", "small", "bad", wrap=True)
        self.back = Button(tr("Previous pair"), "quiet", "left")
        self.back.clicked.connect(self._go_back)
        self.close_button = Button(tr("Close"))
        self.close_button.clicked.connect(self.accept)
        keys = QGridLayout()
        for n, (choice, words, key, shown) in enumerate(CHOICES):
            button = Button(f"{tr(words)}  {shown}")
            button.setAccessibleName(tr(words))
            button.clicked.connect(lambda _=False, choice=choice: self.vote(choice))
            QShortcut(QKeySequence(key), self).activated.connect(button.click)
            keys.addWidget(button, n // 2, n % 2)
        self._stack, self._table = QStackedWidget(), QGridLayout()
        for content, layout in ((self.columns, keys), (None, self._table)):
            page = QWidget()
            column = QVBoxLayout(page)
            column.setContentsMargins(0, 0, 0, 0)
            if content is not None:
                column.addWidget(content, 1)
            column.setSpacing(theme.px(12))
            column.addLayout(layout)
            column.addStretch(0 if content is not None else 1)
            self._stack.addWidget(page)
        foot = QHBoxLayout()
        foot.addWidget(self.back)
        foot.addWidget(self.problem, 1)
        foot.addWidget(self.close_button)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(theme.px(24), theme.px(20), theme.px(24), theme.px(20))
        whole.setSpacing(theme.px(12))
        for part in (self.title, self.line, self._stack):
            whole.addWidget(part, int(part is self._stack))
        whole.addLayout(foot)
        focus_ring.install(self)
        set_smallest(self, 700, 460)
        resize_within_screen(self, theme.px(WIDE), theme.px(HIGH))
        self._show()

    def focusNextPrevChild(self, forward: bool) -> bool:
        return tab_order.move_on(self, forward)  # the answers are made late

    def vote(self, choice: Choice) -> None:
        """Store a vote for the shown pair and show the next one."""
        if self._at >= len(self._pairs):
            return
        try:
            self.file.add_vote(self._pairs[self._at], choice)
        except EngineError as error:
            self.problem.setText(tr("The vote was not stored. {why} Try again.", why=error.message))
            return
        self._at = self._next(self._at + 1)
        self._show()

    def _next(self, first: int) -> int:
        """Return the first pair without a vote from that one on; the number of pairs if there is none."""
        n = len(self._pairs)
        return next((i for i in range(first, n) if self._pairs[i].key not in self.file.votes), n)

    def _go_back(self) -> None:
        self._at -= 1
        self._show()

    def _show(self) -> None:
        n, is_over = figure(len(self._pairs)), self._at >= len(self._pairs)
        self.problem.setText("")
        self.back.setVisible(self._at > 0)
        self._stack.setCurrentIndex(int(is_over))
        self.title.setText(tr("Blind votes") if is_over else tr("Which answer is better?"))
        if not is_over:
            self.line.setText(
                tr("Pair {n} of {count}. The models appear after the last pair.", n=figure(self._at + 1), count=n)
            )
            pair = self._pairs[self._at]
            sides = ((tr("Left answer"), pair.left.text), (tr("Right answer"), pair.right.text))
            answers = [Message(Role.ASSISTANT, text, stats={"model": name}) for name, text in sides]
            self.columns.show_blind(pair.left.prompt, answers)
        elif self._pairs:
            self.line.setText(tr("{n} of {count} pairs have a vote.", n=figure(len(self.file.votes)), count=n))
            self._show_results()
        else:
            self.line.setText(
                tr("The file has no two different answers to the same prompt, so there is nothing to vote on.")
            )
        announce(self, self.line.words)

    def _show_results(self) -> None:
        grid = self._table
        while (item := grid.takeAt(0)) is not None:
            if (old := item.widget()) is not None:
                old.hide()
                old.deleteLater()
        grid.setHorizontalSpacing(theme.px(20))
        grid.setVerticalSpacing(theme.px(2))
        grid.setColumnStretch(0, 1)
        lines = [[tr("Model and mode"), tr("Win rate"), tr("Wins"), tr("Losses"), tr("Equally good"), tr("Neither")]]
        for n, row in enumerate(self.file.rows(), 1):
            share = "–" if row.win_share is None else f"{figure(100 * row.win_share, '.0f')}%"
            lines.append([row.label, share, *map(figure, (row.wins, row.losses, row.equal, row.neither))])
            speed = [rate(row.decode_tok_s), tr("first after {time}", time=seconds(row.ttft_s))]
            grid.addWidget(Label("  ·  ".join(speed), "meta"), 3 * n + 1, 0, 1, len(lines[0]))
        trailing = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        for y, line in enumerate(lines):
            for x, words in enumerate(line):
                role = "cell" if y else "metastrong"
                grid.addWidget(Label(words, role, elide=x == 0, align=trailing if x else None), 3 * y, x)
            grid.setRowMinimumHeight(3 * y + 2, theme.px(10))


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
