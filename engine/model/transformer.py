"""The transformer: embedding, layers of attention and FFN, and the head. It neither samples nor splits prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from engine.config import ModelConfig
from engine.errors import ContextOverflowError, TokenizerMismatchError
from engine.job import CancelCheck, ShareProgress
from engine.model.activations import activate
from engine.model.counters import FfnCounters
from engine.model.graph import (
    Attend,
    AttendLatent,
    AttentionSpec,
    Convolve,
    Correct,
    Ffn,
    Inject,
    Laurel,
    Norm,
    Predict,
    Recur,
    Scale,
    Select,
    Value,
    emit,
    graph_of,
)
from engine.model.kv_cache import KVCache
from engine.model.rope import RotaryPositions, Rotation
from engine.model.router import Routing, route
from engine.model.weights import LayerWeights, ModelWeights
from engine.model.window_memory import Piece
from native_kernels.backend import F32, I32, I64, U8, DeltaInput, Operators, PackedMatrix, Scoring, ShortConvInput
from native_kernels.kv_blocks import KvLayout, allocate

if TYPE_CHECKING:
    from native_kernels.cpu.runtime.jit import Kernel

Logits = F32  # [V]
Angles = tuple[F32, F32]  # cosines and sines, each [T, R / 2]
# (layer, q [T, H, head_dim], k and v [T, H_kv, head_dim]) -> attention output [T, H, head_dim]. The function knows the
# earlier positions and stores k and v; these are empty [0, H_kv, head_dim] if the layer reads those of another layer.
AttendCached = Callable[[int, F32, F32, F32], F32]
RecurInput = DeltaInput | ShortConvInput
# (layer, projections of T positions) -> output of the layer's delta net, Mamba-2 or short convolution [T, V]. The
# function knows the state before them and keeps the one after.
RecurCached = Callable[[int, RecurInput], F32]
# Least size of a prefill chunk if experts are read from the disk: each chunk chooses, and so reads, nearly all of them.
FROM_DISK_CHUNK_TOKENS = 512
RECOMPUTE_CHUNK_TOKENS = 256  # per chunk when the cache is recomputed
LEAST_SQUARE = 1e-5  # mean square that a stream counts as at least when it is scaled


class FfnExecutor(Protocol):
    """Computes a layer's FFN."""

    counters: FfnCounters

    @property
    def name(self) -> str:
        """The mode: "dense", "exact" or "sparse"."""

    def ffn(self, layer: int, x: F32, residual: F32, routing: Routing | None = None) -> F32:
        """Return what the FFN adds to the residual, [T, D].

        x [T, D]: the norm's output. residual [T, D]: the norm's input, for predictors; not added here. routing: experts
        of each position, for models with experts.
        """


class LayerCache(Protocol):
    """The part of a KVCache that attention uses."""

    def of_layer(self, layer: int) -> tuple[U8, KvLayout]: ...

    def shift(self, layer: int, n_positions: int) -> None: ...


class Decoder(Protocol):
    """One token as a compiled program, equal to `forward` and `logits` of that token within rounding."""

    def accepts(self, cache: KVCache) -> bool:
        """Return whether the program can run on this cache now."""

    def step(self, token: int, cache: KVCache, cancelled: CancelCheck) -> Logits:
        """Append the token to the cache; return the logits for the next one, valid until the next call.

        Raises: as Transformer.forward, and Cancelled.
        """

    def most_tokens(self, cache: KVCache) -> int:
        """Return how many tokens `steps` can append to this cache now, at least 1."""

    def steps(self, tokens: Sequence[int], cache: KVCache, cancelled: CancelCheck) -> F32:
        """Append the tokens to the cache; return the logits [n, V] after each. Raises: as `step`."""

    def lay_out(self, cache: KVCache) -> None:
        """Build all programs for this cache before they are needed."""

    def kernels(self, layout: KvLayout) -> list[Kernel]:
        """Return the kernels of the CPU's threads for caches of that layout."""

    def measure_stages(self, on: bool = True, on_gpu: bool = False) -> None:
        """Start or stop measuring the stages of tokens. on_gpu: sample a GPU's stages too, if present."""

    def stage_seconds(self) -> dict[str, float]:
        """Return the seconds of every stage since then."""

    def gpu_seconds(self) -> dict[str, float]:
        """Return a GPU's stage seconds, "wait" included, in the last measured token; empty without a GPU."""

    def chosen_experts(self) -> list[I32 | None]:
        """Return [L] the experts that the last token of `step` used, valid until the next call; None: not known here.

        Empty for a model without experts.
        """


