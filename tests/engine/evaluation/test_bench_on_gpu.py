"""What generate and bench say of a model on a GPU: bytes on either side, memory, and the floor."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fakes.gpu_machine import FakeGpuMachine, same_scratch_for_every_budget
from samples.experts_gguf import make_tiny_mixtral
from samples.raw_gguf import make_tiny_powerinfer
from samples.recurrent_model import make_recurrent_model
from samples.tiny_model import make_tiny_model

from engine.commands import cli
from engine.evaluation import bench
from engine.evaluation.token_bytes import token_bytes
from engine.model.kv_cache import stored_kv_bytes
from engine.placement import memory_plan


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpuMachine:
    return FakeGpuMachine(tmp_path, monkeypatch)


def test_bench_of_a_model_wholly_on_the_gpu(machine: FakeGpuMachine, tmp_path: Path) -> None:
    model = machine.load(make_tiny_model(tmp_path / "m"))
    result = bench.run(model, prompt_tokens=4, gen_tokens=4, repeat=1)
    assert result.device == "cuda"
    assert result.gpu_neuron_load == 1
    weights = sum(w.n_bytes for layer in model.weights.layers for w in (*layer.qkv, layer.o))
    assert result.bytes_per_token["gpu"] > weights + model.weights.head.n_bytes
    assert result.bytes_per_token["cpu"] == 0
    assert result.vram_bytes > 0
    assert result.vram_parts_bytes is not None
    assert 0 < result.share_of_floor < 1
    model.close()


def test_only_layers_with_attention_read_keys_and_values(machine: FakeGpuMachine, tmp_path: Path) -> None:
    model = machine.load(make_recurrent_model(tmp_path / "m"))
    assert model.gpu is not None
    read = []
    for position in (0, 100):
        shares, fired = np.ones((4, 4)), np.ones((4, model.opened.config.d_ff), np.int64)
        read.append(token_bytes(model.weights, model.gpu, "dense", shares, fired, position, None).on_gpu)
    config = model.opened.config
    assert read[1] - read[0] == sum(stored_kv_bytes(config, 100, "f16")) > 0
    matrices = [one for w in model.weights.layers for one in (*w.attention_matrices, *w.ffns[0].matrices)]
    states = 2 * 4 * config.state_size  # read and written
    assert read[0] == sum(one.n_bytes for one in (*matrices, model.weights.head)) + states
    model.close()


def test_what_both_sides_read_adds_up(machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_tiny_powerinfer(tmp_path / "p.gguf", rank=8)
    whole = machine.load(path, mode="sparse")
    assert whole.gpu is not None
    needed = whole.gpu.placement.vram_bytes
    whole.close()
    monkeypatch.setattr(memory_plan, "gpu_scratch_bytes", lambda *of: 0)
    parts = []
    for budget in (needed, 0.98 * needed):
        model = machine.load(path, mode="sparse", vram_budget_gib=budget / (1 << 30))
        transformer, cache = model.transformer(), model.new_cache()
        transformer.forward(np.array([1, 2, 3]), cache)
        counters = transformer.executor.counters
        assert model.gpu is not None
        fired = np.ones((2, model.opened.config.d_ff), np.int64)
        how = (model.weights, model.gpu, "sparse", counters.layer_shares, fired, 3, model.modes.predictor)
        read, least = token_bytes(*how), token_bytes(*how, least=True)  # type: ignore[arg-type]
        parts.append(read.on_gpu + read.in_ram)
        assert read.of_neurons <= sum(x.ffns[0].up.n_bytes * 3 for x in model.weights.layers)
        assert 0 < least.least_s(1e9, 1e9) <= (parts[-1] + 1) / 1e9 + 2 * 12e-6 + 1e-6
        model.close()
    assert parts[0] == pytest.approx(parts[1], rel=0.2)


def test_experts_are_read_where_they_are(
    machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_scratch_for_every_budget(monkeypatch)
    path = make_tiny_mixtral(tmp_path / "m.gguf")
    results = []
    for experts in (8.5, 4.5, 0.5):
        model = machine.load(path, vram_budget_gib=machine.budget_for_experts(path, experts), adapt=False)
        results.append(bench.run(model, prompt_tokens=4, gen_tokens=8, repeat=1))
        model.close()
    whole, _, few = results
    hits = [one.expert_hits or 0 for one in results]
    assert hits[0] == 1 > hits[1] > hits[2]
    assert whole.bytes_per_token["cpu"] == 0
    for result, share in zip(results, hits, strict=True):
        assert sum(result.bytes_per_token.values()) == pytest.approx(sum(whole.bytes_per_token.values()), abs=2)
        more = result.bytes_per_token["gpu"] - few.bytes_per_token["gpu"]
        assert more == pytest.approx((share - hits[2]) * whole.ffn_bytes_per_token, rel=1e-3)


def test_generate_tells_where_it_was_computed(
    machine: FakeGpuMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = make_tiny_model(tmp_path / "m")
    flags = ["--json", "--raw", "--max-tokens", "3", "--threads", "1", "--hardware", str(tmp_path / "slow.json")]
    for device in ("cuda", "cpu"):
        assert cli.main(["generate", str(model), "--prompt", "the", *flags, "--device", device]) == 0
        stats = json.loads(capsys.readouterr().out)["stats"]
        assert stats["device"] == device
        assert (stats["vram_bytes"] > 0) == (device == "cuda")
        assert (stats["gpu_neuron_load"] == 1) == (device == "cuda")
    assert sum(gpu.used_bytes for gpu in machine.gpus) > 0  # the process ends with it
