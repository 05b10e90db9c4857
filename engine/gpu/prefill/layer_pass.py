"""A chunk of a prompt through one layer on the GPU. An emitter of engine/model/graph.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from engine.config import ModelConfig
from engine.gpu.prefill.cold_buffers import ColdNeurons, Key
from engine.gpu.prefill.cold_stream import ColdStream
from engine.gpu.prefill.delta_rows import project_delta
from engine.gpu.prefill.expert_pass import ExpertPass, SharedApart
from engine.gpu.prefill.latent_pass import run_latent
from engine.gpu.prefill.prefill_memory import PrefillMemory
from engine.gpu.prefill.stream_rows import StreamRows
from engine.gpu.prefill.streamed_layers import StreamedLayer, StreamedLayers
from engine.gpu.weights.layers import GpuLayer, GpuMixing, GpuRowWiseFfn, heads_of
from engine.model.graph import (
    Attend,
    AttendLatent,
    AttentionSpec,
    Convolve,
    Correct,
    Ffn,
    Graph,
    Inject,
    Laurel,
    Norm,
    Predict,
    Recur,
    Scale,
    Select,
    Value,
)
from engine.model.window_memory import Piece
from native_kernels.backend import F32, I64, U8
from native_kernels.cuda.gpu import GpuBlock, GpuDeltaInput, GpuExperts, GpuNorm, GpuScoring, GpuStates, GpuVector
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.prompt_rows import RoundedRows, RowAngles, Rows, Weights
from native_kernels.kv_blocks import KvLayout


class PromptCache(Protocol):
    """A cache whose positions are already on the GPU: engine.gpu.weights.cache.GpuCache."""

    length: int
    tokens: I64
    sequence_length: int
    rows: tuple[int | None, ...]

    @property
    def half(self) -> int: ...

    @property
    def local_first(self) -> int: ...

    @property
    def forgets(self) -> bool: ...

    @property
    def recurs(self) -> bool: ...

    def of_layer(self, layer: int) -> tuple[U8, KvLayout]: ...

    def pieces(self, start: int, n_tokens: int) -> list[Piece]: ...

    def shift(self, layer: int, n_positions: int) -> None: ...

    def states(self) -> tuple[F32, F32]: ...


@dataclass(frozen=True, eq=False)
class Chunk:
    """What all layers of a chunk share.

    streamed: the CPU's layers that may be streamed. start: the chunk's first position. parts: the parts of it that
    recur at once, and where the state after each is to be copied to. pieces: as KVCache.pieces. unneeded: rows at the
    beginning of which only keys and values are needed in the last layer.
    """

    ops: GpuPrefillOps
    memory: PrefillMemory
    config: ModelConfig
    graph: Graph
    cold: ColdStream
    streamed: StreamedLayers | None
    cache: PromptCache
    start: int
    n_tokens: int
    parts: list[tuple[slice, F32 | None]]
    pieces: list[Piece]
    unneeded: int


class LayerPass:
    """One chunk through one layer on the GPU, whose weights are resident or streamed."""

    def __init__(self, chunk: Chunk, layer: GpuLayer | StreamedLayer) -> None:
        self._chunk, self._layer, self._n, self._start = chunk, layer, chunk.n_tokens, chunk.start
        self._cache, self._cold = chunk.cache, chunk.cold
        self._ops, self._memory = chunk.ops, chunk.memory
        self._width = chunk.config.d_model
        self._stream = Rows(self._memory.stream, self._width)
        self._streams = self._memory.stream_rows(chunk.n_tokens)
        self._experts: ExpertPass | None = None

    def norm(self, layer: int, step: Norm) -> None:
        out = self._stream if step.to == "stream" else None
        if self._streams is not None and step.to == "attention_in":
            out = self._streams.attention_in
        if self._memory.experts is not None and step.to == self._chunk.graph.selects_from(layer):
            out = Rows(self._memory.experts.normed, self._width)
        to = None if step.to == "router_in" else self._rounded(step.to)
        self._round(to, getattr(self._layer, step.weight), out)

    def select(self, layer: int, step: Select) -> None:
        """Choose experts. Neurons are not selected, because many positions need every one."""
        one = self._layer
        if isinstance(one, GpuLayer) and one.experts is not None and one.experts.router is not None:
            memory = self._memory
            assert memory.experts is not None, "the model has experts"
            self._experts = ExpertPass(self._ops, memory, self._chunk.config, layer, one.experts, self._n)
            self._experts.choose(self._stream if step.reads == "stream" else Rows(memory.experts.normed, self._width))

    def attend(self, layer: int, step: Attend) -> None:
        one, memory, ops, spec, n = self._layer, self._memory, self._ops, step.spec, self._n
        x = memory.attention_in
        if step.reads == "stream":
            self._round(x, None)
        kv, at, width = one.kv, memory.qkv, spec.q_width + 2 * spec.kv_width
        assert kv is not None, "the layer has keys and values"
        qkv, mixed = Rows(at, width), Rows(memory.mixed, spec.q_width)
        keys = Rows(at + 4 * spec.q_width, width)
        values = Rows(keys.address + 4 * spec.kv_width, width)
        if isinstance(one, GpuLayer):
            ops.multiply(one.q, x, n, qkv, memory.tile, one.q_bias)
            if one.k is not None and one.v is None:
                ops.multiply(one.k, x, n, keys, memory.tile, one.k_bias)
            elif one.k is not None and one.v is not None:
                ops.multiply_two((one.k, one.v), x, n, (keys, values), memory.tile, (one.k_bias, one.v_bias))
        else:
            assert self._chunk.streamed is not None, "the layer is streamed"
            self._chunk.streamed.restore(self._cold.rows((layer, "kv")), self._place(spec))
            self._stream_products((layer, "qkv"), x, {"q": qkv, "k": keys, "v": values})
        q_norm, k_norm = one.q_norm, one.k_norm
        if spec.qk_norm == "whole":
            ops.round(qkv, n, spec.q_width, None, q_norm, qkv)
            ops.round(keys, n, spec.kv_width, None, k_norm, keys)
            q_norm = k_norm = None
        angles = RowAngles(
            *memory.angles[spec.angles], spec.rotated // 2, spec.rope_order, spec.qk_norm == "rotated heads",
            spec.temperature,
        )  # fmt: skip
        heads = heads_of(spec, (q_norm, k_norm), self._chunk.config.norm_eps)
        scoring = GpuScoring(spec.scale, spec.softcap, spec.window, one.sinks, spec.chunked)
        pieces = [Piece(slice(0, n), 0, self._place(spec))]
        if spec.local and isinstance(one, GpuLayer):
            pieces = self._chunk.pieces
        for rows, shift, place in pieces:
            if spec.kv_from is None:
                self._cache.shift(layer, shift)
            some, to = (Rows(each.address + 4 * rows.start * each.step, each.step) for each in (qkv, mixed))
            ops.place_heads(some, rows.stop - rows.start, heads, kv, place, angles.after(rows.start))
            ops.attend(some, rows.stop - rows.start, spec.n_heads, kv, place, to, scoring)
        if self._chunk.streamed is not None and not isinstance(one, GpuLayer):
            self._save(layer, spec)
        if isinstance(one, GpuLayer) and one.attention_gate is not None:
            gate = Rows(at + 4 * n * width, spec.q_width)
            ops.multiply(one.attention_gate, x, n, gate, memory.tile)
            ops.gated(GpuVector(n * spec.q_width, mixed.address), gate.address)
        if layer == self._chunk.config.n_layers - 1 and (first := self._chunk.unneeded):
            self._n = n = n - first
            mixed, self._stream = (Rows(of.address + 4 * first * of.step, of.step) for of in (mixed, self._stream))
        ops.round(mixed, n, mixed.step, memory.mixed_in)

        def project(out: Rows, adds: bool) -> None:
            if isinstance(one, GpuLayer):
                ops.multiply(one.o, memory.mixed_in, n, out, memory.tile, one.o_bias, adds)
            else:
                self._stream_products((layer, "o"), memory.mixed_in, {"o": out}, adds)

        self._add(step.after, project)

    def _place(self, spec: AttentionSpec) -> int:
        """Return where the layer's memory has the chunk's first position, before it forgets any."""
        first = self._chunk.pieces[0]
        return first.shift + first.place if spec.local else self._start

    def _save(self, layer: int, spec: AttentionSpec) -> None:
        """Download the chunk's keys and values of a streamed layer to its blocks, which forget what the cache does."""
        assert self._chunk.streamed is not None, "the layer is streamed"
        start, shift = self._place(spec), 0
        if spec.local:
            shift = sum(piece.shift for piece in self._chunk.pieces)
            self._cache.shift(layer, shift)
        self._chunk.streamed.save(self._cache.of_layer(layer)[0], max(start, shift), start + self._n, shift)

    def attend_latent(self, layer: int, step: AttendLatent) -> None:
        one, memory, ops, spec, n, start = self._layer, self._memory, self._ops, step.spec, self._n, self._start
        assert isinstance(one, GpuLayer), "no other layer with latent attention is on the GPU"
        kv = one.kv
        assert kv is not None, "it has a cache"
        if step.reads == "stream":
            self._round(memory.attention_in, None)
        angles = RowAngles(
            *memory.angles[spec.angles], spec.rotated // 2, spec.rope_order, temperature=spec.temperature
        )  # fmt: skip

        def attend(queries: Rows, mixed: Rows, scoring: GpuScoring) -> None:
            ops.attend(queries, n, spec.n_heads, kv, start, mixed, scoring)

        run_latent(ops, memory, one, step, n, start, angles, attend)
        self._add(None, lambda out, adds: ops.multiply(one.o, memory.mixed_in, n, out, memory.tile, adds=adds))

    def recur(self, layer: int, step: Recur) -> None:
        one, memory, ops, spec, n = self._layer, self._memory, self._ops, step.spec, self._n
        assert isinstance(one, GpuLayer), "no other layer with a state is on the GPU"
        assert one.delta is not None, "the layer has a state"
        net = one.delta
        if step.reads == "stream":
            self._round(memory.attention_in, None)
        outs = project_delta(ops, memory, one, spec, n)
        before, after = net.states[self._cache.half], net.states[1 - self._cache.half]
        mixed = Rows(memory.mixed, spec.value_width)
        earlier = before if self._start == self._cache.length else after
        for part, copy in self._chunk.parts:
            x_at, gate_at, alpha_at, beta_at = (rows.address + 4 * part.start * rows.step for rows in outs)
            inputs = GpuDeltaInput(x_at, gate_at, alpha_at, beta_at, part.stop - part.start)
            out = GpuVector((part.stop - part.start) * mixed.step, mixed.address + 4 * part.start * mixed.step)
            ops.gated_delta(inputs, net.weights, GpuStates(earlier, after), memory.prepared, out)
            earlier = after
            self._copy_state(layer, spec.state_size, after, copy)
        ops.round(mixed, n, mixed.step, memory.mixed_in)
        self._add(None, lambda out, adds: ops.multiply(one.o, memory.mixed_in, n, out, memory.tile, adds=adds))

    def convolve(self, layer: int, step: Convolve) -> None:
        one, memory, ops, spec, n = self._layer, self._memory, self._ops, step.spec, self._n
        assert isinstance(one, GpuLayer), "no other layer with a short convolution is on the GPU"
        assert one.convolution is not None, "the layer has a short convolution"
        x, of, step_of_row = memory.attention_in, one.convolution, 3 * spec.channels
        if step.reads == "stream":
            self._round(x, None)
        for i, matrix in enumerate(one.qkv):
            ops.multiply(matrix, x, n, Rows(memory.qkv + 4 * i * spec.channels, step_of_row), memory.tile)
        before, after = of.states[self._cache.half], of.states[1 - self._cache.half]
        earlier, mixed = before if self._start == self._cache.length else after, Rows(memory.mixed, spec.channels)
        for part, copy in self._chunk.parts:
            rows, out = memory.qkv + 4 * part.start * step_of_row, mixed.address + 4 * part.start * mixed.step
            ops.short_conv(rows, of.weights, GpuStates(earlier, after), out, part.stop - part.start)
            earlier = after
            self._copy_state(layer, spec.state_size, after, copy)
        ops.round(mixed, n, mixed.step, memory.mixed_in)
        self._add(None, lambda out, adds: ops.multiply(one.o, memory.mixed_in, n, out, memory.tile, adds=adds))

    def _copy_state(self, layer: int, size: int, state: int, to: F32 | None) -> None:
        """Copy a state to the layer's row of `to` in host memory, if given."""
        if to is not None:
            self._memory.copies(size).ask(state, to[self._chunk.graph.rows[layer]])

    def inject(self, layer: int, step: Inject) -> None:
        one, memory = self._layer, self._memory
        assert isinstance(one, GpuLayer), "no other layer with per-layer embeddings is on the GPU"
        of, rows = one.injection, memory.inputs
        assert of is not None, "the layer has per-layer embeddings"
        assert rows is not None, "so has the model"
        apart = Rows(memory.apart, self._width)  # with several streams, `correct` wrote the gate's input there
        self._ops.round(apart if step.beside else self._stream, self._n, self._width, memory.ffn_in)
        rows.inject(self._ops, layer, of, step, memory.ffn_in, self._n, apart, memory.tile)
        if self._streams is None or not step.beside:
            self._ops.round(apart, self._n, self._width, None, of.norm, self._stream, adds=True)
            return
        self._ops.round(apart, self._n, self._width, None, of.norm, apart)
        self._ops.add_beside(self._streams.x, apart.address)

    def predict(self, layer: int, step: Predict) -> None:
        streams, mixing = self._several()
        streams.predict(self._ops, mixing, self._memory.tile)

    def correct(self, layer: int, step: Correct) -> None:
        streams, mixing = self._several()
        streams.correct(self._ops, mixing, self._memory.tile)

    def laurel(self, layer: int, step: Laurel) -> None:
        assert isinstance(self._layer, GpuLayer), "no other layer with a low-rank residual is on the GPU"
        assert self._layer.laurel is not None, "the layer has a low-rank residual"
        assert self._streams is not None, "so has the model"
        self._streams.add_low_rank(self._ops, self._layer.laurel, self._rounded(step.reads), self._memory.tile)

    def _several(self) -> tuple[StreamRows, GpuMixing]:
        assert isinstance(self._layer, GpuLayer), "no other layer with several streams is on the GPU"
        assert self._layer.mixing is not None, "the layer has several streams"
        assert self._streams is not None, "so has the model"
        return self._streams, self._layer.mixing

    def scale(self, layer: int, step: Scale) -> None:
        assert isinstance(self._layer, GpuLayer), "no other layer with a factor is on the GPU"
        self._ops.scale(self._stream, self._n, self._width, self._layer.scale)

    def _stream_products(self, key: Key, x: RoundedRows, outs: dict[str, Rows], adds: bool = False) -> None:
        """Multiply x by each streamed matrix, as its rows arrive, into the rows of its name in `outs`."""
        for rows in self._cold.rows(key):
            out, bias, done = outs[rows.name], getattr(self._layer, f"{rows.name}_bias"), 4 * rows.first
            self._ops.multiply(
                rows.matrix, x, self._n, Rows(out.address + done, out.step), self._memory.tile, bias and bias + done,
                adds,
            )  # fmt: skip

    def ffn(self, layer: int, step: Ffn) -> None:
        x, experts = self._rounded(step.reads), self._experts
        if step.reads == "stream":
            self._round(x, None)
        if experts is not None:
            cold = self._cold.experts((layer, "ffn"))
            apart = None
            if step.shared_reads is not None:
                assert isinstance(self._layer, GpuLayer), "layers with experts are not streamed"
                norms = self._layer.post_experts_norm, self._layer.post_shared_norm
                apart = SharedApart(self._rounded(step.shared_reads), *norms)
            self._add(step.after, lambda out, adds: experts.run(x, cold, out, adds, apart))
            return
        self._add(step.after, lambda out, adds: FfnPass(self._chunk, layer, self._layer, self._n, x, out, adds).run())

    def _rounded(self, value: Value) -> RoundedRows:
        """Return the rounded value that products read. An FFN that reads the stream uses the place of ffn_in.

        The experts' input takes the place of attention's.
        """
        return self._memory.attention_in if value in ("attention_in", "experts_in") else self._memory.ffn_in

    def _round(self, to: RoundedRows | None, norm: GpuNorm | None, out: Rows | None = None) -> None:
        self._ops.round(self._stream, self._n, self._width, to, norm, out)

    def _add(self, after: str | None, product: Callable[[Rows, bool], None]) -> None:
        """Add the product to the residual stream, through the norm `after` if given.

        product: (out, adds) writes into `out` or adds to it.
        """
        if after is None:
            product(self._stream, True)
            return
        apart = Rows(self._memory.apart, self._width)
        product(apart, False)
        self._ops.round(apart, self._n, self._width, None, getattr(self._layer, after), self._stream, adds=True)


