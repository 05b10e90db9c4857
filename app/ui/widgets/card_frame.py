"""The base of the cards on the Models page, and their grid.

A card paints its own text and has real buttons as children, so that a hundred cards stay cheap. Subclasses decide what
a card says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QContextMenuEvent,
    QEnterEvent,
    QFontMetrics,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.ui.look import theme
from app.ui.look.direction import leading, order
from app.ui.look.painting import antialiased, block, outline

CARD_PX, SIDE_PX, TOP_PX, GAP_PX = 194, 16, 14, 14
TWO_COLUMNS_PX = 700  # a narrower page has one column
_STEPS = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}


def elided(words: str, role: str, width: int) -> tuple[str, int]:
    """Return text elided to a width, and the width of the result."""
    return _elided(words, role, width, theme.current().zoom)


@lru_cache(maxsize=4096)
def _elided(words: str, role: str, width: int, zoom: float) -> tuple[str, int]:
    # Scrolling repaints the same text often, and measuring it is most of that cost.
    metrics = QFontMetrics(theme.font(role))
    shown = metrics.elidedText(words, Qt.TextElideMode.ElideRight, width)
    return shown, metrics.horizontalAdvance(shown)


def chip_width(words: str) -> float:
    return elided(words, "chip", 100_000)[1] + 2.0 * theme.px(8)


class CardFrame(QWidget):
    """A card, CARD_PX high unless `high_px` is set.

    pressed: a click or Enter. menu_requested: the position of a context menu, in global coordinates.
    """

    pressed = Signal()
    menu_requested = Signal(object)
    step_requested = Signal(int, int)  # columns, rows: an arrow key moves to another card

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setProperty("focusRadius", 12)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.hovered = False
        self.high_px = CARD_PX
        self._down = False
        theme.current().changed.connect(self.restyle)

    def restyle(self) -> None:
        """Lay out and paint the card again after a change of theme or zoom."""
        self.arrange()
        self.update()

    def arrange(self) -> None:
        """Place the children for the current size."""

    def sizeHint(self) -> QSize:
        return QSize(theme.px(473), theme.px(self.high_px))

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.arrange()

    # --- painting

    def inside(self) -> QRectF:
        side, top = theme.px(SIDE_PX), theme.px(TOP_PX)
        return QRectF(self.rect()).adjusted(side, top, -side, -top)

    def mirrored(self, rect: QRectF) -> QRectF:
        """Mirror a rectangle in a right-to-left layout."""
        if not self.isRightToLeft():
            return rect
        return QRectF(self.width() - rect.x() - rect.width(), rect.y(), rect.width(), rect.height())

    def write(
        self,
        painter: QPainter,
        words: str,
        rect: QRectF,
        role: str,
        token: str = "",
        at_end: bool = False,
        middle: bool = False,
    ) -> float:
        """Paint one line of text, elided to fit, and return its width."""
        if not words:
            return 0.0
        shown, wide = elided(words, role, int(rect.width()) + 1)
        painter.setFont(theme.font(role))
        painter.setPen(theme.colour(token or theme.ROLES[role].token))
        side = leading(self.isRightToLeft() != at_end)
        if middle:
            side = Qt.AlignmentFlag.AlignHCenter
        flags = int(side | Qt.AlignmentFlag.AlignVCenter) | Qt.TextFlag.TextSingleLine | order(words)
        painter.drawText(self.mirrored(rect), flags, shown)
        return float(wide)

    def chip(self, painter: QPainter, words: str, x: float, y: float, tone: str = "", at_end: bool = False) -> float:
        """Paint a chip that starts at x (or ends at x, for `at_end`), and return its width."""
        width = chip_width(words)
        rect = QRectF(x - width if at_end else x, y, width, theme.px(22))
        ground = theme.colour(f"{tone}_soft" if tone else "sunken")
        block(painter, self.mirrored(rect), ground, theme.px(6))
        self.write(painter, words, rect, "chip", tone or "ink2", middle=True)
        return width

    def paint_text(self, painter: QPainter) -> None:
        """Paint the card's text."""

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = antialiased(self)
        rect, radius = QRectF(self.rect()), theme.px(12)
        block(painter, rect, theme.colour("card"), radius)
        outline(painter, rect, QColor(theme.colour("edge" if self.hovered else "line")), radius)
        self.paint_text(painter)

    # --- mouse and keyboard

    def set_hovered(self, hovered: bool) -> None:
        """Show the card as hovered or not."""
        self.hovered = hovered
        self.update()

    def enterEvent(self, event: QEnterEvent) -> None:
        self.set_hovered(True)

    def leaveEvent(self, event: QEvent) -> None:
        self.set_hovered(False)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._down = event.button() == Qt.MouseButton.LeftButton

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        down, self._down = self._down, False
        if down and self.rect().contains(event.position().toPoint()):
            self.pressed.emit()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        keyboard = event.reason() == QContextMenuEvent.Reason.Keyboard
        self.menu_requested.emit(self.mapToGlobal(self.rect().center()) if keyboard else event.globalPos())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = Qt.Key(event.key())
        if key in {Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space}:
            self.pressed.emit()
        elif key in _STEPS:
            self.step_requested.emit(_STEPS[key] * (-1 if self.isRightToLeft() else 1), 0)
        elif key in {Qt.Key.Key_Up, Qt.Key.Key_Down}:
            self.step_requested.emit(0, 1 if key == Qt.Key.Key_Down else -1)
        else:
            super().keyPressEvent(event)


class CardGrid(QWidget):
    """Cards in two columns, or in one if the page is narrow. Arrow keys move between cards."""

    reached = Signal(QWidget)  # an arrow key moved the focus to this card: scroll it into view

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.cards: list[CardFrame] = []
        self._known: set[CardFrame] = set()
        theme.current().changed.connect(self._place)

    @property
    def columns(self) -> int:
        """The number of columns, 1 or 2."""
        return 2 if self.width() >= theme.px(TWO_COLUMNS_PX) else 1

    def set_cards(self, cards: Sequence[CardFrame]) -> None:
        """Show these cards in this order. Cards that are no longer shown stay hidden and can be shown again."""
        if list(cards) == self.cards:
            return
        wanted = set(cards)
        for card in self.cards:
            if card not in wanted:
                card.hide()
        self.cards = list(cards)
        for card in self.cards:
            if card not in self._known:
                self._known.add(card)
                card.setParent(self)
                card.step_requested.connect(lambda across, down, card=card: self._step(card, across, down))
        self._place()
        for card in self.cards:
            card.show()

    def discard(self, card: CardFrame) -> None:
        """Delete a card that is never shown again."""
        self._known.discard(card)
        card.hide()
        card.deleteLater()

    def _step(self, card: CardFrame, across: int, down: int) -> None:
        if card not in self.cards:
            return
        index = self.cards.index(card) + across + down * self.columns
        if 0 <= index < len(self.cards):
            self.cards[index].setFocus(Qt.FocusReason.ShortcutFocusReason)
            self.reached.emit(self.cards[index])

    def _place(self) -> None:
        gap, columns = theme.px(GAP_PX), self.columns
        high = theme.px(self.cards[0].high_px if self.cards else CARD_PX)
        width = (self.width() - gap * (columns - 1)) // columns
        for i, card in enumerate(self.cards):
            row, column = divmod(i, columns)
            if self.isRightToLeft():
                column = columns - 1 - column
            card.setGeometry(column * (width + gap), row * (high + gap), width, high)
        rows = -(-len(self.cards) // columns)
        self.setFixedHeight(max(rows * (high + gap) - gap, 0))

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()
