"""The closed sidebar: a narrow rail of icons."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from app.shortcuts import keys
from app.translation import tr
from app.ui.look import icons, theme
from app.ui.look.painting import antialiased, block
from app.ui.widgets.controls import Dot, IconButton
from app.ui.widgets.indicators import paint_dot

RAIL_PX, NAMED_PX = 56, 44  # width of the rail without names; height of a button with a name
NAMES_FROM_PX = 720  # least width of a window whose rail has names


class RailButton(IconButton):
    """An icon of the rail that opens a page.

    It has its name below it if the window is large enough, and a dot while work on its page is running.
    """

    def __init__(self, glyph: str, tooltip: str, shortcut: str = "", parent: QWidget | None = None) -> None:
        self.selected, self.working, self.labelled = False, False, False
        self.label = tooltip
        super().__init__(glyph, tooltip, shortcut, parent)

    def label_width(self) -> int:
        """Return the width of the name, px."""
        return QFontMetrics(theme.font("axis")).horizontalAdvance(self.label)

    def set_selected(self, selected: bool) -> None:
        """Set whether its page is shown."""
        self.selected = selected
        self.update()

    def set_working(self, working: bool) -> None:
        self.working = working
        self.update()

    def colours(self) -> tuple[QColor, QColor, QColor]:
        ground, border, ink = super().colours()
        if self.selected and not self.isDown():
            return theme.wash("selected"), border, theme.colour("ink")
        return ground, border, ink

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.labelled:
            painter, (ground, _, ink), side = antialiased(self), self.colours(), theme.px(self.glyph_px)
            block(painter, QRectF(self.rect()), ground, theme.px(self.radius_px))
            icons.paint(painter, self.glyph, QRectF((self.width() - side) / 2, theme.px(5), side, side), ink)
            painter.setFont(theme.font("axis"))
            painter.setPen(ink)
            below = QRectF(0, theme.px(5) + side, self.width(), self.height() - theme.px(8) - side)
            painter.drawText(below, Qt.AlignmentFlag.AlignCenter, self.label)
        else:
            super().paintEvent(event)
        if self.working:
            side = theme.px(12)
            icon_rect = QRectF(self.width() - side - theme.px(3), theme.px(3), side, side)
            paint_dot(antialiased(self), icon_rect, theme.colour("hot_fill"), False)


class Rail(QFrame):
    """The closed sidebar: icons with names, or 56 px wide without names in a small window."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "side")
        self._column = QVBoxLayout(self)
        self.brand = IconButton("mark", tr("About Hearth"))
        self.brand.glyph_px = 26
        self.open_button = IconButton("panel", tr("Open the sidebar"), keys("sidebar"))
        self.new_chat = RailButton("plus", tr("New chat"), keys("new_chat"))
        self.search = RailButton("search", tr("Search"), keys("search_chats"))
        self.chat = RailButton("chat", tr("Chat"))
        self.models = RailButton("models", tr("Models"), keys("models"))
        self.live = RailButton("live", tr("Live"), keys("live"))
        self.dot = Dot("hot_fill", True)
        self.settings = RailButton("settings", tr("Settings"), keys("settings"))
        self._named = (self.new_chat, self.search, self.chat, self.models, self.live, self.settings)
        self._has_names = False
        centre = Qt.AlignmentFlag.AlignHCenter
        self._column.addWidget(self.brand, 0, centre)
        self._column.addSpacing(4)
        for widget in (self.open_button, self.new_chat, self.search, self.chat, self.models, self.live):
            widget.glyph_px = 19
            self._column.addWidget(widget, 0, centre)
        self._column.addStretch(1)
        self._column.addWidget(self.dot, 0, centre)
        self._column.addSpacing(6)
        self.settings.glyph_px = 19
        self._column.addWidget(self.settings, 0, centre)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def width_in(self, window: QSize) -> int:
        """Return the width in a window of that size, px."""
        if not self._has_room(window):
            return theme.px(RAIL_PX)
        return max(theme.px(RAIL_PX), self._name_width() + 2 * theme.px(4) + 1)

    def _name_width(self) -> int:
        return max(button.label_width() for button in self._named) + 2 * theme.px(3)

    @staticmethod
    def _has_room(window: QSize) -> bool:
        """Return whether the names fit into the height and leave the page enough width."""
        high = theme.px(8 + 2 * 36 + 6 * NAMED_PX + 8 * 4 + 4 + 16 + 6 + 10)
        return window.height() >= high and window.width() >= theme.px(NAMES_FROM_PX)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._has_room(self.window().size()) != self._has_names:
            self._restyle()

    def _restyle(self) -> None:
        px = theme.px
        self._has_names = self._has_room(self.window().size())
        side = px(4 if self._has_names else 9)
        self._column.setContentsMargins(side, px(8), side + 1, px(10))
        self._column.setSpacing(px(4))
        for button in (self.brand, self.open_button):
            button.height_px = 36
            button.setFixedSize(px(38), px(36))
        for named in self._named:
            named.labelled = self._has_names
            named.height_px = NAMED_PX if self._has_names else 36
            named.setFixedSize(max(px(38), self._name_width()) if self._has_names else px(38), px(named.height_px))
