"""What is recorded of an answer's tokens: it agrees with the model's logits, and an answer goes on from any of them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.gpu_machine import FakeGpuMachine, same_scratch_for_every_budget
from numpy.typing import NDArray
from samples.experts_gguf import N_EXPERTS, N_USED, make_tiny_mixtral
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.config import EngineConfig, SamplingConfig
from engine.placement import memory_plan
from engine.service import active_neurons, protocol
from engine.service.host import EngineHost
from engine.service.inspection import TOP, Inspection
from engine.session.chat_session import ChatSession
from engine.session.generate import decode_one_token, prefill
from engine.session.loaded_model import LoadedModel

STORY = [{"role": "user", "content": "Tell me a long story about a shy robot called Bolt."}]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}
PROMPT = [1, 5, 9, 40, 7]


class Inspected:
    """A host with a model, and the events of its last request."""

    def __init__(self, engine: dict[str, Any] | None = None) -> None:
        self.events: list[Any] = []
        self.host = EngineHost(self.events.append)
        self.run(protocol.Load("load", "starter-chat", engine or {}))

    def run(self, request: protocol.Request) -> dict[str, Any]:
        self.events.clear()
        self.host.submit(request)
        self.host.run_pending()
        assert isinstance(self.events[-1], protocol.Finished), self.events[-1]
        return self.events[-1].result

    @property
    def session(self) -> ChatSession:
        assert self.host.session is not None
        return self.host.session

    @property
    def record(self) -> protocol.Inspected:
        (found,) = [event for event in self.events if isinstance(event, protocol.Inspected)]
        return found


@pytest.fixture(scope="module")
def inspected() -> Iterator[Inspected]:
    made = Inspected()
    yield made
    made.host.close()


def ids(record: protocol.Inspected) -> list[int]:
    return [row["id"] for row in record.rows]


def recorded(model: LoadedModel, mode: str, n_tokens: int = 8) -> protocol.Inspected:
    session = ChatSession(model, mode=mode)
    inspection = Inspection(session, PROMPT)
    for event in session.generate(PROMPT, SamplingConfig(temperature=0, max_tokens=n_tokens)):
        if event.token_id is not None:
            inspection.token(event)
    return inspection.event("a")


def bits(text: str, model: LoadedModel) -> NDArray[np.bool_]:
    """Return flags [L, F] as protocol.Inspected has them."""
    config = model.opened.config
    rows = np.frombuffer(base64.b64decode(text), np.uint8).reshape(config.n_layers, -1)
    return np.unpackbits(rows, axis=1, count=config.n_neurons, bitorder="little").astype(bool)


def active_alone(model: LoadedModel, tokens: list[int], mode: str) -> list[NDArray[np.bool_]]:
    """The active neurons [L, F] of each token, decoded by itself."""
    transformer, cache, found = model.transformer(mode), model.new_cache(), []
    counters = transformer.executor.counters
    prefill(transformer, PROMPT, cache)
    if counters.per_neuron is None:
        counters.record_per_neuron()
    for token in tokens:
        counters.take_per_neuron()
        decode_one_token(transformer, token, cache)
        found.append(counters.take_per_neuron()[0] > 0)
    return found


def test_a_very_long_answer_has_no_values_by_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LoadedModel.load(make_tiny_mixtral(tmp_path / "m.gguf"), EngineConfig(device="cpu"))
    whole = recorded(model, "dense")
    monkeypatch.setattr("engine.service.inspection.MOST_VALUES", 3)
    bare = recorded(model, "dense")
    model.close()
    assert any("experts" in row for row in whole.rows)
    assert not any({"experts", "missed", "fired"} & row.keys() for row in bare.rows)
    assert ids(bare) == ids(whole)
    assert any("bytes" in row for row in bare.rows)


def step_by_step(model: LoadedModel, prompt: list[int], tokens: list[int], mode: str | None = None) -> list[Any]:
    """The logits after the prompt, and after each token of the answer."""
    transformer, cache = model.transformer(mode), model.new_cache()
    found = [prefill(transformer, prompt, cache).copy()]
    return found + [decode_one_token(transformer, token, cache).copy() for token in tokens]


def test_nothing_is_recorded_unless_asked(inspected: Inspected) -> None:
    inspected.run(protocol.Generate("a", STORY, GREEDY))
    assert not any(isinstance(event, protocol.Inspected) for event in inspected.events)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_probabilities_are_the_softmax_of_the_models_logits(inspected: Inspected, temperature: float) -> None:
    sampling = {**GREEDY, "temperature": temperature, "seed": 3}
    inspected.run(protocol.Generate("a", STORY, sampling, mode="dense", inspect=True, fresh=True))
    record, model = inspected.record, inspected.session.model
    logits = np.array(step_by_step(model, record.prompt, ids(record), "dense")[:-1], np.float64)
    wanted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert len(record.rows) == 24
    for row, probabilities in zip(record.rows, wanted, strict=True):
        assert row["p"] == pytest.approx(probabilities[row["id"]], abs=1e-6)
        assert [token for token, _ in row["top"]] == np.argsort(-probabilities, kind="stable")[:TOP].tolist()
        for token, probability in row["top"]:
            assert probability == pytest.approx(probabilities[token], abs=1e-6)


def test_the_prompt_and_the_texts_are_those_of_the_model(inspected: Inspected) -> None:
    result = inspected.run(protocol.Generate("a", STORY, GREEDY, inspect=True))
    record, tokenizer = inspected.record, inspected.session.model.tokenizer
    assert record.prompt == tokenizer.encode_chat(STORY)
    assert "".join(record.texts[str(i)] for i in ids(record)).strip() == result["text"].strip()
    assert record.texts[str(record.prompt[0])] == "<|begin|>"


def test_neurons_time_and_bytes_are_the_answers_own(inspected: Inspected) -> None:
    result = inspected.run(protocol.Generate("a", STORY, {**GREEDY, "max_tokens": 20}, inspect=True))
    first, *rest = inspected.record.rows
    alone = [row for row in rest if row["run"] == 1]
    weights = inspected.session.model.weights
    assert "run" not in first
    assert len(alone) > 12
    for row in alone:
        assert len(row["fired"]) == 8
        assert 0 < sum(row["fired"]) <= row["computed"] < 8 * inspected.record.n_neurons
        assert weights.head.n_bytes < row["bytes"] < weights.n_bytes
        assert "on_gpu" not in row
        assert "experts" not in row
    n_neurons = 8 * inspected.record.n_neurons
    assert np.mean([row["computed"] for row in alone]) / n_neurons == pytest.approx(result["active_share"], rel=0.2)
    assert sum(row["us"] for row in rest) / 1e6 < result["total_s"]


@pytest.mark.parametrize("mode", ["exact", "sparse"])
def test_active_neurons_are_those_of_the_token_alone(inspected: Inspected, mode: str) -> None:
    model = inspected.session.model
    record = recorded(model, mode)
    for row, wanted in zip(record.rows[1:], active_alone(model, ids(record)[:-1], mode), strict=True):
        assert np.array_equal(bits(row["active"], model), wanted)
        assert wanted.sum(axis=1).tolist() == row["fired"]
    assert record.hot == ""


@pytest.mark.expects_log("not recorded")
def test_neurons_are_counted_only_while_an_answer_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Inspected({"adapt": False, "mode": "exact"})
    counters, request = made.session.transformer.executor.counters, protocol.Generate("a", STORY, GREEDY, inspect=True)
    made.run(request)
    assert all("active" in row for row in made.record.rows[1:])
    assert counters.per_neuron is None
    made.run(protocol.Watch("watch", True))
    made.run(request)
    assert counters.per_neuron is not None, "the Live page counts on"
    made.run(protocol.Watch("rest", False))
    monkeypatch.setattr(Inspection, "_bytes", lambda *_: 1 / 0)
    made.run(request)
    assert counters.per_neuron is None, "the record failed"
    made.host.close()


def test_active_neurons_are_kept_for_the_last_tokens(inspected: Inspected, monkeypatch: pytest.MonkeyPatch) -> None:
    model = inspected.session.model
    whole = recorded(model, "exact")
    monkeypatch.setattr(active_neurons, "MOST_BYTES", 3 * model.opened.config.n_layers * -(-whole.n_neurons // 8))
    rows = recorded(model, "exact").rows
    assert [row.get("active") for row in rows] == [None] * (len(rows) - 3) + [row["active"] for row in whole.rows[-3:]]
    assert all("fired" in row for row in rows[1:])


@pytest.mark.parametrize("place", [0, 1, 9])
def test_another_token_makes_an_answer_that_goes_on_from_it(inspected: Inspected, place: int) -> None:
    whole = inspected.run(protocol.Generate("a", STORY, GREEDY, inspect=True))["text"]
    record, session = inspected.record, inspected.session
    tokens = ids(record)
    same = [*record.prompt, *tokens[: place + 1]]
    sampling = {**GREEDY, "max_tokens": 24 - place - 1}
    again = inspected.run(protocol.Generate("b", STORY, sampling, prompt=same, n_begun=place + 1))
    assert again["text"] == whole, "the token itself changes nothing"
    assert again["tokens"] == 24 - place - 1
    other = record.rows[place]["top"][1][0]
    begun = [*record.prompt, *tokens[:place], other]
    branch = inspected.run(protocol.Generate("c", STORY, GREEDY, inspect=True, prompt=begun, n_begun=place + 1))
    wanted = ids(inspected.record)
    logits = step_by_step(session.model, record.prompt, [*tokens[:place], other, *wanted])
    assert wanted == [int(one.argmax()) for one in logits[place + 1 : -1]]
    assert len(wanted) == 24
    assert inspected.record.prompt == begun
    assert branch["text"] == session.model.tokenizer.decode([*tokens[:place], other, *wanted]).removeprefix(" ")


def test_tokens_of_one_run_claim_no_neurons_of_their_own(inspected: Inspected, monkeypatch: pytest.MonkeyPatch) -> None:
    inspected.run(protocol.Generate("a", STORY, GREEDY, inspect=True))
    known, n_prompt = ids(inspected.record), len(inspected.record.prompt)
    monkeypatch.setattr(
        "engine.session.guesses.Guesses.next", lambda self, text, most: known[len(text) - n_prompt :][: min(2, most)]
    )
    inspected.run(protocol.Generate("a", STORY, GREEDY, inspect=True))
    assert ids(inspected.record) == known
    runs = [row["run"] for row in inspected.record.rows[1:]]
    assert {0, 3} <= set(runs)
    assert all("bytes" not in row and "computed" not in row for row in inspected.record.rows[1:] if row["run"] != 1)


def test_experts_are_those_of_the_router(tmp_path: Path) -> None:
    model = LoadedModel.load(make_tiny_mixtral(tmp_path / "m.gguf"), EngineConfig(device="cpu"))
    record = recorded(model, "dense")
    alone = [row for row in record.rows[1:] if row["run"] == 1]
    assert alone
    for row in alone:
        assert len(row["experts"]) == model.opened.config.n_layers
        assert all(len(set(layer)) == N_USED and max(layer) < N_EXPERTS for layer in row["experts"])
        assert "missed" not in row
    model.close()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpuMachine]:
    made = FakeGpuMachine(tmp_path, monkeypatch)
    yield made
    for gpu in made.gpus:
        gpu.close()


def test_a_gpu_tells_how_many_neurons_it_computed(machine: FakeGpuMachine, tmp_path: Path) -> None:
    model = machine.load(make_tiny_gguf(tmp_path / "m.gguf"), mode="dense")
    rows = recorded(model, "dense").rows[1:]
    assert all(0 < row["on_gpu"] <= row["computed"] for row in rows if row["run"] == 1)
    model.close()


@pytest.mark.parametrize(("is_cleared", "is_placed_again"), [(False, False), (True, False), (False, True)])
def test_active_neurons_on_a_gpu(
    machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cleared: bool, is_placed_again: bool
) -> None:
    """is_cleared: the Live page takes the GPU's counts between two tokens. is_placed_again: before the first one."""
    monkeypatch.setattr(memory_plan, "gpu_scratch_bytes", lambda *of: 0)
    monkeypatch.setattr(memory_plan, "pinned_bytes", lambda *of: 0)
    path = make_tiny_model(tmp_path / "a", d_ff=256)
    whole = machine.load(path, adapt=False)
    assert whole.gpu is not None
    placement = whole.gpu.placement
    whole.close()
    budget = (placement.vram_bytes - placement.hot_bytes // 2) / (1 << 30)
    model = machine.load(path, vram_budget_gib=budget, adapt=False)
    session = ChatSession(model, mode="exact")
    inspection, before = Inspection(session, PROMPT), model.generation
    if is_placed_again:
        assert model.gpu is not None
        model.residency.place_for(model.context)
        assert model.generation > before
    for event in session.generate(PROMPT, SamplingConfig(temperature=0, max_tokens=8)):
        if event.token_id is not None:
            inspection.token(event)
            if is_cleared:
                session.transformer.executor.counters.fired_so_far(np.zeros(1, np.int64))
    record = inspection.event("a")
    assert model.hot_blocks is not None
    for flags, table in zip(bits(record.hot, model), model.hot_blocks.tables, strict=True):
        assert np.array_equal(np.flatnonzero(flags), np.sort(table.neuron_in))
    wanted = active_alone(model, ids(record)[:-1], "exact")
    hot = bits(record.hot, model)
    assert all((one & hot).any() and (one & ~hot).any() for one in wanted)
    for row, one in zip(record.rows[1:], wanted, strict=True):
        assert np.array_equal(bits(row["active"], model), one)
    model.close()


def test_experts_on_a_gpu_come_with_their_misses(
    machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_scratch_for_every_budget(monkeypatch)
    path = make_tiny_mixtral(tmp_path / "m.gguf")
    model = machine.load(path, vram_budget_gib=machine.budget_for_experts(path, 5.5))
    assert model.gpu is not None
    slots = model.gpu.expert_slots
    assert slots is not None
    counted = slots.counted.tolist()
    for row in recorded(model, "dense").rows[1:]:
        for layer, missed, is_counted in zip(row["experts"], row["missed"], counted, strict=True):
            assert 0 <= missed <= N_USED
            assert len(layer) == N_USED if is_counted or layer else not layer
    assert any(counted)
    model.close()


@pytest.mark.expects_log("not recorded")
def test_a_failure_of_the_record_leaves_the_answer(inspected: Inspected, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inspection, "_bytes", lambda *_: 1 / 0)
    result = inspected.run(protocol.Generate("a", STORY, GREEDY, inspect=True))
    assert result["tokens"] == 24
    assert not any(isinstance(event, protocol.Inspected) for event in inspected.events)
