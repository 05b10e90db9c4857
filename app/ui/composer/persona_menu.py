"""The menu of personas. Typing filters it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.chat.answers.personas import NO_PERSONA, Persona
from app.translation import tr
from app.ui.look import theme
from app.ui.widgets.controls import Label
from app.ui.widgets.pick_menu import PickMenu, clear
from app.ui.widgets.pick_row import INSET as ROW_INSET
from app.ui.widgets.pick_row import PickRow
from app.ui.widgets.popover import is_typed
from app.ui.widgets.search_field import GlassField

WIDTH = 380
FIELD_FROM = 9  # from this number on, the filter field is always shown


def first_words(persona: Persona) -> str:
    """Return the start of a persona's instructions on one line."""
    return " ".join(persona.instructions[:200].split())


class PersonaMenu(PickMenu):
    """The persona menu. picked: id of a persona, NO_PERSONA for none. edit_requested: open the dialog of personas."""

    picked = Signal(str)
    edit_requested = Signal()
    instructions_requested = Signal()  # edit the instructions for this chat

    def __init__(self, window: QWidget) -> None:
        super().__init__(tr("Personas"), window, WIDTH)
        self._personas: Sequence[Persona] = ()
        self._chosen = NO_PERSONA
        self.field = GlassField(tr("Type to filter"), tr("Filter personas"))
        self.body.addWidget(self.field)
        self._column = QVBoxLayout()
        self.body.addLayout(self._column)
        self._nobody = Label("", "small", "ink3", wrap=True)
        self.body.addWidget(self._nobody)
        self.add_rule()
        self.instructions = PickRow(tr("Instructions for this chat…"), "chat")
        self.body.addWidget(self.instructions)
        self.instructions.clicked.connect(self._ask_instructions)
        self.edit = PickRow(tr("Edit personas"), "pen")
        self.body.addWidget(self.edit)
        self.edit.clicked.connect(self._edit)
        self.field.textChanged.connect(self._fill)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def show_personas(self, personas: Sequence[Persona], chosen: str, plain: str) -> None:
        """Set the personas. plain: the system prompt without a persona."""
        self._personas, self._chosen, self._plain = personas, chosen, plain
        self._fill()

    def rows(self) -> list[PickRow]:
        found = (self._column.itemAt(i) for i in range(self._column.count()))
        return [row for item in found if item is not None and isinstance(row := item.widget(), PickRow)]

    def _fill(self) -> None:
        clear(self._column)
        words = self.field.text().casefold().split()
        shown = [one for one in self._personas if all(w in f"{one.name} {one.instructions}".casefold() for w in words)]
        if not words:
            self._add(
                NO_PERSONA, tr("No persona"), tr("As in the settings") if self._plain.strip() else "", self._plain
            )
        for persona in shown:
            self._add(persona.id, persona.name, first_words(persona), persona.instructions)
        self._nobody.setVisible(not shown and bool(words))
        self._nobody.setText(tr("No persona has “{typed}”.", typed=self.field.text().strip()))
        self.field.setVisible(len(self._personas) >= FIELD_FROM or bool(words))
        self.place()

    def _add(self, persona_id: str, name: str, figure: str, tooltip: str) -> None:
        row = PickRow(name, figure=figure)
        row.setToolTip(tooltip[:400])
        row.set_picked(persona_id == self._chosen)
        row.clicked.connect(lambda: self._pick(persona_id))
        self._column.addWidget(row)
        row.show()  # at once, so that the card's height is right

    def _pick(self, persona_id: str) -> None:
        self.dismiss()
        self.picked.emit(persona_id)

    def _ask_instructions(self) -> None:
        self.dismiss()
        self.instructions_requested.emit()

    def _edit(self) -> None:
        self.dismiss()
        self.edit_requested.emit()

    def open_at(self, anchor: QWidget) -> None:
        if self.is_open:
            return
        self.field.clear()
        super().open_at(anchor)
        self.focus_first()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self.field.text():
            self.field.clear()
        elif event.key() in {Qt.Key.Key_Return, Qt.Key.Key_Enter} and self.window().focusWidget() is self.field:
            if rows := self.rows():
                rows[0].click()
        elif is_typed(event):
            self.field.setVisible(True)
            self.field.setFocus(Qt.FocusReason.OtherFocusReason)
            self.field.insert(event.text())
        else:
            super().keyPressEvent(event)

    def _restyle(self) -> None:
        side = theme.px(ROW_INSET)
        self._nobody.setContentsMargins(side, theme.px(8), side, theme.px(8))
