"""Tells the system that pages of a mapped file, whose contents lie on the card now, need not stay in this process."""

from __future__ import annotations

import mmap

import numpy as np

from native_kernels.backend import PackedMatrix

_ADVICE = getattr(mmap, "MADV_DONTNEED", None)  # not everywhere


def let_go(matrix: PackedMatrix) -> int:
    """Bytes that this process no longer holds of it; they stay in the system's cache of files, and are read from there
    should they be needed after all. Only of matrices that are views of a file that was mapped to be read: of all others
    nothing happens. Raises nothing."""
    mapped = _mapping_of(matrix)
    data = matrix.data
    if mapped is None or _ADVICE is None or not data.size or not data.flags.c_contiguous:
        return 0
    whole = np.frombuffer(mapped, np.uint8)
    start = data.ctypes.data - whole.ctypes.data
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (start + data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if not 0 <= start <= start + data.nbytes <= len(whole) or last <= first:
        return 0
    try:
        mapped.madvise(_ADVICE, first, last - first)
    except (OSError, ValueError):
        return 0
    return last - first


def _mapping_of(matrix: PackedMatrix) -> mmap.mmap | None:
    """The file's mapping that the matrix is a view of; None where it is memory of its own, or could be written."""
    at: object = matrix.data
    while isinstance(at, np.ndarray):
        if at.flags.writeable:
            return None
        at = at.base
    return at if isinstance(at, mmap.mmap) else None
