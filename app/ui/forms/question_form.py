"""The fields in which a question of an MCP server is answered, or the arguments of a prompt are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.tools.call_text import breakable
from app.tools.questions import Field
from app.translation import tr
from app.ui.forms.named_field import NamedField
from app.ui.look import theme
from app.ui.widgets.controls import Label
from app.ui.widgets.switches import Segments, Toggle

MOST_SEGMENTS = 12  # options of one choice; of more, the user writes one
MOST_NAMED = 12  # options that the note of such a field names


class _Value(QFrame):
    """One value, below its name; below it a note, or what is wrong with it."""

    changed = Signal()

    def __init__(self, field: Field) -> None:
        super().__init__()
        self.field = field
        self.column = QVBoxLayout(self)
        self.column.setContentsMargins(0, 0, 0, 0)
        self.column.setSpacing(theme.px(4))

    def given(self) -> Any:
        """Return what was entered, as Field.read takes it."""
        raise NotImplementedError  # a QWidget cannot be an abstract base class

    def set_fault(self, fault: str) -> None:
        raise NotImplementedError

    def first(self) -> QWidget:
        """Return the widget to focus."""
        raise NotImplementedError


class _Written(_Value):
    """A text or a number, or one of many options."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self._by_words = {words.casefold(): value for value, words in field.options}
        named = ", ".join(words for _, words in field.options[:MOST_NAMED])
        more = "…" if len(field.options) > MOST_NAMED else ""
        note = " ".join(
            part for part in (field.note, tr("One of: {words}", words=named + more) if named else "") if part
        )
        self.named = NamedField(_title(field), "", breakable(note))
        edit = self.named.edit
        assert isinstance(edit, QLineEdit)
        self.edit = edit
        if field.is_secret:
            edit.setEchoMode(QLineEdit.EchoMode.Password)
        words = dict(field.options).get(str(field.default), "") if field.options else field.default
        if isinstance(words, str | int | float) and not isinstance(words, bool):
            edit.setText(str(words))
        edit.textChanged.connect(self.changed)
        self.column.addWidget(self.named)

    def given(self) -> Any:
        text = self.edit.text()
        if self.field.kind != "choice":
            return text
        return self._by_words.get(text.strip().casefold(), text.strip() or None)

    def set_fault(self, fault: str) -> None:
        self.named.set_fault(fault)

    def first(self) -> QWidget:
        return self.edit


class _Picked(_Value):
    """A switch, or a choice of one or several options."""

    def __init__(self, field: Field) -> None:
        super().__init__(field)
        self.toggles: dict[str, Toggle] = {}
        self.segments: Segments | None = None
        title = Label(breakable(_title(field)), "small", "ink2", wrap=True)
        self.says = Label("", "meta", wrap=True)
        if field.kind == "choice":
            default = field.default if isinstance(field.default, str) else None
            self.segments = Segments(field.options, default, field.title)
            self.segments.picked.connect(lambda _: self.changed.emit())
            self.column.addWidget(title)
            self.column.addWidget(self.segments)
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
                self.column.addLayout(across)
            if not is_switch:
                self.column.insertWidget(0, title)
        self.column.addWidget(self.says)
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

    def first(self) -> QWidget:
        buttons = list(self.segments.buttons.values()) if self.segments is not None else list(self.toggles.values())
        return buttons[0]


class QuestionForm(QFrame):
    """A column of fields. changed: the user entered something, or a fault is shown."""

    changed = Signal()

    def __init__(self, fields: Sequence[Field]) -> None:
        super().__init__()
        self.values: list[_Value] = []
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(theme.px(10))
        for field in fields:
            is_written = field.kind in ("text", "number", "whole") or len(field.options) > MOST_SEGMENTS
            value = _Written(field) if is_written and field.kind != "choices" else _Picked(field)
            value.changed.connect(self.changed)
            column.addWidget(value)
            self.values.append(value)

    def answer(self) -> dict[str, Any] | None:
        """Return the values by the names of the fields. None: something is wrong, and the field says so."""
        found: dict[str, Any] = {}
        wrong: list[_Value] = []
        for value in self.values:
            entered, fault = value.field.read(value.given())
            if not fault and value.field.kind == "choice" and entered not in (None, *dict(value.field.options)):
                fault = tr("Write one of the options.")
            value.set_fault(fault)
            if fault:
                wrong.append(value)
            elif entered is not None:
                found[value.field.name] = entered
        if wrong:
            wrong[0].first().setFocus()
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
            self.values[0].first().setFocus()


def _title(field: Field) -> str:
    return field.title if field.is_required or field.kind == "switch" else tr("{name} (optional)", name=field.title)
