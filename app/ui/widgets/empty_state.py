"""The empty state of a page: shown in place of cards while they load, if there are none, or after a failure."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.translation import tr
from app.ui.look import theme
from app.ui.look.icons import Glyph
from app.ui.widgets.controls import Button, Label
from app.user_messages import UserMessage


class EmptyState(QFrame):
    """An empty state, centred: icon, title, a sentence, and up to two buttons."""

    remedy = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(theme.px(16), theme.px(28), theme.px(16), theme.px(28))
        column.setSpacing(theme.px(6))
        centre = Qt.AlignmentFlag.AlignHCenter
        self.glyph = Glyph("search", "ink3", 22)
        self.title = Label("", "label", wrap=True, align=centre)
        self.line = Label("", "small", wrap=True, align=centre)
        column.addWidget(self.glyph, 0, centre)
        column.addWidget(self.title)
        column.addWidget(self.line)
        column.addSpacing(theme.px(4))
        self._buttons = QHBoxLayout()
        self._buttons.setSpacing(theme.px(8))
        self._buttons.addStretch(1)
        self.first, self.second = Button(""), Button("", "quiet")
        self._actions = ["", ""]
        for i, button in enumerate((self.first, self.second)):
            button.clicked.connect(lambda _=False, i=i: self.remedy.emit(self._actions[i]))
            self._buttons.addWidget(button)
        self._buttons.addStretch(1)
        column.addLayout(self._buttons)

    def say(self, title: str, line: str, glyph: str = "search", act: tuple[str, str] = ("", ""),
            second: tuple[str, str] = ("", ""), token: str = "ink3") -> None:  # fmt: skip
        """Show an empty state. act, second: a button's text and the action that `remedy` emits."""
        self.glyph.set_look(glyph, token)
        self.title.setText(title)
        self.line.setText(line)
        self.line.setVisible(bool(line))
        for i, (button, (words, what)) in enumerate(zip((self.first, self.second), (act, second), strict=True)):
            button.setText(words)
            button.updateGeometry()
            button.setVisible(bool(words))
            self._actions[i] = what
        self.setAccessibleName(f"{title}. {line}".strip())

    def show_message(self, message: UserMessage) -> None:
        """Show a failure with its message and remedy."""
        act = (message.remedy, message.remedy_action) if message.remedy_action else ("", "")
        token = {"bad": "bad", "warn": "warn"}.get(message.severity, "ink3")
        glyph = "info" if message.severity == "info" else "warn"
        self.say(message.title, message.sentence, glyph, act, message.second or ("", ""), token)


def show_why_empty(empty_state: EmptyState, loading: bool, any_known: bool, only_here: bool) -> None:
    """Explain why no model is shown. The button's action is "refresh", "recommended" or "all"."""
    if loading:
        empty_state.say(
            tr("Reading the list of models"), tr("The models to choose from, and those on this PC."), "models"
        )
    elif not any_known:
        empty_state.say(
            tr("No models are known"), tr("Couldn't read the list of models."), "models", (tr("Try again"), "refresh")
        )
    elif only_here:
        words = tr("Those you download or add will be here.")
        empty_state.say(
            tr("No models on this PC yet"), words, "folder", (tr("Show the recommended ones"), "recommended")
        )
    else:
        empty_state.say(
            tr("No models match"),
            tr("Try another filter, or any size and family."),
            "tune",
            (tr("Show all"), "all"),
        )
