"""Measuring GPUs: the figures land in the profile, and a GPU that fails keeps the reason. The GPU is a fake."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorded_machine import RecordedMachine

from engine.machine.gpu_speed import measure_gpus
from engine.machine.hardware import HardwareProfile, probe
from native_kernels.cuda import measure
from native_kernels.cuda.measure import GpuSpeed
from native_kernels.cuda.runtime import driver


class Gpu:
    """Stands for Device: has the recorded GPU's UUID and counts how often its context was entered and left."""

    uuid = ""
    entered = closed = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def enter(self) -> None:
        Gpu.entered += 1

    def close(self) -> None:
        Gpu.closed += 1


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedMachine:
    recorded = RecordedMachine("rtx_4090", tmp_path / "root")
    Gpu.uuid = probe(**recorded.keywords()).gpus[0].uuid or ""
    Gpu.entered = Gpu.closed = 0
    monkeypatch.setattr(driver, "driver", lambda: SimpleNamespace(n_devices=1))
    monkeypatch.setattr(driver, "Device", Gpu)
    monkeypatch.setattr(measure, "measure_gpu", lambda gpu, **asked: GpuSpeed(9e11, 25e9, 2e-5, 2e10, 0.8))
    return recorded


def measured(machine: RecordedMachine) -> HardwareProfile:
    return measure_gpus(probe(**machine.keywords()), nvml=machine.nvml)


def test_figures_land_in_the_profile(machine: RecordedMachine) -> None:
    profile = measured(machine)
    gpu, integrated = profile.gpus
    assert (gpu.bytes_per_s, gpu.pcie_bytes_per_s, gpu.context_bytes) == (9e11, 25e9, 0)
    assert (gpu.reach_bytes_per_s, gpu.beside_share) == (2e10, 0.8)
    assert (profile.sync_s, profile.gpu_reasons) == (2e-5, ())
    assert integrated.bytes_per_s is None
    assert (Gpu.entered, Gpu.closed) == (1, 1)
    assert machine.nvml.open == 0


def test_what_the_context_takes_is_seen_by_nvml(machine: RecordedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = machine.nvml.answers["devices"][0]["nvmlDeviceGetMemoryInfo"]

    def enter(gpu: Gpu) -> None:
        memory["used"] += 300 << 20

    monkeypatch.setattr(Gpu, "enter", enter)
    assert measured(machine).gpus[0].context_bytes == 300 << 20


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (driver.CudaError("cuInit", 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"), "SYSTEM_DRIVER_MISMATCH"),
        (driver.CudaUnavailableError("no NVIDIA driver is installed"), "no NVIDIA driver"),
        (measure.ExchangeError("an exchange with the GPU failed"), "an exchange with the GPU failed"),
    ],
)
def test_a_gpu_that_fails_is_not_usable_and_says_why(
    machine: RecordedMachine, monkeypatch: pytest.MonkeyPatch, failure: Exception, words: str
) -> None:
    def fail(gpu: Any, **asked: int) -> GpuSpeed:
        raise failure

    monkeypatch.setattr(measure, "measure_gpu", fail)
    profile = measured(machine)
    assert not profile.gpus[0].usable
    assert words in profile.gpus[0].reasons[-1]
    assert any(words in reason for reason in profile.gpu_reasons)
    assert Gpu.closed == Gpu.entered


def test_a_gpu_that_cuda_does_not_see_is_told(machine: RecordedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gpu, "uuid", "GPU-another")
    assert any("CUDA" in reason for reason in measured(machine).gpus[0].reasons)


def test_without_a_usable_gpu_nothing_is_loaded(machine: RecordedMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "driver", lambda: pytest.fail("there is no GPU to measure"))
    profile = probe(**machine.keywords())
    without = replace(profile, gpus=tuple(replace(gpu, usable=False) for gpu in profile.gpus))
    assert measure_gpus(without, nvml=machine.nvml) == without


def test_a_machine_without_gpus_stays_as_it_is(machine: RecordedMachine) -> None:
    profile = replace(probe(**machine.keywords()), gpus=(), gpu_reasons=("no NVIDIA driver is installed",))
    assert measure_gpus(profile, nvml=machine.nvml) == profile
