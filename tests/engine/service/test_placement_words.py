"""The line and the reasons that say where a loaded model lies."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fakes.gpu_machine import GIB, FakeGpuMachine, same_scratch_for_every_budget
from samples.experts_gguf import make_tiny_mixtral
from samples.placements import a_placement
from samples.split_model import EXPERT_FAMILIES, FAMILIES
from samples.tiny_model import make_tiny_gguf, make_tiny_model
from support.shown_text import numbers_in

from engine.config import EngineConfig, ModelConfig
from engine.errors import ArtifactMismatchError
from engine.gpu.placed_model import PlacedModel
from engine.gpu.placement_text import experts_text, hot_share
from engine.placement import setting
from engine.service.placement_words import about, gib, memory_of, placement_of
from engine.session.loaded_model import LoadedModel

KEYS = {
    "line", "where", "why", "gpu", "gpu_neuron_load", "hot_share", "vram_bytes", "vram_total_bytes",
    "vram_budget_bytes", "ram_bytes", "predicted_tok_s", "context", "is_automatic", "experts_on_gpu",
    "disk_bytes",
}  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpuMachine:
    return FakeGpuMachine(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (None, "speed unknown"),
        (0.0, "speed unknown"),
        (float("nan"), "speed unknown"),
        (0.84, "about 0.8\u202ftok/s"),
        (9.96, "about 10\u202ftok/s"),
        (11.4, "about 11\u202ftok/s"),
        (140.2, "about 140\u202ftok/s"),
    ],
)
def test_a_rate_that_was_foretold_has_no_more_digits_than_can_be_known(rate: float | None, words: str) -> None:
    assert about(rate) == words


def test_memory_is_counted_as_it_is_sold() -> None:
    assert memory_of(int(21.34 * GIB), 24 * GIB) == "21.3 of 24\u202fGB"
    assert memory_of(int(3.1 * GIB), 4 * GIB) == "3.1 of 4.0\u202fGB"
    assert gib(9 * GIB) == "9.0\u202fGB"
    assert gib(33 << 20) == "33\u202fMB"


@pytest.mark.parametrize("config", [FAMILIES["nemotron"], EXPERT_FAMILIES["nemotron"], EXPERT_FAMILIES["glm"]])
def test_layers_without_neurons_or_experts_lack_none(config: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    hot = [np.arange(config.placed_neurons_of(i), dtype=np.int32) for i in range(config.n_layers)]
    last = max(i for i, ids in enumerate(hot) if len(ids))
    part = PlacedModel.__new__(PlacedModel)
    part._base = SimpleNamespace(opened=SimpleNamespace(config=config))  # type: ignore[assignment]
    for less in (0, 1):
        hot[last] = hot[last][: len(hot[last]) - less * config.d_ff]
        placement = a_placement(hot, config.n_placed_neurons, head="gpu")
        monkeypatch.setattr(PlacedModel, "_now", SimpleNamespace(placement=placement))
        assert part.is_whole == (hot_share(placement, config) == 1) == (less == 0)
        if config.n_experts:
            assert ("of each layer" in experts_text(placement, config)) == (less == 0 or len(config.expert_layers) == 1)


def test_with_a_gpu(machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.placement import memory_plan

    monkeypatch.setattr(memory_plan, "gpu_scratch_bytes", lambda *of: 0)
    monkeypatch.setattr(memory_plan, "pinned_bytes", lambda *of: 0)
    path = make_tiny_model(tmp_path / "m", d_ff=256)
    model = machine.load(path)
    told = placement_of(model)
    assert told.keys() == KEYS
    json.dumps(told)
    assert model.gpu is not None
    placement = model.gpu.placement
    memory, rate = memory_of(model.vram_bytes, 4 * GIB), about(placement.predicted_tok_s)
    assert told["line"].startswith("A GPU: ")
    assert numbers_in(told["line"]) == ["100%", *numbers_in(memory), *numbers_in(rate)]
    assert told["line"] == f"{told['where']}, {about(placement.predicted_tok_s)}"
    assert (told["hot_share"], told["gpu_neuron_load"], told["is_automatic"]) == (1, 1, True)
    assert told["vram_bytes"] == model.vram_bytes <= told["vram_budget_bytes"] < told["vram_total_bytes"] == 4 * GIB
    assert told["context"] == model.context
    why = told["why"]
    assert why[0].startswith("A GPU: ")
    assert numbers_in(why[0]) == ["4.3 GB"]
    assert any("512 MiB" in numbers_in(sentence) for sentence in why), "the margin"
    assert any(f"{model.context} tokens" in sentence for sentence in why)
    assert all(sentence.endswith((".", ")")) for sentence in why)
    assert len(set(why)) == len(why)
    monkeypatch.setattr(type(model.gpu), "products", "Somebody multiplies.")
    assert "Somebody multiplies." in placement_of(model)["why"]
    room = (placement.vram_bytes - placement.hot_bytes // 2) / GIB
    model.close()
    smaller = machine.load(path, vram_budget_gib=room)
    told = placement_of(smaller)
    assert not told["is_automatic"]
    assert 0 < told["hot_share"] < 1
    assert numbers_in(told["line"])[0] == f"{told['gpu_neuron_load']:.0%}"
    assert any(f"{room:.2f} GiB" in sentence for sentence in told["why"]), "what was asked for"
    smaller.close()
    told = placement_of(smaller)  # it was given back, and the CPU computes
    assert told["vram_bytes"] == 0


def test_experts_are_named(machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    same_scratch_for_every_budget(monkeypatch)
    path = make_tiny_mixtral(tmp_path / "m.gguf")
    for experts, numbers in ((8.5, ["4 of 4"]), (5.5, ["5 of 8"]), (4.5, ["2 of 4"])):
        model = machine.load(path, vram_budget_gib=machine.budget_for_experts(path, experts))
        told = placement_of(model)
        assert told["experts_on_gpu"] == int(experts)
        where = told["where"]
        assert numbers[0] in where
        assert ("of each layer" in where) == (int(experts) % 2 == 0)
        assert any("experts" in sentence for sentence in told["why"])
        model.close()


def test_models_without_zeros_have_no_active_neurons(machine: FakeGpuMachine, tmp_path: Path) -> None:
    model = machine.load(make_tiny_gguf(tmp_path / "m.gguf"), mode="dense")
    assert numbers_in(placement_of(model)["line"])[0] == "100%"
    assert "active" not in placement_of(model)["line"]
    model.close()


def test_the_reason_names_the_gpu_that_was_not_taken(
    machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from engine.machine.graphics import GpuInfo
    from engine.machine.hardware import HardwareProfile

    file = tmp_path / "slow.json"
    profile = HardwareProfile.load(file)
    inside = GpuInfo(None, "Intel graphics", None, None, 32 * GIB, None, None, None, None, False, ("no CUDA",))
    replace(profile, gpus=(inside, *profile.gpus)).save(file)
    model = machine.load(make_tiny_model(tmp_path / "m"))
    assert placement_of(model)["why"][0].startswith("A GPU: ")
    assert "Intel graphics" in placement_of(model)["why"][0]
    model.close()


def test_without_a_gpu(tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "m")
    model = LoadedModel.load(path, EngineConfig(hardware_file="no-gpu", threads=1))
    told = placement_of(model)
    assert told.keys() == KEYS
    json.dumps(told)
    assert numbers_in(told["line"])[0] == numbers_in(gib(told["ram_bytes"]))[0]
    assert told["line"].endswith("\u202ftok/s")
    assert told["predicted_tok_s"] > 0
    assert "CPU" in told["why"][0]
    assert any("No statistics" in sentence for sentence in told["why"]) or told["why"]
    assert (told["gpu"], told["vram_bytes"], told["gpu_neuron_load"]) == ("", 0, None)


def test_what_cannot_be_foretold_is_no_reason_not_to_say_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = LoadedModel.load(make_tiny_model(tmp_path / "m"), EngineConfig(device="cpu", threads=1))

    def reads(*of: object, **named: object) -> None:
        raise ArtifactMismatchError("The statistics are another model's.")

    monkeypatch.setattr(setting, "read_setting", reads)
    told = placement_of(model)
    assert "tok/s" not in told["line"]
    assert told["predicted_tok_s"] is None
    assert "CPU" in told["why"][0]
