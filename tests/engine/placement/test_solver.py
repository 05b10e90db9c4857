"""The solver: as good as trying everything, never over a budget, better with a larger one, and always the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples.placement_cases import MIB, a_config, a_model, a_problem, a_profile, some_stats

from engine.config import Mode
from engine.errors import HostMemoryError
from engine.model.kv_cache import state_bytes
from engine.placement.gpu_bytes import GpuBytes
from engine.placement.greedy import fits, place_greedily, steps_of
from engine.placement.lower_bound import best_bound, gap
from engine.placement.model_bytes import PredictorBytes
from engine.placement.placement_problem import Choice, Problem, block_size
from engine.placement.solver import solve
from native_kernels.specs import DeltaSpec

BUDGETS = [0, 4 * MIB, 6 * MIB, 9 * MIB, 14 * MIB, 22 * MIB, 33 * MIB, 64 * MIB]


def predictors(n_layers: int = 4, true_gate: bool = False) -> PredictorBytes:
    ones = np.ones(n_layers, np.int64)
    return PredictorBytes(
        ones * 300_000, ones * 300_000, ("f16",) * n_layers, (0.25,) * n_layers, np.full(n_layers, true_gate)
    )


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Any numbers at all, of so few ways that all placements can be tried."""
    n_layers, n_blocks = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    counts = draw(st.sampled_from([list(range(n_blocks + 1)), [0, n_blocks]]))
    ways = [(False, 0), *((True, k) for k in counts)]
    shape = (n_layers, len(ways))

    def numbers(low: int, high: int, size: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=size, max_size=size))

    vram = np.array(numbers(1, 50, shape[0] * shape[1]), np.int64).reshape(shape) * 1000
    vram[:, 0] = 0
    seconds = np.array(numbers(1, 60, shape[0] * shape[1]), np.float64).reshape(shape) / 1e4
    possible = np.array(draw(st.lists(st.booleans(), min_size=n_layers, max_size=n_layers)))
    tied_from = draw(st.integers(0, n_layers))
    possible[tied_from:] = possible[tied_from:].all()
    seconds[~possible, 1:] = np.inf  # GPUs have no kernels for some layers, or for the head
    head_s = draw(st.one_of(st.just(np.inf), st.integers(1, 50).map(lambda n: n / 1e4)))
    ram = np.array(numbers(0, 50, shape[0] * shape[1]), np.int64).reshape(shape) * 1000
    neurons = 2 * n_blocks
    return Problem(
        seconds=seconds,
        vram=vram,
        ram=ram,
        predictor_vram=np.zeros_like(vram),
        zero_copy=np.zeros_like(vram),
        attention_on_gpu=np.array([way[0] for way in ways]),
        blocks=np.array([way[1] for way in ways]),
        head_seconds=(draw(st.integers(1, 50)) / 1e4, head_s),
        head_vram=(0, draw(st.integers(1, 40)) * 1000),
        head_ram=(7000, 0),
        order=np.tile(np.arange(neurons, dtype=np.int32), (n_layers, 1)),
        block=2,
        computed=np.tile(np.linspace(0, 1, n_blocks + 1), (n_layers, 1)),
        fixed_vram=draw(st.integers(0, 30)) * 1000,
        fixed_ram=5000,
        fixed_seconds=1e-4,
        crossing_s=draw(st.integers(0, 20)) / 1e4,
        tied_from=tied_from,
    )


def everything(problem: Problem) -> list[Choice]:
    ways = range(problem.seconds.shape[1])
    choices = [Choice(taken, head) for taken in product(ways, repeat=problem.n_layers) for head in (False, True)]
    choices = [one for one in choices if len(set(problem.attention_on_gpu[list(one.ways[problem.tied_from :])])) < 2]
    return [one for one in choices if np.isfinite(one.seconds(problem))]


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 250), st.one_of(st.none(), st.integers(10, 200)))
def test_as_good_as_trying_everything(problem: Problem, vram: int, ram: int | None) -> None:
    vram_budget, ram_budget = 1000 * vram + 100, None if ram is None else 1000 * ram + 100
    possible = [one for one in everything(problem) if fits(problem, one, vram_budget, ram_budget)]
    if not possible:
        with pytest.raises(HostMemoryError):
            solve(problem, vram_budget, ram_budget, good_gap=0)
        return
    best = min(one.seconds(problem) for one in possible)
    solution = solve(problem, vram_budget, ram_budget, good_gap=0)
    assert fits(problem, solution.choice, vram_budget, ram_budget)
    assert solution.choice in possible
    assert solution.seconds == solution.choice.seconds(problem)
    assert solution.seconds == pytest.approx(best, rel=1e-6)
    assert solution.seconds * (1 - solution.gap) <= best * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(0, 250))
