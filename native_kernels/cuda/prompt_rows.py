"""Where rows of a prompt and of weights are in GPU memory, as the operators on many positions take them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from native_kernels.backend import RopeOrder
from native_kernels.cuda.gpu import GpuMatrix
from native_kernels.cuda.operands import Operand
from native_kernels.specs import Temperature


@dataclass(frozen=True)
class Rows:
    """T rows of f32 numbers, `step` numbers apart."""

    address: int
    step: int


@dataclass(frozen=True)
class RoundedRows:
    """T rows of halves, `step` halves apart (a multiple of 8), and the power of two of each, f32 [T]."""

    address: int
    step: int
    factors: int

    def operand(self, n_tokens: int, n_cols: int, column: int = 0) -> Operand:
        """Return columns from `column` on as the operand of a product."""
        return Operand(self.address + 2 * column, n_tokens, n_cols, self.step)


@dataclass(frozen=True)
class RowAngles:
    """Rotary angles of T positions: cosines and sines f32 [T, n]. n 0: nothing is rotated.

    norm_last, temperature: as GpuAngles. positions: address of i32 [T], for the temperature; 0: consecutive ones.
    """

    cosines: int
    sines: int
    n: int
    order: RopeOrder
    norm_last: bool = False
    temperature: Temperature | None = None
    positions: int = 0

    def after(self, n_rows: int) -> RowAngles:
        """Return the angles of the positions after the first n_rows."""
        done = 4 * n_rows * self.n
        positions = self.positions and self.positions + 4 * n_rows
        return replace(self, cosines=self.cosines + done, sines=self.sines + done, positions=positions)


@dataclass(frozen=True)
class StoredMatrix:
    """Rows on the GPU as a file or a bundle stores them (lanes too), `step` bytes apart, a multiple of 16."""

    n_rows: int
    n_cols: int
    codec: str
    address: int
    step: int


Weights = GpuMatrix | StoredMatrix


@dataclass(frozen=True)
class HostRows:
    """Rows to copy from host memory: `stride` bytes apart, at a GPU address for zero-copy reads.

    They go to `to` on the GPU, `step` bytes apart; both are multiples of 16.
    """

    address: int
    stride: int
    row_bytes: int
    to: int
    step: int


@dataclass(frozen=True)
class Groups:
    """Groups of rows: group i has the rows from starts[i] to starts[i + 1]. starts: address of i32 [n + 1].

    positions i32: the position of every row; 0: its own number. most: rows that a group can have.
    """

    n: int
    starts: int
    positions: int
    most: int

    def part(self, first: int, n: int) -> Groups:
        """Return n groups from the number `first` on."""
        return Groups(n, self.starts + 4 * first, self.positions, self.most)


@dataclass(frozen=True)
class Tile:
    """GPU memory in which weights are converted to halves."""

    address: int
    n_bytes: int

    def halved(self) -> tuple[Tile, Tile]:
        """Return both halves as separate tiles."""
        size = self.n_bytes // 512 * 256
        return Tile(self.address, size), Tile(self.address + size, size)
