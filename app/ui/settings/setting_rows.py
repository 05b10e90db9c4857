"""A row of the settings for each kind of field: text at the left, control at the right or below.

A row shows one value and emits `edited` with a new one.
"""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QFocusEvent, QFontMetrics
from PySide6.QtWidgets import (
    QBoxLayout,
    QFrame,
    QHBoxLayout,
    QLineEdit,
    QPlainTextEdit,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from app.settings import Setting
from app.translation import figure, tr, unfigured
from app.ui.look import theme
from app.ui.widgets.controls import IconButton, Label, Segments, Slider, Toggle
from app.units import NARROW

ROW_PX = 58
MAX_STEPS = 200  # a slider cannot be set precisely with more steps
ONE_LINE = 200  # a text field of at most this many characters is one line
TYPING_MS = 400


def value_text(setting: Setting, value: float | None) -> str:
    """Return a number as the dialog shows it, with its unit."""
    if value is None:
        return setting.none
    unit = f"{NARROW}{setting.bounds.unit}" if setting.bounds.unit else ""
    if setting.kind == "whole":
        return f"{figure(value, ',.0f')}{unit}"
    step = setting.bounds.step or 1.0
    digits = next((n for n in range(4) if abs(step * 10**n - round(step * 10**n)) < 1e-9), 4)
    return f"{figure(value, f'.{digits}f')}{unit}"


class SettingRow(QFrame):
    """Title and description at the left; the subclass adds a control at the right."""

    edited = Signal(object)

    def __init__(self, setting: Setting, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setting = setting
        self.row = QHBoxLayout(self)
        words = QVBoxLayout()
        words.setSpacing(1)
        self.title = Label(setting.title, "label", wrap=True)
        self.description = Label(setting.description, "small", "ink3", wrap=True)
        words.addStretch(1)
        words.addWidget(self.title)
        if setting.description:
            words.addWidget(self.description)
        self.note = Label("", "small", "ink2", wrap=True)
        self.note.setVisible(False)
        words.addWidget(self.note)
        words.addStretch(1)
        # Shown only while the value differs from the default; it takes space from the text, so that no control moves.
        self.back = IconButton(
            "redo", tr("{title}: back to {value}", title=setting.title, value=self.text_for(setting.default))
        )
        self.back.glyph_px = 15
        self.back.setVisible(False)
        self.back.clicked.connect(self._reset)
        self._head = QHBoxLayout()
        self._head.addLayout(words, 1)
        self._head.addWidget(self.back, 0, Qt.AlignmentFlag.AlignVCenter)
        self.row.addLayout(self._head, 1)
        self.edited.connect(self._offer_back)
        policy = QSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        theme.current().changed.connect(self.restyle)

    def show_value(self, value: Any) -> None:
        """Show a value without emitting `edited`."""
        raise NotImplementedError  # a QWidget cannot be an abstract base class

    def text_for(self, value: Any) -> str:
        return value_text(self.setting, value)

    def is_found_by(self, words: list[str]) -> bool:
        """Return whether the row's texts contain every word (lower case)."""
        kept = self.setting
        choices = (words for _, words in kept.choices)
        said = " ".join((kept.title, kept.description, kept.group, kept.bounds.unit, kept.none, *choices))
        return all(word in said.casefold() for word in words)

    def _offer_back(self, value: Any) -> None:
        self.back.setVisible(value != self.setting.default)

    def _reset(self) -> None:
        self.show_value(self.setting.default)
        self.edited.emit(self.setting.default)

    def set_note(self, words: str) -> None:
        """Set the note below the description, on the setting's effect; empty removes it."""
        self.note.setText(words)
        self.note.setVisible(bool(words))

    def restyle(self) -> None:
        """Apply sizes after a change of theme or zoom."""
        self.row.setContentsMargins(theme.px(16), theme.px(9), theme.px(16), theme.px(9))
        self.row.setSpacing(theme.px(20))
        self.setMinimumHeight(theme.px(ROW_PX))

    def set_narrow(self, narrow: bool) -> None:
        """Place a wide control below the text, or beside it."""

    def name(self) -> str:
        """Return the control's accessible name."""
        return f"{self.setting.title}. {self.setting.description}" if self.setting.description else self.setting.title


class ChoiceRow(SettingRow):
    """A choice from a few values."""

    def __init__(self, setting: Setting, parent: QWidget | None = None) -> None:
        super().__init__(setting, parent)
        self.segments = Segments(setting.choices, name=setting.title)
        self.segments.picked.connect(self.edited)
        self.row.addWidget(self.segments)
        self.restyle()

    def set_narrow(self, narrow: bool) -> None:
        _set_below(self.row, narrow)

    def text_for(self, value: Any) -> str:
        return dict(self.setting.choices).get(value, "")

    def show_value(self, value: Any) -> None:
        self.segments.set_value(value)
        self._offer_back(value)


class SwitchRow(SettingRow):
    def __init__(self, setting: Setting, parent: QWidget | None = None) -> None:
        super().__init__(setting, parent)
        self.toggle = Toggle(self.name())
        self.toggle.clicked.connect(lambda: self.edited.emit(self.toggle.isChecked()))
        self.row.addWidget(self.toggle)
        self.restyle()

    def text_for(self, value: Any) -> str:
        return tr("on") if value else tr("off")

    def show_value(self, value: Any) -> None:
        self.toggle.setChecked(bool(value))
        self._offer_back(value)


class SliderRow(SettingRow):
    """A number in a short range; a double click or Backspace restores the automatic value."""

    def __init__(self, setting: Setting, automatic: float | None = None, parent: QWidget | None = None) -> None:
        super().__init__(setting, parent)
        assert setting.bounds.low is not None
        assert setting.bounds.high is not None
        self.low, self.step = setting.bounds.low, setting.bounds.step or 1.0
        self.automatic = automatic  # the value that None stands for, if known
        self.slider = Slider(self.name())
        self.slider.setRange(0, round((setting.bounds.high - setting.bounds.low) / self.step))
        self.slider.setPageStep(max(self.slider.maximum() // 10, 1))
        back = setting.none or value_text(setting, setting.default)
        self.slider.setToolTip(tr("Double-click for: {back}", back=back))
        self.words = Label("", "row", align=Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        side = QHBoxLayout()
        for widget in (self.slider, self.words):
            side.addWidget(widget)
        self._side = side
        self.row.addLayout(side)
        self.slider.valueChanged.connect(self._slid)
        self.slider.reset.connect(self._reset)
        self.restyle()

    def show_value(self, value: Any) -> None:
        shown = value if value is not None else self.automatic
        self.slider.blockSignals(True)
        self.slider.set_automatic(value is None)
        self.slider.setValue(0 if shown is None else round((shown - self.low) / self.step))
        self.slider.blockSignals(False)
        words = value_text(self.setting, value)
        self.words.setText(words)
        self.words.set_look("row", "ink2" if value is None else "ink")
        if value is None and self.automatic is not None:
            words = f"{words}, {value_text(self.setting, self.automatic)}"
        self.words.setToolTip(words if value is None else "")
        self.slider.setAccessibleDescription(words)
        self._offer_back(value)

    def set_narrow(self, narrow: bool) -> None:
        _set_below(self.row, narrow)

    def set_automatic(self, automatic: float | None, value: Any) -> None:
        """Set the value that None stands for."""
        self.automatic = automatic
        self.show_value(value)

    def restyle(self) -> None:
        super().restyle()
        self._side.setSpacing(theme.px(8))
        self.slider.setFixedWidth(theme.px(150))
        metrics = QFontMetrics(theme.font("row"))
        words = (self.setting.none, value_text(self.setting, self.setting.bounds.high))
        widest = max(metrics.horizontalAdvance(one) for one in words)
        self.words.setMinimumWidth(max(widest + 2, theme.px(112)))  # one width for all, so that the sliders align

    def _value(self) -> float:
        value = round(self.low + self.slider.value() * self.step, 6)
        return int(value) if self.setting.kind == "whole" else value

    def _slid(self) -> None:
        value = self._value()
        self.show_value(value)
        self.edited.emit(value)


class NumberRow(SettingRow):
    """A number that is typed; an empty field is the automatic value."""

    def __init__(self, setting: Setting, parent: QWidget | None = None) -> None:
        super().__init__(setting, parent)
        self._good: Any = setting.default
        self.field = QLineEdit()
        self.field.setProperty("kind", "field")
        self.field.setAccessibleName(self.name())
        self.field.setPlaceholderText(setting.none)
        self.field.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.unit = Label(setting.bounds.unit, "small", "ink3")
        self.unit.setVisible(bool(setting.bounds.unit))
        self._side = QHBoxLayout()
        self._side.addWidget(self.field)
        self._side.addWidget(self.unit)
        self.row.addLayout(self._side)
        self.field.textEdited.connect(self._typed)
        self.field.editingFinished.connect(self._finish)
        self.restyle()

    def restyle(self) -> None:
        super().restyle()
        self._side.setSpacing(theme.px(8))
        words = QFontMetrics(theme.font("row")).horizontalAdvance(self.setting.none)
        self.field.setFixedWidth(max(words + theme.px(28), theme.px(140)))

    def show_value(self, value: Any) -> None:
        self._good = value
        self._mark("")
        self._offer_back(value)
        if not self.field.hasFocus() or self._parsed()[0] != value:
            self.field.setText("" if value is None else figure(value, ""))

    def _parsed(self) -> tuple[Any, str]:
        """Return the typed value and its error."""
        words = unfigured(self.field.text())
        if not words:
            return None, self.setting.fault(None) or ""
        try:
            value = int(words) if self.setting.kind == "whole" else float(words)
        except ValueError:
            return None, tr("“{typed}” is not a number.", typed=self.field.text().strip())
        if self.setting.fault(value) is None:
            return value, ""
        assert self.setting.bounds.low is not None
        assert self.setting.bounds.high is not None
        return value, tr(
            "Must be between {low} and {high}.",
            low=figure(self.setting.bounds.low, ",.10g"),
            high=figure(self.setting.bounds.high, ",.10g"),
        )

    def _mark(self, fault: str) -> None:
        theme.set_property(self.field, "state", "bad" if fault else "")
        self.description.setText(fault or self.setting.description)
        self.description.set_look("small", "bad" if fault else "ink3")

    def _typed(self) -> None:
        value, fault = self._parsed()
        self._mark(fault)
        if not fault and value != self._good:
            self._good = value
            self.edited.emit(value)

    def _finish(self) -> None:
        # An invalid value is discarded: show the value in use again.
        self.field.setText("" if self._good is None else figure(self._good, ""))
        self._mark("")


class TextRow(SettingRow):
    """Text: one line or several, below the title. Emitted after a pause in typing."""

    def __init__(self, setting: Setting, parent: QWidget | None = None) -> None:
        super().__init__(setting, parent)
        self._reported = ""
        self._rest = QTimer(self)
        self._rest.setSingleShot(True)
        self._rest.setInterval(TYPING_MS)
        self._rest.timeout.connect(self.flush)
        self.field = _TextField(self)
        self.field.setAccessibleName(self.name())
        self.field.textChanged.connect(self._typed)
        self.field.left.connect(self.flush)
        self.row.setDirection(QBoxLayout.Direction.TopToBottom)
        self.row.addWidget(self.field)
        self.restyle()

    def restyle(self) -> None:
        super().restyle()
        self.row.setContentsMargins(theme.px(16), theme.px(12), theme.px(16), theme.px(14))
        self.row.setSpacing(theme.px(8))
        lines = 1 if (self.setting.bounds.high or 0) <= ONE_LINE else 4
        self.field.setFont(theme.font("row"))
        self.field.setFixedHeight(lines * theme.line_height("row") + theme.px(18))

    def text_for(self, value: Any) -> str:
        return tr("no text") if not value else tr("the first text")

    def show_value(self, value: Any) -> None:
        self._offer_back(value)
        if value == self.field.toPlainText():
            return
        self._reported = str(value)
        self.field.blockSignals(True)
        self.field.setPlainText(self._reported)
        self.field.blockSignals(False)

    def _typed(self) -> None:
        if self.setting.bounds.high is not None and len(self.field.toPlainText()) > self.setting.bounds.high:
            self.field.undo()
        self._rest.start()

    def flush(self) -> None:
        """Apply typed text without waiting for the timer."""
        self._rest.stop()
        words = self.field.toPlainText()
        if words != self._reported and self.setting.fault(words) is None:
            self._reported = words
            self.edited.emit(words)


class _TextField(QPlainTextEdit):
    left = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "field")
        self.setTabChangesFocus(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.left.emit()


def row_for(setting: Setting, automatic: float | None = None) -> SettingRow:
    """Return the row for a field, by its kind and range."""
    if setting.kind == "choice":
        return ChoiceRow(setting)
    if setting.kind == "switch":
        return SwitchRow(setting)
    if setting.kind == "text":
        return TextRow(setting)
    reach = (setting.bounds.high or 0) - (setting.bounds.low or 0)
    aimable = setting.bounds.step is not None and reach / setting.bounds.step <= MAX_STEPS
    return SliderRow(setting, automatic) if aimable else NumberRow(setting)


def _set_below(row: QHBoxLayout, below: bool) -> None:
    row.setDirection(QHBoxLayout.Direction.TopToBottom if below else QHBoxLayout.Direction.LeftToRight)
    row.setSpacing(theme.px(8 if below else 20))
