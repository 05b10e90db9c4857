"""A model with its part on a GPU: the same answers, less of it where memory is short, the CPU where it fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from fakes.gpu import FakeGpu
from fakes.gpu_machine import GIB, FakeGpuMachine
from fakes.prefill import HostDevice
from samples.placements import a_placement
from samples.tiny_model import make_tiny_gguf, make_tiny_model
from support.systems import needs_pinned_ram

from engine.config import EngineConfig, SamplingConfig
from engine.conversion.convert import convert
from engine.errors import DeviceFailedError, DeviceMemoryError, DeviceUnavailableError
from engine.executor.adaptation import Adaptation
from engine.gpu import background_reads, loaded_part, prompt_setup, vram_policy
from engine.gpu.placed_model import PlacedModel
from engine.gpu.prefill import pinned_weights
from engine.gpu.prefill.pinned_weights import PinnedWeights
from engine.gpu.residency import GpuResidency
from engine.gpu.trial import budget, choice, self_test
from engine.job import Job
from engine.machine.cpu_and_ram import RamInfo
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile
from engine.model.weights import load_weights
from engine.placement import memory_plan, setting
from engine.placement.model_bytes import ModelBytes
from engine.session import load_stages
from engine.session.chat_session import ChatSession
from engine.session.drafting import Drafting
from engine.session.loaded_model import LoadedModel
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError, CudaUnavailableError
from native_kernels.cuda.runtime.modules import NoMachineCodeError

GREEDY = SamplingConfig().changed({"temperature": 0, "max_tokens": 6})
PROMPT = [1, 5, 9, 40, 7]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpuMachine]:
    """Whose GPUs hold nothing behind a test, which closes its models."""
    made = FakeGpuMachine(tmp_path, monkeypatch)
    yield made
    left = [gpu.used_bytes for gpu in made.gpus]
    for gpu in made.gpus:
        gpu.close()
    assert not any(left)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "m")


def answer(model: LoadedModel | ChatSession, prompt: list[int] = PROMPT) -> list[int]:
    session = model if isinstance(model, ChatSession) else ChatSession(model)
    return [event.token_id for event in session.generate(prompt, GREEDY) if event.token_id is not None]


def on_cpu(path: Path, **changes: Any) -> LoadedModel:
    return LoadedModel.load(path, EngineConfig(device="cpu", threads=1, **changes))


# --- answers


def test_the_same_answer_as_the_cpu(machine: FakeGpuMachine, tiny: Path) -> None:
    model = machine.load(tiny)
    assert model.device == "cuda"
    assert model.gpu is not None
    assert model.gpu.placement.head == "gpu"
    assert "A GPU" in model.device_reason
    *_, last = ChatSession(model).generate(PROMPT, GREEDY)
    assert last.stats.gpu_neuron_load == 1
    assert answer(model) == answer(on_cpu(tiny))
    assert model.vram_bytes == sum(model.gpu.part_bytes.values()) > 0
    assert model.gpu.part_bytes.keys() == {*model.gpu.placement.vram_parts_bytes}
    model.close()
    model.close()
    assert machine.gpus[0].used_bytes == 0
    assert machine.gpus[0].closed
    assert (model.device, model.vram_bytes) == ("cpu", 0)


def test_prompts_get_the_memory_that_the_placement_left_for_them(
    machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: set[tuple[int, ...]] = set()

    def prefill_bytes(model: ModelBytes, *of: int) -> int:
        planned.add(of)
        return 24 << 20

    monkeypatch.setattr(memory_plan, "prefill_bytes", prefill_bytes)
    model = machine.load(tiny, sequences=3)
    assert model.gpu is not None
    before, part = set(planned), model.gpu._loaded_part
    opened: Any = SimpleNamespace(gpu=SimpleNamespace(device=None), info=part._opened.info, cpu_bytes_per_s=1e9)
    monkeypatch.setattr(prompt_setup, "CudaGpu", SimpleNamespace)
    monkeypatch.setattr(prompt_setup, "Prompts", lambda *of: None)
    planned.clear()
    assert prompt_setup.open_prompts(opened, part._base, part.loaded, None) is not None  # type: ignore[arg-type]
    assert planned
    assert planned <= before
    model.close()


def test_row_wise_too(machine: FakeGpuMachine, tmp_path: Path) -> None:
    path = make_tiny_gguf(tmp_path / "m.gguf")
    model = machine.load(path)
    assert model.weights.down_is_row_wise
    assert model.hot_blocks is None
    assert len(answer(model)) == len(answer(on_cpu(path)))
    model.close()


def test_all_that_it_holds_is_counted_and_planned(machine: FakeGpuMachine, tiny: Path) -> None:
    model = machine.load(tiny)
    gpu = model.gpu
    assert gpu is not None
    answer(model)
    parts = gpu.part_bytes
    held = machine.gpus[0].used_bytes
    assert held <= sum(parts.values()) - parts["context"]
    planned = gpu.placement.vram_parts_bytes
    assert all(parts[name] <= planned[name] for name in planned), (parts, planned)
    assert gpu.placement.vram_bytes <= gpu.placement.origins.vram_budget_bytes
    model.close()


def test_two_modes_of_one_model(machine: FakeGpuMachine, tiny: Path) -> None:
    model = machine.load(tiny)
    session = ChatSession(model)
    first = answer(session)
    session.set_mode("dense")
    assert answer(session) == first
    assert model.resolve_mode("auto") == "exact"
    model.close()


def test_predictors_follow_when_they_are_asked_for(machine: FakeGpuMachine, tmp_path: Path) -> None:
    from samples.raw_gguf import make_tiny_powerinfer

    path = make_tiny_powerinfer(tmp_path / "p.gguf", rank=8)
    model, other = machine.load(path, mode="exact"), on_cpu(path)
    assert model.gpu is not None
    session, theirs = ChatSession(model), ChatSession(other, "exact")
    assert answer(session) == answer(theirs)
    generation = model.generation
    for one in (session, theirs):
        one.set_mode("sparse")
    assert answer(session) == answer(theirs)
    assert model.generation == generation
    assert model.gpu.part_bytes["predictors"] > 0
    model.close()


def test_the_model_is_placed_anew_where_there_is_no_room_for_predictors(
    machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from samples.raw_gguf import make_tiny_powerinfer

    machine.make = SmallGpu
    path = make_tiny_powerinfer(tmp_path / "p.gguf", rank=8)
    model = machine.load(path, mode="exact")
    session = ChatSession(model)
    answer(session)
    generation = model.generation
    monkeypatch.setattr(SmallGpu, "limits", [1000])
    session.set_mode("sparse")
    assert model.generation > generation
    assert model.device == "cuda"
    assert answer(session) == answer(ChatSession(on_cpu(path), "sparse"))
    model.close()


# --- memory that runs short


class SmallGpu(FakeGpu):
    """Refuses what is larger than a limit, the first times."""

    limits: ClassVar[list[int]] = []

    def allocate(self, n_bytes: int) -> Any:
        if self.limits and n_bytes > self.limits[0]:
            self.limits.pop(0)
            raise CudaOutOfMemoryError("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY")
        return super().allocate(n_bytes)


def test_with_less_room_where_memory_runs_out(
    machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.make = SmallGpu
    monkeypatch.setattr(SmallGpu, "limits", [50_000])
    monkeypatch.setattr(vram_policy, "SMALLER", 0.9999)  # the buffers are most of it
    model = machine.load(tiny)
    assert model.gpu is not None
    assert any("was not available" in note for note in model.gpu.notes)
    assert answer(model) == answer(on_cpu(tiny))
    model.close()


def test_what_a_model_holds_of_the_ram_is_not_counted_twice(
    machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is loaded there is room for it; then it lies there, and it is placed, and later placed anew."""
    profile = HardwareProfile.load(tiny.parent / "slow.json")
    before, after = (RamInfo(4 * GIB, int(gib * GIB)) for gib in (2.5, 1.0))
    replace(profile, ram=before).save(tiny.parent / "slow.json")
    monkeypatch.setattr(setting, "load_profile", lambda file: replace(profile, ram=after))
    monkeypatch.setattr(vram_policy, "SMALLER", 0.9999)
    model = machine.load(tiny)
    assert model.gpu is not None
    generation, first = model.generation, answer(model)
    model.residency.make_room(at_once=True)
    assert model.gpu is not None, model.device_reason
    assert model.generation > generation
    assert answer(model) == first
    model.close()


