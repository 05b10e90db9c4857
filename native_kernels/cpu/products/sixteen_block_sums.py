"""Sums of rows of GGML's q4_0 times coefficients, with registers of 64 bytes: for row_sums, sixteen blocks at a time.

Coefficient and scale of a row form one factor per block, and factors are rounded to bytes as in row_sums.LaneSums.
Narrower registers: row_sums.BlockSums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from native_kernels.cpu.products.row_dots import ON_THE_WAY, Asks, smaller_of, steps_of
from native_kernels.cpu.products.sixteen_blocks import copied, scales_of
from native_kernels.cpu.runtime.simd import (
    I8,
    I32,
    I64,
    LANES,
    VB,
    VF,
    VI,
    call_same,
    constant,
    dot_unsigned,
    load,
    number,
    offset,
    prefetch_near,
    splat,
    store,
    times,
)

_BLOCK = 18
_BLOCKS = 16
_BYTES = _BLOCK * _BLOCKS
_LINE = 64
_SIXTEEN = ir.VectorType(I8, 16)
# Interleaves four consecutive rows: their bytes for one column in one lane.
_SIDE_BY_SIDE = [16 * row + column for column in range(16) for row in range(4)]


@dataclass(frozen=True)
class SixteenBlockSums:
    """A unit is a block; sums accumulate in out."""

    as_words: Callable[..., Any]  # row_sums' rounding of factors
    fill: Callable[..., None]
    whole_passes: bool = True

    def units(self, d: int) -> int:
        return d // 32

    def scratch_bytes(self, d: int) -> int:
        return 0

    def begin(self, b: Any, first: Any, last: Any, d: Any, out: Any, bias: Any, scratch: Any) -> None:
        at = times(b, first, 128)
        source = b.select(b.icmp_signed("==", bias, number(0)), number(0), b.add(bias, at))
        self.fill(b, b.add(out, at), times(b, b.sub(last, first), 32), source)

    def finish(self, b: Any, first: Any, last: Any, d: Any, out: Any, bias: Any, scratch: Any) -> None:
        pass

    def add(self, b: Any, rows: list[Any], following: list[Any], values: list[Any], *place: Any) -> None:
        first, last, d, out, _ = place
        factors = _Factors.room(b, len(rows) // 4)
        blocks = b.sub(last, first)
        whole = b.sub(blocks, b.and_(blocks, number(_BLOCKS - 1)))
        end = b.add(first, whole)
        ahead = smaller_of(b, whole, number(_BLOCKS * max(1, ON_THE_WAY // len(rows) // _BYTES)))
        turn = b.sub(end, ahead)
        back = b.sub(first, turn)
        for start, stop, streams, shift in ((first, turn, rows, ahead), (turn, end, following, back)):
            asked = [b.add(row, times(b, shift, _BLOCK)) for row in streams]
            with steps_of(b, start, stop, _BLOCKS) as (block, _):
                at = times(b, block, _BLOCK)
                asks = Asks()
                for row in asked:
                    for line in range(-(-_BYTES // _LINE)):
                        asks.wait(line, offset(b, b.add(row, at), _LINE * line))
                here = [b.add(row, at) for row in rows]
                self._prepare(b, here, values, factors)
                out_at = b.add(out, times(b, block, 128))
                for k in range(_BLOCKS):
                    for _ in range(3):
                        asks.one(b)
                    _add_block(b, [offset(b, row, _BLOCK * k) for row in here], factors, number(k), out_at)
                asks.rest(b)
        with b.if_then(b.icmp_signed("<", end, last)):
            # Fewer than sixteen blocks: read sixteen that end within the row, or else a copy.
            of_row = b.udiv(d, number(32))
            enough = b.icmp_signed(">=", of_row, number(_BLOCKS))
            window = smaller_of(b, end, b.select(enough, b.sub(of_row, number(_BLOCKS)), end))
            at = times(b, window, _BLOCK)
            left = b.select(enough, number(0), b.sub(last, end))
            here = [b.select(enough, b.add(row, at), copied(b, b.add(row, at), left)) for row in rows]
            self._prepare(b, here, values, factors)
            out_at = b.add(out, times(b, window, 128))
            with steps_of(b, b.sub(end, window), b.sub(last, window)) as (k, _):
                for stream in following:
                    prefetch_near.emit(b, b.add(stream, times(b, b.add(window, k), _BLOCK)))
                _add_block(b, [b.add(row, times(b, k, _BLOCK)) for row in here], factors, k, out_at)

    def _prepare(self, b: Any, rows: list[Any], values: list[Any], factors: _Factors) -> None:
        scales = [scales_of(b, row) for row in rows]
        words, step, total = self.as_words(b, scales, values)
        for place, word in zip(factors.words, words, strict=True):
            store(b, place, word)
        store(b, factors.steps, step)
        # Quants are treated as unsigned: eight times the sum of the factors is too much.
        store(b, factors.taken_off, b.fmul(b.fmul(b.sitofp(total, VF), step), constant(VF, -8.0)))


@dataclass(frozen=True)
class _Factors:
    """Addresses of the factors of sixteen blocks: bytes by four rows, the value of one, the final correction."""

    words: list[Any]
    steps: Any
    taken_off: Any

    @classmethod
    def room(cls, b: Any, fours: int) -> _Factors:
        space = ir.ArrayType(I32, LANES)
        places = [b.ptrtoint(cgutils.alloca_once(b, space), I64) for _ in range(fours + 2)]
        return cls(places[:fours], *places[fours:])


def _add_block(b: Any, rows: list[Any], factors: _Factors, k: Any, out: Any) -> None:
    """Add block k of sixteen, given its address in every row."""
    at = times(b, k, 4)
    sums = [constant(VI, 0), constant(VI, 0)]
    for i, place in enumerate(factors.words):
        packed = [load(b, offset(b, row, 2), _SIXTEEN) for row in rows[4 * i : 4 * i + 4]]
        halves = [_joined(b, *packed[j : j + 2]) for j in (0, 2)]
        four = _joined(b, *halves)
        quants = b.shuffle_vector(four, four, ir.Constant(ir.VectorType(I32, 64), _SIDE_BY_SIDE))
        word = b.bitcast(splat(b, load(b, b.add(place, at), I32), VI), VB)
        sums[0] = dot_unsigned.emit(b, sums[0], b.and_(quants, constant(VB, 15)), word)
        sums[1] = dot_unsigned.emit(b, sums[1], b.lshr(quants, constant(VB, 4)), word)
    step = splat(b, load(b, b.add(factors.steps, at), VF.element), VF)
    taken_off = splat(b, load(b, b.add(factors.taken_off, at), VF.element), VF)
    for i, total in enumerate(sums):
        place = offset(b, b.add(out, times(b, k, 128)), 64 * i)
        before = b.fadd(load(b, place, VF), taken_off)
        store(b, place, call_same(b, "fma", b.sitofp(total, VF), step, before))


def _joined(b: Any, x: Any, y: Any) -> Any:
    size = 2 * x.type.count
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, size), list(range(size))))
