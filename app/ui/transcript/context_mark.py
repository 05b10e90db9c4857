"""The line across a chat where the model's context begins; a click explains it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QWidget

from app.chat.store.conversation import Message
from app.translation import figure, tr, tr_n
from app.ui.look import theme
from app.ui.widgets.controls import Button, Label, Rule
from app.ui.widgets.popover import Popover

NAMED_CHARS = 60  # shown of the first and last dropped message


class _MarkButton(Button):
    """The clickable text of the line."""

    def __init__(self) -> None:
        super().__init__("", "quiet")
        self.padding_px, self.height_px = 10, 32
        self._restyle()

    def _restyle(self) -> None:
        super()._restyle()
        self.setFont(theme.font("meta"))

    def colours(self) -> tuple[QColor, QColor, QColor]:
        ground, border, ink = super().colours()
        return ground, border, ink if self.underMouse() or self.isDown() else theme.colour("ink3")


class ContextMark(QWidget):
    """The line above the first message in the context.

    unsummarised: the user wants the messages themselves sent again.
    """

    unsummarised = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.words = _MarkButton()
        self.words.clicked.connect(self.explain)
        self._why = self._summary = ""
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(theme.px(4))
        row.addWidget(Rule(), 1)
        row.addWidget(self.words)
        row.addWidget(Rule(), 1)

    def set_left_out(self, count: int, at: int = 0, messages: Sequence[Message] = (), summary: str = "") -> None:
        """Set the dropped messages. count: their number; at: messages before them that were kept; messages: the dropped
        ones; summary: what the model reads instead of them."""
        n, self._summary = figure(count), summary
        if summary:
            line = tr_n("{n} earlier message is summarised", "{n} earlier messages are summarised", count, n=n)
        elif at:
            line = tr_n(
                "{n} message after the first answer is no longer in the context",
                "{n} messages after the first answer are no longer in the context",
                count,
                n=n,
            )
        else:
            line = tr_n(
                "{n} earlier message is no longer in the context",
                "{n} earlier messages are no longer in the context",
                count,
                n=n,
            )
        self.words.setText(line)
        self.words.updateGeometry()
        self._why = " ".join(
            (
                tr("The chat is longer than what the model can read at once."),
                _summarised(count) if summary else _named(messages, count),
                tr_n("It stays here to read.", "They stay here to read.", count),
                tr("Click the figure below the message to choose what happens when the context is full."),
            )
        )
        self.words.setToolTip(tr("Why is that?"))
        self.words.setAccessibleName(self.words.text())
        self.words.setAccessibleDescription(self._why)
        self.setAccessibleName(self.words.text())

    def explain(self) -> Popover:
        """Open a popover that explains what was dropped and why."""
        card = Popover(tr("What the model reads"), self.window())
        card.body.setSpacing(theme.px(6))
        card.body.addWidget(Label(tr("What the model reads"), "label"))
        card.body.addWidget(Label(self._why, "small", wrap=True))
        if self._summary:
            card.body.addWidget(Rule())
            card.body.addWidget(Label(self._summary, "small", wrap=True))
            undo = Button(tr("Use the original messages"), "secondary")
            undo.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
            undo.clicked.connect(self.unsummarised)
            undo.clicked.connect(card.close)
            card.body.addWidget(undo, 0, Qt.AlignmentFlag.AlignLeading)
        card.closed.connect(card.deleteLater)
        card.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        card.open_at(self.words)
        return card


def _summarised(count: int) -> str:
    return tr_n(
        "Instead of {n} earlier message, it reads this summary.",
        "Instead of {n} earlier messages, it reads this summary.",
        count,
        n=figure(count),
    )


def _named(messages: Sequence[Message], count: int) -> str:
    """Describe the dropped messages by their first and last words."""
    if not messages:
        return tr_n("{n} message was left out.", "{n} messages were left out.", count, n=figure(count))
    first, last = _beginning(messages[0]), _beginning(messages[-1])
    if len(messages) == 1:
        return tr("Left out: “{first}”.", first=first)
    return tr_n(
        "Left out: {n} message, from “{first}” to “{last}”.",
        "Left out: {n} messages, from “{first}” to “{last}”.",
        count,
        n=figure(count),
        first=first,
        last=last,
    )


def _beginning(message: Message) -> str:
    words = " ".join(message.text.split()) or (message.attachments[0].name if message.attachments else "")
    return words if len(words) <= NAMED_CHARS else words[:NAMED_CHARS].rsplit(" ", 1)[0].rstrip(",;:.") + "…"
