"""Several requests of the local API answered at once: each gets what it gets alone, and none stops the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.batch_operators import FakeBatchOps
from fakes.gpu_machine import FakeGpuMachine
from samples.recurrent_model import make_recurrent_model
from samples.tiny_model import make_tiny_model
from test_api_answering import Loop

from engine.config import EngineConfig
from engine.errors import DeviceFailedError, HostMemoryError
from engine.executor.adaptation import Adaptation
from engine.gpu import loaded_part
from engine.gpu.residency import GpuResidency
from engine.job import Job
from engine.local_api import answering
from engine.local_api.answering import ApiAnswers
from engine.local_api.api_request import ApiRequest
from engine.local_api.failures import ApiError
from engine.local_api.parts import WholeAnswer
from engine.local_api.served import Target
from engine.local_api.turns import Begun, End, Line, Piece, Turn, TurnEvent
from engine.model.counters import FfnCounters
from engine.session import generate, joint
from engine.session.chat_session import ChatSession
from engine.session.constraint import Constraint
from engine.session.grammar import Grammar
from engine.session.joint import PROBE_EVERY, JointSteps, Pace
from engine.session.loaded_model import LoadedModel

LONG = [1, *[5 + (7 * i) % 40 for i in range(200)]]
ROUNDED = 0.15  # of a logarithm of a probability, in products of 8 bits
PROMPTS: list[list[int]] = [[1, 5, 9, 40, 7], LONG, [1, 8, 30], [1, 5, 9, 40, 7, 12, 11], [1, 6]]


class Window:
    """A window that is asked for nothing until `at`, called between two tokens, says so."""

    def __init__(self, model: LoadedModel) -> None:
        self.session: ChatSession | None = ChatSession(model)
        self.is_closed = False
        self.at: Callable[[], Callable[[], None] | None] = lambda: None
        self._todo: Callable[[], None] | None = None

    def waits(self) -> bool:
        self._todo = self._todo or self.at()
        return self._todo is not None

    def go_first(self) -> None:
        todo, self._todo = self._todo, None
        if todo is not None:
            todo()

    def ask_load(self, model: str, client: str) -> None:
        raise AssertionError("no request may load a model")

    def model_beside(self, name: str, job: Job) -> LoadedModel:
        raise AssertionError("no request may load a model")


class ToldTurn(Turn):
    """A request with all that its client was told, in one order for all."""

    log: list[tuple[Turn, TurnEvent]]

    def tell(self, event: TurnEvent) -> None:
        self.log.append((self, event))


def answers(
    window: Window, prompts: Sequence[list[int]], each: Callable[[list[Turn]], None] = lambda turns: None, **how: Any
) -> tuple[list[str], list[TurnEvent], list[tuple[int, TurnEvent]]]:
    """The texts and ends of answers to the prompts, all of which wait from the beginning, and the order of events."""
    line, log, turns = Line(lambda: None), list[tuple[Turn, TurnEvent]](), list[Turn]()
    line.open()
    for i, prompt in enumerate(prompts):
        sampling = {"temperature": 0, "max_tokens": 6 + 3 * i, **how.get("sampling", {})}
        model, alternatives = how.get("model", "m"), how.get("alternatives")
        constraint = how.get("constraints", {}).get(i)
        api_request = ApiRequest(
            "completion", model, prompt=prompt, sampling=sampling, alternatives=alternatives, constraint=constraint
        )
        turn = ToldTurn(api_request, f"client {i}", Loop(), Target(model))  # type: ignore[arg-type]
        turn.log = log
        line.join(turn)
        turns.append(turn)
    each(turns)
    ApiAnswers(line, window).answer_waiting()
    assert line.described() == []
    told = [(turns.index(turn), event) for turn, event in log]  # type: ignore[arg-type]
    texts = [
        WholeAnswer.of(part for i, event in told if i == n and isinstance(event, Piece) for part in event.parts).text
        for n in range(len(turns))
    ]
    ends = [[event for i, event in told if i == n][-1] for n in range(len(turns)) if turns[n].state == "over"]
    return texts, ends, told


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "m", max_context=320)


def load(folder: Path, sequences: int, **how: Any) -> LoadedModel:
    return LoadedModel.load(folder, EngineConfig(**{"device": "cpu", "threads": 1, "sequences": sequences, **how}))


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many answers went together in each step."""
    found: list[int] = []
    compute = JointSteps.compute

    def noted(steps: JointSteps, ready: Any) -> None:
        compute(steps, ready)
        found.append(sum(session.turns.logits is not None for session, _ in ready))

    monkeypatch.setattr(JointSteps, "compute", noted)
    monkeypatch.setattr(Pace, "is_together", lambda pace, n: True)
    return found


