"""A popover: a card that floats beside the widget that opened it. A click elsewhere, Esc or a choice closes it.

It is a child of the window, not a window: the focus ring and the theme apply as usual. Subclasses add the content.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPaintEvent
from PySide6.QtWidgets import QApplication, QFrame, QScrollArea, QVBoxLayout, QWidget
from shiboken6 import isValid

from app.ui.look import theme
from app.ui.look.painting import antialiased
from app.ui.widgets import tab_order
from app.ui.widgets.floating import PAD, paint_floating

EDGE_PX, AWAY_PX = 8, 6  # least distance from the window's edge, and from the anchor


class _Overlay(QWidget):
    """Covers the window while the popover is open; a click on it closes the popover."""

    pressed = Signal()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.pressed.emit()


class _Content(QWidget):
    """Takes the height its text needs at its width. Qt would ask for the height at the minimum width."""

    def minimumSizeHint(self) -> QSize:
        layout = self.layout()
        if layout is None or layout.hasHeightForWidth():
            return QSize(0, 0)
        return QSize(0, layout.totalMinimumSize().height())  # nothing wraps: what is higher than the card scrolls


class Popover(QFrame):
    """A popover, hidden until `open_at`. `body` holds the content; content higher than the window scrolls.

    inset: space between the card's edge and the content, px.
    """

    closed = Signal()

    def __init__(self, name: str, window: QWidget, inset: int = 16) -> None:
        super().__init__(window)
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.hide()
        self._inset = inset
        self._overlay: _Overlay | None = None
        self._anchor: QWidget | None = None
        self._before: QWidget | None = None  # had the focus before
        self._around = QVBoxLayout(self)
        self._area = QScrollArea(self)
        self._area.setProperty("kind", "plain")
        self._area.setFrameShape(QFrame.Shape.NoFrame)
        self._area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._area.setWidgetResizable(True)
        self._area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._area.viewport().setAutoFillBackground(False)
        self._content = _Content()
        self.body = QVBoxLayout(self._content)
        self.body.setContentsMargins(0, 0, 0, 0)
        self._area.setWidget(self._content)
        self._content.setAutoFillBackground(False)
        self._content.installEventFilter(self)
        self._around.addWidget(self._area)
        theme.current().changed.connect(self.place)

    @property
    def is_open(self) -> bool:
        return self._overlay is not None

    def width_px(self) -> int:
        """Return the card's width at zoom 1."""
        return 320

    def outdent_px(self) -> int:
        """Return how far the card starts before its anchor, so that their content aligns."""
        return 0

    def open_at(self, anchor: QWidget) -> None:
        """Open beside a widget of the same window: above it if there is space, else below. Other popovers close."""
        window = self.window()
        if self.is_open:
            return
        dismiss_all(window)
        self._anchor, self._before = anchor, QApplication.focusWidget()
        self._overlay = _Overlay(window)
        self._overlay.setGeometry(window.rect())
        self._overlay.pressed.connect(self.dismiss)
        self._overlay.show()
        window.installEventFilter(self)
        anchor.installEventFilter(self)
        self.place()
        self.raise_()
        self.show()
        self.place()  # again: wrapped text has its height only once it is shown
        self.setFocus(Qt.FocusReason.PopupFocusReason)  # so that it receives Esc
        theme.application().focusChanged.connect(self._focus_moved)

    def dismiss(self) -> None:
        """Close, and return the focus to where it was."""
        overlay, self._overlay = self._overlay, None
        if overlay is None:
            return
        theme.application().focusChanged.disconnect(self._focus_moved)
        self.window().removeEventFilter(self)
        if self._anchor is not None and isValid(self._anchor):
            self._anchor.removeEventFilter(self)
        overlay.hide()
        overlay.deleteLater()
        within = self.isAncestorOf(QApplication.focusWidget() or self)
        before, self._before = self._before, None
        self.hide()
        if within and before is not None and isValid(before) and before.isVisible():
            before.setFocus(Qt.FocusReason.PopupFocusReason)
        self.closed.emit()

    def _focus_moved(self, _: QWidget | None, now: QWidget | None) -> None:
        """Close if a command moved the focus elsewhere in the window, where Esc would not reach the popover."""
        if now is not None and now.window() is self.window() and now is not self and not self.isAncestorOf(now):
            self.dismiss()

    def _follow(self) -> None:
        """Move with the anchor, or close if another page hides it."""
        if self._anchor is not None and isValid(self._anchor) and self._anchor.isVisible():
            self.place()
        else:
            self.dismiss()

    def place(self) -> None:
        """Place the card, as high as its content needs and the window allows."""
        inset = PAD + theme.px(self._inset)
        self._around.setContentsMargins(inset, inset, inset, inset)
        anchor, window = self._anchor, self.window()
        if not self.is_open or anchor is None or not isValid(anchor):
            return
        if self._overlay is not None:
            self._overlay.setGeometry(window.rect())
        width = min(theme.px(self.width_px()), window.width() - 2 * theme.px(EDGE_PX))
        within = width - 2 * theme.px(self._inset)
        self.body.activate()
        flows = self.body.hasHeightForWidth()
        high = self.body.totalHeightForWidth(within) if flows else self.body.totalSizeHint().height()
        wanted = high + 2 * theme.px(self._inset)
        card = self.card_rect(QRect(anchor.mapTo(window, QPoint(0, 0)), anchor.size()), QSize(width, wanted))
        # Set explicitly: a scroll bar takes width, the text then needs more height, and the scroll bar would stay.
        policy = Qt.ScrollBarPolicy
        self._area.setVerticalScrollBarPolicy(
            policy.ScrollBarAsNeeded if card.height() < wanted else policy.ScrollBarAlwaysOff
        )
        self.setGeometry(card.adjusted(-PAD, -PAD, PAD, PAD))

    def card_rect(self, at: QRect, wanted: QSize) -> QRect:
        """Return the card's rectangle in the window. at: the anchor; wanted: the preferred size."""
        window = self.window()
        edge, away = theme.px(EDGE_PX), theme.px(AWAY_PX)
        above, below = at.top() - away - edge, window.height() - at.bottom() - away - edge
        goes_up = wanted.height() <= above or above >= below
        height = min(wanted.height(), max(above, below, 0), window.height() - 2 * edge)
        top = at.top() - away - height if goes_up else at.bottom() + away
        top = min(max(top, edge), window.height() - edge - height)  # the anchor may have scrolled away
        outdent = theme.px(self.outdent_px())
        left = at.right() - wanted.width() + outdent if self.isRightToLeft() else at.left() - outdent
        left = min(max(left, edge), window.width() - edge - wanted.width())
        return QRect(left, top, wanted.width(), height)

    def focusNextPrevChild(self, forward: bool) -> bool:
        return tab_order.move_on(self, forward)  # Tab stays inside

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.dismiss()
        elif is_typed(event):
            self.dismiss()  # a message is being written; no field of the popover took the character
            if (focus := QApplication.focusWidget()) is not None:
                QApplication.sendEvent(focus, event)
        else:
            event.accept()  # other keys pressed here must not reach the page below

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if kind == QEvent.Type.Hide and watched is getattr(self, "_anchor", None):
            QTimer.singleShot(0, self, self._follow)
        if (kind == QEvent.Type.Resize and watched is self.parent()) or (
            kind == QEvent.Type.LayoutRequest and watched is getattr(self, "_content", None)
        ):
            self.place()
        return False

    def paintEvent(self, event: QPaintEvent) -> None:
        paint_floating(antialiased(self), QRectF(self.rect()).adjusted(PAD, PAD, -PAD, -PAD), theme.px(12))


def is_typed(event: QKeyEvent) -> bool:
    """Return whether a key types a visible character, and is not a command."""
    commands = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier | Qt.KeyboardModifier.MetaModifier
    pressed = event.modifiers() & commands
    is_alt_gr = pressed == Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.AltModifier  # on Windows
    return event.text().isprintable() and bool(event.text().strip()) and (not pressed or is_alt_gr)


def dismiss_all(window: QWidget) -> None:
    for popover in window.findChildren(Popover):
        popover.dismiss()
