"""Applies changed settings to the engine: moves it, or reloads the model where a setting needs that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.clients.engine_status import Phase
from app.engine_text import plain_figures
from app.translation import tr

if TYPE_CHECKING:
    from app.chat.answers.answer_policy import AnswerPolicy
    from app.clients.engine_client import EngineClient
    from app.models.model_switch import ModelSwitch
    from app.settings import AppSettings
    from engine.service import protocol


class EngineSettings(QObject):
    """Also tells the answer policy what the loaded model can do."""

    said = Signal(str)  # text of a toast
    moving = Signal()  # the engine is about to move to another process or thread, which ends its answer

    def __init__(self, engine: EngineClient, switch: ModelSwitch, policy: AnswerPolicy) -> None:
        super().__init__()
        self._engine, self._switch, self._policy = engine, switch, policy
        engine.loaded.connect(self._model_loaded)

    def take(self, settings: AppSettings) -> None:
        """Apply new settings: sampling from the next answer on; engine settings reload the model."""
        before, self._policy.settings = self._policy.settings, settings
        self._switch.settings = settings
        is_off = self._engine.status.phase is Phase.OFF
        if settings.engine_location != before.engine_location:
            self.moving.emit()
            self._engine.move(settings.engine_location)
            if is_off:
                self._engine.unload()
            else:
                self._switch.load()
        elif is_off:
            pass  # the next load applies it
        elif settings.device != before.device:
            self._switch.load()
        elif settings.engine() != before.engine():
            self._switch.load_soon()
        elif settings.mode != before.mode:
            self._warn_without_predictors()

    def _model_loaded(self, info: protocol.LoadedModelInfo) -> None:
        self._policy.has_predictors = info.has_predictors
        if info.gpu_notes:
            self.said.emit(plain_figures(info.gpu_notes[-1]).rstrip("."))
        self._warn_without_predictors()

    def _warn_without_predictors(self) -> None:
        """Tell the user if sparse mode is set but the model has no predictors. The setting stays for other models."""
        if self._policy.settings.mode == "sparse" and not self._policy.has_predictors:
            name = self._engine.status.model or tr("This model")
            self.said.emit(tr("{name} has no predictors, so its neurons are chosen automatically", name=name))
