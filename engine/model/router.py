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


def route(config: ModelConfig, router: PackedMatrix, x: F32, operators: Operators) -> Routing:
    """What the router [E, D] makes of x [T, D]: the experts of the highest scores, of equal ones the first."""
    scores = operators.matmul(x, router)  # [T, E]
    experts = np.argsort(-scores, axis=1, kind="stable")[:, : config.n_experts_used]
    if config.router == "softmax":
        shares = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        shares /= shares.sum(axis=1, keepdims=True)
    else:
        shares = np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5) * scores)  # the logistic function
    weights = np.take_along_axis(shares, experts, axis=1)
    if config.normed_routing:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return Routing(experts, weights)