def test_no_placement_is_faster_than_the_bound(problem: Problem, vram: int) -> None:
    budget = 1000 * vram
    bound = best_bound(problem, budget)
    for choice in everything(problem):
        if choice.uses_gpu(problem) and fits(problem, choice, budget, None):
            seconds = choice.seconds(problem)
            assert bound.seconds <= seconds * (1 + 1e-9)
            assert (bound.of_ways[np.arange(problem.n_layers), list(choice.ways)] <= seconds * (1 + 1e-9)).all()
            assert gap(choice, problem, bound.seconds) >= 0


@pytest.mark.parametrize("mode", ["dense", "exact", "sparse"])
@pytest.mark.parametrize("seed", [0, 1])
def test_within_every_budget_and_never_slower_with_more(mode: Mode, seed: int) -> None:
    config = a_config()
    known = predictors() if mode == "sparse" else None
    problem = a_problem(config, mode, stats=some_stats(config, seed), predictors=known)
    steps = steps_of(problem)
    before = problem.cpu_alone.seconds(problem)
    for budget in BUDGETS:
        solution = solve(problem, budget, steps=steps)
        greedy = place_greedily(problem, budget, steps=steps)
        assert greedy is not None
        assert solution.choice.vram(problem) <= budget
        assert solution.seconds <= before * (1 + 5e-4)
        assert solution.seconds <= greedy.seconds(problem)
        assert 0 <= solution.gap <= 2e-3
        before = solution.seconds
    everything_on_gpu = solve(problem, 4 * problem.most_vram)
    assert everything_on_gpu.choice.gpu_load(problem) == 1
    assert everything_on_gpu.choice.head_on_gpu


def test_the_same_answer_for_the_same_input() -> None:
    one, other = a_problem(), a_problem()
    for budget in BUDGETS:
        assert solve(one, budget) == solve(other, budget)


def test_the_integer_programme_finds_what_the_greedy_placement_does_not() -> None:
    """Two small steps fit where greedily the one that is worth more a byte leaves no room for the other."""
    problem = a_problem(a_config(n_layers=1), fixed_vram=0)
    made = replace(
        problem,
        seconds=np.array([[10.0, 6.0, 5.0, 1.0]]) / 1e3,
        vram=np.array([[0, 60, 90, 100]]) * MIB,
        ram=np.zeros((1, 4), np.int64),
        predictor_vram=np.zeros((1, 4), np.int64),
        attention_on_gpu=np.arange(4) > 0,
        blocks=np.arange(4),
        crossing_s=0.0,
        head_seconds=(5e-3, 1e-3),
        head_vram=(0, 35 * MIB),
        computed=np.ones((1, 4)),
    )
    assert solve(made, 101 * MIB).choice == Choice((3,), head_on_gpu=False)
    assert solve(made, 99 * MIB).choice == Choice((1,), head_on_gpu=True)


def test_hot_neurons_are_the_ones_that_fire_most() -> None:
    config = a_config()
    stats = some_stats(config)
    problem = a_problem(config, stats=stats)
    solution = solve(problem, 14 * MIB)
    found = 0
    for layer, way in enumerate(solution.choice.ways):
        hot = problem.hot_neurons(layer, way)
        assert hot.dtype == np.int32
        assert (np.diff(hot) > 0).all()
        cold = np.setdiff1d(np.arange(config.d_ff), hot)
        if len(hot) and len(cold):
            found += 1
            assert stats.counts[layer][hot].min() >= stats.counts[layer][cold].max()
    assert found
    load = solution.choice.gpu_load(problem)
    counted = sum(stats.counts[i][problem.hot_neurons(i, way)].sum() for i, way in enumerate(solution.choice.ways))
    assert load == pytest.approx(counted / stats.counts.sum(), rel=1e-5)


@pytest.mark.parametrize("activation", ["silu-glu", "gelu"])
def test_a_model_without_zeros_is_split_too(activation: str) -> None:
    config = a_config(activation)
    problem = a_problem(config, "dense")
    solution = solve(problem, 16 * MIB)
    assert any(0 < problem.blocks[way] < problem.blocks.max() for way in solution.choice.ways)
    assert solution.seconds < problem.cpu_alone.seconds(problem)


