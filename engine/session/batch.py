"""The next tokens of several sequences at once, so that weights are read once for all of them.

The graph is that of engine/model/transformer.py, with one position per sequence. It neither prefills nor samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from engine.errors import InvalidRequestError
from engine.model.transformer import (
    RECOMPUTE_CHUNK_TOKENS,
    Angles,
    RecurInput,
    Transformer,
    check_tokens,
    joined_angles,
)
from engine.session.generate import decode_one_token
from native_kernels.backend import F32, I64

if TYPE_CHECKING:
    from engine.config import Mode
    from engine.model.counters import FfnCounters
    from engine.model.kv_cache import KVCache
    from engine.session.loaded_model import LoadedModel

MOST_SEQUENCES = 32


class BatchModel(Protocol):
    """Decodes batches of a fixed size. One step at a time; not thread-safe."""

    batch: int
    counters: FfnCounters

    def step(self, tokens: I64, caches: Sequence[KVCache]) -> F32:
        """Decode one step, as engine.session.generate.decode_batch."""

    def reset(self) -> None:
        """Reset all counts."""

    def union_shares(self) -> F32:
        """Return mean shares per step [L, 2]: neurons whose first matrix, and whose other rows, were read."""

    def routed_shares(self) -> F32:
        """Return mean shares per step [L, 2]: neurons read zero-copy, and those of them that were used."""

    def stage_seconds(self) -> dict[str, float]:
        """Return seconds of the measured stages over all steps since `reset`."""


class BatchTransformer:
    def __init__(self, model: Transformer, batch: int, unions: I64 | None) -> None:
        """model: its executor takes `batch` rows. unions: its counts; None: it computes all neurons."""
        self.batch = batch
        self.counters = model.executor.counters
        self._model, self._unions = model, unions

    def reset(self) -> None:
        self.counters.reset()
        if self._unions is not None:
            self._unions[:] = 0

    def union_shares(self) -> F32:
        config = self._model.config
        if self._unions is None:
            return np.ones((config.n_layers, 2), np.float32)
        steps = max(1, self.counters.tokens // self.batch)
        return (self._unions / (steps * config.d_ff)).astype(np.float32)

    def routed_shares(self) -> F32:
        return np.zeros((self._model.config.n_layers, 2), np.float32)

    def stage_seconds(self) -> dict[str, float]:
        return {}

    def step(self, tokens: I64, caches: Sequence[KVCache]) -> F32:
        model = self._model
        check_batch(model, self.batch, tokens, caches)
        for cache in caches:
            renew(model, cache)
            cache.make_room(1)
        positions = np.array([cache.length for cache in caches], np.int64)
        angles = angles_of(model, positions)

        states, row = [cache.states() for cache in caches], model.graph.rows

        def attend(layer: int, q: F32, k: F32, v: F32) -> F32:
            one_by_one = [
                model.attend(
                    layer, q[b : b + 1], k[b : b + 1], v[b : b + 1], *one.of_layer(layer), one.place(layer, one.length)
                )
                for b, one in enumerate(caches)
            ]
            return np.concatenate(one_by_one)

        def recur(layer: int, inputs: RecurInput) -> F32:
            one_by_one = [
                model.recur(layer, inputs.rows(slice(b, b + 1)), before[row[layer]], after[row[layer]])
                for b, (before, after) in enumerate(states)
            ]
            return np.concatenate(one_by_one)

        x = model.embed(tokens, positions)
        inputs = model.layer_inputs(tokens, x)
        for i in range(model.config.n_layers):
            x = model.layer(i, x, angles, attend, recur, inputs)
        for token, cache in zip(tokens, caches, strict=True):
            count(cache, int(token))
        return model.logits(model.last_norm(x))


class OneByOne:
    """A BatchModel that decodes one sequence after another, for models whose sequences share no weights."""

    def __init__(self, model: Transformer, batch: int) -> None:
        self.batch = batch
        self.counters = model.executor.counters
        self._model = model

    def reset(self) -> None:
        self.counters.reset()

    def union_shares(self) -> F32:
        """Return how often per step every neuron was read, since no two sequences share a read."""
        return np.full((self._model.config.n_layers, 2), self.batch, np.float32)

    def routed_shares(self) -> F32:
        return np.zeros((self._model.config.n_layers, 2), np.float32)

    def stage_seconds(self) -> dict[str, float]:
        return {}

    def step(self, tokens: I64, caches: Sequence[KVCache]) -> F32:
        model = self._model
        check_batch(model, self.batch, tokens, caches)
        before = [cache.length for cache in caches]
        try:
            rows = [decode_one_token(model, int(token), cache) for token, cache in zip(tokens, caches, strict=True)]
            return np.stack(rows)
        except BaseException:
            for cache, length in zip(caches, before, strict=True):
                cache.truncate(cache.reusable(length))
            raise


def check_batch(model: Transformer, batch: int, tokens: I64, caches: Sequence[KVCache]) -> None:
    """Raise InvalidRequestError unless there are `batch` tokens and distinct caches; otherwise as check_tokens."""
    if len(tokens) != batch or len({id(cache) for cache in caches}) != batch or len(caches) != batch:
        raise InvalidRequestError(
            f"{len(tokens)} tokens were given for {len(caches)} sequences; {batch} different ones are needed."
        )
    for token, cache in zip(tokens, caches, strict=True):
        check_tokens(model.config, np.array([token], np.int64), cache)


def renew(model: Transformer, cache: KVCache) -> None:
    """Recompute the cache if the next position changes the rotation of all positions."""
    if model.cache_serves(cache, cache.length + 1):
        return
    earlier = cache.tokens[: cache.length].copy()
    cache.truncate(0)
    for start in range(0, len(earlier), RECOMPUTE_CHUNK_TOKENS):
        chunk = earlier[start : start + RECOMPUTE_CHUNK_TOKENS]
        model.forward(chunk, cache, len(earlier) + 1 - start - len(chunk))


def angles_of(model: Transformer, positions: I64) -> tuple[Angles, ...]:
    """Return the angles of the next position of sequences with these lengths [B], as in Transformer.angles."""
    return joined_angles([model.angles(positions[b : b + 1], int(positions[b]) + 1) for b in range(len(positions))])


def count(cache: KVCache, token: int) -> None:
    """Add the token, whose keys and values are stored, to the cache."""
    cache.tokens[cache.length], cache.sequence_length = token, cache.length + 1
    cache.advance(1)


def open_batch(model: LoadedModel, batch: int, mode: str | None = None) -> BatchModel:
    """Return a BatchModel for this many sequences on the model's device.

    Raises: InvalidRequestError with the reason if it cannot decode this batch.
    """
    config = model.opened.config
    if not 1 <= batch <= MOST_SEQUENCES:
        raise InvalidRequestError(
            f"{batch} sequences at once were asked for; 1 to {MOST_SEQUENCES} can be decoded.", "Change the batch."
        )
    ran = model.resolve_mode(mode)
    if config.n_experts and ran != "dense":
        return OneByOne(model.transformer(ran), batch)
    if model.gpu is not None:
        try:
            return model.gpu.batch(ran, batch)
        except InvalidRequestError:
            if not config.n_experts and config.recurrence is None:
                raise
            return OneByOne(model.transformer(ran), batch)
    return _on_cpu(model, batch, ran)


def _on_cpu(model: LoadedModel, batch: int, mode: Mode) -> BatchTransformer:
    config, weights, operators = model.opened.config, model.weights, model.backend.operators
    kernels, executor = model.backend.kernels, model.modes.executor(mode, operators)
    if mode == "dense" or kernels is None or config.gate_cutoffs:
        return BatchTransformer(Transformer(config, weights, executor, operators), batch, None)
    from engine.executor.union import UnionExecutor
    from native_kernels.cpu.batch_operators import BatchOperators

    operators = BatchOperators(kernels.pool, batch)
    predictor = replace(model.modes.predictor, operators=operators) if mode == "sparse" else None
    union = UnionExecutor(config, weights, executor.counters, operators, kernels.pool, batch, predictor)
    return BatchTransformer(Transformer(config, weights, union, operators), batch, union.unions)
