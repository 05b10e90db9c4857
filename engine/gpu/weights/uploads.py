"""Upload rows and arrays to the GPU through pinned memory: CPU threads fill one half while the other is sent.

Rows are uploaded as stored and converted on the GPU (`Gpu.unpack_rows`). Pages that are not in memory are prefetched
some chunks ahead, in one request each, so that a disk reads them in sequence.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import Cancelled
from engine.job import CancelCheck, CountProgress, never
from engine.model.pages import ask_for
from native_kernels.backend import I32, PackedMatrix
from native_kernels.cpu.runtime.call import Call
from native_kernels.cpu.runtime.gather import gather_call
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.cuda.gpu import Gpu, GpuMatrix, HostMemory, Memory
from native_kernels.cuda.runtime.driver import CudaError

U8 = NDArray[np.uint8]

UPLOAD_BYTES = 32 << 20  # of each half
_ROW_MULTIPLE = 16  # alignment of uploaded rows
_PIECE_MULTIPLE = 256
_AHEAD = 4  # chunks prefetched before the one being copied
_SPREAD = 4  # a range up to this many times its needed rows is read as fast in one request as in many


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a host matrix to upload into `to`.

    ids: the rows; None: all. at: GPU address of the target rows i32 [n]; 0: the first rows of `to`.
    """

    source: PackedMatrix
    to: GpuMatrix
    ids: I32 | None = None
    at: int = 0

    @property
    def n_rows(self) -> int:
        return self.source.n_rows if self.ids is None else len(self.ids)

    @property
    def unit(self) -> int:
        """Bytes between uploaded rows."""
        return _up(self.source.row_bytes, _ROW_MULTIPLE)

    @property
    def n_units(self) -> int:
        return self.n_rows


@dataclass(frozen=True, eq=False)
class Numbers:
    """A contiguous host array to upload. to: GPU address."""

    values: NDArray[Any]
    to: int

    unit = 1

    @property
    def n_units(self) -> int:
        return self.values.nbytes


Upload = Rows | Numbers


@dataclass(frozen=True)
class _Piece:
    """Units of a job from `first` on, at `offset` bytes in a half."""

    job: Upload
    first: int
    n_units: int
    offset: int

    @property
    def n_bytes(self) -> int:
        return self.n_units * self.job.unit

    @property
    def last(self) -> int:
        return self.first + self.n_units

    @property
    def row_ids(self) -> I32:
        assert isinstance(self.job, Rows), "numbers have no rows"
        if self.job.ids is None:
            return np.arange(self.first, self.last, dtype=np.int32)
        return self.job.ids[self.first : self.last]


class Uploader:
    """Two halves of pinned memory, and GPU memory as large as one. Use it in one thread at a time."""

    def __init__(self, gpu: Gpu, pool: Pool, half_bytes: int = UPLOAD_BYTES) -> None:
        """pool: copies rows during `run`. Raises: CudaOutOfMemoryError."""
        self._gpu, self._pool, self._half = gpu, pool, _up(half_bytes, _PIECE_MULTIPLE)
        self._memories: list[Memory] = []
        try:
            self._pinned: HostMemory = gpu.pin(2 * self._half)
            self._memories.append(self._pinned)
            self._raw = gpu.allocate(self._half)
            self._memories.append(self._raw)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        jobs: Sequence[Upload],
        progress: CountProgress = lambda n_bytes: None,
        cancelled: CancelCheck = never,
    ) -> None:
        """Run all jobs in order, and wait for them. progress: bytes uploaded so far.

        Raises: CudaError, Cancelled (checked between two halves); some jobs are done then.
        """
        chunks = _prefetched(_chunks(jobs, self._half))
        done, number = 0, 0
        chunk = next(chunks, None)
        if chunk is not None:
            self._fill(chunk, number)
        while chunk is not None:
            if cancelled():
                raise Cancelled
            self._send(chunk, number)
            done += sum(piece.n_bytes for piece in chunk)
            chunk, number = next(chunks, None), 1 - number
            if chunk is not None:
                self._fill(chunk, number)  # while the other half is sent
            self._gpu.synchronize()
            progress(done)

    def close(self) -> None:
        """Release the memory. Idempotent."""
        if self._memories:
            with contextlib.suppress(CudaError):
                self._gpu.synchronize()  # after a failure, an upload may still run
        give_back(self._memories)

    def _fill(self, chunk: list[_Piece], number: int) -> None:
        calls: list[Call] = []
        for piece in chunk:
            at = number * self._half + piece.offset
            if isinstance(piece.job, Numbers):
                values = piece.job.values.reshape(-1).view(np.uint8)
                self._pinned.as_array(np.uint8, piece.n_bytes, at)[:] = values[piece.first : piece.last]
            else:
                ids = np.ascontiguousarray(piece.row_ids, np.int32)
                calls.append(gather_call(piece.job.source, ids, self._pinned.address + at, piece.job.unit, "upload"))
        if calls:
            self._pool.run(Program(calls))

    def _send(self, chunk: list[_Piece], number: int) -> None:
        for piece in chunk:
            source = self._pinned.address + number * self._half + piece.offset
            job = piece.job
            if isinstance(job, Numbers):
                self._gpu.upload(job.to + piece.first, source, piece.n_bytes)
                continue
            raw = self._raw.address + piece.offset
            self._gpu.upload(raw, source, piece.n_bytes)
            rows, first = (job.at + 4 * piece.first, 0) if job.at else (0, piece.first)
            self._gpu.unpack_rows(raw, job.unit, piece.n_units, job.to, job.source.codec, rows, first)


def give_back(memories: list[Memory]) -> None:
    """Free all memories and clear the list. CUDA errors are ignored, because a failed GPU holds no memory."""
    while memories:
        memory = memories.pop()
        with contextlib.suppress(CudaError):
            memory.free()


def half_for(jobs: Sequence[Upload]) -> int:
    """Return the bytes of a half that these jobs need."""
    all_of_it = sum(_up(job.n_units * job.unit, _PIECE_MULTIPLE) for job in jobs)
    widest = max((job.unit for job in jobs), default=0)
    return max(widest, min(UPLOAD_BYTES, all_of_it), _PIECE_MULTIPLE)


def _chunks(jobs: Sequence[Upload], half: int) -> Iterator[list[_Piece]]:
    chunk: list[_Piece] = []
    used = 0
    for job in jobs:
        first = 0
        while first < job.n_units:
            fitting = (half - used) // job.unit
            if not fitting:
                yield chunk
                chunk, used = [], 0
                continue
            piece = _Piece(job, first, min(fitting, job.n_units - first), used)
            chunk.append(piece)
            first += piece.n_units
            used = min(half, _up(used + piece.n_bytes, _PIECE_MULTIPLE))
    if chunk:
        yield chunk


def _prefetched(chunks: Iterator[list[_Piece]]) -> Iterator[list[_Piece]]:
    """Yield the same chunks, after prefetching the pages of later ones."""
    ahead: deque[list[_Piece]] = deque()
    for chunk in chunks:
        for piece in chunk:
            if isinstance(piece.job, Rows):
                ids = piece.row_ids
                first, last = int(ids.min()), int(ids.max()) + 1
                if last - first <= _SPREAD * len(ids):
                    ask_for(piece.job.source, first, last)
        ahead.append(chunk)
        if len(ahead) > _AHEAD:
            yield ahead.popleft()
    yield from ahead


def _up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


__all__ = ["UPLOAD_BYTES", "Numbers", "Rows", "Upload", "Uploader", "give_back", "half_for"]