@pytest.mark.parametrize("how", [{"backend": "reference"}, {"mode": "exact"}, {"mode": "dense"}])
def test_each_gets_what_it_gets_alone(folder: Path, how: dict[str, Any], sizes: list[int]) -> None:
    alone = answers(Window(load(folder, 1, **how)), PROMPTS)
    assert sizes == []
    together = answers(Window(load(folder, 3, **how)), PROMPTS)
    assert together[0] == alone[0]
    for one, other in zip(together[1], alone[1], strict=True):
        assert isinstance(one, End)
        assert isinstance(other, End)
        assert (one.tokens, one.prompt_tokens, one.finish_reason) == (
            other.tokens, other.prompt_tokens, other.finish_reason
        )  # fmt: skip
    assert {2, 3} <= set(sizes)
    assert all(alone[0])
    assert max(sizes) == 3


def agree_up_to_rounding(alone: LoadedModel, together: LoadedModel, rounded: float) -> None:
    """Both models say the same until two tokens are about as likely."""
    prompts = [alone.tokenizer.encode(text) for text in ("Once upon a time", "The fox", "What is", "I like to eat")]
    how: dict[str, Any] = {"model": "Pip", "alternatives": 2, "sampling": {"max_tokens": 40}}
    found = []
    for model in (alone, together):
        _, _, told = answers(Window(model), prompts, **how)
        found.append(
            [[t for i, event in told if i == n and isinstance(event, Piece) for t in event.tokens] for n in range(4)]
        )
    n_compared = 0
    for one, other in zip(*found, strict=True):
        assert len(one) > 5
        for token, same in zip(one, other, strict=False):
            if token.text != same.text:
                likeliest, second = (choice.logprob for choice in token.others)
                assert likeliest - second < 2 * rounded
                break
            assert abs(token.logprob - same.logprob) < rounded
            n_compared += 1
    assert n_compared > 40


def test_the_starter_model_says_the_same_up_to_rounding(sizes: list[int]) -> None:
    """Its weights have 8 bits, and products of one and of several rows round their inputs differently."""
    agree_up_to_rounding(load(Path("starter-chat"), 1), load(Path("starter-chat"), 4), ROUNDED)
    assert max(sizes) == 4


@pytest.mark.gpu
@pytest.mark.usefixtures("own_gpu")
def test_a_real_gpu_says_the_same_up_to_rounding(sizes: list[int]) -> None:
    how = {"device": "cuda", "vram_budget_gib": 1.0}
    alone, together = load(Path("starter-chat"), 1, **how), load(Path("starter-chat"), 4, **how)
    try:
        agree_up_to_rounding(alone, together, ROUNDED)
        assert max(sizes) == 4
    finally:
        together.close()
        alone.close()


def test_the_faster_way_is_measured_for_each_number() -> None:
    pace, ways = Pace(), dict[int, list[bool]]()
    for n, together_s, alone_s in ((2, 3.0, 2.0), (3, 3.0, 4.0)):
        for _ in range(4 + 2 * PROBE_EVERY):
            way = pace.is_together(n)
            ways.setdefault(n, []).append(way)
            first = len(ways[n]) in (1, 3)  # compiles
            pace.took(n, way, 100.0 if first else together_s if way else alone_s)
        assert ways[n][:4] == [True, True, False, False]
        assert ways[n][4:].count(n == 2) == 2, "the slower way is measured again"


def test_a_batch_is_never_faster_if_it_takes_longer_than_so_many_single_tokens() -> None:
    pace = Pace()
    for n, together, seconds in ((1, False, 9.0), (1, False, 2.0), (3, True, 9.0), (3, True, 9.0)):
        assert pace.is_ever_faster(4), "not yet known"
        pace.took(n, together, seconds)
    assert not pace.is_ever_faster(4)
    assert pace.is_ever_faster(5)


