"""Lagrangian lower bound of the placement problem, and the ways that it rules out.

With a price per byte of VRAM, every layer can be placed independently. No placement within the budget is faster than
the sum of these, less the price of the budget. This module finds no placement itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.placement.placement_problem import BOOL, F64, Choice, Problem

_ROUNDS = 60


@dataclass(frozen=True, eq=False)
class Bound:
    """Lower bounds in seconds: of any placement that uses the GPU, and [L, W] of those with a given way."""

    seconds: float
    of_ways: F64

    def worth_a_look(self, limit_s: float) -> BOOL:
        """Return bool [L, W]: the ways that can be part of a placement faster than limit_s."""
        return self.of_ways <= limit_s * (1 + 1e-12)


def best_bound(problem: Problem, vram_budget: int) -> Bound:
    """Return the highest bound over all prices. Cost: 30 ms for 80 layers of 28,672 neurons."""
    room = float(vram_budget - problem.fixed_vram)
    low, high = 0.0, 2 * _dearest(problem)
    golden = (5**0.5 - 1) / 2
    a, b = high - golden * (high - low), low + golden * (high - low)
    at_a, at_b = _bound(problem, a, room).seconds, _bound(problem, b, room).seconds
    for _ in range(_ROUNDS):  # the bound is concave in the price
        if at_a >= at_b:
            high, b, at_b = b, a, at_a
            a = high - golden * (high - low)
            at_a = _bound(problem, a, room).seconds
        else:
            low, a, at_a = a, b, at_b
            b = low + golden * (high - low)
            at_b = _bound(problem, b, room).seconds
    bounds = [_bound(problem, price, room) for price in (0.0, a, b)]
    return max(bounds, key=lambda one: one.seconds)


def _dearest(problem: Problem) -> float:
    """Return a price above the value of any byte."""
    alone = np.array(problem.cpu_alone.ways)
    layers = np.arange(problem.n_layers)
    with np.errstate(divide="ignore", invalid="ignore"):
        saved = (problem.seconds[layers, alone][:, None] - problem.seconds) / problem.vram
    head = (problem.head_seconds[0] - problem.head_seconds[1]) / max(1, problem.head_vram[1])
    return max(float(np.nanmax(np.where(problem.vram > 0, saved, 0.0), initial=0.0)), head, 1e-18)


def _bound(problem: Problem, price: float, room: float) -> Bound:
    """Return the bound at one price, in seconds per byte."""
    costs = problem.seconds + price * problem.vram
    on_gpu = problem.attention_on_gpu
    n_layers = problem.n_layers
    best = np.full((n_layers, 2), np.inf)
    for device in (0, 1):
        if (on_gpu == bool(device)).any():
            best[:, device] = costs[:, on_gpu == bool(device)].min(axis=1)
    # Cheapest path from the start on the CPU to layer i, and from layer i to the end on the CPU.
    crossing = problem.crossing_s
    moves = np.array([[0.0, crossing], [crossing, 0.0]])
    before = np.empty((n_layers + 1, 2))
    before[0] = moves[0]
    for i in range(n_layers):
        before[i + 1] = ((before[i] + best[i])[:, None] + moves).min(axis=0)
    head = np.array(problem.head_seconds) + price * np.array(problem.head_vram) + moves[:, 0]
    behind = np.empty((n_layers, 2))
    behind[-1] = (moves + head).min(axis=1)
    for i in range(n_layers - 2, -1, -1):
        behind[i] = (moves + best[i + 1] + behind[i + 1]).min(axis=1)
    constant = problem.fixed_seconds - price * room
    whole = float((before[n_layers] + head).min()) + constant
    around = (before[:n_layers] + behind)[:, on_gpu.astype(np.int64)]
    return Bound(whole, costs + around + constant)


def gap(choice: Choice, problem: Problem, bound_s: float) -> float:
    """Return the upper bound on a placement's distance from the optimum, as a share of its time."""
    seconds = choice.seconds(problem)
    return max(0.0, (seconds - bound_s) / seconds)
