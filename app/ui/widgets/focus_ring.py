"""The one sign of keyboard focus: a ring drawn over a window, around whatever the keyboard has reached.

It moves no focus. It asks why the focus moved, and stays away when that was the mouse or the program itself.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QRectF, Qt, SignalInstance
from PySide6.QtGui import QFocusEvent, QKeyEvent, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractScrollArea, QApplication, QWidget
from shiboken6 import isValid

from app.ui.look import theme
from app.ui.look.painting import antialiased

GAP, LINE = 2, 2
_TABS = {Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason}
_TAB_KEYS = {Qt.Key.Key_Tab, Qt.Key.Key_Backtab}
# The window was left and is back, or a menu was open: whether there was a ring before decides.
_RETURNING = {Qt.FocusReason.ActiveWindowFocusReason, Qt.FocusReason.PopupFocusReason}
_MOVES = {QEvent.Type.Move, QEvent.Type.Resize, QEvent.Type.Show, QEvent.Type.Hide, QEvent.Type.ParentChange}


@runtime_checkable
class _Parted(Protocol):
    focus_rect_changed: SignalInstance

    def focus_rect(self) -> QRect: ...


class FocusRing(QWidget):
    """A ring over one window. `install(window)` makes it.

    A widget says `setProperty("focusRadius", 10)` for a radius other than 8, and `setProperty("focusRing", False)`
    where its own look shows the focus (the composer). One whose focus is on a part of it has `focus_rect()`, in its
    own coordinates, and the signal `focus_rect_changed`.
    """

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self.host = window
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAttribute(Qt.WidgetAttribute.WA_NoSystemBackground)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.hide()
        self._target: QWidget | None = None  # has the ring
        self._focused: QWidget | None = None  # has the focus, ring or not
        self._reason = Qt.FocusReason.OtherFocusReason
        self._tab_pressed = False
        self._by_keyboard = False  # how the focus came to where it is
        self._watched: list[QObject] = []
        self._clip = QRect()
        window.installEventFilter(self)
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        app.focusChanged.connect(self._focus_moved)
        theme.current().changed.connect(self.place)

    @property
    def by_keyboard(self) -> bool:
        """Whether Tab or a shortcut brought the focus to where it is."""
        return self._by_keyboard

    @property
    def target(self) -> QWidget | None:
        """What the ring is around; None while there is none."""
        return self._target if self.isVisible() else None

    def _focus_moved(self, old: QWidget | None, now: QWidget | None) -> None:
        reason, self._reason = self._reason, Qt.FocusReason.OtherFocusReason
        pressed, self._tab_pressed = self._tab_pressed, False
        if now is None or now.window() is not self.host:
            if reason in _RETURNING:
                self._reason = reason  # still the reason when the focus comes back
            self.hide()
            return
        pressed = pressed and reason != Qt.FocusReason.MouseFocusReason  # a Tab that moved nothing, then a click
        if reason not in _RETURNING:
            # Qt also names Tab when what had the focus is hidden; then it stays as it was, ring or no ring.
            moved_on = reason in _TABS and not pressed and self._by_keyboard
            self._by_keyboard = pressed or moved_on or reason == Qt.FocusReason.ShortcutFocusReason
        elif now is not self._focused:
            self._by_keyboard = False
        if now is not self._focused:
            if self._focused is not None and isValid(self._focused):
                self._focused.removeEventFilter(self)
            # Only what has the focus is watched: its FocusOut carries the reason of the next move.
            now.installEventFilter(self)
            self._focused = now
        self._follow(now if self._by_keyboard else None)

    def _follow(self, target: QWidget | None) -> None:
        for watched in self._watched:
            if isValid(watched):
                watched.removeEventFilter(self)
        self._watched = []
        if isinstance(self._target, _Parted) and isValid(self._target):
            self._target.focus_rect_changed.disconnect(self.place)
        if target is not None and target.property("focusRing") is False:
            target = None
        self._target = target
        if target is None:
            self.hide()
            return
        if isinstance(target, _Parted):
            target.focus_rect_changed.connect(self.place)
        # Scrolling moves an ancestor, so every widget on the way up is watched.
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
        elif kind in _MOVES and getattr(self, "_target", None) is not None:  # none: the window is being taken down
            self.place()
        return False

    def place(self) -> None:
        """Draw the ring where its target is now."""
        target, window = self._target, self.host
        if target is None or not isValid(target) or not target.isVisibleTo(window) or not target.hasFocus():
            self.hide()
            return
        reach = GAP + LINE
        part = target.focus_rect() if isinstance(target, _Parted) else target.rect()
        ring = part.translated(target.mapTo(window, QPoint(0, 0))).adjusted(-reach, -reach, reach, reach)
        self._clip = self._visible_part(target, window, reach)
        self.setGeometry(ring)
        self.raise_()
        self.show()
        self.update()

    @staticmethod
    def _visible_part(target: QWidget, window: QWidget, reach: int) -> QRect:
        """What scroll areas leave in view, in the window's coordinates, with room for the ring at their rim."""
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
    """Give a window its focus ring; once per window (main window and every dialog)."""
    return FocusRing(window)
