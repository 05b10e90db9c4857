"""The two forms of the sidebar: the panel with search and list, and the rail of icons.

Sidebar decides which one is shown, and where.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPoint, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QFocusEvent, QFontMetrics, QKeyEvent, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QSizePolicy, QStackedLayout, QVBoxLayout, QWidget

from app.chat.conversation import Conversation, SearchHit
from app.shortcuts import keys, tooltip
from app.translation import tr
from app.ui.look import icons, theme
from app.ui.look.icons import Glyph
from app.ui.look.painting import antialiased, block
from app.ui.sidebar.chat_list import ChatList
from app.ui.sidebar.chat_rows import SCROLL_BAR
from app.ui.widgets.controls import Button, Dot, IconButton, Label
from app.ui.widgets.engine_card import EngineCard
from app.ui.widgets.indicators import paint_dot

SEARCH_DELAY_MS = 120
RAIL_PX, NAMED_PX = 56, 44  # width of the rail without names; height of a button with a name
NAMES_FROM_PX = 720  # least width of a window whose rail has names


class BrandButton(Button):
    """Logo and name; opens About."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Hearth", "quiet", "mark", tooltip=tr("About Hearth"), parent=parent)
        self.setAccessibleName(tr("About Hearth"))
        self.glyph_px, self.padding_px = 24, 4
        self._restyle()

    def _restyle(self) -> None:
        super()._restyle()
        self.setFont(theme.font("heading"))

    def colours(self) -> tuple[QColor, QColor, QColor]:
        ground, border, _ = super().colours()
        return ground, border, theme.colour("ink")


class NavButton(Button):
    """A row of the sidebar that opens a page: icon and text from the left, no border."""

    def __init__(self, words: str, glyph: str, shortcut: str = "", parent: QWidget | None = None) -> None:
        self.selected, self.figure, self.working = False, "", True
        super().__init__(words, "quiet", glyph, parent=parent)
        self.height_px, self.align_left = 34, True
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setToolTip(f"{words}  ({shortcut})" if shortcut else "")
        self._restyle()

    def set_selected(self, selected: bool) -> None:
        """Set whether its page is shown."""
        if selected != self.selected:
            self.selected = selected
            self._restyle()

    def set_figure(self, figure: str, working: bool = True) -> None:
        """Set the progress of work on its page; empty for none. working: whether the work is running, not waiting."""
        if (figure, working) != (self.figure, self.working):
            self.figure, self.working = figure, working
            self.setAccessibleName(f"{self.text()}, {figure}" if figure else self.text())
            self.update()

    def _restyle(self) -> None:
        super()._restyle()
        self.setFont(theme.font("rowstrong" if self.selected else "row"))

    def colours(self) -> tuple[QColor, QColor, QColor]:
        ground, border, _ = super().colours()
        if self.selected and not self.isDown():
            ground = theme.wash("selected")
        return ground, border, theme.colour("ink")

    def glyph_colour(self, text: QColor) -> QColor:
        return theme.colour("ink" if self.selected else "ink2")

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self.figure:
            return
        painter, pad, dot = antialiased(self), theme.px(10), theme.px(14)
        painter.setFont(theme.font("meta"))
        painter.setPen(theme.colour("ink2"))
        wide = QFontMetrics(theme.font("meta")).horizontalAdvance(self.figure)
        x = self.width() - pad - wide
        icon_rect = QRectF(x - dot - theme.px(5), (self.height() - dot) / 2, dot, dot)
        words = QRectF(x, 0, wide + 1, self.height())
        if self.isRightToLeft():
            words.moveLeft(pad)
            icon_rect.moveLeft(pad + wide + theme.px(5))
        painter.drawText(words, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignAbsolute, self.figure)
        if self.working:
            paint_dot(painter, icon_rect, theme.colour("hot_fill"), True)


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
        """Set whether work on its page is running."""
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


