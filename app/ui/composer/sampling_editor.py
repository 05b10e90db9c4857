"""How words are chosen, as rows that are narrow enough for a card: sliders, numbers, texts that end an answer.

What nobody chose shows what is in force without it, and is no value. It stores nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPlainTextEdit, QSizePolicy, QVBoxLayout, QWidget

from app.chat.answers.presets import MAX_STOPS, STOP_LENGTH, fields_of_sampling
from app.settings import Setting, worded
from app.translation import figure, tr
from app.ui.look import theme
from app.ui.settings.setting_rows import MAX_STEPS, in_words
from app.ui.widgets.controls import IconButton, Label, Slider

TITLE_PX, VALUE_PX, TYPING_MS = 112, 80, 400
# Above 100 nobody aims by hand, and a slider has a hundred places that a hand can find.
_REACH: dict[str, float] = {"top_k": 100}


class ColumnLabel(Label):
    """Words that are at least so wide, so that what follows them lines up, and wider where they need it."""

    def __init__(self, least_px: int, token: str, align: Qt.AlignmentFlag | None = None) -> None:
        self.least_px = least_px
        super().__init__("", "small", token, align=align)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)

    def sizeHint(self) -> QSize:
        return super().sizeHint().expandedTo(QSize(theme.px(self.least_px), 0))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()


class SamplingRow(QWidget):
    """One field. `edited` gives its value, or None where it is to be as it is without one."""

    edited = Signal(object)
    high_px = 34

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting
        self.value: Any = None
        self.inherited: Any = None  # what is in force without a value
        self.setToolTip(setting.description)
        self.across = QHBoxLayout(self)
        self.across.setContentsMargins(0, 0, 0, 0)
        self.title = ColumnLabel(TITLE_PX, "ink")
        self.title.setText(setting.title)
        self.across.addWidget(self.title)
        self.back = IconButton("redo", tr("{title}: as it was", title=setting.title))
        self.back.glyph_px = 15
        place = self.back.sizePolicy()
        place.setRetainSizeWhenHidden(True)  # what stands beside it does not move
        self.back.setSizePolicy(place)
        self.back.clicked.connect(lambda: self._choose(None))
        theme.current().changed.connect(self.restyle)

    def set_value(self, value: Any, inherited: Any) -> None:
        """Show a value without telling of it; None shows what is in force without one."""
        self.value, self.inherited = value, inherited
        self.show_it()

    def show_it(self) -> None:
        """Show what is there now."""
        self.back.setVisible(self.value is not None)

    def words(self) -> str:
        """What is in force, in words."""
        shown = self.inherited if self.value is None else self.value
        if shown is None:
            return {"seed": tr("New each time"), "max_tokens": tr("No limit")}.get(self.setting.name, tr("The model's"))
        return in_words(self.setting, shown)

    def _choose(self, value: Any) -> None:
        if value is None and self.back.hasFocus():
            self.focus_control()
        self.value = value
        self.show_it()
        self.edited.emit(value)

    def focus_control(self) -> None:
        """Give the focus to what holds the value."""

    def restyle(self) -> None:
        """Take up measures anew."""
        self.across.setSpacing(theme.px(8))
        self.setFixedHeight(theme.px(self.high_px))


class SliderField(SamplingRow):
    """A number in a short range."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        assert setting.low is not None
        assert setting.high is not None
        self.low, self.step = setting.low, setting.step or 1.0
        self.slider = Slider(f"{setting.title}. {setting.description}")
        high = _REACH.get(setting.name, setting.high)
        self.slider.setRange(0, round((high - setting.low) / self.step))
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
        self.slider.setMinimumWidth(theme.px(56))  # it gives way before the words do


class NumberField(SamplingRow):
    """A number that is typed in."""

    high_px = 40  # a field of 32, and room to the next one

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.field = QLineEdit()
        self.field.setProperty("kind", "field")
        self.field.setAccessibleName(f"{setting.title}. {setting.description}")
        self.unit = Label(setting.unit, "small", "ink3")
        self.across.addWidget(self.field)
        self.across.addWidget(self.unit)
        self.across.addStretch(1)
        self.across.addWidget(self.back)
        self.unit.setVisible(bool(setting.unit))
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
        """What was typed, and whether it can be used."""
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
                low=figure(self.setting.low or 0, ",.0f"),
                high=figure(self.setting.high or 0, ",.0f"),
            )
        )
        if good:
            self._choose(value)

    def restyle(self) -> None:
        super().restyle()
        self.field.setFont(theme.font("row"))
        self.field.setFixedWidth(theme.px(150))


class StopsField(SamplingRow):
    """Texts that end an answer, one a line; \\n stands for a line break."""

    def __init__(self) -> None:
        words = tr(
            "An answer ends before any of these, one a line; \\n is a line break. At most {most}.",
            most=MAX_STOPS,
        )
        super().__init__(
            Setting("stop", "text", None, tr("Stop at"), words, "", None, None, None, "", (), tr("Nothing"))
        )
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
        """Tell of what was typed, without waiting."""
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
    """All of them. `edited` gives every value that is chosen, after each change."""

    edited = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(0)
        self.rows: dict[str, SamplingRow] = {}
        for setting in map(worded, fields_of_sampling()):
            reach = _REACH.get(setting.name, setting.high or 0) - (setting.low or 0)
            slides = setting.step is not None and reach / setting.step <= MAX_STEPS
            self.rows[setting.name] = SliderField(setting) if slides else NumberField(setting)
        self.rows["stop"] = StopsField()
        for row in self.rows.values():
            self._column.addWidget(row)
            row.edited.connect(self._tell)

    def values(self) -> dict[str, Any]:
        """Every value that is chosen."""
        return {name: row.value for name, row in self.rows.items() if row.value is not None}

    def set_values(self, values: Mapping[str, Any], inherited: Mapping[str, Any]) -> None:
        """Show values without telling of them. inherited: what is in force where none is chosen."""
        for name, row in self.rows.items():
            row.set_value(values.get(name), inherited.get(name))

    def flush(self) -> None:
        """Tell of what was typed, without waiting."""
        stops = self.rows["stop"]
        assert isinstance(stops, StopsField)
        stops.flush()

    def _tell(self) -> None:
        self.edited.emit(self.values())


def escaped(stop: str) -> str:
    """A stop text on one line."""
    return stop.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def unescaped(line: str) -> str:
    """What was meant by such a line."""
    out, rest = [], iter(line)
    for character in rest:
        if character != "\\":
            out.append(character)
            continue
        after = next(rest, "")
        out.append({"n": "\n", "t": "\t", "\\": "\\"}.get(after, f"\\{after}"))
    return "".join(out)
