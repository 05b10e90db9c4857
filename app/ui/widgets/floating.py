"""Widgets that float over a page: menus, toasts, and the confirmation of steps that cannot be undone.

Shadows are painted, not graphics effects.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEasingCurve, QEvent, QObject, QPoint, QPropertyAnimation, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QAction, QEnterEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QDialog, QFrame, QHBoxLayout, QMenu, QVBoxLayout, QWidget

from app.translation import tr
from app.ui.look import compositor, icons, theme
from app.ui.look.icons import Glyph
from app.ui.look.painting import antialiased, outline
from app.ui.widgets import focus_ring
from app.ui.widgets.controls import Button, Label
from app.user_messages import Severity

RINGS, DROP = 18, 5
PAD = RINGS + DROP + 1  # space for the shadow on every side
UNDO_MS, PLAIN_MS = 10_000, 4_000
Lift = Callable[[], int | None]  # a toast's height above the page's bottom; None: in the bar at the top
IN_MS, OUT_MS = 160, 120


def paint_floating(painter: QPainter, rect: QRectF, radius: float) -> None:
    """Paint a floating card: shadow around the rectangle, background and border."""
    dark = theme.current().is_dark
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(theme.alpha("#000000" if dark else "#2A1A10", 0.03 if dark else 0.0055))
    for ring in range(RINGS):
        painter.drawRoundedRect(rect.adjusted(-ring, -ring + DROP, ring, ring + DROP), radius + ring, radius + ring)
    painter.setPen(QPen(theme.colour("edge" if dark else "line"), 1))
    painter.setBrush(theme.colour("card"))
    painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)


def announce(widget: QWidget, words: str) -> None:
    """Have a screen reader announce something that has just appeared."""
    QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(widget, words))


def most_of_screen(window: QWidget) -> QSize:
    """Return the largest size of a new window: 90 % of its screen, so that its last row stays reachable."""
    return window.screen().availableSize() * 0.9


def resize_within_screen(window: QWidget, width: int, height: int) -> None:
    """Resize a window, to at most `most_of_screen`."""
    window.resize(QSize(width, height).boundedTo(most_of_screen(window)))


def set_smallest(dialog: QWidget, width: int, height: int) -> None:
    """Set the smallest size of a dialog in logical pixels at zoom 1, at most `most_of_screen`."""
    dialog.setMinimumSize(QSize(theme.px(width), theme.px(height)).boundedTo(most_of_screen(dialog)))


class Scrim(QWidget):
    """Dims a window behind a modal dialog."""

    def paintEvent(self, event: QPaintEvent) -> None:
        QPainter(self).fillRect(self.rect(), theme.alpha("#000000", 0.45 if theme.current().is_dark else 0.22))


class DimWhileBlocked(QObject):
    """Dims a window while a modal dialog blocks it."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._scrim: Scrim | None = None
        window.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if kind == QEvent.Type.WindowBlocked and self._scrim is None:
            self._scrim = Scrim(self._window)
            self._scrim.setGeometry(self._window.rect())
            self._scrim.show()
        elif kind == QEvent.Type.WindowUnblocked and self._scrim is not None:
            self._scrim.hide()
            self._scrim.deleteLater()
            self._scrim = None
        elif kind == QEvent.Type.Resize and self._scrim is not None:
            self._scrim.setGeometry(self._window.rect())
        return False


class Menu(QMenu):
    """A menu in Hearth's look: rounded, with its own border instead of the desktop's frame."""

    def __init__(self, name: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        if compositor.see_through():
            self.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground)
        else:
            self.setProperty("corners", "square")
        self.setWindowFlag(Qt.WindowType.FramelessWindowHint)
        self.setWindowFlag(Qt.WindowType.NoDropShadowWindowHint)
        self.setFont(theme.font("row"))
        self.setToolTipsVisible(True)

    def add(self, words: str, glyph: str, act: Callable[[], None], shortcut: str = "", token: str = "ink2") -> QAction:
        """Add a row and return it. The shortcut is only shown; its owner binds it."""
        action = self.addAction(icons.icon(glyph, token, 16), f"{words}\t{shortcut}" if shortcut else words)
        action.triggered.connect(lambda _=False: act())
        return action


Undo = Callable[[], None] | Severity | None
SIGNS = {"bad": ("warn", "bad"), "warn": ("warn", "warn"), "info": ("info", "cold")}  # glyph and colour of a severity


