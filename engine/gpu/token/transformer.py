"""A model's graph where a GPU computes with the CPU: every token goes through the program of both.

What generation, evaluation and measurements ask of a Transformer; its layers cannot be run one by one. A long prompt
goes another way where somebody has one (GpuPrefill).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from engine.config import ModelConfig
from engine.errors import DeviceFailedError
from engine.gpu.token.decode_program import GpuDecodeProgram
from engine.gpu.weights.cache import GpuCache
from engine.model.kv_cache import KVCache
from engine.model.transformer import PIECE_TOKENS, FfnExecutor, Transformer, check_tokens
from engine.model.weights import ModelWeights
from native_kernels.backend import F32, I64, Operators
from native_kernels.cuda.runtime.driver import CudaError

Look = Callable[[float], None]
_FIRST_PIECE = 512  # tokens: each piece brings all cold neurons over the bus


class GpuPrefill(Protocol):
    """Many positions of a prompt at once. least_tokens: for fewer the program of one token is faster. chunk_tokens: how
    many it computes at once."""

    @property
    def least_tokens(self) -> int: ...

    @property
    def chunk_tokens(self) -> int: ...

    def run(self, tokens: I64, cache: GpuCache, length: int, look: Look) -> F32:
        """tokens [T] behind what the cache holds, of a sequence of so many -> what the head reads, [T, D], or of the
        last positions only, [1 to T, D].

        Their keys and values are behind the cache's own then; who calls counts them. look: as Transformer.forward.
        Raises: CudaError, and what `look` raises.
        """


class GpuTransformer(Transformer):
    """A Transformer over a GpuDecodeProgram. Its caches are GpuCaches of the program's region."""

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        executor: FfnExecutor,
        operators: Operators,
        decoder: GpuDecodeProgram,
        many: GpuPrefill | None = None,
    ) -> None:
        """executor: whose name and counters are the mode's; it computes nothing here. many: for prompts."""
        super().__init__(config, weights, executor, operators, decoder)
        self._program = decoder
        self._many = many
        if many is not None:
            self.first_piece = max(_FIRST_PIECE, many.chunk_tokens)

    def forward(self, tokens: I64, cache: KVCache, ahead: int = 0, look: Look = lambda share: None) -> F32:
        """As Transformer says, token by token: in sparse mode what is predicted at every position decides.

        look: called between two tokens. Raises: also DeviceFailedError.
        """
        return self._behind(tokens, cache, ahead, look, self._one_by_one)

    def prefill(self, tokens: I64, cache: KVCache, ahead: int = 0, look: Look = lambda share: None) -> F32:
        """As Transformer says; where there are enough tokens, at once, and then all neurons of a layer may be computed.

        Raises: also DeviceFailedError.
        """
        at_once = self._many is not None and len(tokens) >= self._many.least_tokens
        return self._behind(tokens, cache, ahead, look, self._at_once if at_once else self._one_by_one)

    def logits(self, hidden: F32) -> F32:
        """As Transformer says. Raises: also DeviceFailedError."""
        return self._program.logits(hidden) if self._program.has_head else super().logits(hidden)

    def _behind(
        self,
        tokens: I64,
        cache: KVCache,
        ahead: int,
        look: Look,
        run: Callable[[I64, GpuCache, int, Look], F32],
    ) -> F32:
        check_tokens(self.config, tokens, cache)
        assert isinstance(cache, GpuCache), "the model's caches are those of its region"
        length = cache.length + len(tokens) + ahead
        if not self.cache_serves(cache, length):
            earlier = cache.tokens[: cache.length].copy()
            cache.truncate(0)
            for start in range(0, len(earlier), PIECE_TOKENS):
                run(earlier[start : start + PIECE_TOKENS], cache, length, lambda share: None)
        return run(tokens, cache, length, look)

    def _one_by_one(self, tokens: I64, cache: GpuCache, length: int, look: Look) -> F32:
        before, hidden = cache.length, np.empty((len(tokens), self.config.d_model), np.float32)
        try:
            for i, token in enumerate(tokens):
                if i:
                    look(i / len(tokens))
                hidden[i] = self._program.hidden(int(token), cache, length)
        except BaseException:
            cache.truncate(before)
            raise
        return hidden

    def _at_once(self, tokens: I64, cache: GpuCache, length: int, look: Look) -> F32:
        assert self._many is not None, "who asks has looked"
        try:
            cache.take()
            hidden = self._many.run(tokens, cache, length, look)
        except CudaError as error:
            raise DeviceFailedError(f"The GPU failed: {error}.") from error
        cache.tokens[cache.length : cache.length + len(tokens)] = tokens
        cache.sequence_length = length
        cache.advance(len(tokens))
        return hidden
