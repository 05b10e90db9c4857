"""Solve for the placement with the lowest predicted time per token within the budgets.

HiGHS solves an integer program in which every layer takes one way. The greedy placement bounds the optimum from above
and the Lagrangian from below; the two bounds rule out most ways beforehand. Paper: PowerInfer, section 6.3.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from engine.errors import HostMemoryError
from engine.placement.greedy import Steps, fits, place_greedily
from engine.placement.lower_bound import best_bound, gap
from engine.placement.placement_problem import BOOL, Choice, Problem

log = logging.getLogger(__name__)

TIME_LIMIT_S = 8.0
# Accept a placement this close to the optimum, as a share of the time per token.
GOOD_GAP = 5e-4
# Limit of the search in nodes times remaining ways. Unlike a time limit it stops at the same point on every machine.
# The minimum number of nodes takes 3 s of one core for the largest models.
_MOST_WORK, _LEAST_NODES = 100_000, 20
# HiGHS uses tolerances of 1e-6; microseconds and MiB keep them far below a block's value.
_MICROSECONDS, _MIB = 1e6, 1 / (1 << 20)
_SPARE_BYTES = 64


@dataclass(frozen=True)
class Solution:
    """A placement with its predicted seconds per token. gap: upper bound on its distance from the optimum."""

    choice: Choice
    seconds: float
    gap: float
    method: Literal["cpu alone", "greedy", "integer programme"]


def solve(
    problem: Problem,
    vram_budget: int,
    ram_budget: int | None = None,
    *,
    steps: Steps | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    good_gap: float = GOOD_GAP,
) -> Solution:
    """Return the fastest placement within both budgets. Deterministic.

    ram_budget None: unlimited. time_limit_s: for improving on the greedy placement; if no greedy placement fits, the
    search has at least TIME_LIMIT_S. Cost: seconds for 80 layers of 28,672 neurons.
    Raises: HostMemoryError, with the minimum, if the RAM cannot hold what the GPU does not.
    """
    found = place_greedily(problem, vram_budget, ram_budget, steps)
    if found is None or not fits(problem, found, vram_budget, ram_budget):
        problem = problem.with_disk
    if found is None:  # RAM is short: the greedy placement does not choose what to free
        everything = np.ones(problem.seconds.shape, np.bool_)
        found, _ = _programme(problem, everything, vram_budget, ram_budget, max(time_limit_s, TIME_LIMIT_S), good_gap)
    if found is None:
        raise _too_little_ram(problem, vram_budget, ram_budget)
    if vram_budget <= problem.fixed_vram or not (problem.vram.any() or problem.head_vram[1]):
        return Solution(found, found.seconds(problem), 0.0, "cpu alone")
    bound = best_bound(problem, vram_budget)
    method: Literal["cpu alone", "greedy", "integer programme"] = "greedy"
    bound_s = bound.seconds
    if gap(found, problem, bound_s) > good_gap:
        candidates = bound.worth_a_look(found.seconds(problem))
        better, proven = _programme(problem, candidates, vram_budget, ram_budget, time_limit_s, good_gap)
        bound_s = max(bound_s, proven)
        if better is not None and better.seconds(problem) < found.seconds(problem):
            found, method = better, "integer programme"
    alone = problem.cpu_alone
    if fits(problem, alone, vram_budget, ram_budget):  # the bound assumes that the GPU is used
        bound_s = min(bound_s, alone.seconds(problem))
    if not found.uses_gpu(problem):
        method = "cpu alone"
    return Solution(found, found.seconds(problem), gap(found, problem, bound_s), method)


def _programme(
    problem: Problem, candidates: BOOL, vram_budget: int, ram_budget: int | None, time_limit_s: float, good_gap: float
) -> tuple[Choice | None, float]:
    """Return the best placement of the candidate ways that HiGHS finds, and its proven lower bound in seconds.

    Variables: whether a layer takes a way; whether the head is on the GPU; whether the token changes device before a
    layer, before the head and after it.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    n_layers = problem.n_layers
    layer, way = np.nonzero(candidates & problem.possible)
    n_ways, n_crossings = len(layer), n_layers + 2
    head, crossing = n_ways, n_ways + 1
    n = n_ways + 1 + n_crossings
    on_gpu = problem.attention_on_gpu[way]
    head_can_move = bool(np.isfinite(problem.head_seconds[1]))
    costs = np.concatenate([
        problem.seconds[layer, way],
        [problem.head_seconds[1] - problem.head_seconds[0] if head_can_move else 0.0],
        np.full(n_crossings, problem.crossing_s),
    ]) * _MICROSECONDS  # fmt: skip
    rows: list[int] = layer.tolist()  # exactly one way per layer
    columns = list(range(n_ways))
    values = [1.0] * n_ways
    low, high = [1.0] * n_layers, [1.0] * n_layers

    def add(entries: dict[int, float], least: float, most: float) -> None:
        rows.extend([len(low)] * len(entries))
        columns.extend(entries)
        values.extend(entries.values())
        low.append(least)
        high.append(most)

    of_layer = [np.flatnonzero((layer == i) & on_gpu).tolist() for i in range(n_layers)]
    homes: list[list[int]] = [[], *of_layer, [head], []]  # one variable is 1 if the token is on the GPU
    for i in range(n_crossings):
        here, there = homes[i], homes[i + 1]
        for sign in (1.0, -1.0):
            entries = dict.fromkeys(here, sign) | dict.fromkeys(there, -sign)
            add({**entries, crossing + i: -1.0}, -np.inf, 0.0)
    for here, there in pairwise(of_layer[problem.tied_from :]):
        add(dict.fromkeys(here, 1.0) | dict.fromkeys(there, -1.0), 0.0, 0.0)
    vram = {i: float(problem.vram[layer[i], way[i]]) * _MIB for i in range(n_ways)}
    room = vram_budget - problem.fixed_vram - _SPARE_BYTES
    add({**vram, head: problem.head_vram[1] * _MIB}, -np.inf, room * _MIB)
    if ram_budget is not None:
        ram = {i: float(problem.ram[layer[i], way[i]]) * _MIB for i in range(n_ways)}
        room = ram_budget - problem.fixed_ram - problem.head_ram[0] - _SPARE_BYTES
        add({**ram, head: (problem.head_ram[1] - problem.head_ram[0]) * _MIB}, -np.inf, room * _MIB)
    nodes = max(_LEAST_NODES, _MOST_WORK // n_ways)
    result: Any = milp(
        costs,
        integrality=np.concatenate([np.ones(n_ways + 1), np.zeros(n_crossings)]),
        bounds=Bounds(0, np.concatenate([np.ones(n_ways), [float(head_can_move)], np.ones(n_crossings)])),
        constraints=LinearConstraint(csr_array((values, (rows, columns)), shape=(len(low), n)), low, high),
        options={"time_limit": time_limit_s, "mip_rel_gap": good_gap / 2, "node_limit": nodes},
    )
    constant = problem.fixed_seconds + problem.head_seconds[0]
    proven = -np.inf if result.mip_dual_bound is None else result.mip_dual_bound / _MICROSECONDS + constant
    if result.x is None:
        log.info("The integer programme found nothing: %s", result.message)
        return None, proven
    ways = np.zeros(n_layers, np.int64)
    taken = result.x[:n_ways] > 0.5
    ways[layer[taken]] = way[taken]
    choice = Choice(tuple(ways.tolist()), bool(result.x[head] > 0.5))
    return (choice if fits(problem, choice, vram_budget, ram_budget) else None), proven


def _too_little_ram(problem: Problem, vram_budget: int, ram_budget: int | None) -> HostMemoryError:
    # Every byte on the GPU is one less in RAM.
    on_gpu = max(0, min(vram_budget, problem.most_vram) - problem.fixed_vram)
    least = problem.cpu_alone.ram(problem) - on_gpu
    return HostMemoryError(
        f"At least {least / 2**30:.2f} GiB of RAM are needed for what the GPU does not hold; "
        f"{(ram_budget or 0) / 2**30:.2f} GiB may be used.",
        "Choose a smaller model, a shorter context, or weights of fewer bits.",
    )
