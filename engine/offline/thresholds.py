"""Where a layer's predictor draws the line: by the share of the contribution that is kept on positions held out.

A copy errs by so much in every neuron, which is known (`CopyFit.noise`). So a neuron is let through where what it is
expected to contribute, given its score, reaches a worth that is common to the layer; as an offset per neuron that goes
into the copy's bias. It measures no perplexity: that is engine/offline/error_budget.py's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32

F64 = NDArray[np.float64]

# Recalls of contribution that thresholds are known for; the error budget takes the lowest at which the model holds.
LEVELS = (0.95, 0.97, 0.98, 0.985, 0.99, 0.993, 0.995, 0.997, 0.998, 0.999, 0.9995)
# Of what a cascade may lose, the shares that its first stage is tried with.
_SPLITS = (0.15, 0.3, 0.45, 0.6)
_LEAST_WEIGHT = 0.05  # of the median: neurons that hardly fired in the positions seen are not given up
_LOWEST, _HIGHEST, _STEPS = -30.0, 60.0, 9001


@dataclass(frozen=True)
class Point:
    """What one setting of a layer's thresholds does on held-out positions; all are shares.

    level: recall of contribution that was wanted; recall: what there is. first, second: thresholds of the low rank part
    (of its score) and of the copy (logarithm of the worth); None where there is no such part. passed: neurons whose
    copy is read; active: neurons let through; fired: of all neurons, those let through that fire. precision: of
    those let through, those that fire; fired_recall: of those that fire, those let through.
    """

    level: float
    first: float | None
    second: float | None
    passed: float
    active: float
    fired: float
    recall: float
    precision: float
    fired_recall: float


@dataclass(frozen=True, eq=False)
class Worth:
    """What a copy's score says a neuron will contribute, its error being normally distributed.

    noise f32 [F]: deviation of the score; weight f32 [F]: contribution of one unit above the activation's threshold.
    Both are floored, so that logarithms exist.
    """

    noise: F32
    weight: F32
    threshold: float = 0.0  # of the activation: FATReLU's

    @classmethod
    def of(cls, noise: F32, first: F32, contribution: F32, threshold: float = 0.0) -> Worth:
        """From first [T, F], what goes into the activation, and the contribution [T, F] of the same positions."""
        above = np.maximum(first - np.float32(threshold), 0).sum(axis=0, dtype=np.float64)
        weight = contribution.sum(axis=0, dtype=np.float64) / np.maximum(above, 1e-30)
        known = weight[(above > 0) & (weight > 0)]
        usual = float(np.median(known)) if known.size else 1.0
        weight = np.maximum(np.where(above > 0, weight, usual), usual * _LEAST_WEIGHT)
        least = max(float(noise.mean()) * 1e-3, 1e-12)
        return cls(np.maximum(noise, least), weight.astype(np.float32), threshold)

    def of_scores(self, scores: F32) -> F32:
        """The logarithm of the expected contribution: scores [T, F] -> [T, F]; rises with the score in every neuron."""
        places, logs = _expected_excess()
        z = (scores - np.float32(self.threshold)) / self.noise
        found: F32 = np.interp(z, places, logs).astype(np.float32)
        found += np.log(self.noise * self.weight)
        return found

    def least_scores(self, worth: float) -> F32:
        """The scores [F] from which on a neuron's expected contribution has at least this logarithm."""
        places, logs = _expected_excess()
        z = np.interp(worth - np.log(self.noise.astype(np.float64) * self.weight), logs, places)
        scores: F32 = (z * self.noise + self.threshold).astype(np.float32)
        return scores


@cache
def _expected_excess() -> tuple[F64, F64]:
    """z, and the logarithm of E[max(0, z + n)], n of the standard normal distribution."""
    z = np.linspace(_LOWEST, _HIGHEST, _STEPS)
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in z])
    excess = density + z * below
    # Far below zero both terms cancel; there it is density / z^2 (1 - 3 / z^2).
    far = z < -6
    excess[far] = density[far] / z[far] ** 2 * (1 - 3 / z[far] ** 2)
    return z, np.log(excess)


def points(
    contribution: F32,
    first: F32 | None,
    second: F32 | None,
    cost: Callable[[Point], float],
    levels: Sequence[float] = LEVELS,
) -> list[Point]:
    """The settings for all levels.

    Shapes: contribution [T, F], 0 where a neuron did not fire; first [T, F], scores of the low rank part, and second
    [T, F], logarithms of the copy's worth: at least one of them. cost: what a setting costs; where there are two parts,
    what may be lost is split between them as is cheapest.
    """
    fired = contribution > 0
    kept = contribution[fired].astype(np.float64)
    total = float(kept.sum())
    if not kept.size or not total:
        return [Point(level, _lowest(first), _lowest(second), 1.0, 1.0, 0.0, 1.0, 0.0, 1.0) for level in levels]
    if first is None or second is None:
        scores = first if second is None else second
        assert scores is not None, "one part at least"
        limits = _limits(scores[fired], kept, [level * total for level in levels])
        found = []
        for level, limit in zip(levels, limits, strict=True):
            passes = scores >= np.float32(limit)
            one, two = (limit, None) if second is None else (None, limit)
            found.append(_point(level, one, two, 1.0, passes, fired, contribution, total))
        return found
    return [_cascade(level, contribution, fired, kept, total, first, second, cost) for level in levels]


def _cascade(
    level: float,
    contribution: F32,
    fired: NDArray[np.bool_],
    kept: F64,
    total: float,
    first: F32,
    second: F32,
    cost: Callable[[Point], float],
) -> Point:
    tried = [total * (1 - (1 - level) * split) for split in _SPLITS]
    settings = []
    for limit in _limits(first[fired], kept, tried):
        passes = first >= np.float32(limit)
        through = passes[fired]
        (after,) = _limits(second[fired][through], kept[through], [level * total])
        share = float(np.count_nonzero(passes)) / passes.size
        passes &= second >= np.float32(after)
        settings.append(_point(level, limit, after, share, passes, fired, contribution, total))
    return min(settings, key=cost)


def _limits(scores: F32, kept: F64, wanted: Sequence[float]) -> list[float]:
    """The highest scores from which on the contributions kept add up to what is wanted; the lowest where none do."""
    order = np.argsort(-scores, kind="stable")
    summed = np.cumsum(kept[order])
    places = np.searchsorted(summed, np.asarray(wanted) * (1 - 1e-12))
    return [float(scores[order[min(int(place), len(order) - 1)]]) for place in places]


def _point(
    level: float,
    first: float | None,
    second: float | None,
    passed: float,
    passes: NDArray[np.bool_],
    fired: NDArray[np.bool_],
    contribution: F32,
    total: float,
) -> Point:
    n_active, n_fired = int(np.count_nonzero(passes)), int(np.count_nonzero(fired))
    hits = passes & fired
    n_hits = int(np.count_nonzero(hits))
    return Point(
        level,
        first,
        second,
        passed,
        n_active / passes.size,
        n_hits / passes.size,
        float(contribution[hits].sum(dtype=np.float64)) / total,
        n_hits / max(1, n_active),
        n_hits / max(1, n_fired),
    )


def _lowest(scores: F32 | None) -> float | None:
    """Where nothing fired nothing is known, so everything is let through."""
    return None if scores is None else float(np.min(scores))
