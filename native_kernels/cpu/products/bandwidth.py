"""Measure how fast the threads of a pool read memory: the upper limit for kernels that read weights."""

from __future__ import annotations

import time

import numpy as np

from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import kernel
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.cpu.runtime.simd import LANES, add_ints, get_int, ints, put_int, total_ints, zero_ints

_PIECE = 1 << 16  # bytes per item


@kernel
def _read(args: int, lo: int, hi: int, worker: int) -> None:
    """args: memory, an address per worker for the sum of what it read."""
    at, end = get_int(args) + _PIECE * lo, get_int(args) + _PIECE * hi
    a, b, c, d = zero_ints(), zero_ints(), zero_ints(), zero_ints()
    while at < end:
        a = add_ints(a, ints(at))
        b = add_ints(b, ints(at + 4 * LANES))
        c = add_ints(c, ints(at + 8 * LANES))
        d = add_ints(d, ints(at + 12 * LANES))
        at += 16 * LANES
    put_int(get_int(args + 8) + 128 * worker, total_ints(add_ints(add_ints(a, b), add_ints(c, d))))


class ReadProbe:
    """A buffer of n_bytes that the threads of a pool read repeatedly.

    Cost: n_bytes of memory, written once. To measure RAM, use far more than the CPU's caches hold.
    """

    def __init__(self, pool: Pool, n_bytes: int) -> None:
        self.n_bytes = max(_PIECE, n_bytes // _PIECE * _PIECE)
        memory = aligned_empty(self.n_bytes, np.uint8)
        memory.fill(1)  # pages that were never written are not backed by RAM
        sums = aligned_empty((pool.n_threads, 16), np.int64)
        read = Call(_read, arguments(memory, sums), self.n_bytes // _PIECE, 1, "read", (memory, sums))
        self._pool, self._program = pool, Program([read])

    def seconds(self) -> float:
        """Read the whole buffer and return the time."""
        started = time.perf_counter()
        self._pool.run(self._program)
        return time.perf_counter() - started


def read_bytes_per_s(pool: Pool, n_bytes: int, seconds: float = 0.5) -> float:
    """Return the best rate of at least three reads of n_bytes within the time. Cost: as ReadProbe."""
    probe = ReadProbe(pool, n_bytes)
    best, end, rounds = float("inf"), time.perf_counter() + seconds, 0
    while rounds < 3 or time.perf_counter() < end:
        best, rounds = min(best, probe.seconds()), rounds + 1
    return probe.n_bytes / best
