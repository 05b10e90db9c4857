"""What the model does, told while somebody watches: the figures are the answer's own, and unwatched nothing is told."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes.gpu_machine import FakeGpuMachine, same_scratch_for_every_budget
from samples.experts_gguf import N_EXPERTS, N_USED, make_tiny_mixtral
from samples.placement_cases import a_config
from samples.split_model import EXPERT_FAMILIES
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.config import EngineConfig, SamplingConfig
from engine.executor.adaptation import Adaptation
from engine.service import protocol
from engine.service.host import EngineHost
from engine.service.live import EVERY_S, FIRST_S, LiveFeed, _routed
from engine.service.neuron_sample import GROUPS, SAMPLED, ExpertMap, NeuronSample, is_counted, sample_of
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel

STORY = [{"role": "user", "content": "Tell me a long story about a shy robot called Bolt."}]
PROMPT = [1, 5, 9, 40, 7]


class Heard:
    """A host, and what it said."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.host = EngineHost(self.events.append)

    def run(self, *requests: protocol.Request) -> list[protocol.Live]:
        self.events.clear()
        for request in requests:
            self.host.submit(request)
        self.host.run_pending()
        return [event for event in self.events if isinstance(event, protocol.Live)]

    @property
    def result(self) -> dict[str, Any]:
        return dict(self.events[-1].result)


@pytest.fixture(scope="module")
def heard() -> Iterator[Heard]:
    heard = Heard()
    heard.run(protocol.Load("load", "starter-chat"))
    yield heard
    heard.host.close()


def test_nobody_watches_and_nothing_is_told_or_measured(heard: Heard) -> None:
    assert not heard.run(protocol.Generate("a", STORY, {"max_tokens": 20}))
    session = heard.host._session
    assert session is not None
    assert session.transformer.decoder is not None
    assert sum(session.transformer.decoder.stage_seconds().values()) == 0


def test_between_answers_it_tells_where_neurons_lie(heard: Heard) -> None:
    (live,) = heard.run(protocol.Watch("w"))
    assert (live.id, live.mode, live.on_gpu) == ("", "sparse", [0.0] * 8)
    assert live.tok_s is live.token_s is None
    assert not heard.run(protocol.Watch("w", on=False))


