"""Brings the neurons that are not on the GPU to it, piece by piece, while it computes; what it does with them it
does not know.

A piece is some neurons' rows of gate, up and down as the file or bundle stores them; of a down that lies row-wise it is
the neurons' columns. Other matrices come in tiles of rows. Where the GPU reads the weights in place
(pinned_weights.py) it gathers them itself, and nothing is copied in RAM. Elsewhere all threads gather them into a
pinned buffer, which is sent.

A thread of its own fills buffers and sends each on its way as soon as it is full. Between two of them the CPU's
threads and the bus wait for Python: what copies a piece is laid out once for each buffer and only told what to copy.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

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
_SIDE = 128  # rows: a tile of a matrix that is cut is whole blocks of a product
_MOST_PARTS = 4  # copies of rows into one buffer


@dataclass(frozen=True)
class Neurons:
    """Some neurons of an FFN to stream. ids ascend; where down lies row-wise they follow each other."""

    w: FfnWeights
    ids: I32


@dataclass(frozen=True)
class Matrices:
    """Whole matrices to stream, by name."""

    named: tuple[tuple[str, PackedMatrix], ...]


@dataclass(frozen=True)
class Experts:
    """Whole experts to stream, all of one shape."""

    blocks: tuple[FfnWeights, ...]


Wanted = Neurons | Matrices | Experts
Key = tuple[int, str]  # a layer, and what of it


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


@dataclass(frozen=True)
class ColdRows:
    """Rows of the matrix `name` on the GPU, from row `first` of it on."""

    name: str
    first: int
    matrix: StoredMatrix


@dataclass(frozen=True)
class ColdExperts:
    """n experts on the GPU, from the number `first` of those that were asked for on.

    gate, up [n F, D]; down [n D, F], or [n F, D] by neuron. Biases f32 [n, F], down's [n, D]; 0: none.
    """

    first: int
    n: int
    gate: StoredMatrix | None
    up: StoredMatrix
    down: StoredMatrix
    down_is_transposed: bool
    gate_bias: int
    up_bias: int
    down_bias: int


def expert_bytes(w: FfnWeights) -> int:
    """Return what an expert takes in a buffer, with its biases."""
    biases = sum(bias.nbytes for bias in (w.gate_bias, w.up_bias, w.down_bias) if bias is not None)
    return sum(one.n_rows * _step(one) for one in w.matrices) + biases


def experts_bytes(w: FfnWeights, n: int) -> int:
    """Return what n experts take in a buffer, with the gaps between their parts."""
    return n * expert_bytes(w) + 6 * _ALIGNMENT


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
        self._planned: Iterator[_Planned] = iter(())
        self._ahead: deque[tuple[Key, Future[_Load]]] = deque()
        self._addresses: dict[FfnWeights, list[int]] = {}  # of experts' matrices: to find them takes longest

    def piece_neurons(self, w: FfnWeights, most: int) -> int:
        """How many neurons of the layer a piece may have."""
        n = min(most, max(1, (self._ring.n_bytes - piece_bytes(w, 0)) // neuron_bytes(w)))
        if w.down is not None and n < w.up.n_rows:
            n = n // _WHOLE_BLOCKS * _WHOLE_BLOCKS
        if n < 1 or piece_bytes(w, n) > self._ring.n_bytes:
            raise ValueError(f"a buffer of {self._ring.n_bytes} bytes is too small for neurons of {neuron_bytes(w)}")
        return n

    def begin(self, wanted: Sequence[tuple[Key, Wanted]], most: int) -> None:
        """What is to come, in the order in which `pieces` and `rows` will ask for it; neurons in pieces of up to
        `most`."""
        self.stop()
        self.gathered = self.filled = 0
        self._planned = self._cut(wanted, most, self._zero_copy)
        for _ in range(self._ring.n_buffers):
            self._fill_next()

    def pieces(self, key: Key) -> Iterator[ColdPiece]:
        """The neurons that `begin` was told of. What is asked of the GPU before the next piece is taken is the last
        that may read this one. Raises: what went wrong in filling."""
        for load in self._loads_of(key):
            assert load.piece is not None, "these are neurons"
            yield load.piece

    def rows(self, key: Key) -> Iterator[ColdRows]:
        """The rows of the matrices that `begin` was told of, as `pieces` has neurons."""
        for load in self._loads_of(key):
            yield from load.rows

    def experts(self, key: Key) -> Iterator[ColdExperts]:
        """The experts that `begin` was told of, as `pieces` has neurons."""
        for load in self._loads_of(key):
            assert load.experts is not None, "these are experts"
            yield load.experts

    def _loads_of(self, key: Key) -> Iterator[_Load]:
        while self._ahead and self._ahead[0][0] == key:
            load = self._ahead.popleft()[1].result()
            self._ring.use(load.buffer)
            yield load
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

    def measure(self, wanted: Sequence[tuple[Key, Wanted]], most: int, n_bytes: int = 4 << 30) -> Rates | None:
        """How fast pieces of these, as `begin` has them, are filled and sent: each by itself, over the first n_bytes,
        whether or not the GPU could gather them. None where there are none. The calling thread must have entered the
        GPU."""
        self.stop()
        sent: list[tuple[_Load, int]] = []
        copied, began = 0, time.perf_counter()
        for _, source, tile in self._cut(wanted, most):
            load = self._load_of(self._ring.next())
            source.set(load, tile)
            self._ring.wait_for(load.buffer)
            load.copy_numbers()
            self._pool.run(load.program)
            sent.append((load, load.used))
            copied += load.used
            if copied >= n_bytes:
                break
        if not sent:
            return None
        filling = copied / (time.perf_counter() - began)
        began = time.perf_counter()
        for load, used in sent:
            self._ring.send(load.buffer, used)
        for load, _ in sent[-self._ring.n_buffers :]:
            self._ring.wait_for(load.buffer)
        return Rates(filling, copied / (time.perf_counter() - began))

    def _cut(
        self, wanted: Sequence[tuple[Key, Wanted]], most: int, zero_copy: ZeroCopy | None = None
    ) -> Iterator[_Planned]:
        for key, one in wanted:
            if isinstance(one, Matrices):
                rows = _Rows(one, zero_copy)
                for parts in rows.cut(self._ring.n_bytes):
                    yield key, rows, parts
                continue
            if isinstance(one, Experts):
                experts = _Experts(one, zero_copy, self._addresses)
                for some in experts.cut(self._ring.n_bytes):
                    yield key, experts, some
                continue
            neurons = _Neurons(one.w, zero_copy)
            for ids in neurons.cut(one.ids, self.piece_neurons(one.w, most)):
                yield key, neurons, ids

    def _fill_next(self) -> None:
        """A buffer's turn comes again when it was released: with as many ahead as there are buffers never too early."""
        for key, source, tile in self._planned:
            load = self._load_of(self._ring.next())
            self._ahead.append((key, self._filler.submit(self._filled, load, source, tile)))
            return

    def _load_of(self, buffer: Buffer) -> _Load:
        if id(buffer) not in self._loads:
            self._loads[id(buffer)] = _Load(buffer)
        return self._loads[id(buffer)]

    def _filled(self, load: _Load, source: _Source, tile: Any) -> _Load:
        source.set(load, tile)
        self._ring.wait_for(load.buffer)
        load.copy_numbers()
        if self._ops is not None and load.gathered:
            ops, gathered = self._ops, load.gathered

            def gather() -> None:
                for rows, ids, n in gathered:
                    ops.gather(rows, ids, n)

            self._ring.send(load.buffer, load.used, load.numbers, gather)
            self.gathered += 1
        else:
            self._pool.run(load.program)
            self._ring.send(load.buffer, load.used)
            self.filled += 1
        return load


