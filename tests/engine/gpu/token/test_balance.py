"""A model whose own tokens are timed when it is loaded, and which is placed anew where one side would wait for the
other: nothing else changes, and the next load knows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.gpu_machine import GIB, FakeGpuMachine
from samples.raw_gguf import make_tiny_powerinfer
from samples.tiny_model import make_tiny_model
from support.systems import needs_pinned_ram

from engine.bundle.artefacts import save_stats
from engine.config import EngineConfig, SamplingConfig
from engine.errors import Cancelled, DeviceFailedError
from engine.gpu import placed_model, sample_activity, vram_policy
from engine.gpu.token import balance
from engine.gpu.token.cpu_calls import COLD, LISTING
from engine.gpu.token.decode_program import GpuDecodeProgram
from engine.job import Job
from engine.machine.hardware import HardwareProfile, choose_gpu, probe
from engine.machine.measured_hardware import recall_expected, remember
from engine.machine.read_rates import ReadRates
from engine.model.weights import open_model
from engine.placement import machine_figures, memory_plan, setting
from engine.placement.concurrent_reads import ReadTimes
from engine.placement.machine_figures import with_figures, working_set
from engine.placement.model_bytes import ModelBytes
from engine.placement.setting import Setting
from engine.placement.solving import Solved, solve_model
from engine.session import load_stages
from engine.session.chat_session import ChatSession
from engine.session.loaded_model import LoadedModel
from engine.sparsity.stats import NeuronStats
from native_kernels.cuda.gpu import Gpu
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError

REAL_TIMES = machine_figures.processor_times
D_FF, NEURON = 256, 3 * 32 * 4  # bytes of a neuron, in f32
GREEDY = SamplingConfig().changed({"temperature": 0, "max_tokens": 6})
PROMPT = [1, 5, 9, 40, 7]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpuMachine]:
    made = FakeGpuMachine(tmp_path, monkeypatch)
    yield made
    for gpu in made.gpus:
        gpu.close()


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "m", d_ff=D_FF)


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> list[Solved]:
    """Of each layer 60 neurons are hot and 40 zero-copy, whatever is solved; the solutions that there were.

    Nothing is learned at a load.
    """
    found: list[Solved] = []
    monkeypatch.setattr(sample_activity, "can_learn", lambda opened: False)

    def solve(*of: Any, **how: Any) -> Solved:
        solved = solve_model(*of, **how)
        ids = [np.random.default_rng(i).permutation(D_FF).astype(np.int32) for i in range(2)]
        hot, zero_copy = (tuple(np.sort(one[part]) for one in ids) for part in (slice(0, 60), slice(60, 100)))
        found.append(replace(solved, placement=replace(solved.placement, hot=hot, zero_copy=zero_copy)))
        return found[-1]

    monkeypatch.setattr(placed_model, "solve_model", solve)
    return found


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[ReadTimes | None]:
    """What tokens took whenever they were timed."""
    found: list[ReadTimes | None] = []
    timed = balance.timed

    def watching(*of: Any) -> ReadTimes | None:
        found.append(timed(*of))
        return found[-1]

    monkeypatch.setattr(placed_model, "timed", watching)
    return found


def stays(*of: Any) -> tuple[ReadRates | None, float]:
    """No other placement is any better."""
    return ReadRates(1e9, 1e9, 1e9), 0.0


def answer(model: LoadedModel, prompt: list[int] = PROMPT) -> list[int]:
    return [one.token_id for one in ChatSession(model).generate(prompt, GREEDY) if one.token_id is not None]


# --- what is timed


def test_tokens_are_timed_and_leave_nothing_behind(
    machine: FakeGpuMachine,
    tiny: Path,
    by_hand: list[Solved],
    watched: list[ReadTimes | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(balance, "gain_of", stays)
    model = machine.load(tiny)
    (times,) = watched
    assert times is not None
    assert (times.zero_copy_layers, times.cold_layers) == (2, 2)
    assert 0 < times.hot_s < times.token_s
    assert 0 < times.zero_copy_s < times.token_s
    assert 0 < times.cold_s < times.token_s
    # The first matrix of every neuron, and the others of those that fire.
    for n_bytes, n_neurons in ((times.zero_copy_bytes, 40), (times.cold_bytes, D_FF - 100)):
        assert 2 * n_neurons * NEURON / 3 < n_bytes < 2 * n_neurons * NEURON
    assert model.steps.seconds["balancing"] > 0
    assert model.generation == 1
    counters = model.transformer().executor.counters
    assert (counters.tokens, counters.computed, counters.on_gpu) == (0, 0, None)
    assert model.hot_blocks is not None
    assert not any(model.hot_blocks.hot.take_fired(layer).any() for layer in range(2))
    decoder = model.transformer().decoder
    assert decoder is not None
    assert sum(decoder.stage_seconds().values()) == 0
    assert not decoder.gpu_seconds()
    assert len(machine.gpus[0].works) == len(decoder.gpu_steps())  # type: ignore[attr-defined]
    assert answer(model) == answer(LoadedModel.load(tiny, EngineConfig(device="cpu", threads=1)))
    assert not {COLD, LISTING} & set(decoder.stage_seconds())
    model.close()
    assert machine.gpus[0].used_bytes == 0


def test_what_its_predictors_expect_is_learned_from_the_tokens(
    machine: FakeGpuMachine,
    tmp_path: Path,
    by_hand: list[Solved],
    watched: list[ReadTimes | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float | None] = []

    def gain(setting: Setting, *of: Any) -> tuple[ReadRates | None, float]:
        assert setting.predictors is not None
        asked.append(setting.predictors.expected_to_fired)
        return stays()

    monkeypatch.setattr(balance, "gain_of", gain)
    path = make_tiny_powerinfer(tmp_path / "m.gguf", d_ff=D_FF)
    opened = open_model(path)
    counts = np.full((2, D_FF), 100, np.int64)  # of 1000 tokens: 51 neurons a token
    save_stats(opened, NeuronStats(counts, 1000, "measured", "made up"))
    machine.load(path, mode="sparse").close()
    (times,) = watched
    assert times is not None
    assert by_hand[0].setting.predictors is not None
    assert by_hand[0].setting.predictors.expected_to_fired is None
    ratio = round(times.computed / (2 * D_FF * 0.1), 2)
    assert 1 < ratio < 10
    assert recall_expected(opened.fingerprint) == ratio == asked[0]
    machine.load(path, mode="sparse").close()
    assert by_hand[-1].setting.predictors is not None
    assert by_hand[-1].setting.predictors.expected_to_fired == ratio
    assert any(f"{ratio:.2f} times" in note for note in by_hand[-1].placement.notes)


def test_nothing_is_timed_where_no_side_could_take_from_the_other(
    machine: FakeGpuMachine, tiny: Path, watched: list[ReadTimes | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.load(tiny).close()  # all of it is on the GPU
    assert not watched


@pytest.mark.parametrize("why", ["files", "a disk", "marks", "short"])
def test_tokens_that_tell_nothing(
    why: str,
    machine: FakeGpuMachine,
    tiny: Path,
    by_hand: list[Solved],
    watched: list[ReadTimes | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The files are being read, be it quickly or slowly, the GPU has no marks, the text is too short."""
    if why in ("files", "a disk"):
        pages = iter(range(0, 1 << 20, 100))
        monkeypatch.setattr(balance, "_pages_read", lambda: next(pages))
        monkeypatch.setattr(balance, "_VERY_LONG_S", 60.0 if why == "files" else 0.0)
    elif why == "marks":
        monkeypatch.setattr("fakes.gpu.FakeGpu.mark", no_marks)
    else:
        monkeypatch.setattr(load_stages, "SAMPLE_TEXT", "")
    model = machine.load(tiny)
    assert watched == [None]
    assert len(by_hand) == 1
    assert model.hot_blocks is not None
    assert not any(model.hot_blocks.hot.take_fired(layer).any() for layer in range(2))
    model.close()


