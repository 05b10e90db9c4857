"""Answers that are asked for: one runs, the others wait for their turn or for the engine.

It hands conversations to the engine, or to the server elsewhere that the chat chose, and their words on. It stores and
shows nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from PySide6.QtCore import QObject, Signal, Slot

from app.chat.answers.thinking import ThoughtClock
from app.chat.conversation import Message, MessageState
from app.clients.answer_request import Answered, AnswerRequest
from app.clients.engine_client import EngineClient
from app.clients.engine_process import EngineDied
from app.clients.engine_status import EngineStatus
from app.clients.remote_client import RemoteClient
from app.clients.servers import Place
from engine.service import protocol

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
    place: Place | None = None  # the server that was chosen when it was asked for; None: this PC


class Answerer(Protocol):
    """Who gives answers: the engine, or a server elsewhere."""

    @property
    def is_ready(self) -> bool: ...

    status: EngineStatus

    def ask(self, request: AnswerRequest) -> None: ...

    def stop(self) -> None: ...


class AnswerQueue(QObject):
    """First in, first out among those that wait for the same; an answer whose chat is left goes on."""

    grew = Signal(object, str)  # Answer, the new text
    ended = Signal(object, object)  # Answer in its final state, GenerationResult | None
    failed = Signal(object, object)  # Answer, protocol.Failed | EngineDied: why it ended so
    running_changed = Signal(object)  # id of the chat that is being answered, or None

    def __init__(self, engine: EngineClient, remote: RemoteClient | None = None) -> None:
        super().__init__()
        self._engine, self._remote = engine, remote
        self._waiting: deque[Answer] = deque()
        self._running: Answer | None = None
        self._connect(engine)
        engine.died.connect(partial(self._failed, engine))
        if remote is not None:
            self._connect(remote)

    def _connect(self, client: EngineClient | RemoteClient) -> None:
        client.ready.connect(self.advance)
        client.text.connect(partial(self._text, client))
        client.answered.connect(partial(self._answered, client))
        client.failed.connect(partial(self._failed, client))

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
        answer = self._next() if self._running is None else None
        if answer is not None:
            self._waiting.remove(answer)
            self._running = answer
            self._who(answer).ask(replace(answer.request(), place=answer.place))
            self.running_changed.emit(answer.conversation_id)

    def _next(self) -> Answer | None:
        """The first that can begin: what waits for the engine holds up nothing that is sent elsewhere, nor the other
        way round."""
        passed: set[bool] = set()
        for answer in self._waiting:
            elsewhere = answer.place is not None
            if elsewhere not in passed and answer.may_start and self._who(answer).is_ready:
                return answer
            passed.add(elsewhere)
        return None

    def _who(self, answer: Answer) -> Answerer:
        """Who gives an answer. Never another one than was chosen when it was asked for."""
        if answer.place is None:
            return self._engine
        assert self._remote is not None, "a place is a server's"
        return self._remote

    def allow_all(self) -> None:
        """Let the answers begin whose questions cannot be stored now."""
        for answer in self._waiting:
            answer.may_start = True
        self.advance()

    def stop(self, answer: Answer) -> None:
        """End an answer: a waiting one at once, the running one as soon as the engine has ended it."""
        if answer is self._running:
            self._who(answer).stop()
        else:
            self._waiting.remove(answer)
            self._end(answer, MessageState.CANCELLED)

    def abandon(self, state: MessageState, waiting_too: bool) -> None:
        """End the running answer without the engine; waiting_too: all there are, also elsewhere."""
        if self._running is not None and (waiting_too or self._running.place is None):
            if self._running.place is not None and self._remote is not None:
                self._remote.leave()
            self._end_running(state)
        while waiting_too and self._waiting:
            self._end(self._waiting.popleft(), state)

    # -------------------------------------------------------------- events of engine and servers

    def _running_at(self, client: Answerer) -> Answer | None:
        """The running answer if that client gives it."""
        return self._running if self._running is not None and self._who(self._running) is client else None

    def _text(self, client: Answerer, text: str) -> None:
        if (answer := self._running_at(client)) is None:
            return
        answer.message = replace(answer.message, text=answer.message.text + text)
        before = int((answer.before or {}).get("tokens") or 0)
        answer.thoughts.hear(text, time.monotonic(), before + client.status.tokens)
        self.grew.emit(answer, text)

    def _answered(self, client: Answerer, end: Answered) -> None:
        if self._running_at(client) is not None:
            state = _ENDS.get(end.finish_reason, MessageState.COMPLETE)
            self._end_running(state, end.figures, end.result)

    def _failed(self, client: Answerer, why: protocol.Failed | EngineDied) -> None:
        answer = self._running_at(client)
        if answer is not None:
            self._end_running(MessageState.INTERRUPTED if isinstance(why, EngineDied) else MessageState.FAILED)
            self.failed.emit(answer, why)

    # -------------------------------------------------------------- the end of an answer

    def _end_running(
        self,
        state: MessageState,
        stats: dict[str, Any] | None = None,
        result: protocol.GenerationResult | None = None,
    ) -> None:
        answer, self._running = self._running, None
        if answer is not None:
            self._end(answer, state, stats, result)
            self.running_changed.emit(None)

    def _end(
        self,
        answer: Answer,
        state: MessageState,
        stats: dict[str, Any] | None = None,
        result: protocol.GenerationResult | None = None,
    ) -> None:
        tokens = (answer.before or {}).get("tokens") or 0
        answer.thoughts.stop(time.monotonic(), tokens + (stats or {}).get("tokens", self._who(answer).status.tokens))
        figures = {**(joined(answer.before, stats) or {}), **answer.thoughts.figures()}
        if answer.place is not None:
            figures.pop("thought_tokens", None)  # nobody counts them
            figures |= answer.place.figures  # however it ended
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
