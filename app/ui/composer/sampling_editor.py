"""Edits sampling in narrow rows: sliders, numbers, and stop texts.

A field without a value shows the inherited one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPlainTextEdit, QSizePolicy, QVBoxLayout, QWidget

from app.chat.answers.presets import MAX_STOPS, STOP_LENGTH, fields_of_sampling
from app.settings import Bounds, Setting, worded
from app.translation import figure, tr
from app.ui.look import theme
from app.ui.settings.setting_rows import MAX_STEPS, value_text
from app.ui.widgets.controls import IconButton, Label, Slider

TITLE_PX, VALUE_PX, TYPING_MS = 112, 80, 400
# Nobody needs fine control above 100, and a slider has about a hundred usable positions.
_REACH: dict[str, float] = {"top_k": 100}


class ColumnLabel(Label):
    """A label with a minimum width, so that the controls beside it line up; longer text widens it."""

    def __init__(self, least_px: int, token: str, align: Qt.AlignmentFlag | None = None) -> None:
        self.least_px = least_px
        super().__init__("", "small", token, align=align)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)

    def sizeHint(self) -> QSize:
        return super().sizeHint().expandedTo(QSize(theme.px(self.least_px), 0))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()


class SamplingRow(QWidget):
    """One field. edited: its value, or None to inherit."""

    edited = Signal(object)
    high_px = 34

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting
        self.value: Any = None
        self.inherited: Any = None  # used without a value
        self.setToolTip(setting.description)
        self.across = QHBoxLayout(self)
        self.across.setContentsMargins(0, 0, 0, 0)
        self.title = ColumnLabel(TITLE_PX, "ink")
        self.title.setText(setting.title)
        self.across.addWidget(self.title)
        self.back = IconButton("redo", tr("{title}: as it was", title=setting.title))
        self.back.glyph_px = 15
        place = self.back.sizePolicy()
        place.setRetainSizeWhenHidden(True)  # so that its neighbours do not move
        self.back.setSizePolicy(place)
        self.back.clicked.connect(lambda: self._choose(None))
        theme.current().changed.connect(self.restyle)

    def set_value(self, value: Any, inherited: Any) -> None:
        """Show a value without emitting `edited`; None shows the inherited one."""
        self.value, self.inherited = value, inherited
        self.show_it()

    def show_it(self) -> None:
        """Update the controls to the current value."""
        self.back.setVisible(self.value is not None)

    def words(self) -> str:
        """Return the value in use as text."""
        shown = self.inherited if self.value is None else self.value
        if shown is None:
            words = {"seed": tr("New each time"), "max_tokens": tr("No limit"), "thought_tokens": tr("No limit")}
            return words.get(self.setting.name, tr("The model's"))
        return value_text(self.setting, shown)

    def _choose(self, value: Any) -> None:
        if value is None and self.back.hasFocus():
            self.focus_control()
        self.value = value
        self.show_it()
        self.edited.emit(value)

    def focus_control(self) -> None:
        """Focus the control with the value."""

    def restyle(self) -> None:
        """Apply sizes after a change of theme or zoom."""
        self.across.setSpacing(theme.px(8))
        self.setFixedHeight(theme.px(self.high_px))


class SliderField(SamplingRow):
    """A number in a short range, set with a slider."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        assert setting.bounds.low is not None
        assert setting.bounds.high is not None
        self.low, self.step = setting.bounds.low, setting.bounds.step or 1.0
        self.slider = Slider(f"{setting.title}. {setting.description}")
        high = _REACH.get(setting.name, setting.bounds.high)
        self.slider.setRange(0, round((high - setting.bounds.low) / self.step))
        self.slider.setPageStep(max(self.slider.maximum() // 10, 1))
        self.figure = ColumnLabel(VALUE_PX, "ink3", Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        for part in (self.slider, self.figure, self.back):
            self.across.addWidget(part)
        self.slider.valueChanged.connect(self._slid)
        self.slider.reset.connect(lambda: self._choose(None))
        self.restyle()

    def focus_control(self) -> None:
        self.slider.setFocus(Qt.FocusReason.OtherFocusReason)

    def show_it(self) -> None:
        super().show_it()
        shown = self.inherited if self.value is None else self.value
        self.slider.blockSignals(True)
        self.slider.set_automatic(self.value is None)
        self.slider.setValue(0 if shown is None else round((float(shown) - self.low) / self.step))
        self.slider.blockSignals(False)
        self.figure.setText(self.words())
        self.figure.set_look("small", "ink3" if self.value is None else "ink")
        self.slider.setAccessibleDescription(self.words())

    def _slid(self, place: int) -> None:
        value = round(self.low + place * self.step, 6)
        self._choose(int(value) if self.setting.kind == "whole" else value)

    def restyle(self) -> None:
        super().restyle()
        self.slider.setMinimumWidth(theme.px(56))  # it shrinks before the labels do


class NumberField(SamplingRow):
    high_px = 40  # a field of 32, and a gap

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.field = QLineEdit()
        self.field.setProperty("kind", "field")
        self.field.setAccessibleName(f"{setting.title}. {setting.description}")
        self.unit = Label(setting.bounds.unit, "small", "ink3")
        self.across.addWidget(self.field)
        self.across.addWidget(self.unit)
        self.across.addStretch(1)
        self.across.addWidget(self.back)
        self.unit.setVisible(bool(setting.bounds.unit))
        self.field.textEdited.connect(self._typed)
        self.field.editingFinished.connect(self.show_it)
        self.restyle()

    def focus_control(self) -> None:
        self.field.setFocus(Qt.FocusReason.OtherFocusReason)

    def show_it(self) -> None:
        super().show_it()
        self.field.setPlaceholderText(self.words() if self.value is None else "")
        theme.set_property(self.field, "state", "")
        if self._parsed() != (self.value, True):
            self.field.setText("" if self.value is None else f"{self.value}")

    def _parsed(self) -> tuple[int | None, bool]:
        """Return the typed value, and whether it is valid."""
        words = self.field.text().strip().replace(",", "").replace("\u202f", "")
        if not words:
            return None, True
        try:
            value = int(words)
        except ValueError:
            return None, False
        return value, self.setting.fault(value) is None

    def _typed(self) -> None:
        value, good = self._parsed()
        theme.set_property(self.field, "state", "" if good else "bad")
        self.field.setToolTip(
            ""
            if good
            else tr(
                "A whole number from {low} to {high}",
                low=figure(self.setting.bounds.low or 0, ",.0f"),
                high=figure(self.setting.bounds.high or 0, ",.0f"),
            )
        )
        if good:
            self._choose(value)

    def restyle(self) -> None:
        super().restyle()
        self.field.setFont(theme.font("row"))
        self.field.setFixedWidth(theme.px(150))


class StopsField(SamplingRow):
    r"""Texts that end an answer, one per line; \\n stands for a line break."""

    def __init__(self) -> None:
        words = tr(
            "An answer ends before any of these, one per line; \\n is a line break. At most {most}.",
            most=MAX_STOPS,
        )
        super().__init__(Setting("stop", "text", None, tr("Stop at"), words, "", Bounds(), (), tr("Nothing")))
        self.field = QPlainTextEdit()
        self.field.setProperty("kind", "field")
        self.field.setTabChangesFocus(True)
        self.field.setAccessibleName(tr("Stop at. {words}", words=words))
        self.across.addWidget(self.field, 1)
        self.across.addWidget(self.back)
        self._rest = QTimer(self, singleShot=True, interval=TYPING_MS)
        self._rest.timeout.connect(self.flush)
        self.field.textChanged.connect(self._rest.start)
        self.restyle()

    def focus_control(self) -> None:
        self.field.setFocus(Qt.FocusReason.OtherFocusReason)

    def show_it(self) -> None:
        super().show_it()
        shown = [] if self.inherited is None else self.inherited
        self.field.setPlaceholderText("\n".join(map(escaped, shown)) or tr("Nothing"))
        if not self.field.hasFocus() or self._parsed() != (self.value or []):
            self.field.blockSignals(True)
            self.field.setPlainText("\n".join(map(escaped, self.value or [])))
            self.field.blockSignals(False)

    def _parsed(self) -> list[str]:
        lines = (unescaped(line)[:STOP_LENGTH] for line in self.field.toPlainText().split("\n"))
        return list(dict.fromkeys(line for line in lines if line))[:MAX_STOPS]

    def flush(self) -> None:
        """Apply typed text without waiting for the timer."""
        self._rest.stop()
        if self._parsed() != (self.value or []):
            self._choose(self._parsed() or None)

    def restyle(self) -> None:
        super().restyle()
        self.field.setFont(theme.font("row"))
        high = 2 * theme.line_height("row") + theme.px(18)
        self.field.setFixedHeight(high)
        self.setFixedHeight(high + theme.px(8))


class SamplingEditor(QWidget):
    """All fields. edited: all chosen values, after each change."""

    edited = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(0)
        self.rows: dict[str, SamplingRow] = {}
        for setting in map(worded, fields_of_sampling()):
            reach = _REACH.get(setting.name, setting.bounds.high or 0) - (setting.bounds.low or 0)
            slides = setting.bounds.step is not None and reach / setting.bounds.step <= MAX_STEPS
            self.rows[setting.name] = SliderField(setting) if slides else NumberField(setting)
        self.rows["stop"] = StopsField()
        for row in self.rows.values():
            self._column.addWidget(row)
            row.edited.connect(self._tell)

    def values(self) -> dict[str, Any]:
        return {name: row.value for name, row in self.rows.items() if row.value is not None}

    def set_values(self, values: Mapping[str, Any], inherited: Mapping[str, Any]) -> None:
        """Show values without emitting `edited`. inherited: the values used where none is chosen."""
        for name, row in self.rows.items():
            row.set_value(values.get(name), inherited.get(name))

    def flush(self) -> None:
        """Apply typed text without waiting for the timer."""
        stops = self.rows["stop"]
        assert isinstance(stops, StopsField)
        stops.flush()

    def _tell(self) -> None:
        self.edited.emit(self.values())


def escaped(stop: str) -> str:
    """Return a stop text on one line."""
    return stop.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def unescaped(line: str) -> str:
    """Return the stop text of such a line."""
    out, rest = [], iter(line)
    for character in rest:
        if character != "\\":
            out.append(character)
            continue
        after = next(rest, "")
        out.append({"n": "\n", "t": "\t", "\\": "\\"}.get(after, f"\\{after}"))
    return "".join(out)
