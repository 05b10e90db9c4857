"""Bytes: of a model's parts as its files have them, of budgets and what they leave free."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from samples.experts_gguf import make_tiny_mixtral
from samples.placement_cases import MIB, a_profile
from samples.raw_gguf import make_tiny_powerinfer
from samples.recurrent_model import make_recurrent_model
from samples.tiny_model import make_tiny_gguf, make_tiny_model
from support.shown_text import numbers_in

from engine.assets import starter_model
from engine.config import EngineConfig
from engine.conversion.convert import convert
from engine.errors import DeviceMemoryError
from engine.gpu.prefill.prefill_memory import sizes_for
from engine.library.estimate.shapes import bytes_of
from engine.library.records import ModelShape
from engine.machine.cpu_and_ram import RamInfo
from engine.machine.measured_hardware import load_profile
from engine.model.draft_layer import MOST_DRAFTS, open_drafts
from engine.model.kv_cache import KVCache
from engine.model.model_artefacts import read_predictor
from engine.model.model_files import open_model
from engine.model.weights import FfnWeights
from engine.placement import memory_plan
from engine.placement.gpu_bytes import kv_layer_bytes
from engine.placement.memory_plan import budgets_of, may_pin_in_place, scratch_bytes
from engine.placement.model_bytes import ModelBytes, PredictorBytes, stored_bytes
from engine.placement.oversized import Case, MemoryLimits, fitting_context, with_drafts_that_fit
from engine.placement.setting import KnownInputs, read_setting
from engine.session.loaded_model import LoadedModel
from native_kernels.backend import PackedMatrix


def test_every_byte_of_the_weights_is_in_one_part(tmp_path: Path) -> None:
    paths = [
        starter_model(),
        make_tiny_model(tmp_path / "m"),
        make_tiny_gguf(tmp_path / "m.gguf"),
        make_tiny_powerinfer(tmp_path / "p.gguf", rank=8),
        convert(make_tiny_model(tmp_path / "n"), tmp_path / "bundle", "q4_0").bundle,
    ]
    for path in paths:
        opened = open_model(path)
        model = ModelBytes.of(opened)
        assert model.total == sum(stored_bytes(opened, tensor) for tensor in opened.plan)
        assert model.n_layers == opened.config.n_layers
        kv = int(model.kv_of_layer(100, "f16").sum())
        assert kv == KVCache.bytes_for(opened.config, 100, "f16")


def test_of_the_starter_model() -> None:
    model = ModelBytes.of(open_model(starter_model()))
    row = 512 // 32 * 34
    assert model.first.tolist() == [row] * 8
    assert model.neuron.tolist() == [3 * row] * 8
    assert model.down_is_row_wise
    assert set(model.first_codecs) == {"q8_0"}
    assert model.head == 8192 * row + 4 * 512


def test_experts_are_neurons_one_after_another(tmp_path: Path) -> None:
    opened = open_model(make_tiny_mixtral(tmp_path / "m.gguf"))
    model = ModelBytes.of(opened)
    assert model.neurons == opened.config.n_neurons > opened.config.d_ff
    assert model.total == pytest.approx(sum(stored_bytes(opened, one) for one in opened.plan), rel=0.01)


def test_predictors(tmp_path: Path) -> None:
    opened = open_model(make_tiny_powerinfer(tmp_path / "m.gguf", rank=8))
    predictor = read_predictor(opened, as_stored=True)
    known = PredictorBytes.of(predictor, ModelBytes.of(opened))
    assert known.held.sum() == predictor.n_bytes
    np.testing.assert_array_equal(known.held, known.read)
    assert known.active_share == (None, None)
    assert not known.is_true_gate.any()


def test_a_derived_budget_leaves_a_margin_and_an_explicit_one_none() -> None:
    profile = load_profile("pc-high")
    gpu = profile.gpus[0]
    derived = budgets_of(profile, gpu, None)
    assert gpu.free_bytes is not None
    assert gpu.free_bytes - (1536 << 20) < derived.vram_bytes <= gpu.free_bytes - (512 << 20)
    assert not derived.vram_is_explicit
    explicit = budgets_of(profile, gpu, 7.3)
    assert explicit.vram_bytes == int(7.3 * (1 << 30))
    assert explicit.vram_is_explicit
    assert budgets_of(profile, None, None).vram_bytes == 0
    assert budgets_of(profile, None, 4).vram_reason
    with pytest.raises(DeviceMemoryError, match=r"25 GiB.* GeForce RTX 4090 .*23\.99 GiB"):
        budgets_of(profile, gpu, 25)
    full = replace(gpu, free_bytes=1 << 30)
    assert "1.00" in numbers_in(budgets_of(profile, full, 4).vram_reason)
    few_less = replace(gpu, free_bytes=gpu.free_bytes - 1000)
    assert budgets_of(profile, few_less, None).vram_bytes in (derived.vram_bytes, derived.vram_bytes - (128 << 20))


def test_a_gpu_that_is_full_already() -> None:
    profile = a_profile(vram=300 * MIB)
    assert budgets_of(profile, profile.gpus[0], None).vram_bytes == 0


def test_context_and_scratch() -> None:
    profile = load_profile("pc-high")
    assert memory_plan.context_bytes(profile.gpus[0]) == 420 << 20
    assert memory_plan.context_bytes(replace(profile.gpus[0], context_bytes=None)) == 450 << 20
    model = ModelBytes.of(open_model(starter_model()))
    short, long = scratch_bytes(model, 64), scratch_bytes(model, 1024)
    assert 0 < short < long == scratch_bytes(model, 4096)  # prefill goes in portions


def test_a_library_of_products_is_counted_where_it_pays() -> None:
    gpu = replace(load_profile("pc-high").gpus[0], library_bytes=100 << 20)
    model = ModelBytes.of(open_model(starter_model()))
    wide = replace(model, config=replace(model.config, d_model=4096))
    assert memory_plan.library_bytes(wide.config, gpu, 10 << 30) == 100 << 20
    for config, sized, budget in (
        (wide.config, gpu, 9 << 30), (wide.config, replace(gpu, library_bytes=None), 10 << 30),
        (wide.config, None, 10 << 30), (model.config, gpu, 10 << 30),
    ):  # fmt: skip
        assert memory_plan.library_bytes(config, sized, budget) == 0
    with_it, without = (memory_plan.gpu_scratch_bytes(wide, 512, one, 10 << 30) for one in (gpu, None))
    assert with_it == without + (100 << 20)


@pytest.mark.parametrize(
    ("free", "cached", "pinned", "may"),
    [
        (60, 40, False, True), (60, 44, False, True), (60, 45, False, False), (60, 45, True, True),
        (60, 52, True, True), (60, 53, True, False), (16, 0, False, True), (15, 0, False, False), (7, 0, True, False),
    ],
)  # fmt: skip
def test_others_keep_an_eighth_of_the_ram_where_weights_are_pinned_in_place(
    free: int, cached: int, pinned: bool, may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 128 GiB; what files take of it counts as free to the system, and is not."""
    ram = RamInfo(128 << 30, free << 30)
    monkeypatch.setattr(memory_plan.sys, "platform", "linux")
    assert may_pin_in_place(ram, cached << 30, pinned) == may
    monkeypatch.setattr(memory_plan.sys, "platform", "win32")
    assert not may_pin_in_place(ram, cached << 30, pinned)


