"""Has the driver register the weights of cold neurons and of streamed layers where they lie, so that the GPU reads them
there in prompts.

The mapping of the file, or the copy in RAM, is pinned as it is: nothing is copied, and the CPU reads it as
before. It is done behind the load, piece by piece in a thread of low priority, only of pages that are in RAM, and not
while somebody is answered: the driver lets nobody launch work while it registers. When the RAM has room for that,
engine/placement/memory_plan.py says.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import sys
import threading
import time
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

# Registered at once: a stop is heard between two of them, and no launch of others waits behind more than 2 ms of it.
PIECE_BYTES = 64 << 20
# An array that is no file's has its pages for itself from so many bytes on: what is larger than 32 MiB the C library
# maps by itself. A page that a smaller one shares with others must not be registered: a copy to or from those would
# begin in pinned memory and end outside it, which fails.
OWN_PAGES_BYTES = 64 << 20
_NICENESS = 10
_ASK_AGAIN_S = 0.5  # whether pages have been read in meanwhile
_HEAR_S = 0.1  # a stop, while somebody is answered


class Reading(Protocol):
    """What reads pages in behind the load, and is held while somebody is answered: engine.model.prefetch.Prefetch."""

    def may_go_on(self, seconds: float) -> bool: ...

    def wait(self, seconds: float | None = None) -> bool: ...


@dataclass(frozen=True)
class HostSpan:
    """Whole pages of the host, from and to; read_only: they cannot be written, being a file's."""

    start: int
    end: int
    read_only: bool

    @property
    def n_bytes(self) -> int:
        return self.end - self.start


def pinnable_spans(matrices: Iterable[PackedMatrix]) -> list[HostSpan]:
    """Where matrices lie of which the GPU gathers rows, as a whole, because hot neurons' rows lie between cold ones'.
    No page is in two spans, and what follows each other is one. What shares its pages with others stays with the
    ring."""
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
    for span in sorted(found, key=lambda one: (one.read_only, one.start)):  # no page is of both kinds
        before = merged[-1] if merged else None
        if before is not None and before.read_only == span.read_only and span.start <= before.end:
            merged[-1] = HostSpan(before.start, max(before.end, span.end), span.read_only)
        else:
            merged.append(span)
    return merged


def bytes_of(spans: Iterable[HostSpan], others: Iterable[Span]) -> int:
    """Bytes of mapped files in any of these spans, each counted once."""
    both = sorted([(one.start, one.end) for one in spans if one.read_only] + list(others))
    found, covered = 0, 0
    for start, end in both:
        found += max(0, end - max(start, covered))
        covered = max(covered, end)
    return found


def ram_check(file: Path, mapped_bytes: int) -> Callable[[bool], bool]:
    """Whether the RAM has room at the moment for weights that are pinned in place (True), or to be (False). file: of
    the model; mapped_bytes: what of it is read in RAM."""
    groups, cached_bytes = memory_limits(), 0 if lies_in_ram(file) else mapped_bytes

    def has_ram(is_pinned: bool) -> bool:
        import psutil

        return memory_plan.may_pin_in_place(read_ram(psutil, groups), cached_bytes, is_pinned)

    return has_ram


class PinnedWeights:
    """What the GPU reads in place of a model's cold neurons: at first nothing, `begin` starts the thread.

    is_all: whether it is all that was asked for. All methods but `find`: the thread that owns the GPU.
    """

    def __init__(
        self, device: Device, resident: Callable[[int, int], int] = resident_bytes, piece_bytes: int = PIECE_BYTES
    ) -> None:
        """resident: how many bytes of so many from an address on are in RAM. piece_bytes: whole pages."""
        self._device, self._resident, self._piece_bytes = device, resident, piece_bytes
        self._held: list[RegisteredMemory] = []
        self._runs: tuple[tuple[int, int, int], ...] = ()  # from, to, the GPU's name less the host's
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._keeps: Any = None
        self._has_ram: Callable[[bool], bool] = lambda is_pinned: False
        self.is_all = False

    def begin(self, spans: Sequence[HostSpan], keeps: Any, reading: Reading, has_ram: Callable[[bool], bool]) -> None:
        """keeps: what must stay alive until `close` so that the spans stay mapped. reading: what may read them in; what
        is not in RAM when that is over is left out. has_ram: whether the RAM has room for what is pinned (True), or
        to be (False); asked before every piece, and by `spare`."""
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
        """Whether something is pinned, or is to be; lets go of it where the RAM has run short. The GPU may not be
        reading it."""
        if not (self._runs or not self.wait(0)):
            return False
        if self._has_ram(True):
            return True
        log.info("The RAM has run short: prompts copy cold neurons from here on")
        self.close()
        return False

    def find(self, address: int, n_bytes: int) -> int | None:
        """The GPU's name for bytes of the host, where it reads all of them; it is so until `close`."""
        for start, end, shift in self._runs:
            if start <= address and address + n_bytes <= end:
                return address + shift
        return None

    @property
    def n_bytes(self) -> int:
        """What is pinned."""
        return sum(end - start for start, end, _ in self._runs)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether the thread is done by then."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def close(self) -> None:
        """Nothing is pinned any more when it returns, nor ever again. The GPU may not be reading it. A second time
        does nothing. Raises nothing: a GPU that has failed holds nothing."""
        self._stop.set()
        self.wait()
        self._runs, self.is_all = (), False
        if self._held:
            with contextlib.suppress(CudaError):
                self._device.enter()
        while self._held:
            with contextlib.suppress(CudaError):
                self._held.pop().free()
        self._keeps = None

    def _run(self, spans: Sequence[HostSpan], reading: Reading, has_ram: Callable[[bool], bool]) -> None:
        if hasattr(os, "setpriority") and sys.platform == "linux":  # of this thread alone there
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        self._device.enter()
        found_all = True
        for span in spans:
            for start in range(span.start, span.end, self._piece_bytes):
                n_bytes = min(self._piece_bytes, span.end - start)
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
                self._add(start, start + n_bytes, held.device_address - start)
                # Half of the time is left to whoever loads or prepares something meanwhile.
                self._stop.wait(time.perf_counter() - began)
        self.is_all = found_all and not self._stop.is_set()

    def _is_in_ram(self, start: int, n_bytes: int, reading: Reading) -> bool:
        while not self._stop.is_set():
            is_over = reading.wait(0)  # before the look: what was read last is seen then
            if self._resident(start, n_bytes) >= n_bytes:
                return True
            if is_over:
                return False
            self._stop.wait(_ASK_AGAIN_S)
        return False

    def _add(self, start: int, end: int, shift: int) -> None:
        """Pieces that follow each other are one where the GPU has them so too."""
        runs = list(self._runs)
        if runs and runs[-1][1:] == (start, shift):
            start = runs.pop()[0]
        self._runs = (*runs, (start, end, shift))
