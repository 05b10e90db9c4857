"""The graph of a model as data: what each layer does, in order. Nothing is computed here.

A layer is a list of steps over named values: norms, attention and FFN in their order, and what each of them reads.
`graph_of` derives it from the ModelConfig, which engine/model/families reads from a model's files. Not in the graph:
embedding, final norm and head (see ModelConfig and transformer.py), and how neurons are skipped (engine/executor).
The graph says only whether an activation has zeros.
Each way to run a model walks the list with its own emitter:

- transformer.py computes at once; with the reference operators it is the specification of all others, and the only one
  for encoders;
- engine/decode/decode_calls.py lays out one token as calls of CPU kernels;
- engine/gpu/token/token_steps.py lays out one token on the GPU, engine/gpu/batch/batch_steps.py one per sequence;
- engine/gpu/prefill/layer_pass.py runs many positions of a prompt on the GPU.

To add a step, add a dataclass here, a case in `emit`, and a method in each emitter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Protocol, assert_never

from engine.config import ModelConfig
from native_kernels.backend import Activation, RopeOrder
from native_kernels.specs import DeltaSpec, ExpertGroups, LatentSpec, ShortConvSpec, Temperature, Weighing

# "stream" is the residual stream; the others are outputs of a norm.
Value = Literal["stream", "attention_in", "ffn_in", "experts_in", "router_in"]


@dataclass(frozen=True)
class Angles:
    """A table of rotary angles, position x theta ^ (-2i / rotated); a model has one or two.

    scaled: whether the model's rope_scaling, divisors and scale apply (engine/model/rope.py).
    """

    rotated: int  # rotated values per head; 0: positions are not rotary
    theta: float
    scaled: bool


@dataclass(frozen=True)
class AttentionSpec:
    """One layer's attention.

    Shapes: q [T, n_heads, head_dim], k and v [T, n_kv_heads, head_dim].
    """

    n_heads: int
    n_kv_heads: int
    head_dim: int
    scale: float  # of the attention scores
    softcap: float | None  # None: scores are not capped
    temperature: Temperature | None  # None: queries do not grow with their position
    window: int | None  # positions that a query sees, itself included; None: all before it
    sinks: bool  # each head has an extra score (the layer's `sinks`) that takes a share of the weights
    rotated: int  # rotated values per head; 0: none
    rope_order: RopeOrder
    angles: int  # index into Graph.angles
    local: bool  # has a window, so that its keys and values are stored apart: see KVCache
    kv_from: int | None  # the layer whose keys and values it reads; None: its own
    v_norm: bool  # RMS norm without weights of each head of v
    v_is_k: bool  # v is k before its norm and rotation
    # RMS norm of q and k before the rotation, of each head or of all; or after it, of each head.
    qk_norm: Literal["heads", "whole", "rotated heads"] | None
    norm_plain: bool  # qk_norm has no weights
    chunked: bool  # the window is a chunk: see native_kernels.backend.Scoring
    gated: bool  # the logistic function of another projection multiplies the attention's output
    causal: bool  # False: a query sees all positions of its text, as in an encoder

    @property
    def q_width(self) -> int:
        """Values of all query heads of a position, and of the attention output."""
        return self.n_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Values of all key heads of a position, equal to those of the value heads."""
        return self.n_kv_heads * self.head_dim


@dataclass(frozen=True)
class RoutingSpec:
    """How one layer's router chooses experts: those with the highest scores (engine/model/router.py)."""

    n_experts: int  # without the shared one, whose number this is
    n_used: int  # experts per token
    weighing: Weighing
    of_inputs: bool  # an expert's weight multiplies its input, not its output
    scale: float  # factor on the weights of the experts used, without the shared one
    groups: ExpertGroups  # that a token's experts are chosen from
    shared_width: int  # neurons of the shared expert, which every token uses; 0: none


@dataclass(frozen=True)
class FfnSpec:
    """One layer's FFN: one block of neurons, or experts that a router chooses.

    activation, threshold: of the gate, or of up without a gate; see native_kernels.backend.Activation.
    """

    width: int  # neurons of the block, or of each expert
    gated: bool  # the FFN has a gate matrix beside up
    activation: Activation
    threshold: float
    has_zeros: bool  # the activation makes exact zeros
    cutoff: float  # gates below their mean plus this many standard deviations are 0, others are reduced by it; 0: none
    routing: RoutingSpec | None  # None: one block

    @property
    def relu_on_up(self) -> bool:
        """Whether up has a ReLU too."""
        return self.activation == "drelu"

    @property
    def n_computed(self) -> int:
        """Neurons that a token uses, in all its blocks."""
        routing = self.routing
        return self.width if routing is None else self.width * routing.n_used + routing.shared_width


