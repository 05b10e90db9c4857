"""The answers to one question side by side, in place of the messages. Narrow pages stack them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QResizeEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from app.chat.answers.answer_labels import MODES, count, facts_of, state_text
from app.chat.answers.comparison import verdict
from app.chat.side_by_side import FAILURE, ModelChoice
from app.chat.store.conversation import Message, MessageState
from app.clients.engine_status import EngineStatus, Phase
from app.translation import figure, tr, tr_n
from app.ui.look import theme
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.message_buttons import CopyButton
from app.ui.transcript.message_column import MessageColumn
from app.ui.transcript.message_view import MessageView
from app.ui.transcript.own_message import BUBBLE_WIDTH
from app.ui.transcript.selection.selection import TextSelection
from app.ui.widgets.controls import Button, Chip, Dot, Label
from app.units import rate

MOST_COLUMNS, NARROWEST, WIDEST = 3, 306, 560  # px of a column
QUESTION_CHARS = 300


class ColumnAnswer(AnswerView):
    """An answer without the statistics line, whose figures are in the head of the column."""

    def _show_stats(self) -> None:
        self.stats.hide()


class AnswerColumn(QFrame):
    """One answer: model, mode, figures, text. choice: of an answer that is still to come."""

    continued = Signal(str)  # id of the answer

    def __init__(self, message: Message | None, choice: ModelChoice | None = None) -> None:
        super().__init__()
        self.setProperty("kind", "card")
        self.message = message
        self.selection: TextSelection | None = None
        self.title, self.mode = Label("", "heading", elide=True), Chip("")
        self.dot, self.state = Dot("hot_fill", working=True), Label("", "small", elide=True)
        self.facts, self.why = Label("", "meta", wrap=True), Label("", "small", "bad", wrap=True)
        self.copy = CopyButton(tr("Copy answer"), is_answer=True)
        self.choose = Button(tr("Continue with this one"))
        self.choose.clicked.connect(lambda: self.continued.emit(self.message.id if self.message else ""))
        self.chosen = Label(tr("The chat continues with this one"), "small")
        self.answer = ColumnAnswer(message, self) if message is not None else None
        head, line, foot = QHBoxLayout(), QHBoxLayout(), QHBoxLayout()
        head.addStrut(theme.px(22))
        head.addWidget(self.title, 1)
        head.addWidget(self.mode)
        line.addWidget(self.dot)
        line.addWidget(self.state, 1)
        for part in (self.choose, self.chosen):
            foot.addWidget(part)
        foot.addStretch(1)
        foot.addWidget(self.copy)
        column = self._column = QVBoxLayout(self)
        column.addLayout(head)
        column.addLayout(line)
        column.addWidget(self.facts)
        if self.answer is not None:
            self.answer.stats.hide()
            column.addWidget(self.answer)
        column.addWidget(self.why)
        column.addStretch(1)
        column.addLayout(foot)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self._show((message.stats if message is not None else choice.figures if choice is not None else None) or {})

    # --- a column of one message, for its selection

    first, last = 0, 1

    @property
    def messages(self) -> list[Message]:
        return [self.message] if self.message is not None else []

    @property
    def views(self) -> list[MessageView]:
        return [self.answer] if self.answer is not None else []

    def index(self, message_id: str) -> int:
        return 0

    def view(self, message_id: str) -> MessageView | None:
        return self.answer

    def loose_view(self, message: Message) -> MessageView:
        return MessageColumn.loose_view(message)

    def first_visible(self, top: int) -> int:
        return 0

    # --- its state

    @property
    def is_writing(self) -> bool:
        return self.message is not None and self.message.state is MessageState.WRITING

    def take(self, message: Message) -> None:
        """Show the newest state of its answer."""
        if self.answer is not None and message != self.message:
            self.message = message
            if not self.is_writing:
                self.answer.finish(message)
            self._show(message.stats or {})

    def set_status(self, status: EngineStatus) -> None:
        if self.is_writing and self.answer is not None:
            self.answer.set_status(status)
            self.state.setText(status.word if status.working else tr("Waiting"))
            is_known = status.phase is Phase.WRITING and bool(status.tokens)
            words = [rate(status.tok_s)] if status.tok_s else []
            self.facts.setText("  ·  ".join([*words, count(status.tokens)]) if is_known else "")
            self.facts.setVisible(is_known)

    def set_choice(self, is_chosen: bool, can_choose: bool) -> None:
        """Set whether the chat continues with this answer, and whether the user may choose it."""
        has_text = self.message is not None and bool(self.message.text.strip())
        self.chosen.setVisible(is_chosen)
        self.choose.setVisible(can_choose and not is_chosen and has_text)
        self.copy.setVisible(has_text and not self.is_writing)

    def set_width(self, width: int) -> None:
        self.setFixedWidth(width)
        if self.answer is not None:
            self.answer.set_width(width - 2 * theme.px(16) - 2)

    def _show(self, stats: Mapping[str, Any]) -> None:
        message, mode, failure = self.message, stats.get("mode"), str(stats.get(FAILURE) or "")
        state = tr("Comes next") if message is None else tr("Waiting")
        if message is not None and not self.is_writing:
            state = "" if failure else state_text(message.state, stats)
            speed = [rate(stats["decode_tok_s"])] if stats.get("decode_tok_s") else []
            self.facts.setText("  ·  ".join([*speed, *facts_of(stats)]))
        self.title.setText(str(stats.get("model") or "–"))
        self.mode.setText(tr(MODES[mode]) if mode in MODES else "")
        self.mode.setVisible(mode in MODES)
        self.dot.setVisible(self.is_writing)
        for label, words in ((self.state, state), (self.facts, self.facts.words), (self.why, failure)):
            label.setText(words)
            label.setVisible(bool(words))
        self.copy.text_to_copy = self.answer.source if self.answer is not None else ""
        self.setAccessibleName(", ".join(w for w in (self.title.words, self.mode.text(), self.facts.words) if w))

    def _restyle(self) -> None:
        px = theme.px
        self._column.setContentsMargins(px(16), px(14), px(16), px(12))
        self._column.setSpacing(px(8))


class AnswerColumns(QScrollArea):
    """All answers to a question. continued: id of the one to continue with. left: show the chat again."""

    continued = Signal(str)
    left = Signal()
    link_activated = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "plain")
        self.setAccessibleName(tr("Answers"))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.heading, self.question = Label("", "meta", "ink2", elide=True), Label("", "body", wrap=True)
        self.back = Button(tr("Back to the chat"), "quiet", "left")
        self.back.clicked.connect(self.left)
        inside, bubble, top, self._grid = QWidget(), QFrame(), QHBoxLayout(), QGridLayout()
        bubble.setProperty("kind", "bubble")
        self._asked = QVBoxLayout(bubble)
        self._asked.addWidget(self.question)
        top.addWidget(self.heading, 1)
        top.addWidget(self.back)
        self._column = QVBoxLayout(inside)
        self._column.addLayout(top)
        self._column.addWidget(bubble, 0, Qt.AlignmentFlag.AlignRight)
        self._column.addLayout(self._grid)
        self._column.addStretch(1)
        self.setWidget(inside)
        inside.setAutoFillBackground(False)
        self.columns: list[AnswerColumn] = []
        self._status = EngineStatus()
        theme.current().changed.connect(self._lay_out)

    def show_answers(
        self, question: str, answers: Sequence[Message], waiting: Sequence[ModelChoice], chosen: str, is_running: bool
    ) -> None:
        """Show these answers, then those that are still to come. chosen: id of the one in the chat."""
        asked = " ".join(question.split())
        is_long = len(asked) > QUESTION_CHARS
        self.question.setText(asked[:QUESTION_CHARS] + "…" if is_long else asked)
        self.question.setToolTip(question if is_long else "")
        n = len(answers) + len(waiting)
        words = tr_n("{n} answer to this question", "{n} answers to this question", n, n=figure(n))
        if n == len(answers) == 2 and not is_running:
            words = "  ·  ".join(part for part in (words, verdict(*answers)) if part)
        self.heading.setText(words)
        known = {one.message.id: one for one in self.columns if one.message is not None}
        for one in answers:  # an answer that is continued gets a view that takes text
            if one.id in known and one.state is MessageState.WRITING and not known[one.id].is_writing:
                del known[one.id]
        old = set(self.columns)
        self.columns = [known.get(one.id) or self._wired(AnswerColumn(one)) for one in answers]
        for column in old - set(self.columns):
            column.hide()
            column.deleteLater()
        for column, message in zip(self.columns, answers, strict=True):
            column.take(message)
        self.columns += [self._wired(AnswerColumn(None, choice)) for choice in waiting]
        for column in self.columns:
            mine = column.message is not None and column.message.id == chosen
            column.set_choice(mine and not is_running, not is_running)
        self.set_status(self._status)
        self._lay_out()

    def show_blind(self, question: str, answers: Sequence[Message]) -> None:
        """Show answers that belong to no chat."""
        self.show_answers(question, answers, (), "", is_running=True)
        self.heading.hide()
        self.back.hide()
        self.verticalScrollBar().setValue(0)

    def _wired(self, column: AnswerColumn) -> AnswerColumn:
        column.continued.connect(self.continued)
        if column.answer is not None:
            column.answer.link_activated.connect(self.link_activated)
            selection = column.selection = TextSelection(self, column)
            selection.setParent(column)
            selection.link_activated.connect(self.link_activated)
            selection.began.connect(partial(self._end_others, column))
            column.answer.text_selected.connect(selection.give_way)
            column.answer.grown.connect(partial(selection.show_in, column.answer))
        return column

    def _end_others(self, column: AnswerColumn) -> None:
        for one in self.columns:
            if one is not column and one.selection is not None:
                one.selection.clear()

    def copy_selection(self) -> None:
        """Copy the selected text, if there is any."""
        for one in self.columns:
            if one.selection is not None:
                one.selection.copy()

    def append_text(self, message_id: str, text: str) -> None:
        for column in self.columns:
            if column.answer is not None and column.answer.message.id == message_id:
                column.answer.append(text)

    def set_status(self, status: EngineStatus) -> None:
        """Show the engine's status at the answer in progress."""
        self._status = status
        for column in self.columns:
            column.set_status(status)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy_selection()
        else:
            super().keyPressEvent(event)

    def _lay_out(self) -> None:
        px, gap, edge = theme.px, theme.px(14), 0 if self.back.isHidden() else theme.px(24)
        room = self.width() - 2 * edge
        n = max(min(len(self.columns), MOST_COLUMNS, (room + gap) // (px(NARROWEST) + gap)), 1)
        bar = self.verticalScrollBar().sizeHint().width() if edge == 0 else 0
        wide = min((room - bar - (n - 1) * gap) // n, px(WIDEST))
        side = (self.width() - bar - n * wide - (n - 1) * gap) // 2
        right = max(side - (self.width() - self.viewport().width()), 0)
        self._column.setContentsMargins(side, px(16) if edge else 0, right, px(16))
        self._column.setSpacing(px(12))
        words = self.question.fontMetrics().horizontalAdvance(self.question.words) + 2
        self.question.setFixedWidth(min(words, px(BUBBLE_WIDTH), n * wide - px(32)))
        self.question.fix_height(self.question.width())
        self._asked.setContentsMargins(px(16), px(10), px(16), px(10))
        self._grid.setSpacing(gap)
        for i, column in enumerate(self.columns):
            column.set_width(wide)
            self._grid.addWidget(column, i // n, i % n)
            column.show()
