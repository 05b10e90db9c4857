"""CPU and memory that this process may use: name, cores, instruction sets, RAM.

Affinity and control groups apply: a process confined to two cores of a large machine has two cores. This module
measures nothing (see engine/machine/hardware.py) and does not read GPUs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from engine.machine.windows_processors import Core, count_cores, read_cores

# Instruction sets that kernels use: Linux's name -> LLVM's name.
INSTRUCTION_SETS = {
    "avx2": "avx2",
    "f16c": "f16c",
    "fma": "fma",
    "avx_vnni": "avxvnni",
    "avx512f": "avx512f",
    "avx512_vnni": "avx512vnni",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
}


@dataclass(frozen=True)
class CpuInfo:
    """The CPU, as far as this process may use it."""

    name: str
    cores: int  # physical
    threads: int  # logical CPUs
    isa: tuple[str, ...]  # names from INSTRUCTION_SETS
    bytes_per_s: float | None = None  # RAM read bandwidth; None: not measured
    performance_cores: int | None = None  # physical; None: all cores are alike, or unknown


@dataclass(frozen=True)
class RamInfo:
    """Main memory, within the control group's limit if there is one."""

    total_bytes: int
    free_bytes: int  # available without swapping


def read_cpu(
    psutil: Any,
    root: Path = Path("/"),
    cpus: Collection[int] | None = None,
    windows_cores: tuple[Core, ...] | None = None,
) -> CpuInfo:
    """Return the CPU.

    psutil: the module or a fake. root: folder with /proc and /sys. cpus: logical CPUs that this process may run on.
    windows_cores: Windows's description of the cores. None for either: ask the system.
    """
    cpuinfo = _cpuinfo(root)
    allowed = set(cpus) if cpus is not None else _affinity(psutil)
    threads = len(allowed)
    windows = windows_cores
    if windows is None and root == Path("/"):
        windows = read_cores()
    if windows:
        cores, performance = count_cores(windows, allowed)
        cores = cores or threads
    else:
        cores = _physical_cores(root, allowed) or min(psutil.cpu_count(logical=False) or threads, threads)
        performance = _physical_cores(root, _fast_ones(root, allowed))
    quota = _cpu_quota(root)
    if quota is not None:
        # Rounded down: the scheduler would stop a surplus thread within a token, and all others would wait.
        whole = max(1, int(quota))
        threads, cores = min(threads, whole), min(cores, whole)
        performance = None if performance is None else min(performance, whole)
    return CpuInfo(_cpu_name(cpuinfo), cores, threads, _instruction_sets(cpuinfo), None, performance)


def read_ram(psutil: Any, limiting_groups: Collection[Path] = ()) -> RamInfo:
    """Return total and free RAM within the control groups from memory_limits."""
    memory = psutil.virtual_memory()
    total, free = int(memory.total), int(memory.available)
    for group in limiting_groups:
        limit = _memory_limit(group)
        if limit is not None:
            total, free = min(total, limit), min(free, max(0, limit - _unreclaimable(group)))
    return RamInfo(total, min(free, total))


def lies_in_ram(path: Path, root: Path = Path("/")) -> bool:
    """Return whether a file is on a RAM file system, whose pages count as used, not free."""
    best, kind = "", ""
    target = str(path.resolve())
    for line in _read(root / "proc/self/mountinfo").splitlines():
        words = line.split()
        if len(words) < 6 or "-" not in words[6:-1]:
            continue
        mount = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), words[4])
        within = target == mount or target.startswith(mount.rstrip("/") + "/")
        if within and len(mount) >= len(best):
            best, kind = mount, words[words.index("-", 6) + 1]
    return kind in ("tmpfs", "ramfs")


def process_ram_bytes() -> int:
    """Return this process's resident memory in bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)


_ARENA_MAX = -8  # of mallopt, in glibc


def share_heaps() -> None:
    """Let all threads of this process allocate from two heaps. Call it before threads allocate.

    By default glibc has up to eight heaps per processor, and keeps what is free at the end of each. With 15 threads
    the engine's memory grew by 22 MiB with every second model.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # only glibc has it
            ctypes.CDLL(None).mallopt(_ARENA_MAX, 2)


def return_freed_ram() -> None:
    """Return to the system what the C library keeps of freed memory, 10 to 110 MiB after a model, where it can."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # only glibc has it
            ctypes.CDLL(None).malloc_trim(0)


def memory_limits(root: Path = Path("/")) -> tuple[Path, ...]:
    """Return the control groups that limit this process's memory, for read_ram."""
    return tuple(group for group in _control_groups(root, "memory") if _memory_limit(group) is not None)


