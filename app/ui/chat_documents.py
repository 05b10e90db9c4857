"""Connects the folders of documents with the composer, the transcript and their dialogs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Slot
from PySide6.QtWidgets import QFileDialog

from app.documents.indexing import is_within
from app.models.model_selection import fits
from app.translation import tr, tr_n
from app.ui.composer.documents_button import DocumentsOffer
from app.ui.documents.document_labels import name_of
from app.ui.widgets.floating import Menu, Undo, confirm

if TYPE_CHECKING:
    from app.chat.answer_setup import AnswerSetup
    from app.chat.chat_controller import ChatController
    from app.chat.store.conversation import Attachment
    from app.documents.documents import Documents
    from app.models.models_controller import ModelsController
    from app.ui.documents.documents_dialog import DocumentsDialog
    from app.ui.main_window import MainWindow


class ChatDocuments(QObject):
    """The connections of a window; create one per window, after its other connections."""

    def __init__(
        self, window: MainWindow, chat: ChatController, setup: AnswerSetup, documents: Documents,
        models: ModelsController | None = None,
    ) -> None:  # fmt: skip
        """models: the installed ones, of which one can search by meaning."""
        super().__init__(window)
        self._models = models
        self._window, self._page = window, window.page
        self._chat, self._setup, self._documents = chat, setup, documents
        self._dialog: DocumentsDialog | None = None
        button = window.page.composer.documents_button
        button.documents_picked.connect(setup.pick_documents)
        button.folder_wanted.connect(self.ask_for_folder)
        button.documents_wanted.connect(self.open_dialog)
        window.page.composer.folders_given.connect(self._offer_folders)
        window.page.transcript.source_requested.connect(self._open_source)
        window.page.answer_rows_requested.connect(self._add_to_menu)
        window.commands.bind("documents", self.open_dialog)
        documents.changed.connect(self.show)
        documents.said.connect(self._say)
        setup.changed.connect(self.show)
        chat.chat_status_changed.connect(self.show)
        self.show()

    @Slot()
    def show(self) -> None:
        """Show the folders, and which of them the open chat uses."""
        place = self._chat.place
        self._page.composer.documents_button.show_offer(
            DocumentsOffer(
                tuple(self._documents.states), frozenset(self._setup.chosen.documents), self._documents.is_paused,
                place.server.name if place is not None else "",
            )
        )  # fmt: skip

    def open_dialog(self) -> None:
        from app.ui.documents.documents_dialog import DocumentsDialog

        if self._models is not None and not self._models.rows:
            self._models.refresh()
        dialog = self._dialog = DocumentsDialog(self._window, self._documents, self._name_of_model, self._offered_model)
        dialog.model_menu_requested.connect(self._open_model_menu)
        dialog.folder_wanted.connect(lambda: self.ask_for_folder(switches_on=False))
        dialog.finished.connect(self._discard_dialog)
        dialog.open()

    def _name_of_model(self, model: str) -> str:
        return next((name for key, name in self._embedding_models() if key == model), model)

    def _embedding_models(self) -> list[tuple[str, str]]:
        """Return id and name of each installed model that is made for vectors."""
        rows = self._models.rows if self._models is not None else []
        here = [(row, row.installed.id) for row in rows if row.installed is not None]
        return [(key, row.name) for row, key in here if row.kind == "embedding" or "embed" in row.name.casefold()]

    def _offered_model(self) -> tuple[str, int]:
        """Return name and bytes of the embedding model to recommend: the first in the catalogue's order that fits."""
        rows = self._models.rows if self._models is not None else []
        found = [row for row in rows if row.kind == "embedding" and row.entry is not None and fits(row)]
        best = min(found, key=lambda row: row.rank, default=None)
        return ("", 0) if best is None else (best.name, best.n_bytes)

    def _open_model_menu(self) -> None:
        """Let the user choose the model that searches by meaning."""
        dialog = self._dialog
        if dialog is None:
            return
        menu, models = Menu(tr("Search by meaning"), dialog), self._embedding_models()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for key, name in [("", tr("Off")), *models]:
            action = menu.add(name, "check", partial(self._documents.set_model, key))
            action.setCheckable(True)
            action.setChecked(key == self._documents.model)
            action.setIconVisibleInMenu(key == self._documents.model)
        if not models:
            menu.addSeparator()
            menu.add(tr("Get an embedding model…"), "download", self._find_model)
        anchor = dialog.meaning.choose
        menu.popup(anchor.mapToGlobal(anchor.rect().bottomLeft()))

    def _find_model(self) -> None:
        if self._dialog is not None:
            self._dialog.accept()
        self._window.pages.show_models()
        page = self._window.pages.models_page
        if page is not None:
            page.search.setText("Embedding")

    def _discard_dialog(self) -> None:
        self._dialog = None

    def ask_for_folder(self, switches_on: bool = True) -> None:
        """Ask for a folder to name. switches_on: the open chat uses it from now on."""
        dialog = QFileDialog(self._dialog or self._window, tr("Choose a folder with documents"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        dialog.filesSelected.connect(lambda paths: self.add([Path(path) for path in paths], switches_on))
        dialog.open()

    def add(self, folders: Sequence[Path], switches_on: bool = True) -> None:
        """Name folders. One that is known already, or is in a known one, is only switched on."""
        on = list(self._setup.chosen.documents)
        for folder in folders:
            path = os.path.abspath(folder)
            known = next((one for one in self._documents.folders if path == one or is_within(path, one)), "")
            if not (known and switches_on) and not self._documents.add(folder):
                continue
            on.append(known or path)
        if switches_on:
            self._setup.pick_documents(list(dict.fromkeys(on)))

    @Slot(list)
    def _offer_folders(self, folders: list[Path]) -> None:
        n = len(folders)
        one = tr("Answer from “{name}”?", name=name_of(str(folders[0])))
        title = one if n == 1 else tr_n("Answer from {n} folder?", "Answer from {n} folders?", n, n=n)
        sentence = tr("The documents stay where they are, and nothing leaves this PC. The model reads passages that "
                      "fit a question of this chat.")  # fmt: skip
        dialog = confirm(self._page, title, sentence, tr("Cancel"), tr("Add to documents"), lambda: self.add(folders))
        dialog.danger.set_look("secondary")  # it destroys nothing

    def _open_source(self, source: Attachment) -> None:
        from app.ui.documents.source_dialog import SourceDialog

        SourceDialog(self._window, source, self._documents.knows).open()

    def _add_to_menu(self, menu: Menu) -> None:
        menu.add(tr("Documents"), "documents", self.open_dialog)

    def _say(self, words: str, undo: Undo) -> None:
        (self._window if self._dialog is None else self._dialog).show_toast(words, undo)
