"""How rows of blocks of 256 numbers are multiplied as they lie in a GGUF: q2_k to q6_k and iq4_xs.

For row_dots: the products of quants with the bytes of a vector in the format "q8" are exact integers; scales are
applied in float32, and minima and offsets through the sums of the vector's bytes. How blocks are read is
k_quant_blocks' business, unpacking is unpack's, and products of many tokens are gemm's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from native_kernels.cpu.activations import Format
from native_kernels.cpu.k_quant_blocks import BLOCKS, COLUMNS, GROUPS, QUARTER, BlockCodec, pick
from native_kernels.cpu.simd import (
    F32,
    I32,
    LANES,
    VB,
    VI,
    constant,
    dot_signed,
    dot_unsigned,
    load,
    number,
    offset,
)

_INTS = ir.VectorType(I32, 16)
_PARTS = 16 // LANES  # registers that hold one number for each 16 columns of a block


def _parts(b: Any, x: Any) -> list[Any]:
    """A vector of 16 numbers, or of 64 bytes, as registers."""
    width = x.type.count // _PARTS
    return [pick(b, x, list(range(width * i, width * i + width))) for i in range(_PARTS)] if _PARTS > 1 else [x]


@dataclass(frozen=True)
class SuperBlocks:
    """A codec of row_dots: one block a step, and nothing left behind the last."""

    codec: BlockCodec
    vector: Format = "q8"
    step_columns: int = COLUMNS

    @property
    def step_bytes(self) -> int:
        return self.codec.n_bytes

    def sums(self) -> int:
        """What the quants make, then what the minima or offsets take away."""
        return 2 * _PARTS

    def side_lines(self, b: Any, row: Any, step: Any, d: Any) -> list[Any]:
        return []

    def step(self, b: Any, rows: list[Any], step: Any, x: Any, d: Any, sums: list[list[Any]], asks: Any) -> None:
        padded = b.mul(b.udiv(b.add(d, number(511)), number(512)), number(512))  # columns of x
        x_bytes = b.add(x, b.mul(step, number(COLUMNS)))
        x_scales = b.add(b.add(x, padded), b.mul(step, number(COLUMNS // 8)))
        x_sums = b.add(b.add(x, b.add(padded, b.lshr(padded, number(3)))), b.mul(step, number(COLUMNS // 4)))
        columns = [_parts(b, load(b, offset(b, x_bytes, 64 * c), QUARTER)) for c in range(4)]
        eight = load(b, x_scales, ir.VectorType(F32, 8))
        factors = pick(b, eight, [place for place in range(8) for _ in range(2)])
        totals = b.fmul(b.sitofp(load(b, x_sums, _INTS), GROUPS), factors)
        less = b.fmul(totals, constant(GROUPS, -float(self.codec.offset or 1)))
        dot = dot_signed if self.codec.signed else dot_unsigned
        for row, row_sums in zip(rows, sums, strict=True):
            block = self.codec.read(b, b.add(row, b.mul(step, number(self.codec.n_bytes))))
            products = b.fmul(block.scales, factors)
            for c in range(4):
                asks.one(b)
                scales = _parts(b, pick(b, products, [4 * c + lane // 4 for lane in range(16)]))
                for i, quants in enumerate(_parts(b, block.quants[c])):
                    dots = dot.emit(b, constant(VI, 0), b.bitcast(quants, VB), b.bitcast(columns[c][i], VB))
                    row_sums[i].fma(b, b.sitofp(dots, scales[i].type), scales[i])
            taken = block.scales if self.codec.offset else block.minima
            if taken is not None:
                for i, (x_part, part) in enumerate(zip(_parts(b, less), _parts(b, taken), strict=True)):
                    row_sums[_PARTS + i].fma(b, part, x_part)

    def rest(self, b: Any, rows: list[Any], steps: Any, x: Any, d: Any, sums: list[list[Any]]) -> None:
        """Rows are whole blocks."""


SUPER_BLOCKS = {name: SuperBlocks(codec) for name, codec in BLOCKS.items()}
