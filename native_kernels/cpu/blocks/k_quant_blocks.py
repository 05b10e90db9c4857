"""Decode blocks of 256 numbers into LLVM vectors: quants in column order, scales, minima.

One description of a codec serves both its products and its decoding (k_quants). Vectors are as wide as a quarter of a
block, 64 bytes; narrower CPUs use several registers for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from native_kernels.cpu.runtime.simd import (
    F16,
    F32,
    I8,
    I16,
    I32,
    I64,
    ISA,
    constant,
    external,
    halves_to_floats,
    i64,
    load,
    offset,
    operation,
    splat,
    store,
    void,
)

COLUMNS = 256
QUARTER = ir.VectorType(I8, 64)  # the quants of 64 columns
GROUPS = ir.VectorType(F32, 16)  # one number per 16 columns of a block
_PAIRS, _HALF_QUARTER = ir.VectorType(I16, 32), ir.VectorType(I8, 32)
_SIXTEEN = ir.VectorType(I8, 16)
_SIXTEEN_INTS = ir.VectorType(I32, 16)

# The sixteen levels of iq4_xs.
NL_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


@dataclass(frozen=True)
class Block:
    """A block: number = scale * (quant - the codec's offset) - minimum.

    quants: four of QUARTER. scales: GROUPS. minima: GROUPS or None.
    """

    quants: list[Any]
    scales: Any
    minima: Any = None


@dataclass(frozen=True)
class BlockCodec:
    """Decoder of a block: `read` (builder, address) -> Block.

    offset: subtracted from every quant. signed: whether quants are signed bytes; otherwise they are at most 127.
    """

    n_bytes: int
    read: Callable[[Any, Any], Block]
    offset: int = 0
    signed: bool = False


def pick(b: Any, x: Any, places: list[int]) -> Any:
    return b.shuffle_vector(x, x, ir.Constant(ir.VectorType(I32, len(places)), places))


def _both(x: list[int]) -> list[int]:
    return [place for place in x for _ in range(2)]


def _half(b: Any, at: Any) -> Any:
    """Load a float16 as float32."""
    if ISA.half:
        return b.fpext(load(b, at, F16), F32)
    from native_kernels.cpu.runtime.simd import VH

    return b.extract_element(halves_to_floats(b, splat(b, load(b, at, F16), VH)), ir.Constant(I32, 0))


def _twice(b: Any, at: Any) -> Any:
    """Load 32 bytes, repeated twice."""
    return pick(b, load(b, at, _HALF_QUARTER), [*range(32), *range(32)])


def _shifted(b: Any, quarter: Any, first: int, second: int, mask: int) -> Any:
    """Shift the first 32 bytes right by `first` bits and the others by `second`, then mask each byte.

    A negative shift is to the left. Bits from a neighbouring byte are masked away.
    """
    pairs = b.bitcast(quarter, _PAIRS)
    if first or second:
        down = ir.Constant(_PAIRS, [max(0, first)] * 16 + [max(0, second)] * 16)
        up = ir.Constant(_PAIRS, [max(0, -first)] * 16 + [max(0, -second)] * 16)
        if max(first, second) > 0:
            pairs = b.lshr(pairs, down)
        if min(first, second) < 0:
            pairs = b.shl(pairs, up)
    return b.and_(b.bitcast(pairs, QUARTER), constant(QUARTER, mask))


def bytes_down(b: Any, quarter: Any, bits: list[int]) -> Any:
    """Shift every 16 bytes right by this many bits; bits from a neighbouring byte are not masked away."""
    by = ir.Constant(_PAIRS, [one for one in bits for _ in range(8)])
    return b.bitcast(b.lshr(b.bitcast(quarter, _PAIRS), by), QUARTER)


def _nibbles(b: Any, at: Any, c: int) -> Any:
    """Return quarter c of nibbles: 32 bytes hold 64 columns, the low halves first."""
    return _shifted(b, _twice(b, offset(b, at, 32 * c)), 0, 4, 15)


def _with_bit(b: Any, quants: Any, bits: Any, first: int, value: int) -> Any:
    """Add `value` where bit `first` (first 32 columns) or the next higher one (the others) is set."""
    tested = ir.Constant(QUARTER, [1 << first] * 32 + [1 << (first + 1)] * 32)
    none = constant(QUARTER, 0)
    present = b.icmp_unsigned("!=", b.and_(bits, tested), none)
    return b.or_(quants, b.select(present, constant(QUARTER, value), none))


def _small_floats(b: Any, sixteen: Any, signed: bool = False) -> Any:
    """Convert 16 bytes to GROUPS."""
    wide = (b.sext if signed else b.zext)(sixteen, _SIXTEEN_INTS)
    return b.sitofp(wide, GROUPS)


def _six_bits(b: Any, at: Any) -> tuple[Any, Any]:
    """Decode the scales and minima of q4_k and q5_k, one per 32 columns; packed as in codecs.super_blocks."""
    four = ir.VectorType(I32, 4)  # the two large scales, then the small ones: first, second, shared
    words = load(b, at, four)
    lower = b.lshr(pick(b, words, [1, 3, 2, 3]), ir.Constant(four, [0, 0, 0, 4]))
    lower = b.and_(lower, ir.Constant(four, [0x3F3F3F3F, 0x0F0F0F0F] * 2))
    upper = b.lshr(pick(b, words, [1, 1, 2, 2]), constant(four, 2))
    upper = b.and_(upper, ir.Constant(four, [0, 0x30303030] * 2))
    small = _small_floats(b, b.bitcast(b.or_(lower, upper), _SIXTEEN))
    large = [splat(b, _half(b, offset(b, at, 2 * i)), GROUPS) for i in range(2)]
    scales = b.fmul(pick(b, small, _both(list(range(8)))), large[0])
    minima = b.fmul(pick(b, small, _both(list(range(8, 16)))), large[1])
    return scales, minima


def _read_q4_k(b: Any, at: Any) -> Block:
    scales, minima = _six_bits(b, at)
    return Block([_nibbles(b, offset(b, at, 16), c) for c in range(4)], scales, minima)


def _read_q5_k(b: Any, at: Any) -> Block:
    scales, minima = _six_bits(b, at)
    fifth = _twice(b, offset(b, at, 16))
    quants = [_with_bit(b, _nibbles(b, offset(b, at, 48), c), fifth, 2 * c, 16) for c in range(4)]
    return Block(quants, scales, minima)


def _read_q6_k(b: Any, at: Any) -> Block:
    quants = []
    for half in range(2):
        low, upper = load(b, offset(b, at, 64 * half), QUARTER), _twice(b, offset(b, at, 128 + 32 * half))
        for high in range(2):
            four = _shifted(b, low, 4, 4, 15) if high else b.and_(low, constant(QUARTER, 15))
            two = _shifted(b, upper, 0, 2, 0x30) if high else _shifted(b, upper, -4, -2, 0x30)
            quants.append(b.or_(four, two))
    small = _small_floats(b, load(b, offset(b, at, 192), _SIXTEEN), signed=True)
    large = splat(b, _half(b, offset(b, at, 208)), GROUPS)
    return Block(quants, b.fmul(large, small))


def _read_q2_k(b: Any, at: Any) -> Block:
    quants = []
    for c in range(4):
        both = _twice(b, offset(b, at, 16 + 32 * (c // 2)))
        quants.append(_shifted(b, both, 4 * (c % 2), 4 * (c % 2) + 2, 3))
    packed = load(b, at, _SIXTEEN)
    large = [splat(b, _half(b, offset(b, at, 80 + 2 * i)), GROUPS) for i in range(2)]
    scales = b.fmul(large[0], _small_floats(b, b.and_(packed, constant(_SIXTEEN, 15))))
    minima = b.fmul(large[1], _small_floats(b, b.lshr(packed, constant(_SIXTEEN, 4))))
    return Block(quants, scales, minima)


def _read_q3_k(b: Any, at: Any) -> Block:
    third = _twice(b, at)
    quants = []
    for c in range(4):
        both = _twice(b, offset(b, at, 32 + 32 * (c // 2)))
        quants.append(_with_bit(b, _shifted(b, both, 4 * (c % 2), 4 * (c % 2) + 2, 3), third, 2 * c, 4))
    four = ir.VectorType(I32, 4)
    lower, upper = load(b, offset(b, at, 96), I64), load(b, offset(b, at, 104), I32)
    words = b.bitcast(pick(b, splat(b, lower, ir.VectorType(I64, 2)), [0, 0]), four)
    low = b.and_(b.lshr(words, ir.Constant(four, [0, 0, 4, 4])), constant(four, 0x0F0F0F0F))
    high = b.and_(b.lshr(splat(b, upper, four), ir.Constant(four, [0, 2, 4, 6])), constant(four, 0x03030303))
    packed = b.bitcast(b.or_(low, b.shl(high, constant(four, 4))), _SIXTEEN)
    small = _small_floats(b, b.sub(packed, constant(_SIXTEEN, 32)), signed=True)
    return Block(quants, b.fmul(splat(b, _half(b, offset(b, at, 108)), GROUPS), small))


def _read_iq4_xs(b: Any, at: Any) -> Block:
    quants = []
    for c in range(4):
        pair = load(b, offset(b, at, 8 + 32 * c), _HALF_QUARTER)
        spread = pick(b, pair, [*range(16), *range(16), *range(16, 32), *range(16, 32)])
        places = b.and_(bytes_down(b, spread, [0, 4, 0, 4]), constant(QUARTER, 15))
        quants.append(looked_up(b, places, NL_LEVELS))
    eight = ir.VectorType(I32, 8)
    upper = splat(b, b.zext(load(b, offset(b, at, 2), I16), I32), eight)
    upper = b.and_(b.lshr(upper, ir.Constant(eight, list(range(0, 16, 2)))), constant(eight, 3))
    packed = b.zext(pick(b, load(b, offset(b, at, 4), ir.VectorType(I8, 4)), _both([0, 1, 2, 3])), eight)
    lower = b.and_(b.lshr(packed, ir.Constant(eight, [0, 4] * 4)), constant(eight, 15))
    small = b.sub(b.or_(lower, b.shl(upper, constant(eight, 4))), constant(eight, 32))
    scales = b.sitofp(pick(b, small, _both(list(range(8)))), GROUPS)
    return Block(quants, b.fmul(splat(b, _half(b, at), GROUPS), scales))


def looked_up(b: Any, places: Any, levels: tuple[int, ...]) -> Any:
    """Look up signed bytes by indices 0 to 15; vectors of 16, 32 or 64."""
    count = places.type.count
    if ISA.byte_dot == "plain":  # a byte shuffle is not guaranteed: select by the bits of the index
        found = constant(places.type, 0)
        for bit in range(8):
            mask = sum(1 << i for i, level in enumerate(levels) if level >> bit & 1)
            wide = ir.VectorType(I16, count)
            shifted = b.lshr(constant(wide, mask), b.zext(places, wide))
            one = b.trunc(b.and_(shifted, constant(wide, 1)), places.type)
            found = b.or_(found, b.shl(one, constant(places.type, bit)))
        return found
    width = min(count, 4 * ISA.lanes)
    part = ir.VectorType(I8, width)
    name = {64: "avx512.pshuf.b.512", 32: "avx2.pshuf.b", 16: "ssse3.pshuf.b.128"}[width]
    table = ir.Constant(part, [level & 255 for level in levels] * (width // 16))
    pieces = []
    for start in range(0, count, width):
        piece = pick(b, places, list(range(start, start + width))) if width < count else places
        pieces.append(b.call(external(b, f"llvm.x86.{name}", part, [part, part]), [table, piece]))
    if len(pieces) == 1:
        return pieces[0]
    return b.shuffle_vector(*pieces, ir.Constant(ir.VectorType(I32, count), list(range(count))))


def staged(codec: BlockCodec, kind: str) -> Any:
    """Return the operation (block, quants, factors): quants as unsigned bytes in column order, and 16 float32.

    kind "minima": scale and minimum for every 32 columns. "sixteens": a scale for every 16; quants are 32 too large.
    """

    @operation(void, i64, i64, i64)
    def stage(b: Any, at: Any, quants: Any, factors: Any) -> None:
        block = codec.read(b, at)
        added = 128 if codec.signed else 32 - codec.offset if kind == "sixteens" else 0
        for c, quarter in enumerate(block.quants):
            if added:
                quarter = b.add(quarter, constant(QUARTER, added))
            store(b, offset(b, quants, 64 * c), quarter)
        scales = block.scales
        if kind == "minima":
            minima = b.fmul(scales, constant(GROUPS, 128.0)) if codec.signed else block.minima
            places = [place + 16 * which for place in range(0, 16, 2) for which in range(2)]
            scales = b.shuffle_vector(scales, minima, ir.Constant(ir.VectorType(I32, 16), places))
        store(b, factors, scales)

    return stage


BLOCKS = {
    "q2_k": BlockCodec(84, _read_q2_k),
    "q3_k": BlockCodec(110, _read_q3_k, offset=4),
    "q4_k": BlockCodec(144, _read_q4_k),
    "q5_k": BlockCodec(176, _read_q5_k),
    "q6_k": BlockCodec(210, _read_q6_k, offset=32),
    "iq4_xs": BlockCodec(136, _read_iq4_xs, signed=True),
}
