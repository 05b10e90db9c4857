"""The dialog that answers a prompt twice, exact or sparse and dense, side by side with the differences marked.

It shows a Comparison and starts it through a callback; it knows neither engine nor chat.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QCloseEvent, QKeyEvent, QPaintEvent, QResizeEvent, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import (
    QBoxLayout,
    QDialog,
    QFrame,
    QHBoxLayout,
    QPlainTextEdit,
    QSizePolicy,
    QTextEdit,
    QVBoxLayout,
    QWidget,
)

from app.chat.answers.comparison import Comparison, Side, SideState, differences, verdict
from app.text.markdown_blocks import displayable
from app.translation import figure, noted, tr, tr_n
from app.ui.look import theme
from app.ui.look.painting import antialiased, block
from app.ui.widgets import focus_ring
from app.ui.widgets.controls import Button, Dot, Label
from app.ui.widgets.floating import announce, resize_within_screen
from app.units import rate, seconds

WIDE, HIGH = 880, 640
# px: a narrower dialog stacks the cards if it is at least STACKED_FROM high. If both are small, side by side shows more
# text.
SIDE_BY_SIDE_FROM, STACKED_FROM = 640, 640
PROMPT_LINES = 2
MOST_MARKS = 2_000
_LINE = re.compile(r"[^\s](?:[^\n]*[^\s])?")
WAITS = {
    SideState.WAITING: noted("Comes next"),
    SideState.RUNNING: noted("Answering"),
    SideState.STOPPED: noted("Stopped"),
    SideState.FAILED: noted("Not finished"),
}

Start = Callable[[str], Comparison]


class RateBar(QWidget):
    """A rate as a bar relative to the faster one; ink-coloured, because it is neither GPU nor CPU."""

    def __init__(self) -> None:
        super().__init__()
        self._share = 0.0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def set_share(self, share: float) -> None:
        """Set the length, relative to the faster side."""
        self._share = min(max(share, 0.0), 1.0)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, radius = antialiased(self), self.height() / 2
        block(painter, QRectF(self.rect()), theme.colour("bubble"), radius)
        wide = max(self._share * self.width(), self.height()) if self._share else 0
        x = self.width() - wide if self.isRightToLeft() else 0
        if wide:
            block(painter, QRectF(x, 0, wide, self.height()), theme.colour("ink2"), radius)

    def _restyle(self) -> None:
        self.setFixedHeight(theme.px(6))
        self.update()


class SideCard(QFrame):
    """One side: title, rate, figures and text."""

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("kind", "card")
        self.title = Label("", "heading")
        self.dot = Dot("hot_fill", working=True)
        self.state = Label("", "small")
        self.rate = Label("", "number")
        self.bar = RateBar()
        self.facts = Label("", "meta", elide=True)
        self.words = QPlainTextEdit()
        self.words.setReadOnly(True)
        self.words.setProperty("kind", "plain")
        self.words.setFrameShape(QFrame.Shape.NoFrame)
        self.words.viewport().setAutoFillBackground(False)
        self.words.document().setDocumentMargin(0)
        self.words.setTabChangesFocus(True)
        self.words.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._head = QHBoxLayout()
        for part in (self.title, self.dot, self.state):
            self._head.addWidget(part)
        self._head.addStretch(1)
        self._head.addWidget(self.rate)
        self._column = QVBoxLayout(self)
        self._column.addLayout(self._head)
        self._column.addWidget(self.bar)
        self._column.addWidget(self.facts)
        self._column.addWidget(self.words, 1)
        self._shown = ""
        self._marks: tuple[tuple[int, int], ...] = ()
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def show_side(self, side: Side, fastest: float) -> None:
        """Show a side's state. fastest: the higher of both rates, in tokens/s; 0 while none is known."""
        result, running = side.result, side.state is SideState.RUNNING
        self.title.setText(side.title)
        self.dot.setVisible(running)
        self.state.setText(tr(WAITS.get(side.state, "")))
        self.state.setVisible(bool(self.state.words))
        self.rate.setText(rate(side.tok_s) if side.tok_s else "")
        self.bar.set_share((side.tok_s or 0.0) / fastest if fastest else 0.0)
        self.facts.setText("  ·  ".join(facts(side)))
        self._show_text(side.text)
        if result is not None:
            self.setAccessibleName(f"{side.title}: {rate(side.tok_s)}, {', '.join(facts(side))}")
        self.words.setAccessibleName(tr("Answer, {side}", side=side.title.lower()))

    def mark(self, spans: tuple[tuple[int, int], ...]) -> None:
        """Mark the text that the other side does not have."""
        self._marks = spans
        look = QTextCharFormat()
        look.setBackground(theme.colour("warn_soft"))
        look.setForeground(theme.colour("ink"))
        look.setFontUnderline(True)  # colour is never the only cue
        look.setUnderlineColor(theme.colour("warn"))
        selections = []
        for start, end in by_line(self._shown, spans)[:MOST_MARKS]:
            one = QTextEdit.ExtraSelection()
            cursor = QTextCursor(self.words.document())
            cursor.setPosition(units(self._shown, start))
            cursor.setPosition(units(self._shown, end), QTextCursor.MoveMode.KeepAnchor)
            one.cursor, one.format = cursor, look
            selections.append(one)
        self.words.setExtraSelections(selections)

    def _show_text(self, text: str) -> None:
        words = displayable(text)
        if words == self._shown:
            return
        bar = self.words.verticalScrollBar()
        follows = bar.value() >= bar.maximum() - theme.px(8)
        if words.startswith(self._shown):
            cursor = QTextCursor(self.words.document())
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(words[len(self._shown) :])
        else:
            self.words.setPlainText(words)
        self._shown = words
        if follows:
            bar.setValue(bar.maximum())

    def _restyle(self) -> None:
        px = theme.px
        self._column.setContentsMargins(px(16), px(12), px(12), px(10))
        self._column.setSpacing(px(8))
        self._head.setSpacing(px(8))
        self.words.setFont(theme.font("row"))
        self.mark(self._marks)


