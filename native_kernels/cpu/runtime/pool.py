"""A pool of persistent threads that runs a whole program of kernel calls after a single dispatch.

Each worker runs its slice of every call, claims unclaimed items of shared calls, and waits for the other workers at a
barrier. A waiting worker spins briefly and then yields the CPU. Between programs the workers park, so that an idle
process uses no CPU time. They stay parked during a serial program, in which no call has work for a second worker. An
example is a program that only launches work on the GPU and waits for it. The loop over the calls is also compiled
(`_run_part`) and releases the GIL. The control block consists of int64 words. Words that synchronize threads have cache
lines of their own and are accessed only through atomics.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from native_kernels.backend import I64
from native_kernels.cpu.runtime.call import Call, address
from native_kernels.cpu.runtime.jit import Kernel, inline, kernel
from native_kernels.cpu.runtime.simd import (
    atomic_add,
    atomic_get,
    atomic_put,
    call_kernel,
    clock,
    get_int,
    pause,
    put_int,
)

MAX_THREADS = 1024

# Words of the control block.
_LINE = 16  # 128 bytes: CPUs fetch cache lines in pairs
_EPOCH = 0  # incremented by each run; workers wait for it to change
_ARRIVED = 1 * _LINE  # workers that are at the barrier
_PHASE = 2 * _LINE  # barriers passed
# epoch << 32 | number of the call after which the epoch ends. Two words, for even and odd epochs: a slow worker may
# still read the end of one epoch while the next one, already at its first barrier, is being ended.
_STOP = 3 * _LINE
_QUIT = 4 * _LINE
_FAILED = 5 * _LINE
_CANCEL = 6 * _LINE
_JOB = 7 * _LINE  # the running job: written before the epoch is incremented, then read-only until the run ends
_TABLE, _FIRST, _LAST, _TIMES, _SLICE, _NEXT = (_JOB + i for i in range(6))
_SPINS, _IDLE_YIELDS, _YIELD = (_JOB + i for i in range(6, 9))
_TAKEN = 8 * _LINE  # claimed chunks of the open items of a shared call
_PARKED = 9 * _LINE  # and one more line for each worker

# Words of a program's table, one row per call.
_ROW = 8
_KERNEL, _ARGS, _ITEMS, _GRAIN, _FLAGS, _STAGE = range(6)
_ITEMS_BY_ADDRESS = 1
_NO_BARRIER = 2
_SHARED = 4

# A thread that shares its core, or was preempted, is still busy when the others have finished their slices. This share
# of a shared call is initially open, and idle workers claim it in this many chunks per worker.
OPEN_SHARE = 4  # one in this many
OPEN_PIECES = 4

# A pause takes 40 cycles on AMD and 140 on Intel CPUs: about 15 to 50 us of spinning inside a program, where the others
# lag by a fraction of a call. Then the CPU is yielded.
SPINS = 1000
SPINS_WITHOUT_A_SPARE = 100
# Between two tokens the sampler runs: about 1 ms of yielding before a worker parks.
IDLE_YIELDS = 2000
# How long a program runs before the caller is asked whether to cancel.
SLICE_S = 0.02


@inline
def _wait(word: int, old: int, spins: int, give_way: int, failed: int) -> bool:
    """Wait until the word differs from `old`; return False if a worker has failed meanwhile."""
    n = 0
    while atomic_get(word) == old:
        if n < spins:
            n += 1
            pause()
        else:
            call_kernel(give_way, 0, 0, 0, 0)
            if atomic_get(failed) != 0:
                return False
    return True


@inline
def _run_part(control: int, n_workers: int, epoch: int, worker: int) -> None:
    """Run one worker's part of the job: to its end, to the stop, or until another worker fails."""
    table = get_int(control + 8 * _TABLE)
    last = get_int(control + 8 * _LAST)
    times = get_int(control + 8 * _TIMES)
    spins = get_int(control + 8 * _SPINS)
    give_way = get_int(control + 8 * _YIELD)
    stop = control + 8 * (_STOP + (epoch & 1))
    phase = atomic_get(control + 8 * _PHASE)
    started = clock()
    deadline = started + get_int(control + 8 * _SLICE)
    k = get_int(control + 8 * _FIRST)
    while k < last:
        row = table + 8 * _ROW * k
        flags = get_int(row + 8 * _FLAGS)
        n_items = get_int(row + 8 * _ITEMS)
        if flags & _ITEMS_BY_ADDRESS:
            n_items = get_int(n_items)
        grain = get_int(row + 8 * _GRAIN)
        pieces = (n_items + grain - 1) // grain
        own = pieces
        if flags & _SHARED:
            own -= pieces // OPEN_SHARE
        lo = min((own * worker + n_workers - 1) // n_workers * grain, n_items)
        hi = min((own * (worker + 1) + n_workers - 1) // n_workers * grain, n_items)
        if lo < hi:
            call_kernel(get_int(row + 8 * _KERNEL), get_int(row + 8 * _ARGS), lo, hi, worker)
        if own < pieces:
            each = (pieces - own + OPEN_PIECES * n_workers - 1) // (OPEN_PIECES * n_workers)
            while True:
                at = own + each * atomic_add(control + 8 * _TAKEN, 1)
                if at >= pieces:
                    break
                lo, hi = at * grain, min(min(at + each, pieces) * grain, n_items)
                call_kernel(get_int(row + 8 * _KERNEL), get_int(row + 8 * _ARGS), lo, hi, worker)
        meets = flags & _NO_BARRIER == 0
        if meets:
            if worker == 0 and (atomic_get(control + 8 * _CANCEL) != 0 or clock() - deadline > 0):
                atomic_put(stop, (epoch << 32) | k)
            if atomic_add(control + 8 * _ARRIVED, 1) == n_workers - 1:
                atomic_put(control + 8 * _ARRIVED, 0)
                atomic_put(control + 8 * _TAKEN, 0)
                atomic_put(control + 8 * _PHASE, phase + 1)
            elif not _wait(control + 8 * _PHASE, phase, spins, give_way, control + 8 * _FAILED):
                return
            phase += 1
        if worker == 0 and times != 0:
            now = clock()
            stage = times + 8 * get_int(row + 8 * _STAGE)
            put_int(stage, get_int(stage) + now - started)
            started = now
        k += 1
        if meets and k < last and atomic_get(stop) == (epoch << 32) | (k - 1):
            break
    if worker == 0:
        put_int(control + 8 * _NEXT, k)


@kernel
def _run(control: int, n_workers: int, epoch: int, worker: int) -> None:
    """Run the calling thread's part."""
    _run_part(control, n_workers, epoch, worker)


@kernel
def _work(control: int, n_workers: int, seen_at: int, worker: int) -> None:
    """Worker loop: wait for a new epoch, run its part of the job, and return to be parked or to end.

    seen_at: address of the last epoch that this worker has seen.
    """
    parked = control + 8 * (_PARKED + _LINE * worker)
    spins = get_int(control + 8 * _SPINS)
    most = spins + get_int(control + 8 * _IDLE_YIELDS)
    give_way = get_int(control + 8 * _YIELD)
    while True:
        seen = get_int(seen_at)
        n = 0
        while atomic_get(control + 8 * _EPOCH) == seen:
            if n < spins:
                pause()
            elif n < most:
                call_kernel(give_way, 0, 0, 0, 0)
            else:
                # Announce, then check again: either the caller sees the announcement and wakes this worker, or this
                # worker sees the epoch. Both are read-modify-write, so neither can be reordered.
                atomic_add(parked, 1)
                if atomic_add(control + 8 * _EPOCH, 0) == seen:
                    return
                atomic_add(parked, -1)
            n += 1
        seen = atomic_get(control + 8 * _EPOCH)
        put_int(seen_at, seen)
        if atomic_get(control + 8 * _QUIT) != 0 or atomic_get(control + 8 * _FAILED) != 0:
            return
        _run_part(control, n_workers, seen, worker)


@kernel
def _announce(control: int, unused_lo: int, unused_hi: int, unused_worker: int) -> None:
    """Publish the job to the workers."""
    atomic_add(control + 8 * _EPOCH, 1)


@kernel
def _stamp(out: int, unused_lo: int, unused_hi: int, unused_worker: int) -> None:
    """Write the clock to `out`."""
    put_int(out, clock())


OWN_KERNELS = (_run, _work, _announce, _stamp)


class PoolError(RuntimeError):
    """A worker died; the cause is chained."""


@dataclass(eq=False)
class Program:
    """Calls in execution order, as the table that workers read, and the accumulated time of their stages.

    Stages are measured only in timed runs: in CPU ticks, converted to seconds by the wall clock of the same runs.
    """

    calls: Sequence[Call]
    stages: tuple[str, ...] = field(init=False)
    table: I64 = field(init=False)
    ticks: I64 = field(init=False)
    is_serial: bool = field(init=False)  # no call has work for a second worker
    timed_s: float = 0.0

    def __post_init__(self) -> None:
        self.stages = tuple(dict.fromkeys(call.stage for call in self.calls))
        self.table = np.zeros((len(self.calls), _ROW), np.int64)
        self.ticks = np.zeros(len(self.stages), np.int64)
        for row, call in zip(self.table, self.calls, strict=True):
            by_address = isinstance(call.n_items, np.ndarray)
            row[_KERNEL] = call.kernel.address
            row[_ARGS] = address(call.args)
            row[_ITEMS] = address(call.n_items) if isinstance(call.n_items, np.ndarray) else call.n_items
            row[_GRAIN] = call.grain
            row[_FLAGS] = _ITEMS_BY_ADDRESS * by_address | _NO_BARRIER * (not call.barrier) | _SHARED * call.shared
            row[_STAGE] = self.stages.index(call.stage)
        self.table[-1:, _FLAGS] &= ~_NO_BARRIER  # the end of a run is a barrier
        self.is_serial = all(isinstance(call.n_items, int) and call.n_items <= call.grain for call in self.calls)

    def stage_seconds(self) -> dict[str, float]:
        """Return the seconds of each stage over all timed runs, including the wait for other workers."""
        total = int(self.ticks.sum())
        share = self.timed_s / total if total else 0.0
        return {stage: int(ticks) * share for stage, ticks in zip(self.stages, self.ticks, strict=True)}

    def reset_times(self) -> None:
        """Reset the measured times."""
        self.ticks[:] = 0
        self.timed_s = 0.0


class Pool:
    """n_threads workers, of which the calling thread is the first. The first run starts them; so does one after a fork.

    Only one program runs at a time in the process, on any pool: two would wait for each other's CPUs.
    """

    def __init__(self, n_threads: int) -> None:
        if not 1 <= n_threads <= MAX_THREADS:
            raise ValueError(f"a pool of {n_threads} threads was asked for; it must be between 1 and {MAX_THREADS}")
        self.n_threads = n_threads
        self._workers: _Workers | None = None

    def run(self, program: Program, cancelled: Callable[[], bool] | None = None, timed: bool = False) -> bool:
        """Run the program. Return False if it was stopped, because `cancelled` returned True or by `cancel`.

        cancelled is called about every SLICE_S; a program stops between two calls.
        Raises: PoolError if a worker died, and any exception of `cancelled`.
        """
        with _one_at_a_time:
            workers = self._started()
            workers.control[_CANCEL] = 0
            first, last = 0, len(program.calls)
            while True:
                first = workers.run(program, first, timed)
                if first >= last:
                    return True
                if workers.control[_CANCEL] or (cancelled is not None and cancelled()):
                    return False

    def cancel(self) -> None:
        """Stop the current run between two calls; later runs are unaffected. Callable from any thread."""
        if self._workers is not None:
            self._workers.control[_CANCEL] = 1

    def close(self) -> None:
        """End the threads after the current run; a later run starts them again."""
        with _one_at_a_time:
            if self._workers is not None:
                self._workers.end()
                self._workers = None

    def _started(self) -> _Workers:
        workers = self._workers
        if workers is None or workers.process != os.getpid() or workers.failure is not None:
            workers = self._workers = _Workers(self.n_threads)
            # Also at interpreter exit, while the threads can still be joined.
            weakref.finalize(self, workers.end)
        return workers


class _Workers:
    """The threads of a pool and the words that they share. Lives until a worker dies, a fork, or the pool is closed."""

    def __init__(self, n_threads: int) -> None:
        self.process = os.getpid()
        self.failure: BaseException | None = None
        self._n = n_threads
        words = _PARKED + _LINE * (n_threads + 1)
        self._memory = np.zeros(words + _LINE, np.int64)
        start = -self._memory.ctypes.data % (8 * _LINE) // 8
        self.control = self._memory[start : start + words]
        self._address = self.control.ctypes.data
        # With every CPU taken, the awaited worker may need the CPU on which a waiting thread spins.
        spins = SPINS_WITHOUT_A_SPARE if n_threads >= usable_processors() else SPINS
        self.control[_SPINS] = spins
        self.control[_IDLE_YIELDS] = IDLE_YIELDS
        self.control[_YIELD] = _yield_address()
        self.control[_STOP : _STOP + 2] = -1
        self.control[_SLICE] = int(SLICE_S * ticks_per_s())
        self._seen = np.zeros(_LINE * n_threads, np.int64)  # the last epoch seen by each worker
        self._wake = [threading.Semaphore(0) for _ in range(n_threads)]
        # Compiled before a thread waits for them, so that an error is raised here.
        self._run, self._work, self._announce = (entry(k) for k in (_run, _work, _announce))
        self._threads: list[threading.Thread] = []
        try:
            for worker in range(1, n_threads):
                thread = threading.Thread(target=self._live, args=(worker,), name=f"kernels-{worker}", daemon=True)
                thread.start()
                self._threads.append(thread)
        except BaseException:
            self.end()
            raise

    def run(self, program: Program, first: int, timed: bool) -> int:
        """Run the program from call `first` for a slice of time; return the call to continue with."""
        control = self.control
        control[_TABLE] = program.table.ctypes.data
        control[_FIRST], control[_LAST] = first, len(program.table)
        control[_TIMES] = program.ticks.ctypes.data if timed else 0
        started = time.perf_counter()
        epoch = int(control[_EPOCH]) + 1
        control[_STOP + (epoch & 1)] = -1  # may be set: an earlier serial run did not increment the epoch
        if program.is_serial:
            self._run(self._address, 1, epoch, 0)
        else:
            self._announce(self._address, 0, 0, 0)
            self._wake_parked()
            self._run(self._address, self._n, epoch, 0)
        if control[_FAILED]:
            raise PoolError("A thread of the CPU kernels has ended.") from self.failure
        if timed:
            program.timed_s += time.perf_counter() - started
        return int(control[_NEXT])

    def end(self) -> None:
        """End and join every thread; a forked child has none."""
        if self.process != os.getpid():
            return
        self.control[_QUIT] = self.control[_FAILED] = 1
        self._announce(self._address, 0, 0, 0)
        for semaphore in self._wake:
            semaphore.release()
        for thread in self._threads:
            thread.join()

    def enter(self, worker: int) -> None:
        """Run a worker's thread in compiled code until it parks or ends."""
        self._work(self._address, self._n, self._seen[_LINE * worker :].ctypes.data, worker)

    def _wake_parked(self) -> None:
        for worker in range(1, self._n):
            if self.control[_PARKED + _LINE * worker]:
                self._wake[worker].release()

    def _live(self, worker: int) -> None:
        control, parked = self.control, _PARKED + _LINE * worker
        try:
            while True:
                self.enter(worker)
                if control[_QUIT] or control[_FAILED]:
                    return
                self._wake[worker].acquire()
                while self._wake[worker].acquire(blocking=False):
                    pass  # released once too often, if a worker wakes by itself at that moment
                control[parked] = 0
        except BaseException as error:  # noqa: BLE001 - any error; the caller waits for this thread
            self.failure = error
            control[_FAILED] = 1


def entry(k: Kernel) -> Callable[[int, int, int, int], None]:
    """Return a kernel as a Python function that releases the GIL."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(k.address)


def usable_processors() -> int:
    """Return the number of logical CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def ticks_per_s() -> float:
    """Return the frequency of the kernels' clock, measured against the wall clock in a few milliseconds."""
    stamp, out = entry(_stamp), np.zeros(2, np.int64)
    ends = []
    for i in range(2):
        stamp(out[i:].ctypes.data, 0, 0, 0)
        ends.append(time.perf_counter())
        time.sleep(0.004 * (1 - i))
    return max(1.0, float(out[1] - out[0]) / (ends[1] - ends[0]))


@cache
def _yield_address() -> int:
    """Return the address of the system function that yields the CPU."""
    if sys.platform == "win32":
        function = ctypes.windll.kernel32.SwitchToThread
    else:
        function = ctypes.CDLL(None).sched_yield
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address, "a function that is found has an address"
    return address


_one_at_a_time = threading.RLock()


def _after_fork() -> None:
    """Reset in the child: it has none of the parent's threads, and nobody would release the lock."""
    global _one_at_a_time
    _one_at_a_time = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
