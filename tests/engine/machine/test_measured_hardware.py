"""What was measured of a machine is found again for the same machine, threads and amount of memory, for no other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from samples.placement_cases import a_profile

from engine.commands import cli
from engine.errors import ArtifactMismatchError, ModelNotFoundError
from engine.machine import measured_hardware
from engine.machine.hardware import HardwareProfile
from engine.machine.measured_hardware import (
    load_profile,
    named_profile,
    profile_names,
    recall,
    recall_expected,
    recall_read_rates,
    remember,
    remember_context,
    remember_expected,
    remember_read_rates,
)
from engine.machine.read_rates import ReadRates


def unmeasured(profile: HardwareProfile) -> HardwareProfile:
    figures = ("bytes_per_s", "pcie_bytes_per_s", "context_bytes", "reach_bytes_per_s", "beside_share")
    gpus = tuple(replace(gpu, **dict.fromkeys(figures)) for gpu in profile.gpus)
    return replace(profile, cpu=replace(profile.cpu, bytes_per_s=None), gpus=gpus, sync_s=None)


def test_what_was_measured_is_remembered() -> None:
    profile = a_profile()
    assert recall(unmeasured(profile), 4) == unmeasured(profile)
    remember(profile, 4)
    assert recall(unmeasured(profile), 4) == profile
    known = recall(unmeasured(profile), 2)  # the memory was read with 4 threads; the GPU does not care
    assert known.cpu.bytes_per_s is None
    assert known.gpus == profile.gpus
    assert recall(unmeasured(profile), 4, 64 << 20).cpu.bytes_per_s is None
    other = unmeasured(replace(profile, cpu=replace(profile.cpu, name="Another")))
    assert recall(other, 4) == other


def test_what_a_profile_says_counts() -> None:
    remember(a_profile(cpu_gb_s=50), 4)
    faster = a_profile(cpu_gb_s=60, gpu_gb_s=700)
    assert recall(faster, 4) == faster


def test_newer_figures_take_the_place_of_older_ones_and_others_stay() -> None:
    remember(a_profile(cpu_gb_s=50), 4)
    remember(a_profile(cpu_gb_s=20), 1)
    remember(a_profile(cpu_gb_s=60), 4)
    assert recall(unmeasured(a_profile()), 4).cpu.bytes_per_s == 60e9
    assert recall(unmeasured(a_profile()), 1).cpu.bytes_per_s == 20e9


@pytest.mark.parametrize("content", ["{", "[]", "null", '{"a": 1}', "\x00"])
def test_a_damaged_file_is_as_good_as_none(content: str, own_folders: Path) -> None:
    remember(a_profile(), 4)
    (file,) = own_folders.rglob("measured-hardware.json")
    file.write_text(content)
    assert recall(unmeasured(a_profile()), 4) == unmeasured(a_profile())
    remember(a_profile(), 4)
    assert recall(unmeasured(a_profile()), 4) == a_profile()


def test_figures_that_are_none(own_folders: Path) -> None:
    remember(a_profile(), 4)
    (file,) = own_folders.rglob("measured-hardware.json")
    values = json.loads(file.read_text())
    (machine,) = values
    values[machine] = dict.fromkeys(values[machine], "fast") | {"sync_s": True}
    file.write_text(json.dumps(values))
    assert recall(unmeasured(a_profile()), 4) == unmeasured(a_profile())


def test_where_nothing_can_be_written() -> None:
    folder = measured_hardware._file().parent
    folder.parent.mkdir(parents=True)
    folder.write_text("a file")
    remember(a_profile(), 4)
    assert recall(unmeasured(a_profile()), 4) == unmeasured(a_profile())


def test_the_rates_of_a_models_rows_are_remembered() -> None:
    profile = a_profile()
    gpu, rates = profile.gpus[0], ReadRates(39e9, 66e9, 75e9)
    rows = (profile, gpu, 15, "sparse.f16.f16.10240")
    assert recall_read_rates(*rows) == (False, None)
    remember_read_rates(*rows, rates)
    assert recall_read_rates(*rows) == (True, rates)
    others = (
        (profile, gpu, 14, "sparse.f16.f16.10240"),
        (profile, gpu, 15, "sparse.q4_0.q4_0.10240"),
        (profile, replace(gpu, uuid="another"), 15, "sparse.f16.f16.10240"),
        (replace(profile, cpu=replace(profile.cpu, name="Another")), gpu, 15, "sparse.f16.f16.10240"),
    )
    assert all(recall_read_rates(*other) == (False, None) for other in others)
    remember(profile, 15)
    assert recall_read_rates(*rows) == (True, rates)
    remember_read_rates(*rows, None)  # those that are reckoned are right
    assert recall_read_rates(*rows) == (True, None)


@pytest.mark.parametrize("damaged", [[1e9, 2e9], [1e9, -1, 1e9], "fast", 3e9, [[], [], []]])
def test_rates_that_are_none(damaged: object, own_folders: Path) -> None:
    profile = a_profile()
    rows = (profile, profile.gpus[0], 15, "sparse.f16.f16.10240")
    remember_read_rates(*rows, ReadRates(1e9, 1e9, 1e9))
    (file,) = own_folders.rglob("measured-hardware.json")
    values = json.loads(file.read_text())
    (machine,) = values
    values[machine] = dict.fromkeys(values[machine], damaged)
    file.write_text(json.dumps(values))
    assert recall_read_rates(*rows) == (False, None)


def test_what_a_context_takes_is_remembered_alone() -> None:
    """Rates that were measured of a little memory, or on a busy machine, are not for every model."""
    profile = a_profile()
    gpu = replace(profile.gpus[0], context_bytes=400 << 20)
    remember_context(profile, gpu)
    found = recall(unmeasured(profile), 4)
    assert found.gpus[0].context_bytes == 400 << 20
    assert (found.cpu.bytes_per_s, found.gpus[0].bytes_per_s, found.sync_s) == (None, None, None)


def test_what_predictors_expect_is_remembered_of_the_models_seen_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_hardware, "_MODELS", 2)
    profile = a_profile()
    remember(profile, 2)
    assert recall_expected("a") is None
    for model, ratio in (("a", 1.1), ("b", 1.2), ("a", 1.3), ("c", 1.4)):
        remember_expected(model, ratio)
    assert [recall_expected(model) for model in "abc"] == [1.3, None, 1.4]
    assert recall(unmeasured(profile), 2) == profile


def test_probe_remembers(own_folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["probe", "--measure", "--threads", "1", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    profile = HardwareProfile.from_json(values)
    again = recall(replace(profile, cpu=replace(profile.cpu, bytes_per_s=None)), 1)
    assert again.cpu.bytes_per_s == profile.cpu.bytes_per_s


def test_profiles_by_name(tmp_path: Path) -> None:
    assert profile_names() == ("laptop-4060-8gb", "no-gpu", "pc-high", "pc-low", "rtx-3060-12gb")
    for name in profile_names():
        profile = load_profile(name)
        assert profile.cpu.bytes_per_s
        assert all(gpu.bytes_per_s and gpu.pcie_bytes_per_s and gpu.usable for gpu in profile.gpus)
        assert load_profile(f"{name.upper()}.json") == profile
    assert load_profile("pc-high").gpus[0].total_bytes == 24564 << 20
    assert named_profile("../pc-high") is None
    own = tmp_path / "mine.json"
    load_profile("pc-low").save(own)
    assert load_profile(str(own)) == load_profile("pc-low")
    with pytest.raises(ModelNotFoundError, match="no hardware profile"):
        load_profile("pc-middle")
    own.write_text("{}")
    with pytest.raises(ArtifactMismatchError):
        load_profile(str(own))
