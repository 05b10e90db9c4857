"""That the script for a GPU among other programs runs, and that it finds what it is to find: on the tests' GPU of
NumPy, and where there is none."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_sharing
import numpy as np
import pytest
from fakes.gpu_machine import GIB, FakeGpuMachine
from gpu_sharing import Bench, agreement
from samples.tiny_model import make_tiny_gguf, make_tiny_model
from support import gpu_neighbours

from engine.config import EngineConfig
from engine.gpu import vram_policy
from engine.gpu.trial import budget
from engine.job import Job
from engine.session.loaded_model import LoadedModel
from native_kernels.cuda.runtime.driver import CudaOutOfMemoryError

MIB = 1 << 20


class FakeBench(Bench):
    """Loads onto the fake. unforetold: bytes on the GPU that no placement counts."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        flags = argparse.Namespace(budget=[0.001, 3.0, 3.5], take_back_s=0.0, cancels=3, seed=0)
        super().__init__(flags, None, 0)
        self.machine, self.hardware = FakeGpuMachine(folder, patch), str(folder / "slow.json")
        self.model = make_tiny_model(folder / "m", d_ff=256)
        self.unforetold = 0

    def load(self, budget_gib: float | None = None, cancelled: Callable[[], bool] = lambda: False) -> LoadedModel:
        engine = EngineConfig(device="cuda", threads=1, vram_budget_gib=budget_gib, hardware_file=self.hardware)
        return LoadedModel.load(self.model, engine, job=Job(cancelled))

    def held(self) -> int:
        on_gpu = sum(gpu.used_bytes for gpu in self.machine.gpus)
        return on_gpu + (self.unforetold if on_gpu else 0)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    return FakeBench(tmp_path, monkeypatch)


# --- estimated memory


def test_what_is_measured_is_held_against_what_was_foretold(bench: FakeBench) -> None:
    found = gpu_sharing.budgets(bench)
    assert found["reached"]
    assert [row["budget_gib"] for row in found["rows"]] == [None, 0.001, 3.0]  # one that holds all of it is enough
    automatic, refused, _ = found["rows"]
    assert "holds nothing of the model" in refused["refused"]
    assert {(look["mode"], look["prompt"]) for look in automatic["looks"]} == {
        (mode, n) for mode in ("exact", "dense") for n in (8, 16)
    }
    assert all(0 < look["measured"] <= look["foretold"] for look in automatic["looks"])


def test_more_than_was_foretold_is_found(bench: FakeBench) -> None:
    bench.flags.budget = [3.0]
    bench.unforetold = 100 * MIB
    found = gpu_sharing.budgets(bench)
    assert not found["reached"]
    assert found["rows"][0]["most_of_foretold"] > gpu_sharing.OVER


# --- another program


class FakeHolder:
    """Takes memory of the fake, as its driver would tell."""

    free = 4 * GIB

    def __init__(self, uuid: str) -> None:
        self.comes_back = True

    def take(self, leave_bytes: int) -> tuple[int, int]:
        FakeHolder.free = 0
        return 4 * GIB, 0

    def close(self) -> None:
        FakeHolder.free = 4 * GIB


