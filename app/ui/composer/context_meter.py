"""The context meter in the composer, and its popup with the policy for a full context.

The engine counts the tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetrics, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.clients.engine_status import EngineStatus
from app.translation import figure, noted, tr, tr_n
from app.ui.composer.tools_button import cost_of_tools
from app.ui.look import theme
from app.ui.look.direction import order
from app.ui.look.painting import antialiased, block
from app.ui.widgets.controls import Button, Label, Rule, Segments
from app.ui.widgets.indicators import paint_ring
from app.ui.widgets.popover import Popover

if TYPE_CHECKING:
    from engine.service.protocol import CountResult

POLICIES = (
    ("roll", noted("Drop oldest")),
    ("middle", noted("Keep the beginning")),
    ("summarise", noted("Summarise")),
    ("stop", noted("Stop")),
)
EFFECTS = {
    "roll": noted("The oldest messages are left out. The chat goes on, and they stay here to read."),
    "middle": noted("The first question, its answer and the newest messages stay. Those in between are left out."),
    "summarise": noted(
        "The model writes a summary of the oldest messages and reads the summary instead. Now and then, an answer "
        "starts later because of this."
    ),
    "stop": noted("Nothing is left out. When the chat no longer fits, the next message is not answered."),
}


def _tokens(n: int) -> str:
    return tr_n("{n} token", "{n} tokens", n, n=figure(n))


def _left_out(n: int, at_the_start_stays: bool) -> str:
    if at_the_start_stays:
        return tr_n(
            "{n} message is left out after the first answer.",
            "{n} messages are left out after the first answer.",
            n,
            n=figure(n),
        )
    return tr_n(
        "{n} message is left out at the beginning.", "{n} messages are left out at the beginning.", n, n=figure(n)
    )


class ContextMeter(Button):
    """The share of the context that the next message needs, or the current answer uses. A click opens the popup."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("", "quiet", parent=parent)
        self.padding_px = 8
        self.share = 0.0
        self.is_known = False
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self._restyle()
        self.hide()

    def _restyle(self) -> None:
        super()._restyle()
        self.setFont(theme.font("meta"))

    def show_figures(
        self, used: int | None, total: int | None, left_out: int = 0, fits: bool = True, of_tools: int = 0
    ) -> None:
        """Show how much of the context the chat needs.

        used: tokens of the prompt, without dropped messages; total: tokens of the context. left_out: dropped messages;
        if there are any, the context is full. fits: whether the message can be answered at all. of_tools: those of
        `used` that the definitions of the tools take.
        """
        self.is_known = used is not None and bool(total) and used > 0
        self.setVisible(self.is_known)
        if used is None or not total:
            return
        full = bool(left_out) or not fits
        self.share = 1.0 if full else min(used / total, 1.0)
        if left_out and fits:
            words = tr_n("Full: {n} message left out", "Full: {n} messages left out", left_out, n=figure(left_out))
        else:
            words = tr("{percent}% of {total}", percent=figure(100 * used / total, ".0f"), total=figure(total))
        about = tr("{used} of {tokens} of context", used=figure(used), tokens=_tokens(total))
        if of_tools:
            about += "\n" + cost_of_tools(of_tools)
        if left_out:
            about += "\n" + tr_n(
                "{n} earlier message left out", "{n} earlier messages left out", left_out, n=figure(left_out)
            )
        if not fits:
            about += "\n" + tr("The next message does not fit")
        if words != self.text():
            self.setText(words)
            self.updateGeometry()
        # A narrow composer shows only the first of the words.
        self.setToolTip("\n".join((words, about, tr("What happens when it is full"))))
        self.setAccessibleName(tr("Context used, {percent} percent", percent=figure(100 * self.share, ".0f")))
        self.setAccessibleDescription(about.replace("\n", ". "))
        self.update()

    def sizeHint(self) -> QSize:
        words = QFontMetrics(self.font()).horizontalAdvance(self.text())
        return QSize(words + theme.px(18 + 6) + 2 * theme.px(self.padding_px), theme.px(self.height_px))

    def minimumSizeHint(self) -> QSize:
        short = QFontMetrics(self.font()).horizontalAdvance(self._short())
        return QSize(short + theme.px(18 + 6) + 2 * theme.px(self.padding_px), theme.px(self.height_px))

    def _short(self) -> str:
        """Return the percentage alone, for a narrow composer."""
        return self.text().partition(" ")[0]

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = antialiased(self)
        ground, _, _ = self.colours()
        if ground.alpha():
            block(painter, QRectF(self.rect()), ground, theme.px(self.radius_px))
        side, pad, mirrored = theme.px(18), theme.px(self.padding_px), self.isRightToLeft()
        ring = QRectF(self.width() - pad - side if mirrored else pad, (self.height() - side) / 2, side, side)
        paint_ring(painter, ring, self.share)
        painter.setPen(QColor(theme.colour("ink2" if self.underMouse() or self.isDown() else "ink3")))
        words = QRectF(pad if mirrored else ring.right() + theme.px(6), 0, self.width(), self.height())
        if mirrored:
            words.setRight(ring.left() - theme.px(6))
        edge = Qt.AlignmentFlag.AlignRight if mirrored else Qt.AlignmentFlag.AlignLeft
        flags = edge | Qt.AlignmentFlag.AlignAbsolute | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine
        shown = self.text() if self.width() >= self.sizeHint().width() else self._short()
        painter.drawText(words, flags | order(shown), shown)


