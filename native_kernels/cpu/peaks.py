"""The most multiply-adds that one thread can do, of floats and of bytes, as a measure of the products; no product."""

from __future__ import annotations

from typing import Any

from native_kernels.cpu.call import Call, aligned_empty, arguments
from native_kernels.cpu.jit import Kernel, kernel
from native_kernels.cpu.simd import (
    LANES,
    VB,
    VF,
    VI,
    call_same,
    constant,
    dot_unsigned,
    get_int,
    i64,
    load,
    operation,
    store,
    void,
)
from native_kernels.cpu.tiles import repeat

_SUMS = 12  # independent ones: as many as hide the latency and fit into 16 registers


@operation(void, i64, i64)
def _floats(b: Any, n: Any, at: Any) -> None:
    x = load(b, at, VF)
    sums = [constant(VF, float(i)) for i in range(_SUMS)]
    sums = repeat(b, n, sums, lambda _, carried: [call_same(b, "fma", x, x, one) for one in carried])
    total = sums[0]
    for one in sums[1:]:
        total = b.fadd(total, one)
    store(b, at, total)


@operation(void, i64, i64)
def _bytes(b: Any, n: Any, at: Any) -> None:
    x = load(b, at, VB)
    sums = [constant(VI, i) for i in range(_SUMS)]
    sums = repeat(b, n, sums, lambda _, carried: [dot_unsigned.emit(b, one, x, x) for one in carried])
    total = sums[0]
    for one in sums[1:]:
        total = b.add(total, one)
    store(b, at, total)


@kernel
def float_peak(args: int, lo: int, hi: int, worker: int) -> None:
    """Items: rounds. args: a register's worth of memory."""
    _floats(hi - lo, get_int(args))


@kernel
def byte_peak(args: int, lo: int, hi: int, worker: int) -> None:
    """Items: rounds. args: a register's worth of memory."""
    _bytes(hi - lo, get_int(args))


def peak_call(of_bytes: bool, rounds: int) -> tuple[Call, int]:
    """So many rounds of independent multiply-adds in registers, and how many those are."""
    memory = aligned_empty(4 * LANES)
    made: Kernel = byte_peak if of_bytes else float_peak
    products = _SUMS * LANES * (4 if of_bytes else 1)
    return Call(made, arguments(memory), rounds, 1, "peak", (memory,)), rounds * products
