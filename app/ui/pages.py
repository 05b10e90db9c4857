"""The pages of the window: the chat, and the Models and Live pages, which are built on first use."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QStackedWidget, QWidget

from app.clients.engine_status import EngineStatus
from app.translation import tr
from app.ui.chat.chat_page import ChatPage

if TYPE_CHECKING:
    from app.clients.live_figures import LiveFigures
    from app.models.models_controller import ModelsController
    from app.ui.live.live_page import LivePage
    from app.ui.models.model_actions import ModelActions
    from app.ui.models.models_page import ModelsPage
    from engine.machine.monitor import MachineSample
    from engine.service.protocol import GenerationResult, Live


class Pages(QStackedWidget):
    """The pages, of which one is shown. LiveFigures collects figures even before the Live page exists.

    shown: "chat", "models" or "live". models_built, live_built: the page, once. watching_changed: whether the Live page
    is visible.
    """

    shown = Signal(str)
    models_built = Signal(object)
    live_built = Signal(object)
    watching_changed = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.chat = ChatPage()
        self.addWidget(self.chat)
        self.models_page: ModelsPage | None = None
        self.live_page: LivePage | None = None
        self.model_actions: ModelActions | None = None
        self._models: ModelsController | None = None
        self._status = EngineStatus()
        self._seen = False
        self._answered_chat = ""

    @cached_property
    def _figures(self) -> LiveFigures:
        from app.clients.live_figures import LiveFigures

        return LiveFigures()

    def connect_models(self, controller: ModelsController) -> None:
        self._models = controller

    # --- showing a page

    @property
    def shows_chat(self) -> bool:
        return self.currentWidget() is self.chat

    @property
    def shows_models(self) -> bool:
        return self.models_page is not None and self.currentWidget() is self.models_page

    @property
    def title(self) -> str:
        return tr("Live") if self.currentWidget() is self.live_page else tr("Models")

    def show_chat(self) -> None:
        """Show the chat and focus its composer."""
        self.setCurrentWidget(self.chat)
        self.shown.emit("chat")
        self.chat.focus_composer()

    def show_models(self) -> None:
        if self._models is None:
            return
        page = self.models_page or self._build_models(self._models)
        self.setCurrentWidget(page)
        self.shown.emit("models")
        page.search.setFocus(Qt.FocusReason.OtherFocusReason)

    def show_live(self) -> None:
        page = self.live_page or self._build_live()
        self.setCurrentWidget(page)
        self.shown.emit("live")
        page.neurons.setFocus(Qt.FocusReason.OtherFocusReason)

    def run_model_action(self, name: str) -> None:
        self.show_models()
        if self.model_actions is not None:
            getattr(self.model_actions, name)()

    def _build_models(self, controller: ModelsController) -> ModelsPage:
        from app.ui.models.model_actions import ModelActions
        from app.ui.models.models_page import ModelsPage

        page = self.models_page = ModelsPage()
        page.set_status(self._status)
        self.addWidget(page)
        self.model_actions = ModelActions(page, controller)
        self.model_actions.chat_wanted.connect(self.show_chat)
        self.model_actions.remedy_wanted.connect(self.chat.remedy)
        self.models_built.emit(page)
        return page

    def _build_live(self) -> LivePage:
        from app.ui.live.live_page import LivePage

        page = self.live_page = LivePage(self._figures)
        page.watching.connect(self.watching_changed)
        page.set_seen(self._seen)
        page.set_chat(self._answered_chat)
        self.addWidget(page)
        self.live_built.emit(page)
        return page

    # --- updates

    def set_status(self, status: EngineStatus) -> None:
        """Show the engine's status on the Models and Live pages."""
        self._status = status
        self._figures.take_status(status)
        if self.live_page is not None:
            self.live_page.set_status()
        if self.models_page is not None:
            self.models_page.set_status(status)

    def show_sample(self, sample: MachineSample) -> None:
        self._figures.take_sample(sample, time.monotonic())
        if self.live_page is not None:
            self.live_page.show_machine()

    def show_live_event(self, live: Live) -> None:
        self._figures.take_live(live)
        if self.live_page is not None:
            self.live_page.set_live(live)

    def take_result(self, result: GenerationResult) -> None:
        """Record the figures of a finished answer."""
        self._figures.take_result(result)

    def set_answered_chat(self, title: str) -> None:
        """Set the title of the open chat if it is being answered, else an empty text."""
        self._answered_chat = title
        if self.live_page is not None:
            self.live_page.set_chat(title)

    def set_seen(self, seen: bool) -> None:
        self._seen = seen
        if self.live_page is not None:
            self.live_page.set_seen(seen)
