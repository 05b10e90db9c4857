"""Figures of a machine that others keep busy serve one load, and are measured again at the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psutil
import pytest
from samples.placement_cases import a_profile

from engine.machine.hardware import HardwareProfile
from engine.machine.measured_hardware import recall
from engine.placement import machine_figures
from engine.placement.machine_figures import Others, discard_hasty, serves_this_load_alone, with_figures

REAL_TIMES = machine_figures.processor_times
N_BYTES = 1 << 30


class Machine:
    """Eight processors, of which others use so many and this process one."""

    def __init__(self, patch: pytest.MonkeyPatch, others: float) -> None:
        self.others, self.seconds, self.n_measured = others, 0.0, 0
        patch.setattr(machine_figures, "processor_times", self._times)
        patch.setattr(machine_figures, "measure", self._measure)

    def _times(self) -> machine_figures.CpuTimes:
        own = self.seconds
        return machine_figures.CpuTimes(own + self.others * self.seconds, 8 * self.seconds, own)

    def _measure(self, profile: HardwareProfile, threads: int, n_bytes: int) -> HardwareProfile:
        self.seconds += 1.0
        self.n_measured += 1
        return replace(profile, cpu=replace(profile.cpu, bytes_per_s=1e9 * self.n_measured))


@pytest.fixture
def unknown() -> HardwareProfile:
    discard_hasty()
    profile = a_profile(vram=None)
    return replace(profile, cpu=replace(profile.cpu, bytes_per_s=None))


def test_what_was_measured_on_a_quiet_machine_is_kept(
    unknown: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    machine = Machine(monkeypatch, others=0.7)
    first = with_figures(unknown, 4, N_BYTES, gpus=False)
    assert first.cpu.bytes_per_s == 1e9
    discard_hasty()
    assert with_figures(unknown, 4, N_BYTES, gpus=False) == first == recall(unknown, 4, N_BYTES)
    assert machine.n_measured == 1


def test_what_was_measured_on_a_busy_machine_serves_one_load(
    unknown: HardwareProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, others=0.9)
    for _ in range(2):  # a load asks twice
        assert with_figures(unknown, 4, N_BYTES, gpus=False).cpu.bytes_per_s == 1e9
    assert with_figures(unknown, 2, N_BYTES, gpus=False).cpu.bytes_per_s == 2e9
    assert recall(unknown, 4, N_BYTES) == unknown
    assert serves_this_load_alone()
    discard_hasty()
    assert not serves_this_load_alone()
    machine.others = 0.1
    assert with_figures(unknown, 4, N_BYTES, gpus=False).cpu.bytes_per_s == 3e9
    assert recall(unknown, 4, N_BYTES).cpu.bytes_per_s == 3e9


def test_figures_of_gpus_too(unknown: HardwareProfile, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.machine import gpu_speed

    known = a_profile()
    bare = replace(known.gpus[0], bytes_per_s=None, pcie_bytes_per_s=None, context_bytes=None)
    profile = replace(unknown, gpus=(bare,), gpu_reasons=(), sync_s=None)
    asked: list[Any] = []

    def measure_gpus(found: HardwareProfile, threads: int) -> HardwareProfile:
        asked.append(threads)
        return replace(found, gpus=known.gpus, sync_s=known.sync_s)

    monkeypatch.setattr(gpu_speed, "measure_gpus", measure_gpus)
    Machine(monkeypatch, others=4)
    first = with_figures(profile, 4, N_BYTES, gpus=True)
    assert (first.gpus, first.sync_s) == (known.gpus, known.sync_s)
    assert with_figures(profile, 4, N_BYTES, gpus=True) == first
    assert asked == [4]
    assert recall(profile, 4, N_BYTES) == profile


def test_how_much_others_use_is_the_machines_own_account(monkeypatch: pytest.MonkeyPatch) -> None:
    class Times:
        def __init__(self, **seconds: float) -> None:
            self._seconds = seconds

        def _asdict(self) -> dict[str, float]:
            return self._seconds

    found = iter([
        Times(user=10.0, system=5.0, idle=100.0, iowait=1.0, guest=7.0),
        Times(user=13.0, system=6.0, idle=111.0, iowait=2.0, guest=9.0),
    ])  # fmt: skip
    monkeypatch.setattr(psutil, "cpu_times", lambda: next(found))
    own = iter([(1.0, 0.0), (2.0, 0.5)])

    class Process:
        def cpu_times(self) -> Any:
            user, system = next(own)
            return type("Own", (), {"user": user, "system": system})

    monkeypatch.setattr(psutil, "Process", Process)
    monkeypatch.setattr(machine_figures, "processor_times", REAL_TIMES)
    others = Others()
    assert others.share == pytest.approx((4 - 1.5) / 16)


def test_nothing_has_happened_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, others=9)
    others = Others()
    assert others.share == 0
    assert others.are_quiet
    machine.seconds = 1
    assert not others.are_quiet
