"""How fast the threads of a pool read memory: the ceiling that kernels which read weights are held against."""

from __future__ import annotations

import time

import numpy as np

from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import kernel
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.cpu.runtime.simd import LANES, add_ints, get_int, ints, put_int, total_ints, zero_ints

_PIECE = 1 << 16  # bytes of an item


@kernel
def _read(args: int, lo: int, hi: int, worker: int) -> None:
    """args: memory, where each worker leaves the sum of what it read."""
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
    """So many bytes, to be read again and again by the threads of a pool.

    Cost: n_bytes of memory, written once; they should be far more than the CPU's caches hold, unless it is the
    caches that are asked about.
    """

    def __init__(self, pool: Pool, n_bytes: int) -> None:
        self.n_bytes = max(_PIECE, n_bytes // _PIECE * _PIECE)
        memory = aligned_empty(self.n_bytes, np.uint8)
        memory.fill(1)  # a page that was never written is not in memory
        sums = aligned_empty((pool.n_threads, 16), np.int64)
        read = Call(_read, arguments(memory, sums), self.n_bytes // _PIECE, 1, "read", (memory, sums))
        self._pool, self._program = pool, Program([read])

    def seconds(self) -> float:
        """What one reading of all of it took."""
        started = time.perf_counter()
        self._pool.run(self._program)
        return time.perf_counter() - started


def read_bytes_per_s(pool: Pool, n_bytes: int, seconds: float = 0.5) -> float:
    """The best of as many readings of so many bytes as fit into the time, at least three. Cost: as ReadProbe."""
    probe = ReadProbe(pool, n_bytes)
    best, end, rounds = float("inf"), time.perf_counter() + seconds, 0
    while rounds < 3 or time.perf_counter() < end:
        best, rounds = min(best, probe.seconds()), rounds + 1
    return probe.n_bytes / best
