"""Switches, unloads and reloads the chats' model, and cancels loads. Knows models by id or path, and no chats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QTimer, Signal

from app.clients.engine_client import EngineClient
from app.clients.engine_status import Phase
from app.settings import AppSettings
from app.translation import noted, tr
from app.user_messages import Action, UserMessage

if TYPE_CHECKING:
    from engine.service import protocol

STARTER = "starter-chat"
STARTER_NAME = noted("the starter model")
LOAD_LAST = "load-last"  # remedy: reload the model that was loaded before
TYPING_MS = 600

Choices = Callable[[str], Mapping[str, Any]]


class ModelSwitch(QObject):
    """wanted: the model that is loaded, loading, or waits for the running answer."""

    changed = Signal(str)  # the model that is loaded now
    said = Signal(str)  # a short text for the user
    chosen = Signal()  # the user chose a model: earlier problems no longer count

    def __init__(self, engine: EngineClient, settings: AppSettings, model: str, choices_for: Choices) -> None:
        """choices_for: the EngineConfig fields kept for a model on this PC."""
        super().__init__()
        self.settings = settings
        self.wanted = model
        self._engine = engine
        self._choices_for = choices_for
        self._last = ""  # loaded last, in case the wanted one fails
        self._names = {STARTER: tr(STARTER_NAME)}  # by model, as far as known
        self._soon = QTimer(self, singleShot=True, interval=TYPING_MS)  # a number is typed digit by digit
        self._soon.timeout.connect(self.load)
        engine.loaded.connect(self._is_there)
        engine.noted.connect(lambda note: self.said.emit(note.rstrip(".")))

    @property
    def model(self) -> str:
        """The loaded model, else the one that is loading or was tried last: an id or a path."""
        return self._last if self._engine.has_model else self.wanted

    def learn_names(self, names: Mapping[str, str]) -> None:
        """Set display names, by id or path."""
        self._names |= names

    @staticmethod
    def to_keep(model: str) -> str:
        """Return a model as the settings keep it: empty for the starter model."""
        return "" if model == STARTER else model

    @property
    def name(self) -> str:
        """The wanted model's name, as the start of a sentence."""
        return _upper(self._name_of(self.wanted))

    @property
    def name_to_bring_back(self) -> str:
        """The name of the model that `load_last` loads."""
        return self._name_of(self._last or self.wanted)

    @property
    def previous(self) -> str:
        """The model that was loaded last, if another one is wanted now; else empty."""
        return "" if self._last == self.wanted else self._last

    # --- acts

    def use(self, model: str) -> None:
        """Load this model in place of the current one, after the running answer."""
        if self._engine.has_model and model == self._last:
            self.wanted = model
            self._engine.keep()  # drop another waiting load
            return
        self.chosen.emit()
        self.wanted = model
        self.load()
        if self._engine.is_waiting:
            self.said.emit(tr("{name} will be loaded after this answer", name=self.name))

    def load(self) -> None:
        """Load the wanted model with its current settings and choices."""
        self._soon.stop()
        remembered = {key: value for key, value in self._choices_for(self.wanted).items() if value is not None}
        name = "" if self.wanted == STARTER and not self._last else self._name_of(self.wanted)
        self._engine.load(self.wanted, {**self.settings.engine(), **remembered}, name)

    def choose_draft(self, draft: str) -> None:
        """Let this smaller model guess for `model` from now on, as protocol.ChooseDraft; it is not loaded again."""
        if self._engine.is_waiting and self.wanted == self._last:
            self.load()  # with this choice
        else:
            self._engine.choose_draft(draft or "auto")

    def load_soon(self) -> None:
        """Load it once the user has stopped typing."""
        self._soon.start()

    def load_last(self) -> None:
        """Reload the last model; without one, load the wanted one."""
        self.chosen.emit()
        self.wanted = self._last or self.wanted
        self.load()

    def unload(self, then: str = "") -> None:
        """Free the model's memory, after the running answer. then: what is loaded next; "": the same model."""
        if then:
            self.wanted = self._last = then
        if self._engine.status.phase is Phase.OFF:
            return
        self._soon.stop()
        self.chosen.emit()
        name = self._engine.status.model or tr("The model")
        self._engine.unload()
        if self._engine.is_waiting:
            self.said.emit(tr("{name} will be unloaded after this answer", name=name))

    def cancel_load(self) -> None:
        """Cancel the load. No model is loaded then."""
        self._soon.stop()
        self._engine.cancel_load()
        if self._engine.has_model:
            self.wanted = self._last

    def stop(self) -> None:
        """Stop loading automatically."""
        self._soon.stop()

    # --- words

    def with_way_back(self, message: UserMessage) -> UserMessage:
        """Return the message for a failed load, with a remedy that loads the previous model, which works."""
        if not self.previous:
            return message
        words = tr("Load {model}", model=self._name_of(self.previous))
        if message.remedy_action not in ("", Action.RETRY_LOAD, Action.LOAD_STARTER):
            return replace(message, second=(words, LOAD_LAST))
        offered = [(message.remedy, message.remedy_action), message.second or ("", "")]
        again = next((one for one in offered if one[1] == Action.RETRY_LOAD), None)
        return replace(message, remedy=words, remedy_action=LOAD_LAST, second=again)

    def _is_there(self, info: protocol.LoadedModelInfo) -> None:
        self._last = self.wanted
        self._names[self.wanted] = info.name
        self.changed.emit(self.wanted)  # only now, so that a model that fails is not tried at the next start

    def _name_of(self, model: str) -> str:
        return self._names.get(model) or Path(model).name or model


def _upper(words: str) -> str:
    """Capitalize the start of a sentence."""
    return words[:1].upper() + words[1:]
