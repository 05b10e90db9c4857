"""A card that floats over the window beside what opened it, and goes on a click elsewhere, Esc or a choice.

It lies in the window itself, not in one of its own: the focus ring and the theme reach it like any other part. What
stands in it is the business of whoever derives from it.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPaintEvent
from PySide6.QtWidgets import QApplication, QFrame, QScrollArea, QVBoxLayout, QWidget
from shiboken6 import isValid

from app.ui.look import theme
from app.ui.look.painting import antialiased
from app.ui.widgets import tab_order
from app.ui.widgets.floating import PAD, paint_floating

EDGE_PX, AWAY_PX = 8, 6  # least distance from the window's edge, and from what opened it


class _Veil(QWidget):
    """Lies over the window while the card is open; a click on it closes the card."""

    pressed = Signal()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.pressed.emit()


class _Content(QWidget):
    """Is as high as its words need at its width. By itself Qt would ask for what they need at the least width."""

    def minimumSizeHint(self) -> QSize:
        layout = self.layout()
        if layout is None or layout.hasHeightForWidth():
            return QSize(0, 0)
        return QSize(0, layout.totalMinimumSize().height())  # where nothing wraps, what is higher than the card scrolls


class Popover(QFrame):
    """Hidden until `open_at`. `body` takes what is shown; what is higher than the window scrolls.

    inset: room between the card's edge and what stands in it, px.
    """

    closed = Signal()

    def __init__(self, name: str, window: QWidget, inset: int = 16) -> None:
        super().__init__(window)
        self.setAccessibleName(name)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.hide()
        self._inset = inset
        self._veil: _Veil | None = None
        self._anchor: QWidget | None = None
        self._before: QWidget | None = None  # had the focus
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
        return self._veil is not None

    def width_px(self) -> int:
        """How wide the card is at zoom 1."""
        return 320

    def outdent_px(self) -> int:
        """How far it begins before what opened it, so that what stands in both is on one line."""
        return 0

    def open_at(self, anchor: QWidget) -> None:
        """Open beside a widget of the same window: above it where there is room, else below."""
        window = self.window()
        if self.is_open:
            return
        self._anchor, self._before = anchor, QApplication.focusWidget()
        self._veil = _Veil(window)
        self._veil.setGeometry(window.rect())
        self._veil.pressed.connect(self.dismiss)
        self._veil.show()
        window.installEventFilter(self)
        self.place()
        self.raise_()
        self.show()
        self.place()  # once more: now that it is shown, wrapped words know their height
        self.setFocus(Qt.FocusReason.PopupFocusReason)  # so that Esc reaches it

    def dismiss(self) -> None:
        """Go, and give the focus back to what had it."""
        veil, self._veil = self._veil, None
        if veil is None:
            return
        self.window().removeEventFilter(self)
        veil.hide()
        veil.deleteLater()
        within = self.isAncestorOf(QApplication.focusWidget() or self)
        before, self._before = self._before, None
        self.hide()
        if within and before is not None and isValid(before) and before.isVisible():
            before.setFocus(Qt.FocusReason.PopupFocusReason)
        self.closed.emit()

    def place(self) -> None:
        """Stand where it belongs, as high as it needs to be and the window allows."""
        inset = PAD + theme.px(self._inset)
        self._around.setContentsMargins(inset, inset, inset, inset)
        anchor, window = self._anchor, self.window()
        if not self.is_open or anchor is None or not isValid(anchor):
            return
        if self._veil is not None:
            self._veil.setGeometry(window.rect())
        width = min(theme.px(self.width_px()), window.width() - 2 * theme.px(EDGE_PX))
        within = width - 2 * theme.px(self._inset)
        self.body.activate()
        flows = self.body.hasHeightForWidth()
        high = self.body.totalHeightForWidth(within) if flows else self.body.totalSizeHint().height()
        wanted = high + 2 * theme.px(self._inset)
        card = self.card_rect(QRect(anchor.mapTo(window, QPoint(0, 0)), anchor.size()), QSize(width, wanted))
        # Said outright: once a bar is there, it takes width, the words need more height, and the bar stays.
        policy = Qt.ScrollBarPolicy
        self._area.setVerticalScrollBarPolicy(
            policy.ScrollBarAsNeeded if card.height() < wanted else policy.ScrollBarAlwaysOff
        )
        self.setGeometry(card.adjusted(-PAD, -PAD, PAD, PAD))

    def card_rect(self, at: QRect, wanted: QSize) -> QRect:
        """Where the card stands in the window, for what opened it and the size it wants to be."""
        window = self.window()
        edge, away = theme.px(EDGE_PX), theme.px(AWAY_PX)
        above, below = at.top() - away - edge, window.height() - at.bottom() - away - edge
        goes_up = wanted.height() <= above or above >= below
        height = min(wanted.height(), max(above, below, 0), window.height() - 2 * edge)
        top = at.top() - away - height if goes_up else at.bottom() + away
        top = min(max(top, edge), window.height() - edge - height)  # wherever what opened it has gone
        outdent = theme.px(self.outdent_px())
        left = at.right() - wanted.width() + outdent if self.isRightToLeft() else at.left() - outdent
        left = min(max(left, edge), window.width() - edge - wanted.width())
        return QRect(left, top, wanted.width(), height)

    def focusNextPrevChild(self, forward: bool) -> bool:
        return tab_order.move_on(self, forward)  # Tab stays inside

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.dismiss()
        else:
            event.accept()  # nothing typed here is meant for the page below

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if (kind == QEvent.Type.Resize and watched is self.parent()) or (
            kind == QEvent.Type.LayoutRequest and watched is getattr(self, "_content", None)
        ):
            self.place()
        return False

    def paintEvent(self, event: QPaintEvent) -> None:
        paint_floating(antialiased(self), QRectF(self.rect()).adjusted(PAD, PAD, -PAD, -PAD), theme.px(12))
