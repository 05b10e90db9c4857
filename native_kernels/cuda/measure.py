"""Measure a GPU in this PC: its memory's speed, the bus, an exchange with the CPU, and concurrent reads of host memory.

Memory is allocated only during the measurement, and no GPU setting is changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from ctypes import c_int, c_uint64
from dataclasses import dataclass
from typing import Any

import numpy as np

from native_kernels.cpu.products.bandwidth import ReadProbe
from native_kernels.cpu.runtime.call import Call, aligned_empty
from native_kernels.cpu.runtime.handover import await_call, launch_call
from native_kernels.cpu.runtime.pool import Pool, Program, ticks_per_s
from native_kernels.cuda.runtime.driver import CudaOutOfMemoryError, Device, Event, Stream
from native_kernels.cuda.runtime.memory import DeviceMemory, PinnedMemory
from native_kernels.cuda.runtime.modules import load

_READ_BYTES = 1 << 30  # of GPU memory: many times its caches
_BUS_BYTES = 64 << 20
_ROUNDS = 8
_REACHED_BYTES = 256 << 20  # of host memory per zero-copy read
_REACHING_S = 0.25  # duration of the concurrent reads
_ALONE = 3  # reads by the CPU alone, both before and after
_EXCHANGES = 40  # in a row, as in the layers of a token
_PATIENCE_S = 0.5  # timeout of an exchange, which takes about 15 us


@dataclass(frozen=True)
class GpuSpeed:
    """Measured rates of a GPU; None if not requested, or if no memory could be pinned.

    bytes_per_s: reading GPU memory. pcie_bytes_per_s: pinned host memory to the GPU. sync_s: one exchange of `width`
    numbers each way, with the launch of the next layer's work. reach_bytes_per_s: zero-copy reads of host memory by
    kernels while the CPU reads it too. beside_share: the CPU's rate during that, relative to its rate alone.
    """

    bytes_per_s: float
    pcie_bytes_per_s: float
    sync_s: float
    reach_bytes_per_s: float | None = None
    beside_share: float | None = None


class ExchangeError(Exception):
    """The GPU's answer was wrong or missing; the message says how."""


def measure_gpu(device: Device, width: int = 8192, threads: int = 0, ram_bytes: int = 1 << 30) -> GpuSpeed:
    """Measure the GPU, whose context must be entered. Cost: about 2 s, at most an eighth of its free memory.

    threads: CPU threads that read ram_bytes of host memory beside the GPU; 0: concurrent reads are not measured.

    Raises: CudaError, NoMachineCodeError, ExchangeError.
    """
    with ExitStack() as at_end:
        module = load(device, "probe")
        at_end.callback(module.close)
        stream = Stream(device)
        at_end.callback(stream.close)
        read = _read_speed(device, stream, module.function("read_all"))
        bus = _bus_speed(device, stream)
        exchange = _exchange_s(device, stream, module.function("publish"), module.function("merge"), width)
        reach, beside = None, None
        if threads:
            with contextlib.suppress(CudaOutOfMemoryError, MemoryError):
                reach, beside = _both_rates(device, module.function("read_all"), bus, threads, ram_bytes)
    return GpuSpeed(read, bus, exchange, reach, beside)


