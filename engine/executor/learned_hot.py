"""The hot neurons or experts that earlier runs of a model found, for its part on a GPU.

Adaptation learns neurons. The heat of experts is kept here, in the same file of counts.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.errors import EngineError
from engine.executor.adaptation import SAVE_EVERY_S, Adaptation, activity_folder, can_learn, read_activity
from engine.model.model_files import OpenedModel
from engine.sparsity.activity import NeuronActivity
from engine.sparsity.placement import Placement
from native_kernels.backend import F32, I32

log = logging.getLogger(__name__)

_RECENT_TOKENS = 1000  # in which the stored heat takes over 63 % of a change; that of the slots changes faster


class ExpertCounts(Protocol):
    """The experts of a model on a GPU. tokens: decoded so far. counted: bool [L], layers whose choices are counted."""

    tokens: int
    counted: NDArray[np.bool_]

    @property
    def heat_in_choices(self) -> F32: ...

    def warm(self, heat: F32) -> None: ...


class LearnedHot:
    """The hot neurons or experts of one model. Not thread-safe: use it in the thread that answers."""

    def __init__(self, opened: OpenedModel) -> None:
        self._opened = opened
        self._heat = read_heat(opened)
        self._tokens = 0  # of the slots, when their heat was taken last
        self._unsaved = False
        self._saved_at = -SAVE_EVERY_S

    def hot(self, placement: Placement) -> Sequence[I32] | None:
        """Return [L] neurons to start with, in slot order, as many as are placed; None: the placement's own."""
        if can_learn(self._opened):
            return Adaptation(self._opened).learned_hot(placement.in_slots)
        if self._heat is None:
            return None
        width, found = self._opened.config.d_ff, []
        for heat, ids in zip(self._heat, placement.hot, strict=True):
            hottest = np.sort(np.argsort(-heat, kind="stable")[: len(ids) // width])
            learned = (hottest[:, None] * width + np.arange(width)).reshape(-1).astype(np.int32)
            found.append(learned if heat.any() else ids)
        return found

    def begin(self, experts: ExpertCounts) -> None:
        """Give experts that were just loaded the heat that is known."""
        self._tokens = experts.tokens
        if self._heat is not None:
            experts.warm(self._heat)

    def take(self, experts: ExpertCounts) -> None:
        """Add the experts' heat to what is known, by how many tokens it is younger. A layer whose choices were not
        counted keeps what was known of it.
        """
        if experts.tokens == self._tokens or not experts.counted.any():
            return
        share = -math.expm1((self._tokens - experts.tokens) / _RECENT_TOKENS)
        self._tokens, self._unsaved = experts.tokens, True
        heat = experts.heat_in_choices
        before = np.zeros_like(heat) if self._heat is None else self._heat
        known = before.any(axis=1, keepdims=True)
        heat = np.where(known, before + share * (heat - before), heat)
        self._heat = np.where(experts.counted[:, None], heat, before).astype(np.float32)

    def save(self, at_once: bool = True) -> float | None:
        """Save what was taken. Failures are only logged.

        at_once: otherwise at most every SAVE_EVERY_S. Returns the seconds to wait before it saves; None: nothing is
        left.
        """
        if not self._unsaved or self._heat is None:
            return None
        left = self._saved_at + SAVE_EVERY_S - time.monotonic()
        if left > 0 and not at_once:
            return left
        self._unsaved, self._saved_at = False, time.monotonic()
        opened, config = self._opened, self._opened.config
        positions = float(self._heat.sum(axis=1).max()) / config.n_experts_used
        try:
            activity = NeuronActivity(
                self._heat, positions, model=opened.fingerprint, activation=config.activation_text
            )
            activity.save(activity_folder(opened))
        except EngineError as error:
            log.info("The heat of the experts of %s is not kept: %s", opened.name, error)
        return None


def read_heat(opened: OpenedModel) -> F32 | None:
    """Return the heat [L, E] of a model's experts in choices that earlier runs saved; None without any."""
    if not opened.config.n_experts:
        return None
    counts = read_activity(opened).counts
    return counts if counts.any() else None
