"""The composer's Documents button and its menu: which folders of documents the open chat uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.translation import figure, tr, tr_n
from app.ui.composer.switch_menu import SwitchMenu, SwitchRow
from app.ui.documents.document_labels import name_of, state_of
from app.ui.look import theme
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.pick_menu import clear
from app.ui.widgets.pick_row import INSET, PickRow

if TYPE_CHECKING:
    from app.documents.indexing import FolderState

WIDTH = 340


@dataclass(frozen=True)
class DocumentsOffer:
    """A chat's documents. folders: all named ones. on: paths of those that are on. server: the one that answers."""

    folders: tuple[FolderState, ...] = ()
    on: frozenset[str] = frozenset()
    is_paused: bool = False
    server: str = ""

    @property
    def n_on(self) -> int:
        """The number of folders that are searched for the next question."""
        return 0 if self.server else sum(one.path in self.on for one in self.folders)

    def picked(self, path: str, is_on: bool) -> list[str]:
        """Return the paths that are on after one is switched."""
        return [one.path for one in self.folders if (is_on if one.path == path else one.path in self.on)]


class DocumentsMenu(SwitchMenu):
    """The folders with a switch each.

    picked: paths of the folders that are on. add_requested: name another folder. manage_requested: show all folders.
    """

    picked = Signal(list)
    add_requested = Signal()
    manage_requested = Signal()

    def __init__(self, window: QWidget) -> None:
        super().__init__(tr("Documents of this chat"), window, WIDTH)
        self._offer = DocumentsOffer()
        self.note = Label("", "meta", wrap=True)
        self.body.addWidget(self.note)
        self.body.addLayout(self.switches)
        self.add_rule()
        self.add = PickRow(tr("Add a folder…"), "folder-new")
        self.add.clicked.connect(self._add)
        self.body.addWidget(self.add)
        self.manage = PickRow(tr("Manage documents…"), "settings")
        self.manage.clicked.connect(self._manage)
        self.body.addWidget(self.manage)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def show_offer(self, offer: DocumentsOffer) -> None:
        """Show the folders, and which are on. Rows stay while the folders are the same."""
        before, self._offer = self._offer, offer
        if [one.path for one in before.folders] != [one.path for one in offer.folders] or not self.switches.count():
            clear(self.switches)
            for state in offer.folders:
                self.add_row(SwitchRow(state.path, name_of(state.path), state.path))
        for row, state in zip(self.rows(), offer.folders, strict=True):
            row.set_line(state_of(state, offer.is_paused), "ink3" if state.is_there else "warn")
            row.toggle.setChecked(row.key in offer.on)
        self.note.setText(" ".join(self._notes()))
        self.note.setVisible(bool(self.note.words))
        self.place()

    def _notes(self) -> Iterator[str]:
        if self._offer.server:
            yield tr("This chat is sent to {server}. Your documents stay on this PC: they are not searched for it, "
                     "and passages of them are not sent.", server=self._offer.server)  # fmt: skip
        elif not self._offer.folders:
            yield tr("The model can answer from folders of your documents. They stay where they are, on this PC.")

    def switch(self, path: str, is_on: bool) -> None:
        picked = self._offer.picked(path, is_on)
        # switched again before the answer comes, this choice counts too
        self._offer = replace(self._offer, on=frozenset(picked))
        self.picked.emit(picked)

    def _add(self) -> None:
        self.dismiss()
        self.add_requested.emit()

    def _manage(self) -> None:
        self.dismiss()
        self.manage_requested.emit()

    def _restyle(self) -> None:
        self.note.setContentsMargins(theme.px(INSET), theme.px(6), theme.px(INSET), theme.px(4))


class DocumentsButton(Button):
    """Opens the menu of documents, and shows how many folders are on.

    documents_picked, folder_wanted, documents_wanted: as picked, add_requested and manage_requested of DocumentsMenu.
    """

    documents_picked = Signal(list)
    folder_wanted = Signal()
    documents_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("", "quiet", "documents", parent=parent)
        self._offer = DocumentsOffer()
        self._menu: DocumentsMenu | None = None  # built on first use
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.clicked.connect(self.open_menu)
        self.show_offer(self._offer)

    @property
    def menu_of_documents(self) -> DocumentsMenu:
        if self._menu is None:
            self._menu = DocumentsMenu(self.window())
            self._menu.picked.connect(self.documents_picked)
            self._menu.add_requested.connect(self.folder_wanted)
            self._menu.manage_requested.connect(self.documents_wanted)
        return self._menu

    def show_offer(self, offer: DocumentsOffer) -> None:
        """Show the folders of the open chat."""
        self._offer = offer
        n = offer.n_on
        self.setText(figure(n) if n else "")
        words = tr_n("Documents: {n} folder is on", "Documents: {n} folders are on", n, n=figure(n))
        if offer.server:
            words = tr("Documents: they stay on this PC and are not sent")
        elif not n:
            words = tr("Documents: no folder is on")
        self.setAccessibleName(words)
        self.setToolTip(words)
        self.updateGeometry()
        if self._menu is not None and self._menu.is_open:
            self._menu.show_offer(offer)

    def open_menu(self) -> None:
        if self.menu_of_documents.is_open:
            self.menu_of_documents.dismiss()
        else:
            self.menu_of_documents.show_offer(self._offer)
            self.menu_of_documents.open_at(self)
