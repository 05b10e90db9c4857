"""The quiet line in the composer that says what the chat inherits from its project, and that it has instructions."""

from __future__ import annotations

from PySide6.QtCore import QSize, Signal
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QWidget

from app.translation import tr
from app.ui.look import theme
from app.ui.widgets.controls import Button


class _LineButton(Button):
    """Small text that can be pressed and shrinks; its whole text is the tooltip."""

    def __init__(self, glyph: str) -> None:
        super().__init__("", "quiet", glyph)
        self.height_px, self.padding_px, self.glyph_px = 24, 6, 14
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self._restyle()

    def _restyle(self) -> None:
        super()._restyle()
        self.setFont(theme.font("meta"))

    def set_words(self, words: str, about: str) -> None:
        self.setText(words.replace("&", "&&"))
        self.setAccessibleName(words or about)
        self.setToolTip(f"{words}\n{about}")
        self.setVisible(bool(words))
        self.updateGeometry()

    def minimumSizeHint(self) -> QSize:
        return QSize(min(theme.px(96), self.sizeHint().width()), self.sizeHint().height())


class InheritedLine(QWidget):
    """project_requested: open the project's settings. instructions_requested: edit this chat's instructions."""

    project_requested = Signal()
    instructions_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.project, self.instructions = _LineButton("folder"), _LineButton("chat")
        self.project.clicked.connect(self.project_requested)
        self.instructions.clicked.connect(self.instructions_requested)
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.addWidget(self.project)
        self._row.addWidget(self.instructions)
        self._row.addStretch(1)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.show_words("", False)

    def show_words(self, project: str, has_instructions: bool, warns: bool = False) -> None:
        """Show what the chat inherits; "": nothing. warns: whether something of it is missing from the prompt."""
        self.project.set_words(project, tr("Open the settings of the project"))
        self.project.glyph_token = "warn" if warns else ""
        self.project.set_glyph("warn" if warns else "folder")
        self.instructions.set_words(tr("Instructions for this chat") if has_instructions else "", tr("Edit them"))
        self.setVisible(bool(project) or has_instructions)
