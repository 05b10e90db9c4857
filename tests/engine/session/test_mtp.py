"""Tokens that a layer of the model drafts (MTP) change how fast an answer is, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.gpu_machine import FakeGpuMachine
from samples.recurrent_model import make_recurrent_model

from engine.config import EngineConfig, SamplingConfig
from engine.errors import HostMemoryError
from engine.job import Job
from engine.model import draft_layer
from engine.model.draft_layer import MOST_DRAFTS, Trail
from engine.model.kv_cache import KVCache
from engine.session.chat_session import ChatSession
from engine.session.generate import TokenEvent
from engine.session.guesses import Guesses, StepTimes
from engine.session.loaded_model import LoadedModel
from engine.session.mtp import MtpGuesser, MtpRecord

GREEDY = SamplingConfig(temperature=0, max_tokens=40)
PROMPT = np.random.default_rng(5).integers(0, 90, 40).tolist()


class FreeRuns(StepTimes):
    """Further tokens cost nothing: every draft is worth it."""

    def __init__(self) -> None:
        super().__init__()
        self.one_s = 1.0

    def add(self, n_tokens: int, seconds: float) -> None:
        """Do not learn."""

    def of(self, n_tokens: int) -> float:
        return 1.0


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., LoadedModel]:
    made: dict[tuple[Any, ...], LoadedModel] = {}

    def find(drafts: str, experts: bool = False, backend: str = "auto") -> LoadedModel:
        key = drafts, experts, backend
        if key not in made:
            folder = make_recurrent_model(tmp_path_factory.mktemp("model") / "m", experts=experts, drafts=drafts)  # type: ignore[arg-type]
            engine = EngineConfig(context=256, device="cpu", threads=2, kv_cache="f32", backend=backend)  # type: ignore[arg-type]
            made[key] = LoadedModel.load(folder, engine)
        return made[key]

    return find


@pytest.fixture(autouse=True)
def drafts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No guesses by lookup, and every draft is computed."""

    def guesses(session: ChatSession) -> Guesses:
        drafter, trail = session.model.drafter, session.cache.trail
        sources = [] if drafter is None or trail is None else [MtpGuesser(drafter, trail, MtpRecord())]
        return Guesses(FreeRuns(), sources)

    monkeypatch.setattr(ChatSession, "_guesses", guesses)


def events(session: ChatSession, prompt: Sequence[int], sampling: SamplingConfig = GREEDY) -> list[TokenEvent]:
    return list(session.generate(prompt, sampling))


def said(found: list[TokenEvent]) -> list[int]:
    return [event.token_id for event in found if event.token_id is not None]


def without(model: LoadedModel, prompt: Sequence[int], sampling: SamplingConfig = GREEDY) -> list[int]:
    session = ChatSession(model)
    session.cache.trail = None
    found = events(session, prompt, sampling)
    assert found[-1].stats.guessed_tokens == 0
    return said(found)


@pytest.mark.parametrize("experts", [False, True])
def test_a_greedy_answer_is_the_same(load: Callable[..., LoadedModel], experts: bool) -> None:
    model = load("random", experts)
    assert "drafts tokens" in model.drafts_reason
    found = events(ChatSession(model), PROMPT)
    assert said(found) == without(model, PROMPT)
    assert found[-1].stats.guesses["mtp"][0] > 20


@pytest.mark.parametrize("experts", [False, True])
def test_with_a_gpu_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, experts: bool) -> None:
    machine = FakeGpuMachine(tmp_path, monkeypatch)
    model = machine.load(make_recurrent_model(tmp_path / "m", experts=experts, drafts="right"), context=256)
    session = ChatSession(model)
    decoder: Any = model.transformer().decoder
    decoder.lay_out(session.cache)  # as while the model is idle
    found = events(session, PROMPT)
    assert said(found) == without(model, PROMPT)
    assert found[-1].stats.guesses["mtp"][0] > 20
    model.close()


