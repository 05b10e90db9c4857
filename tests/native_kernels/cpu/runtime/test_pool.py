"""The threads: every item once and in order, the same for any number of them, stops, failures, forks, two at once."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from native_kernels.cpu.runtime import pool as pool_module
from native_kernels.cpu.runtime.call import Call, aligned_empty, arguments
from native_kernels.cpu.runtime.jit import kernel
from native_kernels.cpu.runtime.pool import Pool, PoolError, Program
from native_kernels.cpu.runtime.simd import atomic_add, atomic_get, get_int, pause, put_int

ROOT = Path(__file__).parents[4]


@kernel
def count_up(args: int, lo: int, hi: int, worker: int) -> None:
    """out[i] = 3 out[i] + i. args: out."""
    out = get_int(args)
    for i in range(lo, hi):
        put_int(out + 8 * i, 3 * get_int(out + 8 * i) + i)


@kernel
def sum_into(args: int, lo: int, hi: int, worker: int) -> None:
    """args: numbers, how many, where their sum goes."""
    total = 0
    for i in range(get_int(args + 8)):
        total += get_int(get_int(args) + 8 * i)
    put_int(get_int(args + 16), total)


@kernel
def loiter(args: int, lo: int, hi: int, worker: int) -> None:
    """args: how many turns, where their end is counted."""
    n = 0
    for i in range(get_int(args)):
        n += i % 7
        put_int(args + 16, n)
    put_int(get_int(args + 8), get_int(get_int(args + 8)) + 1)


def counting(out: np.ndarray, n_items: int | np.ndarray, grain: int = 1, stage: str = "") -> Call:
    return Call(count_up, arguments(out), n_items, grain, stage, (out,))


@kernel
def wait_for_the_others(args: int, lo: int, hi: int, worker: int) -> None:
    """The first item is done when all others are. args: how many, where they are counted, who did each."""
    for i in range(lo, hi):
        put_int(get_int(args + 16) + 8 * i, worker)
        if i > 0:
            atomic_add(get_int(args + 8), 1)
    while lo == 0 and atomic_get(get_int(args + 8)) < get_int(args) - hi:
        pause()


def test_what_is_shared_goes_to_those_who_are_through_with_their_own() -> None:
    pool, counted, who = Pool(2), np.zeros(1, np.int64), np.zeros(64, np.int64)
    slow = Call(wait_for_the_others, arguments(64, counted, who), 64, keeps=(counted, who), shared=True)
    own = 64 - 64 // pool_module.OPEN_SHARE
    for _ in range(2):
        counted[0] = -(own // 2 - 1)  # its own of the slice
        assert pool.run(Program([slow]))
        assert who.tolist() == [0] * (own // 2) + [1] * (64 - own // 2)
    pool.close()


def test_a_call_that_nobody_waits_behind_cannot_be_shared() -> None:
    Call(count_up, arguments(0), 1, shared=True)
    with pytest.raises(AssertionError):
        Call(count_up, arguments(0), 1, barrier=False, shared=True)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("n_threads", [1, 2, 3, 4, 8])
def test_every_item_is_done_once_between_two_barriers(n_threads: int, shared: bool) -> None:
    pool = Pool(n_threads)
    n = np.array([37], np.int64)
    out, total = np.zeros(100, np.int64), np.zeros(1, np.int64)
    calls = [counting(out, 100, 7), counting(out, n, 3), counting(out, 1), counting(out, 0), counting(out, 99, 64)]
    calls.append(Call(sum_into, arguments(out, 100, total), 1, keeps=(out, total)))
    program = Program([replace(call, shared=shared) for call in calls])
    wanted = np.zeros(100, np.int64)
    for n_items in (37, 0, 100, 1):
        n[0] = n_items
        assert pool.run(program)
        for upto in (100, n_items, 1, 0, 99):
            wanted[:upto] = 3 * wanted[:upto] + np.arange(upto)
        assert (out == wanted).all()
        assert total[0] == wanted.sum()
    pool.close()


def test_many_programs_one_behind_the_other_with_pauses_long_enough_to_park() -> None:
    pool, out = Pool(3), np.zeros(12, np.int64)
    program = Program([counting(out, 12) for _ in range(5)])
    for _ in range(20):
        out[:] = 0
        pool.run(program)
        time.sleep(0.01)
        assert out[1] == (3**5 - 1) // 2
    wait_until_parked(pool)
    pool.close()


def wait_until_parked(pool: Pool) -> None:
    until = time.monotonic() + 60
    while not parked(pool).all():
        assert time.monotonic() < until, "threads that have nothing to do use the CPU"
        time.sleep(0.001)


def parked(pool: Pool) -> np.ndarray:
    """The words that say which of the other threads are parked."""
    assert pool._workers is not None
    return pool._workers.control[pool_module._PARKED + pool_module._LINE :: pool_module._LINE][: pool.n_threads - 1]


def test_threads_stay_parked_while_a_program_has_work_for_one() -> None:
    pool, out = Pool(3), np.zeros(12, np.int64)
    serial, parallel = Program([counting(out, 1), counting(out, 12, 12)]), Program([counting(out, 12)] * 2)
    assert pool.run(parallel)
    wait_until_parked(pool)
    for _ in range(100):
        assert pool.run(serial)
        assert parked(pool).all()
    pool.close()


def test_programs_for_one_thread_and_for_all_take_turns_whether_stopped_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "SLICE_S", 0.0)  # every barrier asks whether to stop
    pool, out = Pool(3), np.zeros(12, np.int64)
    programs = {n: Program([counting(out, n)] * 5) for n in (1, 12)}
    draw, n_stopped = np.random.default_rng(3), 0
    for _ in range(1000):
        n_items = int(draw.choice([1, 12]))
        assert programs[n_items].is_serial == (n_items == 1)
        out[:], calls_left = 0, int(draw.integers(1, 8))
        asked = iter(range(1, 100))
        finished = pool.run(programs[n_items], lambda left=calls_left, asked=asked: next(asked) >= left)
        n_done = 5 if finished else calls_left
        n_stopped += not finished
        assert out.tolist() == [i * (3**n_done - 1) // 2 if i < n_items else 0 for i in range(12)]
    assert 100 < n_stopped < 900
    pool.close()


def test_a_stop_is_heard_between_two_calls_and_the_program_can_run_again() -> None:
    pool, out, done = Pool(2), np.zeros(8, np.int64), np.zeros(1, np.int64)
    long = Call(loiter, arguments(2_000_000, done, 0), 1, keeps=(done,))
    program = Program([long] * 4000)
    asked = []
    assert not pool.run(program, lambda: bool(asked.append(len(asked)) or len(asked) > 2))
    assert 0 < done[0] < 4000
    assert len(asked) == 3
    done[:] = 0

    def cancel_when_begun() -> None:
        while not done[0]:  # what starts later is not stopped
            time.sleep(0.001)
        pool.cancel()

    helper = threading.Thread(target=cancel_when_begun)
    helper.start()
    assert not pool.run(program)
    helper.join()
    assert done[0] < 4000
    assert pool.run(Program([counting(out, 8)]))
    assert (out == np.arange(8)).all()

    def broken() -> bool:
        raise KeyError("asked")

    with pytest.raises(KeyError, match="asked"):
        pool.run(program, broken)
    assert pool.run(Program([counting(out, 8)]))
    pool.close()


def test_stages_add_up_to_the_time_of_their_program() -> None:
    pool, done = Pool(2), np.zeros(1, np.int64)
    calls = [Call(loiter, arguments(n, done, 0), 1, 1, stage, (done,))
             for stage, n in (("short", 100_000), ("long", 400_000), ("short", 100_000))]  # fmt: skip
    program = Program(calls)
    pool.run(program)
    assert program.stage_seconds() == {"short": 0.0, "long": 0.0}
    for _ in range(5):
        pool.run(program, timed=True)
    seconds = program.stage_seconds()
    assert sum(seconds.values()) == pytest.approx(program.timed_s)
    assert min(seconds.values()) > 0
    program.reset_times()
    assert sum(program.stage_seconds().values()) == 0
    pool.close()


def test_two_pools_take_turns_and_threads_may_share_one() -> None:
    pools = [Pool(2), Pool(3), Pool(2)]
    outs = [np.zeros(50, np.int64) for _ in range(6)]
    programs = [Program([counting(out, 50, 4) for _ in range(40)]) for out in outs]

    def work(i: int) -> None:
        for _ in range(20):
            outs[i][:] = 0
            pools[i % 3].run(programs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((out == outs[0]).all() for out in outs)
    assert outs[0][1] == (3**40 - 1) // 2
    for pool in pools:
        pool.close()


def test_a_worker_that_dies_is_an_error_that_names_its_cause_and_the_next_run_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = np.zeros(8, np.int64)
    program = Program([counting(out, 8)])
    pool = Pool(2)
    monkeypatch.setattr(pool_module._Workers, "enter", lambda workers, worker: 1 / 0)
    with pytest.raises(PoolError) as caught:
        pool.run(program)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    monkeypatch.undo()
    out[:] = 0
    assert pool.run(program)
    assert (out == np.arange(8)).all()
    pool.close()


def test_threads_end_with_their_pool() -> None:
    others = set(threading.enumerate())

    def ours() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name.startswith("kernels-") and one not in others]

    pool, out = Pool(3), np.zeros(8, np.int64)
    pool.run(Program([counting(out, 8)]))
    assert len(ours()) == 2
    pool.close()
    assert ours() == []
    pool.run(Program([counting(out, 8)]))  # started again
    gone = weakref.ref(pool)
    del pool
    gc.collect()
    assert gone() is None
    assert ours() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    pool, out = Pool(2), aligned_empty(8, np.int64)
    program = Program([counting(out, 8)])
    pool.run(program)
    child = os.fork()
    if child == 0:
        ok = False
        try:
            out[:] = 0
            ok = pool.run(program) and bool((out == np.arange(8)).all())
        finally:
            os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.run(program)
    pool.close()


def test_the_interpreter_ends_while_a_pool_is_alive() -> None:
    program = """
import numpy as np
from native_kernels.cpu.ffn.elementwise import activation_calls
from native_kernels.cpu.runtime.pool import Pool, Program
x = np.ones(1000, np.float32)
pools = [Pool(2), Pool(3)]
for pool in pools:
    pool.run(Program(activation_calls("relu", x, x)))
print("done")
"""
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("n_threads", [0, -1, 5000])
def test_senseless_numbers_of_threads_are_refused(n_threads: int) -> None:
    with pytest.raises(ValueError, match=f"{n_threads} threads"):
        Pool(n_threads)
