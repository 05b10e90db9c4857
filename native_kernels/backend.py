"""The operators that a backend offers, with their shapes, and the matrix they all read; it computes nothing itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from native_kernels.codecs import ROW_CODECS, Codec
from native_kernels.kv_blocks import KvLayout

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

# Of a feed-forward block's first matrix. drelu: ReLU, and ReLU on up as well. fatrelu: x where it exceeds a threshold.
# gelu is the exact one by the error function, gelu-tanh its common approximation. clamped-silu (gpt-oss): x times the
# logistic function of 1.702 x, of x up to a limit; up is brought within the limit, and 1 is added to it.
Activation = Literal["relu", "drelu", "fatrelu", "silu", "gelu", "gelu-tanh", "clamped-silu"]

# Which of a head's R rotated values turn together: (i, i + R / 2), or (2i, 2i + 1).
RopeOrder = Literal["halves", "interleaved"]

# Codecs whose data is an array of numbers; all the others are rows of bytes.
_DTYPES: dict[str, type[np.floating[Any]]] = {"f32": np.float32, "f16": np.float16}


@dataclass(frozen=True, eq=False)
class PackedMatrix:
    """A weight matrix, row by row. In the FFN a row is a neuron: gate, up and down_t are all [F, D].

    The data may be a read-only view of a mapped file, and rows may lie apart (of one neuron's gate, up and down_t
    side by side each is a matrix of its own); only the bytes of one row must lie together.

    codec: a name in native_kernels.codecs.ROW_CODECS.
    Shapes: data [n_rows, n_cols] in the dtype of its codec for f32 and f16, u8 [n_rows, row_bytes] for all others.
    """

    n_rows: int
    n_cols: int
    codec: str
    data: NDArray[Any]

    def __post_init__(self) -> None:
        if self.codec not in ROW_CODECS:
            raise ValueError(f"unknown codec {self.codec!r}; known are {', '.join(ROW_CODECS)}")
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
        """The matrix [n_rows, n_cols] in the given codec; f32 and f16 copy only where dtype or order differ.

        Raises: ValueError for a codec that is only read, or rows that are no whole blocks.
        """
        n_rows, n_cols = values.shape
        if codec in _DTYPES:
            return cls(n_rows, n_cols, codec, np.ascontiguousarray(values, dtype=_DTYPES[codec]))
        return cls(n_rows, n_cols, codec, ROW_CODECS[codec].encode(values))

    @classmethod
    def view(cls, data: U8, n_rows: int, n_cols: int, codec: str) -> PackedMatrix:
        """The matrix that these bytes hold, not copied: u8 [n_rows * row_bytes], or [n_rows, row_bytes] lying apart."""
        rows: NDArray[Any] = data.reshape(n_rows, -1) if n_rows else data.reshape(0, ROW_CODECS[codec].n_bytes(n_cols))
        return cls(n_rows, n_cols, codec, rows.view(_DTYPES.get(codec, np.uint8)))

    @property
    def block_codec(self) -> Codec:
        """How the data is read."""
        return ROW_CODECS[self.codec]

    @property
    def row_bytes(self) -> int:
        return self.block_codec.n_bytes(self.n_cols)

    @property
    def n_bytes(self) -> int:
        return int(self.data.nbytes)


@dataclass(frozen=True, eq=False)
class ExpertHidden:
    """What went into down for a batch of tokens, valid until the next one.

    values [R, F]: R = T K rows, of one expert's tokens after another's. experts i64 [G], ascending: those that any
    token needs; first i64 [G]: the first row of each. opened, fired: how many values passed the activation, and how
    many of them up's ReLU left.
    """

    values: F32
    experts: I64
    first: I64
    opened: int
    fired: int


class ExpertBatch(Protocol):
    """Computes the experts of a model for many tokens at once, layer by layer."""

    def takes(self, layer: int, matrices: Mapping[str, Sequence[PackedMatrix]] | None) -> bool:
        """Keep a layer's matrices: gate where there is one, up, and down or down_t, one of each expert.

        False where it cannot compute with them, or they are None.
        """

    def most_tokens(self, layer: int, n_used: int) -> int:
        """How many tokens, each with so many experts, are best given to one run."""

    def run(self, layer: int, x: F32, ids: I64, weights: F32) -> tuple[F32, ExpertHidden]:
        """Take x [T, D], each token through its experts ids [T, K], all different, and add up their outputs times
        weights [T, K] -> [T, D]."""


class Scoring(NamedTuple):
    """How attention makes weights of the products of queries and keys.

    scale: of the products; None: 1 / sqrt(head_dim). softcap: c tanh(x / c) of them; None: none. window: how many
    positions a query sees, itself included; None: all before it. sinks [H]: a score of each head that takes its share
    of the weights and has no value; None: none.
    """

    scale: float | None = None
    softcap: float | None = None
    window: int | None = None
    sinks: F32 | None = None


PLAIN_SCORING = Scoring()


class Operators(Protocol):
    """What the engine needs of a backend. Every array is float32 unless said otherwise; inputs are never changed.

    Dimension letters: T tokens, N output rows, D input width, F neurons, K active neurons, H heads.
    """

    @property
    def name(self) -> str:
        """What the backend is called in reports."""

    def why_unavailable(self) -> list[str]:
        """The reasons, one sentence each, why this backend cannot run here; empty when it can."""

    def rows(self, w: PackedMatrix, ids: I64) -> F32:
        """Rows of w [N, D] by number: ids [T] -> [T, D]. Used for the embedding."""

    def matmul(self, x: F32, w: PackedMatrix) -> F32:
        """x [T, D] times the rows of w [N, D] -> [T, N]."""

    def matmul_t(self, h: F32, w: PackedMatrix) -> F32:
        """For every token the sum of all rows of w [F, D] weighted with h [T, F] -> [T, D]."""

    def sparse_gemv(self, w: PackedMatrix, x: F32, ids: I32) -> F32:
        """Only the rows `ids` [K] of w [F, D] times x [D] -> [K]."""

    def sparse_axpy(self, w: PackedMatrix, values: F32, ids: I32) -> F32:
        """Sum of the rows `ids` [K] of w [F, D], weighted with values [K] -> [D]."""

    def rms_norm(self, x: F32, weight: F32, eps: float) -> F32:
        """x [T, D] over its root mean square, times weight [D] -> [T, D]."""

    def layer_norm(self, x: F32, weight: F32, bias: F32, eps: float) -> F32:
        """x [T, D] less its mean, over its standard deviation, times weight [D] plus bias [D] -> [T, D]."""

    def rope_angles(self, positions: I64, rotary_dim: int, theta: float, factors: F32 | None = None) -> tuple[F32, F32]:
        """Cosines and sines, [T, R / 2] each, of the rotary angles at positions [T]; R = rotary_dim.

        factors [R / 2] divide the frequencies, where positions are stretched over a longer context.
        """

    def rope(self, x: F32, cos: F32, sin: F32, order: RopeOrder = "halves") -> F32:
        """x [T, H, head_dim], its first R values rotated in pairs by the angles of cos and sin [T, R / 2].

        order: angle i turns the values i and i + R / 2 ("halves", as Hugging Face lays heads), or 2i and 2i + 1
        ("interleaved", as GGUF lays LLaMA's); they stay in that order. What lies behind R stays as it is.
        """

    def attention(
        self,
        q: F32,
        k: F32,
        v: F32,
        scoring: Scoring = PLAIN_SCORING,
    ) -> F32:
        """Causal attention of the last T of N positions: q [T, H, head_dim], k and v [N, H_kv, head_dim], N >= T.

        Head h reads key-value head h // (H / H_kv); query t sees the positions up to p = N - T + t, or of them those in
        the window. -> [T, H, head_dim]
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
        """Stores k and v [T, H_kv, head_dim] of new positions, and attends to all up to them; else as `attention`.

        blocks: u8 [H_kv, n_blocks, block_bytes], one layer's cache, holding `position` positions before; it is changed.
        """

    def relu(self, x: F32, threshold: float = 0.0) -> F32:
        """x where it exceeds the threshold, else 0, elementwise."""

    def silu(self, x: F32) -> F32:
        """x times the logistic function of x, elementwise."""

    def gelu(self, x: F32) -> F32:
        """x times the normal distribution function of x, elementwise."""

    def gelu_tanh(self, x: F32) -> F32:
        """The common approximation of gelu by tanh, elementwise."""

    def clamped_silu(self, x: F32, limit: float) -> F32:
        """min(x, limit) times the logistic function of 1.702 min(x, limit), elementwise."""

    def softcap(self, x: F32, cap: float) -> F32:
        """cap tanh(x / cap), elementwise."""

    def expert_batch(self, activation: Activation, threshold: float, relu_on_up: bool) -> ExpertBatch | None:
        """Return what computes experts with this activation for many tokens at once; None where nothing does.

        relu_on_up: up goes through ReLU as well.
        """