def test_a_layer_is_split_only_where_it_pays_for_the_exchange() -> None:
    for exchange_s, most in ((1e-6, None), (0.1, 0)):
        problem = a_problem(profile=a_profile(exchange_s=exchange_s))
        solution = solve(problem, 16 * MIB)
        whole = problem.blocks.max()
        split = sum(0 < problem.blocks[way] < whole for way in solution.choice.ways)
        assert split > 0 if most is None else split == most


def test_a_slow_gpu_is_not_used() -> None:
    problem = a_problem(profile=a_profile(gpu_gb_s=1))
    solution = solve(problem, 64 * MIB)
    assert solution.method == "cpu alone"
    assert solution.choice.vram(problem) == 0
    assert solution.gap == 0


def test_without_a_gpu() -> None:
    problem = a_problem(profile=a_profile(vram=None), fixed_vram=0)
    solution = solve(problem, 0)
    assert (solution.method, solution.gap, solution.choice.vram(problem)) == ("cpu alone", 0.0, 0)
    assert problem.seconds.shape == (4, 1)


def test_what_does_not_fit_into_the_ram_goes_to_the_gpu() -> None:
    problem = a_problem(profile=a_profile(gpu_gb_s=51))  # hardly faster than the CPU: little is gained by moving
    needed = problem.cpu_alone.ram(problem)
    budget = needed - 12 * MIB
    solution = solve(problem, 40 * MIB, budget)
    assert solution.choice.ram(problem) <= budget
    assert solution.choice.vram(problem) <= 40 * MIB
    with pytest.raises(HostMemoryError, match=r"0\.03 GiB"):
        solve(problem, 8 * MIB, needed - 20 * MIB)


def test_where_the_gate_itself_decides_it_is_as_in_exact_mode() -> None:
    config = a_config()
    nothing = np.zeros(4, np.int64)
    gates = PredictorBytes(nothing, nothing, ("f16",) * 4, (None,) * 4, np.ones(4, np.bool_))
    apart, together = a_problem(config, "sparse", predictors=gates), a_problem(config, "exact")
    np.testing.assert_allclose(apart.seconds, together.seconds)
    np.testing.assert_array_equal(apart.vram, together.vram)


def test_only_a_layer_at_home_on_the_gpu_has_hot_neurons() -> None:
    problem = a_problem(a_config(), "sparse", predictors=predictors())
    assert (problem.blocks[~problem.attention_on_gpu] == 0).all()
    assert (problem.vram[:, ~problem.attention_on_gpu] == 0).all()
    on_gpu = problem.attention_on_gpu & (problem.blocks == 0)
    assert (problem.predictor_vram[:, on_gpu] == 300_000).all()
    assert (problem.ram[:, on_gpu] < problem.ram[:, ~problem.attention_on_gpu]).all()


def test_a_block_whose_down_lies_row_by_row_is_hot_as_a_whole() -> None:
    problem = a_problem(a_config(), "sparse", predictors=predictors(), row_wise=True)
    assert problem.blocks.tolist() == [0, 0, 8]
    assert not problem.predictor_vram.any()  # all of it is multiplied, and nobody is asked
    assert (problem.ram[:, 1] - problem.ram[:, 2] == 256 * 3 * 8192 + 300_000).all()
    for budget in BUDGETS:
        ways = solve(problem, budget).choice.ways
        assert {int(problem.blocks[way]) for way in ways} <= {0, 8}


def test_what_gpus_have_no_kernels_for_stays_on_the_cpu() -> None:
    config = a_config()
    model = a_model(config)
    possible = np.array([True, False, True, True])
    gpu = GpuBytes(model.attention, model.neuron, np.zeros(4, np.int64), model.head, possible, False)
    problem = a_problem(config, on_gpu=gpu)
    choice = solve(problem, 64 * MIB).choice
    assert problem.attention_on_gpu[list(choice.ways)].tolist() == possible.tolist()
    assert not choice.head_on_gpu
    assert problem.most_vram == choice.vram(problem)
    assert place_greedily(problem, 64 * MIB) == choice


