"""The innermost loops of the matrix products, as LLVM code: tiles held in registers.

A tile keeps a small part of the result in registers while it walks along the summed dimension, so that every loaded
number is used several times. gemm decides the order in which tiles are visited; amx has the tiles of AMX registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from native_kernels.cpu.gemm.transposition import transposed
from native_kernels.cpu.runtime import isa
from native_kernels.cpu.runtime.simd import (
    F32,
    I8,
    I32,
    I64,
    ISA,
    LANES,
    VB,
    VF,
    VH,
    VI,
    VS,
    bfloats_to_floats,
    call_same,
    constant,
    dot_unsigned,
    external,
    halves_to_floats,
    i64,
    load,
    load_part,
    number,
    offset,
    operation,
    pick,
    prefetch,
    splat,
    store,
    suffix,
    times,
    void,
)

PIECE = 256  # columns of a row decoded at a time: whole blocks of every codec
ROW_BYTES = 4 * PIECE + 64  # of a decoded chunk; not a power of two, so that rows do not share cache sets

# Rows of a tile of two vectors; a tile of one vector has twice as many. 2 x 12 sums leave 8 of 32 registers for
# operands, 2 x 6 leave 4 of 16. Without vector units of that width every vector takes two registers.
TILE_ROWS = 12 if LANES == 16 else (3 if ISA.name == "generic" and isa.known()[0] != ISA else 6)
BYTE_ROWS = 2 * LANES  # weight rows interleaved in a panel of bytes
BYTE_TOKENS = 8 if LANES == 16 else 4  # tokens of a tile of bytes; 16 or 8 sums


# --- pieces


def repeat(b: Any, count: Any, state: Sequence[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """Return the state after body(i, state) for i from 0 to count; it stays in registers."""
    before = b.block
    head, inside, after = (b.append_basic_block(name) for name in ("head", "inside", "after"))
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64)
    i.add_incoming(number(0), before)
    carried = [b.phi(value.type) for value in state]
    for phi, value in zip(carried, state, strict=True):
        phi.add_incoming(value, before)
    b.cbranch(b.icmp_signed("<", i, count), inside, after)
    b.position_at_end(inside)
    made = body(i, list(carried))
    i.add_incoming(b.add(i, number(1)), b.block)
    for phi, value in zip(carried, made, strict=True):
        phi.add_incoming(value, b.block)
    b.branch(head)
    b.position_at_end(after)
    return carried


# --- float tiles


def float_tile(rows: int, vectors: int, step: int) -> Any:
    """Return (a, x, n, c, begin): c [rows, vectors * LANES] (+)= the sum over k < n of a[r, k] x[k]; begin: overwrite
    c.

    a: rows of float32, ROW_BYTES apart. x: vectors * LANES float32 for every k, `step` bytes apart. Every sum runs
    through k in order with one fused multiply-add each, so it does not depend on the tile's shape.
    """

    def emit(b: Any, a: Any, x: Any, n: Any, c: Any, begin: Any) -> None:
        width = 4 * LANES

        def steps(count: int) -> Callable[[Any, list[Any]], list[Any]]:
            def body(i: Any, sums: list[Any]) -> list[Any]:
                row, column = b.add(a_now, times(b, i, 4 * count)), b.add(x_now, times(b, i, step * count))
                for k in range(count):
                    taken = [load(b, offset(b, column, k * step + v * width), VF) for v in range(vectors)]
                    for r in range(rows):
                        one = splat(b, load(b, offset(b, row, r * ROW_BYTES + 4 * k), F32), VF)
                        for v in range(vectors):
                            at = r * vectors + v
                            sums[at] = call_same(b, "fma", one, taken[v], sums[at])
                return sums

            return body

        places = [offset(b, c, i * width) for i in range(rows * vectors)]
        fresh = b.icmp_signed("!=", begin, number(0))
        start, go_on, join = (b.append_basic_block(name) for name in ("fresh", "going_on", "join"))
        b.cbranch(fresh, start, go_on)
        b.position_at_end(start)
        b.branch(join)
        b.position_at_end(go_on)
        kept = [load(b, place, VF) for place in places]
        b.branch(join)
        b.position_at_end(join)
        sums = []
        for value in kept:
            phi = b.phi(VF)
            phi.add_incoming(constant(VF, 0.0), start)
            phi.add_incoming(value, go_on)
            sums.append(phi)
        a_now, x_now = a, x
        fours = b.lshr(n, number(2))
        sums = repeat(b, fours, sums, steps(4))
        a_now, x_now = b.add(a, times(b, fours, 16)), b.add(x, times(b, fours, 4 * step))
        sums = repeat(b, b.and_(n, number(3)), sums, steps(1))
        for place, value in zip(places, sums, strict=True):
            store(b, place, value)

    return operation(void, i64, i64, i64, i64, i64)(emit)


DOT_ROWS = 4  # rows of a tile for few tokens
DOT_TOKENS = LANES // DOT_ROWS  # so that its sums are one vector


def dot_tile(size: int, convert: Callable[[Any, Any], Any], of: Any) -> Any:
    """Return (w0, w1, w2, w3, x, x_step, n, ahead, sums): sums [4, DOT_TOKENS] = four rows times DOT_TOKENS tokens.

    For too few tokens to fill a register: registers run along the columns instead. The rows hold n numbers of `size`
    bytes and type `of`, which `convert` makes float32; the bytes `ahead` of them are prefetched. Every sum is one
    accumulator whose lanes are added halves first.
    """

    def emit(b: Any, *values: Any) -> None:
        rows, (x, x_step, n, ahead, target) = values[:DOT_ROWS], values[DOT_ROWS:]
        tokens = [b.add(x, times(b, x_step, t)) for t in range(DOT_TOKENS)]
        unroll = max(1, 64 // (size * LANES))  # one cache line of every row

        def step(columns: list[Any], numbers: list[Any], sums: list[Any]) -> list[Any]:
            for r, value in enumerate(numbers):
                for t, column in enumerate(columns):
                    at = r * DOT_TOKENS + t
                    sums[at] = call_same(b, "fma", value, column, sums[at])
            return sums

        def body(i: Any, sums: list[Any]) -> list[Any]:
            moved = times(b, i, unroll * LANES)
            for row in rows:
                prefetch.emit(b, b.add(b.add(row, times(b, moved, size)), ahead))
            for u in range(unroll):
                columns = [load(b, offset(b, b.add(t, times(b, moved, 4)), 4 * LANES * u), VF) for t in tokens]
                numbers = [
                    convert(b, load(b, offset(b, b.add(row, times(b, moved, size)), size * LANES * u), of))
                    for row in rows
                ]
                sums = step(columns, numbers, sums)
            return sums

        whole = b.udiv(n, number(unroll * LANES))
        sums = repeat(b, whole, [constant(VF, 0.0)] * (DOT_ROWS * DOT_TOKENS), body)
        done = times(b, whole, unroll * LANES)

        def rest(i: Any, sums: list[Any]) -> list[Any]:
            at = b.add(done, times(b, i, LANES))
            left = b.sub(n, at)
            columns = [load_part(b, b.add(t, times(b, at, 4)), left, VF) for t in tokens]
            bits = VI if size == 4 else VS
            numbers = [
                convert(b, b.bitcast(load_part(b, b.add(row, times(b, at, size)), left, bits), of)) for row in rows
            ]
            return step(columns, numbers, sums)

        count = b.udiv(b.add(b.sub(n, done), number(LANES - 1)), number(LANES))
        sums = repeat(b, count, sums, rest)
        while len(sums) > 1:  # interleave pairs of vectors and add their halves: lane i ends as the sum of vector i
            half = len(sums) // 2
            low = [i // 2 + LANES * (i % 2) for i in range(LANES)]
            high = [place + LANES // 2 for place in low]
            pairs = list(zip(sums[:half], sums[half:], strict=True))
            sums = [b.fadd(pick(b, left, right, low), pick(b, left, right, high)) for left, right in pairs]
        store(b, target, sums[0])

    return operation(void, *[i64] * (DOT_ROWS + 5))(emit)


DOTS_OF_FLOATS = dot_tile(4, lambda b, value: value, VF)
DOTS_OF_HALVES = dot_tile(2, halves_to_floats, VH)
DOTS_OF_BFLOATS = dot_tile(2, bfloats_to_floats, VS)


def few_tile(tokens: int) -> Any:
    """Return (w, w_step, x, n, c, begin): c [tokens, LANES] (+)= LANES rows of w times the tokens; begin: overwrite c.

    n: numbers in a row, a multiple of LANES. x: tokens of float32, ROW_BYTES apart. Sums are those of float_tile.
    """

    def emit(b: Any, w: Any, w_step: Any, x: Any, n: Any, c: Any, begin: Any) -> None:
        def body(i: Any, sums: list[Any]) -> list[Any]:
            at, rows = b.add(w, times(b, i, 4 * LANES)), []
            for _ in range(LANES):
                rows.append(load(b, at, VF))
                at = b.add(at, w_step)
            columns = b.add(x, times(b, i, 4 * LANES))
            for k, value in enumerate(transposed(b, rows)):
                for t in range(tokens):
                    one = splat(b, load(b, offset(b, columns, t * ROW_BYTES + 4 * k), F32), VF)
                    sums[t] = call_same(b, "fma", one, value, sums[t])
            return sums

        places = [offset(b, c, 4 * LANES * t) for t in range(tokens)]
        fresh, nothing = b.icmp_signed("!=", begin, number(0)), constant(VF, 0.0)
        sums = [b.select(fresh, nothing, load(b, place, VF)) for place in places]
        for place, value in zip(places, repeat(b, b.udiv(n, number(LANES)), sums, body), strict=True):
            store(b, place, value)

    return operation(void, *[i64] * 6)(emit)


FEW_TOKENS = 4, 8 if LANES == 16 else 4
FEW_TILES = [few_tile(tokens) for tokens in FEW_TOKENS]


# --- byte tiles


META_ROWS = 6  # words per token and group of 32 columns, written by `quantised`


def byte_tile(tokens: int, kind: str) -> Any:
    """Return (w, scales, x, meta, first, n, c): c [tokens, BYTE_ROWS] += n groups of 32 columns.

    w: u8 [n, 8, BYTE_ROWS, 4]; x: i8 [n, 8, tokens, 4]; meta: [n, META_ROWS, tokens] as `quantised` writes it.
    kind "offset": every quant is too large by one constant, whose products are in the meta at the byte `first` of each
    group; the integer sums begin there. scales: f32 [n, BYTE_ROWS]. "minima": scales f32 [n, 2, BYTE_ROWS], per group
    the scale, then the minimum to subtract. "sixteens": scales f32 [n, 2, BYTE_ROWS], per half of a group; quants are
    too large by 32.
    """
    vectors, width = 2, 4 * LANES
    factors = 1 if kind == "offset" else 2
    pieces = 2 if kind == "sixteens" else 1

    def emit(b: Any, w: Any, scales: Any, x: Any, meta: Any, first: Any, n: Any, c: Any) -> None:
        def body(i: Any, state: list[Any]) -> list[Any]:
            quants, group = b.add(w, times(b, i, 8 * vectors * width)), b.add(scales, times(b, i, factors * 2 * width))
            columns, about = b.add(x, times(b, i, 32 * tokens)), b.add(meta, times(b, i, 4 * META_ROWS * tokens))

            def said(row: int, t: int, of: Any) -> Any:
                value = load(b, offset(b, about, 4 * (row * tokens + t)), of.element)
                return splat(b, value, of)

            for piece in range(pieces):
                sums = []
                for t in range(tokens):
                    if kind == "offset":
                        start = splat(b, load(b, offset(b, b.add(about, first), 4 * t), I32), VI)
                    elif kind == "sixteens":
                        start = said(4 + piece, t, VI)
                    else:
                        start = constant(VI, 0)
                    sums += [start] * vectors
                for k in range(8 // pieces * piece, 8 // pieces * (piece + 1)):
                    taken = [load(b, offset(b, quants, (k * vectors + v) * width), VB) for v in range(vectors)]
                    for t in range(tokens):
                        four = b.bitcast(splat(b, load(b, offset(b, columns, 4 * (k * tokens + t)), I32), VI), VB)
                        for v in range(vectors):
                            at = t * vectors + v
                            sums[at] = dot_unsigned.emit(b, sums[at], taken[v], four)
                scale = [load(b, offset(b, group, (piece * vectors + v) * width), VF) for v in range(vectors)]
                less = []
                if kind == "minima":
                    less = [load(b, offset(b, group, (vectors + v) * width), VF) for v in range(vectors)]
                for t in range(tokens):
                    of_token = said(0, t, VF)
                    taken_off = said(3, t, VF) if less else None
                    for v in range(vectors):
                        at = t * vectors + v
                        place = offset(b, c, at * width)
                        sum_ = load(b, place, VF)
                        if less:
                            sum_ = call_same(b, "fma", b.fneg(less[v]), taken_off, sum_)
                        product = b.fmul(scale[v], of_token)
                        store(b, place, call_same(b, "fma", b.sitofp(sums[at], VF), product, sum_))
            return state

        repeat(b, n, [], body)

    return operation(void, i64, i64, i64, i64, i64, i64, i64)(emit)


@operation(void, i64, i64, i64, i64, i64)
def quantised(b: Any, at: Any, n: Any, x: Any, meta: Any, tokens: Any) -> None:
    """Quantise one token's 32 columns, of which n exist, to bytes.

    Writes the eight four-byte words to x, 4 * tokens bytes apart, and META_ROWS words to meta at the same stride: the
    scale; -8 and -128 times the sum of the bytes; the sum times the scale; -32 times the sums of the first and of the
    second 16. The largest magnitude becomes 127. Infinite or NaN numbers make the scale infinite or NaN, and with it
    every product.
    """
    count = 32 // LANES
    vectors = []
    for v in range(count):
        left = b.sub(n, number(v * LANES))
        left = b.select(b.icmp_signed(">", left, number(0)), left, number(0))
        vectors.append(load_part(b, offset(b, at, 4 * LANES * v), left, VF))
    magnitude = None  # of the bits, where NaN is largest
    for vector in vectors:
        bits = b.and_(b.bitcast(vector, VI), constant(VI, 0x7FFFFFFF))
        magnitude = bits if magnitude is None else b.select(b.icmp_unsigned(">", bits, magnitude), bits, magnitude)
    largest = b.bitcast(_reduce(b, "umax", magnitude, I32), F32)
    one = ir.Constant(F32, 127.0)
    scale = b.fdiv(largest, one)
    above = b.fcmp_ordered(">", scale, ir.Constant(F32, 0.0))
    inverse = b.select(above, b.fdiv(one, largest), ir.Constant(F32, 0.0))
    inverse = splat(b, inverse, VF)
    rounded = "rint" if ISA.byte_dot == "plain" else "nearbyint"
    stride = times(b, tokens, 4)
    added_up = []
    fours = []
    for vector in vectors:
        q = call_same(b, rounded, b.fmul(vector, inverse))
        # Keeps in range NaN, and what an infinite inverse makes of a magnitude below 2^-121.
        q = b.select(b.fcmp_ordered("<", q, constant(VF, 127.0)), q, constant(VF, 127.0))
        q = b.select(b.fcmp_ordered(">", q, constant(VF, -127.0)), q, constant(VF, -127.0))
        whole = b.fptosi(q, VI)
        added_up.append(_reduce(b, "add", whole, I32))
        packed = b.bitcast(b.trunc(whole, ir.VectorType(I8, LANES)), ir.VectorType(I32, LANES // 4))
        fours += [b.extract_element(packed, ir.Constant(I32, i)) for i in range(LANES // 4)]
    place = x
    for four in fours:
        store(b, place, four)
        place = b.add(place, stride)
    sixteens = added_up if LANES == 16 else [b.add(*added_up[:2]), b.add(*added_up[2:])]
    added = b.add(*sixteens)
    words = [
        scale,
        b.mul(added, ir.Constant(I32, -8)),
        b.mul(added, ir.Constant(I32, -128)),
        b.fmul(scale, b.sitofp(added, F32)),
        *(b.mul(half, ir.Constant(I32, -32)) for half in sixteens),
    ]
    place = meta
    for word in words:
        store(b, place, word)
        place = b.add(place, stride)


def _reduce(b: Any, name: str, value: Any, result: Any) -> Any:
    return b.call(external(b, f"llvm.vector.reduce.{name}.{suffix(value.type)}", result, [value.type]), [value])