class SearchField(QLineEdit):
    """The search field that replaces the Search row. left: Esc or the cross. stepped: 1 for Down, -1 for Up. entered:
    Return."""

    left = Signal()
    stepped = Signal(int)
    entered = Signal()
    focus_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "field")
        self.setProperty("glyph", "true")
        self.setPlaceholderText(tr("Search chats"))
        self.setAccessibleName(tr("Search chats"))
        self._icon = self.addAction(icons.icon("search", "ink3", 16), QLineEdit.ActionPosition.LeadingPosition)
        self._clear = self.addAction(icons.icon("close", "ink2", 16), QLineEdit.ActionPosition.TrailingPosition)
        self._clear.setToolTip(tr("Close the search  (Esc)"))
        self._clear.triggered.connect(lambda _=False: self.left.emit())
        theme.current().changed.connect(self._restyle)

    def _restyle(self) -> None:
        self._icon.setIcon(icons.icon("search", "ink3", 16))
        self._clear.setIcon(icons.icon("close", "ink2", 16))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        if key == Qt.Key.Key_Escape:
            self.left.emit()
        elif key in {Qt.Key.Key_Up, Qt.Key.Key_Down}:
            self.stepped.emit(1 if key == Qt.Key.Key_Down else -1)
        elif key in {Qt.Key.Key_Return, Qt.Key.Key_Enter}:
            self.entered.emit()
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focus_changed.emit()


