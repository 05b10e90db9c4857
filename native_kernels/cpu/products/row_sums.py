"""Sums of weight rows, each times a coefficient, over a range of columns: the inner loops of down, by codec.

A pass adds several rows, in ascending order within every column: the sum of a column depends neither on the grouping of
the rows nor on which columns a worker has. Columns go in units. Rows of the next pass are prefetched between the loads
of this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from llvmlite import ir

from native_kernels.cpu.products.row_dots import (
    CODECS,
    ON_THE_WAY,
    SHIFTS_SIGNED,
    Lanes,
    Plain,
    groups_of,
    list_rows,
    smaller_of,
    steps_of,
    whole,
)
from native_kernels.cpu.products.sixteen_block_sums import SixteenBlockSums
from native_kernels.cpu.runtime.simd import (
    F16,
    F32,
    I8,
    I32,
    LANES,
    VB,
    VF,
    VH,
    VI,
    VS,
    call_same,
    constant,
    dot_signed,
    dot_unsigned,
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
    times,
    void,
)

_LINE = 64


class Codec(Protocol):
    """Sums the rows of one codec, in columns as the row stores them; the order is restored at the end."""

    @property
    def whole_passes(self) -> bool:
        """Whether passes must be whole: the last one is padded with rows times 0."""

    def units(self, d: int) -> int:
        """Return the units of a row of d columns."""

    def scratch_bytes(self, d: int) -> int:
        """Return the bytes that one worker needs for sums in the row's order."""

    def begin(self, b: Any, first: Any, last: Any, d: Any, out: Any, bias: Any, scratch: Any) -> None:
        """Set the sums of the units first to last to 0, or to the bias [d] unless `finish` adds it."""

    def add(self, b: Any, rows: list[Any], following: list[Any], values: list[Any], *place: Any) -> None:
        """Add rows times values. place: first, last, d, out, scratch."""

    def finish(self, b: Any, first: Any, last: Any, d: Any, out: Any, bias: Any, scratch: Any) -> None:
        """Write the sums to out [d] f32, with the bias."""


def emit_begin(codec: Codec) -> Callable[..., Any]:
    """Return the operation (first, last, d, out, bias, scratch)."""
    begin: Callable[..., Any] = operation(void, *[i64] * 6)(codec.begin)
    return begin


def emit_finish(codec: Codec) -> Callable[..., Any]:
    finish: Callable[..., Any] = operation(void, *[i64] * 6)(codec.finish)
    return finish


def emit_add(codec: Codec, n: int) -> Callable[..., Any]:
    """Return the operation (w, stride, ids, i, following, last id, values, first, last, d, out, scratch).

    It adds the n rows of the list from i on, row i times values[i]; the rest as in row_dots.emit_dots.
    """

    def add_rows(b: Any, *arguments: Any) -> None:
        w, stride, ids, i, follows, last_id, values = arguments[:7]
        rows = list_rows(b, w, stride, ids, [offset(b, i, k) for k in range(n)])
        next_places = [smaller_of(b, offset(b, follows, k), last_id) for k in range(n)]
        following = list_rows(b, w, stride, ids, next_places)
        factors = [load(b, offset(b, b.add(values, times(b, i, 4)), 4 * k), F32) for k in range(n)]
        codec.add(b, rows, following, factors, *arguments[7:])

    made: Callable[..., Any] = operation(void, *[i64] * 12)(add_rows)
    return made