@pytest.fixture
def with_neighbour(bench: FakeBench, monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    monkeypatch.setattr(gpu_sharing, "Holder", FakeHolder)
    monkeypatch.setattr(FakeHolder, "free", 4 * GIB)
    monkeypatch.setattr(budget, "free_bytes", lambda index: FakeHolder.free)
    monkeypatch.setattr(gpu_sharing, "LATE_S", 60.0)
    for name, value in (("LOOK_EVERY_S", 0.0), ("TAKE_BACK_EVERY_S", 0.0), ("LEAST_GAIN_BYTES", 0)):
        monkeypatch.setattr(vram_policy, name, value)
    monkeypatch.setattr(vram_policy, "LEAST_GAIN_SHARE", 1e-9)
    monkeypatch.setattr(vram_policy, "SMALLER", 0.9995)
    monkeypatch.setattr(vram_policy.memory_plan, "BUDGET_STEP_BYTES", 1)
    monkeypatch.setattr(vram_policy.memory_plan, "LEAST_MARGIN_BYTES", 1)
    return bench


def test_it_gives_way_and_comes_back(with_neighbour: FakeBench) -> None:
    found = gpu_sharing.neighbour(with_neighbour)
    assert [step["step"] for step in found["steps"]] == [
        "gave way while nobody asked", "gave way before an answer", "ran out in mid-answer", "took it back",
    ]  # fmt: skip
    placed = [step["placed"] for step in found["steps"]]
    assert found["first"]["placed"] > placed[0] > placed[1] > placed[2]
    assert placed[3] == found["first"]["placed"]
    assert found["steps"][2]["tokens_before"] == 3
    assert "Send the message again" in found["steps"][2]["hint"]
    assert found["steps"][3]["same_bits"]
    assert found["reached"], found
    assert all(gpu.closed and not gpu.used_bytes for gpu in with_neighbour.machine.gpus)


def test_an_engine_that_stays_small_is_found(with_neighbour: FakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeHolder, "close", lambda self: None)
    monkeypatch.setattr(gpu_sharing, "TAKE_BACK_LIMIT_S", 0.1)
    found = gpu_sharing.neighbour(with_neighbour)
    assert not found["reached"]
    assert not found["steps"][-1]["reached"]


def test_answers_agree_within_rounding_and_no_further() -> None:
    known = np.array([[1.0, 2.0, 10.0], [5.0, 5.01, 0.0]], np.float32)
    assert agreement(known.copy(), known)["same_bits"]
    close = known + np.array([[0.1, 0, 0], [0.1, 0, 0]], np.float32)
    found = agreement(close, known)
    assert found["right"]
    assert (found["same_bits"], found["same_choices"]) == (False, 0.5)  # between two that are nearly equal
    assert not agreement(known + np.array([[0, 0, -0.5], [0, 0, 0]], np.float32), known)["right"]


# --- the other parts


def test_memory_that_is_not_given_back_is_found(bench: FakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    # The RAM of a process with other tests in it goes up and down: that it counts is seen below.
    for name, value in (("GPU_SLACK", 0), ("RAM_SLACK", 1 << 40), ("CANCELLED_S", 60.0), ("BACK_S", 60.0)):
        monkeypatch.setattr(gpu_sharing, name, value)
    monkeypatch.setattr(gpu_sharing.random.Random, "uniform", lambda self, low, high: low)
    found = gpu_sharing.cancel(bench)
    assert found["reached"]
    assert all(one["cancelled"] and one["gpu_left"] == 0 for one in found["cancels"])
    bench.flags.cancels = 1
    monkeypatch.setattr(gpu_sharing, "BACK_S", 0.05)
    monkeypatch.setattr(gpu_sharing, "RAM_SLACK", -(1 << 40))
    assert not gpu_sharing.cancel(bench)["reached"]


def test_a_token_with_marks_is_held_against_one_without(bench: FakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sharing, "MARKS_COST", 10.0)
    found = gpu_sharing.marks(bench)
    [row] = found["rows"]
    assert {"attention", "ffn", "head"} <= set(row["stages_s"])
    assert 0 < row["sum_of_token"] <= 1.05
    monkeypatch.setattr(gpu_sharing.GpuDecodeProgram, "gpu_seconds", lambda self: {"attention": 1e-9})
    assert not gpu_sharing.marks(bench)["reached"]


def test_work_while_nobody_asks_is_found(bench: FakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_sharing, "IDLE_S", 0.1)
    clock = iter([1.0, 1.0001, 2.0, 2.05])
    monkeypatch.setattr(gpu_sharing.time, "process_time", lambda: next(clock))
    assert gpu_sharing.idle(bench)["reached"]
    assert not gpu_sharing.idle(bench)["reached"]


@pytest.mark.slow
def test_it_runs_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_tiny_gguf(tmp_path / "tiny.gguf")
    flags = ["--device", "cpu", "--context", "64", "--cancels", "2", "--record"]
    monkeypatch.setattr("sys.argv", ["gpu_sharing.py", str(path), *flags])
    monkeypatch.setattr(gpu_sharing, "RESULTS", tmp_path)
    gpu_sharing.main()
    recorded = json.loads(next(tmp_path.glob("gpu-sharing-*.json")).read_text("utf-8"))
    assert set(recorded["parts"]) == {"cancel", "two", "idle"}
    assert not any("failed" in part for part in recorded["parts"].values())
    assert recorded["parts"]["two"]["reached"]


# --- the program that holds memory


class Gpu:
    """A device of so many bytes whose driver gives in pieces."""

    def __init__(self, total: int) -> None:
        self.total, self.used, self.filled = total, 0, 0
        self.driver = self
        self._sizes: dict[int, int] = {}

    def enter(self) -> None: ...

    def close(self) -> None: ...

    def memory(self) -> tuple[int, int]:
        return self.total - self.used, self.total

    def call(self, name: str, *of: Any) -> None:
        if name == "cuMemAlloc_v2":
            if of[1] > self.total - self.used - 40 * MIB:
                raise CudaOutOfMemoryError(name, 2, "CUDA_ERROR_OUT_OF_MEMORY")
            of[0]._obj.value = 1000 + len(self._sizes)
            self._sizes[1000 + len(self._sizes)] = of[1]
            self.used += of[1]
        elif name == "cuMemFree_v2":
            self.used -= self._sizes.pop(of[0])
        elif name == "cuMemsetD8Async":
            self.filled += of[2]


def test_the_other_program_takes_what_it_can_and_gives_it_back() -> None:
    gpu: Any = Gpu(1024 * MIB)
    said = io.StringIO()
    questions = [json.dumps({"leave": leave}) for leave in (600 * MIB, 0, 0)]
    gpu_neighbours.hold(gpu, iter(questions), said)
    first, second, third = (json.loads(line) for line in said.getvalue().splitlines())
    assert first == {"held": 424 * MIB, "free": 600 * MIB}
    assert 900 * MIB < second["held"] == third["held"] <= 984 * MIB
    assert gpu.filled == second["held"]
    assert gpu.used == 0