def test_a_batch_that_waited_for_the_prompt_of_another_answer_is_not_given_up() -> None:
    """Between two steps, its sequences have left the GPU's memory for a chunk of the prompt, and come back."""
    pace = Pace()
    for n, together, seconds in ((1, False, 2.0), (1, False, 2.0), (2, True, 3.0), (2, True, 3.0), (2, True, 90.0)):
        pace.took(n, together, seconds)
    assert pace.is_ever_faster(4)


def test_they_begin_in_order_and_no_more_than_allowed(folder: Path) -> None:
    _, _, told = answers(Window(load(folder, 2)), PROMPTS)
    assert [i for i, event in told if isinstance(event, Begun)] == [0, 1, 2, 3, 4]
    running: set[int] = set()
    for i, event in told:
        running = running - {i} if isinstance(event, End) else running | {i}
        assert len(running) <= 2


def test_a_long_prompt_lets_the_others_go_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "CHUNK_S", 1e-9)
    _, _, told = answers(Window(load(folder, 2)), [PROMPTS[0], LONG], sampling={"max_tokens": 30})
    first = next(n for n, (i, event) in enumerate(told) if i == 1 and isinstance(event, Piece))
    between = [event for i, event in told[:first] if i == 0 and isinstance(event, Piece)]
    assert len(between) >= len(LONG) // 32 - 1


def test_a_client_that_leaves_takes_nobody_along(folder: Path) -> None:
    model = load(folder, 3)
    texts, _, _ = answers(Window(model), PROMPTS)
    window = Window(model)

    def leaves(turns: list[Turn]) -> None:
        def at() -> None:
            if turns[0].tokens == 2:
                turns[0].leave()

        window.at = at

    found, ends, _ = answers(window, PROMPTS, leaves)
    assert isinstance(ends[0], End)
    assert (ends[0].finish_reason, ends[0].tokens) == ("cancelled", 2)
    assert found[1:] == texts[1:]


@pytest.mark.parametrize("tokens", [0, 1, 4])
def test_the_window_goes_first(folder: Path, tokens: int) -> None:
    model = load(folder, 3)
    texts, _, _ = answers(Window(model), PROMPTS)
    window, said = Window(model), list[int]()

    def comes(turns: list[Turn]) -> None:
        def at() -> Callable[[], None] | None:
            if said or turns[1].state != "answering" or turns[1].tokens < tokens:
                return None
            return talk

        def talk() -> None:
            assert window.session is not None
            sampling = model.sampling.changed({"temperature": 0, "max_tokens": 4})
            said.extend(event.token_id for event in window.session.generate([1, 9, 9, 8], sampling) if event.token_id)

        window.at = at

    assert answers(window, PROMPTS, comes)[0] == texts
    assert len(said) >= 1


def test_a_model_that_goes_ends_all(folder: Path) -> None:
    window = Window(load(folder, 3))
    running: list[int] = []

    def goes(turns: list[Turn]) -> None:
        def at() -> Callable[[], None] | None:
            return unload if turns[0].tokens == 3 and window.session is not None else None

        def unload() -> None:
            running.extend(turn.tokens for turn in turns if turn.state == "answering")
            window.session = None

        window.at = at

    _, ends, _ = answers(window, PROMPTS, goes)
    assert len(running) == 3
    assert [end.code for end in ends if isinstance(end, ApiError)] == ["interrupted"] * 3 + ["no_model"] * 2


def test_a_request_with_a_seed_is_answered_alone(folder: Path, sizes: list[int]) -> None:
    answers(Window(load(folder, 3)), PROMPTS, sampling={"seed": 3, "temperature": 1.0})
    assert sizes == []


def test_without_memory_for_further_caches_they_follow_each_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    alone = answers(Window(load(folder, 1)), PROMPTS)[0]
    has_room = iter([True])
    monkeypatch.setattr(answering, "_has_room", lambda model: next(has_room, False))
    assert answers(Window(load(folder, 3)), PROMPTS)[0] == alone
    assert sizes == []


def test_a_step_that_fails_ends_those_in_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compute, calls = JointSteps.compute, [0]

    def fails(steps: JointSteps, ready: Any) -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise DeviceFailedError("It failed.")
        compute(steps, ready)

    monkeypatch.setattr(JointSteps, "compute", fails)
    _, ends, _ = answers(Window(load(folder, 2)), PROMPTS[2:5])
    assert [getattr(end, "code", "") for end in ends] == ["device_failed"] * 2 + [""]


