"""Define the operators that a backend offers, with their shapes, and the matrix type that they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from native_kernels.codecs import ROW_CODECS, Codec
from native_kernels.kv_blocks import KvLayout
from native_kernels.specs import DeltaSpec, ShortConvSpec, Temperature

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

# Activation of an FFN's gate. relu2: the square of ReLU. drelu: ReLU on gate and up. fatrelu: x where it exceeds a
# threshold, else 0. gelu: exact, by the error function. gelu-tanh: its tanh approximation. clamped-silu (gpt-oss): x
# times the logistic function of 1.702 x, with x up to a limit; up is clamped to the limit, plus 1.
Activation = Literal["relu", "relu2", "drelu", "fatrelu", "silu", "gelu", "gelu-tanh", "clamped-silu"]

# Which of a head's R rotated values form a pair: (i, i + R / 2), or (2i, 2i + 1).
RopeOrder = Literal["halves", "interleaved"]

# Codecs stored as arrays of numbers; all others are rows of bytes.
_DTYPES: dict[str, type[np.floating[Any]]] = {"f32": np.float32, "f16": np.float16}


@dataclass(frozen=True, eq=False)
class PackedMatrix:
    """A weight matrix, stored by rows. In the FFN a row is a neuron: gate, up and down_t are all [F, D].

    The data may be a read-only view of a mapped file. The bytes of one row must be contiguous; the rows need not be, so
    that gate, up and down_t of a neuron can be stored side by side.

    codec: a name in native_kernels.codecs.ROW_CODECS.
    Shapes: data [n_rows, n_cols] in the codec's dtype for f32 and f16, u8 [n_rows, row_bytes] for all others.
    """

    n_rows: int
    n_cols: int
    codec: str
    data: NDArray[Any]

    def __post_init__(self) -> None:
        if self.codec not in ROW_CODECS:
            raise ValueError(f"unknown codec {self.codec!r}; supported: {', '.join(ROW_CODECS)}")
        dtype = np.dtype(_DTYPES.get(self.codec, np.uint8))
        width = self.n_cols if self.codec in _DTYPES else self.block_codec.n_bytes(self.n_cols)
        data = self.data
        if data.shape != (self.n_rows, width) or data.dtype != dtype:
            raise ValueError(
                f"data is {data.dtype} {data.shape}; {self.codec} ({self.n_rows}, {self.n_cols}), "
                f"that is {dtype} ({self.n_rows}, {width}), was declared"
            )
        in_one_piece = width <= 1 or data.strides[1] == dtype.itemsize
        if not in_one_piece or (self.n_rows > 1 and data.strides[0] < self.row_bytes):
            raise ValueError("the rows of a packed matrix must lie one after another, each in one piece")

    @classmethod
    def pack(cls, values: NDArray[Any], codec: str) -> PackedMatrix:
        """Encode a matrix [n_rows, n_cols]. f32 and f16 are copied only if the dtype or the memory order differs.

        Raises: ValueError for a codec that cannot encode, or rows that are not whole blocks.
        """
        n_rows, n_cols = values.shape
        if codec in _DTYPES:
            return cls(n_rows, n_cols, codec, np.ascontiguousarray(values, dtype=_DTYPES[codec]))
        return cls(n_rows, n_cols, codec, ROW_CODECS[codec].encode(values))

    @classmethod
    def view(cls, data: U8, n_rows: int, n_cols: int, codec: str) -> PackedMatrix:
        """View bytes as a matrix, without a copy: u8 [n_rows * row_bytes], or strided u8 [n_rows, row_bytes]."""
        rows: NDArray[Any] = data.reshape(n_rows, -1) if n_rows else data.reshape(0, ROW_CODECS[codec].n_bytes(n_cols))
        return cls(n_rows, n_cols, codec, rows.view(_DTYPES.get(codec, np.uint8)))

    def split(self, n: int) -> tuple[PackedMatrix, ...]:
        """Return views of n equal parts, of consecutive rows each."""
        rows = self.n_rows // n
        return tuple(
            PackedMatrix(rows, self.n_cols, self.codec, self.data[rows * i : rows * (i + 1)]) for i in range(n)
        )

    @property
    def block_codec(self) -> Codec:
        return ROW_CODECS[self.codec]

    @property
    def row_bytes(self) -> int:
        return self.block_codec.n_bytes(self.n_cols)

    @property
    def n_bytes(self) -> int:
        return int(self.data.nbytes)


@dataclass(frozen=True, eq=False)
class ExpertHidden:
    """The input of down for a batch of tokens, valid until the next batch.

    values [R, F]: R = T K rows, grouped by expert. experts i64 [G]: the experts in use, ascending. first i64 [G]: the
    first row of each. opened, fired: how many values passed the activation, and how many of those passed ReLU on up.
    """

    values: F32
    experts: I64
    first: I64
    opened: int
    fired: int


class ExpertBatch(Protocol):
    """Computes a model's experts for many tokens at once, layer by layer."""

    def takes(
        self, layer: int, matrices: Mapping[str, Sequence[PackedMatrix]], biases: Mapping[str, Sequence[F32]]
    ) -> bool:
        """Keep a layer's matrices: gate (if any), up, and down or down_t, one matrix per expert of each; and the biases
        gate_bias, up_bias and down_bias, if any.

        Return False if they cannot be computed with.
        """

    def most_tokens(self, layer: int, n_used: int) -> int:
        """Return the largest sensible number of tokens for one run if each uses n_used experts."""

    def run(self, layer: int, x: F32, ids: I64, weights: F32) -> tuple[F32, ExpertHidden]:
        """Add the outputs of the distinct experts ids [T, K] for x [T, D], times weights [T, K] -> [T, D].

        A negative id: none.
        """


