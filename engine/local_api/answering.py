"""The engine's side of the local API: takes requests from the queue and answers them with the loaded model.

Answers have their own KV cache, so that the window's conversation keeps its prefix. The window has priority: an answer
pauses between two tokens, and a prompt in progress is restarted later. All of this runs in the engine's thread.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Protocol

from engine.errors import Cancelled, DeviceFailedError, HostMemoryError
from engine.job import Job
from engine.local_api.embeddings import too_long
from engine.local_api.failures import failure_of, interrupted, no_model
from engine.local_api.likelihoods import Notes
from engine.local_api.parts import PartsReader
from engine.local_api.prompts import Asked, asked, check_length, count_tokens
from engine.local_api.turns import Begun, End, Line, Piece, Turn, TurnEvent
from engine.session.grammar import Grammar, ToolGrammar
from engine.tool_calls.call_reader import CallReader, TextPart

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from engine.config import SamplingConfig
    from engine.local_api.failures import ApiError
    from engine.local_api.parts import Part
    from engine.session.chat_session import ChatSession
    from engine.session.generate import TokenEvent
    from engine.session.joint import JointSteps
    from engine.session.loaded_model import LoadedModel
    from engine.session.sampling import Sampler
    from native_kernels.backend import F32

log = logging.getLogger(__name__)

CHUNK_S = 0.15  # of a prompt, while another answer is decoded
CHUNK_ALONE_S = 1.0  # until other requests are looked for
KEPT_FREE_BYTES = 512 << 20  # of RAM, after its own cache is allocated
MOST_LOADS = 2  # that are asked for a request, if the window loads other models meanwhile


class Window(Protocol):
    """The methods of the window's engine that the API needs."""

    @property
    def session(self) -> ChatSession | None:
        """The window's session; None without a loaded model."""

    @property
    def is_closed(self) -> bool:
        """Whether the engine is closing."""

    def waits(self) -> bool:
        """Whether the window has requests for which other answers must pause."""

    def go_first(self) -> None:
        """Handle all requests of the window. The model may be another one afterwards."""

    def ask_load(self, model: str, client: str) -> None:
        """Ask for a model to be loaded, for which a client waits. ApiAnswers.load_ended follows, sooner or later."""

    def model_beside(self, name: str, job: Job) -> LoadedModel:
        """Return a model that makes vectors beside the window's. Raises: EngineError, Cancelled."""


class _NotLoadedError(Exception):
    """The model that a request names must be loaded first."""


