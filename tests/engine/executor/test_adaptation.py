"""What answers teach: counters that follow them, neurons that change places between answers, and what is kept."""

from __future__ import annotations

import queue
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.hot_store import FakeHotStore
from samples.tiny_model import make_tiny_model

from engine.bundle.artefacts import save_stats
from engine.config import EngineConfig, SamplingConfig
from engine.conversion.convert import convert
from engine.errors import DiskSpaceError, InvalidRequestError
from engine.executor import adaptation as module
from engine.executor.adaptation import (
    BLOCK_NEURONS,
    PRIOR_TOKENS,
    Adaptation,
    activity_folder,
    can_learn,
    learned_stats,
    merged_rates,
    read_activity,
    worst_for_best,
)
from engine.executor.hot_blocks import HotBlocks
from engine.executor.slots import SlotTable
from engine.model.counters import FfnCounters
from engine.placement.solving import solve_model
from engine.service import protocol
from engine.service.host import EngineHost
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from engine.sparsity.activity import NeuronActivity
from engine.sparsity.stats import NeuronStats

GREEDY = SamplingConfig(temperature=0, max_tokens=12)
PROMPT = [0, 20, 33, 47, 60, 75]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("tiny"))


def make_bundle(folder: Path) -> Path:
    """Neuron-major, so that neurons can be parted."""
    return convert(make_tiny_model(folder / "source", d_ff=400), folder / "bundle", "f16").bundle


@pytest.fixture(scope="module")
def model(path: Path) -> LoadedModel:
    return load(path)


def load(path: Path) -> LoadedModel:
    return LoadedModel.load(path, EngineConfig(threads=2, mode="exact", kv_cache="f32"))


def hot_of(model: LoadedModel, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.sort(rng.permutation(400)[:104]).astype(np.int32) for _ in range(model.opened.config.n_layers)]


def taught(model: LoadedModel, favourites: list[np.ndarray], positions: int = 2000) -> Adaptation:
    """An adaptation that has seen these neurons fire four times of five, the others once in twenty."""
    adaptation, counters = Adaptation(model.opened), FfnCounters(2, 400)
    counters.record_per_neuron()
    fired = np.zeros((positions, 400), np.bool_)
    for layer, ids in enumerate(favourites):
        fired[:] = np.arange(positions)[:, None] % 20 == np.arange(400) % 20
        fired[:, ids] = (np.arange(positions)[:, None] + ids) % 5 != 0
        counters.add_batch(layer, fired.size, fired.size, fired)
    adaptation.learn(counters)
    return adaptation


def blocks_of(model: LoadedModel, hot: list[np.ndarray], learned: Any = None) -> HotBlocks:
    return HotBlocks(model.opened.config, model.weights, hot, FakeHotStore, learned)


def answer(session: ChatSession, prompt: list[int] = PROMPT) -> list[int | None]:
    return [event.token_id for event in session.generate(prompt, GREEDY)]


def until_done(adaptation: Adaptation, blocks: HotBlocks, pieces: int = 100) -> list[float | None]:
    said: list[float | None] = []
    while len(said) < pieces:
        said.append(adaptation.adapt(blocks))
        if said[-1] is None:
            return said
    raise AssertionError("it goes on for ever")


# --- which neurons change places


def test_the_worst_hot_ones_go_for_the_best_cold_ones_where_that_is_sure() -> None:
    table = SlotTable(8, np.array([2, 5, 7], np.int32))
    rates = np.array([0.05, 0.9, 0.8, 0.5, 0.1, 0.02, 0.3, 0.4])
    slots, neurons = worst_for_best(rates, 10_000, table)
    assert (slots.tolist(), neurons.tolist()) == ([1, 2], [1, 3])
    table.put(slots, neurons)
    assert worst_for_best(rates, 10_000, table)[0].size == 0
    nearly = np.array([0.3, 0.3, 0.5, 0.5, 0.3, 0.49, 0.3, 0.51])
    assert worst_for_best(nearly, 100, SlotTable(8, np.array([2, 5, 7], np.int32)))[0].size == 0
    assert worst_for_best(nearly, 1e8, SlotTable(8, np.array([2, 5, 7], np.int32)))[1].tolist() == [3]
    for hot in ([], list(range(8))):
        assert worst_for_best(rates, 10_000, SlotTable(8, np.array(hot, np.int32)))[0].size == 0


