"""Memory of a GPU that other programs want and leave again: given back, taken again, and not pushed to and fro."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.gpu_machine import GIB, FakeGpuMachine
from samples.tiny_model import make_tiny_model

from engine.config import SamplingConfig
from engine.errors import DeviceFailedError
from engine.gpu import vram_policy
from engine.gpu.trial import budget
from engine.gpu.vram_policy import FLOOR_BYTES, LEAST_GAIN_BYTES, LOOK_EVERY_S, TAKE_BACK_EVERY_S, VramPolicy
from engine.service import protocol
from engine.service.host import EngineHost
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from native_kernels.cuda.runtime.driver import CudaOutOfMemoryError

MIB = 1 << 20
GREEDY = SamplingConfig().changed({"temperature": 0, "max_tokens": 6})
PROMPT = [1, 5, 9, 40, 7]


class Clock:
    """Seconds that pass when somebody says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Free:
    """What nobody holds of the GPU, as its driver would tell."""

    def __init__(self) -> None:
        self.n_bytes: int | None = 4 * GIB

    def __call__(self, index: int | None) -> int | None:
        return self.n_bytes


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Free:
    told = Free()
    monkeypatch.setattr(budget, "free_bytes", told)
    return told


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpuMachine]:
    made = FakeGpuMachine(tmp_path, monkeypatch)
    monkeypatch.setattr(vram_policy, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(vram_policy, "TAKE_BACK_EVERY_S", 0.0)
    monkeypatch.setattr(vram_policy, "LEAST_GAIN_BYTES", 0)
    monkeypatch.setattr(vram_policy, "LEAST_GAIN_SHARE", 1e-9)
    monkeypatch.setattr(vram_policy.memory_plan, "BUDGET_STEP_BYTES", 1)
    yield made
    for gpu in made.gpus:
        gpu.close()


def answer(model: LoadedModel | ChatSession) -> list[int]:
    session = model if isinstance(model, ChatSession) else ChatSession(model)
    return [event.token_id for event in session.generate(PROMPT, GREEDY) if event.token_id is not None]


# --- the rules


def looks(rules: VramPolicy, clock: Clock, free: int, held: int, budget_bytes: int) -> Callable[[], int | None]:
    def look() -> int | None:
        clock.now += LOOK_EVERY_S
        return rules.to_take_back(free, held, 24 * GIB, budget_bytes)

    return look


def test_memory_is_taken_again_after_a_minute_when_it_has_stayed_free() -> None:
    clock = Clock()
    rules = VramPolicy(True, clock)
    rules.shrink(20 * GIB, 100 * MIB)
    assert rules.limit == 16 * GIB
    look = looks(rules, clock, 8 * GIB, 15 * GIB, 16 * GIB)
    found = []
    while not found or found[-1] is None:
        found.append(look())
    assert len(found) * LOOK_EVERY_S >= TAKE_BACK_EVERY_S
    margin = int(0.04 * 24 * GIB)
    assert found[-1] is not None
    assert 0 <= 23 * GIB - margin - found[-1] < 128 * MIB


def test_what_is_free_for_a_moment_only_is_left_alone() -> None:
    clock = Clock()
    rules = VramPolicy(True, clock)
    rules.shrink(20 * GIB, 0)
    clock.now += 2 * TAKE_BACK_EVERY_S
    assert looks(rules, clock, 8 * GIB, 15 * GIB, 16 * GIB)() is None  # the first look
    assert looks(rules, clock, 0, 15 * GIB, 16 * GIB)() is None
    assert looks(rules, clock, 8 * GIB, 15 * GIB, 16 * GIB)() is None  # the first again
    assert looks(rules, clock, 7 * GIB, 15 * GIB, 16 * GIB)() is not None


def test_between_giving_and_taking_lies_a_gap() -> None:
    """With anything between the two borders free, nothing is done, so that two programs do not push each other."""
    clock = Clock()
    rules = VramPolicy(True, clock)
    rules.shrink(10 * GIB, 0)
    for free in range(FLOOR_BYTES, int(0.04 * 24 * GIB) + LEAST_GAIN_BYTES, 64 * MIB):
        assert not rules.is_short(free)
        clock.now += 10 * TAKE_BACK_EVERY_S
        look = looks(rules, clock, free, 8 * GIB, 8 * GIB)
        assert (look(), look()) == (None, None)
    assert rules.is_short(FLOOR_BYTES - 1)


def test_a_budget_that_somebody_gave_is_neither_shrunk_nor_grown() -> None:
    clock = Clock()
    rules = VramPolicy(False, clock)
    assert not rules.is_short(0)
    clock.now += 10 * TAKE_BACK_EVERY_S
    look = looks(rules, clock, 20 * GIB, GIB, GIB)
    assert (look(), look(), look()) == (None, None, None)


def test_after_a_try_that_failed_the_next_comes_later() -> None:
    clock = Clock()
    rules = VramPolicy(True, clock)
    waited = []
    for _ in range(6):
        rules.failed()
        started = clock.now
        look = looks(rules, clock, 20 * GIB, GIB, GIB)
        while look() is None:
            pass
        waited.append(clock.now - started)
    assert waited == sorted(waited)
    assert waited[0] >= 2 * TAKE_BACK_EVERY_S
    assert waited[-1] <= 610
    rules.worked()
    rules.taken(None)
    started, look = clock.now, looks(rules, clock, 20 * GIB, GIB, GIB)
    while look() is None:
        pass
    assert clock.now - started <= TAKE_BACK_EVERY_S + LOOK_EVERY_S


def test_nobody_says_what_is_free() -> None:
    clock = Clock()
    rules = VramPolicy(True, clock)
    clock.now += 100
    assert not rules.is_short(None)
    assert rules.to_take_back(None, 0, GIB, 0) is None


# --- a loaded model


def give_back_some(machine: FakeGpuMachine, path: Path, free: Free, monkeypatch: pytest.MonkeyPatch) -> LoadedModel:
    """A model that has given back a part of its memory."""
    model = machine.load(path)
    assert model.on_gpu is not None
    monkeypatch.setattr(vram_policy, "SMALLER", 0.999)
    monkeypatch.setattr(vram_policy.memory_plan, "LEAST_MARGIN_BYTES", 1)
    free.n_bytes = 0
    model.on_gpu.balance()
    free.n_bytes = 4 * GIB
    return model


def test_it_is_given_back_and_taken_again_with_the_same_answers(
    machine: FakeGpuMachine, tmp_path: Path, free: Free, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_tiny_model(tmp_path / "m", d_ff=256)
    whole = machine.load(path)
    assert whole.gpu is not None
    all_of_it, first = whole.gpu.placement, answer(whole)
    whole.close()
    model = give_back_some(machine, path, free, monkeypatch)
    session = ChatSession(model)
    assert model.gpu is not None
    assert model.gpu.placement.vram_bytes < all_of_it.vram_bytes
    assert len(model.gpu.notes) == 1
    assert "short" in model.gpu.notes[0]
    assert answer(session) == first
    generation = model.generation
    for _ in range(3):
        model.residency.balance()
    assert model.generation > generation
    assert model.gpu.placement.vram_bytes == all_of_it.vram_bytes
    assert "free again" in model.gpu.notes[-1]
    assert answer(session) == first
    generation = model.generation
    for _ in range(5):  # all is there: nothing is placed anew
        model.residency.balance()
    assert model.generation == generation
    model.close()
    assert all(gpu.closed and not gpu.used_bytes for gpu in machine.gpus)


def test_a_gpu_that_was_lost_to_others_comes_back(
    machine: FakeGpuMachine, tmp_path: Path, free: Free, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = machine.load(make_tiny_model(tmp_path / "m"))
    session = ChatSession(model)
    first = answer(session)
    assert model.on_gpu is not None
    free.n_bytes = 0
    model.on_gpu.balance()
    assert model.device == "cpu"
    assert machine.gpus[0].closed
    assert "is not used any more" in model.device_reason
    assert answer(session) == first
    model.on_gpu.balance()  # others have it still
    assert model.device == "cpu"
    free.n_bytes = 4 * GIB
    for _ in range(3):
        model.on_gpu.balance()
    assert model.device == "cuda"
    assert len(machine.gpus) == 2
    assert answer(session) == first
    model.close()
    assert all(gpu.closed and not gpu.used_bytes for gpu in machine.gpus)
    assert model.on_gpu.balance() is None


def test_a_gpu_that_others_held_at_loading_is_used_when_they_leave_it(
    machine: FakeGpuMachine, tmp_path: Path, free: Free
) -> None:
    from dataclasses import replace

    from engine.machine.hardware import HardwareProfile

    file = tmp_path / "slow.json"
    profile = HardwareProfile.load(file)
    replace(profile, gpus=tuple(replace(gpu, free_bytes=100 * MIB) for gpu in profile.gpus)).save(file)
    free.n_bytes = 100 * MIB
    model = machine.load(make_tiny_model(tmp_path / "m"), device="auto")
    assert (model.device, model.gpu) == ("cpu", None)
    assert "budget" in model.device_reason
    assert model.on_gpu is not None
    assert all(gpu.closed for gpu in machine.gpus)
    session = ChatSession(model)
    first = answer(session)
    for _ in range(3):
        model.on_gpu.balance()
    assert model.device == "cpu"
    free.n_bytes = 4 * GIB
    for _ in range(3):
        model.on_gpu.balance()
    assert model.device == "cuda"
    assert answer(session) == first
    model.close()
    assert all(gpu.closed and not gpu.used_bytes for gpu in machine.gpus)


def test_a_gpu_that_failed_does_not_come_back(machine: FakeGpuMachine, tmp_path: Path, free: Free) -> None:
    model = machine.load(make_tiny_model(tmp_path / "m"))
    assert model.on_gpu is not None
    model.on_gpu.give_up("it failed")
    for _ in range(4):
        assert model.on_gpu.balance() is None
    assert model.device == "cpu"
    assert len(machine.gpus) == 1


def test_who_asks_meanwhile_stops_it_before_anything_has_moved(
    machine: FakeGpuMachine, tmp_path: Path, free: Free, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = give_back_some(machine, make_tiny_model(tmp_path / "m", d_ff=256), free, monkeypatch)
    assert model.gpu is not None
    before, generation = model.gpu.placement.vram_bytes, model.generation
    for _ in range(3):
        model.residency.balance(lambda: True)
    assert (model.gpu.placement.vram_bytes, model.generation) == (before, generation)
    for _ in range(3):
        model.residency.balance()
    assert model.gpu.placement.vram_bytes > before
    model.close()


def test_where_it_cannot_be_had_after_all_the_model_goes_on(
    machine: FakeGpuMachine, tmp_path: Path, free: Free, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = give_back_some(machine, make_tiny_model(tmp_path / "m", d_ff=256), free, monkeypatch)
    assert model.gpu is not None
    first = answer(model)
    allocate, refused = machine.gpus[0].allocate, []

    def refuses(n_bytes: int) -> Any:
        if not refused:
            refused.append(n_bytes)
            raise CudaOutOfMemoryError("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY")
        return allocate(n_bytes)

    monkeypatch.setattr(machine.gpus[0], "allocate", refuses)
    for _ in range(3):
        model.residency.balance()
    assert refused
    assert model.gpu is not None
    assert answer(model) == first
    model.close()
    assert machine.gpus[0].used_bytes == 0


def test_a_given_budget_is_kept(machine: FakeGpuMachine, tmp_path: Path, free: Free) -> None:
    model = machine.load(make_tiny_model(tmp_path / "m"), vram_budget_gib=3)
    assert model.gpu is not None
    generation = model.generation
    free.n_bytes = 0
    assert model.residency.balance() is None
    assert model.generation == generation
    model.close()


# --- notes


def test_the_host_tells_where_the_model_is_now(machine: FakeGpuMachine, tmp_path: Path, free: Free) -> None:
    path = make_tiny_model(tmp_path / "m")
    events: list[protocol.Event] = []
    host = EngineHost(events.append)
    engine = {"device": "cuda", "threads": 1, "hardware_file": str(tmp_path / "slow.json")}
    host.submit(protocol.Load("1", str(path), engine))
    host.run_pending()
    [loaded] = [event for event in events if isinstance(event, protocol.Finished)]
    assert loaded.result["placement"]["line"].startswith("A GPU: 100% ")
    assert host._idle() is not None
    assert not [event for event in events if isinstance(event, protocol.News)]
    free.n_bytes = 0
    host._idle()
    free.n_bytes = 4 * GIB
    for _ in range(3):
        host._idle()
    away, back = (event for event in events if isinstance(event, protocol.News))
    assert (away.topic, away.values["device"]) == ("model", "cpu")
    assert away.values["placement"]["vram_bytes"] == 0
    assert any("ran short" in note for note in away.values["notes"])
    assert back.values["device"] == "cuda"
    assert back.values["vram_bytes"] > 0
    assert back.values["placement"] == {**loaded.result["placement"], "why": back.values["placement"]["why"]}
    assert any("free again" in sentence for sentence in back.values["placement"]["why"])
    host.submit(protocol.Unload("2"))
    host.run_pending()
    assert all(gpu.closed and not gpu.used_bytes for gpu in machine.gpus)
    assert host._idle() is None


# --- memory that runs out in an answer


def runs_out(monkeypatch: pytest.MonkeyPatch, after: int, times: int) -> list[int]:
    """The GPU has no memory for so many of the tokens behind the first `after`. Which of them failed comes back."""
    from engine.gpu.token.decode_program import GpuDecodeProgram

    failed: list[int] = []
    hidden, asked = GpuDecodeProgram.hidden, [0]

    def fails(self: GpuDecodeProgram, *of: Any) -> Any:
        asked[0] += 1
        if asked[0] > after and len(failed) < times:
            failed.append(asked[0])
            error = DeviceFailedError("The GPU failed: no memory.")
            raise error from CudaOutOfMemoryError("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY")
        return hidden(self, *of)

    monkeypatch.setattr(GpuDecodeProgram, "hidden", fails)
    return failed


@pytest.mark.parametrize("times", [1, 2])
def test_an_answer_goes_on_with_less_on_the_gpu(
    machine: FakeGpuMachine, tmp_path: Path, free: Free, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(vram_policy, "SMALLER", 0.999)
    model = machine.load(make_tiny_model(tmp_path / "m", d_ff=256))
    first = answer(model)
    assert model.gpu is not None
    before = model.gpu.placement.vram_bytes
    failed = runs_out(monkeypatch, after=2, times=times)
    assert answer(model) == first
    assert len(failed) == times
    assert model.gpu is not None
    assert model.gpu.placement.vram_bytes < before
    assert "ran short" in model.gpu.notes[-1]
    model.close()