class Toast(QFrame):
    """A toast: a short confirmation on a page, with Undo where possible; or, with a severity, a short notice."""

    gone = Signal()

    def __init__(self, page: QWidget, words: str, undo: Undo, lift: Lift) -> None:
        super().__init__(page)
        self.setAccessibleName(words)
        self.sign, token = ("check", "ok")
        if isinstance(undo, str):
            (self.sign, token), undo = SIGNS[undo], None
        self._undo, self._lift = undo, lift
        row = QHBoxLayout(self)
        row.setContentsMargins(PAD + theme.px(14), PAD, PAD + theme.px(8 if undo else 16), PAD)
        row.setSpacing(theme.px(10))
        row.addWidget(Glyph(self.sign, token, 17))
        self.words = Label(words, "small", "ink", elide=True)
        row.addWidget(self.words, 1)
        self.button: Button | None = None
        if undo is not None:
            self.button = Button(tr("Undo"), "quiet")
            self.button.clicked.connect(self._take_back)
            row.addWidget(self.button)
        self._clock = QTimer(self)
        self._clock.setSingleShot(True)
        self._clock.setInterval(UNDO_MS if undo else PLAIN_MS)
        self._clock.timeout.connect(self.leave)
        self._move = QPropertyAnimation(self, b"pos", self)
        self._leaving = False
        page.installEventFilter(self)
        theme.current().changed.connect(self._place)

    @staticmethod
    def show_on(page: QWidget, words: str, undo: Undo = None, lift: Lift = lambda: 24) -> Toast:
        """Show a toast on a page, replacing the current one."""
        for child in page.findChildren(Toast, options=Qt.FindChildOption.FindDirectChildrenOnly):
            child.close_now()
        toast = Toast(page, words, undo, lift)
        toast._place()
        toast.raise_()
        toast.show()
        toast._slide(8, 0, IN_MS)
        toast._clock.start()
        announce(toast, words)
        return toast

    def settle(self) -> None:
        """Move to the right place after the page's layout has changed."""
        self._move.stop()
        self._place()

    def leave(self) -> None:
        """Slide out, then close."""
        if self._leaving:
            return
        self._leaving = True
        self._slide(0, 8, OUT_MS)
        self._move.finished.connect(self.close_now)

    def close_now(self) -> None:
        """Close without an animation."""
        self._clock.stop()
        self._move.stop()
        page = self.parentWidget()
        if page is not None:
            page.removeEventFilter(self)
            self.hide()
            self.setParent(None)
            self.gone.emit()
            self.deleteLater()

    def _take_back(self) -> None:
        undo, self._undo = self._undo, None
        self.close_now()
        if undo is not None:
            undo()

    def _home(self) -> QPoint:
        page = self.parentWidget()
        assert page is not None
        lift = self._lift()
        top = page.height() - theme.px(lift) - self.height() + PAD if lift is not None else theme.px(2) - PAD
        return QPoint((page.width() - self.width()) // 2, top)

    def _place(self) -> None:
        page = self.parentWidget()
        if page is None:
            return
        width = min(self.sizeHint().width(), page.width() - 2 * theme.px(12) + 2 * PAD)
        self.resize(width, theme.px(44) + 2 * PAD)
        self.move(self._home())

    def _slide(self, start: int, end: int, duration: int) -> None:
        home = self._home()
        if self._lift() is None:  # slides from the edge it is attached to
            start, end = -start, -end
        self._move.stop()
        self._move.setDuration(theme.duration(duration))
        self._move.setEasingCurve(QEasingCurve.Type.OutCubic)
        self._move.setStartValue(home + QPoint(0, theme.px(start)))
        self._move.setEndValue(home + QPoint(0, theme.px(end)))
        self._move.start()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize:
            self.settle()
        return False

    def enterEvent(self, event: QEnterEvent) -> None:
        self._clock.stop()

    def leaveEvent(self, event: QEvent) -> None:
        if not self._leaving:
            self._clock.start()

    def paintEvent(self, event: QPaintEvent) -> None:
        paint_floating(antialiased(self), QRectF(self.rect()).adjusted(PAD, PAD, -PAD, -PAD), theme.px(12))


class ConfirmDialog(QDialog):
    """A confirmation before something that cannot be undone. Esc presses the safe button, which has the focus."""

    def __init__(self, parent: QWidget, title: str, sentence: str, safe: str, danger: str) -> None:
        super().__init__(parent, Qt.WindowType.Dialog | Qt.WindowType.FramelessWindowHint)
        self._pad = PAD if compositor.see_through() else 0  # space for the shadow, if the desktop can show one
        self.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground, self._pad > 0)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        self.setAccessibleName(title)
        self.setAccessibleDescription(sentence)
        column = QVBoxLayout(self)
        inset = self._pad + theme.px(20)
        column.setContentsMargins(inset, inset, inset, inset)
        column.setSpacing(theme.px(6))
        column.addWidget(Label(title, "heading", wrap=True))
        column.addWidget(Label(sentence, "small", wrap=True))
        column.addSpacing(theme.px(12))
        row = QHBoxLayout()
        row.setSpacing(theme.px(8))
        row.addStretch(1)
        self.safe, self.danger = Button(safe), Button(danger, "danger")
        self.safe.setDefault(True)
        self.safe.clicked.connect(self.reject)
        self.danger.clicked.connect(self.accept)
        row.addWidget(self.safe)
        row.addWidget(self.danger)
        column.addLayout(row)
        wide = max(theme.px(330), min(self.sizeHint().width() - 2 * self._pad, theme.px(480)))
        self.setFixedWidth(wide + 2 * self._pad)
        self.safe.setFocus()
        focus_ring.install(self)

    def paintEvent(self, event: QPaintEvent) -> None:
        pad, painter = self._pad, antialiased(self)
        if pad:
            paint_floating(painter, QRectF(self.rect()).adjusted(pad, pad, -pad, -pad), theme.px(14))
        else:
            painter.fillRect(self.rect(), theme.colour("card"))
            outline(painter, QRectF(self.rect()), theme.colour("edge"), 0.5)


def confirm(
    parent: QWidget, title: str, sentence: str, safe: str, danger: str, on_danger: Callable[[], None]
) -> ConfirmDialog:
    """Ask without blocking; `on_danger` is called if the user confirms."""
    dialog = ConfirmDialog(parent, title, sentence, safe, danger)
    dialog.accepted.connect(on_danger)
    dialog.open()
    return dialog
