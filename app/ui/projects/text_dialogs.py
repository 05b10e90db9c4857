"""Dialogs with one text: the instructions for one chat, and an addition to the notes of a project."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QTextCursor
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from app.chat.projects.notes import LONGEST_ADDED
from app.chat.projects.project import MAX_INSTRUCTIONS
from app.translation import figure, tr
from app.ui.look import theme
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.dialog import Dialog

HIGH = 180


def text_field(name: str, text: str, high: int = HIGH) -> QPlainTextEdit:
    """Return a field for a text of several lines. high: px at zoom 1."""
    field = QPlainTextEdit(text)
    field.setProperty("kind", "field")
    field.setTabChangesFocus(True)
    field.setAccessibleName(name)
    field.setFont(theme.font("row"))
    field.setFixedHeight(theme.px(high))
    return field


class TextDialog(Dialog):
    """A field for a text of limited length. entered: the text; the caller closes the dialog, or says why not."""

    entered = Signal(str)

    def __init__(self, parent: QWidget, title: str, sentence: str, text: str, most: int, keep: str) -> None:
        """most: characters. keep: text of the button that enters it."""
        super().__init__(parent, title, sentence, 560)
        self._most = most
        self.field = text_field(title, text)
        self.note = Label("", "meta", wrap=True)
        self.note.setMinimumHeight(theme.line_height("meta"))
        self.body.addWidget(self.field)
        self.body.addWidget(self.note)
        cancel = self.add_button(Button(tr("Cancel")))
        self.keep = self.add_button(Button(keep, "primary"))
        cancel.clicked.connect(self.reject)
        self.keep.clicked.connect(lambda: self.entered.emit(self.field.toPlainText()))
        self.field.textChanged.connect(self._typed)
        self._typed()
        self.field.setFocus(Qt.FocusReason.OtherFocusReason)
        self.field.moveCursor(QTextCursor.MoveOperation.End)

    def fail(self, sentence: str) -> None:
        """Say why the text was not taken."""
        self.note.setText(sentence)
        self.note.set_look("meta", "bad")
        self.fit()

    def may_be_empty(self) -> bool:
        return True

    def _typed(self) -> None:
        n = len(self.field.toPlainText())
        fits = n <= self._most
        self.keep.setEnabled(fits and (self.may_be_empty() or bool(self.field.toPlainText().strip())))
        self.note.set_look("meta", "ink3" if fits else "bad")
        self.note.setText(
            "" if fits else tr("{n} characters. At most {most} fit.", n=figure(n), most=figure(self._most))
        )

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_return = event.key() in {Qt.Key.Key_Return, Qt.Key.Key_Enter}
        if is_return and event.modifiers() & Qt.KeyboardModifier.ControlModifier and self.keep.isEnabled():
            self.keep.click()
        else:
            super().keyPressEvent(event)


class InstructionsDialog(TextDialog):
    def __init__(self, parent: QWidget, text: str) -> None:
        super().__init__(
            parent, tr("Instructions for this chat"),
            tr("The model reads them before this chat, after those of the project and the persona."), text,
            MAX_INSTRUCTIONS, tr("Save"),
        )  # fmt: skip
        self.field.setPlaceholderText(tr("What the model reads before the chat begins, in your words"))


class AddNoteDialog(TextDialog):
    """An addition to the notes of a project, before it is written."""

    def __init__(self, parent: QWidget, text: str, path: str) -> None:
        super().__init__(
            parent, tr("Add to notes"), tr("It is added at the end of {path}.", path=path), text, LONGEST_ADDED,
            tr("Add"),
        )  # fmt: skip

    def may_be_empty(self) -> bool:
        return False