def test_chance_moves_few_neurons_and_none_back_and_forth() -> None:
    """Neurons of near rates, counted over answers of 100 positions: what is hot settles."""
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.05, 0.3, 400)
    table = SlotTable(400, np.argsort(-rates)[:104].astype(np.int32))
    activity, moves = NeuronActivity.empty(1, 400), 0
    stats = NeuronStats(np.rint(rates * 1000).astype(np.int64)[None], 1000, "measured", "")
    for _ in range(100):
        activity.add(rng.binomial(100, rates)[None], 100)
        slots, neurons = worst_for_best(merged_rates(stats, activity, 0), activity.positions, table)
        table.put(slots, neurons)
        moves += len(slots)
    assert moves < 5


def test_offline_statistics_weigh_as_a_fixed_number_of_positions() -> None:
    activity = NeuronActivity.empty(1, 2)
    stats = NeuronStats(np.array([[500, 100]]), 1000, "measured", "text")
    np.testing.assert_allclose(merged_rates(stats, activity, 0), [0.5, 0.1])
    activity.add(np.array([[0, PRIOR_TOKENS]]), PRIOR_TOKENS)
    np.testing.assert_allclose(merged_rates(stats, activity, 0), [0.25, 0.55], atol=0.02)
    np.testing.assert_allclose(merged_rates(None, activity, 0), [0.25, 0.75], atol=0.02)
    unsaid = NeuronStats(np.array([[30, 10]]), None, "shipped", "PowerInfer")  # half of the neurons fired of late
    np.testing.assert_allclose(merged_rates(unsaid, activity, 0), [0.375, 0.625], atol=0.02)


def test_what_was_learned_counts_when_neurons_are_placed_anew(model: LoadedModel) -> None:
    counts = np.zeros((2, 400), np.int64)
    counts[:, :40] = 900
    stats = NeuronStats(counts, 1000, "measured", "a text")
    assert learned_stats(model.opened, stats) is stats
    favourites = [np.arange(100, 150), np.arange(200, 250)]
    taught(model, favourites).keep()
    found = learned_stats(model.opened, stats)
    assert found is not None
    assert found.tokens is not None
    assert PRIOR_TOKENS < found.tokens < 2000 + PRIOR_TOKENS
    for layer, ids in enumerate(favourites):
        best = np.argsort(-found.counts[layer], kind="stable")[:50]
        assert set(best.tolist()) == set(ids.tolist())
        assert found.counts[layer, :40].min() > found.counts[layer, 300:].max()
    alone = learned_stats(model.opened, None)
    assert alone is not None
    assert alone.counts[0, 100:150].min() > alone.counts[0, :40].max()


def test_only_the_first_that_is_learned_is_a_reason_to_place_anew(model: LoadedModel) -> None:
    engine = EngineConfig(device="cpu", hardware_file="no-gpu")
    first = solve_model(model.opened, engine)
    assert solve_model(model.opened, engine).reused
    learned = taught(model, [np.arange(100, 150), np.arange(200, 250)])
    learned.keep()
    found = solve_model(model.opened, engine)
    assert not found.reused
    again = found.placement
    counters = FfnCounters(2, 400)
    counters.record_per_neuron()
    for layer in range(2):
        counters.add_batch(layer, 0, 0, np.ones((50, 400), np.bool_))
    learned.learn(counters)
    learned.keep()
    assert solve_model(model.opened, engine).reused, "more was learned, but it is not the first"
    assert (first.placement.statistics, again.statistics) == ("none", "measured")
    assert again.fired_share == pytest.approx((0.8 * 50 + 0.05 * 350) / 400, rel=0.1)
    assert any("conversations" in note for note in again.notes)


# --- on a model


