"""Lay out one token as calls of CPU kernels: an emitter of engine/model/graph.py. Runs nothing.

Values pass through buffers that are allocated once. A value to add to the residual stream stays pending until the next
norm, which reads the stream anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.config import ModelConfig
from engine.decode.ffn_calls import COUNT_WORDS
from engine.decode.latent_vectors import LatentVectors
from engine.decode.stream_calls import StreamCalls
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
from engine.model.rope import RotaryPositions, Rotation
from engine.model.weights import DraftInput, LayerWeights, ModelWeights
from native_kernels.backend import F32, I64, U8, DeltaInput, PackedMatrix, Scoring, ShortConvInput
from native_kernels.cpu.attention.attention import AttentionBuffers, attention_buffers, attention_calls
from native_kernels.cpu.attention.delta_net import StatePlace, delta_calls, short_conv_calls
from native_kernels.cpu.attention.kv_store import CachePlace, rotate_and_store_calls
from native_kernels.cpu.attention.norms import RowNorm, norm_calls
from native_kernels.cpu.attention.rope import angle_calls, rope_calls
from native_kernels.cpu.ffn.elementwise import activation_calls, gate_calls, scale_calls, softcap_calls
from native_kernels.cpu.products.embedding import embedding_calls
from native_kernels.cpu.products.linear import Products, Vector
from native_kernels.cpu.runtime.call import Call, aligned_empty
from native_kernels.cpu.runtime.tallies import TallyBlock
from native_kernels.cpu.runtime.token_state import (
    CACHE,
    LAYER_BYTES,
    LAYER_TOKEN,
    LOCAL_CACHE,
    LOCAL_LAYER_BYTES,
    LOCAL_POSITION,
    NEW_STATE,
    POSITION,
    STATE,
    TOKEN,
    token_state,
)
from native_kernels.kv_blocks import KvLayout


class FfnPlan(Protocol):
    """The FFNs of all layers as calls. tallies: where they count each active neuron."""

    tallies: TallyBlock

    def select(self, layer: int, x: Vector) -> list[Call]:
        """Return the calls that select the layer's experts from x [D]; empty without experts."""

    def of_layer(
        self, layer: int, x: Vector, residual: Vector, out: F32, counts: I64, of_shared: Vector | None = None
    ) -> list[Call]:
        """Return the calls that set out [D] to what the FFN adds to the stream.

        x [D]: the norm's output; residual [D]: its input; of_shared [D]: see Ffn.shared_reads. counts [workers,
        COUNT_WORDS]: the layer's, zero before every token.
        """

    def totals(self, counts: I64) -> I64:
        """Return each layer's totals from counts [L, workers, COUNT_WORDS], in the order of FfnCounters.layers."""


