"""Brings the neurons that are not on the GPU to it, piece by piece, while it computes; what it does with them it
does not know.

A piece is some neurons' rows of gate, up and down as the file or bundle stores them. Where the GPU reads the weights
in place (pinned_weights.py) it gathers them itself, and nothing is copied in RAM. Elsewhere all threads gather
them into a pinned buffer, which is sent; of a down that lies row-wise a piece is the neurons' columns.

A thread of its own fills buffers and sends each on its way as soon as it is full. Between two of them the CPU's
threads and the bus wait for Python: what copies a piece is laid out once for each buffer and only told what to copy.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from engine.model.weights import FfnWeights
from native_kernels.backend import F32, I32, PackedMatrix
from native_kernels.codecs import ROW_CODECS
from native_kernels.cpu.runtime.call import address
from native_kernels.cpu.runtime.gather import Gathering
from native_kernels.cpu.runtime.pool import Pool, Program
from native_kernels.cuda.prefill_ops import HostRows, StoredMatrix
from native_kernels.cuda.runtime.upload_ring import Buffer, UploadRing

_ALIGNMENT = 256
_WHOLE_BLOCKS = 256  # columns: a part of a row-wise down is whole blocks of any codec


@dataclass(frozen=True)
class ColdPiece:
    """Some neurons on the GPU: gate, up [n, D]; down_t [n, D], or down [D, n]. ids: i32 [n], which they are."""

    n: int
    gate: StoredMatrix | None
    up: StoredMatrix
    down_t: StoredMatrix | None
    down: StoredMatrix | None
    gate_bias: int
    up_bias: int
    ids: int


def neuron_bytes(w: FfnWeights) -> int:
    """What one neuron takes in a buffer, with its biases and its number."""
    down = 0 if w.down is None else -(-w.down.n_rows * w.down.row_bytes // w.down.n_cols)
    return sum(_step(matrix) for _, matrix in _matrices(w)) + down + 12


def piece_bytes(w: FfnWeights, n: int) -> int:
    """What a piece of n neurons takes in a buffer, with what is left free between its parts."""
    gaps = 8 * _ALIGNMENT + (16 * w.down.n_rows if w.down is not None else 0)
    return n * neuron_bytes(w) + gaps


def least_bytes(w: FfnWeights) -> int:
    """What the smallest piece takes in a buffer."""
    return piece_bytes(w, 1 if w.down is None else min(_WHOLE_BLOCKS, w.up.n_rows))


class Gathers(Protocol):
    """What has the GPU gather rows: native_kernels.cuda.prefill_ops.GpuPrefillOps."""

    def gather(self, rows: Sequence[HostRows], ids: int, n: int) -> None: ...


class ZeroCopy(Protocol):
    """What of the host's memory the GPU reads in place: engine.gpu.prefill.pinned_weights.PinnedWeights."""

    def find(self, address: int, n_bytes: int) -> int | None:
        """The GPU's name for bytes of the host, where it reads all of them."""


@dataclass(frozen=True)
class Rates:
    """Bytes a second: of filling buffers while nothing else runs, and of pinned memory to the GPU."""

    filling: float
    bus: float


