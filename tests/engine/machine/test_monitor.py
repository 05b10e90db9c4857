"""Live figures on recorded machines: cheap, honest about what is unknown, and alive when a GPU is not."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from recorded_machine import RecordedMachine

from engine.machine.monitor import HELPERS_S, RETRY_S, GpuSample, Monitor


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def started(name: str, tmp_path: Path) -> tuple[RecordedMachine, Monitor, Clock]:
    machine, clock = RecordedMachine(name, tmp_path), Clock()
    machine.psutil.processes[os.getpid()] = (10.0, 300 << 20)
    machine.psutil.processes[4711] = (100.0, 2 << 30)
    monitor = Monitor(machine.nvml, psutil=machine.psutil, root=machine.root, environment=machine.environment,
                      clock=clock)  # fmt: skip
    return machine, monitor, clock


def test_figures_of_two_gpus(tmp_path: Path) -> None:
    _, monitor, _ = started("two_gpus", tmp_path)
    monitor.watch(4711)
    sample = monitor.sample()
    assert sample.gpus == (
        GpuSample(0, "GeForce RTX 3060", 3.0, 611 << 20, 12288 << 20, 0, 35.0, 14.12),
        GpuSample(1, "GeForce RTX 4090", 91.0, 420 << 20, 24564 << 20, 9 << 30, 63.0, 301.5),
    )
    assert sample.gpu_reason == ""


def test_never_asks_for_pcie_throughput_and_opens_once(tmp_path: Path) -> None:
    machine, monitor, _ = started("rtx_4090", tmp_path)
    assert machine.nvml.calls == [], "nothing is opened before the first sample"
    for _ in range(3):
        monitor.sample()
    assert machine.nvml.calls.count("nvmlInit") == 1
    assert not [call for call in machine.nvml.calls if "Pcie" in call]
    monitor.close()
    monitor.close()
    assert machine.nvml.open == 0
    assert monitor.sample().gpus == ()


def test_figure_that_a_gpu_does_not_give_is_unknown(tmp_path: Path) -> None:
    machine, monitor, _ = started("laptop_hybrid", tmp_path)  # power: not supported
    machine.nvml.fail("nvmlDeviceGetComputeRunningProcesses", 4)
    (gpu,) = monitor.sample().gpus
    assert (gpu.power_w, gpu.vram_process_bytes, gpu.reason) == (None, None, "")
    assert (gpu.load_percent, gpu.temperature_c) == (0.0, 38.0)


def test_process_memory_is_unknown_where_the_driver_does_not_tell(tmp_path: Path) -> None:
    machine, monitor, _ = started("two_gpus", tmp_path)
    machine.nvml.answers["devices"][1]["nvmlDeviceGetComputeRunningProcesses"][0]["usedGpuMemory"] = None
    monitor.watch(4711)
    assert [gpu.vram_process_bytes for gpu in monitor.sample().gpus] == [0, None]


@pytest.mark.parametrize("code", [1, 15, 16, 999])
def test_lost_gpu_is_an_empty_sample_and_comes_back(tmp_path: Path, code: int) -> None:
    machine, monitor, clock = started("two_gpus", tmp_path)
    before = monitor.sample().gpus
    machine.nvml.fail("nvmlDeviceGetMemoryInfo", code, index=1)
    clock.now += 1
    first, second = monitor.sample().gpus
    assert first == before[0], "the other GPU is not touched"
    assert second == GpuSample(1, "GeForce RTX 4090", reason=second.reason)
    assert second.reason
    asked = machine.nvml.calls.count("nvmlDeviceGetMemoryInfo")
    clock.now += RETRY_S - 0.1
    assert monitor.sample().gpus[1].reason == second.reason
    assert machine.nvml.calls.count("nvmlDeviceGetMemoryInfo") == asked + 1, "only the healthy GPU was asked"
    clock.now += 0.2
    assert monitor.sample().gpus[1].reason == second.reason, "tried again, and still lost"
    assert machine.nvml.calls.count("nvmlInit") == 2
    machine.nvml.errors.clear()
    clock.now += RETRY_S
    assert monitor.sample().gpus == before
    assert machine.nvml.open == 1


def test_driver_that_goes_away_keeps_the_gpus_names(tmp_path: Path) -> None:
    machine, monitor, clock = started("rtx_4090", tmp_path)
    before = monitor.sample().gpus
    machine.nvml.fail("nvmlDeviceGetUtilizationRates", 1)
    machine.nvml.fail("nvmlInit", 9)
    machine.nvml.fail("nvmlShutdown", 1)
    monitor.sample()
    for _ in range(3):
        clock.now += RETRY_S
        sample = monitor.sample()
        assert [(gpu.name, gpu.load_percent) for gpu in sample.gpus] == [("GeForce RTX 4090", None)]
        assert "not loaded" in sample.gpus[0].reason
        assert "not loaded" in sample.gpu_reason
    machine.nvml.errors.clear()
    clock.now += RETRY_S
    assert monitor.sample().gpus == before


def test_gpu_that_cannot_be_opened(tmp_path: Path) -> None:
    machine, monitor, clock = started("two_gpus", tmp_path)
    machine.nvml.fail("nvmlDeviceGetHandleByIndex", 15, index=0)
    lost, healthy = monitor.sample().gpus
    assert (lost.index, lost.name, lost.reason) == (0, "NVIDIA GPU 0", "the GPU was lost: restart the computer")
    assert healthy.reason == ""
    machine.nvml.errors.clear()
    clock.now += RETRY_S
    assert [gpu.name for gpu in monitor.sample().gpus] == ["GeForce RTX 3060", "GeForce RTX 4090"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_gpu", "no NVIDIA driver is installed"),
        ("driver_not_loaded", "the NVIDIA driver is installed but not loaded"),
    ],
)
def test_without_a_driver(name: str, reason: str, tmp_path: Path) -> None:
    machine, monitor, clock = started(name, tmp_path)
    for _ in range(5):
        sample = monitor.sample()
        assert (sample.gpus, sample.gpu_reason) == ((), reason)
        clock.now += 1
    assert machine.nvml.calls.count("nvmlInit") == 1
    clock.now += RETRY_S
    monitor.sample()
    assert machine.nvml.calls.count("nvmlInit") == 2


def test_hidden_gpus_are_not_sampled(tmp_path: Path) -> None:
    machine, monitor, _ = started("two_gpus", tmp_path)
    machine.environment["CUDA_VISIBLE_DEVICES"] = "1"
    assert [gpu.index for gpu in monitor.sample().gpus] == [1]


def test_percentages_are_means_since_the_sample_before(tmp_path: Path) -> None:
    machine, monitor, clock = started("rtx_4090", tmp_path)  # 32 logical CPUs
    monitor.watch(4711)
    sample = monitor.sample()
    assert (sample.cpu_percent, sample.process_cpu_percent) == (None, None), "unknown is not 0"
    assert sample.process_ram_bytes == (300 << 20) + (2 << 30)
    assert sample.ram_used_bytes == machine.psutil.ram["total"] - machine.psutil.ram["available"]
    clock.now += 2
    times = machine.psutil.times
    times.user, times.guest, times.idle, times.iowait = 16.0, 16.0, 46.0, 2.0  # guests are counted in user too
    machine.psutil.processes[os.getpid()] = (11.0, 300 << 20)
    machine.psutil.processes[4711] = (107.0, 2 << 30)
    sample = monitor.sample()
    assert sample.cpu_percent == pytest.approx(25.0)
    assert sample.process_cpu_percent == pytest.approx(100 * 8 / 2 / 32)
    assert monitor.sample().cpu_percent is None, "no time has passed"


@pytest.mark.parametrize("how", [psutil.NoSuchProcess, OSError])  # the latter on Windows, where counters are broken
def test_watched_process_ends_and_a_new_one_follows(tmp_path: Path, how: type[Exception]) -> None:
    machine, monitor, clock = started("no_gpu", tmp_path)
    monitor.watch(4711)
    monitor.sample()
    if how is OSError:
        machine.psutil.refused.add(4711)
    else:
        del machine.psutil.processes[4711]
    clock.now += 1
    assert monitor.sample().process_ram_bytes == 300 << 20
    monitor.watch(4711)  # it is gone: nothing to watch
    machine.psutil.processes[4712] = (0.5, 1 << 30)
    monitor.watch(4712)
    clock.now += 1
    sample = monitor.sample()
    assert sample.process_ram_bytes == (300 << 20) + (1 << 30)
    assert sample.process_cpu_percent == 0.0, "what it spent before it was watched does not count"


def test_counters_that_windows_refuses_leave_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, monitor, _ = started("no_gpu", tmp_path)

    def refuse() -> None:
        raise OSError(1, "Incorrect function")

    monkeypatch.setattr(machine.psutil, "cpu_times", refuse)
    sample = monitor.sample()
    assert (sample.cpu_percent, sample.process_ram_bytes) == (None, 300 << 20)


def test_helper_processes_count_as_hearths(tmp_path: Path) -> None:
    machine, monitor, clock = started("no_gpu", tmp_path)
    monitor.sample()
    machine.psutil.processes[5000], machine.psutil.helpers = (10.0, 1 << 30), [5000]
    clock.now += HELPERS_S
    assert monitor.sample().process_ram_bytes == (300 << 20) + (1 << 30), "the library's process, which nobody named"
    machine.psutil.processes[5000] = (11.0, 1 << 30)
    clock.now += 1
    assert monitor.sample().process_cpu_percent == pytest.approx(100 / machine.psutil.logical)


def test_this_machine_answers() -> None:
    monitor = Monitor()
    first, second = monitor.sample(), monitor.sample()
    monitor.close()
    assert first.cpu_percent is None
    assert 0 < second.process_ram_bytes < second.ram_total_bytes
    assert 0 < second.ram_used_bytes < second.ram_total_bytes
    assert second.gpus or second.gpu_reason
