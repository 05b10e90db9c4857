"""Models that no placement on a machine holds: refused before anything is read, with something that works instead."""

from __future__ import annotations

import functools
import re
import tracemalloc
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from fakes.gpu_machine import GIB, FakeGpuMachine
from samples.experts_gguf import make_tiny_mixtral
from samples.placement_cases import a_profile
from samples.tiny_model import make_tiny_model
from support.repetitions import some_daily
from support.shown_text import numbers_in

from engine.config import EngineConfig, ModelConfig
from engine.errors import HostMemoryError
from engine.machine.cpu_and_ram import RamInfo
from engine.machine.hardware import HardwareProfile
from engine.machine.measured_hardware import recall_disk
from engine.placement import memory_plan
from engine.placement.activity import activity_of
from engine.placement.cost_model import Machine
from engine.placement.greedy import place_greedily
from engine.placement.model_bytes import ModelBytes
from engine.placement.oversized import Alternative, Case, MemoryLimits, alternatives, fitting_context
from engine.placement.placement_problem import FixedBytes, TokenContext, build_problem
from engine.placement.solver import solve
from engine.session.loaded_model import LoadedModel
from native_kernels.codecs import CODECS

# (layers, width, neurons, heads, key-value heads, vocabulary, gated, context): of 7 to 175 billion parameters.
SHAPES = {
    "LLaMA 7B": (32, 4096, 11008, 32, 32, 32000, True, 4096),
    "LLaMA 13B": (40, 5120, 13824, 40, 40, 32000, True, 4096),
    "LLaMA 32B": (64, 5120, 27648, 40, 8, 152000, True, 32768),
    "LLaMA 70B": (80, 8192, 28672, 64, 8, 128256, True, 131072),
    "Falcon 40B": (60, 8192, 32768, 128, 8, 65024, False, 2048),
    "OPT 66B": (64, 9216, 36864, 72, 72, 50272, False, 2048),
    "OPT 175B": (96, 12288, 49152, 96, 96, 50272, False, 2048),
}
# (free RAM, free VRAM, all VRAM) in GiB.
MACHINES = {
    "RTX 4090": (54, 23, 24),
    "RTX 2080 Ti": (26, 10.2, 11),
    "RTX 3060": (26, 11.3, 12),
    "RTX 4060 laptop": (11, 7.3, 8),
    "a GPU that others use": (11, 0.8, 8),
    "no GPU": (14, None, None),
    "a small PC": (1.7, None, None),
}
BUDGETS = (None, 3.0)


