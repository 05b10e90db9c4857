"""A ring of pinned buffers through which weights are uploaded while the GPU computes.

Each buffer is filled by the CPU, copied by the copy stream, and used by the compute stream. Each party waits only for
the previous one, so all three work at once on different buffers. One thread may fill and send, another use and release.
A released buffer is reused in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from native_kernels.cuda.runtime.driver import CudaOutOfMemoryError, Device, Event, Stream
from native_kernels.cuda.runtime.memory import DeviceMemory, PinnedMemory

SMALL_BYTES = 16 << 20  # buffer size if larger ones cannot be pinned


@dataclass(frozen=True, eq=False)
class Buffer:
    """Pinned bytes and their GPU target. copied: host bytes may be overwritten. used: GPU bytes may be overwritten."""

    host: PinnedMemory
    gpu: DeviceMemory
    copied: Event
    used: Event


class UploadRing:
    """n_buffers buffers of n_bytes each, or of SMALL_BYTES if that much cannot be pinned.

    Raises: CudaOutOfMemoryError if even those cannot; nothing stays allocated.
    """

    def __init__(self, device: Device, compute: Stream, copy: Stream, n_bytes: int, n_buffers: int = 3) -> None:
        self._device, self._compute, self._copy = device, compute, copy
        self._turn = 0
        try:
            self._buffers = _make(device, n_bytes, n_buffers)
        except CudaOutOfMemoryError:
            if n_bytes <= SMALL_BYTES:
                raise
            n_bytes = SMALL_BYTES
            self._buffers = _make(device, n_bytes, n_buffers)
        self.n_bytes, self.n_buffers = n_bytes, n_buffers

    def enter(self) -> None:
        """Make the GPU current in the calling thread, which will fill buffers."""
        self._device.enter()

    def next(self) -> Buffer:
        """Return the next buffer; do not write to it before `wait_for`."""
        buffer = self._buffers[self._turn % len(self._buffers)]
        self._turn += 1
        return buffer

    def wait_for(self, buffer: Buffer) -> None:
        """Wait until its previous bytes are on the GPU, so that it may be filled."""
        buffer.copied.wait()

    def send(self, buffer: Buffer, n_bytes: int, first: int = 0, besides: Callable[[], None] | None = None) -> None:
        """Copy the bytes from `first` to n_bytes to the GPU, after the previous ones there were used.

        besides: queues, in the copy stream, work that fills the rest of the buffer on the GPU and may read those bytes.
        """
        buffer.used.hold(self._copy)
        if n_bytes > first:
            self._copy.upload(buffer.gpu.address + first, buffer.host.address + first, n_bytes - first)
        if besides is not None:
            besides()
        buffer.copied.record(self._copy)

    def use(self, buffer: Buffer) -> None:
        """Make later work of the compute stream wait for the sent bytes."""
        buffer.copied.hold(self._compute)

    def release(self, buffer: Buffer) -> None:
        """Mark the work queued so far in the compute stream as the last that reads the buffer."""
        buffer.used.record(self._compute)

    def close(self) -> None:
        """Release everything, after the copies have ended."""
        self._copy.synchronize()
        self._compute.synchronize()
        for buffer in self._buffers:
            _free(buffer.host, buffer.gpu, buffer.copied, buffer.used)
        self._buffers = []


def _make(device: Device, n_bytes: int, n_buffers: int) -> list[Buffer]:
    made: list[Any] = []
    try:
        for _ in range(n_buffers):
            made.append(PinnedMemory(device, n_bytes))
            made.append(DeviceMemory(device, n_bytes))
            made.append(Event(device))
            made.append(Event(device))
    except BaseException:
        _free(*made)
        raise
    return [Buffer(*made[i : i + 4]) for i in range(0, len(made), 4)]


def _free(*things: Any) -> None:
    for thing in things:
        thing.close() if isinstance(thing, Event) else thing.free()
