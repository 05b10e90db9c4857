"""What the slider shows for an installed model: as loading would place it, and at once."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from samples.experts_gguf import N_EXPERTS, make_tiny_mixtral
from samples.placement_cases import MIB, a_profile
from samples.raw_gguf import make_tiny_powerinfer
from samples.tiny_model import make_tiny_model
from support.repetitions import some_daily

from engine.assets import starter_model
from engine.bundle import artefacts
from engine.config import EngineConfig, ModelConfig
from engine.errors import InvalidRequestError, ModelNotFoundError
from engine.library.estimate import preview as previewing
from engine.library.estimate.known_model import KnownModel, read_known_model
from engine.library.estimate.machines import KnownMachine, known_machine
from engine.library.estimate.preview import Previews
from engine.library.records import Estimate
from engine.machine.cpu_and_ram import RamInfo
from engine.machine.hardware import default_threads
from engine.machine.measured_hardware import load_profile, remember_read_rates
from engine.machine.read_rates import ReadRates
from engine.model.model_files import open_model
from engine.placement import memory_plan, setting
from engine.placement.concurrent_reads import kind_of
from engine.placement.model_bytes import ModelBytes
from engine.placement.solving import solve_model
from engine.sparsity.placement import Placement
from engine.sparsity.stats import NeuronStats
from native_kernels.codecs import CODECS

GIB = 1 << 30


def machine(name: str) -> KnownMachine:
    return known_machine(load_profile(name))


def stats(model: Path) -> None:
    rng = np.random.default_rng(0)
    opened = open_model(model)
    shape = (opened.config.n_layers, opened.config.d_ff)
    artefacts.save_stats(
        opened, NeuronStats(rng.binomial(1000, 0.3, shape).astype(np.int64), 1000, "measured", "a text")
    )


# --- as loading does it


@pytest.mark.parametrize("budget", some_daily([None, 0.48, 0.485, 0.49, 0.5, 1.0], [None, 0.485]))
@pytest.mark.parametrize("name", ["pc-low", "pc-high", "laptop-4060-8gb", "no-gpu"])
def test_it_is_what_the_solver_says_at_loading(name: str, budget: float | None) -> None:
    known = machine(name)
    found = Previews().preview(starter_model(), known, budget)
    engine = EngineConfig(
        hardware_file=name, vram_budget_gib=budget, context=found.context, threads=default_threads(known.profile)
    )
    placement = solve_model(open_model(starter_model()), engine).placement
    assert found.predicted_tok_s == pytest.approx(placement.predicted_tok_s, rel=0.05)
    assert found.vram_bytes == pytest.approx(placement.vram_bytes, abs=4 * MIB)
    assert found.ram_bytes == pytest.approx(placement.ram_bytes, abs=4 * MIB)
    assert found.vram_bytes <= found.vram_budget_bytes == placement.origins.vram_budget_bytes
    assert found.predicted_from == "measured"
    assert found.low_tok_s == found.predicted_tok_s == found.high_tok_s
    if name == "no-gpu":
        assert (found.fits, found.gpu_neuron_load, found.vram_bytes) == ("cpu", None, 0)
    else:
        assert found.gpu_neuron_load == pytest.approx(placement.gpu_neuron_load, abs=0.05)


def test_more_of_the_gpu_is_never_slower() -> None:
    previews, known = Previews(), machine("pc-low")
    found = [previews.preview(starter_model(), known, 0.47 + 0.005 * i) for i in range(12)]
    rates = [one.predicted_tok_s or 0 for one in found]
    assert all(after >= 0.999 * before for before, after in pairwise(rates))
    assert rates[-1] > rates[0]
    assert found[-1].fits == "gpu"
    assert all(one.vram_bytes <= one.vram_budget_bytes for one in found)


def test_predictors_count_where_they_are(tmp_path: Path) -> None:
    path = make_tiny_powerinfer(tmp_path / "p.gguf", rank=8)
    found = Previews().preview(path, machine("pc-high"))
    placement = solve_model(open_model(path), EngineConfig(hardware_file="pc-high", context=found.context)).placement
    assert found.predicted_tok_s == pytest.approx(placement.predicted_tok_s, rel=0.05)


def test_what_is_remembered_of_a_models_rows_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does at loading, in the same process and without the preview being told."""
    path = make_tiny_powerinfer(tmp_path / "p.gguf", rank=8)
    known, previews = known_machine(a_profile(vram=4 * GIB, cpu_gb_s=1e-3, exchange_s=1e-6)), Previews()
    assert known.gpu is not None
    monkeypatch.setattr(setting, "probe", lambda: known.profile)
    monkeypatch.setattr(memory_plan, "gpu_scratch_bytes", lambda *of: 0)
    opened = open_model(path)
    everything = solve_model(opened, EngineConfig(context=64, threads=known.threads)).placement.vram_bytes
    budget = (everything - 20_000) / GIB  # some neurons stay in the RAM
    engine = EngineConfig(mode="auto", vram_budget_gib=budget, context=64, threads=known.threads)
    before = previews.preview(path, known, budget, 64), solve_model(opened, engine).placement
    for mode in ("exact", "sparse"):
        kind = kind_of(ModelBytes.of(opened), mode)  # type: ignore[arg-type]
        remember_read_rates(known.profile, known.gpu, known.threads, kind, ReadRates(1e3, 1e3, 1e3))
    after = previews.preview(path, known, budget, 64), solve_model(opened, engine).placement
    for found, placement in (before, after):
        assert found.predicted_tok_s == pytest.approx(placement.predicted_tok_s, rel=0.05)
        assert found.gpu_neuron_load == pytest.approx(placement.gpu_neuron_load, abs=0.05)
    assert (after[0].predicted_tok_s or 0) < 0.5 * (before[0].predicted_tok_s or 0)
    assert after[1].origins.differences(before[1].origins) == ("the machine",)


