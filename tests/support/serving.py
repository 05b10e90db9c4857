"""An engine that serves the starter model through the local API, and scripts of what the model says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.config import SamplingConfig
from engine.local_api.turns import Turn
from engine.service import protocol
from engine.service.host import EngineHost
from engine.service.protocol import ServerState
from engine.text.tokenizer import Tokenizer
from engine.tool_calls.call_format import Call

KEY = "a-key-for-tests"
PATIENCE_S = 60.0
QUESTION = [{"role": "user", "content": "What is the capital of Peru?"}]
ANSWER = "Lima is the capital of Peru."
WEATHER = {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"], "additionalProperties": False,
}  # fmt: skip
NOW = {"type": "object", "properties": {"zone": {"enum": ["utc", "local"]}}, "additionalProperties": False}
CALLS = [Call("get_weather", {"city": "Lima", "days": 2}), Call("now", {"zone": "utc"})]


class Serving:
    """An engine that runs in a thread of its own and serves the starter model.

    at_token: called in the engine's thread after each token of an answer through the API.
    """

    def __init__(self) -> None:
        self.events: list[protocol.Event] = []
        self._arrived = threading.Condition()
        self.host = EngineHost(self._take)
        self.on_event: Callable[[protocol.Event], None] = lambda event: None
        self.at_token: Callable[[Turn], None] = lambda turn: None
        self._thread = threading.Thread(target=self.host.run_pending, args=(True,))
        self._thread.start()

    def _take(self, event: protocol.Event) -> None:
        with self._arrived:
            self.events.append(event)
            self._arrived.notify_all()
        self.on_event(event)

    def until(self, wanted: Callable[[protocol.Event], bool]) -> Any:
        """The first event that is so, however long ago it came."""

        def found() -> list[protocol.Event]:
            return [event for event in list(self.events) if wanted(event)]

        with self._arrived:
            assert self._arrived.wait_for(lambda: bool(found()), PATIENCE_S)
        return found()[0]

    def end_of(self, request: protocol.Request) -> Any:
        """How the request ended."""
        self.host.submit(request)
        return self.until(lambda event: is_end(event, request.id))

    def serve(self, name: str, port: int = 0, key: str = KEY, on: bool = True) -> ServerState:
        end = self.end_of(protocol.Serve(name, on, port, key))
        assert isinstance(end, protocol.Finished), end
        return ServerState.from_dict(end.result)

    def news(self, wanted: Callable[[ServerState], bool]) -> ServerState:
        """The state told last, once it is so."""

        def last() -> ServerState:
            told = [event for event in self.events if isinstance(event, protocol.News) and event.topic == "server"]
            return ServerState.from_dict(told[-1].values) if told else ServerState()

        with self._arrived:
            assert self._arrived.wait_for(lambda: wanted(last()), PATIENCE_S), last()
            return last()

    def close(self) -> None:
        self.host.close()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def is_end(event: protocol.Event, request_id: str) -> bool:
    return isinstance(event, protocol.Finished | protocol.Failed) and event.id == request_id


class Scripted:
    """A sampler that prefers the tokens of a text, and after them random ones. begin: the prompt's length, if known."""

    def __init__(self, tokens: Sequence[int], seed: int = 0, begin: int = -1) -> None:
        self._tokens, self._draw, self._begin = list(tokens), np.random.default_rng(seed), begin

    def __call__(self, logits: np.ndarray, history: Sequence[int]) -> int:
        if self._begin < 0:
            self._begin = len(history)
        at = len(history) - self._begin
        if at < len(self._tokens) and logits[self._tokens[at]] > -1e29:
            return self._tokens[at]
        return int(np.argmax(np.where(logits > -1e29, self._draw.random(logits.size), -np.inf)))


class Script:
    """What the model says in the next answers, as far as it may."""

    def __init__(self, tokenizer: Tokenizer, stop: int) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        self.text, self.seed = "", 0

    def sampler(self, sampling: SamplingConfig) -> Scripted:
        return Scripted([*self._tokenizer.encode(self.text), self._stop], self.seed)
