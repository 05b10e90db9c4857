"""The FFN of several sequences' tokens at once, on the union of the neurons they need.

A neuron's rows are read once for all tokens. If a word per neuron says which tokens need it, a bit per token,
needed_ffn computes only those pairs. If every token needs every neuron: gate first (or up without a gate), then up of
the neurons whose gate fires for any token, then down of those, each as a matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32, I32, I64, PackedMatrix
from native_kernels.cpu.ffn import needed_down, needed_ffn
from native_kernels.cpu.ffn.activation_math import NUMBERS, activate
from native_kernels.cpu.ffn.matrices import FfnMatrices
from native_kernels.cpu.ffn.needed_down import DownBuffers
from native_kernels.cpu.ffn.needed_ffn import NeededBuffers, Vectors
from native_kernels.cpu.gemm.gemm import (
    Firing,
    Form,
    Panels,
    Scratch,
    form_of,
    matmul_calls,
    matmul_t_calls,
    pack_calls,
)
from native_kernels.cpu.products.listed_products import RowBuffer, listed_calls
from native_kernels.cpu.runtime.call import Call, Listed, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import kernel
from native_kernels.cpu.runtime.simd import (
    atomic_add,
    get_byte,
    get_float,
    get_int,
    get_int32,
    put_byte,
    put_float,
    put_int,
    put_int32,
)

MOST_TOKENS = 32  # bits of a word
_GRAIN = 16
# Minimum columns of down per worker, for codecs whose rows can be cut there. In chunks of 256, as other codecs need,
# 5120 columns would give some of 15 workers two chunks and most one.
_DOWN_GRAIN, _FINE = 128, ("f32", "f16", "bf16", "q8_0", "q4_0")

Words = NDArray[np.uint32]


@kernel
def open_listed(args: int, lo: int, hi: int, worker: int) -> None:
    """Apply the activation to first [T, N], and flag the neurons that are nonzero for any token.

    Items represent the listed neurons. args: first, its row stride, F, ids (0: all), their number (address), bias,
    kind, threshold, tokens, flags u8, counts i64 [3].
    """
    first, step, of = get_int(args), get_int(args + 8), get_int(args + 16)
    ids, n, bias = get_int(args + 24), get_int(get_int(args + 32)), get_int(args + 40)
    kind, threshold = get_int(args + 48), get_float(args + 56)
    tokens, flags, counts = get_int(get_int(args + 64)), get_int(args + 72), get_int(args + 80)
    start, stop = n * lo // of, n * hi // of
    opened = 0
    for i in range(start, stop):
        put_byte(flags + i, 0)
    for t in range(tokens):
        row = first + t * step
        if bias != 0:
            for i in range(start, stop):
                neuron = get_int32(ids + 4 * i) if ids != 0 else i
                put_float(row + 4 * i, get_float(row + 4 * i) + get_float(bias + 4 * neuron))
        activate(row + 4 * start, stop - start, kind, threshold)
        for i in range(start, stop):
            if get_float(row + 4 * i) != 0.0:
                opened += 1
                put_byte(flags + i, 1)
    atomic_add(counts, tokens * (stop - start))
    atomic_add(counts + 8, opened)


@kernel
def list_opened(args: int, lo: int, hi: int, worker: int) -> None:
    """List the flagged neurons. One item.

    args: flags, their number (address), ids (0: all), places i32, neurons i32, count; totals i64 [2], incremented by
    the number of flags and of flagged neurons.
    """
    flags, n, ids = get_int(args), get_int(get_int(args + 8)), get_int(args + 16)
    places, neurons, count = get_int(args + 24), get_int(args + 32), get_int(args + 40)
    found = 0
    for i in range(n):
        put_int32(places + 4 * found, i)
        put_int32(neurons + 4 * found, get_int32(ids + 4 * i) if ids != 0 else i)
        found += get_byte(flags + i)
    put_int(count, found)
    totals = get_int(args + 48)
    put_int(totals, get_int(totals) + n)
    put_int(totals + 8, get_int(totals + 8) + found)


@kernel
def join_opened(args: int, lo: int, hi: int, worker: int) -> None:
    """Compute h [T, F] of the active neurons, at their own places: first times up.

    Items represent the active neurons. args: first, up (0: none), row stride of both, F, places, neurons, count
    (address), bias of up, kind, threshold, tokens, h, its row stride, counts i64 [3], address of the tally's address
    (which may be 0: none); tally i64 [F].
    """
    first, up, step, of = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
    places, neurons, n = get_int(args + 32), get_int(args + 40), get_int(get_int(args + 48))
    bias, kind, threshold = get_int(args + 56), get_int(args + 64), get_float(args + 72)
    tokens, h, h_step = get_int(get_int(args + 80)), get_int(args + 88), get_int(args + 96)
    counts, tally = get_int(args + 104), get_int(get_int(args + 112))
    fired = 0
    for j in range(n * lo // of, n * hi // of):
        place, neuron = get_int32(places + 4 * j), get_int32(neurons + 4 * j)
        own = 0
        for t in range(tokens):
            value = get_float(first + t * step + 4 * place)
            if value != 0.0 and up != 0:
                other = get_float(up + t * step + 4 * j)
                if bias != 0:
                    other += get_float(bias + 4 * neuron)
                if kind == 1 and other <= threshold:
                    value = np.float32(0.0)
                else:
                    own += 1
                    value *= other
            elif value != 0.0:
                own += 1
            put_float(h + t * h_step + 4 * neuron, value)
        fired += own
        if tally != 0:
            put_int(tally + 8 * neuron, get_int(tally + 8 * neuron) + own)
    atomic_add(counts + 16, fired)


@dataclass(frozen=True, eq=False)
class UnionBuffers:
    """Intermediate arrays of an FFN's calls; can be shared by all layers.

    first, up, h: f32 [T, F]. needed: neurons that any token needs; active: those that any token fires, with their
    places in the list of the needed. tally i64 [1]: the address of the counts of fired neurons, 0: none.
    """

    max_tokens: int
    first: F32
    up: F32
    h: F32
    needed: Listed
    flags: NDArray[np.uint8]
    places: I32
    active: Listed
    tally: I64

    @classmethod
    def make(cls, max_tokens: int, f: int) -> UnionBuffers:
        """Allocate for max_tokens tokens and f neurons. Cost: 12 bytes per token and neuron, 13 per neuron.

        Raises: ValueError for more tokens than a word has bits.
        """
        if not 1 <= max_tokens <= MOST_TOKENS:
            raise ValueError(f"{max_tokens} tokens at once were asked for; 1 to {MOST_TOKENS} are served")
        first, up, h = (aligned_empty((max_tokens, f)) for _ in range(3))
        ids, places, neurons = (aligned_empty(f + 1, np.int32)[:f] for _ in range(3))
        one = [aligned_empty(1, np.int64) for _ in range(3)]
        flags = aligned_empty(f, np.uint8)
        return cls(max_tokens, first, up, h, Listed(ids, one[0]), flags, places, Listed(neurons, one[1]), one[2])

    def of_width(self, f: int) -> UnionBuffers:
        """Return the first part of the same memory, for an FFN of f neurons, at most as many as these are for."""
        t = self.max_tokens
        first, up, h = (one.reshape(-1)[: t * f].reshape(t, f) for one in (self.first, self.up, self.h))
        needed, active = (Listed(one.ids[:f], one.n) for one in (self.needed, self.active))
        return UnionBuffers(t, first, up, h, needed, self.flags[:f], self.places[:f], active, self.tally)


@dataclass(frozen=True, eq=False)
class Workspace:
    """Working memory of an engine's products, shared by all layers."""

    scratch: Scratch
    room: RowBuffer
    buffers: UnionBuffers
    _panels: dict[tuple[Form, int], Panels] = field(default_factory=dict)
    _firing: dict[tuple[str, int], Firing] = field(default_factory=dict)
    _needed: dict[int, NeededBuffers] = field(default_factory=dict)
    _down: dict[tuple[str, int, int], DownBuffers] = field(default_factory=dict)
    vectors: Vectors = field(default_factory=dict)

    def panels(self, w: PackedMatrix) -> Panels:
        """Return panels for the input of such a matrix."""
        form = form_of(w.codec, self.buffers.max_tokens)
        key = (form, w.n_cols)
        if key not in self._panels:
            self._panels[key] = Panels.make(self.buffers.max_tokens, w.n_cols, form)
        return self._panels[key]

    def firing(self, w: PackedMatrix) -> Firing:
        """Return the buffers for the values that weight the rows of such a matrix."""
        key = (w.codec, w.n_rows)
        if key not in self._firing:
            self._firing[key] = Firing.make(self.buffers.max_tokens, w.n_rows, w.codec)
        return self._firing[key]

    def needed(self, n_neurons: int) -> NeededBuffers:
        """Return the buffers for the values of each neuron and token."""
        if n_neurons not in self._needed:
            self._needed[n_neurons] = NeededBuffers.make(self.buffers.max_tokens, n_neurons, self.scratch.n_workers)
        return self._needed[n_neurons]

    def down(self, w: PackedMatrix) -> DownBuffers:
        """Return the buffers for adding up rows of such a matrix."""
        key = (w.codec, w.n_rows, w.n_cols)
        if key not in self._down:
            self._down[key] = DownBuffers.make(self.buffers.max_tokens, w, self.scratch.n_workers)
        return self._down[key]


