"""How unevenly a model's neurons are active, from 20 published or usual points of a curve. Counts nothing itself.

A curve gives, for 5 %, 10 %, ... 100 % of a layer's activity, the share of its neurons, hottest first, that accounts
for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from engine.config import ModelConfig
from engine.errors import ModelFormatError
from engine.library.records import ModelShape, Sparsity
from engine.placement.activity import scaled_to
from engine.sparsity.stats import NeuronStats

POINTS = 20
_TOKENS = 1 << 20  # over which shares become counts, finely enough for any of them


@dataclass(frozen=True)
class Usual:
    """Published figures of models with one activation.

    active: the least, middle and highest share of active neurons. covered: shares of a layer's neurons with 80 % of its
    activity, the most uneven first.
    """

    active: tuple[float, float, float]
    covered: tuple[float, float, float]


# Active: OPT and ReluFalcon 0.05 in the PowerInfer paper, OPT 6.7B 0.03 and others up to 0.1 in "LLM in a flash";
# ReluLLaMA 7B and 13B 0.33 and 0.28; ProSparse 7B, 13B and MiniCPM-1B 0.107, 0.112 and 0.121; Bamboo 0.15 and
# TurboSparse 0.10. Few gated ones are known, so their range is extended by a sixth. Covered: 26 % (OPT-30B, at best a
# sixth less) and 43 % (LLaMA-70B) in figure 5 of the PowerInfer paper; 57 % and 63 % in PowerInfer's activation files
# of ReluLLaMA. Nothing is known for relu2, so its range is wide.
USUAL = {
    "relu2": Usual((0.10, 0.30, 0.50), (0.217, 0.43, 0.63)),
    "relu": Usual((0.03, 0.05, 0.10), (0.217, 0.26, 0.43)),
    "relu-glu": Usual((0.233, 0.30, 0.385), (0.43, 0.57, 0.63)),
    "fatrelu-glu": Usual((0.089, 0.11, 0.141), (0.43, 0.57, 0.63)),
    "drelu-glu": Usual((0.083, 0.13, 0.175), (0.43, 0.57, 0.63)),
}


def check_coverage(coverage: tuple[float, ...], where: str) -> None:
    """Raise ModelFormatError unless it is a curve: 20 shares that rise to 1, ever faster."""
    if len(coverage) != POINTS:
        raise ModelFormatError(f"{where} has {len(coverage)} points; a curve has {POINTS}.")
    steps = np.diff([0.0, *coverage])
    if not np.all(np.isfinite(coverage)) or abs(coverage[-1] - 1) > 1e-9 or (steps <= 0).any():
        raise ModelFormatError(f"{where} does not rise from 0 to 1.")
    if (np.diff(steps) < -1e-3).any():
        raise ModelFormatError(f"{where} takes colder neurons before hotter ones.")


def curve_through(*points: tuple[float, float]) -> tuple[float, ...]:
    """Return the curve through (share of the activity, share of the neurons) points; the first determines its
    beginning.

    Up to the first point the share f of the neurons has 1 - (1 - f)^a of the activity, as in PowerInfer's files;
    between the points and up to (1, 1) it is straight.
    """
    carried, needed = points[0]
    exponent = np.log(1 - carried) / np.log(1 - needed)
    at = np.arange(1, POINTS + 1) / POINTS
    begin = 1 - (1 - np.minimum(at, carried)) ** (1 / exponent)
    if len(points) == 1:
        return tuple(np.round(1 - (1 - at) ** (1 / exponent), 4).tolist())
    rest = np.interp(at, [one[0] for one in points] + [1.0], [one[1] for one in points] + [1.0])
    return tuple(np.round(np.where(at <= carried, begin, rest), 4).tolist())


@lru_cache(maxsize=256)
def shares(coverage: tuple[float, ...], active_share: float, neurons: int) -> NDArray[np.float32]:
    """Return f32 [F], hottest first: the probability that each neuron is active, with this mean and curve."""
    ends = np.concatenate([[0.0], np.asarray(coverage)])
    carried = np.interp(np.arange(neurons + 1) / neurons, ends, np.arange(POINTS + 1) / POINTS)
    return scaled_to(np.diff(carried).astype(np.float32), active_share)


def stats_of(config: ModelConfig, sparsity: Sparsity) -> NeuronStats | None:
    """Return the statistics that counting would give, the same for every layer; None if all neurons are always
    computed.
    """
    if not config.has_zeros or config.n_experts:
        return None
    known = filled(config.activation, sparsity)
    of_layer = shares(known.coverage, known.active_share or 0.0, config.n_neurons)
    counts = np.rint(of_layer.astype(np.float64) * _TOKENS).astype(np.int64)
    return NeuronStats(
        np.broadcast_to(counts, (config.n_layers, len(counts))).copy(), _TOKENS, "shipped", "the catalogue"
    )


def filled(activation: str, sparsity: Sparsity) -> Sparsity:
    """Return the sparsity with the usual values of the activation in place of missing ones."""
    usual = USUAL[activation]
    return replace(
        sparsity,
        active_share=usual.active[1] if sparsity.active_share is None else sparsity.active_share,
        coverage=sparsity.coverage or curve_through((0.8, usual.covered[1])),
    )


def variants_of(shape: ModelShape, sparsity: Sparsity) -> tuple[Sparsity, Sparsity]:
    """Return the lowest and the highest plausible sparsity of a model whose figures are only known for its kind."""
    usual = USUAL[shape.activation.partition(":")[0]]
    known = filled(shape.activation.partition(":")[0], sparsity)
    middle = known.active_share or usual.active[1]
    few, many = min(middle, usual.active[0]), max(middle, usual.active[2])
    return (
        replace(known, active_share=few, coverage=curve_through((0.8, usual.covered[0]))),
        replace(known, active_share=many, coverage=curve_through((0.8, usual.covered[2]))),
    )
