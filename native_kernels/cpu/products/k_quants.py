"""Products of rows of quantised blocks as GGUF stores them, for row_dots: K-quants, and small blocks but q4_0 and q8_0.

The products of quants with the bytes of a vector in the format "q8" are exact integers. Scales are applied in float32,
minima and offsets through the sums of the vector's bytes. k_quant_blocks reads the blocks, unpack decodes them, and
gemm multiplies many tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from native_kernels.cpu.blocks.k_quant_blocks import BLOCKS, COLUMNS, GROUPS, QUARTER, Block, BlockCodec, pick
from native_kernels.cpu.blocks.small_block_reads import SMALL_BLOCKS as SMALL_CODECS
from native_kernels.cpu.blocks.small_block_reads import SmallCodec
from native_kernels.cpu.products.activations import Format
from native_kernels.cpu.runtime.simd import (
    F32,
    I8,
    I32,
    I64,
    LANES,
    VB,
    VI,
    constant,
    dot_signed,
    dot_unsigned,
    load,
    number,
    offset,
    splat,
)

_INTS = ir.VectorType(I32, 16)
_HALF_QUARTER = ir.VectorType(I8, 32)
_PARTS = 16 // LANES  # registers that hold one number per 16 columns of a block


def _parts(b: Any, x: Any) -> list[Any]:
    """Split a vector of 16 numbers, or of 64 bytes, into registers."""
    width = x.type.count // _PARTS
    return [pick(b, x, list(range(width * i, width * i + width))) for i in range(_PARTS)] if _PARTS > 1 else [x]


@dataclass(frozen=True)
class _Vector:
    """256 or 64 columns of the input: bytes by 64, a scale for every 16, and the factors of minima or offsets."""

    columns: list[Any]
    factors: Any
    less: Any


@dataclass(frozen=True)
class SuperBlocks:
    """A codec of row_dots: one block per step; rows have no remainder."""

    codec: BlockCodec
    vector: Format = "q8"
    step_columns: int = COLUMNS

    @property
    def step_bytes(self) -> int:
        return self.codec.n_bytes

    def sums(self) -> int:
        """Two sums: the quants' products, and what minima or offsets subtract."""
        return 2 * _PARTS

    def side_lines(self, b: Any, row: Any, step: Any, d: Any) -> list[Any]:
        return []

    def step(self, b: Any, rows: list[Any], step: Any, x: Any, d: Any, sums: list[list[Any]], asks: Any) -> None:
        x_scales, x_sums = _beside(b, x, d)
        x_bytes = b.add(x, b.mul(step, number(COLUMNS)))
        columns = [load(b, offset(b, x_bytes, 64 * c), QUARTER) for c in range(4)]
        eight = load(b, b.add(x_scales, b.mul(step, number(COLUMNS // 8))), ir.VectorType(F32, 8))
        factors = pick(b, eight, [place for place in range(8) for _ in range(2)])
        totals = load(b, b.add(x_sums, b.mul(step, number(COLUMNS // 4))), _INTS)
        vector = _Vector(columns, factors, self._less(b, totals, factors))
        for row, row_sums in zip(rows, sums, strict=True):
            block = self.codec.read(b, b.add(row, b.mul(step, number(self.step_bytes))))
            self._add(b, block, vector, row_sums, asks)

    def rest(self, b: Any, rows: list[Any], steps: Any, x: Any, d: Any, sums: list[list[Any]]) -> None:
        """Do nothing: rows are whole blocks."""

    def _less(self, b: Any, totals: Any, factors: Any) -> Any:
        """Return the factors of minima or scales: negative sums of the input's numbers."""
        return b.fmul(b.fmul(b.sitofp(totals, GROUPS), factors), constant(GROUPS, -float(self.codec.offset or 1)))

    def _add(self, b: Any, block: Block, vector: _Vector, sums: list[Any], asks: Any | None) -> None:
        """Add the products of one row's block."""
        dot = dot_signed if self.codec.signed else dot_unsigned
        products = b.fmul(block.scales, vector.factors)
        for c, (quarter, columns) in enumerate(zip(block.quants, vector.columns, strict=True)):
            if asks is not None:
                asks.one(b)
            scales = _parts(b, pick(b, products, [4 * c + lane // 4 for lane in range(16)]))
            both = zip(_parts(b, quarter), _parts(b, columns), strict=True)
            for i, (quants, xs) in enumerate(both):
                dots = dot.emit(b, constant(VI, 0), b.bitcast(quants, VB), b.bitcast(xs, VB))
                sums[i].fma(b, b.sitofp(dots, scales[i].type), scales[i])
        taken = block.scales if self.codec.offset else block.minima
        if taken is not None:
            for i, (part, x_part) in enumerate(zip(_parts(b, taken), _parts(b, vector.less), strict=True)):
                sums[_PARTS + i].fma(b, part, x_part)


@dataclass(frozen=True)
class EightBlocks(SuperBlocks):
    """A codec of row_dots: eight blocks of 32 per step, the rest of a row one by one."""

    codec: SmallCodec

    def rest(self, b: Any, rows: list[Any], steps: Any, x: Any, d: Any, sums: list[list[Any]]) -> None:
        x_scales, x_sums = _beside(b, x, d)
        first, last = b.mul(steps, number(8)), b.udiv(d, number(32))
        none = ir.Constant(_HALF_QUARTER, None)
        with cgutils.for_range_slice(b, first, last, number(1), I64) as (i, _):
            half = load(b, b.add(x, b.mul(i, number(32))), _HALF_QUARTER)
            columns = b.shuffle_vector(half, none, ir.Constant(ir.VectorType(I32, 64), list(range(64))))
            factors = splat(b, load(b, b.add(x_scales, b.mul(i, number(4))), F32), GROUPS)
            two = load(b, b.add(x_sums, b.mul(i, number(8))), ir.VectorType(I32, 2))
            places = ir.Constant(ir.VectorType(I32, 16), [0, 1] + [2] * 14)
            totals = b.shuffle_vector(two, ir.Constant(two.type, None), places)
            vector = _Vector([columns], factors, self._less(b, totals, factors))
            for row, row_sums in zip(rows, sums, strict=True):
                block = self.codec.one(b, b.add(row, b.mul(i, number(self.step_bytes // 8))))
                self._add(b, block, vector, row_sums, None)


def _beside(b: Any, x: Any, d: Any) -> tuple[Any, Any]:
    """Return the addresses of the scales and the sums of a "q8" vector of d columns."""
    padded = b.mul(b.udiv(b.add(d, number(511)), number(512)), number(512))
    return b.add(x, padded), b.add(x, b.add(padded, b.lshr(padded, number(3))))


SUPER_BLOCKS = {name: SuperBlocks(codec) for name, codec in BLOCKS.items()}
SMALL_BLOCKS = {name: EightBlocks(codec) for name, codec in SMALL_CODECS.items()}
