"""Connects the projects with the window: their dialogs, the line in the composer, and additions to the notes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot

from app.chat.projects.notes import NotesError, NotesText
from app.chat.projects.project import MODEL, SERVER, Project, instructions_of
from app.chat.store.chat_files import file_name
from app.translation import figure, tr, tr_n

if TYPE_CHECKING:
    from app.chat.answer_setup import AnswerSetup
    from app.chat.chat_controller import ChatController
    from app.chat.chat_folders import ChatFolders
    from app.documents.documents import Documents
    from app.models.models_controller import ModelsController
    from app.servers.server_book import ServerBook
    from app.ui.main_window import MainWindow
    from app.ui.projects.project_dialog import ModelChoice, ProjectChoices
    from app.ui.projects.text_dialogs import TextDialog


class ChatProjects(QObject):
    """The connections of a window; create one per window. notes_folder: for the notes of projects."""

    def __init__(
        self,
        window: MainWindow,
        chat: ChatController,
        setup: AnswerSetup,
        folders: ChatFolders,
        models: ModelsController,
        book: ServerBook,
        notes_folder: Path,
        documents: Documents | None = None,
    ) -> None:
        super().__init__(window)
        self._documents = documents
        self._window, self._page, self._list = window, window.page, window.sidebar.panel.list
        self._chat, self._setup, self._folders = chat, setup, folders
        self._models, self._book, self._notes_folder = models, book, notes_folder
        self._list.asked.connect(self._do)
        line = self._page.composer.inherited
        line.project_requested.connect(self.open_settings)
        line.instructions_requested.connect(self.edit_instructions)
        self._page.note_requested.connect(self.add_note)
        self._page.answer_rows_requested.connect(
            lambda menu: menu.add(tr("Instructions for this chat…"), "chat", self.edit_instructions)
        )
        setup.changed.connect(self.show)
        chat.message_added.connect(self.show)  # the notes may have changed since
        folders.projects_changed.connect(self._show_folders)
        bind = window.commands.bind
        bind("new_project", self._ask_name)
        bind("project_settings", self.open_settings, lambda: bool(self._folder))
        bind("new_chat_here", lambda: self._new_chat(self._folder), lambda: bool(self._folder))
        bind("chat_instructions", self.edit_instructions, lambda: window.pages.shows_chat)
        self._show_folders()

    @property
    def _folder(self) -> str:
        return self._chat.choices.folder

    # --- opening

    def _do(self, act: str, whose: str) -> None:
        if act == "project":
            self._edit(whose)
        elif act == "new_project":
            self._ask_name()
        elif act == "new_chat_in":
            self._new_chat(whose)

    def _new_chat(self, folder: str) -> None:
        self._chat.new_chat(folder)
        self._window.show_chat()

    def _ask_name(self) -> None:
        from app.ui.sidebar.folder_dialog import FolderDialog

        dialog = FolderDialog(self._window, self._list.chats.folders, of_project=True)
        dialog.named.connect(self._create)
        dialog.open()

    def _create(self, name: str) -> None:
        self._folders.set_project(name, Project())
        self._edit(name)

    def open_settings(self) -> None:
        """Open the settings of the open chat's project."""
        if self._folder:
            self._edit(self._folder)

    def _edit(self, folder: str) -> None:
        from app.ui.projects.project_dialog import ProjectDialog

        dialog = ProjectDialog(
            self._window, folder, self._folders.projects.of(folder) or Project(), self._choices(folder)
        )
        dialog.saved.connect(lambda project: self._keep(folder, project))
        dialog.open()

    def _keep(self, folder: str, project: Project) -> None:
        has_chats = any(chat.folder == folder for chat in self._list.chats.conversations)
        self._folders.set_project(folder, None if project == Project() and has_chats else project)

    def _choices(self, folder: str) -> ProjectChoices:
        from app.ui.models.model_list import can_answer
        from app.ui.projects.project_dialog import ANY_MODEL, ProjectChoices

        personas = [(one.id, one.name) for one in self._setup.choices.personas.things]
        models: list[tuple[ModelChoice, str]] = [(ANY_MODEL, tr("the loaded one"))]
        models += [
            ((row.installed.id, "", ""), row.name)
            for row in self._models.rows
            if row.installed is not None and can_answer(row)
        ]
        models += [(("", one.server.id, one.model), f"{one.model}, {one.server.name}") for one in self._book.places]
        away = {("", one.server.id, one.model) for one in self._book.places if not one.server.is_here}
        return ProjectChoices(
            [("", tr("as in the settings")), *personas], models, frozenset(away),
            self._setup.tool_offer.tools, str(self._free_path(folder)),
            self._documents.folders if self._documents is not None else (),
        )  # fmt: skip

    def _free_path(self, folder: str) -> Path:
        """Return a path for the notes of a folder that no other project has."""
        projects = self._folders.projects
        taken = {project.notes for name in projects.folders if (project := projects.of(name)) and name != folder}
        name = file_name(folder)
        paths = (self._notes_folder / (f"{name} {n}" if n else name) / "Notes.md" for n in (0, *range(2, 10_000)))
        return next(path for path in paths if str(path) not in taken)

    def edit_instructions(self) -> None:
        from app.ui.projects.text_dialogs import InstructionsDialog

        dialog = InstructionsDialog(self._window, instructions_of(self._chat.choices.values))
        dialog.entered.connect(lambda text: self._set_instructions(dialog, text.strip()))
        dialog.open()

    def _set_instructions(self, dialog: TextDialog, text: str) -> None:
        self._chat.choices.set(instructions=text or None)
        dialog.accept()

    # --- notes

    @Slot(str)
    def add_note(self, text: str) -> None:
        """Show a text before it is added to the notes of the open chat's project."""
        from app.ui.projects.text_dialogs import AddNoteDialog

        notes = self._folders.projects.notes_of(self._folder)
        if notes is None:
            return
        dialog = AddNoteDialog(self._window, text.strip(), str(notes.path))

        def add(words: str) -> None:
            try:
                notes.append(words)
            except NotesError as error:
                dialog.fail(str(error))
                return
            dialog.accept()
            self._chat.choices.changed.emit()  # the prompt is counted again
            self._chat.toast.emit(tr("Added to {name}", name=notes.path.name), None)

        dialog.entered.connect(add)
        dialog.open()

    # --- showing

    def _show_folders(self) -> None:
        self._window.sidebar.panel.show_projects(self._folders.projects.folders)
        self.show()

    @Slot()
    def show(self) -> None:
        """Show what the open chat inherits."""
        chat, projects = self._chat.choices, self._folders.projects
        project = projects.of(chat.folder)
        notes = self._setup.notes
        self._page.transcript.set_has_notes(bool(project and project.notes))
        parts = self._parts(project, notes) if project is not None else []
        words = tr("From project {name}: {parts}", name=chat.folder, parts=", ".join(parts)) if parts else ""
        if project is not None and not parts:
            words = tr("Project {name}", name=chat.folder)
        has_own = bool(instructions_of(chat.values).strip())
        self._page.composer.inherited.show_words(words, has_own, notes.is_cut or bool(notes.fault))

    def _parts(self, project: Project, notes: NotesText) -> list[str]:
        """Return what of a project applies to the open chat, as words."""
        own = self._chat.choices.values
        parts = [tr("instructions")] if project.instructions else []
        if notes.fault:
            parts.append(tr("no notes ({why})", why=notes.fault.rstrip(".")))
        elif notes.is_cut:
            parts.append(tr("notes ({n} of {all} characters fit)", n=figure(len(notes.text)), all=figure(notes.n_all)))
        elif project.notes:
            parts.append(tr("notes"))
        inherited = project.choices
        persona = self._setup.chosen.persona
        if "persona" in inherited and "persona" not in own and persona is not None:
            parts.append(persona.name)
        if MODEL in inherited and MODEL not in own and SERVER not in own:
            row = self._models.row(project.model)
            parts.append(row.name if row is not None else project.model)
        elif SERVER in inherited and SERVER not in own and self._chat.place is not None:
            parts.append(self._chat.place.model)
        n_tools = len(project.tools or ())
        if "tools" in inherited and "tools" not in own and self._chat.place is None:
            parts.append(tr_n("{n} tool", "{n} tools", n_tools, n=figure(n_tools)))
        n_folders = len(project.documents)
        if "documents" in inherited and "documents" not in own and self._chat.place is None:
            parts.append(tr_n("{n} folder of documents", "{n} folders of documents", n_folders, n=figure(n_folders)))
        return parts
