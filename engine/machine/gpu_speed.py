"""Measure this machine's GPUs with CUDA: memory, bus, exchange, and the size of a context.

engine/machine/graphics.py lists the GPUs. A GPU that cannot be measured keeps the reason.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from engine.machine.graphics import GpuInfo, used_bytes
from engine.machine.hardware import HardwareProfile, choose_gpu, default_threads, sample_bytes

log = logging.getLogger(__name__)


def measure_gpus(profile: HardwareProfile, threads: int | None = None, nvml: Any = None) -> HardwareProfile:
    """Return the profile with figures for every usable GPU; `sync_s` is that of the chosen GPU.

    threads: CPU threads that read memory at the same time; None: default_threads. A GPU that fails becomes unusable,
    with the failure as its reason.
    Cost: about 3 s per GPU, with context and first compilation; all memory is freed.
    """
    chosen, _ = choose_gpu(profile)
    gpus, sync_s = [], profile.sync_s
    for gpu in profile.gpus:
        if not gpu.usable:
            gpus.append(gpu)
            continue
        reading = default_threads(profile) if threads is None else threads
        measured, exchange_s = _measure(gpu, reading, sample_bytes(profile), nvml)
        gpus.append(measured)
        if gpu is chosen and exchange_s is not None:
            sync_s = exchange_s
    reasons = profile.gpu_reasons
    if chosen is not None and not any(gpu.usable for gpu in gpus):
        reasons = tuple(f"{gpu.name}: {'; '.join(gpu.reasons)}" for gpu in gpus)
    return replace(profile, gpus=tuple(gpus), gpu_reasons=reasons, sync_s=sync_s)


def _measure(gpu: GpuInfo, threads: int, ram_bytes: int, nvml: Any) -> tuple[GpuInfo, float | None]:
    from native_kernels.cuda.measure import ExchangeError, measure_gpu
    from native_kernels.cuda.runtime.driver import CudaError, CudaUnavailableError, Device, driver
    from native_kernels.cuda.runtime.modules import NoMachineCodeError

    try:
        device = next((one for one in map(Device, range(driver().n_devices)) if one.uuid == gpu.uuid), None)
        if device is None:
            return _unusable(gpu, "CUDA does not see this GPU"), None
        before = used_bytes(gpu.index, nvml)
        device.enter()
        try:
            after = used_bytes(gpu.index, nvml)
            speed = measure_gpu(device, threads=threads, ram_bytes=ram_bytes)
        finally:
            device.close()
    except (CudaError, CudaUnavailableError, NoMachineCodeError, ExchangeError) as error:
        log.info("%s cannot be measured", gpu.name, exc_info=True)
        return _unusable(gpu, str(error)), None
    context = None if before is None or after is None else max(0, after - before)
    measured = replace(
        gpu, context_bytes=context, bytes_per_s=speed.bytes_per_s, pcie_bytes_per_s=speed.pcie_bytes_per_s,
        reach_bytes_per_s=speed.reach_bytes_per_s, beside_share=speed.beside_share,
    )  # fmt: skip
    return measured, speed.sync_s


def _unusable(gpu: GpuInfo, why: str) -> GpuInfo:
    return replace(gpu, usable=False, reasons=(*gpu.reasons, why))
