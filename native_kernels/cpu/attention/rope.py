"""Rotary positions of one token: the angles, and the rotation of a head.

Specification: rope_angles and rope of native_kernels.reference. Angles are computed in float64, as there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from native_kernels.backend import F32, I64
from native_kernels.cpu.products.vector_math import put_some_floats, some_floats
from native_kernels.cpu.runtime.call import Call, arguments
from native_kernels.cpu.runtime.jit import inline, kernel
from native_kernels.cpu.runtime.simd import LANES, fma, get_float, get_int, i64, load, mul, operation, put_float, spread
from native_kernels.cpu.runtime.token_state import POSITION


@operation(types.float64, i64)
def _get_double(b: Any, at: Any) -> Any:
    return load(b, at, ir.DoubleType())


@kernel
def _angles(args: int, lo: int, hi: int, worker: int) -> None:
    """Compute cosines and sines of position x frequency. args: state, frequencies (float64), cosines, sines, and a
    factor for both (float32).
    """
    position = get_int(get_int(args) + 8 * POSITION)
    frequencies, cosines, sines = get_int(args + 8), get_int(args + 16), get_int(args + 24)
    scale = get_float(get_int(args + 32))
    for i in range(lo, hi):
        angle = position * _get_double(frequencies + 8 * i)
        put_float(cosines + 4 * i, scale * math.cos(angle))
        put_float(sines + 4 * i, scale * math.sin(angle))


@inline
def rotate_head(x: Any, cosines: Any, sines: Any, pairs: Any, neighbours: Any) -> Any:
    """Rotate the first 2 * pairs numbers in place; neighbours: pairs are (2 i, 2 i + 1) instead of (i, i + pairs)."""
    if neighbours != 0:
        for i in range(pairs):
            first, second = get_float(x + 8 * i), get_float(x + 8 * i + 4)
            cosine, sine = get_float(cosines + 4 * i), get_float(sines + 4 * i)
            put_float(x + 8 * i, first * cosine - second * sine)
            put_float(x + 8 * i + 4, second * cosine + first * sine)
    else:
        for i in range(0, pairs, LANES):
            n = pairs - i
            low, high = some_floats(x + 4 * i, n), some_floats(x + 4 * (pairs + i), n)
            cosine_of, sine_of = some_floats(cosines + 4 * i, n), some_floats(sines + 4 * i, n)
            put_some_floats(x + 4 * i, n, fma(low, cosine_of, mul(mul(high, sine_of), spread(-1.0))))
            put_some_floats(x + 4 * (pairs + i), n, fma(high, cosine_of, mul(low, sine_of)))


def angle_calls(state: I64, frequencies: NDArray[np.float64], angles: F32, scale: F32) -> list[Call]:
    """Compute angles [2, R / 2]: cosines and sines of the position times the frequencies [R / 2], times scale [1].

    Frequencies and scale are read when the calls run: in some models they depend on the sequence length.
    """
    args = arguments(state, frequencies, angles[0], angles[1], scale)
    keeps = (state, frequencies, angles, scale)
    return [Call(_angles, args, len(frequencies), 8, "attention", keeps, barrier=False)]


@kernel
def _rope(args: int, lo: int, hi: int, worker: int) -> None:
    """args: x, cosines, sines, heads, head_dim, pairs, whether pairs are adjacent. Items: tokens times heads."""
    n_heads, head_dim, pairs = get_int(args + 24), get_int(args + 32), get_int(args + 40)
    for item in range(lo, hi):
        angle = 4 * pairs * (item // n_heads)
        x = get_int(args) + 4 * head_dim * item
        rotate_head(x, get_int(args + 8) + angle, get_int(args + 16) + angle, pairs, get_int(args + 48))


def rope_calls(x: F32, cosines: F32, sines: F32, neighbours: bool = False) -> list[Call]:
    """Rotate x [T, H, head_dim] in place; cosines and sines [T, R / 2]."""
    n_tokens, n_heads, head_dim = x.shape
    args = arguments(x, cosines, sines, n_heads, head_dim, cosines.shape[1], int(neighbours))
    return [Call(_rope, args, n_tokens * n_heads, 4, "attention", (x, cosines, sines))]
