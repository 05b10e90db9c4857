"""Track which neurons are active in chats, and exchange hot neurons while the engine is idle.

Never runs during an answer. It stores counts of neurons, no text. Offline statistics define the initial hot neurons.
Paper: PowerInfer, sections 6.1 and 6.3, which place neurons once.
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

Rates = NDArray[np.float64]  # share of positions at which a neuron is active

# Weight of the offline statistics in positions: recent activity outweighs them after as many. With 64 the hot set
# followed code after prose no better, with 1024 it closed a tenth less of the gap in 2,000 tokens.
PRIOR_TOKENS = 256
# Exchange neurons if their rates differ by this multiple of the standard error, and by a useful amount. On text like
# that of the placement, three halved the moves compared with two without losing coverage; without it they doubled.
SURENESS = 3.0
LEAST_GAIN = 0.005
BLOCK_NEURONS = 64  # neurons of a layer exchanged at once, worst hot for best cold
MOMENT_BLOCKS = 8  # blocks exchanged before waiting requests are served
SAVE_EVERY_S = 60.0


class Adaptation:
    """Adapts a model's placement to the chats. Not thread-safe: use it in the thread that answers, between answers."""

    def __init__(self, opened: OpenedModel, folder: Path | None = None) -> None:
        """folder: where counts are stored; None: the user's folder."""
        self._opened = opened
        self._folder = folder
        self._new: I64 | None = None  # [L, F], not yet added
        self._new_positions = 0
        self._activity: NeuronActivity | None = None  # read when first needed
        self._waiting: list[int] = []  # layers to check for exchanges
        self._unsaved = False
        self._saved_at = -SAVE_EVERY_S
        self.moved = 0  # neurons made hot

    @property
    def activity(self) -> NeuronActivity:
        """The counts, including those of earlier runs."""
        if self._activity is None:
            self._activity = read_activity(self._opened, self._folder)
        return self._activity

    def learn(self, counters: FfnCounters) -> None:
        """Take an answer's counts. Cost: one addition of all counts."""
        counts, positions = counters.take_per_neuron()
        self._new = counts if self._new is None else self._new + counts
        self._new_positions += positions

    def adapt(self, blocks: HotBlocks | None = None) -> float | None:
        """Do one bounded step of idle work: exchange neurons first, then save.

        Returns the seconds to wait before the next step, 0 for none; None: nothing is left until something is learned.
        Cost: moves at most MOMENT_BLOCKS blocks and sorts a layer's counts for each; or writes the counts, at most
        every SAVE_EVERY_S.
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
        """Save what was learned if it differs from the disk. Failures are only logged."""
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
        """Return how often each neuron of the layer is active, as far as known [F]."""
        return merged_rates(self._stats, self.activity, layer)

    def learned_hot(self, placed: Sequence[I32]) -> tuple[I32, ...] | None:
        """Return the hot neurons that earlier runs chose for this placement, in slot order; None if none."""
        same = self.activity.hot and self.activity.placement == placement_fingerprint(placed)
        sizes = [len(ids) for ids in placed] == [len(ids) for ids in self.activity.hot]
        return self.activity.hot if same and sizes else None

    def _absorb(self) -> bool:
        """Add the answers' counts; return whether there were any."""
        if self._new is None or not self._new_positions:
            return False
        self.activity.add(self._new, self._new_positions)
        self._new, self._new_positions, self._unsaved = None, 0, True
        return True

    def _exchange(self, blocks: HotBlocks) -> None:
        """Exchange neurons in waiting layers, within one step."""
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
    """Return the slots [K] of a layer's worst hot neurons and the cold neurons [K] to put there.

    K is at most BLOCK_NEURONS. rates [F]. positions: learned positions besides the offline statistics. A pair is
    exchanged only if the gain is certain, so that neurons do not move back and forth.
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
    """Return rates of a layer's neurons [F]: recent counts, plus offline statistics as PRIOR_TOKENS positions.

    Published statistics without a number of positions define only the ratios between neurons; recent counts define the
    level. Without statistics all neurons are equally likely.
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
    """Return statistics for a placement: offline ones plus the counts from chats; None if there are none.

    They state the number of positions, so that a solver knows how certain they are.
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
    """Return what earlier runs learned of each neuron, or expert; empty if there is nothing or it is unusable.

    folder: as in Adaptation.
    """
    config = opened.config
    shape = (config.n_layers, config.n_experts or config.d_ff)
    try:
        activity = NeuronActivity.load(folder or activity_folder(opened), opened.fingerprint, config.activation_text)
        if activity.counts.shape == shape:
            return activity
        log.info("What was learned of %s is of another shape", opened.name)
    except ModelNotFoundError:
        pass
    except EngineError as error:
        log.info("What was learned of %s cannot be used: %s", opened.name, error)
    empty = NeuronActivity.empty(*shape)
    return replace(empty, model=opened.fingerprint, activation=config.activation_text)


def can_learn(opened: OpenedModel) -> bool:
    """Return whether the model's neurons differ in activity and are placed individually."""
    return opened.config.has_zeros and not opened.config.n_experts


def has_learned(opened: OpenedModel) -> bool:
    """Return whether the activity of the model's neurons was learned. Cost: reads it."""
    return can_learn(opened) and read_activity(opened).positions > 0


def activity_folder(opened: OpenedModel) -> Path:
    """Return the folder of the counts: with the user's data, because a bundle may be passed on."""
    import platformdirs

    return Path(platformdirs.user_data_dir("Hearth", appauthor=False)) / "activity" / opened.fingerprint
