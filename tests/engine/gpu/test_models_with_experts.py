"""Loaded models with experts on GPU and CPU: placed by whole experts, the same text wherever they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.batch_operators import FakeBatchOps
from fakes.gpu_machine import FakeGpuMachine, same_scratch_for_every_budget
from samples.experts_gguf import N_EXPERTS, make_tiny_mixtral
from samples.placement_cases import a_profile

from engine.bundle import artefacts
from engine.config import EngineConfig, SamplingConfig
from engine.conversion.convert import convert
from engine.errors import Cancelled
from engine.evaluation.bench_batch import run_batch
from engine.gpu import loaded_part
from engine.gpu.weights import expert_slots
from engine.gpu.weights.expert_slots import ExpertSlots
from engine.loading.modes import choose_mode
from engine.machine.cpu_and_ram import RamInfo
from engine.model.model_files import open_model
from engine.placement import memory_plan
from engine.placement.model_bytes import ModelBytes
from engine.service.placement_words import placement_of
from engine.session.batch import open_batch
from engine.session.chat_session import ChatSession
from engine.session.generate import decode_batch, decode_one_token
from engine.session.loaded_model import LoadedModel
from engine.sparsity.predictor import LayerPredictor, LowRank, Predictor
from native_kernels.backend import PackedMatrix

GREEDY = SamplingConfig().changed({"temperature": 0, "max_tokens": 24})
PROMPT = [1, 5, 9, 40, 7]
WIDTH = 64


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpuMachine]:
    same_scratch_for_every_budget(monkeypatch)
    monkeypatch.setattr(loaded_part, "batch_ops", FakeBatchOps)
    made = FakeGpuMachine(tmp_path, monkeypatch)
    yield made
    for gpu in made.gpus:
        gpu.close()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return make_tiny_mixtral(tmp_path / "m.gguf")


def answer(model: LoadedModel) -> list[int]:
    return [event.token_id for event in ChatSession(model).generate(PROMPT, GREEDY) if event.token_id is not None]


def by_cpu(path: Path) -> list[int]:
    model = LoadedModel.load(path, EngineConfig(device="cpu", threads=1))
    try:
        return answer(model)
    finally:
        model.close()


def slots_of(model: LoadedModel) -> ExpertSlots:
    assert model.gpu is not None
    assert model.gpu.expert_slots is not None
    return model.gpu.expert_slots


@pytest.mark.parametrize("converted", [False, True])
def test_the_text_is_the_same_wherever_experts_are(machine: FakeGpuMachine, tiny: Path, converted: bool) -> None:
    path = tiny
    if converted:
        path = tiny.with_name("bundle")
        convert(tiny, path, "f16")
    wanted = by_cpu(path)
    for experts in (8, 5, 2):
        model = machine.load(path, vram_budget_gib=machine.budget_for_experts(path, experts + 0.5))
        assert model.gpu is not None
        placement = model.gpu.placement
        assert placement.hot_neurons == experts * WIDTH
        assert all(len(ids) % WIDTH == 0 for ids in placement.hot)
        assert model.device == "cuda"
        assert answer(model) == wanted
        model.close()


def test_where_predictions_are_asked_for_experts_are_computed_exactly(machine: FakeGpuMachine, tiny: Path) -> None:
    opened = open_model(tiny)
    rng, config = np.random.default_rng(1), opened.config
    a, b = (
        PackedMatrix.pack(rng.standard_normal(shape).astype(np.float32), "f32")
        for shape in ((8, config.d_model), (config.n_placed_neurons, 8))
    )
    layers = (LayerPredictor(LowRank(a, b, read_share=0.5), input="normed"),) * config.n_layers
    wanted = by_cpu(tiny)
    artefacts.save_predictor(opened, Predictor(layers))
    budget = machine.budget_for_experts(tiny, 3.5)
    for mode in ("sparse", "auto"):
        model = machine.load(tiny, vram_budget_gib=budget, mode=mode)
        assert (model.device, model.mode) == ("cuda", "exact")
        assert (model.mode_reason == choose_mode(opened, "exact")[1]) == (mode == "sparse")
        session = ChatSession(model, "sparse")
        assert [one.token_id for one in session.generate(PROMPT, GREEDY) if one.token_id is not None] == wanted
        model.close()


def test_experts_follow_the_router(
    machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Exchanges while it answers change nothing but where experts are computed."""
    monkeypatch.setattr(expert_slots, "TIME_SHARE", 100.0)
    monkeypatch.setattr(expert_slots, "LEAST_GAIN", 0.0)
    monkeypatch.setattr(expert_slots, "HYSTERESIS", 1.0)
    wanted = by_cpu(tiny)
    budget = machine.budget_for_experts(tiny, 3.5)
    model = machine.load(tiny, vram_budget_gib=budget)
    slots = slots_of(model)
    assert answer(model) == wanted
    assert answer(model) == wanted
    assert slots.exchanged > 0
    for layer, ids in enumerate(slots.expert_in):
        assert len(set(ids.tolist())) == len(ids)
        np.testing.assert_array_equal(np.flatnonzero(slots.residency(layer).resident), np.sort(ids))
    model.close()
    still = machine.load(tiny, vram_budget_gib=budget, adapt=False)
    assert answer(still) == wanted
    assert slots_of(still).exchanged == 0
    still.close()