class FfnPass:
    """The FFN of one layer for one chunk: hot neurons, then cold ones."""

    def __init__(
        self,
        chunk: Chunk,
        i: int,
        layer: GpuLayer | StreamedLayer,
        n_tokens: int,
        x: RoundedRows,
        out: Rows,
        adds: bool,
    ) -> None:
        self._chunk, self._i, self._n, self._x, self._out, self._adds = chunk, i, n_tokens, x, out, adds
        self._layer = layer
        self._ops, self._memory = chunk.ops, chunk.memory
        self._bias = layer.down_bias

    def run(self) -> None:
        """Compute all neurons. The first product adds down's bias."""
        if isinstance(self._layer, GpuLayer):
            if self._layer.whole is not None:
                self._whole(self._layer.whole)
            if self._layer.block is not None:
                self._block(self._layer.block)
            if self._layer.experts is not None and self._layer.experts.shared is not None:
                self._without_experts(self._layer.experts.shared)
        for cold in self._chunk.cold.neurons((self._i, "ffn")):
            self._cold(cold)

    def _whole(self, w: GpuRowWiseFfn) -> None:
        for part in self._memory.sizes.parts(w.up.n_rows):
            places = self._memory.tally(self._i)
            self._hidden(w.gate, w.up, part, w.gate_bias, w.up_bias, 0, places and places + 4 * part.start, 0)
            self._down(w.down, part, row_wise=True)

    def _block(self, block: GpuBlock) -> None:
        for part in self._memory.sizes.parts(block.n_slots):
            slots, fired = block.neuron_in + 4 * part.start, block.fired + 4 * part.start
            self._hidden(block.gate, block.up, part, block.gate_bias, block.up_bias, slots, fired, 0)
            self._down(block.down_t, part, row_wise=False)

    def _without_experts(self, w: GpuExperts) -> None:
        """Compute a layer without experts in a model that has experts."""
        for part in self._memory.sizes.parts(w.up.n_rows):
            self._hidden(w.gate, w.up, part, w.gate_bias, w.up_bias, 0, 0, 0)
            self._down(w.down, part, row_wise=not w.down_is_transposed)

    def _cold(self, cold: ColdNeurons) -> None:
        places, neurons = self._memory.tally(self._i), range(cold.n)
        ids = cold.ids if places else 0
        self._hidden(cold.gate, cold.up, neurons, cold.gate_bias, cold.up_bias, 0, places, ids)
        down = cold.down_t or cold.down
        assert down is not None, "it has down_t or down"
        self._down(down, neurons, row_wise=cold.down is not None)

    def _hidden(
        self, gate: Weights | None, up: Weights, neurons: range, gate_bias: int, up_bias: int, slots: int, fired: int,
        places: int,
    ) -> None:  # fmt: skip
        """Compute the input of down for the neurons."""
        memory, ops, spec = self._memory, self._ops, self._chunk.graph.ffn(self._i).spec
        step = memory.sizes.neurons
        activated, up_rows = Rows(memory.first, step), Rows(memory.up, step)
        n = len(neurons)
        biases = [bias and bias + 4 * neurons.start for bias in (gate_bias, up_bias)]
        if gate is None:
            ops.multiply(up, self._x, self._n, activated, memory.tile, biases[1], False, neurons)
        else:
            both = (activated, up_rows)
            ops.multiply_two((gate, up), self._x, self._n, both, memory.tile, (biases[0], biases[1]), neurons)
        if spec.cutoff:
            assert n == spec.width, "a cut-off needs all gates"
            ops.cut_off(activated.address, n, spec.cutoff, self._n, step)
        ops.activate(
            activated, None if gate is None else up_rows, self._n, n, spec.activation,
            spec.threshold, memory.hidden_in, memory.counts_of(self._i), slots, keeps=bool(fired),
        )  # fmt: skip
        if fired:
            ops.tally(activated, self._n, n, fired, places)

    def _down(self, w: Weights, neurons: range, row_wise: bool) -> None:
        multiply: Any = self._ops.multiply_columns if row_wise else self._ops.multiply_transposed
        tile = self._memory.tile
        multiply(w, self._memory.hidden_in, self._n, self._out, tile, self._bias, self._adds, neurons)
        self._bias, self._adds = 0, True