def sizes(name: str, codec: str) -> ModelBytes:
    """A model of that size. 256 neurons are one, so that a solver of a test is done in no time."""
    layers, width, neurons, heads, kv_heads, vocabulary, gated, context = SHAPES[name]
    config = ModelConfig(
        family="llama" if gated else "opt", n_layers=layers, d_model=width, d_ff=neurons // 256, n_heads=heads,
        n_kv_heads=kv_heads, head_dim=width // heads, vocab_size=vocabulary, max_context=context, rope_theta=1e4,
        norm_eps=1e-5, activation="relu-glu" if gated else "relu", tied_embeddings=False, bos_token_id=None,
        eos_token_ids=(),
    )  # fmt: skip
    ones, row = np.ones(layers, np.int64), CODECS[codec].n_bytes(width)
    attention = (2 * width + 2 * kv_heads * (width // heads)) * row
    codecs = (codec,) * layers
    return ModelBytes(
        config, ones * attention, ones * 256 * row, ones * 256 * row * gated, ones * 256 * row, vocabulary * row,
        vocabulary * row, codecs, codecs, codecs, codec,
    )  # fmt: skip


def machine(name: str) -> HardwareProfile:
    ram, free, total = MACHINES[name]
    profile = a_profile(vram=None if total is None else int(total * GIB))
    gpus = tuple(replace(gpu, name=name, free_bytes=int(free * GIB), context_bytes=400 << 20) for gpu in profile.gpus)
    return replace(profile, ram=RamInfo(int(1.2 * ram * GIB), int(ram * GIB)), gpus=gpus)


@dataclass(frozen=True)
class Asked:
    model: str
    codec: str
    machine: str
    budget: float | None
    context: int

    @property
    def room(self) -> MemoryLimits:
        profile = machine(self.machine)
        gpu = profile.gpus[0] if profile.gpus else None
        return MemoryLimits(profile, gpu, memory_plan.budgets_of(profile, gpu, self.budget))


@functools.cache
def oversized() -> list[Asked]:
    found = []
    for model in SHAPES:
        for codec in ("f16", "q8_0", "q4_0"):
            for name, (_, _, total) in MACHINES.items():
                for budget in BUDGETS if total is not None else (None,):
                    context = min(4096, SHAPES[model][-1])
                    asked = Asked(model, codec, name, budget, context)
                    if Case(sizes(model, codec), "f16").least_ram(context, asked.room) > asked.room.ram_bytes:
                        found.append(asked)
    return found


def is_held(model: ModelBytes, room: MemoryLimits, context: int) -> bool:
    """Whether the solver that loads models finds a placement."""
    gpu, budgets = room.gpu, room.budgets
    scratch = memory_plan.gpu_scratch_bytes(model, context, gpu, budgets.vram_bytes)
    problem = build_problem(
        model, activity_of(model.config, "exact"), Machine.of(room.profile, 7, gpu), "exact",
        TokenContext(context, 64, "f16"), None, FixedBytes(
            0 if gpu is None else memory_plan.context_bytes(gpu) + scratch,
            memory_plan.PROCESS_BYTES + memory_plan.scratch_bytes(model, context),
        ),
    )  # fmt: skip
    choice = place_greedily(problem, budgets.vram_bytes, budgets.ram_bytes)
    if choice is None:  # the RAM is short
        try:
            choice = solve(problem, budgets.vram_bytes, budgets.ram_bytes, time_limit_s=2).choice
        except HostMemoryError:
            return False
    return choice.ram(problem) <= budgets.ram_bytes and choice.vram(problem) <= budgets.vram_bytes


def works(asked: Asked, one: Alternative) -> bool:
    """Does what it says, as a person would, and has it placed."""
    model, room = sizes(asked.model, asked.codec), asked.room
    match one.kind:
        case "context":
            return is_held(model, room, int(one.value))
        case "budget":
            return is_held(
                model, replace(room, budgets=memory_plan.budgets_of(room.profile, room.gpu, None)), asked.context
            )
        case "codec":
            context = re.search(r"context of (\d+)", one.words)
            smaller = sizes(asked.model, "q4_0")
            assert smaller.total <= one.value * GIB * 1.001
            return is_held(smaller, room, int(context[1]) if context else asked.context)
        case "smaller":
            shrunk = int(one.value * GIB) / model.total
            few = replace(
                model, attention=(model.attention * shrunk).astype(np.int64),
                first=(model.first * shrunk).astype(np.int64), second=(model.second * shrunk).astype(np.int64),
                down=(model.down * shrunk).astype(np.int64), embedding=int(model.embedding * shrunk),
                head=int(model.head * shrunk),
                config=replace(model.config, n_kv_heads=1, vocab_size=1000, max_context=512),
            )  # fmt: skip
            return is_held(few, room, 512)
        case "free":
            profile = replace(room.profile, ram=RamInfo(64 * GIB, int(one.value * GIB)))
            return is_held(
                sizes_of_pip(), MemoryLimits(profile, None, memory_plan.budgets_of(profile, None, None)), 1024
            )
    return False


def sizes_of_pip() -> ModelBytes:
    from engine.assets import starter_model
    from engine.model.model_files import open_model

    return ModelBytes.of(open_model(starter_model()))


def test_there_are_a_hundred_of_them() -> None:
    assert len(oversized()) >= 100
    assert {asked.machine for asked in oversized()} == set(MACHINES)


# Every day every fourth: each model, machine and budget occurs in several.
@pytest.mark.parametrize("turn", some_daily(range(4), [0]))
@pytest.mark.parametrize("place", MACHINES)
def test_they_are_refused_with_need_and_have_and_something_that_works(place: str, turn: int) -> None:
    for asked in oversized()[turn::4]:
        if asked.machine == place:
            check_refusal(asked)


def check_refusal(asked: Asked) -> None:
    model, room = sizes(asked.model, asked.codec), asked.room
    kv = 2 * 2 * asked.context * model.config.n_kv_heads * model.config.head_dim * model.n_layers
    assert model.total + kv > 0.97 * (room.profile.ram.free_bytes - (512 << 20) + room.vram_bytes)
    with pytest.raises(HostMemoryError) as refused:
        fitting_context(model, room, asked.context, "f16", is_given=True)
    message = refused.value.message
    need = Case(model, "f16").in_ram(asked.context)
    told = [f"{need / GIB:.1f} GiB", str(asked.context), f"{room.ram_bytes / GIB:.1f} GiB"]
    told += [f"{room.vram_bytes / GIB:.1f} GiB"] if room.vram_bytes > 0 else []
    assert numbers_in(message) == told
    offered = alternatives(Case(model, "f16"), room, asked.context)
    assert refused.value.hint == offered[0].words
    for one in offered:
        assert works(asked, one), one


def test_what_surely_fits_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that is not refused, what is called sure has a placement; and what has one is never refused."""
    sure = 0
    for name in SHAPES:
        for codec in ("q4_0",):
            for place in MACHINES:
                asked = Asked(name, codec, place, None, min(2048, SHAPES[name][-1]))
                model, room = sizes(name, codec), asked.room
                case, held = Case(model, "f16"), is_held(model, room, asked.context)
                if case.surely_fits(asked.context, room):
                    sure += 1
                    assert held
                if held:
                    assert fitting_context(model, room, asked.context, "f16", is_given=True) == asked.context
    assert sure >= 10


def test_a_context_that_nobody_asked_for_gives_way() -> None:
    model = sizes("LLaMA 13B", "q4_0")
    profile = machine("no GPU")
    ram = RamInfo(64 * GIB, int(9.5 * GIB))
    room = MemoryLimits(replace(profile, ram=ram), None, memory_plan.budgets_of(replace(profile, ram=ram), None, None))
    assert Case(model, "f16").least_ram(4096, room) > room.ram_bytes
    context = fitting_context(model, room, 4096, "f16")
    assert 512 <= context < 4096
    with pytest.raises(HostMemoryError) as refused:
        fitting_context(model, room, 4096, "f16", is_given=True)
    found = re.search(r"context of (\d+) tokens", refused.value.hint)
    assert found is not None
    assert fitting_context(model, room, int(found[1]), "f16", is_given=True) == int(found[1])


def test_a_gpu_that_was_left_out_is_offered() -> None:
    profile = machine("RTX 4090")
    model = sizes("LLaMA 70B", "q4_0")
    profile = replace(profile, ram=RamInfo(32 * GIB, 28 * GIB))
    room = MemoryLimits(profile, None, memory_plan.budgets_of(profile, None, None), profile.gpus[0])
    [first, *_] = alternatives(Case(model, "f16"), room, 1024)
    assert first.kind == "device"
    assert "GPU" in first.words
    assert is_held(model, replace(room, gpu=profile.gpus[0],
                                  budgets=memory_plan.budgets_of(profile, profile.gpus[0], None)), 1024)  # fmt: skip


# --- at load


def little_ram(path: Path, n_bytes: int, vram: int | None = None) -> EngineConfig:
    """A machine with so little RAM that not even a tiny model has room beside what stays free."""
    profile = replace(a_profile(vram=vram), ram=RamInfo(8 * GIB, n_bytes))
    profile.save(path)
    return EngineConfig(hardware_file=str(path), threads=1)


def test_loading_refuses_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.session import load_stages

    path = make_tiny_model(tmp_path / "m")
    engine = little_ram(tmp_path / "small.json", 512 << 20)
    LoadedModel.load(path, EngineConfig(device="cpu", threads=1))  # what is imported by then is no memory of its own

    def reads(*of: object, **named: object) -> None:
        raise AssertionError("nothing is read")

    monkeypatch.setattr(load_stages, "load_weights", reads)
    tracemalloc.start()
    with pytest.raises(HostMemoryError, match="of RAM may be used") as refused:
        LoadedModel.load(path, engine)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
    assert "GiB of RAM are free" in refused.value.hint


def test_a_gpu_that_does_not_help_is_no_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model would fit with the GPU, and the GPU fails: the RAM alone does not hold it, and that is said."""
    from engine.gpu.trial import choice
    from engine.machine.graphics import GpuInfo
    from native_kernels.cuda.runtime.driver import CudaError

    machine = FakeGpuMachine(tmp_path, monkeypatch)

    def opens(gpu: GpuInfo) -> None:
        raise CudaError("cuInit", 999, "CUDA_ERROR_UNKNOWN")

    monkeypatch.setattr(choice, "open_gpu", opens)
    file = tmp_path / "slow.json"
    profile = HardwareProfile.load(file)
    path = make_tiny_model(tmp_path / "m", d_ff=4096)
    from engine.model.model_files import open_model

    case = Case(ModelBytes.of(open_model(path)), "f16")
    lacking = case.in_ram(64) - (4 << 10)
    replace(profile, ram=RamInfo(8 * GIB, (512 << 20) + lacking)).save(file)
    with pytest.raises(HostMemoryError, match=r"A GPU .*cuInit"):
        machine.load(path, device="auto")


# --- experts on the disk


def with_experts(in_file: bool = True) -> ModelBytes:
    """As of 30 billion parameters: 128 experts of 4 neurons, 8 of which are chosen; 4 neurons are 768."""
    model = sizes("LLaMA 7B", "q4_0")
    config = replace(model.config, n_layers=48, d_ff=4, n_experts=128, n_experts_used=8, activation="silu")
    ones, row, codecs = np.ones(48, np.int64), CODECS["q4_0"].n_bytes(2048), ("q4_0",) * 48
    return replace(
        model, config=config, attention=ones * 10240 * row, first=ones * 192 * row, second=ones * 192 * row,
        down=ones * 192 * row, attention_codecs=codecs, first_codecs=codecs, down_codecs=codecs,
        experts_in_file=in_file,
    )  # fmt: skip


def alone(free_gib: float) -> MemoryLimits:
    profile = replace(a_profile(vram=None), ram=RamInfo(64 * GIB, int(free_gib * GIB)))
    return MemoryLimits(profile, None, memory_plan.budgets_of(profile, None, None))


@pytest.mark.parametrize("free_gib", [6, 8, 12])
def test_experts_may_stay_on_the_disk(free_gib: float) -> None:
    model, room = with_experts(), alone(free_gib)
    assert model.total > 15 * GIB > room.ram_bytes
    assert fitting_context(model, room, 1024, "f16", is_given=True) == 1024
    assert is_held(replace(model, experts_in_file=True), alone(30), 1024)
    assert Case(model, "f16").reads_from_disk(1024, room)
    assert not Case(model, "f16").reads_from_disk(1024, alone(30))
    with pytest.raises(HostMemoryError):  # neither where experts have to be copied, nor a dense model of this size
        fitting_context(with_experts(in_file=False), room, 1024, "f16", is_given=True)
    with pytest.raises(HostMemoryError):
        fitting_context(replace(sizes("LLaMA 32B", "q4_0"), experts_in_file=True), room, 1024, "f16", is_given=True)


def test_a_tenth_of_the_experts_has_to_fit() -> None:
    model = with_experts()
    experts = model.neurons * int(model.neuron.sum())
    least = model.total - experts + 0.1 * experts + 2 * 1024 * 2 * 32 * 128 * 48
    enough, little = (alone((least + (512 << 20) + more) / GIB) for more in (1 << 20, -(1 << 20)))
    assert fitting_context(model, enough, 1024, "f16", is_given=True) == 1024
    with pytest.raises(HostMemoryError) as refused:
        fitting_context(model, little, 1024, "f16", is_given=True)
    assert numbers_in(refused.value.message)[0] == f"{least / GIB:.1f} GiB"
    assert refused.value.hint == alternatives(Case(model, "f16"), little, 1024)[0].words


def test_what_exceeds_the_ram_is_on_the_disk_and_costs_what_a_token_misses() -> None:
    model = with_experts()
    found = []
    for free_gib in (6, 10, 14, 30):
        room = alone(free_gib)
        problem = build_problem(
            model, activity_of(model.config, "dense"), Machine.of(room.profile, 7, None), "dense",
            TokenContext(1024, 64, "f16"), None, FixedBytes(0, memory_plan.PROCESS_BYTES),
        )  # fmt: skip
        budget = room.budgets.ram_bytes
        choice = place_greedily(problem, 0, budget)
        assert choice is not None
        on_disk, read = choice.disk(problem, budget), choice.disk_read(problem, budget)
        assert choice.ram(problem) - on_disk <= max(budget, choice.ram(problem) if not on_disk else 0)
        found.append((on_disk, read))
    assert sorted(found, reverse=True) == found
    assert found[-1] == (0, 0)
    of_token = 8 * 4 * int(model.neuron.sum())  # bytes of the experts of a token
    experts = model.neurons * int(model.neuron.sum())
    for on_disk, read in found[:-1]:  # the busiest stay: a token misses less than the share that is on the disk
        assert 0 < read < of_token * on_disk / experts


def test_a_model_loads_that_the_ram_does_not_hold_and_answers_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.config import SamplingConfig
    from engine.model.model_files import open_model
    from engine.service.placement_words import placement_of
    from engine.session.chat_session import ChatSession

    rates = iter([1e9, 2e9])
    monkeypatch.setattr("engine.model.expert_reads.disk_rate", lambda layers, threads: next(rates))
    path = make_tiny_mixtral(tmp_path / "e.gguf")
    case = Case(ModelBytes.of(open_model(path)), "f16")
    between = (case.in_ram(64) + case.least_in_ram(64)) // 2
    answers, models = [], []
    for n_bytes in (4 * GIB, (512 << 20) + between):
        model = LoadedModel.load(path, replace(little_ram(tmp_path / "ram.json", n_bytes), context=64))
        events = ChatSession(model).generate(
            list(range(3, 43)), SamplingConfig().changed({"temperature": 0.0, "max_tokens": 12})
        )
        answers.append([event.token_id for event in events])
        models.append(model)
    assert answers[0] == answers[1]
    enough, little = models
    assert (enough.weights.expert_reads, enough.transformer().first_chunk_tokens) == (None, 32)
    assert little.weights.expert_reads is not None
    assert little.transformer().least_chunk_tokens == 512
    assert placement_of(enough)["disk_bytes"] == 0
    told = placement_of(little)
    assert 0 < told["disk_bytes"] <= 0.9 * case.model.neurons * int(case.model.neuron.sum())
    assert told["predicted_tok_s"] < placement_of(enough)["predicted_tok_s"]
    assert recall_disk() == 1e9
    LoadedModel.load(path, replace(little_ram(tmp_path / "ram.json", n_bytes), context=64)).close()
    assert recall_disk() == 2e9, "each load measures it"
    monkeypatch.setattr("engine.service.placement_words.recall_disk", lambda: None)
    assert placement_of(little)["predicted_tok_s"] is None
    for model in models:
        model.close()
    with pytest.raises(HostMemoryError):
        LoadedModel.load(path, little_ram(tmp_path / "ram.json", (512 << 20) + case.least_in_ram(64) // 2))
