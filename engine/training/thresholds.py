"""Set the thresholds of a layer's predictor, by the share of the contribution kept on held-out positions.

A copy has a known error in every neuron (`CopyFit.noise`). So a neuron passes if its expected contribution, given its
score, reaches a worth common to the layer; as an offset per neuron, this goes into the copy's bias.
engine/training/error_budget.py measures perplexity.
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

# Recalls of contribution with known thresholds; the error budget takes the lowest at which the model holds.
LEVELS = (0.95, 0.97, 0.98, 0.985, 0.99, 0.993, 0.995, 0.997, 0.998, 0.999, 0.9995)
# Shares of a cascade's allowed loss to try for its first stage.
_SPLITS = (0.2, 0.4, 0.6)
QUIET_SAMPLES = 1_000_000
_LEAST_WEIGHT = 0.05  # of the median: neurons that hardly fired in the positions seen are not given up
_LOWEST, _HIGHEST, _STEPS = -30.0, 12.0, 4201


@dataclass(frozen=True)
class Point:
    """The effect of one setting of a layer's thresholds on held-out positions; all are shares.

    level: the requested recall of contribution; recall: the actual one. first, second: thresholds of the low-rank stage
    (of its score) and of the copy (logarithm of the worth); None without that stage. passed: neurons whose copy is
    read; active: neurons that pass; fired: of all neurons, those that pass and are active. precision: of those that
    pass, the active ones; fired_recall: of the active ones, those that pass.
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
    """A neuron's expected contribution given a copy's score, whose error is normally distributed.

    noise f32 [F]: deviation of the score; weight f32 [F]: contribution of one unit above the activation's threshold.
    Both are floored, so that logarithms exist.
    """

    noise: F32
    weight: F32
    threshold: float = 0.0  # of the activation: FATReLU's

    @classmethod
    def of(cls, noise: F32, first: F32, contribution: F32, threshold: float = 0.0) -> Worth:
        """Return it for first [T, F], the activation's inputs, and the contribution [T, F] of the same positions."""
        above = np.maximum(first - np.float32(threshold), 0).sum(axis=0, dtype=np.float64)
        weight = contribution.sum(axis=0, dtype=np.float64) / np.maximum(above, 1e-30)
        known = weight[(above > 0) & (weight > 0)]
        usual = float(np.median(known)) if known.size else 1.0
        weight = np.maximum(np.where(above > 0, weight, usual), usual * _LEAST_WEIGHT)
        least = max(float(noise.mean()) * 1e-3, 1e-12)
        return cls(np.maximum(noise, least), weight.astype(np.float32), threshold)

    def of_scores(self, scores: F32) -> F32:
        """Return the logarithm of the expected contribution: scores [T, F] -> [T, F]; it rises with the score in every
        neuron.
        """
        places, logs = _expected_excess()
        z = (scores - np.float32(self.threshold)) / self.noise
        # Far above the threshold the excess is the score.
        found: F32 = np.where(z < _HIGHEST, np.interp(z, places, logs), np.log(np.maximum(z, 1))).astype(np.float32)
        found += np.log(self.noise * self.weight)
        return found

    def least_scores(self, worth: float) -> F32:
        """Return the lowest scores [F] at which a neuron's expected contribution has at least this logarithm."""
        places, logs = _expected_excess()
        wanted = worth - np.log(self.noise.astype(np.float64) * self.weight)
        z = np.where(wanted < logs[-1], np.interp(wanted, logs, places), np.exp(np.minimum(wanted, 80)))
        scores: F32 = (z * self.noise + self.threshold).astype(np.float32)
        return scores


@cache
def _expected_excess() -> tuple[F64, F64]:
    """Return z and the logarithm of E[max(0, z + n)], with n standard normal."""
    z = np.linspace(_LOWEST, _HIGHEST, _STEPS)
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in z])
    excess = density + z * below
    # Far below zero both terms cancel; use density / z^2 (1 - 3 / z^2).
    far = z < -6
    excess[far] = density[far] / z[far] ** 2 * (1 - 3 / z[far] ** 2)
    return z, np.log(excess)


