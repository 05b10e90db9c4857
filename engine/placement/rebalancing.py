"""Decide whether to place a model again after its tokens showed how fast each side reads its rows.

Compares both placements at the same rates; measures nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.config import MODES, Mode
from engine.machine.read_rates import ReadRates
from engine.placement.activity import activity_of
from engine.placement.concurrent_reads import ReadTimes, rates_of
from engine.placement.cost_model import Machine
from engine.placement.greedy import place_greedily
from engine.placement.kv_positions import kv_sizes
from engine.placement.placement_problem import Choice, Hottest, Problem, block_size
from engine.placement.setting import Setting
from engine.placement.solving import activity_by, problem_by, with_learned
from engine.sparsity.placement import Placement


def machine_of(setting: Setting) -> Machine:
    """Return the machine with estimated rates, without the timed ones."""
    return Machine.of(setting.profile, setting.threads, setting.gpu)


def can_use_zero_copy(setting: Setting, placement: Placement) -> bool:
    """Return whether the GPU reads zero-copy neurons, or could."""
    model = setting.model
    if model.ffn_is_whole or model.unit or "gpu" not in placement.attention or setting.gpu is None:
        return False
    if all(len(hot) == placement.neurons for hot in placement.hot):
        return False
    block = int(model.gpu_bytes.neuron.sum()) * block_size(model.neurons)
    return bool(placement.zero_copy) or setting.pinned_bytes >= block


def expected_to_fired(setting: Setting, mode: Mode, computed: float) -> float | None:
    """Return the neurons that the predictors select per active neuron, from a token's computed neurons.

    None if it cannot be derived or every layer's share is known.
    """
    predictors, stats = setting.predictors, setting.stats
    if mode != "sparse" or predictors is None or stats is None or stats.tokens is None or computed <= 0:
        return None
    if predictors.is_true_gate.any() or any(share is not None for share in predictors.active_share):
        return None
    opened = float(activity_of(setting.opened.config, "exact", stats).opened.sum())
    return computed / opened if opened > 0 else None


def with_expected(setting: Setting, ratio: float) -> Setting:
    """Set the measured ratio of selected to active neurons."""
    assert setting.predictors is not None, "they were asked"
    return replace(setting, predictors=replace(setting.predictors, expected_to_fired=ratio))


def gain_of(setting: Setting, placement: Placement, times: ReadTimes) -> tuple[ReadRates | None, float]:
    """Return the rates derived from a token's times, and the share of time that another placement would save.

    Cost: 0.5 s for 80 layers of 28,672 neurons.
    """
    rates = rates_of(times, machine_of(setting))
    if rates is None:
        return None, 0.0
    mode = next(mode for mode in MODES if mode == placement.mode)
    now_s, best_s = _compared(replace(with_learned(setting), read_rates={mode: rates}), mode, placement)
    return rates, max(0.0, 1 - best_s / now_s)


def saved_by_kv(setting: Setting, placement: Placement, n_tokens: int) -> float:
    """Return the seconds that a token takes less if the GPU has no more KV cache than a conversation needs.

    n_tokens: of the conversation. Cost: as gain_of.
    """
    mode = next(mode for mode in MODES if mode == placement.mode)
    fewest = kv_sizes(setting.context, n_tokens)[0]
    setting = replace(with_learned(setting), least_positions=n_tokens, kv_positions=fewest)
    now_s, best_s = _compared(setting, mode, placement)
    return now_s - best_s


def _compared(setting: Setting, mode: Mode, placement: Placement) -> tuple[float, float]:
    """Return the predicted seconds of a token as the model is placed, and as it could be in this setting."""
    block = block_size(setting.model.neurons)
    zero_copy = placement.zero_copy or ((),) * placement.n_layers
    as_it_is = np.array([-(-len(ids) // block) for ids in zero_copy], np.int64)
    hottest = Hottest.of(activity_by(setting, mode), setting.model.unit)
    problem, now = problem_by(setting, mode, hottest), problem_by(setting, mode, hottest, as_it_is)
    choice = _choice_of(now, placement)
    ram = setting.origins().ram_budget_bytes
    found = place_greedily(problem, setting.budgets.vram_bytes, ram)
    best = choice.seconds(problem) if found is None else min(found.seconds(problem), choice.seconds(problem))
    return choice.seconds(now), best


def _choice_of(problem: Problem, placement: Placement) -> Choice:
    """Return the placement as a Choice of the problem's ways."""
    ways = []
    for home, hot in zip(placement.attention, placement.hot, strict=True):
        blocks = -(-len(hot) // problem.block)
        found = np.flatnonzero((problem.attention_on_gpu == (home == "gpu")) & (problem.blocks >= blocks))
        ways.append(int(found[0]))
    return Choice(tuple(ways), placement.head == "gpu")
