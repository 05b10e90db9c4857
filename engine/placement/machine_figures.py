"""Hardware figures needed before a model is placed, recalled or measured now.

hardware.py and gpu_speed.py measure. Figures measured while other programs used the CPU serve the current load only and
are not remembered.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import NamedTuple

import psutil

from engine.machine.graphics import GpuInfo
from engine.machine.hardware import MOST_SAMPLE_BYTES, HardwareProfile, measure
from engine.machine.measured_hardware import recall, remember
from engine.placement.model_bytes import ModelBytes

log = logging.getLogger(__name__)

_QUIET = 0.1  # share of all CPUs that others may use during a measurement
_RESTING = ("idle", "iowait")
_COUNTED_TWICE = ("guest", "guest_nice", "interrupt", "dpc")  # already in user, nice and, on Windows, system

_hasty: dict[tuple[int, int], HardwareProfile] = {}  # current unremembered figures, by threads and bytes


class CpuTimes(NamedTuple):
    """Seconds summed over all CPUs: busy, elapsed, and used by this process."""

    busy: float
    total: float
    own: float


class Others:
    """The CPU use of other programs since this object was created."""

    def __init__(self) -> None:
        self._start = processor_times()

    @property
    def share(self) -> float:
        """Share of all CPU time since then, 0 to 1."""
        now, start = processor_times(), self._start
        total = now.total - start.total
        theirs = (now.busy - start.busy) - (now.own - start.own)
        return min(1.0, max(0.0, theirs / total)) if total > 0 else 0.0

    @property
    def are_quiet(self) -> bool:
        """Whether measurements since then are representative."""
        return self.share <= _QUIET


def processor_times() -> CpuTimes:
    found = psutil.cpu_times()._asdict()
    counted = {name: float(seconds) for name, seconds in found.items() if name not in _COUNTED_TWICE}
    resting = sum(counted.get(name, 0.0) for name in _RESTING)
    own = psutil.Process().cpu_times()
    return CpuTimes(sum(counted.values()) - resting, sum(counted.values()), own.user + own.system)


def working_set(model: ModelBytes) -> int:
    """Return the bytes to read for a bandwidth measurement: a small model stays in the CPU's caches.

    The next power of two above the model's size, from 16 MiB to MOST_SAMPLE_BYTES.
    """
    return int(min(MOST_SAMPLE_BYTES, max(16 << 20, 1 << (model.total - 1).bit_length())))


def with_figures(profile: HardwareProfile, threads: int, n_bytes: int, gpus: bool) -> HardwareProfile:
    """Return the profile with recalled figures, or measure them now.

    The bandwidth for this many bytes and threads, and the GPUs' figures if `gpus` is set.
    """
    known = recall(profile, threads, n_bytes)
    if (hasty := _hasty.get((threads, n_bytes))) is not None:
        known = _filled(known, hasty)
    others = Others()
    profile = known if known.cpu.bytes_per_s else measure(known, threads, n_bytes)
    if gpus and any(gpu.usable and not gpu.bytes_per_s for gpu in profile.gpus):
        from engine.machine.gpu_speed import measure_gpus

        profile = measure_gpus(profile, threads)
    if profile != known:
        if others.are_quiet:
            remember(profile, threads, n_bytes)
        else:
            log.info("Others used %.0f%% of the processors meanwhile: the figures are not kept", 100 * others.share)
            _hasty[threads, n_bytes] = profile
    return profile


def serves_this_load_alone() -> bool:
    """Return whether some current figures were measured while the machine was busy."""
    return bool(_hasty)


def discard_hasty() -> None:
    """Forget figures measured while the machine was busy; the next load measures again."""
    _hasty.clear()


def _filled(profile: HardwareProfile, other: HardwareProfile) -> HardwareProfile:
    """Fill figures missing in the profile from another one."""
    cpu, theirs = profile.cpu, {gpu.uuid or gpu.name: gpu for gpu in other.gpus}
    if not cpu.bytes_per_s:
        cpu = replace(cpu, bytes_per_s=other.cpu.bytes_per_s)
    gpus = tuple(_filled_gpu(gpu, theirs.get(gpu.uuid or gpu.name)) for gpu in profile.gpus)
    return replace(profile, cpu=cpu, gpus=gpus, sync_s=profile.sync_s or other.sync_s)


def _filled_gpu(gpu: GpuInfo, other: GpuInfo | None) -> GpuInfo:
    if other is None or gpu.bytes_per_s:
        return gpu
    return replace(
        gpu, usable=other.usable, reasons=other.reasons, context_bytes=gpu.context_bytes or other.context_bytes,
        bytes_per_s=other.bytes_per_s, pcie_bytes_per_s=other.pcie_bytes_per_s,
        reach_bytes_per_s=other.reach_bytes_per_s, beside_share=other.beside_share,
    )  # fmt: skip