def _read_speed(device: Device, stream: Stream, kernel: Any) -> float:
    n_bytes = max(16 << 20, min(_READ_BYTES, device.memory()[0] // 8)) // 16 * 16
    memory, out = DeviceMemory(device, n_bytes), DeviceMemory(device, 4)
    try:
        stream.fill(memory.address, 1, n_bytes)
        blocks = 8 * device.n_multiprocessors

        def work() -> None:
            kernel.launch(
                stream, (blocks,), (256,), c_uint64(memory.address), c_uint64(n_bytes // 16), c_uint64(out.address)
            )

        return n_bytes / _best_s(device, stream, work)
    finally:
        memory.free()
        out.free()


def _bus_speed(device: Device, stream: Stream) -> float:
    host, memory = PinnedMemory(device, _BUS_BYTES), DeviceMemory(device, _BUS_BYTES)
    try:
        ctypes.memset(host.address, 1, _BUS_BYTES)
        return _BUS_BYTES / _best_s(device, stream, lambda: stream.upload(memory.address, host.address, _BUS_BYTES))
    finally:
        host.free()
        memory.free()


def _best_s(device: Device, stream: Stream, work: Callable[[], None]) -> float:
    """Return the shortest of some rounds, by the GPU's clock."""
    start, end = Event(device), Event(device)
    try:
        took = []
        for _ in range(_ROUNDS):
            start.record(stream)
            work()
            end.record(stream)
            end.wait()
            took.append(end.seconds_since(start))
        return min(took)
    finally:
        start.close()
        end.close()


def _both_rates(device: Device, kernel: Any, bus: float, threads: int, ram_bytes: int) -> tuple[float, float]:
    """Return the GPU's zero-copy rate in bytes/s while the CPU reads too, and the CPU's share of its own rate then.

    Medians of reads that began and ended while both sides read. The CPU's own rate is measured just before and after,
    because it may change within a second.
    """
    rounds = max(3, round(_REACHING_S * bus / _REACHED_BYTES))
    with ExitStack() as at_end:
        pool = Pool(threads)
        at_end.callback(pool.close)
        probe = ReadProbe(pool, ram_bytes)
        probe.seconds()  # wakes the threads
        alone = [probe.seconds() for _ in range(_ALONE)]
        host, out = PinnedMemory(device, _REACHED_BYTES), DeviceMemory(device, 4)
        at_end.callback(host.free)
        at_end.callback(out.free)
        ctypes.memset(host.address, 1, _REACHED_BYTES)
        stream = Stream(device)
        at_end.callback(stream.close)
        marks = [Event(device) for _ in range(rounds + 1)]
        for mark in marks:
            at_end.callback(mark.close)
        blocks = 8 * device.n_multiprocessors
        marks[0].record(stream)
        for mark in marks[1:]:
            kernel.launch(
                stream, (blocks,), (256,), c_uint64(host.device_address), c_uint64(_REACHED_BYTES // 16),
                c_uint64(out.address),
            )  # fmt: skip
            mark.record(stream)
        end = time.perf_counter() + 0.8 * rounds * _REACHED_BYTES / bus  # the GPU is slower while the CPU reads
        read = [probe.seconds()]
        while time.perf_counter() < end:
            read.append(probe.seconds())
        marks[-1].wait()
        alone += [probe.seconds() for _ in range(_ALONE)]
        took = [mark.seconds_since(before) for before, mark in itertools.pairwise(marks)]
    of_both = took[: max(1, int(0.7 * rounds))]
    return _REACHED_BYTES / statistics.median(of_both), min(1.0, statistics.median(alone) / statistics.median(read))


def _exchange_s(device: Device, stream: Stream, publish: Any, merge: Any, width: int) -> float:
    """Return the median seconds of an exchange: numbers to the host and a flag, the next launch, numbers back.

    Both directions are checked: the GPU adds the CPU's numbers, and the sum must be right.
    """
    n_bytes = 4 * width
    host, x = PinnedMemory(device, 2 * n_bytes + 128), DeviceMemory(device, n_bytes + 64)
    with ExitStack() as at_end:
        at_end.callback(host.free)
        at_end.callback(x.free)
        flag = host.as_array(np.int64, 1, 2 * n_bytes)
        returned = host.as_array(np.float32, width, n_bytes)
        flag[:], returned[:] = 0, 1.0
        stream.fill(x.address, 0, n_bytes + 64)

        def layer() -> None:
            merge.launch(
                stream, (max(1, width // 1024),), (256,),
                c_uint64(x.address), c_uint64(host.device_address + n_bytes), c_int(width),
            )  # fmt: skip
            publish.launch(
                stream, (1,), (256,), c_uint64(x.address), c_uint64(host.device_address), c_int(width),
                c_uint64(x.address + n_bytes), c_uint64(host.device_address + 2 * n_bytes),
            )  # fmt: skip

        graph = stream.captured(layer)
        at_end.callback(graph.close)
        pool = Pool(1)
        at_end.callback(pool.close)
        seen, stop, status = (aligned_empty(1, np.int64) for _ in range(3))
        seen[:] = stop[:] = status[:] = 0
        launch = device.driver.address_of("cuGraphLaunch")
        calls: list[Call] = []
        for _ in range(_EXCHANGES):
            calls.append(launch_call(launch, graph.handle, stream.handle, status))
            calls.append(await_call(host.address + 2 * n_bytes, seen, int(_PATIENCE_S * ticks_per_s()), stop, status))
        program = Program(calls)
        took = []
        for _ in range(2 + _ROUNDS):  # the first two warm up
            program.reset_times()
            pool.run(program, timed=True)
            took.append(program.timed_s / _EXCHANGES)
        stream.synchronize()
        if status[0]:
            raise ExchangeError(f"an exchange with the GPU failed with status {int(status[0])}")
        left = host.as_array(np.float32, width, 0)
        wanted = float(_EXCHANGES * (2 + _ROUNDS))
        if not (left == wanted).all():
            raise ExchangeError(f"the GPU added up to {left.min()} to {left.max()} instead of {wanted}")
        return statistics.median(took[2:])
