"""The base of the persona and preset dialogs: a list at the left, an editor for the chosen preset at the right.

Changes apply at once; the owner of the preset store saves it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import (
    QDialog,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QLineEdit,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.chat.store.preset_store import NAME_LENGTH, Named, PresetStore, PresetStoreError, checked_name, new_id
from app.translation import tr, tr_n
from app.ui.look import theme
from app.ui.widgets import focus_ring, tab_order
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.floating import Toast, resize_within_screen, set_smallest
from app.ui.widgets.pick_menu import clear
from app.ui.widgets.pick_row import PickRow

WIDE, HIGH, LIST_PX, TYPING_MS = 780, 560, 224, 400
FILES = "JSON (*.json)"

T = TypeVar("T", bound=Named)


class Editor(QWidget):
    """The editor of a preset's content. edited: the user changed it."""

    edited = Signal()

    def show_thing(self, thing: Any, editable: bool) -> None:
        """Show a preset, without emitting `edited`."""
        raise NotImplementedError  # a QWidget cannot be an abstract base class

    def taken(self, thing: Any) -> Any:
        """Return the preset with the editor's values."""
        raise NotImplementedError  # a QWidget cannot be an abstract base class


@dataclass(frozen=True)
class PresetStoreTexts:
    """The texts for one kind of preset, as whole sentences, because languages inflect words in many ways."""

    many: str
    new: str
    name_of: str
    import_file: str
    export_file: str
    importing: str
    exporting: str


