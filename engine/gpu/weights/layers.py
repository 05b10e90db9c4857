"""What of a model lies on the GPU, layer by layer, as addresses; it holds nothing and computes nothing.

A layer's home is where its attention is: on the GPU then are also its norms, its keys and values and its predictor,
and of its neurons the hot ones. A layer whose home is the CPU is computed there altogether.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from native_kernels.cuda.gpu import GpuBlock, GpuExperts, GpuKv, GpuMatrix, GpuNorm

PredictorKind = Literal["low_rank", "gate_copy", "cascade", "sign", "true_gate"]


@dataclass(frozen=True)
class GpuLowRank:
    """As engine.sparsity.predictor_kinds.LowRank; biases 0: none."""

    a: GpuMatrix  # [R, D]
    b: GpuMatrix  # [F, R]
    a_bias: int
    b_bias: int
    threshold: float


@dataclass(frozen=True)
class GpuCopy:
    """As engine.sparsity.predictor_kinds.GateCopy."""

    matrix: GpuMatrix  # [F, D]
    bias: int
    threshold: float
    signed_input: bool


@dataclass(frozen=True)
class GpuPredictor:
    """As engine.sparsity.predictor_kinds.LayerPredictor; without parts every neuron is expected (true_gate)."""

    low_rank: GpuLowRank | None
    copy: GpuCopy | None
    reads_residual: bool  # the low rank part; copies read the normed input


@dataclass(frozen=True)
class GpuRowWiseFfn:
    """All of a feed-forward block whose down lies row-wise: gate, up [F, D], down [D, F]."""

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
    shared_weight: address of that 1 in a layer without a router, else 0.
    """

    router: GpuMatrix | None
    router_bias: int
    slot_of: int
    resident: GpuExperts | None
    shared: GpuExperts | None
    shared_gate: GpuMatrix | None
    selection_bias: int = 0
    shared_weight: int = 0

    @property
    def blocks(self) -> tuple[GpuExperts, ...]:
        """The experts that the GPU computes: the resident ones and the shared one."""
        return tuple(one for one in (self.resident, self.shared) if one is not None)


@dataclass(frozen=True)
class GpuLayer:
    """A layer whose home is the GPU. Addresses of biases, 0: none; norms that the family lacks are None.

    block: its hot neurons, None where there are none. hot_bits: u32 [F / 32 rounded up], set for neurons with a slot; 0
    without any. whole: instead of a block, where down lies row-wise. has_cold: whether the CPU computes any of
    its neurons. reached: neurons that are in the RAM and that the GPU computes all the same: their matrices lie in
    pinned memory, which it reads over the bus; None where it does not pay. experts: instead of neurons. sinks: f32 [H].
    """

    q: GpuMatrix
    k: GpuMatrix
    v: GpuMatrix
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
    kv: GpuKv
    predictor: GpuPredictor | None
    block: GpuBlock | None
    hot_bits: int
    whole: GpuRowWiseFfn | None
    down_bias: int
    has_cold: bool
    reached: GpuBlock | None = None
    experts: GpuExpertFfn | None = None
    sinks: int = 0

    @property
    def blocks(self) -> tuple[GpuBlock, ...]:
        """Those that there are, in the order of their slots."""
        return tuple(block for block in (self.block, self.reached) if block is not None)


@dataclass(frozen=True)
class GpuModel:
    """layers: None for one whose home is the CPU. head: None where the CPU has it; with it the final norm
    and OPT-350M's projection."""

    layers: tuple[GpuLayer | None, ...]
    head: GpuMatrix | None
    final_norm: GpuNorm | None
    project_out: GpuMatrix | None