def test_the_cpu_computes_where_memory_always_runs_out(
    machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.make = SmallGpu
    monkeypatch.setattr(SmallGpu, "limits", [10] * 9)
    monkeypatch.setattr(vram_policy, "SMALLER", 0.9999)
    model = machine.load(tiny, device="auto")
    assert model.device == "cpu"
    assert "A GPU ran out 3 times" in model.device_reason
    assert machine.gpus[0].used_bytes == 0
    assert machine.gpus[0].closed
    monkeypatch.setattr(SmallGpu, "limits", [10] * 9)
    with pytest.raises(DeviceUnavailableError, match="A GPU ran out"):
        machine.load(tiny)


def test_memory_is_given_back_where_others_need_it(
    machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vram_policy, "SMALLER", 0.9999)
    model = machine.load(tiny)
    assert model.gpu is not None
    session = ChatSession(model)
    first = answer(session)
    before, generation = model.gpu.placement.vram_bytes, model.generation
    free = iter([1 << 20])
    monkeypatch.setattr(budget, "free_bytes", lambda index: next(free, 4 * GIB))
    monkeypatch.setattr(vram_policy.memory_plan, "LEAST_MARGIN_BYTES", (1 << 20) + 4096)
    assert answer(session) == first
    assert model.generation > generation
    assert model.gpu.placement.vram_bytes < before
    assert any("ran short" in note for note in model.gpu.notes)
    assert answer(session) == first
    model.close()


def test_the_cpu_computes_where_others_need_all_of_it(
    machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = machine.load(tiny)
    session = ChatSession(model)
    first = answer(session)
    monkeypatch.setattr(budget, "free_bytes", lambda index: 0)
    assert answer(session) == first
    assert model.device == "cpu"
    assert "budget" in model.device_reason
    assert machine.gpus[0].used_bytes == 0
    assert answer(session) == first


def drafted(machine: FakeGpuMachine, tiny: Path, **changes: Any) -> tuple[LoadedModel, ChatSession, Drafting]:
    """Return a model with itself as its draft, and a session with both."""
    model = machine.load(tiny, draft=str(tiny), **changes)
    session = ChatSession(model)
    session.drafting = drafting = Drafting(model)
    drafting.load(Job())
    assert drafting.draft is not None
    return model, session, drafting


def test_a_draft_is_on_the_gpu_if_the_model_leaves_room_there(machine: FakeGpuMachine, tiny: Path) -> None:
    model, session, drafting = drafted(machine, tiny)
    assert drafting.draft is not None
    assert drafting.draft.model.gpu is not None
    assert drafting.draft.model.gpu.is_whole
    assert model.gpu is not None
    assert drafting.draft.model.gpu.placement.vram_bytes <= model.gpu.placement.origins.vram_budget_bytes
    assert answer(session) == answer(on_cpu(tiny))
    session.close()
    model.close()


def test_a_draft_takes_nothing_from_the_budget_of_the_model(
    machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GpuResidency, "spare_bytes", lambda gpu: 1000)
    model, session, drafting = drafted(machine, tiny)
    assert drafting.draft is not None
    assert drafting.draft.model.device == "cpu"
    assert len(machine.gpus) == 1
    session.close()
    model.close()


def test_a_draft_goes_before_the_model_where_memory_runs_short(
    machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, session, drafting = drafted(machine, tiny)
    first, generation = answer(session), model.generation
    free = iter([1 << 20])
    monkeypatch.setattr(budget, "free_bytes", lambda index: next(free, 4 * GIB))
    assert answer(session) == first
    assert drafting.draft is None
    assert model.generation == generation, "the model stayed as it was"
    drafting.load(Job())
    assert drafting.draft is not None
    assert drafting.draft.model.device == "cpu"
    session.close()
    model.close()


# --- a GPU that fails


@pytest.mark.parametrize("passes", [False, True])
def test_a_fault_ends_the_answer_and_the_cpu_goes_on_unless_it_passes(
    machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch, passes: bool
) -> None:
    monkeypatch.setattr(loaded_part, "PATIENCE_S", 0.5)
    model, gpu = machine.load(tiny), machine.gpus[0]
    session = ChatSession(model)
    first = answer(session)

    def fails() -> None:
        raise CudaError("cuStreamSynchronize", 719, "CUDA_ERROR_LAUNCH_FAILED")

    events = session.generate(PROMPT, GREEDY)
    next(events)
    gpu.between(fails)
    if not passes:
        monkeypatch.setattr(gpu, "synchronize", fails)
    with pytest.raises(DeviceFailedError) as failed:
        list(events)
    assert passes or "the CPU" in failed.value.hint
    assert passes or "GPU" in model.device_reason
    assert model.device == ("cuda" if passes else "cpu")
    assert answer(session) == first
    model.close()


# --- why not


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CudaUnavailableError("no NVIDIA driver is installed"), "NVIDIA driver"),
        (NoMachineCodeError("there are no kernels for compute capability 6.1"), "6\\.1"),
        (CudaOutOfMemoryError("cuCtx", 2, "CUDA_ERROR_OUT_OF_MEMORY"), "memory of A GPU"),
        (CudaError("cuInit", 999, "CUDA_ERROR_UNKNOWN"), r"A GPU .*cuInit"),
    ],
)
def test_a_gpu_that_cannot_be_opened_is_a_reason(
    error: Exception, words: str, machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opens(gpu: GpuInfo) -> FakeGpu:
        raise error

    monkeypatch.setattr(choice, "open_gpu", opens)
    model = machine.load(tiny, device="auto")
    assert model.device == "cpu"
    assert re.search(words, model.device_reason)
    with pytest.raises(DeviceUnavailableError, match=words) as refused:
        machine.load(tiny)
    assert refused.value.hint == "Use --device cpu."


def test_a_gpu_that_computes_wrongly_is_not_used(
    machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_test, "tried", lambda *gpu: self_test.Findings(("multiply in f16",)))
    model = machine.load(tiny, device="auto")
    assert "test" in model.device_reason
    assert machine.gpus[0].closed


def test_reasons_that_need_no_gpu(machine: FakeGpuMachine, tiny: Path) -> None:
    cases: list[tuple[Callable[[], LoadedModel], str]] = [
        (lambda: machine.load(tiny, device="cpu"), "as requested"),
        (lambda: machine.load(tiny, device="auto", backend="reference"), "as requested"),
        (lambda: machine.load(tiny, device="auto", hardware_file="no-gpu"), "CPU only"),
        (lambda: machine.load(tiny, device="auto", hardware_file="pc-high"), "placed"),
        (lambda: machine.load(tiny, device="auto", vram_budget_gib=0.01), "budget"),
    ]
    for load, words in cases:
        model = load()
        assert model.device == "cpu"
        assert words in model.device_reason
    assert all(gpu.closed and not gpu.used_bytes for gpu in machine.gpus)
    with pytest.raises(DeviceMemoryError, match="are needed"):
        machine.load(tiny, vram_budget_gib=0.01)


def test_logits_of_every_position_are_those_of_the_cpu(machine: FakeGpuMachine, tiny: Path) -> None:
    from engine.evaluation.evaluate import last_logits

    model, other = machine.load(tiny), on_cpu(tiny)
    tokens = list(range(3, 15))
    ours, theirs = last_logits(model, tokens, every=True), last_logits(other, tokens, every=True)
    np.testing.assert_allclose(ours, theirs, atol=2e-3 * np.abs(theirs).max())
    model.close()


def test_a_placement_that_cannot_be_kept_is_no_reason_not_to_use_the_gpu(
    machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.bundle import artefacts
    from engine.errors import DiskSpaceError
    from engine.model.model_files import open_model
    from engine.placement.solving import solve_model

    def saves(*of: Any) -> Path:
        raise DiskSpaceError("The disk is full.")

    monkeypatch.setattr(artefacts, "save_placement", saves)
    model = machine.load(tiny)
    assert model.device == "cuda"
    model.close()
    with pytest.raises(DiskSpaceError):
        solve_model(open_model(tiny), EngineConfig(hardware_file="pc-high"))


# --- conversations and learning


def test_two_conversations_take_turns_on_the_gpu(machine: FakeGpuMachine, tiny: Path) -> None:
    model, other = machine.load(tiny), on_cpu(tiny)
    prompts = ([1, 5, 9, 40, 7], [2, 8, 100, 33, 12, 90])
    sessions, theirs = [ChatSession(model) for _ in prompts], [ChatSession(other) for _ in prompts]
    for round_ in range(2):
        for session, their, prompt in zip(sessions, theirs, prompts, strict=True):
            longer = [*prompt, *([77, 3] * round_)]
            assert answer(session, longer) == answer(their, longer)
    before = machine.gpus[0].used_bytes
    answer(ChatSession(model))
    assert machine.gpus[0].used_bytes == before
    model.close()


def test_hot_neurons_are_learned_and_kept_for_the_next_time(
    machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_plan, "gpu_scratch_bytes", lambda *of: 0)
    monkeypatch.setattr(memory_plan, "pinned_bytes", lambda *of: 0)
    path = make_tiny_model(tmp_path / "a", d_ff=256)
    whole = machine.load(path)
    assert whole.gpu is not None
    room = (whole.gpu.placement.vram_bytes - whole.gpu.placement.hot_bytes // 2) / GIB
    whole.close()
    model = machine.load(path, vram_budget_gib=room)
    blocks = model.hot_blocks
    assert blocks is not None
    counts = [table.n_slots for table in blocks.tables]
    assert 0 < sum(counts) < 2 * 256
    adaptation = Adaptation(model.opened)
    session = ChatSession(model, adaptation=adaptation)
    for start in range(1, 9):
        answer(session, [start, 5 + start, 40, 7])
    while (wait := session.adapt()) == 0:
        pass
    assert wait is None or wait > 0
    session.keep()
    learned = [table.neuron_in.copy() for table in blocks.tables]
    first = answer(ChatSession(model))
    assert first == answer(on_cpu(path))
    model.close()
    again = machine.load(path, vram_budget_gib=room)
    assert again.hot_blocks is not None
    if adaptation.moved:
        for table, ids in zip(again.hot_blocks.tables, learned, strict=True):
            np.testing.assert_array_equal(table.neuron_in, ids)
    assert answer(again) == first
    again.close()


# --- weights in place


class Pinning:
    """A model on the GPU whose cold neurons the GPU could read in place: the other pages are a fake's."""

    def __init__(self, machine: FakeGpuMachine, folder: Path, patch: pytest.MonkeyPatch, **changes: Any) -> None:
        self.ram = RamInfo(128 * GIB, 64 * GIB)
        patch.setattr(pinned_weights, "read_ram", lambda *of: self.ram)
        self.device = HostDevice()
        patch.setattr(pinned_weights, "lies_in_ram", lambda path: False)
        hot = [np.arange(i, 256, 3, dtype=np.int32) for i in range(2)]
        solved = SimpleNamespace(placement=a_placement(hot, 256, head="gpu"), setting=None)
        patch.setattr(PlacedModel, "_solved", lambda *of: solved)
        patch.setattr(PlacedModel, "_timed", lambda *of: None)
        patch.setattr(load_stages, "load_weights", partial(load_weights, hold="mapped"))
        load = PlacedModel._load

        def with_place(part: PlacedModel, *of: Any) -> None:
            load(part, *of)
            assert part._part is not None
            part._part.pinned_weights = PinnedWeights(self.device)  # a GPU that is none of NVIDIA's has no prompts

        patch.setattr(PlacedModel, "_load", with_place)
        bundle = convert(make_tiny_model(folder / "w", d_ff=256), folder / "b", "q4_0").bundle
        self.model = machine.load(bundle, **changes)
        assert self.model.gpu is not None
        self.gpu, self.residency = self.model.gpu, self.model.residency
        assert self.gpu._part is not None
        assert self.gpu._part.pinned_weights is not None
        self.place: PinnedWeights = self.gpu._part.pinned_weights

    def calls(self, name: str) -> int:
        return self.device.driver.calls.count(name)  # type: ignore[attr-defined]


@needs_pinned_ram
def test_cold_neurons_are_pinned_in_place_behind_the_load(
    machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinning = Pinning(machine, tmp_path, monkeypatch, vram_budget_gib=1)
    assert pinning.model.wait_for_weights(60)
    assert pinning.place.is_all
    for layer in pinning.model.weights.layers:
        w = layer.ffns[0]
        for matrix in (w.gate, w.up, w.down_t):
            assert matrix is not None
            assert pinning.place.find(matrix.data.ctypes.data, matrix.row_bytes) is not None
    every_s = vram_policy.LOOK_EVERY_S  # RAM is checked even if the user set the budget
    assert pinning.residency.balance() == pytest.approx(every_s)
    pinning.residency.make_room()
    assert not pinning.calls("cuMemHostUnregister")
    generation = pinning.model.generation
    pinning.ram = RamInfo(128 * GIB, 7 * GIB)  # less than half of the eighth
    assert pinning.residency.balance() is None
    assert pinning.place.n_bytes == 0
    assert pinning.calls("cuMemHostUnregister") == pinning.calls("cuMemHostRegister_v2") > 0
    assert pinning.model.generation == generation
    pinning.model.close()


@needs_pinned_ram
def test_before_an_answer_the_ram_is_looked_at_too(
    machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinning = Pinning(machine, tmp_path, monkeypatch)
    assert pinning.place.wait(60)
    first = answer(pinning.model)
    assert pinning.place.is_all
    pinning.ram = RamInfo(128 * GIB, GIB)
    assert answer(pinning.model) == first
    assert not pinning.gpu.spare_ram()
    pinning.model.close()


def test_nothing_is_pinned_where_the_ram_has_no_room(
    machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_reads, "bytes_of", lambda *of: 49 * GIB)  # of 64 that are free, 16 are to stay so
    pinning = Pinning(machine, tmp_path, monkeypatch)
    assert pinning.place.wait(0)
    assert not pinning.gpu.spare_ram()
    assert pinning.calls("cuMemHostRegister_v2") == 0
    pinning.model.close()


@needs_pinned_ram
def test_a_part_that_goes_lets_go_of_what_is_pinned(
    machine: FakeGpuMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinning = Pinning(machine, tmp_path, monkeypatch)
    assert pinning.place.wait(60)
    pinning.residency.give_up("it is tested")
    assert pinning.place.n_bytes == 0
    assert pinning.calls("cuMemHostUnregister") == pinning.calls("cuMemHostRegister_v2") > 0
    assert pinning.gpu._part is None
    pinning.model.close()


def test_the_host_gives_the_gpu_back(machine: FakeGpuMachine, tiny: Path, tmp_path: Path) -> None:
    from engine.service import protocol
    from engine.service.host import EngineHost

    events: list[protocol.Event] = []
    host = EngineHost(events.append)
    engine = {"device": "cuda", "threads": 1, "hardware_file": str(tmp_path / "slow.json")}
    messages = [{"role": "user", "content": "the"}]
    for request in (
        protocol.Load("1", str(tiny), engine),
        protocol.Generate("2", messages, {"max_tokens": 3, "temperature": 0}),
        protocol.Unload("3"),
        protocol.Load("4", str(tiny), {**engine, "device": "cpu"}),
        protocol.Generate("5", messages, {"max_tokens": 3, "temperature": 0}),
    ):
        host.submit(request)
    host.run_pending()
    ends = {event.id: event for event in events if isinstance(event, protocol.Finished | protocol.Failed)}
    assert all(isinstance(event, protocol.Finished) for event in ends.values())
    results = {name: event.result for name, event in ends.items() if isinstance(event, protocol.Finished)}
    assert results["1"]["device"] == "cuda"
    assert results["1"]["vram_bytes"] == sum(results["1"]["vram_parts_bytes"].values()) > 0
    assert results["2"]["gpu_neuron_load"] == 1
    assert results["4"]["device"] == "cpu"
    assert results["5"]["vram_bytes"] == 0
    assert results["2"]["text"] == results["5"]["text"]
    assert machine.gpus[0].used_bytes == 0
