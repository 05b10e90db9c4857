"""The FFN of one token on its active neurons: gate, up where the gate fires, then down.

Two calls: `hidden` is split by neurons and writes one value for each; `down` is split by columns, and every worker adds
all neurons that fired, in ascending order. Every worker finds them by scanning the values, some KB in the cache, which
saves a barrier. Of a neuron that does not fire, only the first row is read; of one that was not predicted, nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32, I32, I64, PackedMatrix
from native_kernels.cpu.ffn import down_parts, neuron_runs
from native_kernels.cpu.ffn.activation_math import NUMBERS, activate
from native_kernels.cpu.ffn.matrices import FfnMatrices
from native_kernels.cpu.products.activations import quantise_calls, quantised_empty
from native_kernels.cpu.products.gemv import (
    GRAIN,
    OVER,
    check_vector,
    gemv_calls,
    rows_ahead,
    stride_of,
    tile_of,
    vector_format,
)
from native_kernels.cpu.products.row_dots import CODECS, ON_THE_WAY, rows_at_once
from native_kernels.cpu.products.row_sums import SUMS, emit_add, emit_begin, emit_finish
from native_kernels.cpu.runtime.call import Call, Listed, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import Kernel, inline
from native_kernels.cpu.runtime.simd import (
    LANES,
    Rows,
    atomic_add,
    bits_not_zero,
    bits_reaching,
    floats,
    floats_part,
    get_float,
    get_int,
    get_int32,
    lowest_bit,
    prefetch_near,
    put_float,
    put_int,
    put_int32,
)
from native_kernels.cpu.runtime.tallies import NOT_COUNTED, Counting, counts_at, tally_listed, tally_words

U8 = NDArray[np.uint8]


@inline
def list_where(x: int, n: int, ids: int, threshold: Any, reaching: int, out: int) -> int:
    """List in out the places i < n, or ids[i], where x[i] >= threshold (reaching: 1) or x[i] is not 0; return their
    number.
    """
    count = 0
    for start in range(0, n, LANES):
        left = n - start
        values = floats(x + 4 * start) if left >= LANES else floats_part(x + 4 * start, left)
        bits = bits_reaching(values, threshold) if reaching != 0 else bits_not_zero(values)
        if left < LANES:
            bits &= (1 << left) - 1
        while bits != 0:
            i = start + lowest_bit(bits)
            put_int32(out + 4 * count, get_int32(ids + 4 * i) if ids != 0 else i)
            count += 1
            bits &= bits - 1
    return count


def _hidden(first: str, second: str | None, in_runs: bool) -> Kernel:
    first_over = OVER[first]
    second_over = OVER[second or first]
    two = second is not None
    second_rows = rows_at_once(CODECS[second or first])
    runs: Any = neuron_runs.runs_over(first) if in_runs else None

    def hidden(args: int, lo: int, hi: int, worker: int) -> None:
        w1, stride1, x1, ahead1 = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        w2, stride2, x2, ahead2 = get_int(args + 32), get_int(args + 40), get_int(args + 48), get_int(args + 56)
        d, bias1, bias2 = get_int(args + 64), get_int(args + 72), get_int(args + 80)
        kind, threshold = get_int(args + 88), get_float(args + 96)
        f, logits, wanted = get_int(args + 104), get_int(args + 112), get_float(args + 120)
        given, n_given = get_int(args + 128), get_int(args + 136)
        h, ids_out, count_out = get_int(args + 144), get_int(args + 152), get_int(args + 160)
        scratch = get_int(args + 168) + worker * get_int(args + 176)
        values, fired, places, listed = scratch, scratch + 4 * f, scratch + 8 * f, scratch + 12 * f
        # This worker's range: positions start to stop of a list, or of all neurons if there is none.
        ids, n = given, f
        if given != 0:
            n = get_int(n_given)
        if logits != 0:
            n = list_where(logits, n, given, wanted, 1, listed)
            ids = listed
        counts = get_int(args + 184)
        if lo == 0:
            put_int(count_out, n)
            if counts != 0:
                put_int(counts, get_int(counts) + n)
        if in_runs:
            own = args + 8 * _HIDDEN_WORDS
            if n >= get_int(own):
                runs(args, own, ids, n, lo, hi, worker)
                return
        start, stop = n * lo // f, n * hi // f
        first_over(Rows(w1, stride1), ids, start, stop, x1, d, values - 4 * start, ahead1)
        for i in range(start, stop):
            neuron = get_int32(ids + 4 * i) if ids != 0 else i
            put_int32(ids_out + 4 * i, neuron)
            if bias1 != 0:
                at = values + 4 * (i - start)
                put_float(at, get_float(at) + get_float(bias1 + 4 * neuron))
        activate(values, stop - start, kind, threshold)
        count = 0
        for i in range(start, stop):
            value = get_float(values + 4 * (i - start))
            if not two:
                put_float(h + 4 * i, value)
            elif value == 0:
                put_float(h + 4 * i, np.float32(0.0))
            else:
                neuron = get_int32(ids_out + 4 * i)
                put_float(values + 4 * count, value)
                put_int32(fired + 4 * count, neuron)
                put_int32(places + 4 * count, i)
                if count < second_rows:  # later ones are prefetched by the products before them
                    for line in range(0, ON_THE_WAY // second_rows, 64):
                        prefetch_near(w2 + stride2 * neuron + line)
                count += 1
        if counts != 0:
            atomic_add(counts + 8, count if two else stop - start)
        if two:
            second = listed + 4 * f
            second_over(Rows(w2, stride2), fired, 0, count, x2, d, second, ahead2)
            for i in range(count):
                value = get_float(second + 4 * i)
                if bias2 != 0:
                    value += get_float(bias2 + 4 * get_int32(fired + 4 * i))
                if kind == 1 and value <= threshold:
                    value = np.float32(0.0)
                put_float(h + 4 * get_int32(places + 4 * i), value * get_float(values + 4 * i))

    return Kernel(hidden, f"sparse_ffn.hidden.{first}" + (f".{second}" if second else "") + ".runs" * in_runs)


def _down(codec: str) -> Kernel:
    of = SUMS[codec]
    begin, finish = emit_begin(of), emit_finish(of)
    rows = rows_at_once(CODECS[codec])
    several, one = emit_add(of, rows), emit_add(of, rows if of.whole_passes else 1)
    fills_up = of.whole_passes
    in_runs = codec in neuron_runs.RUNS_IN
    add_sums: Any = neuron_runs.adds_sums(codec) if in_runs else None

    def down(args: int, lo: int, hi: int, worker: int) -> None:
        w, stride, row_bytes, d = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        h, ids, n = get_int(args + 32), get_int(args + 40), get_int(get_int(args + 48))
        out, bias, f, counts = get_int(args + 56), get_int(args + 64), get_int(args + 72), get_int(args + 80)
        scratch = get_int(args + 88) + worker * get_int(args + 96)
        units, tally = get_int(args + 104), counts_at(get_int(args + 112), get_int(args + 120))
        own = args + 8 * _DOWN_WORDS
        if get_int(args + 128) != 0 and n < get_int(own):
            return
        active, values, sums = scratch, scratch + 4 * f + 64, scratch + 8 * f + 128
        count = list_where(h, n, 0, np.float32(0.0), 0, active)
        for i in range(count):
            place = get_int32(active + 4 * i)
            put_float(values + 4 * i, get_float(h + 4 * place))
            put_int32(active + 4 * i, get_int32(ids + 4 * place) if ids != 0 else place)
        if tally != 0:
            tally_listed(tally, active, count * lo // units, count * hi // units)
        if in_runs:
            least = get_int(own)
            if n >= least:
                begin(lo, hi, d, out, bias, sums)
                add_sums(own, n, lo, hi, d, out, sums, scratch + get_int(args + 96) - neuron_runs.BUFFER_BYTES)
                finish(lo, hi, d, out, bias, sums)
                if lo == 0 and counts != 0:
                    put_int(counts + 16, get_int(counts + 16) + count)
                return
        end = count
        if fills_up:
            while end % rows != 0:
                put_float(values + 4 * end, np.float32(0.0))
                put_int32(active + 4 * end, get_int32(active + 4 * (count - 1)))
                end += 1
        begin(lo, hi, d, out, bias, sums)
        # With many workers a worker's part of a row is short: prefetch more passes ahead.
        passes = max(1, ON_THE_WAY * units // (rows * row_bytes * (hi - lo)))
        i = 0
        while i + rows <= end:
            several(w, stride, active, i, i + rows * passes, end - 1, values, lo, hi, d, out, sums)
            i += rows
        if not fills_up:
            while i < end:
                one(w, stride, active, i, i + 1, end - 1, values, lo, hi, d, out, sums)
                i += 1
        finish(lo, hi, d, out, bias, sums)
        if lo == 0 and counts != 0:
            put_int(counts + 16, get_int(counts + 16) + count)

    return Kernel(down, f"sparse_ffn.down.{codec}")


_HIDDEN_WORDS, _DOWN_WORDS = 24, 17  # followed by the words of neuron_runs
HIDDEN: dict[tuple[str, str | None, bool], Kernel] = {}
DOWN: dict[str, Kernel] = {codec: _down(codec) for codec in SUMS}


def hidden_kernel(first: str, second: str | None, in_runs: bool = False) -> Kernel:
    """Return the kernel for these codecs of gate and up, or of up alone; made on first use, compiled later.

    in_runs: whether it also supports neuron_runs.
    """
    key = (first, second, in_runs)
    if key not in HIDDEN:
        HIDDEN[key] = _hidden(*key)
    return HIDDEN[key]


@dataclass(frozen=True, eq=False)
class Buffers:
    """Intermediate arrays of an FFN's calls; can be shared by all layers."""

    h: F32
    ids: I32
    n: I64
    scratch: U8
    shared: U8 | None = None  # sums of neuron_runs
    parts: down_parts.Parts | None = None

    @classmethod
    def make(cls, f: int, d: int, n_workers: int) -> Buffers:
        """Allocate for up to f neurons of width d and n_workers workers."""
        f_padded = -(-f // 16) * 16
        of_sums = max(of.scratch_bytes(d) for of in SUMS.values())
        of_worker = max(20 * f_padded, 8 * f_padded + 128 + of_sums) + 64 + neuron_runs.BUFFER_BYTES
        scratch = aligned_empty((n_workers, -(-of_worker // 64) * 64), np.uint8)
        shared = aligned_empty(neuron_runs.shared_bytes(d, n_workers), np.uint8)
        return cls(
            aligned_empty(f), aligned_empty(f, np.int32), aligned_empty(1, np.int64), scratch, shared,
            down_parts.Parts.make(d),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Predicted:
    """The neurons whose logit f32 [F] reaches the threshold.

    among: logits[i] belongs to neuron among.ids[i]; None: to neuron i.
    """

    logits: F32
    threshold: float = 0.0
    among: Listed | None = None


def predictor_calls(
    fc1: PackedMatrix,
    fc2: PackedMatrix,
    x: NDArray[Any],
    logits: F32,
    *,
    bias1: F32 | None = None,
    bias2: F32 | None = None,
    stage: str = "predictor",
) -> list[Call]:
    """Compute logits [F] = fc2 times relu(fc1 times x); x as in gemv_calls for fc1."""
    inner: F32 = aligned_empty(fc1.n_rows)
    calls = gemv_calls(fc1, x, inner, bias=bias1, relu=True, stage=stage)
    form = vector_format(fc2.codec)
    between: NDArray[Any] = inner
    if form != "f32":
        between = quantised_empty(form, fc2.n_cols)
        calls += quantise_calls(inner, between, form, stage)
    return calls + gemv_calls(fc2, between, logits, bias=bias2, stage=stage)


def ffn_calls(
    ffn: FfnMatrices,
    x: Mapping[str, NDArray[Any]],
    out: F32,
    buffers: Buffers,
    *,
    neurons: Predicted | Listed | None = None,
    down_bias: F32 | None = None,
    counting: Counting = NOT_COUNTED,
    stage: str = "ffn",
) -> list[Call]:
    """Compute out [D] = the FFN of one token, plus down_bias [D].

    x: the input in every format that gate and up read.
    neurons: only these, else all.
    counting: counts int64 [3], incremented by the neurons computed, those whose first row fired, those that went into
    down; the tally counts the latter one by one.
    """
    first, second, f = ffn.first, ffn.second, ffn.up.n_rows
    assert ffn.down_t is not None, "down is added up neuron by neuron"
    if second is None and ffn.activation == "drelu":
        raise ValueError("drelu needs a gate")
    predicted = neurons if isinstance(neurons, Predicted) else None
    listed = neurons.among if isinstance(neurons, Predicted) else neurons
    words = (
        *_matrix_words(first, x),
        *((0, 0, 0, 0) if second is None else _matrix_words(second, x)),
        ffn.up.n_cols,
        *map(_or_none, ffn.biases),
        NUMBERS[ffn.activation],
        float(ffn.threshold),
        f,
        0 if predicted is None else predicted.logits,
        0.0 if predicted is None else float(predicted.threshold),
        *((0, 0) if listed is None else listed),
        buffers.h,
        buffers.ids,
        buffers.n,
        buffers.scratch,
        buffers.scratch.shape[1],
        _or_none(counting.counts),
    )
    keeps = (ffn, x, out, buffers, neurons, down_bias, counting)
    in_runs = (
        second is not None
        and buffers.shared is not None
        and neurons is not None
        and neuron_runs.side_by_side(first, second, ffn.down_t)
    )
    own: tuple[Any, ...] = ()
    if in_runs and buffers.shared is not None:
        own = neuron_runs.words(first, ffn.down_t, buffers.shared)
    kernel = hidden_kernel(first.codec, None if second is None else second.codec, in_runs)
    # With a list, a range costs only its own neurons; in runs, a worker's segments must stay together.
    shared = predicted is None and not in_runs
    tile = tile_of(first) if neurons is None else 0
    hidden = Call(kernel, arguments(*words, *own), f, GRAIN, stage, keeps, shared=shared, tile=tile)
    return [hidden, *_down_calls(ffn.down_t, buffers, out, down_bias, counting, stage, own)]


def axpy_calls(w: PackedMatrix, buffers: Buffers, out: F32, *, stage: str = "axpy") -> list[Call]:
    """Compute out [D] = the sum of the rows buffers.ids[i] of w times buffers.h[i], for i < buffers.n[0]."""
    return _down_calls(w, buffers, out, None, NOT_COUNTED, stage)


def _down_calls(
    w: PackedMatrix,
    buffers: Buffers,
    out: F32,
    bias: F32 | None,
    counting: Counting,
    stage: str,
    own: tuple[Any, ...] = (),
) -> list[Call]:
    """own: the words of neuron_runs, which then sums from own[0] neurons on; empty: not used."""
    own_words = own or neuron_runs.NO_WORDS
    keeps = (w, buffers, out, bias, counting)
    parts: list[Call] = []
    units = SUMS[w.codec].units(w.n_cols)
    if buffers.parts is not None and down_parts.serves(w):
        chunks, most, (sums, n_sums) = down_parts.pieces_of(w), down_parts.most_segments(w), buffers.parts
        summing = arguments(
            w.data, stride_of(w), w.row_bytes, w.n_cols, buffers.h, buffers.ids, buffers.n, sums, most, chunks,
            most * chunks, len(buffers.h), _or_none(counting.counts), buffers.scratch, buffers.scratch.shape[1],
            *tally_words(counting.tally), units, n_sums, own_words[0],
        )  # fmt: skip
        adding = arguments(sums, n_sums, out, _or_none(bias), w.n_cols)
        n_items = -(-w.n_cols // LANES)
        parts = [
            Call(down_parts.parts_kernel(w.codec), summing, most * chunks, 1, stage, keeps, shared=True),
            # With runs, the next call writes only if this one does not.
            Call(down_parts.add_parts, adding, n_items, down_parts.MERGE_GRAIN, stage, keeps, barrier=not own),
        ]
        if not own:
            return parts
    words = (
        w.data,
        stride_of(w),
        w.row_bytes,
        w.n_cols,
        buffers.h,
        buffers.ids,
        buffers.n,
        out,
        _or_none(bias),
        len(buffers.h),
        _or_none(counting.counts),
        buffers.scratch,
        buffers.scratch.shape[1],
        units,
        *tally_words(counting.tally),
        int(bool(parts)),
        *own_words,
    )
    return [*parts, Call(DOWN[w.codec], arguments(*words), units, 1, stage, keeps)]


def _matrix_words(w: PackedMatrix, x: Mapping[str, NDArray[Any]]) -> tuple[Any, ...]:
    vector = x[vector_format(w.codec)]
    check_vector(w, vector)
    return w.data, stride_of(w), vector, rows_ahead(w)


def _or_none(array: NDArray[Any] | None) -> NDArray[Any] | int:
    return 0 if array is None else array
