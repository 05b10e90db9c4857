"""Answers one question with several models or modes, one after another, as versions of its answer in the chat.

The engine holds one model, so each model is loaded for its answers. At the end, the model from before is loaded again;
without one, the last model is unloaded.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QTimer, Signal

from app.chat.answers.answer_queue import Answer
from app.chat.chat_controller import ChatController
from app.chat.chat_memory import ChatMemory
from app.chat.chat_turns import STILL_ANSWERING
from app.chat.store.conversation import Attachment, Message, MessageState, Role
from app.clients.answer_request import AnswerRequest
from app.clients.engine_client import EngineClient
from app.clients.engine_process import EngineDied
from app.clients.engine_status import Phase
from app.clients.servers import Place
from app.translation import tr
from app.user_messages import UserMessage, describe, describe_engine_death

if TYPE_CHECKING:
    from engine.service import protocol

MOST_WAYS = 3
FAILURE = "failure"  # key in an answer's figures: why it failed, in a sentence


@dataclass(frozen=True)
class ModelChoice:
    """A model in a mode. model: as ModelSwitch.use takes it. mode: sparse, exact or dense; None: the model's own.
    place: a model of a server instead, which has no mode."""

    name: str
    model: str = ""
    mode: str | None = None
    place: Place | None = None

    @property
    def figures(self) -> dict[str, Any]:
        """The figures of an answer until it has its own."""
        if self.place is not None:
            return self.place.figures
        return {"model": self.name, **({"mode": self.mode} if self.mode else {})}


class SideBySide(QObject):
    """Create one per window. `changed`: the question, the models that wait, or whether it is running."""

    changed = Signal()

    def __init__(self, chat: ChatController, engine: EngineClient, memory: ChatMemory) -> None:
        super().__init__()
        self._chat, self._engine, self._memory = chat, engine, memory
        self.chat = ""
        self.question: Message | None = None
        self.waiting: deque[ModelChoice] = deque()
        self.is_running = False
        self._choice: ModelChoice | None = None  # that answers now
        self._now: Answer | None = None
        self.made: list[str] = []  # ids of the answers
        self._seed = 0
        self._before = self._wanted = ""  # wanted: what is loading or loaded, unless the user chose another one
        self._had_model = False
        self._starting = QTimer(self, singleShot=True, interval=0)
        self._starting.timeout.connect(self._let_start)
        chat.answers.ended.connect(self._ended)
        chat.answers.failed.connect(self._failed)
        engine.loaded.connect(self._loaded)
        engine.load_failed.connect(self._load_failed)
        engine.unloaded.connect(self._unloaded)
        engine.died.connect(self._died)

    def start(
        self,
        choices: Sequence[ModelChoice],
        text: str = "",
        attachments: tuple[Attachment, ...] = (),
        question: str = "",
    ) -> bool:
        """Answer a new question of the open chat, or its question with that id. Return False while it is answered, or
        if it is gone."""
        chat = self._chat
        if self.is_running or chat.answers.of(chat.opened.id) is not None or chat.rounds.is_running(chat.opened.id):
            chat.toast.emit(tr(STILL_ANSWERING), "warn")
            return False
        known = (self._memory.messages(chat.opened.id) if chat.opened.id else None) or []
        asked = next((one for one in known if one.id == question and one.role is Role.USER), None)
        if question and asked is None:  # another chat was opened meanwhile, or the question was deleted
            return False
        if chat.opened.id is not None:
            chat.problems.solve("answer", "attachment", chat=chat.opened.id)
            chat.rounds.stop(chat.opened.id)
        self.question = asked
        if self.question is None:
            self.chat = chat.begin(text or attachments[0].name)
            self.question = chat.turns.add_question(self.chat, text, attachments)
        else:
            assert chat.opened.id is not None
            self.chat = chat.opened.id
        sampling = chat.settings_for(self._memory.conversation(self.chat)).sampling
        seed = sampling.get("seed")
        self._seed = random.getrandbits(31) if seed is None else seed  # one for all: only model and mode differ
        self._before = self._wanted = chat.switch.wanted
        self._had_model = self._engine.status.phase not in (Phase.OFF, Phase.FAILED)
        self.waiting, self.made, self.is_running = deque(choices), [], True
        self._next()
        return True

    def _next(self) -> None:
        if not self.waiting:
            self._end()
            return
        assert self.question is not None
        choice = self._choice = self.waiting.popleft()
        self._now = self._chat.turns.add_version(self.chat, self.question, choice.figures, choice.place, self._request)
        self.made.append(self._now.message.id)
        self.changed.emit()
        self._starting.start()  # by then the queue has reported the end of the answer before

    def _request(self, request: AnswerRequest) -> AnswerRequest:
        mode = self._choice.mode if self._choice is not None else None
        sampling = {**request.sampling, "seed": self._seed}
        return replace(request, mode=mode, sampling=sampling, tools=(), fresh=True)

    def _let_start(self) -> None:
        """Start the answer if its model is loaded, else load that."""
        choice, switch = self._choice, self._chat.switch
        if choice is None or self._now is None or self._now.may_start:
            return
        if choice.place is None and switch.wanted not in (self._wanted, choice.model):
            self._leave()
        elif choice.place is not None or (self._engine.has_model and switch.model == choice.model):
            self._now.may_start = True
            self._chat.answers.advance()
        else:
            self._bring(choice.model)

    def _bring(self, model: str) -> None:
        """Load a model, unless it is loaded or loading."""
        if self._chat.switch.wanted != model or self._engine.status.phase in (Phase.OFF, Phase.FAILED):
            self._chat.failures.revive_engine()
            self._wanted = model
            self._chat.switch.use(model)

    def _end(self, goes_back: bool = True) -> None:
        """Show the first answer with text in the chat, and load the model from before, or none if there was none and
        nothing waits for it, unless the user chose another one. goes_back: whether the model is to be changed at all.
        """
        self._choice, self._now, self.is_running = None, None, False
        self.waiting.clear()
        messages = self._memory.messages(self.chat) or []
        shown = next((one.id for one in messages if one.id in self.made and one.text.strip()), "")
        if shown and self._memory.conversation(self.chat) is not None:
            self._memory.set_leaf(self.chat, shown)
            self._chat.turns.branch_changed.emit(self.chat, "")
        if goes_back and self._chat.switch.wanted == self._wanted:
            if self._had_model or self._chat.answers.has_any_here:
                self._bring(self._before)
            else:
                self._chat.switch.unload(self._before)
        self.changed.emit()

    # --- what happens

    def _ended(self, answer: Answer, result: object) -> None:
        if answer is not self._now:
            return
        self._now = None
        if answer.message.state is MessageState.CANCELLED:
            self._end()
        elif answer.message.state in (MessageState.COMPLETE, MessageState.LENGTH):
            self._next()
        else:  # the reason follows
            self._now = answer

    def _failed(self, answer: Answer, why: protocol.Failed | EngineDied) -> None:
        if answer is not self._now or self._choice is None:
            return
        if isinstance(why, EngineDied):
            words = describe_engine_death(why.reason, why.restarting, why.details)
        else:
            place = self._choice.place
            words = describe(why, during="answer", model=place.server.name if place else self._choice.name)
        self._chat.problems.solve("answer", chat=self.chat)
        self._tell(answer, words)

    def _tell(self, answer: Answer, words: UserMessage) -> None:
        """Store with an answer why it failed, for its column, and continue."""
        self._now = None
        message = next((m for m in self._memory.messages(self.chat) or [] if m.id == answer.message.id), None)
        if message is not None:
            why = f"{words.title}. {words.sentence}".strip()
            message = replace(message, stats={**(message.stats or {}), FAILURE: why})
            self._memory.update(self.chat, message)
            self._chat.turns.changed.emit(self.chat, message)
        self._next()

    def _loaded(self, info: object) -> None:
        if self._choice is None or self._choice.place is not None:
            return
        if self._chat.switch.model == self._choice.model:
            self._let_start()
        else:  # the user chose another one
            self._leave()

    def _load_failed(self, failed: protocol.Failed) -> None:
        if self._loads:
            self._chat.problems.solve("engine")
            self._give_up(describe(failed, during="load", model=self._choice.name if self._choice else ""))

    @property
    def _loads(self) -> bool:
        """Whether an answer waits for its model."""
        waits = self._now is not None and not self._now.may_start and not self._starting.isActive()
        return waits and self._choice is not None and self._choice.place is None

    def _give_up(self, words: UserMessage) -> None:
        answer, self._now = self._now, None  # its end is not a stop by the user
        assert answer is not None
        self._chat.answers.give_up(answer)
        self._tell(answer, words)

    def _unloaded(self) -> None:
        if self._choice is not None and self._choice.place is None:
            self._leave()

    def _died(self, died: EngineDied) -> None:
        if self.is_running:
            self._chat.problems.solve("answer", chat=self.chat)  # its column says it
            if self._loads and not died.restarting:
                self._give_up(describe_engine_death(died.reason, died.restarting, died.details))

    def _leave(self) -> None:
        """Stop: the model that answers is gone."""
        answer, self._now = self._now, None
        self._end(goes_back=False)
        if answer is not None:
            self._chat.answers.stop(answer)
        self._chat.toast.emit(tr("Comparison stopped"), None)