class Transformer:
    """A decoder over loaded weights. The KVCache holds the state of a conversation.

    engine/model/graph.py describes what a layer does; this class computes the steps at once. first_chunk_tokens:
    size of a prompt's first prefill chunk, whose time sets the size of the next. least_chunk_tokens: of all chunks but
    the last. largest_chunk_tokens: of all. first_chunk_is_fixed: whether first_chunk_tokens does not follow the times.
    """

    first_chunk_tokens = least_chunk_tokens = 32
    largest_chunk_tokens = 512
    first_chunk_is_fixed = False

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        executor: FfnExecutor,
        operators: Operators,
        decoder: Decoder | None = None,
    ) -> None:
        self.config = config
        self.graph = graph_of(config)
        self.weights = weights
        self.executor = executor
        self.operators = operators
        self.decoder = decoder
        if weights.expert_reads is not None:
            self.first_chunk_tokens = self.least_chunk_tokens = FROM_DISK_CHUNK_TOKENS
        self._rotary = RotaryPositions(config, weights)

    def forward(self, tokens: I64, cache: KVCache, ahead: int = 0, progress: ShareProgress = lambda share: None) -> F32:
        """Run the tokens after the cached ones, and append them to the cache.

        ahead: tokens known to follow at once, such as a prompt's later chunks. Some models rotate by the length of the
        whole sequence (engine/model/rope.py); knowing it avoids computing tokens twice. progress: called after every
        layer except the last; an exception it raises cancels the run and leaves the cache unchanged, or shorter after a
        run that is longer than the memory of layers with a window.
        Shapes: tokens [T] -> hidden states after the final norm, [T, D].
        Cost: memory grows with T x d_ff; split long prompts into chunks of some hundred tokens. If the rotation changes
        at some length, the call that crosses it recomputes the whole cache.
        Raises: ContextOverflowError if the cache is full, TokenizerMismatchError for an invalid token id.
        """
        check_tokens(self.config, tokens, cache)
        length, most = cache.length + len(tokens) + ahead, cache.most_positions_per_run
        if not self.cache_serves(cache, length):
            earlier = cache.tokens[: cache.length].copy()
            cache.truncate(0)
            for start in range(0, len(earlier), RECOMPUTE_CHUNK_TOKENS):
                self._run(earlier[start : start + RECOMPUTE_CHUNK_TOKENS], cache, length, lambda share: None)
        if len(tokens) > most:
            runs = (tokens[start : start + most] for start in range(0, len(tokens), most))
            return np.concatenate([self._run(one, cache, length, progress) for one in runs])
        return self._run(tokens, cache, length, progress)

    def prefill(
        self, tokens: I64, cache: KVCache, ahead: int = 0, progress: ShareProgress = lambda share: None,
        remembered: int = 0,
    ) -> F32:  # fmt: skip
        """Run a prompt as `forward` does. Faster overrides may return only the last row.

        remembered: the cache remembers its state after this many of the tokens; 0: not. If `progress` raises after
        them, the cache keeps them.
        """
        if not 0 < remembered < len(tokens):
            return self._prefill_part(tokens, cache, ahead, progress)
        share = remembered / len(tokens)
        rest = tokens[remembered:]
        self._prefill_part(tokens[:remembered], cache, ahead + len(rest), lambda done: progress(share * done))
        cache.remember()
        progress(share)
        return self._prefill_part(rest, cache, ahead, lambda done: progress(share + (1 - share) * done))

    def _prefill_part(self, tokens: I64, cache: KVCache, ahead: int, progress: ShareProgress) -> F32:
        """Run a part of a prompt as `forward` does. Faster overrides may return only the last row."""
        return self.forward(tokens, cache, ahead, progress)

    def cache_serves(self, cache: KVCache, length: int) -> bool:
        """Return whether the cache is valid for this sequence length; if not, `forward` recomputes it."""
        return not cache.length or self._rotary.keys_stay_valid(cache.sequence_length, length)

    def _run(self, tokens: I64, cache: KVCache, length: int, progress: ShareProgress) -> F32:
        cache.make_room(len(tokens))
        pieces = cache.pieces(cache.length, len(tokens))
        positions = np.arange(cache.length, cache.length + len(tokens), dtype=np.int64)
        cache.tokens[cache.length : cache.length + len(tokens)] = tokens
        cache.sequence_length = length
        angles = self.angles(positions, length)

        def attend(layer: int, q: F32, k: F32, v: F32) -> F32:
            return self.attend_cached(layer, q, k, v, cache, cache.length, pieces)

        before, after = cache.states()

        def recur(layer: int, inputs: RecurInput) -> F32:
            row = self.graph.rows[layer]
            return self.recur(layer, inputs, before[row], after[row])

        x = self.embed(tokens, positions)  # [T, D], the residual stream
        inputs = self.layer_inputs(tokens, x)
        try:
            for i in range(self.config.n_layers):
                if i:
                    progress(i / self.config.n_layers)
                x = self.layer(i, x, angles, attend, recur, inputs)
        except BaseException:
            cache.drop_run()
            raise
        cache.advance(len(tokens))
        hidden = self.last_norm(x)
        cache.note(hidden)
        return hidden

    def encode(self, texts: Sequence[I64], progress: ShareProgress = lambda share: None) -> list[F32]:
        """Return the hidden states [T, D] of each text's tokens [T], for an encoder.

        Products are computed for all texts at once, attention for one after another. progress: as in `forward`.
        Cost: memory grows with all tokens x d_ff. Raises: as `forward`.
        """
        ends = np.cumsum([len(tokens) for tokens in texts])
        for tokens in texts:
            check_sequence(self.config, tokens)
        longest = max(map(len, texts))
        positions = np.concatenate([np.arange(len(tokens)) for tokens in texts])
        angles, layout = self.angles(positions, longest), self.config.kv_layout("f32")
        (blocks,) = allocate(1, self.config.n_kv_heads, longest, layout)  # of one text and layer at a time

        def attend(layer: int, q: F32, k: F32, v: F32) -> F32:
            rows = [slice(end - len(tokens), end) for end, tokens in zip(ends, texts, strict=True)]
            return np.concatenate([self.attend(layer, q[one], k[one], v[one], blocks, layout, 0) for one in rows])

        x = self.embed(np.concatenate(texts), positions)
        for i in range(self.config.n_layers):
            if i:
                progress(i / self.config.n_layers)
            x = self.layer(i, x, angles, attend)
        return np.split(self.last_norm(x), ends[:-1])

    @property
    def _layer_type(self) -> type[EagerLayer]:
        """The emitter of a layer's steps."""
        return EagerLayer

    def layer(
        self,
        i: int,
        x: F32,
        angles: Sequence[Angles],
        attend: AttendCached,
        recur: RecurCached | None = None,
        inputs: F32 | None = None,
    ) -> F32:
        """Return the residual stream after layer i, for x [T, D] before it.

        angles: from `angles`. recur: needed by layers with a state. inputs: from `layer_inputs`.
        """
        run = self._layer_type(self, x, angles, attend, recur, None if inputs is None else inputs[:, i])
        emit(i, self.graph.layers[i], run)
        return run.streams

    def attend(self, layer: int, q: F32, k: F32, v: F32, blocks: U8, layout: KvLayout, position: int) -> F32:
        """Return the layer's attention for a sequence's next positions. Shapes as in `cached_attention`.

        Keys and values are stored in the blocks after the first `position` positions.
        """
        spec = self.graph.attention(layer)
        sinks = self.weights.layers[layer].sinks
        scoring = Scoring(spec.scale, spec.softcap, spec.window, sinks, spec.temperature, spec.chunked, spec.causal)
        return self.operators.cached_attention(q, k, v, blocks, layout, position, scoring)

    def attend_cached(
        self, layer: int, q: F32, k: F32, v: F32, cache: LayerCache, start: int, pieces: Sequence[Piece]
    ) -> F32:
        """Return the layer's attention for the positions from `start` on, over a cache whose run has these pieces."""
        blocks, layout = cache.of_layer(layer)
        spec = self.graph.attention(layer)
        if not spec.local:
            return self.attend(layer, q, k, v, blocks, layout, start)
        found = []
        for rows, shift, place in pieces:
            if spec.kv_from is None:
                cache.shift(layer, shift)
            found.append(self.attend(layer, q[rows], k[rows], v[rows], blocks, layout, place))
        return np.concatenate(found) if len(found) > 1 else found[0]

    def recur(self, layer: int, x: RecurInput, before: F32, after: F32) -> F32:
        """Return the output of a layer with a state over a sequence's next positions.

        Shapes as in `gated_delta` or `short_conv`.
        """
        if isinstance(x, ShortConvInput):
            assert self.config.short_conv is not None, "the layer has a short convolution"
            conv = self.weights.layers[layer].conv
            assert conv is not None, "as above"
            return self.operators.short_conv(x, conv, self.config.short_conv, before, after)
        spec = self.config.delta
        assert spec is not None, "the layer recurs"
        weights = self.weights.layers[layer].delta(spec.epsilon or self.config.norm_eps)
        return self.operators.gated_delta(x, weights, spec, before, after)

    def last_norm(self, x: F32) -> F32:
        """Return the head's input [T, D] from the residual stream after the last layer [T, D]."""
        if self.weights.streams_out:
            x, *others = np.split(x, self.config.n_streams, axis=-1)
            back = (self.operators.matmul(one, w) for one, w in zip(others, self.weights.streams_out, strict=True))
            x = (x + sum(_as_large_as(x, one) for one in back)) / np.float32(self.config.n_streams)
        return self.norm(x, self.weights.final_norm, self.weights.final_norm_bias)

    def logits(self, hidden: F32) -> F32:
        """Return logits [T, V] of hidden states [T, D]."""
        if self.weights.project_out is not None:
            hidden = self.operators.matmul(hidden, self.weights.project_out)
        logits = self.linear(hidden, self.weights.head, self.weights.head_bias)
        cap = self.config.logit_softcap
        return logits if cap is None else self.operators.softcap(logits, cap)

    def embed(self, tokens: I64, positions: I64, all_streams: bool = True) -> F32:
        """Return the residual stream before the first layer, [T, D], for tokens [T] at positions [T].

        With N streams, all of them: [T, N D], here and wherever this class speaks of a stream between layers.
        all_streams: False: only the first.
        """
        config, ops, weights = self.config, self.operators, self.weights
        x = ops.rows(weights.embedding, tokens)
        if config.embedding_scale != 1.0:
            x = x * np.float32(config.embedding_scale)
        if weights.project_in is not None:
            x = ops.matmul(x, weights.project_in)
        if weights.positions is not None:
            x = x + ops.rows(weights.positions, positions + config.position_offset)
        if weights.token_types is not None:
            x = x + ops.rows(weights.token_types, np.zeros(1, np.int64))
        x = self.norm(x, weights.input_norm, weights.input_norm_bias)
        others = [_as_large_as(x, ops.matmul(x, one)) for one in weights.streams_in if all_streams]
        return np.concatenate([x, *others], axis=-1) if others else x

    def layer_inputs(self, tokens: I64, x: F32) -> F32 | None:
        """Return what the tokens add to each layer beside the stream, [T, L, P]; None without per-layer embeddings.

        It is the token's embedding for the layer, plus a normed projection of its embedding x [T, D].
        """
        config, weights, of_tokens = self.config, self.weights, self.layer_embeddings(tokens)
        if of_tokens is None:
            return None
        assert weights.layer_projection is not None, "they come together"
        projected = self.operators.matmul(x[:, : config.d_model], weights.layer_projection).reshape(of_tokens.shape)
        return self.operators.rms_norm(projected, *weights.layer_projection_norm_of(config)) + of_tokens

    def layer_embeddings(self, tokens: I64) -> F32 | None:
        """Return the tokens' embeddings for the layers, [T, L, P]; None without any."""
        config, weights = self.config, self.weights
        if weights.layer_embeddings is None:
            return None
        known = tokens if config.layer_vocab_size is None else np.where(tokens < config.layer_vocab_size, tokens, 0)
        found = self.operators.rows(weights.layer_embeddings, known) * np.float32(config.layer_embedding_scale)
        return found.reshape(len(tokens), config.n_layers, config.layer_embedding_dim)

    def angles(self, positions: I64, length: int) -> tuple[Angles, ...]:
        """Return cosines and sines of each of the graph's angle tables.

        length: of the positions' sequence, as far as known.
        """
        found = []
        for table in self.graph.angles:
            if not table.rotated:
                nothing = np.zeros((len(positions), 0), np.float32)
                found.append((nothing, nothing))
                continue
            rotation = self._rotary.rotation(length) if table.scaled else Rotation(table.theta)
            pair = self.operators.rope_angles(positions, table.rotated, rotation.theta, rotation.factors)
            if rotation.scale != 1.0:
                scale = np.float32(rotation.scale)
                pair = pair[0] * scale, pair[1] * scale
            found.append(pair)
        return tuple(found)

    @property
    def has_far_head(self) -> bool:
        """Whether `logits` computes on a GPU."""
        return False

    def linear(self, x: F32, w: PackedMatrix, bias: F32 | None) -> F32:
        """Return x W^T + bias: [T, C] -> [T, R] for a matrix [R, C]."""
        out = self.operators.matmul(x, w)
        if bias is not None:
            out += bias
        return out

    def norm(self, x: F32, weight: F32 | None, bias: F32 | None = None) -> F32:
        """Apply the model's norm over the last axis; return x if the family has no norm here."""
        if weight is None:
            return x
        if self.config.norm == "rms":
            return self.operators.rms_norm(x, weight, self.config.norm_eps)
        return self.operators.layer_norm(
            x, weight, np.zeros_like(weight) if bias is None else bias, self.config.norm_eps
        )


