"""The dialog with the settings of a project: instructions, model, persona, tools, documents and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.chat.projects.notes import NotesError, NotesFile
from app.chat.projects.project import MAX_INSTRUCTIONS, Project
from app.tools.tool import Tool
from app.translation import figure, tr
from app.ui.composer.switch_menu import SwitchRow
from app.ui.composer.tools_button import ToolRow
from app.ui.documents.document_labels import name_of
from app.ui.look import theme
from app.ui.models.model_dialogs import card_of_rows, two_lines
from app.ui.models.model_filters import MenuButton
from app.ui.projects.text_dialogs import text_field
from app.ui.widgets.controls import Button, Label, Rule, Toggle
from app.ui.widgets.dialog import Dialog

# A model that can be chosen: its id on this PC, or of a server its id and the model; both empty: none is chosen.
ModelChoice = tuple[str, str, str]
ANY_MODEL: ModelChoice = ("", "", "")


@dataclass(frozen=True)
class ProjectChoices:
    """The choices in the dialog. personas, models: value and name. notes: path of the file that is offered for notes.

    away: the models whose server is not on this PC. documents: paths of the named folders.
    """

    personas: Sequence[tuple[str, str]]
    models: Sequence[tuple[ModelChoice, str]]
    away: frozenset[ModelChoice]
    tools: Sequence[Tool]
    notes: str
    documents: Sequence[str] = ()


class ProjectDialog(Dialog):
    """saved: the Project that the user saved."""

    saved = Signal(object)

    def __init__(self, parent: QWidget, folder: str, project: Project, choices: ProjectChoices) -> None:
        super().__init__(
            parent, folder, tr("Settings for all chats in this folder. What you choose in a chat itself comes first."),
            600,
        )  # fmt: skip
        self._project, self._choices = project, choices
        self._path = project.notes or choices.notes
        self._add_instructions()
        self._add_choices()
        self._add_documents()
        self._add_notes()
        self.says = Label("", "small", "bad", wrap=True)
        self.body.addWidget(self.says)
        cancel = self.add_button(Button(tr("Cancel")))
        self.keep = self.add_button(Button(tr("Save"), "primary"))
        cancel.clicked.connect(self.reject)
        self.keep.clicked.connect(self._save)
        self.instructions.textChanged.connect(self._refresh)
        for toggle in (self.sets_tools, self.sets_documents, self.has_notes):
            toggle.toggled.connect(self._refresh)
        self._refresh()
        self.instructions.setFocus(Qt.FocusReason.OtherFocusReason)

    def _add_instructions(self) -> None:
        column = QVBoxLayout()
        column.setSpacing(theme.px(3))
        column.addWidget(Label(tr("Instructions"), "small", "ink2"))
        self.instructions = text_field(tr("Instructions"), self._project.instructions, 104)
        self.instructions.setPlaceholderText(tr("What the model reads before every chat of this project"))
        column.addWidget(self.instructions)
        self.body.addLayout(column)

    def _add_choices(self) -> None:
        project, choices = self._project, self._choices
        self.persona, self.model = MenuButton(tr("Persona"), self), MenuButton(tr("Model"), self)
        self.persona.set_choices(_with(choices.personas, project.persona), project.persona)
        self.model.set_choices(_with(choices.models, _model_of(project)), _model_of(project))
        for button in (self.persona, self.model):
            button.chosen.connect(lambda value, button=button: self._pick(button, value))
        self.sends = Label("", "small", "away", wrap=True)
        row = QHBoxLayout()
        row.setSpacing(theme.px(8))
        row.addWidget(self.model)
        row.addWidget(self.persona)
        row.addStretch(1)
        self.body.addLayout(row)
        self.body.addWidget(self.sends)
        self.sets_tools = Toggle(tr("Tools for these chats"), project.tools is not None)
        on = project.tools or ()
        self.tools = [ToolRow(tool) for tool in choices.tools]
        for tool_row in self.tools:
            tool_row.toggle.setChecked(tool_row.tool.name in on)
        tool_list = QFrame()
        inside = QVBoxLayout(tool_list)
        inside.setContentsMargins(theme.px(4), theme.px(4), theme.px(2), theme.px(4))
        inside.setSpacing(0)
        for tool_row in self.tools:
            inside.addWidget(tool_row)
        head = two_lines(
            tr("Tools for these chats"), tr("Calls that send or change something still ask you."), self.sets_tools
        )
        self._tool_list = _card(self.body, head, tool_list)

    def _add_documents(self) -> None:
        on = self._project.documents
        self.sets_documents = Toggle(tr("Documents for these chats"), bool(on))
        shown = list(dict.fromkeys([*self._choices.documents, *on]))  # a folder that is no longer named stays chosen
        self.documents = [SwitchRow(path, name_of(path), path) for path in shown]
        listed = QFrame()
        inside = QVBoxLayout(listed)
        inside.setContentsMargins(theme.px(4), theme.px(4), theme.px(2), theme.px(4))
        inside.setSpacing(0)
        for row in self.documents:
            row.toggle.setChecked(row.key in on)
            inside.addWidget(row)
        says = tr("The model answers from these folders. They stay on this PC.")
        if not shown:
            says = tr("First add a folder with the button of documents below the message field.")
        self.sets_documents.setEnabled(bool(shown))
        self._document_list = _card(
            self.body, two_lines(tr("Documents for these chats"), says, self.sets_documents), listed
        )

    def _add_notes(self) -> None:
        self.has_notes = Toggle(tr("Notes"), bool(self._project.notes))
        self.proposes = Toggle(tr("The model may propose notes"), self._project.proposes)
        self.path = Label("", "meta", elide=True)
        self.open_notes, self.choose = Button(tr("Open")), Button(tr("Choose a file…"))
        self.open_notes.setToolTip(tr("Opens the file in your editor"))
        self.open_notes.clicked.connect(self._open)
        self.choose.clicked.connect(self._ask_path)
        place = QFrame()
        across = QHBoxLayout(place)
        across.setContentsMargins(theme.px(14), theme.px(9), theme.px(12), theme.px(9))
        across.setSpacing(theme.px(8))
        across.addWidget(self.path, 1)
        across.addWidget(self.open_notes)
        across.addWidget(self.choose)
        head = two_lines(
            tr("Notes"), tr("A text file of yours that the model reads after the instructions."), self.has_notes
        )
        proposes = two_lines(
            tr("The model may propose notes"), tr("Nothing is written before you accept it."), self.proposes
        )
        self._of_notes = _card(self.body, head, place, proposes)

    # --- acts

    def _pick(self, button: MenuButton, value: object) -> None:
        button.set_choices(button.choices, value)
        self._refresh()

    def _refresh(self) -> None:
        n = len(self.instructions.toPlainText())
        too_long = n > MAX_INSTRUCTIONS
        self.keep.setEnabled(not too_long)
        most = figure(MAX_INSTRUCTIONS)
        self._tell(tr("{n} characters. At most {most} fit.", n=figure(n), most=most) if too_long else "")
        self._tool_list.setVisible(self.sets_tools.isChecked())
        self._document_list.setVisible(self.sets_documents.isChecked())
        self._of_notes.setVisible(self.has_notes.isChecked())
        path = Path(self._path)
        self.path.setText(tr("{name}, in {folder}", name=path.name, folder=str(path.parent)))
        self.path.setToolTip(self._path)
        is_away = self.model.value in self._choices.away
        words = tr(
            "Chats without a choice of their own are sent to this server, with all that was said in them and the "
            "instructions and notes of the project."
        )
        self.sends.setText(words if is_away else "")
        self.sends.setVisible(is_away)
        self.fit()

    def _tell(self, sentence: str) -> None:
        self.says.setText(sentence)
        self.says.setVisible(bool(sentence))

    @property
    def _notes(self) -> NotesFile:
        return NotesFile(self._path)

    def _open(self) -> None:
        try:
            self._notes.create()
        except NotesError as error:
            self._tell(str(error))
            self.fit()
            return
        QDesktopServices.openUrl(QUrl.fromLocalFile(self._path))

    def _ask_path(self) -> None:
        kinds = tr("Text files (*.md *.txt)")
        keep = QFileDialog.Option.DontConfirmOverwrite
        path, _ = QFileDialog.getSaveFileName(self, tr("File for the notes"), self._path, kinds, options=keep)
        if path:
            self.set_path(path)

    def set_path(self, path: str) -> None:
        """Set the file of the notes; it is created when the settings are saved. Without an ending, it gets .md."""
        self._path = str(Path(path if Path(path).suffix else f"{path}.md"))
        self._refresh()

    def _save(self) -> None:
        if self.has_notes.isChecked():
            try:
                self._notes.create()
            except NotesError as error:
                self._tell(str(error))
                self.fit()
                return
        here, server, model = self.model.value or ANY_MODEL
        on = [row.tool.name for row in self.tools if row.toggle.isChecked()]
        shown = {row.tool.name for row in self.tools}
        on += [name for name in self._project.tools or () if name not in shown]  # of a server that is not connected
        project = replace(
            self._project,
            instructions=self.instructions.toPlainText().strip(),
            persona=self.persona.value or "",
            model=here,
            server={"id": server, "model": model} if server else None,
            tools=tuple(on) if self.sets_tools.isChecked() else None,
            notes=self._path if self.has_notes.isChecked() else "",
            documents=tuple(row.key for row in self.documents if row.toggle.isChecked())
            if self.sets_documents.isChecked()
            else (),
            proposes=self.proposes.isChecked() and self.has_notes.isChecked(),
        )
        self.accept()
        self.saved.emit(project)


def _card(column: QVBoxLayout, head: QWidget, *rows: QWidget) -> QFrame:
    """Add a card with a head and rows to a column. Return the part below the head, which can be hidden."""
    below = QFrame()
    inside = QVBoxLayout(below)
    inside.setContentsMargins(0, 0, 0, 0)
    inside.setSpacing(0)
    for row in rows:
        inside.addWidget(Rule())
        inside.addWidget(row)
    card = card_of_rows([head])
    layout = card.layout()
    assert layout is not None, "it has rows"
    layout.addWidget(below)
    column.addWidget(card)
    return below


def _model_of(project: Project) -> ModelChoice:
    if project.server is not None:
        return "", project.server.get("id", ""), project.server.get("model", "")
    return project.model, "", ""


def _with(choices: Sequence[tuple[Any, str]], value: Any) -> list[tuple[Any, str]]:
    """Return the choices with the current one, also if it is gone."""
    known = any(one == value for one, _ in choices)
    return [*choices] if known else [*choices, (value, tr("no longer there"))]