@pytest.mark.parametrize("make", [partial(make_tiny_model, max_context=320), make_recurrent_model])
@pytest.mark.parametrize("error", [HostMemoryError("It is used up."), MemoryError()])
def test_a_step_without_memory_is_computed_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], make: Any, error: Exception
) -> None:
    folder = make(tmp_path / "m")
    alone = answers(Window(load(folder, 1)), PROMPTS)[0]
    decode, calls = joint.decode_batch, [0]

    def fails(*given: Any) -> Any:
        calls[0] += 1
        logits = None if calls[0] % 3 == 0 else decode(*given)  # before or after the step
        if calls[0] % 3 < 2:
            raise error
        return logits

    monkeypatch.setattr(joint, "decode_batch", fails)
    assert answers(Window(load(folder, 3)), PROMPTS)[0] == alone
    assert {0, 3} <= set(sizes)


def test_masks_are_computed_while_others_compute(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    here, compute = list[int](), Grammar.most

    def counted(grammar: Grammar, matcher: Any) -> Any:
        here.extend([1] if threading.current_thread() is threading.main_thread() else [])
        return compute(grammar, matcher)

    monkeypatch.setattr(Grammar, "most", counted)
    constraints = {i: Constraint("regex", "[a-z]{2}(x|y)[0-9 ]{2,30}!") for i in range(4)}
    alone = answers(Window(load(folder, 1)), PROMPTS[:4], constraints=constraints)[0]
    here.clear()
    assert answers(Window(load(folder, 4)), PROMPTS[:4], constraints=constraints)[0] == alone
    assert max(sizes) == 4
    assert len(here) == 4, "of the first tokens alone"


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(where, marks=pytest.mark.expects_log("several answers" if where == "learn" else "one by one"))
        for where in ("is_together", "learn", "_step")
    ],
)
def test_an_error_between_the_steps_ends_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], where: str
) -> None:
    alone, calls, work = answers(Window(load(folder, 1)), PROMPTS)[0], [0], getattr(JointSteps, where)

    def fails(steps: JointSteps, *given: Any) -> Any:
        calls[0] += 1
        done = work(steps, *given)
        if calls[0] % 3 == 2:
            raise ZeroDivisionError
        return done

    monkeypatch.setattr(JointSteps, where, fails)
    texts, ends, _ = answers(Window(load(folder, 3)), PROMPTS)
    assert texts == alone
    assert all(isinstance(end, End) for end in ends)
    assert calls[0] > 2


