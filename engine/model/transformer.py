"""The main graph: embedding, then per layer attention and FFN, then the head. It neither samples nor cuts prompts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import numpy as np

from engine.config import ModelConfig
from engine.errors import ContextOverflowError, TokenizerMismatchError
from engine.executor.counters import FfnCounters
from engine.model.kv_cache import KVCache
from engine.model.rope import RotaryPositions
from engine.model.router import Routing, route
from engine.model.weights import LayerWeights, ModelWeights
from native_kernels.backend import F32, I64, U8, Operators, PackedMatrix
from native_kernels.kv_blocks import KvLayout

if TYPE_CHECKING:
    from native_kernels.cpu.runtime.pool import Program

Logits = F32  # [V]
Angles = tuple[F32, F32]  # cosines and sines, [T, R / 2] each
# (layer, q [T, H, head_dim], k and v [T, H_kv, head_dim]) -> what each query makes of the values it may see,
# [T, H, head_dim]. Who gives it decides what lies before these positions, and keeps k and v.
Attend = Callable[[int, F32, F32, F32], F32]
PIECE_TOKENS = 256  # of what is computed again


class FfnExecutor(Protocol):
    """How a layer's feed-forward block is computed."""

    counters: FfnCounters

    @property
    def name(self) -> str:
        """dense, exact, ..."""

    def ffn(self, layer: int, x: F32, residual: F32, routing: Routing | None = None) -> F32:
        """x [T, D], normed -> what the block adds to the residual, [T, D].

        routing: which experts each position goes through, where the model has some.

        residual [T, D]: what the norm read to make x. Predictors may read it; nothing is added to it here.
        """


class Decoder(Protocol):
    """One token as a compiled program, equal to `forward` and `logits` of that token within rounding."""

    def accepts(self, cache: KVCache) -> bool:
        """Whether the program can run on this cache now."""

    def step(self, token: int, cache: KVCache, cancelled: Callable[[], bool]) -> Logits:
        """Appends the token to the cache; the logits for the next one, valid until the next call.

        Raises: as Transformer.forward, and Cancelled.
        """

    def program_for(self, layout: KvLayout) -> Program:
        """The calls of the processor's threads over caches of that layout."""

    def measure_stages(self, on: bool = True, on_card: bool = False) -> None:
        """Measures from here on how long the stages of the tokens take, or no longer. on_card: now and then those of
        a card too, where there is one."""

    def stage_seconds(self) -> dict[str, float]:
        """Seconds of every stage since then."""

    def card_seconds(self) -> dict[str, float]:
        """Seconds of a card's stages, "wait" among them, in the token that was measured last; empty without one."""