def test_sampled_answers_are_the_same_for_each_seed(load: Callable[..., LoadedModel]) -> None:
    model, accepted = load("right"), 0
    for seed in range(8):
        sampling = SamplingConfig(temperature=0.5, top_k=20, seed=seed, max_tokens=30)
        found = events(ChatSession(model), PROMPT, sampling)
        assert said(found) == without(model, PROMPT, sampling)
        accepted += found[-1].stats.accepted_tokens
    assert accepted > 0


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_drafts_that_are_right_are_all_accepted(load: Callable[..., LoadedModel], backend: str) -> None:
    """Without kernels, no run has several tokens: nothing is drafted."""
    model = load("right", backend=backend)
    stats = events(ChatSession(model), PROMPT)[-1].stats
    assert stats.accepted_tokens == stats.guessed_tokens
    assert stats.accepted_tokens >= 30 if backend == "auto" else stats.guessed_tokens == 0
    assert stats.tokens == 40


def test_turns_branches_and_stops_keep_the_layer_in_step(load: Callable[..., LoadedModel]) -> None:
    model = load("right")
    session = ChatSession(model)
    first = events(session, PROMPT)
    longer = [*PROMPT, *said(first)[:17], 3, 4]
    asked = iter(range(100))
    stopped = list(session.generate(longer, GREEDY, Job(lambda: next(asked) > 11)))
    assert stopped[-1].finish_reason == "cancelled"
    for prompt in (longer, PROMPT[:25], [*PROMPT[:25], 7, *PROMPT[:30]], PROMPT):
        found = events(session, prompt)
        assert said(found) == without(model, prompt)
        stats = found[-1].stats
        assert stats.accepted_tokens == stats.guessed_tokens > 20


@pytest.fixture
def trail(load: Callable[..., LoadedModel]) -> Trail:
    drafts = load("random").drafts
    assert drafts is not None
    return Trail(KVCache(drafts.opened.config, 64 + MOST_DRAFTS))


def drafted(model: LoadedModel, trail: Trail, text: Sequence[int], n: int = 3) -> list[np.ndarray]:
    assert model.drafter is not None
    assert trail.behind(text)
    logits, hidden = trail.catch_up(text, model.drafter)
    found = [logits]
    for _ in range(n - 1):
        logits, hidden = trail.follow(int(logits.argmax()), hidden, model.drafter)
        found.append(logits)
    return found


