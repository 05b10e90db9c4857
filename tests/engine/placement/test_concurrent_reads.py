"""The rates of both sides from what tokens took, and whether a model had better be placed anew by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from samples.placement_cases import a_config, a_model, a_profile, some_stats
from samples.tiny_model import make_tiny_model
from support.systems import needs_pinned_ram

from engine.config import EngineConfig
from engine.gpu.token.balance import Tried, balanced
from engine.machine.graphics import GpuInfo
from engine.machine.read_rates import ReadRates
from engine.model.model_files import open_model
from engine.placement import memory_plan
from engine.placement.concurrent_reads import ReadTimes, kind_of, rates_of
from engine.placement.cost_model import Machine, cold_layer_s, gpu_layer_s
from engine.placement.greedy import place_greedily
from engine.placement.memory_plan import Budgets
from engine.placement.rebalancing import can_use_zero_copy, gain_of, machine_of
from engine.placement.setting import Setting, read_setting
from engine.placement.solver import Solution
from engine.placement.solving import placement_of, problem_of
from engine.sparsity.placement import Placement

GB = 1e9
MIB = 1 << 20


def a_machine(zero_copy: float | None = None, beside: float | None = None, cpu_gb_s: float = 100) -> Machine:
    profile = a_profile(cpu_gb_s=cpu_gb_s)
    gpu = replace(profile.gpus[0], reach_bytes_per_s=zero_copy, beside_share=beside)
    return Machine.of(profile, 7, gpu)


def some_times(**changes: float) -> ReadTimes:
    values = {
        "token_s": 0.05, "hot_s": 1e-3, "zero_copy_s": 20e-3, "cold_s": 20e-3,
        "zero_copy_bytes": 6e8, "cold_bytes": 1e9, "zero_copy_layers": 10, "cold_layers": 10,
    }  # fmt: skip
    return ReadTimes(**{**values, **changes})  # type: ignore[arg-type]


# --- arithmetic


def test_where_both_read_all_the_while_each_rate_is_its_bytes_by_its_seconds() -> None:
    rates = rates_of(some_times(zero_copy_s=30e-3), a_machine())
    assert rates is not None
    assert rates.zero_copy == pytest.approx(6e8 / (30e-3 - 10 * gpu_layer_s(False, True)))
    assert rates.beside == pytest.approx(1e9 / (20e-3 - 10 * cold_layer_s()))
    assert rates.alone >= rates.beside


@pytest.mark.parametrize("zero_copy_ms", [2.0, 10.0, 19.0, 40.0])
def test_the_rates_say_the_times_again(zero_copy_ms: float) -> None:
    times = some_times(zero_copy_s=1e-3 * zero_copy_ms, zero_copy_bytes=3e10 * 1e-3 * zero_copy_ms)
    rates = rates_of(times, a_machine())
    assert rates is not None
    over_bus = times.zero_copy_bytes / rates.zero_copy
    assert over_bus + 10 * gpu_layer_s(False, True) == pytest.approx(times.zero_copy_s)
    both = min(over_bus, times.cold_bytes / rates.beside)
    cold_s = both + max(0.0, times.cold_bytes - both * rates.beside) / rates.alone
    assert cold_s + 10 * cold_layer_s() == pytest.approx(times.cold_s, rel=0.01)


def test_what_a_side_would_do_that_read_nothing_is_hoped_for() -> None:
    """However little is remembered: figures taken while the machine was busy must not keep the GPU from reading."""
    timed = some_times(zero_copy_bytes=0, zero_copy_s=0, zero_copy_layers=0)
    for machine in (a_machine(), a_machine(1 * GB, 0.1), a_machine(1 * GB, 0.1, cpu_gb_s=20)):
        rates = rates_of(timed, machine)
        assert rates is not None
        assert rates.alone == pytest.approx(1e9 / (20e-3 - 10 * cold_layer_s()))
        assert rates.zero_copy > 10 * GB
        assert rates.zero_copy + rates.beside > 1.1 * rates.alone
    nothing_cold = some_times(cold_bytes=0, cold_s=0, cold_layers=0)
    rates = rates_of(nothing_cold, a_machine())
    assert rates is not None
    assert 20 * GB < rates.beside <= rates.alone == 50 * GB
    assert rates_of(replace(nothing_cold, zero_copy_bytes=0, zero_copy_s=0), a_machine()) is None


def test_sides_that_are_far_apart() -> None:
    assert not some_times().are_far_apart
    assert some_times(cold_s=27e-3).apart == pytest.approx(6 / 27)
    assert some_times(cold_s=29e-3).are_far_apart
    assert some_times(cold_s=15e-3).are_far_apart
    assert some_times(hot_s=12e-3).are_far_apart


def test_rates_that_were_timed_stand_as_they_are() -> None:
    profile = a_profile(cpu_gb_s=100)
    gpu = replace(profile.gpus[0], reach_bytes_per_s=20e9, beside_share=0.7)
    machine = Machine.of(profile, 7, gpu, ReadRates(30e9, 60e9, 75e9))
    rates = (machine.zero_copy.gemv("f16"), machine.beside_zero_copy.gemv("q4_0"), machine.cold.rows("f16", 4096))
    assert rates == (30e9, 60e9, 75e9)
    assert machine.cpu.gemv("f16") > 90e9
    assert Machine.of(profile, 7, gpu).cold == Machine.of(profile, 7, gpu).cpu


# --- placing by them


@dataclass
class World:
    """A model of some size on a machine that does what `true` says, whatever is reckoned. placed: by which rates."""

    setting: Setting
    true: ReadRates
    placed: list[ReadRates | None]
    now: Placement | None = None

    def place(self, rates: ReadRates | None) -> Tried:
        read_rates = {} if rates is None else {"exact": rates}
        setting = replace(self.setting, read_rates=read_rates)
        problem, activity = problem_of(setting, "exact")
        choice = place_greedily(problem, setting.budgets.vram_bytes)
        assert choice is not None
        solution = Solution(choice, choice.seconds(problem), 0.0, "greedy")
        self.now = placement_of(setting, setting.origins(), "exact", problem, activity, solution)
        self.placed.append(rates)
        assert self.now.vram_bytes <= setting.budgets.vram_bytes
        return Tried(rates, self.times())

    def times(self) -> ReadTimes:
        """What the machine does, token by token the same."""
        setting, now, true = self.setting, self.now, self.true
        assert now is not None
        model = setting.model
        _, activity = problem_of(setting, "exact")
        token = hot_s = zero_copy_s = cold_s = zero_copy_bytes = cold_bytes = 0.0
        n_zero_copy = n_cold = 0
        rates = machine_of(setting).gpu
        assert rates is not None
        for i, hot in enumerate(now.hot):
            zero_copy = now.zero_copy[i] if now.zero_copy else hot[:0]
            cold = np.setdiff1d(np.arange(now.neurons), np.concatenate([hot, zero_copy]))
            of_hot, of_zero_copy, of_cold = (
                float(model.first[i] * len(ids) + model.second[i] * activity.opened[i, ids].sum()
                      + model.down[i] * activity.fired[i, ids].sum())
                for ids in (hot, zero_copy, cold)
            )  # fmt: skip
            hot_t = of_hot / rates.rows("f16", 8192) + gpu_layer_s(False, True) * bool(len(hot))
            over_bus = of_zero_copy / true.zero_copy
            alone = max(0.0, of_cold - over_bus * true.beside) / true.alone
            cold_t = min(over_bus, of_cold / true.beside) + alone + cold_layer_s() * bool(len(cold))
            zero_copy_t = over_bus + gpu_layer_s(False, True) * bool(len(zero_copy))
            token += max(hot_t + zero_copy_t, cold_t) + 50e-6
            hot_s, zero_copy_s, cold_s = hot_s + hot_t, zero_copy_s + zero_copy_t, cold_s + cold_t
            zero_copy_bytes, cold_bytes = zero_copy_bytes + of_zero_copy, cold_bytes + of_cold
            n_zero_copy, n_cold = n_zero_copy + bool(len(zero_copy)), n_cold + bool(len(cold))
        return ReadTimes(token, hot_s, zero_copy_s, cold_s, zero_copy_bytes, cold_bytes, n_zero_copy, n_cold)

    def gain(self, times: ReadTimes) -> tuple[ReadRates | None, float]:
        assert self.now is not None
        return gain_of(self.setting, self.now, times)


MakeWorld = Callable[..., World]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """reach, beside: as they were remembered, rightly or not."""
    path = make_tiny_model(tmp_path / "m", d_ff=1024, n_layers=4)
    opened = open_model(path)
    monkeypatch.setattr(memory_plan, "gpu_scratch_bytes", lambda *of: 0)

    def made(true: ReadRates, zero_copy: float | None, beside: float | None) -> World:
        profile = a_profile(vram=256 * MIB, cpu_gb_s=100)
        gpu: GpuInfo = replace(
            profile.gpus[0], reach_bytes_per_s=zero_copy, beside_share=beside, pcie_bytes_per_s=55e9, bytes_per_s=2e12
        )
        profile = replace(profile, gpus=(gpu,))
        profile.save(tmp_path / "machine.json")
        engine = EngineConfig(hardware_file=str(tmp_path / "machine.json"), threads=7, mode="exact")
        setting = read_setting(opened, engine)
        model = a_model(opened.config, neuron=3 << 17)
        stats = some_stats(opened.config)
        return World(
            replace(setting, model=model, stats=stats, budgets=Budgets(256 * MIB, 32 << 30, True, "")), true, []
        )

    return made


TRUE = ReadRates(35e9, 60e9, 75e9)


@pytest.mark.parametrize(
    ("zero_copy", "beside"),
    [(120e9, 0.7), (55e9, 0.4), (8e9, 0.7), (20e9, 0.1), (1e9, 0.05), (39e9, 0.65), (None, None)],
)
def test_a_bad_guess_ends_near_the_best_placement(
    zero_copy: float | None, beside: float | None, world: MakeWorld
) -> None:
    made = world(TRUE, zero_copy, beside)
    best = made.place(TRUE).times
    first = made.place(None)
    found, is_found = balanced(first, made.gain, made.place, is_known=False)
    assert found.times.token_s <= 1.04 * best.token_s
    assert made.times() == found.times  # which is loaded
    assert len(made.placed) <= 5
    if is_found:  # what is remembered gives the same placement, which then stays
        again = made.place(found.rates)
        assert again.times == found.times
        assert balanced(again, made.gain, made.place, is_known=True) == (again, False)
    else:
        assert not first.times.zero_copy_bytes


@needs_pinned_ram
def test_what_is_balanced_stays_and_is_remembered_as_it_is(world: MakeWorld) -> None:
    made = world(ReadRates(35e9, 70e9, 90e9), 35e9 / 0.9, 0.7 / 0.9)  # as it is reckoned
    first = made.place(None)
    assert first.times.zero_copy_bytes
    assert balanced(first, made.gain, made.place, is_known=False) == (first, True)
    assert made.placed == [None]


@needs_pinned_ram
def test_rates_that_have_become_wrong_are_renewed(world: MakeWorld) -> None:
    made = world(TRUE, 35e9, 0.6)
    first = made.place(ReadRates(100e9, 40e9, 75e9))
    assert first.times.are_far_apart
    found, is_found = balanced(first, made.gain, made.place, is_known=True)
    assert is_found
    assert found.rates != first.rates
    assert found.times.token_s < 0.96 * first.times.token_s


@needs_pinned_ram
def test_rates_that_are_known_are_not_asked_about_while_neither_side_waits_long(world: MakeWorld) -> None:
    made = world(TRUE, 35e9, 0.6)
    first = made.place(ReadRates(38e9, 60e9, 75e9))
    assert 0 < first.times.apart < 0.25

    def never(times: ReadTimes) -> tuple[ReadRates | None, float]:
        raise AssertionError("nobody waits")

    assert balanced(first, never, made.place, is_known=True) == (first, False)


def test_a_lane_that_does_not_pay_is_tried_once(world: MakeWorld) -> None:
    """The CPU takes all that the RAM gives."""
    made = world(ReadRates(20e9, 50e9, 75e9), 1e9, 0.1)
    first = made.place(None)
    assert not first.times.zero_copy_bytes
    found, is_found = balanced(first, made.gain, made.place, is_known=False)
    assert found.times.token_s <= first.times.token_s
    assert is_found
    assert made.times() == found.times
    before = len(made.placed)
    again = made.place(found.rates)
    assert balanced(again, made.gain, made.place, is_known=True) == (again, False)
    assert len(made.placed) == before + 1


def test_a_placement_that_is_slower_than_reckoned_is_taken_back(world: MakeWorld) -> None:
    made = world(TRUE, 120e9, 0.7)
    first = made.place(None)
    slower = replace(first.times, token_s=1.5 * first.times.token_s)

    def place(rates: ReadRates | None) -> Tried:
        return replace(made.place(rates), times=slower if rates is not None else first.times)

    found, is_found = balanced(first, made.gain, place, is_known=False)
    assert (found, is_found) == (first, True)
    assert made.placed[-1] is None
    assert made.times() == first.times


@needs_pinned_ram
@pytest.mark.parametrize(("slower", "stays"), [(1.15, True), (1.3, False)])
def test_sides_that_have_come_closer_make_up_for_a_slow_second(slower: float, stays: bool, world: MakeWorld) -> None:
    made = world(TRUE, 120e9, 0.7)
    first = made.place(None)

    def place(rates: ReadRates | None) -> Tried:
        found = made.place(rates)
        return replace(found, times=replace(found.times, token_s=slower * first.times.token_s))

    found, _ = balanced(first, made.gain, place, is_known=False)
    assert (found.rates is not None) == stays
    assert made.placed[-1] == found.rates


def test_a_placement_that_cannot_be_timed_is_not_remembered(world: MakeWorld) -> None:
    made = world(TRUE, 120e9, 0.7)
    first = made.place(None)

    def place(rates: ReadRates | None) -> None:
        made.place(rates)

    found, is_found = balanced(first, made.gain, place, is_known=False)
    assert not is_found
    assert found.rates == made.placed[-1] is not None


# --- which models


@needs_pinned_ram
def test_models_of_which_no_side_could_take_neurons_from_the_other(world: MakeWorld) -> None:
    made = world(TRUE, 39e9, 0.65)
    made.place(None)
    setting, placement = made.setting, made.now
    assert placement is not None
    assert can_use_zero_copy(setting, placement)
    assert not can_use_zero_copy(replace(setting, model=a_model(setting.opened.config, row_wise=True)), placement)
    assert not can_use_zero_copy(replace(setting, gpu=None), placement)
    without = replace(placement, zero_copy=())
    assert can_use_zero_copy(setting, without)
    poor = replace(setting, budgets=replace(setting.budgets, ram_bytes=0))
    assert not can_use_zero_copy(poor, without)
    everywhere = tuple(np.arange(placement.neurons, dtype=np.int32) for _ in placement.hot)
    assert not can_use_zero_copy(setting, replace(without, hot=everywhere))


def test_kinds_of_rows() -> None:
    config = a_config()
    assert kind_of(a_model(config, neuron=3 << 17), "exact") == "exact.f16.f16.131072"
    assert kind_of(a_model(config, neuron=3 << 17, codec="q4_0"), "sparse") == "sparse.q4_0.q4_0.131072"
