"""The GPU addresses of a model, layer by layer. Data only.

A layer is placed where its attention is. A layer on the GPU also has its norms, KV cache, predictor and hot neurons
there. A layer on the CPU is computed there entirely.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.graph import AttentionSpec
from native_kernels.cuda.gpu import GpuBlock, GpuDelta, GpuExperts, GpuHeads, GpuKv, GpuMatrix, GpuNorm, GpuShortConv


@dataclass(frozen=True)
class GpuLowRank:
    """predictor_kinds.LowRank in GPU memory. a_bias, b_bias: addresses of float32; 0: none."""

    a: GpuMatrix  # [R, D]
    b: GpuMatrix  # [F, R]
    a_bias: int
    b_bias: int
    threshold: float


@dataclass(frozen=True)
class GpuCopy:
    """predictor_kinds.GateCopy in GPU memory. bias: address of float32 [F]; 0: none."""

    matrix: GpuMatrix  # [F, D]
    bias: int
    threshold: float
    signed_input: bool


@dataclass(frozen=True)
class GpuPredictor:
    """predictor_kinds.LayerPredictor in GPU memory. Without both (true_gate), it selects every neuron."""

    low_rank: GpuLowRank | None
    copy: GpuCopy | None
    reads_residual: bool  # of low_rank; copies read the normed input


@dataclass(frozen=True)
class GpuRowWiseFfn:
    """A whole FFN with row-wise down: gate, up [F, D], down [D, F]."""

    gate: GpuMatrix | None
    up: GpuMatrix
    down: GpuMatrix
    gate_bias: int
    up_bias: int


@dataclass(frozen=True)
class GpuExpertFfn:
    """A layer's router, its resident experts, and its shared expert, which is always on the GPU.

    router: None for a layer without experts, whose only FFN is `shared`. slot_of: i32 [E], the slot of each expert;
    negative: not resident. resident: None without slots. shared_gate: [1, D]; None: the shared expert's weight is 1.
    shared_weight: address of that 1 in a layer without a router, else 0. scale f32 [E]: factors on experts' weights.
    """

    router: GpuMatrix | None
    router_bias: int
    slot_of: int
    resident: GpuExperts | None
    shared: GpuExperts | None
    shared_gate: GpuMatrix | None
    selection_bias: int = 0
    scale: int = 0
    shared_weight: int = 0

    @property
    def blocks(self) -> tuple[GpuExperts, ...]:
        """The resident and shared experts, if any."""
        return tuple(one for one in (self.resident, self.shared) if one is not None)


@dataclass(frozen=True)
class GpuDeltaNet:
    """A gated delta net or Mamba-2 besides q, k, v and o: its other projections and its weights.

    projections: of the gate [V, D], of alpha [value_heads, D] and, not in Mamba-2, of beta [value_heads, D]. states:
    addresses of states [state_size], equally far apart. A run reads and writes the first two by turns. Of tokens that
    run together, the first reads the first one, and each writes one of the others behind the two, which the next reads.
    In a batch, sequence s has the two from 2 s on.
    """

    projections: tuple[GpuMatrix, ...]
    weights: GpuDelta
    states: tuple[int, ...]


@dataclass(frozen=True)
class GpuConvolution:
    """A short convolution besides its projections, which are q, k, v and o. states: as GpuDeltaNet's."""

    weights: GpuShortConv
    states: tuple[int, ...]


@dataclass(frozen=True)
class GpuLatentMatrices:
    """Latent attention's matrices besides q, k, v and o, whose shapes are those of LayerWeights."""

    q_down: GpuMatrix | None  # [query_rank, D]; then q reads its product, through q_norm
    k_up: GpuMatrix  # [H x rank, key_dim]


@dataclass(frozen=True)
class GpuInjection:
    """A layer's matrices of per-layer embeddings: gate [P, D] and projection [D, P]."""

    gate: GpuMatrix
    projection: GpuMatrix
    norm: GpuNorm | None


@dataclass(frozen=True)
class GpuMixing:
    """What a layer mixes N residual streams by: the router [N, D] and its norm.

    f32 addresses: mixture [N N, N], shares [N, N], scale [D].
    """

    router_norm: GpuNorm
    router: GpuMatrix
    mixture: int
    shares: int
    scale: int


@dataclass(frozen=True)
class GpuLowRankResidual:
    """A residual of rank R beside attention: left [R, D] and right [D, R]."""

    left: GpuMatrix
    right: GpuMatrix
    norm: GpuNorm | None