class EmptyList(QFrame):
    """The empty state of the list: no chats yet, or no search results."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._column = QVBoxLayout(self)
        self.glyph = Glyph("search", "ink3", 22)
        self.title = Label("", "label", wrap=True)
        self.line = Label("", "meta", wrap=True)
        self._column.addWidget(self.glyph, 0, Qt.AlignmentFlag.AlignHCenter)
        self._column.addWidget(self.title)
        self._column.addWidget(self.line)
        self._column.addStretch(1)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self._column.setContentsMargins(theme.px(10), theme.px(12), theme.px(10), 0)
        self._column.setSpacing(theme.px(6))

    def say(self, title: str, line: str) -> None:
        """Show an empty search result with a title, centred; without a title, one quiet line from the left."""
        self.glyph.setVisible(bool(title))
        self.title.setVisible(bool(title))
        self.title.setText(title)
        self.line.setText(line)
        side = Qt.AlignmentFlag.AlignHCenter if title else Qt.AlignmentFlag.AlignLeft
        self.title.setAlignment(side)
        self.line.setAlignment(side)


class SidePanel(QFrame):
    """The open sidebar, 256 px wide."""

    collapse_asked = Signal()
    search_changed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "side")
        self._column = QVBoxLayout(self)
        self._brand_row = QHBoxLayout()
        self.brand = BrandButton()
        self.more = IconButton("more", tr("All chats"))
        self.hide_button = IconButton("panel", tr("Close the sidebar"), keys("sidebar"))
        self._brand_row.addWidget(self.brand)
        self._brand_row.addStretch(1)
        self._brand_row.addWidget(self.more)
        self._brand_row.addWidget(self.hide_button)
        self.new_chat = Button(tr("New chat"), "secondary", "plus", tooltip=tooltip("new_chat"))
        self.new_chat.align_left, self.new_chat.padding_px = True, 9
        self.new_chat.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.search_button = NavButton(tr("Search"), "search", keys("search_chats"))
        self.field = SearchField()
        self._search = QFrame()
        self._search_stack = QStackedLayout(self._search)
        self._search_stack.addWidget(self.search_button)
        self._search_stack.addWidget(self.field)
        self.models = NavButton(tr("Models"), "models", keys("models"))
        self.live = NavButton(tr("Live"), "live", keys("live"))
        self.list = ChatList()
        self.empty = EmptyList()
        self._body = QFrame()
        self._body_stack = QStackedLayout(self._body)
        self._body_stack.addWidget(self.list)
        self._body_stack.addWidget(self.empty)
        self.engine = EngineCard()
        self.settings = NavButton(tr("Settings"), "settings", keys("settings"))
        self._upper, self._lower = QVBoxLayout(), QVBoxLayout()
        self._upper.addLayout(self._brand_row)
        self._upper.addWidget(self.new_chat)
        self._upper.addWidget(self._search)
        self._upper.addWidget(self.models)
        self._upper.addWidget(self.live)
        self._lower.addWidget(self.engine)
        self._lower.addWidget(self.settings)
        self._column.addLayout(self._upper)
        self._column.addWidget(self._body, 1)
        self._column.addLayout(self._lower)
        self._delay = QTimer(self)
        self._delay.setSingleShot(True)
        self._delay.setInterval(SEARCH_DELAY_MS)
        self._delay.timeout.connect(self._tell_search)
        self._told = ""  # the searched text
        self._shown_for = ""  # the text of the shown results
        self._awaited = ""  # the text whose first result is opened when found
        self.more.clicked.connect(self._open_menu)
        self.hide_button.clicked.connect(self.collapse_asked)
        self.search_button.clicked.connect(self.open_search)
        self.field.textChanged.connect(self._typed)
        self.field.left.connect(self.close_search)
        self.field.stepped.connect(self._step)
        self.field.entered.connect(self._take_hit)
        self.field.focus_changed.connect(lambda: self.list.set_led(self.field.hasFocus()))
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self._settle()

    def _restyle(self) -> None:
        side, right = theme.px(10), theme.px(SCROLL_BAR)
        self._column.setContentsMargins(side, theme.px(8), 1, side)  # 1: the hairline at the right
        self._column.setSpacing(theme.px(6))
        for part in (self._upper, self._lower):
            part.setContentsMargins(0, 0, right, 0)
            part.setSpacing(theme.px(4))
        self._search.setFixedHeight(theme.px(34))
        self.field.setFont(theme.font("row"))

    def _open_menu(self) -> None:
        corner = self.more.rect().bottomLeft() + QPoint(0, theme.px(4))
        self.list.menu_for(None).popup(self.more.mapToGlobal(corner))

    @property
    def searching(self) -> bool:
        """Whether the search field is shown."""
        return self._search_stack.currentWidget() is self.field

    def open_search(self) -> None:
        """Show the search field and focus it."""
        self._search_stack.setCurrentWidget(self.field)
        self.field.setFocus(Qt.FocusReason.OtherFocusReason)
        self.field.selectAll()

    def close_search(self) -> None:
        """Close the search and show all chats."""
        if not self.searching:
            return
        had_focus = self.field.hasFocus()
        self.field.clear()
        self._delay.stop()
        self._tell_search()
        self._search_stack.setCurrentWidget(self.search_button)
        if had_focus:
            self.search_button.setFocus(Qt.FocusReason.OtherFocusReason)

    @property
    def searched(self) -> str:
        """The text of the shown results; empty without a search."""
        return self._shown_for

    def _typed(self) -> None:
        self._awaited = ""
        self._delay.start()

    def _tell_search(self) -> None:
        words = self.field.text().strip()
        if words != self._told:
            self._told = words
            self.search_changed.emit(words)
        if not words:
            self.show_hits("", None)

    def _step(self, by: int) -> None:
        """Move the marked row, and announce it to a screen reader, because the focus stays in the field."""
        self.list.step(by)
        self.field.setAccessibleDescription(self.list.currentIndex().data(Qt.ItemDataRole.AccessibleTextRole) or "")

    def _take_hit(self) -> None:
        """Open the marked row; while the search is running, open its first result once found."""
        if self._delay.isActive():
            self._delay.stop()
            self._tell_search()
        words = self.field.text().strip()
        if words == self._shown_for:
            self.list.take_current()
        else:
            self._awaited = words

    def show_conversations(self, conversations: Sequence[Conversation]) -> None:
        self.list.set_conversations(conversations)
        self._settle()

    def show_hits(self, text: str, hits: Sequence[SearchHit] | None) -> None:
        """Show the results for a text, unless the search field has changed since."""
        if hits is not None and text.strip() != self.field.text().strip():
            return
        self._shown_for = "" if hits is None else text.strip()
        self.list.set_hits(hits)
        self._settle()
        awaited, self._awaited = self._awaited, ""
        if awaited and awaited == self._shown_for:
            self.list.take_current()

    def _settle(self) -> None:
        if self.list.chats.rows:
            self._body_stack.setCurrentWidget(self.list)
            return
        if self.list.chats.searching:
            self.empty.say(tr("No chat mentions “{typed}”", typed=self.field.text().strip()), tr("Try fewer words."))
        else:
            self.empty.say("", tr("Your chats will appear here."))
        self._body_stack.setCurrentWidget(self.empty)


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
