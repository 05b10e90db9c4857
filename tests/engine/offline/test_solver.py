"""The solver: as good as trying everything, never over a budget, better with a larger one, and always the same."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_cases import MIB, a_config, a_problem, a_profile, some_stats

from engine.config import Mode
from engine.errors import HostMemoryError
from engine.offline.greedy import fits, place_greedily, steps_of
from engine.offline.lower_bound import best_bound, gap
from engine.offline.model_bytes import PredictorBytes
from engine.offline.placement_problem import Choice, Problem, block_size
from engine.offline.solver import solve

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
    ways = [(a, p, k) for a in (False, True) for p in {a, draw(st.booleans())} for k in range(n_blocks + 1)]
    shape = (n_layers, len(ways))

    def numbers(low: int, high: int, size: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=size, max_size=size))

    vram = np.array(numbers(1, 50, shape[0] * shape[1]), np.int64).reshape(shape) * 1000
    alone = ways.index((False, False, 0))
    vram[:, alone] = 0
    ram = np.array(numbers(0, 50, shape[0] * shape[1]), np.int64).reshape(shape) * 1000
    neurons = 2 * n_blocks
    return Problem(
        seconds=np.array(numbers(1, 60, shape[0] * shape[1]), np.float64).reshape(shape) / 1e4,
        vram=vram,
        ram=ram,
        attention_on_gpu=np.array([way[0] for way in ways]),
        predictor_on_gpu=np.array([way[1] for way in ways]),
        blocks=np.array([way[2] for way in ways]),
        head_seconds=(draw(st.integers(1, 50)) / 1e4, draw(st.integers(1, 50)) / 1e4),
        head_vram=(0, draw(st.integers(1, 40)) * 1000),
        head_ram=(7000, 0),
        order=np.tile(np.arange(neurons, dtype=np.int32), (n_layers, 1)),
        block=2,
        computed=np.tile(np.linspace(0, 1, n_blocks + 1), (n_layers, 1)),
        fixed_vram=draw(st.integers(0, 30)) * 1000,
        fixed_ram=5000,
        fixed_seconds=1e-4,
        crossing_s=draw(st.integers(0, 20)) / 1e4,
    )


def everything(problem: Problem) -> list[Choice]:
    ways = range(problem.seconds.shape[1])
    return [
        Choice(taken, bool(head))
        for taken in product(ways, repeat=problem.n_layers)
        for head in (False, True)
    ]  # fmt: skip


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
        assert solution.seconds <= before * (1 + 1e-4)
        assert solution.seconds <= greedy.seconds(problem)
        assert 0 <= solution.gap <= 2e-3
        before = solution.seconds
    everything_on_card = solve(problem, 4 * problem.most_vram)
    assert everything_on_card.choice.gpu_load(problem) == 1
    assert everything_on_card.choice.head_on_gpu


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
        attention_on_gpu=np.zeros(4, np.bool_),
        predictor_on_gpu=np.zeros(4, np.bool_),
        blocks=np.arange(4),
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


def test_a_slow_card_is_not_used() -> None:
    problem = a_problem(profile=a_profile(gpu_gb_s=1))
    solution = solve(problem, 64 * MIB)
    assert solution.method == "cpu alone"
    assert solution.choice.vram(problem) == 0
    assert solution.gap == 0


def test_without_a_card() -> None:
    problem = a_problem(profile=a_profile(vram=None), fixed_vram=0)
    solution = solve(problem, 0)
    assert (solution.method, solution.gap, solution.choice.vram(problem)) == ("cpu alone", 0.0, 0)
    assert problem.seconds.shape == (4, 1)


def test_what_does_not_fit_into_the_ram_goes_to_the_card() -> None:
    problem = a_problem(profile=a_profile(gpu_gb_s=51))  # hardly faster than the CPU: little is gained by moving
    needed = problem.cpu_alone.ram(problem)
    budget = needed - 12 * MIB
    solution = solve(problem, 40 * MIB, budget)
    assert solution.choice.ram(problem) <= budget
    assert solution.choice.vram(problem) <= 40 * MIB
    with pytest.raises(HostMemoryError, match=r"At least 0\.03 GiB of RAM are needed"):
        solve(problem, 8 * MIB, needed - 20 * MIB)


def test_true_gates_on_the_card_leave_the_rest_of_a_neuron() -> None:
    config = a_config()
    size = np.full(4, config.d_ff * 8192, np.int64)
    gates = PredictorBytes(size, size, ("f16",) * 4, (None,) * 4, np.ones(4, np.bool_))
    apart = a_problem(config, "sparse", predictors=gates)
    together = a_problem(config, "exact")
    whole = 4 * problem_bytes(together)
    assert 4 * problem_bytes(apart) == whole
    assert apart.most_vram == together.most_vram
    # All gates on the card, nothing hot: the CPU reads no gate at all.
    way = int(np.flatnonzero(apart.attention_on_gpu & apart.predictor_on_gpu & (apart.blocks == 0))[0])
    cold = int(np.flatnonzero(together.attention_on_gpu & (together.blocks == 0))[0])
    assert (apart.seconds[:, way] < together.seconds[:, cold]).all()


def problem_bytes(problem: Problem) -> int:
    return int(problem.ram[0, problem.cpu_alone.ways[0]])


def test_blocks() -> None:
    assert [block_size(n) for n in (1, 64, 1792, 4096, 11008, 28672, 49152)] == [32, 32, 32, 32, 96, 224, 384]
    for n in (64, 1792, 28672, 98304):
        assert -(-n // block_size(n)) <= 128


def test_eighty_layers_of_28672_neurons() -> None:
    """The size that it must solve in seconds; how many is for tests/benchmarks/placements.py to say."""
    config = a_config(n_layers=80, d_ff=28672, d_model=8192, n_heads=64, n_kv_heads=8, head_dim=128)
    problem = a_problem(config, neuron=3 * 16384, stats=some_stats(config))
    solution = solve(problem, 24 << 30)
    assert solution.gap < 1e-3
    assert solution.choice.vram(problem) <= 24 << 30
