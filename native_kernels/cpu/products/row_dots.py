"""Products of stored weight rows with one vector: the inner loops of the matrix kernels, by codec.

Several rows are read at a time, because one core needs several streams to reach the memory's speed. Every stream
prefetches its bytes, across the end of its row into the next row of the list. 8 KB in flight were the best of 2 to 32
KB on Zen 5, and near the best with 4 KB pages, at 5 % as at 100 % of the rows; there eight rows of q4_0 were 10 %
faster than four, those of f16 somewhat slower. Contiguous rows are one stream, by far fastest one row at a time. A
single row is summed in the same order as one of several.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from llvmlite import ir
from numba.core import cgutils

from native_kernels.cpu.products.activations import Format
from native_kernels.cpu.products.copy_dots import COPIES
from native_kernels.cpu.products.k_quants import SMALL_BLOCKS, SUPER_BLOCKS
from native_kernels.cpu.products.sixteen_blocks import SIXTEEN_BLOCKS
from native_kernels.cpu.runtime.simd import (
    F16,
    F32,
    I8,
    I16,
    I32,
    I64,
    ISA,
    LANES,
    VB,
    VF,
    VH,
    VI,
    VS,
    add_up,
    bfloats_to_floats,
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
    times,
    void,
)

ROWS = 8 if LANES == 16 else 4  # quantised rows that fit in the registers
NUMBERS = (1, 2, 3, 4, 6, 8)  # of vectors multiplied at once; 5 and 7 would cost half a second of compiling a codec
ON_THE_WAY = 8192  # prefetched bytes in flight, over all streams
_LINE = 64
_GROUP = 32
X_WORD, OUT_WORD = 3 * 8, 5 * 8  # bytes: the places of x and out in gemv's arguments


class Codec(Protocol):
    """Reads the rows of one codec: in steps of some columns, and the rest after the last whole step."""

    @property
    def vector(self) -> Format:
        """The input format of a row: "f32", or "lanes" or "q8" of activations.py."""

    @property
    def step_columns(self) -> int: ...

    @property
    def step_bytes(self) -> int: ...

    def sums(self) -> int:
        """Accumulators per row."""

    def side_lines(self, b: Any, row: Any, step: Any, d: Any) -> list[Any]:
        """Return addresses that a step reads beside its bytes in the row."""

    def step(self, b: Any, rows: list[Any], step: Any, x: Any, d: Any, sums: Sums, asks: Asks) -> None:
        """Add the products of one step to the sums of each row, prefetching a line before each load of a row."""

    def rest(self, b: Any, rows: list[Any], steps: Any, x: Any, d: Any, sums: Sums) -> None:
        """Add the products of all columns after the last whole step; must not read beyond the row."""


def rows_at_once(codec: Codec) -> int:
    """Return how many rows one pass computes, or with how many vectors it multiplies one row."""
    return 4 if codec.vector == "f32" else ROWS


class Slot:
    """A vector that loops update; LLVM keeps it in a register."""

    def __init__(self, b: Any, value: Any) -> None:
        self.place = cgutils.alloca_once(b, value.type)
        b.store(value, self.place)

    def get(self, b: Any) -> Any:
        return b.load(self.place)

    def put(self, b: Any, value: Any) -> None:
        b.store(value, self.place)

    def fma(self, b: Any, x: Any, y: Any) -> None:
        self.put(b, call_same(b, "fma", x, y, self.get(b)))


Sums = list[list[Slot]]


class Asks:
    """Cache lines to prefetch, one at a time between the loads of a step: many at once would stall the loads."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Any]] = []

    def wait(self, place: int, address: Any) -> None:
        """Queue a prefetch. place: lines of one place are prefetched together, one stream after another."""
        self._waiting.append((place, address))
        self._waiting.sort(key=lambda one: one[0])

    def one(self, b: Any) -> None:
        if self._waiting:
            prefetch_near.emit(b, self._waiting.pop(0)[1])

    def rest(self, b: Any) -> None:
        while self._waiting:
            self.one(b)


def steps_of(b: Any, start: Any, stop: Any, by: int = 1) -> Any:
    """Loop over int64 from start to below stop."""
    return cgutils.for_range_slice(b, start, stop, number(by), I64)


def whole(b: Any, value: Any, by: int) -> Any:
    """Return value // by for a non-negative value."""
    return b.udiv(value, number(by))


def smaller_of(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.icmp_signed("<", x, y), x, y)


