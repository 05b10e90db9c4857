"""List the active neurons, ascending, and scatter results back to their places.

gemv computes the products in between.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from native_kernels.backend import F32, I64
from native_kernels.cpu.ffn.elementwise import COUNT_WORDS
from native_kernels.cpu.products.vector_math import some_floats
from native_kernels.cpu.runtime.call import Call, Listed, arguments
from native_kernels.cpu.runtime.jit import kernel
from native_kernels.cpu.runtime.simd import (
    LANES,
    VF,
    F,
    add,
    constant,
    external,
    get_float,
    get_int,
    get_int32,
    i64,
    operation,
    put_float,
    put_int,
    put_int32,
    spread,
)

_I64 = ir.IntType(64)


def _bits(b: Any, mask: Any) -> Any:
    bits = b.bitcast(mask, ir.IntType(VF.count))
    return b.zext(bits, _I64)


@operation(i64, F)
def _lanes_other_than_zero(b: Any, x: Any) -> Any:
    """One bit per lane that is not zero; NaN counts."""
    return _bits(b, b.fcmp_unordered("!=", x, constant(VF, 0.0)))


@operation(i64, F, F)
def _lanes_at_least(b: Any, x: Any, least: Any) -> Any:
    return _bits(b, b.fcmp_ordered(">=", x, least))


@operation(i64, i64)
def _lowest_bit(b: Any, bits: Any) -> Any:
    """Return the index of the lowest set bit; there must be one."""
    fn = external(b, "llvm.cttz.i64", _I64, [_I64, ir.IntType(1)])
    return b.call(fn, [bits, ir.Constant(ir.IntType(1), 1)])


@kernel
def _list(args: int, lo: int, hi: int, worker: int) -> None:
    """List the places of numbers, ascending.

    args: numbers, bias (0: none), n, ids, count, a second address for the count (0: none), whether numbers must reach
    the threshold instead of being nonzero, threshold, a list whose entries replace the places (0: none) and its length.
    """
    x, bias, n, ids = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
    by_threshold = get_int(args + 48)
    least = spread(get_float(args + 56))
    found, of = 0, get_int(args + 64)
    if of != 0:
        n = get_int(get_int(args + 72))
    for i in range(0, n, LANES):
        value = some_floats(x + 4 * i, n - i)
        if bias != 0:
            value = add(value, some_floats(bias + 4 * i, n - i))
        bits = _lanes_at_least(value, least) if by_threshold != 0 else _lanes_other_than_zero(value)
        if n - i < LANES:
            bits &= (1 << (n - i)) - 1
        while bits != 0:
            place = i + _lowest_bit(bits)
            put_int32(ids + 4 * found, get_int32(of + 4 * place) if of != 0 else place)
            found += 1
            bits &= bits - 1
    put_int(get_int(args + 32), found)
    if get_int(args + 40) != 0:
        put_int(get_int(args + 40), found)


@kernel
def _clear(args: int, lo: int, hi: int, worker: int) -> None:
    """Set numbers to 0. args: numbers."""
    x = get_int(args)
    for i in range(lo, hi):
        put_float(x + 4 * i, 0.0)


@kernel
def _scatter(args: int, lo: int, hi: int, worker: int) -> None:
    """out[id] = the value found for it, or out[id] times it.

    args: found, ids, out, whether to multiply, whether the values go through ReLU first, counts (0: none) of those that
    are nonzero after that.
    """
    found, ids, out = get_int(args), get_int(args + 8), get_int(args + 16)
    multiplied, relu, counts = get_int(args + 24), get_int(args + 32), get_int(args + 40)
    fired = 0
    for i in range(lo, hi):
        place = out + 4 * get_int32(ids + 4 * i)
        value = get_float(found + 4 * i)
        if relu != 0 and value <= 0:
            value = np.float32(0.0)
        if value != 0:
            fired += 1
        if multiplied != 0:
            value *= get_float(place)
        put_float(place, value)
    if counts != 0:
        mine = counts + 8 * COUNT_WORDS * worker
        put_int(mine, get_int(mine) + fired)


@kernel
def _take(args: int, lo: int, hi: int, worker: int) -> None:
    """out[i] = values[ids[i]]. args: values, ids, out."""
    values, ids, out = get_int(args), get_int(args + 8), get_int(args + 16)
    for i in range(lo, hi):
        put_float(out + 4 * i, get_float(values + 4 * get_int32(ids + 4 * i)))


def take_calls(values: F32, listed: Listed, out: F32, stage: str = "ffn") -> list[Call]:
    """Set out[i] = values[ids[i]] for the listed ids. Items: the ids."""
    return [Call(_take, arguments(values, listed.ids, out), listed.n, 64, stage, (values, listed, out))]


def list_calls(
    values: F32,
    listed: Listed,
    *,
    also: I64 | None = None,
    bias: F32 | None = None,
    threshold: float | None = None,
    among: Listed | None = None,
    stage: str = "ffn",
) -> list[Call]:
    """Write to `listed` the places where values + bias reach the threshold, or are nonzero without one.

    also: another int64 for their number. among: values[i] belongs to among.ids[i], which is listed instead. One item.
    """
    keeps = (values, listed, also, bias, among)
    args = arguments(
        values, 0 if bias is None else bias, values.size, *listed, 0 if also is None else also,
        int(threshold is not None), float(threshold or 0.0), *((0, 0) if among is None else among),
    )  # fmt: skip
    return [Call(_list, args, 1, 1, stage, keeps)]


def clear_calls(values: F32, stage: str = "ffn", barrier: bool = True) -> list[Call]:
    """Set values to 0."""
    return [Call(_clear, arguments(values), values.size, 1024, stage, (values,), barrier)]


def scatter_calls(
    found: F32,
    listed: Listed,
    out: F32,
    *,
    multiplied: bool = False,
    relu: bool = False,
    counts: I64 | None = None,
    stage: str = "ffn",
) -> list[Call]:
    """Set out[ids[i]] = found[i] for the listed ids; other places stay unchanged.

    relu: apply ReLU to found. multiplied: multiply by the previous value. counts: [workers, words]; each worker adds to
    its first word how many values were nonzero before the multiplication. Items: the ids.
    """
    args = arguments(found, listed.ids, out, int(multiplied), int(relu), 0 if counts is None else counts)
    return [Call(_scatter, args, listed.n, 64, stage, (found, listed, out, counts))]
