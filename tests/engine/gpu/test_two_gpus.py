"""Two GPUs in a PC: CUDA_VISIBLE_DEVICES, the choice between them, and one that stops working while a model runs.

Each process reads CUDA_VISIBLE_DEVICES once, and after a failure on a GPU it can use none, so everything runs in
processes of their own.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
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
from engine.service.stdio import serve_stdio

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


class Engine:
    """The engine's process, as the window starts it. An Embed request tells its GPU, or breaks that."""

    def __init__(self, lost: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(lost)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self.news: list[str] = []
        self._send(protocol.Hello())

    def _send(self, message: protocol.Request | protocol.Hello) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(protocol.encode(message))
        self._process.stdin.flush()

    def ask(self, request: protocol.Request) -> Any:
        """Return the result, or the kind of the failure."""
        self._send(request)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = protocol.decode(line)
            if isinstance(event, protocol.News):
                self.news.append(event.topic)
            elif isinstance(event, protocol.Finished) and event.id == request.id:
                return event.result
            elif isinstance(event, protocol.Failed):
                return event.error
        raise AssertionError("the engine ended")

    def load(self) -> Any:
        return self.ask(protocol.Load("load", str(starter_model()), {"device": "auto"}))

    def gpu(self, act: str = "tell") -> str | None:
        """Return the UUID of the model's GPU; None: the CPU computes."""
        found: str | None = self.ask(protocol.Embed("gpu", [act]))["gpu"]
        return found

    def answer(self) -> Any:
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        said = self.ask(protocol.Generate("answer", messages, {"max_tokens": 8, "temperature": 0}))
        return "Paris" in said["text"] if isinstance(said, dict) else said

    def close(self) -> None:
        with suppress(OSError):
            self._send(protocol.Shutdown("shutdown"))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def run_engine(lost: Path) -> None:
    """Be the engine's process. lost: file with the UUID of a GPU that the driver does not know any more."""
    handle_of = pynvml.nvmlDeviceGetHandleByIndex

    def handle(index: int) -> Any:
        found = handle_of(index)
        if lost.exists() and pynvml.nvmlDeviceGetUUID(found) == lost.read_text():
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return found

    def embed(host: EngineHost, request: protocol.Embed) -> dict[str, Any]:
        model = host._model
        uuid = None if model is None or model.gpu is None else model.gpu.info.uuid
        if request.texts == ["break"]:
            assert uuid is not None
            break_context(uuid)
            lost.write_text(uuid)
        return {"gpu": uuid}

    pynvml.nvmlDeviceGetHandleByIndex = handle
    EngineHost._embed = embed  # type: ignore[method-assign]
    serve_stdio()


def test_a_gpu_that_is_lost_while_a_model_runs(gpus: list[GpuInfo], tmp_path: Path) -> None:
    """The CPU answers; after the news "gpu_lost", the window loads the model into a new process."""
    with closing(Engine(tmp_path / "lost")) as engine:
        engine.load()
        assert engine.answer() is True
        first = engine.gpu("break")
        assert engine.answer() == "DeviceFailedError"
        assert (engine.answer(), engine.gpu()) == (True, None)
        assert engine.news.count("gpu_lost") == 1
        assert engine.load()["device"] == "cpu"
    with closing(Engine(tmp_path / "lost")) as engine:
        reason = engine.load()["device_reason"]
        assert {first, engine.gpu()} == {gpu.uuid for gpu in gpus}, reason
        assert engine.answer() is True


if __name__ == "__main__":
    run_engine(Path(sys.argv[1]))