def test_prefill_gets_more_memory_only_where_the_whole_model_leaves_twice_as_much() -> None:
    model = bytes_of(ModelShape("llama", "silu-glu", 32, 4096, 11008, 32, 8, 128, 32000, 4096), "q4_0", "gguf").model
    plenty = memory_plan.prefill_bytes(model, 2048, 80 << 30)
    weights = int((model.gpu_bytes.attention + model.neurons * model.gpu_bytes.neuron).sum())
    caches = 32 * kv_layer_bytes(model.config, 2048, "f16")
    least = memory_plan.USUAL_CONTEXT_BYTES + weights + caches + 2 * plenty + (64 << 20)
    assert memory_plan.prefill_bytes(model, 2048, least) == plenty
    narrow = memory_plan.prefill_bytes(model, 2048, least - 1)
    assert memory_plan.prefill_bytes(model, 2048, least - 2 * (plenty - narrow)) == narrow < plenty
    assert memory_plan.prefill_bytes(model, 2048, least - 2 * (plenty - narrow) - 1) < min(narrow, least // 32)
    assert sizes_for(model.config, [], 2048, narrow, gpu_bytes_per_s=4e12).positions == 2048
    wide = sizes_for(model.config, [], 2048, plenty, gpu_bytes_per_s=4e12)
    assert (wide.neurons, wide.tile_bytes) == (11008, 96 << 20)


def test_streamed_experts_get_the_longest_chunks_that_an_eighth_of_the_memory_holds() -> None:
    model = bytes_of(
        ModelShape("qwen3_moe", "silu-glu", 48, 2048, 768, 32, 4, 128, 32000, 8192, n_experts=128, n_experts_used=8),
        "q4_0", "gguf",
    ).model  # fmt: skip
    up, down = (
        PackedMatrix(n, d, "q4_0", np.zeros((n, d // 32 * 18), np.uint8)) for n, d in ((768, 2048), (2048, 768))
    )
    expert, positions = FfnWeights(up=up, gate=up, down=down), []
    for gib in (2, 4, 8, 12):
        n_bytes = memory_plan.prefill_bytes(model, 8192, gib << 30)
        assert n_bytes <= gib << 27
        positions.append(sizes_for(model.config, [expert], 4096, n_bytes).positions)
    assert positions == [512, 1024, 2048, 4096]
    assert sizes_for(model.config, [expert], 2048).positions == 2048


def test_a_layer_that_drafts_tokens_is_counted_with_its_cache(tmp_path: Path) -> None:
    path = make_recurrent_model(tmp_path / "m", drafts="random")
    opened = open_model(path)
    model = ModelBytes.of(opened)
    own = sum(info.n_bytes for name, info in opened.source.tensors.items() if name.startswith("mtp."))
    assert model.drafts == own > 0
    with_drafts, without = (
        read_setting(opened, EngineConfig(context=100, device="cpu"), KnownInputs(drafts=has)) for has in (True, False)
    )
    drafts = open_drafts(opened)
    assert drafts is not None
    cache = KVCache(drafts.config, 100 + MOST_DRAFTS, "f16")
    assert with_drafts.all_in_ram - without.all_in_ram == own + cache.n_bytes
    assert ModelBytes.of(open_model(make_recurrent_model(tmp_path / "n"))).drafts == 0, "a damaged layer"


def test_a_layer_that_drafts_tokens_takes_no_room_from_the_model(tmp_path: Path) -> None:
    model = replace(ModelBytes.of(open_model(make_tiny_mixtral(tmp_path / "m.gguf"))), drafts=300 * MIB)
    profile = a_profile(vram=None)
    for free, fits in ((2048 * MIB, True), (1600 * MIB, False)):
        profile = replace(profile, ram=RamInfo(8192 * MIB, free))
        limits = MemoryLimits(profile, None, budgets_of(profile, None, None))
        assert with_drafts_that_fit(Case(model, "f16"), 64, limits).drafts == (model.drafts if fits else 0)
        assert fitting_context(model, limits, 64, "f16") == 64


def test_without_room_for_it_the_layer_is_not_loaded(tmp_path: Path) -> None:
    path = make_recurrent_model(tmp_path / "m", drafts="random")
    for free, fits in ((2048 * MIB, True), (800 * MIB, False)):
        replace(a_profile(vram=None), ram=RamInfo(8192 * MIB, free)).save(tmp_path / "pc.json")
        engine = EngineConfig(context=64, threads=1, hardware_file=str(tmp_path / "pc.json"))
        loaded = LoadedModel.load(path, engine)
        assert (loaded.drafts is not None) == fits
        assert ("left out" in loaded.drafts_reason) != fits
