"""Follows which neurons fire while a person chats, and exchanges hot ones for better ones when nothing else is to do.

It never runs beside an answer, and what it keeps are counts of neurons, no text. Offline statistics say what is hot at
first; paper: PowerInfer, sections 6.1 and 6.3, which place once and for all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineError, ModelNotFoundError
from engine.executor.hot_blocks import HotBlocks, placement_fingerprint
from engine.executor.slots import SlotTable
from engine.model.counters import FfnCounters
from engine.model.model_artefacts import read_stats
from engine.model.model_files import OpenedModel
from engine.sparsity.activity import NeuronActivity
from engine.sparsity.stats import NeuronStats
from native_kernels.backend import I32, I64

log = logging.getLogger(__name__)

Rates = NDArray[np.float64]  # share of positions at which a neuron fires

# Offline statistics count as so many positions: what fires of late outweighs them after as many. With 64 the hot set
# followed code after prose no better, with 1024 it closed a tenth less of the gap in 2,000 tokens.
PRIOR_TOKENS = 256
# Neurons change places where the difference of their rates is so many times what chance makes of it, and is worth it.
# On text of the kind that was placed for, three halved the moves against two and cost no coverage; none doubled them.
SURENESS = 3.0
LEAST_GAIN = 0.005
BLOCK_NEURONS = 64  # of a layer that change places at once, the worst hot ones for the best cold ones
MOMENT_BLOCKS = 8  # that are looked for, and exchanged, before a waiting request is
SAVE_EVERY_S = 60.0


class Adaptation:
    """What one loaded model learns. Not thread-safe: it lives where answers are computed, between them."""

    def __init__(self, opened: OpenedModel, folder: Path | None = None) -> None:
        """folder: where it keeps what it learns; None: where the person's is kept."""
        self._opened = opened
        self._folder = folder
        self._new: I64 | None = None  # [L, F], since the last look
        self._new_positions = 0
        self._activity: NeuronActivity | None = None  # read when first needed
        self._waiting: list[int] = []  # layers that have not been looked through since
        self._unsaved = False
        self._saved_at = -SAVE_EVERY_S
        self.moved = 0  # neurons that have become hot

    @property
    def activity(self) -> NeuronActivity:
        """The counters, those of earlier runs included."""
        if self._activity is None:
            self._activity = read_activity(self._opened, self._folder)
        return self._activity

    def learn(self, counters: FfnCounters) -> None:
        """Takes what an answer has counted. Cost: one addition of all counters."""
        counts, positions = counters.take_per_neuron()
        self._new = counts if self._new is None else self._new + counts
        self._new_positions += positions

    def adapt(self, blocks: HotBlocks | None = None) -> float | None:
        """One bounded piece of what there is to do between answers: first neurons are exchanged, then all is kept.

        None: nothing is left to do until something is learned. Else the seconds after which it goes on; 0: at once.
        Cost: at most MOMENT_BLOCKS blocks move, for each of which a layer's counters are sorted; or the counters are
        written, at most every SAVE_EVERY_S.
        """
        if self._absorb():
            self._waiting = [] if blocks is None else list(range(len(blocks.tables)))
        if self._waiting and blocks is not None:
            self._exchange(blocks)
            return 0.0
        if not self._unsaved:
            return None
        left = self._saved_at + SAVE_EVERY_S - time.monotonic()
        if left > 0:
            return left
        self.keep(blocks)
        return None

    def keep(self, blocks: HotBlocks | None = None) -> None:
        """Writes what was learned, where it differs from what is on disk. What goes wrong there is only logged."""
        self._absorb()
        if not self._unsaved:
            return
        self._unsaved, self._saved_at = False, time.monotonic()
        activity = self.activity
        if blocks is not None:
            hot = tuple(table.neuron_in.copy() for table in blocks.tables)
            activity = replace(activity, placement=blocks.placement, hot=hot)
        try:
            activity.save(self._folder or activity_folder(self._opened))
        except EngineError as error:
            log.info("What was learned of %s is not kept: %s", self._opened.name, error)

    def rates(self, layer: int) -> Rates:
        """How often each neuron of the layer fires, as far as is known [F]."""
        return merged_rates(self._stats, self.activity, layer)

    def learned_hot(self, placed: Sequence[I32]) -> tuple[I32, ...] | None:
        """The hot neurons that earlier runs exchanged this placement's for, in the order of their slots; None: none."""
        same = self.activity.hot and self.activity.placement == placement_fingerprint(placed)
        sizes = [len(ids) for ids in placed] == [len(ids) for ids in self.activity.hot]
        return self.activity.hot if same and sizes else None

    def _absorb(self) -> bool:
        """What answers have counted into the counters; whether there was anything."""
        if self._new is None or not self._new_positions:
            return False
        self.activity.add(self._new, self._new_positions)
        self._new, self._new_positions, self._unsaved = None, 0, True
        return True

    def _exchange(self, blocks: HotBlocks) -> None:
        """Looks through the layers that wait, as far as one moment goes."""
        for _ in range(MOMENT_BLOCKS):
            layer = self._waiting[0]
            rates = merged_rates(self._stats, self.activity, layer)
            slots, neurons = worst_for_best(rates, self.activity.positions, blocks.tables[layer])
            if len(slots):
                blocks.exchange(layer, slots, neurons)
                self.moved += len(slots)
            if len(slots) < BLOCK_NEURONS:
                self._waiting.pop(0)
                if not self._waiting:
                    return

    @cached_property
    def _stats(self) -> NeuronStats | None:
        try:
            return read_stats(self._opened)
        except EngineError as error:
            log.info("The statistics of %s cannot be used: %s", self._opened.name, error)
            return None