def test_it_moves_in_bounded_pieces_and_ends_with_the_best(model: LoadedModel, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "BLOCK_NEURONS", 8)
    monkeypatch.setattr(module, "MOMENT_BLOCKS", 3)
    blocks = blocks_of(model, hot_of(model))
    favourites = [np.arange(150, 230), np.arange(10, 90)]
    adaptation = taught(model, favourites)
    moved = []
    while adaptation._waiting or not moved:
        before = adaptation.moved
        assert adaptation.adapt(blocks) == 0.0
        moved.append(adaptation.moved - before)
    assert max(moved) <= 24
    assert len(moved) > 4
    for table, ids in zip(blocks.tables, favourites, strict=True):
        assert set(ids.tolist()) <= set(table.hot.tolist())
        assert table.n_slots == 104
    assert until_done(adaptation, blocks) == [None]
    assert adaptation.moved == sum(moved)


def test_it_says_when_it_goes_on_and_writes_seldom(model: LoadedModel, monkeypatch: Any) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    blocks = blocks_of(model, hot_of(model))
    adaptation = Adaptation(model.opened)
    assert adaptation.adapt(blocks) is None
    assert not activity_folder(model.opened).exists()
    counters = FfnCounters(2, 400)
    counters.record_per_neuron()
    for wait in (None, 60.0):
        for layer in range(2):
            counters.add_batch(layer, 0, 0, np.ones((50, 400), np.bool_))
        adaptation.learn(counters)
        assert until_done(adaptation, blocks)[-1] is None if wait is None else adaptation.adapt(blocks) == 0
    assert adaptation.adapt(blocks) == pytest.approx(60.0)
    assert read_activity(model.opened).positions == pytest.approx(50, rel=0.01)
    now[0] += 61
    assert adaptation.adapt(blocks) is None
    assert read_activity(model.opened).positions == pytest.approx(100, rel=0.02)


def test_the_next_run_begins_with_what_the_last_one_learned(path: Path, model: LoadedModel) -> None:
    hot = hot_of(model)
    blocks = blocks_of(model, hot)
    adaptation = taught(model, [np.arange(150, 230), np.arange(10, 90)])
    until_done(adaptation, blocks)

    again = load(path)
    fresh = Adaptation(again.opened)
    learned = fresh.learned_hot(hot)
    assert learned is not None
    resumed = blocks_of(again, hot, learned)
    for before, after in zip(blocks.tables, resumed.tables, strict=True):
        np.testing.assert_array_equal(before.neuron_in, after.neuron_in)
    assert fresh.activity.positions == pytest.approx(adaptation.activity.positions)
    assert fresh.learned_hot(hot_of(model, seed=1)) is None  # placed anew: only the counters count
    with pytest.raises(InvalidRequestError, match="Other numbers"):
        blocks_of(again, [ids[1:] for ids in hot], learned)


def test_damage_and_another_activation_are_begun_anew(path: Path, model: LoadedModel) -> None:
    taught(model, [np.arange(80), np.arange(80)]).keep()
    assert read_activity(model.opened).positions > 1000
    other = LoadedModel.load(path, EngineConfig(threads=1, activation="fatrelu:0.1"))
    assert read_activity(other.opened).positions == 0
    file = activity_folder(model.opened) / "neuron_activity.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    assert read_activity(model.opened).positions == 0
    taught(model, [np.arange(80), np.arange(80)]).keep()
    assert read_activity(model.opened).positions > 1000


def test_a_full_disk_is_no_reason_to_stop(model: LoadedModel, monkeypatch: Any) -> None:
    adaptation = taught(model, [np.arange(80), np.arange(80)])

    def full(*_: object) -> Path:
        raise DiskSpaceError("The disk took no more.")

    monkeypatch.setattr(NeuronActivity, "save", full)
    assert adaptation.adapt() is None
    assert adaptation.activity.positions > 1000


def test_statistics_of_the_model_are_what_it_begins_with(tmp_path: Path) -> None:
    model = load(make_bundle(tmp_path))
    counts = np.zeros((2, 400), np.int64)
    counts[:, 300:] = 500
    save_stats(model.opened, NeuronStats(counts, 1000, "measured", "a text"))
    hot = [np.arange(296, 400, dtype=np.int32)] * 2
    blocks = blocks_of(model, hot)
    adaptation = taught(model, [np.arange(2), np.arange(2)], positions=40)
    until_done(adaptation, blocks)
    for table in blocks.tables:
        # The four that never fired give way; what the statistics know stays, though it has not fired of late.
        assert set(range(300, 400)) <= set(table.hot.tolist())
        assert {0, 1} <= set(table.hot.tolist())


