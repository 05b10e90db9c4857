"""A load that is cancelled ends at once, wherever it is, and gives back what it had."""

from __future__ import annotations

import gc
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fakes.gpu_machine import FakeGpuMachine
from samples.tiny_model import make_tiny_model

from engine.config import EngineConfig
from engine.errors import Cancelled
from engine.gpu.trial import self_test
from engine.job import Job, run_cancellable
from engine.placement import solving
from engine.service import protocol
from engine.service.host import EngineHost
from engine.session import load_stages
from engine.session.loaded_model import LoadedModel
from native_kernels.cuda.runtime import modules

PATIENCE_S = 20.0  # less than what is waited for takes


class Wish:
    """Becomes true when somebody says so, and notes when. at: the how-manieth question is the last."""

    def __init__(self, at: int | None = None) -> None:
        self.asked, self.at = 0, at
        self.since: float | None = None

    def __call__(self) -> bool:
        self.asked += 1
        if self.at is not None and self.asked >= self.at:
            self.cancel()
        return self.since is not None

    def cancel(self) -> None:
        if self.since is None:
            self.since = time.perf_counter()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "m", d_ff=256)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpuMachine:
    return FakeGpuMachine(tmp_path, monkeypatch)


# --- work that asks nobody


def test_whoever_waits_leaves_at_once() -> None:
    done = threading.Event()
    wish = Wish()
    threading.Timer(0.1, wish.cancel).start()
    with pytest.raises(Cancelled):
        run_cancellable(wish, lambda: done.wait(60), "test work")
    assert wish.since is not None
    assert time.perf_counter() - wish.since < PATIENCE_S
    done.set()