class ColdStream:
    """Threads of its own fill buffers ahead of who uses them, as many as the ring has.

    gathered, filled: pieces since `begin` that the GPU gathered, and that the pool's threads did.
    """

    def __init__(
        self, ring: UploadRing, pool: Pool, ops: Gathers | None = None, zero_copy: ZeroCopy | None = None
    ) -> None:
        """ops, zero_copy: with both the GPU gathers what it can. What `zero_copy` finds is valid until the end."""
        self._ring, self._pool, self._ops = ring, pool, ops
        self._zero_copy = None if ops is None else zero_copy
        self.gathered = self.filled = 0
        self._filler = ThreadPoolExecutor(1, "cold-neurons", ring.enter)
        self._loads: dict[int, _Load] = {}  # one for each buffer of the ring, which keeps them
        self._planned: Iterator[tuple[int, _Source, I32]] = iter(())
        self._ahead: deque[tuple[int, Future[_Load]]] = deque()

    def piece_neurons(self, w: FfnWeights, most: int) -> int:
        """How many neurons of the layer a piece may have."""
        n = min(most, max(1, (self._ring.n_bytes - piece_bytes(w, 0)) // neuron_bytes(w)))
        if w.down is not None and n < w.up.n_rows:
            n = n // _WHOLE_BLOCKS * _WHOLE_BLOCKS
        if n < 1 or piece_bytes(w, n) > self._ring.n_bytes:
            raise ValueError(f"a buffer of {self._ring.n_bytes} bytes is too small for neurons of {neuron_bytes(w)}")
        return n

    def begin(self, layers: Sequence[tuple[int, FfnWeights, I32]], most: int) -> None:
        """What is to come: (layer, its weights, ids) in the order in which `pieces` will ask for them, in pieces of up
        to `most` neurons. ids ascend; where down lies row-wise they are all of the layer's."""
        self.stop()
        self.gathered = self.filled = 0
        self._planned = self._cut(layers, most, self._zero_copy)
        for _ in range(self._ring.n_buffers):
            self._fill_next()

    def pieces(self, layer: int) -> Iterator[ColdPiece]:
        """The layer's neurons that `begin` was told of. What is asked of the GPU before the next piece is taken is the
        last that may read this one. Raises: what went wrong in filling."""
        while self._ahead and self._ahead[0][0] == layer:
            load = self._ahead.popleft()[1].result()
            self._ring.use(load.buffer)
            yield load.piece
            self._ring.release(load.buffer)
            self._fill_next()

    def stop(self) -> None:
        """Forgets what was to come; nothing is being filled then."""
        self._planned = iter(())
        while self._ahead:
            filling = self._ahead.popleft()[1]
            if not filling.cancel():
                filling.exception()

    def close(self) -> None:
        """Ends the thread."""
        self.stop()
        self._filler.shutdown()

    def measure(self, layers: Sequence[tuple[int, FfnWeights, I32]], most: int, n_bytes: int = 4 << 30) -> Rates | None:
        """How fast pieces of these layers, as `begin` has them, are filled and sent: each by itself, over the first
        n_bytes, whether or not the GPU could gather them. None where there are none. The calling thread must have
        entered the GPU."""
        self.stop()
        pieces, wanted = [], 0
        for _, source, ids in self._cut(layers, most):
            pieces.append((source, ids))
            wanted += len(ids) * neuron_bytes(source.w)
            if wanted >= n_bytes:
                break
        if not pieces:
            return None
        sent: list[tuple[_Load, int]] = []
        began = time.perf_counter()
        for source, ids in pieces:
            load = self._load_of(self._ring.next())
            load.set(source, ids)
            self._ring.wait_for(load.buffer)
            load.copy_numbers()
            self._pool.run(load.program)
            sent.append((load, load.used))
        filling = wanted / (time.perf_counter() - began)
        began = time.perf_counter()
        for load, used in sent:
            self._ring.send(load.buffer, used)
        for load, _ in sent[-self._ring.n_buffers :]:
            self._ring.wait_for(load.buffer)
        return Rates(filling, wanted / (time.perf_counter() - began))

    def _cut(
        self, layers: Sequence[tuple[int, FfnWeights, I32]], most: int, zero_copy: ZeroCopy | None = None
    ) -> Iterator[tuple[int, _Source, I32]]:
        """Pieces of every layer, as even as may be."""
        for layer, w, ids in layers:
            n, source, ids = self.piece_neurons(w, most), _Source(w, zero_copy), np.ascontiguousarray(ids, np.int32)
            if w.down is None:
                n = -(-len(ids) // -(-len(ids) // n))
            for start in range(0, len(ids), n):
                yield layer, source, ids[start : start + n]

    def _fill_next(self) -> None:
        """A buffer's turn comes again when it was released: with as many ahead as there are buffers never too early."""
        for layer, source, ids in self._planned:
            load = self._load_of(self._ring.next())
            self._ahead.append((layer, self._filler.submit(self._filled, load, source, ids)))
            return

    def _load_of(self, buffer: Buffer) -> _Load:
        if id(buffer) not in self._loads:
            self._loads[id(buffer)] = _Load(buffer)
        return self._loads[id(buffer)]

    def _filled(self, load: _Load, source: _Source, ids: I32) -> _Load:
        load.set(source, ids)
        self._ring.wait_for(load.buffer)
        load.copy_numbers()
        if self._ops is not None and load.gathered:
            ops, rows, piece = self._ops, load.gathered, load.piece
            self._ring.send(load.buffer, load.used, load.numbers, lambda: ops.gather(rows, piece.ids, piece.n))
            self.gathered += 1
        else:
            self._pool.run(load.program)
            self._ring.send(load.buffer, load.used)
            self.filled += 1
        return load


class _Source:
    """A layer's feed-forward part, and where its matrices lie: name, matrix, address, bytes from row to row.

    zero_copy: the GPU's names for those addresses where it reads all of the matrices in place, else none.
    """

    def __init__(self, w: FfnWeights, zero_copy: ZeroCopy | None = None) -> None:
        self.w = w
        self.matrices = [(name, matrix, *_place_of(matrix)) for name, matrix in _matrices(w)]
        self.down = None if w.down is None else (w.down, *_place_of(w.down))
        self.everything = np.arange(0 if w.down is None else w.down.n_rows, dtype=np.int32)
        self.zero_copy: list[int] = []
        if zero_copy is not None and w.down is None:
            sizes = ((at, stride * (matrix.n_rows - 1) + matrix.row_bytes) for _, matrix, at, stride in self.matrices)
            found = [zero_copy.find(at, n_bytes) for at, n_bytes in sizes]
            self.zero_copy = [at for at in found if at is not None]
            if len(self.zero_copy) < len(found):
                self.zero_copy = []


_NAMES = ("gate", "up", "down_t", "down")


class _Load:
    """What goes into one buffer. program: fills it with the matrices' rows that `set` said; gathered: those instead
    that the GPU is to gather. used: bytes of the buffer, of them from `numbers` on ids and biases. piece: where all
    of it is once it was sent."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer, self.used, self.numbers = buffer, 0, 0
        self._parts = {name: Gathering() for name in _NAMES}
        self.program = Program([part.call for part in self._parts.values()])
        self.gathered: list[HostRows] = []
        self._source: _Source | None = None  # what is copied stays alive
        self._numbers: list[tuple[int, I32 | F32]] = []
        self.piece: ColdPiece

    def set(self, source: _Source, ids: I32) -> None:
        """These neurons of the layer."""
        self.used, self._source, self._numbers, self.gathered = 0, source, [], []
        for part in self._parts.values():
            part.clear()
        n, w, ids_at = len(ids), source.w, address(ids)
        found: dict[str, StoredMatrix] = {}
        for i, (name, matrix, at, stride) in enumerate(source.matrices):
            step = _step(matrix)
            to = self._take(n * step)
            if source.zero_copy:
                self.gathered.append(HostRows(source.zero_copy[i], stride, matrix.row_bytes, self._gpu(to), step))
            else:
                self._parts[name].set(ids_at, n, at, matrix.row_bytes, stride, self._host(to), step)
            found[name] = StoredMatrix(n, matrix.n_cols, matrix.codec, self._gpu(to), step)
        if source.down is not None:  # the neurons' part of every row; the ids follow each other
            matrix, at, stride = source.down
            codec = ROW_CODECS[matrix.codec]
            n_bytes = codec.n_bytes(n)
            step = _even(n_bytes)
            to = self._take(matrix.n_rows * step)
            at += codec.n_bytes(int(ids[0]))
            everything = address(source.everything)
            self._parts["down"].set(everything, matrix.n_rows, at, n_bytes, stride, self._host(to), step)
            found["down"] = StoredMatrix(matrix.n_rows, n, matrix.codec, self._gpu(to), step)
        self.numbers = self.used
        ids_on_gpu = self._number(ids)
        gate_bias, up_bias = (0 if bias is None else self._number(bias[ids]) for bias in (w.gate_bias, w.up_bias))
        self.piece = ColdPiece(
            n, found.get("gate"), found["up"], found.get("down_t"), found.get("down"), gate_bias, up_bias, ids_on_gpu
        )

    def copy_numbers(self) -> None:
        """Ids and biases into the pinned buffer: a few bytes a neuron."""
        for to, values in self._numbers:
            ctypes.memmove(self._host(to), address(values), values.nbytes)

    def _number(self, values: I32 | F32) -> int:
        """Room for 32 bits of each neuron; where they will be on the GPU."""
        to = self._take(values.nbytes)
        self._numbers.append((to, values))
        return self._gpu(to)

    def _take(self, n_bytes: int) -> int:
        """Where so many bytes go, from the beginning of the buffer on."""
        to, self.used = self.used, _even(self.used + n_bytes, _ALIGNMENT)
        assert self.used <= self.buffer.host.n_bytes, "pieces are cut to fit"
        return to

    def _host(self, offset: int) -> int:
        return self.buffer.host.address + offset

    def _gpu(self, offset: int) -> int:
        return self.buffer.gpu.address + offset


def _place_of(w: PackedMatrix) -> tuple[int, int]:
    """Where a matrix lies, and the bytes from one row to the next."""
    return address(w.data), w.data.strides[0] if w.n_rows > 1 else w.row_bytes


def _matrices(w: FfnWeights) -> list[tuple[str, PackedMatrix]]:
    """Those of which a neuron is a row."""
    named = (("gate", w.gate), ("up", w.up), ("down_t", w.down_t))
    return [(name, matrix) for name, matrix in named if matrix is not None]


def _step(w: PackedMatrix) -> int:
    """From one row to the next in a buffer."""
    return _even(w.row_bytes)


def _even(n_bytes: int, to: int = 16) -> int:
    return -(-n_bytes // to) * to
