"""Chooses the experts that each position goes through, and what each of them counts. It computes no expert."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.config import ModelConfig
from native_kernels.backend import F32, I64, Operators, PackedMatrix


@dataclass(frozen=True, eq=False)
class Routing:
    """For each of T positions its K experts, different ones, and their weights."""

    experts: I64  # [T, K]
    weights: F32  # [T, K]


def route(
    config: ModelConfig, router: PackedMatrix, x: F32, operators: Operators, shared_gate: F32 | None = None
) -> Routing:
    """What the router [E, D] makes of x [T, D]: the experts of the highest scores, of equal ones the first.

    shared_gate [D]: weighs one more expert, that every position goes through: number E.
    """
    scores = operators.matmul(x, router)  # [T, E]
    experts = np.argsort(-scores, axis=1, kind="stable")[:, : config.n_experts_used]
    if config.router == "softmax":
        shares = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        shares /= shares.sum(axis=1, keepdims=True)
    else:
        shares = _logistic(scores)
    weights = np.take_along_axis(shares, experts, axis=1)
    if config.normed_routing:
        weights = weights / weights.sum(axis=1, keepdims=True)
    if shared_gate is not None:
        experts = np.pad(experts, ((0, 0), (0, 1)), constant_values=config.n_experts)
        weights = np.concatenate([weights, _logistic(x @ shared_gate)[:, None]], axis=1)
    return Routing(experts, weights)


def _logistic(x: F32) -> F32:
    """Without the overflow of exp."""
    values: F32 = np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5) * x)
    return values
