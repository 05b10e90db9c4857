"""Whether a model had better be placed anew, once its tokens have told how fast either side reads its rows.

Both placements are reckoned by the same rates; nothing is measured here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.config import MODES, Mode
from engine.machine.lane_rates import LaneRates
from engine.placement.activity import activity_of
from engine.placement.cost_model import Machine
from engine.placement.greedy import place_greedily
from engine.placement.lanes import LaneTimes, rates_of
from engine.placement.placement_problem import Choice, Hottest, Problem, block_size
from engine.placement.solving import Setting, activity_by, problem_by, with_learned
from engine.sparsity.placement import Placement


def machine_of(setting: Setting) -> Machine:
    """As it is reckoned, without what was timed."""
    return Machine.of(setting.profile, setting.threads, setting.gpu)


def could_reach(setting: Setting, placement: Placement) -> bool:
    """Whether the GPU reads neurons over the bus beside the CPU, or might as well."""
    model = setting.model
    if model.down_is_row_wise or "gpu" not in placement.attention or setting.gpu is None:
        return False
    if all(len(hot) == placement.neurons for hot in placement.hot):
        return False
    block = int(model.gpu_bytes.neuron.sum()) * block_size(model.neurons)
    return bool(placement.reached) or setting.pinned_bytes >= block


def expected_to_fired(setting: Setting, mode: Mode, computed: float) -> float | None:
    """How many times as many neurons the model's predictors expect as fire, where a token computed so many of all its
    layers; None where that does not follow, or every layer's share is known."""
    predictors, stats = setting.predictors, setting.stats
    if mode != "sparse" or predictors is None or stats is None or stats.tokens is None or computed <= 0:
        return None
    if predictors.is_true_gate.any() or any(share is not None for share in predictors.active_share):
        return None
    opened = float(activity_of(setting.opened.config, "exact", stats).opened.sum())
    return computed / opened if opened > 0 else None


def with_expected(setting: Setting, ratio: float) -> Setting:
    """With what the predictors were found to expect, `expected_to_fired` times what fires."""
    assert setting.predictors is not None, "they were asked"
    return replace(setting, predictors=replace(setting.predictors, expected_to_fired=ratio))


def gain_of(setting: Setting, placement: Placement, times: LaneTimes) -> tuple[LaneRates | None, float]:
    """The rates by what a token of the placement took, and by which share of its time another placement would be
    faster with them.

    Cost: for 80 layers of 28,672 neurons 0.5 s.
    """
    rates = rates_of(times, machine_of(setting))
    if rates is None:
        return None, 0.0
    mode = next(mode for mode in MODES if mode == placement.mode)
    setting = replace(with_learned(setting), lanes={mode: rates})
    block = block_size(setting.model.neurons)
    reached = placement.reached or ((),) * placement.n_layers
    as_it_is = np.array([-(-len(ids) // block) for ids in reached], np.int64)
    hottest = Hottest.of(activity_by(setting, mode))
    problem, now = problem_by(setting, mode, hottest), problem_by(setting, mode, hottest, as_it_is)
    choice = _choice_of(now, placement)
    ram = setting.origins().ram_budget_bytes
    found = place_greedily(problem, setting.budgets.vram_bytes, ram)
    best = choice.seconds(problem) if found is None else min(found.seconds(problem), choice.seconds(problem))
    return rates, max(0.0, 1 - best / choice.seconds(now))


def _choice_of(problem: Problem, placement: Placement) -> Choice:
    """The ways by which the placement places the layers."""
    ways = []
    for home, hot in zip(placement.attention, placement.hot, strict=True):
        blocks = -(-len(hot) // problem.block)
        found = np.flatnonzero((problem.attention_on_gpu == (home == "gpu")) & (problem.blocks == blocks))
        ways.append(int(found[0]))
    return Choice(tuple(ways), placement.head == "gpu")
