"""A KV cache on the GPU that grows with the conversation, in place of weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.gpu_machine import GIB, FakeGpuMachine, same_scratch_for_every_budget
from samples.recurrent_model import make_recurrent_model
from samples.tiny_model import make_tiny_model

from engine.config import SamplingConfig
from engine.errors import HostMemoryError
from engine.evaluation.evaluate import last_logits
from engine.gpu import placed_model, residency
from engine.gpu.placed_model import PlacedModel
from engine.job import Job
from engine.model import window_memory
from engine.model.kv_cache import KVCache
from engine.placement import kv_positions
from engine.placement.gpu_bytes import gpu_cache_bytes
from engine.placement.kv_positions import choose_kv_positions, kv_sizes
from engine.service.inspection import Inspection
from engine.session import chat_session
from engine.session.chat_session import ChatSession
from engine.session.generate import TokenEvent
from engine.session.loaded_model import LoadedModel
from native_kernels.cuda.runtime.driver import CudaError

CONTEXT, FEWEST = 256, 64
WINDOWS = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 32,
           "layer_types": ["sliding_attention", "full_attention"] * 2}  # fmt: skip


ATTENTION = pytest.mark.parametrize("both", ["attention"], indirect=True)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpuMachine]:
    same_scratch_for_every_budget(monkeypatch)
    monkeypatch.setattr(kv_positions, "FEWEST_POSITIONS", FEWEST)
    monkeypatch.setattr(chat_session, "ANSWER_TOKENS", 8)
    monkeypatch.setattr(window_memory, "SLACK", 64)
    monkeypatch.setattr(window_memory, "REWIND", 32)
    made = FakeGpuMachine(tmp_path, monkeypatch)
    yield made
    for gpu in made.gpus:
        gpu.close()


@pytest.fixture(params=["attention", "windows", "states", "experts"])
def both(request: pytest.FixtureRequest, machine: FakeGpuMachine, tmp_path: Path) -> Iterator[tuple[LoadedModel, ...]]:
    """A model wholly on the GPU with the KV cache of the whole context, and one with space for that of a quarter."""
    folder = tmp_path / "m"
    if request.param in ("states", "experts"):
        make_recurrent_model(folder, experts=request.param == "experts")
    else:
        config = WINDOWS if request.param == "windows" else None
        make_tiny_model(folder, activation="silu", n_layers=4, max_context=CONTEXT, config=config)
    made = [machine.load(folder, context=CONTEXT)]
    assert made[0].gpu is not None
    assert made[0].gpu.placement.cached_positions == CONTEXT
    long, short = (
        int(gpu_cache_bytes(made[0].opened.config, n, made[0].kv_codec).sum()) for n in (CONTEXT, CONTEXT // 4)
    )
    budget = made[0].gpu.placement.vram_bytes - (long - short)
    made.append(machine.load(folder, context=CONTEXT, vram_budget_gib=budget / GIB))
    yield tuple(made)
    for model in made:
        model.close()


def tokens(n: int) -> list[int]:
    return [6 + i * i % 83 for i in range(n)]


def ask(session: ChatSession, prompt: list[int], n: int = 3, job: Job = Job()) -> list[TokenEvent]:
    return list(session.generate(prompt, SamplingConfig(temperature=0, max_tokens=n), job))


def ids(events: list[TokenEvent]) -> list[int | None]:
    return [event.token_id for event in events]


def gpu_of(model: LoadedModel) -> PlacedModel:
    assert model.gpu is not None
    return model.gpu


def n_cached(model: LoadedModel) -> int:
    return gpu_of(model).placement.cached_positions


def test_a_chat_that_grows_takes_its_cache_along(both: tuple[LoadedModel, ...]) -> None:
    whole, small = both
    assert FEWEST <= n_cached(small) <= CONTEXT / 4
    assert gpu_of(small).is_whole
    first, second, generations = ChatSession(whole), ChatSession(small), {small.generation}
    assert second.context_total == CONTEXT
    released: list[int] = []

    def release() -> bool:
        released.append(small.generation)
        return True

    small.residency.release_first(release)
    for n in (20, 72, 76, 140):
        wanted, found = ask(first, tokens(n)), ask(second, tokens(n))
        assert ids(found) == ids(wanted)
        assert found[-1].stats.reused_tokens == wanted[-1].stats.reused_tokens
        placement = gpu_of(small).placement
        assert n + 3 <= placement.cached_positions
        assert placement.vram_bytes <= placement.origins.vram_budget_bytes
        generations.add(small.generation)
    assert 2 <= len(generations) <= 3
    assert len(small.gpu_notes) == len(released) == len(generations) - 1


def test_an_answer_outgrows_the_cache_halfway(both: tuple[LoadedModel, ...]) -> None:
    whole, small = both
    before, n = n_cached(small), n_cached(small) - 12
    session = ChatSession(small)
    found = ask(session, tokens(n), 30)
    assert ids(found) == ids(ask(ChatSession(whole), tokens(n), 30))
    assert found[-1].stats.tokens == 30, "it ends nowhere else"
    assert before < session.context_used == n + 29
    assert n_cached(small) > before


@pytest.mark.parametrize("both", ["experts"], indirect=True)
def test_experts_are_recorded_of_the_slots_after_it_grew(both: tuple[LoadedModel, ...]) -> None:
    _, small = both
    session, prompt, places = ChatSession(small), tokens(n_cached(small) - 12), list[int]()
    record, before = Inspection(session, prompt), small.generation
    for place, event in enumerate(session.generate(prompt, SamplingConfig(temperature=0, max_tokens=30))):
        if event.token_id is not None:
            record.token(event)
            if small.generation > before:
                places.append(place)
    slots, rows = gpu_of(small).expert_slots, record.event("a").rows
    assert slots is not None
    assert 5 < len(places) < 29
    noted = [rows[place]["missed"] for place in places[1:]]
    first = record._rows[places[0]].missed
    assert [sum(layer) for layer in zip(first, *noted, strict=True)] == slots.missed.tolist() != [0] * len(first)


@ATTENTION
def test_where_ram_is_short_for_the_copy_the_conversation_is_computed_again(
    both: tuple[LoadedModel, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, small = both

    def fail(*_: object) -> None:
        raise HostMemoryError("no RAM")

    first, second = ChatSession(whole), ChatSession(small)
    for n, most in ((20, 3), (n_cached(small) - 12, 20)):
        wanted, found = ask(first, tokens(n), most), ask(second, tokens(n), most)
        assert ids(found) == ids(wanted)
        monkeypatch.setattr(KVCache, "copied", fail)
    assert n_cached(small) > CONTEXT / 4


@ATTENTION
def test_cancelled_before_the_model_is_placed_again(
    both: tuple[LoadedModel, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, small = both
    session, before = ChatSession(small), (small.generation, n_cached(small))
    ask(session, tokens(20))
    events = ask(session, tokens(100), job=Job(lambda: True))
    assert [event.finish_reason for event in events] == ["cancelled"]
    assert (small.generation, n_cached(small)) == before
    assert ask(session, tokens(100))[-1].stats.reused_tokens == 20
    assert n_cached(small) > before[1]


@ATTENTION
@pytest.mark.expects_log
def test_where_the_gpu_fails_then_the_cpu_goes_on(
    both: tuple[LoadedModel, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, small = both
    session, n = ChatSession(small), n_cached(small) - 12
    wanted = ids(ask(ChatSession(whole), tokens(n), 20))

    def fail(*_: object, **__: object) -> None:
        raise CudaError("cuMemAlloc", 1, "CUDA_ERROR")

    monkeypatch.setattr(placed_model, "load_onto_gpu", fail)
    assert ids(ask(session, tokens(n), 20)) == wanted
    assert small.device == "cpu"
    assert small.on_gpu is not None
    assert small.on_gpu.placed.least_positions == 0  # as before it failed
    assert session.context_used == n + 19


@ATTENTION
def test_a_short_chat_gets_the_weights_back_where_that_pays(
    both: tuple[LoadedModel, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, small = both
    session, before, gpu = ChatSession(small), n_cached(small), gpu_of(small)
    ask(session, tokens(200))
    assert not gpu.is_whole
    monkeypatch.setattr(residency, "saved_by_kv", lambda *_: 1.0)  # seconds per token
    small.residency._placing_s = 2.0
    ask(session, tokens(20))  # 3 tokens: less than there and back
    assert n_cached(small) > before
    small.residency._placing_s = 1.0
    ask(session, tokens(20))
    assert n_cached(small) == before
    assert gpu.is_whole


@ATTENTION
def test_no_placement_is_planned_for_each_short_answer_between_those_of_a_long_chat(
    both: tuple[LoadedModel, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, small = both
    session, planned = ChatSession(small), list[int]()
    monkeypatch.setattr(residency, "saved_by_kv", lambda *known: planned.append(known[-1]) or 0.0)
    for n in (200, 20, 200, 20, 22):
        ask(session, tokens(n))
    assert len(planned) == 1


@ATTENTION
def test_measurements_reserve_what_they_need(both: tuple[LoadedModel, ...]) -> None:
    _, small = both
    logits = last_logits(small, tokens(150))
    assert logits.shape == (small.opened.config.vocab_size,)
    assert n_cached(small) >= 150


def test_as_many_positions_as_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kv_sizes(16384) == [4096, 5120, 6144, 7168, 8192, 10240, 12288, 14336, 16384]
    assert kv_sizes(40000, 21000) == [24960, 29952, 34944, 40000]
    assert kv_sizes(1000) == kv_sizes(1000, 2000) == [1000]
    for limit in kv_sizes(40000):
        times = {n: 1.02 if n <= limit else 1.1 for n in kv_sizes(40000)}
        assert choose_kv_positions(40000, 0, times.__getitem__) == limit
