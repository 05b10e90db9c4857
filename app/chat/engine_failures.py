"""Reports what failed in the engine (a load, an answer, the process itself) and restarts it where that helps."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject

from app.clients.engine_process import EngineDied
from app.models.model_switch import STARTER
from app.user_messages import UserMessage, describe, describe_engine_death

if TYPE_CHECKING:
    from app.chat.answers.answer_queue import Answer
    from app.clients.engine_client import EngineClient
    from app.models.model_switch import ModelSwitch
    from app.problems import Problems
    from engine.service import protocol


class EngineFailures(QObject):
    """Problems of the kinds "engine" and, for a chat, "answer"."""

    def __init__(self, engine: EngineClient, switch: ModelSwitch, problems: Problems) -> None:
        super().__init__()
        self._engine, self._switch, self._problems = engine, switch, problems
        self._cut_short = ""  # the chat whose answer the engine's death ended
        self._gave_up = False  # the engine died too often to be restarted automatically
        engine.load_failed.connect(self._load_failed)
        engine.ready.connect(partial(problems.solve, "engine"))
        engine.died.connect(self._died)
        self._may_reload = True  # by itself after the GPU was lost; once until the GPU answers again
        engine.gpu_lost.connect(self._gpu_lost)
        engine.answered.connect(self._answered)

    def revive_engine(self) -> None:
        """Start the engine again if it died too often to be restarted automatically."""
        if self._gave_up:
            self.restart_engine()

    def restart_engine(self) -> None:
        """Start the engine's process again."""
        self._gave_up = False
        self._engine.restart()

    def answer_failed(self, answer: Answer, why: protocol.Failed | EngineDied) -> None:
        """Report a failed answer to its chat. A failed GPU is lost to the process only, so restart that."""
        chat, elsewhere = answer.conversation_id, answer.place
        if isinstance(why, EngineDied):
            self._cut_short = chat  # _died follows
            return
        message = (
            self._describe(why, "answer")
            if elsewhere is None
            else describe(why, during="answer", model=elsewhere.server.name)
        )
        self._problems.report("answer", message, chat)
        if why.error == "DeviceFailedError":
            self._engine.restart()
            self._switch.load()

    def _gpu_lost(self) -> None:
        """Load the model into a new process, where the GPU or another one may work."""
        if self._may_reload:
            self._may_reload = False
            self._switch.load()

    def _answered(self) -> None:
        self._may_reload = self._may_reload or bool(self._engine.status.gpu)

    def _load_failed(self, failed: protocol.Failed) -> None:
        self._problems.report("engine", self._switch.with_way_back(self._describe(failed, "load")))

    def _describe(self, failed: protocol.Failed, during: Any) -> UserMessage:
        name = self._engine.status.model or self._switch.name
        return describe(failed, during=during, model=name, is_starter=self._switch.wanted == STARTER)

    def _died(self, died: EngineDied) -> None:
        message = describe_engine_death(died.reason, died.restarting, died.details)
        chat, self._cut_short = self._cut_short, ""
        self._gave_up = not died.restarting
        if died.restarting and chat:  # shown until the question is sent again
            self._problems.report("answer", message, chat)
            return
        if died.restarting:  # nothing was lost, so there is nothing to send again
            message = replace(message, remedy="", remedy_action="")
        self._problems.report("engine", message)