def disk_read_bytes(root: Path = Path("/")) -> int | None:
    """Return how many bytes this process has had read from disks; None if unknown."""
    found = re.search(r"^read_bytes: (\d+)$", _read(root / "proc/self/io"), re.MULTILINE)
    return None if found is None else int(found[1])


def _read(path: Path) -> str:
    """Return the text of a file in /proc or /sys; empty if missing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _cpuinfo(root: Path) -> dict[str, str]:
    """Return the entries of the first CPU in /proc/cpuinfo."""
    first = _read(root / "proc/cpuinfo").partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _cpu_name(cpuinfo: dict[str, str]) -> str:
    name = cpuinfo.get("model name", "") or _name_in_registry() or platform.processor() or platform.machine()
    name = re.sub(r"\((R|TM|r|tm)\)", "", name)
    name = re.sub(r" with Radeon.*| \d+-Core Processor.*| CPU(?= @)| @ .*| CPU$", "", name)
    return " ".join(name.split()) or "Unknown processor"


def _name_in_registry() -> str:
    if sys.platform == "win32":
        import winreg

        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0") as key:
                return str(winreg.QueryValueEx(key, "ProcessorNameString")[0])
        except OSError:
            return ""
    return ""


def _affinity(psutil: Any) -> set[int]:
    """Return the logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    if sys.platform == "win32":
        return set(psutil.Process().cpu_affinity())
    return set(range(os.cpu_count() or 1))


def _cpu_list(text: str) -> set[int]:
    """Parse the kernel's notation for sets of CPUs: "0-3,8,10-11"."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def _fast_ones(root: Path, allowed: set[int]) -> set[int]:
    """Return the logical CPUs on fast cores: on Intel by name, on Arm by capacity. Empty if all are alike.

    Cores with at least three quarters of the largest capacity count as fast: phones and boards have two or three kinds,
    and the medium one is excluded only if it is far slower.
    """
    named = allowed & _cpu_list(_read(root / "sys/devices/cpu_core/cpus"))
    if named:
        return named
    capacities = {cpu: _read(root / f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity").strip() for cpu in allowed}
    if not all(text.isdecimal() for text in capacities.values()):
        return set()
    least = 0.75 * max((int(text) for text in capacities.values()), default=0)
    fast = {cpu for cpu, text in capacities.items() if int(text) >= least}
    return set() if fast == allowed else fast


def _physical_cores(root: Path, cpus: set[int]) -> int | None:
    """Return the number of physical cores of these logical CPUs; None if unknown."""
    siblings = {_read(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").strip() for cpu in cpus}
    return None if not siblings or "" in siblings else len(siblings)


def _instruction_sets(cpuinfo: dict[str, str]) -> tuple[str, ...]:
    flags = set(cpuinfo.get("flags", cpuinfo.get("Features", "")).split())
    if flags:
        return tuple(name for name in INSTRUCTION_SETS if name in flags)
    try:
        from llvmlite.binding import get_host_cpu_features
    except ImportError:
        return ()
    features = get_host_cpu_features()
    return tuple(name for name, llvm_name in INSTRUCTION_SETS.items() if features.get(llvm_name))


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups, inner ones first, for versions 2 and 1.

    In a container the path may lead outside the mount; then the top of the mount is the container's group.
    """
    mount = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        tops = [mount] if not controllers else [mount / controllers, mount / controller]
        inside = PurePosixPath(path.lstrip("/"))
        for top in dict.fromkeys(tops):
            if ".." not in inside.parts:
                yield from (top / folder for folder in [inside, *inside.parents] if str(folder) != ".")
            yield top


def _cpu_quota(root: Path) -> float | None:
    """Return the CPU time that the control groups grant, in CPUs; None: no limit."""
    quotas: list[float] = []
    for group in _control_groups(root, "cpu"):
        words = (
            _read(group / "cpu.max") or f"{_read(group / 'cpu.cfs_quota_us')} {_read(group / 'cpu.cfs_period_us')}"
        ).split()
        if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal() and int(words[1]):
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def _memory_limit(group: Path) -> int | None:
    limit = (_read(group / "memory.max") or _read(group / "memory.limit_in_bytes")).strip()
    # Version 2 writes "max" for no limit, version 1 a huge number.
    return int(limit) if limit.isdecimal() and int(limit) < 1 << 60 else None


def _unreclaimable(group: Path) -> int:
    """Return the used bytes that cannot be reclaimed. File pages, such as a mapped model's, can be."""
    used = (_read(group / "memory.current") or _read(group / "memory.usage_in_bytes")).strip()
    lines = (line.split() for line in _read(group / "memory.stat").splitlines())
    statistics = {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdecimal()}
    files = sum(
        statistics.get(f"total_{kind}_file", statistics.get(f"{kind}_file", 0)) for kind in ("active", "inactive")
    )
    return max(0, (int(used) if used.isdecimal() else 0) - files)