def union_calls(
    ffn: FfnMatrices,
    x: F32,
    tokens: I64,
    out: F32,
    work: Workspace,
    *,
    needed: Words | Listed | None = None,
    counts: I64,
    stage: str = "ffn",
) -> list[Call]:
    """Compute out [max_tokens, D] = the FFN of the first tokens[0] rows of x [max_tokens, D].

    needed: words u32 [F], bit t set if token t needs the neuron; a list [F] of the neurons that every token needs; or
    None for all. counts i64 [5], incremented over all tokens by the neurons computed, those whose first row fired,
    those that went into down; then by the neurons whose first row was read, and whose other rows were read.
    Without down_t the values of the active neurons stay in work.buffers.h, and `out` is not written.
    Raises: ValueError if shapes do not match.
    """
    if isinstance(needed, np.ndarray):
        return _needed_calls(ffn, x, tokens, out, work, needed, counts, stage)
    b, first, up, f = work.buffers, ffn.first, ffn.up, ffn.up.n_rows
    first_bias, second_bias = ffn.biases
    kind, step = NUMBERS[ffn.activation], b.first.strides[0]
    panels = {id(one): one for one in map(work.panels, (first, up))}
    calls = [call for one in panels.values() for call in pack_calls(x, tokens, one, stage)]
    first_panels = work.panels(first)
    ids: Any = 0
    n_ids = np.array([f], np.int64)
    if needed is None:
        calls += matmul_calls(first_panels, first, tokens, b.first, work.scratch, stage)
    else:
        ids, n_ids = needed
        calls += listed_calls(first_panels, first, needed, tokens, b.first, work.scratch, work.room, stage)
    keeps = (ffn, x, tokens, out, work, needed, n_ids, counts)
    opening = arguments(
        b.first, step, f, ids, n_ids, _or_none(first_bias), kind, float(ffn.threshold), tokens, b.flags, counts,
    )  # fmt: skip
    listing = arguments(b.flags, n_ids, ids, b.places, *b.active, counts[3:])
    calls += [
        Call(open_listed, opening, f, _GRAIN, stage, keeps),
        Call(list_opened, listing, 1, 1, stage, keeps),
    ]
    other: Any = 0
    if ffn.gate is not None:
        other = b.up
        calls += listed_calls(work.panels(up), up, b.active, tokens, b.up, work.scratch, work.room, stage)
    joining = arguments(
        b.first, other, step, f, b.places, *b.active, _or_none(second_bias), kind, float(ffn.threshold), tokens, b.h,
        b.h.strides[0], counts, b.tally,
    )  # fmt: skip
    calls += [Call(join_opened, joining, f, _GRAIN, stage, keeps)]
    return calls if ffn.down_t is None else calls + _down_calls(ffn.down_t, tokens, out, work, stage)