@pytest.mark.parametrize("experts", [1, 3, 8])
def test_experts_are_placed_as_at_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, experts: int) -> None:
    path = make_tiny_mixtral(tmp_path / "e.gguf")
    known, opened = known_machine(a_profile(vram=4 * GIB, cpu_gb_s=1e-3, exchange_s=1e-6)), open_model(path)
    monkeypatch.setattr(setting, "probe", lambda: known.profile)
    monkeypatch.setattr(memory_plan, "gpu_scratch_bytes", lambda *of: 0)
    engine = EngineConfig(context=64, threads=known.threads)
    whole = solve_model(opened, engine).placement
    assert whole.hot_neurons == opened.config.n_layers * whole.neurons
    one = whole.hot_bytes // (opened.config.n_layers * N_EXPERTS)
    budget = (whole.vram_bytes - (8 - experts - 0.5) * one) / GIB
    found = Previews().preview(path, known, budget, 64)
    placement = solve_model(opened, replace(engine, vram_budget_gib=budget)).placement
    assert found.predicted_tok_s == pytest.approx(placement.predicted_tok_s, rel=0.02)
    assert found.vram_bytes == placement.vram_bytes
    assert found.ram_bytes == placement.ram_bytes
    assert found.hot_share == experts / 8
    assert found.gpu_neuron_load == pytest.approx(placement.gpu_neuron_load)


# --- ranges and notes


def test_without_statistics_there_is_a_range_and_with_them_none(tmp_path: Path) -> None:
    previews, known = Previews(), machine("pc-high")
    path = make_tiny_model(tmp_path / "m")
    before = previews.preview(path, known)
    assert before.predicted_from == "family"
    assert before.low_tok_s is not None
    assert before.high_tok_s is not None
    assert before.predicted_tok_s is not None
    assert before.low_tok_s <= before.predicted_tok_s <= before.high_tok_s
    assert any("same family" in note for note in before.notes)
    stats(path)
    after = previews.preview(path, known)  # it is noticed
    assert after.predicted_from == "measured"
    assert after.low_tok_s == after.high_tok_s


def test_a_model_without_zeros_needs_no_statistics(tmp_path: Path) -> None:
    found = Previews().preview(make_tiny_model(tmp_path / "m", activation="silu"), machine("pc-high"))
    assert found.predicted_from == "measured"
    assert found.low_tok_s == found.high_tok_s


def test_a_slider_may_stand_anywhere(tmp_path: Path) -> None:
    previews, known, path = Previews(), machine("pc-low"), make_tiny_model(tmp_path / "m")
    assert previews.preview(path, known, 4000).vram_budget_bytes == known.gpu.total_bytes  # type: ignore[union-attr]
    assert previews.preview(path, known, 0.01).fits == "cpu"  # which holds nothing of the model
    assert previews.preview(path, known, context=1 << 20).context == 64
    for senseless in (-1.0, 0.0, float("nan")):
        with pytest.raises(InvalidRequestError):
            previews.preview(path, known, senseless)
    with pytest.raises(ModelNotFoundError):
        previews.preview(tmp_path / "nothing", known)


