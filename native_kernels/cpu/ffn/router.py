"""Choose one token's experts by the router's scores.

Specification: engine/model/router.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from native_kernels.backend import F32, I32, I64
from native_kernels.cpu.products.vector_math import exp, logistic, put_some_floats, some_floats
from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import inline, kernel
from native_kernels.cpu.runtime.side_by_side import BLOCKS, MOST_TOKENS, tokens_here
from native_kernels.cpu.runtime.simd import (
    LANES,
    call_kernel,
    get_byte,
    get_float,
    get_int,
    get_int32,
    put_byte,
    put_float,
    put_int,
    put_int32,
    spread,
    sub,
)
from native_kernels.specs import ONE_GROUP, ExpertGroups, Weighing


@dataclass(frozen=True, eq=False)
class Chosen:
    """The router's choice for this token.

    ids: [K]. weights: [K], and behind them the shared expert's. counts: i64 [E], how often each expert was chosen.
    order: i64 [1 + K * MOST_TOKENS], if tokens run side by side: of the first token, the experts of all. Their number,
    then each as expert << 32 | token << 16 | place in its ids, ascending. None if each
    token has all experts.
    """

    ids: I32
    weights: F32
    counts: I64
    order: I64 | None

    @classmethod
    def make(cls, n_experts: int, n_used: int) -> Chosen:
        """Allocate for a router that chooses n_used of n_experts."""
        order = aligned_empty(1 + n_used * MOST_TOKENS, np.int64) if n_used < n_experts else None
        return cls(
            aligned_empty(n_used, np.int32), aligned_empty(n_used + 1), aligned_empty(n_experts, np.int64), order
        )  # fmt: skip


@inline
def add_in_order(order: Any, token: Any, ids: Any, n: Any) -> None:
    """Insert the experts ids [n] of a token into an order (Chosen)."""
    for k in range(n):
        new, at = get_int32(ids + 4 * k) << 32 | token << 16 | k, order + 8 * get_int(order)
        while at > order and get_int(at) > new:
            put_int(at + 8, get_int(at))
            at -= 8
        put_int(at + 8, new)
        put_int(order, get_int(order) + 1)


@inline
def _leave_groups(
    wanted: Any, bias: Any, size: Any, n_groups: Any, groups_used: Any, marks: Any, args: Any
) -> None:  # fmt: skip
    """Mark the experts outside the groups with the highest scores, of equal ones the first.

    wanted [E]: what the choice goes by, without the bias [E] (0: none). args: two more words of `_choose`.
    """
    by_two, of_groups = get_int(args), get_int(args + 8)
    for group in range(n_groups):
        first, second = np.float32(-np.inf), np.float32(-np.inf)
        for e in range(size * group, size * (group + 1)):
            value = get_float(wanted + 4 * e)
            if bias != 0:
                value += get_float(bias + 4 * e)
            if value > first:
                first, second = value, first
            elif value > second:
                second = value
        put_float(of_groups + 4 * group, first + second if by_two != 0 else first)
    for _ in range(n_groups - groups_used):
        worst, worst_score = -1, np.float32(0.0)
        for group in range(n_groups):
            score = get_float(of_groups + 4 * group)
            if get_byte(marks + size * group) == 0 and (worst < 0 or score <= worst_score):
                worst, worst_score = group, score
        for e in range(size * worst, size * (worst + 1)):
            put_byte(marks + e, 1)


@inline
def _share_of_near(scores: Any, n_experts: Any, marks: Any, best: Any, margin: Any) -> Any:
    """Return the share of an expert with the score `best`, the highest left, of the experts left near it."""
    total = 0.0
    for e in range(n_experts):
        score = get_float(scores + 4 * e)
        if get_byte(marks + e) == 0 and not best - score > margin * max(abs(score), best):
            total += math.exp(score - best)
    return np.float32(1.0 / total)


@kernel
def _choose(args: int, lo: int, hi: int, worker: int) -> None:
    """One item: the experts of the highest scores, of equal ones the first; what is not a number comes last.

    args: scores [E], E, K, shares [E], marks u8 [E], ids, weights, whether the weights are a logistic function of the
    scores (else softmax over all), whether they add up to 1, the shared expert's score (0: none), counts, what is added
    to the shares for the choice (0: the scores choose), factors [E] on the weights, groups of experts, how
    many of them are used, whether a group's score is the sum of its two best instead of its best, scores of groups [G],
    the margin, the order of several tokens' experts.
    """
    scores, n_experts, n_used = get_int(args), get_int(args + 8), get_int(args + 16)
    shares, marks, ids, weights = get_int(args + 24), get_int(args + 32), get_int(args + 40), get_int(args + 48)
    by_logistic, adds_up, shared, counts = (
        get_int(args + 56), get_int(args + 64), get_int(args + 72), get_int(args + 80)
    )  # fmt: skip
    bias, factors = get_int(args + 88), get_int(args + 96)
    n_groups, groups_used, margin = get_int(args + 104), get_int(args + 112), get_float(args + 136)
    most = np.float32(-np.inf)
    for e in range(n_experts):
        put_byte(marks + e, 0)
        most = max(most, get_float(scores + 4 * e))
    for e in range(0, n_experts, LANES):
        value = some_floats(scores + 4 * e, n_experts - e)
        value = logistic(value) if by_logistic != 0 else exp(sub(value, spread(most)))
        put_some_floats(shares + 4 * e, n_experts - e, value)
    total = np.float32(0.0)
    for e in range(n_experts):
        total += get_float(shares + 4 * e)
    if by_logistic == 0:
        for e in range(n_experts):
            put_float(shares + 4 * e, get_float(shares + 4 * e) / total)
    if n_groups > 1:
        wanted = shares if bias != 0 else scores
        _leave_groups(wanted, bias, n_experts // n_groups, n_groups, groups_used, marks, args + 120)
    used = np.float32(0.0)
    for k in range(n_used):
        best, best_score = -1, np.float32(0.0)
        for e in range(n_experts):
            score = get_float(scores + 4 * e)
            if bias != 0:
                score = get_float(shares + 4 * e) + get_float(bias + 4 * e)
            is_better = best < 0 or score > best_score or (best_score != best_score and score == score)
            if get_byte(marks + e) == 0 and is_better:
                best, best_score = e, score
        share = get_float(shares + 4 * best)
        if margin > 0.0:
            share = _share_of_near(scores, n_experts, marks, best_score, margin)
        put_byte(marks + best, 1)
        put_int32(ids + 4 * k, best)
        put_int(counts + 8 * best, get_int(counts + 8 * best) + 1)
        used += share
        put_float(weights + 4 * k, share)
    for k in range(n_used):
        share = get_float(weights + 4 * k)
        if adds_up != 0:
            share /= used
        put_float(weights + 4 * k, share * get_float(factors + 4 * get_int32(ids + 4 * k)))
    if shared != 0:
        put_some_floats(weights + 4 * n_used, 1, logistic(some_floats(shared, 1)))


@kernel
def _choose_several(args: int, lo: int, hi: int, worker: int) -> None:
    """Do as run_side_by_side with _choose, and put the experts of all tokens in order."""
    order = get_int(get_int(args + BLOCKS) + 144)
    put_int(order, 0)
    for token in range(tokens_here(args)):
        block = get_int(args + BLOCKS + 8 * token)
        call_kernel(get_int(args + 32), block, lo, hi, worker)
        add_in_order(order, token, get_int(block + 48), get_int(block + 16))


def choose_calls(
    scores: F32, chosen: Chosen, weighing: Weighing, shared_score: F32 | None, bias: F32 | None = None,
    factor: float | F32 = 1.0, groups: ExpertGroups = ONE_GROUP,
) -> list[Call]:  # fmt: skip
    """scores [E] -> chosen. shared_score: [1], weighs one more.

    bias [E]: added to the weights for the choice alone. factor: on the weights of the chosen, one for all or [E].
    groups: those that the experts are chosen from.
    """
    router, adds_up, margin = weighing
    factors: F32 = np.full(len(scores), factor, np.float32)
    shares, marks = aligned_empty(len(scores)), aligned_empty(len(scores), np.uint8)
    of_groups: F32 = aligned_empty(groups.n)
    words = arguments(
        scores, len(scores), len(chosen.ids), shares, marks, chosen.ids, chosen.weights, int(router == "sigmoid"),
        int(adds_up), 0 if shared_score is None else shared_score, chosen.counts, 0 if bias is None else bias, factors,
        groups.n, groups.used, int(groups.by_two), of_groups, float(margin if router == "softmax" else 0.0),
        0 if chosen.order is None else chosen.order,
    )  # fmt: skip
    keeps = (scores, shares, marks, chosen, shared_score, bias, factors, of_groups)
    return [Call(_choose, words, 1, 1, "ffn", keeps, together=None if chosen.order is None else _choose_several)]
