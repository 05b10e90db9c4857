"""Decode blocks of 32 numbers without a special path in row_dots: q4_1, q5_0, q5_1, iq4_nl, mxfp4.

Eight adjacent blocks are read as one of 256 columns (k_quant_blocks), the rest of a row one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from native_kernels.cpu.blocks.k_quant_blocks import (
    NL_LEVELS,
    QUARTER,
    Block,
    BlockCodec,
    bytes_down,
    looked_up,
    pick,
)
from native_kernels.cpu.runtime.simd import (
    F32,
    I8,
    I16,
    I32,
    VH,
    VS,
    constant,
    halves_to_floats,
    load,
    offset,
)

_SIXTEEN = ir.VectorType(I8, 16)

# The levels of mxfp4 (e2m1, doubled) plus 12: products with unsigned bytes need no change of signs, which took a fifth
# of the time of rows in a core's cache.
E2M1_ZERO = 12
E2M1_LEVELS = (12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0)

Numbers = Callable[[Any, Sequence[Any]], Any]


@dataclass(frozen=True)
class SmallCodec(BlockCodec):
    """Decoder of eight blocks or of one: number = scale * (quant - offset) - minimum, as in BlockCodec.

    one: (builder, address) -> Block whose first quarter begins with the block's 32 quants; its scales and minima repeat
    the block's scale and minimum.
    """

    one: Callable[[Any, Any], Block] = lambda b, at: Block([], None)


def _codec(
    size: int, quarter: Callable[[Any, Any, Any], Any], scales: Numbers, minima: Numbers | None = None, **more: Any
) -> SmallCodec:
    """Build a codec. quarter: (builder, block, block) -> quants of two blocks; scales, minima: (builder, 1 or 8 blocks)
    -> 8.
    """

    def read(b: Any, at: Any) -> Block:
        blocks = [offset(b, at, size * i) for i in range(8)]
        places = [place for place in range(8) for _ in range(2)]
        quants = [quarter(b, blocks[2 * c], blocks[2 * c + 1]) for c in range(4)]
        less = None if minima is None else pick(b, minima(b, blocks), places)
        return Block(quants, pick(b, scales(b, blocks), places), less)

    def one(b: Any, at: Any) -> Block:
        less = None if minima is None else pick(b, minima(b, [at]), [0] * 16)
        return Block([quarter(b, at, at)], pick(b, scales(b, [at]), [0] * 16), less)

    return SmallCodec(8 * size, read, one=one, **more)


def _halves(start: int, sign: int = 1) -> Numbers:
    """Load the float16 `start` bytes into each block, negated if sign is -1."""

    def read(b: Any, blocks: Sequence[Any]) -> Any:
        found = ir.Constant(VS, None)
        for i, block in enumerate(blocks):
            found = b.insert_element(found, load(b, offset(b, block, start), I16), ir.Constant(I32, i))
        eight = pick(b, halves_to_floats(b, b.bitcast(found, VH)), list(range(8)))
        return eight if sign > 0 else b.fneg(eight)

    return read


def _exponents(b: Any, blocks: Sequence[Any]) -> Any:
    """Return half_powers of each block's first byte."""
    found = ir.Constant(_SIXTEEN, None)
    for i, block in enumerate(blocks):
        found = b.insert_element(found, load(b, block, I8), ir.Constant(I32, i))
    return half_powers(b, b.zext(pick(b, found, list(range(8))), ir.VectorType(I32, 8)))


def half_powers(b: Any, e: Any) -> Any:
    """Return 2^(e - 127) / 2 for int32 from 0 to 255; the first two values are subnormal."""
    normal = b.shl(b.sub(e, constant(e.type, 1)), constant(e.type, 23))
    small = b.shl(constant(e.type, 0x00200000), b.and_(e, constant(e.type, 1)))
    found = b.select(b.icmp_signed("<", e, constant(e.type, 2)), small, normal)
    return b.bitcast(found, ir.VectorType(F32, e.type.count))


def _nibbles(b: Any, first: Any, second: Any, start: int) -> Any:
    """Return the quants of two blocks, 16 bytes each: the low halves, then the high ones."""
    pair = [load(b, offset(b, block, start), _SIXTEEN) for block in (first, second)]
    places = [*range(16), *range(16), *range(16, 32), *range(16, 32)]
    spread = b.shuffle_vector(*pair, ir.Constant(ir.VectorType(I32, 64), places))
    return b.and_(bytes_down(b, spread, [0, 4, 0, 4]), constant(QUARTER, 15))


def _with_fifth(b: Any, first: Any, second: Any, bits: int, start: int) -> Any:
    """As _nibbles, plus a fifth bit each from the four bytes at `bits`."""
    pair = ir.Constant(ir.VectorType(I32, 2), None)
    for i, block in enumerate((first, second)):
        pair = b.insert_element(pair, load(b, offset(b, block, bits), I32), ir.Constant(I32, i))
    spread = pick(b, b.bitcast(pair, ir.VectorType(I8, 8)), [lane // 8 for lane in range(64)])
    tested = ir.Constant(QUARTER, [1 << lane % 8 for lane in range(64)])
    present = b.icmp_unsigned("==", b.and_(spread, tested), tested)  # a mask of 64 bits is slow before AVX-512
    return b.or_(_nibbles(b, first, second, start), b.select(present, constant(QUARTER, 16), constant(QUARTER, 0)))


SMALL_BLOCKS = {
    "q4_1": _codec(20, lambda b, x, y: _nibbles(b, x, y, 4), _halves(0), _halves(2, -1)),
    "q5_0": _codec(22, lambda b, x, y: _with_fifth(b, x, y, 2, 6), _halves(0), offset=16),
    "q5_1": _codec(24, lambda b, x, y: _with_fifth(b, x, y, 4, 8), _halves(0), _halves(2, -1)),
    "iq4_nl": _codec(18, lambda b, x, y: looked_up(b, _nibbles(b, x, y, 2), NL_LEVELS), _halves(0), signed=True),
    "mxfp4": _codec(17, lambda b, x, y: looked_up(b, _nibbles(b, x, y, 1), E2M1_LEVELS), _exponents, offset=E2M1_ZERO),
}
