"""The command solve: bytes that add up, budgets that hold, a placement that is solved again when anything changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from samples.experts_gguf import make_tiny_mixtral
from samples.raw_gguf import make_tiny_powerinfer
from samples.recurrent_model import make_recurrent_model
from samples.tiny_model import make_tiny_model
from support.systems import ON_WINDOWS

from engine.assets import starter_model
from engine.bundle import artefacts
from engine.commands import cli
from engine.config import EngineConfig
from engine.conversion.convert import convert
from engine.errors import (
    Cancelled,
    DeviceMemoryError,
    DeviceUnavailableError,
    HostMemoryError,
    InvalidRequestError,
    UnsupportedModelError,
)
from engine.job import Job, StagedJob
from engine.machine.measured_hardware import load_profile, profile_names
from engine.model.kv_cache import KVCache, state_bytes, within_bytes
from engine.model.model_files import open_model
from engine.placement import memory_plan
from engine.placement.machine_figures import working_set
from engine.placement.placement_problem import TYPICAL_POSITION
from engine.placement.setting import read_setting
from engine.placement.solving import solve_model
from engine.service.jobs import run_job
from engine.sparsity.placement import RAM_PARTS, VRAM_PARTS
from engine.sparsity.stats import NeuronStats

PARTS = {"attention", "predictors", "kv_cache", "scratch", "context", "head", "hot"}
KEYS = {"stats", "hot_neurons", "hot_bytes", "vram_bytes", "vram_parts_bytes", "ram_bytes", "predicted_tok_s",
        "gpu_neuron_load", "objective", "gap", "layers"}  # fmt: skip


def solved(capsys: pytest.CaptureFixture[str], model: str | Path, *arguments: str) -> dict[str, Any]:
    assert cli.main(["solve", str(model), "--json", *arguments]) == 0
    values: dict[str, Any] = json.loads(capsys.readouterr().out)
    return values


def stats(share: float = 0.3, shape: tuple[int, int] = (2, 64), seed: int = 0) -> NeuronStats:
    rng = np.random.default_rng(seed)
    return NeuronStats(rng.binomial(1000, share, shape).astype(np.int64), 1000, "measured", "a text")


# --- what it prints


def test_the_states_of_all_sequences_are_counted(tmp_path: Path) -> None:
    opened, cold = open_model(make_recurrent_model(tmp_path / "m")), []
    for n in (1, 3):
        made = solve_model(opened, EngineConfig(hardware_file="no-gpu", context=64, sequences=n))
        parts = made.placement.ram_parts_bytes
        of_others = (n - 1) * (state_bytes(opened.config) + within_bytes(opened.config))
        assert parts["kv_cache"] == KVCache.bytes_for(opened.config, 64 * n, "f16") + of_others
        cold.append(parts["cold"])
    assert cold[0] == cold[1] >= 0


@pytest.mark.parametrize("budget", [None, "0.48", "0.49", "0.5", "0.52"])
def test_everything_is_counted_and_within_the_budget(capsys: pytest.CaptureFixture[str], budget: str | None) -> None:
    values = solved(
        capsys, "starter-chat", "--hardware", "pc-low", *([] if budget is None else ["--vram-budget", budget])
    )
    assert values.keys() >= KEYS
    assert set(values["vram_parts_bytes"]) == PARTS
    assert sum(values["vram_parts_bytes"].values()) == values["vram_bytes"]
    assert sum(values["ram_parts_bytes"].values()) == values["ram_bytes"]
    assert values["vram_bytes"] <= values["vram_budget_bytes"]
    if budget is not None:
        assert values["vram_budget_bytes"] == int(float(budget) * (1 << 30))
    assert values["hot_bytes"] == values["vram_parts_bytes"]["hot"]
    assert len(values["layers"]) == 8
    assert sum(values["layers"]) == values["hot_neurons"]
    row = 512 // 32 * 34  # q8_0
    neurons = values["hot_neurons"] * 3 * row
    assert neurons <= values["hot_bytes"] <= neurons + 8 * 8192  # everything begins on 256 bytes
    assert values["predicted_tok_s"] == pytest.approx(1 / values["objective"])
    assert 0 <= values["gap"] < 0.05
    assert 0 <= values["gpu_neuron_load"] <= 1
    assert values["stats"] == "shipped"
    assert values["mode"] in ("exact", "sparse")


def test_more_gpu_is_faster(capsys: pytest.CaptureFixture[str]) -> None:
    rates = [
        solved(capsys, "starter-chat", "--hardware", "pc-low", "--vram-budget", budget)["predicted_tok_s"]
        for budget in ("0.48", "0.485", "0.49", "0.5", "0.52", "1")
    ]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]


def test_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("(solved)", "(unchanged since it was solved)"):
        assert cli.main(["solve", "starter-chat", "--hardware", "pc-high"]) == 0
        assert words in capsys.readouterr().out
    assert cli.main(["solve", "starter-chat", "--hardware", "no-gpu"]) == 0
    out = capsys.readouterr().out
    assert "the machine, the VRAM budget" in out, "what has changed"
    assert "no GPU" in out


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_that_ships_can_be_solved_for(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    values = solved(capsys, "starter-chat", "--hardware", name)
    assert (values["hot_neurons"] > 0) == (name != "no-gpu")
    path = starter_model().parents[1] / "hardware" / f"{name}.json"
    again = solved(capsys, "starter-chat", "--hardware", str(path))
    assert again["reused"]
    assert len(json.loads(path.read_text())["source"]) > 100


def test_on_this_machine(capsys: pytest.CaptureFixture[str], own_folders: Path) -> None:
    """Its memory is measured once; what was measured is the same machine afterwards."""
    values = solved(capsys, "starter-chat", "--device", "cpu", "--threads", "1")
    assert (values["hot_neurons"], values["vram_bytes"], values["gap"]) == (0, 0, 0)
    assert len(list(own_folders.rglob("measured-hardware.json"))) == 1
    assert solved(capsys, "starter-chat", "--device", "cpu", "--threads", "1")["reused"]


def test_without_statistics_a_prior_is_taken_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = solved(capsys, make_tiny_model(tmp_path / "m"), "--hardware", "pc-high")
    assert values["stats"] == "none"
    assert any("30%" in note for note in values["notes"])


def test_statistics_that_ship_with_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_tiny_model(tmp_path / "m")
    (folder / "activation").mkdir()
    for i in range(2):
        torch.save(torch.arange(64) + 1, folder / "activation" / f"activation_{i}.pt")
    values = solved(capsys, folder, "--hardware", "pc-high")
    assert values["stats"] == "shipped"
    assert any("tokens" in note for note in values["notes"])
    assert values["fired_share"] == pytest.approx(0.3, abs=0.01)


def test_predictors_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_tiny_powerinfer(tmp_path / "m.gguf", rank=8)
    values = solved(capsys, path, "--hardware", "pc-high", "--mode", "sparse")
    assert values["mode"] in ("exact", "sparse")
    assert values["vram_parts_bytes"]["predictors"] + values["ram_parts_bytes"]["predictors"] > 0
    assert solved(capsys, path, "--hardware", "pc-high", "--mode", "exact")["vram_parts_bytes"]["predictors"] == 0
    assert solved(capsys, path, "--hardware", "pc-high", "--mode", "dense")["mode"] == "dense"
    chosen = solved(capsys, path, "--hardware", "pc-high")
    assert chosen["mode"] in ("exact", "sparse")


def test_neurons_of_experts_are_placed_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_tiny_mixtral(tmp_path / "m.gguf")
    config = open_model(path).config
    values = solved(capsys, path, "--hardware", "pc-high")
    assert values["mode"] == "exact"
    assert len(values["layers"]) == config.n_layers
    assert artefacts.load_placement(open_model(path)).neurons == config.n_neurons > config.d_ff


def test_a_bundle_keeps_its_placement(tmp_path: Path) -> None:
    bundle = convert(make_tiny_model(tmp_path / "m"), tmp_path / "bundle", "q8_0").bundle
    opened = open_model(bundle)
    made = solve_model(opened, EngineConfig(hardware_file="pc-high"))
    assert not made.reused
    assert (bundle / "artefacts" / "placement.json").is_file()
    again = solve_model(open_model(bundle), EngineConfig(hardware_file="pc-high"))
    assert again.reused
    assert again.placement.hot_counts == made.placement.hot_counts
    assert set(made.placement.vram_parts_bytes) == set(VRAM_PARTS)
    assert set(made.placement.ram_parts_bytes) == set(RAM_PARTS)
    assert made.placement.position == min(TYPICAL_POSITION, made.placement.origins.context // 2)


def test_room_for_several_sequences_is_counted_and_not_kept(tmp_path: Path) -> None:
    path, alone = make_tiny_model(tmp_path / "m"), EngineConfig(hardware_file="pc-high", context=64)
    several = replace(alone, sequences=4, context=16)  # as many positions
    for _ in range(2):
        assert not solve_model(open_model(path), several).reused
    one = solve_model(open_model(path), alone)
    assert not one.reused
    assert not solve_model(open_model(path), several).reused
    assert solve_model(open_model(path), alone).reused
    of_four, of_one = (read_setting(open_model(path), engine) for engine in (several, alone))
    assert of_four.gpu is not None
    scratch = of_four.fixed_vram - memory_plan.context_bytes(of_four.gpu)
    assert scratch > memory_plan.batch_bytes(of_four.model, 4) > 32 << 20
    assert of_four.fixed_vram > of_one.fixed_vram
    assert of_four.pinned_bytes == of_one.pinned_bytes
    assert (of_one.pinned_bytes > 0) != ON_WINDOWS


# --- solved again


def test_a_change_of_anything_is_noticed(tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "m")
    first = EngineConfig(hardware_file="pc-high", vram_budget_gib=0.5)
    assert not solve_model(open_model(path), first).reused
    assert solve_model(open_model(path), first).reused
    slower = load_profile("pc-high")
    slower = replace(slower, cpu=replace(slower.cpu, bytes_per_s=50e9))
    slower.save(tmp_path / "slower.json")
    changes = [
        (replace(first, vram_budget_gib=0.6), "the VRAM budget"),
        (replace(first, context=32), "the context"),
        (replace(first, mode="dense"), "the mode"),
        (replace(first, kv_cache="q8_0"), "the codec of the KV cache"),
        (replace(first, threads=3), "the machine"),
        (replace(first, hardware_file=str(tmp_path / "slower.json")), "the machine"),
    ]
    for changed, words in changes:
        solve_model(open_model(path), first)
        again = solve_model(open_model(path, changed.activation), changed)
        assert not again.reused
        assert words in again.changed
    solve_model(open_model(path), first)
    artefacts.save_stats(open_model(path), stats())
    assert solve_model(open_model(path), first).changed == ("the statistics",)
    assert solve_model(open_model(path), first).reused
    assert not solve_model(open_model(path), first, again=True).reused
    other = solve_model(open_model(path, "silu"), first)
    assert not other.reused
    assert other.placement.mode == "dense"


def test_what_is_free_at_the_moment_changes_nothing_as_long_as_it_suffices(tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "m")
    profile = load_profile("pc-high")
    less = replace(profile, ram=replace(profile.ram, free_bytes=profile.ram.free_bytes // 2))
    less.save(tmp_path / "less.json")
    assert not solve_model(open_model(path), EngineConfig(hardware_file="pc-high")).reused
    assert solve_model(open_model(path), EngineConfig(hardware_file=str(tmp_path / "less.json"))).reused


def test_a_damaged_placement_is_solved_again_and_said(tmp_path: Path) -> None:
    path = make_tiny_model(tmp_path / "m")
    config = EngineConfig(hardware_file="pc-high")
    solve_model(open_model(path), config)
    head = artefacts.artefact_folder(open_model(path)) / "placement.json"
    head.write_text(head.read_text().replace('"cpu"', '"moon"'))
    again = solve_model(open_model(path), config)
    assert not again.reused
    assert "cannot be read" in again.changed[0]
    assert solve_model(open_model(path), config).reused


# --- what cannot be


def test_a_budget_below_the_minimum_names_the_minimum() -> None:
    opened = open_model(starter_model())
    with pytest.raises(DeviceMemoryError, match=r"0\.\d{3} GiB") as failure:
        solve_model(opened, EngineConfig(hardware_file="pc-low", vram_budget_gib=0.1))
    least = float(failure.value.hint.split()[3])
    assert solve_model(opened, EngineConfig(hardware_file="pc-low", vram_budget_gib=least)).placement
    with pytest.raises(DeviceMemoryError):
        solve_model(opened, EngineConfig(hardware_file="pc-low", vram_budget_gib=least - 0.002))
    with pytest.raises(DeviceMemoryError, match=r"RTX 2080 Ti .*11\.00 GiB"):
        solve_model(opened, EngineConfig(hardware_file="pc-low", vram_budget_gib=12))


def test_too_little_ram_names_the_minimum(tmp_path: Path) -> None:
    profile = load_profile("no-gpu")
    small = replace(profile, ram=replace(profile.ram, free_bytes=(1 << 30) + (256 << 20)))
    small.save(tmp_path / "small.json")
    with pytest.raises(HostMemoryError, match=r"0\.\d\d GiB"):
        solve_model(open_model(starter_model()), EngineConfig(hardware_file=str(tmp_path / "small.json")))


def test_what_is_asked_for_and_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = open_model(make_tiny_model(tmp_path / "m"))
    with pytest.raises(UnsupportedModelError, match="no predictors"):
        solve_model(opened, EngineConfig(hardware_file="pc-high", mode="sparse"))
    with pytest.raises(DeviceUnavailableError, match="no GPU"):
        solve_model(opened, EngineConfig(hardware_file="no-gpu", device="cuda"))
    profile = load_profile("pc-high")
    replace(profile, cpu=replace(profile.cpu, bytes_per_s=None)).save(tmp_path / "unmeasured.json")
    with pytest.raises(InvalidRequestError, match="RAM"):
        solve_model(opened, EngineConfig(hardware_file=str(tmp_path / "unmeasured.json")))
    assert cli.main(["solve", str(tmp_path / "m"), "--hardware", "pc-middle"]) == 1
    assert "pc-high" in capsys.readouterr().err


def test_cancelled(tmp_path: Path) -> None:
    opened = open_model(make_tiny_model(tmp_path / "m"))
    for after in range(3):
        asked = iter([False] * after + [True] * 9)
        with pytest.raises(Cancelled):
            solve_model(opened, EngineConfig(hardware_file="pc-high"), job=Job(lambda answers=asked: next(answers)))
        assert not open_model(tmp_path / "m").has_placement


def test_as_a_job() -> None:
    steps: list[tuple[str, int, int]] = []

    def stage(name: str) -> Callable[[int, int], None]:
        return lambda done, total: steps.append((name, done, total))

    arguments = {"model": "starter-chat", "engine": {"hardware_file": "pc-high"}}
    values = run_job("solve", arguments, StagedJob(stage=stage))
    assert values.keys() >= KEYS
    assert steps[-1] == ("solving", 4, 4)
    json.dumps(values)
    assert run_job("solve", arguments, StagedJob(stage=stage))["reused"]
    assert not run_job("solve", {**arguments, "again": True}, StagedJob(stage=stage))["reused"]
    with pytest.raises(Cancelled):
        run_job("solve", {**arguments, "again": True}, StagedJob(lambda: True, stage))


def test_how_much_memory_is_read_for_a_model(tmp_path: Path) -> None:
    from engine.placement.machine_figures import MOST_SAMPLE_BYTES
    from engine.placement.model_bytes import ModelBytes

    model = ModelBytes.of(open_model(starter_model()))
    assert working_set(model) == 64 << 20
    assert working_set(ModelBytes.of(open_model(make_tiny_model(tmp_path / "m")))) == 16 << 20
    assert working_set(replace(model, embedding=5 << 30)) == MOST_SAMPLE_BYTES