class _Place:
    """Where a matrix lies. stride: bytes from row to row; reached: the GPU's address of it, None where the GPU does not
    read all of it in place."""

    def __init__(self, matrix: PackedMatrix, zero_copy: ZeroCopy | None) -> None:
        self.matrix, self.address = matrix, address(matrix.data)
        self.stride = matrix.data.strides[0] if matrix.n_rows > 1 else matrix.row_bytes
        n_bytes = self.stride * (matrix.n_rows - 1) + matrix.row_bytes
        self.reached = None if zero_copy is None else zero_copy.find(self.address, n_bytes)


def _where_all_is_reached(places: Iterable[_Place]) -> None:
    """One buffer is filled in one way."""
    places = list(places)
    if any(one.reached is None for one in places):
        for one in places:
            one.reached = None


_ANY_ROWS = np.arange(1 << 17, dtype=np.int32)  # rows that follow each other


class _Neurons:
    """A layer's feed-forward part and where its matrices lie."""

    def __init__(self, w: FfnWeights, zero_copy: ZeroCopy | None) -> None:
        self.w = w
        self.places = {name: _Place(matrix, zero_copy) for name, matrix in _matrices(w)}
        self.down = None if w.down is None else _Place(w.down, zero_copy)
        _where_all_is_reached([*self.places.values(), *([] if self.down is None else [self.down])])

    def cut(self, ids: I32, n: int) -> Iterator[I32]:
        """Pieces of up to n, as even as may be."""
        ids = np.ascontiguousarray(ids, np.int32)
        if self.w.down is None and len(ids):
            n = -(-len(ids) // -(-len(ids) // n))
        for start in range(0, len(ids), n):
            yield ids[start : start + n]

    def set(self, load: _Load, ids: I32) -> None:
        """Has the buffer take these neurons."""
        load.clear(self)
        n, w = len(ids), self.w
        found = {name: load.take_rows(place, ids) for name, place in self.places.items()}
        if self.down is not None:  # the neurons' part of every row; the ids follow each other
            codec = ROW_CODECS[self.down.matrix.codec]
            found["down"] = load.take_columns(self.down, codec.n_bytes(int(ids[0])), n, codec.n_bytes(n))
        ids_at = load.take_numbers(ids)
        gate_bias, up_bias = (0 if bias is None else load.take_numbers(bias[ids]) for bias in (w.gate_bias, w.up_bias))
        load.gather(ids_at, n)
        load.piece = ColdPiece(
            n, found.get("gate"), found["up"], found.get("down_t"), found.get("down"), gate_bias, up_bias, ids_at
        )


class _Rows:
    """Matrices of which all rows are streamed, and where they lie."""

    def __init__(self, wanted: Matrices, zero_copy: ZeroCopy | None) -> None:
        self.places = [(name, _Place(matrix, zero_copy)) for name, matrix in wanted.named]
        _where_all_is_reached(place for _, place in self.places)

    def cut(self, n_bytes: int) -> Iterator[list[tuple[str, _Place, int, int]]]:
        """Rows that go into a buffer of so many bytes: of which matrix, from which row on, how many."""
        parts: list[tuple[str, _Place, int, int]] = []
        used = 0
        for name, place in self.places:
            step, first = _step(place.matrix), 0
            while first < place.matrix.n_rows:
                left = place.matrix.n_rows - first
                n = min(left, (n_bytes - used) // step, len(_ANY_ROWS))
                n = n if n == left else n // _SIDE * _SIDE or (0 if parts else n)
                if n == 0 or len(parts) == _MOST_PARTS:
                    if not parts:
                        raise ValueError(f"a buffer of {n_bytes} bytes is too small for rows of {step}")
                    yield parts
                    parts, used = [], 0
                    continue
                parts.append((name, place, first, n))
                used, first = _even(used + n * step, _ALIGNMENT), first + n
        if parts:
            yield parts

    def set(self, load: _Load, parts: Sequence[tuple[str, _Place, int, int]]) -> None:
        """Has the buffer take these rows."""
        load.clear(self)
        for name, place, first, n in parts:
            load.rows.append(ColdRows(name, first, load.take_run(place, first, n)))
        load.numbers = load.used


class _Experts:
    """Experts and where their matrices lie. Those that follow each other in memory are copied at once."""

    def __init__(self, wanted: Experts, zero_copy: ZeroCopy | None, addresses: dict[FfnWeights, list[int]]) -> None:
        self.blocks, self._zero_copy, self._addresses = wanted.blocks, zero_copy, addresses

    def cut(self, n_bytes: int) -> Iterator[tuple[int, int]]:
        """The first and the number of those that go into a buffer of so many bytes, as even as may be."""
        total, one = len(self.blocks), expert_bytes(self.blocks[0])
        most = (n_bytes - experts_bytes(self.blocks[0], 0)) // one
        if most < 1:
            raise ValueError(f"a buffer of {n_bytes} bytes is too small for experts of {one}")
        n = -(-total // -(-total // most))
        for first in range(0, total, n):
            yield first, min(n, total - first)

    def set(self, load: _Load, some: tuple[int, int]) -> None:
        """Has the buffer take these experts."""
        first, n = some
        load.clear(self)
        blocks = self.blocks[first : first + n]
        stacks = [self._runs(blocks, which) for which in range(len(blocks[0].matrices))]
        reached = [[self._reached(matrix, *run) for run in runs] for matrix, runs in stacks]
        in_place = all(at is not None for some in reached for at in some)
        found = {}
        for (name, _), (matrix, runs), some_reached in zip(_named(blocks[0]), stacks, reached, strict=True):
            found[name] = load.take_stack(matrix, runs, some_reached if in_place else None)
        load.numbers = load.used
        biases = {}
        for name in ("gate_bias", "up_bias", "down_bias"):
            values = [value for block in blocks if (value := getattr(block, name)) is not None]
            biases[name] = load.take_numbers(np.concatenate(values)) if values else 0
        by_neuron = "down_t" in found
        down = found["down_t" if by_neuron else "down"]
        load.experts = ColdExperts(first, n, found.get("gate"), found["up"], down, by_neuron, **biases)

    def _runs(self, blocks: Sequence[FfnWeights], which: int) -> tuple[PackedMatrix, list[tuple[int, int]]]:
        """One of the first expert's matrices, and where the rows of all experts' are: addresses and how many."""
        matrix, runs = blocks[0].matrices[which], list[tuple[int, int]]()
        stride = matrix.data.strides[0]
        for block in blocks:
            if block not in self._addresses:
                self._addresses[block] = [address(one.data) for one in block.matrices]
            at, n = self._addresses[block][which], matrix.n_rows
            if runs and runs[-1][0] + stride * runs[-1][1] == at and runs[-1][1] + n <= len(_ANY_ROWS):
                at, before = runs.pop()
                n += before
            runs.append((at, n))
        return matrix, runs

    def _reached(self, matrix: PackedMatrix, at: int, n: int) -> int | None:
        n_bytes = matrix.data.strides[0] * (n - 1) + matrix.row_bytes
        return None if self._zero_copy is None else self._zero_copy.find(at, n_bytes)


_Source = _Neurons | _Rows | _Experts
_Planned = tuple[Key, _Source, Any]


class _Load:
    """What goes into one buffer. program: fills it with the rows that were taken; gathered: of what the GPU gathers
    instead the rows, the address of their numbers (0: from the first on) and how many. used: bytes of the buffer, of
    them from `numbers` on ids and biases. piece, rows, experts: where all of it is once it was sent."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer, self.used, self.numbers = buffer, 0, 0
        self._copies = [Gathering() for _ in range(_MOST_PARTS)]
        self.program = Program([copy.call for copy in self._copies])
        self.piece: ColdPiece | None = None
        self.rows: list[ColdRows] = []
        self.experts: ColdExperts | None = None
        self.clear(None)

    def clear(self, source: _Source | None) -> None:
        """Nothing is taken. source: what is copied stays alive."""
        self.used, self.numbers, self._source, self._n_copies = 0, 0, source, 0
        self.gathered: list[tuple[list[HostRows], int, int]] = []
        self._listed: list[HostRows] = []  # to be gathered by ids
        self._numbers: list[tuple[int, I32 | F32]] = []
        self.piece, self.rows, self.experts = None, [], None
        for copy in self._copies:
            copy.clear()

    def take_rows(self, place: _Place, ids: I32) -> StoredMatrix:
        """Rows by their numbers; `gather` says where these are on the GPU."""
        matrix, step = place.matrix, _step(place.matrix)
        to = self._take(len(ids) * step)
        if place.reached is not None:
            self._listed.append(HostRows(place.reached, place.stride, matrix.row_bytes, self._gpu(to), step))
        else:
            self._copy(address(ids), len(ids), place.address, matrix.row_bytes, place.stride, to, step)
        return StoredMatrix(len(ids), matrix.n_cols, matrix.codec, self._gpu(to), step)

    def take_run(self, place: _Place, first: int, n: int) -> StoredMatrix:
        """n rows from `first` on."""
        matrix = place.matrix
        to = self._take_all(place, first * place.stride, n, matrix.row_bytes)
        return StoredMatrix(n, matrix.n_cols, matrix.codec, self._gpu(to), _step(matrix))

    def take_stack(
        self, like: PackedMatrix, runs: Sequence[tuple[int, int]], reached: Sequence[int | None] | None
    ) -> StoredMatrix:
        """Rows of several matrices, one behind the other: addresses and how many. reached: the GPU's addresses."""
        step, stride, n_rows = _step(like), like.data.strides[0], sum(n for _, n in runs)
        to = self._take(n_rows * step)
        found = StoredMatrix(n_rows, like.n_cols, like.codec, self._gpu(to), step)
        for i, (at, n) in enumerate(runs):
            on_gpu = None if reached is None else reached[i]
            if on_gpu is not None:
                self.gathered.append(([HostRows(on_gpu, stride, like.row_bytes, self._gpu(to), step)], 0, n))
            else:
                self._copy(address(_ANY_ROWS), n, at, like.row_bytes, stride, to, step)
            to += n * step
        return found

    def take_columns(self, place: _Place, offset: int, n_cols: int, n_bytes: int) -> StoredMatrix:
        """n_bytes of every row from a byte on, which are so many columns."""
        matrix = place.matrix
        to = self._take_all(place, offset, matrix.n_rows, n_bytes)
        return StoredMatrix(matrix.n_rows, n_cols, matrix.codec, self._gpu(to), _even(n_bytes))

    def take_numbers(self, values: I32 | F32) -> int:
        """32 bits of each neuron; where they will be on the GPU. After all rows."""
        if not self._numbers:
            self.numbers = self.used
        to = self._take(values.nbytes)
        self._numbers.append((to, values))
        return self._gpu(to)

    def gather(self, ids: int, n: int) -> None:
        """Rows that were taken by their numbers have these, which lie on the GPU."""
        if self._listed:
            self.gathered.insert(0, (self._listed, ids, n))

    def copy_numbers(self) -> None:
        """Ids and biases into the pinned buffer: a few bytes a neuron."""
        for to, values in self._numbers:
            ctypes.memmove(self._host(to), address(values), values.nbytes)

    def _take_all(self, place: _Place, offset: int, n: int, row_bytes: int) -> int:
        """n rows that follow each other, from so many bytes behind the matrix's first on."""
        step = _even(row_bytes)
        to = self._take(n * step)
        if place.reached is not None:
            rows = HostRows(place.reached + offset, place.stride, row_bytes, self._gpu(to), step)
            self.gathered.append(([rows], 0, n))
        else:
            self._copy(address(_ANY_ROWS), n, place.address + offset, row_bytes, place.stride, to, step)
        return to

    def _copy(self, ids: int, n: int, rows: int, row_bytes: int, stride: int, to: int, step: int) -> None:
        if self._n_copies == len(self._copies):
            self._copies.append(Gathering())
            self.program = Program([copy.call for copy in self._copies])
        self._copies[self._n_copies].set(ids, n, rows, row_bytes, stride, self._host(to), step)
        self._n_copies += 1

    def _take(self, n_bytes: int) -> int:
        """Where so many bytes go, from the beginning of the buffer on."""
        to, self.used = self.used, _even(self.used + n_bytes, _ALIGNMENT)
        assert self.used <= self.buffer.host.n_bytes, "pieces are cut to fit"
        return to

    def _host(self, offset: int) -> int:
        return self.buffer.host.address + offset

    def _gpu(self, offset: int) -> int:
        return self.buffer.gpu.address + offset


def _named(w: FfnWeights) -> list[tuple[str, PackedMatrix]]:
    """The names of FfnWeights.matrices."""
    return [(name, one) for name in ("gate", "up", "down_t", "down") if (one := getattr(w, name)) is not None]


def _matrices(w: FfnWeights) -> list[tuple[str, PackedMatrix]]:
    """Those of which a neuron is a row."""
    named = (("gate", w.gate), ("up", w.up), ("down_t", w.down_t))
    return [(name, matrix) for name, matrix in named if matrix is not None]


def _step(w: PackedMatrix) -> int:
    """From one row to the next in a buffer."""
    return _even(w.row_bytes)


def _even(n_bytes: int, to: int = 16) -> int:
    return -(-n_bytes // to) * to
