"""Products of rows of GGML's q4_0 and mxfp4 with registers of 64 bytes: for row_dots, sixteen blocks per step.

The blocks' bytes are transposed, so that each lane has one block. Scales then cost one multiplication per step, and a
further vector costs the products alone. Narrower registers: row_dots.Blocks and k_quants.EightBlocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    external,
    halves_to_floats,
    load,
    number,
    offset,
    room,
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


@dataclass(frozen=True)
class _Vector:
    """512 columns of the input, a block in each lane: bytes by four columns, scales, and the sums to begin with."""

    columns: list[Any]
    scales: Any
    start: Any


@dataclass(frozen=True)
class SixteenBlocks:
    """A codec of row_dots: blocks of a scale and 32 quants in 16 bytes; number = scale * (level - offset).

    size: bytes of a block. scales: (builder, address) -> those of sixteen blocks. offset: a multiple of 4. levels: of
    the 16 quants, unsigned bytes; none: the quants themselves.
    """

    size: int
    scales: Callable[[Any, Any], Any]
    offset: int
    levels: tuple[int, ...] = ()
    vector: Format = "lanes"
    step_columns: int = 32 * _BLOCKS

    @property
    def step_bytes(self) -> int:
        return self.size * _BLOCKS

    def sums(self) -> int:
        return 1

    def side_lines(self, b: Any, row: Any, step: Any, d: Any) -> list[Any]:
        return []

    def step(self, b: Any, rows: list[Any], step: Any, x: Any, d: Any, sums: list[list[Any]], asks: Any) -> None:
        vector = self._vector(b, step, x, d)
        at = b.mul(step, number(self.step_bytes))
        for row, row_sums in zip(rows, sums, strict=True):
            here = b.add(row, at)
            self._add(b, self._quants(b, here, asks), self.scales(b, here), vector, row_sums[0])

    def rest(self, b: Any, rows: list[Any], steps: Any, x: Any, d: Any, sums: list[list[Any]]) -> None:
        """Multiply the rest of a row: its last sixteen blocks, turned so that the rest comes first.

        The input counts 0 in the other lanes. A row of less than a step is padded with blocks of 0: nothing beyond it
        may be read. Two threads multiplied rows of 768 columns in their caches at 21 GB/s, with padding at 14, which is
        slower than the RAM.
        """
        blocks = b.udiv(b.add(d, number(31)), number(32))
        left = b.sub(blocks, b.mul(steps, number(_BLOCKS)))
        is_long, is_short = (b.icmp_signed(sign, steps, number(0)) for sign in (">", "=="))
        with b.if_then(b.and_(is_long, b.icmp_signed(">", left, number(0)))):
            vector = self._vector(b, steps, x, d)
            at = b.mul(b.sub(blocks, number(_BLOCKS)), number(self.size))
            lanes = b.sub(ir.Constant(VI, list(range(_BLOCKS))), splat(b, b.trunc(left, I32), VI))
            for row, row_sums in zip(rows, sums, strict=True):
                here = b.add(row, at)
                quants = [b.bitcast(_turned(b, b.bitcast(one, VI), lanes), VB) for one in self._quants(b, here, None)]
                scales = b.bitcast(_turned(b, b.bitcast(self.scales(b, here), VI), lanes), VF)
                self._add(b, quants, scales, vector, row_sums[0])
        with b.if_then(is_short):
            vector = self._vector(b, number(0), x, d)
            for row, row_sums in zip(rows, sums, strict=True):
                here = copied(b, row, left, self.size)
                self._add(b, self._quants(b, here, None), self.scales(b, here), vector, row_sums[0])

    def _vector(self, b: Any, step: Any, x: Any, d: Any) -> _Vector:
        padded = b.mul(b.udiv(b.add(d, number(511)), number(512)), number(512))
        x_bytes, x_scales = b.add(x, b.mul(step, number(512))), b.add(b.add(x, padded), b.mul(step, number(64)))
        eights = load(b, b.add(x_scales, b.lshr(padded, number(3))), VI)
        start = b.mul(b.ashr(eights, constant(VI, 2)), constant(VI, self.offset // 2)) if self.offset != 8 else eights
        return _Vector([load(b, offset(b, x_bytes, 64 * i), VB) for i in range(8)], load(b, x_scales, VF), start)

    def _add(self, b: Any, quants: list[Any], scales: Any, vector: _Vector, total: Any) -> None:
        """Add the products of one row's sixteen blocks."""
        dot = vector.start
        for i, packed in enumerate(quants):
            halves = [b.and_(packed, constant(VB, 15)), b.lshr(packed, constant(VB, 4))]
            if self.levels:
                halves = [looked_up(b, half, self.levels) for half in halves]
            for half, columns in zip(halves, vector.columns[i::4], strict=True):
                dot = dot_unsigned.emit(b, dot, half, columns)
        total.fma(b, b.sitofp(dot, VF), b.fmul(scales, vector.scales))

    def _quants(self, b: Any, at: Any, asks: Any | None) -> list[Any]:
        """Load sixteen blocks' packed quants: four bytes of every block, a block in each lane, then the next four."""
        fours = []
        for i in range(4):
            if asks is not None:
                asks.one(b)
            one = [load(b, offset(b, at, self.size * (4 * k + i + 1) - 16), _SIXTEEN) for k in range(4)]
            halves = [_pick_two(b, one[k], one[k + 1], list(range(32))) for k in (0, 2)]
            fours.append(b.bitcast(_pick_two(b, halves[0], halves[1], list(range(64))), VI))
        if asks is not None:
            asks.one(b)
        pairs = [[_beside(b, fours[i], fours[i + 1], VI, high) for i in (0, 2)] for high in (False, True)]
        words = [[b.bitcast(one, _PAIRS) for one in pair] for pair in pairs]
        return [b.bitcast(_beside(b, pair[0], pair[1], _PAIRS, high), VB) for pair in words for high in (False, True)]


def _beside(b: Any, x: Any, y: Any, of: Any, high: bool) -> Any:
    """Interleave the lower or upper lanes of every 16 bytes of x and y."""
    n = of.count // 4
    places = [start + high * n // 2 + k for start in range(0, of.count, n) for k in range(n // 2)]
    return _pick_two(b, x, y, [place for one in places for place in (one, of.count + one)])


def _turned(b: Any, x: Any, lanes: Any) -> Any:
    """Return the lanes of x by number, modulo 16."""
    return b.call(external(b, "llvm.x86.avx512.permvar.si.512", VI, [VI, VI]), [x, lanes])


def copied(b: Any, at: Any, n: Any, block: int = _BLOCK) -> Any:
    """Copy n of sixteen blocks of this many bytes, pad with blocks of 0, and return the copy's address."""
    size, scale = block * _BLOCKS, block - 16
    copy = room(b, size)
    for place in range(0, size, 16):
        store(b, offset(b, copy, place), constant(_SIXTEEN, 0))
    with cgutils.for_range_slice(b, number(0), b.mul(n, number(block)), number(block), I64) as (place, _):
        source, target = b.add(at, place), b.add(copy, place)
        store(b, target, load(b, source, ir.IntType(8 * scale)))
        store(b, offset(b, target, scale), load(b, offset(b, source, scale), _SIXTEEN))
    return copy


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
