"""The two products of attention on one block of positions: queries times keys, and weights times values.

Each is a loop generated for a number of rows (queries that share a key-value head) and of vectors, so that sums stay in
registers while a number is read and converted once for all rows. The layout of a block is native_kernels/kv_blocks.py.
Positions and masks are handled by attention.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir

from native_kernels.cpu.runtime.jit import inline
from native_kernels.cpu.runtime.simd import (
    F16,
    F32,
    I8,
    I64,
    ISA,
    LANES,
    VF,
    VH,
    VI,
    F,
    call_same,
    constant,
    f32,
    group_of,
    halves_to_floats,
    i64,
    largest,
    load,
    number,
    operation,
    prefetch,
    splat,
    store,
    total,
    unpacked,
    void,
)
from native_kernels.kv_blocks import BLOCK, GROUP, KvCodec

_LINE = 64  # bytes of a cache line
_REGISTERS = 32 if LANES == 16 else 16
_WIDTH: dict[KvCodec, int] = {"f32": 4, "f16": 2, "q8_0": 1}
ROWS = (8, 4, 2, 1)  # row counts that have a loop of their own
TILE = 4 * BLOCK  # positions whose scores form one row, so that softmax has long rows


def _vectors(rows: int) -> int:
    """Return the vectors of sums per row: at most half the registers, and enough to hide an addition's latency."""
    return max(1, min(4, _REGISTERS // 2 // rows))


def _loop(b: Any, start: Any, stop: Any, carried: Sequence[Any], body: Callable[[Any, list[Any]], list[Any]]) -> Any:
    """Return the values after body(i, values) for i from start to stop; at least one iteration."""
    before = b.block
    inside, behind = b.append_basic_block("tile"), b.append_basic_block("behind")
    b.branch(inside)
    b.position_at_end(inside)
    i = b.phi(I64)
    i.add_incoming(start, before)
    values = [b.phi(value.type) for value in carried]
    for value, first in zip(values, carried, strict=True):
        value.add_incoming(first, before)
    made = body(i, list(values))
    following = b.add(i, number(1))
    end = b.block
    i.add_incoming(following, end)
    for value, new in zip(values, made, strict=True):
        value.add_incoming(new, end)
    b.cbranch(b.icmp_signed("<", following, stop), inside, behind)
    b.position_at_end(behind)
    return made


def _stored(b: Any, at: Any, codec: KvCodec) -> Any:
    """Load LANES stored numbers as float32."""
    if codec == "f32":
        return load(b, at, VF)
    if codec == "f16":
        return halves_to_floats(b, load(b, at, VH))
    return b.sitofp(b.sext(load(b, at, ir.VectorType(I8, LANES)), VI), VF)


def _half(b: Any, at: Any) -> Any:
    """Load one float16 into every lane as float32."""
    return halves_to_floats(b, splat(b, load(b, at, F16), VH))


def _at(b: Any, base: Any, index: Any, size: int) -> Any:
    return b.add(base, b.mul(index, number(size)))


@cache
def _scores(rows: int, codec: KvCodec, asks: bool = True) -> Any:
    """Operation: the first BLOCK columns of out [rows, TILE] = q [rows, head_dim] times the keys of a block.

    asks: whether to prefetch what is read next. The same below.
    """
    width = _WIDTH[codec]
    step = min(BLOCK // LANES, _vectors(rows))

    @operation(void, i64, i64, i64, i64, i64, i64)
    def scores(b: Any, q: Any, q_stride: Any, block: Any, head_dim: Any, out: Any, ahead: Any) -> None:
        queries = [_at(b, q, q_stride, row) for row in range(rows)]
        for first in range(0, BLOCK, step * LANES):
            starts = [first + LANES * v for v in range(step)]

            def one(d: Any, sums: list[Any], scales: Sequence[Any] = (), starts: list[int] = starts) -> list[Any]:
                line = _at(b, block, d, BLOCK * width)
                for o in range(0, step * LANES * width if asks else 0, _LINE):
                    prefetch.emit(b, b.add(b.add(line, number(width * starts[0] + o)), ahead))
                keys = [_stored(b, b.add(line, number(width * start)), codec) for start in starts]
                if scales:
                    keys = [b.fmul(key, scale) for key, scale in zip(keys, scales, strict=True)]
                made = []
                for row in range(rows):
                    x = splat(b, load(b, _at(b, queries[row], d, 4), F32), VF)
                    made += [call_same(b, "fma", x, key, sums[step * row + v]) for v, key in enumerate(keys)]
                return made

            def group(g: Any, sums: list[Any], starts: list[int] = starts, one: Any = one) -> list[Any]:
                behind = _at(b, block, head_dim, BLOCK * width)
                scales = [
                    halves_to_floats(b, load(b, b.add(_at(b, behind, g, 2 * BLOCK), number(2 * start)), VH))
                    for start in starts
                ]
                begin = b.mul(g, number(GROUP))
                end = b.add(begin, number(GROUP))
                end = b.select(b.icmp_signed("<", end, head_dim), end, head_dim)
                made: list[Any] = _loop(b, begin, end, sums, lambda d, values: one(d, values, scales))
                return made

            nothing = [constant(VF, 0.0)] * (rows * step)
            if codec == "q8_0":
                n_groups = b.sdiv(b.add(head_dim, number(GROUP - 1)), number(GROUP))
                sums = _loop(b, number(0), n_groups, nothing, group)
            else:
                sums = _loop(b, number(0), head_dim, nothing, one)
            for row in range(rows):
                for v, start in enumerate(starts):
                    store(b, b.add(out, number(4 * (TILE * row + start))), sums[step * row + v])

    return scores


@cache
def _scores_by_position(rows: int, codec: KvCodec, asks: bool = True) -> Any:
    """Operation: the same of a block whose keys are stored position by position, as [BLOCK, padded_dim]."""
    width, at_once = _WIDTH[codec], _vectors(rows)

    @operation(void, i64, i64, i64, i64, i64, i64)
    def scores(b: Any, q: Any, q_stride: Any, block: Any, padded_dim: Any, out: Any, ahead: Any) -> None:
        row_bytes = b.mul(padded_dim, number(width))
        scales = _at(b, block, row_bytes, BLOCK)

        def positions(i: Any, nothing: list[Any]) -> list[Any]:
            first = b.mul(i, number(at_once))
            lines = [b.add(block, b.mul(b.add(first, number(v)), row_bytes)) for v in range(at_once)]

            def column(j: Any, sums: list[Any]) -> list[Any]:
                keys = []
                for v, line in enumerate(lines):
                    source = _at(b, line, j, width * LANES)
                    if asks:
                        prefetch.emit(b, b.add(source, ahead))
                    key = _stored(b, source, codec)
                    if codec == "q8_0":
                        group = _at(b, scales, b.udiv(b.mul(j, number(LANES)), number(GROUP)), 2 * BLOCK)
                        key = b.fmul(key, _half(b, _at(b, group, b.add(first, number(v)), 2)))
                    keys.append(key)
                made = []
                for row in range(rows):
                    x = load(b, _at(b, _at(b, q, q_stride, row), j, 4 * LANES), VF)
                    made += [call_same(b, "fma", x, key, sums[at_once * row + v]) for v, key in enumerate(keys)]
                return made

            zeros = [constant(VF, 0.0)] * (rows * at_once)
            sums = _loop(b, number(0), b.udiv(padded_dim, number(LANES)), zeros, column)
            for row in range(rows):
                for v in range(at_once):
                    place = b.add(_at(b, out, b.add(first, number(v)), 4), number(4 * TILE * row))
                    store(b, place, total.emit(b, sums[at_once * row + v]))
            return nothing

        _loop(b, number(0), number(BLOCK // at_once), [], positions)

    return scores


class BlockValues(NamedTuple):
    """Addresses of a block's values and of their scales, which q8_0 alone has."""

    values: int
    scales: int


@cache
def _mix(rows: int, vectors: int, codec: KvCodec, asks: bool = True) -> Any:
    """Operation: sums [rows, :] += weights [rows, TILE] times some columns of the values of a block's first n
    positions.
    """
    width = _WIDTH[codec]

    @operation(void, i64, group_of(BlockValues), i64, i64, i64, i64, i64)
    def mix(b: Any, weights: Any, block: Any, padded_dim: Any, n: Any, column: Any, sums: Any, ahead: Any) -> None:
        """sums: address of row 0, column 0; the row stride is padded_dim."""
        values, scales = unpacked(b, block)
        places = []
        for row in range(rows):
            start = _at(b, sums, b.add(b.mul(padded_dim, number(row)), column), 4)
            places += [b.add(start, number(4 * LANES * v)) for v in range(vectors)]
        row_bytes = b.mul(padded_dim, number(width))
        first = _at(b, values, column, width)
        lines = []
        if codec == "q8_0":
            for v in range(vectors):
                group = b.sdiv(b.add(column, number(LANES * v)), number(GROUP))
                lines.append(_at(b, scales, group, 2 * BLOCK))

        def one(i: Any, before: list[Any]) -> list[Any]:
            line = b.add(first, b.mul(i, row_bytes))
            for o in range(0, vectors * LANES * width if asks else 0, _LINE):
                prefetch.emit(b, b.add(b.add(line, number(o)), ahead))
            read = [_stored(b, b.add(line, number(width * LANES * v)), codec) for v in range(vectors)]
            if codec == "q8_0":
                read = [b.fmul(value, _half(b, _at(b, lines[v], i, 2))) for v, value in enumerate(read)]
            made = []
            for row in range(rows):
                x = splat(b, load(b, b.add(_at(b, weights, i, 4), number(4 * TILE * row)), F32), VF)
                made += [call_same(b, "fma", x, value, before[vectors * row + v]) for v, value in enumerate(read)]
            return made

        made = _loop(b, number(0), n, [load(b, place, VF) for place in places], one)
        for place, value in zip(places, made, strict=True):
            store(b, place, value)

    return mix


def scores_of(codec: KvCodec, asks: bool = True, by_position: bool = False) -> Any:
    """Return the function (q, stride of q in bytes, rows, block, head_dim, out [rows, TILE], ahead).

    by_position: the keys are stored like values; then head_dim is the padded one, and so is q. ahead: distance in bytes
    to the lines to prefetch. The same below.
    """
    eight, four, two, one = ((_scores_by_position if by_position else _scores)(rows, codec, asks) for rows in ROWS)

    @inline
    def scores(q: Any, stride: Any, rows: Any, block: Any, head_dim: Any, out: Any, ahead: Any) -> Any:
        row = 0
        while row + 8 <= rows:
            eight(q + stride * row, stride, block, head_dim, out + 4 * TILE * row, ahead)
            row += 8
        if row + 4 <= rows:
            four(q + stride * row, stride, block, head_dim, out + 4 * TILE * row, ahead)
            row += 4
        if row + 2 <= rows:
            two(q + stride * row, stride, block, head_dim, out + 4 * TILE * row, ahead)
            row += 2
        if row < rows:
            one(q + stride * row, stride, block, head_dim, out + 4 * TILE * row, ahead)

    return scores


def mix_of(codec: KvCodec, asks: bool = True) -> Any:
    """Return the function (weights [rows, TILE], rows, BlockValues, padded_dim, n, sums [rows, padded_dim], ahead)."""

    def pair(rows: int) -> tuple[int, Any, Any]:
        wide = _vectors(rows)
        return wide, _mix(rows, wide, codec, asks), _mix(rows, 1, codec, asks)

    (n8, eight, eight1), (n4, four, four1), (n2, two, two1), (n1, one, one1) = (pair(rows) for rows in ROWS)

    def columns(wide: int, many: Any, single: Any) -> Any:
        @inline
        def over_columns(weights: Any, block: Any, padded_dim: Any, n: Any, sums: Any, ahead: Any) -> Any:
            column = 0
            while column + wide * LANES <= padded_dim:
                many(weights, block, padded_dim, n, column, sums, ahead)
                column += wide * LANES
            while column < padded_dim:
                single(weights, block, padded_dim, n, column, sums, ahead)
                column += LANES

        return over_columns

    by8, by4 = columns(n8, eight, eight1), columns(n4, four, four1)
    by2, by1 = columns(n2, two, two1), columns(n1, one, one1)

    @inline
    def mix(weights: Any, rows: Any, block: Any, padded_dim: Any, n: Any, sums: Any, ahead: Any) -> Any:
        row = 0
        while row + 8 <= rows:
            by8(weights + 4 * TILE * row, block, padded_dim, n, sums + 4 * padded_dim * row, ahead)
            row += 8
        if row + 4 <= rows:
            by4(weights + 4 * TILE * row, block, padded_dim, n, sums + 4 * padded_dim * row, ahead)
            row += 4
        if row + 2 <= rows:
            by2(weights + 4 * TILE * row, block, padded_dim, n, sums + 4 * padded_dim * row, ahead)
            row += 2
        if row < rows:
            by1(weights + 4 * TILE * row, block, padded_dim, n, sums + 4 * padded_dim * row, ahead)

    return mix


def converted_of(codec: KvCodec) -> tuple[Any, Any]:
    """Return two functions: keys (block, head_dim, target, ahead), values (values, scales, padded_dim, n, target,
    ahead).

    They convert a block's keys to float32 [head_dim, BLOCK], and the values of its first n positions to [n,
    padded_dim]. With many rows this costs less than converting each number several times.
    """
    width = _WIDTH[codec]

    @operation(void, i64, i64, i64, i64)
    def keys(b: Any, block: Any, head_dim: Any, target: Any, ahead: Any) -> None:
        scales = _at(b, block, head_dim, BLOCK * width)

        def one(d: Any, nothing: list[Any]) -> list[Any]:
            line, place = _at(b, block, d, BLOCK * width), _at(b, target, d, 4 * BLOCK)
            for o in range(0, BLOCK * width, _LINE):
                prefetch.emit(b, b.add(b.add(line, number(o)), ahead))
            of_group = _at(b, scales, b.udiv(d, number(GROUP)), 2 * BLOCK)
            for start in range(0, BLOCK, LANES):
                value = _stored(b, b.add(line, number(width * start)), codec)
                if codec == "q8_0":
                    scale = load(b, b.add(of_group, number(2 * start)), VH)
                    value = b.fmul(value, halves_to_floats(b, scale))
                store(b, b.add(place, number(4 * start)), value)
            return nothing

        _loop(b, number(0), head_dim, [], one)

    @operation(void, i64, i64, i64, i64, i64, i64)
    def values(b: Any, at: Any, scales: Any, padded_dim: Any, n: Any, target: Any, ahead: Any) -> None:
        def one(i: Any, nothing: list[Any]) -> list[Any]:
            line = b.add(at, b.mul(b.mul(i, padded_dim), number(width)))
            place = b.add(target, b.mul(b.mul(i, padded_dim), number(4)))

            def piece(j: Any, nothing: list[Any]) -> list[Any]:
                column = b.mul(j, number(LANES))
                source = _at(b, line, column, width)
                prefetch.emit(b, b.add(source, ahead))
                value = _stored(b, source, codec)
                if codec == "q8_0":
                    group = _at(b, scales, b.udiv(column, number(GROUP)), 2 * BLOCK)
                    value = b.fmul(value, _half(b, _at(b, group, i, 2)))
                store(b, _at(b, place, column, 4), value)
                return nothing

            _loop(b, number(0), b.udiv(padded_dim, number(LANES)), [], piece)
            return nothing

        _loop(b, number(0), n, [], one)

    return keys, values


def _exp(b: Any, x: Any) -> Any:
    """e^x for x <= 0; below -87 it is 0, so that masked positions add nothing. NaN stays NaN."""
    low = constant(VF, -87.0)
    is_low = b.fcmp_ordered("<", x, low)
    kept = b.select(is_low, low, x)
    name = "rint" if ISA.byte_dot == "plain" else "nearbyint"
    whole = call_same(b, name, b.fmul(kept, constant(VF, 1.44269504)))
    rest = call_same(b, "fma", whole, constant(VF, -0.693359375), kept)
    rest = call_same(b, "fma", whole, constant(VF, 2.12194440e-4), rest)
    # Cephes' polynomial for the remainder, which is within half a power of two.
    series = constant(VF, 1.9875691500e-4)
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        series = call_same(b, "fma", series, rest, constant(VF, factor))
    series = b.fadd(call_same(b, "fma", series, b.fmul(rest, rest), rest), constant(VF, 1.0))
    power = b.shl(b.fptosi(whole, VI), constant(VI, 23))
    finite = b.select(is_low, constant(VF, 0.0), b.bitcast(b.add(b.bitcast(series, VI), power), VF))
    return b.select(b.fcmp_unordered("uno", x, x), x, finite)


@cache
def row_of(positions: int) -> tuple[Any, Any]:
    """Return two functions on a row of scores: its maximum; and (at, peak): replace scores by e^(score - peak) and sum
    them.

    NaN is ignored for the maximum and makes the sum NaN.
    """
    places = [4 * LANES * i for i in range(positions // LANES)]

    @operation(f32, i64)
    def peak_of(b: Any, at: Any) -> Any:
        values = [load(b, b.add(at, number(place)), VF) for place in places]
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [b.select(b.fcmp_ordered(">", x, y), x, y) for x, y in pairs]
        return largest.emit(b, values[0])

    @operation(F, i64, f32)
    def weigh(b: Any, at: Any, peak: Any) -> Any:
        taken = splat(b, peak, VF)
        total = None
        for place in places:
            where = b.add(at, number(place))
            value = _exp(b, b.fsub(load(b, where, VF), taken))
            store(b, where, value)
            total = value if total is None else b.fadd(total, value)
        return total

    return peak_of, weigh
