"""The models in the chat: the composer's model menu, the placement popup, and the offer of a first launch.

Connects them with the controllers.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QWidget

from app.chat.message_action import MessageAction
from app.clients.engine_status import EngineStatus, Phase
from app.models.model_rows import ModelRow, listed_id
from app.translation import tr
from app.ui.models.model_menu import ModelMenu
from app.ui.models.starter_offer import StarterOffer

if TYPE_CHECKING:
    from app.chat.chat_controller import ChatController
    from app.models.models_controller import ModelsController
    from app.ui.chat.chat_page import ChatPage
    from app.ui.models.placement_popup import Placed, PlacementPopup
    from app.ui.sidebar.sidebar import Sidebar
    from engine.library.records import Estimate


class ChatModels(QObject):
    """Opens the model menu and the placement popup. models_page_requested: show the Models page."""

    models_page_requested = Signal()

    def __init__(
        self, window: QWidget, page: ChatPage, sidebar: Sidebar, chat: ChatController, models: ModelsController
    ) -> None:
        super().__init__(window)
        self._page, self._sidebar, self._chat, self._models = page, sidebar, chat, models
        self._status = EngineStatus()
        self._shown: tuple[bool, str, Placed | None] | None = None  # loading, the model, and its placement if loaded
        self._offered: ModelRow | None = None
        self._fetching = ""  # row id of the accepted offer, shown until its model is in use
        self._window, self.menu = window, ModelMenu(window)
        self._connect_composer()
        self._connect_offer()
        models.rows_changed.connect(self._take_rows)
        models.offer_changed.connect(self._take_offer)
        models.previewed.connect(self._take_preview)
        models.loading_changed.connect(self.menu.set_looking)
        chat.status_changed.connect(self._take_status)
        self._take_rows(models.rows)
        self._take_offer(models.offer)
        self._take_status(chat.status)

    def _connect_composer(self) -> None:
        composer, card, menu = self._page.composer, self._sidebar.panel.engine, self.menu
        composer.model_menu_requested.connect(self.open_menu)
        card.clicked.connect(lambda: self.open_placement(card))
        menu.chosen.connect(self._choose)
        self._page.other_model_requested.connect(self.open_for_answer)
        menu.unload.connect(self._chat.unload)
        menu.cancel_load.connect(self._chat.cancel_load)
        menu.placement_requested.connect(lambda: self.open_placement(composer.model_button))
        menu.all_models.connect(self.models_page_requested)

    @cached_property
    def popup(self) -> PlacementPopup:
        """How the model runs here. Built on first use."""
        from app.ui.models.placement_popup import PlacementPopup

        popup = PlacementPopup(self._window)
        popup.preview_requested.connect(lambda budget: self._models.preview(self._chat.model, budget))
        popup.budget_chosen.connect(self._set_budget)
        popup.draft_chosen.connect(lambda draft: self._models.set_draft(self._chat.model, draft))
        popup.unload.connect(self._chat.unload)
        return popup

    def _close_popup(self) -> None:
        if "popup" in self.__dict__:
            self.popup.dismiss()

    def _connect_offer(self) -> None:
        offer, models = self._page.empty.offer, self._models
        offer.download.connect(self._fetch)
        offer.use.connect(models.use)
        offer.pause.connect(models.pause)
        offer.resume.connect(models.resume)
        offer.cancel.connect(self._give_up)
        offer.dismissed.connect(self._dismiss)

    def watch_answers(self) -> None:
        """From now on, offer a larger model under answers of the starter model. Call this once."""
        StarterOffer(self, self._page, self._chat, self._models)

    # --- opening

    def open_menu(self) -> None:
        """Open or close the model menu above the composer (Ctrl+L); on another page, open the Models page."""
        if self.menu.is_open:
            self.menu.dismiss()
            return
        self._close_popup()
        button = self._page.composer.model_button
        if not button.isVisible():  # the composer is hidden, so another page is shown
            self.models_page_requested.emit()
            return
        if not self._models.rows:
            self._models.refresh()
        self.menu.open_at(button)

    def open_for_answer(self, message_id: str, anchor: QWidget) -> None:
        """Open the menu to choose the model that regenerates an answer."""
        self._close_popup()
        self.menu.dismiss()
        if not self._models.rows:
            self._models.refresh()
        self.menu.open_at(anchor, message_id)

    def open_placement(self, anchor: QWidget) -> None:
        """Show how the model runs here, or the model menu if none is loaded."""
        if self._status.placement or (self._status.model and self._status.device):
            self.popup.open_at(anchor)
            if self.popup.slider.isVisible():  # reads the model's header now, so that the slider responds at once
                self._models.preview(self._chat.model, self.popup.budget_gib)
        elif not self.menu.is_open:
            if not self._models.rows:
                self._models.refresh()
            self.menu.open_at(anchor)

    @property
    def is_placed(self) -> bool:
        """Whether a local model is loaded and the chat page is visible."""
        return bool(self._status.device) and self._page.isVisible()

    def open_placement_here(self) -> None:
        """Show how the model runs here, at its button in the composer."""
        self.open_placement(self._page.composer.model_button)

    def _choose(self, row_id: str) -> None:
        self.use(row_id)
        if self.menu.again:  # it waits until the model is loaded
            self._chat.act(MessageAction("regenerate", self.menu.again))

    def use(self, row_id: str) -> None:
        """Answer the open chat with a local model; a toast says so if a server answered it before."""
        elsewhere = self._chat.place
        if self._chat.set_place(None):
            if elsewhere is not None:
                name = next((row.name for row in self._models.rows if row.id == row_id), "") or tr("the model")
                self._chat.toast.emit(tr("From the next message on, {model} answers this chat", model=name), None)
            if (row := self._models.row(row_id)) is not None and row.installed is not None:
                self._chat.keep_model(row.installed.id)
            self._models.use(row_id)

    # --- updates

    def _take_status(self, status: EngineStatus) -> None:
        self._status = status
        loading = status.phase is Phase.LOADING and not status.cancelling
        loaded = bool(status.device) and status.phase not in (Phase.OFF, Phase.FAILED, Phase.LOADING)
        placed = self._placed(status) if loaded else None
        if (loading, status.model, placed) == self._shown:
            return  # the status changes a hundred times a second during an answer
        self._shown = (loading, status.model, placed)
        self.menu.set_state(status.model or tr("the model"), loading, loaded)
        if placed is None:
            self._close_popup()
        else:
            self.popup.show_model(placed)

    def _placed(self, status: EngineStatus) -> Placed:
        from app.ui.models.placement_popup import Placed

        choice = self._models.choices.of(self._chat.model)
        row = self._models.row(listed_id(self._chat.model))
        rate = row.rate if row is not None else None
        drafts = self._models.known.drafts_of(row.installed) if row is not None and row.installed is not None else []
        return Placed(
            status.model, status.placement, choice.vram_budget_gib, status.device, status.device_reason, rate,
            tuple((one.id, one.name) for one in drafts), choice.draft, status.draft,
            status.draft_reason,
        )  # fmt: skip

    def _take_rows(self, rows: list[ModelRow]) -> None:
        self._chat.switch.learn_names({
            key: row.name for row in rows if row.installed for key in (row.installed.id, row.installed.path)
        })  # fmt: skip
        self.menu.set_rows(rows)
        self._take_status(self._status)  # the rate may have changed
        self._show_offer()

    def _take_preview(self, model: str, estimate: Estimate) -> None:
        if model == self._chat.model:
            self.popup.take_estimate(estimate)

    def _set_budget(self, budget_gib: float | None) -> None:
        model = self._chat.model
        self._models.set_budget(model, budget_gib)
        if self._models.row(model) is None:  # opened by its path: the library does not list it
            self._chat.load_model()

    # --- the offer

    def _take_offer(self, row: ModelRow | None) -> None:
        self._offered = row
        self._show_offer()

    def _show_offer(self) -> None:
        row = self._offered
        if self._fetching:
            row = next((found for found in self._models.rows if found.id == self._fetching), row)
            if row is not None and row.in_use:
                self._fetching, row = "", None
        self._page.empty.set_offer(row)

    def _fetch(self, row_id: str) -> None:
        self._fetching = row_id
        self._models.download(row_id)

    def _give_up(self, download_id: str) -> None:
        self._fetching = ""
        self._models.cancel_download(download_id)

    def _dismiss(self) -> None:
        self._fetching = ""
        self._models.dismiss_offer()
        self._page.composer.field.setFocus(Qt.FocusReason.OtherFocusReason)
