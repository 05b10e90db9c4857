"""The line under an answer: its rate or progress, and its actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QWidget

from app.chat.answers.answer_labels import count, facts_of, figures_of, state_text
from app.chat.message_action import can_continue
from app.chat.store.conversation import Message
from app.clients.engine_status import EngineStatus, Phase
from app.translation import tr
from app.ui.look import theme
from app.ui.transcript.message_buttons import CopyButton, HoverButton, VersionSwitch
from app.ui.widgets.controls import Button, Dot, Label, ShareBar
from app.units import rate

Part = TypeVar("Part", bound=QWidget)


class StatLine(QWidget):
    """The statistics line, 32 px high. A click on its figures opens the table of all figures.

    acted: "figures", "continue", "regenerate", "more", or "back" and "on" between versions.
    """

    acted = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        # Created when first shown: a long chat has hundreds of lines, and most need few of these.
        self._dot: Dot | None = None
        self._model: Label | None = None
        self._state: Label | None = None
        self._bar: ShareBar | None = None
        self._rate: Label | None = None
        self.go_on: Button | None = None
        self._versions: VersionSwitch | None = None
        self._facts = Label("", "meta", elide=True)
        self.copy = CopyButton(tr("Copy answer"), is_answer=True)
        self.again = HoverButton("redo", tr("Answer again"))
        self.more = HoverButton("more", tr("More for this answer"))
        self._place = (1, 1)
        self._is_last = self._running = self._has_share = False
        self._message: Message | None = None
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.addWidget(self._facts, 1)
        for button in (self.copy, self.again, self.more):
            self._row.addWidget(button)
            button.setVisible(False)
        self.again.clicked.connect(self._ask_again)
        self.more.clicked.connect(self._ask_for_more)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def words(self) -> str:
        """Return the text, for tests and screen readers."""
        labels = (self._model, self._state, self._rate, self._facts)
        return " · ".join(label.words for label in labels if label and not label.isHidden() and label.words)

    def _ask_again(self) -> None:
        self.acted.emit("regenerate")

    def _ask_for_more(self) -> None:
        self.acted.emit("more")

    def _ask_to_go_on(self) -> None:
        self.acted.emit("continue")

    def show_running(self, status: EngineStatus, thinking: bool = False) -> None:
        """Show progress: state, rate, tokens. thinking: the text being written is a thought."""
        writing = status.phase is Phase.WRITING
        facts = count(status.tokens)
        status = replace(status, phase=Phase.THINKING) if thinking and writing else status
        self._show(
            working=True, state=status.word if status.answering or status.working else tr("Waiting"),
            rate_text="", facts=f"{rate(status.tok_s)}  ·  {facts}" if writing and status.tokens else "",
        )  # fmt: skip
        self._running = True
        self._show_buttons()

    def show_result(self, message: Message, model: str = "") -> None:
        """Show the result and figures. model: the model, if it differs from the previous answer's."""
        stats = message.stats or {}
        share = stats.get("gpu_neuron_load")
        figures = facts_of(stats)
        speed = rate(stats["decode_tok_s"]) if stats.get("decode_tok_s") is not None else ""
        state = state_text(message.state, stats)
        if state and speed:  # one bold word is enough
            figures, speed = [speed, *figures], ""
        self._show(working=False, state=state, rate_text=speed, facts="  ·  ".join(figures), model=model)
        if share is not None:
            if self._bar is None:
                self._bar = self._put(ShareBar(0.0, width=44), before=(self._rate, self._facts))
            self._bar.set_share(float(share))
            self._bar.setVisible(True)
        self._has_share = share is not None
        self._running, self._message = False, message
        self._show_buttons()

    def set_versions(self, which: int, count: int) -> None:
        """Set the number of this version, from 1, and their count."""
        self._place = (which, count)
        if count > 1 and self._versions is None:
            self._versions = VersionSwitch()
            self._versions.stepped.connect(lambda step: self.acted.emit("back" if step < 0 else "on"))
            self._put(self._versions, before=(self.go_on, self.copy))
        if self._versions is not None:
            self._versions.show_place(which, count)
        self._show_buttons()

    @property
    def has_figures(self) -> bool:
        """Whether there are figures of the answer to show."""
        return bool(figures_of((self._message.stats if self._message and not self._running else None) or {}))

    @property
    def has_versions(self) -> bool:
        """Whether it leads to other versions."""
        return self._place[1] > 1

    def set_last(self, last: bool) -> None:
        if last != self._is_last:
            self._is_last = last
            self._show_buttons()

    def _show_buttons(self) -> None:
        message, rests = self._message, not self._running
        self.copy.setVisible(rests and message is not None and bool(message.text))
        self.again.setVisible(rests and message is not None)
        self.more.setVisible(rests and message is not None)
        goes_on = rests and self._is_last and message is not None and can_continue(message)
        if goes_on and self.go_on is None:
            self.go_on = Button(tr("Continue"), "quiet", "go-on", tr("Continue this answer"))
            self.go_on.glyph_px = 15
            self.go_on.clicked.connect(self._ask_to_go_on)
            self._put(self.go_on, before=(self.copy,))
        if self.go_on is not None:
            self.go_on.setVisible(goes_on)
        if self._versions is not None:
            self._versions.setVisible(rests and self._place[1] > 1)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        is_here = self.rect().contains(event.position().toPoint())
        if event.button() == Qt.MouseButton.LeftButton and is_here and self.has_figures:
            self.acted.emit("figures")
        else:
            super().mouseReleaseEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        event.accept()  # otherwise the release goes to the widget below

    def _show(self, working: bool, state: str, rate_text: str, facts: str, model: str = "") -> None:
        if self._rate is None and rate_text:
            self._rate = self._put(Label("", "metastrong"), before=(self._facts,))
        if self._state is None and state:
            self._state = self._put(Label("", "metastrong"), before=(self._bar, self._rate, self._facts))
        if self._model is None and model:
            self._model = Label("", "metastrong", elide=True)
            self._model.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
            self._put(self._model, before=(self._state, self._bar, self._rate, self._facts))
        if self._dot is None and working:
            self._dot = Dot("hot_fill", working=True)
            self._put(self._dot, before=(self._model, self._state, self._bar, self._rate, self._facts))
        for label, words in ((self._model, model), (self._state, state), (self._rate, rate_text)):
            if label is not None:
                label.setVisible(bool(words))
                label.setText(words)
        if self._dot is not None:
            self._dot.setVisible(working)
            self._dot.set_state("hot_fill", working)
        if self._bar is not None:
            self._bar.setVisible(False)
        self._facts.setText(facts)
        self.setAccessibleName(tr("Statistics: {words}", words=self.words()))

    def _put(self, part: Part, before: Sequence[QWidget | None]) -> Part:
        """Insert a widget before the first of `before` that exists."""
        self._row.insertWidget(next(self._row.indexOf(other) for other in before if other is not None), part)
        return part

    def minimumSizeHint(self) -> QSize:
        """Leave out the share bar, which is hidden in a narrow column because a figure repeats it."""
        least = super().minimumSizeHint()
        bar = self._bar.width() + self._row.spacing() if self._bar is not None and not self._bar.isHidden() else 0
        return QSize(least.width() - bar, least.height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._bar is not None and self._has_share:
            bar = self._bar.sizeHint().width() + self._row.spacing()
            hidden = self._bar.isHidden()
            least = self._row.minimumSize().width() + (bar if hidden else 0)
            self._bar.setVisible(least <= self.width())

    def _restyle(self) -> None:
        self.setFixedHeight(theme.px(32))
        self._row.setSpacing(theme.px(8))
