"""The popup with the sampling of one chat. Changes apply to the next answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QWidget

from app.chat.store.preset_store import NAME_LENGTH
from app.translation import tr
from app.ui.composer.sampling_editor import SamplingEditor
from app.ui.look import theme
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.popover import Popover

WIDTH, INSET = 480, 18


class SamplingPopup(Popover):
    """changed: all values chosen for this chat. save_requested: name of a new preset with the values in use."""

    changed = Signal(object)
    save_requested = Signal(str)

    def __init__(self, window: QWidget) -> None:
        super().__init__(tr("Sampling in this chat"), window, INSET)
        self.heading = Label("", "heading", elide=True)
        self.line = Label("", "small", wrap=True)
        self.editor = SamplingEditor()
        self.editor.edited.connect(self._edited)
        self.reset = Button(tr("Reset"))
        self.reset.clicked.connect(self._reset)
        self.save = Button(tr("Save as a preset"))
        self.save.clicked.connect(lambda: self._ask_name(True))
        self.name = QLineEdit()
        self.name.setProperty("kind", "field")
        self.name.setMaxLength(NAME_LENGTH)
        self.name.setPlaceholderText(tr("Name of the preset"))
        self.name.setAccessibleName(tr("Name of the preset"))
        self.name.returnPressed.connect(self._save)
        self.keep = Button(tr("Save"), "primary")
        self.name.textChanged.connect(lambda words: self.keep.setEnabled(bool(words.strip())))
        self.keep.clicked.connect(self._save)
        self._foot = QHBoxLayout()
        self._foot.addWidget(self.reset)
        self._foot.addWidget(self.name, 1)
        self._foot.addStretch(1)
        self._foot.addWidget(self.save)
        self._foot.addWidget(self.keep)
        for part in (self.heading, self.line, self.editor):
            self.body.addWidget(part)
        self.body.addLayout(self._foot)
        self._inherited: dict[str, Any] = {}
        self.closed.connect(self.editor.flush)
        theme.current().changed.connect(self._restyle)
        self._ask_name(False)
        self._restyle()

    def width_px(self) -> int:
        return WIDTH

    def show_sampling(self, preset: str, values: Mapping[str, Any], inherited: Mapping[str, Any]) -> None:
        """Show the preset's name, the values chosen over it, and the inherited ones."""
        self.heading.setText(tr("{preset}, for this chat", preset=preset))
        self._inherited = dict(inherited)
        self.editor.set_values(values, inherited)
        self._tell()

    def open_at(self, anchor: QWidget) -> None:
        if self.is_open:
            return
        self._ask_name(False)
        super().open_at(anchor)
        self.editor.rows["temperature"].focus_control()

    def _tell(self) -> None:
        changed = bool(self.editor.values())
        self.line.setText(tr("Changed for this chat. Takes effect with the next answer.")
                          if changed else tr("Changes take effect with the next answer."))  # fmt: skip
        self.reset.setVisible(changed and self.name.isHidden())
        self.save.setVisible(changed and self.name.isHidden())

    def _edited(self, values: dict[str, Any]) -> None:
        self._tell()
        self.changed.emit(values)

    def _reset(self) -> None:
        self.editor.rows["temperature"].focus_control()
        self.editor.set_values({}, self._inherited)
        self._edited({})

    def _ask_name(self, asked: bool) -> None:
        self.name.clear()
        self.name.setVisible(asked)
        self.keep.setVisible(asked)
        self.keep.setEnabled(False)
        self._tell()
        if asked:
            self.name.setFocus(Qt.FocusReason.OtherFocusReason)

    def _save(self) -> None:
        words = self.name.text().strip()
        if words:
            self.editor.flush()
            self.dismiss()
            self.save_requested.emit(words)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and not self.name.isHidden():
            self._ask_name(False)
            self.save.setFocus(Qt.FocusReason.OtherFocusReason)
        else:
            super().keyPressEvent(event)

    def _restyle(self) -> None:
        px = theme.px
        self.body.setSpacing(px(4))
        self._foot.setSpacing(px(8))
        self._foot.setContentsMargins(0, px(8), 0, 0)
        self.name.setFont(theme.font("row"))
