"""Find the largest scores of a token and the sum of their exponentials: one call on the caller's thread."""

from __future__ import annotations

import numpy as np

from native_kernels.backend import F32, I64
from native_kernels.cpu.products.vector_math import exp, first_lanes, some_floats
from native_kernels.cpu.runtime.call import address, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import kernel
from native_kernels.cpu.runtime.pool import entry
from native_kernels.cpu.runtime.simd import (
    LANES,
    add,
    bits_reaching,
    get_float,
    get_int,
    lowest_bit,
    put_float,
    put_int,
    spread,
    sub,
    total,
)  # fmt: skip

_BLOCK = 64 * LANES  # scores summed in float32; the sums of blocks are added in float64


@kernel
def _top(args: int, lo: int, hi: int, worker: int) -> None:
    """args: scores, n, best f32 [k], ids i64 [k], k, the sum f32."""
    scores, n, best, ids, k = (
        get_int(args), get_int(args + 8), get_int(args + 16), get_int(args + 24), get_int(args + 32)
    )  # fmt: skip
    for j in range(k):
        put_float(best + 4 * j, -np.inf)
    last = best + 4 * (k - 1)
    for i in range(0, n, LANES):
        bits = bits_reaching(some_floats(scores + 4 * i, n - i), get_float(last))
        while bits != 0:
            place = i + lowest_bit(bits)
            bits &= bits - 1
            if place >= n:
                break
            value = get_float(scores + 4 * place)
            if not value > get_float(last):
                continue
            j = k - 1
            while j > 0 and value > get_float(best + 4 * (j - 1)):
                put_float(best + 4 * j, get_float(best + 4 * (j - 1)))
                put_int(ids + 8 * j, get_int(ids + 8 * (j - 1)))
                j -= 1
            put_float(best + 4 * j, value)
            put_int(ids + 8 * j, place)
    top, found = spread(get_float(best)), 0.0
    for start in range(0, n, _BLOCK):
        sums = spread(0.0)
        for i in range(start, min(n, start + _BLOCK), LANES):
            weights = exp(sub(some_floats(scores + 4 * i, n - i), top))
            sums = add(sums, weights if n - i >= LANES else first_lanes(weights, n - i))
        found += total(sums)
    put_float(get_int(args + 40), np.float32(found))


class TopScores:
    """The k largest scores of a token, largest first, lower id first on ties. `find` overwrites the results before.

    scores: f32 [k]. ids: i64 [k]. total: sum of exp(score - the largest) over all scores.
    """

    def __init__(self, k: int) -> None:
        self.scores: F32 = aligned_empty(k)
        self.ids: I64 = aligned_empty(k, np.int64)
        self._total: F32 = aligned_empty(1)
        self._args = arguments(0, 0, self.scores, self.ids, k, self._total)
        self._run, self._args_at = entry(_top), address(self._args)

    @property
    def total(self) -> float:
        return float(self._total[0])

    def find(self, scores: F32) -> None:
        """scores: [V], contiguous and finite, V >= k."""
        self._args[0], self._args[1] = address(scores), scores.size
        self._run(self._args_at, 0, 1, 0)
