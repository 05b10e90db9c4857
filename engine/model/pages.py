"""Tells the system which pages of a mapped file will be read soon, and which, whose contents lie on the GPU now, need
not stay in this process.
"""

from __future__ import annotations

import mmap

import numpy as np

from native_kernels.backend import PackedMatrix

_LET_GO = getattr(mmap, "MADV_DONTNEED", None)  # not everywhere
_ASK_FOR = getattr(mmap, "MADV_WILLNEED", None)


def let_go(matrix: PackedMatrix) -> int:
    """Bytes that this process no longer holds of it; they stay in the system's cache of files, and are read from there
    should they be needed after all. Only of matrices that are views of a file that was mapped to be read: of all others
    nothing happens. Raises nothing."""
    data = matrix.data
    if not data.size or not data.flags.c_contiguous:
        return 0
    return _advise(matrix, _LET_GO, data.ctypes.data, data.nbytes, inside=True)


def ask_for(matrix: PackedMatrix, first: int, last: int) -> int:
    """Bytes that the system was told to read from the disk, of the rows `first` to `last`, where they are not in its
    cache of files; it does so beside whoever goes on. Otherwise as `let_go`."""
    stride = matrix.data.strides[0]
    if not matrix.data.size or stride < 0:
        return 0
    start = matrix.data.ctypes.data + first * stride
    return _advise(matrix, _ASK_FOR, start, (last - first - 1) * stride + matrix.row_bytes, inside=False)


def _advise(matrix: PackedMatrix, advice: int | None, address: int, n_bytes: int, inside: bool) -> int:
    """Bytes of whole pages for which the system took the advice: of those inside so many bytes from the address on, or
    of all that they touch."""
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
    """The file's mapping that the matrix is a view of; None where it is memory of its own, or could be written."""
    at: object = matrix.data
    while at is not None and not isinstance(at, mmap.mmap):
        if isinstance(at, np.ndarray) and at.flags.writeable:
            return None
        at = getattr(at, "base", None)  # what NumPy puts below rows that lie apart is no array, but has a base too
    return at
