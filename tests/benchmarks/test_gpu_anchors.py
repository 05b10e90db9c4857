"""The floor that decode on two devices is held against, and that the script runs where there is no GPU."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gpu_anchors
import numpy as np
import pytest
from fakes.gpu_machine import FakeGpuMachine
from gpu_anchors import EXCHANGE_S, GIB, TokenBytes, least_seconds, token_bytes
from make_model import Recipe, make_model, save_statistics
from samples.placement_cases import a_profile

from engine.evaluation import bench
from engine.machine.cpu_and_ram import RamInfo
from engine.model.model_files import open_model
from engine.placement import memory_plan

# Two layers of four neurons: half of the activations are the first one's.
TOKEN = TokenBytes(
    layer=100.0, neuron=10.0, head=50.0, kv=0.0, active=np.array([[1.0, 0.5, 0.25, 0.25], [0.25, 0.25, 0.5, 1.0]])
)
ALWAYS = 2 * 100.0 + 50.0


def test_all_of_it_on_the_gpu_needs_no_exchange() -> None:
    floor = least_seconds(TOKEN, None, dram=10.0, gpu=100.0)
    assert floor.seconds == pytest.approx((ALWAYS + 2 * 2.0 * 10) / 100)
    assert floor.hot_share == 1


def test_the_sides_work_at_the_same_time_on_the_most_active_neurons_in_the_budget() -> None:
    floor = least_seconds(TOKEN, ALWAYS + 2 * 10.0, dram=10.0, gpu=100.0)
    assert floor.seconds == pytest.approx(ALWAYS / 100 + 2 * (max(10 / 100, 10 / 10) + EXCHANGE_S))
    assert floor.hot_share == pytest.approx(0.5)


def test_a_budget_for_less_than_attention_leaves_the_neurons_to_the_cpu() -> None:
    floor = least_seconds(TOKEN, ALWAYS / 2, dram=10.0, gpu=100.0)
    assert floor.seconds == pytest.approx(ALWAYS / 2 / 100 + (ALWAYS / 2 + 40) / 10 + EXCHANGE_S)


def test_without_a_gpu_the_cpu_reads_everything() -> None:
    assert least_seconds(TOKEN, None, dram=10.0, gpu=None).seconds == pytest.approx((ALWAYS + 40) / 10)


def test_a_run_is_told_in_words() -> None:
    found = {
        "decode_tok_s": 20.0, "prefill_tok_s": 100.0, "bytes_per_token": {"gpu": 2e9, "cpu": 1e9},
        "gpu_neuron_load": 0.6, "vram_bytes": 24 * GIB, "timings": {"head": 0.001},
    }  # fmt: skip
    own = gpu_anchors.row(Path("32b.gguf"), "24", gpu_anchors.Floor(0.025, 0.7), found)
    assert own["share_of_bytes_floor"] == pytest.approx(0.5)
    words = gpu_anchors.line(own)
    assert "20.00 tok/s" in words
    assert "share 0.50" in words
    assert "60%" in words
    failed = gpu_anchors.line(gpu_anchors.row(Path("32b.gguf"), "24", None, {"error": "no GPU"}))
    assert failed.endswith("no GPU")


@pytest.mark.parametrize(
    "shape", ["tiny", *(pytest.param(shape, marks=pytest.mark.slow) for shape in ("falcon-tiny", "opt-tiny"))]
)
def test_the_floor_counts_the_bytes_that_a_token_reads(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every family, by the statistics that the model was made with: as `bench` counts them, on one side and on two.

    Layers take neurons in turn, and which ones fire is the tokens' chance: hence the margin.
    """
    path = tmp_path / "model.gguf"
    recipe = Recipe(shape, "f16", "powerinfer", rank=64, active=0.1)
    make_model(path, recipe)
    assert token_bytes(open_model(path), 8) is None  # nothing is known yet
    save_statistics(path, recipe)
    token = token_bytes(open_model(path), 8)
    assert token is not None
    assert token.active.mean() == pytest.approx(0.1, rel=0.02)
    layers = recipe.sizes.n_layers
    floor = layers * (token.layer + token.kv) + token.head + float(token.active.sum()) * token.neuron
    monkeypatch.setattr(memory_plan, "gpu_scratch_bytes", lambda *of: 0)  # less of it would make room for neurons
    machine = FakeGpuMachine(tmp_path, monkeypatch)
    whole = machine.load(path, mode="sparse")
    assert whole.gpu is not None
    wanted = whole.gpu.placement
    whole.close()
    for gib in (None, (wanted.vram_bytes - wanted.vram_parts_bytes["hot"] / 2) / GIB):
        model = machine.load(path, mode="sparse", vram_budget_gib=gib)
        found = bench.run(model, prompt_tokens=4, gen_tokens=8, repeat=1)
        model.close()
        assert (found.device, found.mode) == ("cuda", "sparse")
        assert sum(found.bytes_per_token.values()) == pytest.approx(floor, rel=0.1)
        assert (found.bytes_per_token["cpu"] > 0) == (gib is not None)


def test_a_file_in_memory_is_not_counted_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    n_bytes = make_model(path, Recipe("tiny", "f16", "powerinfer", rank=64))
    monkeypatch.setattr(gpu_anchors, "with_figures", lambda profile, *of, **named: profile)
    full = a_profile()
    for total, free in ((full.ram.total_bytes, GIB + n_bytes), (GIB + 1, GIB + 1)):
        found = gpu_anchors.with_file_as_free(replace(full, ram=RamInfo(total, GIB)), open_model(path), 1, "cpu")
        assert found.ram == RamInfo(total, free)


@pytest.mark.slow
def test_it_runs_on_the_cpu(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    make_model(path, Recipe("tiny", "f16", "powerinfer", rank=64))
    command = [
        sys.executable,
        gpu_anchors.__file__,
        str(path),
        "--device",
        "cpu",
        "--threads",
        "1",
        "--gen-tokens",
        "4",
        "--in-memory",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr
    assert "tok/s" in done.stdout
