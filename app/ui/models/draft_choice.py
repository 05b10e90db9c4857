"""The choice of a smaller model that guesses tokens for the loaded one, in the placement popup."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.translation import tr
from app.ui.look import theme
from app.ui.widgets.controls import Label, Rule
from app.ui.widgets.switches import Segments

MOST_NAMES = 3  # the largest ones
WIDTH = 384


class DraftChoice(QWidget):
    """Hidden without a model to choose. picked: its id, "off", or "" for automatic."""

    picked = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._drafts: tuple[tuple[str, str], ...] = ()
        self.segments: Segments | None = None
        self.effect = Label("", "meta", wrap=True)
        self._column.addWidget(Rule())
        self._column.addWidget(Label(tr("Guess with a smaller model"), "label"))
        self._column.addWidget(self.effect)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self.hide()

    def show_choices(self, drafts: tuple[tuple[str, str], ...], chosen: str, guesses: str, reason: str) -> None:
        """drafts: ids and names. chosen: as `picked`. guesses: name of the model that guesses now; empty: none.

        reason: why none, in a sentence; empty: not known.
        """
        shown = drafts[:MOST_NAMES]
        if chosen not in ("", "off", *dict(shown)):  # another one, or one that was removed
            name = dict(drafts).get(chosen, chosen.rpartition("/")[2])
            shown = (*shown[: MOST_NAMES - 1], (chosen, name))
        drafts = shown
        if drafts != self._drafts or self.segments is None:
            self._drafts = drafts
            self._rebuild()
        assert self.segments is not None
        self.segments.set_value(chosen)
        words = tr(
            "A smaller model guesses the next words, and this one checks them. Answers stay the same and come faster."
        )
        if guesses:
            words += " " + tr("{model} guesses now.", model=guesses)
        elif reason:
            words += " " + tr("No model guesses now. {reason}", reason=reason)
        self.effect.setText(words)
        self.setVisible(bool(drafts))

    def _rebuild(self) -> None:
        if self.segments is not None:
            self._column.removeWidget(self.segments)
            self.segments.deleteLater()
        choices = [("", tr("Automatic")), ("off", tr("Off")), *self._drafts]
        self.segments = Segments(choices, "", tr("Guess with a smaller model"))
        self.segments.picked.connect(self.picked.emit)
        self.segments.fit(theme.px(WIDTH))
        self._column.insertWidget(2, self.segments)

    def _restyle(self) -> None:
        self._column.setSpacing(theme.px(6))
        if self.segments is not None:
            self.segments.fit(theme.px(WIDTH))
