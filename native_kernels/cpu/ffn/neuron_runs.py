"""The FFN neuron by neuron, for matrices whose three rows of a neuron are adjacent; sparse_ffn decides when.

Gate, up and down of some neurons are read one after another, so that each neuron's bytes are one stream: a CPU
prefetches by itself within a stream, and starts again with every other. The listed neurons are split into segments of
equal length, which depends only on their number. A worker sums each of its segments and combines sums wherever it has
both halves of a node in the tree over all segments; `adds_sums` then sums the rest of the tree, by columns. So the
result depends neither on the number of workers nor on which neurons each had.

Up and down are prefetched if every gate of the previous pass has fired.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from native_kernels.backend import PackedMatrix
from native_kernels.cpu.ffn.activation_math import activate
from native_kernels.cpu.products.row_dots import CODECS, emit_dots_towards, rows_at_once
from native_kernels.cpu.products.row_sums import SUMS, LaneSums, PlainSums, emit_add_towards, emit_begin
from native_kernels.cpu.products.vector_math import put_some_floats, some_floats
from native_kernels.cpu.runtime.jit import inline
from native_kernels.cpu.runtime.simd import (
    LANES,
    add,
    atomic_add,
    floats,
    get_float,
    get_int,
    get_int32,
    put_float,
    put_floats,
    put_int,
    put_int32,
)

SEGMENTS = 128  # at most
FEWEST_SEGMENTS = 64  # with fewer, some workers would have far more of them than others
TABLE_BYTES = 8 * SEGMENTS
_DEPTH = 18  # sums that a worker holds at once: two per level of the tree over its segments
_SHORTEST = 16  # neurons of a segment: at 8, 550 neurons of 4096 columns in f16 were faster with down by columns
_WORDS = 7  # length of `words`
_GAP = 64

RUNS_IN = {codec: of for codec, of in SUMS.items() if isinstance(of, PlainSums | LaneSums)}


def vector_bytes(codec: str, d: int) -> int:
    """Return the bytes of one sum over rows."""
    n_bytes = max(RUNS_IN[codec].scratch_bytes(d), 4 * d)
    return -(-n_bytes // 64) * 64


def shared_bytes(d: int, n_workers: int) -> int:
    """Return the size of the memory in which workers share their sums."""
    return TABLE_BYTES + n_workers * _DEPTH * max(vector_bytes(codec, d) for codec in RUNS_IN)


def side_by_side(gate: PackedMatrix, up: PackedMatrix, down_t: PackedMatrix) -> bool:
    """Return whether the three rows of each neuron are adjacent, as in a bundle."""
    if not gate.codec == up.codec == down_t.codec or gate.codec not in RUNS_IN or gate.n_rows < 2:
        return False
    starts = [int(one.data.ctypes.data) for one in (gate, up, down_t)]
    gaps = [stop - start - gate.row_bytes for start, stop in itertools.pairwise(starts)]
    strides = {int(one.data.strides[0]) for one in (gate, up, down_t)}
    return all(0 <= gap < _GAP for gap in gaps) and len(strides) == 1


def words(gate: PackedMatrix, down_t: PackedMatrix, shared: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Return arguments of both calls: the number of neurons from which this path is used, and its parameters."""
    size = vector_bytes(down_t.codec, down_t.n_cols)
    # Beginning a segment and adding its sum to others moves three vectors; its neurons should be many times that.
    least = max(_SHORTEST, 1 << max(0, (4 * size // gate.row_bytes - 1).bit_length()))
    of = RUNS_IN[down_t.codec]
    stride = int(down_t.data.strides[0])
    return least * FEWEST_SEGMENTS, least, down_t.data, stride, of.units(down_t.n_cols), size, shared


NO_WORDS = (1 << 62, *[0] * (_WORDS - 1))


@inline
def _segment(n: int, least: int) -> int:
    size = least
    while n > SEGMENTS * size:
        size *= 2
    return size


@inline
def _add_vector(to: int, more: int, n_bytes: int) -> None:
    for at in range(0, n_bytes, 4 * LANES):
        put_floats(to + at, add(floats(to + at), floats(more + at)))


def runs_over(codec: str) -> Any:
    """Return the function (args, own, ids, n, lo, hi, worker): sparse_ffn's hidden call for n neurons, and their sums.

    own: the address of `words` after the arguments of that call.
    """
    of, dots = RUNS_IN[codec], CODECS[codec]
    rows, fills_up = rows_at_once(dots), of.whole_passes
    several, one = emit_dots_towards(dots, rows), emit_dots_towards(dots, 1)
    add_several, add_one = emit_add_towards(of, rows), emit_add_towards(of, rows if fills_up else 1)
    begin = emit_begin(of)

    @inline
    def runs(args: int, own: int, ids: int, n: int, lo: int, hi: int, worker: int) -> None:
        gate, stride, x, up = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 32)
        d, gate_bias, up_bias = get_int(args + 64), get_int(args + 72), get_int(args + 80)
        kind, threshold, f = get_int(args + 88), get_float(args + 96), get_int(args + 104)
        h, ids_out, counts = get_int(args + 144), get_int(args + 152), get_int(args + 184)
        scratch = get_int(args + 168) + worker * get_int(args + 176)
        down, units, size = get_int(own + 16), get_int(own + 32), get_int(own + 40)
        table = get_int(own + 48)
        sums = table + TABLE_BYTES + worker * _DEPTH * size
        fired, places, values = scratch, scratch + 4 * f, scratch + 8 * f  # of one segment
        found = scratch + 16 * f  # after the list of neurons
        begins = found + 64  # for each held sum: its first segment
        each = _segment(n, get_int(own + 8))
        n_segments = (n + each - 1) // each
        first, last = n_segments * lo // f, n_segments * hi // f
        held, opened = 0, 0
        expected = True
        for segment in range(first, last):
            total = sums + held * size
            begin(0, units, d, total, 0, total)
            count, done = 0, 0
            i, end = each * segment, min(n, each * (segment + 1))
            while i < end:
                m = min(rows, end - i)
                other, after = (up, i) if expected else (gate, i + m)
                if m == rows:
                    several(gate, stride, ids, i, other, stride, ids, after, n - 1, x, d, found)
                else:
                    for k in range(m):
                        one(gate, stride, ids, i + k, other, stride, ids, after + k, n - 1, x, d, found + 4 * k)
                for k in range(m):
                    neuron = get_int32(ids + 4 * (i + k)) if ids != 0 else i + k
                    put_int32(ids_out + 4 * (i + k), neuron)
                    if gate_bias != 0:
                        put_float(found + 4 * k, get_float(found + 4 * k) + get_float(gate_bias + 4 * neuron))
                activate(found, m, kind, threshold)
                before = count
                for k in range(m):
                    value = get_float(found + 4 * k)
                    if value == 0:
                        put_float(h + 4 * (i + k), np.float32(0.0))
                    else:
                        put_float(values + 4 * count, value)
                        put_int32(fired + 4 * count, get_int32(ids_out + 4 * (i + k)))
                        put_int32(places + 4 * count, i + k)
                        count += 1
                expected = count - before == m
                i += m
                while count - done >= rows or (i >= end and done < count):
                    m = min(rows, count - done)
                    if m == rows:
                        several(up, stride, fired, done, down, stride, fired, done, count - 1, x, d, found)
                    else:
                        for k in range(m):
                            place = done + k
                            one(up, stride, fired, place, down, stride, fired, place, count - 1, x, d, found + 4 * k)
                    for k in range(m):
                        place = done + k
                        value = get_float(found + 4 * k)
                        if up_bias != 0:
                            value += get_float(up_bias + 4 * get_int32(fired + 4 * place))
                        if kind == 1 and value <= threshold:
                            value = np.float32(0.0)
                        value *= get_float(values + 4 * place)
                        put_float(values + 4 * place, value)
                        put_float(h + 4 * get_int32(places + 4 * place), value)
                    if fills_up:
                        while m < rows:  # only after the last neuron of a segment
                            put_float(values + 4 * (done + m), np.float32(0.0))
                            put_int32(fired + 4 * (done + m), get_int32(fired + 4 * (done + m - 1)))
                            m += 1
                    if m == rows:
                        add_several(
                            down, stride, fired, done, gate, stride, ids, i, n - 1, values, 0, units, d, total, total
                        )
                    else:
                        for k in range(done, done + m):
                            add_one(
                                down, stride, fired, k, gate, stride, ids, i, n - 1, values, 0, units, d, total, total
                            )
                    done += m
            opened += min(count, done)
            start, width = segment, 1
            while start & width != 0 and start - width >= first:
                held -= 1
                _add_vector(sums + held * size, sums + (held + 1) * size, size)
                start -= width
                width *= 2
            put_int(begins + 8 * held, start)
            held += 1
        for segment in range(first, last):
            put_int(table + 8 * segment, 0)
        for k in range(held):
            put_int(table + 8 * get_int(begins + 8 * k), sums + k * size)
        if counts != 0:
            atomic_add(counts + 8, opened)

    return runs


@inline
def _tree(nodes: int, n_nodes: int, n_segments: int, stack: int, at: int, left: int) -> Any:
    """Return the sum over all segments of the floats at one place of their vectors; only `left` of the last ones."""
    depth = 0
    for k in range(n_nodes):
        start = get_int(nodes + 16 * k)
        width = (get_int(nodes + 16 * k + 16) if k + 1 < n_nodes else n_segments) - start
        put_floats(stack + 4 * LANES * depth, some_floats(get_int(nodes + 16 * k + 8) + at, left))
        while start & width != 0:
            depth -= 1
            top = stack + 4 * LANES * depth
            put_floats(top, add(floats(top), floats(top + 4 * LANES)))
            start -= width
            width *= 2
        depth += 1
    while depth > 1:
        depth -= 1
        top = stack + 4 * LANES * (depth - 1)
        put_floats(top, add(floats(top), floats(top + 4 * LANES)))
    return floats(stack)


def adds_sums(codec: str) -> Any:
    """Return the function (own, n, lo, hi, d, out, scratch, room): add the sums of all segments for the units lo to hi.

    The result goes to out, or to the scratch in which sums of this codec are formed. room: memory for the tree.
    """
    of = RUNS_IN[codec]
    in_scratch = isinstance(of, LaneSums)
    of_unit = 16 * of.vectors if isinstance(of, LaneSums) else of.unit
    in_block = of.bits if isinstance(of, LaneSums) else 1

    @inline
    def add_up(nodes: int, n_nodes: int, n_segments: int, stack: int, start: int, stop: int, to: int) -> None:
        """Add the floats start to stop of the vectors."""
        for i in range(start, stop, LANES):
            more = _tree(nodes, n_nodes, n_segments, stack, 4 * i, stop - i)
            put_some_floats(to + 4 * i, stop - i, add(some_floats(to + 4 * i, stop - i), more))

    @inline
    def add_sums(own: int, n: int, lo: int, hi: int, d: int, out: int, scratch: int, room: int) -> None:
        each, table = _segment(n, get_int(own + 8)), get_int(own + 48)
        n_segments = (n + each - 1) // each
        stack = room
        nodes, n_nodes = room + 4 * LANES * (_DEPTH + 1), 0
        for segment in range(n_segments):
            held = get_int(table + 8 * segment)
            if held != 0:
                put_int(nodes + 16 * n_nodes, segment)
                put_int(nodes + 16 * n_nodes + 8, held)
                n_nodes += 1
        if in_scratch:
            add_up(nodes, n_nodes, n_segments, stack, of_unit * lo, of_unit * hi, scratch)
            of_factors = (d + 511) // 512 * 512  # the sums of factors follow all units
            start, stop = lo // in_block, (hi + in_block - 1) // in_block
            add_up(nodes, n_nodes, n_segments, stack, of_factors + 16 * start, of_factors + 16 * stop, scratch)
        else:
            add_up(nodes, n_nodes, n_segments, stack, of_unit * lo, min(d, of_unit * hi), out)

    return add_sums


BUFFER_BYTES = 4 * LANES * (_DEPTH + 1) + 16 * SEGMENTS