class ApiAnswers:
    def __init__(self, line: Line, window: Window) -> None:
        self._line, self._window = line, window
        self._own: ChatSession | None = None  # made when first needed
        self._others: list[ChatSession] = []  # for further answers at once, made when needed
        self._joint: JointSteps | None = None
        self._events: Generator[TokenEvent] | None = None  # of the answer under way
        self._running: list[_Running] = []  # those under way at once
        self._has_memory = True  # no further cache has failed since the first of them began
        self._loads_for: Turn | None = None  # a load was asked for it, and none has ended since

    def clear(self) -> None:
        """Release the model before it is unloaded."""
        for one in self._running:
            one.close()
        if self._events is not None:
            self._events.close()
        self._own = self._events = self._joint = None
        self._others = []

    def answer_waiting(self) -> bool:
        """Answer queued requests until none is left, or the next one waits for its model. Return whether one was.

        Raises nothing: errors are sent to the clients.
        """
        has_answered = False
        while True:
            self._window.go_first()
            turn = None if self._window.is_closed else self._line.next()
            if turn is None:
                return has_answered
            end: TurnEvent
            try:
                if self._may_join(turn):
                    self._answer_together(turn)
                    has_answered = True
                    continue
                end = self._answer(turn)
            except _NotLoadedError:
                if self._waits_for_load(turn):
                    return has_answered
                end = interrupted("Hearth loaded another model instead. Ask again.")
            except Exception as error:  # noqa: BLE001 - the caller must get any error
                end = failure_of(error)
            has_answered = True
            self._line.finish(turn, end)

    def _waits_for_load(self, turn: Turn) -> bool:
        """Put a request back, and ask for its model. Return False if that was in vain before."""
        if self._loads_for is not turn:
            if turn.n_loads_asked == MOST_LOADS:
                return False
            turn.n_loads_asked += 1
            self._loads_for = turn
            self._window.ask_load(turn.target.load, turn.client)
        self._line.put_back(turn)
        return True

    def load_ended(self, load: str, failure: ApiError | None = None) -> None:
        """Record that the load of this model has ended, whether a client or the window asked for it.

        Call `answer_waiting` next. The request that waits for the model gets the failure, if any.
        """
        if failure is None:
            self._loads_for = None
        elif self._loads_for is not None and self._loads_for.target.load == load:
            turn, self._loads_for = self._loads_for, None
            self._line.fail(turn, failure)

    def _model(self, turn: Turn) -> LoadedModel:
        """Return the loaded model, if it is the one that a request means.

        Raises: ApiError if it is a different one, or none is loaded; _NotLoadedError if a load helps;
        UnsupportedModelError for an encoder, before the loaded model makes way.
        """
        window = self._window.session
        if window is not None and turn.target.is_model(window.model):
            return window.model
        if turn.target.load and not turn.has_begun:
            if self._loads_for is not turn:
                turn.target.check_answers()
            raise _NotLoadedError
        if window is None:
            raise no_model()
        raise interrupted("Another model has been loaded meanwhile; /v1/models says which.")

    def _embedding_model(self, turn: Turn, job: Job) -> LoadedModel:
        """Return the loaded model, or the one beside it. Raises: as `_model`, EngineError, Cancelled."""
        window, target = self._window.session, turn.target
        if target.load and not (window is not None and target.is_model(window.model)):
            return self._window.model_beside(target.load, job)
        return self._model(turn)

    def _session(self, turn: Turn) -> ChatSession:
        """Return a session with its own cache, or the window's if there is no memory for one. Raises: as `_model`."""
        self._model(turn)
        window = self._window.session
        assert window is not None, "its model is loaded"
        if self._own is None or self._own.model is not window.model:
            from engine.session.chat_session import ChatSession

            own = _has_room(window.model)
            self._own = ChatSession(window.model, adaptation=window.adaptation) if own else window
        if self._own is window:
            window.set_mode(None)
        return self._own

    def _answer(self, turn: Turn) -> End:
        """Raises: ApiError, EngineError."""
        if turn.api_request.what == "embedding":
            return self._embed(turn)
        if turn.api_request.counts:
            return End("stop", count_tokens(turn.api_request, self._model(turn)), 0, 0)
        while True:
            session = self._session(turn)
            events, telling = self._begin(turn, session, self._asked(session, turn))
            with closing(events) as self._events:
                end = self._pass_on(turn, session, self._events, telling)
            if self._window.is_closed:
                raise interrupted("Hearth is closing.")
            if end.finish_reason != "cancelled" or turn.is_gone:
                return end
            self._window.go_first()  # the prompt was put back: what of it was read is kept

    def _begin(self, turn: Turn, session: ChatSession, asked_for: Asked) -> tuple[Generator[TokenEvent], Telling]:
        """Return the events of an answer, and what sends them. Raises: EngineError."""
        grammar = _grammar(session.model, turn, asked_for)
        if asked_for.sampling.seed is not None:  # the same steps again: a prefix in the cache was other ones
            session.clear()
        if not turn.has_begun:
            turn.tell(Begun(len(asked_for.prompt)))
            turn.has_begun = True
        prompt, shown = asked_for.prompt, "" if asked_for.calls is None else asked_for.calls.texts
        notes = _notes_of(session.model, turn, len(asked_for.opened), shown)
        make = partial(_made, session, prompt, grammar, notes)
        stream = session.model.tokenizer.stream

        def stops() -> bool:
            return turn.is_gone or self._window.is_closed or (not turn.tokens and self._window.waits())

        events = session.generate(
            prompt, asked_for.sampling, Job(stops), partial(stream, turn.api_request.continues, shown), make
        )
        return events, Telling(turn, asked_for, notes)

    # --- several at once

    def _may_join(self, turn: Turn) -> bool:
        """Return whether a request may be answered together with others.

        One with a seed may not: its answer must not depend on them. Nor may one for another model.
        """
        window, api_request = self._window.session, turn.api_request
        if window is None or api_request.what == "embedding" or api_request.counts:
            return False
        if not turn.target.is_model(window.model) or window.model.engine.sequences == 1:
            return False
        if window.model.sampling.changed(api_request.sampling).seed is not None:
            return False
        return self._joint_of(window.model).most > 1 and self._session(turn) is not window

    def _joint_of(self, model: LoadedModel) -> JointSteps:
        if self._joint is None or not self._joint.serves(model):
            from engine.session.joint import JointSteps

            self._joint = JointSteps(model, None if self._window.session is None else self._window.session.adaptation)
        return self._joint

    def _answer_together(self, first: Turn) -> None:
        """Answer a request, and those after it that may join it, until all have ended. Sends all errors."""
        waiting: Turn | None = first
        self._has_memory = True
        while waiting is not None or self._running:
            if waiting is not None and not self._join_in(waiting):
                self._line.put_back(waiting)
            n_running = len(self._running)
            try:
                self._step_together()
                self._let_window()
                if self._joint is not None and len(self._running) < n_running:
                    self._joint.learn()
            except Exception:  # one that cannot continue fails by itself
                log.exception("An error between the steps of several answers")
            waiting = self._next_to_join()

    def _next_to_join(self) -> Turn | None:
        """Return the next request if it can be answered together with the others now.

        If that cannot be decided because of an error, the request is answered alone, and reports the error then.
        """
        turn, window = self._line.first(), self._window.session
        if turn is None or window is None or self._window.is_closed:
            return None
        try:
            may_join = self._may_join(turn) and len(self._running) < self._joint_of(window.model).most
            may_join = may_join and bool(self._unused(main := self._session(turn)) or self._may_add(main))
        except Exception:  # noqa: BLE001 - see above
            return None
        return self._line.next(turn) if may_join else None

    def _join_in(self, turn: Turn) -> bool:
        """Begin the answer to a request beside the others. Return False if memory is short for its cache now."""
        try:
            main = self._session(turn)
            asked_for = self._asked(main, turn)
            session = self._free_session(main, asked_for.prompt)
            if session is None:
                return False
            self._running.append(_Running(turn, session, *self._begin(turn, session, asked_for)))
        except Exception as error:  # noqa: BLE001 - the caller must get any error
            self._line.finish(turn, failure_of(error))
        return True

    def _free_session(self, main: ChatSession, prompt: list[int]) -> ChatSession | None:
        """Return the unused session whose cache has most of a prompt; None if there is no memory for another one."""
        from engine.session.chat_session import ChatSession

        free = self._unused(main)
        is_useful = any(session.context_used == 0 or session.n_shared(prompt) for session in free)
        if not is_useful and self._may_add(main):
            try:
                free.append(ChatSession(main.model, adaptation=main.adaptation))
            except (HostMemoryError, MemoryError) as error:
                log.info("No further answer begins: %s", error)
                self._has_memory = False
            else:
                self._others.append(free[-1])
        return max(free, key=lambda session: session.n_shared(prompt), default=None)

    def _unused(self, main: ChatSession) -> list[ChatSession]:
        """Return the sessions without an answer under way."""
        self._others = [one for one in self._others if one.model is main.model]
        used = {id(one.session) for one in self._running}
        return [session for session in (main, *self._others) if id(session) not in used]

    def _may_add(self, main: ChatSession) -> bool:
        """Return whether there may be another session, and is memory for it."""
        may_grow = self._has_memory and len(self._others) + 1 < self._joint_of(main.model).most
        return may_grow and _has_room(main.model)

    def _step_together(self) -> None:
        """Let each answer go one token further, and one answer whose prompt is computed one chunk."""
        decoding = [one for one in self._running if one.token is not None]
        for one in self._running:
            others = len(decoding) - (one.token is not None)
            one.session.turns.chunk_s = CHUNK_S if others else CHUNK_ALONE_S
        ready = [one for one in decoding if one.is_up_to_date]
        began, joint, is_together = time.perf_counter(), None, False
        try:
            joint = self._joint_of(self._running[0].session.model) if ready else None
            is_together = joint is not None and joint.is_together(len(ready))
            if joint is not None and is_together:
                joint.compute([(one.session, one.token) for one in ready if one.token is not None])
        except DeviceFailedError as error:
            self._fail_all(error)
        except Exception:
            log.exception("A step of %d answers is computed one by one", len(ready))
        for one in ready:
            self._advance(one)
        if joint is not None:
            joint.took(len(ready), is_together, time.perf_counter() - began)
        reading = [one for one in self._running if one.token is None]
        reading = reading[:1] + [one for one in reading[1:] if one.turn.is_gone]  # one chunk of one prompt
        for one in [one for one in decoding if one not in ready] + reading:
            self._advance(one)
        self._line.changed()

    def _advance(self, one: _Running) -> None:
        """Let one answer go one token, or one chunk of its prompt, further, if it has not ended meanwhile."""
        if one in self._running:
            end: TurnEvent | None
            try:
                end = one.advance()
            except Exception as error:  # noqa: BLE001 - the same
                end = failure_of(error)
            if isinstance(end, End) and end.finish_reason == "cancelled" and not one.turn.is_gone:
                self._begin_again(one)
            elif end is not None:
                self._finish(one, end)

    def _begin_again(self, one: _Running) -> None:
        """Begin an answer again whose prompt was put back for the window. What of it was read is kept."""
        if self._window.is_closed:
            self._finish(one, interrupted("Hearth is closing."))
            return
        self._let_window()
        if one in self._running:
            if (error := self._end(one)) is not None:
                self._line.finish(one.turn, failure_of(error))
            elif not self._join_in(one.turn):
                self._line.put_back(one.turn)

    def _let_window(self) -> None:
        """Let the window's requests go first. Answers whose model is gone or was placed again afterwards end."""
        if self._window.waits():
            self._window.go_first()
        session = self._window.session
        for one in list(self._running):
            if session is None or one.session.model is not session.model or one.is_displaced:
                self._finish(one, _taken_away())
            elif self._window.is_closed:
                self._finish(one, interrupted("Hearth is closing."))

    def _fail_all(self, error: DeviceFailedError) -> None:
        if self._running and (residency := self._running[0].session.model.residency):
            residency.after_failure(error)
        for one in list(self._running):
            self._finish(one, failure_of(error))

    def _finish(self, one: _Running, end: TurnEvent) -> None:
        error = self._end(one)
        self._line.finish(one.turn, end if error is None else failure_of(error))

    def _end(self, one: _Running) -> Exception | None:
        """End an answer without a word to its client. Return the error that this caused, if any."""
        self._running.remove(one)
        try:
            one.close()
        except Exception as error:  # noqa: BLE001 - the caller must get any error
            return error
        return None

    def _embed(self, turn: Turn) -> End:
        """Return the vectors of a request. The window's requests interrupt a batch, which is then begun again.

        Raises: ApiError, EngineError.
        """
        from engine.session.embeddings import batch, embed, most_tokens

        api_request = turn.api_request
        stops = Job(lambda: turn.is_gone or self._window.is_closed or self._window.waits())
        vectors: list[F32] = []
        while len(vectors) < len(api_request.inputs):
            self._window.go_first()
            if self._window.is_closed:
                raise interrupted("Hearth is closing.")
            if turn.is_gone:
                return End("cancelled", turn.tokens, 0, 0)
            given = api_request.inputs[len(vectors) :]
            try:
                model = self._embedding_model(turn, stops)
                most = most_tokens(model)
                for one in given:
                    check_length(len(one), most)
                ids = batch(model, given)
                for i, one in enumerate(ids, len(vectors)):
                    if len(one) > most:
                        raise too_long(i, len(one), most)
                vectors += list(embed(model, ids, api_request.dimensions, stops))
            except Cancelled:
                continue
            turn.tokens += sum(map(len, ids))
            self._line.changed()
        return End("stop", turn.tokens, 0, 0, vectors=tuple(vectors))

    def _pass_on(self, turn: Turn, session: ChatSession, events: Iterator[TokenEvent], telling: Telling) -> End:
        """Send the answer to the request, and let the window in between two tokens, unless the cache is its own."""
        for event in events:
            if (end := telling.tell(event)) is not None:
                return end
            self._line.changed()
            if session is not self._window.session and self._window.waits():
                generation = session.model.generation
                self._window.go_first()
                window = self._window.session
                if window is None or window.model is not session.model or session.model.generation != generation:
                    raise _taken_away()
        raise AssertionError("generate ends with a finish reason")

    def _asked(self, session: ChatSession, turn: Turn) -> Asked:
        return asked(turn.api_request, session.model, session.context_total)