class ContextPopup(Popover):
    """The context popup. picked: the policy chosen for this chat. size_requested: change the context size."""

    picked = Signal(str)
    size_requested = Signal()

    def __init__(self, window: QWidget) -> None:
        super().__init__(tr("Context"), window)
        self.figure = Label("", "label", wrap=True)
        self.note = Label("", "small", wrap=True)
        self.policy = Segments(
            [(value, tr(words)) for value, words in POLICIES], "roll", tr("When the context is full")
        )
        self.effect = Label("", "meta", wrap=True)
        self.body.setSpacing(theme.px(6))
        self.body.addWidget(self.figure)
        self.body.addWidget(self.note)
        self.body.addSpacing(theme.px(4))
        self.body.addWidget(Rule())
        self.body.addSpacing(theme.px(4))
        self.body.addWidget(Label(tr("When the context is full"), "label"))
        self.body.addWidget(self.policy, 0, Qt.AlignmentFlag.AlignLeading)
        self.body.addWidget(self.effect)
        self.size_button = Button(tr("Change its size"), "secondary")
        self.size_button.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.body.addSpacing(theme.px(4))
        self.body.addWidget(self.size_button, 0, Qt.AlignmentFlag.AlignLeading)
        self.size_button.clicked.connect(self._ask_size)
        self.policy.picked.connect(self._pick)
        self.set_policy("roll")

    def width_px(self) -> int:
        return 480  # four choices side by side

    def place(self) -> None:
        if hasattr(self, "policy"):  # not while the base class is being built
            self.policy.fit(min(theme.px(self.width_px()), self.window().width() - 2 * theme.px(12)) - 2 * theme.px(16))
        super().place()

    def set_policy(self, policy: str) -> None:
        known = policy if policy in EFFECTS else "roll"
        self.policy.set_value(known)
        self.effect.setText(tr(EFFECTS[known]))
        self.place()

    def show_count(self, status: EngineStatus, count: CountResult | None) -> None:
        if count is not None and not status.answering:
            free = max(count.context_total - count.tokens, 0)
            self.figure.setText(
                tr(
                    "The next message takes {used} of {tokens}",
                    used=figure(count.tokens),
                    tokens=_tokens(count.context_total),
                )
            )
            note = tr_n("{n} token is left.", "{n} tokens are left for the answer.", free, n=figure(free))
            if not count.fits:
                note = tr("That leaves no room for an answer.")
            if count.dropped_messages:
                note += " " + _left_out(count.dropped_messages, bool(count.dropped_at))
            if count.tool_tokens:
                note += "\n" + cost_of_tools(count.tool_tokens)
            self.note.setText(note)
        elif status.context_used is not None and status.context_total:
            used, total = status.context_used, status.context_total
            self.figure.setText(tr("{used} of {tokens} are in use", used=figure(used), tokens=_tokens(total)))
            self.note.setText(tr("The question, what came before it, and the answer so far."))
        else:
            self.figure.setText(tr("Not known yet"))
            self.note.setText(tr("It is counted once the model is loaded."))
        self.place()

    def open_at(self, anchor: QWidget) -> None:
        super().open_at(anchor)
        chosen = self.policy.buttons[self.policy.value() or "roll"]
        chosen.setFocus(Qt.FocusReason.PopupFocusReason)

    def _ask_size(self) -> None:
        self.dismiss()
        self.size_requested.emit()

    def _pick(self, policy: str) -> None:
        self.set_policy(policy)
        self.picked.emit(policy)
