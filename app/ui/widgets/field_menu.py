"""The context menu of text fields and of labels with selectable text, replacing Qt's own.

It filters the events of the focused widget only: a filter on the application would see every event. Messages of a chat
have their own menu (app/ui/transcript/selection/selection.py).
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QContextMenuEvent, QGuiApplication
from PySide6.QtWidgets import QAbstractScrollArea, QLabel, QLineEdit, QPlainTextEdit, QTextEdit, QWidget
from shiboken6 import isValid

from app.shortcuts import shown
from app.translation import tr
from app.ui.look import theme
from app.ui.widgets.floating import Menu

Field = QLineEdit | QTextEdit | QPlainTextEdit
_SELECTABLE = Qt.TextInteractionFlag.TextSelectableByMouse


class FieldMenus(QObject):
    """Adds the menus to a main window and its dialogs; create one per window."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._watched: list[QWidget] = []
        theme.application().focusChanged.connect(self._focus_moved)

    def _focus_moved(self, old: QWidget | None, now: QWidget | None) -> None:
        for part in self._watched:
            if isValid(part):
                part.removeEventFilter(self)
        self._watched = []
        if isinstance(now, Field | QLabel):
            self._watched = [now, now.viewport()] if isinstance(now, QAbstractScrollArea) else [now]
            for part in self._watched:
                part.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ContextMenu and isinstance(event, QContextMenuEvent) and self._watched:
            menu = menu_of(self._watched[0])
            if menu is not None:
                menu.popup(event.globalPos())
                return True
        return False


def menu_of(widget: QWidget) -> Menu | None:
    """Return the menu for a widget's text, or None if there is nothing to do with it."""
    menu = Menu(tr("Text"), widget)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    if isinstance(widget, QLabel):
        if not widget.textInteractionFlags() & _SELECTABLE:
            return None
        clipboard = QGuiApplication.clipboard()
        _add(
            menu,
            tr("Copy"),
            "copy",
            "Ctrl+C",
            lambda: clipboard.setText(widget.selectedText()),
            widget.hasSelectedText(),
        )
        _add(
            menu,
            tr("Select all"),
            "lines",
            "Ctrl+A",
            lambda: widget.setSelection(0, len(widget.text())),
            bool(widget.text()),
        )
        return menu
    assert isinstance(widget, Field)
    marked = widget.hasSelectedText() if isinstance(widget, QLineEdit) else widget.textCursor().hasSelection()
    is_open = not isinstance(widget, QLineEdit) or widget.echoMode() == QLineEdit.EchoMode.Normal
    if not widget.isReadOnly():
        history = widget if isinstance(widget, QLineEdit) else widget.document()
        pastes = bool(QGuiApplication.clipboard().text()) if isinstance(widget, QLineEdit) else widget.canPaste()
        _add(menu, tr("Undo"), "back", "Ctrl+Z", widget.undo, history.isUndoAvailable())
        _add(menu, tr("Redo"), "forth", "Ctrl+Shift+Z", widget.redo, history.isRedoAvailable())
        menu.addSeparator()
        _add(menu, tr("Cut"), "cut", "Ctrl+X", widget.cut, marked and is_open)
        _add(menu, tr("Copy"), "copy", "Ctrl+C", widget.copy, marked and is_open)
        _add(menu, tr("Paste"), "paste", "Ctrl+V", widget.paste, pastes)
    else:
        _add(menu, tr("Copy"), "copy", "Ctrl+C", widget.copy, marked)
    menu.addSeparator()
    filled = bool(widget.text()) if isinstance(widget, QLineEdit) else not widget.document().isEmpty()
    _add(menu, tr("Select all"), "lines", "Ctrl+A", widget.selectAll, filled)
    return menu


def _add(menu: Menu, words: str, glyph: str, keys: str, act: Callable[[], None], enabled: bool) -> None:
    menu.add(words, glyph, act, shown(keys)).setEnabled(enabled)
