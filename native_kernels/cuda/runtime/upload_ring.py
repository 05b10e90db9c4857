"""A ring of pinned buffers through which weights come to the GPU while it computes; what is in them it does not know.

Three parties take turns with a buffer: the CPU fills it, the copy stream brings it to the GPU, the compute
stream uses it there. Each waits only for the one before it, so that all three work at once on different buffers. One
thread may fill and send, another one use and release: a buffer's turn comes again once it was released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from native_kernels.cuda.runtime.driver import CudaOutOfMemoryError, Device, Event, Stream
from native_kernels.cuda.runtime.memory import DeviceMemory, PinnedMemory

SMALL_BYTES = 16 << 20  # of a buffer where no larger ones can be pinned


@dataclass(frozen=True, eq=False)
class Buffer:
    """host: the pinned bytes; GPU: where they go. copied: the host's part may be filled again; used: the GPU's."""

    host: PinnedMemory
    gpu: DeviceMemory
    copied: Event
    used: Event


class UploadRing:
    """n_buffers buffers of n_bytes each, or of SMALL_BYTES where that many bytes cannot be pinned.

    Raises: CudaOutOfMemoryError where not even those can; nothing is kept then.
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
        """Makes the GPU the calling thread's, which is to fill buffers."""
        self._device.enter()

    def next(self) -> Buffer:
        """The buffer whose turn it is; nothing is to be written there before `wait_for`."""
        buffer = self._buffers[self._turn % len(self._buffers)]
        self._turn += 1
        return buffer

    def wait_for(self, buffer: Buffer) -> None:
        """Until its bytes of last time are on the GPU, so that it may be filled."""
        buffer.copied.wait()

    def send(self, buffer: Buffer, n_bytes: int, first: int = 0, besides: Callable[[], None] | None = None) -> None:
        """Brings the bytes from `first` to n_bytes to the GPU, once those that lie there were used. besides: puts into
        the copy stream what fills the rest of the buffer on the GPU; it finds those bytes there."""
        buffer.used.hold(self._copy)
        self._copy.upload(buffer.gpu.address + first, buffer.host.address + first, n_bytes - first)
        if besides is not None:
            besides()
        buffer.copied.record(self._copy)

    def use(self, buffer: Buffer) -> None:
        """What the compute stream is given from now on finds there what was sent."""
        buffer.copied.hold(self._compute)

    def release(self, buffer: Buffer) -> None:
        """What the compute stream was given so far is the last that reads the buffer on the GPU."""
        buffer.used.record(self._compute)

    def close(self) -> None:
        """Gives all of it back; waits for the copies."""
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
