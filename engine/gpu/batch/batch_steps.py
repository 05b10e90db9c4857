"""The GPU's operators for a batch step, over one position of each sequence. An emitter of engine/model/graph.py."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from engine.gpu.batch.batch_experts import BatchExperts
from engine.gpu.batch.batch_memory import BatchMemory, Exchanged, counts_words
from engine.gpu.batch.staging import StagedNeurons, in_halves
from engine.gpu.prefill.delta_rows import project_delta
from engine.gpu.prefill.latent_pass import run_latent
from engine.gpu.prefill.stream_rows import StreamRows
from engine.gpu.token.token_model import TokenModel
from engine.gpu.weights.layers import GpuLayer, GpuMixing, heads_of
from engine.model.graph import (
    Attend,
    AttendLatent,
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
from native_kernels.cuda.batch_ops import GpuBatchOps
from native_kernels.cuda.gpu import (
    NOTHING,
    Gpu,
    GpuBlock,
    GpuCopy,
    GpuDeltaInput,
    GpuMatrix,
    GpuNorm,
    GpuScoring,
    GpuSequences,
    GpuStates,
    GpuVector,
)
from native_kernels.cuda.prompt_rows import RoundedRows, RowAngles, Rows


class BatchSteps:
    """Queues the GPU's part of a step.

    by_cpu: layers placed on the GPU whose whole FFN the CPU computes.
    """

    def __init__(
        self, gpu: Gpu, model: TokenModel, ops: GpuBatchOps, memory: BatchMemory,
        sequences: Sequence[GpuSequences],
        by_cpu: Set[int], experts: BatchExperts | None,
    ) -> None:  # fmt: skip
        """sequences: in layers without a window, and in those with one."""
        config = model.config
        self._gpu, self._config, self._model, self._ops, self._memory = gpu, config, model.on_gpu, ops, memory
        self._graph = graph_of(config)
        self._sequences, self._in_windows = sequences
        self._n, self._mode = self._sequences.n, model.mode
        self._width = config.d_model
        self._by_cpu, self._experts = by_cpu, experts
        self._ffn_in = memory.ffn_in
        self._words = 0  # address of the layer's needed neurons; 0: all
        self._staged: dict[int, list[StagedNeurons]] = {
            i: in_halves(layer.zero_copy, memory.halves, memory.half_bytes)
            for i, layer in enumerate(model.on_gpu.layers)
            if layer is not None and layer.zero_copy is not None
        }

    def predicts(self, i: int) -> bool:
        """Return whether the GPU's predictor selects the layer's neurons."""
        layer = self._model.layers[i]
        return layer is not None and layer.predictor is not None and layer.predictor.low_rank is not None

    def counts_all(self, i: int) -> bool:
        """Return whether all neurons that were read count as computed, active gate or not."""
        return self.predicts(i) or self._mode == "dense"

    def computed_on_gpu(self, layer: GpuLayer, i: int, opened: int, kept: int) -> int:
        """Return how many of a layer's neurons the GPU computed, over all sequences.

        opened: neurons with an active gate. kept: neurons that the predictor selected.
        """
        if self.predicts(i):
            return kept
        if self._mode != "dense":
            return opened
        n = layer.whole.up.n_rows if layer.whole is not None else sum(block.n_slots for block in layer.blocks)
        return self._n * n

    # --- a step's ends

    def begin(self) -> None:
        """Copy positions, RoPE angles and what the tokens add to each layer to the GPU, and clear the counts."""
        self._copy_to_gpu(self._memory.host_states)
        self._copy_to_gpu(self._memory.host_angles)
        self._copy_to_gpu(self._memory.host_inputs)
        self._gpu.fill(self._memory.counts_address, 0, 4 * counts_words(self._n) * self._config.n_layers)

    def enter(self) -> None:
        """Copy the CPU's stream to the GPU."""
        self._copy_to_gpu(self._memory.host_stream)

    def complete_inputs(self) -> None:
        """Complete what the tokens add to each layer, if that is not done on the CPU. The stream is the embeddings."""
        if self._model.inputs is not None:
            memory = self._memory
            self._round(memory.ffn_in, None)
            memory.inputs.project(self._ops, self._model.inputs, memory.ffn_in, self._n, memory.tile)
            if memory.streams is not None and self._model.inputs.streams:
                memory.streams.make_others(self._ops, self._model.inputs.streams, memory.ffn_in, memory.tile)

    def leave(self) -> None:
        """Copy the stream to the CPU."""
        self._copy_to_host(self._memory.host_stream)

    def end(self) -> None:
        """Copy the counts to the CPU."""
        self._copy_to_host(self._memory.host_counts)

    def head(self) -> None:
        """Compute the logits, and copy them to the CPU."""
        memory, model, ops = self._memory, self._model, self._ops
        assert model.head is not None, "the head is on the GPU"
        if memory.streams is not None and model.streams_out:
            memory.streams.bring_back(ops, model.streams_out, memory.stream_in, memory.tile)
        ops.round(memory.stream, self._n, self._width, memory.stream_in, model.final_norm)
        x = memory.stream_in
        if model.project_out is not None:
            ops.multiply(model.project_out, x, self._n, memory.narrow, memory.tile)
            ops.round(memory.narrow, self._n, memory.narrow.step, memory.narrow_in)
            x = memory.narrow_in
        ops.multiply(model.head, x, self._n, memory.logits_rows, memory.tile, model.head_bias)
        if self._config.logit_softcap is not None:
            self._gpu.softcap(memory.logits_rows.address, self._n * model.head.n_rows, self._config.logit_softcap)
        self._copy_to_host(memory.host_logits)

    # --- a layer

    def layer(self, i: int, layer: GpuLayer) -> None:
        """Queue the layer. If it has cold neurons, the steps after its FFN are left to `take_cold`."""
        self._words = 0
        behind = len(self._graph.steps_after_ffn(i)) if layer.has_cold else 0
        steps = self._graph.layers[i]
        emit(i, steps[: len(steps) - behind], self)

    def take_cold(self, i: int, layer: GpuLayer) -> None:
        """Add the CPU's sums to the FFN's output, and queue the rest of the layer."""
        step = self._graph.ffn(i)
        self._gpu.advance(self._target(step).address, self._n * self._width, others=(self._memory.host_cold.pinned,))
        self._end_ffn(i, step)
        emit(i, self._graph.steps_after_ffn(i), self)

    def norm(self, layer: int, step: Norm) -> None:
        """Keep the unrounded norm too if the CPU or the router reads it."""
        memory, one, graph = self._memory, self._layer(layer), self._graph
        weight, read = getattr(one, step.weight), {graph.ffn(layer).reads, graph.selects_from(layer)}
        if step.to == "attention_in" and step.to not in read and memory.streams is None:
            self._round(memory.attention_in, weight)
        else:
            self._round(self._rounded(step.to), weight, self._numbers(step.to))

    def select(self, layer: int, step: Select) -> None:
        """Select experts or neurons, publish the CPU's share, and start staging."""
        one, memory = self._layer(layer), self._memory
        if one.experts is not None:
            assert self._experts is not None, "the model has experts"
            self._experts.choose(step.spec.routing, one.experts, self._numbers(step.reads), memory)
            if one.has_cold and step.reads == self._graph.ffn(layer).reads:
                self._experts.publish(self._numbers(step.reads), memory)
            return
        if step.reads == "stream":
            self._round(memory.ffn_in, None)
        if self.predicts(layer) and one.whole is None:
            self._words = self._predict(one, step.reads)
        if one.has_cold:
            source = memory.stream.address if step.reads == "stream" else memory.normed.address
            size = self._n * self._width
            if layer in self._by_cpu:
                self._gpu.copy(memory.stream.address, memory.host_stream.pinned, size)
            cold = memory.host_cold_words
            needed = GpuCopy(cold.address, cold.pinned, self._config.d_ff) if self._words else NOTHING
            self._gpu.publish(
                memory.flag_address, memory.epoch, GpuCopy(source, memory.host_x.pinned, size), needed
            )  # fmt: skip
        staged = self._staged.get(layer, [])[: len(memory.halves)]
        if staged:
            self._ops.hold_staging()
        for part in staged:  # uploaded beside all work queued before their products
            self._stage(layer, part, self._words)

    def attend(self, layer: int, step: Attend) -> None:
        one, memory, ops, n, spec = self._layer(layer), self._memory, self._ops, self._n, step.spec
        if step.reads == "stream":
            self._round(memory.attention_in, None)
        kv, qkv = one.kv, Rows(memory.qkv, spec.q_width + 2 * spec.kv_width)
        assert kv is not None, "the layer has keys and values"
        mixed = Rows(memory.mixed, spec.q_width)
        keys = Rows(qkv.address + 4 * spec.q_width, qkv.step)
        values = Rows(keys.address + 4 * spec.kv_width, qkv.step)
        biases = (one.q_bias, one.k_bias, one.v_bias)
        if one.k is None:
            ops.multiply(one.q, memory.attention_in, n, qkv, memory.tile, one.q_bias)
        elif one.v is None:
            ops.multiply_two((one.q, one.k), memory.attention_in, n, (qkv, keys), memory.tile, biases[:2])
        else:
            matrices = (one.q, one.k, one.v)
            ops.multiply_three(matrices, memory.attention_in, n, (qkv, keys, values), memory.tile, biases)
        q_norm, k_norm = one.q_norm, one.k_norm
        if spec.qk_norm == "whole":
            ops.round(qkv, n, spec.q_width, None, q_norm, qkv)
            ops.round(keys, n, spec.kv_width, None, k_norm, keys)
            q_norm = k_norm = None
        angles = RowAngles(
            *memory.angles(spec.angles), spec.rotated // 2, spec.rope_order, spec.qk_norm == "rotated heads",
            spec.temperature, self._sequences.states,
        )  # fmt: skip
        sequences = self._in_windows if spec.local else self._sequences
        heads = heads_of(spec, (q_norm, k_norm), self._config.norm_eps)
        ops.place_heads(qkv, n, heads, kv, 0, angles, sequences.states + 4 * n)
        ops.attend_each(
            qkv, sequences, spec.n_heads, kv, mixed,
            GpuScoring(spec.scale, spec.softcap, spec.window, one.sinks, spec.chunked),
        )  # fmt: skip
        if one.attention_gate is not None:
            gate = Rows(qkv.address + 4 * n * qkv.step, spec.q_width)
            ops.multiply(one.attention_gate, memory.attention_in, n, gate, memory.tile)
            ops.gated(GpuVector(n * spec.q_width, mixed.address), gate.address)
        ops.round(mixed, n, spec.q_width, memory.mixed_in)
        target = self._target(step)
        ops.multiply(one.o, memory.mixed_in, n, target, memory.tile, one.o_bias, step.after is None)
        self._add_apart(layer, step.after)

    def attend_latent(self, layer: int, step: AttendLatent) -> None:
        one, memory, ops, spec, sequences = self._layer(layer), self._memory, self._ops, step.spec, self._sequences
        kv = one.kv
        assert kv is not None, "the layer has a cache"
        if step.reads == "stream":
            self._round(memory.attention_in, None)
        angles = RowAngles(
            *memory.angles(spec.angles), spec.rotated // 2, spec.rope_order, temperature=spec.temperature
        )  # fmt: skip

        def attend(queries: Rows, mixed: Rows, scoring: GpuScoring) -> None:
            ops.attend_each(queries, sequences, spec.n_heads, kv, mixed, scoring)

        run_latent(ops, memory, one, step, self._n, sequences, angles, attend)
        ops.multiply(one.o, memory.mixed_in, self._n, memory.stream, memory.tile, adds=True)

    def recur(self, layer: int, step: Recur) -> None:
        one, memory, ops, spec, n = self._layer(layer), self._memory, self._ops, step.spec, self._n
        assert one.delta is not None, "the layer has a state"
        if step.reads == "stream":
            self._round(memory.attention_in, None)
        qkv, gate, alpha, beta = (rows.address for rows in project_delta(ops, memory, one, spec, n))
        mixed, inputs = Rows(memory.mixed, spec.value_width), GpuDeltaInput(qkv, gate, alpha, beta, n_sequences=n)
        weights, out = replace(one.delta.weights, done=memory.done), GpuVector(n * mixed.step, mixed.address)
        ops.gated_delta(inputs, weights, self._states_of(one.delta.states), memory.prepared, out)
        self._project(one, mixed)

    def convolve(self, layer: int, step: Convolve) -> None:
        one, memory, ops, spec, n = self._layer(layer), self._memory, self._ops, step.spec, self._n
        assert one.convolution is not None, "the layer has a short convolution"
        assert one.k is not None, "it has a gate before it"
        assert one.v is not None, "it has values"
        if step.reads == "stream":
            self._round(memory.attention_in, None)
        q, k, v = (Rows(memory.qkv + 4 * i * spec.channels, 3 * spec.channels) for i in range(3))
        ops.multiply_three((one.q, one.k, one.v), memory.attention_in, n, (q, k, v), memory.tile)
        states, mixed = self._states_of(one.convolution.states), Rows(memory.mixed, spec.channels)
        ops.short_conv(memory.qkv, one.convolution.weights, states, mixed.address, n_sequences=n)
        self._project(one, mixed)

    def _states_of(self, places: Sequence[int]) -> GpuStates:
        """Return a layer's states of all sequences."""
        step = (places[2] - places[0]) // 4 if self._n > 1 else 0
        return GpuStates(places[0], places[1], self._memory.swap, step)

    def _project(self, one: GpuLayer, mixed: Rows) -> None:
        """Add the projection of what the layer's states returned to the stream."""
        memory, n = self._memory, self._n
        self._ops.round(mixed, n, mixed.step, memory.mixed_in)
        self._ops.multiply(one.o, memory.mixed_in, n, memory.stream, memory.tile, adds=True)

    def ffn(self, layer: int, step: Ffn) -> None:
        one, target = self._layer(layer), self._target(step)
        self._ffn_in = self._rounded(step.reads)
        if step.after is not None:
            self._gpu.fill(target.address, 0, 4 * self._n * self._width)
        if one.experts is None:
            self._hot(layer, one, self._words, target)
        else:
            self._chosen(layer, one, step, target)
        if not one.has_cold:
            self._end_ffn(layer, step)

    def inject(self, layer: int, step: Inject) -> None:
        one, memory = self._layer(layer).injection, self._memory
        assert one is not None, "the layer has per-layer embeddings"
        source = memory.apart if step.beside else memory.stream  # `correct` wrote the gate's input apart
        self._ops.round(source, self._n, self._width, memory.ffn_in)
        memory.inputs.inject(self._ops, layer, one, step, memory.ffn_in, self._n, memory.apart, memory.tile)
        if memory.streams is None or not step.beside:
            self._ops.round(memory.apart, self._n, self._width, None, one.norm, memory.stream, adds=True)
            return
        self._ops.round(memory.apart, self._n, self._width, None, one.norm, memory.apart)
        self._ops.add_beside(memory.streams.x, memory.apart.address)

    def predict(self, layer: int, step: Predict) -> None:
        streams, mixing = self._several(layer)
        streams.predict(self._ops, mixing, self._memory.tile)

    def correct(self, layer: int, step: Correct) -> None:
        streams, mixing = self._several(layer)
        streams.correct(self._ops, mixing, self._memory.tile)

    def laurel(self, layer: int, step: Laurel) -> None:
        of, streams = self._layer(layer).laurel, self._memory.streams
        assert of is not None, "the layer has a low-rank residual"
        assert streams is not None, "so has the model"
        streams.add_low_rank(self._ops, of, self._rounded(step.reads), self._memory.tile)

    def _several(self, layer: int) -> tuple[StreamRows, GpuMixing]:
        mixing, streams = self._layer(layer).mixing, self._memory.streams
        assert mixing is not None, "the layer has several streams"
        assert streams is not None, "so has the model"
        return streams, mixing

    def scale(self, layer: int, step: Scale) -> None:
        self._ops.scale(self._memory.stream, self._n, self._width, self._layer(layer).scale)

    def _layer(self, i: int) -> GpuLayer:
        layer = self._model.layers[i]
        assert layer is not None, "the layer is on the GPU"
        return layer

    def _rounded(self, value: Value) -> RoundedRows:
        """Return the rounded value that products read. An FFN that reads the stream uses the place of ffn_in."""
        return self._memory.attention_in if value == "attention_in" else self._memory.ffn_in

    def _numbers(self, value: Value) -> Rows:
        """Return the latest value, in f32."""
        memory = self._memory
        if value in ("experts_in", "router_in"):
            return memory.experts_normed if value == "experts_in" else memory.router_normed
        return memory.stream if value == "stream" else memory.normed

    def _target(self, step: Attend | Ffn) -> Rows:
        return self._memory.stream if step.after is None else self._memory.apart

    def _end_ffn(self, layer: int, step: Ffn) -> None:
        """Add the FFN's separate result to the stream, if it is complete."""
        if step.shared_reads is not None:
            memory, one, ops = self._memory, self._layer(layer), self._ops
            ops.round(memory.apart, self._n, self._width, None, one.post_experts_norm, memory.apart)
            ops.round(memory.beside, self._n, self._width, None, one.post_shared_norm, memory.apart, adds=True)
        self._add_apart(layer, step.after)

    def _add_apart(self, layer: int, after: str | None) -> None:
        """Add a block's separate result to the stream, through the norm `after` if given."""
        if after is not None:
            memory, weight = self._memory, getattr(self._layer(layer), after)
            self._ops.round(memory.apart, self._n, self._width, None, weight, memory.stream, adds=True)

    # --- experts

    def _chosen(self, i: int, layer: GpuLayer, step: Ffn, target: Rows) -> None:
        """Add the GPU's experts to target, but for a shared one that is apart."""
        assert layer.experts is not None, "the layer has experts"
        assert self._experts is not None, "so has the model"
        x, ffn, spec = self._numbers(step.reads), layer.experts, step.spec
        if layer.has_cold and self._graph.selects_from(i) != step.reads:  # else `select` has published them
            self._experts.publish(x, self._memory)
        counts = self._memory.counts_of(i, self._n) + 8 * self._n
        if step.shared_reads is None:
            self._experts.add(spec, ffn, x, target, counts)
            return
        beside, shared = self._memory.beside, self._numbers(step.shared_reads)
        self._gpu.fill(beside.address, 0, 4 * self._n * self._width)
        self._experts.add(spec, ffn, shared, beside, counts, ffn.shared)
        if ffn.resident is not None:
            self._experts.add(spec, ffn, x, target, counts, ffn.resident)

    # --- neurons

    def _predict(self, layer: GpuLayer, reads: Value) -> int:
        memory, ops, n, predictor = self._memory, self._ops, self._n, layer.predictor
        assert predictor is not None, "the caller has checked it"
        part = predictor.low_rank
        assert part is not None, "the caller has checked it"
        x = self._rounded(reads)
        if predictor.reads_residual and reads != "stream":
            ops.round(memory.stream, n, self._width, memory.stream_in)
            x = memory.stream_in
        inner = memory.inner
        ops.multiply(part.a, x, n, inner, memory.tile, part.a_bias)
        ops.activate(inner, None, n, part.a.n_rows, "relu", 0.0, memory.inner_in, memory.uncounted)
        ops.multiply(part.b, memory.inner_in, n, memory.expected, memory.tile, part.b_bias)
        ops.needed(
            memory.expected, n, self._config.d_ff, part.threshold, layer.hot_bits, memory.words,
            memory.host_cold_words.address,
        )  # fmt: skip
        return memory.words

    def _hot(self, i: int, layer: GpuLayer, words: int, target: Rows) -> None:
        bias = layer.down_bias
        if layer.block is not None:
            self._block(i, layer.block, words, target, bias)
            bias = 0
        self._zero_copy(i, words, target, bias)
        if layer.whole is not None:
            self._hidden(i, layer.whole.gate, layer.whole.up, layer.whole.gate_bias, layer.whole.up_bias, 0, 0)
            memory = self._memory
            self._ops.multiply_columns(
                layer.whole.down, memory.hidden_in, self._n, target, memory.tile, layer.down_bias, True
            )

    def _zero_copy(self, i: int, words: int, target: Rows, bias: int) -> None:
        """Compute the staged zero-copy neurons. `select` has started the first uploads."""
        memory, ops = self._memory, self._ops
        staged, ahead = self._staged.get(i, []), len(memory.halves)
        for number, part in enumerate(staged):
            ops.await_staging(part.half)
            self._block(i, part.staged, words, target, bias)
            bias = 0
            used = memory.counts_of(i, self._n) + 4 * (2 * self._n + 2)
            ops.count_used(memory.first, self._n, part.staged.n_slots, used)
            if number + ahead < len(staged):
                ops.hold_staging()
                self._stage(i, staged[number + ahead], words)

    def _stage(self, i: int, part: StagedNeurons, words: int) -> None:
        count = self._memory.counts_of(i, self._n) + 4 * (2 * self._n + 1)
        self._ops.stage(part.pairs, part.source.neuron_in, words, count, part.half)

    def _block(self, i: int, block: GpuBlock, words: int, target: Rows, bias: int) -> None:
        self._hidden(i, block.gate, block.up, block.gate_bias, block.up_bias, block.neuron_in, words)
        memory = self._memory
        self._ops.multiply_transposed(block.down_t, memory.hidden_in, self._n, target, memory.tile, bias, True)

    def _hidden(
        self, i: int, gate: GpuMatrix | None, up: GpuMatrix, gate_bias: int, up_bias: int, slots: int, words: int
    ) -> None:
        """Compute the rounded input of down."""
        memory, ops, n, spec = self._memory, self._ops, self._n, self._graph.ffn(i).spec
        if gate is None:
            ops.multiply(up, self._ffn_in, n, memory.first, memory.tile, up_bias)
        else:
            both = (memory.first, memory.up)
            ops.multiply_two((gate, up), self._ffn_in, n, both, memory.tile, (gate_bias, up_bias))
        counts = memory.counts_of(i, n)
        if spec.cutoff:
            assert up.n_rows == spec.width, "a cut-off needs all gates"
            ops.cut_off(memory.first.address, up.n_rows, spec.cutoff, n, memory.first.step)
        if words:
            ops.keep(memory.first, n, up.n_rows, slots, words, counts + 8 * n)
        ops.activate(
            memory.first, None if gate is None else memory.up, n, up.n_rows, spec.activation, spec.threshold,
            memory.hidden_in, counts, slots,
        )  # fmt: skip

    # --- helpers

    def _round(self, to: RoundedRows | None, norm: GpuNorm | None, out: Rows | None = None) -> None:
        self._ops.round(self._memory.stream, self._n, self._width, to, norm, out)

    def _copy_to_gpu(self, one: Exchanged) -> None:
        self._gpu.copy(one.pinned, one.address, one.array.size)

    def _copy_to_host(self, one: Exchanged) -> None:
        self._gpu.copy(one.address, one.pinned, one.array.size)