class DecodeCalls:
    """The buffers of one model's tokens, and the calls over them.

    Lay out in running order: `start`, `embedding`, `layers` from first to last in any number of parts, `head`. Between
    two parts the caller may replace the stream: it completes the stream with `flush` and reports the change with
    `resume`.
    counts i64 [L, workers, words]: what the FFN counted; the FFN's plan defines their meaning.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        ffn: FfnPlan,
        products: Products,
        stream: F32 | None = None,
        rows: Sequence[int | None] | None = None,
    ) -> None:
        """Allocate the buffers.

        stream: memory for the residual streams [N D]. rows: each layer's index into the cache's blocks or states, None
        for layers that are not laid out here; default: Graph.rows.
        """
        self.state: I64 = token_state()
        self.ffn_plan = ffn
        self.counts: I64 = aligned_empty((config.n_layers, products.n_workers, COUNT_WORDS), np.int64)
        self.logits: F32 = aligned_empty(weights.head.n_rows)
        self._config = config
        self._graph = graph_of(config)
        self._weights = weights
        self._products = products
        specs = [one.spec for layer in self._graph.layers for one in layer if isinstance(one, Attend | AttendLatent)]
        self._streams = StreamCalls(config, weights, products, stream)
        self._stream = Vector(self._streams.streams[0])  # the first residual stream
        self._rows = self._graph.rows if rows is None else rows
        self._x: F32 = self._stream.values
        self._values: dict[Value, Vector] = {
            "stream": self._stream,
            "attention_in": Vector(aligned_empty(config.d_model)),
            "ffn_in": Vector(aligned_empty(config.d_model)),
            "experts_in": Vector(aligned_empty(config.d_model)),
            "router_in": Vector(aligned_empty(config.d_model)),
        }
        self._qkv: F32 = aligned_empty(max(spec.q_width + 2 * spec.kv_width for spec in specs))
        mixed: F32 = aligned_empty(max(spec.q_width for spec in specs))
        self._mixed = {spec.q_width: Vector(mixed[: spec.q_width]) for spec in specs}
        self._gate: F32 = aligned_empty(config.n_heads * config.head_dim if config.gated_attention else 0)
        self._delta: DeltaInput | None = None  # one token's
        if (spec := config.delta) is not None:
            widths = (spec.channels, spec.value_width, spec.value_heads, 0 if spec.mamba else spec.value_heads)
            self._delta = DeltaInput(*(aligned_empty((1, width)) for width in widths))
            self._recurred = Vector(aligned_empty(spec.value_width))
        if (conv := config.short_conv) is not None:
            self._convolved = ShortConvInput(*(aligned_empty((1, conv.channels)) for _ in range(3)))
            self._recurred = Vector(aligned_empty(conv.channels))
        if config.latent is not None:
            heads = self._qkv[: (config.n_heads + 1) * config.head_dim].reshape(-1, config.head_dim)
            self._latent = LatentVectors(config.latent, config, heads, mixed)
        self._low_rank = Vector(aligned_empty(config.laurel_rank))
        extra = config.layer_embedding_dim
        self._inputs: F32 = aligned_empty((config.n_layers, extra))  # the token's for each layer
        self._completes_inputs = True
        self._injected = Vector(aligned_empty(extra))
        self._attended: F32 = aligned_empty(config.d_model)
        self._added: F32 = aligned_empty(config.d_model)  # by the FFN
        self.final: Vector = self._stream  # the head's input [D], once `last_norm` was laid out
        # The head's input at the position before, for a layer that drafts tokens.
        self.hidden: F32 = aligned_empty(config.d_model if weights.draft_input is not None else 0)
        self._rotary = RotaryPositions(config, weights)
        self._rotation: Rotation | None = None  # rotation in the next two buffers
        self._frequencies: NDArray[np.float64] = aligned_empty(config.rotated // 2, np.float64)
        self._angle_scale: F32 = aligned_empty(1)
        self._angles: list[F32] = []  # [2, R / 2] each: the graph's tables at the token's position
        self._pending: list[F32] = []  # to be added to the stream
        self._calls: list[Call] = []  # of the layers in progress

    def send_inputs(self, to: F32, are_complete: bool) -> None:
        """Write what the token adds to each layer into `to` [L P].

        Unless complete, write only its embeddings for them, and only the first residual stream.
        """
        self._inputs, self._completes_inputs = to.reshape(self._inputs.shape), are_complete

    def of_a_token(self, layout: KvLayout, with_head: bool = True) -> list[Call]:
        """Return all calls from the token id to its logits, or to the head's input, for caches of that layout."""
        self.start(layout)
        calls = self.embedding() + self.layers(0, self._config.n_layers)
        return calls + (self.head() if with_head else self.last_norm()[0])

    def start(self, layout: KvLayout) -> None:
        """Start laying out calls for caches of that layout."""
        self._places = [self._place(layout, local=False)]
        if any(self._config.windows):
            self._places.append(self._place(layout, local=True))
        self._pending = []

    def _place(self, layout: KvLayout, local: bool) -> tuple[CachePlace, AttentionBuffers]:
        """Return the place of the keys and values of layers with or without a window, and buffers for attention."""
        config = self._config
        words = (LOCAL_POSITION, LOCAL_CACHE, LOCAL_LAYER_BYTES) if local else (POSITION, CACHE, LAYER_BYTES)
        n_kv_heads = (config.local_kv_heads if local else None) or config.n_kv_heads
        layout = config.kv_layout(layout.codec, local)
        position, cache, layer_bytes = (self.state[word : word + 1] for word in words)
        buffers = attention_buffers(config.n_heads, n_kv_heads, layout, 1, self._products.n_workers)
        return CachePlace(position, cache, layer_bytes, layout, n_kv_heads), buffers

    def embedding(self) -> list[Call]:
        """Return the calls for the stream before the first layer and for the rotary angles."""
        return self._embed() + self._angle_calls()

    def layers(self, first: int, last: int) -> list[Call]:
        """Return the calls of layers first to last - 1."""
        self._calls = []
        for i in range(first, last):
            emit(i, self._graph.layers[i], self)
        return self._calls

    def flush(self) -> list[Call]:
        """Return the calls that complete the stream with all pending values."""
        return self._flush()

    def resume(self) -> None:
        """Note that the caller replaced the stream's values."""
        self._stream.renew()

    def last_norm(self) -> tuple[list[Call], Vector]:
        """Return the calls of the final norm and its output: the head's input [D]."""
        weights, self.final = self._weights, self._values["attention_in"]
        if weights.streams_out:
            return self._last_norm_of_streams(), self.final
        calls = self._norm_stream(self.final, weights.final_norm, weights.final_norm_bias)
        if weights.final_norm is None:
            self.final = self._stream
        return calls, self.final

    def _last_norm_of_streams(self) -> list[Call]:
        """Return the calls of the final norm of the mean of all streams, each as large as the first."""
        weights, n = self._weights, self._config.n_streams
        calls = self._flush()
        back, others = self._streams.back()
        self._pending += others
        calls += back + self._flush()
        # Of the sum instead of the mean: its epsilon counts n^2 times.
        norm = RowNorm("rms", self._config.norm_eps * n * n, weights.final_norm)
        self._values["attention_in"].renew()
        return calls + norm_calls(self._x, self._values["attention_in"].values, norm)

    def head(self) -> list[Call]:
        """Return the calls from the stream to the logits."""
        calls, hidden = self.last_norm()
        return calls + self.logits_of(hidden)

    def set_rotation(self, length: int) -> None:
        """Set the RoPE frequencies for a sequence of this length."""
        rotation = self._rotary.rotation(length)
        if self._config.positions == "rope" and rotation is not self._rotation:
            self._rotation = rotation
            self._frequencies[:] = frequencies(rotation, self._config.rotated)
            self._angle_scale[:] = rotation.scale

    def set_token(self, token: int, position: int, local_first: int, blocks: U8, local_blocks: U8) -> None:
        """Set the words of the next token, except the places of recurrent states, and clear the counts."""
        state, known = self.state, self._config.layer_vocab_size or self._config.vocab_size
        state[TOKEN], state[POSITION], state[LOCAL_POSITION] = token, position, position - local_first
        state[LAYER_TOKEN] = token if token < known else 0
        state[CACHE], state[LAYER_BYTES] = blocks.ctypes.data, blocks.strides[0]
        state[LOCAL_CACHE], state[LOCAL_LAYER_BYTES] = local_blocks.ctypes.data, local_blocks.strides[0]
        self.counts.fill(0)

    def keys_stay_valid(self, before: int, after: int) -> bool:
        """Return whether keys computed for one sequence length are valid for another."""
        return self._rotary.keys_stay_valid(before, after)

    # --- the steps of a layer

    def norm(self, layer: int, step: Norm) -> None:
        w = self._weights.layers[layer]
        bias = getattr(w, f"{step.weight}_bias", None)
        self._calls += self._norm_stream(self._values[step.to], getattr(w, step.weight), bias)

    def select(self, layer: int, step: Select) -> None:
        """Select experts. A predictor's calls come with the FFN's."""
        if step.spec.routing is not None:
            self._calls += self.ffn_plan.select(layer, self._read(step.reads))

    def attend(self, layer: int, step: Attend) -> None:
        spec, w, row = step.spec, self._weights.layers[layer], self._rows[layer]
        assert row is not None, "the layer's keys and values are in the cache"
        x = self._read(step.reads)
        n_heads = spec.n_heads + (0 if spec.kv_from is not None else 2 * spec.n_kv_heads)
        qkv = self._qkv[: n_heads * spec.head_dim].reshape(n_heads, spec.head_dim)
        q, k, v = np.split(qkv, [spec.n_heads, spec.n_heads + spec.n_kv_heads])
        products = [(w.q, w.q_bias, q.reshape(-1))]
        products += [(one, bias, to.reshape(-1)) for one, bias, to in ((w.k, w.k_bias, k), (w.v, w.v_bias, v))
                     if one is not None]  # fmt: skip
        if spec.gated:
            assert w.attention_gate is not None, "gated attention has a gate"
            products.append((w.attention_gate, None, self._gate))
        self._project(x, products)
        angles, in_pairs = self._angles[spec.angles][:, : spec.rotated // 2], spec.rope_order == "interleaved"
        if spec.qk_norm == "rotated heads" and spec.rotated:
            self._calls += rope_calls(qkv[None, : spec.n_heads + len(k)], angles[:1], angles[1:], in_pairs)
            angles = angles[:, :0]
        self._norm_heads(q, k, v, spec, w)
        place, buffers = self._places[spec.local]
        if spec.kv_from is None:
            self._calls += rotate_and_store_calls(qkv, angles, place, row, spec.n_heads, in_pairs)
        else:
            self._calls += rope_calls(q[None], angles[:1], angles[1:], in_pairs)
        mixed = self._mixed[spec.q_width]
        scoring = Scoring(spec.scale, spec.softcap, spec.window, w.sinks, spec.temperature, spec.chunked)
        heads = mixed.values.reshape(1, spec.n_heads, spec.head_dim)
        self._calls += attention_calls(q[None], heads, place, row, buffers, scoring)
        if spec.gated:
            self._calls += gate_calls(mixed.values, self._gate, mixed.values, "attention")
        mixed.renew()
        self._calls += self._products.calls(w.o, mixed, self._attended, "attention", bias=w.o_bias)
        self._add(self._attended, layer, step.after)

    def attend_latent(self, layer: int, step: AttendLatent) -> None:
        spec, latent, to, w = step.spec, step.latent, self._latent, self._weights.layers[layer]
        x, row = self._read(step.reads), self._rows[layer]
        assert row is not None, "the layer's latent vectors are in the cache"
        vector, below = to.heads[spec.n_heads :, : latent.rank], to.below.values[None]
        (place, buffers), mixed = self._places[0], self._mixed[spec.q_width].values
        norms = [RowNorm("rms", latent.epsilon, weight) for weight in (w.k_norm, w.q_norm)]
        first = (w.q, None, to.q.reshape(-1)) if w.q_down is None else (w.q_down, None, below[0])
        self._project(x, [first, (w.qkv[1], None, to.heads[spec.n_heads])])
        self._calls += norm_calls(vector, vector, norms[0], stage="attention", barrier=w.q_down is None)
        if w.q_down is not None:
            self._calls += norm_calls(below, below, norms[1], stage="attention")
            to.below.renew()
            self._project(to.below, [(w.q, None, to.q.reshape(-1))])
        keys_of, values_of = w.by_head
        self._calls += to.products(keys_of, to.q_plain, to.heads[: spec.n_heads, : latent.rank])
        angles = self._angles[spec.angles][:, : spec.rotated // 2]
        in_pairs = spec.rope_order == "interleaved"
        self._calls += rotate_and_store_calls(
            to.heads, angles, place, row, spec.n_heads, in_pairs, latent.rank, to.q[:, latent.key_dim :]
        )
        queries, mixed = to.heads[None, : spec.n_heads], mixed.reshape(1, spec.n_heads, spec.head_dim)
        scoring = Scoring(spec.scale, temperature=spec.temperature)
        self._calls += attention_calls(queries, mixed, place, row, buffers, scoring)
        self._calls += to.products(values_of, to.mixed, to.values.values.reshape(spec.n_heads, -1))
        to.values.renew()
        self._calls += self._products.calls(w.o, to.values, self._attended, "attention")
        self._add(self._attended, layer, None)

    def _norm_heads(self, q: F32, k: F32, v: F32, spec: AttentionSpec, w: LayerWeights) -> None:
        """Norm the heads [H, head_dim] of q, k and v in place, as far as the layer does. k, v: may be of no heads."""
        kind, epsilon = self._config.norm, self._config.norm_eps
        if spec.v_norm and len(v):  # first, because v may be k as it is now
            norm, source = RowNorm(kind, epsilon, np.ones(spec.head_dim, np.float32)), k if spec.v_is_k else v
            self._calls += norm_calls(source, v, norm, stage="attention", barrier=spec.v_is_k)
        for rows, weight in ((q, w.q_norm), (k, w.k_norm)):
            if spec.qk_norm and len(rows):
                heads = rows.reshape(1, -1) if spec.qk_norm == "whole" else rows
                last = rows is k or not len(k)
                ones = np.ones(spec.head_dim, np.float32) if spec.norm_plain else weight
                norm = RowNorm(kind, epsilon, ones)
                self._calls += norm_calls(heads, heads, norm, stage="attention", barrier=last)

    def inject(self, layer: int, step: Inject) -> None:
        """Add the token's embedding for the layer, which `_embed` has computed."""
        w, gate, spec = self._weights.layers[layer], self._injected.values, step.spec
        source = self._streams.scaled if step.beside else self._read("stream")
        assert w.embedding_gate is not None, "the layer has per-layer embeddings"
        assert w.embedding_projection is not None, "as above"
        self._calls += self._products.calls(w.embedding_gate, source, gate, "ffn")
        self._calls += activation_calls(spec.activation, gate, gate, up=self._inputs[layer], threshold=spec.threshold)
        self._injected.renew()
        self._calls += self._products.calls(w.embedding_projection, self._injected, self._added, "ffn")
        if not step.beside:
            self._add(self._added, layer, step.after)
            return
        norm = RowNorm(self._config.norm, self._config.norm_eps, getattr(w, step.after))
        self._calls += self._streams.add_beside(self._added, norm)

    def predict(self, layer: int, step: Predict) -> None:
        w = self._weights.layers[layer]
        self._calls += self._norm_stream(self._streams.normed, w.stream_router_norm, None) + self._streams.predict(w)
        self._stream.renew()

    def correct(self, layer: int, step: Correct) -> None:
        w = self._weights.layers[layer]
        self._calls += self._norm_stream(self._streams.normed, w.stream_router_norm, None) + self._streams.correct(w)
        self._stream.renew()

    def laurel(self, layer: int, step: Laurel) -> None:
        w, x = self._weights.layers[layer], self._read(step.reads)
        assert w.laurel_left is not None, "the layer has a low-rank residual"
        assert w.laurel_right is not None, "as above"
        self._calls += self._products.calls(w.laurel_left, x, self._low_rank.values, "attention")
        self._low_rank.renew()
        self._calls += self._products.calls(w.laurel_right, self._low_rank, self._added, "attention")
        norm = RowNorm(self._config.norm, self._config.norm_eps, w.laurel_norm)
        self._calls += norm_calls(self._added, self._added, norm, stage="attention")
        self._pending += [self._added, x.values]
        stream = self._read("stream")
        self._calls += scale_calls(stream.values, np.full(1, 0.5**0.5, np.float32), "norms")
        stream.renew()

    def scale(self, layer: int, step: Scale) -> None:
        stream = self._read("stream")
        self._calls += scale_calls(stream.values, getattr(self._weights.layers[layer], step.weight), "norms")
        stream.renew()

    def recur(self, layer: int, step: Recur) -> None:
        w, to, row = self._weights.layers[layer], self._delta, self._rows[layer]
        x = self._read(step.reads)
        assert to is not None, "a model with such layers has the buffers"
        assert row is not None, "the layer's state is in the cache"
        of_parts = [to.qkv[0, start : start + one.n_rows] for one, start in zip(w.qkv, step.spec.starts, strict=True)]
        products = [(one, None, out) for one, out in zip(w.qkv, of_parts, strict=True)]
        products += [(one, None, out[0]) for one, out in zip(w.delta_projections, to[1:], strict=False)]
        self._project(x, products)
        place = StatePlace(self.state[STATE : STATE + 1], self.state[NEW_STATE : NEW_STATE + 1])
        out, weights = self._recurred.values[None], w.delta(step.spec.epsilon or self._config.norm_eps)
        self._calls += delta_calls(to, out, weights, step.spec, place, row, self._products.n_workers)
        self._recurred.renew()
        self._calls += self._products.calls(w.o, self._recurred, self._attended, "attention")
        self._add(self._attended, layer, None)

    def convolve(self, layer: int, step: Convolve) -> None:
        w, to, row = self._weights.layers[layer], self._convolved, self._rows[layer]
        x = self._read(step.reads)
        assert row is not None, "the layer's state is in the cache"
        assert w.conv is not None, "the layer has a short convolution"
        outs = (to.gate[0], to.gate_in[0], to.values[0])
        self._project(x, [(one, None, out) for one, out in zip(w.qkv, outs, strict=True)])
        place = StatePlace(self.state[STATE : STATE + 1], self.state[NEW_STATE : NEW_STATE + 1])
        self._calls += short_conv_calls(to, self._recurred.values[None], w.conv, step.spec, place, row)
        self._recurred.renew()
        self._calls += self._products.calls(w.o, self._recurred, self._attended, "attention")
        self._add(self._attended, layer, None)

    def _project(self, x: Vector, products: Sequence[tuple[PackedMatrix, F32 | None, F32]]) -> None:
        """Multiply x by each matrix, plus its bias, into its array; wait only for the last."""
        last = len(products) - 1
        for i, (matrix, bias, to) in enumerate(products):
            self._calls += self._products.calls(matrix, x, to, "attention", bias=bias, barrier=i == last)

    def ffn(self, layer: int, step: Ffn) -> None:
        x, apart = self._read(step.reads), step.shared_reads
        of_shared = None if apart is None else self._values[apart]
        self._calls += self.ffn_plan.of_layer(layer, x, self._stream, self._added, self.counts[layer], of_shared)
        self._add(self._added, layer, step.after)

    def _read(self, value: Value) -> Vector:
        if value == "stream":
            self._calls += self._flush()
        return self._values[value]

    def _add(self, result: F32, layer: int, after: str | None) -> None:
        """Apply the block's own norm, if any, and mark the result as pending for the stream."""
        self._pending.append(result)
        if after is not None:
            weight = getattr(self._weights.layers[layer], after)
            self._calls += norm_calls(result, result, RowNorm(self._config.norm, self._config.norm_eps, weight))

    # --- parts

    def _embed(self) -> list[Call]:
        config, weights = self._config, self._weights
        row = self._x
        if weights.project_in is not None or weights.draft_input is not None:
            row = aligned_empty(weights.embedding.n_cols)
        calls = embedding_calls(weights.embedding, self.state, TOKEN, row, scale=config.embedding_scale)
        if weights.project_in is not None:
            calls += self._products.calls(weights.project_in, Vector(row), self._x, "embedding")
        if weights.draft_input is not None:
            calls += self._draft_input(row, weights.draft_input)
        if weights.positions is not None:
            place: F32 = aligned_empty(config.d_model)
            calls += embedding_calls(weights.positions, self.state, POSITION, place, offset=config.position_offset)
            self._pending.append(place)
        return calls + (self._streams.start() if self._completes_inputs else []) + self._layer_inputs()

    def _draft_input(self, row: F32, weights: DraftInput) -> list[Call]:
        """Return the calls that set the stream from the token's embedding and the hidden state before it, [D] each."""
        both, d = Vector(aligned_empty(2 * self._config.d_model)), self._config.d_model
        kind, epsilon = self._config.norm, self._config.norm_eps
        calls: list[Call] = []
        for x, norm, at in ((row, weights.embedding_norm, 0), (self.hidden, weights.hidden_norm, d)):
            own = RowNorm(kind, epsilon, norm)
            calls += norm_calls(x, both.values[at : at + d], own, stage="embedding", barrier=x is self.hidden)
        return calls + self._products.calls(weights.project, both, self._x, "embedding")

    def _layer_inputs(self) -> list[Call]:
        """Return the calls for what the token adds to each layer: Transformer.layer_inputs is the specification."""
        config, weights = self._config, self._weights
        if weights.layer_embeddings is None:
            return []
        assert weights.layer_projection is not None, "they come together"
        inputs: F32 = self._inputs.reshape(-1)
        of_token: F32 = aligned_empty(inputs.size) if self._completes_inputs else inputs
        scale = config.layer_embedding_scale
        word = TOKEN if config.layer_vocab_size is None else LAYER_TOKEN
        calls = embedding_calls(weights.layer_embeddings, self.state, word, of_token, scale=scale)
        if not self._completes_inputs:
            return calls
        calls += self._products.calls(weights.layer_projection, Vector(self._x), inputs, "embedding")
        weight, epsilon = weights.layer_projection_norm_of(config)
        calls += norm_calls(self._inputs, self._inputs, RowNorm("rms", epsilon, weight), stage="embedding")
        return calls + norm_calls(inputs, inputs, None, added=(of_token,), stage="embedding")

    def _angle_calls(self) -> list[Call]:
        """Return the calls for cosines and sines of the token's position, per table."""
        self._angles, calls = [], []
        for table in self._graph.angles:
            angles: F32 = aligned_empty((2, table.rotated // 2))
            self._angles.append(angles)
            if table.rotated and table.scaled:
                calls += angle_calls(self.state, self._frequencies, angles, self._angle_scale)
            elif table.rotated:
                own = frequencies(Rotation(table.theta), table.rotated)
                calls += angle_calls(self.state, own, angles, np.ones(1, np.float32))
        return calls

    def logits_of(self, hidden: Vector) -> list[Call]:
        """Return the calls from the head's input to the logits."""
        config, weights = self._config, self._weights
        calls: list[Call] = []
        if weights.project_out is not None:
            narrow = Vector(aligned_empty(weights.project_out.n_rows))
            calls += self._products.calls(weights.project_out, hidden, narrow.values, "head")
            hidden = narrow
        calls += self._products.calls(weights.head, hidden, self.logits, "head", bias=weights.head_bias)
        if config.logit_softcap is not None:
            calls += softcap_calls(self.logits, self.logits, config.logit_softcap)
        return calls

    def _norm_stream(self, out: Vector, weight: F32 | None, bias: F32 | None) -> list[Call]:
        """Return the calls that add pending values to the stream and write its norm to `out`."""
        calls = self._flush(keep=2)
        added, self._pending = tuple(self._pending), []
        out.renew()
        self._stream.renew()
        norm = RowNorm(self._config.norm, self._config.norm_eps, weight, bias)
        return calls + norm_calls(self._x, out.values, norm, added=added)

    def _flush(self, keep: int = 0) -> list[Call]:
        """Return the calls that add all pending values except the last `keep` to the stream."""
        calls: list[Call] = []
        while len(self._pending) > keep:
            taken = tuple(self._pending[:2])
            self._pending = self._pending[len(taken) :]
            self._stream.renew()
            calls += norm_calls(self._x, self._x, None, added=taken)
        return calls


def frequencies(rotation: Rotation, rotated: int) -> NDArray[np.float64]:
    """Return the rotation angle per position of each pair of a head's values: f64 [R / 2]."""
    found: NDArray[np.float64] = rotation.theta ** (-np.arange(0, rotated, 2, dtype=np.float64) / rotated)
    return found if rotation.factors is None else found / rotation.factors