def test_a_layer_without_an_ffn_has_no_hot_neurons_and_no_exchange() -> None:
    spec = DeltaSpec(2, 4, 8, 8, 4, mamba=True)
    problem = a_problem(replace(a_config(), delta=spec, delta_layers=(1,), mixer_only_layers=(1,)))
    at_home = problem.attention_on_gpu
    seconds, vram = problem.seconds[:, at_home], problem.vram[:, at_home]
    assert (seconds[1] == seconds[1, 0]).all()
    assert (vram[1] == vram[1, 0]).all()
    assert seconds[1, 0] < seconds[0].min()
    assert not problem.computed[1].any()
    for budget in BUDGETS:
        choice, greedy = solve(problem, budget).choice, place_greedily(problem, budget)
        assert greedy is not None
        assert choice.seconds(problem) <= greedy.seconds(problem)
        assert problem.most_vram == choice.vram(problem) or budget < 64 * MIB


def test_a_state_with_its_snapshots_is_in_ram_if_its_layer_is_on_the_gpu_too() -> None:
    config = replace(a_config(), delta=DeltaSpec(2, 4, 8, 8, 4), delta_layers=(1,))
    problem = a_problem(config)
    all_hot = problem.attention_on_gpu & (problem.blocks == problem.blocks.max())
    assert problem.ram[:, all_hot].tolist() == [[0], [state_bytes(config)], [0], [0]]


def test_neurons_are_read_over_the_bus_where_the_cpu_does_not_take_all_that_the_ram_gives() -> None:
    slow: dict[str, Any] = {"codec": "q4_0", "mode": "sparse", "predictors": predictors(), "neuron": 3 << 17}
    quick: dict[str, Any] = {"codec": "f16", "mode": "dense", "neuron": 3 << 17}
    for codecs, pays in ((slow, True), (quick, False)):
        without, within = a_problem(**codecs), a_problem(pinned_bytes=1 << 30, **codecs)
        assert not without.zero_copy.any()
        assert bool(within.zero_copy.any()) == pays
        assert (within.seconds <= without.seconds).all()
        assert (within.ram >= without.ram).all()
        assert (within.blocks + within.zero_copy <= within.blocks.max()).all()
        choice = solve(within, 64 * MIB).choice
        for layer, way in enumerate(choice.ways):
            hot, zero_copy = within.hot_neurons(layer, way), within.zero_copy_neurons(layer, way)
            assert not set(hot) & set(zero_copy)
        assert any(within.zero_copy[layer, way] for layer, way in enumerate(choice.ways)) == pays
    short = a_problem(pinned_bytes=64 * MIB, **slow)
    pinned = short.block * int((short.zero_copy.max(axis=1)).sum()) * (3 << 17)
    assert short.zero_copy.any()
    assert pinned <= 64 * MIB


def test_neurons_are_read_over_the_bus_where_both_at_once_were_measured_to_read_more() -> None:
    floats: dict[str, Any] = {"codec": "f16", "mode": "dense", "neuron": 3 << 17, "pinned_bytes": 1 << 30}
    profile = a_profile()
    for beside, pays in ((0.9, True), (0.4, False)):
        gpu = replace(profile.gpus[0], reach_bytes_per_s=20e9, beside_share=beside)
        problem = a_problem(profile=replace(profile, gpus=(gpu,)), **floats)
        assert bool(problem.zero_copy.any()) == pays


def test_blocks() -> None:
    assert [block_size(n) for n in (1, 64, 1792, 4096, 11008, 28672, 49152)] == [32, 32, 32, 32, 96, 224, 384]
    for n in (64, 1792, 28672, 98304):
        assert -(-n // block_size(n)) <= 128


def test_eighty_layers_of_28672_neurons() -> None:
    """The size that it must solve in seconds; how many is for tests/benchmarks/placements.py to say."""
    config = a_config(n_layers=80, d_ff=28672, d_model=8192, n_heads=64, n_kv_heads=8, head_dim=128)
    problem = a_problem(config, neuron=3 * 16384, stats=some_stats(config))
    solution = solve(problem, 24 << 30, time_limit_s=600)
    assert solution.gap < 1e-3
    assert solution.choice.vram(problem) <= 24 << 30


def test_layers_that_share_keys_and_values_have_one_device() -> None:
    """The last of four layers has the keys and values of two more; a token crosses between the devices once."""
    problem = a_problem(a_config(n_layers=6, n_shared_kv_layers=2))
    assert problem.tied_from == 3
    found = set()
    for budget in BUDGETS:
        ways = list(solve(problem, budget).choice.ways)
        found.add(tuple(problem.attention_on_gpu[ways].tolist()))
    assert all(len(set(homes[3:])) == 1 for homes in found)
    assert {sum(homes) for homes in found} >= {0, 6}
    assert any(0 < sum(homes) < 6 for homes in found)
