"""How answers for the local API get on with the window's: on a GPU, with one cache for both, with models that go."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.gpu_machine import FakeGpuMachine
from samples.tiny_model import make_tiny_model

from engine.config import EngineConfig, SamplingConfig
from engine.job import Job
from engine.local_api import answering
from engine.local_api.answering import ApiAnswers
from engine.local_api.api_request import ApiRequest
from engine.local_api.failures import ApiError
from engine.local_api.parts import WholeAnswer
from engine.local_api.served import Target
from engine.local_api.turns import End, Line, Piece, Turn, TurnEvent
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel

PROMPT, OTHER = [1, 5, 9, 40, 7], [1, 8, 30, 12, 11, 10]
N_TOKENS = 6
NEVER = N_TOKENS + 1
GREEDY = SamplingConfig().changed({"temperature": 0, "max_tokens": N_TOKENS})


class Loop:
    """Stands in for the network's event loop: what is to be called there is called at once."""

    def call_soon_threadsafe(self, call: Callable[[TurnEvent], None], event: TurnEvent) -> None:
        call(event)


class TalkingWindow:
    """A window that wants something done once the API's answer has so many tokens; 0: while its prompt is read."""

    def __init__(self, model: LoadedModel, after: int, api_request: Callable[[TalkingWindow], None]) -> None:
        self.session: ChatSession | None = ChatSession(model)
        self.is_closed = False
        self.results: list[tuple[list[int], int]] = []
        self.turn: Turn | None = None
        self._after, self._api_request = after, api_request
        self._is_done = False

    def waits(self) -> bool:
        turn = self.turn
        return not self._is_done and turn is not None and turn.state != "waiting" and turn.tokens >= self._after

    def go_first(self) -> None:
        if self.waits():
            self._is_done = True
            self._api_request(self)

    def ask_load(self, model: str, client: str) -> None:
        raise AssertionError("no request may load a model")

    def model_beside(self, name: str, job: Job) -> LoadedModel:
        raise AssertionError("no request may load a model")

    def talk(self) -> None:
        """An answer to OTHER, and how much of it was in the cache already."""
        assert self.session is not None
        *events, last = self.session.generate(OTHER, GREEDY)
        self.results.append(([event.token_id for event in events], last.stats.reused_tokens))


def ask(window: TalkingWindow, **changes: Any) -> tuple[str, TurnEvent]:
    """The text and the end of an answer to PROMPT through the API."""
    line = Line(lambda: None)
    line.open()
    sampling = {"temperature": 0, "max_tokens": N_TOKENS}
    api_request = ApiRequest("completion", **{"model": "m", "prompt": PROMPT, "sampling": sampling, **changes})
    turn = Turn(api_request, "a test", Loop(), Target(api_request.model))  # type: ignore[arg-type]
    line.join(turn)
    window.turn = turn
    ApiAnswers(line, window).answer_waiting()
    events = [turn.events.get_nowait() for _ in range(turn.events.qsize())]
    assert line.described() == []
    return WholeAnswer.of(part for event in events if isinstance(event, Piece) for part in event.parts).text, events[-1]


def never(window: TalkingWindow) -> None:
    raise AssertionError("it wants nothing")


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "m")


@pytest.fixture
def model(tiny: Path) -> LoadedModel:
    return LoadedModel.load(tiny, EngineConfig(device="cpu", threads=1, backend="reference"))


@pytest.fixture
def on_gpu(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadedModel]:
    machine = FakeGpuMachine(tmp_path, monkeypatch)
    yield machine.load(tiny)
    for gpu in machine.gpus:
        gpu.close()


@pytest.mark.parametrize("after", [0, 1, 4])
@pytest.mark.parametrize("where", ["model", "on_gpu"])
def test_both_get_their_answers_whenever_the_window_comes(
    after: int, where: str, request: pytest.FixtureRequest
) -> None:
    loaded: LoadedModel = request.getfixturevalue(where)
    text, end = ask(TalkingWindow(loaded, NEVER, never))
    assert isinstance(end, End)
    assert end.tokens == N_TOKENS
    window = TalkingWindow(loaded, after, TalkingWindow.talk)
    window.talk()
    assert ask(window) == (text, end)
    (first, none_reused), (second, reused) = window.results
    assert (first, none_reused) == (second, 0)
    assert reused == len(OTHER) - 1


def test_without_room_for_a_second_cache_answers_follow_each_other(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, end = ask(TalkingWindow(model, NEVER, never))
    monkeypatch.setattr(answering, "_has_room", lambda model: False)
    window = TalkingWindow(model, 4, TalkingWindow.talk)
    assert ask(window) == (text, end)
    assert len(window.results) == 1


def unload(window: TalkingWindow) -> None:
    assert window.session is not None
    window.session.model.close()
    window.session = None


def load_another(window: TalkingWindow) -> None:
    assert window.session is not None
    window.session = ChatSession(dataclasses.replace(window.session.model))


def place_anew(window: TalkingWindow) -> None:
    assert window.session is not None
    assert window.session.model.on_gpu is not None
    window.session.model.on_gpu.make_room(at_once=True)


@pytest.mark.parametrize(
    ("where", "change"),
    [("model", unload), ("model", load_another), ("on_gpu", unload), ("on_gpu", place_anew)],
)
def test_an_answer_whose_model_goes_ends_in_words(
    where: str, change: Callable[[TalkingWindow], None], request: pytest.FixtureRequest
) -> None:
    _, end = ask(TalkingWindow(request.getfixturevalue(where), 2, change))
    assert isinstance(end, ApiError)
    assert (end.status, end.code) == (503, "interrupted")
    assert "ask again" in end.message


def test_another_model_than_the_one_that_was_asked_for_does_not_answer(model: LoadedModel) -> None:
    text, end = ask(TalkingWindow(model, NEVER, never), model="another")
    assert isinstance(end, ApiError)
    assert (text, end.code) == ("", "interrupted")


@pytest.mark.expects_log("A request of the local API failed")
def test_a_bug_of_ours_is_one_sentence_to_the_client(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ApiAnswers, "_asked", lambda *others: 1 // 0)
    text, end = ask(TalkingWindow(model, NEVER, never))
    assert isinstance(end, ApiError)
    assert (text, end.status, end.code) == ("", 500, "internal_error")
    assert "division" not in end.message
