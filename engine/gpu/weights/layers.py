"""What of a model lies on the card, layer by layer, as addresses; it holds nothing and computes nothing.

A layer's home is where its attention is: on the card then are also its norms, its keys and values and its predictor,
and of its neurons the hot ones. A layer whose home is the processor is computed there altogether.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from native_kernels.cuda.card import CardBlock, CardKv, CardMatrix, CardNorm

PredictorKind = Literal["low_rank", "gate_copy", "cascade", "sign", "true_gate"]


@dataclass(frozen=True)
class CardLowRank:
    """As engine.sparsity.predictor_kinds.LowRank; biases 0: none."""

    a: CardMatrix  # [R, D]
    b: CardMatrix  # [F, R]
    a_bias: int
    b_bias: int
    threshold: float


@dataclass(frozen=True)
class CardCopy:
    """As engine.sparsity.predictor_kinds.GateCopy."""

    matrix: CardMatrix  # [F, D]
    bias: int
    threshold: float
    signed_input: bool


@dataclass(frozen=True)
class CardPredictor:
    """As engine.sparsity.predictor_kinds.LayerPredictor; without parts every neuron is expected (true_gate)."""

    low_rank: CardLowRank | None
    copy: CardCopy | None
    reads_residual: bool  # the low rank part; copies read the normed input


@dataclass(frozen=True)
class CardRowWiseFfn:
    """All of a feed-forward block whose down lies row-wise: gate, up [F, D], down [D, F]."""

    gate: CardMatrix | None
    up: CardMatrix
    down: CardMatrix
    gate_bias: int
    up_bias: int


@dataclass(frozen=True)
class CardLayer:
    """A layer whose home is the card. Addresses of biases, 0: none; norms that the family lacks are None.

    block: its hot neurons, None where there are none. hot_bits: u32 [F / 32 rounded up], set for neurons with a slot; 0
    without any. whole: instead of a block, where down lies row-wise. has_cold: whether the processor computes any of
    its neurons. reached: neurons that are in the RAM and that the card computes all the same: their matrices lie in
    pinned memory, which it reads over the bus; None where it does not pay.
    """

    q: CardMatrix
    k: CardMatrix
    v: CardMatrix
    o: CardMatrix
    q_bias: int
    k_bias: int
    v_bias: int
    o_bias: int
    attention_norm: CardNorm | None
    post_attention_norm: CardNorm | None
    ffn_norm: CardNorm | None
    post_ffn_norm: CardNorm | None
    q_norm: CardNorm | None
    k_norm: CardNorm | None
    kv: CardKv
    predictor: CardPredictor | None
    block: CardBlock | None
    hot_bits: int
    whole: CardRowWiseFfn | None
    down_bias: int
    has_cold: bool
    reached: CardBlock | None = None

    @property
    def blocks(self) -> tuple[CardBlock, ...]:
        """Those that there are, in the order of their slots."""
        return tuple(block for block in (self.block, self.reached) if block is not None)


@dataclass(frozen=True)
class CardModel:
    """layers: None for one whose home is the processor. head: None where the processor has it; with it the final norm
    and OPT-350M's projection."""

    layers: tuple[CardLayer | None, ...]
    head: CardMatrix | None
    final_norm: CardNorm | None
    project_out: CardMatrix | None
