"""How unevenly a model's activity is spread over its neurons, as in the paper. It draws nothing itself.

Paper: PowerInfer, section 2.1 (figure 5): the share of the neurons with 80 % of the activity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.sparsity.stats import NeuronStats

CARRIED = 0.8
F64 = NDArray[np.float64]


@dataclass(frozen=True)
class LayerLocality:
    """One layer, or the whole model. fired_share: None if the number of tokens counted is unknown."""

    fired_share: float | None
    neurons_for_80_percent: int
    share_for_80_percent: float  # the same, of all neurons


@dataclass(frozen=True)
class Locality:
    layers: tuple[LayerLocality, ...]
    whole: LayerLocality  # all layers together, the busiest neurons of any layer first


def locality(stats: NeuronStats) -> Locality:
    """Return how few neurons have 80 % of the activity, per layer and of the whole model."""
    n_layers, n_neurons = stats.counts.shape
    coverage, fired = stats.coverage(CARRIED), stats.fired_share
    layers = tuple(
        LayerLocality(None if fired is None else float(fired[i]), int(few), float(few) / n_neurons)
        for i, few in enumerate(coverage.per_layer)
    )
    mean = None if fired is None else float(fired.mean())
    few = coverage.whole_model
    return Locality(layers, LayerLocality(mean, few, few / (n_layers * n_neurons)))


def curve(counts: NDArray[np.int64]) -> tuple[F64, F64]:
    """Return shares of the neurons, busiest first, and their share of the activity: [N + 1] each, from 0 on.

    The second is all zeros for neurons that are never active.
    """
    ordered = np.sort(counts, axis=None)[::-1]
    carried = np.concatenate([[0.0], np.cumsum(ordered, dtype=np.float64)])
    return np.linspace(0.0, 1.0, len(carried)), carried / max(carried[-1], 1.0)


def hot_set_coverage(stats: NDArray[np.int64], seen: NDArray[np.int64], share: float) -> float:
    """Return the share of the activity `seen` [L, F] on the hottest `share` of all neurons by `stats` [L, F]."""
    hottest = np.argsort(-stats, axis=None, kind="stable")[: round(share * stats.size)]
    return float(seen.reshape(-1)[hottest].sum() / max(1, seen.sum()))