@dataclass(frozen=True)
class Norm:
    """Set `to` to the model's norm of the stream, with the layer's weight (and bias) of this name."""

    weight: Literal["attention_norm", "ffn_norm", "experts_norm", "router_norm"]
    to: Value


@dataclass(frozen=True)
class Select:
    """Select what the FFN computes from the value `reads`: experts by the router, neurons by the predictor if any.

    It comes as early as its input is known, so that another device can start on its share. spec: of the layer's FFN.
    """

    reads: Value
    spec: FfnSpec


@dataclass(frozen=True)
class Attend:
    """Add attention over `reads` to the stream, through the norm `after` if the layer has one."""

    spec: AttentionSpec
    reads: Value
    after: Literal["post_attention_norm"] | None = None


@dataclass(frozen=True)
class AttendLatent:
    """Add latent attention over `reads` to the stream.

    spec: attention of all heads over the one key head that is cached, whose keys are its values too. A head has the
    numbers of the latent vector first, then the rotated ones.
    """

    spec: AttentionSpec
    latent: LatentSpec
    reads: Value


@dataclass(frozen=True)
class Recur:
    """Add a gated delta net or Mamba-2 over `reads` to the stream. Its state belongs to the conversation, like keys."""

    spec: DeltaSpec
    reads: Value


@dataclass(frozen=True)
class Convolve:
    """Add a gated short convolution over `reads` to the stream. Its state belongs to the conversation, like keys."""

    spec: ShortConvSpec
    reads: Value


@dataclass(frozen=True)
class Ffn:
    """Add the FFN of `reads` to the stream, through the norm `after` if the layer has one.

    shared_reads: what the shared expert reads instead. Then its output and the sum of the others go through a norm
    each (post_shared_norm, post_experts_norm) before they are added.
    """

    reads: Value
    spec: FfnSpec
    after: Literal["post_ffn_norm"] | None = None
    shared_reads: Value | None = None


@dataclass(frozen=True)
class Inject:
    """Add the token's embedding for this layer to the stream: gated by the stream, projected, through the norm `after`.

    spec: of the layer's FFN, whose activation the gate has too. beside: it is added to all other streams instead, and
    the gate reads the stream times the weights `stream_scale`.
    """

    spec: FfnSpec
    beside: bool = False
    after: Literal["post_embedding_norm"] = "post_embedding_norm"


@dataclass(frozen=True)
class Scale:
    """Multiply the stream by the layer's factor of this name."""

    weight: Literal["layer_scale"] = "layer_scale"


@dataclass(frozen=True)
class Predict:
    """Add to every stream a mixture of all streams, whose coefficients the first one decides (AltUp).

    The layer then computes the first stream, and `Correct` compares. Source: Baykal et al., arXiv 2301.13310.
    """


@dataclass(frozen=True)
class Correct:
    """Add to every predicted stream its share of what the layer changed in the first one (AltUp)."""


@dataclass(frozen=True)
class Laurel:
    """Add `reads` and the norm of a low-rank product of it to the stream, and divide by the root of 2 (LAuReL).

    Source: Menghani et al., arXiv 2411.07501.
    """

    reads: Value


NO_FFN = Ffn("stream", FfnSpec(0, False, "relu", 0.0, has_zeros=True, cutoff=0.0, routing=None))
Step = Norm | Select | Attend | AttendLatent | Recur | Convolve | Ffn | Inject | Scale | Predict | Correct | Laurel


@dataclass(frozen=True)
class Graph:
    """layers: the steps of each layer. angles: the tables that attention rotates by.

    rows: each layer's place in the conversation's cache: its index among the layers that recur, or among those with a
    window, or among those without; of no meaning for a layer with an FFN alone. A layer that reads another layer's
    keys and values has the place of that one.
    """

    layers: tuple[tuple[Step, ...], ...]
    angles: tuple[Angles, ...]
    rows: tuple[int, ...]

    def attention(self, layer: int) -> AttentionSpec:
        """Return the layer's attention, which it must have."""
        return next(step.spec for step in self.layers[layer] if isinstance(step, Attend | AttendLatent))

    @property
    def attentions(self) -> dict[int, AttentionSpec]:
        kinds = Attend | AttendLatent
        return {i: step.spec for i, steps in enumerate(self.layers) for step in steps if isinstance(step, kinds)}

    @property
    def tied_from(self) -> int:
        """The first layer whose keys and values others read: all layers from it on are placed on one device.

        The number of layers if none share keys and values.
        """
        specs = [step.spec for steps in self.layers for step in steps if isinstance(step, Attend)]
        return min((spec.kv_from for spec in specs if spec.kv_from is not None), default=len(self.layers))

    def is_local(self, layer: int) -> bool:
        return any(isinstance(step, Attend) and step.spec.local for step in self.layers[layer])

    def ffn(self, layer: int) -> Ffn:
        """Return the layer's FFN step; one without neurons if the layer has none."""
        return next((step for step in self.layers[layer] if isinstance(step, Ffn)), NO_FFN)

    def selects_from(self, layer: int) -> Value | None:
        """Return the value that the layer's experts or neurons are selected from; None without an FFN."""
        return next((step.reads for step in self.layers[layer] if isinstance(step, Select)), None)

    def steps_after_ffn(self, layer: int) -> tuple[Step, ...]:
        """Return the layer's steps after its FFN step; none if the layer has no FFN."""
        steps, ffn = self.layers[layer], self.ffn(layer)
        return () if ffn is NO_FFN else steps[steps.index(ffn) + 1 :]


