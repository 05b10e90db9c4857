"""The activations of the FFN, a vector at a time; NaN stays NaN.

Specification: relu, relu2, silu, gelu and gelu_tanh of native_kernels.reference.
"""

from __future__ import annotations

from typing import Any

from native_kernels.backend import Activation
from native_kernels.cpu.products.vector_math import erf, logistic, put_some_floats, some_floats
from native_kernels.cpu.runtime.jit import inline
from native_kernels.cpu.runtime.simd import LANES, add, fma, mul, smaller, spread, zero, zero_up_to

# Arguments `kind` of `activate`.
NUMBERS: dict[Activation, int] = {
    "relu": 0, "fatrelu": 0, "drelu": 1, "silu": 2, "gelu": 3, "gelu-tanh": 4, "relu2": 5,
}  # fmt: skip


@inline
def relu(x: Any, threshold: Any) -> Any:
    return zero_up_to(x, zero())


@inline
def relu2(x: Any, threshold: Any) -> Any:
    x = zero_up_to(x, zero())
    return mul(x, x)


@inline
def fatrelu(x: Any, threshold: Any) -> Any:
    return zero_up_to(x, threshold)


@inline
def silu(x: Any, threshold: Any) -> Any:
    return mul(x, logistic(x))


@inline
def gelu(x: Any, threshold: Any) -> Any:
    return mul(mul(x, spread(0.5)), add(spread(1.0), erf(mul(x, spread(0.70710678)))))


@inline
def gelu_tanh(x: Any, threshold: Any) -> Any:
    # 1 + tanh(u) = 2 / (1 + e^(-2 u))
    inner = mul(x, fma(mul(x, x), spread(0.044715), spread(1.0)))
    return mul(x, logistic(mul(inner, spread(1.59576912))))


@inline
def clamped_silu(x: Any, limit: Any) -> Any:
    x = smaller(limit, x)  # in this order what is not a number stays none
    return mul(x, logistic(mul(x, spread(1.702))))


@inline
def activate(at: int, n: int, kind: int, threshold: Any) -> None:
    """Apply an activation to n float32 in place; kind: one of NUMBERS. relu and drelu are 0 up to the threshold."""
    least = spread(threshold)
    for i in range(0, n, LANES):
        x = some_floats(at + 4 * i, n - i)
        if kind <= 1:
            x = zero_up_to(x, least)
        elif kind == 2:
            x = silu(x, least)
        elif kind == 3:
            x = gelu(x, least)
        elif kind == 5:
            x = relu2(x, least)
        else:
            x = gelu_tanh(x, least)
        put_some_floats(at + 4 * i, n - i, x)
