"""Focus in the main window: the ring, typing that goes to the composer, and the menus of text fields."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtWidgets import QTextEdit, QWidget

from app.ui.keyboard.typing_focus import TypingFocus
from app.ui.widgets import focus_ring
from app.ui.widgets.field_menu import FieldMenus


def install(window: QWidget, ground: QWidget, field: Callable[[], QTextEdit | None]) -> None:
    """Install focus ring, typing focus and field menus. ground, field: as in TypingFocus."""
    TypingFocus(window, ground, focus_ring.install(window), field)
    FieldMenus(window)
