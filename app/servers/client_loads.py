"""Loads the models that programs ask the local server for, and unloads an unused one, but never during an answer."""

from __future__ import annotations

from typing import Any, Protocol

from PySide6.QtCore import QObject, QTimer, Signal

from app.clients.engine_client import EngineClient
from app.clients.engine_status import Phase
from app.models.model_switch import ModelSwitch
from app.translation import tr

LOOK_MS = 300  # between two looks at whether the answer has ended


class Chat(Protocol):
    """The needed part of the chat controller."""

    switch: ModelSwitch

    @property
    def is_answering_here(self) -> bool: ...


class ClientLoads(QObject):
    """model, client: the loaded model and the program that asked for it; empty: the user chose the model."""

    said = Signal(str, object)  # text of a toast, and its Severity
    changed = Signal()

    def __init__(self, engine: EngineClient, chat: Chat) -> None:
        super().__init__()
        self._engine, self._chat = engine, chat
        self.model = self.client = ""
        self._before = ("", "")  # model and client, in case the load fails
        self._wanted: tuple[str, str] | None = None  # model and client that wait for the answer to end
        self._is_own = False  # this object switches the model now
        self._look = QTimer(self, singleShot=True, interval=LOOK_MS)
        self._look.timeout.connect(self._advance)
        engine.load_wanted.connect(self._ask)
        engine.unload_wanted.connect(self._unload)
        engine.load_failed.connect(self._failed)
        chat.switch.chosen.connect(self._chosen)

    def _ask(self, model: str, client: str) -> None:
        is_loading = self._engine.status.phase is Phase.LOADING and self._chat.switch.wanted == model
        self._wanted = None if is_loading else (model, client or tr("A program"))
        self._advance()

    def _advance(self) -> None:
        if self._wanted is None:
            return
        if self._chat.is_answering_here:
            self._look.start()
            return
        (model, client), self._wanted = self._wanted, None
        self._switch(model, client, (self.model, self.client))
        self.said.emit(tr("{client} asked for {model}, which is being loaded", client=client, model=self._name), "info")

    def _switch(self, model: str, client: str, before: tuple[str, str]) -> None:
        self._is_own = True
        self._chat.switch.use(model)
        self._is_own = False
        self.model, self.client, self._before = model, client, before
        self.changed.emit()

    def _failed(self, *_: Any) -> None:
        """Bring the previous model back if a program's could not be loaded."""
        switch = self._chat.switch
        if not self.client or switch.wanted != self.model or not switch.previous:
            return
        words = tr("Couldn't load {model}, which {client} asked for", model=self._name, client=self.client)
        self.said.emit(words, "warn")
        self._switch(switch.previous, self._before[1] if self._before[0] == switch.previous else "", ("", ""))

    def _unload(self) -> None:
        if self._engine.is_ready and not self._chat.is_answering_here:
            name = self._engine.status.model
            self._chat.switch.unload()
            self.said.emit(tr("{model} was unloaded, because nothing used it for a while", model=name), "info")

    def _chosen(self) -> None:
        if not self._is_own:
            self.model = self.client = ""
            self.changed.emit()

    @property
    def _name(self) -> str:
        return self._chat.switch.name
