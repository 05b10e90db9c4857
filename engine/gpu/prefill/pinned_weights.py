"""Pin the host weights of cold neurons and streamed layers in place, so that the GPU gathers their rows in prefill.

The driver registers the mapped file, or the copy in RAM. Nothing is copied, and the CPU reads the weights as before.

A low-priority thread registers chunks after the load, and only pages that are in RAM. It pauses while the engine
answers, because the driver blocks all launches during a registration. engine/placement/memory_plan.py decides whether
the RAM has room.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.machine.cpu_and_ram import lies_in_ram, memory_limits, read_ram
from engine.model.pages import mapping_of
from engine.model.prefetch import Span, resident_bytes
from engine.placement import memory_plan
from native_kernels.backend import PackedMatrix
from native_kernels.cuda.runtime.driver import CudaError, Device
from native_kernels.cuda.runtime.registered import RegisteredMemory

log = logging.getLogger(__name__)

# Per registration. A stop takes effect between two, and a launch waits at most 2 ms for one.
CHUNK_BYTES = 64 << 20
# Least size of an array outside a file that is pinned. The C library maps allocations above 32 MiB separately, so
# those share no page. If a shared page were registered, a copy of a neighboring array would begin in pinned memory and
# end outside it, which fails.
OWN_PAGES_BYTES = 64 << 20
_NICENESS = 10
_ASK_AGAIN_S = 0.5  # between two checks for prefetched pages
_HEAR_S = 0.1  # between two checks for a stop while the engine answers


class Reading(Protocol):
    """A prefetch that pauses while the engine answers: engine.model.prefetch.Prefetch."""

    def may_go_on(self, seconds: float) -> bool: ...

    def wait(self, seconds: float | None = None) -> bool: ...


@dataclass(frozen=True)
class HostSpan:
    """Addresses of whole host pages. read_only: pages of a mapped file."""

    start: int
    end: int
    read_only: bool

    @property
    def n_bytes(self) -> int:
        return self.end - self.start


def pinnable_spans(matrices: Iterable[PackedMatrix]) -> list[HostSpan]:
    """Return the spans to pin for matrices whose rows the GPU gathers.

    Spans cover whole matrices, because rows of hot and cold neurons alternate. They do not overlap, and adjacent ones
    are merged. Arrays that may share pages with others are left out; the upload ring serves them.
    """
    page = mmap.PAGESIZE
    found: list[HostSpan] = []
    for matrix in matrices:
        if not matrix.data.size:
            continue
        at = matrix.data.ctypes.data
        last = at + (matrix.n_rows - 1) * matrix.data.strides[0] + matrix.row_bytes
        is_file = mapping_of(matrix) is not None
        if is_file or last - at >= OWN_PAGES_BYTES:
            found.append(HostSpan(at // page * page, -(-last // page) * page, is_file))
    merged: list[HostSpan] = []
    for span in sorted(found, key=lambda one: (one.read_only, one.start)):  # a page is never both
        before = merged[-1] if merged else None
        if before is not None and before.read_only == span.read_only and span.start <= before.end:
            merged[-1] = HostSpan(before.start, max(before.end, span.end), span.read_only)
        else:
            merged.append(span)
    return merged


def bytes_of(spans: Iterable[HostSpan], others: Iterable[Span]) -> int:
    """Return the bytes of mapped files in the union of these spans."""
    both = sorted([(one.start, one.end) for one in spans if one.read_only] + list(others))
    found, covered = 0, 0
    for start, end in both:
        found += max(0, end - max(start, covered))
        covered = max(covered, end)
    return found


def ram_check(file: Path, mapped_bytes: int) -> Callable[[bool], bool]:
    """Return a function that says whether the RAM has room for weights pinned already (True) or still to pin (False).

    file: the model file. mapped_bytes: bytes of it that the model reads in RAM.
    """
    groups, cached_bytes = memory_limits(), 0 if lies_in_ram(file) else mapped_bytes

    def has_ram(is_pinned: bool) -> bool:
        import psutil

        return memory_plan.may_pin_in_place(read_ram(psutil, groups), cached_bytes, is_pinned)

    return has_ram


class PinnedWeights:
    """A model's host weights that the GPU reads by zero-copy. Empty until `begin` starts the thread.

    is_all: whether all requested spans are pinned. Call all methods but `find` and `ranges` in the thread that owns the
    GPU.
    """

    def __init__(
        self, device: Device, resident: Callable[[int, int], int] = resident_bytes, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        """resident: (address, n_bytes) -> bytes of that range in RAM. chunk_bytes: a multiple of the page size."""
        self._device, self._resident, self._chunk_bytes = device, resident, chunk_bytes
        self._held: list[RegisteredMemory] = []
        self._runs: tuple[tuple[int, int, int], ...] = ()  # start, end, GPU address minus host address
        self._starts: list[int] = []  # of all registrations, ascending
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._keeps: Any = None
        self._has_ram: Callable[[bool], bool] = lambda is_pinned: False
        self.is_all = False

    def begin(self, spans: Sequence[HostSpan], keeps: Any, reading: Reading, has_ram: Callable[[bool], bool]) -> None:
        """Start pinning the spans, once; do nothing if the RAM has no room.

        keeps: object that keeps the spans mapped; held until `close`. reading: prefetch of the spans. Pages that are
        not in RAM when it ends are left out. has_ram: as `ram_check` returns it; called before every chunk and by
        `spare`.
        """
        if self._thread is not None or not spans or not has_ram(False):
            return

        def run() -> None:
            began = time.perf_counter()
            log.info("%.1f GB are to be pinned in place", sum(one.n_bytes for one in spans) / 1e9)
            try:
                self._run(spans, reading, has_ram)
            except (CudaError, OSError) as error:
                log.info("The GPU cannot read all cold neurons in place; prompts copy the others: %s", error)
            log.info("%.1f GB were pinned in place after %.1f s", self.n_bytes / 1e9, time.perf_counter() - began)

        self._keeps, self._has_ram = keeps, has_ram
        self._thread = threading.Thread(target=run, name="in-place", daemon=True)
        self._thread.start()

    def spare(self) -> bool:
        """Return whether weights are pinned or being pinned. If RAM has run short, unpin them and return False.

        The GPU must not be reading them.
        """
        if not (self._runs or not self.wait(0)):
            return False
        if self._has_ram(True):
            return True
        log.info("The RAM has run short: prompts copy cold neurons from here on")
        self.close()
        return False

    def find(self, address: int, n_bytes: int) -> int | None:
        """Return the GPU address of a host range, or None if not all of it is pinned. Valid until `close`."""
        for start, end, shift in self._runs:
            if start <= address and address + n_bytes <= end:
                return address + shift
        return None

    def ranges(self, address: int, n_bytes: int) -> list[tuple[int, int]]:
        """Return (address, bytes) of the parts of a pinned range that lie within one registration each.

        The driver refuses copies across two of them.
        """
        starts, end, found = self._starts, address + n_bytes, []
        i = bisect_right(starts, address)
        while i < len(starts) and starts[i] < end:
            found.append((address, starts[i] - address))
            address, i = starts[i], i + 1
        return [*found, (address, end - address)]

    @property
    def n_bytes(self) -> int:
        return sum(end - start for start, end, _ in self._runs)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the thread, at most `seconds`. Return whether it has ended."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def close(self) -> None:
        """Unpin everything for good. Idempotent. The GPU must not be reading the weights.

        CUDA errors are ignored, because a failed GPU holds no registrations.
        """
        self._stop.set()
        self.wait()
        self._runs, self._starts, self.is_all = (), [], False
        if self._held:
            with contextlib.suppress(CudaError):
                self._device.enter()
        while self._held:
            with contextlib.suppress(CudaError):
                self._held.pop().free()
        self._keeps = None

    def _run(self, spans: Sequence[HostSpan], reading: Reading, has_ram: Callable[[bool], bool]) -> None:
        if hasattr(os, "setpriority") and sys.platform == "linux":  # on Linux, affects this thread only
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        self._device.enter()
        found_all = True
        for span in spans:
            for start in range(span.start, span.end, self._chunk_bytes):
                n_bytes = min(self._chunk_bytes, span.end - start)
                if not self._is_in_ram(start, n_bytes, reading):
                    found_all = False
                    continue
                while not reading.may_go_on(_HEAR_S) and not self._stop.is_set():
                    pass
                if self._stop.is_set() or not has_ram(False):
                    return
                began = time.perf_counter()
                held = RegisteredMemory(self._device, start, n_bytes, span.read_only)
                self._held.append(held)
                self._starts = sorted([*self._starts, start])
                self._add(start, start + n_bytes, held.device_address - start)
                # Registration blocks launches, so it may take at most half of the time.
                self._stop.wait(time.perf_counter() - began)
        self.is_all = found_all and not self._stop.is_set()

    def _is_in_ram(self, start: int, n_bytes: int, reading: Reading) -> bool:
        while not self._stop.is_set():
            is_over = reading.wait(0)  # before the check, to see the last pages read
            if self._resident(start, n_bytes) >= n_bytes:
                return True
            if is_over:
                return False
            self._stop.wait(_ASK_AGAIN_S)
        return False

    def _add(self, start: int, end: int, shift: int) -> None:
        """Add a chunk, merged with the previous one if they adjoin on the host and on the GPU."""
        runs = list(self._runs)
        if runs and runs[-1][1:] == (start, shift):
            start = runs.pop()[0]
        self._runs = (*runs, (start, end, shift))
