"""Advise the system on pages of mapped files: prefetch those needed soon, release those uploaded to the GPU."""

from __future__ import annotations

import mmap

import numpy as np

from native_kernels.backend import PackedMatrix

_LET_GO = getattr(mmap, "MADV_DONTNEED", None)  # not on every system
_ASK_FOR = getattr(mmap, "MADV_WILLNEED", None)


def let_go(matrix: PackedMatrix) -> int:
    """Release the matrix's pages from this process and return their bytes.

    They stay in the system's file cache. Affects only views of read-only mapped files. Never raises.
    """
    data = matrix.data
    if not data.size or not data.flags.c_contiguous:
        return 0
    return _advise(matrix, _LET_GO, data.ctypes.data, data.nbytes, inside=True)


def ask_for(matrix: PackedMatrix, first: int, last: int) -> int:
    """Ask the system to read rows `first` to `last` from disk in the background, and return their bytes.

    Affects only views of read-only mapped files. Never raises.
    """
    stride = matrix.data.strides[0]
    if not matrix.data.size or stride < 0:
        return 0
    start = matrix.data.ctypes.data + first * stride
    return _advise(matrix, _ASK_FOR, start, (last - first - 1) * stride + matrix.row_bytes, inside=False)


def _advise(matrix: PackedMatrix, advice: int | None, address: int, n_bytes: int, inside: bool) -> int:
    """Return the bytes of whole pages for which the system took the advice.

    inside: only pages inside the range, not all that it touches.
    """
    mapped = mapping_of(matrix)
    if mapped is None or advice is None:
        return 0
    whole = np.frombuffer(mapped, np.uint8)
    start, page = address - whole.ctypes.data, mmap.PAGESIZE
    if not 0 <= start <= start + n_bytes <= len(whole):
        return 0
    first = (-(-start // page) if inside else start // page) * page
    last = (start + n_bytes) // page * page if inside else start + n_bytes
    if last <= first:
        return 0
    try:
        mapped.madvise(advice, first, last - first)
    except (OSError, ValueError):
        return 0
    return last - first


def mapping_of(matrix: PackedMatrix) -> mmap.mmap | None:
    """Return the file mapping behind the matrix; None if it has its own memory or is writable."""
    at: object = matrix.data
    while at is not None and not isinstance(at, mmap.mmap):
        if isinstance(at, np.ndarray) and at.flags.writeable:
            return None
        at = getattr(at, "base", None)  # NumPy's wrapper for strided rows is not an array but has a base
    return at