def emit_add_towards(codec: Codec, n: int) -> Callable[..., Any]:
    """Return the operation (w, stride, ids, i, other w, other stride, other ids, follows, last, values, first unit,
    last unit, d, out, scratch).

    As emit_add, but it prefetches rows of another matrix.
    """

    def add_rows(b: Any, *arguments: Any) -> None:
        w, stride, ids, i, other, other_stride, other_ids, follows, last_id, values = arguments[:10]
        rows = list_rows(b, w, stride, ids, [offset(b, i, k) for k in range(n)])
        next_places = [smaller_of(b, offset(b, follows, k), last_id) for k in range(n)]
        following = list_rows(b, other, other_stride, other_ids, next_places)
        factors = [load(b, offset(b, b.add(values, times(b, i, 4)), 4 * k), F32) for k in range(n)]
        codec.add(b, rows, following, factors, *arguments[10:])

    made: Callable[..., Any] = operation(void, *[i64] * 15)(add_rows)
    return made


def _fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    return call_same(b, "fma", x, y, z)


def _zero(b: Any, at: Any, n: Any) -> None:
    """Set n floats from `at` on to 0."""
    _fill(b, at, n, number(0))


def _fill(b: Any, at: Any, n: Any, source: Any) -> None:
    """Copy n floats from the source to `at`; source 0: set them to 0."""
    with steps_of(b, number(0), n, LANES) as (i, _):
        left = smaller_of(b, b.sub(n, i), number(LANES))
        there = b.select(b.icmp_signed("==", source, number(0)), number(0), left)
        store_part(b, b.add(at, times(b, i, 4)), left, load_part(b, b.add(source, times(b, i, 4)), there, VF))


def _part_of(b: Any, source: Any, n_bytes: Any) -> Any:
    """Return the address n_bytes after another, or 0 if that is 0."""
    return b.select(b.icmp_signed("==", source, number(0)), number(0), b.add(source, n_bytes))