# --- in a session


def test_prompt_and_answer_are_learned(model: LoadedModel) -> None:
    adaptation = Adaptation(model.opened)
    session = ChatSession(model, adaptation=adaptation)
    said = answer(session)
    n = len([token for token in said if token is not None])
    session.adapt()
    assert adaptation.activity.positions == pytest.approx(len(PROMPT) + n - 1, rel=0.01)
    session.set_mode("dense")
    answer(session, [*PROMPT, 5])
    session.keep()
    assert read_activity(model.opened).positions > len(PROMPT) + n


def test_a_frozen_session_learns_nothing(model: LoadedModel) -> None:
    session = ChatSession(model)
    first = answer(session)
    assert session.adapt() is None
    session.keep()
    assert answer(session) == first
    assert not activity_folder(model.opened).exists()
    assert session._transformer.executor.counters.per_neuron is None


def test_models_without_zeros_have_nothing_to_learn(tmp_path: Path, model: LoadedModel) -> None:
    assert can_learn(model.opened)
    silu = load_any(make_tiny_model(tmp_path / "silu", activation="silu"))
    assert not can_learn(silu.opened)


def load_any(path: Path) -> LoadedModel:
    return LoadedModel.load(path, EngineConfig(threads=1))


# --- in the host


class Host(EngineHost):
    def __init__(self) -> None:
        self.events: list[Any] = []
        super().__init__(self.events.append)


def chat(request: str, text: str = "hello there") -> protocol.Generate:
    return protocol.Generate(request, [{"role": "user", "content": text}], {"temperature": 0, "max_tokens": 5})


def test_the_host_learns_between_answers_and_keeps_it_when_the_model_goes(path: Path, monkeypatch: Any) -> None:
    host = Host()
    host.submit(protocol.Load("l", str(path), {"threads": 1}))
    host.submit(chat("a"))
    waits: list[float | None] = []

    class Queue(queue.Queue[Any]):
        """Says for how long it was waited for; nothing comes until everything is done that there was to do."""

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            if not self.qsize():
                waits.append(timeout)
                if timeout is None or len(waits) > 20:
                    return None
                raise queue.Empty
            return super().get(block, timeout)

    waiting = Queue()
    waiting.queue.extend(host._queue.queue)
    host._queue = waiting
    host.run_pending(block=True)
    ends = [event.result for event in host.events if isinstance(event, protocol.Finished)]
    assert ends[-1]["finish_reason"]
    assert waits[0] == 2.0  # idle, then everything is kept, and then it is only waited
    assert waits[-1] is None
    assert len(waits) == 2
    kept = read_activity(load_any(path).opened)
    assert kept.positions > 5


def test_a_host_that_is_told_so_learns_nothing(path: Path) -> None:
    host = Host()
    for request in (protocol.Load("l", str(path), {"threads": 1, "adapt": False}), chat("a"), protocol.Shutdown("s")):
        host.submit(request)
    host.run_pending()
    assert host.events[-1].id == "s"
    assert read_activity(load_any(path).opened).positions == 0
    with pytest.raises(InvalidRequestError, match="true or false"):
        EngineConfig(adapt=1)  # type: ignore[arg-type]


@pytest.mark.expects_log("does not adapt any more")
def test_a_fault_of_adapting_ends_it_and_not_the_host(path: Path, monkeypatch: Any) -> None:
    host = Host()
    host.submit(protocol.Load("l", str(path), {"threads": 1}))
    host.submit(chat("a"))
    host.run_pending()
    monkeypatch.setattr(Adaptation, "adapt", lambda *_: 1 / 0)
    assert host._adapt() is None
    host.submit(chat("b"))
    host.run_pending()
    assert host.events[-1].result["finish_reason"]
    assert host._adapt() is None


def test_blocks_are_not_larger_than_a_layer() -> None:
    table = SlotTable(1000, np.arange(500, dtype=np.int32))
    rates = np.concatenate([np.zeros(500), np.full(500, 0.9)])
    slots, neurons = worst_for_best(rates, 1e4, table)
    assert len(slots) == len(neurons) == BLOCK_NEURONS
