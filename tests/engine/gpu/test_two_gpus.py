"""Two GPUs in a PC: CUDA_VISIBLE_DEVICES, the choice between them, and one that stops working while a model runs.

Each process reads CUDA_VISIBLE_DEVICES once, and what fails on a GPU ends its context, so everything runs in processes
of their own.
"""

from __future__ import annotations

import ctypes
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import pynvml
import pytest
from support.gpu_neighbours import Holder

from engine.assets import starter_model
from engine.gpu.trial.choice import open_gpu
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import choose_gpu, probe
from engine.service import protocol
from engine.service.host import EngineHost

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
T = TypeVar("T")
FAULT = 'extern "C" __global__ void fault(int *at) { *at = 1; }'


@pytest.fixture
def gpus() -> list[GpuInfo]:
    found = [gpu for gpu in probe().gpus if gpu.usable]
    if len(found) < 2:
        pytest.skip("needs two GPUs")
    return found[:2]


def alone(work: Callable[..., T], *arguments: Any) -> T:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *arguments).result(240)


def chosen() -> tuple[str | None, ...]:
    """Return the UUIDs of the GPU that is chosen and of the one that is opened."""
    info, _ = choose_gpu(probe())
    if info is None:
        return (None,)
    gpu: Any = open_gpu(info)
    found = info.uuid, gpu.device.uuid
    gpu.close()
    return found


def test_only_visible_gpus_are_used(gpus: list[GpuInfo], monkeypatch: pytest.MonkeyPatch) -> None:
    for gpu in gpus:
        assert gpu.uuid is not None
        for visible in (str(gpu.index), gpu.uuid, gpu.uuid[:12]):
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
            assert alone(chosen) == (gpu.uuid, gpu.uuid)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert alone(chosen) == (None,)


def test_the_gpu_with_more_free_memory_is_chosen(gpus: list[GpuInfo]) -> None:
    for full, other in (gpus, gpus[::-1]):
        assert full.uuid is not None
        holder = Holder(full.uuid)
        try:
            holder.take(leave_bytes=4 << 30)
            assert alone(chosen) == (other.uuid, other.uuid)
        finally:
            holder.close()


def break_context(uuid: str) -> None:
    """Let a kernel write to an address that is none. Every later call in this process's context of the GPU fails."""
    from native_kernels.cuda.runtime.driver import CudaError, Device, Module, Stream, driver
    from native_kernels.cuda.runtime.nvrtc import compiler

    device = next(one for one in map(Device, range(driver().n_devices)) if one.uuid == uuid)
    device.enter()
    major, minor = device.capability
    code = compiler().compile(FAULT, "fault.cu", 10 * major + minor, {}, {}).code
    Module(device, code).function("fault").launch(Stream(device), (1,), (1,), ctypes.c_uint64(8))
    with pytest.raises(CudaError):
        device.synchronize()
    with suppress(CudaError):
        device.close()


def lose_one() -> list[Any]:
    """Answer on a GPU, lose it, answer on the CPU, load again, answer on the other GPU.

    Returns at each answer the UUID of the model's GPU (None: the CPU), the answer or the kind of failure, and the
    reason for the device.
    """
    events: list[protocol.Event] = []
    host, seen = EngineHost(events.append), []

    def ask(request: protocol.Request) -> Any:
        host.submit(request)
        host.run_pending()
        end = next(one for one in reversed(events) if isinstance(one, protocol.Finished | protocol.Failed))
        return end.result.get("text") if isinstance(end, protocol.Finished) else end.error

    def answer(name: str) -> None:
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        text = ask(protocol.Generate(name, messages, {"max_tokens": 8, "temperature": 0}))
        model = host._model
        gpu = model.gpu if model is not None else None
        reason = model.device_reason if model is not None else ""
        seen.append((gpu.info.uuid if gpu is not None and gpu.is_usable else None, text, reason))

    ask(protocol.Load("load", str(starter_model()), {"device": "auto"}))
    answer("before")
    lost = seen[0][0]
    break_context(lost)
    answer("broken")
    answer("on the CPU")
    handle_of = pynvml.nvmlDeviceGetHandleByIndex

    def refuse(index: int) -> Any:
        handle = handle_of(index)
        if pynvml.nvmlDeviceGetUUID(handle) == lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return handle

    pynvml.nvmlDeviceGetHandleByIndex = refuse
    ask(protocol.Load("again", str(starter_model()), {"device": "auto"}))
    answer("on the other one")
    ask(protocol.Unload("unload"))
    return seen


def test_a_gpu_that_is_lost_while_a_model_runs(gpus: list[GpuInfo]) -> None:
    before, broken, on_the_cpu, after = alone(lose_one)
    assert before[0] in {gpu.uuid for gpu in gpus}
    assert broken[:2] == (None, "DeviceFailedError")
    assert (on_the_cpu[0], "Paris" in on_the_cpu[1]) == (None, True)
    assert {before[0], after[0]} == {gpu.uuid for gpu in gpus}, after[2]
    assert "Paris" in after[1]
