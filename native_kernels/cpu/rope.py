"""Rotary positions of one token, and its keys and values into the KV cache; an item is a head.

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
from native_kernels.cpu.call import Call, arguments
from native_kernels.cpu.jit import kernel
from native_kernels.cpu.simd import LANES, fma, get_float, get_int, i64, load, mul, operation, put_float, spread
from native_kernels.cpu.token_state import KEYS, LAYER_BYTES, POSITION, VALUES
from native_kernels.cpu.vector_math import put_some_floats, some_floats


@operation(types.float64, i64)
def _get_double(b: Any, at: Any) -> Any:
    return load(b, at, ir.DoubleType())


@kernel
def _angles(args: int, lo: int, hi: int, worker: int) -> None:
    """Cosines and sines of position x frequency. args: state, frequencies (float64), cosines, sines."""
    position = get_int(get_int(args) + 8 * POSITION)
    frequencies, cosines, sines = get_int(args + 8), get_int(args + 16), get_int(args + 24)
    for i in range(lo, hi):
        angle = position * _get_double(frequencies + 8 * i)
        put_float(cosines + 4 * i, math.cos(angle))
        put_float(sines + 4 * i, math.sin(angle))


@kernel
def _rotate_and_store(args: int, lo: int, hi: int, worker: int) -> None:
    """Rotates the heads of q and k, q where it lies and k into the cache; v goes into the cache as it is.

    args: q k v (one behind the other), cosines, sines, state, layer, heads, key-value heads, head_dim, pairs, and
    whether the pairs are neighbours (2 i, 2 i + 1), not (i, i + pairs).
    """
    cosines, sines, state = get_int(args + 8), get_int(args + 16), get_int(args + 24)
    n_heads, n_kv_heads, head_dim = get_int(args + 40), get_int(args + 48), get_int(args + 56)
    pairs, neighbours = get_int(args + 64), get_int(args + 72)
    into = get_int(args + 32) * get_int(state + 8 * LAYER_BYTES)
    into += get_int(state + 8 * POSITION) * n_kv_heads * head_dim * 4
    for head in range(lo, hi):
        x = get_int(args) + 4 * head_dim * head
        out = x
        if head >= n_heads + n_kv_heads:
            out = get_int(state + 8 * VALUES) + into + 4 * head_dim * (head - n_heads - n_kv_heads)
        elif head >= n_heads:
            out = get_int(state + 8 * KEYS) + into + 4 * head_dim * (head - n_heads)
        rest = 0
        if head < n_heads + n_kv_heads:
            rest = 2 * pairs
            if neighbours != 0:
                for i in range(pairs):
                    first, second = get_float(x + 8 * i), get_float(x + 8 * i + 4)
                    cosine, sine = get_float(cosines + 4 * i), get_float(sines + 4 * i)
                    put_float(out + 8 * i, first * cosine - second * sine)
                    put_float(out + 8 * i + 4, second * cosine + first * sine)
            else:
                for i in range(0, pairs, LANES):
                    n = pairs - i
                    first, second = some_floats(x + 4 * i, n), some_floats(x + 4 * (pairs + i), n)
                    cosine, sine = some_floats(cosines + 4 * i, n), some_floats(sines + 4 * i, n)
                    put_some_floats(out + 4 * i, n, fma(first, cosine, mul(mul(second, sine), spread(-1.0))))
                    put_some_floats(out + 4 * (pairs + i), n, fma(second, cosine, mul(first, sine)))
        if out != x:
            for i in range(rest, head_dim, LANES):
                put_some_floats(out + 4 * i, head_dim - i, some_floats(x + 4 * i, head_dim - i))


def angle_calls(state: I64, frequencies: NDArray[np.float64], angles: F32) -> list[Call]:
    """angles [2, R / 2]: cosines and sines of the token's position times the frequencies [R / 2]."""
    args = arguments(state, frequencies, angles[0], angles[1])
    return [Call(_angles, args, len(frequencies), 8, "attention", (state, frequencies, angles), barrier=False)]


def rotate_and_store_calls(
    qkv: F32,
    angles: F32,
    state: I64,
    layer: int,
    n_heads: int,
    n_kv_heads: int,
    neighbours: bool = False,
) -> list[Call]:
    """Rotates q in place, and puts k, rotated, and v behind what the layer's cache holds (float32).

    Shapes: qkv [H + 2 H_kv, head_dim], angles [2, R / 2]; R = 0 rotates nothing.
    """
    pairs = angles.shape[1]
    args = arguments(
        qkv, angles[0], angles[1], state, layer, n_heads, n_kv_heads, qkv.shape[1], pairs, int(neighbours)
    )  # fmt: skip
    return [Call(_rotate_and_store, args, n_heads + 2 * n_kv_heads, 1, "attention", (qkv, angles, state))]
