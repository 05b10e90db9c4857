"""RMS and layer norm of rows, with the residual additions before them; one worker per row.

Specification: rms_norm and layer_norm of native_kernels.reference. Sums run in lanes and are folded in a fixed order.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from native_kernels.backend import F32
from native_kernels.cpu.products.vector_math import first_lanes, put_some_floats, some_floats
from native_kernels.cpu.runtime.call import Call, arguments
from native_kernels.cpu.runtime.jit import kernel
from native_kernels.cpu.runtime.simd import (
    LANES,
    add,
    div,
    fma,
    get_float,
    get_int,
    mul,
    root,
    spread,
    sub,
    total,
    zero,
)

_NONE, _LAYER = 0, 2
_KINDS = {"rms": 1, "layer": _LAYER}


class RowNorm(NamedTuple):
    """A norm over the last axis, with its weights [D]. weight None: the rows are not normed."""

    kind: Literal["rms", "layer"]
    epsilon: float
    weight: F32 | None
    bias: F32 | None = None


@kernel
def _add_and_norm(args: int, lo: int, hi: int, worker: int) -> None:
    """x += first + second, then out = norm(x), for the rows lo to hi. Missing arrays have the address 0.

    args: x, first, second, out, weight, bias, columns, kind, epsilon.
    """
    weight, bias = get_int(args + 32), get_int(args + 40)
    n, kind = get_int(args + 48), get_int(args + 56)
    epsilon = spread(get_float(args + 64))
    share = spread(1.0 / n)
    for row in range(lo, hi):
        start = 4 * n * row
        x = get_int(args) + start
        first, second = get_int(args + 8), get_int(args + 16)
        squares, sums = zero(), zero()
        for i in range(0, n, LANES):
            value = some_floats(x + 4 * i, n - i)
            if first != 0:
                more = some_floats(first + start + 4 * i, n - i)
                if second != 0:
                    more = add(more, some_floats(second + start + 4 * i, n - i))
                value = add(value, more)
                put_some_floats(x + 4 * i, n - i, value)
            squares = fma(value, value, squares)
            sums = add(sums, value)
        if kind == _NONE:
            continue
        mean = zero()
        if kind == _LAYER:
            mean = mul(spread(total(sums)), share)
            squares = zero()
            for i in range(0, n, LANES):
                value = sub(some_floats(x + 4 * i, n - i), mean)
                if n - i < LANES:
                    value = first_lanes(value, n - i)
                squares = fma(value, value, squares)
        deviation = root(add(mul(spread(total(squares)), share), epsilon))
        out = get_int(args + 24) + start
        for i in range(0, n, LANES):
            value = div(sub(some_floats(x + 4 * i, n - i), mean), deviation)
            value = mul(value, some_floats(weight + 4 * i, n - i))
            if bias != 0:
                value = add(value, some_floats(bias + 4 * i, n - i))
            put_some_floats(out + 4 * i, n - i, value)


def norm_calls(
    x: F32,
    out: F32,
    norm: RowNorm | None,
    *,
    added: tuple[F32, ...] = (),
    stage: str = "norms",
    barrier: bool = True,
) -> list[Call]:
    """Add up to two arrays to x [T, D], then write its norm over the last axis to out, which may be x.

    norm None: only the additions. Items: rows.
    """
    assert len(added) <= 2, "a norm adds up three arrays at most"
    assert all(one.shape == x.shape for one in added), "residual additions have the rows of x"
    first, second = (added[i] if i < len(added) else 0 for i in range(2))
    n = x.shape[-1]
    if norm is None or norm.weight is None:
        words: tuple[Any, ...] = (0, 0, n, _NONE, 0.0)
    else:
        words = (norm.weight, 0 if norm.bias is None else norm.bias, n, _KINDS[norm.kind], float(norm.epsilon))
    args = arguments(x, first, second, out, *words)
    return [Call(_add_and_norm, args, x.size // n, 1, stage, (x, out, norm, *added), barrier)]
