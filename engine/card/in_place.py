"""Has the driver register the weights of cold neurons where they lie, so that the card reads them there in prompts.

The mapping of the file, or the copy in RAM, is pinned as it is: nothing is copied, and the processor reads it as
before. It is done behind the load, piece by piece in a thread of low priority, and only of pages that are in RAM.
Whether the RAM has room for that, whoever owns this decides (engine/offline/memory_plan.py says by what).
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
from typing import Any

from engine.model.pages import mapping_of
from engine.model.read_in import Span, resident_bytes
from engine.model.weights import FfnWeights
from native_kernels.cuda.driver import CudaError, Device
from native_kernels.cuda.registered import RegisteredMemory

log = logging.getLogger(__name__)

# Registered at once: a stop is heard between two of them, and no launch of others waits behind more.
PIECE_BYTES = 64 << 20
_NICENESS = 10
_ASK_AGAIN_S = 0.5  # whether pages have been read in meanwhile


@dataclass(frozen=True)
class HostSpan:
    """Whole pages of the host, from and to; read_only: they cannot be written, being a file's."""

    start: int
    end: int
    read_only: bool

    @property
    def n_bytes(self) -> int:
        return self.end - self.start


def spans_in_place(blocks: Iterable[FfnWeights]) -> list[HostSpan]:
    """Where the matrices lie of which the card gathers rows: gate, up and down_t, as a whole, because hot neurons' rows
    lie between cold ones'. No page is in two spans, and what follows each other is one. A down that lies row-wise stays
    with the ring, and so does the rest of its layer."""
    page = mmap.PAGESIZE
    found: list[HostSpan] = []
    for w in blocks:
        if w.down is not None:
            continue
        for matrix in (w.gate, w.up, w.down_t):
            if matrix is None or not matrix.data.size:
                continue
            at = matrix.data.ctypes.data
            last = at + (matrix.n_rows - 1) * matrix.data.strides[0] + matrix.row_bytes
            found.append(HostSpan(at // page * page, -(-last // page) * page, mapping_of(matrix) is not None))
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
    found, reached = 0, 0
    for start, end in both:
        found += max(0, end - max(start, reached))
        reached = max(reached, end)
    return found


class InPlace:
    """What the card reads in place of a model's cold neurons: at first nothing, `begin` starts the thread.

    is_all: whether it is all that was asked for. All methods but `find`: the thread that owns the card.
    """

    def __init__(
        self, device: Device, resident: Callable[[int, int], int] = resident_bytes, piece_bytes: int = PIECE_BYTES
    ) -> None:
        """resident: how many bytes of so many from an address on are in RAM. piece_bytes: whole pages."""
        self._device, self._resident, self._piece_bytes = device, resident, piece_bytes
        self._held: list[RegisteredMemory] = []
        self._runs: tuple[tuple[int, int, int], ...] = ()  # from, to, the card's name less the host's
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._keeps: Any = None
        self.is_all = False

    def begin(
        self, spans: Sequence[HostSpan], keeps: Any, has_room: Callable[[], bool], is_coming: Callable[[], bool]
    ) -> None:
        """keeps: what must stay alive until `close` so that the spans stay mapped. has_room: whether the RAM has room
        for more that is pinned, asked before every piece. is_coming: whether pages that are not in RAM are being read
        in; where they are not, their piece is left out."""
        if self._thread is not None or not spans:
            return

        def run() -> None:
            try:
                self._run(spans, has_room, is_coming)
            except CudaError as error:
                log.info("The card cannot read all cold neurons in place; prompts copy the others: %s", error)

        self._keeps = keeps
        self._thread = threading.Thread(target=run, name="in-place", daemon=True)
        self._thread.start()

    def find(self, address: int, n_bytes: int) -> int | None:
        """The card's name for bytes of the host, where it reads all of them; it is so until `close`."""
        for start, end, shift in self._runs:
            if start <= address and address + n_bytes <= end:
                return address + shift
        return None

    @property
    def n_bytes(self) -> int:
        """What is pinned."""
        return sum(end - start for start, end, _ in self._runs)

    @property
    def is_busy(self) -> bool:
        """Whether something is pinned, or is to be."""
        return bool(self._runs) or not self.wait(0)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether the thread is done by then."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def close(self) -> None:
        """Nothing is pinned any more when it returns. The card, which must be entered, may not be reading it. A second
        time does nothing. Raises nothing: a card that has failed holds nothing."""
        self._stop.set()
        self.wait()
        self._runs, self.is_all = (), False
        while self._held:
            with contextlib.suppress(CudaError):
                self._held.pop().free()
        self._keeps = None

    def _run(self, spans: Sequence[HostSpan], has_room: Callable[[], bool], is_coming: Callable[[], bool]) -> None:
        if hasattr(os, "setpriority") and sys.platform == "linux":  # of this thread alone there
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        self._device.enter()
        found_all = True
        for span in spans:
            for start in range(span.start, span.end, self._piece_bytes):
                n_bytes = min(self._piece_bytes, span.end - start)
                if not self._is_in_ram(start, n_bytes, is_coming):
                    found_all = False
                    continue
                if not has_room():
                    return
                began = time.perf_counter()
                held = RegisteredMemory(self._device, start, n_bytes, span.read_only)
                self._held.append(held)
                self._add(start, start + n_bytes, held.device_address - start)
                # Half of the time is left to whoever answers meanwhile.
                if self._stop.wait(time.perf_counter() - began):
                    return
        self.is_all = found_all and not self._stop.is_set()

    def _is_in_ram(self, start: int, n_bytes: int, is_coming: Callable[[], bool]) -> bool:
        while not self._stop.is_set():
            comes = is_coming()  # before the look: what was read last is seen then
            if self._resident(start, n_bytes) >= n_bytes:
                return True
            if not comes:
                return False
            self._stop.wait(_ASK_AGAIN_S)
        return False

    def _add(self, start: int, end: int, shift: int) -> None:
        """Pieces that follow each other are one where the card has them so too."""
        runs = list(self._runs)
        if runs and runs[-1][1:] == (start, shift):
            start = runs.pop()[0]
        self._runs = (*runs, (start, end, shift))