def test_a_trail_that_grows_and_is_cut_drafts_as_a_new_one(load: Callable[..., LoadedModel], trail: Trail) -> None:
    model, rng = load("random"), np.random.default_rng(0)
    text = rng.integers(0, 90, 40).tolist()
    hidden = rng.standard_normal((40, 32)).astype(np.float32)
    assert trail.behind(text[:1]) == 0
    trail.add(0, hidden[:20])
    assert trail.behind(text[:21]) == 20
    drafted(model, trail, text[:21])
    trail.add(20, hidden[20:24])
    assert trail.behind(text[:25]) == 4
    trail.cut(22)  # two of them were rejected
    trail.add(22, hidden[30:32])
    changed = [*text[:22], 5, 6, 7]
    assert trail.behind(changed) == 4
    found = drafted(model, trail, changed)
    new = Trail(KVCache(model.drafts.opened.config, 128))  # type: ignore[union-attr]
    new.add(0, np.concatenate([hidden[:22], hidden[30:32]]))
    for one, other in zip(found, drafted(model, new, changed), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_a_trail_with_a_gap_begins_again(load: Callable[..., LoadedModel], trail: Trail) -> None:
    model, rng = load("random"), np.random.default_rng(0)
    text = rng.integers(0, 90, 64).tolist()
    hidden = rng.standard_normal((64, 32)).astype(np.float32)
    trail.add(0, hidden[:20])
    drafted(model, trail, text[:21])
    assert trail.behind(text[:23]) == 0, "a position was computed elsewhere"
    trail.add(25, hidden[25:30])
    assert trail.behind(text[:31]) == 5
    found = drafted(model, trail, text[:31])
    new = Trail(KVCache(model.drafts.opened.config, 128))  # type: ignore[union-attr]
    new.add(0, hidden[25:30])
    for one, other in zip(found, drafted(model, new, text[25:31]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    trail.add(0, hidden[:18])  # a shorter conversation, which ends before the trail began
    assert trail.behind(text[:19]) == 18


def test_a_full_trail_begins_again(load: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_layer, "FIRST_POSITIONS", 8)
    monkeypatch.setattr(draft_layer, "CAPACITY", 16)
    model = load("right")
    stats = events(ChatSession(model), PROMPT, SamplingConfig(temperature=0, max_tokens=100))[-1].stats
    assert stats.accepted_tokens == stats.guessed_tokens > 80


def test_without_memory_the_layer_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any, **others: Any) -> None:
        raise HostMemoryError("The model needs 9 GiB of free RAM; 1 GiB are free.")

    monkeypatch.setattr(draft_layer, "load_weights", full)
    folder = make_recurrent_model(tmp_path / "m", drafts="random")
    model = LoadedModel.load(folder, EngineConfig(context=64, device="cpu", threads=1))
    assert model.drafts is None
    assert "9 GiB" in model.drafts_reason
    assert events(ChatSession(model), PROMPT)[-1].stats.guessed_tokens == 0


def test_the_record_learns_how_often_drafts_are_right() -> None:
    record = MtpRecord()
    before = record.chance(0.9), record.chance_at(1)
    for _ in range(50):
        record.add(0, 0.9, True)
        record.add(1, 0.3, False)
    assert record.chance(0.9) > before[0]
    assert record.chance(0.3) < 0.1 < 0.9 < record.chance_at(0)
    assert record.chance_at(1) < before[1]
    record.timed(0, 2.0, 0.0)
    record.timed(4, 3.0, 0.0)
    assert (record.step_s, record.fill_s) == (2.0, 0.25)
    assert record.pays
    for _ in range(400):
        record.note(False)
    assert record.step_s < 1.0, "a slow first draft is forgotten"
    assert not record.pays
    for _ in range(4):
        record.note(True)
    assert record.pays


def test_a_layer_that_does_not_pay_reads_only_what_is_near(load: Callable[..., LoadedModel], trail: Trail) -> None:
    model, rng, record = load("random"), np.random.default_rng(0), MtpRecord()
    text, hidden = rng.integers(0, 90, 40).tolist(), rng.standard_normal((40, 32)).astype(np.float32)
    assert model.drafter is not None
    for pays, n_read in ((True, 29), (False, 7)):
        trail.cut(0)
        trail.add(0, hidden[:30])
        if not pays:
            for _ in range(400):
                record.note(False)
        guesser = MtpGuesser(model.drafter, trail, record)
        guesser.read(text[:31])
        drafts = list(itertools.islice(guesser.guess(), 2))
        new = Trail(KVCache(model.drafts.opened.config, 128))  # type: ignore[union-attr]
        new.add(0, hidden[30 - n_read - 1 : 30])
        found = drafted(model, new, text[30 - n_read - 1 : 31], 2)
        assert [int(one.argmax()) for one in found] == [token for token, _ in drafts]


@pytest.mark.expects_log("is not used any more")
@pytest.mark.parametrize("way", ["fill", "step"])
def test_an_answer_goes_on_without_a_layer_that_fails(
    load: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    def fails(*arguments: Any) -> None:
        raise HostMemoryError("The memory ran out.")

    model = load("right")
    wanted = without(model, PROMPT)
    assert model.drafter is not None
    monkeypatch.setattr(model.drafter, way, fails)
    found = events(ChatSession(model), PROMPT)
    assert said(found) == wanted
    assert found[-1].stats.guessed_tokens == 0


def test_the_first_draft_of_all_is_made_where_its_time_does_not_count(
    load: Callable[..., LoadedModel], trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, record, steps = load("random"), MtpRecord(), list[int]()
    drafter = model.drafter
    assert drafter is not None
    step = drafter.step
    monkeypatch.setattr(drafter, "step", lambda token, *rest: steps.append(token) or step(token, *rest))
    trail.add(0, np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32))
    text, found = list(range(9)), []
    for n_steps in (1, 0):
        guesser = MtpGuesser(drafter, trail, record)
        guesser.read(text)
        steps.clear()
        guesser.prepare()
        assert (len(steps), record.step_s) == (n_steps, 0.0)
        assert guesser.chances(1)
        found.append(list(itertools.islice(guesser.guess(), 2)))
        record.step_s = 0.0
    assert [token for token, _ in found[0]] == [token for token, _ in found[1]]
