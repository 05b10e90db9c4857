"""Products of rows of GGML's q4_0 and mxfp4 with registers of 64 bytes: for row_dots, sixteen blocks per step.

The products of four blocks are summed as integers in four lanes each, and sixteen blocks are folded to one lane each
before scales are applied, so that scales cost one multiplication per step. Narrower registers: row_dots.Blocks and
k_quants.EightBlocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from native_kernels.cpu.blocks.k_quant_blocks import looked_up
from native_kernels.cpu.blocks.small_block_reads import E2M1_LEVELS, E2M1_ZERO, half_powers
from native_kernels.cpu.products.activations import Format
from native_kernels.cpu.runtime.simd import (
    I8,
    I16,
    I32,
    I64,
    VB,
    VF,
    VH,
    VI,
    constant,
    dot_unsigned,
    halves_to_floats,
    load,
    number,
    offset,
    splat,
    store,
)

_BLOCK = 18  # bytes of q4_0: a float16 scale, and 16 bytes of quants
_BLOCKS = 16
_SIXTEEN = ir.VectorType(I8, 16)
_WORDS = ir.VectorType(I16, 16)
_PAIRS = ir.VectorType(I64, 8)


def _pick_two(b: Any, x: Any, y: Any, places: list[int]) -> Any:
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(places)), places))


def _fold(b: Any, x: Any, y: Any, of: Any) -> Any:
    """Return the pairwise sums of x, then of y; `of`: the lane type, so that pairs of pairs can be added."""
    x, y = b.bitcast(x, of), b.bitcast(y, of)
    even, odd = (b.bitcast(_pick_two(b, x, y, list(range(first, 2 * of.count, 2))), VI) for first in (0, 1))
    return b.add(even, odd)


@dataclass(frozen=True)
class _Vector:
    """512 columns of the input: for every four blocks the bytes for low and high halves, then scales, and the sums of
    each 16.
    """

    columns: list[tuple[Any, Any]]
    scales: Any
    totals: list[Any]


@dataclass(frozen=True)
class SixteenBlocks:
    """A codec of row_dots: blocks of a scale and 32 quants in 16 bytes; number = scale * (level - offset).

    size: bytes of a block. scales: (builder, address) -> those of sixteen blocks. levels: of the 16 quants, unsigned
    bytes; none: the quants themselves.
    """

    size: int
    scales: Callable[[Any, Any], Any]
    offset: int
    levels: tuple[int, ...] = ()
    vector: Format = "q8"
    step_columns: int = 32 * _BLOCKS

    @property
    def step_bytes(self) -> int:
        return self.size * _BLOCKS

    def sums(self) -> int:
        return 1

    def side_lines(self, b: Any, row: Any, step: Any, d: Any) -> list[Any]:
        return []

    def step(self, b: Any, rows: list[Any], step: Any, x: Any, d: Any, sums: list[list[Any]], asks: Any) -> None:
        vector = _vector(b, b.mul(step, number(_BLOCKS)), x, d)
        at = b.mul(step, number(self.step_bytes))
        for row, row_sums in zip(rows, sums, strict=True):
            self._add(b, b.add(row, at), vector, row_sums[0], asks)

    def rest(self, b: Any, rows: list[Any], steps: Any, x: Any, d: Any, sums: list[list[Any]]) -> None:
        """Multiply the rest of a row as the row's last step, in which the blocks that were multiplied count 0.

        A row of less than a step is padded with blocks of 0: nothing beyond it may be read. Two threads multiplied rows
        of 768 columns in their caches at 21 GB/s, with padding at 14, which is slower than the RAM.
        """
        blocks = b.udiv(b.add(d, number(31)), number(32))
        left = b.sub(blocks, b.mul(steps, number(_BLOCKS)))
        is_long, is_short = (b.icmp_signed(sign, steps, number(0)) for sign in (">", "=="))
        with b.if_then(b.and_(is_long, b.icmp_signed(">", left, number(0)))):
            first = b.sub(blocks, number(_BLOCKS))
            vector = _without(b, _vector(b, first, x, d), b.sub(number(_BLOCKS), left))
            for row, row_sums in zip(rows, sums, strict=True):
                self._add(b, b.add(row, b.mul(first, number(self.size))), vector, row_sums[0], None)
        with b.if_then(is_short):
            vector = _vector(b, number(0), x, d)
            for row, row_sums in zip(rows, sums, strict=True):
                self._add(b, copied(b, row, left, self.size), vector, row_sums[0], None)

    def _add(self, b: Any, at: Any, vector: _Vector, total: Any, asks: Any | None) -> None:
        """Add the products of one row's sixteen blocks at this address."""
        fours = []
        for four, (low, high) in enumerate(vector.columns):
            if asks is not None:
                asks.one(b)
            packed = self._quants(b, offset(b, at, 4 * self.size * four))
            halves = [b.and_(packed, constant(VB, 15)), b.lshr(packed, constant(VB, 4))]
            if self.levels:
                halves = [looked_up(b, half, self.levels) for half in halves]
            dot = dot_unsigned.emit(b, constant(VI, 0), halves[0], low)
            fours.append(dot_unsigned.emit(b, dot, halves[1], high))
        less = [b.mul(one, constant(VI, self.offset)) for one in vector.totals]
        twos = [b.sub(_fold(b, fours[2 * i], fours[2 * i + 1], _PAIRS), less[i]) for i in range(2)]
        if asks is not None:
            asks.one(b)
        dots = b.sitofp(_fold(b, twos[0], twos[1], VI), VF)
        total.fma(b, dots, b.fmul(self.scales(b, at), vector.scales))

    def _quants(self, b: Any, at: Any) -> Any:
        """Load the packed quants of four blocks."""
        one = [load(b, offset(b, at, self.size * (i + 1) - 16), _SIXTEEN) for i in range(4)]
        first, second = (_pick_two(b, one[i], one[i + 1], list(range(32))) for i in (0, 2))
        return _pick_two(b, first, second, list(range(64)))


