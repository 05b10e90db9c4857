"""Guess the next tokens by the layer that the model's files have for it (multi-token prediction, MTP).

engine/model/draft_layer.py has the layer. Only the most likely token is guessed at each step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.model.draft_layer import FIRST_POSITIONS, MOST_DRAFTS, Drafter, Trail
from engine.session.lookup import Lookup
from native_kernels.backend import F32

if TYPE_CHECKING:
    from engine.model.kv_cache import KVCache
    from engine.model.transformer import Transformer
    from engine.session.guesses import Guesser
    from engine.session.loaded_model import LoadedModel

log = logging.getLogger(__name__)

_CLASSES = 8  # of the layer's own probability of a draft, by which observations are counted
_PRIOR = 4.0  # weight of the assumed chance, in observations
_FORGOTTEN = 0.005  # share of the observations that each token without drafts makes forgotten
_WEIGHT = 0.2  # of a new measurement in the moving average
_NEAR = 8  # positions that the layer may read before a draft; more are read apart from the time of guessing
_USE_WEIGHT = 0.02  # of a run in the moving share of runs with drafts
_LEAST_USE = 0.05  # of that share, for reading more


class MtpRecord:
    """Statistics of a model's drafts: how often they were right, and how long they took.

    Shared by all answers. By class of the layer's own probability, right and seen drafts; by step, those that followed
    right ones.
    """

    def __init__(self) -> None:
        self._right, self._seen = np.zeros(_CLASSES), np.zeros(_CLASSES)
        self._step_right, self._step_seen = np.zeros(MOST_DRAFTS), np.zeros(MOST_DRAFTS)
        self._use = 1.0  # share of the latest runs before which drafts were made
        self.step_s = 0.0  # of a draft; 0 before one was measured
        self.fill_s = 0.0  # of a position that the layer reads before
        self.has_failed = False  # the layer is not used any more
        self.is_warm = False  # a draft was made

    def add(self, step: int, probability: float, is_right: bool) -> None:
        """Count a draft, all of whose predecessors were right."""
        kind = _class_of(probability)
        self._seen[kind] += 1
        self._right[kind] += is_right
        self._step_seen[step] += 1
        self._step_right[step] += is_right

    @property
    def pays(self) -> bool:
        """Whether drafts have been worth making, as far as is known."""
        return self._use >= _LEAST_USE

    def note(self, were_made: bool) -> None:
        """Note whether drafts were made before a run; if not, forget a little, so that they are tried again."""
        self._use += _USE_WEIGHT * (were_made - self._use)
        if not were_made:
            self._rest()

    def _rest(self) -> None:
        for counts in (self._right, self._seen, self._step_right, self._step_seen):
            counts *= 1 - _FORGOTTEN
        self.step_s *= 1 - _FORGOTTEN
        self.fill_s *= 1 - _FORGOTTEN

    def chance(self, probability: float) -> float:
        """Return the chance that a draft of this probability is right."""
        kind = _class_of(probability)
        return float((self._right[kind] + _PRIOR * (kind + 0.5) / _CLASSES) / (self._seen[kind] + _PRIOR))

    def chance_at(self, step: int) -> float:
        """Return the chance that a draft is right whose predecessors are, before it is made."""
        assumed = 0.7 if step == 0 else self.chance_at(step - 1)
        return float((self._step_right[step] + _PRIOR * assumed) / (self._step_seen[step] + _PRIOR))

    def timed(self, n_filled: int, first_s: float, step_s: float) -> None:
        """Note the time of the first draft, n_filled positions being read before it, and of a further one."""
        if step_s:
            self.step_s += (_WEIGHT if self.step_s else 1.0) * (step_s - self.step_s)
        elif not n_filled:
            self.step_s += (_WEIGHT if self.step_s else 1.0) * (first_s - self.step_s)
        if n_filled:
            fill_s = max(0.0, first_s - self.step_s) / n_filled
            self.fill_s += (_WEIGHT if self.fill_s else 1.0) * (fill_s - self.fill_s)


def _class_of(probability: float) -> int:
    return min(_CLASSES - 1, int(probability * _CLASSES))


class MtpGuesser:
    """A Guesser by the layer that drafts tokens."""

    name = "mtp"

    def __init__(self, drafter: Drafter, trail: Trail, record: MtpRecord) -> None:
        """trail: of the conversation that is answered. record: of the model, shared by all its answers."""
        self._drafter, self._trail, self._record = drafter, trail, record
        self._text: Sequence[int] = ()
        self._behind = 0
        self._made: list[tuple[int, float]] = []  # the last drafts, and the layer's probability of each
        self._checked = 0  # tokens of the text before them

    def read(self, text: Sequence[int]) -> None:
        for step, (token, probability) in enumerate(self._made):
            if self._checked + step >= len(text):
                break
            self._record.add(step, probability, is_right := token == text[self._checked + step])
            if not is_right:
                break
        self._record.note(bool(self._made))
        self._made, self._text, self._behind = [], text, 0
        if self._record.has_failed:
            return
        self._behind = self._trail.behind(text, FIRST_POSITIONS if self._record.pays else _NEAR)
        if self._behind > _NEAR:  # once an answer, after the prompt
            try:
                self._trail.fill(text, self._drafter)
                self._behind = 1
            except Exception as error:  # noqa: BLE001 - the answer continues without it
                self._fail(error)

    def prepare(self) -> None:
        """Make the first draft of all, which takes many times as long as others, where its time does not count."""
        if self._record.is_warm or not self._behind:
            return
        self._record.is_warm = True
        try:
            self._trail.catch_up(self._text, self._drafter)
            self._behind = self._trail.behind(self._text)
        except Exception as error:  # noqa: BLE001 - the answer continues without it
            self._fail(error)

    def chances(self, most: int) -> list[float]:
        return [self._record.chance_at(step) for step in range(min(most, MOST_DRAFTS))] if self._behind else []

    def seconds(self, n_guesses: int) -> float:
        return (n_guesses * self._record.step_s + (self._behind - 1) * self._record.fill_s) if n_guesses else 0.0

    def guess(self) -> Iterator[tuple[int, float]]:
        self._checked, filled = len(self._text), self._behind - 1
        started = time.perf_counter()
        try:
            logits, hidden = self._trail.catch_up(self._text, self._drafter)
            self._record.timed(filled, time.perf_counter() - started, 0.0)
            while True:
                token, probability = _most_likely(logits)
                self._made.append((token, probability))
                yield token, self._record.chance(probability)
                if len(self._made) == MOST_DRAFTS:
                    return
                started = time.perf_counter()
                logits, hidden = self._trail.follow(token, hidden, self._drafter)
                self._record.timed(0, 0.0, time.perf_counter() - started)
        except Exception as error:  # noqa: BLE001 - the answer continues without it
            self._fail(error)

    def computed(self, n_tokens: int, accepted: int) -> None:
        """As Guesser.computed: the trail has noted the run, and `read` compares the drafts with the text."""

    def _fail(self, error: Exception) -> None:
        log.warning("The layer that drafts tokens is not used any more: %s", error)
        self._record.has_failed, self._behind = True, 0


def own_sources(model: LoadedModel, transformer: Transformer, cache: KVCache, record: MtpRecord) -> list[Guesser]:
    """Return the sources of guesses that need no other model, for an answer: lookup, and a layer that drafts tokens.

    transformer, cache: which compute the answer. record: of the model.
    """
    sources: list[Guesser] = [Lookup()]
    if model.drafts is not None and model.drafter is not None and cache.trail is not None:
        far = transformer.has_far_head and model.drafts.shares_head(model.weights)
        model.drafter.use_head(transformer.logits if far else None)
        sources.append(MtpGuesser(model.drafter, cache.trail, record))
    return sources


def _most_likely(logits: F32) -> tuple[int, float]:
    """Return the most likely token, and its probability."""
    token = int(logits.argmax())
    return token, float(1 / np.exp(logits - logits[token]).sum())
