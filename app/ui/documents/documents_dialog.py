"""The dialog of the folders of documents: their states, what could not be read, and buttons to add and remove some."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.translation import figure, tr, tr_n
from app.ui.documents.document_labels import failed_of, name_of, state_of
from app.ui.look import theme
from app.ui.look.icons import Glyph
from app.ui.widgets.controls import Button, IconButton, Label, Progress
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.empty_state import EmptyState
from app.ui.widgets.floating import Toast, Undo
from app.units import gigabytes

if TYPE_CHECKING:
    from app.documents.documents import Documents
    from app.documents.indexing import FolderState

MOST_FAILURES = 50  # that are listed of a folder
TOAST_LIFT = 64


class FolderLine(QFrame):
    """A folder: name, path, state, what could not be read, and buttons. resized: it needs another height."""

    resized = Signal()

    def __init__(self, path: str, failures: Callable[[str], list[tuple[str, str]]]) -> None:
        super().__init__()
        self.path, self._failures = path, failures
        self._state: FolderState | None = None
        name = name_of(path)
        self.name, self.place = Label(name, "label", "ink", elide=True), Label(path, "meta", elide=True)
        self.state = Label("", "small", wrap=True)
        self.progress = Progress(tr("Reading {name}", name=name), 4)
        self.failed = Button("", "quiet", "right")
        self.failed.padding_px, self.failed.glyph_px, self.failed.height_px = 4, 14, 26
        self.failed.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.failed.clicked.connect(self._unfold)
        self._list = QWidget()
        self._lines = QVBoxLayout(self._list)
        self._lines.setContentsMargins(theme.px(22), 0, 0, 0)
        self._lines.setSpacing(theme.px(6))
        self._list.hide()
        self.open = IconButton("folder", tr("Open {name}", name=name))
        self.remove = IconButton("trash", tr("Remove {name} from documents", name=name))
        self.open.clicked.connect(lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(path)))
        words = QVBoxLayout()
        words.setSpacing(1)
        for part in (self.name, self.place, self.state, self.progress, self.failed, self._list):
            words.addWidget(part)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, theme.px(6), 0, theme.px(6))
        row.setSpacing(theme.px(10))
        row.addWidget(Glyph("documents", "ink2", 18), 0, Qt.AlignmentFlag.AlignTop)
        row.addLayout(words, 1)
        row.addWidget(self.open, 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(self.remove, 0, Qt.AlignmentFlag.AlignTop)

    def show_state(self, state: FolderState, is_paused: bool) -> None:
        before, self._state = self._state, state
        words = [state_of(state, is_paused)]
        if not state.is_there:
            words = [tr("Not available. Is its drive connected? Hearth searches what it has already read from it.")]
        elif state.has_more:
            words.append(tr("Further documents are left out"))
        self.state.setText(" · ".join(words))
        self.state.set_look("small", "warn" if not state.is_there or state.has_more else None)
        read, waiting = state.n_files + state.n_failed, state.n_waiting
        self.progress.set_done(read / max(read + waiting, 1))
        self.progress.setVisible(waiting > 0 and state.is_there)
        self.failed.setText(failed_of(state))
        self.failed.setVisible(state.n_failed > 0)
        self.open.setEnabled(state.is_there)
        if before is None or before.n_failed != state.n_failed:
            if not state.n_failed:
                self._list.hide()
            elif not self._list.isHidden():
                self._fill()

    def _unfold(self) -> None:
        self._list.setVisible(self._list.isHidden())
        self.failed.set_glyph("right" if self._list.isHidden() else "down")
        self.failed.setAccessibleDescription(tr("Collapsed") if self._list.isHidden() else tr("Expanded"))
        self._fill()
        self.resized.emit()

    def _fill(self) -> None:
        """List the documents that could not be read, by their path in the folder."""
        while (item := self._lines.takeAt(0)) is not None:
            if (old := item.widget()) is not None:
                old.hide()
                old.deleteLater()
        if self._list.isHidden():
            return
        failures = self._failures(self.path)
        for path, why in failures[:MOST_FAILURES]:
            part = QWidget()
            column = QVBoxLayout(part)
            column.setContentsMargins(0, 0, 0, 0)
            column.setSpacing(0)
            column.addWidget(Label(os.path.relpath(path, self.path), "small", "ink", elide=True))
            column.addWidget(Label(why, "meta", wrap=True))
            self._lines.addWidget(part)
            part.show()
        if (more := len(failures) - MOST_FAILURES) > 0:
            label = Label(tr_n("And {n} more", "And {n} more", more, n=figure(more)), "meta")
            self._lines.addWidget(label)
            label.show()


class MeaningLine(QFrame):
    """Which model finds passages by their meaning, and how far it is. menu_requested: choose it."""

    menu_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.state = Label("", "small", wrap=True)
        self.choose = Button("", "secondary")
        self.choose.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.choose.clicked.connect(self.menu_requested)
        words = QVBoxLayout()
        words.setSpacing(1)
        words.addWidget(Label(tr("Search by meaning"), "label", "ink"))
        words.addWidget(self.state)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, theme.px(10), 0, theme.px(6))
        row.setSpacing(theme.px(10))
        row.addLayout(words, 1)
        row.addWidget(self.choose, 0, Qt.AlignmentFlag.AlignTop)

    def show_model(self, name: str, n_left: int | None, has_failed: bool, offered: tuple[str, int]) -> None:
        """Show the model's name, "" for none, and how many passages it has not read yet; None: unknown. has_failed:
        whether it failed and is tried again. offered: name and bytes of a model to recommend without one.
        """
        self.choose.setText(name or tr("Off"))
        self.choose.setAccessibleName(tr("Search by meaning: {name}", name=name or tr("Off")))
        if not name:
            model, n_bytes = offered
            self.state.setText(
                tr("Documents are searched by words. An embedding model such as {name} ({size}) also finds synonyms, "
                   "in other languages too.", name=model, size=gigabytes(n_bytes)) if model else
                tr("Documents are searched by words. A small embedding model also finds synonyms, in "
                   "other languages too.")
            )  # fmt: skip
        elif has_failed:
            self.state.setText(tr("The model could not read the passages. There may be too little free RAM. It is "
                                  "tried again every minute; until then, words alone are searched."))  # fmt: skip
        elif n_left:
            self.state.setText(tr_n("{n} passage is still to be read by it, while nothing else is computed.",
                                    "{n} passages are still to be read by it, while nothing else is computed.",
                                    n_left, n=figure(n_left)))  # fmt: skip
        else:
            self.state.setText(tr("Documents are searched by words and by meaning."))


class DocumentsDialog(Dialog):
    """folder_wanted: name another folder. model_menu_requested: choose the model that searches by meaning."""

    folder_wanted = Signal()
    model_menu_requested = Signal()

    def __init__(
        self,
        parent: QWidget,
        documents: Documents,
        name_of_model: Callable[[str], str] = lambda model: model,
        offered_model: Callable[[], tuple[str, int]] = lambda: ("", 0),
    ) -> None:
        """name_of_model: the name of an installed model, by its id. offered_model: name and bytes of the one to get."""
        super().__init__(parent, tr("Documents"), "", 560)
        self._documents, self.name_of_model, self._offered_model = documents, name_of_model, offered_model
        self.lines: dict[str, FolderLine] = {}
        self.empty = EmptyState()
        self.empty.say(
            tr("No folders yet"),
            tr("Add a folder, and the model can answer from the documents in it. They stay where they are. Hearth "
               "keeps an index of their text on this PC and sends nothing."),
            "documents",
        )  # fmt: skip
        self.body.addWidget(self.empty)
        self._rows = QVBoxLayout()
        self._rows.setSpacing(theme.px(2))
        self.body.addLayout(self._rows)
        self.meaning = MeaningLine()
        self.meaning.menu_requested.connect(self.model_menu_requested)
        self.body.addWidget(self.meaning)
        self.pause = self.add_button(Button(tr("Pause reading"), "quiet", "pause"), at_start=True)
        self.pause.clicked.connect(lambda: documents.pause(not documents.is_paused))
        self.add = self.add_button(Button(tr("Add a folder…"), "secondary", "plus"))
        self.add.clicked.connect(self.folder_wanted)
        self.close_button = self.add_close()
        documents.changed.connect(self._show)
        self._show()

    def show_toast(self, words: str, undo: Undo) -> None:
        """Show a toast above the buttons."""
        shadow = round(self._pad / theme.current().zoom)
        Toast.show_on(self, words, undo, lambda: TOAST_LIFT + shadow)

    def _show(self) -> None:
        states, is_paused = self._documents.states, self._documents.is_paused
        if [state.path for state in states] != list(self.lines):
            self._build(states)
        for state in states:
            self.lines[state.path].show_state(state, is_paused)
        self.empty.setVisible(not states)
        self.meaning.setVisible(bool(states))
        vectors = self._documents.vectors
        name = self.name_of_model(self._documents.model)
        has_failed = vectors is not None and vectors.is_waiting
        self.meaning.show_model(name, vectors.n_left if vectors else None, has_failed, self._offered_model())
        says = tr("Switch folders on in a chat with the button below the message field. Documents stay where they are. "
                  "Hearth keeps an index of their text on this PC and sends nothing.")  # fmt: skip
        if fault := self._documents.fault:
            says = tr("The index of documents cannot be written: {why}. Hearth tries again every half a minute. If the "
                      "disk is full, make some space.", why=fault)  # fmt: skip
        self.sentence.setText(says if states else "")
        self.sentence.setVisible(bool(states))
        self.pause.setText(tr("Go on reading") if is_paused else tr("Pause reading"))
        self.pause.set_glyph("go-on" if is_paused else "pause")
        self.pause.setVisible(bool(states) and (is_paused or not self._documents.is_idle))
        if self.isVisible():
            self.fit()

    def _build(self, states: list[FolderState]) -> None:
        """Make the rows of these folders. Those that stay keep what is unfolded."""
        gone = set(self.lines) - {state.path for state in states}
        if any(self.lines[path].isAncestorOf(self.focusWidget()) for path in gone if self.focusWidget() is not None):
            self.close_button.setFocus()  # the pressed button is removed
        lines = {}
        for at, state in enumerate(states):
            line = self.lines.get(state.path) or self._line(state.path)
            lines[state.path] = line
            self._rows.insertWidget(at, line)
            line.show()
        for path in gone:
            line = self.lines[path]
            self._rows.removeWidget(line)
            line.hide()
            line.deleteLater()
        self.lines = lines

    def _line(self, path: str) -> FolderLine:
        line = FolderLine(path, self._documents.failures)
        line.remove.clicked.connect(lambda: self._documents.remove(path))
        line.resized.connect(self.fit)
        return line