def _needed_calls(
    ffn: FfnMatrices, x: F32, tokens: I64, out: F32, work: Workspace, words: Words, counts: I64, stage: str
) -> list[Call]:
    """As union_calls, with one product per neuron and token that needs it."""
    b, down_t, own = work.buffers, ffn.down_t, work.needed(ffn.up.n_rows)
    forms, calls = needed_ffn.vector_calls(x, {ffn.first.codec, ffn.up.codec}, work.vectors, stage)
    calls += needed_ffn.hidden_calls(ffn, forms, words, b.needed, counts, b.tally, own, stage)
    if down_t is not None and needed_down.adds_up(down_t):
        return calls + needed_down.down_calls(down_t, tokens, out, b.needed, own, work.down(down_t), stage)
    calls += needed_ffn.spread_calls(b.h, tokens, b.needed, b.places, b.active, own, stage)
    return calls if down_t is None else calls + _down_calls(down_t, tokens, out, work, stage)


def _down_calls(w: PackedMatrix, tokens: I64, out: F32, work: Workspace, stage: str) -> list[Call]:
    """As matmul_t_calls, for neurons that are already listed."""
    b = work.buffers
    _, _, pack, product = matmul_t_calls(b.h, tokens, w, out, work.firing(w), work.scratch, stage)
    for call, ids_at, count_at in ((pack, 4, 5), (product, 3, 4)):
        call.args[ids_at], call.args[count_at] = b.active.ids.ctypes.data, b.active.n.ctypes.data
    if w.codec in _FINE:
        product = replace(product, grain=_DOWN_GRAIN)
    return [pack, product]


def _or_none(array: Any) -> Any:
    return 0 if array is None else array


def row_buffer(matrices: list[PackedMatrix], n_workers: int) -> RowBuffer:
    """Allocate scratch for rows of any of these matrices."""
    return RowBuffer.make(n_workers, max(matrix.row_bytes for matrix in matrices))


__all__ = ["MOST_TOKENS", "UnionBuffers", "Words", "Workspace", "row_buffer", "union_calls"]
