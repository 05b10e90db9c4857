"""What must be known of a machine before a model is placed on it: recalled where it was measured before, else measured.

What measures are hardware.py and gpu_speed.py. What was measured while others kept the CPU busy
serves the load that it was measured for, and is not remembered.
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

_QUIET = 0.1  # of the machine's processors, that others may use meanwhile
_RESTING = ("idle", "iowait")
_COUNTED_TWICE = ("guest", "guest_nice", "interrupt", "dpc")  # within user, nice and, on Windows, system

_hasty: dict[tuple[int, int], HardwareProfile] = {}  # of now, by threads and bytes


class CpuTimes(NamedTuple):
    """Seconds of all processors together: that they ran, that there were, that this process had."""

    busy: float
    total: float
    own: float


class Others:
    """How much of the machine's processors others use, from when this is made on."""

    def __init__(self) -> None:
        self._start = processor_times()

    @property
    def share(self) -> float:
        """Of all that the processors could have done since, 0 to 1."""
        now, start = processor_times(), self._start
        total = now.total - start.total
        theirs = (now.busy - start.busy) - (now.own - start.own)
        return min(1.0, max(0.0, theirs / total)) if total > 0 else 0.0

    @property
    def are_quiet(self) -> bool:
        """Whether what was measured since may be taken for what the machine does."""
        return self.share <= _QUIET


def processor_times() -> CpuTimes:
    """As of now."""
    found = psutil.cpu_times()._asdict()
    counted = {name: float(seconds) for name, seconds in found.items() if name not in _COUNTED_TWICE}
    resting = sum(counted.get(name, 0.0) for name in _RESTING)
    own = psutil.Process().cpu_times()
    return CpuTimes(sum(counted.values()) - resting, sum(counted.values()), own.user + own.system)


def working_set(model: ModelBytes) -> int:
    """How much memory to read to see how fast this model is read: a small one stays in the CPU's caches.

    The next power of two from the model's size on, from 16 MiB to MOST_SAMPLE_BYTES.
    """
    return int(min(MOST_SAMPLE_BYTES, max(16 << 20, 1 << (model.total - 1).bit_length())))


def with_figures(profile: HardwareProfile, threads: int, n_bytes: int, gpus: bool) -> HardwareProfile:
    """What was measured earlier of this machine, or is now: how fast so much memory is read with so many threads, and
    the figures of its GPUs where they are asked for."""
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
    """Whether some of the figures of now were measured while the machine was busy."""
    return bool(_hasty)


def forget_hasty() -> None:
    """What was measured while the machine was busy is measured again: another load begins."""
    _hasty.clear()


def _filled(profile: HardwareProfile, other: HardwareProfile) -> HardwareProfile:
    """The profile with the other's figures in place of those that it lacks."""
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
