"""The open sidebar: New chat, search, pages, the list of chats, and the engine's state."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPoint, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QFontMetrics, QPaintEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QStackedLayout, QVBoxLayout, QWidget

from app.chat.store.conversation import Conversation, SearchHit
from app.shortcuts import keys, tooltip
from app.translation import tr
from app.ui.look import theme
from app.ui.look.icons import Glyph
from app.ui.look.painting import antialiased
from app.ui.sidebar.chat_list import ChatList
from app.ui.sidebar.chat_rows import SCROLL_BAR
from app.ui.widgets.controls import Button, IconButton, Label
from app.ui.widgets.engine_card import EngineCard
from app.ui.widgets.indicators import paint_dot
from app.ui.widgets.search_field import SearchField

SEARCH_DELAY_MS = 120


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

    collapse_requested = Signal()
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
        self._searched = ""  # the searched text
        self._shown_for = ""  # the text of the shown results
        self._awaited = ""  # the text whose first result is opened when found
        self.more.clicked.connect(self._open_menu)
        self.hide_button.clicked.connect(self.collapse_requested)
        self.search_button.clicked.connect(self.open_search)
        self.field.textChanged.connect(self._typed)
        self.field.left.connect(self.close_search)
        self.field.stepped.connect(self._step)
        self.field.entered.connect(self._take_hit)
        self.field.rename_requested.connect(self.list.rename_marked)
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
        if words != self._searched:
            self._searched = words
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

    def show_projects(self, folders: Sequence[str]) -> None:
        """Show the folders with settings, also those without a chat."""
        self.list.chats.set_projects(folders)
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
