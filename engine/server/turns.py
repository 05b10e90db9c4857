"""The line in front of the engine: requests wait here, first come, first served, and their answers go back from here.

The network's thread puts requests in and listens, the engine's takes them out and tells. Nothing here computes.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from engine.server.failures import ApiError, interrupted

if TYPE_CHECKING:
    from engine.server.api_request import ApiRequest
    from engine.server.likelihoods import TokenLikelihood
    from engine.session.generate import FinishReason

MOST_WAITING = 16
State = Literal["waiting", "answering", "over"]


@dataclass(frozen=True)
class Begun:
    """The engine has taken the api_request up, and its prompt fits."""


@dataclass(frozen=True)
class Piece:
    """More of the answer. tokens: those whose text this is, where probabilities were asked for."""

    text: str
    tokens: tuple[TokenLikelihood, ...] = ()


@dataclass(frozen=True)
class End:
    """The answer is complete."""

    finish_reason: FinishReason
    prompt_tokens: int
    reused_tokens: int
    tokens: int


TurnEvent = Begun | Piece | End | ApiError


@dataclass(eq=False)
class Turn:
    """A api_request on its way. tell: may be called from any thread; what was told is heard in order."""

    api_request: ApiRequest
    client: str  # what it calls itself
    loop: asyncio.AbstractEventLoop
    events: asyncio.Queue[TurnEvent] = field(default_factory=asyncio.Queue)
    state: State = "waiting"
    tokens: int = 0
    _gone: threading.Event = field(default_factory=threading.Event)

    def tell(self, event: TurnEvent) -> None:
        try:
            self.loop.call_soon_threadsafe(self.events.put_nowait, event)
        except RuntimeError:  # the server has been switched off: nobody listens any more
            self._gone.set()

    def leave(self) -> None:
        """Nobody waits for the answer any more."""
        self._gone.set()

    @property
    def is_gone(self) -> bool:
        return self._gone.is_set()


class Line:
    """All methods may be called from any thread. changed: called after whatever changed, wake: after a new turn."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: deque[Turn] = deque()
        self._current: Turn | None = None
        self._lock = threading.Lock()
        self._is_open = False
        self.changed: Callable[[], None] = lambda: None
        self.answered = 0

    def open(self) -> None:
        with self._lock:
            self._is_open, self.answered = True, 0

    def close(self, why: str) -> None:
        """Whoever waits or is being answered hears why not, and nobody is let in from here on."""
        with self._lock:
            self._is_open = False
            turns = [*self._waiting, *([] if self._current is None else [self._current])]
            self._waiting.clear()
        for turn in turns:
            turn.tell(interrupted(why))
            turn.leave()
        self.changed()

    def join(self, turn: Turn) -> None:
        """Raises: ApiError where the line is full, or closed."""
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
        """Its client is gone, or has heard everything."""
        turn.leave()
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
        self.changed()

    def next(self) -> Turn | None:
        """Whose turn it is; the engine's until `finish`."""
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                if not turn.is_gone:
                    turn.state, self._current = "answering", turn
                    break
            else:
                return None
        self.changed()
        return turn

    def finish(self, turn: Turn, event: TurnEvent) -> None:
        """The last that its client hears; changed state first, so that who heard it finds it so."""
        with self._lock:
            turn.state, self._current = "over", None
            self.answered += isinstance(event, End) and event.finish_reason != "cancelled"
        turn.tell(event)
        self.changed()

    def described(self) -> list[dict[str, Any]]:
        """Who talks to the model and who waits to, for people."""
        with self._lock:
            turns = [*([] if self._current is None else [self._current]), *self._waiting]
            return [
                {"client": turn.client, "what": turn.api_request.what, "state": turn.state, "tokens": turn.tokens}
                for turn in turns
                if not turn.is_gone
            ]
