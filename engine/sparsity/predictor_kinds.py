"""The parts of one layer's predictor, and the neurons that they select.

Paper: PowerInfer, section 5.1 (low rank).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFormatError
from native_kernels.backend import F32, Operators, PackedMatrix
from native_kernels.codecs import COPY_CODECS
from native_kernels.copies import signs

Kind = Literal["low_rank", "gate_copy", "cascade", "sign", "true_gate"]
Input = Literal["residual", "normed"]
KINDS: tuple[Kind, ...] = ("low_rank", "gate_copy", "cascade", "sign", "true_gate")


@dataclass(frozen=True, eq=False)
class LowRank:
    """score = b relu(a x + a_bias) + b_bias; a neuron passes if its score reaches the threshold. R: its rank.

    With experts, F counts the neurons of all of them, and a token reads b's rows of the chosen experts only: read_share
    of b and of its bias.
    """

    a: PackedMatrix  # [R, D]
    b: PackedMatrix  # [F, R]
    a_bias: F32 | None = None  # [R]
    b_bias: F32 | None = None  # [F]
    threshold: float = 0.0  # score 0 means a probability of one half
    read_share: float = 1.0

    def __post_init__(self) -> None:
        if self.b.n_cols != self.a.n_rows:
            raise ModelFormatError(
                f"A predictor of rank {self.a.n_rows} has {self.b.n_cols} columns in its second half."
            )
        _check_bias(self.a_bias, self.a.n_rows)
        _check_bias(self.b_bias, self.b.n_rows)
        _check_threshold(self.threshold)

    @property
    def rank(self) -> int:
        return self.a.n_rows

    @property
    def n_bytes(self) -> int:
        return self.a.n_bytes + self.b.n_bytes + _bytes_of(self.a_bias) + _bytes_of(self.b_bias)

    @property
    def bytes_read(self) -> float:
        return self.n_bytes - (1 - self.read_share) * (self.b.n_bytes + _bytes_of(self.b_bias))

    def scores(self, x: F32, operators: Operators) -> F32:
        """Return scores, x [T, D] -> [T, F]."""
        hidden = operators.matmul(x, self.a)
        if self.a_bias is not None:
            hidden = hidden + self.a_bias
        scores = operators.matmul(operators.relu(hidden), self.b)
        return scores if self.b_bias is None else scores + self.b_bias


@dataclass(frozen=True, eq=False)
class GateCopy:
    """score = matrix x + bias; a neuron passes if its score reaches the threshold.

    The matrix is a low-bit copy of gate, or of up without a gate; x is the normed input, rounded to bytes as in
    native_kernels.copies. signed_input: use only the signs of x (SparseInfer's idea).
    """

    matrix: PackedMatrix  # [F, D], in a copy codec
    threshold: float = 0.0
    bias: F32 | None = None  # [F]
    signed_input: bool = False

    def __post_init__(self) -> None:
        if self.matrix.codec not in COPY_CODECS:
            raise ModelFormatError(
                f"A predictor's copy has the codec {self.matrix.codec}, which is not a codec for copies."
            )
        _check_bias(self.bias, self.matrix.n_rows)
        _check_threshold(self.threshold)

    @property
    def bits(self) -> int:
        return COPY_CODECS[self.matrix.codec].bits

    @property
    def n_bytes(self) -> int:
        return self.matrix.n_bytes + _bytes_of(self.bias)

    def scores(self, x: F32, operators: Operators) -> F32:
        """Return scores, normed x [T, D] -> [T, F]."""
        scores = operators.matmul(signs(x) if self.signed_input else x, self.matrix)
        return scores if self.bias is None else scores + self.bias


class Expected(NamedTuple):
    """mask bool [T, F]: selected neurons of a layer. copied: rows of the copy read, over all tokens."""

    mask: NDArray[np.bool_]
    copied: int


@dataclass(frozen=True, eq=False)
class LayerPredictor:
    """One layer's predictor, which selects neurons that pass all of its parts.

    With both parts it is a cascade: only rows of the copy that the low-rank part passes are read. With neither it
    selects every neuron, and the model's own first matrix decides without loss (kind true_gate).

    input: of the low-rank part. "residual": the input of the norm before the FFN, which is the stream after attention,
    or the layer's input if attention and FFN run in parallel. "normed": that norm's output. Copies always read the
    latter. recall (of contribution), precision, active_share: measured in training; None if not measured.
    """

    low_rank: LowRank | None = None
    copy: GateCopy | None = None
    input: Input = "normed"
    recall: float | None = None
    precision: float | None = None
    active_share: float | None = None

    def __post_init__(self) -> None:
        if self.low_rank is not None and self.copy is not None and self.shape != _shape_of_copy(self.copy):
            raise ModelFormatError(
                f"A predictor's parts are for a width and a number of neurons of {self.shape} and "
                f"{_shape_of_copy(self.copy)}."
            )

    @property
    def kind(self) -> Kind:
        if self.copy is None:
            return "true_gate" if self.low_rank is None else "low_rank"
        if self.low_rank is not None:
            return "cascade"
        return "sign" if self.copy.signed_input else "gate_copy"

    @property
    def rank(self) -> int | None:
        return None if self.low_rank is None else self.low_rank.rank

    @property
    def shape(self) -> tuple[int, int] | None:
        """(width D, neurons F); None if no part states it."""
        if self.low_rank is not None:
            return self.low_rank.a.n_cols, self.low_rank.b.n_rows
        return None if self.copy is None else _shape_of_copy(self.copy)

    @property
    def matrices(self) -> tuple[PackedMatrix, ...]:
        found = () if self.low_rank is None else (self.low_rank.a, self.low_rank.b)
        return found if self.copy is None else (*found, self.copy.matrix)

    @property
    def biases(self) -> tuple[F32, ...]:
        """Existing biases of its matrices."""
        found = () if self.low_rank is None else (self.low_rank.a_bias, self.low_rank.b_bias)
        found = found if self.copy is None else (*found, self.copy.bias)
        return tuple(bias for bias in found if bias is not None)

    @property
    def n_bytes(self) -> int:
        """Bytes of its matrices and biases."""
        return sum(part.n_bytes for part in (self.low_rank, self.copy) if part is not None)

    def bytes_read(self, copied_share: float) -> float:
        """Return bytes read per token if this share of the copy's rows is read."""
        of_copy = 0 if self.copy is None else self.copy.n_bytes
        return (0 if self.low_rank is None else self.low_rank.bytes_read) + copied_share * of_copy

    def expected(self, normed: F32, residual: F32, operators: Operators) -> Expected:
        """Select neurons at each position, from normed and residual [T, D].

        Raises: ValueError for kind true_gate, which does not know the number of neurons.
        """
        if self.shape is None:
            raise ValueError("the model's own first matrix decides in this layer")
        mask = np.ones((len(normed), self.shape[1]), np.bool_)
        copied = mask.size
        if self.low_rank is not None:
            scores = self.low_rank.scores(residual if self.input == "residual" else normed, operators)
            mask = np.greater_equal(scores, np.float32(self.low_rank.threshold))
            copied = int(np.count_nonzero(mask))
        if self.copy is None:
            return Expected(mask, 0)
        return Expected(mask & (self.copy.scores(normed, operators) >= np.float32(self.copy.threshold)), copied)


def _shape_of_copy(copy: GateCopy) -> tuple[int, int]:
    return copy.matrix.n_cols, copy.matrix.n_rows


def _bytes_of(bias: F32 | None) -> int:
    return 0 if bias is None else bias.nbytes


def _check_bias(bias: F32 | None, n_rows: int) -> None:
    if bias is not None and bias.shape != (n_rows,):
        raise ModelFormatError(f"A predictor's bias has the shape {list(bias.shape)} beside {n_rows} rows.")


def _check_threshold(threshold: float) -> None:
    if not math.isfinite(threshold):
        raise ModelFormatError(f"A predictor's threshold is {threshold}, which is not a number to compare with.")
