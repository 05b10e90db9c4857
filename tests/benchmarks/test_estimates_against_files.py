"""What is foretold from a shape against files of it, placements that the engine plans, and a GPU that was measured."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import model_shapes
import numpy as np
import pytest
from make_model import Recipe, make_model
from model_shapes import Shape
from support.systems import needs_pinned_ram

from engine.bundle import artefacts
from engine.config import EngineConfig
from engine.library.estimate.coverage import curve_through, stats_of
from engine.library.estimate.estimates import SolvedEstimate, solve_estimate
from engine.library.estimate.machines import known_machine
from engine.library.estimate.shapes import bytes_of, shape_of
from engine.library.records import ModelShape, Sparsity
from engine.machine.hardware import HardwareProfile
from engine.machine.measured_hardware import load_profile
from engine.model.model_files import open_model
from engine.placement import memory_plan
from engine.placement.model_bytes import ModelBytes
from engine.placement.solving import solve_model

GIB = 1 << 30
CURVE = curve_through((0.8, 0.57))
SMALL = Shape("llama", 8, 1024, 4096, 16, 4, vocab_size=2048, context=1024)


DAILY = {("f16", 0.12, 0.15), ("q4_0", 0.05, 0.4), ("q4_0", 1.0, 0.15)}  # each size, codec and share of neurons
PLANNED = [
    one if one in DAILY else pytest.param(*one, marks=pytest.mark.slow)
    for one in ((*of, share) for share in (0.15, 0.4) for of in (("f16", 0.12), ("q4_0", 0.05), ("q4_0", 1.0)))
]


@pytest.mark.parametrize(("codec", "room", "share"), PLANNED)
def test_an_estimate_is_what_the_engine_plans_for_such_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, room: float, share: float
) -> None:
    monkeypatch.setitem(model_shapes.SHAPES, "small", SMALL)
    make_model(tmp_path / "m.gguf", Recipe("small", codec, "powerinfer", rank=128))
    opened = open_model(tmp_path / "m.gguf")
    shape = shape_of(opened.config)
    wanted = bytes_of(shape, codec, "powerinfer-gguf").model
    predictors = 2 if codec == "f16" else 18 / 32
    predictor_share = SMALL.n_layers * 128 * (1024 + 4096) * predictors / wanted.total
    sparsity = Sparsity(share, CURVE, "published", "a test", predictor_share)
    stats = stats_of(opened.config, sparsity)
    assert stats is not None
    artefacts.save_stats(opened, replace(stats, model=opened.fingerprint))

    scratch = memory_plan.gpu_scratch_bytes(wanted, 1024, None, GIB)
    budget = (440401920 + scratch) / GIB + room
    engine = EngineConfig(hardware_file="pc-low", vram_budget_gib=budget, context=1024)
    planned = solve_model(opened, engine).placement
    found = solve_estimate(
        shape, codec, "powerinfer-gguf", sparsity, known_machine(load_profile("pc-low")), budget, 1024
    )
    assert found.mode == planned.mode
    assert found.estimate.predicted_tok_s == pytest.approx(planned.predicted_tok_s, rel=0.1)
    assert found.estimate.vram_bytes == pytest.approx(planned.vram_bytes, rel=0.1)
    assert found.estimate.ram_bytes == pytest.approx(planned.ram_bytes, rel=0.1)
    assert found.estimate.gpu_neuron_load == pytest.approx(planned.gpu_neuron_load, abs=0.1)


@pytest.mark.parametrize("variant", ["dense", "powerinfer"])
@pytest.mark.parametrize("shape", ["tiny", "opt-tiny", "falcon-tiny"])
@pytest.mark.parametrize("codec", ["f16", "q4_0"])
def test_a_shape_has_the_bytes_of_its_file(tmp_path: Path, shape: str, codec: str, variant: str) -> None:
    make_model(tmp_path / "m.gguf", Recipe(shape, codec, variant, rank=64))  # type: ignore[arg-type]
    opened = open_model(tmp_path / "m.gguf")
    layout = "powerinfer-gguf" if variant == "powerinfer" else "gguf"
    real, estimated = ModelBytes.of(opened), bytes_of(shape_of(opened.config), codec, layout).model  # type: ignore[arg-type]
    np.testing.assert_array_equal(estimated.neuron, real.neuron)
    np.testing.assert_array_equal(estimated.attention, real.attention)
    np.testing.assert_array_equal(estimated.gpu_bytes.neuron, real.gpu_bytes.neuron)
    np.testing.assert_array_equal(estimated.gpu_bytes.attention, real.gpu_bytes.attention)
    np.testing.assert_array_equal(estimated.gpu_bytes.block, real.gpu_bytes.block)
    assert estimated.down_is_row_wise == real.down_is_row_wise
    assert estimated.first_codecs == real.first_codecs
    if variant == "powerinfer" or codec == "f16":  # llama.cpp keeps six bits for the head, the tool four
        assert (estimated.total, estimated.head, estimated.embedding) == (real.total, real.head, real.embedding)
        assert estimated.gpu_bytes.head == real.gpu_bytes.head


@pytest.mark.parametrize("room", [0.1, 0.45, 1.0])
def test_experts_are_estimated_as_the_engine_plans_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: float
) -> None:
    """room: share of the experts that the GPU has room for."""
    monkeypatch.setattr(memory_plan, "gpu_scratch_bytes", lambda *of: 0)
    make_model(tmp_path / "m.gguf", Recipe("qwen3moe-tiny", "q4_0", "dense"))
    opened, machine = open_model(tmp_path / "m.gguf"), load_profile("pc-low")
    machine = replace(machine, cpu=replace(machine.cpu, bytes_per_s=1e8), sync_s=1e-6)  # so slow that a GPU pays
    machine.save(tmp_path / "machine.json")
    shape = shape_of(opened.config)
    real, computed = ModelBytes.of(opened), bytes_of(shape, "q4_0", "gguf").model
    np.testing.assert_array_equal(computed.gpu_bytes.neuron, real.gpu_bytes.neuron)
    engine = EngineConfig(hardware_file=str(tmp_path / "machine.json"), context=512)
    whole = solve_model(opened, engine).placement
    assert whole.resident_experts(shape.n_experts) == (shape.n_experts,) * shape.n_layers
    budget = (whole.vram_bytes - (1 - room) * whole.hot_bytes + (1 << 20)) / GIB
    planned = solve_model(opened, replace(engine, vram_budget_gib=budget)).placement
    found = solve_estimate(shape, "q4_0", "gguf", Sparsity(), known_machine(machine), budget, 512).estimate
    assert found.hot_share == pytest.approx(room, abs=0.1)
    assert found.hot_share == pytest.approx(sum(planned.hot_counts) / (planned.neurons * planned.n_layers), abs=0.02)
    assert found.predicted_tok_s == pytest.approx(planned.predicted_tok_s, rel=0.05)
    assert found.vram_bytes == pytest.approx(planned.vram_bytes, rel=0.02)
    assert found.gpu_neuron_load == pytest.approx(planned.gpu_neuron_load, abs=0.02)


RESULTS = Path(__file__).parent / "results"
MEASURED = {
    "13b": (ModelShape("llama", "relu-glu", 40, 5120, 13824, 40, 40, 128, 32000, 2048), "f16"),
    "32b": (ModelShape("llama", "relu-glu", 64, 5120, 27648, 40, 8, 128, 32000, 2048), "f16"),
    "32b-whole-gpu": (ModelShape("llama", "relu-glu", 64, 5120, 27648, 40, 8, 128, 32000, 2048), "f16"),
    "70b": (ModelShape("llama", "relu-glu", 80, 8192, 28672, 64, 8, 128, 32000, 2048), "q4_0"),
}


def beside_records(name: str) -> Iterator[tuple[dict[str, Any], SolvedEstimate]]:
    """(recorded run on the H200, estimate for the same machine and budget) of one model."""
    recorded = json.loads(max(RESULTS.glob(f"gpu-anchors-{name}-2*.json")).read_text(encoding="utf-8"))
    profile = HardwareProfile.from_json(recorded["hardware"])
    profile = replace(profile, cpu=replace(profile.cpu, bytes_per_s=recorded["dram_bytes_per_s"]))
    shape, codec = MEASURED[name]
    total = bytes_of(shape, codec, "powerinfer-gguf").model.total
    for row in recorded["rows"]:
        share = row["predictor_bytes_per_token"] / total
        sparsity = Sparsity(0.15, curve_through((0.7, 0.25)), "published", "model_contents.py", share)
        budget = None if row["budget"] == "all" else float(row["budget"])
        yield row, solve_estimate(shape, codec, "powerinfer-gguf", sparsity, known_machine(profile), budget, 512)


@needs_pinned_ram
@pytest.mark.parametrize("name", MEASURED)
def test_vram_and_rate_are_about_what_was_measured_on_a_gpu(name: str) -> None:
    """Rates from afar: that machine's RAM is read at another speed from minute to minute, and the curve of all models
    of a family stands for these (docs/catalogue.md)."""
    for row, found in beside_records(name):
        assert found.mode == row["mode"]
        assert found.estimate.vram_bytes == pytest.approx(row["peak_gpu_bytes"], rel=0.01)
        assert row["peak_gpu_bytes"] <= found.estimate.vram_budget_bytes
        assert 0.7 < found.estimate.predicted_tok_s / row["decode_tok_s"] < 1.7


@needs_pinned_ram
def test_the_pages_say_how_far_the_estimates_are_off() -> None:
    runs = [run for name in MEASURED for run in beside_records(name)]
    docs = Path(__file__).parents[2] / "docs"
    benchmarks, catalogue = (" ".join((docs / f"{page}.md").read_text(encoding="utf-8").split())
                             for page in ("benchmarks", "catalogue"))  # fmt: skip
    vram = max(abs(found.estimate.vram_bytes / row["peak_gpu_bytes"] - 1) for row, found in runs)
    off = [(row["budget"] == "all", found.estimate.predicted_tok_s / row["decode_tok_s"] - 1) for row, found in runs]
    whole = max(abs(one) for is_whole, one in off if is_whole)
    parts = [one for is_whole, one in off if not is_whole]
    assert f"{math.ceil(1000 * vram) / 10:.1f} % too high at most" in benchmarks
    assert f"VRAM within {math.ceil(1000 * vram) / 10:.1f} %" in catalogue
    assert f"within {math.ceil(100 * whole)} % where the whole model" in benchmarks
    assert f"from {-100 * min(parts):.0f} % too low to {100 * max(parts):.0f} % too high" in benchmarks
    for row, found in runs:
        assert f"{found.estimate.predicted_tok_s:.0f} and {row['decode_tok_s']:.0f} (" in catalogue
