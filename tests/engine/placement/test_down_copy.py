"""Whether a load copies down by neuron: only where that is faster and fits; all who ask get the same answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.gpu_machine import GIB, FakeGpuMachine
from samples.recoded_gguf import recode
from samples.tiny_model import make_tiny_gguf

from engine.config import EngineConfig, SamplingConfig
from engine.library.estimate.estimates import estimate_shape
from engine.library.estimate.machines import known_machine
from engine.library.estimate.preview import Previews
from engine.library.estimate.shapes import bytes_of
from engine.library.records import ModelShape
from engine.machine.measured_hardware import load_profile
from engine.model.weights import OpenedModel, open_model
from engine.placement import down_copy, memory_plan
from engine.placement.down_copy import as_loaded, will_copy
from engine.placement.model_bytes import ModelBytes
from engine.placement.oversized import Case, MemoryLimits
from engine.placement.setting import read_setting
from engine.placement.solving import solve_model
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel

RELU_7B = ModelShape("llama", "relu-glu", 32, 4096, 11008, 32, 32, 128, 32000, 4096)


@pytest.fixture
def relu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of 256 neurons a layer in Q4_0, of which as many bytes as it has are worth a copy."""
    monkeypatch.setattr(down_copy, "LEAST_SAVED_BYTES", 0)
    source = make_tiny_gguf(tmp_path / "source.gguf", d_model=64, d_ff=256, n_layers=4, tied=False)
    return recode(source, tmp_path / "m.gguf", "q4_0")


def of_shape(codec: str = "q4_0", ram_gib: float = 32, share: float = 0.3, threads: int = 8,
             shape: ModelShape = RELU_7B) -> bool:  # fmt: skip
    profile = load_profile("pc-high")
    profile = replace(profile, ram=replace(profile.ram, free_bytes=int(ram_gib * GIB)))
    limits = MemoryLimits(profile, None, memory_plan.budgets_of(profile, None, None))
    model = bytes_of(shape, codec, "gguf").model
    return as_loaded(Case(model, "f16"), 4096, limits, share, threads) is not model


def test_it_is_copied_where_fewer_bytes_are_read_and_memory_and_time_suffice() -> None:
    assert of_shape()
    assert of_shape("q4_k_m")
    assert of_shape("f16", share=0.4)
    assert not of_shape(share=0.5)  # half of the rows in 8 bits are no fewer bytes than all in 4
    assert of_shape("q8_0", share=0.5)
    assert not of_shape(ram_gib=7)
    assert not of_shape("f16", ram_gib=12)
    assert not of_shape(shape=replace(RELU_7B, n_layers=160), threads=1)
    assert not of_shape(shape=replace(RELU_7B, activation="silu-glu"), share=1.0)
    assert not of_shape(shape=replace(RELU_7B, d_model=512, d_ff=1792, n_layers=8))
    assert of_shape("f16", shape=replace(RELU_7B, d_model=512, d_ff=1792, n_layers=8))


def test_a_gpu_that_holds_only_the_smaller_one_keeps_it() -> None:
    stored = bytes_of(RELU_7B, "q4_0", "gguf").model
    copied, profile, kept = stored.with_down_copied, load_profile("pc-high"), []
    assert copied is not None
    for tenths in range(50, 130):
        limits = MemoryLimits(profile, profile.gpus[0], memory_plan.budgets_of(profile, profile.gpus[0], tenths / 10))
        holds = [Case(model, "f16").fits_gpu(4096, limits) for model in (stored, copied)]
        kept.append(as_loaded(Case(stored, "f16"), 4096, limits, 0.3, 8) is stored)
        assert kept[-1] == (holds == [True, False])
    assert not kept[0]
    assert not kept[-1]
    assert any(kept)


def opened_like(path: Path) -> tuple[OpenedModel, LoadedModel]:
    return open_model(path), LoadedModel.load(path, EngineConfig(device="cpu", threads=1))


def test_load_solver_preview_prepare_and_estimate_agree(relu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for copies in (True, False):
        if not copies:
            monkeypatch.setattr(down_copy, "LEAST_SAVED_BYTES", 1 << 40)
        opened, model = opened_like(relu)
        assert model.weights.down_is_row_wise != copies
        assert ("8 bits" in model.weights_reason) == copies
        setting = read_setting(opened, EngineConfig(hardware_file="pc-high"))
        loaded, planned = ModelBytes.of(opened, model.weights), setting.model
        assert will_copy(opened) == copies
        assert (loaded.down.tolist(), loaded.down_codecs) == (planned.down.tolist(), planned.down_codecs)
        assert loaded.gpu_bytes.neuron.tolist() == planned.gpu_bytes.neuron.tolist()
        assert loaded.ffn_is_whole == planned.ffn_is_whole != copies
        assert loaded.total == planned.total
        previews = Previews()
        previews.preview(relu, known_machine(load_profile("pc-high")))
        assert {key[1] for key in previews._problems} == {not copies}


def test_another_way_to_keep_down_is_another_placement(relu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, opened = EngineConfig(hardware_file="pc-high"), open_model(relu)
    assert not solve_model(opened, engine).reused
    assert solve_model(opened, engine).reused
    monkeypatch.setattr(down_copy, "LEAST_SAVED_BYTES", 1 << 40)
    again = solve_model(opened, engine)
    assert not again.reused
    assert len(again.changed) == 1


def test_estimates_of_k_quants_count_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def tok_s() -> float:
        found = estimate_shape(RELU_7B, "q4_k_m", "gguf", known_machine(load_profile("pc-high")))
        assert found.predicted_tok_s is not None
        return found.predicted_tok_s

    with_copy = tok_s()
    monkeypatch.setattr(down_copy, "LONGEST_S", 0)
    assert with_copy > 1.05 * tok_s()


def test_bytes_of_a_copy_are_those_of_its_bundle() -> None:
    for codec in ("q8_0", "f16"):
        stored, bundle = (bytes_of(RELU_7B, codec, layout).model for layout in ("gguf", "bundle"))
        copied = stored.with_down_copied
        assert copied is not None
        assert copied.down.tolist() == bundle.down.tolist()
        assert copied.gpu_bytes.neuron.tolist() == bundle.gpu_bytes.neuron.tolist()
        assert stored.ffn_is_whole
        assert not copied.ffn_is_whole


GREEDY = SamplingConfig().changed({"temperature": 0, "max_tokens": 24})


def answer(model: LoadedModel, mode: Any = "auto") -> list[int]:
    session = ChatSession(model)
    session.set_mode(mode)
    return [one.token_id for one in session.generate([1, 5, 9, 40, 7], GREEDY) if one.token_id is not None]


def test_the_text_is_the_same_with_and_without_skipping(relu: Path) -> None:
    _, model = opened_like(relu)
    assert model.resolve_mode("auto") == "exact"
    skipping = answer(model)
    assert len(skipping) == 24
    assert skipping == answer(model, "dense")


def test_neurons_are_split_between_the_devices(relu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, alone = opened_like(relu)
    machine = FakeGpuMachine(tmp_path, monkeypatch)
    model = machine.load(relu)
    assert model.gpu is not None
    assert not model.weights.down_is_row_wise
    assert model.hot_blocks is not None
    parts, planned = model.gpu.part_bytes, model.gpu.placement.vram_parts_bytes
    assert all(parts[name] <= planned[name] for name in planned)
    assert answer(model) == answer(alone)
    model.close()
    assert machine.gpus[0].used_bytes == 0
