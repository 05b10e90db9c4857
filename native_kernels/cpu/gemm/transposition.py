"""Transpose items of 2 and 4 bytes, and interleave the quants of many rows, as LLVM code."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from native_kernels.cpu.runtime.simd import (
    I16,
    I32,
    I64,
    LANES,
    VH,
    VI,
    VS,
    F,
    Rows,
    constant,
    group_of,
    halves_to_floats,
    i64,
    load,
    load_part,
    number,
    offset,
    operation,
    pick,
    store,
    store_part,
    times,
    unpacked,
    void,
)


def transposed(b: Any, rows: list[Any]) -> list[Any]:
    """Transpose as many vectors as each has lanes: the perfect shuffle, log2 times."""
    n = len(rows)
    low = [i // 2 + n * (i % 2) for i in range(n)]
    high = [place + n // 2 for place in low]
    for _ in range(n.bit_length() - 1):
        pairs = [(rows[i], rows[i + n // 2]) for i in range(n // 2)]
        rows = [pick(b, x, y, places) for x, y in pairs for places in (low, high)]
    return rows


# --- columns for rows


def limited(b: Any, i: int, count: Any, n: Any) -> Any:
    """Return n if i < count, else 0."""
    return b.select(b.icmp_signed("<", number(i), count), n, number(0))


def _turns(of: Any) -> tuple[Any, Any]:
    """Return the operations that transpose LANES x LANES items, the elements of these vectors, whole or in part."""

    @operation(void, i64, i64, i64, i64)
    def whole(b: Any, source: Any, source_step: Any, target: Any, target_step: Any) -> None:
        rows = [load(b, b.add(source, times(b, source_step, i)), of) for i in range(LANES)]
        for i, row in enumerate(transposed(b, rows)):
            store(b, b.add(target, times(b, target_step, i)), row)

    @operation(void, group_of(Rows), i64, i64, group_of(Rows), i64, i64)
    def part(b: Any, source: Any, n_rows: Any, n_items: Any, target: Any, n_out: Any, n_out_items: Any) -> None:
        (source, source_step), (target, target_step) = unpacked(b, source), unpacked(b, target)
        rows = []
        for i in range(LANES):
            at = b.add(source, times(b, source_step, i))
            rows.append(load_part(b, at, limited(b, i, n_rows, n_items), of))
        for i, row in enumerate(transposed(b, rows)):
            at = b.add(target, times(b, target_step, i))
            store_part(b, at, limited(b, i, n_out, n_out_items), row)

    return whole, part


# turn(source, its step, target, its step): transpose LANES x LANES items of 4 bytes; steps are row strides in bytes.
# turn_part(Rows, n_rows, n_items, Rows, n_out, n_out_items): the same of an incomplete tile: reads n_rows of n_items
# each, the rest is 0; writes n_out rows of n_out_items. turn_shorts, turn_shorts_part: of 2 bytes.
turn, turn_part = _turns(VI)
turn_shorts, turn_shorts_part = _turns(VS)


def _listed(b: Any, addresses: Any, n_bytes: Any, of: Any) -> list[Any]:
    """Load n_bytes after each of LANES listed addresses."""
    places = [b.add(load(b, offset(b, addresses, 8 * i), I64), n_bytes) for i in range(LANES)]
    return [load(b, place, of) for place in places]


@operation(void, i64, i64, i64, i64, i64)
def turn_listed(b: Any, addresses: Any, n_bytes: Any, n_items: Any, target: Any, target_step: Any) -> None:
    """Transpose n_items of each of LANES rows that begin n_bytes after the listed addresses."""
    places = [b.add(load(b, offset(b, addresses, 8 * i), I64), n_bytes) for i in range(LANES)]
    rows = [load_part(b, place, n_items, VI) for place in places]
    for i, row in enumerate(transposed(b, rows)):
        store(b, b.add(target, times(b, target_step, i)), row)


@operation(void, i64, i64, i64, i64, i64)
def turn_halves(b: Any, addresses: Any, n_bytes: Any, n_items: Any, target: Any, target_step: Any) -> None:
    """Transpose float16 rows as turn_listed does, converted to float32."""
    places = [b.add(load(b, offset(b, addresses, 8 * i), I64), n_bytes) for i in range(LANES)]
    rows = [halves_to_floats(b, b.bitcast(load_part(b, place, n_items, VS), VH)) for place in places]
    for i, row in enumerate(transposed(b, rows)):
        store(b, b.add(target, times(b, target_step, i)), row)


# --- quants of many rows side by side


@operation(F, i64, i64)
def listed_halves(b: Any, addresses: Any, n_bytes: Any) -> Any:
    """Load the float16 n_bytes after each of LANES listed addresses, as float32."""
    found = ir.Constant(VS, ir.Undefined)
    for i, value in enumerate(_listed(b, addresses, n_bytes, I16)):
        found = b.insert_element(found, value, ir.Constant(I32, i))
    return halves_to_floats(b, b.bitcast(found, VH))


def _quads(b: Any, addresses: Any, n_bytes: Any) -> list[Any]:
    """Split 16 bytes of LANES rows into four vectors: the first four bytes of every row, the next four, ..."""
    fours = _listed(b, addresses, n_bytes, ir.VectorType(I32, 4))
    blocks = LANES // 4
    wide = []
    for j in range(4):  # rows j, j + 4, j + 8, ...
        parts = [fours[4 * block + j] for block in range(blocks)]
        while len(parts) > 1:
            n = 2 * parts[0].type.count
            parts = [pick(b, parts[i], parts[i + 1], range(n)) for i in range(0, len(parts), 2)]
        wide.append(parts[0])

    def zipped(x: Any, y: Any, size: int, start: int) -> Any:
        """Interleave within each four lanes: `size` lanes of x from `start` on, the same of y, and so on."""
        places = []
        for block in range(blocks):
            for piece in range(2 // size):
                at = 4 * block + start + piece * size
                places += [*range(at, at + size), *range(LANES + at, LANES + at + size)]
        return pick(b, x, y, places)

    low, high = zipped(wide[0], wide[1], 1, 0), zipped(wide[0], wide[1], 1, 2)
    low2, high2 = zipped(wide[2], wide[3], 1, 0), zipped(wide[2], wide[3], 1, 2)
    return [zipped(low, low2, 2, 0), zipped(low, low2, 2, 2), zipped(high, high2, 2, 0), zipped(high, high2, 2, 2)]


@operation(void, i64, i64, i64, i64)
def lay_nibbles(b: Any, addresses: Any, n_bytes: Any, target: Any, step: Any) -> None:
    """Interleave 16 bytes of LANES rows with 32 quants, GGML's low halves first -> 8 x [LANES, 4], `step` apart."""
    for i, quad in enumerate(_quads(b, addresses, n_bytes)):
        low, high = (
            b.and_(quad, constant(VI, 0x0F0F0F0F)),
            b.and_(b.lshr(quad, constant(VI, 4)), constant(VI, 0x0F0F0F0F)),
        )
        store(b, b.add(target, times(b, step, i)), low)
        store(b, b.add(target, times(b, step, 4 + i)), high)


@operation(void, i64, i64, i64, i64)
def lay_bytes(b: Any, addresses: Any, n_bytes: Any, target: Any, step: Any) -> None:
    """Interleave 16 signed bytes of LANES rows, plus 128 -> 4 x [LANES, 4], `step` apart."""
    for i, quad in enumerate(_quads(b, addresses, n_bytes)):
        store(b, b.add(target, times(b, step, i)), b.xor(quad, constant(VI, -0x7F7F7F80)))


@operation(void, i64, i64, i64)
def split_nibbles(b: Any, source: Any, low: Any, high: Any) -> None:
    """Split 4 * LANES bytes into their low and high halves."""
    quad = load(b, source, VI)
    store(b, low, b.and_(quad, constant(VI, 0x0F0F0F0F)))
    store(b, high, b.and_(b.lshr(quad, constant(VI, 4)), constant(VI, 0x0F0F0F0F)))


@operation(void, i64, i64)
def flip_signs(b: Any, source: Any, target: Any) -> None:
    """Add 128 to 4 * LANES signed bytes."""
    store(b, target, b.xor(load(b, source, VI), constant(VI, -0x7F7F7F80)))