class Scoring(NamedTuple):
    """How attention turns products of queries and keys into weights.

    scale: factor of the products; None: 1 / sqrt(head_dim). softcap c: they become c tanh(x / c); None: unchanged.
    window: number of positions that a query sees, including its own; None: all up to it. sinks [H]: an extra score per
    head that takes a share of the weights and has no value; None: none. temperature: None: queries do not change.
    chunked: the positions are in chunks of `window`, and a query sees those of its own chunk up to it. causal: False: a
    query sees the positions after it too, without a window.
    """

    scale: float | None = None
    softcap: float | None = None
    window: int | None = None
    sinks: F32 | None = None
    temperature: Temperature | None = None
    chunked: bool = False
    causal: bool = True


PLAIN_SCORING = Scoring()


class DeltaInput(NamedTuple):
    """Projections of T positions for a gated delta net or a Mamba-2 layer.

    Shapes: qkv [T, channels]: queries, keys, values as DeltaSpec.starts orders them. gate [T, H_v x value_dim]. alpha,
    beta [T, H_v]: how much is forgotten, and how strongly the new value is written, both before their activation. In
    Mamba-2, alpha (the time step) decides both, and beta is [T, 0].
    """

    qkv: F32
    gate: F32
    alpha: F32
    beta: F32

    def rows(self, some: slice) -> DeltaInput:
        return DeltaInput(*(one[some] for one in self))


class DeltaWeights(NamedTuple):
    """Weights of a gated delta net or a Mamba-2 layer besides its projections.

    Shapes: conv [channels x conv_width], one channel after another, the oldest position first. decay [H_v]: negative.
    alpha_bias [H_v]. norm [norm_size]: weight of the RMS norm of the output; epsilon belongs to it. conv_bias
    [channels]. skip [H_v], of Mamba-2: a head's value times this is added to its output.
    """

    conv: F32
    decay: F32
    alpha_bias: F32
    norm: F32
    epsilon: float
    conv_bias: F32 | None = None
    skip: F32 | None = None


class ShortConvInput(NamedTuple):
    """Projections of T positions for a gated short convolution, [T, channels] each.

    values times gate_in is convolved; the result is multiplied by gate.
    """

    values: F32
    gate_in: F32
    gate: F32

    def rows(self, some: slice) -> ShortConvInput:
        return ShortConvInput(*(one[some] for one in self))


