"""The ring of pinned buffers against a fake: who waits for whom, and what is left where memory is short."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes.prefill import HostDevice, HostDriver, at

from native_kernels.cuda.runtime.driver import CudaOutOfMemoryError, Device, Stream, driver
from native_kernels.cuda.runtime.upload_ring import SMALL_BYTES, UploadRing

_TOLD = {"cuEventSynchronize", "cuStreamWaitEvent", "cuMemcpyHtoDAsync_v2", "cuEventRecord"}


class CountingDriver(HostDriver):
    """Gives handles out in order, writes down what the ring asks for, and pins no more than `most` bytes at once."""

    def __init__(self, most: int = 1 << 40) -> None:
        super().__init__()
        self.most, self.handles = most, 0
        self.told: list[tuple[str, Any]] = []

    def call(self, name: str, *arguments: Any) -> None:
        if name == "cuMemHostAlloc" and arguments[1] > self.most:
            raise CudaOutOfMemoryError(name, 2, "CUDA_ERROR_OUT_OF_MEMORY")
        super().call(name, *arguments)
        if name in ("cuEventCreate", "cuStreamCreate"):
            self.handles += 1
            arguments[0]._obj.value = self.handles
        if name in _TOLD:
            self.told.append((name, arguments[0] if name != "cuStreamWaitEvent" else arguments[:2]))


class CountingDevice(HostDevice):
    def __init__(self, most: int = 1 << 40) -> None:
        self.number, self.driver = 0, CountingDriver(most)


def test_each_waits_only_for_the_one_before_it() -> None:
    device = CountingDevice()
    told = device.driver.told  # type: ignore[attr-defined]
    compute, copy = Stream(device), Stream(device)
    ring = UploadRing(device, compute, copy, 4096, n_buffers=2)
    used: list[Any] = []
    for i in range(5):
        told.clear()
        buffer = ring.next()
        assert not told
        ring.wait_for(buffer)
        assert told == [("cuEventSynchronize", buffer.copied.handle)]
        buffer.host.as_array(np.uint8, 100)[:] = i
        ring.send(buffer, 100)
        assert told[1:] == [
            ("cuStreamWaitEvent", (copy.handle, buffer.used.handle)),
            ("cuMemcpyHtoDAsync_v2", buffer.gpu.address),
            ("cuEventRecord", buffer.copied.handle),
        ]
        ring.use(buffer)
        assert told[4:] == [("cuStreamWaitEvent", (compute.handle, buffer.copied.handle))]
        ring.release(buffer)
        assert told[5:] == [("cuEventRecord", buffer.used.handle)]
        assert (at(buffer.gpu.address, np.uint8, 100) == i).all()
        used.append(buffer)
    assert used[0] is used[2] is used[4]
    assert used[1] is used[3]
    assert used[0] is not used[1]
    ring.close()
    ring.close()
    assert not device.driver.memory  # type: ignore[attr-defined]


def test_what_else_fills_a_buffer_comes_between_its_bytes_and_their_mark() -> None:
    device = CountingDevice()
    told = device.driver.told  # type: ignore[attr-defined]
    copy = Stream(device)
    ring = UploadRing(device, Stream(device), copy, 4096, n_buffers=2)
    buffer = ring.next()
    buffer.host.as_array(np.uint8, 100)[:] = 7
    told.clear()
    ring.send(buffer, 100, 60, lambda: told.append(("rows", None)))
    assert told == [
        ("cuStreamWaitEvent", (copy.handle, buffer.used.handle)),
        ("cuMemcpyHtoDAsync_v2", buffer.gpu.address + 60),
        ("rows", None),
        ("cuEventRecord", buffer.copied.handle),
    ]
    assert at(buffer.gpu.address, np.uint8, 101).tolist() == 60 * [0xFF] + 40 * [7] + [0xFF]
    ring.close()


def test_smaller_buffers_where_no_large_ones_can_be_pinned() -> None:
    device = CountingDevice(most=SMALL_BYTES)
    ring = UploadRing(device, Stream(device), Stream(device), 2 * SMALL_BYTES)
    assert ring.n_bytes == SMALL_BYTES
    ring.close()
    assert not device.driver.memory  # type: ignore[attr-defined]


def test_where_nothing_can_be_pinned_nothing_is_kept() -> None:
    device = CountingDevice(most=0)
    with pytest.raises(CudaOutOfMemoryError):
        UploadRing(device, Stream(device), Stream(device), 1 << 20)
    assert not device.driver.memory  # type: ignore[attr-defined]


@pytest.mark.gpu
def test_bytes_arrive_in_order_on_a_gpu(device: Device) -> None:
    assert driver().n_devices
    compute, copy = Stream(device), Stream(device)
    ring = UploadRing(device, compute, copy, 1 << 20)
    out = np.zeros(40, np.int64)
    for i in range(len(out)):
        buffer = ring.next()
        ring.wait_for(buffer)
        buffer.host.as_array(np.int64, 1 << 17)[:] = i
        ring.send(buffer, 1 << 20)
        ring.use(buffer)
        compute.download(out[i:].ctypes.data, buffer.gpu.address + (1 << 20) - 8, 8)
        ring.release(buffer)
    compute.synchronize()
    assert out.tolist() == list(range(40))
    ring.close()
    copy.close()
    compute.close()
