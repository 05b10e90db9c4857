"""The dialog that asks for the name of a new folder."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLineEdit, QWidget

from app.translation import tr
from app.ui.look import theme
from app.ui.sidebar.chat_model import FOLDER_LENGTH
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.dialog import Dialog


class FolderDialog(Dialog):
    """A dialog with one field. named: the name, which may be that of an existing folder, but not of a new project."""

    named = Signal(str)

    def __init__(self, parent: QWidget, folders: Sequence[str], of_project: bool = False) -> None:
        super().__init__(parent, tr("New project") if of_project else tr("New folder"), "", 380)
        self._folders, self._of_project = set(folders), of_project
        self.field = QLineEdit()
        self.field.setProperty("kind", "field")
        self.field.setPlaceholderText(tr("Name"))
        self.field.setAccessibleName(tr("Name of the folder"))
        self.field.setMaxLength(FOLDER_LENGTH)
        self.field.setFont(theme.font("row"))
        self.note = Label("", "meta", wrap=True)
        self.note.setMinimumHeight(theme.line_height("meta"))
        self.body.addWidget(self.field)
        self.body.addWidget(self.note)
        cancel = self.add_button(Button(tr("Cancel")))
        self.confirm = self.add_button(Button(tr("Create") if of_project else tr("Move"), "primary"))
        self.confirm.setDefault(True)
        cancel.clicked.connect(self.reject)
        self.confirm.clicked.connect(self._take)
        self.field.textChanged.connect(self._typed)
        self._typed("")
        self.field.setFocus(Qt.FocusReason.OtherFocusReason)

    def _name(self) -> str:
        return " ".join(self.field.text().split())

    def _typed(self, _: str) -> None:
        exists = self._name() in self._folders
        self.confirm.setEnabled(bool(self._name()) and not (exists and self._of_project))
        words = tr("This folder exists.") if self._of_project else tr("This folder exists. The chat moves to it.")
        self.note.setText(words if exists else "")

    def _take(self) -> None:
        name = self._name()
        self.accept()
        self.named.emit(name)
