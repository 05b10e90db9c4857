"""Estimates from shapes: bytes as files have them, budgets that hold, rates as the engine plans them."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples.experts_gguf import make_tiny_mixtral
from samples.tiny_model import make_tiny_model
from support.repetitions import some_daily

from engine.conversion.convert import convert
from engine.errors import InvalidRequestError, ModelFormatError, UnsupportedModelError
from engine.library.estimate.coverage import POINTS, check_coverage, curve_through, filled, shares
from engine.library.estimate.estimates import SolvedEstimate, as_prepared, estimate_shape, solve_estimate
from engine.library.estimate.machines import KnownMachine, known_machine, with_usual_rates
from engine.library.estimate.mixtures import main_codec
from engine.library.estimate.shapes import (
    bytes_of,
    config_of,
    file_bytes,
    one_layer_of_each,
    scaled,
    shape_of,
)
from engine.library.records import ModelShape, Sparsity
from engine.machine.cpu_and_ram import RamInfo
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile
from engine.machine.measured_hardware import load_profile
from engine.model.draft_layer import trail_bytes
from engine.model.model_files import open_model
from engine.placement import memory_plan
from engine.placement.model_bytes import ModelBytes
from native_kernels.specs import DeltaSpec

GIB = 1 << 30
MARGIN = 512 << 20
CURVE = curve_through((0.8, 0.57))


def llama(n_layers: int, d: int, f: int, heads: int, kv: int, activation: str = "relu-glu") -> ModelShape:
    return ModelShape("llama", activation, n_layers, d, f, heads, kv, d // heads, 32000, 4096)


def opt(n_layers: int, d: int, f: int, heads: int) -> ModelShape:
    return ModelShape("opt", "relu", n_layers, d, f, heads, heads, d // heads, 50272, 2048, tied_embeddings=True)


SHAPES = {
    "llama-7b": llama(32, 4096, 11008, 32, 32),
    "llama-13b": llama(40, 5120, 13824, 40, 40),
    "llama-70b": llama(80, 8192, 28672, 64, 8),
    "dense-32b": llama(64, 5120, 27648, 40, 8, "silu-glu"),
    "bamboo-7b": ModelShape("bamboo", "drelu-glu", 32, 4096, 14336, 32, 8, 128, 32000, 32768),
    "falcon-40b": ModelShape("falcon", "relu", 60, 8192, 32768, 128, 8, 64, 65024, 2048),
    "opt-30b": opt(48, 7168, 28672, 56),
    "opt-66b": opt(64, 9216, 36864, 72),
    "opt-175b": opt(96, 12288, 49152, 96),
}
# Bytes of a number, of rows whose blocks are whole.
WIDTH = {"f16": 2.0, "q4_0": 18 / 32}


def machine(name: str) -> KnownMachine:
    if name != "laptop with two GPUs":
        return known_machine(load_profile(name))
    laptop = load_profile("laptop-4060-8gb")
    integrated = GpuInfo(
        None, "Intel Iris Xe Graphics", None, 32 * GIB, 31 * GIB, None, None, None, None, False,
        ("made by Intel; Hearth runs on NVIDIA's",),
    )  # fmt: skip
    return known_machine(replace(laptop, gpus=(integrated, *laptop.gpus)))


MACHINES = {
    "pc-high": "GeForce RTX 4090",
    "pc-low": "GeForce RTX 2080 Ti",
    "rtx-3060-12gb": "GeForce RTX 3060",
    "laptop with two GPUs": "GeForce RTX 4060 Laptop GPU",
    "no-gpu": "",
}


def sparsity_of(shape: ModelShape) -> Sparsity:
    if not config_of(shape).has_zeros:
        return Sparsity()
    share = {"relu": 0.05, "relu-glu": 0.3, "drelu-glu": 0.13}[shape.activation]
    return Sparsity(share, CURVE, "published", "a test", 0.08)


# --- what fits, fits


@pytest.mark.parametrize("codec", some_daily(WIDTH, [*WIDTH][::3]))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", MACHINES)
def test_what_is_said_to_fit_stays_within_the_machine(name: str, shape: str, codec: str) -> None:
    here = machine(name)
    assert ("" if here.gpu is None else here.gpu.name) == MACHINES[name]
    found = solve_estimate(SHAPES[shape], codec, "powerinfer-gguf", sparsity_of(SHAPES[shape]), here)
    estimate = found.estimate
    if estimate.fits == "no":
        assert estimate.short_bytes > 0
        assert estimate.predicted_tok_s is None
        assert estimate.ram_bytes > estimate.ram_budget_bytes
        return
    on_gpu, in_ram = added_up(found, SHAPES[shape], codec)
    assert on_gpu <= estimate.vram_bytes <= estimate.vram_budget_bytes
    assert in_ram <= estimate.ram_bytes <= estimate.ram_budget_bytes
    assert estimate.ram_bytes + memory_plan.RAM_MARGIN_BYTES <= here.profile.ram.free_bytes
    if estimate.fits == "cpu":
        assert estimate.vram_bytes == 0
    else:
        assert here.gpu is not None
        assert here.gpu.free_bytes is not None
        assert estimate.vram_bytes + MARGIN <= here.gpu.free_bytes
        # what is counted beyond weights, predictors and caches: the context, buffers (of prompts a 48th), padding
        assert estimate.vram_bytes - on_gpu <= 0.05 * on_gpu + estimate.vram_budget_bytes / 48 + GIB
    assert estimate.predicted_tok_s is not None
    assert estimate.predicted_tok_s > 0
    assert estimate.short_bytes == 0


def added_up(found: SolvedEstimate, shape: ModelShape, codec: str) -> tuple[int, int]:
    """Bytes of weights, predictors, keys and values on the GPU and in the RAM, by the shape alone."""
    width, d, f, context = WIDTH[codec], shape.d_model, shape.d_ff, found.estimate.context
    assert found.choice is not None
    matrices = 3 if shape.family in ("llama", "bamboo") else 2
    kv_width = shape.n_kv_heads * shape.head_dim
    attention = width * (2 * d * shape.n_heads * shape.head_dim + 2 * d * kv_width)
    cache, on_cpu = 2 * 2 * kv_width * found.kv_positions, 2 * 2 * kv_width * context
    neuron = width * matrices * d
    ends = width * d * (shape.vocab_size if shape.tied_embeddings else 2 * shape.vocab_size)
    predictor = 0.0  # as many bytes in every layer; less some for what is rounded
    if found.mode == "sparse":
        predictor = 0.999 * 0.08 * (attention + f * neuron + ends / shape.n_layers)
    head, embedding = width * shape.vocab_size * d, width * shape.vocab_size * d
    problem = found.problem
    on_gpu = in_ram = 0.0
    for way in found.choice.ways:
        at_home = bool(problem.attention_on_gpu[way])
        hot = min(int(problem.blocks[way]) * problem.block, f)
        on_gpu += at_home * (attention + cache + predictor) + hot * neuron
        in_ram += (not at_home) * (attention + on_cpu + predictor) + (f - hot) * neuron
    if found.choice.head_on_gpu:
        on_gpu += head
        in_ram += embedding
    else:
        in_ram += embedding + head * (not shape.tied_embeddings)
    total = shape.n_layers * (attention + on_cpu + predictor + f * neuron) + embedding + head
    at_home = sum(bool(problem.attention_on_gpu[way]) for way in found.choice.ways)
    total -= at_home * (on_cpu - cache)
    assert on_gpu + in_ram == pytest.approx(total, rel=1e-6) or shape.tied_embeddings
    return int(on_gpu), int(in_ram)


def test_there_are_enough_pairs_and_every_verdict_among_them() -> None:
    pairs = [(name, shape, codec) for name in MACHINES for shape in SHAPES for codec in WIDTH]
    assert len(pairs) >= 40
    fits = {
        solve_estimate(
            SHAPES[shape], "q4_0", "powerinfer-gguf", sparsity_of(SHAPES[shape]), machine(name)
        ).estimate.fits
        for name in ("pc-high", "no-gpu")
        for shape in ("llama-7b", "llama-70b", "opt-175b")
    }
    assert fits == {"gpu", "hybrid", "cpu", "no"}


def test_the_exact_solution_is_hardly_faster_than_the_fast_path() -> None:
    case = (SHAPES["llama-13b"], "f16", "powerinfer-gguf", sparsity_of(SHAPES["llama-13b"]), machine("pc-high"))
    quick, exact = solve_estimate(*case).estimate, solve_estimate(*case, exact=True).estimate  # type: ignore[arg-type]
    assert quick.predicted_tok_s is not None
    assert exact.predicted_tok_s is not None
    assert 0.97 * exact.predicted_tok_s <= quick.predicted_tok_s <= exact.predicted_tok_s * 1.0001


def test_a_budget_is_kept_and_more_of_it_is_never_slower() -> None:
    shape, here = SHAPES["llama-70b"], machine("pc-high")
    rates = []
    for gib in (0.0, 0.2, 2.0, 8.0, 16.0, 22.0):
        found = estimate_shape(shape, "q4_0", "powerinfer-gguf", here, gib)
        assert found.vram_bytes <= gib * GIB
        assert found.predicted_tok_s is not None
        rates.append(found.predicted_tok_s)
    assert rates == sorted(rates)
    assert rates[-1] > 2 * rates[0]


def test_a_context_is_taken_as_asked_and_costs_memory() -> None:
    here = machine("pc-high")
    short, long = (estimate_shape(SHAPES["llama-7b"], "q4_0", "powerinfer-gguf", here, None, n) for n in (512, 4096))
    assert (short.context, long.context) == (512, 4096)
    assert long.vram_bytes > short.vram_bytes + 3500 * 2 * 2 * 4096 * 32
    assert estimate_shape(SHAPES["llama-7b"], "q4_0", "powerinfer-gguf", here, None, 1 << 20).context == 4096


@pytest.mark.parametrize(("budget", "context"), [(-1.0, None), (float("nan"), None), (None, 0)])
def test_a_senseless_wish_is_refused(budget: float | None, context: int | None) -> None:
    with pytest.raises(InvalidRequestError):
        estimate_shape(SHAPES["llama-7b"], "q4_0", "powerinfer-gguf", machine("pc-high"), budget, context)


# --- bytes of a shape


@pytest.mark.parametrize(("dtype", "codec"), [("float32", "f32"), ("float16", "f16")])
def test_a_shape_has_the_bytes_of_a_folder(tmp_path: Path, dtype: str, codec: str) -> None:
    opened = open_model(make_tiny_model(tmp_path / "model", dtype=dtype, tied=False))
    real, estimated = ModelBytes.of(opened), bytes_of(shape_of(opened.config), codec, "safetensors").model
    assert estimated.neuron.tolist() == real.neuron.tolist()
    assert estimated.down_is_row_wise == real.down_is_row_wise
    assert estimated.total == pytest.approx(real.total, rel=0.02)


def test_a_mixture_has_more_bits_in_some_layers() -> None:
    shape = ModelShape("llama", "silu-glu", 32, 4096, 14336, 32, 8, 128, 128256, 8192)
    sizes = bytes_of(shape, "q4_k_m", "gguf")
    assert set(sizes.model.down_codecs) == {"q4_k", "q6_k"}
    assert sizes.model.head_codec == "q6_k"
    assert len(sizes.first) == 2
    assert sizes.model.total == pytest.approx(4.92e9, rel=0.01)  # as Llama 3.1 8B is published


def test_rows_that_are_no_whole_blocks_take_a_narrower_codec() -> None:
    shape = ModelShape("qwen2", "silu-glu", 24, 896, 4864, 14, 2, 64, 151936, 32768, tied_embeddings=True)
    assert set(bytes_of(shape, "q4_k_m", "gguf").model.first_codecs) == {"q5_0"}


def test_what_is_known_of_the_files_counts() -> None:
    sizes = bytes_of(SHAPES["llama-7b"], "q4_0", "gguf")
    larger = scaled(sizes, int(1.2 * sizes.model.total)).model
    assert larger.total == pytest.approx(1.2 * sizes.model.total, rel=0.001)
    assert larger.gpu_bytes.neuron[0] > sizes.model.gpu_bytes.neuron[0]
    assert scaled(sizes, 10 * sizes.model.total) is sizes  # a senseless figure is not believed


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"family": "mamba"}, UnsupportedModelError),
        ({"activation": "swish"}, UnsupportedModelError),
        ({"activation": "relu"}, UnsupportedModelError),  # LLaMA has a gate
        ({"activation": "fatrelu-glu:much"}, ModelFormatError),
        ({"n_layers": 0}, ModelFormatError),
        ({"n_heads": 7}, ModelFormatError),
        ({"d_ff": 1 << 40}, ModelFormatError),
    ],
)
def test_a_senseless_shape_is_refused(change: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        config_of(replace(SHAPES["llama-70b"], **change))  # type: ignore[arg-type]


def test_codecs_go_by_the_names_of_files() -> None:
    assert [main_codec(name) for name in ("Q4_K_M", "q5_k_s", "Q8_0", "F16")] == ["q4_k", "q5_k", "q8_0", "f16"]
    with pytest.raises(UnsupportedModelError, match="IQ1_S"):
        main_codec("IQ1_S")


# --- how unevenly neurons fire


@pytest.mark.parametrize("points", [((0.8, 0.26),), ((0.8, 0.57), (0.9, 0.73), (0.95, 0.83))])
def test_a_curve_carries_what_it_says(points: tuple[tuple[float, float], ...]) -> None:
    curve = curve_through(*points)
    check_coverage(curve, "a test")
    fired = shares(curve, 0.05, 16384).astype(np.float64)
    assert fired.mean() == pytest.approx(0.05, rel=1e-3)
    for carried, needed in points:
        hottest = round(needed * len(fired))
        assert fired[:hottest].sum() / fired.sum() == pytest.approx(carried, abs=0.02)


def test_no_neuron_fires_more_often_than_always() -> None:
    fired = shares(curve_through((0.8, 0.1)), 0.5, 4096)
    assert fired.max() <= 1
    assert fired.mean() == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(
    "coverage",
    [
        (),
        (0.5, 1.0),
        tuple(np.linspace(0.05, 0.9, POINTS)),
        tuple(np.linspace(1 / POINTS, 1, POINTS) ** 0.5),  # the cold ones first
        (*np.linspace(0.05, 0.95, POINTS - 1), float("nan")),
    ],
)
def test_what_is_no_curve_is_refused(coverage: tuple[float, ...]) -> None:
    with pytest.raises(ModelFormatError, match="a test"):
        check_coverage(coverage, "a test")


def test_an_estimate_from_a_family_has_a_range_and_a_published_one_has_none() -> None:
    here, shape = machine("pc-high"), SHAPES["llama-70b"]
    known = sparsity_of(shape)
    published = solve_estimate(shape, "q4_0", "powerinfer-gguf", known, here).estimate
    usual = solve_estimate(shape, "q4_0", "powerinfer-gguf", replace(known, source="family"), here).estimate
    assert published.low_tok_s == published.predicted_tok_s == published.high_tok_s
    assert published.predicted_from == "published"
    assert usual.low_tok_s is not None
    assert usual.predicted_tok_s is not None
    assert usual.high_tok_s is not None
    assert usual.low_tok_s < usual.predicted_tok_s < usual.high_tok_s
    assert usual.predicted_from == "family"
    assert any("same family" in note for note in usual.notes)


def test_a_model_of_which_nothing_is_known_is_taken_as_its_kind() -> None:
    assert filled("relu", Sparsity()).active_share == 0.05
    found = estimate_shape(SHAPES["opt-30b"], "f16", "safetensors", machine("pc-high"))
    assert found.predicted_from == "family"
    dense = estimate_shape(SHAPES["dense-32b"], "q4_k_m", "gguf", machine("pc-high"))
    assert dense.low_tok_s == dense.high_tok_s
    assert dense.predicted_from == "published"


def test_what_preparing_changes_is_reckoned_with() -> None:
    shape = SHAPES["llama-7b"]
    assert as_prepared(shape, "f32", "safetensors") == ("f16", "bundle")
    assert as_prepared(shape, "Q4_0", "gguf") == ("q4_0", "bundle")
    assert as_prepared(shape, "q4_k_m", "gguf") == ("q4_k_m", "gguf")
    assert as_prepared(SHAPES["dense-32b"], "f16", "safetensors") == ("f16", "safetensors")
    found = estimate_shape(shape, "f32", "safetensors", machine("pc-high"))
    assert "prepared" in found.notes[0]
    large = estimate_shape(SHAPES["llama-13b"], "f32", "safetensors", machine("rtx-3060-12gb"))
    assert large.fits == "hybrid"
    assert large.notes[0] != found.notes[0], "it does not fit as it is"


QWEN3_30B = ModelShape("qwen3_moe", "silu-glu", 48, 2048, 768, 32, 4, 128, 151936, 32768, False, 128, 8)


def test_all_neurons_of_layers_that_have_some_are_on_a_gpu_that_holds_the_model() -> None:
    spec = DeltaSpec(8, 64, 128, 64, 4, mamba=True)
    shape = replace(
        QWEN3_30B, family="nemotron_h", activation="relu2", n_layers=3, n_experts=0, n_experts_used=0, delta=spec,
        delta_layers=(0,), ffn_only_layers=(2,), mixer_only_layers=(0, 1),
    )  # fmt: skip
    assert solve_estimate(shape, "q8_0", "gguf", Sparsity(), machine("pc-high"), 20.0, 4096).estimate.hot_share == 1


def test_a_larger_budget_holds_more_experts_and_is_faster() -> None:
    here = machine("pc-high")
    found = [solve_estimate(QWEN3_30B, "q4_0", "gguf", Sparsity(), here, gib, 4096) for gib in (4.0, 8.0, 12.0, 20.0)]
    assert all(one.estimate.by_expert for one in found)
    estimates = [one.estimate for one in found]
    assert [one.fits for one in estimates] == ["hybrid", "hybrid", "hybrid", "gpu"]
    for fewer, more in pairwise(estimates):
        assert fewer.hot_share < more.hot_share
        assert fewer.gpu_neuron_load < more.gpu_neuron_load
        assert fewer.predicted_tok_s < more.predicted_tok_s
        assert fewer.ram_bytes > more.ram_bytes
    assert estimates[-1].gpu_neuron_load == pytest.approx(1)
    for one in estimates:
        assert one.gpu_neuron_load >= one.hot_share, "the experts that are chosen most come first"
        assert one.vram_bytes <= one.vram_budget_bytes
    exact = solve_estimate(QWEN3_30B, "q4_0", "gguf", Sparsity(), here, 8.0, 4096, exact=True).estimate
    assert exact.predicted_tok_s == pytest.approx(estimates[1].predicted_tok_s, rel=0.05)


@pytest.mark.parametrize("codec", ["f32", "f16", "q4_0"])
def test_experts_have_the_bytes_of_their_files(tmp_path: Path, codec: Any) -> None:
    path, layout = make_tiny_mixtral(tmp_path / "m.gguf"), "gguf"
    if codec != "f32":
        path, layout = convert(path, tmp_path / "bundle", codec).bundle, "bundle"
    opened = open_model(path)
    real, estimated = ModelBytes.of(opened), bytes_of(shape_of(opened.config), codec, layout).model  # type: ignore[arg-type]
    np.testing.assert_array_equal(estimated.neuron, real.neuron)
    np.testing.assert_array_equal(estimated.attention, real.attention)
    assert real.gpu_bytes.possible.all()
    for part in ("attention", "neuron", "block", "head", "possible"):
        np.testing.assert_array_equal(getattr(estimated.gpu_bytes, part), getattr(real.gpu_bytes, part))


def test_leading_dense_layers_are_a_kind_of_their_own() -> None:
    shape = replace(QWEN3_30B, family="glm4_moe", shared_d_ff=768, n_dense_layers=3, dense_d_ff=6144)
    sizes = bytes_of(shape, "q8_0", "gguf")
    assert sizes.kinds.tolist() == [0, 0, 0] + [1] * 45
    assert sizes.model.neuron[0] == 0, "its FFN is not placed by neuron"
    more = 3 * (6144 - 768) * 2048 * 34 // 32 - 4 * 128 * (2048 + 1)  # than a shared expert, and no router
    assert sizes.model.attention[0] - sizes.model.attention[3] == more
    assert one_layer_of_each(sizes).config.n_dense_layers == 1
    estimate = solve_estimate(shape, "q8_0", "gguf", Sparsity(), machine("pc-high"), 12.0, 4096).estimate
    assert estimate.fits == "hybrid"
    assert estimate.vram_bytes <= estimate.vram_budget_bytes


def test_only_routed_experts_are_mxfp4() -> None:
    shape = replace(QWEN3_30B, family="gpt_oss", activation="clamped-silu-glu:7.0")
    model = bytes_of(shape, "mxfp4", "gguf").model
    assert {*model.first_codecs, *model.down_codecs} == {"mxfp4"}
    assert {*model.attention_codecs, model.head_codec} == {"q8_0"}


def test_layers_that_draft_tokens_are_in_the_file_alone() -> None:
    shape = replace(QWEN3_30B, family="glm4_moe")
    whole, alone = file_bytes(shape, "q8_0", "gguf", 1), file_bytes(shape, "q8_0", "gguf")
    layer = bytes_of(shape, "q8_0", "gguf").model
    of_layer = int(layer.attention[-1]) + layer.neurons * int(layer.neuron[-1])
    assert whole - alone == of_layer + (2 * 151936 + 2 * 2048) * 2048 * 34 // 32
    assert alone == layer.total


def test_the_first_layer_that_drafts_tokens_is_in_ram_if_it_fits() -> None:
    shape, known = replace(QWEN3_30B, family="glm4_moe"), machine("pc-high")

    def ram_bytes(n_draft_layers: int, here: KnownMachine) -> int:
        return estimate_shape(shape, "q4_0", "gguf", here, 8.0, 4096, n_draft_layers=n_draft_layers).ram_bytes

    layer = bytes_of(shape, "q4_0", "gguf", 2).model.drafts
    assert layer == file_bytes(shape, "q4_0", "gguf", 1) - file_bytes(shape, "q4_0", "gguf")
    assert ram_bytes(2, known) - ram_bytes(0, known) == layer + trail_bytes(config_of(shape), 4096, "f16")
    small = replace(known, profile=replace(known.profile, ram=RamInfo(64 * GIB, 11 * GIB)))
    assert ram_bytes(1, small) == ram_bytes(0, small)


def test_experts_of_a_width_without_kernels_stay_on_the_cpu() -> None:
    found = estimate_shape(replace(QWEN3_30B, d_ff=760), "q4_0", "gguf", machine("pc-high"))
    assert found.gpu_neuron_load == 0


# --- the machine


def test_the_slider_is_followed_in_time() -> None:
    here, shape = machine("pc-high"), SHAPES["llama-70b"]
    solve_estimate(shape, "q4_0", "powerinfer-gguf", sparsity_of(shape), here)  # the head is read once
    started = time.process_time()
    for gib in (4.0, 9.0, 14.0, 19.0):
        solve_estimate(shape, "q4_0", "powerinfer-gguf", sparsity_of(shape), here, gib)
    assert (time.process_time() - started) / 4 < 6


def test_rates_that_nobody_measured_are_the_usual_ones() -> None:
    plain = load_profile("pc-low")
    unmeasured = replace(
        plain,
        cpu=replace(plain.cpu, bytes_per_s=None),
        gpus=tuple(replace(gpu, bytes_per_s=None, pcie_bytes_per_s=None) for gpu in plain.gpus),
        sync_s=None,
    )
    here = known_machine(unmeasured)
    assert not here.measured
    assert here.gpu is not None
    assert here.gpu.bytes_per_s == pytest.approx(0.9 * 616e9)
    assert here.gpu.pcie_bytes_per_s == pytest.approx(12e9)
    assert here.profile.cpu.bytes_per_s == pytest.approx(46e9)
    assert not any(
        "Not measured" in note for note in estimate_shape(SHAPES["llama-7b"], "q4_0", "gguf", machine("pc-low")).notes
    )
    assert any("Not measured" in note for note in estimate_shape(SHAPES["llama-7b"], "q4_0", "gguf", here).notes)


def test_an_unknown_gpu_and_two_cores_have_rates_too() -> None:
    plain = load_profile("pc-low")
    gpu = replace(
        plain.gpus[0], name="GeForce RTX 9999", compute_capability="13.0", bytes_per_s=None, pcie_bytes_per_s=None
    )
    small = replace(plain.cpu, cores=2, threads=2, performance_cores=None, bytes_per_s=None)
    here = known_machine(replace(plain, cpu=small, gpus=(gpu,)))
    assert here.profile.cpu.bytes_per_s == pytest.approx(15e9)
    found = estimate_shape(SHAPES["llama-7b"], "q4_0", "gguf", here)
    assert found.predicted_tok_s is not None


def test_what_hearth_holds_itself_counts_as_free() -> None:
    plain = load_profile("pc-high")
    taken = replace(
        plain,
        ram=replace(plain.ram, free_bytes=plain.ram.free_bytes - 4 * GIB),
        gpus=(replace(plain.gpus[0], free_bytes=2 * GIB),),
    )
    alone, with_ours = known_machine(taken), known_machine(taken, 22 * GIB, 4 * GIB)
    shape = SHAPES["llama-7b"]
    assert estimate_shape(shape, "q4_0", "gguf", alone).fits == "hybrid"
    assert estimate_shape(shape, "q4_0", "gguf", with_ours).fits == "gpu"
    assert with_ours.profile.ram.free_bytes == plain.ram.free_bytes
    assert with_ours.profile.gpus[0].free_bytes is not None
    assert plain.gpus[0].total_bytes is not None
    assert with_ours.profile.gpus[0].free_bytes <= plain.gpus[0].total_bytes


def test_a_machine_is_told_by_what_placements_depend_on(tmp_path: Path) -> None:
    here = machine("pc-high")
    busy = known_machine(
        replace(here.profile, gpus=(replace(here.profile.gpus[0], free_bytes=5 * GIB),))
    )  # fmt: skip
    assert here.key == busy.key
    assert here.state != busy.state
    assert here.key != machine("pc-low").key
    line = here.line(tmp_path / "not" / "there" / "yet")
    assert line.gpu == "GeForce RTX 4090"
    assert line.vram_budget_bytes + MARGIN <= (here.profile.gpus[0].free_bytes or 0)
    assert line.disk_free_bytes > 0
    assert line.measured
    assert "the only usable GPU" in line.gpu_reason
    none = machine("no-gpu").line(tmp_path)
    assert (none.gpu, none.vram_budget_bytes) == ("", 0)
    assert none.gpu_reason.startswith("CPU only")


def test_usual_rates_leave_measured_ones_alone() -> None:
    plain: HardwareProfile = load_profile("pc-high")
    assert with_usual_rates(plain, 7) == plain