def test_what_work_returns_and_raises_is_passed_on() -> None:
    assert run_cancellable(lambda: False, lambda: 7, "test work") == 7
    with pytest.raises(ZeroDivisionError):
        run_cancellable(lambda: False, lambda: 1 // 0, "test work")
    with pytest.raises(Cancelled):
        run_cancellable(lambda: True, lambda: 7, "test work")


# --- every moment of a load


def at_every_question(path: Path, engine: EngineConfig) -> int:
    """Loads it again and again, cancelled one question later each time, until it is loaded. How often that was."""
    for at in range(1, 500):
        wish = Wish(at)
        try:
            LoadedModel.load(path, engine, job=Job(wish)).close()
        except Cancelled:
            assert wish.since is not None
            assert time.perf_counter() - wish.since < PATIENCE_S
            continue
        assert wish.since is None, "whoever cancels before the end has no model"
        return at
    raise AssertionError("it is never loaded")


def test_at_every_question_of_a_load_with_a_gpu(machine: FakeGpuMachine, tiny: Path) -> None:
    """It is cancelled at each moment at which somebody looks: nothing is left on the GPU, and it is closed."""
    engine = EngineConfig(device="cuda", threads=1, hardware_file=str(tiny.parent / "slow.json"))
    assert at_every_question(tiny, engine) > 20
    assert all(gpu.closed and not gpu.used_bytes for gpu in machine.gpus)


def test_at_every_question_of_a_load_without_one(tiny: Path) -> None:
    engine = EngineConfig(device="cpu", threads=1)
    assert at_every_question(tiny, engine) > 10


def slowly(patch: pytest.MonkeyPatch, owner: Any, name: str, started: threading.Event, ends: threading.Event) -> None:
    """The function takes until `ends`, and says when it has begun."""

    def slow(*of: Any, **named: Any) -> Any:
        started.set()
        ends.wait(60)
        raise AssertionError("nobody waits for this")

    patch.setattr(owner, name, slow)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(load_stages, "open_model"), (load_stages, "read_tokenizer"), (solving, "solve")],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_in_the_midst_of_what_asks_nobody(
    machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    started, ends, wish = threading.Event(), threading.Event(), Wish()
    slowly(monkeypatch, owner, name, started, ends)

    def cancel_when_begun() -> None:
        started.wait(60)
        wish.cancel()

    threading.Thread(target=cancel_when_begun, daemon=True).start()
    engine = EngineConfig(device="cuda", threads=1, hardware_file=str(tiny.parent / "slow.json"))
    with pytest.raises(Cancelled):
        LoadedModel.load(tiny, engine, job=Job(wish))
    assert wish.since is not None
    assert time.perf_counter() - wish.since < PATIENCE_S
    assert all(gpu.closed and not gpu.used_bytes for gpu in machine.gpus)
    ends.set()


def test_while_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.loading.backends import _compile
    from native_kernels.cpu.runtime.jit import Kernel

    started, ends, wish = threading.Event(), threading.Event(), Wish()

    class SlowKernel(Kernel):
        @property
        def is_ready(self) -> bool:
            return False

        @property
        def address(self) -> int:
            started.set()
            ends.wait(60)
            return 1

    def cancel_when_begun() -> None:
        started.wait(60)
        wish.cancel()

    threading.Thread(target=cancel_when_begun, daemon=True).start()
    with pytest.raises(Cancelled):
        _compile([SlowKernel(lambda *of: None, "slow")], Job(wish))
    assert wish.since is not None
    assert time.perf_counter() - wish.since < PATIENCE_S
    ends.set()


def test_between_two_files_of_the_gpus_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    class Device:
        capability, tested_as = (8, 9), None

    loaded: list[str] = []
    monkeypatch.setattr(modules, "machine_code", lambda name, *of: name)
    monkeypatch.setattr(modules, "Module", lambda device, code, waits: loaded.append(code))

    def look() -> None:
        if len(loaded) == 2:
            raise Cancelled

    def load_three() -> None:
        with modules.interrupted_by(look):
            for name in ("a", "b", "c"):
                modules.load(device, name)

    device: Any = Device()
    with pytest.raises(Cancelled):
        load_three()
    modules.load(device, "d")  # nobody looks any more
    assert loaded == ["a", "b", "d"]


def test_while_the_gpu_is_tried_out(machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wish = Wish()

    def tried(*gpu: Any) -> self_test.Findings:
        wish.cancel()
        return self_test.Findings(captures=True)

    monkeypatch.setattr(self_test, "tried", tried)
    engine = EngineConfig(device="cuda", threads=1, hardware_file=str(tiny.parent / "slow.json"))
    with pytest.raises(Cancelled):
        LoadedModel.load(tiny, engine, job=Job(wish))
    assert machine.gpus[0].closed


# --- memory, and the host


def test_memory_is_back(machine: FakeGpuMachine, tmp_path: Path) -> None:
    """Weights of 100 MB and the GPU's part of them are gone."""
    import psutil

    path = make_tiny_model(tmp_path / "big", d_model=512, d_ff=4096, n_layers=4, n_heads=8, n_kv_heads=8)
    engine = EngineConfig(device="cuda", threads=1, hardware_file=str(tmp_path / "slow.json"), backend="kernels")
    LoadedModel.load(path, engine).close()
    gc.collect()
    process = psutil.Process()
    before = process.memory_info().rss
    wish, largest = Wish(), 0

    def progress(done: int, total: int) -> None:
        nonlocal largest
        largest = max(largest, process.memory_info().rss - before)
        if len(machine.gpus) == 2 and done > total // 2:  # on its way to the GPU
            wish.cancel()

    with pytest.raises(Cancelled):
        LoadedModel.load(path, engine, Job(wish, progress))
    assert wish.since is not None
    gc.collect()
    while time.perf_counter() - wish.since < 60 and process.memory_info().rss - before > largest // 2 + (8 << 20):
        time.sleep(0.05)
    assert largest > 50 << 20
    assert process.memory_info().rss - before <= largest // 2 + (8 << 20)
    assert machine.gpus[-1].used_bytes == 0
    assert machine.gpus[-1].closed


def test_the_host_answers_a_cancelled_load_and_loads_another(machine: FakeGpuMachine, tiny: Path) -> None:
    events: list[protocol.Event] = []
    host = EngineHost(events.append)
    engine = {"device": "cuda", "threads": 1, "hardware_file": str(tiny.parent / "slow.json")}
    host.submit(protocol.Load("1", str(tiny), engine))
    host.submit(protocol.Cancel("2", target="1"))
    host.submit(protocol.Load("3", str(tiny), engine))
    host.submit(protocol.Unload("4"))
    host.run_pending()
    ends = {event.id: event.result for event in events if isinstance(event, protocol.Finished)}
    assert ends["1"] == {"cancelled": True}
    assert ends["3"]["device"] == "cuda"
    assert all(gpu.closed and not gpu.used_bytes for gpu in machine.gpus)
