"""Layers with a state: gated delta nets and Mamba-2, one value head per item, and short convolutions.

Specification: gated_delta and short_conv of native_kernels.reference. A value head does the convolution, the decay and
update of its matrix, the norm and the gate. The positions of a prompt follow each other within a head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from native_kernels.backend import F32, I64, DeltaInput, DeltaWeights, ShortConvInput
from native_kernels.cpu.products.vector_math import logistic, put_some_floats, some_floats
from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import inline, kernel
from native_kernels.cpu.runtime.simd import (
    LANES,
    floats,
    fma,
    get_float,
    get_int,
    mul,
    put_float,
    put_floats,
    spread,
    sub,
    total,
    zero,
)
from native_kernels.specs import DeltaSpec, ShortConvSpec

_UNIT_EPSILON = 1e-6
_GROUP = 64  # channels of a short convolution: whole cache lines, and work for a thread


@dataclass(frozen=True, eq=False)
class StatePlace:
    """Addresses of the states before and after a run, in words that are read when calls run.

    Shapes: int64 [1] each: the address of states [L, state_size].
    """

    before: I64
    after: I64

    @classmethod
    def of(cls, before: F32, after: F32) -> StatePlace:
        """Describe two arrays of states."""
        words = np.array([before.ctypes.data, after.ctypes.data], np.int64)
        return cls(words[:1], words[1:])


@inline
def _convolve(rows: Any, last: Any, t: Any, row_bytes: Any, conv: Any, width: Any, n: Any, out: Any) -> None:
    """Write SiLU of the convolution of n channels at position t.

    rows, last: addresses of the first channel at position 0, and in the oldest of the earlier inputs. conv: its first
    weight, for the oldest position; those of a position are row_bytes apart, as the inputs are, and the biases follow.
    """
    for i in range(0, n, LANES):
        mixed = some_floats(conv + row_bytes * width + 4 * i, n - i)
        for j in range(width):
            place = t - width + 1 + j
            at = rows + row_bytes * place if place >= 0 else last + row_bytes * (place + width - 1)
            mixed = fma(some_floats(at + 4 * i, n - i), some_floats(conv + row_bytes * j + 4 * i, n - i), mixed)
        put_some_floats(out + 4 * i, n - i, mul(mixed, logistic(mixed)))


@inline
def _scale_to(x: Any, n: Any, length: Any) -> None:
    """Scale n numbers in place, so that their length as a vector becomes `length`."""
    squares = zero()
    for i in range(0, n, LANES):
        value = some_floats(x + 4 * i, n - i)
        squares = fma(value, value, squares)
    factor = spread(length / math.sqrt(total(squares) + _UNIT_EPSILON))
    for i in range(0, n, LANES):
        put_some_floats(x + 4 * i, n - i, mul(some_floats(x + 4 * i, n - i), factor))


@inline
def _update(old: Any, new: Any, row_bytes: Any, key_dim: Any, head: Any, v: Any, n: Any) -> None:
    """Update up to LANES columns of a head's matrix, and put what the query reads there in place of the value.

    head: address of decay, strength, share of the value in the output, whether what the key reads is subtracted from
    the value, query and key, one behind the other. v: the value from this column on. n: columns left.
    """
    kept, strength = spread(get_float(head)), spread(get_float(head + 4))
    q, k = head + 16, head + 16 + 4 * key_dim
    known = zero()
    if get_float(head + 12) != 0.0:
        for i in range(key_dim):
            known = fma(some_floats(old + row_bytes * i, n), spread(get_float(k + 4 * i)), known)
    change = mul(sub(some_floats(v, n), mul(known, kept)), strength)
    found = mul(some_floats(v, n), spread(get_float(head + 8)))
    for i in range(key_dim):
        value = fma(change, spread(get_float(k + 4 * i)), mul(some_floats(old + row_bytes * i, n), kept))
        put_some_floats(new + row_bytes * i, n, value)
        found = fma(value, spread(get_float(q + 4 * i)), found)
    put_some_floats(v, n, found)


@inline
def _update_four(old: Any, new: Any, row_bytes: Any, key_dim: Any, head: Any, v: Any) -> None:
    """_update of 4 LANES columns at once: four sums hide the latency of a multiplication."""
    step = 4 * LANES
    kept, strength, skip = spread(get_float(head)), spread(get_float(head + 4)), spread(get_float(head + 8))
    q, k = head + 16, head + 16 + 4 * key_dim
    known0, known1, known2, known3 = zero(), zero(), zero(), zero()
    if get_float(head + 12) != 0.0:
        for i in range(key_dim):
            at, of_key = old + row_bytes * i, spread(get_float(k + 4 * i))
            known0 = fma(floats(at), of_key, known0)
            known1 = fma(floats(at + step), of_key, known1)
            known2 = fma(floats(at + 2 * step), of_key, known2)
            known3 = fma(floats(at + 3 * step), of_key, known3)
    change0 = mul(sub(floats(v), mul(known0, kept)), strength)
    change1 = mul(sub(floats(v + step), mul(known1, kept)), strength)
    change2 = mul(sub(floats(v + 2 * step), mul(known2, kept)), strength)
    change3 = mul(sub(floats(v + 3 * step), mul(known3, kept)), strength)
    found0, found1 = mul(floats(v), skip), mul(floats(v + step), skip)
    found2, found3 = mul(floats(v + 2 * step), skip), mul(floats(v + 3 * step), skip)
    for i in range(key_dim):
        at, to = old + row_bytes * i, new + row_bytes * i
        of_key, of_query = spread(get_float(k + 4 * i)), spread(get_float(q + 4 * i))
        value0 = fma(change0, of_key, mul(floats(at), kept))
        value1 = fma(change1, of_key, mul(floats(at + step), kept))
        value2 = fma(change2, of_key, mul(floats(at + 2 * step), kept))
        value3 = fma(change3, of_key, mul(floats(at + 3 * step), kept))
        put_floats(to, value0)
        put_floats(to + step, value1)
        put_floats(to + 2 * step, value2)
        put_floats(to + 3 * step, value3)
        found0 = fma(value0, of_query, found0)
        found1 = fma(value1, of_query, found1)
        found2 = fma(value2, of_query, found2)
        found3 = fma(value3, of_query, found3)
    put_floats(v, found0)
    put_floats(v + step, found1)
    put_floats(v + 2 * step, found2)
    put_floats(v + 3 * step, found3)


@inline
def _norm(x: Any, n: Any, weight: Any, epsilon: Any, out: Any) -> None:
    """Write the RMS norm of n numbers."""
    squares = zero()
    for i in range(0, n, LANES):
        value = some_floats(x + 4 * i, n - i)
        squares = fma(value, value, squares)
    factor = spread(1.0 / math.sqrt(total(squares) / n + epsilon))
    for i in range(0, n, LANES):
        value = mul(mul(some_floats(x + 4 * i, n - i), factor), some_floats(weight + 4 * i, n - i))
        put_some_floats(out + 4 * i, n - i, value)


@inline
def _gate(x: Any, n: Any, gate: Any, out: Any) -> None:
    """Write n numbers times SiLU of the gate."""
    for i in range(0, n, LANES):
        opening = some_floats(gate + 4 * i, n - i)
        put_some_floats(out + 4 * i, n - i, mul(some_floats(x + 4 * i, n - i), mul(opening, logistic(opening))))


@kernel
def _norm_groups(args: int, lo: int, hi: int, worker: int) -> None:
    """args: x, weight, epsilon, numbers of a group, groups of a position. Items: groups of all positions, in place."""
    size, groups = get_int(args + 24), get_int(args + 32)
    for number in range(lo, hi):
        x = get_int(args) + 4 * size * number
        _norm(x, size, get_int(args + 8) + 4 * size * (number % groups), get_float(args + 16), x)


@kernel
def _run_heads(args: int, lo: int, hi: int, worker: int) -> None:
    """args, in words: 0 qkv, 1 gate, 2 alpha, 3 beta, 4 out, 5 positions, 6 conv, 7 decay, 8 alpha's bias, 9 norm, 10
    epsilon, 11 and 12 addresses of the states before and after, 13 offset of the layer in both, 14 key heads, 15 value
    heads, 16 key_dim, 17 value_dim, 18 positions of the convolution, 19 whether heads are tiled, 20 scratch, 21 its
    bytes per worker, 22 to 24 first channels of queries, keys and values, 25 each head's skip, 0 without Mamba.
    """
    n_tokens, epsilon = get_int(args + 40), get_float(args + 80)
    before, after = get_int(get_int(args + 88)) + get_int(args + 104), get_int(get_int(args + 96)) + get_int(args + 104)
    key_heads, value_heads = get_int(args + 112), get_int(args + 120)
    key_dim, value_dim, width = get_int(args + 128), get_int(args + 136), get_int(args + 144)
    tiled, row_bytes = get_int(args + 152), 4 * value_dim
    head = get_int(args + 160) + get_int(args + 168) * worker
    q, k, v, skip = head + 16, head + 16 + 4 * key_dim, head + 16 + 8 * key_dim, get_int(args + 200)
    inputs = 4 * value_heads * value_dim * key_dim  # offset of the convolution's inputs in a state
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    for number in range(lo, hi):
        key_head = number % key_heads if tiled != 0 else number // (value_heads // key_heads)
        writes_key = number < key_heads if tiled != 0 else number % (value_heads // key_heads) == 0
        at_query = 4 * (get_int(args + 176) + key_dim * key_head)
        at_key = 4 * (get_int(args + 184) + key_dim * key_head)
        at_value = 4 * get_int(args + 192) + row_bytes * number
        matrix = row_bytes * key_dim * number
        decay = get_float(get_int(args + 56) + 4 * number)
        put_float(head + 8, get_float(skip + 4 * number) if skip != 0 else 0.0)
        put_float(head + 12, 1.0 if skip == 0 else 0.0)
        for t in range(n_tokens):
            for part in range(3):
                start, n, to = at_query, key_dim, q
                if part == 1:
                    start, to = at_key, k
                elif part == 2:
                    start, n, to = at_value, value_dim, v
                _convolve(
                    get_int(args) + start, before + inputs + start, t, 4 * channels, get_int(args + 48) + start, width,
                    n, to,
                )  # fmt: skip
            if skip == 0:
                _scale_to(q, key_dim, 1.0 / math.sqrt(key_dim))
                _scale_to(k, key_dim, 1.0)
            place = 4 * (value_heads * t + number)
            forgetting = get_float(get_int(args + 16) + place) + get_float(get_int(args + 64) + 4 * number)
            softplus = forgetting if forgetting > 20.0 else math.log1p(math.exp(forgetting))
            put_float(head, math.exp(decay * softplus))
            strength = softplus
            if skip == 0:
                strength = 1.0 / (1.0 + math.exp(-get_float(get_int(args + 24) + place)))
            put_float(head + 4, strength)
            old, new = (before if t == 0 else after) + matrix, after + matrix
            column = 0
            while column + 4 * LANES <= value_dim:
                _update_four(old + 4 * column, new + 4 * column, row_bytes, key_dim, head, v + 4 * column)
                column += 4 * LANES
            while column < value_dim:
                n = value_dim - column
                _update(old + 4 * column, new + 4 * column, row_bytes, key_dim, head, v + 4 * column, n)
                column += LANES
            row = row_bytes * (value_heads * t + number)
            if skip == 0:
                _norm(v, value_dim, get_int(args + 72), epsilon, v)
            _gate(v, value_dim, get_int(args + 8) + row, get_int(args + 32) + row)
        for part in range(0 if writes_key else 2, 3):
            start = at_query if part == 0 else at_key if part == 1 else at_value
            n = value_dim if part == 2 else key_dim
            for j in range(width - 1):
                place = n_tokens - width + 1 + j
                source = get_int(args) + 4 * channels * place
                if place < 0:
                    source = before + inputs + 4 * channels * (place + width - 1)
                to = after + inputs + 4 * channels * j + start
                for i in range(0, n, LANES):
                    put_some_floats(to + 4 * i, n - i, some_floats(source + start + 4 * i, n - i))


def delta_calls(
    x: DeltaInput, out: F32, w: DeltaWeights, spec: DeltaSpec, place: StatePlace, layer: int, n_workers: int
) -> list[Call]:
    """Run a gated delta net or Mamba-2 over T positions: out [T, H_v x value_dim]. layer: its index in the states.

    Items: value heads, then groups of the norm in Mamba-2.
    """
    assert all(one.flags.c_contiguous for one in (*x, out)), "rows follow each other"
    bias = np.zeros(spec.channels, np.float32) if w.conv_bias is None else w.conv_bias
    conv = np.ascontiguousarray(np.vstack([w.conv.reshape(spec.channels, spec.conv_width).T, bias]))
    n_bytes = -(-4 * (4 + 2 * spec.key_dim + spec.value_dim) // 64) * 64
    scratch = aligned_empty(n_workers * n_bytes // 4)
    args = arguments(
        *x, out, len(x.qkv), conv, w.decay, w.alpha_bias, w.norm, float(w.epsilon), place.before, place.after,
        4 * spec.state_size * layer, spec.key_heads, spec.value_heads, spec.key_dim, spec.value_dim, spec.conv_width,
        int(spec.order == "tiled"), scratch, n_bytes, *spec.starts, 0 if w.skip is None else w.skip,
    )  # fmt: skip
    keeps = (x, out, w, conv, place, scratch)
    calls = [Call(_run_heads, args, spec.value_heads, 1, "attention", keeps, chained=True)]
    if spec.mamba:
        size = spec.value_width // spec.norm_groups
        args = arguments(out, w.norm, float(w.epsilon), size, spec.norm_groups)
        calls.append(Call(_norm_groups, args, out.size // size, 1, "attention", (out, w)))
    return calls


@kernel
def _run_channels(args: int, lo: int, hi: int, worker: int) -> None:
    """args: values, gate_in, gate, out, positions, conv [width, channels], channels, width, addresses of the states
    before and after, offset of the layer in both. Items: groups of channels.
    """
    values, gate_in, gate, out = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
    n_tokens, conv, channels, width = get_int(args + 32), get_int(args + 40), get_int(args + 48), get_int(args + 56)
    before, after = get_int(get_int(args + 64)) + get_int(args + 80), get_int(get_int(args + 72)) + get_int(args + 80)
    row_bytes = 4 * channels
    for group in range(lo, hi):
        first = _GROUP * group
        for i in range(first, min(first + _GROUP, channels), LANES):
            n, at = channels - i, 4 * i
            for t in range(n_tokens):
                mixed = zero()
                for j in range(width):
                    place, weight = t - width + 1 + j, some_floats(conv + row_bytes * j + at, n)
                    if place >= 0:
                        row = row_bytes * place + at
                        mixed = fma(mul(some_floats(values + row, n), some_floats(gate_in + row, n)), weight, mixed)
                    else:
                        mixed = fma(some_floats(before + row_bytes * (place + width - 1) + at, n), weight, mixed)
                row = row_bytes * t + at
                put_some_floats(out + row, n, mul(mixed, some_floats(gate + row, n)))
            for j in range(width - 1):
                place, to = n_tokens - width + 1 + j, after + row_bytes * j + at
                if place >= 0:
                    row = row_bytes * place + at
                    put_some_floats(to, n, mul(some_floats(values + row, n), some_floats(gate_in + row, n)))
                else:
                    put_some_floats(to, n, some_floats(before + row_bytes * (place + width - 1) + at, n))


def short_conv_calls(
    x: ShortConvInput, out: F32, conv: F32, spec: ShortConvSpec, place: StatePlace, layer: int
) -> list[Call]:
    """Run a gated short convolution over T positions: out [T, channels]. layer: its index in the states."""
    assert all(one.flags.c_contiguous for one in (*x, out)), "rows follow each other"
    by_position = np.ascontiguousarray(conv.reshape(spec.channels, spec.conv_width).T)
    args = arguments(
        *x, out, len(out), by_position, spec.channels, spec.conv_width, place.before, place.after,
        4 * spec.state_size * layer,
    )  # fmt: skip
    keeps, items = (x, out, by_position, place), -(-spec.channels // _GROUP)
    return [Call(_run_channels, args, items, 1, "attention", keeps, chained=True)]
