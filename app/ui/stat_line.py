"""The line under an answer: how fast it came or what it is doing now, and Copy. It turns figures into words."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QWidget

from app.conversation import Message, MessageState
from app.engine_status import EngineStatus, Phase, rate, seconds
from app.ui import theme
from app.ui.code_block import COPIED_MS
from app.ui.controls import Dot, IconButton, Label, ShareBar


class CopyButton(IconButton):
    """Copies `text_to_copy`, and shows for a moment that it did.

    `only_on_hover`: painted while its turn has the mouse or it has the focus; its place is kept.
    """

    def __init__(self, words: str, only_on_hover: bool = False, parent: QWidget | None = None) -> None:
        super().__init__("copy", words, parent=parent)
        self._words = words
        self._hidden = only_on_hover
        self.glyph_px = 16
        self.text_to_copy = ""
        self.clicked.connect(self._copy)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(COPIED_MS)
        self._timer.timeout.connect(self._rest)

    def reveal(self, shown: bool) -> None:
        """The mouse is over its turn, or no longer."""
        self._hidden = not shown
        self.update()

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.text_to_copy)
        self.set_words("Copied")
        self.set_glyph("check")
        self._timer.start()

    def _rest(self) -> None:
        self.set_words(self._words)
        self.set_glyph("copy")

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self._hidden or self.hasFocus() or self._timer.isActive():
            super().paintEvent(event)


class StatLine(QWidget):
    """Under an answer, 32 high: how fast it came, or what it is doing now, and Copy."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._dot = Dot("hot_fill", working=True)
        self._state = Label("", "metastrong")
        self._model = Label("", "metastrong", elide=True)
        self._bar = ShareBar(0.0, width=44)
        self._rate = Label("", "metastrong")
        self._facts = Label("", "meta", elide=True)
        self.copy = CopyButton("Copy answer")
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._model.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        for widget in (self._dot, self._model, self._state, self._bar, self._rate):
            self._row.addWidget(widget)
        self._row.addWidget(self._facts, 1)
        self._row.addWidget(self.copy)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def words(self) -> str:
        """All that it says, for tests and screen readers."""
        shown = (w.words for w in (self._model, self._state, self._rate, self._facts) if not w.isHidden() and w.words)
        return " · ".join(shown)

    def show_running(self, status: EngineStatus) -> None:
        """While the answer is under way: state word, rate, tokens."""
        writing = status.phase is Phase.WRITING
        facts = f"{status.tokens:,} tokens" if status.tokens != 1 else "1 token"
        self._show(
            working=True, state=status.word if status.answering or status.working else "Waiting",
            rate_words="", facts=f"{rate(status.tok_s)}  ·  {facts}" if writing and status.tokens else "",
        )  # fmt: skip
        self.copy.setVisible(False)

    def show_result(self, message: Message, model: str = "") -> None:
        """After it: what became of it, and its figures. model: who answered, where that was another one before."""
        stats = message.stats or {}
        share = stats.get("gpu_neuron_load")
        figures = facts_of(stats)
        speed = rate(stats["decode_tok_s"]) if stats.get("decode_tok_s") is not None else ""
        state = state_words(message.state, stats)
        if state and speed:  # one bold word is enough
            figures, speed = [speed, *figures], ""
        self._show(working=False, state=state, rate_words=speed, facts="  ·  ".join(figures), model=model)
        self._bar.setVisible(share is not None)
        if share is not None:
            self._bar.set_share(float(share))
        self.copy.setVisible(bool(message.text))

    def _show(self, working: bool, state: str, rate_words: str, facts: str, model: str = "") -> None:
        self._model.setVisible(bool(model))
        self._model.setText(model)
        self._dot.setVisible(working)
        self._state.setVisible(bool(state))
        self._state.setText(state)
        self._bar.setVisible(False)
        self._rate.setVisible(bool(rate_words))
        self._rate.setText(rate_words)
        self._facts.setText(facts)
        self.setAccessibleName(f"Statistics: {self.words()}")

    def _restyle(self) -> None:
        self.setFixedHeight(theme.px(32))
        self._row.setSpacing(theme.px(8))


def state_words(state: MessageState, stats: dict[str, Any]) -> str:
    """How an answer ended, when it did not end by itself."""
    if state is MessageState.CANCELLED:
        return "Stopped"
    if state is MessageState.LENGTH:
        full = stats.get("finish_reason") == "context"
        return "Cut off: the context is full" if full else "Cut off at the length limit"
    if state is MessageState.INTERRUPTED:
        return "Interrupted: Hearth closed in mid-answer"
    return "Not finished: the engine failed" if state is MessageState.FAILED else ""


def facts_of(stats: dict[str, Any]) -> list[str]:
    """The figures of a finished answer in words; what is unknown is left out."""
    facts = []
    tokens = stats.get("tokens")
    if tokens is not None:
        words = f"{tokens:,} tokens" if tokens != 1 else "1 token"
        facts.append(f"{words} in {seconds(stats['total_s'])}" if stats.get("total_s") is not None else words)
    if stats.get("ttft_s") is not None:
        facts.append(f"first after {seconds(stats['ttft_s'])}")
    if stats.get("active_share") is not None:
        percent = 100 * float(stats["active_share"])
        facts.append(f"{percent:.0f}% of neurons" if percent >= 1 else "under 1% of neurons")
    return facts