@dataclass(frozen=True)
class GpuLayer:
    """A layer placed on the GPU. Biases are addresses, 0: none. Norms that the family lacks are None.

    kv: None for a layer with a state or an FFN alone, which has no keys and values; those of another layer for a layer
    that reads them, whose k and v are None. q, o: without rows in a layer with an FFN alone. attention_gate: of gated
    attention.

    block: hot neurons in VRAM; None without any. hot_bits: address of u32 [F / 32 rounded up], set for neurons with a
    slot; 0 without slots. whole: instead of a block, if down is row-wise. has_cold: whether the CPU computes neurons or
    experts of the layer. zero_copy: neurons whose matrices the GPU reads in pinned memory; None without any.
    experts: instead of neurons. sinks: f32 [H]. v: None where v is k before its norm. scale: factor on the stream after
    the layer. injection: of a model with per-layer embeddings. mixing: of a model with several residual streams.
    """

    q: GpuMatrix
    k: GpuMatrix | None
    v: GpuMatrix | None
    o: GpuMatrix
    q_bias: int
    k_bias: int
    v_bias: int
    o_bias: int
    attention_norm: GpuNorm | None
    post_attention_norm: GpuNorm | None
    ffn_norm: GpuNorm | None
    post_ffn_norm: GpuNorm | None
    q_norm: GpuNorm | None
    k_norm: GpuNorm | None
    kv: GpuKv | None
    predictor: GpuPredictor | None
    block: GpuBlock | None
    hot_bits: int
    whole: GpuRowWiseFfn | None
    down_bias: int
    has_cold: bool
    zero_copy: GpuBlock | None = None
    experts: GpuExpertFfn | None = None
    sinks: int = 0
    attention_gate: GpuMatrix | None = None
    delta: GpuDeltaNet | None = None
    convolution: GpuConvolution | None = None
    latent: GpuLatentMatrices | None = None
    scale: float = 1.0
    router_norm: GpuNorm | None = None  # where a shared expert is apart, like the next three
    experts_norm: GpuNorm | None = None
    post_experts_norm: GpuNorm | None = None
    post_shared_norm: GpuNorm | None = None
    injection: GpuInjection | None = None
    mixing: GpuMixing | None = None
    laurel: GpuLowRankResidual | None = None

    @property
    def states(self) -> tuple[int, ...] | None:
        """The addresses of the layer's two states; None for a layer without."""
        keeps = self.delta or self.convolution
        return None if keeps is None else keeps.states

    @property
    def qkv(self) -> tuple[GpuMatrix, ...]:
        """q, and k and v as far as the layer has them."""
        return tuple(one for one in (self.q, self.k, self.v) if one is not None)

    @property
    def blocks(self) -> tuple[GpuBlock, ...]:
        """`block` and `zero_copy`, if any, in the order of their slots."""
        return tuple(block for block in (self.block, self.zero_copy) if block is not None)


def heads_of(spec: AttentionSpec, norms: tuple[GpuNorm | None, GpuNorm | None], eps: float) -> GpuHeads:
    """Return what is done to heads. norms: of q and k, if they have weights. eps: of norms without weights."""
    plain = GpuNorm("rms", 0, 0, eps)
    of_q, of_k = (plain, plain) if spec.qk_norm is not None and spec.norm_plain else norms
    return GpuHeads(spec.n_heads, of_q, of_k, plain if spec.v_norm else None, spec.v_is_k, spec.kv_from is None)


@dataclass(frozen=True)
class GpuLayerInputs:
    """Computes what a token adds to each layer: projection [L P, D] of its embedding, and a norm of each P numbers.

    streams: [D, D] each, from the embedding to the other residual streams.
    """

    projection: GpuMatrix
    norm: GpuNorm
    streams: tuple[GpuMatrix, ...] = ()


@dataclass(frozen=True)
class GpuModel:
    """layers: None for layers on the CPU. head: None if it is on the CPU; then so are final_norm and project_out.

    inputs: of a model with per-layer embeddings; None if the CPU computes them, as it does where it has layers.
    streams_out: of a head behind several residual streams, [D, D] each. head_bias: address of f32 [V]; 0: none.
    """

    layers: tuple[GpuLayer | None, ...]
    head: GpuMatrix | None
    final_norm: GpuNorm | None
    project_out: GpuMatrix | None
    inputs: GpuLayerInputs | None = None
    streams_out: tuple[GpuMatrix, ...] = ()
    head_bias: int = 0
