"""The main graph: embedding, then per layer attention and FFN, then the head. It neither samples nor cuts prompts."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from engine.config import ModelConfig
from engine.errors import ContextOverflowError, TokenizerMismatchError
from engine.executor.counters import FfnCounters
from engine.model.kv_cache import KVCache
from engine.model.weights import LayerWeights, ModelWeights
from native_kernels.backend import F32, I64, Operators


class FfnExecutor(Protocol):
    """How a layer's feed-forward block is computed."""

    counters: FfnCounters

    @property
    def name(self) -> str:
        """dense, exact, ..."""

    def ffn(self, layer: int, x: F32) -> F32:
        """x [T, D], normed -> what the block adds to the residual, [T, D]."""


class Transformer:
    """A LLaMA-family decoder over loaded weights. Holds no state of a conversation: that is the KVCache's."""

    def __init__(self, config: ModelConfig, weights: ModelWeights, executor: FfnExecutor, operators: Operators) -> None:
        self.config = config
        self.weights = weights
        self.executor = executor
        self.operators = operators

    def forward(self, tokens: I64, cache: KVCache) -> F32:
        """Runs the tokens behind what the cache holds, and appends them to it.

        Shapes: tokens [T] -> hidden states after the last norm, [T, D].
        Cost: memory grows with T x d_ff; cut a long prompt into pieces of some hundred tokens.
        Raises: ContextOverflowError when the cache has no room, TokenizerMismatchError for an id that is no token.
        """
        self._check(tokens, cache)
        config, ops, weights = self.config, self.operators, self.weights
        positions = np.arange(cache.length, cache.length + len(tokens), dtype=np.int64)
        cos, sin = ops.rope_angles(positions, config.head_dim, config.rope_theta)

        x = ops.rows(weights.embedding, tokens)  # [T, D], the residual stream
        for i, layer in enumerate(weights.layers):
            x = x + self._attention(i, layer, ops.rms_norm(x, layer.attention_norm, config.norm_eps), cos, sin, cache)
            x = x + self.executor.ffn(i, ops.rms_norm(x, layer.ffn_norm, config.norm_eps))
        cache.advance(len(tokens))
        return ops.rms_norm(x, weights.final_norm, config.norm_eps)

    def logits(self, hidden: F32) -> F32:
        """Hidden states [T, D] -> logits [T, V]."""
        return self.operators.matmul(hidden, self.weights.head)

    def _attention(self, i: int, w: LayerWeights, x: F32, cos: F32, sin: F32, cache: KVCache) -> F32:
        config, ops, n_tokens = self.config, self.operators, x.shape[0]
        q = ops.matmul(x, w.q).reshape(n_tokens, config.n_heads, config.head_dim)
        k = ops.matmul(x, w.k).reshape(n_tokens, config.n_kv_heads, config.head_dim)
        v = ops.matmul(x, w.v).reshape(n_tokens, config.n_kv_heads, config.head_dim)
        keys, values = cache.write(i, ops.rope(k, cos, sin), v)
        mixed = ops.attention(ops.rope(q, cos, sin), keys, values)
        return ops.matmul(mixed.reshape(n_tokens, config.n_heads * config.head_dim), w.o)

    def _check(self, tokens: I64, cache: KVCache) -> None:
        if cache.length + len(tokens) > cache.capacity:
            raise ContextOverflowError(
                f"{len(tokens)} tokens behind {cache.length} do not fit into a context of {cache.capacity}."
            )
        if len(tokens) and not (tokens.min() >= 0 and tokens.max() < self.config.vocab_size):
            outside = tokens.max() if tokens.min() >= 0 else tokens.min()
            raise TokenizerMismatchError(
                f"Token {outside} lies outside the model's vocabulary of {self.config.vocab_size}."
            )