def test_an_answer_is_told_in_its_own_figures(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.service.live.EVERY_S", 0.02)
    heard.run(protocol.Watch("w"))
    *lives, last, rest = heard.run(protocol.Generate("b", STORY, {"temperature": 0, "max_tokens": 120}))
    result = heard.result
    assert len(lives) > 2
    assert {live.id for live in (*lives, last)} == {"b"}
    assert rest.id == ""
    for live in lives:
        assert live.tok_s is not None
        assert live.token_s == pytest.approx(1 / live.tok_s)
        assert {"attention", "predictor", "ffn", "head", "sampling", "other"} == set(live.cpu_s)
        assert sum(live.cpu_s.values()) == pytest.approx(live.token_s, rel=0.02)
        assert not live.gpu_s
        assert live.gpu_neuron_load is None
        assert live.ttft_s == result["ttft_s"]
        assert np.shape(live.fired) == (8, GROUPS)
        assert 0 < np.mean(live.fired) < 20, "of this model some three in a hundred neurons fire"
        assert np.mean([layer[:4] for layer in live.fired]) > np.mean([layer[-4:] for layer in live.fired])
    assert np.mean([live.active_share for live in lives]) == pytest.approx(result["active_share"], rel=0.3)
    assert last.mean_tok_s == result["decode_tok_s"]
    heard.run(protocol.Watch("w", on=False))


def test_who_stops_watching_in_mid_answer_hears_no_more(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.service.live.EVERY_S", 0.0)
    host, told = heard.host, heard.events
    heard.run(protocol.Watch("w"))
    seen: list[protocol.Live] = []

    def stop(event: Any) -> None:
        told.append(event)
        if isinstance(event, protocol.Live) and event.id:
            seen.append(event)
            host._live.watch(False)

    monkeypatch.setattr(host._live, "_emit", stop)
    heard.run(protocol.Generate("c", STORY, {"max_tokens": 40}))
    assert len(seen) == 1
    assert host._live._graph is None


def test_without_a_model_it_says_so() -> None:
    heard = Heard()
    assert heard.run(protocol.Watch("w")) == [protocol.Live("")]
    heard.host.close()


# --- neurons


class Steps:
    """A clock that runs on by as much as makes every token worth telling."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 2 * EVERY_S
        return self.now


def told(session: ChatSession, n_tokens: int = 8, prompt: list[int] = PROMPT) -> list[protocol.Live]:
    """What an answer of the session tells somebody who watches."""
    events: list[Any] = []
    feed = LiveFeed(events.append, Steps())
    feed.watch(True)
    feed.rest(session)
    feed.begin("a")
    for event in session.generate(prompt, SamplingConfig().changed({"temperature": 0, "max_tokens": n_tokens})):
        if event.token_id is not None:
            feed.token(session, event.stats)
    feed.end(session)
    return [event for event in events if event.id]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "m", d_ff=256)


def on_cpu(path: Path, **changes: Any) -> LoadedModel:
    return LoadedModel.load(path, EngineConfig(device="cpu", threads=1, **changes))


def test_the_sample_is_what_fired_for_that_very_token(tiny: Path) -> None:
    session = ChatSession(on_cpu(tiny, mode="exact"))
    counters = session.transformer.executor.counters
    counters.record_per_neuron()
    sample, config = sample_of(session), session.model.opened.config
    stats = SamplingConfig().changed({"temperature": 0, "max_tokens": 5})
    before, whole = sample.fired_so_far(session.transformer), counters.per_neuron.copy()  # type: ignore[union-attr]
    for event in session.generate(PROMPT, stats):
        if event.token_id is None:
            break
        assert counters.per_neuron is not None
        seen = sample.percent(sample.fired_so_far(session.transformer) - before)
        fired = (counters.per_neuron - whole > 0).mean(axis=1)
        assert np.shape(seen) == (config.n_layers, GROUPS)
        if event.stats.decode_steps:
            np.testing.assert_allclose(np.mean(seen, axis=1) / 100, fired, atol=0.12)
        before, whole = sample.fired_so_far(session.transformer), counters.per_neuron.copy()


def test_the_busiest_come_first_and_the_gpu_s_before_the_cpu_s() -> None:
    orders = [np.arange(100)[::-1].astype(np.int64)]
    sample = NeuronSample(orders, 100, [0.0])
    assert len(sample._ids) == GROUPS * SAMPLED
    assert sample._ids[0] == 99
    assert sample._ids[-1] == 0


def test_whoever_counts_neurons_anyway_goes_on_doing_so(tiny: Path, tmp_path: Path) -> None:
    model = on_cpu(tiny, mode="exact")
    learning = ChatSession(model, adaptation=Adaptation(model.opened, tmp_path / "learned"))
    assert told(learning)
    assert learning.transformer.executor.counters.per_neuron is not None
    alone = ChatSession(model)
    events: list[Any] = []
    feed = LiveFeed(events.append)
    feed.watch(True)
    feed.rest(alone)
    assert alone.transformer.executor.counters.per_neuron is not None
    feed.watch(False)
    feed.rest(alone)
    assert alone.transformer.executor.counters.per_neuron is None
    assert len(events) == 1


def test_a_model_all_of_whose_neurons_work_says_so(tmp_path: Path) -> None:
    session = ChatSession(on_cpu(make_tiny_model(tmp_path / "s", activation="silu")))
    lives = told(session)
    assert lives
    assert not any(live.has_zeros or live.is_counted or live.fired for live in lives)


# --- a GPU


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpuMachine]:
    made = FakeGpuMachine(tmp_path, monkeypatch)
    yield made
    for gpu in made.gpus:
        gpu.close()


def test_with_a_gpu_its_share_and_the_waiting_are_told(machine: FakeGpuMachine, tiny: Path) -> None:
    model = machine.load(tiny, mode="exact")
    theirs, ours = told(ChatSession(model)), told(ChatSession(on_cpu(tiny, mode="exact")))
    assert theirs[0].on_gpu == [1.0] * model.opened.config.n_layers
    assert theirs[0].gpu_neuron_load == 1
    assert theirs[0].cpu_s["wait"] > 0
    assert {"attention", "ffn", "head"} <= set(theirs[-1].gpu_s)
    assert all(seconds >= 0 for seconds in theirs[-1].gpu_s.values())
    assert not ours[-1].gpu_s
    for lives in (theirs, ours):
        assert [live.fired for live in lives if live.fired], "the GPU's neurons are looked at too"
        assert all(np.sum(live.fired) > 0 for live in lives if live.fired)
    model.close()


def test_experts_on_a_gpu_are_told_with_their_hits(
    machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_scratch_for_every_budget(monkeypatch)
    path = make_tiny_mixtral(tmp_path / "m.gguf")
    model = machine.load(path, vram_budget_gib=machine.budget_for_experts(path, 5.5))
    session = ChatSession(model)
    lives = told(session, 16)
    assert model.gpu is not None
    slots = model.gpu.expert_slots
    assert slots is not None
    for live in lives:
        assert (live.n_experts, live.n_experts_used) == (N_EXPERTS, N_USED)
        assert sum(live.on_gpu) == pytest.approx(5 / N_EXPERTS)
        assert np.mean(live.resident) == pytest.approx(100 * 5 / 8)
        for chosen, resident, counted in zip(live.chosen, live.resident, slots.counted, strict=True):
            assert sorted(chosen, reverse=True) == chosen
            assert set(resident) <= {0, 100}
            assert sum(chosen) == pytest.approx(100 * N_USED if counted else 0, abs=2)
    hits = [live.expert_hits for live in lives]
    assert all(share is not None and 0 <= share <= 1 for share in hits)
    model.close()
    alone = told(ChatSession(on_cpu(path)))
    assert (alone[-1].n_experts, alone[-1].chosen, alone[-1].expert_hits) == (N_EXPERTS, [], None)


def test_layers_without_experts_miss_none() -> None:
    config = EXPERT_FAMILIES["nemotron"]
    missed = np.array([0 if i in config.mixer_only_layers else 5 for i in range(config.n_layers)])
    on_gpu = np.array([i not in config.mixer_only_layers for i in range(config.n_layers)])
    slots = SimpleNamespace(tokens=10, missed=missed, is_on_gpu=on_gpu)
    model = SimpleNamespace(gpu=SimpleNamespace(expert_slots=slots), opened=SimpleNamespace(config=config))
    n = len(config.expert_layers)
    assert 0 < n < config.n_layers
    assert _routed(SimpleNamespace(model=model)) == (10 * config.n_experts_used * n, 5 * n)  # type: ignore[arg-type]


def test_many_experts_are_grouped() -> None:
    rng, config = np.random.default_rng(0), a_config(n_layers=3, d_ff=64, n_experts=130, n_experts_used=8)
    heat = rng.exponential(size=(3, 130)).astype(np.float32)
    slots = SimpleNamespace(heat_in_choices=heat, expert_in=[np.arange(65), np.arange(0), np.arange(130)])
    found = ExpertMap(slots, config)  # type: ignore[arg-type]
    assert found.on_gpu == [0.5, 0, 1]
    sizes = np.array([3] * 43 + [1])
    assert np.shape(found.chosen) == np.shape(found.resident) == (3, len(sizes))
    np.testing.assert_allclose(np.array(found.chosen) @ sizes, 800, atol=70)
    np.testing.assert_allclose(np.array(found.resident) @ sizes, [6500, 0, 13000], atol=70)
    assert found.chosen[0][0] == round(100 * 8 * float(np.sort(heat[0])[-3:].mean() / heat[0].sum()))


def test_a_gpu_that_is_given_up_in_mid_watch_leaves_the_cpu_s_figures(machine: FakeGpuMachine, tiny: Path) -> None:
    model = machine.load(tiny, mode="exact")
    session = ChatSession(model)
    assert told(session)[0].on_gpu[0] == 1
    assert model.gpu is not None
    model.residency.give_up("the GPU fell off the bus")
    after = told(session)
    assert after[-1].on_gpu == [0.0] * model.opened.config.n_layers
    assert after[-1].gpu_neuron_load is None
    model.close()


def test_where_a_gpu_counts_no_neurons_none_are_told_apart(machine: FakeGpuMachine, tmp_path: Path) -> None:
    model = machine.load(make_tiny_gguf(tmp_path / "m.gguf"))
    assert not is_counted(model)
    lives = told(ChatSession(model))
    assert lives
    assert not any(live.is_counted or live.fired for live in lives)
    model.close()


def test_an_answer_that_is_over_soon_lights_neurons_up(tiny: Path) -> None:
    session = ChatSession(on_cpu(tiny, mode="exact"))
    events: list[Any] = []
    ticks = itertools.count()
    feed = LiveFeed(events.append, lambda: next(ticks) * FIRST_S / 3)
    feed.watch(True)
    feed.begin("a")
    for event in session.generate(PROMPT, SamplingConfig().changed({"temperature": 0, "max_tokens": 10})):
        if event.token_id is not None:
            feed.token(session, event.stats)
    feed.end(session)
    assert next(ticks) * FIRST_S / 3 < EVERY_S, "in less time than passes between two looks"
    assert [bool(event.fired) for event in events if event.id].count(True) == 1
