"""Attention of one token over the KV cache, head by head: a head is one worker's from its scores to its mean.

Specification: attention of native_kernels.reference. Scores, their exponentials and the weighted mean are three passes
over the visible positions.
"""

from __future__ import annotations

import math

from native_kernels.backend import F32, I64
from native_kernels.cpu.call import Call, arguments
from native_kernels.cpu.jit import kernel
from native_kernels.cpu.simd import (
    LANES,
    add,
    fma,
    get_float,
    get_int,
    larger,
    largest,
    mul,
    put_float,
    spread,
    sub,
    total,
    zero,
)
from native_kernels.cpu.token_state import KEYS, LAYER_BYTES, POSITION, VALUES
from native_kernels.cpu.vector_math import exp, first_lanes, put_some_floats, some_floats, tanh


@kernel
def _attention_f32(args: int, lo: int, hi: int, worker: int) -> None:
    """args: q, scores, out, state, layer, heads, key-value heads, head_dim, bytes of a head's scores, window (0: all),
    scale, softcap (0: none)."""
    state = get_int(args + 24)
    n_heads, n_kv_heads, head_dim = get_int(args + 40), get_int(args + 48), get_int(args + 56)
    group = n_heads // n_kv_heads
    stop = get_int(state + 8 * POSITION) + 1
    window = get_int(args + 72)
    start = 0
    if window != 0 and stop > window:
        start = stop - window
    scale, cap = get_float(args + 80), get_float(args + 88)
    row = 4 * n_kv_heads * head_dim
    before = get_int(args + 32) * get_int(state + 8 * LAYER_BYTES)
    for head in range(lo, hi):
        q = get_int(args) + 4 * head_dim * head
        scores = get_int(args + 8) + get_int(args + 64) * head
        out = get_int(args + 16) + 4 * head_dim * head
        keys = get_int(state + 8 * KEYS) + before + 4 * head_dim * (head // group)
        values = get_int(state + 8 * VALUES) + before + 4 * head_dim * (head // group)
        for position in range(start, stop):
            key = keys + row * position
            sums = zero()
            for i in range(0, head_dim, LANES):
                sums = fma(some_floats(q + 4 * i, head_dim - i), some_floats(key + 4 * i, head_dim - i), sums)
            put_float(scores + 4 * (position - start), total(sums) * scale)
        n = stop - start
        top = spread(-math.inf)
        for i in range(0, n, LANES):
            value = some_floats(scores + 4 * i, n - i)
            if cap != 0:
                value = mul(tanh(mul(value, spread(1.0 / cap))), spread(cap))
                put_some_floats(scores + 4 * i, n - i, value)
            if n - i < LANES:  # what lies behind the end is no score
                value = sub(value, sub(spread(3e38), first_lanes(spread(3e38), n - i)))
            top = larger(value, top)
        highest = spread(largest(top))
        sums = zero()
        for i in range(0, n, LANES):
            value = exp(sub(some_floats(scores + 4 * i, n - i), highest))
            if n - i < LANES:
                value = first_lanes(value, n - i)
            put_some_floats(scores + 4 * i, n - i, value)
            sums = add(sums, value)
        inverse = spread(1.0 / total(sums))
        for i in range(0, head_dim, 4 * LANES):
            a, b, c, d = zero(), zero(), zero(), zero()
            left = head_dim - i
            value = values + row * start + 4 * i
            for j in range(n):
                weight = spread(get_float(scores + 4 * j))
                a = fma(weight, some_floats(value, left), a)
                if left > LANES:
                    b = fma(weight, some_floats(value + 4 * LANES, left - LANES), b)
                if left > 2 * LANES:
                    c = fma(weight, some_floats(value + 8 * LANES, left - 2 * LANES), c)
                if left > 3 * LANES:
                    d = fma(weight, some_floats(value + 12 * LANES, left - 3 * LANES), d)
                value += row
            put_some_floats(out + 4 * i, left, mul(a, inverse))
            if left > LANES:
                put_some_floats(out + 4 * (i + LANES), left - LANES, mul(b, inverse))
            if left > 2 * LANES:
                put_some_floats(out + 4 * (i + 2 * LANES), left - 2 * LANES, mul(c, inverse))
            if left > 3 * LANES:
                put_some_floats(out + 4 * (i + 3 * LANES), left - 3 * LANES, mul(d, inverse))


def attention_calls(
    q: F32,
    scores: F32,
    out: F32,
    state: I64,
    layer: int,
    n_kv_heads: int,
    scale: float | None = None,
    softcap: float | None = None,
    window: int | None = None,
) -> list[Call]:
    """The token's attention over what the layer's cache holds, itself included.

    Shapes: q, out [H, head_dim]; scores [H, at least the positions of the cache], to work in. Items: heads.
    """
    n_heads, head_dim = q.shape
    factor = 1.0 / math.sqrt(head_dim) if scale is None else scale
    args = arguments(
        q, scores, out, state, layer, n_heads, n_kv_heads, head_dim, scores.strides[0], window or 0,
        float(factor), float(softcap or 0.0),
    )  # fmt: skip
    return [Call(_attention_f32, args, n_heads, 1, "attention", (q, scores, out, state))]
