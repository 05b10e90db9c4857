"""Configuration of models and of the engine: frozen values, validated when created.

Nothing here reads files or devices. Dimension letters: L layers, T tokens, D d_model, F d_ff, H heads, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, cast, get_args

from engine.errors import InvalidRequestError, ModelFormatError
from engine.layer_checks import check_delta, check_encoder, check_groups, check_latent, check_layers, check_streams
from engine.thinking_level import LEVELS, Level
from native_kernels.backend import Activation as KernelActivation
from native_kernels.kv_blocks import KvLayout
from native_kernels.specs import DeltaSpec, LatentSpec, ShortConvSpec, Temperature

# "-glu": activation of gate times up. relu2: the square of ReLU. drelu: ReLU on gate and on up. fatrelu: x above a
# threshold, else 0. gelu: exact, by the error function; gelu-tanh: its usual approximation. clamped-silu: gpt-oss, see
# native_kernels.backend.Activation; only with experts.
Activation = Literal[
    "relu", "relu2", "gelu", "gelu-tanh", "relu-glu", "drelu-glu", "fatrelu-glu", "silu-glu", "gelu-glu",
    "gelu-tanh-glu", "clamped-silu-glu",
]  # fmt: skip
Mode = Literal["auto", "sparse", "exact", "dense"]
Device = Literal["auto", "cpu", "cuda"]
KvCodec = Literal["f32", "f16", "q8_0"]  # of the KV cache; defined in native_kernels/kv_blocks.py
BackendName = Literal["auto", "kernels", "reference"]

MODES: tuple[Mode, ...] = get_args(Mode)
MOST_ANSWERS = 4  # that the local API gives at once
DEVICES: tuple[Device, ...] = get_args(Device)
BACKENDS: tuple[BackendName, ...] = get_args(BackendName)
KV_CODECS: tuple[KvCodec, ...] = get_args(KvCodec)
ACTIVATIONS: tuple[Activation, ...] = tuple(name for name in get_args(Activation) if name != "clamped-silu-glu")


# Endings of the names of matrices that are never rounded.
EXACT_MATRICES = (".router", ".alpha", ".beta", ".stream_router", ".stream_prediction", ".stream_correction")
_BIASES = {"q", "k", "v", "o", "gate", "up", "down", "norm", "router", "head"}
_SIZE_CAPS = {"n_layers": 1024, "d_model": 1 << 17, "d_ff": 1 << 20, "n_heads": 1024, "n_kv_heads": 1024,
              "head_dim": 1024, "vocab_size": 1 << 21, "max_context": 1 << 24}  # fmt: skip
_MAX_EXPERTS = 1024  # of a layer
_MAX_EXPERTS_IN_ALL = 1 << 15  # each has three tensors in a model's plan


def parse_activation(text: object) -> tuple[str, float]:
    """Parse NAME or NAME:threshold: one of ACTIVATIONS, "-glu" optional, and its threshold.

    Raises: InvalidRequestError for an unknown name, and for a missing (fatrelu), invalid or superfluous threshold.
    """
    known = sorted({name.removesuffix("-glu") for name in ACTIVATIONS})
    shown = repr(str(text)[:60])
    name, colon, number = text.partition(":") if isinstance(text, str) else ("", "", "")
    if name not in ACTIVATIONS and name not in known:
        raise InvalidRequestError(f"Unknown activation {shown}; supported: {', '.join(known)}.")
    if not name.startswith("fatrelu"):
        if colon:
            raise InvalidRequestError(f"The activation {name} has no threshold; {shown} was given.")
        return name, 0.0
    try:
        threshold = float(number)
    except ValueError:
        threshold = -1.0
    if not 0 < threshold < 1e3:
        raise InvalidRequestError(
            f"The activation fatrelu needs a threshold above 0; {shown} was given.",
            "Write it as fatrelu:0.01, which is ProSparse's.",
        )
    return name, threshold


def check_size(name: str, value: Any) -> None:
    """Raise ModelFormatError unless the value is a valid model size of that name."""
    cap = _SIZE_CAPS[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= cap:
        raise ModelFormatError(f"The model's {name} is {value!r}; a whole number from 1 to {cap} is needed.")


@dataclass(frozen=True)
class RopeScaling:
    """RoPE stretched to a longer context; engine/model/rope.py implements the kinds.

    linear: all waves alike. llama3, yarn: the slow waves. longrope: a divisor per wave, from one list up to the
    original context and from another beyond. dynamic: a base that grows with the sequence beyond the original context.
    proportional: all waves alike, and only the fastest ones turn.
    """

    kind: Literal["linear", "llama3", "yarn", "longrope", "dynamic", "proportional"]
    factor: float
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0
    original_context: int = 8192
    beta_fast: float = 32.0  # yarn: waves with this many rotations in the original context are kept
    beta_slow: float = 1.0  # yarn: waves with this few rotations are slowed by the whole factor
    truncate: bool = True  # yarn: round those borders to whole waves
    attention_factor: float = 1.0  # yarn, longrope: factor on cosines and sines
    short_factors: tuple[float, ...] = ()  # longrope; both empty: stored with the weights
    long_factors: tuple[float, ...] = ()
    share: float = 1.0  # proportional: of the waves that turn

    def __post_init__(self) -> None:
        sound = 0 < self.factor < 1e6 and 0 < self.low_freq_factor <= self.high_freq_factor < 1e6
        sound = sound and 0 < self.beta_slow <= self.beta_fast < 1e6 and 0 < self.attention_factor < 1e3
        sound = sound and 0 < self.share <= 1
        sound = sound and len(self.short_factors) == len(self.long_factors) <= _SIZE_CAPS["head_dim"]
        sound = sound and all(0 < divisor < 1e9 for divisor in (*self.short_factors, *self.long_factors))
        if not sound or not 1 <= self.original_context <= _SIZE_CAPS["max_context"]:
            raise ModelFormatError(f"The scaling of the model's positions is invalid: {str(self)[:200]}.")


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a model, created once by engine/model/families: of a decoder, or of an encoder (causal: False).

    Fields with defaults are those in which families differ; the defaults are LLaMA's.
    """

    family: str
    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int
    rope_theta: float
    norm_eps: float
    activation: Activation
    max_context: int
    tied_embeddings: bool
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    activation_threshold: float = 0.0  # fatrelu: threshold of activity. clamped-silu: its limit
    norm: Literal["rms", "layer"] = "rms"
    # Norms of a block's input, of the stream behind it, of its input and output, of its output alone.
    norms: Literal["pre", "post", "both", "output"] = "pre"
    final_norm: bool = True
    biases: tuple[str, ...] = ()  # which of q, k, v, o, gate, up, down, norm, router, head have one
    qk_norm: bool = False  # RMS norm over each head of q and k
    qk_norm_whole: bool = False  # with qk_norm: over all heads together
    qk_norm_after: bool = False  # with qk_norm: after the rotation
    qk_norm_plain: bool = False  # with qk_norm_after: without weights, in layers with rotation alone
    parallel: bool = False  # the FFN reads the layer's input, in parallel with attention
    shared_norm: bool = False  # parallel: one norm for both
    positions: Literal["rope", "learned"] = "rope"
    position_offset: int = 0  # learned: table row of position 0
    rotary_dim: int | None = None  # rotated values per head; None: all
    rope_order: Literal["halves", "interleaved"] = "halves"  # rotated pairs: (i, i + R / 2), (2i, 2i + 1)
    rope_scaling: RopeScaling | None = None
    rope_theta_local: float | None = None  # base of layers with a window, if different
    rope_factors: bool = False  # the file has a divisor per rotary frequency
    windows: tuple[int, ...] = ()  # per layer: positions that a query sees, itself included; 0: all. Empty: all 0
    chunked_windows: bool = False  # a query sees the positions since the last multiple of the window
    attention_scale: float | None = None  # None: 1 / sqrt(head_dim)
    attention_softcap: float | None = None
    attention_temperature: Temperature | None = None  # None: queries do not grow with their position
    temperature_of_unrotated: bool = False  # in layers without rotation alone
    attention_sinks: bool = False  # each head has an extra score besides those of the positions
    logit_softcap: float | None = None
    logit_scale: float = 1.0  # factor on the logits, before the cap; load_weights applies it to the final norm
    embedding_scale: float = 1.0
    embedding_dim: int | None = None  # if not d_model: projected on the way in and out
    n_experts: int = 0  # experts per layer, each with d_ff neurons; 0: one FFN without a router
    n_experts_used: int = 0  # experts per token
    shared_d_ff: int = 0  # neurons of the shared expert, which every token uses
    shared_gated: bool = True  # a gate weighs the shared expert; otherwise its weight is 1
    n_dense_layers: int = 0  # leading layers with one FFN of dense_d_ff neurons instead of experts
    dense_d_ff: int = 0
    experts_every: int = 1  # of the layers, each so-manyth has experts, the others one FFN of dense_d_ff neurons
    weighed_inputs: bool = False  # an expert's weight multiplies its input, not its output
    router: Literal["softmax", "sigmoid"] = "softmax"  # converts scores to weights, over all experts
    # softmax: an expert's weight is its share of those near it, without those chosen before (SparseMixer). An expert is
    # near if its score is less by at most this share of the greater of its size and the chosen score. 0: all are near.
    router_margin: float = 0.0
    selection_bias: bool = False  # a bias is added to the weights for the selection of experts alone
    normed_routing: bool = True  # the weights of the experts used sum to 1
    routing_scale: float = 1.0  # factor on the weights of the experts used, without the shared one
    n_groups: int = 1  # equal groups of experts in order
    n_groups_used: int = 1  # groups per token, from which its experts are chosen
    # The shared expert, the others and the router have a norm of the stream each, both outputs have a norm before they
    # are added, and each expert has a factor on its weight.
    shared_apart: bool = False
    early_router: bool = False  # the router reads the layer's input before attention, not the experts' input
    unrotated: tuple[int, ...] = ()  # rope: layers without rotation
    gated_attention: bool = False  # the logistic function of a projection multiplies attention's output
    delta: DeltaSpec | None = None  # the gated delta net or Mamba-2 that some layers have instead of attention
    short_conv: ShortConvSpec | None = None  # the gated short convolution that they have in other models
    delta_layers: tuple[int, ...] = ()  # the layers with either, ascending
    ffn_only_layers: tuple[int, ...] = ()  # layers with an FFN alone, ascending
    mixer_only_layers: tuple[int, ...] = ()  # layers without an FFN, ascending
    latent: LatentSpec | None = None  # latent attention: one key head of rank + rotary_dim numbers
    local_head_dim: int | None = None  # of layers with a window, if different; all its values are rotated
    local_kv_heads: int | None = None  # of layers with a window, if different
    v_norm: bool = False  # RMS norm without weights over each head of v
    full_v_is_k: bool = False  # layers without a window: v is k before norm and rotation
    n_shared_kv_layers: int = 0  # last layers, which read keys and values of the last layer of their kind before them
    layer_embedding_dim: int = 0  # numbers that a token adds to each layer (per-layer embeddings); 0: none
    layer_vocab_size: int | None = None  # tokens that have layer embeddings, if not all; others have those of token 0
    n_streams: int = 1  # residual streams (AltUp); layers compute the first and predict and correct the others
    laurel_rank: int = 0  # rank of the residual beside attention (LAuReL); 0: none
    # Per layer: gates less than this many standard deviations above their mean are 0. 0: none are cut off.
    gate_cutoffs: tuple[float, ...] = ()
    layer_scale: bool = False  # a factor on the stream after each layer
    d_ff_by_layer: tuple[int, ...] = ()  # neurons of each layer if they differ; d_ff is the largest. Empty: all d_ff
    causal: bool = True  # False: an encoder, in which every position of a text sees all others
    input_norm: bool = False  # encoder: a norm of the embeddings
    token_types: int = 0  # encoder: rows of a table whose first is added to every embedding; 0: none

    def __post_init__(self) -> None:
        for name in _SIZE_CAPS:
            check_size(name, getattr(self, name))
        if self.n_heads % self.n_kv_heads:
            raise ModelFormatError(f"{self.n_heads} attention heads cannot share {self.n_kv_heads} key-value heads.")
        if self.positions == "rope" and (self.head_dim % 2 or self.rotated % 2):
            raise ModelFormatError(f"The head dimension {self.head_dim} is odd; rotary positions need an even one.")
        if not 2 <= self.rotated <= self.head_dim and self.positions == "rope":
            raise ModelFormatError(f"{self.rotated} rotated values do not fit into heads of {self.head_dim}.")
        if not (0 < self.norm_eps < 1 and 0 < self.rope_theta < 1e12):
            raise ModelFormatError(f"norm_eps {self.norm_eps!r} or rope_theta {self.rope_theta!r} is out of range.")
        self._check_features()
        self._check_rope_scaling()
        self._check_experts()
        check_groups(self)
        check_delta(self)
        check_latent(self)
        check_layers(self)
        check_streams(self)
        check_encoder(self)
        for token in (*self.eos_token_ids, *([] if self.bos_token_id is None else [self.bos_token_id])):
            if not 0 <= token < self.vocab_size:
                raise ModelFormatError(f"Special token {token} is outside the vocabulary of {self.vocab_size}.")

    def _check_features(self) -> None:
        for name in ("rope_theta_local", "attention_scale", "attention_softcap", "logit_softcap", "logit_scale",
                     "embedding_scale"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not 0 < value < 1e12:
                raise ModelFormatError(f"The model's {name} is {value!r}; a positive number is needed.")
        with_threshold = self.activation in ("fatrelu-glu", "clamped-silu-glu")
        if not 0 <= self.activation_threshold < 1e3 or (self.activation_threshold and not with_threshold):
            raise ModelFormatError(f"{self.activation} with the threshold {self.activation_threshold!r} is invalid.")
        growth = self.attention_temperature
        if growth is not None and not (0 < growth.strength < 1e3 and 1 <= growth.length <= _SIZE_CAPS["max_context"]):
            raise ModelFormatError(
                f"The model's attention temperature of {growth.strength} from position {growth.length} on is invalid."
            )
        if self.embedding_dim is not None and not 1 <= self.embedding_dim <= 1 << 17:
            raise ModelFormatError(f"The model's embedding_dim is {self.embedding_dim!r}.")
        if self.logit_scale != 1.0 and not self.final_norm:
            raise ModelFormatError("A model without a final norm has scaled logits.")
        if unknown := sorted(set(self.biases) - _BIASES):
            raise ModelFormatError(f"The model has a bias of {unknown[0][:60]!r}.")
        if self.windows and (len(self.windows) != self.n_layers or min(self.windows) < 0):
            raise ModelFormatError(f"{len(self.windows)} attention windows are given for {self.n_layers} layers.")
        if any(not 0 <= layer < self.n_layers for layer in self.unrotated):
            raise ModelFormatError(f"A layer without positions is beyond the model's {self.n_layers}.")

    def _check_experts(self) -> None:
        if not _is_number(self.n_experts, whole=True) or not 0 <= self.n_experts <= _MAX_EXPERTS:
            raise ModelFormatError(f"The model's n_experts is {self.n_experts!r}; up to {_MAX_EXPERTS} are possible.")
        if self.n_experts * self.n_layers > _MAX_EXPERTS_IN_ALL:
            raise ModelFormatError(
                f"{self.n_experts} experts in each of {self.n_layers} layers are beyond the {_MAX_EXPERTS_IN_ALL} that "
                "are possible."
            )
        used = self.n_experts_used
        if not _is_number(used, whole=True) or not min(1, self.n_experts) <= used <= self.n_experts:
            raise ModelFormatError(f"{used!r} of the {self.n_experts} experts of a layer cannot be used for a token.")
        shared = self.shared_d_ff
        if not _is_number(shared, whole=True) or not 0 <= shared <= _SIZE_CAPS["d_ff"] or (shared and not used):
            raise ModelFormatError(f"A shared expert of {shared!r} neurons beside {self.n_experts} others is invalid.")
        first, dense = self.n_dense_layers, self.dense_d_ff
        sound = _is_number(first, whole=True) and _is_number(dense, whole=True) and 0 <= first <= self.n_layers
        some = bool(first) or self.experts_every > 1
        if not sound or not some <= dense <= some * self.n_neurons or (some and not used):
            raise ModelFormatError(f"{first!r} layers of {dense!r} neurons before those with experts are invalid.")
        if not 0 < self.routing_scale < 1e6:
            raise ModelFormatError(f"The model's routing_scale is {self.routing_scale!r}; a positive number is needed.")
        if used and (self.parallel or self.norms == "post"):
            raise ModelFormatError("A model with experts has parallel blocks or norms behind them.")
        if self.shared_apart and (not shared or first or self.norms != "both" or self.early_router):
            raise ModelFormatError("A shared expert apart from the others needs norms around it, in all layers.")
        every = self.experts_every
        if not _is_number(every, whole=True) or not 1 <= every <= self.n_layers or (every > 1 and first):
            raise ModelFormatError(f"Experts in every layer of {every!r} are invalid in this model.")
        if self.weighed_inputs and (not used or not self.gated or self.shared_apart or self.biases):
            raise ModelFormatError("Weights on the inputs of experts do not fit the model's experts.")
        of_experts = self.activation == "clamped-silu-glu" or "router" in self.biases
        if (of_experts and not used) or ((shared or some) and {"gate", "up", "down"} & set(self.biases)):
            raise ModelFormatError(f"{self.activation} and biases of {self.biases} do not fit the model's experts.")

    def _check_rope_scaling(self) -> None:
        scaling = self.rope_scaling
        if scaling is None:
            return
        if scaling.long_factors and len(scaling.long_factors) != self.rotated // 2:
            raise ModelFormatError(
                f"{len(scaling.long_factors)} divisors are given for {self.rotated // 2} rotary frequencies."
            )
        if (scaling.kind == "yarn" and self.rope_theta <= 1) or (scaling.kind == "dynamic" and self.rotated <= 2):
            raise ModelFormatError(
                f"Positions of the kind {scaling.kind} are invalid with the base {self.rope_theta} and "
                f"{self.rotated} rotated values."
            )

    def with_activation(self, text: str) -> ModelConfig:
        """Return the model with an activation that `parse_activation` accepts; "-glu" is optional.

        Raises: InvalidRequestError as it does, and for an activation that does not fit this FFN.
        """
        name, threshold = parse_activation(text)
        suffix = "-glu" if self.gated else ""
        wanted = name if name.endswith("-glu") else name + suffix
        for activation in ACTIVATIONS:
            if activation == wanted and activation.endswith("-glu") == self.gated:
                return replace(self, activation=activation, activation_threshold=threshold)
        fitting = [name.removesuffix("-glu") for name in ACTIVATIONS if name.endswith("-glu") == self.gated]
        gate = "has a gate" if self.gated else "has no gate"
        raise InvalidRequestError(
            f"The activation {name} does not fit this model, whose FFN {gate}; it can be {', '.join(fitting)}."
        )

    @property
    def activation_text(self) -> str:
        """NAME or NAME:threshold, as `with_activation` reads it."""
        return self.activation + (f":{self.activation_threshold!r}" if self.activation_threshold else "")

    @property
    def has_zeros(self) -> bool:
        """Whether the activation makes exact zeros, so that skipping neurons does not change the result."""
        return self.activation in ("relu", "relu2", "relu-glu", "drelu-glu", "fatrelu-glu")

    @property
    def has_some_zeros(self) -> bool:
        """Whether that holds for some layers at least, so that the exact mode skips neurons."""
        return self.has_zeros or bool(self.gate_cutoffs)

    @property
    def gated(self) -> bool:
        """Whether the FFN has a gate matrix beside up."""
        return self.activation.endswith("-glu")

    @property
    def kernel_activation(self) -> KernelActivation:
        """The kernels' name for the activation of the FFN's first matrix; drelu applies to up too."""
        return cast(KernelActivation, self.activation.removesuffix("-glu"))

    @property
    def n_neurons(self) -> int:
        """FFN neurons per layer, over all experts in order, the shared one last."""
        return self.d_ff * max(1, self.n_experts) + self.shared_d_ff

    @property
    def n_placed_neurons(self) -> int:
        """Neurons per layer that a placement divides between devices: all but the shared expert's."""
        return self.d_ff * max(1, self.n_experts)

    def placed_neurons_of(self, layer: int) -> int:
        """Return those of one layer, if the layers differ; 0 without an FFN."""
        if layer in self.mixer_only_layers:
            return 0
        return self.d_ff_by_layer[layer] if self.d_ff_by_layer else self.n_placed_neurons

    @property
    def all_placed_neurons(self) -> int:
        return sum(map(self.placed_neurons_of, range(self.n_layers)))

    @property
    def expert_layers(self) -> tuple[int, ...]:
        others = {*self.mixer_only_layers, *filter(self.is_dense, range(self.n_layers))}
        return tuple(i for i in range(self.n_layers) if self.n_experts and i not in others)

    @property
    def n_blocks_used(self) -> int:
        """FFNs of the first layer that a token uses."""
        return 1 if self.is_dense(0) else max(1, self.n_experts_used) + (self.shared_d_ff > 0)

    def mode_on_gpu(self, wanted: Mode) -> Mode:
        """Return the mode of a model with layers on a GPU: nothing is predicted inside experts there."""
        return "exact" if wanted == "sparse" and self.n_experts else wanted

    @property
    def routed_share(self) -> float:
        """Share of a layer's neurons in the experts that a token uses; 1 without a router."""
        if not self.n_experts:
            return 1.0
        return (self.n_experts_used * self.d_ff + self.shared_d_ff) / self.n_neurons

    @property
    def n_attention_layers(self) -> int:
        """Layers with attention whose keys and values are cached: not those that read another layer's."""
        return self.n_layers - len(self.delta_layers) - len(self.ffn_only_layers) - self.n_shared_kv_layers

    @property
    def state_size(self) -> int:
        """Numbers in a conversation's state of all layers that recur."""
        return 0 if self.recurrence is None else len(self.delta_layers) * self.recurrence.state_size

    @property
    def recurrence(self) -> DeltaSpec | ShortConvSpec | None:
        """The operator that replaces attention in layers with a state; None without such layers."""
        return self.short_conv if self.delta is None else self.delta

    @property
    def rotated(self) -> int:
        """Rotated values per head."""
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    @property
    def head_shapes(self) -> tuple[tuple[int, int], ...]:
        """Number and size of the heads of keys: of layers without a window, and of those with one if they differ."""
        main = self.n_kv_heads, self.head_dim
        local = self.local_kv_heads or self.n_kv_heads, self.local_head_dim or self.head_dim
        return (main, local) if self.has_local_heads else (main,)

    @property
    def q_width(self) -> int:
        """Values of all query heads of a position, at most."""
        return self.n_heads * max(size for _, size in self.head_shapes)

    @property
    def kv_width(self) -> int:
        """Values of all key heads of a position, at most."""
        return max(n * size for n, size in self.head_shapes)

    @property
    def most_rotated(self) -> int:
        """Rotated values per head, at most."""
        return max(self.rotated, self.local_head_dim or 0)

    def kv_layout(self, codec: KvCodec, local: bool = False) -> KvLayout:
        """Return how a layer's keys and values are stored. local: of heads that only layers with a window have."""
        head_dim = (self.local_head_dim if local else None) or self.head_dim
        return KvLayout(head_dim, codec, shared=self.latent is not None)

    @property
    def layer_embedding_scale(self) -> float:
        """Factor on a token's embeddings for the layers."""
        return math.sqrt(self.layer_embedding_dim / 2)

    @property
    def has_local_heads(self) -> bool:
        """Whether layers with a window have key-value heads of another number or size."""
        return self.local_head_dim is not None or self.local_kv_heads is not None

    @property
    def walks_by_layer(self) -> bool:
        """Whether all text can be run through one layer after another, as training and counting do."""
        others = self.n_shared_kv_layers or self.layer_embedding_dim or self.shared_apart or not self.causal
        return not (others or self.mixer_only_layers)

    @property
    def predicts_neurons(self) -> bool:
        """Return whether predictors of active neurons can be trained."""
        return self.has_zeros and self.walks_by_layer and not (self.n_experts and self.weighed_inputs)

    def ffn_width(self, layer: int) -> int:
        """Return the neurons of the layer's FFN, or of each of its experts; 0 without an FFN."""
        if layer in self.mixer_only_layers:
            return 0
        if self.is_dense(layer):
            return self.dense_d_ff
        return self.d_ff_by_layer[layer] if self.d_ff_by_layer else self.d_ff

    def is_dense(self, layer: int) -> bool:
        """Return whether the layer has one FFN of dense_d_ff neurons, in a model with experts in others."""
        return layer < self.n_dense_layers or (layer + 1) % self.experts_every > 0

    def window(self, layer: int) -> int | None:
        """Return how many positions a query of the layer sees, itself included; None: all before it."""
        return (self.windows[layer] or None) if self.windows else None


@dataclass(frozen=True)
class SamplingConfig:
    """How much to think, how to choose the next token, and when to stop. Temperature 0 is greedy."""

    temperature: float = 0.7
    top_k: int = 40  # 0: off
    top_p: float = 0.95  # 1: off
    min_p: float = 0.0  # 0: off
    repeat_penalty: float = 1.0  # 1: off
    seed: int | None = None  # None: random
    max_tokens: int | None = None  # None: until the model stops or the context is full
    stop: tuple[str, ...] = ()
    thinking: Level | None = None  # the nearest level that the chat template has; None: as it does by itself
    thought_tokens: int | None = None  # of a thought, after which it is ended; None: no limit

    def __post_init__(self) -> None:
        ranges = {"temperature": (0.0, 10.0), "top_p": (0.0, 1.0), "min_p": (0.0, 1.0), "repeat_penalty": (0.01, 10.0),
                  "top_k": (0, 1 << 21)}  # fmt: skip
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if not _is_number(value, whole=name == "top_k") or not low <= value <= high:
                raise InvalidRequestError(f"{name} is {value!r}; it must be between {low} and {high}.")
        if self.max_tokens is not None and (not _is_number(self.max_tokens, whole=True) or self.max_tokens < 1):
            raise InvalidRequestError(f"max_tokens is {self.max_tokens!r}; at least 1 is needed.")
        if self.thinking is not None and self.thinking not in LEVELS:
            levels = ", ".join(LEVELS)
            raise InvalidRequestError(f"thinking is {self.thinking!r}; it must be one of {levels}.")
        if self.thought_tokens is not None and (not _is_number(self.thought_tokens, True) or self.thought_tokens < 0):
            raise InvalidRequestError(f"thought_tokens is {self.thought_tokens!r}; a whole number from 0 is needed.")
        if self.seed is not None and (not _is_number(self.seed, whole=True) or not 0 <= self.seed < 1 << 63):
            raise InvalidRequestError(f"The seed {self.seed!r} must be between 0 and 2^63 - 1.")
        if not isinstance(self.stop, tuple) or not all(isinstance(text, str) for text in self.stop):
            raise InvalidRequestError(f"stop is {self.stop!r}; a list of texts is needed.")

    def changed(self, values: dict[str, Any]) -> SamplingConfig:
        """Return a copy with the given fields replaced. Raises: InvalidRequestError for unknown names."""
        known = {field.name for field in fields(self)}
        if unknown := sorted(set(values) - known):
            raise InvalidRequestError(f"Unknown sampling value {unknown[0]!r}; supported: {', '.join(sorted(known))}.")
        if isinstance(values.get("stop"), list):
            values = {**values, "stop": tuple(values["stop"])}
        return replace(self, **values)


@dataclass(frozen=True)
class EngineConfig:
    """How to run a model on this machine."""

    device: Device = "auto"
    threads: int | None = None  # None: usable physical cores - 1, at least 1
    context: int | None = None  # tokens; None: the training context, if memory allows
    mode: Mode = "auto"
    vram_budget_gib: float | None = None
    hardware_file: str | None = None
    backend: BackendName = "auto"  # CPU backend; auto: compiled kernels if they can run
    kv_cache: KvCodec | None = None  # None: f16 with kernels, f32 with the reference
    template: str | None = None  # name of a built-in chat template; None: the model's, or a suitable one
    activation: str | None = None  # NAME or NAME:threshold, overrides the files
    sequences: int = 1  # sequences at once, each with this context
    adapt: bool = True  # whether hot neurons follow the chats; off: the placement stays
    draft: str = "auto"  # a smaller model that guesses tokens: MODEL, "off", or "auto": an installed one if it pays

    def __post_init__(self) -> None:
        if not isinstance(self.draft, str) or not self.draft:
            raise InvalidRequestError(f'draft is {self.draft!r}; a model, "auto" or "off" is needed.')
        if not isinstance(self.adapt, bool):
            raise InvalidRequestError(f"adapt is {self.adapt!r}; true or false is needed.")
        if not (_is_number(self.sequences, whole=True) and 1 <= self.sequences <= 32):
            raise InvalidRequestError(f"{self.sequences!r} sequences at once were asked for; 1 to 32 can be decoded.")
        if self.mode not in MODES:
            raise InvalidRequestError(f"Unknown mode {self.mode!r}; supported: {', '.join(MODES)}.")
        if self.device not in DEVICES:
            raise InvalidRequestError(f"Unknown device {self.device!r}; supported: {', '.join(DEVICES)}.")
        if self.backend not in BACKENDS:
            raise InvalidRequestError(f"Unknown backend {self.backend!r}; supported: {', '.join(BACKENDS)}.")
        if self.kv_cache is not None and self.kv_cache not in KV_CODECS:
            raise InvalidRequestError(
                f"Unknown codec {self.kv_cache!r} for keys and values; supported: {', '.join(KV_CODECS)}."
            )
        if self.threads is not None and not (_is_number(self.threads, whole=True) and 1 <= self.threads <= 1024):
            raise InvalidRequestError(f"threads is {self.threads!r}; it must be between 1 and 1024.")
        if self.context is not None and not (_is_number(self.context, whole=True) and 8 <= self.context <= 1 << 24):
            raise InvalidRequestError(f"context is {self.context!r}; it must be between 8 and {1 << 24} tokens.")
        budget = self.vram_budget_gib
        if budget is not None and not (_is_number(budget) and 0 < budget <= 4096):
            raise InvalidRequestError(f"The VRAM budget is {budget!r} GiB; it must be above 0, and up to 4096.")
        if self.hardware_file is not None and not isinstance(self.hardware_file, str):
            raise InvalidRequestError(f"The hardware file is {self.hardware_file!r}; a path is needed.")
        if self.activation is not None:
            parse_activation(self.activation)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> EngineConfig:
        """Create from plain values of the protocol. Raises: InvalidRequestError for unknown names."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise InvalidRequestError(f"Unknown engine setting {unknown[0]!r}; supported: {', '.join(sorted(known))}.")
        return cls(**values)


def plain_values(config: ModelConfig | SamplingConfig) -> dict[str, Any]:
    """Return a frozen config as plain JSON values."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}


def _is_number(value: object, whole: bool = False) -> bool:
    """Return whether an external value is a number; booleans are not."""
    return isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