class Operators(Protocol):
    """The operators that the engine needs. Arrays are float32 unless stated otherwise; inputs are never changed.

    Dimension letters: T tokens, N output rows, D input width, F neurons, K active neurons, H heads.
    """

    @property
    def name(self) -> str:
        """Name of the backend in reports."""

    def why_unavailable(self) -> list[str]:
        """Return why this backend cannot run here, one sentence per reason; empty if it can."""

    def rows(self, w: PackedMatrix, ids: I64) -> F32:
        """Return rows of w [N, D] by index: ids [T] -> [T, D]. Used for the embedding."""

    def matmul(self, x: F32, w: PackedMatrix) -> F32:
        """Multiply x [T, D] by the rows of w [N, D] -> [T, N]."""

    def matmul_t(self, h: F32, w: PackedMatrix) -> F32:
        """Return for each token the sum of the rows of w [F, D] weighted by h [T, F] -> [T, D]."""

    def sparse_gemv(self, w: PackedMatrix, x: F32, ids: I32) -> F32:
        """Multiply only the rows `ids` [K] of w [F, D] by x [D] -> [K]."""

    def sparse_axpy(self, w: PackedMatrix, values: F32, ids: I32) -> F32:
        """Return the sum of the rows `ids` [K] of w [F, D] weighted by values [K] -> [D]."""

    def rms_norm(self, x: F32, weight: F32, eps: float) -> F32:
        """Divide x [T, D] by its root mean square and multiply by weight [D] -> [T, D]."""

    def layer_norm(self, x: F32, weight: F32, bias: F32, eps: float) -> F32:
        """Normalise x [T, D] to mean 0 and variance 1, times weight [D], plus bias [D] -> [T, D]."""

    def rope_angles(self, positions: I64, rotary_dim: int, theta: float, factors: F32 | None = None) -> tuple[F32, F32]:
        """Return the cosines and sines, [T, R / 2] each, of the rotary angles at positions [T]; R = rotary_dim.

        factors [R / 2] divide the frequencies, for models with a stretched context.
        """

    def rope(self, x: F32, cos: F32, sin: F32, order: RopeOrder = "halves") -> F32:
        """Rotate pairs of the first R values of x [T, H, head_dim] by the angles of cos and sin [T, R / 2].

        order: angle i rotates the values i and i + R / 2 ("halves", Hugging Face's layout) or 2i and 2i + 1
        ("interleaved", GGUF's layout of LLaMA). Values keep their order; those from R on stay unchanged.
        """

    def attention(
        self,
        q: F32,
        k: F32,
        v: F32,
        scoring: Scoring = PLAIN_SCORING,
    ) -> F32:
        """Attention of the last T of N positions: q [T, H, head_dim], k and v [N, H_kv, head_dim], N >= T.

        Head h reads key-value head h // (H / H_kv). Query t sees the positions up to p = N - T + t, limited to the
        window. -> [T, H, head_dim]
        """

    def cached_attention(
        self,
        q: F32,
        k: F32,
        v: F32,
        blocks: U8,
        layout: KvLayout,
        position: int,
        scoring: Scoring = PLAIN_SCORING,
    ) -> F32:
        """Store k and v [T, H_kv, head_dim] of new positions and attend to all up to them, else as `attention`.

        k and v are empty [0, H_kv, head_dim] if the blocks hold those of the T positions already.
        blocks: u8 [H_kv, n_blocks, block_bytes], one layer's cache, which already holds `position` positions; modified.
        """

    def gated_delta(self, x: DeltaInput, w: DeltaWeights, spec: DeltaSpec, before: F32, after: F32) -> F32:
        """Run a gated delta net or a Mamba-2 layer over T positions -> [T, H_v x value_dim].

        before: the state [state_size] that the positions continue, not changed. after: receives the new state; another
        array than before.

        q, k and v go through a causal convolution per channel and SiLU; q and k are scaled to length 1 per head, q then
        by key_dim ^ -0.5. Each position decays the head's matrix S by exp(decay softplus(alpha + alpha_bias)), adds
        k (v - S^T k) logistic(beta), and reads S^T q, which is normed and multiplied by SiLU of the gate.
        Source: Yang et al., Gated Delta Networks, arXiv 2412.06464, equation 10.

        Mamba-2: q and k are not scaled. With step = softplus(alpha + alpha_bias), S decays by exp(decay step), k (step
        v) is added, and S^T q + skip v is multiplied by SiLU of the gate, then normed in groups.
        Source: Dao and Gu, Transformers are SSMs, arXiv 2405.21060.
        """

    def short_conv(self, x: ShortConvInput, conv: F32, spec: ShortConvSpec, before: F32, after: F32) -> F32:
        """Run a gated short convolution over T positions -> [T, channels].

        conv [channels x conv_width]: one channel after another, the oldest position first. before: the state
        [state_size] that the positions continue, not changed. after: receives the new state; another array than before.
        """

    def gated(self, x: F32, gate: F32) -> F32:
        """Return x times the logistic function of gate, elementwise."""

    def relu(self, x: F32, threshold: float = 0.0) -> F32:
        """Return x where it exceeds the threshold, else 0, elementwise."""

    def relu2(self, x: F32) -> F32:
        """Return the square of x where it exceeds 0, else 0, elementwise."""

    def silu(self, x: F32) -> F32:
        """Return x times its logistic function, elementwise."""

    def gelu(self, x: F32) -> F32:
        """Return x times the normal distribution function of x, elementwise."""

    def gelu_tanh(self, x: F32) -> F32:
        """Return the tanh approximation of gelu, elementwise."""

    def clamped_silu(self, x: F32, limit: float) -> F32:
        """Return min(x, limit) times the logistic function of 1.702 min(x, limit), elementwise."""

    def softcap(self, x: F32, cap: float) -> F32:
        """Return cap tanh(x / cap), elementwise."""

    def expert_batch(self, activation: Activation, threshold: float, relu_on_up: bool) -> ExpertBatch | None:
        """Return an object that computes experts with this activation for many tokens at once, or None if unsupported.

        relu_on_up: up goes through ReLU as well.
        """