def _as_large_as(x: F32, other: F32) -> F32:
    """Return `other` scaled row by row to the root mean square of x; both [T, D]."""
    target = np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True))
    size = np.sqrt(np.maximum(np.mean(np.square(other), axis=-1, keepdims=True), np.float32(LEAST_SQUARE)))
    scaled: F32 = other * (target / size)
    return scaled


def joined_angles(each: Sequence[Sequence[Angles]]) -> tuple[Angles, ...]:
    """Concatenate the angles of several runs of positions."""
    return tuple(
        (np.concatenate([cos for cos, _ in table]), np.concatenate([sin for _, sin in table]))
        for table in zip(*each, strict=True)
    )


class EagerLayer:
    """Computes a layer's steps at once, over x [T, D]. stream: the current residual stream."""

    def __init__(
        self,
        model: Transformer,
        x: F32,
        angles: Sequence[Angles],
        attend: AttendCached,
        recur: RecurCached | None,
        inputs: F32 | None,
    ) -> None:
        self._model, self._angles, self._attend, self._recur = model, angles, attend, recur
        self._inputs = inputs  # [T, P], of per-layer embeddings
        streams = x.reshape(len(x), model.config.n_streams, model.config.d_model)
        self._streams = streams  # [T, N, D]; the first one as of before the layer
        self._values: dict[Value, F32] = {"stream": np.ascontiguousarray(streams[:, 0])}
        self._normed_from: dict[Value, F32] = {}  # the norm's input for each value
        self._routing: Routing | None = None

    @property
    def stream(self) -> F32:
        return self._values["stream"]

    @property
    def streams(self) -> F32:
        """All streams, [T, N D]."""
        n_tokens, n, d = self._streams.shape
        others = self._streams[:, 1:].reshape(n_tokens, (n - 1) * d)
        return np.concatenate([self.stream, others], axis=-1) if n > 1 else self.stream

    def norm(self, layer: int, step: Norm) -> None:
        w = self._model.weights.layers[layer]
        bias = getattr(w, f"{step.weight}_bias", None)
        if step.to != "stream":
            self._normed_from[step.to] = self.stream
        self._values[step.to] = self._model.norm(self.stream, getattr(w, step.weight), bias)

    def select(self, layer: int, step: Select) -> None:
        model, w = self._model, self._model.weights.layers[layer]
        self._routing = None
        if step.spec.routing is not None:
            assert w.router is not None, "a layer with experts has a router"
            x = self._values[step.reads]
            self._routing = route(
                step.spec.routing, w.router, x, model.operators, w.router_bias, w.shared_gate, w.selection_bias,
                w.expert_scale,
            )  # fmt: skip

    def attend(self, layer: int, step: Attend) -> None:
        model, ops, spec = self._model, self._model.operators, step.spec
        w, x = model.weights.layers[layer], self._values[step.reads]
        q = self._heads(x, w.q, w.q_bias, w.q_norm, spec)
        k = v = np.zeros((0, spec.n_kv_heads, spec.head_dim), np.float32)
        if spec.kv_from is None:
            assert w.k is not None, "the layer has keys of its own"
            k = self._heads(x, w.k, w.k_bias, w.k_norm, spec)
            of_v, bias = (w.k, w.k_bias) if w.v is None else (w.v, w.v_bias)
            v = model.linear(x, of_v, bias).reshape(k.shape)
        if spec.v_norm:
            v = model.norm(v, np.ones(spec.head_dim, np.float32))
        if spec.rotated:
            cos, sin = self._angles[spec.angles]
            q = ops.rope(q, cos, sin, spec.rope_order)
            k = ops.rope(k, cos, sin, spec.rope_order) if len(k) else k
        if spec.qk_norm == "rotated heads":
            ones = np.ones(spec.head_dim, np.float32) if spec.norm_plain else None
            q, k = (model.norm(one, weight if ones is None else ones) for one, weight in ((q, w.q_norm), (k, w.k_norm)))
        mixed = self._attend(layer, q, k, v).reshape(len(x), spec.q_width)
        if spec.gated:
            assert w.attention_gate is not None, "gated attention has a gate"
            mixed = ops.gated(mixed, model.linear(x, w.attention_gate, None))
        self._add(model.linear(mixed, w.o, w.o_bias), w, step.after)

    def attend_latent(self, layer: int, step: AttendLatent) -> None:
        ops, spec, latent = self._model.operators, step.spec, step.latent
        w, x = self._model.weights.layers[layer], self._values[step.reads]
        keys_of, values_of = w.by_head
        below = x
        if w.q_down is not None:
            assert w.q_norm is not None, "there is a norm between the two matrices of q"
            below = ops.rms_norm(ops.matmul(x, w.q_down), w.q_norm, latent.epsilon)
        q = ops.matmul(below, w.q).reshape(len(x), spec.n_heads, w.q.n_rows // spec.n_heads)  # [T, H, key_dim + R]
        k = ops.matmul(x, w.qkv[1])  # [T, rank + R]
        assert w.k_norm is not None, "the latent vector is normed"
        vector = ops.rms_norm(k[:, : latent.rank], w.k_norm, latent.epsilon)
        q_rotated, k_rotated = q[..., latent.key_dim :], k[:, None, latent.rank :]
        if spec.rotated:
            cos, sin = self._angles[spec.angles]
            q_rotated = ops.rope(q_rotated, cos, sin, spec.rope_order)
            k_rotated = ops.rope(k_rotated, cos, sin, spec.rope_order)
        queries = np.empty((len(x), spec.n_heads, spec.head_dim), np.float32)
        for h, of_head in enumerate(keys_of):
            queries[:, h, : latent.rank] = ops.matmul(q[:, h, : latent.key_dim], of_head)
        queries[..., latent.rank :] = q_rotated
        keys = np.concatenate([vector[:, None], k_rotated], axis=-1)
        mixed = self._attend(layer, queries, keys, keys)
        heads = [ops.matmul(mixed[:, h, : latent.rank], one) for h, one in enumerate(values_of)]
        self._add(ops.matmul(np.concatenate(heads, axis=-1), w.o), w, None)

    def _heads(self, x: F32, w: PackedMatrix, bias: F32 | None, weight: F32 | None, spec: AttentionSpec) -> F32:
        """Return the heads of a projection of x, [T, H, head_dim], normed as queries and keys are by the weight."""
        found = self._model.linear(x, w, bias)
        if spec.qk_norm == "whole":
            found = self._model.norm(found, weight)
        found = found.reshape(len(x), w.n_rows // spec.head_dim, spec.head_dim)
        return self._model.norm(found, weight) if spec.qk_norm == "heads" else found

    def recur(self, layer: int, step: Recur) -> None:
        ops, w, x = self._model.operators, self._model.weights.layers[layer], self._values[step.reads]
        assert self._recur is not None, "the caller keeps the state"
        parts = [ops.matmul(x, one) for one in w.qkv]
        qkv = np.concatenate(parts[::-1] if step.spec.mamba else parts, axis=-1)
        rest = [ops.matmul(x, one) for one in w.delta_projections]
        beta = [] if w.beta is not None else [np.zeros((len(x), 0), np.float32)]
        inputs = DeltaInput(qkv, *rest, *beta)
        self._add(ops.matmul(self._recur(layer, inputs), w.o), w, None)

    def convolve(self, layer: int, step: Convolve) -> None:
        ops, w, x = self._model.operators, self._model.weights.layers[layer], self._values[step.reads]
        assert self._recur is not None, "the caller keeps the state"
        gate, gate_in, values = (ops.matmul(x, one) for one in w.qkv)
        inputs = ShortConvInput(values, gate_in, gate)
        self._add(ops.matmul(self._recur(layer, inputs), w.o), w, None)

    def ffn(self, layer: int, step: Ffn) -> None:
        x = self._values[step.reads]
        residual, w = self._normed_from.get(step.reads, self.stream), self._model.weights.layers[layer]
        model, routing = self._model, self._routing
        if step.shared_reads is None:
            self._add(model.executor.ffn(layer, x, residual, routing), w, step.after)
            return
        assert routing is not None, "the layer has experts"
        routed = model.executor.ffn(layer, x, residual, routing.of_columns(slice(0, -1)))
        of_shared = self._values[step.shared_reads]
        shared = model.executor.ffn(layer, of_shared, residual, routing.of_columns(slice(-1, None)))
        added = model.norm(routed, w.post_experts_norm) + model.norm(shared, w.post_shared_norm)
        self._add(added, w, step.after)

    def inject(self, layer: int, step: Inject) -> None:
        ops, w = self._model.operators, self._model.weights.layers[layer]
        assert self._inputs is not None, "the caller gives the tokens' inputs to the layer"
        assert w.embedding_gate is not None, "the layer has per-layer embeddings"
        assert w.embedding_projection is not None, "as above"
        source = self.stream
        if step.beside:
            assert w.stream_scale is not None, "the layer has several streams"
            source = source * w.stream_scale
        gate = activate(step.spec, ops.matmul(source, w.embedding_gate), ops)
        added = ops.matmul(gate * self._inputs, w.embedding_projection)
        if step.beside:
            self._streams[:, 1:] += self._model.norm(added, getattr(w, step.after))[:, None]
        else:
            self._add(added, w, step.after)

    def scale(self, layer: int, step: Scale) -> None:
        factor = getattr(self._model.weights.layers[layer], step.weight)
        self._values["stream"] = self.stream * factor

    def predict(self, layer: int, step: Predict) -> None:
        w, n = self._model.weights.layers[layer], self._model.config.n_streams
        assert w.stream_prediction is not None, "the layer has several streams"
        mixture = self._model.operators.matmul(self._modalities(w), w.stream_prediction).reshape(-1, n, n)
        self._streams = self._streams + mixture @ self._streams
        self._values["stream"] = np.ascontiguousarray(self._streams[:, 0])

    def correct(self, layer: int, step: Correct) -> None:
        w = self._model.weights.layers[layer]
        assert w.stream_correction is not None, "the layer has several streams"
        shares = self._model.operators.matmul(self._modalities(w), w.stream_correction) + np.float32(1)
        change = self.stream - self._streams[:, 0]
        self._streams = self._streams + shares[..., None] * change[:, None]
        self._values["stream"] = np.ascontiguousarray(self._streams[:, 0])

    def _modalities(self, w: LayerWeights) -> F32:
        """Return N numbers between -1 and 1 for each position, by which the streams are mixed."""
        assert w.stream_router is not None, "the layer has several streams"
        ops = self._model.operators
        return ops.softcap(ops.matmul(self._model.norm(self.stream, w.stream_router_norm), w.stream_router), 1.0)

    def laurel(self, layer: int, step: Laurel) -> None:
        ops, w, x = self._model.operators, self._model.weights.layers[layer], self._values[step.reads]
        assert w.laurel_left is not None, "the layer has a low-rank residual"
        assert w.laurel_right is not None, "as above"
        product = ops.matmul(ops.matmul(x, w.laurel_left), w.laurel_right)
        added = x + self._model.norm(product, w.laurel_norm)
        self._values["stream"] = (self.stream + added) * np.float32(0.5**0.5)

    def _add(self, result: F32, w: LayerWeights, after: str | None) -> None:
        self._values["stream"] = self.stream + self._model.norm(result, getattr(w, after) if after else None)


def check_tokens(config: ModelConfig, tokens: I64, cache: KVCache) -> None:
    """Raise ContextOverflowError or TokenizerMismatchError if the tokens cannot be appended to the cache."""
    if cache.length + len(tokens) > cache.capacity:
        raise ContextOverflowError(
            f"{len(tokens)} tokens behind {cache.length} do not fit into a context of {cache.capacity}."
        )
    check_sequence(config, tokens, cache.length)


def check_sequence(config: ModelConfig, tokens: I64, before: int = 0) -> None:
    """Check tokens after `before` others, without a cache."""
    if config.positions == "learned" and before + len(tokens) > config.max_context:
        raise ContextOverflowError(
            f"{len(tokens)} tokens behind {before} go beyond the {config.max_context} positions that "
            "the model has learned."
        )
    if len(tokens) and not (tokens.min() >= 0 and tokens.max() < config.vocab_size):
        outside = tokens.max() if tokens.min() >= 0 else tokens.min()
        raise TokenizerMismatchError(f"Token {outside} is outside the model's vocabulary of {config.vocab_size}.")