def by_line(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Split spans at line ends, which are not marked."""
    return [(start + m.start(), start + m.end()) for start, end in spans for m in _LINE.finditer(text[start:end])]


def units(text: str, place: int) -> int:
    """Convert an index of Python characters to Qt's UTF-16 code units."""
    return place + sum(character > "\uffff" for character in text[:place])


def facts(side: Side) -> list[str]:
    """Return a side's figures other than its rate."""
    result = side.result
    if result is None:
        return []
    words = [tr_n("{n} token", "{n} tokens", result.tokens, n=figure(result.tokens))]
    if result.ttft_s is not None:
        words.append(tr("first after {time}", time=seconds(result.ttft_s)))
    share = 1.0 if result.mode == "dense" else result.active_share
    if share is not None:
        words.append(
            tr("{share}% of neurons", share=figure(100 * share, ".0f")) if share >= 0.01 else tr("under 1% of neurons")
        )
    return words


class PromptField(QPlainTextEdit):
    """The field of the prompt. Enter compares, Shift+Enter breaks the line, as in the composer."""

    entered = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_enter = event.key() in {Qt.Key.Key_Return, Qt.Key.Key_Enter}
        if is_enter and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.entered.emit()
        else:
            super().keyPressEvent(event)


class CompareDialog(QDialog):
    """The comparison dialog. start: starts a comparison of a prompt; closing the dialog stops it."""

    def __init__(self, parent: QWidget, prompt: str, start: Start, cannot: str = "") -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Compare with dense"))
        self.setAccessibleName(tr("Compare with dense"))
        self.setProperty("kind", "page")
        self._start = start
        self.comparison: Comparison | None = None
        self.title = Label(tr("Compare with dense"), "title")
        self.line = Label(
            tr("Answers the same prompt twice on this PC: as in this chat, then with every neuron. Nothing is saved."),
            "small", wrap=True,
        )  # fmt: skip
        self.prompt = PromptField(prompt)
        self.prompt.setProperty("kind", "field")
        self.prompt.setTabChangesFocus(True)
        self.prompt.setAccessibleName(tr("Prompt"))
        self.prompt.setPlaceholderText(tr("Write a prompt for both"))
        self.go = Button(tr("Compare"), "primary")
        self.close_button = Button(tr("Close"))
        self.cards = (SideCard(), SideCard())
        self.says = Label("", "label", wrap=True)
        self._across = QHBoxLayout()
        self._across.addWidget(self.prompt, 1)
        self._across.addWidget(self.go, 0, Qt.AlignmentFlag.AlignBottom)
        self._sides = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        for card in self.cards:
            self._sides.addWidget(card, 1)
        self._foot = QHBoxLayout()
        self._foot.addWidget(self.says, 1)
        self._foot.addWidget(self.close_button, 0, Qt.AlignmentFlag.AlignBottom)
        self._column = QVBoxLayout(self)
        self._column.addWidget(self.title)
        self._column.addWidget(self.line)
        self._column.addLayout(self._across)
        self._column.addLayout(self._sides, 1)
        self._column.addLayout(self._foot)
        for card in self.cards:
            card.hide()
        self._spare = QWidget()
        self._column.insertWidget(4, self._spare, 1)
        self.go.clicked.connect(self._press)
        self.prompt.entered.connect(lambda: self._press() if self.go.isEnabled() and not self._is_running else None)
        self.close_button.clicked.connect(self.close)
        self.prompt.textChanged.connect(self._tell)
        self._cannot = cannot
        focus_ring.install(self)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self._tell()
        resize_within_screen(self, theme.px(WIDE), theme.px(HIGH))
        (self.go if prompt.strip() and not cannot else self.prompt).setFocus()

    def set_cannot(self, why: str) -> None:
        """Set why no comparison is possible now; empty if one is."""
        self._cannot = why
        self._tell()

    @property
    def _is_running(self) -> bool:
        return self.comparison is not None and self.comparison.is_running

    def _press(self) -> None:
        if self.comparison is not None and self.comparison.is_running:
            self.comparison.stop()
            return
        self.comparison = self._start(self.prompt.toPlainText().strip())
        self.comparison.changed.connect(self._show)
        self.comparison.ended.connect(self._show_end)
        self.prompt.verticalScrollBar().setValue(0)  # show the beginning of the prompt
        self._spare.hide()
        for card in self.cards:
            card.mark(())
            card.show()
        self._show()

    def _show(self) -> None:
        if self.comparison is None:
            return
        fastest = max((side.tok_s or 0.0 for side in self.comparison.sides), default=0.0)
        for card, side in zip(self.cards, self.comparison.sides, strict=True):
            card.show_side(side, fastest)
        self._tell()

    def _show_end(self) -> None:
        comparison = self.comparison
        if comparison is None:
            return
        self._show()
        first, second = comparison.sides
        if first.text and second.text:
            found = differences(displayable(first.text), displayable(second.text))
            self.cards[0].mark(found.left)
            self.cards[1].mark(found.right)
            for card in self.cards:  # show the beginning of both answers
                card.words.verticalScrollBar().setValue(0)
        announce(self, self.says.words)

    def _tell(self) -> None:
        comparison, running = self.comparison, self._is_running
        self.go.setText(tr("Stop") if running else tr("Compare again") if comparison is not None else tr("Compare"))
        self.go.set_look("secondary" if running else "primary")
        self.go.setEnabled(running or (bool(self.prompt.toPlainText().strip()) and not self._cannot))
        self.prompt.setReadOnly(running)
        words, token = self._cannot, "ink2"
        if comparison is not None and running:
            words = comparison.status_text
        elif comparison is not None and comparison.problem:
            words, token = comparison.problem, "bad"
        elif comparison is not None:
            words, token = " ".join(verdict(*comparison.sides)), "ink"
            words = words or tr("Stopped before both had answered.")
        self.says.set_look("label", token)
        self.says.setText(words)

    def done(self, result: int) -> None:
        self._end()
        super().done(result)

    def closeEvent(self, event: QCloseEvent) -> None:
        self._end()
        super().closeEvent(event)

    def _end(self) -> None:
        if self.comparison is not None:
            self.comparison.stop()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        wide = self.width() >= theme.px(SIDE_BY_SIDE_FROM) or self.height() < theme.px(STACKED_FROM)
        way = QBoxLayout.Direction
        self._sides.setDirection(way.LeftToRight if wide else way.TopToBottom)

    def _restyle(self) -> None:
        px = theme.px
        self._column.setContentsMargins(px(24), px(20), px(24), px(20))
        self._column.setSpacing(px(12))
        self._across.setSpacing(px(8))
        self._sides.setSpacing(px(14))
        self._foot.setSpacing(px(12))
        self.prompt.setFont(theme.font("row"))
        self.prompt.setFixedHeight(PROMPT_LINES * theme.line_height("row") + px(18))
        self.setMinimumSize(px(480), px(460))
