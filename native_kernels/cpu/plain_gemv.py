"""interim"""
from __future__ import annotations
from native_kernels.cpu.call import Call, arguments
from native_kernels.cpu.jit import kernel
from native_kernels.cpu.simd import LANES, add, fma, get_int, halves, halves_part, put_float, total, zero
from native_kernels.cpu.vector_math import some_floats

@kernel
def _f32(args: int, lo: int, hi: int, worker: int) -> None:
    w, stride, n, x, out = get_int(args), get_int(args+8), get_int(args+16), get_int(args+24), get_int(args+32)
    for r in range(lo, hi):
        s = zero()
        for i in range(0, n, LANES):
            s = fma(some_floats(w + r*stride + 4*i, n-i), some_floats(x+4*i, n-i), s)
        put_float(out + 4*r, total(s))

@kernel
def _f16(args: int, lo: int, hi: int, worker: int) -> None:
    w, stride, n, x, out = get_int(args), get_int(args+8), get_int(args+16), get_int(args+24), get_int(args+32)
    for r in range(lo, hi):
        s = zero()
        for i in range(0, n, LANES):
            if n - i >= LANES:
                s = fma(halves(w + r*stride + 2*i), some_floats(x+4*i, n-i), s)
            else:
                s = fma(halves_part(w + r*stride + 2*i, n-i), some_floats(x+4*i, n-i), s)
        put_float(out + 4*r, total(s))

def gemv_calls(w, x, out, stage, barrier=True):
    k = {"f32": _f32, "f16": _f16}[w.codec]
    args = arguments(w.data, w.data.strides[0], w.n_cols, x, out)
    return [Call(k, args, w.n_rows, 4, stage, (w, x, out), barrier)]
