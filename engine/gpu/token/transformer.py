"""A Transformer that decodes every token with the program of GPU and CPU.

It serves generation, evaluation and measurements; its layers cannot be run one by one. Long prompts go through
GpuPrefill, if present.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

import numpy as np

from engine.config import ModelConfig
from engine.errors import Cancelled, DeviceFailedError
from engine.gpu.token.decode_program import GpuDecodeProgram
from engine.gpu.weights.cache import GpuCache
from engine.job import ShareProgress
from engine.model.kv_cache import KVCache, StateCopy
from engine.model.transformer import RECOMPUTE_CHUNK_TOKENS, FfnExecutor, Transformer, check_tokens
from engine.model.weights import ModelWeights
from native_kernels.backend import F32, I64, Operators
from native_kernels.cuda.runtime.driver import CudaError

_CHUNKS_PER_CALL = 4  # of prefill, which then prepares each chunk while the GPU computes the one before
_FIRST_CHUNK_TOKENS = 512  # large, because each chunk streams all cold neurons over the bus


class GpuPrefill(Protocol):
    """Prefill of many positions at once.

    least_tokens: for fewer tokens, decode is faster. chunk_tokens: positions computed at once. n_kept: positions that
    all layers have after a cancelled run.
    """

    @property
    def n_kept(self) -> int: ...

    @property
    def least_tokens(self) -> int: ...

    @property
    def chunk_tokens(self) -> int: ...

    def run(
        self, tokens: I64, cache: GpuCache, length: int, progress: ShareProgress, copy: StateCopy | None = None
    ) -> F32:
        """Run tokens [T] that follow the cache; return hidden states after the final norm, [T, D] or only the last.

        Writes their keys and values after the cache's positions; the caller advances the cache. length: of the whole
        sequence. progress: as in Transformer.forward. copy: of the state at some point.
        Raises: CudaError, and errors of `progress`.
        """


class GpuTransformer(Transformer):
    """A Transformer over a GpuDecodeProgram. Its caches must be GpuCaches of the program's region."""

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        executor: FfnExecutor,
        operators: Operators,
        decoder: GpuDecodeProgram,
        many: GpuPrefill | None = None,
    ) -> None:
        """executor: gives the mode's name and counters, and computes nothing here. many: prefill of long prompts."""
        super().__init__(config, weights, executor, operators, decoder)
        self._program = decoder
        self._many = many
        if many is not None:
            most = max(_FIRST_CHUNK_TOKENS, _CHUNKS_PER_CALL * many.chunk_tokens)
            self.first_chunk_tokens = self.largest_chunk_tokens = most
            self.first_chunk_is_fixed = True

    def forward(self, tokens: I64, cache: KVCache, ahead: int = 0, progress: ShareProgress = lambda share: None) -> F32:
        """Run as Transformer.forward, but token by token, so that sparse mode predicts at every position.

        progress: called between two tokens. If it raises Cancelled, the cache keeps the tokens so far. After other
        errors, it has the length before, or a shorter one that it can be cut to. Raises: also DeviceFailedError.
        """
        return self._append(tokens, cache, ahead, progress, self._one_by_one)

    def prefill(
        self, tokens: I64, cache: KVCache, ahead: int = 0, progress: ShareProgress = lambda share: None,
        remembered: int = 0,
    ) -> F32:  # fmt: skip
        """Run as Transformer.prefill. Long prompts run many positions at once, and then all neurons are computed.

        Raises: also DeviceFailedError.
        """
        if self._many is None or len(tokens) < self._many.least_tokens:
            return super().prefill(tokens, cache, ahead, progress, remembered)
        snapshot = cache.new_snapshot() if 0 < remembered < len(tokens) else None
        copy = None if snapshot is None else StateCopy(remembered, snapshot)
        return self._append(tokens, cache, ahead, progress, self._at_once, partial(self._at_once, copy=copy))

    def _prefill_part(self, tokens: I64, cache: KVCache, ahead: int, progress: ShareProgress) -> F32:
        several = self._program.most_tokens(cache) > 1
        return self._append(tokens, cache, ahead, progress, self._in_groups if several else self._one_by_one)

    @property
    def has_far_head(self) -> bool:
        return self._program.has_head

    def logits(self, hidden: F32) -> F32:
        """Return logits as Transformer.logits. Raises: also DeviceFailedError."""
        return self._program.logits(hidden) if self._program.has_head else super().logits(hidden)

    def _append(
        self,
        tokens: I64,
        cache: KVCache,
        ahead: int,
        progress: ShareProgress,
        run: Callable[[I64, GpuCache, int, ShareProgress], F32],
        last: Callable[[I64, GpuCache, int, ShareProgress], F32] | None = None,
    ) -> F32:
        """Run the tokens, and before them the cached ones again if their rotation changes. last: instead of `run`, for
        the new tokens.
        """
        check_tokens(self.config, tokens, cache)
        assert isinstance(cache, GpuCache), "the model's caches are those of its region"
        length = cache.length + len(tokens) + ahead
        if not self.cache_serves(cache, length):
            earlier = cache.tokens[: cache.length].copy()
            cache.truncate(0)
            for start in range(0, len(earlier), RECOMPUTE_CHUNK_TOKENS):
                run(earlier[start : start + RECOMPUTE_CHUNK_TOKENS], cache, length, lambda share: None)
        return (last or run)(tokens, cache, length, progress)

    def _one_by_one(self, tokens: I64, cache: GpuCache, length: int, progress: ShareProgress) -> F32:
        before, hidden = cache.length, np.empty((len(tokens), self.config.d_model), np.float32)
        try:
            for i, token in enumerate(tokens):
                if i:
                    progress(i / len(tokens))
                hidden[i] = self._program.hidden(int(token), cache, length)
        except Cancelled:
            raise
        except BaseException:
            cache.truncate(cache.reusable(before))
            raise
        return hidden

    def _in_groups(self, tokens: I64, cache: GpuCache, length: int, progress: ShareProgress) -> F32:
        """Run as many tokens together as the program can; return only the last hidden state, [1, D]."""
        before, last, done = cache.length, len(tokens) - 1, 0
        try:
            while (n := min(self._program.most_tokens(cache), last - done)) > 1:
                self._program.append(tokens[done : done + n].tolist(), cache, length)
                done += n
                progress(done / len(tokens))
            return self._one_by_one(tokens[done:], cache, length, progress)[-1:]
        except Cancelled:
            raise
        except BaseException:
            cache.truncate(cache.reusable(before))
            raise

    def _at_once(
        self, tokens: I64, cache: GpuCache, length: int, progress: ShareProgress, copy: StateCopy | None = None
    ) -> F32:
        assert self._many is not None, "the caller has checked it"
        try:
            cache.claim_region()
            cache.make_room(len(tokens))
            cache.states()  # the run writes over the one before the last
            hidden = self._many.run(tokens, cache, length, progress, copy)
        except CudaError as error:
            with suppress(DeviceFailedError):
                cache.drop_run()
            raise DeviceFailedError(f"The GPU failed: {error}.") from error
        except BaseException as error:
            if isinstance(error, Cancelled) and self._many.n_kept:
                _append_run(tokens[: self._many.n_kept], cache, copy)
            cache.drop_run()
            raise
        cache.sequence_length = length
        _append_run(tokens, cache, copy)
        cache.note(hidden)
        return hidden


def _append_run(tokens: I64, cache: GpuCache, copy: StateCopy | None) -> None:
    """Count the tokens of a run, and keep the copy of the state after some of them."""
    cache.tokens[cache.length : cache.length + len(tokens)] = tokens
    if copy is not None and copy.n_tokens <= len(tokens):
        cache.keep(cache.length + copy.n_tokens, copy.to)
    cache.advance(len(tokens))
