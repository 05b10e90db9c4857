"""The most multiply-adds that one thread can do, as a measure of the products: of floats, of bytes, of tiles."""

from __future__ import annotations

from typing import Any

from native_kernels.cpu.gemm.amx import CONFIGURATION_BYTES, SIDE, STEP, configure, release, tile_products
from native_kernels.cpu.gemm.gemm import Form
from native_kernels.cpu.gemm.tiles import repeat
from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import Kernel, kernel
from native_kernels.cpu.runtime.simd import (
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


@operation(void, i64)
def _tiles(b: Any, n: Any) -> None:
    repeat(b, n, [], lambda _, nothing: tile_products(b, nothing))


@kernel
def tile_peak(args: int, lo: int, hi: int, worker: int) -> None:
    """Items: rounds. args: memory for a tile configuration."""
    configure(get_int(args))
    _tiles(hi - lo)
    release()


def peak_call(form: Form, rounds: int) -> tuple[Call, int]:
    """So many rounds of independent multiply-adds in registers, and how many those are."""
    memory = aligned_empty(max(4 * LANES, CONFIGURATION_BYTES))
    made: tuple[Kernel, int] = tile_peak, 4 * SIDE * SIDE * STEP
    if form == "bytes":
        made = byte_peak, 4 * _SUMS * LANES
    elif form in ("floats", "dots"):
        made = float_peak, _SUMS * LANES
    return Call(made[0], arguments(memory), rounds, 1, "peak", (memory,)), rounds * made[1]
