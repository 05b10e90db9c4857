"""Predictor operations beside whole products: the input's signs, and a second copy for rows that pass a first score.

Every worker finds the rows that passed by scanning the cached scores, as in sparse_ffn, which saves a barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_kernels.backend import F32, I64, PackedMatrix
from native_kernels.cpu.ffn.sparse_ffn import Buffers, Predicted, list_where
from native_kernels.cpu.products.gemv import GRAIN, OVER, check_vector, rows_ahead, stride_of
from native_kernels.cpu.runtime.call import Call, Listed, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import Kernel, kernel
from native_kernels.cpu.runtime.simd import Rows, get_float, get_int, get_int32, put_float, put_int, put_int32


@kernel
def _signs(args: int, lo: int, hi: int, worker: int) -> None:
    """args: numbers, result."""
    x, out = get_int(args), get_int(args + 8)
    for i in range(lo, hi):
        value = get_float(x + 4 * i)
        if value < 0:
            value = np.float32(-1.0)
        elif value >= 0:
            value = np.float32(1.0)
        put_float(out + 4 * i, value)


def sign_calls(x: F32, out: F32, stage: str = "predictor") -> list[Call]:
    """Set out to 1 where x >= 0, else -1; NaN stays NaN."""
    return [Call(_signs, arguments(x, out), x.size, 1024, stage, (x, out))]


@dataclass(frozen=True, eq=False)
class Passed:
    """The scores of the neurons that passed a first score, ascending; can be shared by all layers."""

    scores: F32  # [F]
    listed: Listed

    @classmethod
    def make(cls, f: int) -> Passed:
        """Allocate for up to f neurons."""
        return cls(aligned_empty(f), Listed.empty(f))


@cache
def second_kernel(codec: str) -> Kernel:
    """Return the kernel for rows of a copy whose first score reaches its threshold; see second_score_calls."""
    over = OVER[codec]

    def second(args: int, lo: int, hi: int, worker: int) -> None:
        w, stride, x, ahead = get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24)
        d, bias, f = get_int(args + 32), get_int(args + 40), get_int(args + 48)
        first, threshold = get_int(args + 56), get_float(args + 64)
        scores, ids, count = get_int(args + 72), get_int(args + 80), get_int(args + 88)
        listed, also = get_int(args + 96) + worker * get_int(args + 104), get_int(args + 112)
        n = list_where(first, f, 0, threshold, 1, listed)
        if lo == 0:
            put_int(count, n)
            if also != 0:
                put_int(also, n)
        start, stop = n * lo // f, n * hi // f
        over(Rows(w, stride), listed, start, stop, x, d, scores, ahead)
        for i in range(start, stop):
            neuron = get_int32(listed + 4 * i)
            put_int32(ids + 4 * i, neuron)
            if bias != 0:
                put_float(scores + 4 * i, get_float(scores + 4 * i) + get_float(bias + 4 * neuron))

    return Kernel(second, f"predicting.second.{codec}")


def second_score_calls(
    copy: PackedMatrix,
    x: NDArray[Any],
    first: Predicted,
    passed: Passed,
    buffers: Buffers,
    *,
    bias: F32 | None = None,
    also: I64 | None = None,
    stage: str = "predictor",
) -> list[Call]:
    """List in passed the neurons whose first score reaches its threshold, and score them by the copy [F, D] times x.

    x: as in gemv_calls. bias [F] is added. also: another int64 for their number.
    """
    check_vector(copy, x)
    words = (
        copy.data, stride_of(copy), x, rows_ahead(copy), copy.n_cols, 0 if bias is None else bias, copy.n_rows,
        first.logits, float(first.threshold), passed.scores, *passed.listed,
        buffers.scratch, buffers.scratch.shape[1], 0 if also is None else also,
    )  # fmt: skip
    keeps = (copy, x, first, passed, buffers, bias, also)
    return [Call(second_kernel(copy.codec), arguments(*words), copy.n_rows, GRAIN, stage, keeps)]
