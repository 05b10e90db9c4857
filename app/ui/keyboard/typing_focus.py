"""Keeps the keyboard focus in the composer, whatever had it before a click, a closed menu or a finished dialog.

The focus stays where Tab or a shortcut put it, in a text field, on selected text (so that it can be copied), and in
dialogs and popovers. Typed or pasted text goes to the composer all the same, including the first character and input
methods; only Space and Return belong to a control that was reached by keyboard.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtGui import QKeyEvent, QKeySequence
from PySide6.QtWidgets import (
    QAbstractScrollArea,
    QAbstractSpinBox,
    QApplication,
    QLineEdit,
    QPlainTextEdit,
    QTextEdit,
    QWidget,
)
from shiboken6 import isValid

from app.ui.look import theme
from app.ui.widgets.focus_ring import FocusRing

# a menu or dialog has closed, or a click has ended
_ENDS = {QEvent.Type.FocusIn, QEvent.Type.WindowActivate, QEvent.Type.MouseButtonRelease}
_KEYS = {QEvent.Type.ShortcutOverride, QEvent.Type.KeyPress}
_ALT_GR = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier  # as Windows reports it
_COMMAND_KEYS = _ALT_GR | Qt.KeyboardModifier.MetaModifier


class TypingFocus(QObject):
    """Returns the focus to the composer; create one per main window. `field` returns its field, or None on other pages.

    It filters the events of the focused widget only: a filter on the application would see every event.
    """

    def __init__(
        self, window: QWidget, ground: QWidget, ring: FocusRing, field: Callable[[], QTextEdit | None]
    ) -> None:
        """Install the filters. ground: the widget with pages and sidebar; everything else floats above it."""
        super().__init__(window)
        self._window, self._ground, self._ring, self._field = window, ground, ring, field
        self._watched: list[QWidget] = []
        self._left: QWidget | None = None  # had the focus before the last change
        self._clicked = False  # on a place that takes no clicks
        self._timer = QTimer(self, singleShot=True, interval=0)  # after the click that moved the focus was handled
        self._timer.timeout.connect(self._bring_back)
        window.installEventFilter(self)
        theme.application().focusChanged.connect(self._focus_moved)

    def _focus_moved(self, old: QWidget | None, now: QWidget | None) -> None:
        for part in self._watched:
            if isValid(part):
                part.removeEventFilter(self)
        self._watched, self._left = [], old
        if now is not None and now is not self._window and now.window() is self._window:
            self._watched = [now, now.viewport()] if isinstance(now, QAbstractScrollArea) else [now]
            for part in self._watched:
                part.installEventFilter(self)
        self._timer.start()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if kind in _ENDS:
            self._clicked = watched is self._window and kind == QEvent.Type.MouseButtonRelease
            self._timer.start()
        elif kind in _KEYS and isinstance(event, QKeyEvent):
            return self._take_key(watched, event)
        elif kind == QEvent.Type.InputMethodQuery and not self._ring.by_keyboard:
            # Without this answer the input method does not start, and the first character would arrive uncomposed.
            return self._hand_over(watched, event, moves=False)
        elif kind == QEvent.Type.InputMethod:
            return self._hand_over(watched, event)
        return False

    def _take_key(self, watched: QObject, event: QKeyEvent) -> bool:
        pressed = event.modifiers() & _COMMAND_KEYS
        text = event.text()
        typed = bool(text) and text.isprintable() and (not pressed or pressed == _ALT_GR)
        if typed and text == " " and self._ring.by_keyboard:
            return False  # it presses the control reached by keyboard
        if not typed and not event.matches(QKeySequence.StandardKey.Paste):
            return False
        return self._hand_over(watched, event, moves=event.type() == QEvent.Type.KeyPress)

    def _hand_over(self, watched: QObject, event: QEvent, moves: bool = True) -> bool:
        """Send the event to the composer's field, and focus it if `moves`. Return whether it was sent."""
        field, focus = self._field(), QApplication.focusWidget() or self._window
        if field is None or watched is not focus or focus is field or not self._is_on_page(focus) or _takes_text(focus):
            return False
        if moves:
            field.setFocus(Qt.FocusReason.OtherFocusReason)
        QApplication.sendEvent(field, event)
        return True

    def _bring_back(self) -> None:
        left, self._left = self._left, None
        clicked, self._clicked = self._clicked, False
        field, focus = self._field(), QApplication.focusWidget()
        busy = QApplication.activePopupWidget() or QApplication.activeModalWidget() or not self._window.isActiveWindow()
        if field is None or busy or QApplication.mouseButtons() != Qt.MouseButton.NoButton:
            return
        # When the focused widget is hidden or deleted, Qt moves the focus to a neighbour, with Tab as the reason.
        displaced = left is not None and not (isValid(left) and left.isVisible() and left.isEnabled())
        if focus is None or (focus is not field and not self._stays(focus, displaced, clicked)):
            field.setFocus(Qt.FocusReason.OtherFocusReason)

    def _stays(self, focus: QWidget, displaced: bool, clicked: bool) -> bool:
        by_keyboard = self._ring.by_keyboard and not displaced and not clicked
        # a click ends a search, but not an editor
        written_in = _takes_text(focus) and not (clicked and isinstance(focus, QLineEdit))
        return not self._is_on_page(focus) or by_keyboard or written_in or _has_selection(focus)

    def _is_on_page(self, focus: QWidget) -> bool:
        """Return whether a widget is part of the window itself, not of a popover or panel above it."""
        return focus is self._window or self._ground.isAncestorOf(focus)


def _takes_text(widget: QWidget) -> bool:
    if isinstance(widget, QAbstractSpinBox):
        return True
    return isinstance(widget, QLineEdit | QTextEdit | QPlainTextEdit) and not widget.isReadOnly()


def _has_selection(widget: QWidget) -> bool:
    return isinstance(widget, QTextEdit | QPlainTextEdit) and widget.textCursor().hasSelection()
