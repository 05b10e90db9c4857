"""Probability that a neuron is computed for a token, from statistics or from a published prior.

Paper: PowerInfer, section 6.2 (neuron impact).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engine.config import Mode, ModelConfig
from engine.placement.model_bytes import PredictorBytes
from engine.sparsity.placement import StatisticsSource
from engine.sparsity.stats import NeuronStats

F32 = NDArray[np.float32]

# Prior share of active neurons without statistics: the middle of published values per activation (ReLULLaMA 7B and 13B
# 0.33 and 0.28, OPT and ReluFalcon 0.05, ProSparse 0.11, Bamboo 0.15, TurboSparse 0.10). None is known for relu2.
_PRIOR = {"relu": 0.05, "relu2": 0.3, "relu-glu": 0.3, "fatrelu-glu": 0.11, "drelu-glu": 0.13}
# Share of a layer's choices that goes to the busiest experts, by their share of all experts: a published measurement.
_EXPERT_CURVE = ((0.0, 0.1, 0.25, 0.5, 1.0), (0.0, 0.47, 0.76, 0.91, 1.0))
# Weight of that curve beside learned heat, in tokens.
_USUAL_TOKENS = 32
# Neurons that a predictor selects per active neuron if this was not measured; the starter model's ratio.
_EXPECTED_TO_FIRED = 1.3


@dataclass(frozen=True, eq=False)
class Activity:
    """Probabilities per token, f32 [L, F].

    active: the first row (gate, or up without a gate) is read. opened: the row of up is read. fired: the row of down is
    read. computed: the neuron counts as computed (`active_share` of the executors). fired_share: mean of fired.
    ranking: sort key of neurons; higher is hotter.
    """

    active: F32
    opened: F32
    fired: F32
    computed: F32
    source: StatisticsSource
    fired_share: float
    notes: tuple[str, ...] = ()

    @property
    def ranking(self) -> F32:
        return self.fired


def activity_of(
    config: ModelConfig,
    mode: Mode,
    stats: NeuronStats | None = None,
    predictors: PredictorBytes | None = None,
    heat: F32 | None = None,
) -> Activity:
    """Return what a mode computes of this model. Without statistics all neurons are equally likely.

    heat [L, E]: choices of each expert recently, each worth less the longer ago it was; without it, experts count as
    chosen as often as was published. Shapes: stats [L, F].
    """
    routed = _routed(config, heat)
    fired, notes = _fired(config, stats, routed)
    share = float(fired.mean())
    if mode == "dense" or not config.has_zeros:
        return Activity(routed, routed, routed, routed, _source(stats), share, notes)
    # With dReLU a neuron is active only if both ReLUs pass; if they are independent, each passes sqrt(fired).
    opened = np.sqrt(fired) if config.activation == "drelu-glu" else fired
    if mode == "exact" or predictors is None:
        return Activity(routed, opened, fired, opened, _source(stats), share, notes)
    computed = opened.copy()
    unknown, ratio = False, predictors.expected_to_fired or _EXPECTED_TO_FIRED
    for layer, wanted in enumerate(predictors.active_share):
        if predictors.is_true_gate[layer]:
            continue
        reached = float(routed[layer].mean())  # predictors' shares are of the experts that a token uses
        if wanted is None:
            unknown = True
            wanted = min(1.0, ratio * float(opened[layer].mean()) / reached)
        computed[layer] = scaled_to(opened[layer], wanted * reached)
    if unknown:
        words = "Measured on tokens of the model: the predictors expect {:.2f} times what fires."
        if predictors.expected_to_fired is None:
            words = "What the predictors expect was not measured; {} times what fires is assumed."
        notes += (words.format(ratio),)
    active = np.where(predictors.is_true_gate[:, None], routed, computed)
    opened, fired = np.minimum(opened, computed), np.minimum(fired, computed)
    return Activity(active, opened, fired, computed, _source(stats), share, notes)


def scaled_to(probabilities: F32, mean: float) -> F32:
    """Scale the probabilities to the given mean. Values above 1 are cut; the others absorb the rest.

    Shapes: [F] -> [F].
    """
    values = np.asarray(probabilities, np.float64)
    mean = min(1.0, max(0.0, mean))
    if values.sum() <= 0:
        return np.full(values.shape, mean, np.float32)
    order = np.sort(values)[::-1]
    behind = order.sum() - np.concatenate([[0.0], np.cumsum(order)[:-1]])  # sum of the values from k on
    full = np.arange(len(order))
    some = behind > 1e-12 * order[0]
    factors = np.divide(mean * len(order) - full, behind, out=np.full(len(order), np.inf), where=some)  # first k at 1
    sound = np.flatnonzero(some & (factors <= np.divide(1, order, out=np.zeros(len(order)), where=order > 0)))
    if not len(sound):
        return np.where(values > 0, np.float32(1), np.float32(0)).astype(np.float32)
    scaled = np.minimum(1.0, values * max(0.0, float(factors[sound[0]])))
    return scaled.astype(np.float32)


def _fired(config: ModelConfig, stats: NeuronStats | None, routed: F32) -> tuple[F32, tuple[str, ...]]:
    """Return f32 [L, F] and the assumptions made."""
    shape = (config.n_layers, config.n_placed_neurons)
    if not config.has_zeros:
        return routed, ("The activation makes no zeros, so that every neuron is computed.",)
    prior = _PRIOR[config.activation]
    if stats is not None and config.shared_d_ff:
        stats = replace(stats, counts=np.ascontiguousarray(stats.counts[:, : config.n_placed_neurons]))
    if stats is None or stats.counts.shape != shape:
        words = (
            f"No statistics: each neuron is assumed to fire for {prior:.0%} of the tokens, as models of its kind do."
        )
        return np.asarray(prior * routed, np.float32), (words,)
    if stats.tokens is not None:
        return np.asarray(stats.counts / stats.tokens, np.float32), ()
    if not stats.counts.any():
        return np.asarray(prior * routed, np.float32), (
            "The statistics count nothing: every neuron is taken to be alike.",
        )
    fired = np.stack([scaled_to(layer.astype(np.float32), prior) for layer in stats.counts])
    words = f"The statistics do not say how many tokens they are of; {prior:.0%} of the neurons are assumed to fire."
    return fired, (words,)


def _routed(config: ModelConfig, heat: F32 | None) -> F32:
    """Return f32 [L, F]: probability that the router sends a token to the neuron's expert; 1 without experts."""
    if not config.n_experts:
        return np.broadcast_to(np.float32(1), (config.n_layers, config.n_placed_neurons))
    usual = expert_shares(config.n_experts, config.n_experts_used)
    if heat is None:
        return np.broadcast_to(np.repeat(usual, config.d_ff), (config.n_layers, config.n_placed_neurons))
    return np.repeat(np.stack([_chosen(layer, usual, config.n_experts_used) for layer in heat]), config.d_ff, axis=1)


def _chosen(heat: F32, usual: F32, n_used: int) -> F32:
    """Return how often each expert of a layer is chosen, f32 [E]: by its heat, and as is usual for its rank.

    The heat counts the more, the more tokens it is of.
    """
    tokens = float(heat.sum()) / n_used
    by_rank = np.empty_like(usual)
    by_rank[np.argsort(-heat, kind="stable")] = usual
    learned = heat / max(tokens, 1e-9)
    weight = np.float32(tokens / (tokens + _USUAL_TOKENS))
    return np.asarray(weight * learned + (1 - weight) * by_rank, np.float32)


def expert_shares(n_experts: int, n_used: int) -> F32:
    """Return how often each expert is chosen, f32 [E], descending, sum n_used: the prior of a published measurement.

    The experts that stay hottest while a model answers, as engine/gpu/weights/expert_slots.py finds them.
    """
    edges = np.interp(np.linspace(0, 1, n_experts + 1), *_EXPERT_CURVE)
    return scaled_to(np.diff(edges).astype(np.float32), n_used / n_experts)


def _source(stats: NeuronStats | None) -> StatisticsSource:
    return "none" if stats is None else stats.source