@pytest.mark.parametrize(("long", "very_long", "n"), [(60.0, 60.0, 8), (0.0, 60.0, 6), (0.0, 0.0, 4)])
def test_fewer_tokens_where_they_take_long(
    long: float,
    very_long: float,
    n: int,
    machine: FakeGpuMachine,
    tiny: Path,
    by_hand: list[Solved],
    watched: list[ReadTimes | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(balance, "gain_of", stays)
    monkeypatch.setattr(balance, "_LONG_S", long)
    monkeypatch.setattr(balance, "_VERY_LONG_S", very_long)
    monkeypatch.setattr(balance, "_pages_read", lambda: 0)
    steps: list[int] = []
    step = GpuDecodeProgram.timed_step
    monkeypatch.setattr(GpuDecodeProgram, "timed_step", lambda self, *of: steps.append(of[0]) or step(self, *of))
    machine.load(tiny).close()
    assert len(steps) == n
    assert steps[: n // 2] == steps[n // 2 :]
    assert watched[0] is not None


def no_marks(self: Any) -> Any:
    raise CudaError("cuEventCreate", 801, "CUDA_ERROR_NOT_SUPPORTED")


# --- while it is loaded


def test_who_cancels_is_heard(
    machine: FakeGpuMachine, tiny: Path, by_hand: list[Solved], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[bool] = []
    step = GpuDecodeProgram.timed_step

    def stepping(self: GpuDecodeProgram, *of: Any) -> Any:
        assert not wanted, "nobody wants any more tokens"
        found = step(self, *of)
        wanted.append(True)
        return found

    monkeypatch.setattr(GpuDecodeProgram, "timed_step", stepping)
    config = EngineConfig(device="cuda", threads=1, hardware_file=str(tiny.parent / "slow.json"))
    with pytest.raises(Cancelled):
        LoadedModel.load(tiny, config, job=Job(lambda: bool(wanted)))
    assert wanted
    assert machine.gpus[0].used_bytes == 0
    assert machine.gpus[0].closed


@pytest.mark.parametrize("cause", ["fails", "is late", "memory"])
def test_a_gpu_that_fails_meanwhile_is_one_that_fails_while_loading(
    cause: str, machine: FakeGpuMachine, tiny: Path, by_hand: list[Solved], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: GpuDecodeProgram, *of: Any) -> Any:
        error: CudaError | None = CudaError("cuStreamSynchronize", 719, "CUDA_ERROR_LAUNCH_FAILED")
        if cause == "memory":
            error = CudaOutOfMemoryError("cuGraphLaunch", 2, "CUDA_ERROR_OUT_OF_MEMORY")
        raise DeviceFailedError("It failed.") from (None if cause == "is late" else error)

    monkeypatch.setattr(GpuDecodeProgram, "timed_step", fails)
    monkeypatch.setattr(vram_policy, "SMALLER", 0.9999)  # the buffers are most of it
    model = machine.load(tiny, device="auto")
    assert model.device == "cpu"
    words = "ran out 3 times" if cause == "memory" else "A GPU failed while it was loaded"
    assert words in model.device_reason
    assert len(by_hand) == (3 if cause == "memory" else 1)
    assert machine.gpus[0].used_bytes == 0
    assert machine.gpus[0].closed


# --- placed again


class Truth:
    """What tokens take, by what is on the GPU and by rates that are no other's guess; how often they were timed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.zero_copy, self.beside, self.quiet, self.n_timed = 2e6, 3e6, True, 0
        patch.setattr(placed_model, "timed", self._timed)

    def _timed(self, program: Any, cache: Any, sample: Any, weights: Any, model: Any, *of: Any) -> ReadTimes:
        self.n_timed += 1
        n_zero_copy = sum(0 if one.zero_copy is None else one.zero_copy.n_slots for one in model.layers)
        n_cold = sum(D_FF - sum(block.n_slots for block in one.blocks) for one in model.layers)
        zero_copy_s, cold_s = n_zero_copy * NEURON / self.zero_copy, n_cold * NEURON / self.beside
        return ReadTimes(
            max(zero_copy_s, cold_s), 0.0, zero_copy_s, cold_s, n_zero_copy * NEURON, n_cold * NEURON,
            2 * bool(n_zero_copy), 2 * bool(n_cold), self.quiet,
        )  # fmt: skip


@pytest.fixture
def here(machine: FakeGpuMachine, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LoadedModel]:
    """Loads the model as on a machine that is asked what it is, with room for some of its neurons on the GPU."""
    monkeypatch.setattr(memory_plan, "gpu_scratch_bytes", lambda *of: 0)
    whole = machine.load(tiny)
    assert whole.gpu is not None
    budget = (whole.gpu.placement.vram_bytes - whole.gpu.placement.hot_bytes // 2) / GIB
    whole.close()
    profile = HardwareProfile.load(tiny.parent / "slow.json")
    profile = replace(profile, cpu=replace(profile.cpu, bytes_per_s=6e6))
    for module in (load_stages, setting):
        monkeypatch.setattr(module, "probe", lambda: profile)

    def load(**changes: Any) -> LoadedModel:
        return machine.load(tiny, **{"hardware_file": None, "vram_budget_gib": budget, **changes})

    load.profile = profile  # type: ignore[attr-defined]
    return load


def placed(model: LoadedModel) -> tuple[list[int], list[int]]:
    assert model.gpu is not None
    placement = model.gpu.placement
    zero_copy = placement.zero_copy or [()] * placement.n_layers
    return list(placement.hot_counts), [len(ids) for ids in zero_copy]


@needs_pinned_ram
def test_a_model_is_placed_anew_once_and_the_next_load_knows(
    here: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    truth = Truth(monkeypatch)
    with caplog.at_level(logging.INFO, "engine"):
        model = here()
    assert caplog.text.count("Placed anew") == 1
    assert "balancing" in caplog.text
    assert truth.n_timed == 2
    hot, zero_copy = placed(model)
    assert all(0 < n < D_FF for n in zero_copy)
    gpu = model.gpu
    assert gpu is not None
    assert gpu.placement.vram_bytes <= gpu.placement.origins.vram_budget_bytes
    text = answer(model)
    assert text == answer(LoadedModel.load(model.opened.files.path, EngineConfig(device="cpu", threads=1)))
    model.close()
    caplog.clear()
    again = here()
    assert truth.n_timed == 3
    assert "Placed anew" not in caplog.text
    assert placed(again) == (hot, zero_copy)
    assert answer(again) == text
    again.close()


@needs_pinned_ram
def test_rates_that_no_longer_hold_are_renewed(
    here: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    truth = Truth(monkeypatch)
    here().close()
    truth.zero_copy, truth.beside = 1e6, 6e6
    n_timed, model = truth.n_timed, here()
    found = placed(model)
    model.close()
    assert truth.n_timed > n_timed + 1
    n_timed, again = truth.n_timed, here()
    assert placed(again) == found
    assert truth.n_timed == n_timed + 1
    again.close()


@needs_pinned_ram
def test_that_hasty_figures_are_right_is_not_remembered(
    here: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch, own_folders: Path
) -> None:
    """The next load reckons with others."""
    truth = Truth(monkeypatch)
    monkeypatch.setattr(balance, "gain_of", stays)
    for hasty in (True, False):
        monkeypatch.setattr(balance, "serves_this_load_alone", lambda hasty=hasty: hasty)
        here().close()
        assert bool(list(own_folders.rglob("measured-hardware.json"))) != hasty
    here().close()
    assert truth.n_timed == 3


@needs_pinned_ram
@pytest.mark.parametrize("why", ["busy", "a file"])
def test_nothing_is_remembered_of_a_busy_machine_or_of_one_from_a_file(
    why: str, here: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch, own_folders: Path, tmp_path: Path
) -> None:
    truth, changes = Truth(monkeypatch), {}
    truth.quiet = why != "busy"
    profile: HardwareProfile = here.profile  # type: ignore[attr-defined]
    if why == "a file":
        profile.save(tmp_path / "file.json")
        changes["hardware_file"] = str(tmp_path / "file.json")
    model = here(**changes)
    assert truth.n_timed == 2
    found = placed(model)
    model.close()
    assert not list(own_folders.rglob("measured-hardware.json"))
    again = here(**changes)
    assert truth.n_timed == 4
    assert placed(again) == found
    again.close()


def test_placing_it_anew_between_answers_goes_by_what_was_found(
    here: Callable[..., LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = Truth(monkeypatch)
    model = here()
    gpu, found, n_timed = model.gpu, placed(model), truth.n_timed
    assert gpu is not None
    gpu.load(model.mode, balancing=False)
    assert placed(model) == found
    assert truth.n_timed == n_timed
    model.close()


# --- on a GPU


@pytest.mark.gpu
def test_figures_that_are_wrong_do_not_keep_one_side_waiting(
    own_gpu: Gpu, tmp_path: Path, watched: list[ReadTimes | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU is said to read ten times as fast over the bus as it does. On a machine that others keep busy nothing
    can be said of it."""
    monkeypatch.setattr(balance, "_VERY_LONG_S", 60.0)
    monkeypatch.setattr(balance, "_FEW_PAGES", 1 << 30)
    monkeypatch.setattr(machine_figures, "processor_times", REAL_TIMES)
    others = machine_figures.Others()
    size: dict[str, int] = {"n_layers": 4, "d_model": 2048, "d_ff": 8192, "n_heads": 16, "n_kv_heads": 16}
    path = make_tiny_model(tmp_path / "m", activation="relu", dtype="float16", **size)
    profile = probe()
    gpu, words = choose_gpu(profile)
    if gpu is None:
        pytest.skip(words)
    threads = max(1, min(8, (profile.cpu.cores or 2) - 1))
    engine = EngineConfig(device="cuda", threads=threads, mode="exact")
    whole = LoadedModel.load(path, engine)
    assert whole.gpu is not None
    budget = (whole.gpu.placement.vram_bytes - 0.8 * whole.gpu.placement.hot_bytes) / GIB
    sizes = ModelBytes.of(whole.opened, whole.weights)
    whole.close()
    true = with_figures(profile, threads, working_set(sizes), gpus=True)
    gpus = tuple(
        replace(one, reach_bytes_per_s=10 * (one.pcie_bytes_per_s or 1e10), beside_share=0.3) for one in true.gpus
    )
    remember(replace(true, gpus=gpus), threads, working_set(sizes))
    watched.clear()
    model = LoadedModel.load(path, replace(engine, vram_budget_gib=budget))
    text, (first, *later), found = answer(model), list(watched), placed(model)
    model.close()
    if not others.are_quiet:
        pytest.skip(f"others used {others.share:.0%} of the processors meanwhile")
    print(f"placed wrongly: {first}; then: {later}")
    assert first is not None
    assert later, "it was placed anew"
    last = later[-1]
    assert last is not None
    assert last.token_s <= 1.02 * first.token_s
    assert last.apart < first.apart
    watched.clear()
    again = LoadedModel.load(path, replace(engine, vram_budget_gib=budget))
    if len(watched) == 1:  # the RAM gave as much as before
        assert (placed(again), answer(again)) == (found, text)
    again.close()
