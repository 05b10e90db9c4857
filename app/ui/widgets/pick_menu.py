"""A popover with rows to pick from: the base of the preset and persona menus.

Arrow keys, Home and End move between rows as Tab does.
"""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.ui.look import theme
from app.ui.widgets import tab_order
from app.ui.widgets.controls import Label, Rule
from app.ui.widgets.pick_row import INSET as ROW_INSET
from app.ui.widgets.pick_row import PickRow
from app.ui.widgets.popover import Popover

INSET = 6


class PickMenu(Popover):
    """A popover of rows. width: px at zoom 1."""

    def __init__(self, name: str, window: QWidget, width: int) -> None:
        super().__init__(name, window, INSET)
        self._width = width
        self.body.setSpacing(0)

    def width_px(self) -> int:
        return self._width

    def outdent_px(self) -> int:
        return INSET + 1  # aligns the icons of its rows with the button's icon: padding is 10 here, 9 there

    def add_head(self, words: str, column: QVBoxLayout | None = None) -> Label:
        head = Label(words, "metastrong")
        head.setContentsMargins(theme.px(ROW_INSET), theme.px(6), theme.px(ROW_INSET), theme.px(4))
        (column or self.body).addWidget(head)
        return head

    def add_rule(self) -> None:
        """Add a hairline between two sections."""
        self.body.addSpacing(theme.px(5))
        self.body.addWidget(Rule())
        self.body.addSpacing(theme.px(5))

    def focus_first(self) -> None:
        """Focus the row in use, else the first focusable widget."""
        rows = [row for row in self.findChildren(PickRow) if row.is_picked and row.isVisibleTo(self)]
        target = rows[0] if rows else next(iter(tab_order.stops(self)), None)
        if target is not None:
            target.setFocus(Qt.FocusReason.PopupFocusReason)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        if key in {Qt.Key.Key_Down, Qt.Key.Key_Up}:
            tab_order.move_on(self, key == Qt.Key.Key_Down)
        elif key in {Qt.Key.Key_Home, Qt.Key.Key_End}:
            order = tab_order.stops(self)
            if order:
                order[0 if key == Qt.Key.Key_Home else -1].setFocus(Qt.FocusReason.TabFocusReason)
        elif key in {Qt.Key.Key_Return, Qt.Key.Key_Enter}:
            focus = self.window().focusWidget()
            if isinstance(focus, PickRow):
                focus.click()
        else:
            super().keyPressEvent(event)


def clear(column: QVBoxLayout) -> None:
    """Remove all widgets of a column. They are deleted later, because one may be handling a click."""
    while column.count():
        item = column.takeAt(0)
        if item is not None and (old := item.widget()) is not None:
            old.hide()
            old.deleteLater()
