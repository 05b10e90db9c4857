"""Live figures of the machine and of Hearth's own processes: load, memory, temperature, power.

Reads only. Creates no CUDA context, and never asks for PCIe throughput, which blocks for 20 ms.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from engine.machine.cpu_and_ram import memory_limits, read_ram
from engine.machine.graphics import (
    NvmlUnavailableError,
    close_nvml,
    display_name,
    failures,
    is_visible,
    open_nvml,
    reason,
    text,
)

HELPERS_S = 5.0  # interval of looking for child processes, which reads the whole process table
RETRY_S = 10.0  # opening a failing driver costs milliseconds to seconds
# NVML's codes for "no such figure for this GPU or user", as opposed to "the GPU does not answer".
_NO_SUCH_FIGURE = {2, 3, 4, 6, 13}  # invalid argument, not supported, no permission, not found, function not found

T = TypeVar("T")


@dataclass(frozen=True)
class GpuSample:
    """One GPU at one moment. None for a figure that the GPU does not give; `reason`: why all are None."""

    index: int
    name: str
    load_percent: float | None = None
    vram_used_bytes: int | None = None
    vram_total_bytes: int | None = None
    vram_process_bytes: int | None = None  # Hearth's own; never available on Windows
    temperature_c: float | None = None
    power_w: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class MachineSample:
    """The machine at one moment. Percentages are means since the previous sample, None in the first."""

    cpu_percent: float | None  # 100: every logical CPU busy
    process_cpu_percent: float | None  # Hearth's processes, on the same scale
    ram_used_bytes: int
    ram_total_bytes: int
    process_ram_bytes: int  # Hearth's processes, resident
    gpus: tuple[GpuSample, ...] = ()
    gpu_reason: str = ""  # why there are no GPUs to sample


@dataclass
class _Gpu:
    index: int
    name: str
    handle: Any
    lost: str = ""


class Monitor:
    """Samples on demand, in one thread. Opens nothing before the first sample.

    The parameters replace the real machine in tests, as in engine.machine.hardware.probe; `clock` returns seconds.
    """

    def __init__(
        self,
        nvml: Any = None,
        *,
        psutil: Any = None,
        root: Path = Path("/"),
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if psutil is None:
            import psutil
        self._psutil, self._environment, self._clock = psutil, environment, clock
        self._memory_limits = memory_limits(root)
        self._processes: dict[int, Any] = {os.getpid(): psutil.Process(os.getpid())}
        self._logical_cpus = psutil.cpu_count(logical=True) or 1
        self._machine_before: tuple[float, float] | None = None  # total and idle time
        self._process_before: dict[int, float] = {}
        self._time_before = 0.0
        self._look_at = clock()  # for helper processes
        self._nvml_given = nvml
        self._nvml: Any = None
        self._gpus: list[_Gpu] = []
        self._gpu_reason = ""
        self._open_at: float | None = clock()  # None: never again
        self._closed = False

    def watch(self, pid: int) -> None:
        """Count this process (the engine's) as Hearth's until it ends.

        Child processes, direct and indirect, are found without being named here.
        """
        try:
            self._processes[pid] = self._psutil.Process(pid)
        except (self._psutil.Error, OSError):
            self._processes.pop(pid, None)

    def sample(self) -> MachineSample:
        """Return the current figures.

        Cost: under 1 ms without a GPU; about 0.1 ms per GPU; every HELPERS_S some milliseconds to read the process
        table.
        """
        ram = read_ram(self._psutil, self._memory_limits)
        cpu_percent = self._cpu_percent()
        process_cpu_percent, process_ram_bytes = self._process_figures()
        gpus = self._sample_gpus()
        used = ram.total_bytes - ram.free_bytes
        return MachineSample(
            cpu_percent, process_cpu_percent, used, ram.total_bytes, process_ram_bytes, gpus, self._gpu_reason
        )

    def close(self) -> None:
        """Shut NVML down. Later samples have no GPUs."""
        self._closed, self._open_at, self._gpu_reason = True, None, "closed"
        self._close_nvml()

    # --- CPU and memory

    def _cpu_percent(self) -> float | None:
        # psutil.cpu_percent keeps state per thread and returns 0 the first time; unknown is not 0.
        try:
            times = self._psutil.cpu_times()
        except OSError:  # Windows, where counters are broken
            return None
        total = (
            float(sum(times)) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        )  # counted in user too
        idle = float(times.idle) + getattr(times, "iowait", 0.0)
        before, self._machine_before = self._machine_before, (total, idle)
        if before is None or total <= before[0]:
            return None
        share: float = 1 - (idle - before[1]) / (total - before[0])
        return min(100.0, max(0.0, 100 * share))

    def _process_figures(self) -> tuple[float | None, int]:
        now, ram_bytes, spent, known = self._clock(), 0, 0.0, False
        if now >= self._look_at:
            self._look_at = now + HELPERS_S
            self._find_helpers()
        for pid, process in list(self._processes.items()):
            try:
                times, resident = process.cpu_times(), process.memory_info().rss
            except (self._psutil.Error, OSError):  # it has ended
                del self._processes[pid]
                self._process_before.pop(pid, None)
                continue
            ram_bytes += int(resident)
            seconds = times.user + times.system
            if pid in self._process_before:
                spent, known = spent + seconds - self._process_before[pid], True
            self._process_before[pid] = seconds
        elapsed, self._time_before = now - self._time_before, now
        if not known or elapsed <= 0:
            return None, ram_bytes
        return min(100.0, max(0.0, 100 * spent / elapsed / self._logical_cpus)), ram_bytes

    def _find_helpers(self) -> None:
        """Watch the library's process and its children, which convert, count and train."""
        with contextlib.suppress(self._psutil.Error, OSError):
            for helper in self._processes[os.getpid()].children(recursive=True):
                self._processes.setdefault(helper.pid, helper)

    # --- GPUs

    def _sample_gpus(self) -> tuple[GpuSample, ...]:
        if self._open_at is not None and self._clock() >= self._open_at:
            self._open()
        return tuple(self._sample_gpu(gpu) for gpu in self._gpus)

    def _open(self) -> None:
        """(Re)open NVML: handles from before a loss are invalid even if the GPU has come back."""
        lost_before = {gpu.index: gpu.name for gpu in self._gpus}
        self._close_nvml()
        self._open_at = None
        try:
            self._nvml = open_nvml(self._nvml_given)
            count = self._call(lambda: int(self._nvml.nvmlDeviceGetCount()))
        except NvmlUnavailableError as error:
            self._close_nvml()
            self._gpu_reason = str(error)
            # Keep the names of lost GPUs, so that the window still shows them.
            self._gpus = [_Gpu(index, name, None, self._gpu_reason) for index, name in lost_before.items()]
            self._try_again_later()
            return
        self._gpu_reason = "" if count else "the NVIDIA driver sees no GPU"
        self._gpus = [gpu for index in range(count) if (gpu := self._open_gpu(index, lost_before))]

    def _open_gpu(self, index: int, lost_before: dict[int, str]) -> _Gpu | None:
        """Return the GPU, or None if CUDA_VISIBLE_DEVICES hides it."""
        name = lost_before.get(index, f"NVIDIA GPU {index}")
        nvml = self._nvml
        try:
            handle = self._call(lambda: nvml.nvmlDeviceGetHandleByIndex(index))
            uuid = self._figure(lambda: text(nvml.nvmlDeviceGetUUID(handle)))
            name = self._figure(lambda: display_name(nvml.nvmlDeviceGetName(handle))) or name
        except NvmlUnavailableError as error:
            self._try_again_later()
            return _Gpu(index, name, None, str(error)) if is_visible(index, None, self._environment) else None
        return _Gpu(index, name, handle) if is_visible(index, uuid, self._environment) else None

    def _sample_gpu(self, gpu: _Gpu) -> GpuSample:
        if gpu.lost:
            return GpuSample(gpu.index, gpu.name, reason=gpu.lost)
        nvml, handle = self._nvml, gpu.handle
        try:
            load = self._figure(lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu))
            memory = self._figure(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
            temperature = self._figure(lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)))
            power = self._figure(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
            processes = self._figure(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        except NvmlUnavailableError as error:
            gpu.lost = str(error)
            self._try_again_later()
            return GpuSample(gpu.index, gpu.name, reason=gpu.lost)
        return GpuSample(
            gpu.index,
            gpu.name,
            load,
            None if memory is None else int(memory.used),
            None if memory is None else int(memory.total),
            None if processes is None else self._own_bytes(processes),
            temperature,
            power,
        )

    def _own_bytes(self, processes: list[Any]) -> int | None:
        """Return the VRAM of Hearth's processes: 0 if none uses the GPU, None if unknown."""
        own = [process.usedGpuMemory for process in processes if process.pid in self._processes]
        return None if None in own else sum(own)

    def _figure(self, question: Callable[[], T]) -> T | None:
        """Return a figure, or None if this GPU or user does not get it. Raises: NvmlUnavailableError."""
        try:
            return question()
        except failures(self._nvml) as error:
            if getattr(error, "value", None) in _NO_SUCH_FIGURE:
                return None
            raise NvmlUnavailableError(reason(error)) from error

    def _call(self, question: Callable[[], T]) -> T:
        """Return an answer without which the GPU cannot be sampled. Raises: NvmlUnavailableError."""
        try:
            return question()
        except failures(self._nvml) as error:
            raise NvmlUnavailableError(reason(error)) from error

    def _try_again_later(self) -> None:
        if not self._closed and self._open_at is None:
            self._open_at = self._clock() + RETRY_S

    def _close_nvml(self) -> None:
        if self._nvml is not None:
            close_nvml(self._nvml)
        self._nvml, self._gpus = None, []