def test_what_does_not_fit_says_how_much_is_missing(tmp_path: Path) -> None:
    profile = replace(a_profile(vram=None), ram=RamInfo(2 * GIB, GIB + 256 * MIB))
    found = Previews().preview(make_tiny_model(tmp_path / "m"), known_machine(profile))
    assert found.fits == "no"
    assert found.short_bytes == found.ram_bytes - found.ram_budget_bytes > 0
    assert found.predicted_tok_s is None


# --- at once


def a_giant(codec: str = "q4_0") -> KnownModel:
    """80 layers of 28,672 neurons, with statistics in which every layer is another."""
    config = ModelConfig(
        family="llama", n_layers=80, d_model=8192, d_ff=28672, n_heads=64, n_kv_heads=8, head_dim=128,
        vocab_size=32000, max_context=4096, rope_theta=1e4, norm_eps=1e-5, activation="relu-glu",
        tied_embeddings=False, bos_token_id=None, eos_token_ids=(),
    )  # fmt: skip
    ones, row = np.ones(80, np.int64), CODECS[codec].n_bytes(8192)
    codecs = (codec,) * 80
    sizes = ModelBytes(
        config, ones * 18432 * row, ones * row, ones * row, ones * row, 32000 * row, 32000 * row, codecs, codecs,
        codecs, codec,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    counts = rng.permuted(np.tile((10000 * rng.random(28672) ** 3).astype(np.int64), (80, 1)), axis=1)
    known = NeuronStats(counts, 20000, "measured", "a text")
    return KnownModel((), config, sizes, known, None, (), None)


def test_a_slider_over_the_largest_model_is_followed_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever is slid: the budget, the context, what is free meanwhile. Within 300 ms on a usual
    machine; on any it is six seconds.
    """
    giant = a_giant()
    monkeypatch.setattr(previewing, "read_known_model", lambda *of: giant)
    monkeypatch.setattr(KnownModel, "is_of", lambda *of: True)
    previews, known = Previews(), machine("pc-high")
    first = previews.preview(tmp_path, known)
    assert first.fits == "hybrid"
    took, rates = [], []
    for i in range(12):
        profile = known.profile
        ram = replace(profile.ram, free_bytes=profile.ram.free_bytes - i * 512 * MIB)
        now = known_machine(replace(profile, ram=ram))
        started = time.process_time()
        found = previews.preview(tmp_path, now, 4 + 1.6 * i, context=512 * (1 + i % 8))
        took.append(time.process_time() - started)
        rates.append(found.predicted_tok_s or 0.0)
        assert found.vram_bytes <= found.vram_budget_bytes
    assert sorted(took)[len(took) // 2] < 6
    assert rates[-1] > rates[0]


def test_no_file_stays_open(tmp_path: Path) -> None:
    psutil = pytest.importorskip("psutil")
    path = make_tiny_powerinfer(tmp_path / "p.gguf", rank=8)
    previews = Previews()
    previews.preview(path, machine("pc-high"))
    held = [one.path for one in psutil.Process().memory_maps() if one.path.startswith(str(tmp_path))]
    held += [one.path for one in psutil.Process().open_files() if one.path.startswith(str(tmp_path))]
    assert held == []


def test_what_was_read_is_kept_and_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def counts(path: Path, activation: str) -> KnownModel:
        read.append(path)
        return read_known_model(path, activation)

    monkeypatch.setattr(previewing, "read_known_model", counts)
    previews, known = Previews(), machine("pc-high")
    paths = [make_tiny_model(tmp_path / f"m{i}") for i in range(5)]
    for _ in range(3):
        previews.preview(paths[0], known)
    assert len(read) == 1
    previews.discard(paths[0])
    previews.preview(paths[0], known)
    assert len(read) == 2
    for path in paths:
        previews.preview(path, known)
    assert len(previews._known) == 3
    assert all(key[0] in previews._known for key in previews._problems)
    make_tiny_model(paths[4], n_layers=3)  # other files under the same name
    before = len(read)
    previews.preview(paths[4], known)
    assert len(read) == before + 1


# --- experts on the disk


@pytest.mark.parametrize("vram", [None, 600 * MIB])
def test_experts_that_memory_cannot_hold_stay_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vram: int | None
) -> None:
    path, previews = make_tiny_mixtral(tmp_path / "e.gguf"), Previews()
    opened = open_model(path)
    sizes = ModelBytes.of(opened)
    experts = sizes.neurons * int(sizes.neuron.sum())
    monkeypatch.setattr(memory_plan, "BUDGET_STEP_BYTES", 1)
    fixed = memory_plan.RAM_MARGIN_BYTES + memory_plan.PROCESS_BYTES + memory_plan.scratch_bytes(sizes, 64)
    others = sizes.total - experts + int(sizes.kv_of_layer(64, "f16").sum())

    def found(share: float, rate: float | None = 1e9) -> tuple[Estimate, Placement | None]:
        """With RAM for this share of the experts, beside all else."""
        profile = replace(a_profile(vram=vram), ram=RamInfo(8 * GIB, int(fixed + others + share * experts)))
        known = replace(known_machine(profile), disk_bytes_per_s=rate)
        monkeypatch.setattr(setting, "probe", lambda: profile)
        shown = previews.preview(path, known, 0.01 if vram else None, 64)  # which holds nothing of the model
        engine = EngineConfig(context=64, threads=known.threads, vram_budget_gib=None)
        return shown, None if vram or shown.fits == "no" else solve_model(opened, engine).placement

    whole, placement = found(1.01)
    assert (whole.fits, whole.disk_bytes) == ("cpu", 0)
    half, placement = found(0.5)
    assert half.fits == "disk"
    assert half.disk_bytes == pytest.approx(0.5 * experts, rel=0.01)
    assert half.ram_bytes + half.disk_bytes == pytest.approx(whole.ram_bytes, abs=4)
    assert half.ram_bytes <= half.ram_budget_bytes
    assert half.predicted_tok_s is not None
    assert whole.predicted_tok_s is not None
    assert half.predicted_tok_s < whole.predicted_tok_s
    if placement is not None:
        assert placement.disk_bytes == half.disk_bytes
        assert sum(placement.ram_parts_bytes.values()) == half.ram_bytes
        read_s = 1 / half.predicted_tok_s - 1 / whole.predicted_tok_s
        assert placement.disk_read_bytes / 1e9 == pytest.approx(read_s, rel=0.01)
        assert Placement.load(placement.save(tmp_path).parent).disk_bytes == placement.disk_bytes
    assert found(0.5, None)[0].predicted_tok_s is None, "no rate is invented"
    little, _ = found(0.05)
    assert (little.fits, little.disk_bytes) == ("no", 0)
    assert little.short_bytes == pytest.approx(0.05 * experts, rel=0.05)


def test_the_gpu_holds_the_hottest_experts_and_the_disk_some_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_tiny_mixtral(tmp_path / "e.gguf")
    profile, opened = a_profile(vram=4 * GIB, cpu_gb_s=1e-3, exchange_s=1e-6), open_model(path)
    sizes = ModelBytes.of(opened)
    monkeypatch.setattr(memory_plan, "gpu_scratch_bytes", lambda *of: 0)
    monkeypatch.setattr(memory_plan, "BUDGET_STEP_BYTES", 1)
    monkeypatch.setattr(setting, "probe", lambda: profile)
    engine = EngineConfig(context=64, threads=known_machine(profile).threads)
    whole = solve_model(opened, engine).placement
    one = whole.hot_bytes // (opened.config.n_layers * N_EXPERTS)
    engine = replace(engine, vram_budget_gib=(whole.vram_bytes - 4.5 * one) / GIB)
    enough = solve_model(opened, engine).placement
    cold = enough.ram_parts_bytes["cold"]
    assert enough.disk_bytes == 0 < cold
    # all that is not an expert, and two of the five that are not on the GPU
    free = memory_plan.RAM_MARGIN_BYTES + enough.ram_bytes - 3 * cold // 5
    little = replace(profile, ram=RamInfo(8 * GIB, free))
    monkeypatch.setattr(setting, "probe", lambda: little)
    placement = solve_model(opened, engine).placement
    assert placement.hot_neurons == enough.hot_neurons
    assert placement.disk_bytes == pytest.approx(3 * cold / 5, rel=0.01)
    assert placement.ram_bytes == pytest.approx(enough.ram_bytes - placement.disk_bytes, abs=1)
    per_neuron = int(sizes.neuron.max())
    assert 0 < placement.disk_read_bytes < opened.config.n_layers * opened.config.n_experts_used * 64 * per_neuron
    found = Previews().preview(path, known_machine(little), engine.vram_budget_gib, 64)
    assert (found.fits, found.disk_bytes, found.vram_bytes) == ("disk", placement.disk_bytes, placement.vram_bytes)