class Emitter(Protocol):
    """Runs or lays out the steps of layers in order."""

    def norm(self, layer: int, step: Norm) -> None: ...

    def select(self, layer: int, step: Select) -> None: ...

    def attend(self, layer: int, step: Attend) -> None: ...

    def attend_latent(self, layer: int, step: AttendLatent) -> None: ...

    def recur(self, layer: int, step: Recur) -> None: ...

    def convolve(self, layer: int, step: Convolve) -> None: ...

    def ffn(self, layer: int, step: Ffn) -> None: ...

    def inject(self, layer: int, step: Inject) -> None: ...

    def scale(self, layer: int, step: Scale) -> None: ...

    def predict(self, layer: int, step: Predict) -> None: ...

    def correct(self, layer: int, step: Correct) -> None: ...

    def laurel(self, layer: int, step: Laurel) -> None: ...


def emit(layer: int, steps: Sequence[Step], emitter: Emitter) -> None:
    """Pass the layer's steps to the emitter in order."""
    for step in steps:
        match step:
            case Norm():
                emitter.norm(layer, step)
            case Select():
                emitter.select(layer, step)
            case Attend():
                emitter.attend(layer, step)
            case AttendLatent():
                emitter.attend_latent(layer, step)
            case Recur():
                emitter.recur(layer, step)
            case Convolve():
                emitter.convolve(layer, step)
            case Ffn():
                emitter.ffn(layer, step)
            case Inject():
                emitter.inject(layer, step)
            case Scale():
                emitter.scale(layer, step)
            case Predict():
                emitter.predict(layer, step)
            case Correct():
                emitter.correct(layer, step)
            case Laurel():
                emitter.laurel(layer, step)
            case _:
                assert_never(step)


@lru_cache(maxsize=16)
def graph_of(config: ModelConfig) -> Graph:
    return Graph(tuple(_layer(config, i) for i in range(config.n_layers)), _angles(config), _rows(config))


def _rows(config: ModelConfig) -> tuple[int, ...]:
    specs = [_attention(config, i) for i in range(config.n_layers)]
    kinds = [(i in config.delta_layers, i in config.ffn_only_layers, specs[i].local) for i in range(config.n_layers)]
    own = [kinds[:i].count(kinds[i]) for i in range(config.n_layers)]
    return tuple(own[i if spec.kv_from is None else spec.kv_from] for i, spec in enumerate(specs))


def _angles(config: ModelConfig) -> tuple[Angles, ...]:
    rotated = config.rotated if config.positions == "rope" and len(set(config.unrotated)) < config.n_layers else 0
    main = Angles(rotated, config.rope_theta, scaled=True)
    if config.rope_theta_local is None or not rotated:
        return (main,)
    local = rotated if config.local_head_dim is None else config.local_head_dim
    return main, Angles(local, config.rope_theta_local, scaled=False)  # of layers with a window


def _kv_from(config: ModelConfig, i: int) -> int | None:
    """Return the layer whose keys and values layer i reads, None for its own."""
    own = config.n_layers - config.n_shared_kv_layers
    windowed = config.window(i) is not None
    return None if i < own else max(j for j in range(own) if (config.window(j) is not None) == windowed)


def _attention(config: ModelConfig, i: int) -> AttentionSpec:
    window = config.window(i)
    rotates = config.positions == "rope" and i not in config.unrotated
    local = window is not None
    head_dim = (config.local_head_dim if local else None) or config.head_dim
    rotated = config.rotated if not local or config.local_head_dim is None else head_dim
    return AttentionSpec(
        n_heads=config.n_heads,
        n_kv_heads=(config.local_kv_heads if local else None) or config.n_kv_heads,
        head_dim=head_dim,
        scale=head_dim**-0.5 if config.attention_scale is None else config.attention_scale,
        softcap=config.attention_softcap,
        temperature=None if rotates and config.temperature_of_unrotated else config.attention_temperature,
        window=window,
        sinks=config.attention_sinks,
        rotated=rotated if rotates else 0,
        rope_order=config.rope_order,
        angles=1 if window is not None and rotates and config.rope_theta_local is not None else 0,
        qk_norm=_qk_norm(config) if rotates or not config.qk_norm_plain else None,
        norm_plain=config.qk_norm_plain,
        chunked=config.chunked_windows and window is not None,
        gated=config.gated_attention,
        causal=config.causal,
        local=local,
        kv_from=_kv_from(config, i),
        v_norm=config.v_norm,
        v_is_k=config.full_v_is_k and window is None,
    )


