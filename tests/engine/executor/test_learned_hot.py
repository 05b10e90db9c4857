"""The heat of experts between runs: what is kept, what a later load starts with, and damaged files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fakes.gpu_machine import FakeGpuMachine, same_scratch_for_every_budget
from samples.experts_gguf import N_EXPERTS, N_USED, make_tiny_mixtral

from engine.config import SamplingConfig
from engine.executor import learned_hot
from engine.executor.adaptation import activity_folder
from engine.executor.learned_hot import LearnedHot, read_heat
from engine.gpu.weights.expert_slots import ExpertSlots
from engine.model.model_files import open_model
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel

GREEDY = SamplingConfig().changed({"temperature": 0, "max_tokens": 8})
LEARNED = np.array([[1, 2, 30, 31], [30, 0, 24, 10]], np.float32)  # [L, E]
HOTTEST = [[2, 3], [0, 2]]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpuMachine:
    same_scratch_for_every_budget(monkeypatch)
    return FakeGpuMachine(tmp_path, monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_tiny_mixtral(tmp_path / "m.gguf")


class Counts:
    """Experts after some tokens."""

    def __init__(self, heat: np.ndarray, counted: tuple[bool, bool] = (True, True)) -> None:
        self.heat_in_choices, self.counted, self.tokens = heat, np.array(counted), 9

    def warm(self, heat: np.ndarray) -> None:
        self.heat_in_choices = heat


def learn(path: Path, counts: Counts) -> None:
    learned = LearnedHot(open_model(path))
    learned.take(counts)
    learned.save()


def slots_of(model: LoadedModel) -> ExpertSlots:
    assert model.gpu is not None
    assert model.gpu.expert_slots is not None
    return model.gpu.expert_slots


def test_a_load_starts_with_the_learned_experts(machine: FakeGpuMachine, path: Path) -> None:
    """Whether its placement was kept from before they were learned or is solved with them."""
    budget = machine.budget_for_experts(path, 4.5)
    machine.load(path, vram_budget_gib=budget).close()  # keeps a placement
    learn(path, Counts(LEARNED))
    for context in (None, 48):  # the latter is solved
        model = machine.load(path, vram_budget_gib=budget, context=context)
        slots = slots_of(model)
        assert [sorted(ids.tolist()) for ids in slots.expert_in] == HOTTEST
        np.testing.assert_allclose(slots.heat_in_choices, LEARNED)
        model.close()
    frozen = machine.load(path, vram_budget_gib=budget, adapt=False)
    assert not slots_of(frozen).heat_in_choices.any()
    frozen.close()


def test_a_session_keeps_the_heat(machine: FakeGpuMachine, path: Path) -> None:
    for adapt in (False, True):
        model = machine.load(path, vram_budget_gib=machine.budget_for_experts(path, 4.5), adapt=adapt)
        session = ChatSession(model)
        list(session.generate([1, 5, 9, 40, 7], GREEDY))
        heat = first = slots_of(model).heat_in_choices
        assert heat.any()
        assert session.adapt() is None
        n_before = slots_of(model).tokens
        assert activity_folder(model.opened).exists() == adapt
        list(session.generate([1, 5, 9, 41], GREEDY))
        wait = session.adapt()
        assert wait is None or wait > 0
        latest, n = slots_of(model).heat_in_choices, slots_of(model).tokens - n_before
        session.keep()
        model.close()
    share = 1 - np.exp(-n / learned_hot._RECENT_TOKENS)
    np.testing.assert_allclose(read_heat(open_model(path)), first + share * (latest - first), rtol=1e-5)


def test_layers_that_nobody_counted_keep_what_was_known(path: Path) -> None:
    learn(path, Counts(LEARNED))
    learn(path, Counts(2 * LEARNED, (False, True)))
    heat = read_heat(open_model(path))
    assert heat is not None
    assert heat[0].tolist() == LEARNED[0].tolist()
    assert (heat[1] >= LEARNED[1]).all()
    assert (heat[1] < 2 * LEARNED[1])[LEARNED[1] > 0].all()
    assert heat[1].sum() > LEARNED[1].sum()


def test_a_damaged_file_is_ignored(machine: FakeGpuMachine, path: Path) -> None:
    learn(path, Counts(LEARNED))
    opened = open_model(path)
    file = activity_folder(opened) / "neuron_activity.safetensors"
    whole = file.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:-4] + np.float32(np.nan).tobytes()):
        file.write_bytes(damaged)
        assert read_heat(opened) is None
    model = machine.load(path, vram_budget_gib=machine.budget_for_experts(path, 4.5))
    assert not slots_of(model).heat_in_choices.any()
    model.close()


def test_what_cannot_be_saved_stops_nothing(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(learned_hot, "activity_folder", lambda opened: tmp_path / "file" / "beneath")
    learn(path, Counts(LEARNED))
    assert read_heat(open_model(path)) is None


def test_nothing_is_saved_without_tokens(path: Path) -> None:
    counts = Counts(LEARNED)
    counts.tokens = 0
    learn(path, counts)
    assert not activity_folder(open_model(path)).exists()
    assert LEARNED.shape[1] == N_EXPERTS > N_USED
