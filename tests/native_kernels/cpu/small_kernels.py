"""A kernel as small as they come, for tests of what compiles and calls them."""

from __future__ import annotations

from native_kernels.cpu.runtime.jit import kernel
from native_kernels.cpu.runtime.simd import LANES, floats, floats_part, fma, get_int, put_float, total, zero


@kernel
def row_dots(args: int, lo: int, hi: int, worker: int) -> None:
    """Rows of w [n, d] times x [d] -> out [n]. args: w, x, out, d."""
    w, x, out, d = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
    for i in range(lo, hi):
        row = w + 4 * d * i
        sums = zero()
        whole = d - d % LANES
        for o in range(0, whole, LANES):
            sums = fma(floats(row + 4 * o), floats(x + 4 * o), sums)
        sums = fma(floats_part(row + 4 * whole, d - whole), floats_part(x + 4 * whole, d - whole), sums)
        put_float(out + 4 * i, total(sums))
