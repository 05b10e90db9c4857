"""The GPU's operators for one token, as a list in order. An emitter of engine/model/graph.py.

Nothing runs here: a step is an operator of native_kernels/cuda/gpu.py with its operands, and
engine/gpu/token/token_runner.py captures or launches the list. A layer's result is not added to the residual stream at
once: the next step that reads the stream adds it, together with the CPU's sum. token_plan.py calls this layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

from engine.config import Mode, ModelConfig
from engine.gpu.token.latent_steps import latent_steps
from engine.gpu.token.stream_steps import correct_steps, laurel_steps, other_streams, predict_steps, streams_back
from engine.gpu.token.token_memory import COUNTS, LOCAL_POSITION, STATE_WORDS, SharedMemory, TokenPlaces
from engine.gpu.weights.layers import GpuExpertFfn, GpuLayer, GpuModel, heads_of
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
    RoutingSpec,
    Scale,
    Select,
    Value,
    emit,
    graph_of,
)
from native_kernels.cuda.gpu import (
    NOTHING,
    Gpu,
    GpuAngles,
    GpuCopy,
    GpuDeltaInput,
    GpuExperts,
    GpuMatrix,
    GpuNorm,
    GpuScoring,
    GpuStates,
    GpuVector,
)

Step = partial[None]  # one operator with its operands
ZERO_COPY = "zero-copy"  # the stage of neurons that the GPU reads in pinned memory


def stage_begins(stage: str) -> None:
    """Do nothing. Marks that the following steps belong to `stage`, for GpuStages."""


@dataclass
class _Pending:
    """Vectors [D] still to be added to the stream, by address: partial sums, then others.

    parts: n_parts partial sums of down, in a row. others: the attention's output, the CPU's sum, a bias, ... Norms, in
    their order: `within` is applied to the sum of parts and others; then `beside`, a vector by address, is added;
    `through` is applied to that sum before it is added to the stream, and `closing` to the stream afterwards, which is
    then multiplied by `factor`.
    """

    parts: int = 0
    n_parts: int = 0
    others: list[int] = field(default_factory=list)
    through: GpuNorm | None = None
    closing: GpuNorm | None = None
    factor: float = 1.0
    within: GpuNorm | None = None
    beside: int = 0


class TokenSteps:
    """Collects the steps of a token in the order of calls; `take` returns them."""

    def __init__(
        self,
        gpu: Gpu,
        config: ModelConfig,
        model: GpuModel,
        mode: Mode,
        places: TokenPlaces,
        shared: SharedMemory,
        by_cpu: Set[int],
    ) -> None:
        """by_cpu: layers placed on the GPU whose whole FFN, with predictor and biases, the CPU computes."""
        self._gpu = gpu
        self._config = config
        self._graph = graph_of(config)
        self._model = model
        self._mode = mode
        self._places = places
        self._shared = shared
        self._by_cpu = by_cpu
        self._steps: list[Step] = []
        self._stage = ""
        self._norm_step: Step | None = None  # the last one that normed the stream
        self._pending = _Pending()
        self._has_angles = False
        self._bits = 0  # address of the mask of the layer's selected neurons; 0: all are computed

    def take(self) -> list[Step]:
        """Return the steps since the last call."""
        steps, self._steps, self._stage = self._steps, [], ""
        return steps

    # --- from the CPU and back to it

    def enter(self, angle_scale: float) -> None:
        """Copy position and stream from the CPU.

        At the first call per token, compute the RoPE angles and what the token adds to each layer too.
        """
        places, config = self._places, self._config
        words = STATE_WORDS + len(self._shared.stream.array)
        self._begin("other")
        self._do(partial(self._gpu.copy, self._shared.state.address, places.state, words))
        if self._has_angles:
            return
        self._has_angles = True
        for table, frequencies, to in zip(self._graph.angles, places.frequencies, places.angles, strict=False):
            if table.rotated:
                scale = angle_scale if table.scaled else 1.0
                self._do(partial(self._gpu.angles, places.state, frequencies, scale, table.rotated // 2, to))
        if config.layer_embedding_dim:
            self._layer_inputs()

    def _layer_inputs(self) -> None:
        """Complete the inputs of all layers and the residual streams; Transformer is the specification."""
        places, gpu, config, own = self._places, self._gpu, self._config, self._model.inputs
        sent, n = self._shared.inputs.address, config.n_layers
        if own is None:
            self._do(partial(gpu.copy, sent, places.inputs, n * config.layer_embedding_dim))
            return
        self._do(partial(gpu.multiply, (own.projection,), self._read("stream"), (places.inputs,)))
        self._do(partial(gpu.norm_rows, places.inputs, n, config.layer_embedding_dim, own.norm, sent))
        if own.streams:
            self._steps += other_streams(gpu, own.streams, places)

    def leave(self) -> None:
        """Publish the streams and the counts to the CPU."""
        self._begin("other")
        self._advance()
        self._counts()
        stream = self._shared.stream
        self._publish(self._places.stream.values, stream.address, n=len(stream.array))

    # --- layers

    def layer(self, i: int, layer: GpuLayer) -> None:
        """Add layer i up to its FFN. `rest_of_layer` follows, after the CPU's part.

        If it has cold neurons, publish their input once; the next step adds the CPU's sum.
        """
        self._begin("attention")
        self._bits = 0
        steps = self._graph.layers[i]
        emit(i, steps[: len(steps) - len(self._graph.steps_after_ffn(i))], self)

    def rest_of_layer(self, i: int) -> None:
        """Add the steps of layer i after its FFN."""
        emit(i, self._graph.steps_after_ffn(i), self)

    def norm(self, layer: int, step: Norm) -> None:
        weight = getattr(self._layer(layer), step.weight)
        if step.to == "stream":  # only after the CPU's sum is added
            self._pending.closing = weight
        elif self._steps and self._steps[-1] is self._norm_step and self._pending == _Pending():
            stream = self._places.stream.values
            self._do(partial(self._gpu.norm, stream, weight, self._vector(step.to), again=True))
            self._norm_step = self._steps[-1]
        else:
            self._advance(weight, self._vector(step.to))
            self._norm_step = self._steps[-1]

    def select(self, layer: int, step: Select) -> None:
        """Select experts or neurons, and publish the CPU's share."""
        one, places, shared = self._layer(layer), self._places, self._shared
        x = self._read(step.reads)
        if one.experts is not None:
            if one.experts.router is not None:
                self._choose(step.spec.routing, one.experts, one.experts.router, x)
            if step.reads == self._graph.ffn(layer).reads:
                self._publish_choice(one, x)
            return
        if one.whole is None and layer not in self._by_cpu:
            self._bits = self._predict(layer, one, x)
        if not one.has_cold:
            return
        if layer in self._by_cpu:
            self._do(partial(self._gpu.copy, places.stream.values, shared.residual.address, self._config.d_model))
        self._publish(x.values, shared.x.address, self._bits, one.hot_bits)
        self._pending.others.append(shared.cold.address)

    def attend(self, layer: int, step: Attend) -> None:
        one, places, gpu, spec = self._layer(layer), self._places, self._gpu, step.spec
        x = self._read(step.reads)
        self._begin("attention")
        assert one.kv is not None, "the layer has keys and values"
        n_q, n_k, n_qkv = spec.q_width, spec.kv_width, len(one.qkv)
        outs = (places.qkv, places.qkv + 4 * n_q, places.qkv + 4 * (n_q + n_k))
        biases = (one.q_bias, one.k_bias, one.v_bias)
        self._do(partial(gpu.multiply, one.qkv, x, outs[:n_qkv], biases[:n_qkv]))
        gate, mixed = places.qkv + 4 * (n_q + 2 * n_k), places.mixed_of(n_q)
        if one.attention_gate is not None:
            self._do(partial(gpu.multiply, (one.attention_gate,), x, (gate,)))
        q_norm, k_norm = one.q_norm, one.k_norm
        if spec.qk_norm == "whole":
            assert q_norm is not None, "the layer has norms of q and k"
            assert k_norm is not None, "the layer has norms of q and k"
            self._do(partial(gpu.norm, outs[0], q_norm, GpuVector(n_q, outs[0])))
            self._do(partial(gpu.norm, outs[1], k_norm, GpuVector(n_k, outs[1])))
            q_norm = k_norm = None
        position = places.state + 4 * LOCAL_POSITION * spec.local
        self._do(partial(
            gpu.rotate_and_store, places.qkv, heads_of(spec, (q_norm, k_norm), self._config.norm_eps), one.kv, position,
            GpuAngles(
                places.angles[spec.angles], spec.rotated // 2, spec.rope_order, spec.qk_norm == "rotated heads",
                spec.temperature,
            ),
        ))  # fmt: skip
        self._do(partial(
            gpu.attend, places.qkv, spec.n_heads, one.kv, position, mixed,
            GpuScoring(spec.scale, spec.softcap, spec.window, one.sinks, spec.chunked),
        ))  # fmt: skip
        if spec.gated:
            self._do(partial(gpu.gated, mixed, gate))
        self._do(partial(gpu.multiply, (one.o,), mixed, (places.attended,), (one.o_bias,)))
        if step.after is not None:
            attended = GpuVector(self._config.d_model, places.attended)
            self._do(partial(gpu.norm, places.attended, getattr(one, step.after), attended))
        self._pending.others.insert(0, places.attended)  # before the CPU's sum, as in all emitters

    def attend_latent(self, layer: int, step: AttendLatent) -> None:
        one, places = self._layer(layer), self._places
        x = self._read(step.reads)
        self._begin("attention")
        for operator in latent_steps(self._gpu, one, step, x, places):
            self._do(operator)
        self._pending.others.insert(0, places.attended)

    def recur(self, layer: int, step: Recur) -> None:
        one, places, gpu, spec = self._layer(layer), self._places, self._gpu, step.spec
        x, net = self._read(step.reads), one.delta
        assert net is not None, "the layer has a state"
        self._begin("attention")
        qkv, gate = places.qkv, places.qkv + 4 * spec.channels
        alpha = gate + 4 * spec.value_width
        beta = alpha + 4 * spec.value_heads
        outs = (*(qkv + 4 * start for start in spec.starts), gate, alpha, beta)
        matrices = (*one.qkv, *net.projections)
        self._do(partial(gpu.multiply, matrices, x, outs[: len(matrices)]))
        mixed = places.mixed_of(spec.value_width)
        if places.number is None:
            states = GpuStates(net.states[0], net.states[1], swap=places.state + 4)
        else:  # what the token before wrote, if there is one
            states = GpuStates(net.states[places.number + 1 if places.number else 0], net.states[places.number + 2])
        inputs = GpuDeltaInput(qkv, gate, alpha, beta)
        self._do(partial(gpu.gated_delta, inputs, net.weights, states, places.prepared, mixed))
        if mixed.bytes and not spec.mamba:
            self._do(partial(gpu.quantise, mixed))
        self._do(partial(gpu.multiply, (one.o,), mixed, (places.attended,)))
        self._pending.others.insert(0, places.attended)

    def convolve(self, layer: int, step: Convolve) -> None:
        one, places, gpu, spec = self._layer(layer), self._places, self._gpu, step.spec
        x, of = self._read(step.reads), one.convolution
        assert of is not None, "the layer has a short convolution"
        self._begin("attention")
        outs = tuple(places.qkv + 4 * i * spec.channels for i in range(3))
        self._do(partial(gpu.multiply, one.qkv, x, outs))
        mixed = places.mixed_of(spec.channels)
        states = GpuStates(of.states[0], of.states[1], swap=places.state + 4)
        self._do(partial(gpu.short_conv, places.qkv, of.weights, states, mixed.values))
        if mixed.bytes:
            self._do(partial(gpu.quantise, mixed))
        self._do(partial(gpu.multiply, (one.o,), mixed, (places.attended,)))
        self._pending.others.insert(0, places.attended)

    def ffn(self, layer: int, step: Ffn) -> None:
        one, x = self._layer(layer), self._vector(step.reads)  # `select` has advanced the stream
        if one.experts is None:
            self._hot(layer, one, x, self._bits)
        else:
            if self._graph.selects_from(layer) != step.reads:  # experts were chosen before attention
                self._publish_choice(one, x)
            if step.shared_reads is None:
                self._experts(layer, one.experts, x, one.experts.blocks)
            else:
                self._experts_apart(layer, step.shared_reads, x)
        self._pending.through = None if step.after is None else getattr(one, step.after)

    def inject(self, layer: int, step: Inject) -> None:
        one, places, gpu, spec = self._layer(layer).injection, self._places, self._gpu, step.spec
        assert one is not None, "the layer has per-layer embeddings"
        self._begin("ffn")
        n, x = self._config.layer_embedding_dim, places.scaled if step.beside else self._read("stream")
        gate, inputs, injected = places.injection_gate, places.inputs + 4 * n * layer, places.injected
        self._do(partial(gpu.multiply, (one.gate,), x, (gate,)))
        self._do(partial(gpu.activate, gate, inputs, n, spec.activation, spec.threshold, injected, 0))
        self._do(partial(gpu.multiply, (one.projection,), injected, (places.added,)))
        if not step.beside:
            self._pending.others.append(places.added)
            self._pending.through = one.norm
            return
        if one.norm is not None:
            self._do(partial(gpu.norm, places.added, one.norm, GpuVector(self._config.d_model, places.added)))
        self._do(partial(gpu.add_beside, places.streams, places.added))

    def predict(self, layer: int, step: Predict) -> None:
        one = self._layer(layer).mixing
        assert one is not None, "the layer has several streams"
        self._advance(one.router_norm, self._places.router_normed)
        self._steps += predict_steps(self._gpu, one, self._places)

    def correct(self, layer: int, step: Correct) -> None:
        one = self._layer(layer).mixing
        assert one is not None, "the layer has several streams"
        self._advance(one.router_norm, self._places.router_normed)
        self._steps += correct_steps(self._gpu, one, self._places)

    def laurel(self, layer: int, step: Laurel) -> None:
        one, x = self._layer(layer).laurel, self._vector(step.reads)
        assert one is not None, "the layer has a low-rank residual"
        self._steps += laurel_steps(self._gpu, one, x, self._places)
        self._pending.others += [self._places.added, x.values]
        self._pending.factor = 0.5**0.5

    def scale(self, layer: int, step: Scale) -> None:
        self._pending.factor = self._layer(layer).scale

    def _layer(self, i: int) -> GpuLayer:
        layer = self._model.layers[i]
        assert layer is not None, "the layer is on the GPU"
        return layer

    def _vector(self, value: Value) -> GpuVector:
        places = self._places
        return {
            "stream": places.stream, "attention_in": places.attention_in, "ffn_in": places.ffn_in,
            "experts_in": places.experts_in, "router_in": places.router_in,
        }[value]  # fmt: skip

    def _read(self, value: Value) -> GpuVector:
        if value == "stream":
            self._advance()
            if self._places.stream.bytes:
                self._do(partial(self._gpu.quantise, self._places.stream))
        return self._vector(value)

    # --- neurons

    def _predict(self, i: int, layer: GpuLayer, x: GpuVector) -> int:
        places, gpu, predictor = self._places, self._gpu, layer.predictor
        if predictor is None or (predictor.low_rank is None and predictor.copy is None):
            return 0
        self._begin("predictor")
        among, copy = 0, predictor.copy
        if (part := predictor.low_rank) is not None:
            source = places.stream if predictor.reads_residual else x
            if part.a.reads_bytes and source is places.stream and x is not places.stream:
                self._do(partial(gpu.quantise, source))
            inner = places.inner_of(part.a.n_rows)
            self._do(partial(gpu.multiply, (part.a,), source, (inner.values,), (part.a_bias,), relu=True))
            if part.b.reads_bytes:
                self._do(partial(gpu.quantise, inner))
            among = places.bits if copy is None else places.first_bits
            self._do(partial(gpu.expect, part.b, inner, part.b_bias, part.threshold, among))
        if copy is None:
            return among
        if copy.signed_input:
            self._do(partial(gpu.signs, x, places.signs))
            x = places.signs
        copied = self._counts_of(i) + 4 * (COUNTS - 1)
        self._do(partial(gpu.expect, copy.matrix, x, copy.bias, copy.threshold, places.bits, among, copied))
        return places.bits

    def _hot(self, i: int, layer: GpuLayer, x: GpuVector, bits: int) -> None:
        places, gpu, config, spec = self._places, self._gpu, self._config, self._graph.ffn(i).spec
        parts = places.parts
        self._begin("ffn")
        for block in layer.blocks:
            if block is layer.zero_copy:
                self._begin(ZERO_COPY)
            gate_first = spec.gated and spec.has_zeros and not bits and self._mode != "dense"
            if spec.cutoff:  # needs all gates, and the block has all neurons
                biases = (block.gate_bias, block.up_bias)
                self._gated(i, block.gate, block.up, biases, x, GpuVector(block.n_slots, places.h))
            else:
                self._do(partial(
                    gpu.hidden, block, x, bits, spec.activation, spec.threshold, places.h, self._counts_of(i),
                    gate_first,
                ))  # fmt: skip
            self._do(partial(gpu.down, block, places.h, parts))
            parts += 4 * gpu.down_parts(block) * config.d_model
        if layer.blocks:
            self._pending.parts = places.parts
            self._pending.n_parts = (parts - places.parts) // (4 * config.d_model)
        if layer.whole is not None:
            self._whole(i, layer, x)
        elif layer.down_bias and i not in self._by_cpu:
            self._pending.others.append(layer.down_bias)

    def _whole(self, i: int, layer: GpuLayer, x: GpuVector) -> None:
        """Compute all neurons of an FFN whose down is row-wise into `places.added`."""
        places, gpu, whole = self._places, self._gpu, layer.whole
        assert whole is not None, "the block is on the GPU"
        hidden = places.hidden_of(whole.up.n_rows)
        self._gated(i, whole.gate, whole.up, (whole.gate_bias, whole.up_bias), x, hidden)
        self._do(partial(gpu.multiply, (whole.down,), hidden, (places.added,), (layer.down_bias,)))
        self._pending.others.append(places.added)

    def _gated(
        self, i: int, gate: GpuMatrix | None, up: GpuMatrix, biases: tuple[int, int], x: GpuVector, hidden: GpuVector
    ) -> None:  # fmt: skip
        """Compute the hidden values of all neurons of an FFN. biases: of gate and up."""
        places, gpu, spec = self._places, self._gpu, self._graph.ffn(i).spec
        if gate is None:
            self._do(partial(gpu.multiply, (up,), x, (places.first,), biases[1:]))
        else:
            self._do(partial(gpu.multiply, (gate, up), x, (places.first, places.up), biases))
        if spec.cutoff:
            self._do(partial(gpu.cut_off, places.first, hidden.n, spec.cutoff))
        self._do(partial(
            gpu.activate, places.first, 0 if gate is None else places.up, hidden.n, spec.activation, spec.threshold,
            hidden, self._counts_of(i),
        ))  # fmt: skip

    # --- experts

    def _choose(self, spec: RoutingSpec | None, ffn: GpuExpertFfn, router: GpuMatrix, x: GpuVector) -> None:
        """Choose experts, and compute the weight of the shared expert."""
        assert spec is not None, "the layer has a router"
        places, gpu = self._places, self._gpu
        self._begin("ffn")
        scores, shared = places.scores, 0
        choice = replace(places.choice, bias=ffn.selection_bias, factor=spec.scale, factors=ffn.scale)
        if ffn.shared_gate is None:
            self._do(partial(gpu.multiply, (router,), x, (scores,), (ffn.router_bias,)))
        else:
            shared = scores + 4 * spec.n_experts
            both = (router, ffn.shared_gate)
            self._do(partial(gpu.multiply, both, x, (scores, shared), (ffn.router_bias, 0)))
        routing = spec.weighing, spec.groups
        self._do(partial(gpu.choose, scores, spec.n_experts, ffn.slot_of, choice, *routing, shared))

    def _publish_choice(self, layer: GpuLayer, x: GpuVector) -> None:
        """Publish the chosen experts and their input to the CPU, which computes those not resident."""
        if not layer.has_cold:
            return
        shared, choice = self._shared, self._places.choice
        self._do(partial(
            self._gpu.publish, shared.flag.address, self._places.epoch,
            GpuCopy(x.values, shared.x.address, self._config.d_model),
            GpuCopy(choice.ids, shared.bits.address, 2 * choice.n_used + 1),
        ))  # fmt: skip
        self._pending.others.append(shared.cold.address)

    def _experts_apart(self, i: int, shared_reads: Value, x: GpuVector) -> None:
        """Compute the shared expert and the others, whose outputs have a norm each."""
        one, places, gpu, d = self._layer(i), self._places, self._gpu, self._config.d_model
        ffn, pending = one.experts, self._pending
        assert ffn is not None, "the layer has experts"
        assert ffn.shared is not None, "one is shared"
        self._experts(i, ffn, self._vector(shared_reads), (ffn.shared,))
        norm = one.post_shared_norm
        self._do(partial(gpu.total, places.beside, d, pending.parts, pending.n_parts, (), norm))
        pending.parts = pending.n_parts = 0
        self._experts(i, ffn, x, () if ffn.resident is None else (ffn.resident,))
        pending.within, pending.beside = one.post_experts_norm, places.beside

    def _experts(self, i: int, ffn: GpuExpertFfn, x: GpuVector, blocks: Sequence[GpuExperts]) -> None:
        """Compute the chosen resident experts or the shared expert, or both."""
        places, gpu, spec = self._places, self._gpu, self._graph.ffn(i).spec
        self._begin("ffn")
        parts = places.parts
        for experts in blocks:
            choice = places.choice
            if experts is ffn.shared:
                choice = places.choice.of_shared(places.zeros, ffn.shared_weight)
            n = choice.n_used * experts.width
            hidden = places.expert_hidden_of(n)
            first, up = places.expert_first, places.expert_up if experts.gate is not None else 0
            weighed = spec.routing is not None and spec.routing.of_inputs and experts is not ffn.shared
            self._do(partial(gpu.expert_products, experts, x, choice, first, up, weighed))
            self._do(partial(
                gpu.activate, first, up, n, spec.activation, spec.threshold, hidden,
                self._counts_of(i),
            ))  # fmt: skip
            self._do(partial(gpu.expert_down, experts, hidden, choice, parts))
            parts += 4 * gpu.expert_parts(experts, choice.n_used) * self._config.d_model
        if blocks:
            self._pending.parts = places.parts
            self._pending.n_parts = (parts - places.parts) // (4 * self._config.d_model)

    # --- the end

    def last_norm(self) -> None:
        """Compute the final hidden state."""
        self._begin("head")
        places, final = self._places, self._places.final
        if self._model.streams_out:
            self._advance()
            rows, steps = streams_back(self._gpu, self._model.streams_out, places)
            self._steps += steps
            self._pending.others += rows
            self._pending.factor = 1 / places.streams.n
        if self._model.final_norm is not None:
            self._advance(self._model.final_norm, final)
            return
        self._advance()
        self._do(partial(self._gpu.copy, places.stream.values, final.values, final.n))
        if final.bytes:
            self._do(partial(self._gpu.quantise, final))

    def publish_hidden(self) -> None:
        """Publish the final hidden state and the counts."""
        self._counts()
        self._publish(self._places.final.values, self._shared.hidden.address)

    def head(self) -> None:
        """Compute the logits of the final hidden state."""
        model, places, gpu = self._model, self._places, self._gpu
        assert model.head is not None, "the head is on the GPU"
        hidden = places.final
        if model.project_out is not None:
            hidden = places.narrow
            self._do(partial(gpu.multiply, (model.project_out,), places.final, (hidden.values,)))
            if hidden.bytes:
                self._do(partial(gpu.quantise, hidden))
        self._do(partial(gpu.multiply, (model.head,), hidden, (places.logits,), (model.head_bias,)))
        if self._config.logit_softcap is not None:
            self._do(partial(gpu.softcap, places.logits, model.head.n_rows, self._config.logit_softcap))

    def publish_logits(self) -> None:
        """Publish the logits, the counts that follow them in memory, and the final hidden state."""
        places, shared = self._places, self._shared
        words = (places.counts - places.logits) // 4 + COUNTS * self._config.n_layers
        logits = GpuCopy(places.logits, shared.logits.address, words)
        hidden = GpuCopy(places.final.values, shared.hidden.address, self._config.d_model)
        self._do(partial(self._gpu.publish, shared.flag.address, places.epoch, logits, hidden))

    def head_alone(self) -> None:
        """Compute the logits of a hidden state that the CPU wrote to pinned memory.

        Publishes nothing: the caller waits for the CUDA stream.
        """
        places, shared, d = self._places, self._shared, self._config.d_model
        self._do(partial(self._gpu.copy, shared.hidden.address, places.final.values, d))
        if places.final.bytes:
            self._do(partial(self._gpu.quantise, places.final))
        self.head()
        self._do(partial(self._gpu.copy, places.logits, shared.logits.address, len(shared.logits.array)))

    # --- helpers

    def _begin(self, stage: str) -> None:
        if stage != self._stage:
            self._do(partial(stage_begins, stage))
        self._stage = stage

    def _do(self, step: Step) -> None:
        self._steps.append(step)

    def _counts_of(self, i: int) -> int:
        return self._places.counts + 4 * COUNTS * i

    def _counts(self) -> None:
        words = COUNTS * self._config.n_layers
        self._do(partial(self._gpu.copy, self._places.counts, self._shared.counts.address, words))

    def _publish(self, values: int, to: int, bits: int = 0, without: int = 0, n: int | None = None) -> None:
        """Publish n numbers, by default a vector [D], and the bits."""
        shared, numbers = self._shared, GpuCopy(values, to, self._config.d_model if n is None else n)
        selected = GpuCopy(bits, shared.bits.address, -(-self._config.d_ff // 32)) if bits else NOTHING
        self._do(partial(
            self._gpu.publish, shared.flag.address, self._places.epoch, numbers, selected, without if bits else 0
        ))  # fmt: skip

    def _advance(self, norm: GpuNorm | None = None, to: GpuVector | None = None) -> None:
        """Add all pending values to the stream, and write its norm to `to`."""
        pending, self._pending = self._pending, _Pending()
        places, gpu, d = self._places, self._gpu, self._config.d_model
        parts, n_parts, others = pending.parts, pending.n_parts, tuple(pending.others)
        if pending.within is not None:  # what attention returned has been added
            self._do(partial(gpu.total, places.attended, d, parts, n_parts, others, pending.within))
            parts, n_parts, others = 0, 0, (places.attended, pending.beside)
        if pending.through is not None:
            added = GpuVector(d, places.added)
            if others == (places.added,):
                self._do(partial(gpu.norm, places.added, pending.through, added))
            else:
                self._do(partial(gpu.total, places.added, d, parts, n_parts, others, pending.through))
            parts, n_parts, others = 0, 0, (places.added,)
        stream = places.stream
        if pending.closing is not None:
            self._do(partial(gpu.advance, stream.values, d, parts, n_parts, others, pending.closing, stream))
            if norm is not None and to is not None:
                self._do(partial(gpu.norm, stream.values, norm, to))
        elif parts or others or norm is not None or pending.factor != 1.0:
            self._do(partial(gpu.advance, stream.values, d, parts, n_parts, others, norm, to, pending.factor))
