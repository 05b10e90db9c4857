"""Choose each layer's predictor: the one with the least predicted time, or none if none pays.

Time is bytes over bandwidth, or arithmetic if that is slower, plus a hand-over per stage. Section 5.1 of PowerInfer
adapts the size of one kind; here the kind is chosen too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from engine.executor.feed_forward import first_matrix
from engine.model.weights import FfnWeights
from engine.sparsity.predictor import GateCopy, LayerPredictor, LowRank
from engine.training.gate_copies import CopyFit
from engine.training.thresholds import LEVELS, Point, Seen, Worth, points
from native_kernels.backend import F32
from native_kernels.reference import ReferenceOperators


@dataclass(frozen=True)
class LayerCost:
    """Bytes of one layer's matrices: first determines which neurons are active, second is up besides a gate (0 without
    one), down.

    down_is_row_wise: it cannot be read by neuron, so all of it is read. fired: share of active neurons. With experts,
    both count what a token uses.
    """

    first: int
    second: int
    down: int
    fired: float
    down_is_row_wise: bool = False

    @classmethod
    def of(cls, w: FfnWeights, fired: float, n_used: int = 1) -> LayerCost:
        """Return the cost of a block, or of n_used experts like it."""
        down = w.down if w.down_t is None else w.down_t
        assert down is not None, "a block has down_t or down"
        second = 0 if w.gate is None else w.up.n_bytes
        first, second, whole = (n_used * n for n in (first_matrix(w)[0].n_bytes, second, down.n_bytes))
        return cls(first, second, whole, fired, w.down_t is None)

    def behind(self, fired: float) -> float:
        """Return the bytes read by neuron if this share is known to be active."""
        return fired * (self.second + (0 if self.down_is_row_wise else self.down))


@dataclass(frozen=True)
class MachineCost:
    """The cost of bytes and stages. bytes_per_s: of sequential reads.

    gathered: the share of it for scattered rows, which the kernels prefetch. stage_s: from one stage of a layer to the
    next. copy_weights_per_s: by bits, the weights of a copy multiplied per second, if slower than reading them.
    """

    bytes_per_s: float
    gathered: float = 0.8
    stage_s: float = 2e-6
    copy_weights_per_s: Mapping[int, float] = field(default_factory=dict)

    def seconds(self, in_order: float, by_rows: float, stages: int) -> float:
        return (in_order + by_rows / self.gathered) / self.bytes_per_s + stages * self.stage_s

    def exact_seconds(self, layer: LayerCost) -> float:
        """Return the time of `exact`: all of the first matrix, then the active neurons."""
        whole = layer.down if layer.down_is_row_wise else 0
        return self.seconds(layer.first + whole, layer.behind(layer.fired), 2)


@dataclass(frozen=True, eq=False)
class HeldOutLayer:
    """One layer at positions that are not used for training.

    x [T, D], normed; first [T, F], the activation's input; contribution [T, F], 0 for inactive neurons, negative for
    those of experts that a position did not choose.
    activation_threshold: FATReLU's, else 0.
    """

    x: F32
    first: F32
    contribution: F32
    activation_threshold: float = 0.0

    @property
    def fired_share(self) -> float:
        return int(np.count_nonzero(self.contribution > 0)) / max(1, int(np.count_nonzero(self.contribution >= 0)))

    @cached_property
    def seen(self) -> Seen:
        return Seen(self.contribution)


@dataclass(frozen=True, eq=False)
class Candidate:
    """One way to predict a layer, with its effect at each level of recall.

    low_rank, copy: as stored, without the thresholds; worth: of the copy. Either stage may be missing.
    """

    low_rank: LowRank | None
    copy: GateCopy | None
    worth: Worth | None
    points: Sequence[Point]

    @property
    def bits(self) -> int:
        """Bits of the copy; 0 without one."""
        return 0 if self.copy is None else self.copy.bits

    def point(self, level: float) -> Point:
        """Return the setting of the lowest level that is at least this one, or of the highest."""
        return next((point for point in self.points if point.level >= level - 1e-9), self.points[-1])

    def at(self, level: float) -> LayerPredictor:
        """Return the layer's predictor with the thresholds of that level; a copy's goes into its bias."""
        point, low_rank, copy = self.point(level), self.low_rank, self.copy
        if low_rank is not None:
            assert point.first is not None, "a low rank part has a threshold at every point"
            low_rank = replace(low_rank, threshold=point.first)
        if copy is not None:
            assert point.second is not None, "a copy has a threshold at every point"
            assert self.worth is not None, "and so has what it is worth"
            own = np.zeros(copy.matrix.n_rows, np.float32) if copy.bias is None else copy.bias
            copy = replace(copy, bias=own - self.worth.least_scores(point.second), threshold=0.0)
        return LayerPredictor(low_rank, copy, recall=point.recall, precision=point.precision, active_share=point.active)

    def n_bytes(self, point: Point) -> float:
        """Return the bytes of the predictor that a token reads."""
        read = 0.0 if self.low_rank is None else self.low_rank.bytes_read
        return read if self.copy is None else read + point.passed * self.copy.n_bytes

    def seconds(self, point: Point, layer: LayerCost, machine: MachineCost) -> float:
        """Return the predicted time of the layer's FFN for a token."""
        whole = layer.down if layer.down_is_row_wise else 0
        by_rows = point.active * layer.first + layer.behind(point.fired)
        stages = 2
        predicting = 0.0
        if self.low_rank is not None:
            predicting += machine.seconds(self.low_rank.bytes_read, 0, 2)
        if self.copy is not None:
            read = point.passed * self.copy.n_bytes
            apart = self.low_rank is not None
            memory = machine.seconds(0 if apart else read, read if apart else 0, 1)
            rate = machine.copy_weights_per_s.get(self.copy.bits)
            weights = point.passed * self.copy.matrix.n_rows * self.copy.matrix.n_cols
            predicting += max(memory, weights / rate + machine.stage_s) if rate else memory
        return predicting + machine.seconds(whole, by_rows, stages)


