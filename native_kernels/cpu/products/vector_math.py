"""Vector functions without a CPU instruction: exp, the logistic function, tanh, erf.

Errors are within a few float32 ulps, relative to the largest result (1) of a bounded function. NaN stays NaN.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from native_kernels.cpu.runtime.jit import inline
from native_kernels.cpu.runtime.simd import (
    LANES,
    VF,
    VI,
    F,
    I,
    absolute,
    add,
    as_ints,
    constant,
    div,
    floats,
    floats_part,
    fma,
    i64,
    larger,
    mul,
    nearest,
    operation,
    part,
    put_floats,
    put_floats_part,
    smaller,
    spread,
    sub,
    where_above_zero,
)


@operation(F, I)
def power_of_two(b: Any, exponents: Any) -> Any:
    """2^n for integers n from -126 to 127."""
    return b.bitcast(b.shl(b.add(exponents, constant(VI, 127)), constant(VI, 23)), VF)


@operation(F, F, F)
def with_sign_of(b: Any, x: Any, sign: Any) -> Any:
    """|x| with the sign of `sign`."""
    size = b.and_(b.bitcast(x, VI), constant(VI, 0x7FFFFFFF))
    return b.bitcast(b.or_(size, b.and_(b.bitcast(sign, VI), constant(VI, -0x80000000))), VF)


@operation(F, F, i64)
def first_lanes(b: Any, x: Any, n: Any) -> Any:
    """Set lanes from n on to zero."""
    return b.select(part(b, n), x, constant(VF, 0.0))


@operation(i64, F)
def count_other_than_zero(b: Any, x: Any) -> Any:
    """Count the lanes that are not zero; NaN counts."""
    bits = ir.IntType(VF.count)
    mask = b.bitcast(b.fcmp_unordered("!=", x, constant(VF, 0.0)), bits)
    return b.zext(b.ctpop(mask), ir.IntType(64)) if VF.count < 64 else b.ctpop(mask)


@inline
def some_floats(at: int, n: int) -> Any:
    """Load a vector, or if n is smaller its first n lanes and zeros."""
    if n >= LANES:
        return floats(at)
    return floats_part(at, n)


@inline
def put_some_floats(at: int, n: int, value: Any) -> None:
    """Store a vector, or if n is smaller its first n lanes."""
    if n >= LANES:
        put_floats(at, value)
    else:
        put_floats_part(at, n, value)


@inline
def exp(x: Any) -> Any:
    """e^x; 0 below -87.3, where the result is negligible, and at most 3.4e38."""
    low = spread(-87.3)
    kept = smaller(spread(88.7), larger(low, x))
    whole = nearest(mul(kept, spread(1.44269504)))
    rest = fma(whole, spread(-0.693359375), kept)
    rest = fma(whole, spread(2.12194440e-4), rest)
    # Cephes' polynomial for the remainder, which is within half a power of two.
    series = fma(spread(1.9875691500e-4), rest, spread(1.3981999507e-3))
    series = fma(series, rest, spread(8.3334519073e-3))
    series = fma(series, rest, spread(4.1665795894e-2))
    series = fma(series, rest, spread(1.6666665459e-1))
    series = fma(series, rest, spread(5.0000001201e-1))
    series = add(fma(series, mul(rest, rest), rest), spread(1.0))
    # In two factors, because 2^128 is not a float32.
    half = nearest(mul(whole, spread(0.5)))
    scaled = mul(mul(series, power_of_two(as_ints(half))), power_of_two(as_ints(sub(whole, half))))
    return where_above_zero(sub(low, x), spread(0.0), scaled)


@inline
def logistic(x: Any) -> Any:
    """1 / (1 + e^-x); 0 below -87.3, so that minus infinity times it is NaN."""
    one = spread(1.0)
    found = div(one, add(one, exp(sub(spread(0.0), x))))
    return where_above_zero(sub(spread(-87.3), x), spread(0.0), found)


@inline
def tanh(x: Any) -> Any:
    """By e^(-2 |x|), which cannot overflow; near zero the error is 1e-7, not relative."""
    one = spread(1.0)
    small = exp(mul(absolute(x), spread(-2.0)))
    return with_sign_of(div(sub(one, small), add(one, small)), x)


@inline
def erf(x: Any) -> Any:
    """Abramowitz and Stegun, 7.1.26: within 2e-7."""
    one = spread(1.0)
    size = absolute(x)
    t = div(one, fma(spread(0.3275911), size, one))
    series = fma(spread(1.061405429), t, spread(-1.453152027))
    series = fma(series, t, spread(1.421413741))
    series = fma(series, t, spread(-0.284496736))
    series = fma(series, t, spread(0.254829592))
    rest = mul(mul(series, t), exp(mul(mul(size, size), spread(-1.0))))
    return with_sign_of(sub(one, rest), x)
