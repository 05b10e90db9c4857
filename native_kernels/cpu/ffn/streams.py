"""Several residual streams of one token (AltUp): predict them, correct them, scale them alike; and cut gates off.

Specification: EagerLayer of engine/model/transformer.py, and engine/model/activations.py for the cut-off.
"""

from __future__ import annotations

import numpy as np

from native_kernels.backend import F32
from native_kernels.cpu.products.vector_math import first_lanes, put_some_floats, some_floats
from native_kernels.cpu.runtime.call import Call, arguments
from native_kernels.cpu.runtime.jit import kernel
from native_kernels.cpu.runtime.simd import (
    LANES,
    add,
    fma,
    get_float,
    get_int,
    larger,
    mul,
    root,
    spread,
    sub,
    total,
    zero,
)

_GRAIN = 8  # vectors of columns


@kernel
def _predict(args: int, lo: int, hi: int, worker: int) -> None:
    """predicted = streams + mixture streams, and the first one back to the streams. Items: LANES columns.

    args: streams [N, D], N, D, mixture [N, N], predicted [N, D].
    """
    streams, n, d = get_int(args), get_int(args + 8), get_int(args + 16)
    mixture, predicted = get_int(args + 24), get_int(args + 32)
    for item in range(lo, hi):
        at, left = 4 * LANES * item, d - LANES * item
        for b in range(n):
            value = some_floats(streams + 4 * d * b + at, left)
            for a in range(n):
                share = spread(get_float(mixture + 4 * (n * b + a)))
                value = fma(some_floats(streams + 4 * d * a + at, left), share, value)
            put_some_floats(predicted + 4 * d * b + at, left, value)
        put_some_floats(streams + at, left, some_floats(predicted + at, left))


@kernel
def _correct(args: int, lo: int, hi: int, worker: int) -> None:
    """streams = predicted + (1 + shares) (first stream - first predicted). Items: LANES columns.

    args: streams [N, D], N, D, shares [N], predicted [N, D], weights [D], out [D] = the first stream times the weights.
    """
    streams, n, d = get_int(args), get_int(args + 8), get_int(args + 16)
    shares, predicted = get_int(args + 24), get_int(args + 32)
    weights, out = get_int(args + 40), get_int(args + 48)
    for item in range(lo, hi):
        at, left = 4 * LANES * item, d - LANES * item
        change = sub(some_floats(streams + at, left), some_floats(predicted + at, left))
        for b in range(n):
            share = spread(np.float32(1.0) + get_float(shares + 4 * b))
            place = 4 * d * b + at
            put_some_floats(streams + place, left, fma(change, share, some_floats(predicted + place, left)))
        put_some_floats(out + at, left, mul(some_floats(streams + at, left), some_floats(weights + at, left)))


@kernel
def _scale_alike(args: int, lo: int, hi: int, worker: int) -> None:
    """Scale rows of x to the target's root mean square. Items: rows. args: x [N, D], D, target [D], least square."""
    d, target, least = get_int(args + 8), get_int(args + 16), get_float(args + 24)
    for row in range(lo, hi):
        x = get_int(args) + 4 * d * row
        wanted, found = zero(), zero()
        for i in range(0, d, LANES):
            value, other = some_floats(target + 4 * i, d - i), some_floats(x + 4 * i, d - i)
            wanted, found = fma(value, value, wanted), fma(other, other, found)
        size = max(np.float32(total(found) / d), least)
        factor = root(spread(np.float32(total(wanted) / d) / size))
        for i in range(0, d, LANES):
            put_some_floats(x + 4 * i, d - i, mul(some_floats(x + 4 * i, d - i), factor))


@kernel
def _cut_off(args: int, lo: int, hi: int, worker: int) -> None:
    """x = max(x - mean - factor deviation, 0). One item. args: x [F], F, factor."""
    x, n, factor = get_int(args), get_int(args + 8), get_float(args + 16)
    sums, squares = zero(), zero()
    for i in range(0, n, LANES):
        sums = add(sums, some_floats(x + 4 * i, n - i))
    mean = np.float32(total(sums) / n)
    for i in range(0, n, LANES):
        value = sub(some_floats(x + 4 * i, n - i), spread(mean))
        if n - i < LANES:
            value = first_lanes(value, n - i)
        squares = fma(value, value, squares)
    deviation = root(spread(np.float32(total(squares) / n)))
    limit = fma(deviation, spread(factor), spread(mean))
    for i in range(0, n, LANES):
        put_some_floats(x + 4 * i, n - i, larger(sub(some_floats(x + 4 * i, n - i), limit), zero()))


def predict_calls(streams: F32, mixture: F32, predicted: F32) -> list[Call]:
    """Compute predicted [N, D] from streams [N, D] and mixture [N x N]; the first stream becomes its prediction."""
    n, d = streams.shape
    args = arguments(streams, n, d, mixture, predicted)
    return [Call(_predict, args, -(-d // LANES), _GRAIN, "norms", (streams, mixture, predicted))]


def correct_calls(streams: F32, shares: F32, predicted: F32, weights: F32, out: F32) -> list[Call]:
    """Correct all streams [N, D] by what changed in the first one; out [D]: it then, times the weights [D]."""
    n, d = streams.shape
    args = arguments(streams, n, d, shares, predicted, weights, out)
    return [Call(_correct, args, -(-d // LANES), _GRAIN, "norms", (streams, shares, predicted, weights, out))]


def scale_alike_calls(x: F32, target: F32, least_square: float, stage: str) -> list[Call]:
    """Scale the rows of x [N, D] to the root mean square of target [D]; theirs counts as `least_square` at least."""
    args = arguments(x, x.shape[1], target, float(least_square))
    return [Call(_scale_alike, args, len(x), 1, stage, (x, target))]


def cut_off_calls(x: F32, factor: float) -> list[Call]:
    """Subtract from x [F] its mean plus `factor` standard deviations, and set what is negative then to 0."""
    return [Call(_cut_off, arguments(x, len(x), float(factor)), 1, 1, "ffn", (x,))]