class Transformer:
    """A decoder over loaded weights. Holds no state of a conversation: that is the KVCache's.

    Families differ in fields of the ModelConfig and in which weights there are; the graph below is all of them.
    first_piece: how many tokens of a prompt go through `prefill` first, before it is known how long they take.
    """

    first_piece = 32

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        executor: FfnExecutor,
        operators: Operators,
        decoder: Decoder | None = None,
    ) -> None:
        self.config = config
        self.weights = weights
        self.executor = executor
        self.operators = operators
        self.decoder = decoder
        self._rotary = RotaryPositions(config, weights)

    def forward(
        self, tokens: I64, cache: KVCache, ahead: int = 0, look: Callable[[float], None] = lambda share: None
    ) -> F32:
        """Runs the tokens behind what the cache holds, and appends them to it.

        ahead: how many tokens are known to follow at once, as the later pieces of a prompt do; some models turn
        positions by the length of the whole sequence (engine/model/rope.py), and none is computed twice then.
        look: called after every layer but the last with the share of them that is done; what it raises ends the work,
        and the cache is as before.
        Shapes: tokens [T] -> hidden states after the last norm, [T, D].
        Cost: memory grows with T x d_ff; cut a long prompt into pieces of some hundred tokens. Where a model turns
        positions otherwise from some length on, the call that crosses it computes all that the cache holds again.
        Raises: ContextOverflowError when the cache has no room, TokenizerMismatchError for an id that is no token.
        """
        check_tokens(self.config, tokens, cache)
        length = cache.length + len(tokens) + ahead
        if not self.cache_serves(cache, length):
            earlier = cache.tokens[: cache.length].copy()
            cache.truncate(0)
            for start in range(0, len(earlier), PIECE_TOKENS):
                self._run(earlier[start : start + PIECE_TOKENS], cache, length, lambda share: None)
        return self._run(tokens, cache, length, look)

    def prefill(
        self, tokens: I64, cache: KVCache, ahead: int = 0, look: Callable[[float], None] = lambda share: None
    ) -> F32:
        """As `forward`, for a prompt; whoever has a faster way for many tokens at once takes it here, and may leave out
        all rows but the last."""
        return self.forward(tokens, cache, ahead, look)

    def cache_serves(self, cache: KVCache, length: int) -> bool:
        """Whether what the cache holds is of use in a sequence of this length; if not, `forward` computes it again."""
        return not cache.length or self._rotary.keys_serve(cache.sequence_length, length)

    def _run(self, tokens: I64, cache: KVCache, length: int, look: Callable[[float], None]) -> F32:
        positions = np.arange(cache.length, cache.length + len(tokens), dtype=np.int64)
        cache.tokens[cache.length : cache.length + len(tokens)] = tokens
        cache.sequence_length = length
        angles = self.angles(positions, length)

        def attend(layer: int, q: F32, k: F32, v: F32) -> F32:
            return self.attend(layer, q, k, v, cache.blocks[layer], cache.layout, cache.length)

        x = self.embed(tokens, positions)  # [T, D], the residual stream
        for i in range(self.config.n_layers):
            if i:
                look(i / self.config.n_layers)
            x = self.layer(i, x, angles, attend)
        cache.advance(len(tokens))
        return self.last_norm(x)

    def layer(self, i: int, x: F32, angles: tuple[Angles, Angles], attend: Attend) -> F32:
        """The residual stream x [T, D] before layer i -> behind it."""
        block = self._block
        if self.config.norms == "post":
            block = self._post_norm_block
        elif self.config.parallel:
            block = self._parallel_block
        return block(i, self.weights.layers[i], x, angles, attend)

    def attend(self, layer: int, q: F32, k: F32, v: F32, blocks: U8, layout: KvLayout, position: int) -> F32:
        """Attention of one sequence's next positions, as the layer sees them; blocks and shapes as `cached_attention`.

        Keys and values are kept in the blocks, behind the `position` positions that they hold.
        """
        config = self.config
        return self.operators.cached_attention(
            q, k, v, blocks, layout, position, config.attention_scale, config.attention_softcap, config.window(layer)
        )

    def last_norm(self, x: F32) -> F32:
        """The residual stream behind the last layer [T, D] -> what the head reads, [T, D]."""
        return self._norm(x, self.weights.final_norm, self.weights.final_norm_bias)

    def logits(self, hidden: F32) -> F32:
        """Hidden states [T, D] -> logits [T, V]."""
        if self.weights.project_out is not None:
            hidden = self.operators.matmul(hidden, self.weights.project_out)
        logits = self.operators.matmul(hidden, self.weights.head)
        cap = self.config.logit_softcap
        return logits if cap is None else self.operators.softcap(logits, cap)

    def _block(self, i: int, w: LayerWeights, x: F32, angles: tuple[Angles, Angles], attend: Attend) -> F32:
        """Attention, then FFN, each behind a norm; Gemma has one after each as well."""
        early = self._route(w, x) if self.config.early_router else None
        mixed = self._attention(i, w, self._norm(x, w.attention_norm, w.attention_norm_bias), angles, attend)
        x = x + self._norm(mixed, w.post_attention_norm)
        normed = self._norm(x, w.ffn_norm, w.ffn_norm_bias)
        added = self.executor.ffn(i, normed, x, early or self._route(w, normed))
        return x + self._norm(added, w.post_ffn_norm)

    def _parallel_block(self, i: int, w: LayerWeights, x: F32, angles: tuple[Angles, Angles], attend: Attend) -> F32:
        """Attention and FFN side by side, both of the layer's input, behind one norm or one each: Falcon."""
        normed = self._norm(x, w.attention_norm, w.attention_norm_bias)
        mixed = self._attention(i, w, normed, angles, attend)
        if not self.config.shared_norm:
            normed = self._norm(x, w.ffn_norm, w.ffn_norm_bias)
        return x + mixed + self.executor.ffn(i, normed, x)

    def _post_norm_block(self, i: int, w: LayerWeights, x: F32, angles: tuple[Angles, Angles], attend: Attend) -> F32:
        """Attention, then FFN, each before a norm of the sum: OPT-350M."""
        x = self._norm(x + self._attention(i, w, x, angles, attend), w.attention_norm, w.attention_norm_bias)
        return self._norm(x + self.executor.ffn(i, x, x), w.ffn_norm, w.ffn_norm_bias)

    def _route(self, w: LayerWeights, x: F32) -> Routing | None:
        return None if w.router is None else route(self.config, w.router, x, self.operators, w.shared_gate)

    def embed(self, tokens: I64, positions: I64) -> F32:
        """Tokens [T] at positions [T] of their sequences -> the residual stream before the first layer, [T, D]."""
        config, ops, weights = self.config, self.operators, self.weights
        x = ops.rows(weights.embedding, tokens)
        if config.embedding_scale != 1.0:
            x = x * np.float32(config.embedding_scale)
        if weights.project_in is not None:
            x = ops.matmul(x, weights.project_in)
        if weights.positions is not None:
            x = x + ops.rows(weights.positions, positions + config.position_offset)
        return x

    def angles(self, positions: I64, length: int) -> tuple[Angles, Angles]:
        """Cosines and sines for the layers that see everything, and for those that see a window.

        length: of the sequence that the positions are of, as far as it is known.
        """
        config, ops = self.config, self.operators
        if config.positions != "rope":
            nothing = np.zeros((len(positions), 0), np.float32)
            return (nothing, nothing), (nothing, nothing)
        rotation = self._rotary.rotation(length)
        everywhere = ops.rope_angles(positions, config.rotated, rotation.theta, rotation.factors)
        if rotation.scale != 1.0:
            scale = np.float32(rotation.scale)
            everywhere = everywhere[0] * scale, everywhere[1] * scale
        if config.rope_theta_local is None:
            return everywhere, everywhere
        return everywhere, ops.rope_angles(positions, config.rotated, config.rope_theta_local)

    def _attention(self, i: int, w: LayerWeights, x: F32, angles: tuple[Angles, Angles], attend: Attend) -> F32:
        config, ops, n_tokens = self.config, self.operators, x.shape[0]
        q = self._linear(x, w.q, w.q_bias).reshape(n_tokens, config.n_heads, config.head_dim)
        k = self._linear(x, w.k, w.k_bias).reshape(n_tokens, config.n_kv_heads, config.head_dim)
        v = self._linear(x, w.v, w.v_bias).reshape(n_tokens, config.n_kv_heads, config.head_dim)
        if config.qk_norm:
            q, k = self._norm(q, w.q_norm), self._norm(k, w.k_norm)
        window = config.window(i)
        if config.positions == "rope" and i not in config.unrotated:
            cos, sin = angles[0 if window is None else 1]
            q, k = ops.rope(q, cos, sin, config.rope_order), ops.rope(k, cos, sin, config.rope_order)
        mixed = attend(i, q, k, v)
        return self._linear(mixed.reshape(n_tokens, config.n_heads * config.head_dim), w.o, w.o_bias)

    def _linear(self, x: F32, w: PackedMatrix, bias: F32 | None) -> F32:
        out = self.operators.matmul(x, w)
        return out if bias is None else out + bias

    def _norm(self, x: F32, weight: F32 | None, bias: F32 | None = None) -> F32:
        """The model's norm over the last axis; x itself where the family has no norm at this place."""
        if weight is None:
            return x
        if self.config.norm == "rms":
            return self.operators.rms_norm(x, weight, self.config.norm_eps)
        return self.operators.layer_norm(
            x, weight, np.zeros_like(weight) if bias is None else bias, self.config.norm_eps
        )


def check_tokens(config: ModelConfig, tokens: I64, cache: KVCache) -> None:
    """Raises ContextOverflowError or TokenizerMismatchError unless the tokens can be appended to the cache."""
    if cache.length + len(tokens) > cache.capacity:
        raise ContextOverflowError(
            f"{len(tokens)} tokens behind {cache.length} do not fit into a context of {cache.capacity}."
        )
    check_sequence(config, tokens, cache.length)


def check_sequence(config: ModelConfig, tokens: I64, before: int = 0) -> None:
    """The same for tokens behind `before` others, wherever their keys and values go."""
    if config.positions == "learned" and before + len(tokens) > config.max_context:
        raise ContextOverflowError(
            f"{len(tokens)} tokens behind {before} go beyond the {config.max_context} positions that "
            "the model has learned."
        )
    if len(tokens) and not (tokens.min() >= 0 and tokens.max() < config.vocab_size):
        outside = tokens.max() if tokens.min() >= 0 else tokens.min()
        raise TokenizerMismatchError(f"Token {outside} lies outside the model's vocabulary of {config.vocab_size}.")