def list_rows(b: Any, w: Any, stride: Any, ids: Any, places: list[Any]) -> list[Any]:
    """Return the addresses of the rows at these places of a list of int32 ids; ids 0: the places are rows of w."""
    of_matrix = b.icmp_signed("==", ids, number(0))
    unread = b.ptrtoint(cgutils.alloca_once_value(b, ir.Constant(I32, 0)), I64)  # avoids a branch
    found = []
    for place in places:
        at = b.select(of_matrix, unread, b.add(ids, times(b, place, 4)))
        row = b.select(of_matrix, place, b.sext(load(b, at, I32), I64))
        found.append(b.add(w, b.mul(row, stride)))
    return found


def emit_dots(codec: Codec, n_rows: int) -> Callable[..., Any]:
    """Return the operation (w, stride, ids, i, following, last, x, d, out): out [i ...] = n_rows rows from i times x
    [d].

    Row i is that of a list of int32 ids, or of w itself if ids is 0. following: place in the list of the rows to
    prefetch, at most `last`.
    """

    def dots(b: Any, *values: Any) -> None:
        w, stride, ids, i, follows, last, x, d, out = values
        rows = list_rows(b, w, stride, ids, [offset(b, i, k) for k in range(n_rows)])
        places = [smaller_of(b, offset(b, follows, k), last) for k in range(n_rows)]
        following = list_rows(b, w, stride, ids, places)
        _dots(b, codec, rows, following, x, d, b.add(out, times(b, i, 4)))

    made: Callable[..., Any] = operation(void, *[i64] * 9)(dots)
    return made


def emit_dots_towards(codec: Codec, n_rows: int) -> Callable[..., Any]:
    """Return the operation (w, stride, ids, i, other w, other stride, other ids, follows, last, x, d, out).

    As emit_dots, but it prefetches rows of another matrix, and out [0] is the product of row i.
    """

    def dots(b: Any, *values: Any) -> None:
        w, stride, ids, i, other, other_stride, other_ids, follows, last, x, d, out = values
        rows = list_rows(b, w, stride, ids, [offset(b, i, k) for k in range(n_rows)])
        places = [smaller_of(b, offset(b, follows, k), last) for k in range(n_rows)]
        _dots(b, codec, rows, list_rows(b, other, other_stride, other_ids, places), x, d, out)

    made: Callable[..., Any] = operation(void, *[i64] * 12)(dots)
    return made


