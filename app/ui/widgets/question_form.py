"""The fields in which a question of an MCP server is answered, or the arguments of a prompt are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.tools.call_text import breakable, label
from app.tools.questions import Field
from app.translation import tr
from app.ui.look import theme
from app.ui.widgets.controls import Label
from app.ui.widgets.named_field import NamedField
from app.ui.widgets.pick_row import PickRow
from app.ui.widgets.switches import Segments, Toggle


class Written(NamedField):
    """A text or a number. proposals: rows below the field, each with a value to put there."""

    changed = Signal()

    def __init__(self, field: Field) -> None:
        super().__init__(_title(field), "", breakable(field.note))
        assert isinstance(self.edit, QLineEdit)
        self.field, self.first = field, self.edit
        self.proposals: list[PickRow] = []
        if field.is_secret:
            self.first.setEchoMode(QLineEdit.EchoMode.Password)
        if isinstance(field.default, str | int | float) and not isinstance(field.default, bool):
            self.first.setText(str(field.default))
        self.first.textChanged.connect(self.changed)

    def given(self) -> Any:
        """Return what was entered, as Field.read takes it."""
        return self.text

    def propose(self, values: Sequence[str]) -> None:
        """Show these values below the field, in place of earlier ones."""
        for row in self.proposals:
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.proposals = []
        for value in values:
            row = PickRow(label(value))
            row.clicked.connect(lambda _=False, value=value: self._take(value))
            self._column.addWidget(row)
            row.show()
            self.proposals.append(row)
        self.changed.emit()

    def _take(self, value: str) -> None:
        self.first.setText(value)
        self.propose(())
        self.first.setFocus()


class _Picked(QFrame):
    """A switch, or a choice of one or several options."""

    changed = Signal()

    def __init__(self, field: Field) -> None:
        super().__init__()
        self.field = field
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.px(4))
        self.toggles: dict[str, Toggle] = {}
        self.segments: Segments | None = None
        title = Label(breakable(_title(field)), "small", "ink2", wrap=True)
        self.says = Label("", "meta", wrap=True)
        if field.kind == "choice":
            default = field.default if isinstance(field.default, str) else None
            self.segments = Segments(field.options, default, field.title)
            self.segments.picked.connect(lambda _: self.changed.emit())
            column.addWidget(title)
            column.addWidget(self.segments)
        else:
            is_switch = field.kind == "switch"
            chosen = field.default if isinstance(field.default, list) else []
            for value, words in [("", _title(field))] if is_switch else field.options:
                toggle = self.toggles[value] = Toggle(words, field.default is True if is_switch else value in chosen)
                toggle.clicked.connect(lambda _=False: self.changed.emit())
                across = QHBoxLayout()
                across.setSpacing(theme.px(10))
                across.addWidget(toggle)
                across.addWidget(Label(breakable(words), "row", wrap=True), 1)
                column.addLayout(across)
            if not is_switch:
                column.insertWidget(0, title)
        column.addWidget(self.says)
        parts = self.toggles if self.segments is None else self.segments.buttons
        self.first: QWidget = next(iter(parts.values()))
        self.set_fault("")

    def given(self) -> Any:
        if self.segments is not None:
            return self.segments.value()
        if self.field.kind == "switch":
            return self.toggles[""].isChecked()
        return [value for value, toggle in self.toggles.items() if toggle.isChecked()]

    def set_fault(self, fault: str) -> None:
        self.says.setText(breakable(fault or self.field.note))
        self.says.set_look("meta", "bad" if fault else "ink3")
        self.says.setVisible(bool(self.says.words))


class QuestionForm(QFrame):
    """A column of fields. changed: the user entered something, or a fault is shown."""

    changed = Signal()

    def __init__(self, fields: Sequence[Field]) -> None:
        super().__init__()
        self.values: list[Written | _Picked] = []
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.px(10))
        for field in fields:
            value = Written(field) if field.kind in ("text", "number", "whole") else _Picked(field)
            value.changed.connect(self.changed)
            column.addWidget(value)
            self.values.append(value)

    @property
    def written(self) -> list[Written]:
        """The fields to write in."""
        return [value for value in self.values if isinstance(value, Written)]

    def answer(self) -> dict[str, Any] | None:
        """Return the values by the names of the fields. None: something is wrong, and the field says so."""
        found: dict[str, Any] = {}
        wrong: list[Written | _Picked] = []
        for value in self.values:
            entered, fault = value.field.read(value.given())
            value.set_fault(fault)
            if fault:
                wrong.append(value)
            elif entered is not None:
                found[value.field.name] = entered
        if wrong:
            wrong[0].first.setFocus()
            self.changed.emit()
            return None
        return found

    def set_width(self, width: int) -> None:
        """Stack the options of a choice that do not fit side by side."""
        for value in self.values:
            if isinstance(value, _Picked) and value.segments is not None:
                value.segments.fit(width)

    def focus_first(self) -> None:
        if self.values:
            self.values[0].first.setFocus()


def _title(field: Field) -> str:
    return field.title if field.is_required or field.kind == "switch" else tr("{name} (optional)", name=field.title)