class _Running:
    """An answer under way beside others. token: its last one, None as long as its prompt is computed."""

    def __init__(self, turn: Turn, session: ChatSession, events: Generator[TokenEvent], telling: Telling) -> None:
        self.turn, self.session, self.events = turn, session, events
        self.token: int | None = None
        self._telling, self._n_tokens = telling, 0
        self._generation: int | None = None  # of the model's placement, since the answer began

    @property
    def is_up_to_date(self) -> bool:
        """Whether the cache has all tokens of prompt and answer but the last one."""
        return self.session.cache.length == self._n_tokens - 1

    @property
    def is_displaced(self) -> bool:
        """Whether the model was placed again since the answer began."""
        return self._generation not in (None, self.session.model.generation)

    def advance(self) -> End | None:
        """Go to the next event; return the end, if it is the last. Raises: EngineError."""
        if self.is_displaced:
            raise _taken_away()
        event = next(self.events)
        if self._generation is None:  # only now: at its beginning, the model may be placed again
            self._generation = self.session.model.generation
        if event.token_id is not None:
            self.token, self._n_tokens = event.token_id, event.stats.prompt_tokens + event.stats.tokens
        return self._telling.tell(event)

    def close(self) -> None:
        self.session.turns.logits = self.session.turns.chunk_s = None
        self.events.close()


