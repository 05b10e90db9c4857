"""The sidebar: panel or rail, depending on the user's choice and the window's width.

In a window narrower than 1080 px it is a rail, and the panel opens over the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import QEasingCurve, QEvent, QObject, QRect, QSignalBlocker, Qt, QVariantAnimation, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QMouseEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QSizePolicy, QWidget

from app.chat.store.conversation import Conversation, SearchHit
from app.clients.engine_status import EngineStatus
from app.translation import tr
from app.ui.look import theme
from app.ui.sidebar.rail import Rail
from app.ui.sidebar.side_panel import SidePanel
from app.ui.widgets.engine_card import dot_token, state_line
from app.ui.widgets.floating import Scrim

if TYPE_CHECKING:
    from app.models.model_rows import ModelRow
    from engine.machine.monitor import MachineSample

PANEL_PX = 256
NARROW_BELOW_PX = 1080
SLIDE_MS = 160


class _Overlay(Scrim):
    """Dims the page while the panel is open over it; a click closes the panel."""

    pressed = Signal()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.pressed.emit()


class Sidebar(QFrame):
    """The sidebar, as panel or rail."""

    new_chat = Signal()
    conversation_selected = Signal(str)
    hit_selected = Signal(str, str, str)  # chat, the message that was found, and the searched text
    rename_requested = Signal(str, str)
    delete_requested = Signal(str)
    search_changed = Signal(str)
    chat_requested = Signal()  # back to the open chat
    models_requested = Signal()
    live_requested = Signal()
    settings_requested = Signal()
    about_requested = Signal()
    collapsed_changed = Signal(bool)  # by the user, in a wide window: saved in the settings

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(tr("Sidebar"))
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)
        self.panel, self.rail = SidePanel(self), Rail(self)
        self._collapsed = False
        self._narrow = False
        self._overlay: _Overlay | None = None
        self._slide = QVariantAnimation(self)
        self._slide.setEasingCurve(QEasingCurve.Type.OutCubic)
        self._slide.valueChanged.connect(self._slide_to)
        self._slide.finished.connect(self._slide_done)
        self._connect()
        theme.current().changed.connect(self._take_zoom)
        self._apply()

    def _connect(self) -> None:
        panel, rail = self.panel, self.rail
        for new in (panel.new_chat, rail.new_chat):
            new.clicked.connect(self._ask_new)
        for models in (panel.models, rail.models):
            models.clicked.connect(self._ask_models)
        for live in (panel.live, rail.live):
            live.clicked.connect(self._ask_live)
        rail.chat.clicked.connect(self.chat_requested)
        for settings in (panel.settings, rail.settings):
            settings.clicked.connect(self._ask_settings)
        for brand in (panel.brand, rail.brand):
            brand.clicked.connect(self._ask_about)
        self.new_chat.connect(self._close_over_page)  # also by its keys
        panel.collapse_requested.connect(self.toggle)
        rail.open_button.clicked.connect(self.toggle)
        rail.search.clicked.connect(self.open_search)
        panel.search_changed.connect(self.search_changed)
        panel.list.opened.connect(self._ask_open)
        panel.list.hit_opened.connect(self._ask_hit)
        panel.list.rename_requested.connect(self.rename_requested)
        panel.list.delete_requested.connect(self.delete_requested)

    # --- updates

    def set_conversations(self, conversations: Sequence[Conversation]) -> None:
        """Set all chats, in any order."""
        self.panel.show_conversations(conversations)

    def set_search_hits(self, text: str, hits: Sequence[SearchHit] | None) -> None:
        """Show the results for a searched text; None shows all chats."""
        self.panel.show_hits(text, hits)

    def set_current(self, conversation_id: str | None) -> None:
        """Mark the chat that the page shows; None for a new chat."""
        self.panel.list.set_current(conversation_id or "")

    def set_page(self, page: str) -> None:
        """Mark the page that is shown: "chat", "models" or "live". A panel over the page before it is closed."""
        self._close_over_page()
        for part in (self.panel, self.rail):
            part.models.set_selected(page == "models")
            part.live.set_selected(page == "live")
        self.rail.chat.set_selected(page == "chat")

    def show_models_work(self, rows: list[ModelRow]) -> None:
        from app.models.model_selection import is_working, work_figure

        self.set_models_work(work_figure(rows), is_working(rows))

    def set_models_work(self, figure: str, working: bool = True) -> None:
        """Show the progress of downloads and preparation, "44%"; empty for none. working: not only waiting."""
        self.panel.models.set_figure(figure, working)
        self.rail.models.set_working(bool(figure) and working)
        self.rail.models.set_name(tr("Models, {figure}", figure=figure) if figure else tr("Models"))

    def set_running(self, conversation_id: str | None) -> None:
        """Mark the chat that is being answered with an ember dot; None for none."""
        self.panel.list.chats.set_running(conversation_id or "")

    def set_waiting(self, conversation_id: str, waits: bool) -> None:
        """Mark a chat that waits for the user with a question mark."""
        self.panel.list.chats.set_waiting(conversation_id, waits)

    def set_status(self, status: EngineStatus) -> None:
        """Show the engine's status."""
        self.panel.engine.set_status(status)
        self.rail.dot.set_state(dot_token(status), status.working)
        words = f"{status.model or tr('Engine')}, {state_line(status)}"
        self.rail.dot.setAccessibleName(words)
        self.rail.dot.setToolTip(words)

    def set_sample(self, sample: MachineSample) -> None:
        self.panel.engine.set_sample(sample)

    def rename(self, conversation_id: str) -> None:
        """Open the panel and edit a chat's title."""
        self._open()
        if not self.panel.list.chats.index_of(conversation_id).isValid():
            self.panel.close_search()
        self.panel.list.rename(conversation_id)

    # --- panel or rail

    @property
    def is_rail(self) -> bool:
        """Whether only the rail takes space in the window."""
        return self._collapsed or self._narrow

    @property
    def is_over_page(self) -> bool:
        """Whether the panel is open over the page."""
        return self._overlay is not None

    def set_collapsed(self, collapsed: bool) -> None:
        """Set the user's choice for a wide window; a narrow window always has the rail."""
        self._collapsed = collapsed
        self._apply()

    def toggle(self) -> None:
        """Open or close the sidebar; in a narrow window, open it over the page."""
        if self.is_over_page:
            self._close_over_page()
        elif self._narrow:
            self._open_over_page()
        else:
            self._collapsed = not self._collapsed
            self.collapsed_changed.emit(self._collapsed)
            self._glide()

    def open_search(self) -> None:
        """Open the panel if necessary, and its search field."""
        self._open()
        self.panel.open_search()

    def search_for(self, text: str) -> None:
        self.open_search()
        self.panel.field.setText(text)

    def _open(self) -> None:
        if self.is_rail and not self.is_over_page:
            self.toggle()

    def _width(self) -> int:
        return self._rail_width() if self.is_rail else theme.px(PANEL_PX)

    @property
    def _is_at_rest(self) -> bool:
        return self._slide.state() == QVariantAnimation.State.Stopped

    def _rail_width(self) -> int:
        return self.rail.width_in(self.window().size())

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
        """Animate to the other form."""
        if not self.isVisible():
            self._apply()
            return
        self.rail.hide()
        self.panel.show()
        self._slide_between(self.width(), self._width())

    def _slide_between(self, start: int, end: int) -> None:
        self._slide.stop()
        with QSignalBlocker(self._slide):  # a stopped animation emits values of the slide before, too
            self._slide.setDuration(theme.duration(SLIDE_MS))
            self._slide.setStartValue(start)
            self._slide.setEndValue(end)
        self._slide_to(start)
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
        self.rail.setGeometry(0, 0, self._rail_width(), self.height())
        if self.is_over_page:
            assert self._overlay is not None
            window = self.window()
            self._overlay.setGeometry(window.rect())
            top = self.mapTo(window, self.rect().topLeft()).y()
            self.panel.setGeometry(QRect(self.panel.x(), top, theme.px(PANEL_PX), self.height()))
        else:
            self.panel.setGeometry(0, 0, theme.px(PANEL_PX), self.height())

    def _open_over_page(self) -> None:
        window = self.window()
        self._overlay = _Overlay(window)
        self._overlay.pressed.connect(self._close_over_page)
        self._overlay.show()
        self.panel.setParent(window)
        self.panel.installEventFilter(self)
        self.panel.show()
        self.panel.raise_()
        self._arrange()
        self.panel.new_chat.setFocus(Qt.FocusReason.OtherFocusReason)
        start = self._rail_width() - theme.px(PANEL_PX)
        self._slide_between(start, self.mapTo(window, self.rect().topLeft()).x())

    def _close_over_page(self) -> None:
        if self._overlay is None:
            return
        self._slide.stop()
        self._overlay.hide()
        self._overlay.deleteLater()
        self._overlay = None
        self.panel.removeEventFilter(self)
        self.panel.setParent(self)
        self.panel.setVisible(not self.is_rail)
        self._arrange()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        # Check the event type first: while a window is being destroyed, other calls fail.
        if event.type() == QEvent.Type.Resize and watched is self.window():
            self._measure()
        elif isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape and watched is self.panel:
            self._close_over_page()
            return event.type() == QEvent.Type.KeyPress
        return False

    def _take_zoom(self) -> None:
        # the zoom changes whether the window counts as narrow
        self._narrow = self.isVisible() and self._is_window_narrow()
        self._apply()

    def _is_window_narrow(self) -> bool:
        return self.window().width() < theme.px(NARROW_BELOW_PX)

    def _measure(self) -> None:
        narrow = self._is_window_narrow()
        if narrow != self._narrow or (self.is_rail and self.width() != self._rail_width() and self._is_at_rest):
            self._narrow = narrow
            self._apply()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.window().installEventFilter(self)
        self._measure()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._close_over_page()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._arrange()

    # --- actions

    def _ask_new(self) -> None:
        self.new_chat.emit()

    def _ask_open(self, conversation_id: str) -> None:
        self._close_over_page()
        self.conversation_selected.emit(conversation_id)

    def _ask_hit(self, conversation_id: str, message_id: str) -> None:
        self._close_over_page()
        self.hit_selected.emit(conversation_id, message_id, self.panel.searched)

    def _ask_models(self) -> None:
        self._close_over_page()
        self.models_requested.emit()

    def _ask_live(self) -> None:
        self._close_over_page()
        self.live_requested.emit()

    def _ask_settings(self) -> None:
        self._close_over_page()
        self.settings_requested.emit()

    def _ask_about(self) -> None:
        self._close_over_page()
        self.about_requested.emit()