def _qk_norm(config: ModelConfig) -> Literal["heads", "whole", "rotated heads"] | None:
    if not config.qk_norm:
        return None
    return "rotated heads" if config.qk_norm_after else "whole" if config.qk_norm_whole else "heads"


def _ffn(config: ModelConfig, i: int) -> FfnSpec:
    routing = None
    if config.n_experts and not config.is_dense(i):
        routing = RoutingSpec(
            n_experts=config.n_experts,
            n_used=config.n_experts_used,
            weighing=Weighing(config.router, config.normed_routing, config.router_margin),
            of_inputs=config.weighed_inputs,
            scale=config.routing_scale,
            groups=ExpertGroups(config.n_groups, config.n_groups_used, by_two=config.selection_bias),
            shared_width=config.shared_d_ff,
        )
    return FfnSpec(
        width=config.ffn_width(i),
        gated=config.gated,
        activation=config.kernel_activation,
        threshold=config.activation_threshold,
        has_zeros=config.has_zeros or (bool(config.gate_cutoffs) and config.gate_cutoffs[i] > 0),
        cutoff=config.gate_cutoffs[i] if config.gate_cutoffs else 0.0,
        routing=routing,
    )


def _layer(config: ModelConfig, i: int) -> tuple[Step, ...]:
    spec, of_ffn = _attention(config, i), _ffn(config, i)
    if config.norms == "post":  # each block reads the stream and a norm of the sum follows: OPT-350M, BERT
        return (
            Attend(spec, "stream"),
            Norm("attention_norm", "stream"),
            Select("stream", of_ffn),
            Ffn("stream", of_ffn),
            Norm("ffn_norm", "stream"),
        )
    if config.norms == "output":  # each block reads the stream and adds a norm of its result: OLMo 2
        return (
            Attend(spec, "stream", "post_attention_norm"),
            Select("stream", of_ffn),
            Ffn("stream", of_ffn, "post_ffn_norm"),
        )
    norm = Norm("attention_norm", "attention_in")
    if config.parallel:  # both blocks read the layer's input, after one norm or one each: Falcon
        if config.shared_norm:
            return norm, Select("attention_in", of_ffn), Attend(spec, "attention_in"), Ffn("attention_in", of_ffn)
        ffn_norm = Norm("ffn_norm", "ffn_in")
        return norm, ffn_norm, Select("ffn_in", of_ffn), Attend(spec, "attention_in"), Ffn("ffn_in", of_ffn)
    both = config.norms == "both"  # norms before and after each block: Gemma 2
    attend: Step = Attend(spec, "attention_in", "post_attention_norm" if both else None)
    if config.delta is not None and i in config.delta_layers:
        attend = Recur(config.delta, "attention_in")
    elif config.short_conv is not None and i in config.delta_layers:
        attend = Convolve(config.short_conv, "attention_in")
    if config.latent is not None:
        attend = AttendLatent(spec, config.latent, "attention_in")
    ffn = Ffn("ffn_in", of_ffn, "post_ffn_norm" if both else None)
    if config.early_router:
        return Select("stream", of_ffn), norm, attend, Norm("ffn_norm", "ffn_in"), ffn
    if config.shared_apart:
        norms = Norm("ffn_norm", "ffn_in"), Norm("experts_norm", "experts_in"), Norm("router_norm", "router_in")
        apart = Ffn("experts_in", of_ffn, "post_ffn_norm", shared_reads="ffn_in")
        return norm, attend, *norms, Select("router_in", of_ffn), apart, *_behind(config, of_ffn)
    if i in config.ffn_only_layers:
        return Norm("ffn_norm", "ffn_in"), Select("ffn_in", of_ffn), ffn
    if i in config.mixer_only_layers:
        return norm, attend
    before = (Predict(),) if config.n_streams > 1 else ()
    beside = (Laurel("attention_in"),) if config.laurel_rank else ()
    own = (*before, norm, attend, *beside, Norm("ffn_norm", "ffn_in"), Select("ffn_in", of_ffn), ffn)
    return own + _behind(config, of_ffn)


def _behind(config: ModelConfig, of_ffn: FfnSpec) -> tuple[Step, ...]:
    """Return a layer's steps after its FFN."""
    if config.n_streams > 1:
        return Correct(), Inject(replace(of_ffn, cutoff=0.0), beside=True)
    injected = (Inject(replace(of_ffn, cutoff=0.0)),) if config.layer_embedding_dim else ()
    return (*injected, Scale()) if config.layer_scale else injected
