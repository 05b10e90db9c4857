"""The Models page: this PC, search, filters, a card for each model, then the results of a hub search.

model_actions.py implements the actions and opens the dialogs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import (
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QResizeEvent,
    QShowEvent,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from app.clients.engine_status import EngineStatus
from app.models import model_labels
from app.models.model_rows import ModelRow
from app.models.model_selection import families, repository, select
from app.translation import tr
from app.ui.look import theme
from app.ui.models.hub_results import HubResults
from app.ui.models.model_card import ModelCard, activity_of, main_actions
from app.ui.models.model_filters import OUTSET_PX, ModelFilters
from app.ui.models.models_header import DropOverlay, ModelsHeader
from app.ui.models.repository_view import RepositoryView
from app.ui.models.server_section import ServerSection
from app.ui.models.work_bar import Work, WorkBar, downloads_work
from app.ui.widgets.banner import Banner, BannerPlace
from app.ui.widgets.card_frame import CardGrid
from app.ui.widgets.empty_state import EmptyState, show_why_empty
from app.user_messages import UserMessage
from engine.library.records import Estimate, HubModel, Listing, MachineLine

COLUMN_PX, MARGIN_PX = 960, 24


class ModelsPage(QFrame):
    """The Models page. asked: a row's id and an action, as in ModelCard. shown: the page became visible."""

    asked = Signal(str, str)
    menu_requested = Signal(str, QPoint)  # row id and position of its menu
    search_requested = Signal(str)  # search the hub; "" ends the search
    look_requested = Signal(str)  # repository to open
    variant_requested = Signal(str, str)
    path_given = Signal(str)  # dropped on the page
    import_menu = Signal()
    more_menu = Signal()
    refresh_requested = Signal()
    remedy = Signal(str)
    work_stopped = Signal(str)
    shown = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "page")
        self.setAccessibleName(tr("Models"))
        self.setAcceptDrops(True)
        self.rows: list[ModelRow] = []
        self.cards: dict[str, ModelCard] = {}
        self.is_loading = True
        self._order: list[str] = []  # of the visible rows; kept while only figures change
        self._order_for: object = None
        self._offered = ""
        self._looking = ""  # the repository that is shown or requested
        self._works: dict[str, Work] = {}
        self._lay_out_soon = QTimer(self, singleShot=True, interval=0)  # after the scroll bar was shown or hidden
        self._lay_out_soon.timeout.connect(self._lay_out)
        self._build_head()
        self._build_body()
        self._asked_hub = ""  # the text that was sent to the hub
        self.search.textChanged.connect(self._typed)
        self.search.stepped.connect(lambda step: self._into_cards() if step > 0 else None)
        self.search.entered.connect(self._enter)
        self.filters.changed.connect(self._filtered)
        self.overlay = DropOverlay(self)
        self.overlay.hide()
        theme.current().changed.connect(self._lay_out)
        self._lay_out()
        self._show_rows()

    def _build_head(self) -> None:
        self.head, self.filters = ModelsHeader(), ModelFilters()
        self.search = self.head.search
        self.head.import_button.clicked.connect(self.import_menu)
        self.head.more.clicked.connect(self.more_menu)
        self.banner = Banner()
        self.banner.remedy.connect(self.remedy)
        self.banner.closed.connect(self._banner_changed)
        self.banner_place = BannerPlace(self.banner)
        self._banner_row = QHBoxLayout()
        self._banner_row.addWidget(self.banner_place)
        self._upper_part = QWidget()
        self._upper = QVBoxLayout(self._upper_part)
        self._upper.addWidget(self.head)
        self._upper.addWidget(self.filters)
        self._upper.addLayout(self._banner_row)

    def _build_body(self) -> None:
        self.grid, self.hub, self.empty_state = CardGrid(tr("Models")), HubResults(), EmptyState()
        for grid in (self.grid, self.hub.grid):
            grid.reached.connect(self._bring_into_view)
        self.empty_state.remedy.connect(self._empty_state_remedy)
        self.hub.looked_into.connect(self.look_into)
        self.hub.remedy.connect(self._hub_remedy)
        self.servers = ServerSection()
        self.repository = RepositoryView()
        self.repository.back.connect(self._leave_repository)
        self.repository.wanted.connect(self.variant_requested)
        self.repository.remedy.connect(self._repository_remedy)
        self._content = QFrame()
        self._list = QVBoxLayout(self._content)
        self._list.setContentsMargins(0, 0, 0, 0)
        self._list.setSpacing(0)
        self._column = QVBoxLayout()
        self._list.addLayout(self._column, 1)
        for widget in (self.empty_state, self.grid, self.hub, self.servers, self.repository):
            self._column.addWidget(widget)
        self._column.addStretch(1)
        self.area = QScrollArea()
        self.area.setProperty("kind", "plain")
        self.area.setAccessibleName(tr("Models"))
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setWidgetResizable(True)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.viewport().setAutoFillBackground(False)
        self.area.setWidget(self._content)
        self._content.setAutoFillBackground(False)
        self.area.verticalScrollBar().valueChanged.connect(lambda _: self.update(0, self.area.y() - 1, self.width(), 1))
        self.area.verticalScrollBar().rangeChanged.connect(lambda *_: self._lay_out_soon.start())
        self.area.verticalScrollBar().setSingleStep(40)
        self.work = WorkBar()
        self.work.shown.connect(lambda _: self.show_here())
        self.work.stopped.connect(self.work_stopped)
        whole = self._whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(0)
        whole.addWidget(self._upper_part)
        whole.addWidget(self.area, 1)
        whole.addWidget(self.work)

    # --- updates

    def set_machine(self, line: MachineLine) -> None:
        """Describe this PC in a line; the tooltip says why this GPU is used, or none."""
        self.head.line.setText(model_labels.machine(line))
        self.head.line.setToolTip(line.gpu_reason)
        self.filters.set_gpu(bool(line.gpu))

    def set_offer(self, row: ModelRow | None) -> None:
        """Set the model that is recommended first; None for none."""
        self._offered = row.id if row is not None else ""
        self._order_for = None
        self._show_rows()

    def set_loading(self, loading: bool) -> None:
        """Set whether catalogue and library are still loading."""
        self.is_loading = loading
        self._show_rows()

    def set_rows(self, rows: Sequence[ModelRow]) -> None:
        """Set the current state of all known models."""
        self.rows = list(rows)
        self.filters.set_families(families(rows))
        self.filters.set_here(sum(row.installed is not None for row in rows))
        self._show_rows()

    def set_status(self, status: EngineStatus) -> None:
        """Pass the engine's status to the cards, for the progress of a load."""
        for card in self.grid.cards:
            if isinstance(card, ModelCard):
                card.set_status(status)

    def set_found(self, query: str, found: Sequence[HubModel] | UserMessage) -> None:
        """Show the results of a hub search; results of an outdated query are ignored."""
        if query == self.search.text().strip():
            self.hub.set_found(found)
            self._show_hub()

    def set_looked(self, repo: str, listing: Listing | UserMessage, estimates: Mapping[str, Estimate]) -> None:
        """Show what a repository offers, or why that is unknown."""
        if repo != self._looking:
            return
        if isinstance(listing, UserMessage):
            self.repository.show_message(repo, listing)
        else:
            self.repository.show_listing(listing, estimates)

    def set_work(self, key: str, work: Work | None) -> None:
        """Show long work that belongs to no card; None when it has ended."""
        self._works.pop(key, None)
        if work is not None:
            self._works[key] = work
        self._show_work()

    def show_banner(self, message: UserMessage) -> None:
        """Show a problem at the top of the page."""
        self.banner.show_message(message)
        self._banner_changed()

    def clear_banner(self) -> None:
        """Remove the banner because its problem is solved."""
        self.banner.clear()
        self._banner_changed()

    def _banner_changed(self) -> None:
        self._lay_out()
        self._show_rows()  # a banner's primary button must be the only one

    def show_here(self) -> None:
        self.search.clear()
        self.filters.pick("here")

    def show_row(self, row_id: str) -> None:
        """Scroll to a model, whatever the filter."""
        self.search.clear()
        if row_id not in self._order:
            self.filters.pick("all")
        if (card := self.cards.get(row_id)) is not None and card in self.grid.cards:
            self._bring_into_view(card)
            card.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def look_into(self, repo: str) -> None:
        """Open a repository, showing its contents once they arrive."""
        self._looking = repo
        self.repository.show_waiting(repo)
        self._show_rows()
        self.area.verticalScrollBar().setValue(0)
        self.look_requested.emit(repo)

    # --- rows and cards

    def _show_rows(self) -> None:
        choice = self.filters.choice
        text = "" if self._looking else self.search.text().strip()
        by_id = {row.id: row for row in self.rows}
        wanted = (choice, text, frozenset(by_id), self.is_loading)
        if wanted != self._order_for or choice.filter == "here":
            # Keep the order while only figures change: a card must not move away under the mouse.
            self._order_for = wanted
            self._order = [row.id for row in select(self.rows, replace(choice, text=text), self._offered)]
        for row_id in [row_id for row_id in self.cards if row_id not in by_id]:
            self.grid.discard(self.cards.pop(row_id))
        shown = [by_id[row_id] for row_id in self._order if row_id in by_id]
        first = next((row for row in shown if main_actions(row) == ("download",) and activity_of(row) is None), None)
        for row in shown:
            card = self._card(row)
            card.set_row(row)
            card.set_suggested(row is first and choice.filter == "recommended" and self.banner.isHidden())
        looking = bool(self._looking)
        self.grid.set_cards([] if looking else [self.cards[row.id] for row in shown])
        self.grid.setVisible(bool(shown) and not looking)
        self.repository.setVisible(looking)
        self.servers.setVisible(not looking and not text and choice.filter in ("recommended", "here", "all"))
        self._show_empty_state(not shown and not looking, text)
        self._show_hub()
        self._show_work()

    def _card(self, row: ModelRow) -> ModelCard:
        card = self.cards.get(row.id)
        if card is None:
            card = self.cards[row.id] = ModelCard(row)
            card.asked.connect(self.asked)
            card.menu_requested.connect(lambda at, row_id=row.id: self.menu_requested.emit(row_id, at))
        return card

    def _show_empty_state(self, empty: bool, text: str) -> None:
        self.empty_state.setVisible(empty and not text)
        if empty and not text:
            loading = self.is_loading and not self.rows
            show_why_empty(self.empty_state, loading, bool(self.rows), self.filters.choice.filter == "here")

    def _empty_state_remedy(self, act: str) -> None:
        if act == "refresh":
            self.refresh_requested.emit()
        else:
            self.filters.pick("recommended" if act == "recommended" else "all")

    def _show_hub(self) -> None:
        """Show or hide the section below the cards with the hub's results."""
        text = "" if self._looking else self.search.text().strip()
        known = {row.entry.repo for row in self.rows if row.entry is not None and row.id in self._order}
        self.hub.show_for(text, known, bool(self.grid.cards), bool(self._asked_hub))

    def _hub_remedy(self, act: str) -> None:
        if act in {"", "refresh-models"}:
            self._search_hub()
        else:
            self.remedy.emit(act)

    def _repository_remedy(self, act: str) -> None:
        if act == "refresh-models":
            self.look_into(self._looking)
        else:
            self.remedy.emit(act)

    def _show_work(self) -> None:
        """Show work that no visible card shows: other work first, then downloads."""
        work = next(iter(self._works.values()), None)
        if work is None:
            seen = {card.row.id for card in self.grid.cards if isinstance(card, ModelCard)}
            work = downloads_work([row for row in self.rows if row.id not in seen])
        self.work.set_work(work)

    def _bring_into_view(self, card: QWidget) -> None:
        self.area.ensureWidgetVisible(card, 0, theme.px(20))

    # --- search and filters

    def _typed(self, text: str) -> None:
        text = text.strip()
        self._looking = ""
        self.hub.set_found(None)
        self.filters.set_searching(bool(text))
        if self._asked_hub:  # its answer would be for an older text
            self._asked_hub = ""
            self.search_requested.emit("")
        self._show_rows()

    def _search_hub(self) -> None:
        text = self._asked_hub = self.search.text().strip()
        if repo := repository(text):
            self.look_into(repo)
        elif text:
            self.hub.set_found(None)
            self._show_hub()
            self.search_requested.emit(text)

    def _leave_repository(self) -> None:
        self._looking = ""
        if repository(self.search.text()):
            self.search.clear()
        else:
            self._show_rows()
        self.search.setFocus(Qt.FocusReason.OtherFocusReason)

    def _filtered(self) -> None:
        self._looking = ""
        self._show_rows()
        self.area.verticalScrollBar().setValue(0)

    def _enter(self) -> None:
        """Search the hub for the text; a second Enter goes to the cards."""
        if (text := self.search.text().strip()) and text != self._asked_hub:
            self._search_hub()
        else:
            self._into_cards()

    def _into_cards(self) -> None:
        grid = self.grid if self.grid.cards else self.hub.grid
        if grid.cards and not repository(self.search.text()):
            grid.cards[0].setFocus(Qt.FocusReason.ShortcutFocusReason)

    # --- layout

    def column(self) -> tuple[int, int]:
        """Return left edge and width of the page's column."""
        margin = theme.px(MARGIN_PX)
        width = max(min(theme.px(COLUMN_PX), self.width() - 2 * margin), theme.px(200))
        return max((self.width() - width) // 2, margin), width

    def _lay_out(self) -> None:
        px = theme.px
        left, width = self.column()
        right = max(self.width() - left - width, 0)
        out = px(OUTSET_PX)
        bar = self.area.verticalScrollBar()
        taken = bar.width() if bar.isVisible() else 0
        beside = max(right - taken, 0) if self._head_scrolls() else right
        self._upper.setContentsMargins(left - out, px(22), max(beside - out, 0), px(14))
        self._banner_row.setContentsMargins(out, 0, out, 0)
        self.banner_place.setVisible(not self.banner.isHidden())
        self._upper.setSpacing(px(14))
        self._column.setContentsMargins(left, px(2), max(right - taken, 0), px(24))
        self._column.setSpacing(px(10))
        self.work.set_margins(left, max(right - px(8), px(8)))
        self.banner_place.set_most(max(self.height() // 2, px(120)))
        self.overlay.setGeometry(self.rect())

    def _head_scrolls(self) -> bool:
        """Place search and filters above the list, or in it if they would take more than half of a low page.

        Return whether they scroll with the list.
        """
        scrolls = 2 * (self.head.sizeHint().height() + self.filters.height() + theme.px(50)) > self.height()
        if (self._upper_part.parent() is self._content) is not scrolls:
            focus = self.focusWidget()
            (self._list if scrolls else self._whole).insertWidget(0, self._upper_part)
            if focus is not None:
                focus.setFocus()
        return scrolls

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._lay_out()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._order_for = None  # sort again when the page is shown
        self._show_rows()
        self.shown.emit()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.area.verticalScrollBar().value() > 0:
            y = self.area.y()
            QPainter(self).fillRect(0, y - 1, self.width(), 1, theme.colour("line"))

    # --- keyboard, drag and drop

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and (self._looking or self.search.text()):
            self._leave_repository() if self._looking else self.search.clear()
        else:
            super().keyPressEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            event.acceptProposedAction()
            self.overlay.setGeometry(self.rect())
            self.overlay.show()
            self.overlay.raise_()

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self.overlay.hide()

    def dropEvent(self, event: QDropEvent) -> None:
        self.overlay.hide()
        path = next((url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile()), "")
        if path:
            event.acceptProposedAction()
            self.path_given.emit(path)
