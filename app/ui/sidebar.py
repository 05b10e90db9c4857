"""The sidebar: brand, New chat, Search, the chats, the engine's card, Settings; as a panel of 256 or a rail of 56.

It shows what it is given and says what the person asks for. Below 1080 px of window it is a rail, and the panel opens
over the page.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEasingCurve, QEvent, QObject, QRect, Qt, QTimer, QVariantAnimation, Signal
from PySide6.QtGui import QColor, QHideEvent, QKeyEvent, QKeySequence, QMouseEvent, QShortcut, QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QSizePolicy, QStackedLayout, QVBoxLayout, QWidget

from app.conversation import Conversation, SearchHit
from app.engine_status import EngineStatus
from app.ui import icons, theme
from app.ui.chat_list import SCROLL_BAR, ChatList
from app.ui.controls import Button, Dot, IconButton, Label
from app.ui.engine_card import EngineCard, dot_token, state_line
from app.ui.icons import Glyph

PANEL_PX, RAIL_PX = 256, 56
NARROW_BELOW_PX = 1080
SLIDE_MS = 160
SEARCH_DELAY_MS = 120


class BrandButton(Button):
    """Mark and name; leads to About."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("Hearth", "quiet", "mark", tooltip="About Hearth", parent=parent)
        self.setAccessibleName("About Hearth")
        self.glyph_px, self.padding_px = 24, 4
        self._restyle()

    def _restyle(self) -> None:
        super()._restyle()
        self.setFont(theme.font("heading"))

    def colours(self) -> tuple[QColor, QColor, QColor]:
        ground, border, _ = super().colours()
        return ground, border, theme.colour("ink")


class NavButton(Button):
    """A row of the sidebar that leads somewhere: icon and words from the left, no border."""

    def __init__(self, words: str, glyph: str, shortcut: str = "", parent: QWidget | None = None) -> None:
        super().__init__(words, "quiet", glyph, parent=parent)
        self.height_px, self.align_left = 34, True
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setToolTip(f"{words}  ({shortcut})" if shortcut else "")
        self._restyle()

    def _restyle(self) -> None:
        super()._restyle()
        self.setFont(theme.font("row"))

    def colours(self) -> tuple[QColor, QColor, QColor]:
        ground, border, _ = super().colours()
        return ground, border, theme.colour("ink")

    def glyph_colour(self, text: QColor) -> QColor:
        return theme.colour("ink2")


class SearchField(QLineEdit):
    """The field that Search turns into. Esc leaves it, Down goes to the first hit."""

    left = Signal()
    down = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "field")
        self.setProperty("glyph", "true")
        self.setPlaceholderText("Search chats")
        self.setAccessibleName("Search chats")
        self._sign = self.addAction(icons.icon("search", "ink3", 16), QLineEdit.ActionPosition.LeadingPosition)
        self._clear = self.addAction(icons.icon("close", "ink2", 16), QLineEdit.ActionPosition.TrailingPosition)
        self._clear.setToolTip("Close the search  (Esc)")
        self._clear.triggered.connect(lambda _=False: self.left.emit())
        theme.current().changed.connect(self._restyle)

    def _restyle(self) -> None:
        self._sign.setIcon(icons.icon("search", "ink3", 16))
        self._clear.setIcon(icons.icon("close", "ink2", 16))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.left.emit()
        elif event.key() in {Qt.Key.Key_Down, Qt.Key.Key_Return, Qt.Key.Key_Enter}:
            self.down.emit()
        else:
            super().keyPressEvent(event)


class EmptyNote(QFrame):
    """What stands where chats would be: a word that they will come, or that a search found none."""

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
        """With a title it is a search without hits, centred; without, one quiet line from the left."""
        self.glyph.setVisible(bool(title))
        self.title.setVisible(bool(title))
        self.title.setText(title)
        self.line.setText(line)
        side = Qt.AlignmentFlag.AlignHCenter if title else Qt.AlignmentFlag.AlignLeft
        self.title.setAlignment(side)
        self.line.setAlignment(side)


