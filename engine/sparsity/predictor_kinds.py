"""The parts that one layer's predictor is made of, and what they expect; nothing is read, written or trained here.

Paper: PowerInfer, section 5.1 (low rank).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
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
    """score = b relu(a x + a_bias) + b_bias; a neuron passes where its score reaches the threshold. R is its rank."""

    a: PackedMatrix  # [R, D]
    b: PackedMatrix  # [F, R]
    a_bias: F32 | None = None  # [R]
    b_bias: F32 | None = None  # [F]
    threshold: float = 0.0  # a score of 0 is a probability of one half

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

    def scores(self, x: F32, operators: Operators) -> F32:
        """x [T, D] -> [T, F]."""
        hidden = operators.matmul(x, self.a)
        if self.a_bias is not None:
            hidden = hidden + self.a_bias
        scores = operators.matmul(operators.relu(hidden), self.b)
        return scores if self.b_bias is None else scores + self.b_bias


@dataclass(frozen=True, eq=False)
class GateCopy:
    """score = matrix x + bias; a neuron passes where its score reaches the threshold.

    The matrix is a low-bit copy of gate, or of up where there is no gate; x is the normed input, rounded to bytes as
    native_kernels.copies says. signed_input: of x only the signs are taken (SparseInfer's idea).
    """

    matrix: PackedMatrix  # [F, D], in a codec of copies
    threshold: float = 0.0
    bias: F32 | None = None  # [F]
    signed_input: bool = False

    def __post_init__(self) -> None:
        if self.matrix.codec not in COPY_CODECS:
            raise ModelFormatError(f"A predictor's copy is in {self.matrix.codec}, which is no codec of copies.")
        _check_bias(self.bias, self.matrix.n_rows)
        _check_threshold(self.threshold)

    @property
    def bits(self) -> int:
        return COPY_CODECS[self.matrix.codec].bits

    @property
    def n_bytes(self) -> int:
        return self.matrix.n_bytes + _bytes_of(self.bias)

    def scores(self, x: F32, operators: Operators) -> F32:
        """x [T, D], normed -> [T, F]."""
        scores = operators.matmul(signs(x) if self.signed_input else x, self.matrix)
        return scores if self.bias is None else scores + self.bias


class Expected(NamedTuple):
    """Which neurons of a layer are expected to fire, bool [T, F]; of how many, over all tokens, the copy was read."""

    mask: NDArray[np.bool_]
    copied: int


@dataclass(frozen=True, eq=False)
class LayerPredictor:
    """Expects one layer's neurons to fire where all of its parts let them pass.

    Both parts: a cascade, in which the copy is read only in rows that the low rank part lets pass. Neither: every
    neuron is expected, and the model's own first matrix decides (kind true_gate); nothing is lost then.

    input: what the low rank part reads. "residual": what the norm before the FFN reads, which is after attention, and
    the layer's own input where attention and FFN run in parallel. "normed": what that norm makes of it. Copies always
    read the latter.
    recall (of contribution), precision and active_share were measured when it was made; None where nobody has.
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
        """(width D, neurons F); None where no part says it."""
        if self.low_rank is not None:
            return self.low_rank.a.n_cols, self.low_rank.b.n_rows
        return None if self.copy is None else _shape_of_copy(self.copy)

    @property
    def matrices(self) -> tuple[PackedMatrix, ...]:
        """All that it multiplies with."""
        found = () if self.low_rank is None else (self.low_rank.a, self.low_rank.b)
        return found if self.copy is None else (*found, self.copy.matrix)

    @property
    def biases(self) -> tuple[F32, ...]:
        """Those of its matrices that have one."""
        found = () if self.low_rank is None else (self.low_rank.a_bias, self.low_rank.b_bias)
        found = found if self.copy is None else (*found, self.copy.bias)
        return tuple(bias for bias in found if bias is not None)

    @property
    def n_bytes(self) -> int:
        """What its matrices and biases take."""
        return sum(part.n_bytes for part in (self.low_rank, self.copy) if part is not None)

    def bytes_read(self, copied_share: float) -> float:
        """Of a token, where the copy is read in this share of its rows."""
        of_copy = 0 if self.copy is None else self.copy.n_bytes
        return self.n_bytes - of_copy + copied_share * of_copy

    def expected(self, normed: F32, residual: F32, operators: Operators) -> Expected:
        """normed, residual [T, D] -> which neurons are expected to fire at each position.

        Raises: ValueError for kind true_gate, whose number of neurons is the model's.
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

    def with_thresholds(self, low_rank: float | None = None, copy: float | None = None) -> LayerPredictor:
        """The same with other thresholds of the parts that it has; lower ones raise recall and cost. None: as it is."""
        first, second = self.low_rank, self.copy
        if first is not None and low_rank is not None:
            first = replace(first, threshold=low_rank)
        if second is not None and copy is not None:
            second = replace(second, threshold=copy)
        return replace(self, low_rank=first, copy=second)


def _shape_of_copy(copy: GateCopy) -> tuple[int, int]:
    return copy.matrix.n_cols, copy.matrix.n_rows


def _bytes_of(bias: F32 | None) -> int:
    return 0 if bias is None else bias.nbytes


def _check_bias(bias: F32 | None, n_rows: int) -> None:
    if bias is not None and bias.shape != (n_rows,):
        raise ModelFormatError(f"A predictor's bias has the shape {list(bias.shape)} beside {n_rows} rows.")


def _check_threshold(threshold: float) -> None:
    if not math.isfinite(threshold):
        raise ModelFormatError(f"A predictor's threshold is {threshold}, which is no number to compare with.")
