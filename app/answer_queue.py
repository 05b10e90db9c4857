"""Answers that are asked for: one runs, the others wait for their turn or for the engine.

It hands conversations to the engine and the engine's words on. It stores and shows nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from app.asking import AnswerRequest
from app.conversation import Message, MessageState
from app.engine_client import EngineClient
from app.engine_process import EngineDied
from app.thinking import ThoughtClock
from engine import protocol

_ENDS = {"stop": MessageState.COMPLETE, "length": MessageState.LENGTH, "cancelled": MessageState.CANCELLED}


@dataclass
class Answer:
    """An answer on its way. `message` is its newest state; `request` gives what to ask, when its turn has come."""

    conversation_id: str
    message: Message
    request: Callable[[], AnswerRequest]
    may_start: bool = False  # its question is stored
    thoughts: ThoughtClock = field(default_factory=ThoughtClock)
    before: dict[str, Any] | None = None  # the figures of what is written on, where it is


class AnswerQueue(QObject):
    """First in, first out; an answer whose chat is left goes on."""

    grew = Signal(object, str)  # Answer, the new text
    ended = Signal(object, object)  # Answer in its final state, GenerationResult | None
    failed = Signal(object, object)  # Answer, protocol.Failed | EngineDied: why it ended so
    running_changed = Signal(object)  # id of the chat that is being answered, or None

    def __init__(self, engine: EngineClient) -> None:
        super().__init__()
        self._engine = engine
        self._waiting: deque[Answer] = deque()
        self._running: Answer | None = None
        engine.ready.connect(self.advance)
        engine.text.connect(self._text)
        engine.answered.connect(self._answered)
        engine.failed.connect(self._failed)
        engine.died.connect(self._died)

    def of(self, conversation_id: str | None) -> Answer | None:
        """The answer that runs or waits in a chat."""
        everyone = [*([self._running] if self._running else []), *self._waiting]
        return next((answer for answer in everyone if answer.conversation_id == conversation_id), None)

    @property
    def running(self) -> Answer | None:
        return self._running

    def add(self, answer: Answer) -> None:
        self._waiting.append(answer)
        self.advance()

    @Slot()
    def advance(self) -> None:
        """Begin the next answer, where the engine and the answer are ready for it."""
        if self._running is None and self._waiting and self._waiting[0].may_start and self._engine.is_ready:
            self._running = self._waiting.popleft()
            self._engine.ask(self._running.request())
            self.running_changed.emit(self._running.conversation_id)

    def allow_all(self) -> None:
        """Let the answers begin whose questions cannot be stored now."""
        for answer in self._waiting:
            answer.may_start = True
        self.advance()

    def stop(self, answer: Answer) -> None:
        """End an answer: a waiting one at once, the running one as soon as the engine has ended it."""
        if answer is self._running:
            self._engine.stop()
        else:
            self._waiting.remove(answer)
            self._end(answer, MessageState.CANCELLED)

    def abandon(self, state: MessageState, waiting_too: bool) -> None:
        """End the running answer without the engine."""
        if self._running is not None:
            self._end_running(state)
        while waiting_too and self._waiting:
            self._end(self._waiting.popleft(), state)

    # -------------------------------------------------------------- the engine's words

    @Slot(str)
    def _text(self, text: str) -> None:
        if self._running is not None:
            message = self._running.message
            self._running.message = replace(message, text=message.text + text)
            before = int((self._running.before or {}).get("tokens") or 0)
            self._running.thoughts.hear(text, time.monotonic(), before + self._engine.status.tokens)
            self.grew.emit(self._running, text)

    @Slot(object)
    def _answered(self, result: protocol.GenerationResult) -> None:
        stats = {key: value for key, value in asdict(result).items() if key != "text"}
        self._end_running(_ENDS.get(result.finish_reason, MessageState.COMPLETE), stats, result)

    @Slot(object)
    def _failed(self, failed: protocol.Failed) -> None:
        answer = self._end_running(MessageState.FAILED)
        if answer is not None:
            self.failed.emit(answer, failed)

    @Slot(object)
    def _died(self, died: EngineDied) -> None:
        answer = self._end_running(MessageState.INTERRUPTED)
        if answer is not None:
            self.failed.emit(answer, died)

    def _end_running(
        self,
        state: MessageState,
        stats: dict[str, Any] | None = None,
        result: protocol.GenerationResult | None = None,
    ) -> Answer | None:
        answer, self._running = self._running, None
        if answer is not None:
            self._end(answer, state, stats, result)
            self.running_changed.emit(None)
        return answer

    def _end(
        self,
        answer: Answer,
        state: MessageState,
        stats: dict[str, Any] | None = None,
        result: protocol.GenerationResult | None = None,
    ) -> None:
        tokens = (answer.before or {}).get("tokens") or 0
        answer.thoughts.stop(time.monotonic(), tokens + (stats or {}).get("tokens", self._engine.status.tokens))
        figures = {**(joined(answer.before, stats) or {}), **answer.thoughts.figures()}
        answer.message = replace(answer.message, state=state, stats=figures or None)
        self.ended.emit(answer, result)


def joined(before: dict[str, Any] | None, then: dict[str, Any] | None) -> dict[str, Any] | None:
    """The figures of an answer that was written on: of both pieces together where that is a sum, else the newer."""
    if not before or not then:
        return then or before
    out = {**then, "ttft_s": before.get("ttft_s", then.get("ttft_s"))}
    for name in ("tokens", "total_s"):
        if before.get(name) is not None and then.get(name) is not None:
            out[name] = before[name] + then[name]
    pieces = [(f.get("tokens"), f.get("decode_tok_s")) for f in (before, then)]
    known = [(tokens, rate) for tokens, rate in pieces if tokens and rate]
    if len(known) == len(pieces):
        out["decode_tok_s"] = sum(tokens for tokens, _ in known) / sum(tokens / rate for tokens, rate in known)
    return out
