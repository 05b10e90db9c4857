"""Products of rows of GGML's q4_0 with registers of 64 bytes: for row_dots, sixteen blocks per step.

The products of four blocks are summed as integers in four lanes each, and sixteen blocks are folded to one lane each
before scales are applied, so that scales cost one multiplication per step. Narrower registers: row_dots.Blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import cgutils

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
    store,
)

_BLOCK = 18  # bytes: a float16 scale, and 16 bytes of quants
_BLOCKS = 16
_FOUR = 4 * _BLOCK
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
    """512 columns of the input: for every four blocks the bytes for low and high halves, then scales, and eight times
    the sums of each 16.
    """

    columns: list[tuple[Any, Any]]
    scales: Any
    eights: list[Any]


@dataclass(frozen=True)
class SixteenBlocks:
    """A codec of row_dots for q4_0, with registers of 16 lanes."""

    vector: Format = "q8"
    step_columns: int = 32 * _BLOCKS
    step_bytes: int = _BLOCK * _BLOCKS

    def sums(self) -> int:
        return 1

    def side_lines(self, b: Any, row: Any, step: Any, d: Any) -> list[Any]:
        return []

    def step(self, b: Any, rows: list[Any], step: Any, x: Any, d: Any, sums: list[list[Any]], asks: Any) -> None:
        vector = _vector(b, step, x, d)
        at = b.mul(step, number(self.step_bytes))
        for row, row_sums in zip(rows, sums, strict=True):
            _add(b, b.add(row, at), vector, row_sums[0], asks)

    def rest(self, b: Any, rows: list[Any], steps: Any, x: Any, d: Any, sums: list[list[Any]]) -> None:
        """Multiply the rest of a row as a step padded with blocks of 0, because nothing beyond the row may be read."""
        first = b.mul(steps, number(_BLOCKS))
        left = b.sub(b.udiv(b.add(d, number(31)), number(32)), first)
        with b.if_then(b.icmp_signed(">", left, number(0))):
            vector = _vector(b, steps, x, d)
            for row, row_sums in zip(rows, sums, strict=True):
                copy = copied(b, b.add(row, b.mul(steps, number(self.step_bytes))), left)
                _add(b, copy, vector, row_sums[0], None)


def copied(b: Any, at: Any, n: Any) -> Any:
    """Copy n of sixteen blocks, pad with blocks of 0, and return the copy's address."""
    size = _BLOCK * _BLOCKS
    copy = b.ptrtoint(cgutils.alloca_once(b, ir.ArrayType(I8, size)), I64)
    for place in range(0, size, 32):
        store(b, offset(b, copy, place), constant(ir.VectorType(I8, 32), 0))
    with cgutils.for_range_slice(b, number(0), b.mul(n, number(_BLOCK)), number(_BLOCK), I64) as (place, _):
        source, target = b.add(at, place), b.add(copy, place)
        store(b, target, load(b, source, I16))
        store(b, offset(b, target, 2), load(b, offset(b, source, 2), _SIXTEEN))
    return copy


def _vector(b: Any, step: Any, x: Any, d: Any) -> _Vector:
    padded = b.mul(b.udiv(b.add(d, number(511)), number(512)), number(512))
    x_bytes = b.add(x, b.mul(step, number(512)))
    x_scales = b.add(b.add(x, padded), b.mul(step, number(64)))
    x_sums = b.add(b.add(x, b.add(padded, b.lshr(padded, number(3)))), b.mul(step, number(128)))
    columns = []
    for four in range(4):
        first, second = (load(b, offset(b, x_bytes, 128 * four + 64 * i), VB) for i in range(2))
        low, high = ([32 * i + start + k for i in range(4) for k in range(16)] for start in (0, 16))
        columns.append((_pick_two(b, first, second, low), _pick_two(b, first, second, high)))
    totals = [load(b, offset(b, x_sums, 64 * i), VI) for i in range(2)]
    return _Vector(columns, load(b, x_scales, VF), [b.shl(total, constant(VI, 3)) for total in totals])


def _add(b: Any, at: Any, vector: _Vector, total: Any, asks: Any | None) -> None:
    """Add the products of one row's sixteen blocks at this address."""
    fours = []
    for four, (low, high) in enumerate(vector.columns):
        if asks is not None:
            asks.one(b)
        packed = _quants(b, offset(b, at, _FOUR * four))
        dot = dot_unsigned.emit(b, constant(VI, 0), b.and_(packed, constant(VB, 15)), low)
        fours.append(dot_unsigned.emit(b, dot, b.lshr(packed, constant(VB, 4)), high))
    twos = [b.sub(_fold(b, fours[2 * i], fours[2 * i + 1], _PAIRS), vector.eights[i]) for i in range(2)]
    if asks is not None:
        asks.one(b)
    dots = b.sitofp(_fold(b, twos[0], twos[1], VI), VF)
    total.fma(b, dots, b.fmul(scales_of(b, at), vector.scales))


def _quants(b: Any, at: Any) -> Any:
    """Load the packed quants of four blocks."""
    one = [load(b, offset(b, at, _BLOCK * i + 2), _SIXTEEN) for i in range(4)]
    first, second = (_pick_two(b, one[i], one[i + 1], list(range(32))) for i in (0, 2))
    return _pick_two(b, first, second, list(range(64)))


def scales_of(b: Any, at: Any) -> Any:
    """Load the scales of sixteen blocks, which are alternately in the lower and the upper half of a word."""
    fours = [load(b, offset(b, at, _FOUR * i), VI) for i in range(4)]
    places = [0, 4, 9, 13, 16, 20, 25, 29]
    first, second = (_pick_two(b, fours[i], fours[i + 1], places) for i in (0, 2))
    words = _pick_two(b, first, second, list(range(16)))
    halves = b.trunc(b.lshr(words, ir.Constant(VI, [0, 16] * 8)), _WORDS)
    return halves_to_floats(b, b.bitcast(halves, VH))
