"""The engine's side of the local API: takes requests from the queue and answers them with the loaded model.

Answers have their own KV cache, so that the window's conversation keeps its prefix. The window has priority: an answer
pauses between two tokens, and a prompt in progress is restarted later. All of this runs in the engine's thread.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Protocol

from engine.errors import ContextOverflowError
from engine.job import Job
from engine.server.failures import failure_of, interrupted, no_model
from engine.server.likelihoods import Notes
from engine.server.served import ServedModel
from engine.server.turns import Begun, End, Line, Piece, Turn, TurnEvent
from engine.session.grammar import Grammar
from engine.text.context_fit import most_chars

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from engine.config import SamplingConfig
    from engine.session.chat_session import ChatSession
    from engine.session.generate import TokenEvent
    from engine.session.loaded_model import LoadedModel
    from engine.session.sampling import Sampler

KEPT_FREE_BYTES = 512 << 20  # of RAM, after its own cache is allocated


class Window(Protocol):
    """What is needed of the window's engine."""

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


class ApiAnswers:
    """Answers the requests of the local API."""

    def __init__(self, line: Line, window: Window) -> None:
        self._line, self._window = line, window
        self._own: ChatSession | None = None  # made when first needed
        self._events: Generator[TokenEvent] | None = None  # of the answer under way

    def forget(self) -> None:
        """Release the model before it is unloaded."""
        if self._events is not None:
            self._events.close()
        self._own = self._events = None

    def answer_waiting(self) -> None:
        """Answer queued requests until none is left. Raises nothing: errors are sent to the clients."""
        while True:
            self._window.go_first()
            turn = None if self._window.is_closed else self._line.next()
            if turn is None:
                return
            end: TurnEvent
            try:
                end = self._answer(turn)
            except Exception as error:  # noqa: BLE001 - whatever it is, who asked must hear of it
                end = failure_of(error)
            self._line.finish(turn, end)

    def _session(self, model: str) -> ChatSession:
        """Return a session with its own cache, or the window's if there is no memory for one.

        Raises: ApiError if no model is loaded, or a different one.
        """
        window = self._window.session
        if window is None:
            raise no_model()
        if not ServedModel.of(window.model).answers_to(model):
            raise interrupted("Another model has been loaded meanwhile; /v1/models says which.")
        if self._own is None or self._own.model is not window.model:
            from engine.session.chat_session import ChatSession

            own = _has_room(window.model)
            self._own = ChatSession(window.model, adaptation=window.adaptation) if own else window
        if self._own is window:
            window.set_mode(None)
        return self._own

    def _answer(self, turn: Turn) -> End:
        """Raises: ApiError, EngineError."""
        has_begun = False
        while True:
            session = self._session(turn.api_request.model)
            model = session.model
            prompt, sampling, opened = self._asked(session, turn)
            schema = turn.api_request.schema
            grammar = None if schema is None else Grammar(schema, model.vocabulary)
            if sampling.seed is not None:  # the same answer again needs the same steps: a prefix found was other ones
                session.forget()
            if not has_begun:
                turn.tell(Begun())
                has_begun = True
            notes = _notes_of(model, turn, len(opened))
            make = partial(_made, session, prompt, grammar, notes)

            def stops(turn: Turn = turn) -> bool:
                return turn.is_gone or self._window.is_closed or (not turn.tokens and self._window.waits())

            with closing(session.generate(prompt, sampling, Job(stops), make=make)) as self._events:
                end = self._pass_on(turn, session, self._events, notes, opened)
            if self._window.is_closed:
                raise interrupted("Hearth is closing.")
            if end.finish_reason != "cancelled" or turn.is_gone:
                return end
            self._window.go_first()  # the prompt was put back: what of it was read is kept

    def _pass_on(
        self, turn: Turn, session: ChatSession, events: Iterator[TokenEvent], notes: Notes | None, opened: str
    ) -> End:
        """Send generated text to the request, and let the window in between two tokens, unless the cache is its own."""
        for event in events:
            text = event.text
            if event.token_id is not None:
                text, opened = opened + text, ""
                turn.tokens += 1
                if notes is not None:
                    notes.token(event.token_id)
            shown = () if notes is None else notes.told(text, event.finish_reason is not None)
            if text or shown:
                turn.tell(Piece(text, shown))
            if event.finish_reason is not None:
                stats = event.stats
                return End(event.finish_reason, stats.prompt_tokens, stats.reused_tokens, stats.tokens)
            self._line.changed()
            if session is not self._window.session and self._window.waits():
                generation = session.model.generation
                self._window.go_first()
                window = self._window.session
                if window is None or window.model is not session.model or session.model.generation != generation:
                    raise interrupted("The model was loaded anew or taken away in the middle of the answer; ask again.")
        raise AssertionError("generate ends with a finish reason")

    def _asked(self, session: ChatSession, turn: Turn) -> tuple[list[int], SamplingConfig, str]:
        """Return prompt, sampling, and the marker of a thought that the prompt opens.

        Raises: ContextOverflowError, and errors of the chat template and the sampling.
        """
        api_request, model = turn.api_request, session.model
        sampling = model.sampling.changed(api_request.sampling)
        given = (
            [api_request.prompt]
            if api_request.what == "completion"
            else [message["content"] for message in api_request.messages]
        )
        if sum(map(len, given)) > most_chars(session.context_total):
            raise ContextOverflowError(
                f"The request is far longer than the context, which holds {session.context_total} tokens."
            )
        if api_request.what == "chat":
            fitted = session.fit(api_request.messages, sampling.max_tokens, "stop", thinking=sampling.thinking)
            return fitted.prompt, model.chat_sampling(sampling), model.tokenizer.opened_thought(fitted.prompt)
        if isinstance(api_request.prompt, list):
            return api_request.prompt, sampling, ""
        tokenizer = model.tokenizer
        return tokenizer.encode(api_request.prompt, special=True, add_bos=tokenizer.adds_bos), sampling, ""


def _made(
    session: ChatSession, prompt: list[int], grammar: Grammar | None, notes: Notes | None, sampling: SamplingConfig
) -> Sampler:  # fmt: skip
    made = session.sampler_for(prompt, sampling, grammar)
    return made if notes is None else notes.watched(made)


def _notes_of(model: LoadedModel, turn: Turn, first_char: int) -> Notes | None:
    if turn.api_request.alternatives is None:
        return None
    tokenizer = model.tokenizer
    return Notes(turn.api_request.alternatives, tokenizer.token_bytes, tokenizer.stream(), first_char)


def _has_room(model: LoadedModel) -> bool:
    """Return whether the RAM has space for another cache of the whole context, even if little of it is used."""
    import psutil

    from engine.machine.cpu_and_ram import memory_limits, read_ram
    from engine.model.kv_cache import KVCache

    need = KVCache.bytes_for(model.opened.config, model.context, model.kv_codec)
    return need + KEPT_FREE_BYTES <= read_ram(psutil, memory_limits()).free_bytes