def test_heat_counts_choices_and_decays(machine: FakeGpuMachine, tiny: Path) -> None:
    model = machine.load(tiny, vram_budget_gib=machine.budget_for_experts(tiny, 2.5), adapt=False)
    answer(model)
    slots = slots_of(model)
    tokens = len(PROMPT) + 24 - 1
    decayed = sum(expert_slots.DECAY**age for age in range(tokens))
    for layer, ids in enumerate(slots.expert_in):
        if len(ids) < N_EXPERTS:  # else the CPU hears nothing of the choices
            assert slots.heat_in_choices[layer].sum() == pytest.approx(2 * decayed, rel=1e-3)
    model.close()


def test_experts_that_neither_gpu_nor_ram_holds_are_read_from_the_disk(
    machine: FakeGpuMachine, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text is the same; experts that leave the GPU are read into RAM, those that come leave it."""
    for name, value in {"TIME_SHARE": 100.0, "LEAST_GAIN": 0.0, "HYSTERESIS": 1.0}.items():
        monkeypatch.setattr(expert_slots, name, value)
    monkeypatch.setattr(memory_plan, "BUDGET_STEP_BYTES", 1)
    wanted = by_cpu(tiny)
    budget = machine.budget_for_experts(tiny, 3.5)
    enough = machine.load(tiny, vram_budget_gib=budget)
    assert enough.gpu is not None
    placement = enough.gpu.placement
    cold = placement.ram_parts_bytes["cold"]
    assert enough.weights.expert_reads is None
    enough.close()
    free = memory_plan.RAM_MARGIN_BYTES + placement.ram_bytes - 3 * cold // 5
    profile = a_profile(vram=4 << 30, cpu_gb_s=1e-3, exchange_s=1e-6)
    replace(profile, ram=RamInfo(8 << 30, free)).save(tmp_path / "little.json")
    model = machine.load(tiny, vram_budget_gib=budget, hardware_file=str(tmp_path / "little.json"))
    reads, told = model.weights.expert_reads, placement_of(model)
    assert model.gpu is not None
    assert reads is not None
    assert told["disk_bytes"] == model.gpu.placement.disk_bytes == pytest.approx(3 * cold / 5, rel=0.01)
    requested, evicted = list[Any](), list[PackedMatrix]()
    monkeypatch.setattr(reads, "request", requested.extend)
    monkeypatch.setattr(reads, "evict_matrices", evicted.extend)
    monkeypatch.setattr(reads, "is_in_ram", lambda block: False)
    assert reads.is_needed
    slots = slots_of(model)
    assert answer(model) == wanted
    assert (slots.exchanged, len(requested) > 0) == (0, True), "what is on the disk is read before it moves"
    monkeypatch.setattr(reads, "is_in_ram", lambda block: True)
    requested.clear()
    assert answer(model) == wanted
    assert slots.exchanged == len(requested) > 0
    assert sum(len(block.matrices) for block in requested) == len(evicted)
    model.residency.give_up("a test")
    assert reads.is_needed
    model.close()


def test_a_cancelled_answer_leaves_the_slots_consistent(machine: FakeGpuMachine, tiny: Path) -> None:
    model = machine.load(tiny, vram_budget_gib=machine.budget_for_experts(tiny, 3.5))
    events = iter(ChatSession(model).generate(PROMPT, GREEDY))
    next(events)
    with pytest.raises((Cancelled, StopIteration)):
        events.throw(Cancelled())  # type: ignore[attr-defined]
    assert answer(model) == by_cpu(tiny)
    model.close()


@pytest.mark.parametrize("mode", ["dense", "exact"])
def test_a_batch_of_a_loaded_model(machine: FakeGpuMachine, tiny: Path, mode: str) -> None:
    changes: dict[str, Any] = {"sequences": 3, "mode": mode, "context": 32}
    model = machine.load(tiny, vram_budget_gib=machine.budget_for_experts(tiny, 3.5, **changes), **changes)
    together, alone = open_batch(model, 3), model.transformer()
    wanted = [decode_one_token(alone, token, model.new_cache()) for token in (7, 8, 9)]
    caches = [model.new_cache() for _ in range(3)]
    np.testing.assert_allclose(decode_batch(together, [7, 8, 9], caches), np.stack(wanted), atol=0.03)
    sizes = ModelBytes.of(model.opened, model.weights)
    assert model.gpu is not None
    assert mode == "exact" or model.gpu.batch("dense", 3).n_bytes <= memory_plan.batch_bytes(sizes, 3)
    found = run_batch(model, 2, 5, 4, 1)
    assert (found.batch, found.device) == (2, "cuda")
    model.close()
