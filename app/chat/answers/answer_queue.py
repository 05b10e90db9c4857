"""Queue of answers: one runs, the others wait for it or for the engine.

It sends requests to the engine or to the chat's server, and passes their text on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from PySide6.QtCore import QObject, Signal, Slot

from app.chat.answers.inspection import Inspection
from app.chat.store.conversation import CallState, Message, MessageState, ToolCall
from app.clients.answer_request import Answered, AnswerRequest
from app.clients.engine_client import EngineClient
from app.clients.engine_process import EngineDied
from app.clients.engine_status import EngineStatus
from app.clients.remote_client import RemoteClient
from app.clients.servers import Place
from app.text.thinking import ThoughtClock
from engine.service import protocol

_ENDS = {"stop": MessageState.COMPLETE, "length": MessageState.LENGTH, "cancelled": MessageState.CANCELLED}


@dataclass
class Answer:
    """An answer in progress. `message` is its newest state. `request` builds the request when the answer starts."""

    conversation_id: str
    message: Message
    request: Callable[[], AnswerRequest]
    may_start: bool = False  # its question is stored
    searching: bool = False  # what of the documents goes along with its question is not known yet
    thoughts: ThoughtClock = field(default_factory=ThoughtClock)
    before: dict[str, Any] | None = None  # figures of the answer that is continued, if any
    record: Inspection | None = None  # of tokens: at first what the answer begins with, in the end all of it
    place: Place | None = None  # the server chosen with the question; None: this PC
    sent: AnswerRequest | None = None  # once it was sent
    who: dict[str, Any] = field(default_factory=dict)  # figures to keep if the answer ends without any


class Answerer(Protocol):
    """Gives answers: the engine, or the client of servers."""

    @property
    def is_ready(self) -> bool: ...

    status: EngineStatus

    def ask(self, request: AnswerRequest) -> None: ...

    def stop(self) -> None: ...


class AnswerQueue(QObject):
    """First in, first out, separately for this PC and for servers. An answer continues when its chat is closed."""

    grew = Signal(object, str)  # Answer, the new text
    ended = Signal(object, object)  # Answer in its final state, GenerationResult | None
    failed = Signal(object, object)  # Answer, protocol.Failed | EngineDied
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

    @property
    def everyone(self) -> list[Answer]:
        """The running answer and those that wait."""
        return [*([self._running] if self._running else []), *self._waiting]

    def of(self, conversation_id: str | None) -> Answer | None:
        """Return the running or waiting answer of a chat."""
        return next((answer for answer in self.everyone if answer.conversation_id == conversation_id), None)

    @property
    def running(self) -> Answer | None:
        return self._running

    @property
    def has_any_here(self) -> bool:
        """Whether an answer of this PC runs or waits."""
        return any(answer.place is None for answer in self.everyone)

    def add(self, answer: Answer) -> None:
        self._waiting.append(answer)
        self.advance()

    @Slot()
    def advance(self) -> None:
        """Start the next answer if it and its client are ready."""
        answer = self._next() if self._running is None else None
        if answer is not None:
            self._waiting.remove(answer)
            self._running = answer
            answer.sent = replace(answer.request(), place=answer.place)
            self._who(answer).ask(answer.sent)
            self.running_changed.emit(answer.conversation_id)

    def _next(self) -> Answer | None:
        """Return the first answer that can start. Answers that wait for the engine do not block those of servers, or
        vice versa."""
        passed: set[bool] = set()
        for answer in self._waiting:
            elsewhere = answer.place is not None
            if elsewhere not in passed and answer.may_start and not answer.searching and self._who(answer).is_ready:
                return answer
            passed.add(elsewhere)
        return None

    def _who(self, answer: Answer) -> Answerer:
        """Return the client of an answer: the one chosen with the question, never another."""
        if answer.place is None:
            return self._engine
        assert self._remote is not None, "a place is a server's"
        return self._remote

    def allow_all(self) -> None:
        """Start answers whose questions cannot be stored now."""
        for answer in self._waiting:
            answer.may_start = True
        self.advance()

    def stop(self, answer: Answer) -> None:
        """Stop an answer: a waiting one at once, the running one as soon as its client has ended it."""
        if answer is self._running:
            self._who(answer).stop()
        else:
            self._waiting.remove(answer)
            self._end(answer, MessageState.CANCELLED)

    def give_up(self, answer: Answer) -> None:
        """End a waiting answer as failed."""
        self._waiting.remove(answer)
        self._end(answer, MessageState.FAILED)

    def abandon(self, state: MessageState, waiting_too: bool) -> None:
        """End the running answer without its client. waiting_too: end all answers, also those of servers."""
        if self._running is not None and (waiting_too or self._running.place is None):
            if self._running.place is not None and self._remote is not None:
                self._remote.leave()
            self._end_running(state)
        while waiting_too and self._waiting:
            self._end(self._waiting.popleft(), state)

    # --- events of engine and servers

    def _running_at(self, client: Answerer) -> Answer | None:
        return self._running if self._running is not None and self._who(self._running) is client else None

    def _text(self, client: Answerer, text: str) -> None:
        if (answer := self._running_at(client)) is None:
            return
        answer.message = replace(answer.message, text=answer.message.text + text)
        before = int((answer.before or {}).get("tokens") or 0)
        answer.thoughts.take(text, time.monotonic(), before + client.status.tokens)
        self.grew.emit(answer, text)

    def _answered(self, client: Answerer, end: Answered) -> None:
        if self._running_at(client) is not None:
            state = _ENDS.get(end.finish_reason, MessageState.COMPLETE)
            if self._running is not None and end.result is not None:
                calls = tuple(
                    ToolCall(one["id"], one["name"], one["arguments"], CallState.NOT_RUN) for one in end.result.calls
                )
                self._running.message = replace(self._running.message, calls=calls)
                if end.inspected is None:
                    self._running.record = None
                else:
                    begun = self._running.record or Inspection()
                    self._running.record = begun.followed_by(Inspection.of(end.inspected, end.result.model))
            self._end_running(state, end.figures, end.result)

    def _failed(self, client: Answerer, why: protocol.Failed | EngineDied) -> None:
        answer = self._running_at(client)
        if answer is not None:
            self._end_running(MessageState.FAILED)
            self.failed.emit(answer, why)

    # --- the end of an answer

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
        figures = {**answer.who, **(joined(answer.before, stats) or {}), **answer.thoughts.figures()}
        if answer.place is not None:
            figures.pop("thought_tokens", None)  # not counted by servers
            figures |= answer.place.figures  # however the answer ended
        if answer.sent is not None and figures.get("summary"):  # the last message that it stands for
            figures["summary_to"] = answer.sent.said[figures["summarised"] - 1]
        if answer.sent is not None and figures.get("dropped_messages"):
            replaced = (figures.get("summarised") or answer.sent.summarised) - answer.sent.summarised
            at = replaced + (figures.get("dropped_at") or 0)
            figures["left_out"] = answer.sent.n_of_chat(at, figures["dropped_messages"])
        answer.message = replace(answer.message, state=state, stats=figures or None)
        self.ended.emit(answer, result)


def joined(before: dict[str, Any] | None, then: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the figures of a continued answer: sums over both parts where that makes sense, else the newer value."""
    if not before or not then:
        return then or before
    out = {**then, "ttft_s": before.get("ttft_s", then.get("ttft_s"))}
    for name in ("tokens", "total_s", "guessed_tokens", "accepted_tokens"):
        if before.get(name) is not None and then.get(name) is not None:
            out[name] = before[name] + then[name]
    sources = [figures.get("guesses") or {} for figures in (before, then)]
    if any(sources):
        both = {name for source in sources for name in source}
        parts = {name: [one.get(name, (0, 0)) for one in sources] for name in both}
        out["guesses"] = {name: [a + c, b + d] for name, ((a, b), (c, d)) in parts.items()}
    pieces = [(f.get("tokens"), f.get("decode_tok_s")) for f in (before, then)]
    known = [(tokens, rate) for tokens, rate in pieces if tokens and rate]
    if len(known) == len(pieces):
        out["decode_tok_s"] = sum(tokens for tokens, _ in known) / sum(tokens / rate for tokens, rate in known)
    return out
