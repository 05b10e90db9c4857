"""What this process holds on a GPU, as NVIDIA's management library tells it, and what a GPU's context takes.

It plans nothing: engine/placement/memory_plan.py does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from engine.machine.graphics import GpuInfo, NvmlUnavailableError, failures, nvml_session, used_bytes
from native_kernels.cuda.gpu import Gpu

# A context outside these limits is no context's: another program took or gave memory while ours was made.
_LEAST_CONTEXT, _MOST_CONTEXT = 100 << 20, 1 << 30
# Figures of a context are rounded up to this, so that a placement solved from one serves for the next.
_CONTEXT_STEP = 16 << 20


def process_bytes(index: int | None, nvml: Any = None) -> int | None:
    """What this process holds on NVML's GPU of that number; None where the driver does not tell, as on Windows and in
    some containers."""
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
    """What nobody holds of NVML's GPU of that number; None where NVML does not say."""
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
    """The GPU, opened, and what its context with all kernels takes there; None where that cannot be told.

    Raises: what `open_gpu` does.
    """
    before = used_bytes(info.index, nvml)
    gpu = open_gpu(info)
    own = process_bytes(info.index, nvml)
    after = used_bytes(info.index, nvml)
    taken = own if own is not None else None if before is None or after is None else after - before
    if taken is None or not _LEAST_CONTEXT <= taken <= _MOST_CONTEXT:
        return gpu, None
    return gpu, -(-taken // _CONTEXT_STEP) * _CONTEXT_STEP