class SidePanel(QFrame):
    """The open sidebar, 256 wide."""

    collapse_asked = Signal()
    search_changed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "side")
        self._column = QVBoxLayout(self)
        self._brand_row = QHBoxLayout()
        self.brand = BrandButton()
        self.hide_button = IconButton("panel", "Close the sidebar", "Ctrl+B")
        self._brand_row.addWidget(self.brand)
        self._brand_row.addStretch(1)
        self._brand_row.addWidget(self.hide_button)
        self.new_chat = Button("New chat", "secondary", "plus", tooltip="New chat  (Ctrl+N)")
        self.new_chat.align_left, self.new_chat.padding_px = True, 9
        self.new_chat.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.search_button = NavButton("Search", "search", "Ctrl+K")
        self.field = SearchField()
        self._search = QFrame()
        self._search_stack = QStackedLayout(self._search)
        self._search_stack.addWidget(self.search_button)
        self._search_stack.addWidget(self.field)
        self.list = ChatList()
        self.note = EmptyNote()
        self._body = QFrame()
        self._body_stack = QStackedLayout(self._body)
        self._body_stack.addWidget(self.list)
        self._body_stack.addWidget(self.note)
        self.engine = EngineCard()
        self.settings = NavButton("Settings", "settings", "Ctrl+,")
        self._upper, self._lower = QVBoxLayout(), QVBoxLayout()
        self._upper.addLayout(self._brand_row)
        self._upper.addWidget(self.new_chat)
        self._upper.addWidget(self._search)
        self._lower.addWidget(self.engine)
        self._lower.addWidget(self.settings)
        self._column.addLayout(self._upper)
        self._column.addWidget(self._body, 1)
        self._column.addLayout(self._lower)
        self._delay = QTimer(self)
        self._delay.setSingleShot(True)
        self._delay.setInterval(SEARCH_DELAY_MS)
        self._delay.timeout.connect(self._tell_search)
        self._told = ""
        self.hide_button.clicked.connect(self.collapse_asked)
        self.search_button.clicked.connect(self.open_search)
        self.field.textChanged.connect(lambda _: self._delay.start())
        self.field.left.connect(self.close_search)
        self.field.down.connect(self._into_hits)
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

    @property
    def searching(self) -> bool:
        """Whether Search has turned into its field."""
        return self._search_stack.currentWidget() is self.field

    def open_search(self) -> None:
        """Turn Search into its field, with the cursor in it."""
        self._search_stack.setCurrentWidget(self.field)
        self.field.setFocus(Qt.FocusReason.OtherFocusReason)
        self.field.selectAll()

    def close_search(self) -> None:
        """Back to the list of all chats."""
        if not self.searching:
            return
        had_focus = self.field.hasFocus()
        self.field.clear()
        self._delay.stop()
        self._tell_search()
        self._search_stack.setCurrentWidget(self.search_button)
        if had_focus:
            self.search_button.setFocus(Qt.FocusReason.OtherFocusReason)

    def _tell_search(self) -> None:
        words = self.field.text().strip()
        if words != self._told:
            self._told = words
            self.search_changed.emit(words)
        if not words:
            self.show_hits("", None)

    def _into_hits(self) -> None:
        first = next(
            (i for i in range(len(self.list.chats.rows)) if self.list.chats.chat(self.list.chats.index(i))), -1
        )
        if first >= 0:
            self.list.setCurrentIndex(self.list.chats.index(first))
            self.list.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def show_conversations(self, conversations: Sequence[Conversation]) -> None:
        self.list.set_conversations(conversations)
        self._settle()

    def show_hits(self, text: str, hits: Sequence[SearchHit] | None) -> None:
        """The hits for a text; those for a text that is no longer searched are passed over."""
        if hits is not None and text.strip() != self.field.text().strip():
            return
        self.list.set_hits(hits)
        self._settle()

    def _settle(self) -> None:
        if self.list.chats.rows:
            self._body_stack.setCurrentWidget(self.list)
            return
        if self.list.chats.searching:
            self.note.say(f"No chat mentions “{self.field.text().strip()}”", "Try fewer words.")
        else:
            self.note.say("", "Your chats will appear here.")
        self._body_stack.setCurrentWidget(self.note)


