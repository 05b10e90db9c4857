"""Activations, products, biases and scales of arrays; items are numbers, cut anywhere.

Specification: relu, relu2, silu, gelu, gelu_tanh, gated and softcap of native_kernels.reference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from native_kernels.backend import F32, I64, Activation
from native_kernels.cpu.ffn.activation_math import clamped_silu, fatrelu, gelu, gelu_tanh, relu, relu2, silu
from native_kernels.cpu.products.vector_math import (
    count_other_than_zero,
    first_lanes,
    logistic,
    put_some_floats,
    some_floats,
    tanh,
)
from native_kernels.cpu.runtime.call import Call, arguments
from native_kernels.cpu.runtime.jit import Kernel, kernel
from native_kernels.cpu.runtime.simd import (
    LANES,
    add,
    get_float,
    get_int,
    larger,
    mul,
    put_int,
    smaller,
    spread,
    sub,
    where_above_zero,
    zero,
)

GRAIN = 256
COUNT_WORDS = 8  # per worker: a cache line of its own


_FUNCTIONS: dict[Activation, Callable[..., Any]] = {
    "relu": relu, "fatrelu": fatrelu, "silu": silu, "gelu": gelu, "gelu-tanh": gelu_tanh,
    "relu2": relu2, "clamped-silu": clamped_silu,
}  # fmt: skip


@cache
def _activation_kernel(activation: Activation) -> Kernel:
    if activation == "drelu":  # drelu's gate is a ReLU
        return _activation_kernel("relu")
    function = _FUNCTIONS[activation]
    shifts_up = activation == "clamped-silu"

    def activate(args: int, lo: int, hi: int, worker: int) -> None:
        """out = f(x + bias), times (up + its bias) if given, which goes through ReLU if requested.

        args: x, bias, up, up's bias, out, counts, columns of a row (for the biases), relu on up, threshold.
        counts: for each worker how many passed f, and how many are left after ReLU on up; 0: not counted.
        """
        x, bias, up, up_bias = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        out, counts, n = get_int(args + 32), get_int(args + 40), get_int(args + 48)
        on_both = get_int(args + 56)
        threshold = spread(get_float(args + 64))
        opened, fired = 0, 0
        at = lo
        while at < hi:
            column = at % n
            size = min(hi - at, n - column, LANES)
            value = some_floats(x + 4 * at, size)
            if bias != 0:
                value = add(value, some_floats(bias + 4 * column, size))
            value = function(value, threshold)
            if size < LANES:
                value = first_lanes(value, size)
            count = count_other_than_zero(value)
            opened += count
            if up != 0:
                other = some_floats(up + 4 * at, size)
                if up_bias != 0:
                    other = add(other, some_floats(up_bias + 4 * column, size))
                if shifts_up:
                    other = add(larger(sub(zero(), threshold), smaller(threshold, other)), spread(1.0))
                if on_both != 0:
                    other = relu(other, threshold)
                    # other - other: 0, or NaN, which counts
                    count = count_other_than_zero(where_above_zero(other, value, sub(other, other)))
                value = mul(value, other)
            fired += count
            put_some_floats(out + 4 * at, size, value)
            at += size
        if counts != 0:
            mine = counts + 8 * COUNT_WORDS * worker
            put_int(mine, get_int(mine) + opened)
            put_int(mine + 8, get_int(mine + 8) + fired)

    return Kernel(activate, f"elementwise.activate-{activation}")


@kernel
def _softcap(args: int, lo: int, hi: int, worker: int) -> None:
    """x = cap tanh(x / cap). args: x, out, cap."""
    x, out = get_int(args), get_int(args + 8)
    cap = get_float(args + 16)
    for i in range(lo, hi, LANES):
        value = mul(some_floats(x + 4 * i, hi - i), spread(1.0 / cap))
        put_some_floats(out + 4 * i, hi - i, mul(tanh(value), spread(cap)))


@kernel
def _gate(args: int, lo: int, hi: int, worker: int) -> None:
    """x *= logistic(gate). args: x, gate, out."""
    x, gate, out = get_int(args), get_int(args + 8), get_int(args + 16)
    for i in range(lo, hi, LANES):
        share = logistic(some_floats(gate + 4 * i, hi - i))
        put_some_floats(out + 4 * i, hi - i, mul(some_floats(x + 4 * i, hi - i), share))


@kernel
def _scale(args: int, lo: int, hi: int, worker: int) -> None:
    """x *= factor. args: x, address of the factor."""
    x, factor = get_int(args), spread(get_float(get_int(args + 8)))
    for i in range(lo, hi, LANES):
        put_some_floats(x + 4 * i, hi - i, mul(some_floats(x + 4 * i, hi - i), factor))


@kernel
def _add_bias(args: int, lo: int, hi: int, worker: int) -> None:
    """x += bias. args: x, bias."""
    x, bias = get_int(args), get_int(args + 8)
    for i in range(lo, hi, LANES):
        put_some_floats(x + 4 * i, hi - i, add(some_floats(x + 4 * i, hi - i), some_floats(bias + 4 * i, hi - i)))


def activation_calls(
    activation: Activation,
    x: F32,
    out: F32,
    *,
    up: F32 | None = None,
    biases: tuple[F32 | None, F32 | None] = (None, None),
    relu_on_up: bool = False,
    threshold: float = 0.0,
    counts: I64 | None = None,
) -> list[Call]:
    """Compute out = activation(x + its bias) (up + its bias), elementwise; out may be x. Items: numbers.

    Shapes: x, up, out [T, F] or [F]; biases [F]; counts [workers, COUNT_WORDS]: each worker adds to its own row how
    many passed the activation, and how many of them passed ReLU on up.
    """
    kept = (x, biases[0], up, biases[1], out, counts)
    args = arguments(*(0 if one is None else one for one in kept), x.shape[-1], int(relu_on_up), float(threshold))
    return [Call(_activation_kernel(activation), args, x.size, GRAIN, "ffn", kept)]


def softcap_calls(x: F32, out: F32, cap: float, stage: str = "head") -> list[Call]:
    """Compute out = cap tanh(x / cap), elementwise; out may be x."""
    return [Call(_softcap, arguments(x, out, float(cap)), x.size, GRAIN, stage, (x, out))]


def gate_calls(x: F32, gate: F32, out: F32, stage: str) -> list[Call]:
    """Compute out = x logistic(gate), elementwise; out may be x."""
    return [Call(_gate, arguments(x, gate, out), x.size, GRAIN, stage, (x, gate, out))]


def scale_calls(x: F32, factor: F32, stage: str) -> list[Call]:
    """Multiply x by factor [1], elementwise, in place."""
    return [Call(_scale, arguments(x, factor), x.size, GRAIN, stage, (x, factor))]


def bias_calls(x: F32, bias: F32, stage: str, barrier: bool = True) -> list[Call]:
    """Add bias to x, elementwise, both [n]."""
    return [Call(_add_bias, arguments(x, bias), x.size, GRAIN, stage, (x, bias), barrier)]