@dataclass(frozen=True)
class PlainSums:
    """f32, f16, bf16. Units of 32 columns; sums accumulate in out."""

    numbers: Plain
    unit: int = 32
    whole_passes: bool = False

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
        stop = smaller_of(b, last, whole(b, d, self.unit))  # whole units
        ahead = smaller_of(b, b.sub(stop, first), number(max(1, ON_THE_WAY // len(rows) // unit_bytes)))
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
    """q4_0.lanes, q8_0.lanes. A unit is one chunk of a superblock: 64 bytes of every row.

    Coefficient and scale of a row form one factor per group. The factors of a pass are rounded to bytes, to 1 / 127 of
    the largest of the pass, much as GGML rounds the input of q4_0; the bytes of four rows for one column are
    interleaved and multiplied as bytes. Quants are treated as unsigned; the excess is subtracted at the end, by the sum
    of each group's factors. The scratch holds each unit's sums as vectors of 16 (every four lanes are four adjacent
    columns of a group), then the sums of the factors.
    """

    bits: int
    rows_of: Lanes
    whole_passes: bool = True

    @property
    def vectors(self) -> int:
        """Vectors of 16 sums in a unit."""
        return 32 // self.bits

    def units(self, d: int) -> int:
        return -(-d // 512) * self.bits

    def scratch_bytes(self, d: int) -> int:
        return -(-d // 512) * (512 + 16) * 4

    def _at(self, b: Any, scratch: Any, unit: Any) -> Any:
        return b.add(scratch, times(b, unit, 64 * self.vectors))

    def _factor_sums(self, b: Any, scratch: Any, d: Any) -> Any:
        return b.add(scratch, times(b, whole(b, b.add(d, number(511)), 512), 2048))

    def begin(self, b: Any, first: Any, last: Any, d: Any, out: Any, bias: Any, scratch: Any) -> None:
        _zero(b, self._at(b, scratch, first), times(b, b.sub(last, first), 16 * self.vectors))
        start = whole(b, first, self.bits)
        stop = whole(b, b.add(last, number(self.bits - 1)), self.bits)
        _zero(b, b.add(self._factor_sums(b, scratch, d), times(b, start, 64)), times(b, b.sub(stop, start), 16))

    def add(self, b: Any, rows: list[Any], following: list[Any], values: list[Any], *place: Any) -> None:
        first, last, d, *_ = place
        whole_blocks = whole(b, groups_of(b, d), 16)
        start = whole(b, first, self.bits)
        stop = whole(b, b.add(last, number(self.bits - 1)), self.bits)
        end = smaller_of(b, stop, whole_blocks)
        block_bytes = 64 * self.bits
        ahead = smaller_of(b, b.sub(end, start), number(max(1, ON_THE_WAY // len(rows) // block_bytes)))
        turn = b.sub(end, ahead)  # from here on the following rows are prefetched
        back = b.sub(start, turn)
        for begin, until, streams, shift in ((start, turn, rows, ahead), (turn, end, following, back)):
            asked = [
                (b.add(row, times(b, shift, block_bytes)), b.add(self.rows_of.scales(b, row, d), times(b, shift, 32)))
                for row in streams
            ]
            with steps_of(b, begin, until) as (block, _):
                self._superblock(b, rows, asked, values, place, block, None)
        groups = b.sub(groups_of(b, d), times(b, whole_blocks, 16))
        with b.if_then(b.icmp_signed("<", end, stop)):  # the incomplete superblock
            asked = [(row, self.rows_of.scales(b, row, d)) for row in following]
            self._superblock(b, rows, asked, values, place, end, groups)

    def _superblock(
        self,
        b: Any,
        rows: list[Any],
        asked: list[tuple[Any, Any]],
        values: list[Any],
        place: Any,
        block: Any,
        groups: Any,
    ) -> None:
        """Add a superblock. asked: quants and scales to prefetch. groups: how many it has; None: all 16."""
        first, last, d, _, scratch = place
        scale_at = times(b, block, 32)
        factor_sums = b.add(self._factor_sums(b, scratch, d), times(b, block, 64))
        chunk = number(64) if groups is None else times(b, groups, 4)
        at = times(b, block, 64 * self.bits)
        for _, scales_ahead in asked:
            prefetch_near.emit(b, b.add(scales_ahead, scale_at))
        parts = [number(LANES * part) if groups is None else b.sub(groups, number(LANES * part)) for part in _PARTS]
        factors = []
        for part, n in enumerate(parts):
            scales = []
            for row in rows:
                scale = offset(b, b.add(self.rows_of.scales(b, row, d), scale_at), 2 * LANES * part)
                bits = load(b, scale, VS) if groups is None else load_part(b, scale, n, VS)
                scales.append(halves_to_floats(b, b.bitcast(bits, VH)))
            factors.append(_as_bytes(b, scales, values, offset(b, factor_sums, 4 * LANES * part)))
        unit_start = times(b, block, self.bits)
        low = b.select(b.icmp_signed(">", first, unit_start), first, unit_start)
        high = smaller_of(b, last, offset(b, unit_start, self.bits))
        with steps_of(b, low, high) as (unit, _):
            sums = self._at(b, scratch, unit)
            here = b.add(at, b.mul(b.sub(unit, unit_start), chunk))
            for part, n in enumerate(parts):
                quants = []
                for row, (stream, _) in zip(rows, asked, strict=True):
                    if part == 0:
                        prefetch_near.emit(b, b.add(stream, here))
                    packed_at = offset(b, b.add(row, here), 4 * LANES * part)
                    quants.append(
                        load(b, packed_at, VB) if groups is None else b.bitcast(load_part(b, packed_at, n, VI), VB)
                    )
                fours = [_side_by_side(b, quants[k : k + 4]) for k in range(0, len(quants), 4)]
                for i in range(4):
                    scale, words = factors[part].scales[i], factors[part].words
                    for k, products in enumerate(
                        self._products(b, [one[i] for one in fours], [one[i] for one in words])
                    ):
                        place_k = offset(b, sums, 64 * (8 // self.bits * i + k) + 4 * LANES * part)
                        store(b, place_k, _fma(b, b.sitofp(products, VF), scale, load(b, place_k, VF)))

    def _products(self, b: Any, quants: list[Any], words: list[Any]) -> list[Any]:
        """Return the sums over all rows for a vector's columns: of low and then high halves, or of whole bytes."""
        if self.bits == 8:
            return [_products(b, quants, words, SHIFTS_SIGNED)]
        low = [b.and_(one, constant(VB, 15)) for one in quants]
        high = [b.lshr(one, constant(VB, 4)) for one in quants]
        return [_products(b, one, words, None) for one in (low, high)]

    def finish(self, b: Any, first: Any, last: Any, d: Any, out: Any, bias: Any, scratch: Any) -> None:
        shift = -8.0 if self.bits == 4 else -128.0 if SHIFTS_SIGNED else 0.0
        quarter = ir.VectorType(F32, 4)
        halves = 8 // self.bits
        no_bias = b.icmp_signed("==", bias, number(0))
        with steps_of(b, first, last) as (unit, _):
            sums = self._at(b, scratch, unit)
            block = whole(b, unit, self.bits)
            within = times(b, b.sub(unit, times(b, block, self.bits)), 4 * halves)
            factor_sums = b.add(self._factor_sums(b, scratch, d), times(b, block, 64))
            with steps_of(b, number(0), number(16)) as (group, _):
                four, in_four = b.lshr(group, number(2)), b.and_(group, number(3))
                here = b.add(sums, b.add(times(b, in_four, 64 * halves), times(b, four, 16)))
                factor_sum = load(b, b.add(factor_sums, times(b, group, 4)), F32)
                taken = b.fmul(factor_sum, ir.Constant(F32, shift))
                column = b.add(b.add(times(b, block, 512), times(b, group, 32)), within)
                for k in range(halves):
                    start = offset(b, column, 4 * k)
                    to = times(b, start, 4)
                    total = load(b, offset(b, here, 64 * k), quarter)
                    total = b.fadd(total, splat(b, taken, quarter))
                    left = b.sub(d, start)
                    whole_quarter = b.icmp_signed(">=", left, number(4))
                    with b.if_else(whole_quarter) as (all_there, some_there):
                        with all_there:
                            # without a bias the sums' own address is read, and the value not used
                            more = load(b, b.select(no_bias, sums, b.add(bias, to)), quarter)
                            store(b, b.add(out, to), b.select(no_bias, total, b.fadd(total, more)))
                        with some_there:
                            for i in range(3):
                                with b.if_then(b.icmp_signed(">", left, number(i))):
                                    one = b.extract_element(total, ir.Constant(I32, i))
                                    at = offset(b, to, 4 * i)
                                    more = load(b, b.select(no_bias, sums, b.add(bias, at)), F32)
                                    store(b, b.add(out, at), b.select(no_bias, one, b.fadd(one, more)))


_PARTS = range(16 // LANES)
_MAGIC = 12582912.0  # 1.5 x 2^23: added to a small float32, it leaves the nearest integer in the lowest bits
_MAGIC_BITS = 0x4B400000


@dataclass(frozen=True)
class Factors:
    """The factors of the rows of a pass, for LANES groups."""

    words: list[list[Any]]  # per four rows, per four groups: its four bytes in every lane of that group
    scales: list[Any]  # one per four groups


def _as_bytes(b: Any, scales: list[Any], values: list[Any], sums_at: Any) -> Factors:
    """Round the rows' scales times their values to bytes; add their sums at sums_at."""
    rounded, step, total = as_words(b, scales, values)
    store(b, sums_at, _fma(b, b.sitofp(total, VF), step, load(b, sums_at, VF)))
    words = [[_spread_within_fours(b, word, i) for i in range(4)] for word in rounded]
    return Factors(words, [_spread_within_fours(b, step, i) for i in range(4)])


def as_words(b: Any, scales: list[Any], values: list[Any]) -> tuple[list[Any], Any, Any]:
    """Round the rows' scales times their values to bytes, for LANES groups.

    Return the bytes by four rows, the value of one unit, and the sum of all.
    """
    factors = [b.fmul(scale, splat(b, value, VF)) for scale, value in zip(scales, values, strict=True)]
    largest, spoilt = constant(VF, 0.0), constant(VF, 0.0)
    for factor in factors:
        size = call_same(b, "fabs", factor)
        largest = b.select(b.fcmp_ordered(">", size, largest), size, largest)
        spoilt = _fma(b, factor, constant(VF, 0.0), spoilt)  # 0, or NaN if a factor is not finite
    step = b.fadd(b.fmul(largest, constant(VF, 1 / 127)), spoilt)
    usable = b.fcmp_ordered(">", b.fmul(largest, constant(VF, 1 / 127)), constant(VF, 0.0))
    inverse = b.select(usable, b.fdiv(constant(VF, 127.0), largest), constant(VF, 0.0))
    rounded = [b.bitcast(_fma(b, factor, inverse, constant(VF, _MAGIC)), VI) for factor in factors]
    total = b.sub(constant(VI, 0), b.mul(constant(VI, _MAGIC_BITS), constant(VI, len(rounded))))
    for one in rounded:
        total = b.add(total, one)
    words = []
    for k in range(0, len(rounded), 4):
        word = b.shl(rounded[k + 3], constant(VI, 24))
        for i in range(3):
            word = b.or_(word, b.shl(b.and_(rounded[k + i], constant(VI, 255)), constant(VI, 8 * i)))
        words.append(word)
    return words, step, total


def _spread_within_fours(b: Any, vector: Any, i: int) -> Any:
    """Copy lane i of each four lanes to all four."""
    return b.shuffle_vector(vector, vector, ir.Constant(VI, [4 * (lane // 4) + i for lane in range(LANES)]))


def _side_by_side(b: Any, rows: list[Any]) -> list[Any]:
    """Interleave the bytes of four rows. Vector i: of each 16 bytes, the places 4 i to 4 i + 3."""

    def interleaved(x: Any, y: Any, size: int, high: bool) -> Any:
        """Interleave items of `size` bytes of the low or high 8 of each 16 bytes of x and y."""
        width, places = x.type.count, []
        for start in range(0, width, 16):
            for item in range(8 // size):
                for source in (0, width):
                    places += [source + start + 8 * high + item * size + i for i in range(size)]
        return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, width), places))

    low, high = ((interleaved(rows[0], rows[1], 1, up), interleaved(rows[2], rows[3], 1, up)) for up in (False, True))
    return [
        interleaved(*low, 2, False),
        interleaved(*low, 2, True),
        interleaved(*high, 2, False),
        interleaved(*high, 2, True),
    ]


def _products(b: Any, quants: list[Any], words: list[Any], shifts_signed: bool | None) -> Any:
    """Return in every lane the sum of all byte products. shifts_signed: None if the quants are unsigned."""
    total = constant(VI, 0)
    for quant, word in zip(quants, words, strict=True):
        factors = b.bitcast(word, VB)
        if shifts_signed is None:
            total = dot_unsigned.emit(b, total, quant, factors)
        elif shifts_signed:
            total = dot_unsigned.emit(b, total, b.xor(quant, constant(VB, 0x80)), factors)
        else:
            total = dot_signed.emit(b, total, quant, factors)
    return total


@dataclass(frozen=True)
class BlockSums:
    """GGML's q4_0 and q8_0. A unit is a block; sums accumulate in out.

    sixteen_block_sums is faster for q4_0 in registers of 64 bytes.
    """

    bits: int
    whole_passes: bool = False

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
        """Return the columns from LANES * piece on, as int32."""
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
    "q4_0": SixteenBlockSums(as_words, _fill) if LANES == 16 else BlockSums(4),
    "q8_0.lanes": LaneSums(8, Lanes(8)),
    "q4_0.lanes": LaneSums(4, Lanes(4)),
}