@pytest.mark.expects_log("A request of the local API")
@pytest.mark.parametrize("where", ["advance", "close"])
def test_an_error_of_one_answer_ends_no_other(folder: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    alone, work = answers(Window(load(folder, 1)), PROMPTS)[0], getattr(answering._Running, where)

    def fails(one: Any) -> Any:
        done = work(one)
        if one.turn.client == "client 1" and one.token is not None:
            raise ZeroDivisionError
        return done

    monkeypatch.setattr(answering._Running, where, fails)
    texts, ends, _ = answers(Window(load(folder, 3)), PROMPTS)
    assert [getattr(end, "code", "") for end in ends] == ["", "internal_error", "", "", ""]
    assert [text for i, text in enumerate(texts) if i != 1] == [text for i, text in enumerate(alone) if i != 1]


@pytest.mark.parametrize("raises", [False, True])
def test_without_memory_for_a_further_cache_a_request_waits(
    folder: Path, monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    alone = answers(Window(load(folder, 1)), PROMPTS)[0]
    asked, n_asked = answering.asked, [0]
    has_room, is_first, new_cache = iter([True]), iter([True]), LoadedModel.new_cache
    window = Window(load(folder, 4))

    def counted(*arguments: Any) -> Any:
        n_asked[0] += 1
        return asked(*arguments)

    def made(*arguments: Any) -> Any:
        if not next(is_first, False):
            raise HostMemoryError("It is used up.")
        return new_cache(*arguments)

    monkeypatch.setattr(answering, "asked", counted)
    monkeypatch.setattr(answering, "_has_room", lambda model: next(has_room, raises))
    monkeypatch.setattr(LoadedModel, "new_cache", made)
    assert answers(window, PROMPTS)[0] == alone
    assert n_asked[0] <= 2 * len(PROMPTS), "it is not read again and again"


class Learning(Adaptation):
    """The sums of all that was learned."""

    counts: Any = 0
    positions = 0

    def learn(self, counters: FfnCounters) -> None:
        counts, positions = counters.take_per_neuron()
        self.counts, self.positions = self.counts + counts, self.positions + positions


def test_a_request_for_another_model_waits_for_the_answers_under_way(folder: Path) -> None:
    window, asked = Window(load(folder, 3)), list[list[str]]()

    def other(turns: list[Turn]) -> None:
        turns[2].target = Target("other", load="/m/other")
        window.ask_load = lambda *_: (asked.append([turn.state for turn in turns]), turns[2].leave())[1]  # type: ignore[method-assign]

    answers(window, PROMPTS[:3], other)
    assert asked == [["over", "over", "answering"]]


@pytest.mark.parametrize("how", [{"backend": "reference"}, {"mode": "exact"}, {"mode": "dense"}])
def test_all_teach_which_neurons_are_active(
    folder: Path, how: dict[str, Any], sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "most_at_once", lambda model, cache: 1)  # wrong guesses count as well
    ended = {i: Constraint("regex", f"[a-z]{{3}}[0-9]{{{4 + i}}}") for i in range(3)}  # by a token, before its step
    learned = []
    for sequences in (1, 3):
        window = Window(load(folder, sequences, **how))
        assert window.session is not None
        window.session.adaptation = Learning(window.session.model.opened)
        prompts = [[first, *PROMPTS[0]] for first in (9, 8, 7)]
        _, ends, _ = answers(window, prompts, constraints=ended, sampling={"max_tokens": 40})
        learned.append(window.session.adaptation)
        assert learned[-1].positions == sum(end.prompt_tokens + end.tokens for end in ends if isinstance(end, End))
    alone, together = learned
    assert max(sizes) == 3
    assert together.positions == alone.positions > 30
    np.testing.assert_array_equal(together.counts, alone.counts)


def test_a_model_with_a_state_answers_together_too(tmp_path: Path, sizes: list[int]) -> None:
    folder = make_recurrent_model(tmp_path / "m")
    alone = answers(Window(load(folder, 1)), PROMPTS)[0]
    assert answers(Window(load(folder, 3)), PROMPTS)[0] == alone
    assert all(alone)
    assert max(sizes) == 3


def test_experts_that_are_computed_one_by_one_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    folder = make_recurrent_model(tmp_path / "experts", experts=True)
    model = load(folder, 3)
    monkeypatch.setattr(LoadedModel, "resolve_mode", lambda model, mode: "exact")
    assert JointSteps(model).most == 1


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpuMachine]:
    monkeypatch.setattr(loaded_part, "batch_ops", FakeBatchOps)
    made = FakeGpuMachine(tmp_path, monkeypatch)
    yield made
    for gpu in made.gpus:
        gpu.close()


@pytest.mark.parametrize(
    "make",
    [partial(make_tiny_model, max_context=320), make_recurrent_model, partial(make_recurrent_model, experts=True)],
)
def test_on_a_gpu_each_gets_what_it_gets_alone(
    machine: FakeGpuMachine, tmp_path: Path, sizes: list[int], make: Any
) -> None:
    folder = make(tmp_path / "m")
    alone = answers(Window(machine.load(folder)), PROMPTS)[0]
    model = machine.load(folder, sequences=3)
    assert model.device == "cuda"
    assert answers(Window(model), PROMPTS)[0] == alone
    assert all(alone)
    assert max(sizes) == 3
    model.close()


def test_a_sequence_too_long_for_its_share_of_the_gpu_is_computed_by_itself(
    machine: FakeGpuMachine, folder: Path, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [LONG, PROMPTS[0]]
    alone = answers(Window(machine.load(folder)), prompts)[0]
    model = machine.load(folder)
    object.__setattr__(model.engine, "sequences", 3)  # it was loaded for one
    monkeypatch.setattr(GpuResidency, "should_place_for", lambda *_: False)  # which would give each a whole context
    assert answers(Window(model), prompts)[0] == alone
    assert set(sizes) == {0}
    model.close()
