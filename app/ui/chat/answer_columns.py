"""The answers to one question side by side, in place of the messages. Narrow pages stack them."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from app.chat.answers.answer_labels import MODES, count, facts_of, state_text
from app.chat.side_by_side import FAILURE, Way
from app.chat.store.conversation import Message, MessageState
from app.clients.engine_status import EngineStatus, Phase
from app.translation import figure, tr, tr_n
from app.ui.look import theme
from app.ui.transcript.answer_view import AnswerView
from app.ui.transcript.message_buttons import CopyButton
from app.ui.transcript.own_message import BUBBLE_WIDTH
from app.ui.widgets.controls import Button, Chip, Dot, Label
from app.units import rate

MOST_COLUMNS, NARROWEST, WIDEST = 3, 306, 560  # px of a column
QUESTION_CHARS = 300


class ColumnAnswer(AnswerView):
    """An answer without the statistics line, whose figures are in the head of the column."""

    def _show_stats(self) -> None:
        self.stats.hide()


class AnswerColumn(QFrame):
    """One answer: model, mode, figures, text. continued: the user wants to continue with it."""

    continued = Signal(str)
    link_activated = Signal(str)

    def __init__(self, message: Message | None, way: Way | None = None) -> None:
        """way: of an answer that is still to come."""
        super().__init__()
        self.setProperty("kind", "card")
        self.message = message
        stats = (message.stats if message is not None else way.figures if way is not None else None) or {}
        self.title = Label(str(stats.get("model") or tr("Unknown model")), "heading", elide=True)
        self.mode = Chip("")
        self.dot = Dot("hot_fill", working=True)
        self.state = Label("", "small", elide=True)
        self.facts = Label("", "meta", wrap=True)
        self.why = Label("", "small", "bad", wrap=True)
        self.copy = CopyButton(tr("Copy answer"), is_answer=True)
        self.choose = Button(tr("Continue with this one"))
        self.choose.clicked.connect(lambda: self.continued.emit(self.message.id if self.message else ""))
        self.chosen = Label(tr("The chat continues with this one"), "small")
        self.answer: ColumnAnswer | None = None
        head, line, self._foot = QHBoxLayout(), QHBoxLayout(), QHBoxLayout()
        head.addStrut(theme.px(22))
        head.addWidget(self.title, 1)
        head.addWidget(self.mode)
        line.addWidget(self.dot)
        line.addWidget(self.state, 1)
        self._foot.addWidget(self.choose)
        self._foot.addWidget(self.chosen)
        self._foot.addStretch(1)
        self._foot.addWidget(self.copy)
        self._column = QVBoxLayout(self)
        for row in (head, line):
            self._column.addLayout(row)
        self._column.addWidget(self.facts)
        if message is not None:
            self.answer = ColumnAnswer(message, self)
            self.answer.stats.hide()
            self.answer.link_activated.connect(self.link_activated)
            self._column.addWidget(self.answer)
        self._column.addWidget(self.why)
        self._column.addStretch(1)
        self._column.addLayout(self._foot)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self._show(stats)

    @property
    def is_writing(self) -> bool:
        """Whether its answer is not complete."""
        return self.message is not None and self.message.state is MessageState.WRITING

    def finish(self, message: Message) -> None:
        """Show the newest state of its answer."""
        if self.answer is not None and message != self.message:
            self.message = message
            if message.state is not MessageState.WRITING:
                self.answer.finish(message)
                self.answer.stats.hide()
        self._show(message.stats or {})

    def set_status(self, status: EngineStatus) -> None:
        """Show progress while the answer is in progress."""
        if self.is_writing and self.answer is not None:
            self.answer.set_status(status)
            self.state.setText(status.word if status.working else tr("Waiting"))
            is_known = status.phase is Phase.WRITING and bool(status.tokens)
            words = [rate(status.tok_s)] if status.tok_s else []
            self.facts.setText("  ·  ".join([*words, count(status.tokens)]) if is_known else "")
            self.facts.setVisible(is_known)

    def set_choice(self, is_chosen: bool, can_choose: bool) -> None:
        """Set whether the chat continues with this answer, and whether the user may choose it."""
        self.chosen.setVisible(is_chosen)
        has_text = self.message is not None and bool(self.message.text.strip())
        self.choose.setVisible(can_choose and not is_chosen and has_text)
        self.copy.setVisible(bool(self.copy.text_to_copy) and not self.is_writing)

    def set_width(self, width: int) -> None:
        """Lay the text out for a column of that width."""
        if self.answer is not None:
            margins = self._column.contentsMargins()
            self.answer.set_width(width - margins.left() - margins.right() - 2)

    def _show(self, stats: dict[str, object]) -> None:
        message, mode = self.message, str(stats.get("mode") or "")
        self.title.setText(str(stats.get("model") or tr("Unknown model")))
        self.mode.setText(tr(MODES[mode]) if mode in MODES else "")
        self.mode.setVisible(mode in MODES)
        self.dot.setVisible(self.is_writing)
        state = tr("Comes next") if message is None else tr("Waiting") if self.is_writing else ""
        if message is not None and not self.is_writing:
            state = state_text(message.state, stats)
            speed = stats.get("decode_tok_s")
            words = [rate(float(str(speed)))] if speed else []
            self.facts.setText("  ·  ".join([*words, *facts_of(stats)]))
        failure = str(stats.get(FAILURE) or "")
        self.state.setText("" if failure else state)
        self.state.setVisible(bool(self.state.words))
        self.facts.setVisible(bool(self.facts.words))
        self.why.setText(failure)
        self.why.setVisible(bool(failure))
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
        self.setAccessibleName(tr("Answers side by side"))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        inside = QWidget()
        self.heading = Label("", "meta", "ink2", elide=True)
        self.question = Label("", "body", wrap=True)
        self.back = Button(tr("Back to the chat"), "quiet", "left")
        self.back.clicked.connect(self.left)
        self._bubble = QFrame()
        self._bubble.setProperty("kind", "bubble")
        self._asked = QVBoxLayout(self._bubble)
        self._asked.addWidget(self.question)
        top = QHBoxLayout()
        top.addWidget(self.heading, 1)
        top.addWidget(self.back)
        self._column = QVBoxLayout(inside)
        self._column.addLayout(top)
        self._column.addWidget(self._bubble, 0, Qt.AlignmentFlag.AlignRight)
        self._grid = QGridLayout()
        self._column.addLayout(self._grid)
        self._column.addStretch(1)
        self.setWidget(inside)
        inside.setAutoFillBackground(False)
        self.columns: list[AnswerColumn] = []
        self._status = EngineStatus()
        theme.current().changed.connect(self._lay_out)

    def show_answers(
        self, question: str, answers: Sequence[Message], waiting: Sequence[Way], chosen: str, is_running: bool
    ) -> None:
        """Show these answers, then those that are still to come. chosen: id of the one in the chat."""
        asked = " ".join(question.split())
        self.question.setText(asked if len(asked) <= QUESTION_CHARS else asked[:QUESTION_CHARS] + "…")
        n = len(answers) + len(waiting)
        self.heading.setText(tr_n("{n} answer to this question", "{n} answers to this question", n, n=figure(n)))
        known = {column.message.id: column for column in self.columns if column.message is not None}
        columns = []
        for message in answers:
            column = known.pop(message.id, None)
            if column is None:
                column = self._wired(AnswerColumn(message))
            column.finish(message)
            columns.append(column)
        for old in self.columns:
            if old not in columns:
                old.hide()
                old.deleteLater()
        self.columns = columns + [self._wired(AnswerColumn(None, way)) for way in waiting]
        for column in self.columns:
            mine = column.message is not None and column.message.id == chosen
            column.set_choice(mine and not is_running, not is_running)
        self.set_status(self._status)
        self._lay_out()

    def _wired(self, column: AnswerColumn) -> AnswerColumn:
        column.continued.connect(self.continued)
        column.link_activated.connect(self.link_activated)
        return column

    def append_text(self, message_id: str, text: str) -> None:
        """Append text to an answer in progress."""
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
        if event.key() == Qt.Key.Key_Escape and not self._status.answering:
            self.left.emit()
        else:
            super().keyPressEvent(event)

    def _lay_out(self) -> None:
        px, gap = theme.px, theme.px(14)
        room = self.width() - px(48)
        n = max(min(len(self.columns), MOST_COLUMNS, (room + gap) // (px(NARROWEST) + gap)), 1)
        wide = min((room - (n - 1) * gap) // n, px(WIDEST))
        side = (self.width() - n * wide - (n - 1) * gap) // 2
        bar = self.width() - self.viewport().width()
        self._column.setContentsMargins(side, px(16), max(side - bar, px(8)), px(16))
        self._column.setSpacing(px(12))
        words = self.question.fontMetrics().horizontalAdvance(self.question.words) + 2
        self.question.setFixedWidth(min(words, px(BUBBLE_WIDTH), n * wide - px(32)))
        self.question.setFixedHeight(self.question.heightForWidth(self.question.width()))
        self._asked.setContentsMargins(px(16), px(10), px(16), px(10))
        self._grid.setSpacing(gap)
        for i in range(MOST_COLUMNS):
            self._grid.setColumnStretch(i, 1 if i < n else 0)
        for i, column in enumerate(self.columns):
            column.set_width(wide)
            column.setFixedWidth(wide)
            self._grid.addWidget(column, i // n, i % n)
            column.show()
