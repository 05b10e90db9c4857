"""Whether a GPU is used: what it is asked for, what it holds, which parts of a model have kernels there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pynvml
import pytest
from fakes.gpu import FakeGpu
from fakes.gpu_machine import FakeGpuMachine
from samples.placement_cases import MIB, a_profile
from samples.recoded_gguf import recode
from samples.tiny_model import make_tiny_gguf

from engine.conversion.convert import convert
from engine.gpu.trial import budget, choice, self_test
from engine.gpu.trial.choice import GpuUnusableError, missing_codecs, open_gpu, open_tried
from engine.machine.graphics import GpuInfo
from engine.model.model_files import open_model
from engine.placement import gpu_bytes
from engine.placement.model_bytes import ModelBytes
from native_kernels.cuda.layouts import GPU_CODECS
from native_kernels.cuda.runtime import driver as driving
from native_kernels.cuda.runtime.driver import CudaUnavailableError


class Nvml:
    """As much of pynvml as is asked; own: what this process holds."""

    NVMLError = pynvml.NVMLError

    def __init__(self, pid: int, own: int | None, free: int = 5 * MIB, broken: bool = False) -> None:
        self.pid, self.own, self.free, self.broken = pid, own, free, broken

    def nvmlInit(self) -> None:
        if self.broken:
            raise pynvml.NVMLError(9)

    def nvmlShutdown(self) -> None:
        """Nothing to give back."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index:
            raise pynvml.NVMLError(2)
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=1, usedGpuMemory=77), SimpleNamespace(pid=self.pid, usedGpuMemory=self.own)]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(free=self.free, used=100 * MIB, total=200 * MIB)


def test_what_this_process_holds_and_what_nobody_does() -> None:
    import os

    pid = os.getpid()
    assert budget.process_bytes(0, Nvml(pid, 300)) == 300
    assert budget.process_bytes(0, Nvml(pid, None)) is None  # Windows never tells
    assert budget.process_bytes(0, Nvml(pid + 1, 300)) is None
    assert budget.process_bytes(1, Nvml(pid, 300)) is None
    assert budget.process_bytes(None) is None
    assert budget.free_bytes(0, Nvml(pid, 300)) == 5 * MIB
    assert budget.free_bytes(1, Nvml(pid, 300)) is None
    assert budget.free_bytes(None) is None
    for broken in (budget.process_bytes, budget.free_bytes):
        assert broken(0, Nvml(pid, 1, broken=True)) is None


@pytest.mark.parametrize(("own", "context"), [(300 * MIB, 304 * MIB), (304 * MIB, 304 * MIB), (5 * MIB, None)])
def test_what_a_context_takes_is_what_the_process_holds_when_it_is_there(own: int, context: int | None) -> None:
    import os

    info = a_profile().gpus[0]
    gpu, found = budget.opened_and_measured(info, lambda info: FakeGpu(), Nvml(os.getpid(), own))
    assert found == context
    gpu.close()


def test_a_gpu_is_known_with_its_context_once_it_was_open(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    profile = a_profile()
    monkeypatch.setattr(budget, "opened_and_measured", lambda info, opens: (FakeGpu(), 300 * MIB))
    monkeypatch.setattr(self_test, "tried", lambda *gpu: self_test.Findings(captures=False))
    monkeypatch.setattr(choice, "remember_context", lambda profile, info: kept.append(info.context_bytes))
    opened = open_tried(profile.gpus[0], profile, 1)
    assert (opened.info.context_bytes, opened.execution, kept) == (300 * MIB, "eager", [300 * MIB])
    again = open_tried(opened.info, profile, 1)  # nothing new
    assert len(kept) == 1
    smaller = open_tried(replace(opened.info, context_bytes=400 * MIB), profile, 1, is_this_machine=False)
    assert smaller.info.context_bytes == 400 * MIB
    assert len(kept) == 1
    for one in (opened, again, smaller):
        one.gpu.close()


def test_drivers_that_are_too_old_are_told_which_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    info = a_profile().gpus[0]
    monkeypatch.setattr(driving, "driver", lambda: SimpleNamespace(version=(11, 8), n_devices=1))
    with pytest.raises(CudaUnavailableError, match=r"11\.8.* 525"):
        open_gpu(info)
    monkeypatch.setattr(driving, "driver", lambda: SimpleNamespace(version=(12, 4), n_devices=0))
    with pytest.raises(CudaUnavailableError, match="A GPU"):
        open_gpu(info)


def test_a_trial_that_fails_gives_the_gpu_back(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()

    def opens(info: GpuInfo, how: Any) -> tuple[FakeGpu, None]:
        return gpu, None

    monkeypatch.setattr(budget, "opened_and_measured", opens)
    monkeypatch.setattr(self_test, "tried", lambda *gpu: self_test.Findings(("attend in f16 is wrong",)))
    profile = a_profile()
    with pytest.raises(GpuUnusableError, match="attend in f16 is wrong"):
        open_tried(profile.gpus[0], profile, 1)
    assert gpu.closed


def test_a_process_that_lost_a_gpu_opens_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "process_failure", lambda: "CUDA_ERROR_ILLEGAL_ADDRESS")
    profile = a_profile()
    with pytest.raises(GpuUnusableError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS.*restart"):
        open_tried(profile.gpus[0], profile, 1)


# --- codecs


@pytest.fixture
def without_q5_k(monkeypatch: pytest.MonkeyPatch) -> None:
    """A codec that GPUs have no kernels for."""
    for module in (choice, gpu_bytes):
        monkeypatch.setattr(module, "GPU_CODECS", tuple(codec for codec in GPU_CODECS if codec != "q5_k"))


@pytest.mark.usefixtures("without_q5_k")
def test_codecs_that_gpus_have_no_kernels_for(tmp_path: Path) -> None:
    wide = make_tiny_gguf(tmp_path / "m.gguf", d_model=256, d_ff=512, n_heads=4, n_kv_heads=2)
    known = open_model(wide)
    assert missing_codecs(known) == ()
    assert ModelBytes.of(known).gpu_bytes.possible.all()
    strange = open_model(recode(wide, tmp_path / "q5_k.gguf", "q5_k"))
    assert missing_codecs(strange) == ("q5_k",)
    sizes = ModelBytes.of(strange).gpu_bytes
    assert not sizes.possible.any()
    assert not sizes.head_possible
    read_rates = open_model(convert(wide, tmp_path / "b", "q8_0").bundle)
    assert missing_codecs(read_rates) == ()


@pytest.mark.usefixtures("without_q5_k")
def test_a_model_in_such_a_codec_is_the_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = FakeGpuMachine(tmp_path, monkeypatch)
    wide = make_tiny_gguf(tmp_path / "m.gguf", d_model=256, d_ff=512, n_heads=4, n_kv_heads=2)
    model = machine.load(recode(wide, tmp_path / "q5_k.gguf", "q5_k"), device="auto")
    assert model.device == "cpu"
    assert "Q5_K" in model.device_reason
    assert not machine.gpus


def test_what_is_held_in_another_width_takes_that_on_a_gpu(tmp_path: Path) -> None:
    from engine.model.weights import load_weights

    opened = open_model(make_tiny_gguf(tmp_path / "m.gguf"))
    stored = ModelBytes.of(opened).gpu_bytes
    held = ModelBytes.of(opened, load_weights(opened, hold="f32")).gpu_bytes
    assert (held.neuron > 2 * stored.neuron).all()
    assert np.all(held.attention > 2 * stored.attention)