def copied(b: Any, at: Any, n: Any, block: int = _BLOCK) -> Any:
    """Copy n of sixteen blocks of this many bytes, pad with blocks of 0, and return the copy's address."""
    size, scale = block * _BLOCKS, block - 16
    copy = b.ptrtoint(cgutils.alloca_once(b, ir.ArrayType(I8, size)), I64)
    for place in range(0, size, 16):
        store(b, offset(b, copy, place), constant(_SIXTEEN, 0))
    with cgutils.for_range_slice(b, number(0), b.mul(n, number(block)), number(block), I64) as (place, _):
        source, target = b.add(at, place), b.add(copy, place)
        store(b, target, load(b, source, ir.IntType(8 * scale)))
        store(b, offset(b, target, scale), load(b, offset(b, source, scale), _SIXTEEN))
    return copy


def _without(b: Any, vector: _Vector, n: Any) -> _Vector:
    """Return the vector with scales of 0 for its first n blocks."""
    lanes = ir.Constant(VI, list(range(_BLOCKS)))
    counts = b.icmp_signed(">=", lanes, splat(b, b.trunc(n, I32), VI))
    return replace(vector, scales=b.select(counts, vector.scales, constant(VF, 0.0)))


def _vector(b: Any, first: Any, x: Any, d: Any) -> _Vector:
    """Return the sixteen blocks of the input from `first` on."""
    padded = b.mul(b.udiv(b.add(d, number(511)), number(512)), number(512))
    x_bytes = b.add(x, b.mul(first, number(32)))
    x_scales = b.add(b.add(x, padded), b.mul(first, number(4)))
    x_sums = b.add(b.add(x, b.add(padded, b.lshr(padded, number(3)))), b.mul(first, number(8)))
    columns = []
    for four in range(4):
        first, second = (load(b, offset(b, x_bytes, 128 * four + 64 * i), VB) for i in range(2))
        low, high = ([32 * i + start + k for i in range(4) for k in range(16)] for start in (0, 16))
        columns.append((_pick_two(b, first, second, low), _pick_two(b, first, second, high)))
    return _Vector(columns, load(b, x_scales, VF), [load(b, offset(b, x_sums, 64 * i), VI) for i in range(2)])


def scales_of(b: Any, at: Any) -> Any:
    """Load the scales of sixteen blocks of q4_0, which are alternately in the lower and the upper half of a word."""
    words = _words(b, at, _BLOCK, [0, 4, 9, 13])
    halves = b.trunc(b.lshr(words, ir.Constant(VI, [0, 16] * 8)), _WORDS)
    return halves_to_floats(b, b.bitcast(halves, VH))


def _exponents_of(b: Any, at: Any) -> Any:
    """Load the scales of sixteen blocks of mxfp4, which are in turn in the four bytes of a word."""
    words = _words(b, at, 17, [0, 4, 8, 12])
    return half_powers(b, b.and_(b.lshr(words, ir.Constant(VI, [0, 8, 16, 24] * 4)), constant(VI, 255)))


def _words(b: Any, at: Any, size: int, places: list[int]) -> Any:
    """Load four words of each four of sixteen blocks."""
    fours = [load(b, offset(b, at, 4 * size * i), VI) for i in range(4)]
    both = places + [_BLOCKS + place for place in places]
    first, second = (_pick_two(b, fours[i], fours[i + 1], both) for i in (0, 2))
    return _pick_two(b, first, second, list(range(16)))


SIXTEEN_BLOCKS = {
    "q4_0": SixteenBlocks(_BLOCK, scales_of, 8),
    "mxfp4": SixteenBlocks(17, _exponents_of, E2M1_ZERO, E2M1_LEVELS),
}
