"""The keyboard focus indicator: a ring painted over a window, around the focused widget.

It never moves the focus. It is hidden if the mouse or the program moved the focus.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QRectF, Qt, SignalInstance
from PySide6.QtGui import QFocusEvent, QKeyEvent, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractScrollArea, QWidget
from shiboken6 import isValid

from app.ui.look import theme
from app.ui.look.painting import antialiased

GAP, LINE = 2, 2
_TABS = {Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason}
_TAB_KEYS = {Qt.Key.Key_Tab, Qt.Key.Key_Backtab}
# Focus returns to the window, or from a menu: show the ring if it was shown before.
_RETURNING = {Qt.FocusReason.ActiveWindowFocusReason, Qt.FocusReason.PopupFocusReason}
_MOVES = {QEvent.Type.Move, QEvent.Type.Resize, QEvent.Type.Show, QEvent.Type.Hide, QEvent.Type.ParentChange}


@runtime_checkable
class _PartFocus(Protocol):
    focus_rect_changed: SignalInstance

    def focus_rect(self) -> QRect: ...


class FocusRing(QWidget):
    """The ring of one window, made by `install(window)`.

    A widget sets `setProperty("focusRadius", 10)` for a radius other than 8, and `setProperty("focusRing", False)` if
    its own look shows the focus (the composer). If only a part of a widget has the focus, the widget provides
    `focus_rect()`, in its own coordinates, and the signal `focus_rect_changed`.
    """

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self.host = window
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAttribute(Qt.WidgetAttribute.WA_NoSystemBackground)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.hide()
        self._target: QWidget | None = None  # has the ring
        self._focused: QWidget | None = None  # has the focus, with or without ring
        self._reason = Qt.FocusReason.OtherFocusReason
        self._tab_pressed = False
        self._by_keyboard = False  # whether the keyboard moved the focus here
        self._watched: list[QObject] = []
        self._clip = QRect()
        window.installEventFilter(self)
        theme.application().focusChanged.connect(self._focus_moved)
        theme.current().changed.connect(self.place)

    @property
    def by_keyboard(self) -> bool:
        """Whether Tab or a shortcut moved the focus here."""
        return self._by_keyboard

    @property
    def target(self) -> QWidget | None:
        """The widget that has the ring; None without a ring."""
        return self._target if self.isVisible() else None

    def _focus_moved(self, old: QWidget | None, now: QWidget | None) -> None:
        reason, self._reason = self._reason, Qt.FocusReason.OtherFocusReason
        pressed, self._tab_pressed = self._tab_pressed, False
        if now is None or now.window() is not self.host:
            if reason in _RETURNING:
                self._reason = reason  # still the reason when the focus returns
            self.hide()
            return
        pressed = pressed and reason != Qt.FocusReason.MouseFocusReason  # a Tab that moved nothing, then a click
        if reason not in _RETURNING:
            # Qt also gives Tab as the reason when the focused widget is hidden; then keep the previous state.
            moved_on = reason in _TABS and not pressed and self._by_keyboard
            self._by_keyboard = pressed or moved_on or reason == Qt.FocusReason.ShortcutFocusReason
        elif now is not self._focused:
            self._by_keyboard = False
        if now is not self._focused:
            if self._focused is not None and isValid(self._focused):
                self._focused.removeEventFilter(self)
            # Watch only the focused widget: its FocusOut carries the reason for the next move.
            now.installEventFilter(self)
            self._focused = now
        self._follow(now if self._by_keyboard else None)

    def _follow(self, target: QWidget | None) -> None:
        for watched in self._watched:
            if isValid(watched):
                watched.removeEventFilter(self)
        self._watched = []
        if isinstance(self._target, _PartFocus) and isValid(self._target):
            self._target.focus_rect_changed.disconnect(self.place)
        if target is not None and target.property("focusRing") is False:
            target = None
        self._target = target
        if target is None:
            self.hide()
            return
        if isinstance(target, _PartFocus):
            target.focus_rect_changed.connect(self.place)
        # Scrolling moves an ancestor, so watch every ancestor.
        widget = target.parentWidget()
        while widget is not None and widget is not self.host:
            widget.installEventFilter(self)
            self._watched.append(widget)
            widget = widget.parentWidget()
        self.place()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if kind == QEvent.Type.FocusOut and isinstance(event, QFocusEvent):
            self._reason = event.reason()
        elif kind == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            self._tab_pressed = event.key() in _TAB_KEYS
        # no attribute: the window is being destroyed
        elif kind in _MOVES and getattr(self, "_target", None) is not None:
            self.place()
        return False

    def place(self) -> None:
        """Draw the ring around its target's current position."""
        target, window = self._target, self.host
        if target is None or not isValid(target) or not target.isVisibleTo(window) or not target.hasFocus():
            self.hide()
            return
        reach = GAP + LINE
        part = target.focus_rect() if isinstance(target, _PartFocus) else target.rect()
        ring = part.translated(target.mapTo(window, QPoint(0, 0))).adjusted(-reach, -reach, reach, reach)
        self._clip = self._visible_part(target, window, reach)
        self.setGeometry(ring)
        self.raise_()
        self.show()
        self.update()

    @staticmethod
    def _visible_part(target: QWidget, window: QWidget, reach: int) -> QRect:
        """Return the part that scroll areas leave visible, in window coordinates, with space for the ring."""
        seen = window.rect()
        widget: QWidget | None = target
        if isinstance(target, QAbstractScrollArea):
            widget = target.viewport()
        while widget is not None and widget is not window:
            area = widget.parentWidget()
            if isinstance(area, QAbstractScrollArea) and area.viewport() is widget:
                view = QRect(widget.mapTo(window, QPoint(0, 0)), widget.size())
                seen = seen.intersected(view.adjusted(-reach, -reach, reach, reach))
            widget = area
        return seen

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._target is None:
            return
        painter = antialiased(self)
        painter.setClipRect(self._clip.translated(-self.pos()))
        given = self._target.property("focusRadius")
        radius = theme.px(given if given is not None else 8) + GAP
        painter.setPen(QPen(theme.colour("hot"), LINE))
        half = LINE / 2
        painter.drawRoundedRect(QRectF(self.rect()).adjusted(half, half, -half, -half), radius, radius)


def install(window: QWidget) -> FocusRing:
    """Add a focus ring to a window; call once for the main window and each dialog."""
    return FocusRing(window)
