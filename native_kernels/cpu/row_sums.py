"""Sums of weight rows, each times a coefficient, over a range of columns: the inner loops of down, by codec.

Several rows a pass, in ascending order, one after another in every column: the sum of a column depends neither on how
the rows are grouped nor on which columns a worker has. Columns go in units; lines of the rows of the next pass are
asked for between the loads of this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from llvmlite import ir

from native_kernels.cpu.row_dots import (
    CODECS,
    LOOKAHEAD,
    Lanes,
    Plain,
    groups_of,
    list_rows,
    smaller_of,
    steps_of,
    times,
    whole,
)
from native_kernels.cpu.simd import (
    F16,
    F32,
    I8,
    I32,
    I64,
    LANES,
    VF,
    VI,
    VS,
    call_same,
    constant,
    halves_to_floats,
    i64,
    load,
    load_part,
    number,
    offset,
    operation,
    prefetch_near,
    splat,
    store,
    store_part,
    void,
)

_LINE = 64


class Codec(Protocol):
    """How sums over rows of one codec are formed, in columns as the row has them, and brought into order at the end."""

    def units(self, d: int) -> int:
        """Units of a row of d columns."""

    def scratch_bytes(self, d: int) -> int:
        """What one worker needs for sums that are not yet in order."""

    def begin(self, b: Any, first: Any, last: Any, d: Any, out: Any, bias: Any, scratch: Any) -> None:
        """Sets the sums of the units first to last to 0, or to the bias [d] where it is not added later."""

    def add(self, b: Any, rows: list[Any], following: list[Any], values: list[Any], *place: Any) -> None:
        """Adds rows times values; place: first, last, d, out, scratch."""

    def finish(self, b: Any, first: Any, last: Any, d: Any, out: Any, bias: Any, scratch: Any) -> None:
        """Leaves the sums in out [d] f32, with the bias."""


def emit_begin(codec: Codec) -> Callable[..., Any]:
    """The operation (first, last, d, out, bias, scratch)."""
    begin: Callable[..., Any] = operation(void, *[i64] * 6)(codec.begin)
    return begin


def emit_finish(codec: Codec) -> Callable[..., Any]:
    finish: Callable[..., Any] = operation(void, *[i64] * 6)(codec.finish)
    return finish


def emit_add(codec: Codec, n: int) -> Callable[..., Any]:
    """The operation (w, stride, ids, i, following, last id, values, places, first, last, d, out, scratch).

    Adds the n rows from i on of the list, row i times values[places[i]]; the rest as row_dots.emit_dots has it.
    """

    def add_rows(b: Any, *arguments: Any) -> None:
        w, stride, ids, i, follows, last_id, values, places = arguments[:8]
        rows = list_rows(b, w, stride, ids, [offset(b, i, k) for k in range(n)])
        next_places = [smaller_of(b, offset(b, follows, k), last_id) for k in range(n)]
        following = list_rows(b, w, stride, ids, next_places)
        at = [b.sext(load(b, offset(b, b.add(places, times(b, i, 4)), 4 * k), I32), I64) for k in range(n)]
        factors = [load(b, b.add(values, times(b, one, 4)), F32) for one in at]
        codec.add(b, rows, following, factors, *arguments[8:])

    made: Callable[..., Any] = operation(void, *[i64] * 13)(add_rows)
    return made


def _fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    return call_same(b, "fma", x, y, z)


def _zero(b: Any, at: Any, n: Any) -> None:
    """n floats from `at` on."""
    _fill(b, at, n, number(0))


def _fill(b: Any, at: Any, n: Any, source: Any) -> None:
    """n floats from `at` on become those at the source; 0 where that is address 0."""
    with steps_of(b, number(0), n, LANES) as (i, _):
        left = smaller_of(b, b.sub(n, i), number(LANES))
        there = b.select(b.icmp_signed("==", source, number(0)), number(0), left)
        store_part(b, b.add(at, times(b, i, 4)), left, load_part(b, b.add(source, times(b, i, 4)), there, VF))


def _part_of(b: Any, source: Any, n_bytes: Any) -> Any:
    """n_bytes behind an address, unless that is 0."""
    return b.select(b.icmp_signed("==", source, number(0)), number(0), b.add(source, n_bytes))


@dataclass(frozen=True)
class PlainSums:
    """f32, f16, bf16. Units of 32 columns; the sums grow in out itself."""

    numbers: Plain
    unit: int = 32

    def units(self, d: int) -> int:
        return -(-d // self.unit)

    def scratch_bytes(self, d: int) -> int:
        return 0

    def begin(self, b: Any, first: Any, last: Any, d: Any, out: Any, bias: Any, scratch: Any) -> None:
        start = times(b, first, self.unit)
        stop = smaller_of(b, times(b, last, self.unit), d)
        at = times(b, start, 4)
        _fill(b, b.add(out, at), b.sub(stop, start), _part_of(b, bias, at))

    def finish(self, b: Any, first: Any, last: Any, d: Any, out: Any, bias: Any, scratch: Any) -> None:
        pass

    def add(self, b: Any, rows: list[Any], following: list[Any], values: list[Any], *place: Any) -> None:
        first, last, d, out, _ = place
        unit_bytes = self.unit * self.numbers.item
        factors = [splat(b, value, VF) for value in values]
        stop = smaller_of(b, last, whole(b, d, self.unit))  # units that are whole
        ahead = smaller_of(b, b.sub(stop, first), number(max(1, LOOKAHEAD // unit_bytes)))
        turn = b.sub(stop, ahead)
        reach = times(b, ahead, unit_bytes)
        back = times(b, b.sub(turn, first), unit_bytes)
        near = [b.add(row, reach) for row in rows]
        far = [b.sub(row, back) for row in following]
        for start, end, streams in ((first, turn, near), (turn, stop, far)):
            with steps_of(b, start, end) as (unit, _):
                at = times(b, unit, unit_bytes)
                out_at = b.add(out, times(b, unit, 4 * self.unit))
                for piece in range(self.unit // LANES):
                    n_bytes = LANES * self.numbers.item * piece
                    total = load(b, offset(b, out_at, 4 * LANES * piece), VF)
                    for row, stream, factor in zip(rows, streams, factors, strict=True):
                        if n_bytes % _LINE == 0:
                            prefetch_near.emit(b, offset(b, b.add(stream, at), n_bytes))
                        weights = self.numbers.numbers(b, offset(b, b.add(row, at), n_bytes))
                        total = _fma(b, weights, factor, total)
                    store(b, offset(b, out_at, 4 * LANES * piece), total)
        end = smaller_of(b, times(b, last, self.unit), d)
        with steps_of(b, times(b, stop, self.unit), end, LANES) as (column, _):
            n = smaller_of(b, b.sub(end, column), number(LANES))
            out_at = b.add(out, times(b, column, 4))
            total = load_part(b, out_at, n, VF)
            for row, factor in zip(rows, factors, strict=True):
                weights = self.numbers.numbers_part(b, b.add(row, times(b, column, self.numbers.item)), n)
                total = _fma(b, weights, factor, total)
            store_part(b, out_at, n, total)


@dataclass(frozen=True)
class LaneSums:
    """q4_0.lanes, q8_0.lanes. A unit is one chunk of a superblock: 64 bytes, 8 / bits columns of each byte's lane.

    The numbers of a lane are converted where they stand in its 32 bits; the power of two that this leaves is divided
    out at the end, and so is what was added to make them positive. The scratch holds, for each unit, a vector of 16
    for each number of a lane, and behind all units the sum of the coefficients of each group.
    """

    bits: int
    rows_of: Lanes

    @property
    def in_lane(self) -> int:
        return 32 // self.bits

    def units(self, d: int) -> int:
        return -(-d // 512) * self.bits

    def scratch_bytes(self, d: int) -> int:
        return -(-d // 512) * (512 + 16) * 4

    def _at(self, b: Any, scratch: Any, unit: Any) -> Any:
        return b.add(scratch, times(b, unit, 64 * self.in_lane))

    def _coefficients(self, b: Any, scratch: Any, d: Any) -> Any:
        return b.add(scratch, times(b, whole(b, b.add(d, number(511)), 512), 2048))

    def begin(self, b: Any, first: Any, last: Any, d: Any, out: Any, bias: Any, scratch: Any) -> None:
        _zero(b, self._at(b, scratch, first), times(b, b.sub(last, first), 16 * self.in_lane))
        start = whole(b, first, self.bits)
        stop = whole(b, b.add(last, number(self.bits - 1)), self.bits)
        _zero(b, b.add(self._coefficients(b, scratch, d), times(b, start, 64)), times(b, b.sub(stop, start), 16))

    def add(self, b: Any, rows: list[Any], following: list[Any], values: list[Any], *place: Any) -> None:
        first, last, d, *_ = place
        whole_blocks = whole(b, groups_of(b, d), 16)
        start = whole(b, first, self.bits)
        stop = whole(b, b.add(last, number(self.bits - 1)), self.bits)
        turn = smaller_of(b, stop, whole_blocks)
        with steps_of(b, start, turn) as (block, _):
            self._superblock(b, rows, following, values, place, block, None)
        groups = b.sub(groups_of(b, d), times(b, whole_blocks, 16))
        with b.if_then(b.icmp_signed("<", turn, stop)):  # the ragged one
            self._superblock(b, rows, following, values, place, turn, groups)

    def _superblock(
        self, b: Any, rows: list[Any], following: list[Any], values: list[Any], place: Any, block: Any, groups: Any
    ) -> None:
        """groups: of a ragged superblock; None: all 16."""
        first, last, d, _, scratch = place
        scale_at = times(b, block, 32)
        coefficients = b.add(self._coefficients(b, scratch, d), times(b, block, 64))
        chunk = number(64) if groups is None else times(b, groups, 4)
        at = times(b, block, 64 * self.bits)
        for row in following:
            prefetch_near.emit(b, b.add(self.rows_of.scales(b, row, d), scale_at))
        factors: list[list[Any]] = []  # of each part, of each row
        for part in range(16 // LANES):
            n = None if groups is None else b.sub(groups, number(LANES * part))
            factors.append([])
            total = load(b, offset(b, coefficients, 4 * LANES * part), VF)
            for row, value in zip(rows, values, strict=True):
                places = offset(b, b.add(self.rows_of.scales(b, row, d), scale_at), 2 * LANES * part)
                halves = load(b, places, VS) if n is None else load_part(b, places, n, VS)
                factor = b.fmul(halves_to_floats(b, b.bitcast(halves, ir.VectorType(F16, LANES))), splat(b, value, VF))
                factors[part].append(factor)
                total = b.fadd(total, factor)
            store(b, offset(b, coefficients, 4 * LANES * part), total)
        unit_start = times(b, block, self.bits)
        low = b.select(b.icmp_signed(">", first, unit_start), first, unit_start)
        high = smaller_of(b, last, offset(b, unit_start, self.bits))
        with steps_of(b, low, high) as (unit, _):
            sums = self._at(b, scratch, unit)
            here = b.add(at, b.mul(b.sub(unit, unit_start), chunk))
            for part in range(16 // LANES):
                n = None if groups is None else b.sub(groups, number(LANES * part))
                places = [offset(b, sums, 64 * k + 4 * LANES * part) for k in range(self.in_lane)]
                totals = [load(b, place, VF) for place in places]
                for row, stream, factor in zip(rows, following, factors[part], strict=True):
                    if part == 0:
                        prefetch_near.emit(b, b.add(stream, here))
                    packed_at = offset(b, b.add(row, here), 4 * LANES * part)
                    packed = load(b, packed_at, VI) if n is None else load_part(b, packed_at, n, VI)
                    for k, number_k in enumerate(self._numbers(b, packed)):
                        totals[k] = _fma(b, number_k, factor, totals[k])
                for place_k, total in zip(places, totals, strict=True):
                    store(b, place_k, total)

    def _numbers(self, b: Any, packed: Any) -> list[Any]:
        """The numbers of each lane, made positive, the k-th times 2^(bits k) but for the last."""
        if self.bits == 8:
            packed = b.xor(packed, constant(VI, -0x7F7F7F80))  # 0x80808080: a signed byte plus 128
        top = 32 - self.bits
        found = [
            b.and_(packed, constant(VI, ((1 << self.bits) - 1) << (self.bits * k))) for k in range(self.in_lane - 1)
        ]
        return [b.sitofp(one, VF) for one in [*found, b.lshr(packed, constant(VI, top))]]

    def finish(self, b: Any, first: Any, last: Any, d: Any, out: Any, bias: Any, scratch: Any) -> None:
        """One float after another: only once for all rows together."""
        groups = groups_of(b, d)
        shift = ir.Constant(F32, float(-(1 << (self.bits - 1))))
        width = 32 // self.bits  # columns of a unit in each group
        with steps_of(b, first, last) as (unit, _):
            sums = self._at(b, scratch, unit)
            block = whole(b, unit, self.bits)
            columns = times(b, b.sub(unit, times(b, block, self.bits)), width)
            coefficients = b.add(self._coefficients(b, scratch, d), times(b, block, 64))
            n = smaller_of(b, number(16), b.sub(groups, times(b, block, 16)))
            with steps_of(b, number(0), n) as (j, _):
                added = b.fmul(load(b, b.add(coefficients, times(b, j, 4)), F32), shift)
                column = b.add(b.add(times(b, block, 512), times(b, j, 32)), columns)
                for k in range(self.in_lane):
                    total = load(b, offset(b, b.add(sums, times(b, j, 4)), 64 * k), F32)
                    last_one = k == self.in_lane - 1
                    scale = ir.Constant(F32, 1.0 if last_one else 2.0 ** -(self.bits * k))
                    value = b.fadd(b.fmul(total, scale), added)
                    inside = 4 * (k % 2) + k // 2 if self.bits == 4 else k
                    within = b.icmp_signed("<", offset(b, column, inside), d)
                    with b.if_then(within):
                        to = b.add(times(b, column, 4), number(4 * inside))
                        none = b.icmp_signed("==", bias, number(0))
                        # no branch: where there is no bias the sum itself is read, and not used
                        more = load(b, b.select(none, b.add(out, to), b.add(bias, to)), F32)
                        store(b, b.add(out, to), b.select(none, value, b.fadd(value, more)))


@dataclass(frozen=True)
class BlockSums:
    """GGML's q4_0 and q8_0. A unit is a block; the sums grow in out itself."""

    bits: int

    @property
    def block_bytes(self) -> int:
        return 2 + 4 * self.bits

    def units(self, d: int) -> int:
        return d // 32

    def scratch_bytes(self, d: int) -> int:
        return 0

    def begin(self, b: Any, first: Any, last: Any, d: Any, out: Any, bias: Any, scratch: Any) -> None:
        at = times(b, first, 128)
        _fill(b, b.add(out, at), times(b, b.sub(last, first), 32), _part_of(b, bias, at))

    def finish(self, b: Any, first: Any, last: Any, d: Any, out: Any, bias: Any, scratch: Any) -> None:
        pass

    def add(self, b: Any, rows: list[Any], following: list[Any], values: list[Any], *place: Any) -> None:
        first, last, _, out, _ = place
        with steps_of(b, first, last) as (unit, _):
            at = times(b, unit, self.block_bytes)
            out_at = b.add(out, times(b, unit, 128))
            totals = [load(b, offset(b, out_at, 4 * LANES * i), VF) for i in range(32 // LANES)]
            for row, stream, value in zip(rows, following, values, strict=True):
                prefetch_near.emit(b, b.add(stream, at))
                block = b.add(row, at)
                halves = splat(b, load(b, block, F16), ir.VectorType(F16, LANES))
                factor = b.fmul(halves_to_floats(b, halves), splat(b, value, VF))
                for i in range(32 // LANES):
                    totals[i] = _fma(b, b.sitofp(self._numbers(b, block, i), VF), factor, totals[i])
            for i, total in enumerate(totals):
                store(b, offset(b, out_at, 4 * LANES * i), total)

    def _numbers(self, b: Any, block: Any, piece: int) -> Any:
        """Columns LANES * piece and on, as int32."""
        of = ir.VectorType(I8, LANES)
        if self.bits == 8:
            return b.sext(load(b, offset(b, block, 2 + LANES * piece), of), VI)
        packed = load(b, offset(b, block, 2 + LANES * piece % 16), of)
        high = LANES * piece >= 16
        nibbles = b.lshr(packed, constant(of, 4)) if high else b.and_(packed, constant(of, 15))
        return b.sub(b.zext(nibbles, VI), constant(VI, 8))


def _plain(name: str) -> PlainSums:
    codec = CODECS[name]
    assert isinstance(codec, Plain)
    return PlainSums(codec)


SUMS: dict[str, Codec] = {
    "f32": _plain("f32"),
    "f16": _plain("f16"),
    "bf16": _plain("bf16"),
    "q8_0": BlockSums(8),
    "q4_0": BlockSums(4),
    "q8_0.lanes": LaneSums(8, Lanes(8)),
    "q4_0.lanes": LaneSums(4, Lanes(4)),
}
