"""The machine that models are estimated for: its GPU and its memory rates.

Measures nothing: rates are those measured earlier, else typical ones (assets/typical_rates.json), and it states which.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from engine.assets import asset_root
from engine.formats.json_text import read_object
from engine.library.records import MachineLine
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile, choose_gpu, default_threads, probe
from engine.machine.measured_hardware import recall, recall_disk
from engine.placement import memory_plan

# Working-set sizes under which a RAM rate may be stored, those beyond any cache first.
_WORKING_SETS = tuple(1 << bits for bits in (30, 29, 28))


@dataclass(frozen=True, eq=False)
class KnownMachine:
    """A machine with all rates. gpu: the GPU that would be used, None without one.

    measured: whether all relevant rates were measured. disk_bytes_per_s: at which experts are read from the disk; None
    if not measured.
    """

    profile: HardwareProfile
    gpu: GpuInfo | None
    gpu_reason: str
    threads: int
    measured: bool
    disk_bytes_per_s: float | None = None

    @cached_property
    def key(self) -> str:
        """Return a key of what placements depend on, without the current free memory."""
        cpu, gpu = self.profile.cpu, self.gpu
        facts: list[Any] = [cpu.name, cpu.cores, cpu.threads, self.profile.ram.total_bytes]
        if gpu is not None:
            facts += [gpu.uuid or gpu.name, gpu.total_bytes]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    @cached_property
    def state(self) -> str:
        """Return a key of the machine's current state; estimates stay valid while it is the same."""
        budgets = memory_plan.budgets_of(self.profile, self.gpu, None)
        gpu = self.gpu
        facts: list[Any] = [self.key, budgets.vram_bytes, budgets.ram_bytes, self.threads, self.profile.sync_s,
                            self.profile.cpu.bytes_per_s, self.disk_bytes_per_s]  # fmt: skip
        if gpu is not None:
            facts += [gpu.bytes_per_s, gpu.pcie_bytes_per_s, gpu.context_bytes, gpu.library_bytes]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def line(self, models_folder: Path, vram_budget_gib: float | None = None) -> MachineLine:
        """Return the machine's description for the Models page. models_folder: for new models; it need not exist yet.

        Raises: DeviceMemoryError for a budget beyond the GPU.
        """
        budgets = memory_plan.budgets_of(self.profile, self.gpu, vram_budget_gib)
        return MachineLine(
            key=self.key,
            gpu="" if self.gpu is None else self.gpu.name,
            gpu_reason=self.gpu_reason,
            vram_total_bytes=0 if self.gpu is None else self.gpu.total_bytes or 0,
            vram_budget_bytes=budgets.vram_bytes,
            ram_total_bytes=self.profile.ram.total_bytes,
            ram_free_bytes=self.profile.ram.free_bytes,
            cpu=self.profile.cpu.name,
            cores=self.profile.cpu.cores,
            disk_free_bytes=free_disk_bytes(models_folder),
            measured=self.measured,
        )


def known_machine(
    profile: HardwareProfile | None = None, own_vram_bytes: int = 0, own_ram_bytes: int = 0
) -> KnownMachine:
    """Return this machine or that of a profile, with measured rates and typical ones for the rest.

    own_vram_bytes, own_ram_bytes: of the loaded model, which the next one replaces. Cost: 0.1 s without a profile, to
    query the machine.
    """
    here = _without_ours(probe() if profile is None else profile, own_vram_bytes, own_ram_bytes)
    threads = default_threads(here)
    for n_bytes in _WORKING_SETS if profile is None else ():
        here = recall(here, threads, n_bytes)
        if here.cpu.bytes_per_s:
            break
    gpu, reason = choose_gpu(here)
    measured = bool(here.cpu.bytes_per_s) and (gpu is None or bool(gpu.bytes_per_s))
    if not measured:
        here = with_usual_rates(here, threads)
        gpu, reason = choose_gpu(here)
    return KnownMachine(here, gpu, reason, threads, measured, recall_disk() if profile is None else None)


def with_usual_rates(profile: HardwareProfile, threads: int) -> HardwareProfile:
    """Return the profile with typical rates in place of unmeasured ones."""
    usual = _usual()
    cpu = profile.cpu
    if not cpu.bytes_per_s:
        rate = min(usual["ram_gb_per_s"], threads * usual["ram_gb_per_s_of_a_thread"])
        cpu = replace(cpu, bytes_per_s=1e9 * rate)
    sync_s = profile.sync_s
    if sync_s is None and profile.gpus:
        sync_s = 1e-6 * float(usual["exchange_us"])
    return replace(profile, cpu=cpu, gpus=tuple(map(_with_usual_rates, profile.gpus)), sync_s=sync_s)


def free_disk_bytes(folder: Path) -> int:
    """Return the free bytes on the disk of the folder, which need not exist yet; 0 if unknown."""
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return 0


def _without_ours(profile: HardwareProfile, vram_bytes: int, ram_bytes: int) -> HardwareProfile:
    """Return the profile with Hearth's own memory counted as free."""
    ram = profile.ram
    ram = replace(ram, free_bytes=min(ram.total_bytes, ram.free_bytes + max(0, ram_bytes)))
    gpu, _ = choose_gpu(profile)
    gpus = profile.gpus
    if gpu is not None and vram_bytes > 0:
        free = min(gpu.total_bytes or 0, (gpu.free_bytes or 0) + vram_bytes)
        gpus = tuple(replace(one, free_bytes=free) if one is gpu else one for one in gpus)
    return replace(profile, ram=ram, gpus=gpus)


def _with_usual_rates(gpu: GpuInfo) -> GpuInfo:
    usual = _usual()
    rate = usual["cards_gb_per_s"].get(gpu.name)
    own, bus = gpu.bytes_per_s, gpu.pcie_bytes_per_s
    if not own and rate is not None:
        own = 1e9 * usual["share_reached"] * rate
    if not bus:
        is_laptop = "laptop" in gpu.name.lower() or "max-q" in gpu.name.lower()
        of_bus = usual["bus_gb_per_s"].get(gpu.compute_capability or "")
        found = usual["bus_gb_per_s_of_a_laptop"] if is_laptop else of_bus
        bus = None if found is None else 1e9 * found
    return replace(gpu, bytes_per_s=own, pcie_bytes_per_s=bus)


@lru_cache(maxsize=1)
def _usual() -> dict[str, Any]:
    return read_object(asset_root() / "typical_rates.json", max_bytes=1 << 16, max_values=1 << 12, finite=True)