def copy_candidate(
    fit: CopyFit,
    held_out: HeldOutLayer,
    layer: LayerCost,
    machine: MachineCost,
    low_rank: LowRank | None = None,
    levels: Sequence[float] = LEVELS,
) -> Candidate:
    """Return a copy, or a cascade with a low-rank stage before it that also reads the normed input."""
    before = None if low_rank is None else low_rank.scores(held_out.x, ReferenceOperators())
    return _copy_candidates(fit, [(low_rank, before)], held_out, layer, machine, levels)[0]


def low_rank_candidate(low_rank: LowRank, held_out: HeldOutLayer, levels: Sequence[float] = LEVELS) -> Candidate:
    scores = low_rank.scores(held_out.x, ReferenceOperators())
    return Candidate(low_rank, None, None, points(held_out.seen, scores, None, levels=levels))


def layer_candidates(
    fits: Sequence[CopyFit],
    low_ranks: Sequence[LowRank],
    held_out: HeldOutLayer,
    layer: LayerCost,
    machine: MachineCost,
    levels: Sequence[float] = LEVELS,
) -> list[Candidate]:
    """Return those low-rank stages, copies and cascades that are the best choice at some level.

    Cost: arrays [T, F], one for each low-rank stage and three more.
    """
    before = [(low_rank, low_rank.scores(held_out.x, ReferenceOperators())) for low_rank in low_ranks]
    found = [
        Candidate(low_rank, None, None, points(held_out.seen, scores, None, levels=levels))
        for low_rank, scores in before
    ]
    for fit in fits:
        found += _copy_candidates(fit, [(None, None), *before], held_out, layer, machine, levels)
    best = {id(choose_layer(found, level, layer, machine)) for level in levels}
    return [candidate for candidate in found if id(candidate) in best]


def _copy_candidates(
    fit: CopyFit,
    before: Sequence[tuple[LowRank | None, F32 | None]],
    held_out: HeldOutLayer,
    layer: LayerCost,
    machine: MachineCost,
    levels: Sequence[float],
) -> list[Candidate]:
    """Return the copy after each of these low-rank stages, given with their scores [T, F]; None: alone."""
    copy = GateCopy(fit.packed(), bias=fit.bias)
    worth = Worth.of(fit.noise, held_out.first, held_out.contribution, held_out.activation_threshold)
    second = worth.of_scores(copy.scores(held_out.x, ReferenceOperators()))
    found = []
    for low_rank, first in before:
        unset = Candidate(low_rank, copy, worth, ())

        def cost(point: Point, unset: Candidate = unset) -> float:
            return unset.seconds(point, layer, machine)

        found.append(replace(unset, points=points(held_out.seen, first, second, cost, levels)))
    return found


def choose_layer(
    candidates: Sequence[Candidate], level: float, layer: LayerCost, machine: MachineCost
) -> Candidate | None:
    """Return the candidate with the least predicted time at this level; None if `exact` is at least as fast."""
    best, least = None, machine.exact_seconds(layer)
    for candidate in candidates:
        seconds = candidate.seconds(candidate.point(level), layer, machine)
        if seconds < least:
            best, least = candidate, seconds
    return best
