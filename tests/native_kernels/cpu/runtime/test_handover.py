"""Working with a device from a program: its flag is awaited, its work launched, and every wait comes to an end."""

from __future__ import annotations

import ctypes
import threading
import time

import numpy as np
import pytest

from native_kernels.backend import I64
from native_kernels.cpu.runtime.handover import LATE, STOPPED, await_call, launch_call
from native_kernels.cpu.runtime.pool import Pool, Program, ticks_per_s

LAUNCHER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class FakeGpu:
    """Plays the device: every launch lets its flag grow by one, until it is told to fail or to keep still."""

    def __init__(self) -> None:
        self.flag, self.seen, self.stop, self.status = (np.zeros(1, np.int64) for _ in range(4))
        self.launched: list[tuple[int, int]] = []
        self.answer, self.is_still = 0, False
        self._function = LAUNCHER(self._launch)
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def _launch(self, work: int, stream: int) -> int:
        self.launched.append((work, stream))
        self.flag[0] += not self.is_still
        return self.answer

    def program(self, layers: int, limit_s: float = 60.0) -> Program:
        calls = []
        for layer in range(layers):
            calls.append(launch_call(self.address, 100 + layer, 7, self.status))
            limit = int(limit_s * ticks_per_s())
            calls.append(await_call(self.flag.ctypes.data, self.seen, limit, self.stop, self.status))
        return Program(calls)


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu()


@pytest.mark.parametrize("threads", [1, 3])
def test_each_layer_waits_for_what_it_launched(gpu: FakeGpu, threads: int) -> None:
    program = gpu.program(5)
    pool = Pool(threads)
    for token in range(1, 4):
        assert pool.run(program)
        assert (int(gpu.seen[0]), int(gpu.status[0])) == (5 * token, 0)
    assert gpu.launched == 3 * [(100 + layer, 7) for layer in range(5)]
    pool.close()


def test_a_failed_launch_is_kept_and_ends_the_token(gpu: FakeGpu) -> None:
    gpu.answer = 719
    assert Pool(1).run(gpu.program(3))
    assert int(gpu.status[0]) == 719
    assert len(gpu.launched) == 1


def test_a_lost_gpu_ends_in_late(gpu: FakeGpu) -> None:
    gpu.is_still = True
    started = time.perf_counter()
    Pool(1).run(gpu.program(4000, limit_s=0.02))
    assert int(gpu.status[0]) == LATE
    assert len(gpu.launched) == 1
    assert time.perf_counter() - started < 40, "later waits fall through"


def test_the_stop_word_ends_a_wait(gpu: FakeGpu) -> None:
    gpu.is_still = True

    def stop(word: I64) -> None:
        time.sleep(0.02)
        word[0] = 1

    helper = threading.Thread(target=stop, args=(gpu.stop,))
    helper.start()
    Pool(1).run(gpu.program(2, limit_s=60))
    helper.join()
    assert int(gpu.status[0]) == STOPPED