class Seen:
    """The activity at held-out positions, to compare with scores of the same shape.

    Every active neuron is kept; of the inactive ones, which are most, at most QUIET_SAMPLES, evenly spread.
    contribution [T, F], 0 for inactive neurons; negative values are left out: experts that were not chosen.
    """

    def __init__(self, contribution: F32) -> None:
        flat = contribution.reshape(-1)
        self._fired = np.flatnonzero(flat > 0)
        self.kept: F64 = flat[self._fired].astype(np.float64)
        self.total = float(self.kept.sum())
        self.count = int(np.count_nonzero(flat >= 0))
        quiet = np.flatnonzero(flat == 0)
        # An odd step, so that it does not hit the same neurons repeatedly.
        self._quiet = quiet[:: max(1, len(quiet) // QUIET_SAMPLES) | 1]
        self.quiet_weight = len(quiet) / max(1, len(self._quiet))

    def split(self, scores: F32) -> tuple[F32, F32]:
        """Split scores [T, F] into those of active and of inactive neurons."""
        flat = scores.reshape(-1)
        return flat[self._fired], flat[self._quiet]


def points(
    contribution: F32 | Seen,
    first: F32 | None,
    second: F32 | None,
    cost: Callable[[Point], float] = lambda point: point.active,
    levels: Sequence[float] = LEVELS,
) -> list[Point]:
    """Return the settings for all levels.

    Shapes: contribution [T, F], or a Seen of it for several calls; first [T, F], scores of the low-rank stage, and
    second [T, F], logarithms of the copy's worth: at least one. cost: of a setting; with two stages, the allowed loss
    is split between them at the lowest cost.
    """
    seen = contribution if isinstance(contribution, Seen) else Seen(contribution)
    if not seen.total:  # nothing is known, so everything is let through
        one, two = (None if scores is None else float(scores.min()) for scores in (first, second))
        return [Point(level, one, two, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0) for level in levels]
    if first is not None and second is not None:
        return _cascades(seen, seen.split(first), seen.split(second), cost, levels)
    only = first if second is None else second
    assert only is not None, "one part at least"
    scores = seen.split(only)
    limits = _limits(scores[0], seen.kept, [level * seen.total for level in levels])
    found = []
    for level, limit in zip(levels, limits, strict=True):
        one, two = (limit, None) if second is None else (None, limit)
        passes = (scores[0] >= np.float32(limit), scores[1] >= np.float32(limit))
        found.append(_point(seen, level, one, two, 1.0, *passes))
    return found


def _cascades(
    seen: Seen,
    first: tuple[F32, F32],
    second: tuple[F32, F32],
    cost: Callable[[Point], float],
    levels: Sequence[float],
) -> list[Point]:
    order = np.argsort(-second[0], kind="stable")
    sorted_first, sorted_second, sorted_kept = first[0][order], second[0][order], seen.kept[order]
    tried = [[seen.total * (1 - (1 - level) * split) for split in _SPLITS] for level in levels]
    limits = iter(_limits(first[0], seen.kept, [wanted for row in tried for wanted in row]))
    found = []
    for level in levels:
        settings = []
        for limit in (next(limits) for _ in _SPLITS):
            summed = np.cumsum(np.where(sorted_first >= np.float32(limit), sorted_kept, 0))
            after = float(sorted_second[_place(summed, level * seen.total)])
            opened = [scores >= np.float32(limit) for scores in first]
            passed = (np.count_nonzero(opened[0]) + seen.quiet_weight * np.count_nonzero(opened[1])) / seen.count
            passes = [before & (scores >= np.float32(after)) for before, scores in zip(opened, second, strict=True)]
            settings.append(_point(seen, level, limit, after, float(passed), *passes))
        found.append(min(settings, key=cost))
    return found


def _limits(scores: F32, kept: F64, wanted: Sequence[float]) -> list[float]:
    """Return the highest thresholds at which the kept contributions reach what is wanted; the lowest
    score if none do.
    """
    order = np.argsort(-scores, kind="stable")
    summed = np.cumsum(kept[order])
    return [float(scores[order[_place(summed, one)]]) for one in wanted]


def _place(summed: F64, wanted: float) -> int:
    """Return the index at which a running sum reaches what is wanted, up to rounding; the last one if never."""
    return min(int(np.searchsorted(summed, wanted * (1 - 1e-12))), len(summed) - 1)


def _point(
    seen: Seen,
    level: float,
    first: float | None,
    second: float | None,
    passed: float,
    hits: NDArray[np.bool_],
    false: NDArray[np.bool_],
) -> Point:
    """hits, false: which of the active neurons, and of the sample of inactive ones, pass."""
    n_hits = int(np.count_nonzero(hits))
    n_active = n_hits + seen.quiet_weight * int(np.count_nonzero(false))
    return Point(
        level,
        first,
        second,
        passed,
        float(n_active / seen.count),
        n_hits / seen.count,
        float(seen.kept[hits].sum()) / seen.total,
        float(n_hits / max(1.0, n_active)),
        n_hits / len(hits),
    )
