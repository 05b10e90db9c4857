"""The next tokens of several answers at once, by one batch where the model has one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.config import MOST_ANSWERS
from engine.errors import ContextOverflowError, DeviceFailedError, EngineError, HostMemoryError, InvalidRequestError
from engine.session.batch import BatchTransformer, OneByOne, open_batch
from engine.session.generate import decode_batch

if TYPE_CHECKING:
    from engine.executor.adaptation import Adaptation
    from engine.model.kv_cache import KVCache
    from engine.session.batch import BatchModel
    from engine.session.chat_session import ChatSession
    from engine.session.loaded_model import LoadedModel

log = logging.getLogger(__name__)

PROBE_EVERY = 64  # steps, one of which is taken the slower way to measure it again
_NEW_SHARE = 0.3  # of the newest measurement in an average


class Pace:
    """Which way is faster for this many answers: a batch, or one after another. Measured while they run.

    A batch reads the weights once. But on a CPU its steps run in Python layer by layer, which costs small models more
    time than the weights (docs/benchmarks.md), and a GPU converts some weights to halves. The first step of each way is
    not counted: it may compile kernels.
    """

    def __init__(self) -> None:
        self._seconds: dict[tuple[int, bool], list[float]] = {}  # by number and way: [] after the first step
        self._n_steps = 0
        self._fastest_s = 0.0  # of all batches; 0: not yet known

    def is_together(self, n: int) -> bool:
        """Return whether the next step of n answers should be a batch."""
        for way in (True, False):
            if not self._seconds.get((n, way)):
                return way
        self._n_steps += 1
        is_faster = self._seconds[n, True][0] <= self._seconds[n, False][0]
        return is_faster != (self._n_steps % PROBE_EVERY == 0)

    def is_ever_faster(self, most: int) -> bool:
        """Return whether a batch of `most` answers, of which any may be empty, is faster than this many single tokens.

        The fastest batch decides: others may have waited for their sequences, which leave the GPU's memory while the
        prompt of another answer is computed.
        """
        alone = self._seconds.get((1, False))
        return not alone or self._fastest_s <= most * alone[0]

    def took(self, n: int, together: bool, seconds: float) -> None:
        """Note the time of a step."""
        known = self._seconds.get((n, together))
        if known is None:
            self._seconds[n, together] = []
        else:
            before = known[0] if known else seconds
            self._seconds[n, together] = [before + _NEW_SHARE * (seconds - before)]
            if together:
                self._fastest_s = min(self._fastest_s or seconds, seconds)


class JointSteps:
    """Computes tokens of answers of several sessions of a model together. Not thread-safe."""

    def __init__(self, model: LoadedModel, adaptation: Adaptation | None = None) -> None:
        """adaptation: learns from the steps on a CPU; those on a GPU have no counts per neuron."""
        self._model, self._generation, self._adaptation = model, model.generation, adaptation
        self._batches: dict[int, BatchModel] = {}  # by their size
        self._rows: list[KVCache] = []  # of the batch of the last step; on a GPU, those of no answer among them
        self._pace = Pace()
        self._size = min(MOST_ANSWERS, model.engine.sequences)
        if self._size > 1:
            try:
                batch = self._batch(self._size)
            except EngineError as error:
                log.info("Answers of %s are not computed together: %s", model.name, error.message)
                self._size = 1
            else:
                self._size = 1 if isinstance(batch, OneByOne) else self._size

    @property
    def most(self) -> int:
        """Answers to begin at once: 1 if the model was loaded for one, its sequences share no work, or a GPU is faster
        with one after another: there, a batch computes all rows, also those of no answer.
        """
        return self._size if self._model.gpu is None or self._pace.is_ever_faster(self._size) else 1

    def serves(self, model: LoadedModel) -> bool:
        """Return whether this is for the model as it is placed now."""
        return self._model is model and self._generation == model.generation

    def is_together(self, n: int) -> bool:
        """Return whether `compute` is worth calling for this many answers now."""
        if n < 2 or self._size == 1:
            return False
        return self._model.gpu is not None or self._pace.is_together(n)

    def took(self, n: int, together: bool, seconds: float) -> None:
        """Note the time in which this many answers continued by a token."""
        self._pace.took(n, together, seconds)

    def compute(self, answers: Sequence[tuple[ChatSession, int]]) -> None:
        """Add the last token of each answer to its cache, and give its session the logits after it.

        An answer that cannot go along, such as one of a sequence that is too long for its share of the GPU, gets none
        and computes its token by itself, and so do all if the step fails, as when memory is short. Raises:
        DeviceFailedError.
        """
        going = [(session, token) for session, token in answers if session.cache.length < session.cache.capacity]
        if len(going) < 2:
            return
        caches, lengths = [session.cache for session, _ in going], [session.cache.length for session, _ in going]
        try:
            rows = self._step(caches, [token for _, token in going])
            rows = [np.array(logits) for logits in rows]  # the next step may use the same memory
        except DeviceFailedError:
            raise
        except Exception as error:
            for cache, length in zip(caches, lengths, strict=True):
                cache.truncate(length)  # one token back is always possible
            is_known = isinstance(error, (ContextOverflowError, InvalidRequestError, HostMemoryError, MemoryError))
            level, text = logging.INFO if is_known else logging.ERROR, "A step of %d answers is computed one by one: %s"
            log.log(level, text, len(going), error, exc_info=not is_known)
            return
        for (session, _), logits in zip(going, rows, strict=True):
            session.turns.logits = logits

    def learn(self) -> None:
        """Take the counts of the steps so far. Cost: as Adaptation.learn."""
        for batch in self._batches.values():
            if self._adaptation is not None and batch.counters.per_neuron is not None:
                self._adaptation.learn(batch.counters)

    def _step(self, caches: Sequence[KVCache], tokens: Sequence[int]) -> Sequence[np.ndarray]:
        """Return the logits [V] after each token."""
        if self._model.gpu is None:
            return list(decode_batch(self._batch(len(caches)), tokens, caches))
        # A GPU keeps its captured work and the places of all sequences only for a batch of the same size and order.
        rows = self._places_of(caches)
        of_row = dict(zip(map(id, caches), tokens, strict=True))
        try:
            logits = decode_batch(self._batch(self._size), [of_row.get(id(cache), 0) for cache in rows], rows)
        finally:
            for cache in rows:
                if id(cache) not in of_row:
                    cache.truncate(0)
        return [logits[next(i for i, row in enumerate(rows) if row is cache)] for cache in caches]

    def _places_of(self, caches: Sequence[KVCache]) -> list[KVCache]:
        """Return the caches of all rows: each cache in the row where it was, and empty ones in the others."""
        now = {id(cache) for cache in caches}
        rows: list[KVCache | None] = [row if id(row) in now or not row.length else None for row in self._rows]
        rows += [None] * (self._size - len(rows))
        there = {id(row) for row in rows if row is not None}
        for cache in caches:
            if id(cache) not in there:
                free = next((i for i, row in enumerate(rows) if row is None), None)
                if free is None:
                    free = next(i for i, row in enumerate(rows) if row is not None and id(row) not in now)
                rows[free] = cache
        self._rows = [self._model.new_cache(1) if row is None else row for row in rows]
        return self._rows

    def _batch(self, size: int) -> BatchModel:
        if size not in self._batches:
            self._batches[size] = batch = open_batch(self._model, size)
            if self._adaptation is not None and isinstance(batch, BatchTransformer):
                batch.counters.record_per_neuron()
        return self._batches[size]
