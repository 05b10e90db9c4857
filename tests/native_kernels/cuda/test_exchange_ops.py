"""The exchange on a GPU: what is published arrives before its flag, waits end, 200 exchanges carry their values."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from native_kernels.cpu.attention.norms import norm_calls
from native_kernels.cpu.runtime.call import Call, aligned_empty
from native_kernels.cpu.runtime.handover import await_call, launch_call
from native_kernels.cpu.runtime.pool import Pool, Program, ticks_per_s
from native_kernels.cuda.gpu import GpuCopy, Work
from tests.native_kernels.cuda.on_gpu import OnGpu

pytestmark = pytest.mark.gpu

LAYERS = 40


def words(on_gpu: OnGpu, *values: int) -> int:
    return on_gpu.put(np.array(values, np.int64))


@pytest.mark.parametrize(
    ("n", "n_words", "with_without"),
    [(0, 0, False), (64, 2, True), (8192, 896, True), (12288, 0, False), (7, 3, False)],
)
def test_what_is_published_is_in_the_hosts_memory(on_gpu: OnGpu, n: int, n_words: int, with_without: bool) -> None:
    rng = np.random.default_rng(n)
    values = rng.standard_normal(n).astype(np.float32)
    bits, without = (rng.integers(0, 1 << 32, max(1, n_words), np.uint32) for _ in range(2))
    host, epoch = on_gpu.pin(64 + 4 * (n + n_words)), words(on_gpu, 41)
    to = host.device_address + 64
    on_gpu.gpu.publish(
        host.device_address, epoch, GpuCopy(on_gpu.put(values) if n else 0, to, n),
        GpuCopy(on_gpu.put(bits), to + 4 * n, n_words), on_gpu.put(without) if with_without else 0,
    )  # fmt: skip
    on_gpu.gpu.synchronize()
    assert host.as_array(np.int64, 1)[0] == 42
    assert on_gpu.get(epoch, 1, np.int64)[0] == 42
    there = host.as_array(np.uint32, n + n_words, 64)
    assert np.array_equal(there[:n].view(np.float32), values)
    assert np.array_equal(there[n:], (bits & ~without if with_without else bits)[:n_words])


@pytest.mark.parametrize("n", [16_385, 32_000, 128_256, 262_143])
def test_many_blocks_post_one_flag_behind_all_of_them(on_gpu: OnGpu, n: int) -> None:
    host, epoch = on_gpu.pin(64 + 4 * n), words(on_gpu, 0)
    flag, published = host.as_array(np.int64, 1), host.as_array(np.float32, n, 64)
    values = on_gpu.put(np.arange(n, dtype=np.float32))
    for turn in range(1, 21):
        published[:] = 0
        on_gpu.gpu.publish(host.device_address, epoch, GpuCopy(values, host.device_address + 64, n))
        deadline = time.monotonic() + 5
        while flag[0] != turn and time.monotonic() < deadline:
            pass
        assert np.array_equal(published, np.arange(n, dtype=np.float32))
    on_gpu.gpu.synchronize()
    assert flag[0] == 20


class Exchange:
    """A model of nothing but exchanges: every layer the GPU adds what the CPU left and publishes its stream;
    the CPU adds the stream to what it leaves."""

    def __init__(self, on_gpu: OnGpu, n: int, n_threads: int = 1) -> None:
        self.on_gpu, self.n = on_gpu, n
        gpu = on_gpu.gpu
        self.stream = on_gpu.room(4 * n)
        to, norm = on_gpu.vector(n), on_gpu.norm("rms", np.ones(n, np.float32), None, 1e-5)
        epoch = words(on_gpu, 0)
        host = on_gpu.pin(8 * n + 6 * 64)
        self.published, self.left = (host.as_array(np.float32, n, 4 * n * i) for i in range(2))
        flags = [8 * n + 64 * i for i in range(4)]
        stop, self.status = (host.as_array(np.int64, 1, at) for at in flags[2:])
        self.gpu_seen = aligned_empty(1, np.int64)
        self.gpu_seen[:] = 0
        at = host.device_address

        def layer() -> None:
            gpu.advance(self.stream, n, others=(at + 4 * n,), norm=norm, to=to)
            gpu.publish(at + flags[0], epoch, GpuCopy(self.stream, at, n))

        self.works: list[Work] = [gpu.captured(layer)]
        limit = int(0.5 * ticks_per_s())
        launch = launch_call(gpu.launch_function, self.works[0].handle, gpu.stream_handle, self.status)
        calls: list[Call] = []
        for _ in range(LAYERS):
            calls.append(launch)
            calls.append(await_call(host.address + flags[0], self.gpu_seen, limit, stop, self.status))
            calls += norm_calls(self.left, self.left, None, added=(self.published,))
        self.pool, self.program = Pool(n_threads), Program(calls)

    def run(self, stream: Any, left: Any) -> float:
        """Microseconds a layer."""
        self.on_gpu.gpu.upload(self.stream, stream.ctypes.data, 4 * self.n)
        self.on_gpu.gpu.synchronize()
        self.left[:] = left
        self.program.reset_times()
        self.pool.run(self.program, timed=True)
        return 1e6 * self.program.timed_s / LAYERS

    def close(self) -> None:
        self.on_gpu.gpu.synchronize()
        self.pool.close()
        for work in self.works:
            work.close()


@pytest.mark.parametrize("n", [96, 8192])
def test_two_hundred_exchanges_carry_their_values(on_gpu: OnGpu, n: int) -> None:
    exchange = Exchange(on_gpu, n)
    rng = np.random.default_rng(3)
    for _ in range(200 // LAYERS):
        stream, left = (rng.standard_normal(n).astype(np.float32) for _ in range(2))
        exchange.run(stream, left)
        for _ in range(LAYERS):
            stream = stream + left
            left = left + stream
        assert exchange.status[0] == 0
        assert np.array_equal(exchange.left, left)
        assert np.array_equal(on_gpu.get(exchange.stream, n), stream)
    exchange.close()
