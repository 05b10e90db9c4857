"""Input vectors of the products: float32, or quantised to bytes in the order of the weights.

"q8": bytes in natural order, for GGML's blocks. "lanes": in the order of the bundle's packing, docs/bundle.md, section
4. Both are padded with 0 to P columns, a multiple of 512, in one buffer: P bytes; P / 32 float32 scales, value = scale
x byte; then int32 sums of the bytes: "q8": of each 16, "lanes": of each 32, times -8.
A group with a value that is not finite gets a NaN scale, and so do its products.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import Kernel, inline
from native_kernels.cpu.runtime.simd import (
    F32,
    I8,
    I32,
    LANES,
    VF,
    VI,
    call_same,
    constant,
    fold,
    get_int,
    i64,
    load_part,
    number,
    offset,
    operation,
    splat,
    store,
    void,
)

Format = Literal["f32", "q8", "lanes"]
U8 = NDArray[np.uint8]

SUPERBLOCK = 512
_GROUP = 32


def padded(d: int) -> int:
    """Return the padded columns of a quantised vector of d columns."""
    return -(-d // SUPERBLOCK) * SUPERBLOCK


def quantised_empty(form: Format, d: int) -> U8:
    """Allocate the buffer for a quantised vector of d columns."""
    n = padded(d)
    sums = {"q8": n // 4, "lanes": n // 8}[form]
    return aligned_empty(n + n // 8 + sums, np.uint8)


def quantise_calls(x: NDArray[np.float32], out: U8, form: Format, stage: str = "quantise") -> list[Call]:
    """Quantise x [d] into out, a buffer of quantised_empty. Items are superblocks of 512 columns.

    Rounds to the nearest of 255 steps, ties to even: the error is at most max |x| / 254 in each group of 32.
    """
    d = len(x)
    if out.nbytes != quantised_empty(form, d).nbytes:
        raise ValueError(f"the buffer has {out.nbytes} bytes; {form} needs {quantised_empty(form, d).nbytes} for {d}")
    return [Call(QUANTISE[form], arguments(x, out, d), padded(d) // SUPERBLOCK, 1, stage, (x, out))]


def _emit_group(in_lanes: bool) -> Any:
    @operation(void, *([i64] * 5))
    def group(b: Any, x: Any, n: Any, to: Any, scale_to: Any, sums_to: Any) -> None:
        """Quantise 32 numbers at x, of which n exist (0 or fewer: none), to bytes, scale and sums."""
        pieces = _GROUP // LANES
        values = [load_part(b, offset(b, x, 4 * LANES * i), b.sub(n, number(LANES * i)), VF) for i in range(pieces)]
        sizes = [call_same(b, "fabs", value) for value in values]
        most = sizes[0]
        for size in sizes[1:]:
            most = b.select(b.fcmp_ordered(">", most, size), most, size)
        top = fold(b, most, lambda low, high: b.select(b.fcmp_ordered(">", low, high), low, high))
        # 0 for finite numbers, else NaN: a comparison alone would drop NaN
        nothing = [b.fmul(value, constant(VF, 0.0)) for value in values]
        for more in nothing[1:]:
            nothing[0] = b.fadd(nothing[0], more)
        spoilt = fold(b, nothing[0], b.fadd)
        step = b.fmul(top, ir.Constant(F32, 1 / 127))
        usable = b.and_(
            b.fcmp_ordered(">", step, ir.Constant(F32, 0.0)), b.fcmp_ordered("==", spoilt, ir.Constant(F32, 0.0))
        )
        inverse = b.select(usable, b.fdiv(ir.Constant(F32, 127.0), top), ir.Constant(F32, 0.0))
        store(b, scale_to, b.fadd(step, spoilt))
        sums = []
        for i, value in enumerate(values):
            moved = b.fmul(value, splat(b, inverse, VF))
            whole = call_same(b, "rint", b.select(b.fcmp_ordered("ord", moved, moved), moved, constant(VF, 0.0)))
            integers = b.fptosi(whole, VI)
            sums.append(fold(b, integers, b.add))
            narrow = b.bitcast(b.trunc(integers, ir.VectorType(I8, LANES)), ir.VectorType(I32, LANES // 4))
            if in_lanes:
                for j in range(LANES // 4):
                    word = b.extract_element(narrow, ir.Constant(I32, j))
                    store(b, offset(b, to, 64 * (LANES // 4 * i + j)), word)
            else:
                store(b, offset(b, to, LANES * i), narrow)
        if LANES == 8:
            sums = [b.add(sums[0], sums[1]), b.add(sums[2], sums[3])]
        if in_lanes:
            store(b, sums_to, b.mul(b.add(*sums), ir.Constant(I32, -8)))
        else:
            store(b, sums_to, sums[0])
            store(b, offset(b, sums_to, 4), sums[1])

    return group


def _groups(form: Format) -> Any:
    in_lanes = form == "lanes"
    group = _emit_group(in_lanes)
    sum_bytes = 4 if in_lanes else 8

    @inline
    def groups(x: int, out: int, d: int, first: int, stop: int) -> None:
        """Quantise the groups first to stop of a vector."""
        n = (d + 511) // 512 * 512
        for g in range(first, stop):
            to = out + 512 * (g // 16) + 4 * (g % 16) if in_lanes else out + 32 * g
            group(x + 128 * g, d - 32 * g, to, out + n + 4 * g, out + n + n // 8 + sum_bytes * g)

    return groups


def _quantiser(form: Format) -> Kernel:
    groups = _groups(form)

    def quantise(args: int, lo: int, hi: int, worker: int) -> None:
        groups(get_int(args), get_int(args + 8), get_int(args + 16), 16 * lo, 16 * hi)

    return Kernel(quantise, f"activations.quantise.{form}")


def _row_quantiser(form: Format) -> Kernel:
    """Quantise many vectors. Items: vectors. args: x, its stride, out, its stride, d."""
    groups = _groups(form)

    def quantise_rows(args: int, lo: int, hi: int, worker: int) -> None:
        x, x_step, out, out_step, d = (
            get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24), get_int(args + 32)
        )  # fmt: skip
        for t in range(lo, hi):
            groups(x + t * x_step, out + t * out_step, d, 0, (d + 511) // 512 * 16)

    return Kernel(quantise_rows, f"activations.quantise_rows.{form}")


QUANTISE: dict[str, Kernel] = {"q8": _quantiser("q8"), "lanes": _quantiser("lanes")}
QUANTISE_ROWS: dict[str, Kernel] = {form: _row_quantiser(form) for form in ("q8", "lanes")}
