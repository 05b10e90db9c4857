"""Prefetch mapped weights in the background after loading, so that answers do not wait for the disk.

Otherwise every page is read on first touch: 4 KB at a time in random order, or at least one page fault per 64 KB.
Nothing is copied; the pages stay in the system's cache. If free RAM is too small, nothing is prefetched, because it
would evict pages already read. Of a model whose experts may stay on the disk, as much is prefetched as fits: first what
every token reads, then the hottest experts.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import logging
import mmap
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from engine.job import Progress
from engine.machine.cpu_and_ram import memory_limits, read_ram
from engine.model.pages import mapping_of
from engine.model.weights import ModelWeights
from native_kernels.backend import F32, I32, PackedMatrix

log = logging.getLogger(__name__)

# Bytes per request; a stop takes effect between two. A slow disk reads this in 160 ms. Smaller requests would make this
# low-priority thread take the interpreter lock more often.
CHUNK_BYTES = 16 << 20
_AHEAD = 4  # chunks requested ahead, so that the disk has several requests queued
_GAP_BYTES = 64 << 10  # gaps smaller than this are read too, as the system's readahead does
_MOST_OF_IT = 0.25  # share of a matrix's rows from which on the whole matrix is read, because hardly any gap is larger
_MARGIN_BYTES = 1 << 30  # free RAM to keep
_HEAT_STEPS = 32
_LOOK_EVERY_BYTES = 256 << 20
# Of a request to read ahead, Linux reads no more than the disk takes at once or its readahead, 128 KB by default.
_REQUEST_BYTES = 128 << 10
_POPULATE, _PAGE_OUT, _WILL_NEED = 22, 21, 3  # madvise on Linux; the first since 5.14, the second since 5.4
_NICENESS = 10

Span = tuple[int, int]  # first and last address, page-aligned
Part = tuple[PackedMatrix, I32 | None]  # ids of rows, ascending; None: all


def parts_of(
    weights: ModelWeights, on_gpu: Sequence[I32 | None] | None = None, head_on_gpu: bool = False
) -> list[Part]:
    """Return the rows that the CPU reads, or that prefill takes from host memory.

    on_gpu [L]: ascending ids of the neurons on the GPU for layers placed there, None for layers on the CPU; or None for
    no GPU at all.
    """
    found: list[Part] = [(weights.embedding, None)]
    if not head_on_gpu:
        found.append((weights.head, None))
    for i, layer in enumerate(weights.layers):
        hot = None if on_gpu is None else on_gpu[i]
        if hot is None:
            for block in (layer, *layer.ffns):
                found += [(one, None) for one in vars(block).values() if isinstance(one, PackedMatrix)]
            continue
        if layer.experts:
            resident = set((hot // layer.ffns[0].up.n_rows).tolist())
            for expert, block in enumerate(layer.experts):
                if expert not in resident:
                    found += [(one, None) for one in vars(block).values() if isinstance(one, PackedMatrix)]
            continue
        ffn = layer.ffns[0]
        cold = np.setdiff1d(np.arange(ffn.up.n_rows, dtype=np.int32), hot, assume_unique=True)
        if not len(cold):
            continue
        found += [(one, cold) for one in (ffn.gate, ffn.up, ffn.down_t) if one is not None]
        if ffn.down is not None:
            found.append((ffn.down, None))
    return found


def spans_of(parts: Iterable[Part]) -> list[Span]:
    """Return the address ranges of these rows in mapped files, ascending. Skips matrices in their own memory."""
    starts: list[Any] = []
    ends: list[Any] = []
    for matrix, ids in parts:
        if mapping_of(matrix) is None or not matrix.data.size:
            continue
        at, stride = matrix.data.ctypes.data, matrix.data.strides[0]
        if ids is None or len(ids) > _MOST_OF_IT * matrix.n_rows:
            first, last = np.zeros(1, np.int64), np.full(1, matrix.n_rows - 1, np.int64)
        else:
            cuts = np.flatnonzero(np.diff(ids) != 1)
            first = ids[np.concatenate(([0], cuts + 1))].astype(np.int64)
            last = ids[np.concatenate((cuts, [len(ids) - 1]))].astype(np.int64)
        starts.append(at + first * stride)
        ends.append(at + last * stride + matrix.row_bytes)
    if not starts:
        return []
    page = mmap.PAGESIZE
    begin, end = np.concatenate(starts) // page * page, -(-np.concatenate(ends) // page) * page
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    fresh = np.flatnonzero(begin[1:] - end[:-1] > _GAP_BYTES)
    begins = begin[np.concatenate(([0], fresh + 1))]
    last_ends = end[np.concatenate((fresh, [len(end) - 1]))]
    return list(zip(begins.tolist(), last_ends.tolist(), strict=True))


def spans_to_read(weights: ModelWeights, parts: Sequence[Part], heat: F32 | None = None) -> list[Span]:
    """Return the address ranges in the order in which to prefetch them.

    Ascending; if experts may stay on the disk, those of other weights first, then those of experts in about 32 steps
    from the hottest to the coldest. heat [L, E]: how often experts are chosen; None: unknown.
    """
    if weights.expert_reads is None:
        return spans_of(parts)
    heats: dict[int, float] = {}  # by matrix
    for i, layer in enumerate(weights.layers):
        for expert, block in enumerate(layer.routed):
            warmth = 0.0 if heat is None else float(heat[i, expert])
            heats.update({id(matrix): warmth for matrix in block.matrices})
    experts = sorted((part for part in parts if id(part[0]) in heats), key=lambda part: -heats[id(part[0])])
    found = spans_of(part for part in parts if id(part[0]) not in heats)
    step = len(experts) if heat is None else -(-len(experts) // _HEAT_STEPS)
    for first in range(0, len(experts), max(1, step)):
        found += spans_of(experts[first : first + step])
    return found


class Prefetch:
    """A thread that prefetches spans of mapped files in order, then ends. `close` ends it at once."""

    def __init__(
        self,
        spans: Sequence[Span],
        keeps: Any,
        free_bytes: Callable[[], int] | None = None,
        advise: Callable[[int, int], bool] | None = None,
        resident: Callable[[int, int], int] | None = None,
        request: Progress | None = None,
        is_partial: bool = False,
    ) -> None:
        """Start the thread.

        keeps: object that keeps the spans mapped. free_bytes: free RAM. advise: reads a range, returns False if the
        system cannot. resident: bytes of a range in memory. request: asks for a range without waiting for it.
        is_partial: read the first spans if the RAM cannot hold all of them; otherwise nothing is read then.
        """
        self._is_partial = is_partial
        self.spans, self._keeps = list(spans), keeps
        self._free = free_bytes or _free_ram
        self._advise = advise or advised
        self._resident = resident or resident_bytes
        self._request = request or request_pages
        self._stop, self._may_read = threading.Event(), threading.Event()
        self._may_read.set()
        self._lock, self._holders = threading.Lock(), 0
        self.read_bytes = 0
        self._thread = threading.Thread(target=self._run, name="read-in", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop prefetching; nothing is read after it returns. Idempotent."""
        self._stop.set()
        self._may_read.set()
        self._thread.join()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Pause prefetching: an answer reads its own pages first. Any number of threads may nest it."""
        with self._lock:
            self._holders += 1
            self._may_read.clear()
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if not self._holders:
                    self._may_read.set()

    def may_go_on(self, seconds: float) -> bool:
        """Return whether nobody pauses it, waiting at most this long. Other background work uses it too."""
        return self._may_read.wait(seconds)

    def wait(self, seconds: float | None = None) -> bool:
        """Return whether it ended within the given time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._read()
        except OSError as error:
            log.info("The rest of the model is read when it is needed: %s", error)
        finally:
            self._keeps = None

    def _read(self) -> None:
        if hasattr(os, "setpriority") and sys.platform == "linux":  # on Linux this affects only this thread
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        missing = 0
        for at, n in _chunks(self.spans, _LOOK_EVERY_BYTES):
            if self._stop.is_set():
                return
            missing += max(0, n - self._resident(at, n))
        looked, coming = 0, _chunks(self.spans, CHUNK_BYTES)
        if missing and missing + _MARGIN_BYTES > (free := self._free()):
            log.info("%.1f GB of the model are read when they are needed: the RAM does not hold them", missing / 1e9)
            if not self._is_partial:
                return
            coming = _first(coming, free - _MARGIN_BYTES)
        if missing:
            coming = self._requested_ahead(coming)
        for at, n in coming:
            self._may_read.wait()
            if self._stop.is_set():
                return
            if missing and self.read_bytes - looked >= _LOOK_EVERY_BYTES:
                looked = self.read_bytes
                if self._free() < _MARGIN_BYTES // 2:
                    log.info("The rest of the model is read when it is needed: the RAM has run short")
                    return
            if not self._advise(at, n):
                return
            self.read_bytes += n

    def _requested_ahead(self, chunks: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        ahead: deque[tuple[int, int]] = deque()
        for chunk in chunks:
            self._request(*chunk)
            ahead.append(chunk)
            if len(ahead) > _AHEAD:
                yield ahead.popleft()
        yield from ahead


def start_prefetch(
    weights: ModelWeights,
    heat: F32 | None = None,
    on_gpu: Sequence[I32 | None] | None = None,
    head_on_gpu: bool = False,
) -> Prefetch:
    """Start to prefetch what the CPU reads. Parameters: as in `parts_of` and `spans_to_read`."""
    spans = spans_to_read(weights, parts_of(weights, on_gpu, head_on_gpu), heat)
    return Prefetch(spans, weights, is_partial=weights.expert_reads is not None)


def _chunks(spans: Iterable[Span], most: int) -> Iterator[tuple[int, int]]:
    """Yield (address, bytes) of at most `most` bytes."""
    for start, end in spans:
        for at in range(start, end, most):
            yield at, min(most, end - at)


def _first(chunks: Iterator[tuple[int, int]], n_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the first chunks that have at most this many bytes together."""
    for at, n in chunks:
        n_bytes -= n
        if n_bytes < 0:
            return
        yield at, n


def _free_ram() -> int:
    import psutil

    return read_ram(psutil, memory_limits()).free_bytes


def advised(address: int, n_bytes: int) -> bool:
    """Read the pages and map them without blocking other threads; False if the system cannot be asked.

    Linux before 5.14 and Windows only prefetch them: they are mapped on first touch.
    Raises: OSError if they cannot be read.
    """
    if sys.platform == "win32":
        return _prefetched(address, n_bytes)
    ask = _system_call("madvise")
    if ask is None:
        return False
    ways = (_POPULATE, _WILL_NEED) if sys.platform == "linux" else (_WILL_NEED,)
    for way in ways:
        if ask(ctypes.c_void_p(address), ctypes.c_size_t(n_bytes), way) == 0:
            return True
        code = ctypes.get_errno()
        if code not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(code, os.strerror(code))
    return False


def request_pages(address: int, n_bytes: int) -> None:
    """Ask the system to start reading the pages without waiting, where it can."""
    tell = _system_call("madvise") if sys.platform == "linux" else None
    if tell is None:
        return
    for at in range(address, address + n_bytes, _REQUEST_BYTES):
        size = min(_REQUEST_BYTES, address + n_bytes - at)
        tell(ctypes.c_void_p(at), ctypes.c_size_t(size), _WILL_NEED)


def request_function() -> int:
    """Return the address of madvise, which compiled code calls as `request_pages` does; 0 where that does nothing."""
    tell = _system_call("madvise") if sys.platform == "linux" else None
    return 0 if tell is None else ctypes.cast(tell, ctypes.c_void_p).value or 0


def evict_pages(address: int, n_bytes: int) -> None:
    """Drop the pages that this process has mapped from RAM, where the system can; pages of others stay.

    Cost: 0.3 ms per MiB (6.18).
    """
    tell = _system_call("madvise") if sys.platform == "linux" else None
    if tell is not None:
        tell(ctypes.c_void_p(address), ctypes.c_size_t(n_bytes), _PAGE_OUT)


def resident_bytes(address: int, n_bytes: int) -> int:
    """Return how many bytes of whole pages are in memory; 0 if unknown."""
    ask = None if sys.platform == "win32" else _system_call("mincore")
    if ask is None:
        return 0
    pages = np.zeros(-(-n_bytes // mmap.PAGESIZE), np.uint8)
    if ask(ctypes.c_void_p(address), ctypes.c_size_t(n_bytes), ctypes.c_void_p(pages.ctypes.data)) != 0:
        return 0
    return int(np.count_nonzero(pages & 1)) * mmap.PAGESIZE


@functools.cache
def _system_call(name: str) -> Any:
    """Return a C library function that releases the interpreter lock; None if missing."""
    return getattr(ctypes.CDLL(None, use_errno=True), name, None)


def _prefetched(address: int, n_bytes: int) -> bool:
    if sys.platform != "win32":
        return False

    class Range(ctypes.Structure):
        _fields_ = (("address", ctypes.c_void_p), ("n_bytes", ctypes.c_size_t))

    kernel = ctypes.windll.kernel32
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    kernel.PrefetchVirtualMemory.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_ulong)
    one = Range(address, n_bytes)
    return bool(kernel.PrefetchVirtualMemory(kernel.GetCurrentProcess(), 1, ctypes.byref(one), 0))


__all__ = [
    "CHUNK_BYTES",
    "Part",
    "Prefetch",
    "Span",
    "advised",
    "evict_pages",
    "parts_of",
    "request_function",
    "request_pages",
    "resident_bytes",
    "spans_of",
    "spans_to_read",
    "start_prefetch",
]  # fmt: skip