class Telling:
    """Sends one answer to its request, part by part. thought_tokens: those of its thought so far."""

    def __init__(self, turn: Turn, asked_for: Asked, notes: Notes | None) -> None:
        self._turn, self._notes, self._opened = turn, notes, asked_for.opened
        api_request = turn.api_request
        calls = None if asked_for.calls is None else CallReader(asked_for.calls, api_request.use.tools)
        self._parts = PartsReader(calls, asked_for.stops) if api_request.what == "chat" else None
        self.thought_tokens = 0

    @property
    def stop_text(self) -> str:
        """The text that ended the answer, if it is one of Asked.stops."""
        return "" if self._parts is None else self._parts.stop_text

    @property
    def has_called(self) -> bool:
        """Whether the answer has calls of tools, all of which have ended."""
        return self._parts is not None and self._parts.has_called

    def tell(self, event: TokenEvent) -> End | None:
        """Send what an event adds to the answer; return its end, if this is the last."""
        text, end = event.text, event.finish_reason
        if event.token_id is not None:
            text, self._opened = self._opened + text, ""
            self._turn.tokens += 1
            if self._notes is not None:
                self._notes.token(event.token_id)
        shown = () if self._notes is None else self._notes.tokens_of(text, end is not None)
        if self._parts is None:
            parts: tuple[Part, ...] = (TextPart(text),) if text else ()
        else:
            was_thinking = self._parts.is_thinking
            parts = self._parts.append(text) + (() if end is None else self._parts.finish(end != "stop"))
            self.thought_tokens += event.token_id is not None and (was_thinking or self._parts.is_thinking)
        if parts or shown:
            self._turn.tell(Piece(parts, shown))
        reason = "stop" if self.stop_text else end
        if reason is None:
            return None
        stats = event.stats
        return End(
            "tool_calls" if self.has_called and reason == "stop" else reason,
            stats.prompt_tokens, stats.reused_tokens, stats.tokens, event.stop_text or self.stop_text,
            self.thought_tokens,
        )  # fmt: skip