class Rail(QFrame):
    """The closed sidebar, 56 wide: icons only, each named by its tooltip."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "side")
        self._column = QVBoxLayout(self)
        self.brand = IconButton("mark", "About Hearth")
        self.brand.glyph_px = 26
        self.open_button = IconButton("panel", "Open the sidebar", "Ctrl+B")
        self.new_chat = IconButton("plus", "New chat", "Ctrl+N")
        self.search = IconButton("search", "Search", "Ctrl+K")
        self.dot = Dot("hot_fill", True)
        self.settings = IconButton("settings", "Settings", "Ctrl+,")
        centre = Qt.AlignmentFlag.AlignHCenter
        self._column.addWidget(self.brand, 0, centre)
        self._column.addSpacing(4)
        for widget in (self.open_button, self.new_chat, self.search):
            widget.glyph_px = 19
            self._column.addWidget(widget, 0, centre)
        self._column.addStretch(1)
        self._column.addWidget(self.dot, 0, centre)
        self._column.addSpacing(6)
        self.settings.glyph_px = 19
        self._column.addWidget(self.settings, 0, centre)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def _restyle(self) -> None:
        self._column.setContentsMargins(theme.px(9), theme.px(8), theme.px(9) + 1, theme.px(10))
        self._column.setSpacing(theme.px(4))
        for button in (self.brand, self.open_button, self.new_chat, self.search, self.settings):
            button.height_px = 36
            button.setFixedSize(theme.px(38), theme.px(36))


class _Veil(QWidget):
    """Lies over the page while the panel is open over it; a click on it closes the panel."""

    pressed = Signal()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.pressed.emit()


class Sidebar(QFrame):
    """Panel or rail, by what the person chose and how wide the window is. Ctrl+B is bound here."""

    new_chat = Signal()
    conversation_selected = Signal(str)
    rename_requested = Signal(str, str)
    delete_requested = Signal(str)
    search_changed = Signal(str)
    settings_requested = Signal()
    about_requested = Signal()
    collapsed_changed = Signal(bool)  # by the person, in a wide window: worth remembering

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Sidebar")
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)
        self.panel, self.rail = SidePanel(self), Rail(self)
        self._collapsed = False
        self._narrow = False
        self._veil: _Veil | None = None
        self._slide = QVariantAnimation(self)
        self._slide.setDuration(SLIDE_MS)
        self._slide.setEasingCurve(QEasingCurve.Type.OutCubic)
        self._slide.valueChanged.connect(self._slide_to)
        self._slide.finished.connect(self._slide_done)
        shortcut = QShortcut(QKeySequence("Ctrl+B"), self)
        shortcut.activated.connect(self.toggle)
        self._connect()
        theme.current().changed.connect(self._apply)
        self._apply()

    def _connect(self) -> None:
        panel, rail = self.panel, self.rail
        for new in (panel.new_chat, rail.new_chat):
            new.clicked.connect(self._ask_new)
        for settings in (panel.settings, rail.settings):
            settings.clicked.connect(self._ask_settings)
        for brand in (panel.brand, rail.brand):
            brand.clicked.connect(self._ask_about)
        panel.collapse_asked.connect(self.toggle)
        rail.open_button.clicked.connect(self.toggle)
        rail.search.clicked.connect(self.open_search)
        panel.search_changed.connect(self.search_changed)
        panel.list.opened.connect(self._ask_open)
        panel.list.rename_requested.connect(self.rename_requested)
        panel.list.delete_requested.connect(self.delete_requested)

    # -------------------------------------------------------------- what is shown

    def set_conversations(self, conversations: Sequence[Conversation]) -> None:
        """All chats, in any order."""
        self.panel.show_conversations(conversations)

    def set_search_hits(self, text: str, hits: Sequence[SearchHit] | None) -> None:
        """The hits for a searched text; None: back to the full list."""
        self.panel.show_hits(text, hits)

    def set_current(self, conversation_id: str | None) -> None:
        """Mark the chat that the page shows; None: none (a new chat)."""
        self.panel.list.set_current(conversation_id or "")

    def set_running(self, conversation_id: str | None) -> None:
        """Give the chat that is being answered its ember dot; None: none is."""
        self.panel.list.chats.set_running(conversation_id or "")

    def set_status(self, status: EngineStatus) -> None:
        """Show the engine at this moment."""
        self.panel.engine.set_status(status)
        self.rail.dot.set_state(dot_token(status), status.working)
        words = f"{status.model or 'Engine'}, {state_line(status)}"
        self.rail.dot.setAccessibleName(words)
        self.rail.dot.setToolTip(words)

    def rename(self, conversation_id: str) -> None:
        """Open the panel and, in it, the field for a chat's new title."""
        self._open()
        self.panel.list.rename(conversation_id)

    # -------------------------------------------------------------- panel or rail

    @property
    def is_rail(self) -> bool:
        """Whether only the rail takes room in the window."""
        return self._collapsed or self._narrow

    @property
    def is_over_page(self) -> bool:
        """Whether the panel is open over the page."""
        return self._veil is not None

    def set_collapsed(self, collapsed: bool) -> None:
        """What the person chose for a wide window; a narrow one has the rail anyway."""
        self._collapsed = collapsed
        self._apply()

    def toggle(self) -> None:
        """Ctrl+B: open or close the sidebar; over the page where the window is narrow."""
        if self.is_over_page:
            self._close_over_page()
        elif self._narrow:
            self._open_over_page()
        else:
            self._collapsed = not self._collapsed
            self.collapsed_changed.emit(self._collapsed)
            self._glide()

    def open_search(self) -> None:
        """Ctrl+K: open the panel if need be, and the search field in it."""
        self._open()
        self.panel.open_search()

    def _open(self) -> None:
        if self.is_rail and not self.is_over_page:
            self.toggle()

    def _width(self) -> int:
        return theme.px(RAIL_PX if self.is_rail else PANEL_PX)

    def _apply(self) -> None:
        self._slide.stop()
        if self.is_over_page and not self._narrow:
            self._close_over_page()
        self.setFixedWidth(self._width())
        self.rail.setVisible(self.is_rail)
        if not self.is_over_page:
            self.panel.setVisible(not self.is_rail)
        self._arrange()

    def _glide(self) -> None:
        """To the other form in 160 ms."""
        if not self.isVisible():
            self._apply()
            return
        self.rail.hide()
        self.panel.show()
        self._slide.stop()
        self._slide.setStartValue(self.width())
        self._slide.setEndValue(self._width())
        self._slide.start()

    def _slide_to(self, value: int) -> None:
        if self.is_over_page:
            self.panel.move(value, self.panel.y())
        else:
            self.setFixedWidth(value)
            self._arrange()

    def _slide_done(self) -> None:
        if not self.is_over_page:
            self._apply()

    def _arrange(self) -> None:
        self.rail.setGeometry(0, 0, theme.px(RAIL_PX), self.height())
        if self.is_over_page:
            assert self._veil is not None
            window = self.window()
            self._veil.setGeometry(window.rect())
            top = self.mapTo(window, self.rect().topLeft()).y()
            self.panel.setGeometry(QRect(self.panel.x(), top, theme.px(PANEL_PX), self.height()))
        else:
            self.panel.setGeometry(0, 0, theme.px(PANEL_PX), self.height())

    def _open_over_page(self) -> None:
        window = self.window()
        self._veil = _Veil(window)
        self._veil.pressed.connect(self._close_over_page)
        self._veil.show()
        self.panel.setParent(window)
        self.panel.installEventFilter(self)
        self.panel.show()
        self.panel.raise_()
        self._arrange()
        self.panel.new_chat.setFocus(Qt.FocusReason.OtherFocusReason)
        self._slide.stop()
        self._slide.setStartValue(-theme.px(PANEL_PX - RAIL_PX))
        self._slide.setEndValue(self.mapTo(window, self.rect().topLeft()).x())
        self._slide.start()

    def _close_over_page(self) -> None:
        if self._veil is None:
            return
        self._slide.stop()
        self._veil.hide()
        self._veil.deleteLater()
        self._veil = None
        self.panel.removeEventFilter(self)
        self.panel.setParent(self)
        self.panel.setVisible(not self.is_rail)
        self._arrange()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        # The kind of event comes first: while a window is taken down, nothing else can be asked any more.
        if event.type() == QEvent.Type.Resize and watched is self.window():
            self._measure()
        elif isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape and watched is self.panel:
            self._close_over_page()
            return event.type() == QEvent.Type.KeyPress
        return False

    def _measure(self) -> None:
        narrow = self.window().width() < theme.px(NARROW_BELOW_PX)
        if narrow != self._narrow:
            self._narrow = narrow
            self._apply()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.window().installEventFilter(self)
        self._measure()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._close_over_page()

    def resizeEvent(self, event: QEvent) -> None:
        self._arrange()

    # -------------------------------------------------------------- what is asked for

    def _ask_new(self) -> None:
        self._close_over_page()
        self.new_chat.emit()

    def _ask_open(self, conversation_id: str) -> None:
        self._close_over_page()
        self.conversation_selected.emit(conversation_id)

    def _ask_settings(self) -> None:
        self._close_over_page()
        self.settings_requested.emit()

    def _ask_about(self) -> None:
        self._close_over_page()
        self.about_requested.emit()