class PresetStoreDialog(QDialog, Generic[T]):
    """A dialog to create, edit, import and export presets. changed: the preset store was changed."""

    changed = Signal()

    def __init__(
        self,
        parent: QWidget | None,
        store: PresetStore[T],
        editor: Editor,
        words: PresetStoreTexts,
        glyph: str,
        blank: T,
    ) -> None:
        """Build the dialog. blank: the initial content of a new preset; its id is replaced."""
        super().__init__(parent)
        self._words, self._glyph = words, glyph
        self.setWindowTitle(tr(words.many))
        self.setAccessibleName(tr(words.many))
        self.setProperty("kind", "page")
        self.store, self.editor, self._blank = store, editor, blank
        self.current = ""
        self._build()
        self._rest = QTimer(self, singleShot=True, interval=TYPING_MS)
        self._rest.timeout.connect(self.flush)
        self.editor.edited.connect(self._rest.start)
        self.name.textEdited.connect(lambda _: self._rest.start())
        self.name.editingFinished.connect(self.flush)
        self.new.clicked.connect(self.add_new)
        self.copy.clicked.connect(self.duplicate)
        self.delete.clicked.connect(self.remove)
        self.import_button.clicked.connect(self._ask_import)
        self.export_button.clicked.connect(self._ask_export)
        self.close_button.clicked.connect(self.close)
        focus_ring.install(self)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self._fill()
        first = store.own or store.things
        self.show_thing(first[0].id)
        self._focus_list()
        resize_within_screen(self, theme.px(WIDE), theme.px(HIGH))

    def _build(self) -> None:
        self.title = Label(tr(self._words.many), "title")
        self.import_button, self.export_button = (
            Button(tr("Import"), "secondary", "get"),
            Button(tr("Export"), "secondary"),
        )
        self.import_button.setToolTip(tr(self._words.import_file))
        self.export_button.setToolTip(tr(self._words.export_file))
        self.new = PickRow(tr(self._words.new), "plus")
        self.name = QLineEdit()
        self.name.setProperty("kind", "field")
        self.name.setMaxLength(NAME_LENGTH)
        self.name.setAccessibleName(tr(self._words.name_of))
        self.fixed = Label("", "small", "ink3", wrap=True)
        self.copy, self.delete = Button(tr("Duplicate")), Button(tr("Delete"), "danger")
        self.close_button = Button(tr("Close"))
        head = self._head = QHBoxLayout()
        head.addWidget(self.title, 1)
        head.addWidget(self.import_button)
        head.addWidget(self.export_button)
        self._list_host = QFrame()
        self._list_host.setAutoFillBackground(False)
        within = QVBoxLayout(self._list_host)
        within.setContentsMargins(0, 0, 0, 0)
        within.setSpacing(0)
        self._rows = QVBoxLayout()
        self._rows.setSpacing(0)
        within.addLayout(self._rows)
        within.addWidget(self.new)
        within.addStretch(1)
        self._area = _scrolling(self._list_host)
        self._card = QFrame()
        self._card.setProperty("kind", "card")
        self._inside = QVBoxLayout(self._card)
        self._inside.addWidget(self.name)
        self._inside.addWidget(self.fixed)
        self._inside.addWidget(self.editor, 1)
        self._actions = QHBoxLayout()
        self._actions.addWidget(self.delete)
        self._actions.addStretch(1)
        self._actions.addWidget(self.copy)
        self._inside.addLayout(self._actions)
        self._across = QHBoxLayout()
        self._across.addWidget(self._area)
        self._across.addWidget(_scrolling(self._card), 1)
        foot = QHBoxLayout()
        foot.addStretch(1)
        foot.addWidget(self.close_button)
        self._column = QVBoxLayout(self)
        self._column.addLayout(head)
        self._column.addLayout(self._across, 1)
        self._column.addLayout(foot)

    # --- list

    def rows(self) -> list[PickRow]:
        found = (self._rows.itemAt(i) for i in range(self._rows.count()))
        return [row for item in found if item is not None and isinstance(row := item.widget(), PickRow)]

    def _fill(self) -> None:
        clear(self._rows)
        for thing in self.store.things:
            row = PickRow(thing.name, self._glyph, "" if self.store.is_own(thing.id) else tr("Hearth's"))
            row.setProperty("thing", thing.id)
            row.set_shown(thing.id == self.current)
            row.clicked.connect(lambda _=False, thing_id=thing.id: self.show_thing(thing_id))
            self._rows.addWidget(row)
            row.show()
        self.export_button.setEnabled(bool(self.store.own))
        self.new.setEnabled(not self.store.is_full)

    def _focus_list(self) -> None:
        """Focus the row of the shown preset; else Qt focuses Import, which a space would press."""
        for row in self.rows():
            if row.property("thing") == self.current:
                row.setFocus(Qt.FocusReason.OtherFocusReason)

    def show_thing(self, thing_id: str) -> None:
        self.flush()
        thing = self.store.get(thing_id)
        if thing is None:
            return
        self.current = thing_id
        own = self.store.is_own(thing_id)
        self.name.setText(thing.name)
        self.name.setEnabled(own)
        self.fixed.setVisible(not own)
        self.fixed.setText(tr("It comes with Hearth and stays as it is. Duplicate it to make it yours."))
        self.delete.setVisible(own)
        self.editor.show_thing(thing, own)
        for row in self.rows():
            row.set_shown(row.property("thing") == thing_id)

    # --- user actions

    def flush(self) -> None:
        """Apply typed text without waiting for the timer."""
        self._rest.stop()
        thing = self.store.get(self.current)
        if thing is None or not self.store.is_own(self.current):
            return
        changed = self.editor.taken(thing)
        try:
            changed = replace(changed, name=checked_name(self.name.text()))
        except ValueError:
            if not self.name.hasFocus():  # an empty name restores the old one
                self.name.setText(thing.name)
        if changed == thing:
            return
        stored = self.store.put(changed)
        if stored.name != self.name.text() and not self.name.hasFocus():
            self.name.setText(stored.name)
        for row in self.rows():
            if row.property("thing") == stored.id:
                row.set_name(stored.name)
        self._tell()

    def _tell(self) -> None:
        self.changed.emit()

    def _add(self, thing: T) -> None:
        try:
            stored = self.store.put(thing)
        except PresetStoreError as error:
            Toast.show_on(self, str(error).rstrip("."), "warn")
            return
        self._fill()
        self.show_thing(stored.id)
        self._area.ensureWidgetVisible(self.new)
        self.name.setFocus(Qt.FocusReason.OtherFocusReason)
        self.name.selectAll()
        self._tell()

    def add_new(self) -> None:
        self.flush()
        self._add(replace(self._blank, id=new_id(), name=tr(self._words.new)))

    def duplicate(self) -> None:
        """Add a copy of the shown preset."""
        self.flush()
        thing = self.store.get(self.current)
        if thing is not None:
            self._add(replace(self.editor.taken(thing), id=new_id()))

    def remove(self) -> None:
        """Delete the shown preset; a toast offers Undo."""
        self.flush()
        thing = self.store.get(self.current)
        if thing is None or not self.store.is_own(thing.id):
            return
        things = self.store.things
        place = next(i for i, one in enumerate(things) if one.id == thing.id)
        after = things[place + 1] if place + 1 < len(things) else things[place - 1]
        at = self.store.remove(thing.id)
        self._fill()
        self.show_thing(after.id)
        self.new.setFocus(Qt.FocusReason.OtherFocusReason)
        self._tell()

        def undo() -> None:
            self.store.put(thing, at)
            self._fill()
            self.show_thing(thing.id)
            self._tell()

        Toast.show_on(self, tr("{name} deleted", name=thing.name), undo)

    def _ask_import(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, tr(self._words.importing), "", FILES)
        if path:
            self.import_file(Path(path))

    def import_file(self, path: Path) -> None:
        self.flush()
        try:
            added, left_out = self.store.import_file(path)
        except PresetStoreError as error:
            Toast.show_on(self, str(error).rstrip("."), "warn")
            return
        words = tr_n("{n} added", "{n} added", len(added)) if added else tr("They are all here")
        if left_out:
            words = tr("{added}, {left_out} left out as invalid", added=words, left_out=left_out)
        if added:
            self._fill()
            self.show_thing(added[0].id)
            self._tell()
        Toast.show_on(self, words)

    def _ask_export(self) -> None:
        name = f"hearth-{self.store.kind}.json"
        path, _ = QFileDialog.getSaveFileName(self, tr(self._words.exporting), name, FILES)
        if path:
            self.export_file(Path(path))

    def export_file(self, path: Path) -> None:
        """Export the user's presets to a file, and report the result."""
        self.flush()
        try:
            self.store.export_file(path, self.store.own)
        except OSError as error:
            Toast.show_on(self, tr("Couldn't write {name}: {why}", name=path.name, why=error.strerror or error), "warn")
            return
        Toast.show_on(self, tr_n("{n} written to {name}", "{n} written to {name}", len(self.store.own), name=path.name))

    def focusNextPrevChild(self, forward: bool) -> bool:
        return tab_order.move_on(self, forward)

    def done(self, result: int) -> None:
        self.flush()
        super().done(result)

    def closeEvent(self, event: QCloseEvent) -> None:
        self.flush()
        super().closeEvent(event)

    def _restyle(self) -> None:
        px = theme.px
        self._column.setContentsMargins(px(24), px(20), px(24), px(20))
        self._column.setSpacing(px(14))
        self._head.setSpacing(px(8))
        self._across.setSpacing(px(14))
        self._area.setFixedWidth(px(LIST_PX))
        self._inside.setContentsMargins(px(16), px(14), px(16), px(14))
        self._inside.setSpacing(px(10))
        self._actions.setSpacing(px(8))
        self.name.setFont(theme.font("row"))
        set_smallest(self, 560, 420)


def _scrolling(content: QWidget) -> QScrollArea:
    """Return a frameless area in which the content scrolls if it is too high."""
    area = QScrollArea()
    area.setProperty("kind", "plain")
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setWidgetResizable(True)
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.viewport().setAutoFillBackground(False)
    area.setWidget(content)
    content.setAutoFillBackground(False)
    return area
