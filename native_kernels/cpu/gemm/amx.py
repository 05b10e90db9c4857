"""Tiles of bfloat16 that one instruction multiplies and accumulates in float32 (AMX), as LLVM code.

There are eight tiles of 16 rows of 64 bytes: four hold sums, two hold rows of one factor, two of the other. The tiles
belong to a thread from `configure` to `release`, at the start and end of a kernel. A number that needs more than
bfloat16's eight bits is split into a high and a low bfloat16. The product of two low parts is omitted, and each of the
others is exact in float32 (Henry, Tang and Heinecke, arXiv 1904.06376). gemm_amx chooses what is multiplied.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import binding, ir

from native_kernels.cpu.gemm.tiles import repeat
from native_kernels.cpu.gemm.transposition import limited, transposed
from native_kernels.cpu.runtime.simd import (
    I8,
    I16,
    LANES,
    VF,
    VI,
    Rows,
    bfloats_to_floats,
    call_same,
    constant,
    external,
    group_of,
    i64,
    load,
    load_part,
    number,
    offset,
    operation,
    pointer,
    prefetch,
    store,
    times,
    unpacked,
    void,
)

SIDE = 16  # rows and columns of a tile of sums
STEP = 32  # numbers of the summed dimension per instruction
CONFIGURATION_BYTES = 64
AHEAD_BYTES = 256

# A tile configuration as int64 words: eight tiles of 16 rows of 64 bytes.
_CONFIGURATION = (1, 0, 0x0040_0040_0040_0040, 0x0040_0040_0040_0040, 0, 0, 0x1010_1010_1010_1010, 0)
_A, _B = (4, 5), (6, 7)


binding.initialize_native_asmparser()  # for the one instruction whose LLVM intrinsic has a type that llvmlite lacks


def _tile(which: int) -> Any:
    return ir.Constant(I8, which)


def _call(b: Any, name: str, *values: Any) -> None:
    b.call(external(b, f"llvm.x86.{name}", ir.VoidType(), [value.type for value in values]), list(values))


@operation(void, i64)
def configure(b: Any, memory: Any) -> None:
    """Allocate the tiles to this thread. memory: CONFIGURATION_BYTES, written here."""
    for i, word in enumerate(_CONFIGURATION):
        store(b, offset(b, memory, 8 * i), number(word))
    _call(b, "ldtilecfg", pointer(b, memory, I8))


@operation(void)
def release(b: Any) -> None:
    _call(b, "tilerelease")


def tile_products(b: Any, state: list[Any]) -> list[Any]:
    """Multiply the four factor tiles and accumulate in the four tiles of sums."""
    for tile in range(4):
        _call(b, "tdpbf16ps", _tile(tile), _tile(_A[tile // 2]), _tile(_B[tile % 2]))
    return state


class Factor(NamedTuple):
    """A factor of a product of tiles: its address, row stride in bytes, and the distance to its low part."""

    start: int
    step: int
    low: int


def product(a_parts: int, x_parts: int, wide: bool) -> Any:
    """Return the operation (a, x, steps, c, begin, ahead): c [2 SIDE, 2 SIDE] (+)= a x. a, x: Factor. c: Rows.

    a: [2 SIDE, STEP * steps] bfloat16. x: pairs of the summed dimension, [STEP / 2 * steps, 2 SIDE, 2]. c: float32.
    Not wide: half as many columns of x and c. begin: overwrite c. ahead: address of what is read later; each step
    prefetches AHEAD_BYTES of it.
    """
    columns = 2 if wide else 1

    def emit(b: Any, a: Any, x: Any, steps: Any, c: Any, begin: Any, ahead: Any) -> None:
        (a, a_step, a_low), (x, x_step, x_low), (c, c_step) = (unpacked(b, group) for group in (a, x, c))
        places = [(2 * i + j, i, j) for i in range(2) for j in range(columns)]

        def of_sums(i: int, j: int) -> Any:
            return pointer(b, offset(b, b.add(c, times(b, c_step, SIDE * i)), 4 * SIDE * j), I8)

        def take(tiles: tuple[int, ...], at: Any, rows_apart: Any, apart: Any) -> None:
            for i, tile in enumerate(tiles):
                _call(b, "tileloadd64", _tile(tile), pointer(b, b.add(at, times(b, apart, i)), I8), rows_apart)

        def multiply() -> None:
            for tile, i, j in places:
                _call(b, "tdpbf16ps", _tile(tile), _tile(_A[i]), _tile(_B[j]))

        def body(i: Any, state: list[Any]) -> list[Any]:
            rows = b.add(a, times(b, i, 2 * STEP))
            later = b.add(ahead, times(b, i, AHEAD_BYTES))
            for line in range(0, AHEAD_BYTES, 64):
                prefetch.emit(b, offset(b, later, line))
            others = b.add(x, b.mul(i, times(b, x_step, STEP // 2)))
            apart = times(b, a_step, SIDE)
            if a_parts == 2:
                take(_A, b.add(rows, a_low), a_step, apart)
                take(_B[:columns], others, x_step, number(4 * SIDE))
                multiply()
                take(_A, rows, a_step, apart)
            else:
                take(_A, rows, a_step, apart)
                take(_B[:columns], others, x_step, number(4 * SIDE))
            multiply()
            if x_parts == 2:
                take(_B[:columns], b.add(others, x_low), x_step, number(4 * SIDE))
                multiply()
            return state

        with b.if_else(b.icmp_signed("!=", begin, number(0))) as (fresh, going_on):
            with fresh:
                for tile, _, _ in places:
                    _call(b, "tilezero", _tile(tile))
            with going_on:
                for tile, i, j in places:
                    _call(b, "tileloadd64", _tile(tile), of_sums(i, j), c_step)
        repeat(b, steps, [], body)
        for tile, i, j in places:
            _call(b, "tilestored64", _tile(tile), of_sums(i, j), c_step)

    return operation(void, group_of(Factor), group_of(Factor), i64, group_of(Rows), i64, i64)(emit)


# --- numbers as bfloat16


def _rounded(b: Any, x: Any) -> Any:
    """Round float32 to bfloat16, to nearest, ties to even; subnormals become 0."""
    kind = ir.FunctionType(ir.VectorType(I16, LANES), [VF])
    return b.asm(kind, "vcvtneps2bf16 $1, $0", "=v,v", [x], side_effect=False)


def parts_of(b: Any, x: Any, parts: int) -> list[Any]:
    """Split x into bfloat16 parts; their sum is off by at most 2^-8 of x for one part, and 2^-16 for two."""
    high = _rounded(b, x)
    if parts == 1:
        return [high]
    rest = b.fsub(x, bfloats_to_floats(b, high))
    infinite = constant(VF, float("inf"))
    finite = b.fcmp_ordered("<", call_same(b, "fabs", rest), infinite)
    return [high, _rounded(b, b.select(finite, rest, constant(VF, 0.0)))]


def rounding(parts: int) -> Any:
    """Return the operation (x, n, target, low): round n float32, a multiple of LANES, to contiguous bfloat16."""

    def emit(b: Any, x: Any, n: Any, target: Any, low: Any) -> None:
        def body(i: Any, state: list[Any]) -> list[Any]:
            found = parts_of(b, load(b, b.add(x, times(b, i, 4 * LANES)), VF), parts)
            place = b.add(target, times(b, i, 2 * LANES))
            for part in found:
                store(b, place, part)
                place = b.add(place, low)
            return state

        repeat(b, b.udiv(n, number(LANES)), [], body)

    return operation(void, *[i64] * 4)(emit)


def pairs_of_columns(parts: int) -> Any:
    """Return (x, x_step, n_rows, n_columns, target, target_step, low): LANES x LANES float32 -> [LANES / 2, LANES, 2].

    Rows of x are x_step bytes apart. Rows from n_rows on and columns from n_columns on are 0 and not read.
    """

    def emit(b: Any, x: Any, x_step: Any, n_rows: Any, n_columns: Any, target: Any, target_step: Any, low: Any) -> None:
        rows = []
        for i in range(LANES):
            at = b.add(x, times(b, x_step, i))
            rows.append(load_part(b, at, limited(b, i, n_rows, n_columns), VI))
        columns = [parts_of(b, b.bitcast(column, VF), parts) for column in transposed(b, rows)]
        for i in range(0, LANES, 2):
            place = b.add(target, times(b, target_step, i // 2))
            for first, second in zip(columns[i], columns[i + 1], strict=True):
                store(b, place, side_by_side(b, first, second))
                place = b.add(place, low)

    return operation(void, *[i64] * 7)(emit)


def side_by_side(b: Any, first: Any, second: Any) -> Any:
    """Interleave 16-bit items, as vectors of 32 bits."""
    return b.or_(b.zext(first, VI), b.shl(b.zext(second, VI), constant(VI, 16)))


def pairs_of_rows(parts: int) -> Any:
    """Return (x, y, n, target, low): two rows of n float32, a multiple of LANES -> [n, 2] bfloat16, x first."""

    def emit(b: Any, x: Any, y: Any, n: Any, target: Any, low: Any) -> None:
        def body(i: Any, state: list[Any]) -> list[Any]:
            moved = times(b, i, 4 * LANES)
            both = [parts_of(b, load(b, b.add(row, moved), VF), parts) for row in (x, y)]
            place = b.add(target, moved)
            for first, second in zip(*both, strict=True):
                store(b, place, side_by_side(b, first, second))
                place = b.add(place, low)
            return state

        repeat(b, b.udiv(n, number(LANES)), [], body)

    return operation(void, *[i64] * 5)(emit)
