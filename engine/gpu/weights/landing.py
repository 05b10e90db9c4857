"""Moves rows and numbers of the host to the GPU: the kernels' threads copy them into pinned memory, one half of it
while the other one travels. Rows land as their file has them and are laid out there (`Gpu.unpack_rows`).

Pages of a file that are not in memory yet are asked for some chunks before they are copied, in one piece each, so that
a disk reads them one after another. It knows nothing of models: what goes where is engine/gpu/weights/loading.py's.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from engine.errors import Cancelled
from engine.job import never
from engine.model.pages import ask_for
from native_kernels.backend import I32, PackedMatrix
from native_kernels.cpu.runtime.call import Call
from native_kernels.cpu.runtime.gather import gather_call
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.cuda.gpu import Gpu, GpuMatrix, HostMemory, Memory
from native_kernels.cuda.runtime.driver import CudaError

U8 = NDArray[np.uint8]

LANDING_BYTES = 32 << 20  # of each half
_ROW_MULTIPLE = 16  # rows land on multiples of it
_PIECE_MULTIPLE = 256
_AHEAD = 4  # chunks whose pages are asked for before the one that is copied
_SPREAD = 4  # times the bytes of its rows: what a disk reads as fast in one piece as in many


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a matrix of the host. ids: which of its rows, None for all; to: where they go, the first rows of it, or
    the rows i32 [n] that lie on the GPU at the address `at`."""

    source: PackedMatrix
    to: GpuMatrix
    ids: I32 | None = None
    at: int = 0

    @property
    def n_rows(self) -> int:
        return self.source.n_rows if self.ids is None else len(self.ids)

    @property
    def unit(self) -> int:
        """Bytes from one row to the next where they land."""
        return _up(self.source.row_bytes, _ROW_MULTIPLE)

    @property
    def n_units(self) -> int:
        return self.n_rows


@dataclass(frozen=True, eq=False)
class Numbers:
    """Any array of the host, one piece, and the address that it goes to."""

    values: NDArray[Any]
    to: int

    unit = 1

    @property
    def n_units(self) -> int:
        return self.values.nbytes


Upload = Rows | Numbers


@dataclass(frozen=True)
class _Piece:
    """Units of a job from `first` on, `offset` bytes behind the beginning of a half."""

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
        """Which rows of its matrix, of a piece of Rows."""
        assert isinstance(self.job, Rows), "numbers have no rows"
        if self.job.ids is None:
            return np.arange(self.first, self.last, dtype=np.int32)
        return self.job.ids[self.first : self.last]


class Landing:
    """Pinned memory of two halves, and as much of the GPU as one of them. It belongs to one thread at a time."""

    def __init__(self, gpu: Gpu, pool: Pool, half_bytes: int = LANDING_BYTES) -> None:
        """pool: its threads copy, while `run` runs. Raises: CudaOutOfMemoryError."""
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
        progress: Callable[[int], None] = lambda n_bytes: None,
        cancelled: Callable[[], bool] = never,
    ) -> None:
        """All jobs in their order; what they move is there when this returns. progress: bytes landed so far.

        Raises: CudaError, Cancelled between two halves; some of it is there then.
        """
        chunks = _asked_for(_chunks(jobs, self._half))
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
                self._fill(chunk, number)  # while the other half travels
            self._gpu.synchronize()
            progress(done)

    def close(self) -> None:
        """Gives the memory back. A second time does nothing."""
        if self._memories:
            with contextlib.suppress(CudaError):
                self._gpu.synchronize()  # where something failed, some of it may still be on its way
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
                calls.append(gather_call(piece.job.source, ids, self._pinned.address + at, piece.job.unit, "landing"))
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
    """Frees them all and forgets them. A GPU that has failed has nothing left to give: that is no error here."""
    while memories:
        memory = memories.pop()
        with contextlib.suppress(CudaError):
            memory.free()


def half_for(jobs: Sequence[Upload]) -> int:
    """How large a half of the landing need be for these jobs."""
    all_of_it = sum(_up(job.n_units * job.unit, _PIECE_MULTIPLE) for job in jobs)
    widest = max((job.unit for job in jobs), default=0)
    return max(widest, min(LANDING_BYTES, all_of_it), _PIECE_MULTIPLE)


def _chunks(jobs: Sequence[Upload], half: int) -> Iterator[list[_Piece]]:
    """Pieces that land together."""
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


def _asked_for(chunks: Iterator[list[_Piece]]) -> Iterator[list[_Piece]]:
    """The same; the pages of what comes later have been asked for."""
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


__all__ = ["LANDING_BYTES", "Landing", "Numbers", "Rows", "Upload", "give_back", "half_for"]
