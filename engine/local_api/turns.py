"""The request queue of the engine: first come, first served; events return to the clients through it.

The network's thread adds requests and receives events; the engine's thread takes requests and emits events.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from engine.local_api.failures import ApiError, interrupted

if TYPE_CHECKING:
    from engine.local_api.api_request import ApiRequest
    from engine.local_api.likelihoods import TokenLikelihood
    from engine.local_api.parts import Part
    from engine.local_api.served import Target
    from engine.session.generate import FinishReason
    from native_kernels.backend import F32

MOST_WAITING = 16
State = Literal["waiting", "answering", "over"]


@dataclass(frozen=True)
class Begun:
    """The engine has started the request, and its prompt fits."""

    prompt_tokens: int = 0


@dataclass(frozen=True)
class Piece:
    """More of the answer. tokens: those of this text, if probabilities were requested."""

    parts: tuple[Part, ...] = ()
    tokens: tuple[TokenLikelihood, ...] = ()


@dataclass(frozen=True)
class End:
    """The answer is complete. stop_text: the stop text that ended it, if one did. thought_tokens: of `tokens`.

    vectors: of embeddings, one [d] for each input.
    """

    finish_reason: FinishReason | Literal["tool_calls"]
    prompt_tokens: int
    reused_tokens: int
    tokens: int
    stop_text: str = ""
    thought_tokens: int = 0
    vectors: tuple[F32, ...] = ()


TurnEvent = Begun | Piece | End | ApiError


@dataclass(eq=False)
class Turn:
    """A queued or running request. tell: thread-safe; events arrive in order."""

    api_request: ApiRequest
    client: str  # the client's own name
    loop: asyncio.AbstractEventLoop
    target: Target
    events: asyncio.Queue[TurnEvent] = field(default_factory=asyncio.Queue)
    state: State = "waiting"
    tokens: int = 0
    has_begun: bool = False  # the client knows that it is answered
    n_loads_asked: int = 0  # how often its model was asked to be loaded
    _gone: threading.Event = field(default_factory=threading.Event)

    def tell(self, event: TurnEvent) -> None:
        try:
            self.loop.call_soon_threadsafe(self.events.put_nowait, event)
        except RuntimeError:  # the server was switched off
            self._gone.set()

    def leave(self) -> None:
        """Abandon the answer."""
        self._gone.set()

    @property
    def is_gone(self) -> bool:
        return self._gone.is_set()


class Line:
    """Thread-safe. changed: called after every change, wake: after a new request."""

    def __init__(self, wake: Callable[[], None], changed: Callable[[], None] = lambda: None) -> None:
        self._wake, self.changed = wake, changed
        self._waiting: deque[Turn] = deque()
        self._current: list[Turn] = []
        self._lock = threading.Lock()
        self._is_open = False
        self.answered = 0

    def open(self) -> None:
        with self._lock:
            self._is_open, self.answered = True, 0

    def close(self, why: str) -> None:
        """End all requests with this reason, and refuse new ones."""
        with self._lock:
            self._is_open = False
            turns = [*self._waiting, *self._current]
            self._waiting.clear()
        for turn in turns:
            turn.tell(interrupted(why))
            turn.leave()
        self.changed()

    def join(self, turn: Turn) -> None:
        """Raises: ApiError if the queue is full or closed."""
        with self._lock:
            if not self._is_open:
                raise interrupted("The server is being switched off.")
            self._waiting = deque(other for other in self._waiting if not other.is_gone)
            if len(self._waiting) >= MOST_WAITING:
                raise ApiError(
                    429, "queue_full", f"{MOST_WAITING} requests wait already; ask again later.",
                    headers={"Retry-After": "2"},
                )  # fmt: skip
            self._waiting.append(turn)
        self.changed()
        self._wake()

    def leave(self, turn: Turn) -> None:
        """Remove a request whose client left or is done."""
        turn.leave()
        with self._lock:
            was_waiting = turn in self._waiting
            if was_waiting:
                self._waiting.remove(turn)
        self.changed()
        if was_waiting:  # it may have waited for its model, and the others for it
            self._wake()

    def first(self) -> Turn | None:
        """Return the request that waits longest."""
        with self._lock:
            return next((turn for turn in self._waiting if not turn.is_gone), None)

    def next(self, wanted: Turn | None = None) -> Turn | None:
        """Return the next request, which belongs to the engine until `finish`; None if it is not the wanted one."""
        with self._lock:
            while self._waiting and self._waiting[0].is_gone:
                self._waiting.popleft()
            if not self._waiting or wanted not in (None, self._waiting[0]):
                return None
            turn = self._waiting.popleft()
            turn.state = "answering"
            self._current.append(turn)
        self.changed()
        return turn

    def put_back(self, turn: Turn) -> None:
        """Let the request wait again, as the first."""
        with self._lock:
            turn.state = "waiting"
            self._leave_engine(turn)
            self._waiting.appendleft(turn)
        self.changed()

    def fail(self, turn: Turn, failure: ApiError) -> None:
        """End a request that waits."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
        self.finish(turn, failure)

    def finish(self, turn: Turn, event: TurnEvent) -> None:
        """Emit the last event. The state changes first, so that the client finds it changed."""
        with self._lock:
            turn.state = "over"
            self._leave_engine(turn)
            self.answered += isinstance(event, End) and event.finish_reason != "cancelled"
        turn.tell(event)
        self.changed()

    def _leave_engine(self, turn: Turn) -> None:
        if turn in self._current:
            self._current.remove(turn)

    def described(self) -> list[dict[str, Any]]:
        """Return the running and queued clients, for display."""
        with self._lock:
            turns = [*self._current, *self._waiting]
            return [
                {"client": turn.client, "what": turn.api_request.what, "state": turn.state, "tokens": turn.tokens}
                for turn in turns
                if not turn.is_gone
            ]