def worst_for_best(rates: Rates, positions: float, table: SlotTable) -> tuple[I32, I32]:
    """The slots [K] of a layer's worst hot neurons and the cold ones [K] to put there; K is at most BLOCK_NEURONS.

    rates [F]. positions: over how many they were learned, beside the offline statistics. A pair is exchanged where it
    is certainly better, so that none goes back and forth.
    """
    hot, cold = rates[table.neuron_in], rates[table.cold]
    n = min(BLOCK_NEURONS, len(hot), len(cold))
    worst = np.argsort(hot, kind="stable")[:n]
    best = np.argsort(-cold, kind="stable")[:n]
    low, high = hot[worst], cold[best]
    chance = np.sqrt((low * (1 - low) + high * (1 - high)) / (PRIOR_TOKENS + positions))
    better = high - low > np.maximum(SURENESS * chance, LEAST_GAIN)
    n = n if better.all() else int(np.argmin(better))
    return worst[:n].astype(np.int32), table.cold[best[:n]]


def merged_rates(stats: NeuronStats | None, activity: NeuronActivity, layer: int) -> Rates:
    """Rates of a layer's neurons [F]: what was counted of late, and the offline statistics as PRIOR_TOKENS positions.

    Statistics of a publisher who does not say over how many positions he counted give the shares of the neurons among
    each other; how many fire is what was counted of late. Without statistics every neuron is expected to fire alike.
    """
    learned = activity.counts[layer].astype(np.float64)
    mean = float(learned.mean()) / activity.positions if activity.positions else 0.0
    expected: Rates = np.full(len(learned), mean)
    if stats is not None:
        counts = stats.counts[layer].astype(np.float64)
        middle = float(counts.mean())
        expected = counts / stats.tokens if stats.tokens else counts * (mean / middle if middle else 0.0)
    merged: Rates = (PRIOR_TOKENS * expected + learned) / (PRIOR_TOKENS + activity.positions)
    return np.minimum(merged, 1.0)


def learned_stats(opened: OpenedModel, stats: NeuronStats | None) -> NeuronStats | None:
    """Statistics to place neurons by: the offline ones, and what was counted while a person chatted; None for neither.

    They say over how many positions they were counted so that a solver can tell how sure they are.
    """
    activity = read_activity(opened)
    if not activity.positions:
        return stats
    tokens = round(PRIOR_TOKENS + activity.positions)
    rates = np.stack([merged_rates(stats, activity, layer) for layer in range(len(activity.counts))])
    corpus = "conversations" if stats is None else f"{stats.corpus} and conversations"
    counts = np.rint(rates * tokens).astype(np.int64)
    return NeuronStats(counts, tokens, "measured", corpus, opened.fingerprint, opened.config.activation_text)


def read_activity(opened: OpenedModel, folder: Path | None = None) -> NeuronActivity:
    """What earlier runs learned of the model; empty where that is nothing, or cannot be used. folder: as above."""
    config = opened.config
    try:
        activity = NeuronActivity.load(folder or activity_folder(opened), opened.fingerprint, config.activation_text)
        if activity.counts.shape == (config.n_layers, config.d_ff):
            return activity
        log.info("What was learned of %s is of another shape", opened.name)
    except ModelNotFoundError:
        pass
    except EngineError as error:
        log.info("What was learned of %s cannot be used: %s", opened.name, error)
    empty = NeuronActivity.empty(config.n_layers, config.d_ff)
    return replace(empty, model=opened.fingerprint, activation=config.activation_text)


def can_learn(opened: OpenedModel) -> bool:
    """Whether neurons of the model differ in how often they fire, and are placed one by one."""
    return opened.config.has_zeros and not opened.config.n_experts


def activity_folder(opened: OpenedModel) -> Path:
    """Where it is kept: with the person, not with the model, whose bundle may be given away."""
    import platformdirs

    return Path(platformdirs.user_data_dir("Hearth", appauthor=False)) / "activity" / opened.fingerprint