def _taken_away() -> ApiError:
    return interrupted("The model was reloaded or unloaded during the answer; ask again.")


def _grammar(model: LoadedModel, turn: Turn, asked_for: Asked) -> Grammar | None:
    """Raises: InvalidRequestError."""
    constraint, use = turn.api_request.constraint, turn.api_request.use
    if asked_for.calls is not None:
        return ToolGrammar(asked_for.calls, use, model.tokenizer, model.vocabulary, constraint)
    if constraint is None:
        return None
    return Grammar(constraint, model.vocabulary, covers_thoughts=turn.api_request.what == "completion")


def _made(
    session: ChatSession, prompt: list[int], grammar: Grammar | None, notes: Notes | None, sampling: SamplingConfig
) -> Sampler:  # fmt: skip
    made = session.sampler_for(prompt, sampling, grammar)
    return made if notes is None else notes.watched(made)


def _notes_of(model: LoadedModel, turn: Turn, first_char: int, shown: str) -> Notes | None:
    if turn.api_request.alternatives is None:
        return None
    tokenizer = model.tokenizer
    return Notes(turn.api_request.alternatives, tokenizer.token_bytes, tokenizer.stream(shown=shown), first_char)


def _has_room(model: LoadedModel) -> bool:
    """Return whether the RAM has space for another cache of the whole context, even if little of it is used."""
    import psutil

    from engine.machine.cpu_and_ram import memory_limits, read_ram
    from engine.model.kv_cache import KVCache

    need = KVCache.bytes_for(model.opened.config, model.context, model.kv_codec)
    return need + KEPT_FREE_BYTES <= read_ram(psutil, memory_limits()).free_bytes
