"""Reads what of a mapped file answers will need, after loading and in the background, so that no answer waits for it.

Without it every page is read when a token or a prompt first touches it: 4 KB at a time, at random from a disk, or at
least one interruption of a kernel for every 64 KB. It copies nothing: the pages are the system's, which may take them
back. Where the RAM does not hold them, nothing is read: it would push out what was read before.
"""

from __future__ import annotations

import ctypes
import errno
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
from native_kernels.backend import I32, PackedMatrix

log = logging.getLogger(__name__)

# What is asked for at once: a stop is heard between two of them. A slow disk reads it in 160 ms; with less of it the
# thread of low priority would hold the interpreter more often than it need.
CHUNK_BYTES = 16 << 20
_AHEAD = 4  # chunks that a disk is told of before the one that is waited for, so that it has several to do
_GAP_BYTES = 64 << 10  # less than this between two neurons is read with them, as the system does by itself
_MOST_OF_IT = 0.25  # of a matrix's rows: of so many, hardly any gap is larger
_MARGIN_BYTES = 1 << 30  # of RAM that stays free
_LOOK_EVERY_BYTES = 256 << 20
_POPULATE, _WILL_NEED = 22, 3  # of madvise on Linux; the first one since 5.14
_NICENESS = 10

Span = tuple[int, int]  # addresses of whole pages, from and to
Part = tuple[PackedMatrix, I32 | None]  # rows of a matrix, ascending; None: all of them


def parts_of(
    weights: ModelWeights, on_gpu: Sequence[I32 | None] | None = None, head_on_gpu: bool = False
) -> list[Part]:
    """The rows that the CPU reads, or that prompts take from there. on_gpu: [L], which neurons the GPU holds of
    a layer that is at home there, ascending; None for a layer at home on the CPU, or instead of the list."""
    found: list[Part] = [(weights.embedding, None)]
    if not head_on_gpu:
        found.append((weights.head, None))
    for i, layer in enumerate(weights.layers):
        hot = None if on_gpu is None else on_gpu[i]
        if hot is None:
            for block in (layer, *layer.ffns):
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
    """Where these rows lie in mapped files, in their order there; of matrices in memory of their own nothing."""
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


class ReadIn:
    """A thread that reads spans of mapped files in, in their order; it ends by itself. `close` ends it at once."""

    def __init__(
        self,
        spans: Sequence[Span],
        keeps: Any,
        free_bytes: Callable[[], int] | None = None,
        advise: Callable[[int, int], bool] | None = None,
        resident: Callable[[int, int], int] | None = None,
        foretell: Progress | None = None,
    ) -> None:
        """keeps: what must stay alive so that the spans stay mapped. free_bytes: of RAM; advise: reads so many bytes
        from an address on, False where the system does not; resident: how many of so many bytes are in memory;
        foretell: says that so many bytes will be read soon."""
        self.spans, self._keeps = list(spans), keeps
        self._free = free_bytes or _free_ram
        self._advise = advise or advised
        self._resident = resident or resident_bytes
        self._foretell = foretell or foretold
        self._stop, self._may_read = threading.Event(), threading.Event()
        self._may_read.set()
        self._lock, self._holders = threading.Lock(), 0
        self.read_bytes = 0
        self._thread = threading.Thread(target=self._run, name="read-in", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Nothing is read any more when it returns. A second time does nothing."""
        self._stop.set()
        self._may_read.set()
        self._thread.join()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within it nothing more is asked for: who answers reads what it needs itself, and need not wait behind the
        rest. Any number of threads at once."""
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
        """Whether nobody holds it; waits so long for that, at most. For others who work behind the load too."""
        return self._may_read.wait(seconds)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it is over by then."""
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
        if hasattr(os, "setpriority") and sys.platform == "linux":  # of this thread alone there
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        missing = 0
        for at, n in _chunks(self.spans, _LOOK_EVERY_BYTES):
            if self._stop.is_set():
                return
            missing += max(0, n - self._resident(at, n))
        if missing and missing + _MARGIN_BYTES > self._free():
            log.info("%.1f GB of the model are read when they are needed: the RAM does not hold them", missing / 1e9)
            return
        looked = 0
        coming = _chunks(self.spans, CHUNK_BYTES)
        if missing:
            coming = self._foretold(coming)
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

    def _foretold(self, chunks: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        ahead: deque[tuple[int, int]] = deque()
        for chunk in chunks:
            self._foretell(*chunk)
            ahead.append(chunk)
            if len(ahead) > _AHEAD:
                yield ahead.popleft()
        yield from ahead


def _chunks(spans: Iterable[Span], most: int) -> Iterator[tuple[int, int]]:
    """(address, bytes) of at most so many each."""
    for start, end in spans:
        for at in range(start, end, most):
            yield at, min(most, end - at)


def _free_ram() -> int:
    import psutil

    return read_ram(psutil, memory_limits()).free_bytes


def advised(address: int, n_bytes: int) -> bool:
    """Reads the pages in and maps them, without holding other threads up; False where the system cannot be asked.

    Older ones than Linux 5.14, and Windows, are asked to read them soon: they are mapped when they are touched.
    Raises: OSError where they cannot be read.
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


def foretold(address: int, n_bytes: int) -> None:
    """Has the system begin to read the pages, without waiting for it, where it can be told."""
    tell = _system_call("madvise") if sys.platform == "linux" else None
    if tell is not None:
        tell(ctypes.c_void_p(address), ctypes.c_size_t(n_bytes), _WILL_NEED)


def resident_bytes(address: int, n_bytes: int) -> int:
    """How many of the bytes of whole pages are in memory, whoever holds them; 0 where the system does not say."""
    ask = None if sys.platform == "win32" else _system_call("mincore")
    if ask is None:
        return 0
    pages = np.zeros(-(-n_bytes // mmap.PAGESIZE), np.uint8)
    if ask(ctypes.c_void_p(address), ctypes.c_size_t(n_bytes), ctypes.c_void_p(pages.ctypes.data)) != 0:
        return 0
    return int(np.count_nonzero(pages & 1)) * mmap.PAGESIZE


def _system_call(name: str) -> Any:
    """A function of the C library, during which other threads run; None where there is none."""
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


__all__ = ["CHUNK_BYTES", "Part", "ReadIn", "Span", "advised", "parts_of", "resident_bytes", "spans_of"]
