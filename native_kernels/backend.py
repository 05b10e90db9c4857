"""The operators that a backend offers, with their shapes, and the matrix they all read; it computes nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Codec = Literal["f32", "f16"]
F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

_DTYPES: dict[str, type[np.floating[Any]]] = {"f32": np.float32, "f16": np.float16}


@dataclass(frozen=True, eq=False)
class PackedMatrix:
    """A weight matrix, row by row. In the FFN a row is a neuron: gate, up and down_t are all [F, D].

    Shapes: data [n_rows, n_cols], contiguous, in the dtype of its codec.
    """

    n_rows: int
    n_cols: int
    codec: Codec
    data: NDArray[Any]

    def __post_init__(self) -> None:
        if self.codec not in _DTYPES:
            raise ValueError(f"unknown codec {self.codec!r}; known are {', '.join(_DTYPES)}")
        if self.data.shape != (self.n_rows, self.n_cols) or self.data.dtype != _DTYPES[self.codec]:
            raise ValueError(
                f"data is {self.data.dtype} {self.data.shape}; {self.codec} ({self.n_rows}, {self.n_cols}) was declared"
            )
        if not self.data.flags.c_contiguous:
            raise ValueError("the rows of a packed matrix must lie one after another")

    @classmethod
    def pack(cls, values: NDArray[Any], codec: Codec) -> PackedMatrix:
        """The matrix [n_rows, n_cols] in the given codec; copies only where dtype or order differ."""
        data = np.ascontiguousarray(values, dtype=_DTYPES[codec])
        return cls(data.shape[0], data.shape[1], codec, data)

    @property
    def row_bytes(self) -> int:
        return self.n_cols * self.data.itemsize

    @property
    def n_bytes(self) -> int:
        return int(self.data.nbytes)


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

    def rope(self, x: F32, cos: F32, sin: F32) -> F32:
        """x [T, H, head_dim], its first R values rotated in pairs (i, i + R / 2); cos and sin are [T, R / 2].

        That is the layout of Hugging Face's LLaMA. What lies behind R stays as it is.
        """

    def attention(
        self,
        q: F32,
        k: F32,
        v: F32,
        scale: float | None = None,
        softcap: float | None = None,
        window: int | None = None,
    ) -> F32:
        """Causal attention of the last T of N positions: q [T, H, head_dim], k and v [N, H_kv, head_dim], N >= T.

        Head h reads key-value head h // (H / H_kv); query t sees the positions up to p = N - T + t, of them the last
        `window` where one is given. Scores are q k scale (None: 1 / sqrt(head_dim)), with a softcap c become
        c tanh(score / c). -> [T, H, head_dim]
        """

    def relu(self, x: F32, threshold: float = 0.0) -> F32:
        """x where it exceeds the threshold, else 0, elementwise."""

    def silu(self, x: F32) -> F32:
        """x times the logistic function of x, elementwise."""

    def gelu(self, x: F32) -> F32:
        """x times the normal distribution function of x, elementwise."""

    def gelu_tanh(self, x: F32) -> F32:
        """The common approximation of gelu by tanh, elementwise."""

    def softcap(self, x: F32, cap: float) -> F32:
        """cap tanh(x / cap), elementwise."""
