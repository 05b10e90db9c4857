"""Decide whether a model uses the GPU, and explain the decision; open the GPU and try it.

engine/placement/solver.py decides what part of the model the GPU gets.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace

import numpy as np

from engine.config import EngineConfig
from engine.errors import Cancelled, DeviceUnavailableError
from engine.gpu.trial import budget, self_test
from engine.job import CancelCheck, never
from engine.loading.backends import Backend
from engine.machine.graphics import OLDEST_DRIVER, GpuInfo
from engine.machine.hardware import HardwareProfile, choose_gpu
from engine.machine.measured_hardware import remember_context
from engine.model.model_files import OpenedModel
from engine.placement.gpu_bytes import GpuBytes, why_not_on_gpu
from native_kernels.cuda.gpu import Gpu
from native_kernels.cuda.layouts import GPU_CODECS, gpu_codec
from native_kernels.cuda.prefill_ops import MAX_HEAD_DIM
from native_kernels.cuda.runtime.driver import (
    CudaError,
    CudaOutOfMemoryError,
    CudaUnavailableError,
    process_failure,
)
from native_kernels.cuda.runtime.modules import NoMachineCodeError, interrupted_by

log = logging.getLogger(__name__)

_OLDEST_CUDA = (12, 0)  # supported by OLDEST_DRIVER


class GpuUnusableError(Exception):
    """The GPU cannot be used. The message is the reason, as half a sentence. Never leaves this package."""


class GpuFullError(GpuUnusableError):
    """The GPU cannot be used now, because other programs hold its memory."""


@dataclass(frozen=True)
class OpenedGpu:
    """A GPU that passed its trial.

    info: with the bytes of its context. execution, reasons: as in GpuUse. cpu_bytes_per_s: the CPU's memory bandwidth;
    None: unknown.
    """

    gpu: Gpu
    info: GpuInfo
    execution: self_test.Execution
    reasons: tuple[str, ...] = ()
    cpu_bytes_per_s: float | None = None


def candidate(
    engine: EngineConfig, opened: OpenedModel, profile: HardwareProfile, backend: Backend
) -> tuple[GpuInfo | None, str]:
    """Return the GPU to try, or None, and the reason in one sentence. Touches no GPU.

    Raises: DeviceUnavailableError instead of None, if the user chose the GPU.
    """
    if engine.device == "cpu":
        return None, "The CPU computes, as requested"
    info, words = choose_gpu(profile)
    reason = _why_not(opened, backend) if info is not None else words.removesuffix(".")
    if not reason:
        return info, words
    refuse(engine, reason.removeprefix("CPU only: "))
    return None, reason


def refuse(engine: EngineConfig, reason: str) -> None:
    """Log why the GPU is not used. Raises: DeviceUnavailableError instead, if the user chose the GPU."""
    if engine.device == "cuda":
        raise DeviceUnavailableError(f"The GPU cannot be used: {_as_half(reason)}.")
    log.info("The GPU is not used: %s", reason)


def open_tried(
    info: GpuInfo,
    profile: HardwareProfile,
    threads: int,
    is_this_machine: bool = True,
    cancelled: CancelCheck = never,
) -> OpenedGpu:
    """Open the GPU in the calling thread, load its kernels, and check that it computes correctly.

    Cost: 0.3 s. The first time with a driver also the trial, and some seconds if kernels must be compiled.
    Raises: GpuUnusableError, Cancelled (checked between kernel files); nothing stays allocated.
    """

    def check() -> None:
        if cancelled():
            raise Cancelled

    check()
    if failure := process_failure():
        raise GpuUnusableError(f"a GPU failed before ({failure}), so this process can use none: restart Hearth")
    try:
        with interrupted_by(check):
            gpu, context = budget.opened_and_measured(info, open_gpu)
    except CudaUnavailableError as error:
        raise GpuUnusableError(str(error)) from error
    except NoMachineCodeError as error:
        raise GpuUnusableError(str(error)) from error
    except CudaOutOfMemoryError as error:
        raise GpuUnusableError(f"other programs use the memory of {info.name} ({error})") from error
    except CudaError as error:
        raise GpuUnusableError(f"{info.name} does not work ({error})") from error
    try:
        check()
        with interrupted_by(check):
            findings = self_test.tried(gpu, info.uuid or info.name, info.driver or "")
        use = self_test.decide(findings, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else threads)
        if not use.usable:
            raise GpuUnusableError(_as_half(use.reasons[0]))
        if context is not None and context != info.context_bytes:
            known = replace(info, context_bytes=max(context, info.context_bytes or 0))
            info = known
            if is_this_machine:
                remember_context(profile, known)
    except BaseException:
        gpu.close()
        raise
    return OpenedGpu(gpu, info, use.execution, use.reasons, profile.cpu.bytes_per_s)


def open_gpu(info: GpuInfo) -> Gpu:
    """Create the GPU's context and load its kernels.

    Raises: CudaUnavailableError, CudaError, NoMachineCodeError; nothing stays allocated.
    """
    from native_kernels.cuda.cuda_gpu import CudaGpu
    from native_kernels.cuda.runtime.driver import Device, driver

    known = driver()
    if known.version < _OLDEST_CUDA:
        newest = ".".join(map(str, known.version))
        raise CudaUnavailableError(
            f"the NVIDIA driver is too old: it runs CUDA {newest}, and driver {OLDEST_DRIVER} or newer is needed"
        )
    device = next((one for one in map(Device, range(known.n_devices)) if one.uuid == info.uuid), None)
    if device is None:
        raise CudaUnavailableError(f"CUDA does not see {info.name}")
    return CudaGpu(device)


def missing_codecs(opened: OpenedModel) -> tuple[str, ...]:
    """Return the codecs of the model's matrices without GPU kernels."""
    used = {opened.source.tensors[one.foreign_name].codec for one in opened.plan if not one.is_vector}
    return tuple(sorted(codec for codec in map(gpu_codec, used) if codec not in GPU_CODECS))


def _why_not(opened: OpenedModel, backend: Backend) -> str:
    """Return in one sentence why no part of the model can be on any GPU; "" if some can."""
    if backend.kernels is None:
        return f"The GPU works beside the CPU's kernels, and those do not run: {_as_half(backend.reason)}"
    if reason := why_not_on_gpu(opened.config):
        return reason
    if (size := max(size for _, size in opened.config.head_shapes)) > MAX_HEAD_DIM:
        return f"There are no kernels for attention heads of {size} numbers"
    sizes = GpuBytes.of(opened, "mapped", opened.down_is_row_wise)
    if not np.any(sizes.possible):
        if not (missing := missing_codecs(opened)):
            return f"There are no kernels for experts of {opened.config.d_ff} neurons"
        codecs = ", ".join(codec.upper() for codec in missing)
        return f"No layer of the model is stored as GPUs read it: there are no kernels for {codecs}"
    return ""


def _as_half(reason: str) -> str:
    """Return a sentence in the form that follows a colon."""
    words = reason.strip().rstrip(".")
    return words if words[:3].isupper() or words[:2].isupper() else words[:1].lower() + words[1:]
