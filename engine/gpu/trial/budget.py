"""Memory use of a GPU, as NVML reports it: of this process, free, and of a context.

engine/placement/memory_plan.py has the budgets.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from engine.machine.graphics import GpuInfo, NvmlUnavailableError, failures, nvml_session, used_bytes
from native_kernels.cuda.gpu import Gpu

# A figure outside these limits is not a context's size: another program changed its memory use meanwhile.
_LEAST_CONTEXT, _MOST_CONTEXT = 100 << 20, 1 << 30
# A context's size is rounded up to this, so that a stored placement fits the next load too.
_CONTEXT_STEP = 16 << 20


def process_bytes(index: int | None, nvml: Any = None) -> int | None:
    """Return this process's bytes on NVML's GPU `index`; None if unknown, as on Windows and in some containers."""
    if index is None:
        return None
    try:
        with nvml_session(nvml) as library:
            try:
                handle = library.nvmlDeviceGetHandleByIndex(index)
                running = library.nvmlDeviceGetComputeRunningProcesses(handle)
            except failures(library):
                return None
    except NvmlUnavailableError:
        return None
    own = [process.usedGpuMemory for process in running if process.pid == os.getpid()]
    return int(own[0]) if own and own[0] is not None else None


def free_bytes(index: int | None, nvml: Any = None) -> int | None:
    """Return the free bytes of NVML's GPU `index`; None if unknown."""
    if index is None:
        return None
    try:
        with nvml_session(nvml) as library:
            try:
                return int(library.nvmlDeviceGetMemoryInfo(library.nvmlDeviceGetHandleByIndex(index)).free)
            except failures(library):
                return None
    except NvmlUnavailableError:
        return None


def opened_and_measured(info: GpuInfo, open_gpu: Callable[[GpuInfo], Gpu], nvml: Any = None) -> tuple[Gpu, int | None]:
    """Open the GPU; return it with the bytes of its context and kernels, or None if they could not be measured.

    Raises: as `open_gpu`.
    """
    before = used_bytes(info.index, nvml)
    gpu = open_gpu(info)
    own = process_bytes(info.index, nvml)
    after = used_bytes(info.index, nvml)
    taken = own if own is not None else None if before is None or after is None else after - before
    if taken is None or not _LEAST_CONTEXT <= taken <= _MOST_CONTEXT:
        return gpu, None
    return gpu, -(-taken // _CONTEXT_STEP) * _CONTEXT_STEP
