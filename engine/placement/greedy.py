"""Greedy placement, without an integer program: the bytes that save the most seconds go to the GPU first.

Attention goes to the GPU for the last layers only, so that a token crosses between the devices once. The solver tries
every number of such layers, then spends the rest of the budget on whatever still saves time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.placement.placement_problem import BOOL, F64, I64, Choice, Problem


@dataclass(frozen=True, eq=False)
class Steps:
    """Upgrades of every layer from one way to the next larger one, sorted by seconds saved per byte.

    layer: the layer of each step. attention_on_gpu: whether its ways have attention on the GPU. way: the way after the
    step. slope: seconds saved per byte.
    """

    layer: I64
    attention_on_gpu: BOOL
    way: I64
    slope: F64
    vram: I64  # additional bytes
    seconds: F64  # seconds saved
    base_way: I64  # [2, L]: initial way without and with attention on the GPU


def steps_of(problem: Problem) -> Steps:
    """Return all useful steps, best first. They do not depend on the budget. Cost: 20 ms for 80 layers."""
    found: list[tuple[F64, I64, F64, I64, int, bool]] = []  # slopes, bytes, seconds, ways, layer, device
    base = np.zeros((2, problem.n_layers), np.int64)
    for on_gpu in (False, True):
        ways = np.flatnonzero(problem.attention_on_gpu == on_gpu)
        if not len(ways):
            continue
        for layer in range(problem.n_layers):
            if not problem.possible[layer, ways].any():
                continue
            vram, seconds = problem.vram[layer, ways], problem.seconds[layer, ways]
            hull = _lower_hull(vram, seconds)
            base[int(on_gpu), layer] = ways[hull[0]]
            dv, ds = np.diff(vram[hull]), -np.diff(seconds[hull])
            found.append((ds / dv, dv, ds, ways[hull[1:]], layer, on_gpu))
    slope = np.concatenate([one[0] for one in found])
    layers = np.concatenate([np.full(len(one[0]), one[4]) for one in found])
    # Ties: the last layer first, because it is next to the head. Within a layer the stable sort keeps the order.
    order = np.lexsort((-layers, -slope))
    return Steps(
        layer=layers[order],
        attention_on_gpu=np.concatenate([np.full(len(one[0]), one[5]) for one in found])[order],
        way=np.concatenate([one[3] for one in found])[order],
        slope=slope[order],
        vram=np.concatenate([one[1] for one in found])[order],
        seconds=np.concatenate([one[2] for one in found])[order],
        base_way=base,
    )


def place_greedily(
    problem: Problem, vram_budget: int, ram_budget: int | None = None, steps: Steps | None = None
) -> Choice | None:
    """Return the best greedy placement within both budgets; None if no greedy placement fits in RAM.

    Experts stay on the disk only if no greedy placement fits otherwise.

    Cost: about 30 ms for 80 layers of 28,672 neurons if `steps` is given, fast enough to follow a slider.
    """
    candidates = [problem.cpu_alone]
    if problem.attention_on_gpu.any() or (problem.vram > 0).any():
        candidates += _on_the_gpu(problem, vram_budget, ram_budget, steps or steps_of(problem))
    fitting = [one for one in candidates if fits(problem, one, vram_budget, ram_budget)]
    if not fitting and problem.disk_block is not None:
        return place_greedily(problem.with_disk, vram_budget, ram_budget, steps)
    return min(fitting, key=lambda one: one.seconds(problem), default=None)


def fits(problem: Problem, choice: Choice, vram_budget: int, ram_budget: int | None) -> bool:
    """Return whether the placement stays within both budgets."""
    within = ram_budget is None or choice.ram(problem) <= ram_budget
    return within and choice.vram(problem) <= vram_budget


def _on_the_gpu(problem: Problem, vram_budget: int, ram_budget: int | None, steps: Steps) -> list[Choice]:
    """Return the most promising placements over all numbers of GPU layers and both devices of the head.

    Step totals rank the candidates; only the best four are filled in, or all of them if RAM is short.
    """
    n_layers = problem.n_layers
    layers = np.arange(n_layers)
    can_be_there = _can_be_there(problem)
    rough: list[tuple[float, int, bool]] = []
    for head_on_gpu in (False, True) if np.isfinite(problem.head_seconds[1]) else (False,):
        room = vram_budget - problem.fixed_vram - problem.head_vram[head_on_gpu]
        for n_gpu in range(n_layers + 1) if problem.attention_on_gpu.any() else (0,):
            if 0 < n_gpu < n_layers - problem.tied_from:
                continue
            on_gpu = can_be_there & (layers >= n_layers - n_gpu)
            start = steps.base_way[on_gpu.astype(np.int64), layers]
            left = room - int(problem.vram[layers, start].sum())
            if left < 0:
                break
            taken = steps.attention_on_gpu == on_gpu[steps.layer]
            n_taken = int(np.searchsorted(np.cumsum(steps.vram[taken]), left, side="right"))
            saved = float(steps.seconds[taken][:n_taken].sum())
            crossing_s = 2 * problem.crossing_s if head_on_gpu or on_gpu.any() else 0.0
            seconds = float(problem.seconds[layers, start].sum()) - saved + crossing_s
            rough.append((seconds + problem.head_seconds[head_on_gpu], n_gpu, head_on_gpu))
    rough.sort(key=lambda one: one[0])
    worked_out = rough if ram_budget is not None and _ram_of_cpu(problem) > ram_budget else rough[:4]
    return [
        _filled(problem, vram_budget, ram_budget, steps, n_gpu, head_on_gpu) for _, n_gpu, head_on_gpu in worked_out
    ]


def _can_be_there(problem: Problem) -> BOOL:
    """Return bool [L]: which layers can have their attention on the GPU."""
    return np.asarray(problem.possible[:, problem.attention_on_gpu].any(axis=1), np.bool_)


def _ram_of_cpu(problem: Problem) -> int:
    return problem.cpu_alone.ram(problem)


def _filled(
    problem: Problem, vram_budget: int, ram_budget: int | None, steps: Steps, n_gpu: int, head_on_gpu: bool
) -> Choice:
    """Apply steps in order until one does not fit, then single changes while they save time."""
    n_layers = problem.n_layers
    layers = np.arange(n_layers)
    on_gpu = _can_be_there(problem) & (layers >= n_layers - n_gpu)
    ways = steps.base_way[on_gpu.astype(np.int64), layers].copy()
    left = vram_budget - problem.fixed_vram - problem.head_vram[head_on_gpu] - int(problem.vram[layers, ways].sum())
    taken = np.flatnonzero(steps.attention_on_gpu == on_gpu[steps.layer])
    n_taken = int(np.searchsorted(np.cumsum(steps.vram[taken]), left, side="right"))
    taken = taken[:n_taken]
    ways[steps.layer[taken]] = steps.way[taken]  # the last step of a layer wins
    left -= int(steps.vram[taken].sum())
    allowed = (problem.attention_on_gpu[None, :] == on_gpu[:, None]) & problem.possible
    for _ in range(4 * n_layers):
        dv = problem.vram - problem.vram[layers, ways][:, None]
        gain = problem.seconds[layers, ways][:, None] - problem.seconds
        gain[~allowed | (dv > left)] = 0.0
        best = int(gain.argmax())
        layer, way = divmod(best, gain.shape[1])
        if gain[layer, way] <= 1e-12:
            break
        left -= int(dv[layer, way])
        ways[layer] = way
    choice = Choice(tuple(ways.tolist()), head_on_gpu)
    if ram_budget is None:
        return choice
    return _within_ram(problem, choice, left, ram_budget, allowed)


def _within_ram(problem: Problem, choice: Choice, left: int, ram_budget: int, allowed: BOOL) -> Choice:
    """Move to the GPU, at the least cost in time, what exceeds the RAM budget."""
    layers = np.arange(problem.n_layers)
    ways = np.array(choice.ways)
    over = choice.ram(problem) - ram_budget
    for _ in range(4 * problem.n_layers):
        if over <= 0:
            break
        dv = problem.vram - problem.vram[layers, ways][:, None]
        freed = problem.ram[layers, ways][:, None] - problem.ram
        possible = allowed & (dv <= left) & (freed > 0)
        if not possible.any():
            break
        cost = problem.seconds - problem.seconds[layers, ways][:, None]
        worth = np.where(possible, cost / np.maximum(1, np.minimum(freed, over)), np.inf)
        layer, way = divmod(int(worth.argmin()), worth.shape[1])
        left -= int(dv[layer, way])
        over -= int(freed[layer, way])
        ways[layer] = way
    return Choice(tuple(ways.tolist()), choice.head_on_gpu)


def _lower_hull(x: I64, y: F64) -> I64:
    """Return indices of the decreasing part of the lower convex hull: x ascending, y descending."""
    order = np.lexsort((y, x))
    hull: list[int] = []
    for i in order.tolist():
        if hull and y[i] >= y[hull[-1]]:
            continue
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            hull.pop()
        if hull and x[i] == x[hull[-1]]:
            hull.pop()
        hull.append(i)
    return np.array(hull, np.int64)
