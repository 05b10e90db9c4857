"""A named field of a form."""

from __future__ import annotations

from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QPlainTextEdit, QVBoxLayout

from app.ui.look import theme
from app.ui.widgets.controls import Label


class NamedField(QFrame):
    """A named field of one line, or of several; below it a note, or what is wrong with it."""

    def __init__(self, name: str, hint: str, note: str = "", n_lines: int = 1) -> None:
        super().__init__()
        self.edit = QLineEdit() if n_lines == 1 else QPlainTextEdit()
        self._note, self._n_lines = note, n_lines
        self._kept: tuple[str, ...] = ()
        self.edit.setProperty("kind", "field")
        self.edit.setPlaceholderText(hint)
        self.edit.setAccessibleName(name)
        if isinstance(self.edit, QPlainTextEdit):
            self.edit.setTabChangesFocus(True)
            self.edit.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.head = QHBoxLayout()
        self.head.addWidget(Label(name, "small", "ink2", wrap=True), 1)
        self.says = Label("", "meta", wrap=True)
        column = self._column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(self.head)
        column.addWidget(self.edit)
        column.addWidget(self.says)
        self.edit.textChanged.connect(lambda *_: self.set_fault(""))
        self.set_fault("")
        theme.current().changed.connect(self._restyle)
        self._restyle()

    @property
    def text(self) -> str:
        return self.edit.text() if isinstance(self.edit, QLineEdit) else self.edit.toPlainText()

    def lines(self) -> tuple[str, ...]:
        """Return the lines that are not empty. What was shown and not edited is returned as it was."""
        if self.text == "\n".join(self._kept):
            return self._kept
        return tuple(line for line in self.text.split("\n") if line.strip())

    def show_lines(self, lines: tuple[str, ...]) -> None:
        """Show lines; a line may hold line breaks as long as the user does not edit it."""
        self._kept = lines
        words = "\n".join(lines)
        if isinstance(self.edit, QLineEdit):
            self.edit.setText(words)
        else:
            self.edit.setPlainText(words)

    def set_fault(self, fault: str) -> None:
        """Show the field's error; "": none."""
        self.says.setText(fault or self._note)
        self.says.set_look("meta", "bad" if fault else "ink3")
        self.says.setVisible(bool(self.says.words))
        theme.set_property(self.edit, "state", "bad" if fault else "")

    def _restyle(self) -> None:
        self._column.setSpacing(theme.px(3))
        if isinstance(self.edit, QPlainTextEdit):
            self.edit.setFont(theme.font("code"))
            self.edit.setFixedHeight(self._n_lines * theme.line_height("code") + theme.px(18))
        else:
            self.edit.setFont(theme.font("row"))
