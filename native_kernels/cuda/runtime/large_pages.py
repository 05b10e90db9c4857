"""Allocate much host memory quickly: in large pages, if the system has them, faulted in by several threads.

When a driver pins gigabytes itself, it faults in 4 KB pages in one thread: 3.5 GB/s.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

LARGE_PAGE = 2 << 20
_MOST_THREADS = 8
_PIECE_BYTES = 64 << 20
_POPULATE_WRITE = 23  # madvise on Linux, since 5.14


class LargePages:
    """n_bytes of zeros from `address` on, aligned to a large page, until `free`. Linux only.

    Raises: OSError if memory is short or the system is not supported.
    """

    def __init__(self, n_bytes: int) -> None:
        if sys.platform != "linux":
            raise OSError("large pages are available only on Linux")
        self.n_bytes = -(-max(1, n_bytes) // LARGE_PAGE) * LARGE_PAGE
        self._mapped = mmap.mmap(-1, self.n_bytes + LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        start = int(np.frombuffer(self._mapped, np.uint8).ctypes.data)
        self.address = -(-start // LARGE_PAGE) * LARGE_PAGE
        with suppress(OSError):  # small pages work as well
            self._mapped.madvise(mmap.MADV_HUGEPAGE)
        self._fault_in()

    def free(self) -> None:
        """Release the memory. A second call does nothing."""
        self._mapped.close()

    def _fault_in(self) -> None:
        """Fault in the pages; on older systems they are faulted in when touched."""
        advise = getattr(ctypes.CDLL(None), "madvise", None)
        if advise is None:
            return

        def populate(at: int) -> None:
            n_bytes = min(_PIECE_BYTES, self.address + self.n_bytes - at)
            advise(ctypes.c_void_p(at), ctypes.c_size_t(n_bytes), _POPULATE_WRITE)

        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1), "large-pages") as threads:
            list(threads.map(populate, range(self.address, self.address + self.n_bytes, _PIECE_BYTES)))
