"""Select the experts of each position and their weights. Computes no expert."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.model.graph import RoutingSpec
from native_kernels.backend import F32, I64, Operators, PackedMatrix
from native_kernels.specs import ExpertGroups, Weighing


@dataclass(frozen=True, eq=False)
class Routing:
    """K different experts for each of T positions, with weights."""

    experts: I64  # [T, K]
    weights: F32  # [T, K]
    of_inputs: bool = False  # the weights multiply what experts read, not what they return

    def of_columns(self, some: slice) -> Routing:
        """Return the routing to some of the K experts alone."""
        return Routing(self.experts[:, some], self.weights[:, some], self.of_inputs)


def route(
    spec: RoutingSpec,
    router: PackedMatrix,
    x: F32,
    operators: Operators,
    bias: F32 | None = None,
    shared_gate: F32 | None = None,
    selection_bias: F32 | None = None,
    expert_scale: F32 | None = None,
) -> Routing:
    """Route x [T, D] with the router [E, D]: the K highest scores of the groups used, lower index first on ties.

    bias [E]: added to the scores. selection_bias [E]: added to the weights for the selection alone. shared_gate [D]:
    weight of the shared expert, number E, which every position uses; without one its weight is 1. expert_scale [E]:
    factor on each expert's weight.
    """
    scores = operators.matmul(x, router)  # [T, E]
    if bias is not None:
        scores = scores + bias
    experts, weights = chosen_of(scores, spec.n_used, spec.weighing, spec.groups, selection_bias)
    weights = weights * np.float32(spec.scale)
    if expert_scale is not None:
        weights = weights * expert_scale[experts]
    if spec.shared_width:
        experts = np.pad(experts, ((0, 0), (0, 1)), constant_values=spec.n_experts)
        shared = np.ones(len(x), np.float32) if shared_gate is None else _logistic((x * shared_gate).sum(axis=1))
        weights = np.concatenate([weights, shared[:, None]], axis=1)
    return Routing(experts, weights, spec.of_inputs)


def chosen_of(
    scores: F32, n_used: int, weighing: Weighing, groups: ExpertGroups, selection_bias: F32 | None = None
) -> tuple[I64, F32]:
    """Return the K experts [T, K] of the highest scores [T, E] and their weights [T, K]. Other parameters: `route`."""
    if weighing.router == "softmax":
        shares = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        shares /= shares.sum(axis=1, keepdims=True)
    else:
        shares = _logistic(scores)
    wanted = scores if selection_bias is None else shares + selection_bias
    if groups.n > 1:
        wanted = _of_best_groups(groups, wanted)
    experts = np.argsort(-wanted, axis=1, kind="stable")[:, :n_used]
    weights = np.take_along_axis(shares, experts, axis=1)
    if weighing.margin and weighing.router == "softmax":
        weights = _shares_of_near(scores, experts, weighing.margin)
    if weighing.adds_up:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return experts, weights


def _shares_of_near(scores: F32, experts: I64, margin: float) -> F32:
    """Return each chosen expert's share [T, K] of those near it, without those chosen before: SparseMixer.

    Source: GRIN, arXiv 2409.12136, as transformers runs it.
    """
    left, found = scores.copy(), np.empty(experts.shape, np.float32)
    for k in range(experts.shape[1]):
        own = np.take_along_axis(scores, experts[:, k : k + 1], axis=1)  # [T, 1], the highest left
        far = own - scores > np.float32(margin) * np.maximum(np.abs(scores), own)
        near = np.where(far, np.float32(0), np.exp(left - own))
        found[:, k] = 1 / near.sum(axis=1)
        np.put_along_axis(left, experts[:, k : k + 1], -np.inf, axis=1)
    return found


def _of_best_groups(of: ExpertGroups, wanted: F32) -> F32:
    """Return the scores [T, E], minus infinity outside the groups used, those of the highest sums."""
    groups = wanted.reshape(len(wanted), of.n, -1)
    sums = np.sort(groups, axis=-1)[..., -1 - of.by_two :].sum(axis=-1)  # [T, G]
    unused = np.argsort(-sums, axis=1, kind="stable")[:, of.used :]
    kept: F32 = groups.copy()
    np.put_along_axis(kept, unused[..., None], -np.inf, axis=1)
    return kept.reshape(wanted.shape)


def _logistic(x: F32) -> F32:
    """Return the logistic function without overflow in exp."""
    values: F32 = np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5) * x)
    return values
