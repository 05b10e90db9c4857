"""The dialog that asks how a chat or a message goes along: on paper, as a PDF file or as a web page."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.chat.exports.outline import Scope
from app.translation import tr
from app.ui.widgets.controls import Button, Label, Segments, Toggle
from app.ui.widgets.dialog import Dialog

Form = Literal["print", "pdf", "web"]


class ExportDialog(Dialog):
    """A dialog with a choice of the form and what goes along. chosen: the form, and a Scope. previewed: a Scope."""

    chosen = Signal(str, object)
    previewed = Signal(object)

    def __init__(self, parent: QWidget, form: Form, message_id: str = "") -> None:
        """form: chosen at first. message_id: of a message that goes alone; "" for the chat."""
        super().__init__(
            parent, tr("Print or export this message") if message_id else tr("Print or export this chat"), "", 420
        )
        self._message_id = message_id
        choices = [("print", tr("Print")), ("pdf", tr("PDF file")), ("web", tr("Web page"))]
        self.form = Segments(choices, form, tr("Form"))
        self.form.picked.connect(lambda _: self._show_form())
        self.branches, self.thoughts = Toggle(tr("All versions")), Toggle(tr("Thoughts"))
        self.body.addWidget(self.form)
        if not message_id:
            self._add_row(self.branches, tr("All versions"), tr("Other versions of messages, and what follows them"))
        self._add_row(self.thoughts, tr("Thoughts"), tr("What the model thought before it answered"))
        self.preview = self.add_button(Button(tr("Preview")), at_start=True)
        self.preview.clicked.connect(lambda: self.previewed.emit(self.scope))
        cancel = self.add_button(Button(tr("Cancel")))
        cancel.clicked.connect(self.reject)
        self.confirm = self.add_button(Button("", "primary"))
        self.confirm.setDefault(True)
        self.confirm.clicked.connect(self._take)
        self._show_form()
        self.confirm.setFocus(Qt.FocusReason.OtherFocusReason)

    @property
    def scope(self) -> Scope:
        """The parts of the chat that are chosen now."""
        return Scope(self.branches.isChecked(), self.thoughts.isChecked(), self._message_id)

    def _add_row(self, toggle: Toggle, title: str, words: str) -> None:
        row, column = QHBoxLayout(), QVBoxLayout()
        toggle.setAccessibleDescription(words)
        column.setSpacing(1)
        column.addWidget(Label(title, "label"))
        column.addWidget(Label(words, "small", "ink3", elide=True))
        row.addLayout(column, 1)
        row.addWidget(toggle)
        self.body.addLayout(row)

    def _show_form(self) -> None:
        self.confirm.setText(tr("Print") if self.form.value() == "print" else tr("Save"))
        self.preview.setVisible(self.form.value() != "web")

    def _take(self) -> None:
        form, scope = self.form.value(), self.scope
        self.accept()
        self.chosen.emit(form, scope)
