"""The dialog that chooses which models and modes answer the same question. It knows neither engine nor chat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.chat.answers.mode_rates import MEASURED_MODES, MODE_TEXTS
from app.chat.side_by_side import MOST_WAYS, ModelChoice
from app.translation import tr
from app.ui.look import theme
from app.ui.widgets.controls import Button, IconButton, Label, Segments
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.floating import Menu


class WayRow(QWidget):
    """One model and its mode. changed: what is chosen, or its height."""

    changed = Signal()
    removed = Signal()

    def __init__(
        self, choice: ModelChoice, offered: Sequence[ModelChoice], modes: Callable[[ModelChoice], Sequence[str]]
    ) -> None:
        """modes: returns the modes that a model has."""
        super().__init__()
        self._choice, self._offered, self._modes = choice, offered, modes
        self.model = Button("", "secondary", "down")
        self.model.align_left = True
        self.model.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.model.clicked.connect(self.open_menu)
        self.remove = IconButton("close", tr("Remove"))
        self.remove.clicked.connect(self.removed)
        self.segments: Segments | None = None
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.setSpacing(theme.px(8))
        self._row.addWidget(self.model, 1)
        self._row.addWidget(self.remove)
        self._show()

    @property
    def choice(self) -> ModelChoice:
        return replace(self._choice, mode=self.segments.value() or None) if self.segments is not None else self._choice

    def open_menu(self) -> None:
        menu = Menu(tr("Models"), self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for one in self._offered:
            menu.add(one.name.replace("&", "&&"), "away" if one.place else "chip", partial(self._take, one))
        menu.popup(self.model.mapToGlobal(self.model.rect().bottomLeft()))

    def _take(self, choice: ModelChoice) -> None:
        self._choice = replace(choice, mode=self.choice.mode if choice.place is None else None)
        self._show()
        self.changed.emit()

    def _show(self) -> None:
        if self.segments is not None:
            self.segments.hide()
            self.segments.deleteLater()
            self.segments = None
        self.model.setText(self._choice.name.replace("&", "&&"))
        if self._choice.place is None:
            modes = [
                ("", tr(MODE_TEXTS["auto"])),
                *((mode, tr(MODE_TEXTS[mode])) for mode in self._modes(self._choice)),
            ]
            self.segments = Segments(modes, self._choice.mode or "", tr("Neurons"))
            if self.segments.value() is None:
                self.segments.set_value("")
            self.segments.picked.connect(lambda _: self.changed.emit())
            self._row.insertWidget(1, self.segments)


class CompareModelsDialog(Dialog):
    """Two or three rows of model and mode. chosen: the list of Ways."""

    chosen = Signal(object)

    def __init__(
        self,
        parent: QWidget,
        question: str,
        choices: Sequence[ModelChoice],
        offered: Sequence[ModelChoice],
        modes: Callable[[ModelChoice], Sequence[str]] = lambda choice: MEASURED_MODES,
        cannot: str = "",
    ) -> None:
        """question: to be answered. choices: chosen at first. offered: all that can answer. modes: returns those of a
        model. cannot: why none can answer now; empty if they can."""
        super().__init__(parent, tr("Compare models"), "", 600)
        self._cannot, self._offered, self._modes = cannot, offered, modes
        self.rows: list[WayRow] = []
        self.asked = Label(" ".join(question.split())[:2_000], "label", elide=True)
        self.asked.setVisible(bool(self.asked.words))
        self._rows = QVBoxLayout()
        self._rows.setSpacing(theme.px(8))
        self.more = Button(tr("Add"), "quiet", "plus")
        self.more.clicked.connect(self._add_other)
        self.note = Label("", "small", "ink2", wrap=True)
        self.body.addWidget(self.asked)
        self.body.addLayout(self._rows)
        self.body.addWidget(self.more, 0, Qt.AlignmentFlag.AlignLeft)
        self.body.addWidget(self.note)
        cancel = self.add_button(Button(tr("Cancel")))
        cancel.clicked.connect(self.reject)
        self.go = self.add_button(Button(tr("Compare"), "primary"))
        self.go.setDefault(True)
        self.go.clicked.connect(self._take)
        for choice in choices[:MOST_WAYS]:
            self._add(choice)
        self.say(
            tr("Each model answers the same question, one after another. All answers stay in this chat as versions.")
        )
        self.go.setFocus(Qt.FocusReason.OtherFocusReason)

    @property
    def choices(self) -> list[ModelChoice]:
        return [row.choice for row in self.rows]

    def _add_other(self) -> None:
        """Add a row with a model and mode that no other row has, if there is one."""
        local = [choice for choice in self._offered if choice.place is None]
        free = (replace(choice, mode=mode) for mode in (None, "dense", "exact") for choice in local)
        self._add(next((choice for choice in free if choice not in self.choices), self.rows[-1].choice))

    def _add(self, choice: ModelChoice) -> None:
        row = WayRow(choice, self._offered, self._modes)
        row.changed.connect(self._show)
        row.removed.connect(partial(self._remove, row))
        self.rows.append(row)
        self._rows.addWidget(row)
        row.show()
        self._show()

    def _remove(self, row: WayRow) -> None:
        self.rows.remove(row)
        row.hide()
        row.deleteLater()
        self._rows.removeWidget(row)
        self.go.setFocus(Qt.FocusReason.OtherFocusReason)
        self._show()

    def _show(self) -> None:
        choices = self.choices
        servers = sorted(
            {choice.place.server.name for choice in choices if choice.place and not choice.place.server.is_here}
        )
        problem = self._cannot
        if not problem and len(set(choices)) < len(choices):
            problem = tr("Two rows are the same. Choose another model or mode for one of them.")
        words = tr("The whole chat is sent to {server}, not on this PC.", server=", ".join(servers)) if servers else ""
        self.note.setText(problem or words)
        self.note.setVisible(bool(self.note.words))
        self.note.set_look("small", "warn" if servers and not problem else "ink2")
        self.go.setEnabled(not problem)
        self.more.setVisible(0 < len(self.rows) < MOST_WAYS)
        for row in self.rows:
            row.remove.setVisible(len(self.rows) > 2)
        modes = [row.segments for row in self.rows if row.segments is not None]
        widest = max((segments.sizeHint().width() for segments in modes), default=0)
        for segments in modes:  # the models are in one column
            segments.setMinimumWidth(widest)
        self.fit()

    def _take(self) -> None:
        choices = self.choices
        self.accept()
        self.chosen.emit(choices)
