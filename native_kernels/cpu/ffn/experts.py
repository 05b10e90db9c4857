"""The experts of one token as calls: multiply the rows of the chosen ones, add up what they say.

Which experts a token needs is known only when the router has run. So the calls hold a table of where every expert's
matrix begins, and read the chosen ids when they run. The rows of all chosen experts are shared out over the workers
together: a single expert of 768 rows has too few of them for many threads.

Specification: engine/model/router.py and engine/executor/experts.py.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from native_kernels.backend import F32, I32, I64, U8, PackedMatrix
from native_kernels.cpu.ffn.down_parts import ITEMS, MERGE_GRAIN, first_unit, pieces_of
from native_kernels.cpu.ffn.elementwise import COUNT_WORDS
from native_kernels.cpu.ffn.router import Chosen, add_in_order
from native_kernels.cpu.ffn.sparse_ffn import list_where
from native_kernels.cpu.products.activations import QUANTISE_ROWS, quantised_empty
from native_kernels.cpu.products.gemv import GRAIN, OVER, rows_ahead, stride_of, tile_of, vector_format
from native_kernels.cpu.products.row_dots import CODECS, ON_THE_WAY, rows_at_once
from native_kernels.cpu.products.row_sums import SUMS, emit_add, emit_begin, emit_finish
from native_kernels.cpu.products.vector_math import put_some_floats, some_floats
from native_kernels.cpu.runtime.call import Call, OfExperts, address, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import Kernel, kernel
from native_kernels.cpu.runtime.side_by_side import BLOCKS, tokens_here
from native_kernels.cpu.runtime.simd import (
    LANES,
    Rows,
    bits_not_zero,
    call_kernel,
    fma,
    get_byte,
    get_float,
    get_int,
    get_int32,
    i64,
    lowest_bit,
    operation,
    put_byte,
    put_float,
    put_int,
    put_int32,
    spread,
    void,
    zero,
)
from native_kernels.cpu.runtime.tallies import Tally, counts_at, tally_words

_WILL_NEED = 3  # madvise
_REQUEST_BYTES = 128 << 10  # Linux reads no more of one request than its readahead, or what the disk takes at once
PADDING = 16  # places behind a list of rows: sums read whole passes of rows


@dataclass(frozen=True, eq=False)
class ExpertMatrices:
    """One matrix of every expert of a layer, all of one shape and codec. first: any of them, as their description."""

    first: PackedMatrix
    addresses: I64  # [E], where each one's rows begin
    keeps: tuple[PackedMatrix, ...]

    @classmethod
    def of(cls, matrices: Sequence[PackedMatrix]) -> ExpertMatrices:
        """Raises: ValueError where they differ in shape, codec or row stride."""
        kinds = {(one.n_rows, one.n_cols, one.codec, stride_of(one)) for one in matrices}
        if len(kinds) != 1:
            raise ValueError(f"the experts' matrices differ: {sorted(kinds)}")
        addresses: I64 = aligned_empty(len(matrices), np.int64)
        addresses[:] = [one.data.ctypes.data for one in matrices]
        return cls(matrices[0], addresses, tuple(matrices))


@kernel
def _take_missing(args: int, lo: int, hi: int, worker: int) -> None:
    """One item: of the experts that the GPU chose, list those that it lacks, and count all of them.

    If a choice adds nothing to the heat, the token does not count, and nothing is listed.

    args: ids and weights as published, K, E, resident u8 [E], ids, weights, counts, heat f32 [E], what a choice adds to
    it (address), targets (pairs of an address and a factor), their number, counts of listed rows (0: none), how many
    are missing, -1 if an id is of no expert (address), the order of several tokens' experts.
    """
    published, their_weights = get_int(args), get_int(args + 8)
    n_used, n_experts = get_int(args + 16), get_int(args + 24)
    resident, ids, weights, counts = get_int(args + 32), get_int(args + 40), get_int(args + 48), get_int(args + 56)
    heat, more = get_int(args + 64), get_float(get_int(args + 72))
    targets, n_targets, listed = get_int(args + 80), get_int(args + 88), get_int(args + 96)
    n, is_sound = 0, True
    for k in range(n_used):
        expert = get_int32(published + 4 * k)
        if expert < 0 or expert >= n_experts:
            is_sound = False
            continue
        put_int(counts + 8 * expert, get_int(counts + 8 * expert) + 1)
        put_float(heat + 4 * expert, get_float(heat + 4 * expert) + more)
        if get_byte(resident + expert) == 0 and more > 0:
            put_int32(ids + 4 * n, expert)
            put_float(weights + 4 * n, get_float(their_weights + 4 * k))
            n += 1
    for i in range(n_targets):
        put_int(get_int(targets + 16 * i), n * get_int(targets + 16 * i + 8))
    if listed != 0:
        for k in range(n, n_used):
            put_int(listed + 8 * k, 0)
    put_int(get_int(args + 104), n if is_sound else -1)


@kernel
def _take_missing_of_several(args: int, lo: int, hi: int, worker: int) -> None:
    """Do as run_side_by_side with _take_missing, and put the experts of all tokens in order."""
    order = get_int(get_int(args + BLOCKS) + 112)
    put_int(order, 0)
    for token in range(tokens_here(args)):
        block = get_int(args + BLOCKS + 8 * token)
        call_kernel(get_int(args + 32), block, lo, hi, worker)
        add_in_order(order, token, get_int(block + 40), get_int(get_int(block + 104)))


@operation(void, i64, i64, i64, i64)
def _advise(b: Any, function: Any, start: Any, n_bytes: Any, advice: Any) -> None:
    """Call the C function int f(void *, size_t, int) at an address."""
    word, code = ir.IntType(64), ir.IntType(32)
    of = ir.FunctionType(code, [word, word, code])
    b.call(b.inttoptr(function, of.as_pointer()), [start, n_bytes, b.trunc(advice, code)])


@kernel
def _request(args: int, lo: int, hi: int, worker: int) -> None:
    """Ask the system to read the chosen experts. Items: matrices, one expert after another.

    args: the function (address; 0: none), ids, page size, matrices of an expert, then each one's addresses and bytes.
    """
    function, ids, page, n = get_int(get_int(args)), get_int(args + 8), get_int(args + 16), get_int(args + 24)
    if function == 0:
        return
    for item in range(lo, hi):
        of = args + 32 + 16 * (item % n)
        start = get_int(get_int(of) + 8 * get_int32(ids + 4 * (item // n)))
        at, end = start - start % page, start + get_int(of + 8)
        while at < end:
            _advise(function, at, min(_REQUEST_BYTES, end - at), _WILL_NEED)
            at += _REQUEST_BYTES


@cache
def _product_kernel(codec: str) -> Kernel:
    over = OVER[codec]

    def product(args: int, lo: int, hi: int, worker: int) -> None:
        """Items: the rows of all chosen experts, one expert after another.

        args: addresses, ids, row stride, rows of one, x, its step from one expert to the next, columns, out, ahead, the
        step of out.
        """
        table, ids, stride, n_rows = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        x, x_step, d, out = get_int(args + 32), get_int(args + 40), get_int(args + 48), get_int(args + 56)
        ahead, out_step = get_int(args + 64), get_int(args + 72)
        at = lo
        while at < hi:
            slot = at // n_rows
            first = at - slot * n_rows
            last = min(n_rows, first + hi - at)
            w = get_int(table + 8 * get_int32(ids + 4 * slot))
            over(Rows(w, stride), 0, first, last, x + slot * x_step, d, out + slot * out_step, ahead)
            at += last - first

    return Kernel(product, f"experts.product.{codec}")


@cache
def _listed_product_kernel(codec: str) -> Kernel:
    over = OVER[codec]

    def product(args: int, lo: int, hi: int, worker: int) -> None:
        """Items stand for the listed rows of all chosen experts, in proportion.

        args: addresses, ids, row stride, x, columns, out, its step, ahead, listed rows, their step, how many of each
        expert (address), experts, items.
        """
        table, ids, stride, x = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        d, out, out_step, ahead = get_int(args + 32), get_int(args + 40), get_int(args + 48), get_int(args + 56)
        listed, listed_step, counts = get_int(args + 64), get_int(args + 72), get_int(args + 80)
        n_used, items = get_int(args + 88), get_int(args + 96)
        n = 0
        for slot in range(n_used):
            n += get_int(counts + 8 * slot)
        begin, end = n * lo // items, n * hi // items
        before = 0
        for slot in range(n_used):
            count = get_int(counts + 8 * slot)
            first, last = max(0, begin - before), min(count, end - before)
            if first < last:
                w = get_int(table + 8 * get_int32(ids + 4 * slot))
                over(Rows(w, stride), listed + listed_step * slot, first, last, x, d, out + out_step * slot, ahead)
            before += count

    return Kernel(product, f"experts.listed.{codec}")


@cache
def _sum_kernel(codec: str) -> Kernel:
    of = SUMS[codec]
    begin, finish = emit_begin(of), emit_finish(of)
    rows = rows_at_once(CODECS[codec])
    several, one = emit_add(of, rows), emit_add(of, rows if of.whole_passes else 1)
    fills_up = of.whole_passes

    def sums(args: int, lo: int, hi: int, worker: int) -> None:
        """Items: pieces of the columns, of one segment of an expert's rows after another.

        args: addresses, ids, row stride, row bytes, values, their step, columns, units of a row, pieces, listed rows,
        their step, how many of each expert (address), segments, out, its step, scratch, its step.
        """
        table, ids, stride, row_bytes = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        h, h_step, d, units = get_int(args + 32), get_int(args + 40), get_int(args + 48), get_int(args + 56)
        pieces, listed, listed_step = get_int(args + 64), get_int(args + 72), get_int(args + 80)
        counts, segments = get_int(args + 88), get_int(args + 96)
        out, out_step = get_int(args + 104), get_int(args + 112)
        scratch = get_int(args + 120) + worker * get_int(args + 128)
        for item in range(lo, hi):
            part, piece = item // pieces, item % pieces
            slot, segment = part // segments, part % segments
            first, last = first_unit(piece, pieces, units), first_unit(piece + 1, pieces, units)
            w, to = get_int(table + 8 * get_int32(ids + 4 * slot)), out + part * out_step
            values, places = h + slot * h_step, listed + slot * listed_step
            n = get_int(counts + 8 * slot)
            passes = (n + rows - 1) // rows
            if fills_up:
                n = rows * passes
            i, stop = rows * (passes * segment // segments), min(n, rows * (passes * (segment + 1) // segments))
            begin(first, last, d, to, 0, scratch)
            ahead = rows * max(1, ON_THE_WAY * units // (rows * row_bytes * max(1, last - first)))
            while i + rows <= stop:
                several(w, stride, places, i, i + ahead, n - 1, values, first, last, d, to, scratch)
                i += rows
            if not fills_up:
                while i < stop:
                    one(w, stride, places, i, i + 1, n - 1, values, first, last, d, to, scratch)
                    i += 1
            finish(first, last, d, to, 0, scratch)

    return Kernel(sums, f"experts.sums.{codec}")


@kernel
def _list_active(args: int, lo: int, hi: int, worker: int) -> None:
    """List the neurons whose value is not 0. Items: experts.

    args: values, F, listed rows, their step, how many (address), counts of workers (opened).
    """
    values, width, listed, step = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
    opened = 0
    for slot in range(lo, hi):
        x, to, found = values + 4 * width * slot, listed + step * slot, 0
        for start in range(0, width, LANES):
            bits = int(bits_not_zero(some_floats(x + 4 * start, width - start)))
            if width - start < LANES:
                bits &= (1 << (width - start)) - 1
            while bits != 0:
                put_int32(to + 4 * found, start + lowest_bit(bits))
                found += 1
                bits &= bits - 1
        put_int(get_int(args + 32) + 8 * slot, found)
        opened += found
    mine = get_int(args + 40) + 8 * COUNT_WORDS * worker
    put_int(mine, get_int(mine) + opened)


@kernel
def _list_reached(args: int, lo: int, hi: int, worker: int) -> None:
    """List the neurons whose score reaches the threshold, and clear their values. Items: experts.

    args: scores, F, threshold, values (only written), listed rows, their step, how many (address), counts of workers.
    """
    scores, width, threshold, values = get_int(args), get_int(args + 8), get_float(args + 16), get_int(args + 24)
    listed, step = get_int(args + 32), get_int(args + 40)
    for slot in range(lo, hi):
        n = list_where(scores + 4 * width * slot, width, 0, threshold, 1, listed + step * slot)
        put_int(get_int(args + 48) + 8 * slot, n)
        mine = get_int(args + 56) + 8 * COUNT_WORDS * worker + 16
        put_int(mine, get_int(mine) + n)
        for i in range(0, width, LANES):
            put_some_floats(values + 4 * (width * slot + i), width - i, zero())


@kernel
def _spread_listed(args: int, lo: int, hi: int, worker: int) -> None:
    """Write the values of listed rows to their places. Items: experts.

    args: values in the lists' order, F, listed rows, their step, how many (address), result.
    """
    found, width, listed, step = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
    for slot in range(lo, hi):
        out, base = get_int(args + 40) + 4 * width * slot, found + 4 * width * slot
        for i in range(get_int(get_int(args + 32) + 8 * slot)):
            put_float(out + 4 * get_int32(listed + step * slot + 4 * i), get_float(base + 4 * i))


@kernel
def _fire(args: int, lo: int, hi: int, worker: int) -> None:
    """Multiply what passed the gate with up, and list again what is not 0 then. Items: experts.

    args: values (also written), F, up's values of the listed rows (0: none), their step, whether they go through ReLU,
    listed rows (also written), their step, how many (address; also written), values of the list, their step, counts of
    workers (fired).
    """
    values, width, up, up_step = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
    relu, listed, listed_step = get_int(args + 32), get_int(args + 40), get_int(args + 48)
    counts, fired_values, fired_step = get_int(args + 56), get_int(args + 64), get_int(args + 72)
    fired = 0
    for slot in range(lo, hi):
        ids, to, found = listed + listed_step * slot, fired_values + fired_step * slot, 0
        count = get_int(counts + 8 * slot)
        for i in range(count):
            neuron = get_int32(ids + 4 * i)
            place = values + 4 * (width * slot + neuron)
            value = get_float(place)
            if up != 0:
                other = get_float(up + up_step * slot + 4 * i)
                if relu != 0 and other <= 0:
                    other = np.float32(0.0)
                value *= other
                put_float(place, value)
            if value != 0:
                put_int32(ids + 4 * found, neuron)
                put_float(to + 4 * found, value)
                found += 1
        put_int(counts + 8 * slot, found)
        fired += found
        for i in range(found, found + PADDING):  # sums read whole passes of rows
            put_int32(ids + 4 * i, get_int32(ids + 4 * (found - 1)) if found > 0 else 0)
            put_float(to + 4 * i, np.float32(0.0))
    mine = get_int(args + 80) + 8 * COUNT_WORDS * worker + 8
    put_int(mine, get_int(mine) + fired)


@kernel
def _tally(args: int, lo: int, hi: int, worker: int) -> None:
    """Count the neurons that fired. Items: hidden values of all chosen experts. args: h, ids, F, a tally's words."""
    h, ids, width = get_int(args), get_int(args + 8), get_int(args + 16)
    counts = counts_at(get_int(args + 24), get_int(args + 32))
    if counts == 0:
        return
    for i in range(lo, hi):
        if get_float(h + 4 * i) != 0:
            at = counts + get_int32(ids + 4 * (i // width)) * width + i % width
            put_byte(at, get_byte(at) + 1)


@kernel
def _combine(args: int, lo: int, hi: int, worker: int) -> None:
    """out = the sum of what the experts say, each times its weight. Items: LANES values.

    args: said [K segments, D], K, segments, D, weights, the shared expert's [D] (0: none), out.
    """
    said, n_used, segments, d = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
    weights, shared, out = get_int(args + 32), get_int(args + 40), get_int(args + 48)
    for i in range(lo, hi):
        at, left = 4 * LANES * i, d - LANES * i
        total = zero()
        for k in range(n_used):
            weight = spread(get_float(weights + 4 * k))
            for part in range(segments * k, segments * (k + 1)):
                total = fma(some_floats(said + 4 * d * part + at, left), weight, total)
        if shared != 0:
            total = fma(some_floats(shared + at, left), spread(get_float(weights + 4 * n_used)), total)
        put_some_floats(out + at, left, total)


class ExpertVectors:
    """A row of numbers for each chosen expert, and the forms of them that the kernels of some codecs read."""

    def __init__(self, n_used: int, width: int, values: F32 | None = None) -> None:
        """Allocate the rows, or take `values` [n_used, width], rows need not be contiguous."""
        self.values: F32 = aligned_empty((n_used, width)) if values is None else values
        self.width = width
        self._forms: dict[str, U8] = {}

    def as_read_by(self, codec: str) -> tuple[F32 | U8, list[Call]]:
        """The rows as matrices of this codec are multiplied with them, and the calls that make them."""
        form = vector_format(codec)
        if form == "f32":
            return self.values, []
        n_bytes = -(-quantised_empty(form, self.width).nbytes // 64) * 64
        rows = self._forms.setdefault(form, aligned_empty((len(self.values), n_bytes), np.uint8))
        words = arguments(self.values, self.values.strides[0], rows, n_bytes, self.width)
        return rows, [Call(QUANTISE_ROWS[form], words, len(rows), 1, "ffn", (self.values, rows))]


def request_calls(matrices: Sequence[ExpertMatrices], chosen: Chosen, function: I64) -> list[Call]:
    """Requests of the chosen experts' pages, without waiting for them. function: i64 [1], of ExpertReads."""
    sizes = [(one.addresses, stride_of(one.first) * (one.first.n_rows - 1) + one.first.row_bytes) for one in matrices]
    words = arguments(
        function, chosen.ids, mmap.PAGESIZE, len(sizes), *(word for of_matrix in sizes for word in of_matrix)
    )  # fmt: skip
    keeps = (matrices, chosen, function)
    return [Call(_request, words, len(chosen.ids) * len(sizes), 1, "ffn", keeps, barrier=False)]


def product_calls(
    matrices: ExpertMatrices, chosen: Chosen, x: F32 | U8, out: F32, *, barrier: bool = True, stage: str = "ffn"
) -> list[Call]:
    """out [K, N] = each chosen expert's rows [N, D] times x: one vector for all, or a row for each expert.

    The rows of x and out need not be contiguous.
    """
    w = matrices.first
    each = 0 if x.ndim == 1 else x.strides[0]
    words = arguments(
        matrices.addresses, chosen.ids, stride_of(w), w.n_rows, x, each, w.n_cols, out, rows_ahead(w), out.strides[0]
    )  # fmt: skip
    keeps = (matrices, chosen, x, out)
    return [Call(
        _product_kernel(w.codec), words, len(chosen.ids) * w.n_rows, GRAIN, stage, keeps, barrier, tile=tile_of(w),
        of_experts=OfExperts.of(chosen.order, w.n_rows),
    )]  # fmt: skip


class ExpertRows:
    """Lists of rows of each chosen expert with a value for each row.

    ids: [K, F + PADDING], or one list for all. values: [K, at least F]. n: i64 [K], how many count.
    """

    def __init__(self, n_used: int, width: int) -> None:
        self.ids: I32 = aligned_empty((n_used, width + PADDING), np.int32)
        self.values: F32 = aligned_empty((n_used, width + PADDING))
        self.n: I64 = aligned_empty(n_used, np.int64)

    @classmethod
    def of_all(cls, h: ExpertVectors) -> ExpertRows:
        """Every row, with the values h."""
        found = cls(1, h.width)
        found.ids[0] = np.minimum(np.arange(h.width + PADDING), h.width - 1)
        found.values, found.n = h.values, np.full(len(h.values), h.width, np.int64)
        return found

    @property
    def step(self) -> int:
        """Bytes from one expert's list to the next."""
        return self.ids.strides[0] if len(self.ids) > 1 or len(self.n) == 1 else 0


def active_calls(h: ExpertVectors, rows: ExpertRows, counts: I64) -> list[Call]:
    """rows.ids = the neurons whose value in h is not 0. counts: [workers, COUNT_WORDS], whose first word grows."""
    words = arguments(h.values, h.width, rows.ids, rows.ids.strides[0], rows.n, counts)
    return [Call(_list_active, words, len(rows.n), 1, "ffn", (h, rows, counts))]


def reached_calls(scores: F32, threshold: float, values: F32, rows: ExpertRows, counts: I64) -> list[Call]:
    """rows.ids = the neurons whose score reaches the threshold; values = 0. scores, values [K, F].

    counts: as active_calls has it; the third word grows.
    """
    words = arguments(
        scores, scores.shape[1], float(threshold), values, rows.ids, rows.ids.strides[0], rows.n, counts
    )  # fmt: skip
    return [Call(_list_reached, words, len(rows.n), 1, "predictor", (scores, values, rows, counts))]


def spread_calls(found: F32, rows: ExpertRows, out: F32) -> list[Call]:
    """The listed places of out [K, F] = found [K, F], which is in the order of the lists."""
    words = arguments(found, out.shape[1], rows.ids, rows.ids.strides[0], rows.n, out)
    return [Call(_spread_listed, words, len(rows.n), 1, "ffn", (found, rows, out))]


def listed_product_calls(
    matrices: ExpertMatrices, chosen: Chosen, rows: ExpertRows, x: F32 | U8, out: F32
) -> list[Call]:
    """out [K, F], in the order of the lists = the listed rows of each chosen expert times x [D]."""
    w, items = matrices.first, out.size
    words = arguments(
        matrices.addresses, chosen.ids, stride_of(w), x, w.n_cols, out, out.strides[0], rows_ahead(w), rows.ids,
        rows.ids.strides[0], rows.n, len(rows.n), items,
    )  # fmt: skip
    keeps = (matrices, chosen, rows, x, out)
    return [Call(_listed_product_kernel(w.codec), words, items, GRAIN, "ffn", keeps)]


def fire_calls(h: ExpertVectors, up: F32 | None, relu: bool, rows: ExpertRows, counts: I64) -> list[Call]:
    """h and rows.values = h times up, of the listed rows; rows whose product is 0 leave the lists.

    up: [K, F], in the order of the lists; through ReLU first where relu. counts: as active_calls has it; the second
    word grows.
    """
    words = arguments(
        h.values, h.width, 0 if up is None else up, 0 if up is None else up.strides[0], int(relu), rows.ids,
        rows.ids.strides[0], rows.n, rows.values, rows.values.strides[0], counts,
    )  # fmt: skip
    return [Call(_fire, words, len(rows.n), 1, "ffn", (h, up, rows, counts))]


def segments_of(w: PackedMatrix, n_used: int) -> int:
    """Into how many segments sum_calls cuts the rows of an expert, so that many threads have work."""
    return max(1, ITEMS // (n_used * pieces_of(w)))


def sum_calls(matrices: ExpertMatrices, chosen: Chosen, rows: ExpertRows, out: F32, n_workers: int) -> list[Call]:
    """out [K segments, D] = the sums of each chosen expert's listed rows of [F, D], each times its value."""
    w, codec = matrices.first, SUMS[matrices.first.codec]
    pieces, units, segments = pieces_of(w), codec.units(w.n_cols), segments_of(w, len(rows.n))
    scratch: U8 = aligned_empty((n_workers, codec.scratch_bytes(w.n_cols) + 64), np.uint8)
    words = arguments(
        matrices.addresses, chosen.ids, stride_of(w), w.row_bytes, rows.values, rows.values.strides[0], w.n_cols, units,
        pieces, rows.ids, rows.step, rows.n, segments, out, out.strides[0], scratch, scratch.strides[0],
    )  # fmt: skip
    keeps = (matrices, chosen, rows, out, scratch)
    of_experts = OfExperts.of(chosen.order, segments * pieces)
    return [
        Call(_sum_kernel(w.codec), words, len(out) * pieces, 1, "ffn", keeps, tile=1, of_experts=of_experts)
    ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Residency:
    """Which experts of a layer a GPU computes, and how often the experts were chosen recently.

    resident: u8 [E]. heat: f32 [E], to which each choice adds growth[0]. missing: i64 [1], experts of the last token
    that were not resident; -1: the GPU chose one that does not exist.
    """

    resident: U8
    heat: F32
    growth: F32
    missing: I64


def missing_calls(
    calls: Sequence[Call], chosen: Chosen, rows: ExpertRows | None, published: I32, residency: Residency
) -> list[Call]:
    """The calls over all chosen experts, as calls over those of `published` that are not resident.

    published: i32 [2 K + 1], ids and the bits of the weights. rows: lists made for every token.
    """
    n_used, targets, found = len(chosen.ids), [], []
    for call in calls:
        if call.kernel is _combine:
            targets += [address(call.args) + 8, 1]
            found.append(call)
        elif call.kernel.name.startswith("experts.listed"):  # goes by the lists' lengths
            found.append(call)
        else:
            items, each = aligned_empty(1, np.int64), call.count() // n_used
            assert each * n_used == call.count(), "each expert has as many items"
            targets += [address(items), each]
            found.append(replace(call, n_items=items, keeps=(call.keeps, items)))
    table = arguments(*targets)
    words = arguments(
        published, address(published) + 4 * n_used, n_used, len(chosen.counts), residency.resident, chosen.ids,
        chosen.weights, chosen.counts, residency.heat, residency.growth, table, len(targets) // 2,
        0 if rows is None else rows.n, residency.missing,
        0 if chosen.order is None else chosen.order,
    )  # fmt: skip
    keeps = (published, chosen, rows, residency, table, found)
    together = None if chosen.order is None else _take_missing_of_several
    return [Call(_take_missing, words, 1, 1, "ffn", keeps, together=together), *found]


def tally_calls(h: ExpertVectors, chosen: Chosen, tally: Tally) -> list[Call]:
    """Counts each neuron whose hidden value is not 0. tally: of the first expert's first neuron."""
    words = arguments(h.values, chosen.ids, h.width, *tally_words(tally))
    return [Call(_tally, words, h.values.size, GRAIN, "ffn", (h, chosen, tally))]


def combine_calls(said: F32, chosen: Chosen, shared: F32 | None, out: F32) -> list[Call]:
    """out [D] = the rows of said [K segments, D], each times its expert's weight, and the shared expert's [D]."""
    d, n_used = said.shape[1], len(chosen.ids)
    words = arguments(said, n_used, len(said) // n_used, d, chosen.weights, 0 if shared is None else shared, out)
    return [Call(_combine, words, -(-d // LANES), MERGE_GRAIN, "ffn", (said, chosen, shared, out))]


def why_not(matrices: Sequence[PackedMatrix], *, summed: bool, listed: bool = False) -> list[str]:
    """Why no kernel computes with these matrices of a layer's experts; empty where one does.

    summed: their rows are added up, not multiplied with a vector; listed: those of a list, with room behind it.
    """
    kinds = {(one.n_rows, one.n_cols, one.codec, stride_of(one)) for one in matrices}
    if len(kinds) != 1:
        return ["The experts of a layer differ in shape or codec."]
    codec = matrices[0].codec
    if summed and codec not in SUMS:
        return [f"No CPU kernel adds up rows of experts in {codec}."]
    if summed and not listed and SUMS[codec].whole_passes and matrices[0].n_rows % rows_at_once(CODECS[codec]):
        return [f"No CPU kernel adds up {matrices[0].n_rows} rows of experts in {codec}."]
    return [] if codec in OVER else [f"No CPU kernel multiplies experts in {codec}."]
