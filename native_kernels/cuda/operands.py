"""Operands that several kernels share: a vector that is rounded, and those of a product of many positions.

The latter are matrices of halves and f32 results; the kernels that compute a product differ.
"""

from __future__ import annotations

from ctypes import Structure, c_int, c_uint64
from typing import Literal, NamedTuple

Kind = Literal["rows", "columns"]


class Operand(NamedTuple):
    """A matrix of halves: rows `step` halves apart (a multiple of 8), from a 16-byte aligned address on."""

    address: int
    n_rows: int
    n_cols: int
    step: int


class Result(NamedTuple):
    """The target of a product: f32, rows `step` numbers apart. bias 0: none."""

    address: int
    step: int
    bias: int


class Product(NamedTuple):
    """result [T, N] = x [T, K] times w [N, K] (kind "rows") or w [K, N] ("columns").

    The rows are multiplied by factors f32 [T], and the bias is added; adds: all that is added to the result.
    other: a second product of the same x, with weights of the same shape and step.
    """

    kind: Kind
    x: Operand
    factors: int
    w: Operand
    result: Result
    adds: bool = False
    other: tuple[Operand, Result] | None = None

    @property
    def n_tokens(self) -> int:
        return self.x.n_rows

    @property
    def depth(self) -> int:
        return self.x.n_cols

    @property
    def n_out(self) -> int:
        return self.w.n_rows if self.kind == "rows" else self.w.n_cols


class Rounded(Structure):
    """The struct of this name in rounding.cuh: addresses of a vector's source, values, bytes and scales; n numbers."""

    _fields_ = [("x", c_uint64), ("values", c_uint64), ("bytes", c_uint64), ("scales", c_uint64), ("n", c_int)]