def emit_dots_of_several(codec: Codec, is_rest: bool = False) -> Callable[..., Any]:
    """Return the operation (n, rows, n_rows, stride, ahead, end, d, first, last, blocks, sums): add each row times the
    x [d] of n vectors, one of NUMBERS and at most rows_at_once, to the row's sums for each vector, from step first to
    last.

    rows: address of the first row. ahead: bytes to the row to prefetch, up to the row at address `end`. blocks: address
    of the addresses of the vectors' blocks of gemv's arguments, which hold each x. sums: address of the codec's sums
    for each row and vector, which begin with 0 at the first step. is_rest: for what follows step `last` instead. A row
    is read and unpacked once: LLVM removes the repeated loads for the later vectors. It could not if a prefetch stood
    between them, because it assumes that a prefetch may write.
    """

    def dots(b: Any, n_vectors: int, *values: Any) -> None:
        rows, n_rows, stride, ahead, end, d, first, last, blocks, sums = values
        xs = [load(b, offset(b, load(b, offset(b, blocks, 8 * k), I64), X_WORD), I64) for k in range(n_vectors)]
        slots = [[Slot(b, constant(VF, 0.0)) for _ in range(codec.sums())] for _ in xs]
        places = [(slot, 4 * LANES * k) for k, slot in enumerate(slot for of_x in slots for slot in of_x)]
        begins = b.icmp_signed("==", last if is_rest else first, number(0))
        with steps_of(b, number(0), n_rows) as (i, _):
            row, between = b.add(rows, b.mul(i, stride)), b.add(sums, times(b, i, 4 * LANES * len(places)))
            for slot, _at in places:
                slot.put(b, constant(VF, 0.0))
            with b.if_then(b.not_(begins)):
                for slot, at in places:
                    slot.put(b, load(b, offset(b, between, at), VF))
            if is_rest:
                for x, of_x in zip(xs, slots, strict=True):
                    codec.rest(b, [row], last, x, d, [of_x])
            else:
                following = smaller_of(b, b.add(row, ahead), end)
                with steps_of(b, first, last) as (step, _):
                    at = b.add(following, times(b, step, codec.step_bytes))
                    for line in range(-(-codec.step_bytes // _LINE)):
                        prefetch_near.emit(b, offset(b, at, _LINE * line))
                    for x, of_x in zip(xs, slots, strict=True):
                        codec.step(b, [row], step, x, d, [of_x], Asks())
            for slot, at in places:
                store(b, offset(b, between, at), slot.get(b))

    def by_number(b: Any, n: Any, *values: Any) -> None:
        for n_vectors in NUMBERS:
            if n_vectors > rows_at_once(codec):
                break
            # In a function of its own: as one of eight loops in a function it spilled registers, and could take three
            # times as long.
            name = b.module.get_unique_name(f"dots.{n_vectors}")
            function = ir.Function(b.module, ir.FunctionType(ir.VoidType(), [I64] * len(values)), name)
            function.linkage = "internal"
            function.attributes.add("noinline")
            inner = ir.IRBuilder(function.append_basic_block())
            dots(inner, n_vectors, *function.args)
            inner.ret_void()
            with b.if_then(b.icmp_signed("==", n, number(n_vectors))):
                b.call(function, values)

    made: Callable[..., Any] = operation(void, *[i64] * 11)(by_number)
    return made


def emit_total(codec: Codec) -> Callable[..., Any]:
    """Return the operation (sums, out), which stores the product that the codec's sums stand for, as emit_dots does."""

    def total(b: Any, sums: Any, out: Any) -> None:
        store(b, out, add_up(b, [load(b, offset(b, sums, 4 * LANES * k), VF) for k in range(codec.sums())]))

    made: Callable[..., Any] = operation(void, i64, i64)(total)
    return made


def _dots(b: Any, codec: Codec, rows: list[Any], following: list[Any], x: Any, d: Any, out: Any) -> None:
    """Compute out [0 ...] = rows times x [d], and prefetch the rows `following`."""
    steps = whole(b, d, codec.step_columns)
    sums = [[Slot(b, constant(VF, 0.0)) for _ in range(codec.sums())] for _ in rows]
    ahead = smaller_of(b, steps, number(max(1, ON_THE_WAY // len(rows) // codec.step_bytes)))
    turn = b.sub(steps, ahead)  # from here on the following rows are prefetched
    reach = times(b, ahead, codec.step_bytes)
    left = times(b, turn, codec.step_bytes)
    in_row = [(b.add(row, reach), row, ahead) for row in rows]
    in_next = [(b.sub(row, left), row, b.neg(turn)) for row in following]
    for start, stop, streams in ((number(0), turn, in_row), (turn, steps, in_next)):
        with steps_of(b, start, stop) as (step, _):
            at = times(b, step, codec.step_bytes)
            asks = Asks()
            for base, row, shift in streams:
                lines = -(-codec.step_bytes // _LINE)
                for line in range(lines):
                    asks.wait(line, offset(b, b.add(base, at), _LINE * line))
                for address in codec.side_lines(b, row, b.add(step, shift), d):
                    asks.wait(lines, address)
            codec.step(b, rows, step, x, d, sums, asks)
            asks.rest(b)
    ask_for_rests(b, codec, following, steps, d)
    codec.rest(b, rows, steps, x, d, sums)
    for place, row_sums in enumerate(sums):
        store(b, offset(b, out, 4 * place), add_up(b, [one.get(b) for one in row_sums]))


def ask_for_rests(b: Any, codec: Codec, rows: list[Any], steps: Any, d: Any) -> None:
    """Prefetch what is after the last whole step of these rows; all of it, if the matrix is narrow."""
    columns = b.sub(d, times(b, steps, codec.step_columns))
    with b.if_then(b.icmp_signed(">", columns, number(0))):
        n_bytes = whole(
            b, b.add(times(b, columns, codec.step_bytes), number(codec.step_columns - 1)), codec.step_columns
        )
        for row in rows:
            rest = b.add(row, times(b, steps, codec.step_bytes))
            with steps_of(b, number(0), n_bytes, _LINE) as (at, _):
                prefetch_near.emit(b, b.add(rest, at))
            for address in codec.side_lines(b, row, steps, d):
                prefetch_near.emit(b, address)


@dataclass(frozen=True)
class Plain:
    """f32, f16, bf16: times float32."""

    item: int  # bytes per number
    element: Any
    to_floats: Callable[[Any, Any], Any]
    vector: Format = "f32"

    @property
    def step_columns(self) -> int:
        return self.step_bytes // self.item

    @property
    def step_bytes(self) -> int:
        return 2 * _LINE

    def sums(self) -> int:
        return 2

    def side_lines(self, b: Any, row: Any, step: Any, d: Any) -> list[Any]:
        return []

    def numbers(self, b: Any, at: Any) -> Any:
        return self.to_floats(b, load(b, at, ir.VectorType(self.element, LANES)))

    def numbers_part(self, b: Any, at: Any, n: Any) -> Any:
        bits = {2: VS, 4: VF}[self.item]
        return self.to_floats(b, b.bitcast(load_part(b, at, n, bits), ir.VectorType(self.element, LANES)))

    def step(self, b: Any, rows: list[Any], step: Any, x: Any, d: Any, sums: Sums, asks: Asks) -> None:
        column = times(b, step, self.step_columns)
        at = [b.add(row, times(b, column, self.item)) for row in rows]
        x_at = b.add(x, times(b, column, 4))
        for piece in range(self.step_columns // LANES):
            xs = load(b, offset(b, x_at, 4 * LANES * piece), VF)
            for row, row_sums in zip(at, sums, strict=True):
                if self.item * LANES * piece % _LINE == 0:
                    asks.one(b)
                weights = self.numbers(b, offset(b, row, self.item * LANES * piece))
                row_sums[piece % 2].fma(b, weights, xs)

    def rest(self, b: Any, rows: list[Any], steps: Any, x: Any, d: Any, sums: Sums) -> None:
        with steps_of(b, times(b, steps, self.step_columns), d, LANES) as (column, _):
            n = smaller_of(b, b.sub(d, column), number(LANES))
            xs = load_part(b, b.add(x, times(b, column, 4)), n, VF)
            for row, row_sums in zip(rows, sums, strict=True):
                weights = self.numbers_part(b, b.add(row, times(b, column, self.item)), n)
                row_sums[0].fma(b, weights, xs)


def groups_of(b: Any, d: Any) -> Any:
    return whole(b, b.add(d, number(_GROUP - 1)), _GROUP)


def padded_groups(b: Any, d: Any) -> Any:
    """Return the groups of a quantised vector, which is padded to a multiple of 512 columns."""
    return times(b, whole(b, b.add(d, number(511)), 512), 16)


def scaled(b: Any, dot: Any, scales: Any, x_scales: Any, sums: Slot) -> None:
    sums.fma(b, b.sitofp(dot, VF), b.fmul(scales, x_scales))


@dataclass(frozen=True)
class Lanes:
    """q4_0.lanes and q8_0.lanes: superblocks of 16 groups, one group per lane; then the row's scales."""

    bits: int
    vector: Format = "lanes"
    step_columns: int = 512

    @property
    def step_bytes(self) -> int:
        return 64 * self.bits

    def sums(self) -> int:
        return 16 // LANES

    def side_lines(self, b: Any, row: Any, step: Any, d: Any) -> list[Any]:
        return [b.add(self.scales(b, row, d), times(b, step, 32))]

    def scales(self, b: Any, row: Any, d: Any) -> Any:
        return b.add(row, times(b, groups_of(b, d), 4 * self.bits))

    def step(self, b: Any, rows: list[Any], step: Any, x: Any, d: Any, sums: Sums, asks: Asks) -> None:
        self._superblock(b, rows, step, x, d, sums, asks, None)

    def rest(self, b: Any, rows: list[Any], steps: Any, x: Any, d: Any, sums: Sums) -> None:
        left = b.sub(groups_of(b, d), times(b, steps, 16))
        with b.if_then(b.icmp_signed(">", left, number(0))):
            self._superblock(b, rows, steps, x, d, sums, Asks(), left)

    def _superblock(
        self, b: Any, rows: list[Any], step: Any, x: Any, d: Any, sums: Sums, asks: Asks, groups: Any | None
    ) -> None:
        """Add the products of a superblock. groups: its number if incomplete; None: all 16."""
        n_padded = padded_groups(b, d)
        x_bytes = b.add(x, times(b, step, 512))
        x_scales = b.add(b.add(x, times(b, n_padded, 32)), times(b, step, 64))
        x_sums = b.add(x_scales, times(b, n_padded, 4))
        quants = [b.add(row, times(b, step, self.step_bytes)) for row in rows]
        scales = [b.add(self.scales(b, row, d), times(b, step, 32)) for row in rows]
        chunk = number(64) if groups is None else times(b, groups, 4)
        for part in range(16 // LANES):
            first = LANES * part
            n = None if groups is None else b.sub(groups, number(first))
            x_scale = load(b, offset(b, x_scales, 4 * first), VF)
            start = load(b, offset(b, x_sums, 4 * first), VI)  # -8 times the sum of the group's x
            dots = [self.start(b, start) for _ in rows]
            for place in range(self.bits):  # chunks of the row
                x_at = offset(b, x_bytes, 64 * (8 // self.bits) * place + 4 * first)
                x_parts = [load(b, offset(b, x_at, 64 * i), VB) for i in range(8 // self.bits)]
                for i, row in enumerate(quants):
                    asks.one(b)
                    at = offset(b, b.add(row, b.mul(chunk, number(place))), 4 * first)
                    packed = load(b, at, VB) if n is None else b.bitcast(load_part(b, at, n, VI), VB)
                    dots[i] = self.products(b, dots[i], packed, x_parts)
            for i, row in enumerate(scales):
                asks.one(b)
                at = offset(b, row, 2 * first)
                halves = load(b, at, VH) if n is None else b.bitcast(load_part(b, at, n, VS), VH)
                scaled(b, dots[i], halves_to_floats(b, halves), x_scale, sums[i][part])

    def start(self, b: Any, eights: Any) -> Any:
        if self.bits == 4:
            return eights
        return start_of_signed(b, eights)

    def products(self, b: Any, dot: Any, packed: Any, x_parts: list[Any]) -> Any:
        if self.bits == 8:
            return signed_products(b, dot, packed, x_parts[0])
        dot = dot_unsigned.emit(b, dot, b.and_(packed, constant(VB, 15)), x_parts[0])
        return dot_unsigned.emit(b, dot, b.lshr(packed, constant(VB, 4)), x_parts[1])


# With VNNI a signed weight w becomes the unsigned w + 128, and the sum begins at -128 sum(x).
SHIFTS_SIGNED = ISA.byte_dot.startswith("vnni")


def start_of_signed(b: Any, eights: Any) -> Any:
    """Return the initial sum of products with signed weights, from -8 times the sum of x."""
    return b.shl(eights, constant(VI, 4)) if SHIFTS_SIGNED else constant(VI, 0)


def signed_products(b: Any, dot: Any, weights: Any, xs: Any) -> Any:
    if SHIFTS_SIGNED:
        return dot_unsigned.emit(b, dot, b.xor(weights, constant(VB, 0x80)), xs)
    return dot_signed.emit(b, dot, weights, xs)


@dataclass(frozen=True)
class Blocks:
    """GGML's q4_0 and q8_0: blocks of a float16 scale and 32 quants. Each block takes eight lanes of a register.

    sixteen_blocks is faster for q4_0 in registers of 64 bytes.
    """

    bits: int
    step_blocks: int
    vector: Format = "q8"

    @property
    def block_bytes(self) -> int:
        return 2 + 4 * self.bits

    @property
    def step_columns(self) -> int:
        return _GROUP * self.step_blocks

    @property
    def step_bytes(self) -> int:
        return self.block_bytes * self.step_blocks

    def sums(self) -> int:
        return 2

    def side_lines(self, b: Any, row: Any, step: Any, d: Any) -> list[Any]:
        return []

    def step(self, b: Any, rows: list[Any], step: Any, x: Any, d: Any, sums: Sums, asks: Asks) -> None:
        together = LANES // 8
        for piece in range(self.step_blocks // together):
            block = b.add(times(b, step, self.step_blocks), number(together * piece))
            self._blocks(b, rows, block, x, d, [one[piece % 2] for one in sums], asks, together)

    def rest(self, b: Any, rows: list[Any], steps: Any, x: Any, d: Any, sums: Sums) -> None:
        with steps_of(b, times(b, steps, self.step_blocks), groups_of(b, d)) as (block, _):
            self._blocks(b, rows, block, x, d, [one[0] for one in sums], Asks(), 1)

    def _blocks(
        self, b: Any, rows: list[Any], block: Any, x: Any, d: Any, sums: list[Slot], asks: Asks, n: int
    ) -> None:
        """Add the products of n blocks from `block` on, n = LANES / 8 or 1: the other lanes are 0."""
        n_padded = padded_groups(b, d)
        x_bytes = load(b, b.add(x, times(b, block, 32)), VB if n == LANES // 8 else ir.VectorType(I8, 32))
        x_scales = b.add(b.add(x, times(b, n_padded, 32)), times(b, block, 4))
        x_sums = b.add(b.add(x, times(b, n_padded, 36)), times(b, block, 8))
        x_scale = self._eightfold(b, [load(b, offset(b, x_scales, 4 * i), F32) for i in range(n)], VF)
        start = self._start(b, x_sums, n)
        xs = self._widen(b, x_bytes)
        for row, row_sums in zip(rows, sums, strict=True):
            asks.one(b)
            at = b.add(row, times(b, block, self.block_bytes))
            places = [offset(b, at, self.block_bytes * i) for i in range(n)]
            scales = self._eightfold(b, [load(b, place, F16) for place in places], VH)
            packed = [load(b, offset(b, place, 2), ir.VectorType(I8, 4 * self.bits)) for place in places]
            if self.bits == 8:
                dot = signed_products(b, start, self._widen(b, self._join(b, packed)), xs)
            else:
                dot = dot_unsigned.emit(b, start, self._nibbles(b, packed), xs)
            scaled(b, dot, halves_to_floats(b, scales), x_scale, row_sums)

    def _start(self, b: Any, x_sums: Any, n: int) -> Any:
        """Return the initial sums: those of each 16 x, times -8, in lanes 0 and 4 of the block's eight."""
        sixteens = load(b, x_sums, ir.VectorType(I32, 2 * n))
        none = ir.Constant(sixteens.type, None)
        places = [lane // 4 if lane % 4 == 0 and lane < 8 * n else 2 * n for lane in range(LANES)]
        spread = b.shuffle_vector(sixteens, none, ir.Constant(ir.VectorType(I32, LANES), places))
        eights = b.sub(constant(VI, 0), b.shl(spread, constant(VI, 3)))
        return eights if self.bits == 4 else start_of_signed(b, eights)

    def _join(self, b: Any, parts: list[Any]) -> Any:
        if len(parts) == 1:
            return parts[0]
        size = 2 * parts[0].type.count
        return b.shuffle_vector(*parts, ir.Constant(ir.VectorType(I32, size), list(range(size))))

    def _widen(self, b: Any, vector: Any) -> Any:
        """Pad with zeros to a whole register."""
        if vector.type.count == 4 * LANES:
            return vector
        none = ir.Constant(vector.type, None)
        count = vector.type.count
        places = [min(i, count) for i in range(4 * LANES)]
        return b.shuffle_vector(vector, none, ir.Constant(ir.VectorType(I32, 4 * LANES), places))

    def _nibbles(self, b: Any, packed: list[Any]) -> Any:
        """Unpack 16 bytes of each block to 32 numbers: the low halves, then the high ones."""
        joined = self._join(b, packed)
        n = len(packed)
        places = [16 * (i // 32) + i % 16 for i in range(32 * n)]
        twice = b.shuffle_vector(joined, joined, ir.Constant(ir.VectorType(I32, 32 * n), places))
        words = ir.VectorType(I64, 4 * n)
        shifts = ir.Constant(words, [0 if i % 4 < 2 else 4 for i in range(4 * n)])
        shifted = b.bitcast(b.lshr(b.bitcast(twice, words), shifts), twice.type)
        return self._widen(b, b.and_(shifted, constant(twice.type, 15)))

    def _eightfold(self, b: Any, values: list[Any], of: Any) -> Any:
        """Repeat each value in the eight lanes of its block; 0 after the last."""
        if len(values) == LANES // 8 == 1:
            return splat(b, values[0], of)
        half = ir.VectorType(of.element, 8)
        parts = [splat(b, value, half) for value in values]
        if len(parts) == 1:
            parts.append(ir.Constant(half, None))
        return b.shuffle_vector(*parts, ir.Constant(ir.VectorType(I32, 16), list(range(16))))


def _same(b: Any, values: Any) -> Any:
    return values


CODECS: dict[str, Codec] = {
    "f32": Plain(4, F32, _same),
    "f16": Plain(2, F16, halves_to_floats),
    "bf16": Plain(2, I16, bfloats_to_floats),
    "q8_0": Blocks(8, 4),
    "q4_0": Blocks(4, 8),
    "q8_0.lanes": Lanes(8),
    "q4_0.lanes": Lanes(4),
    **SUPER_BLOCKS,
    **SMALL_BLOCKS,
    **(SIXTEEN_BLOCKS if LANES == 16 else {}),
    **COPIES,
}
