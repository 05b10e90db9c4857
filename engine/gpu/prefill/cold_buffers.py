"""The weights that cold_stream.py uploads, and their layout in its buffers.

A buffer holds the rows of gate, up and down of some neurons, as the file or bundle stores them; of a row-wise down it
holds their columns. Experts come whole, other matrices in parts. The GPU itself fetches weights that it reads
by zero-copy (pinned_weights.py): the copy engine contiguous ranges, a kernel single rows. The CPU's threads gather
all others into a pinned buffer, which is then sent. They and the bus wait for Python between two buffers, so each
buffer has a prepared copy program, of which only the arguments change.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.gpu.weights.expert_exchange import ZeroCopy
from engine.model.weights import FfnWeights
from native_kernels.backend import F32, I32, PackedMatrix
from native_kernels.codecs import ROW_CODECS
from native_kernels.cpu.runtime.call import address
from native_kernels.cpu.runtime.gather import Gathering
from native_kernels.cpu.runtime.pool import Program
from native_kernels.cuda.prompt_rows import HostRows, StoredMatrix
from native_kernels.cuda.runtime.upload_ring import Buffer

_ALIGNMENT = 256
WHOLE_BLOCKS = 256  # columns of a row-wise down; whole blocks in every codec
_SIDE = 128  # rows; a part holds whole tiles of a product
_MOST_PARTS = 4  # copies per buffer; experts may need more


@dataclass(frozen=True)
class Neurons:
    """Neurons of an FFN to stream. ids ascend; if down is row-wise they are consecutive."""

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
Key = tuple[int, str]  # a layer, and the name of its part


@dataclass(frozen=True)
class ColdNeurons:
    """Neurons on the GPU: gate, up [n, D]; down_t [n, D], or down [D, n]. Addresses: biases f32 [n], ids i32 [n]."""

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
    """Rows of the matrix `name` on the GPU, starting at its row `first`."""

    name: str
    first: int
    matrix: StoredMatrix


@dataclass(frozen=True)
class ColdExperts:
    """n experts on the GPU, starting at index `first` of the requested ones.

    gate, up [n F, D]; down [n D, F], or [n F, D] if transposed. Biases f32 [n, F], down's [n, D]; 0: none.
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
    """Return the bytes of an expert in a buffer, with its biases."""
    biases = sum(bias.nbytes for bias in (w.gate_bias, w.up_bias, w.down_bias) if bias is not None)
    return sum(one.n_rows * _step(one) for one in w.matrices) + biases


def experts_bytes(w: FfnWeights, n: int) -> int:
    """Return the bytes of n experts in a buffer, with alignment gaps."""
    return n * expert_bytes(w) + 6 * _ALIGNMENT


def neuron_bytes(w: FfnWeights) -> int:
    """Return the bytes of one neuron in a buffer, with its biases and its id."""
    down = 0 if w.down is None else -(-w.down.n_rows * w.down.row_bytes // w.down.n_cols)
    return sum(_step(matrix) for _, matrix in _matrices(w)) + down + 12


def cold_bytes(w: FfnWeights, n: int) -> int:
    """Return the bytes of n neurons in a buffer, with alignment gaps."""
    gaps = 8 * _ALIGNMENT + (16 * w.down.n_rows if w.down is not None else 0)
    return n * neuron_bytes(w) + gaps


def least_bytes(w: FfnWeights) -> int:
    """Return the bytes of the smallest usable buffer."""
    return cold_bytes(w, 1 if w.down is None else min(WHOLE_BLOCKS, w.up.n_rows))


class _Place:
    """Location of a matrix. stride: bytes between rows. gpu_address: None if the GPU cannot read all of it.

    zero_copy: asked for it.
    """

    def __init__(self, matrix: PackedMatrix, zero_copy: ZeroCopy | None) -> None:
        self.matrix, self.address, self.zero_copy = matrix, address(matrix.data), zero_copy
        self.stride = matrix.data.strides[0] if matrix.n_rows > 1 else matrix.row_bytes
        n_bytes = self.stride * (matrix.n_rows - 1) + matrix.row_bytes
        self.gpu_address = None if zero_copy is None else zero_copy.find(self.address, n_bytes)


def _all_or_none_zero_copy(places: Iterable[_Place]) -> None:
    """Clear all GPU addresses if one is missing, because a buffer is either gathered or filled."""
    places = list(places)
    if any(one.gpu_address is None for one in places):
        for one in places:
            one.gpu_address = None


_ANY_ROWS = np.arange(1 << 17, dtype=np.int32)  # ids of consecutive rows


class NeuronSource:
    """An FFN to stream by neurons, and the location of its matrices."""

    def __init__(self, w: FfnWeights, zero_copy: ZeroCopy | None) -> None:
        self.w = w
        self.places = {name: _Place(matrix, zero_copy) for name, matrix in _matrices(w)}
        self.down = None if w.down is None else _Place(w.down, zero_copy)
        _all_or_none_zero_copy([*self.places.values(), *([] if self.down is None else [self.down])])

    def cut(self, ids: I32, n: int) -> Iterator[I32]:
        """Yield parts of up to n ids, as even as possible unless down is row-wise."""
        ids = np.ascontiguousarray(ids, np.int32)
        if self.w.down is None and len(ids):
            n = -(-len(ids) // -(-len(ids) // n))
        for start in range(0, len(ids), n):
            yield ids[start : start + n]

    def set(self, load: Load, ids: I32) -> None:
        """Plan these neurons into the buffer."""
        load.clear(self)
        n, w = len(ids), self.w
        found = {name: load.take_rows(place, ids) for name, place in self.places.items()}
        if self.down is not None:  # the ids are consecutive
            codec = ROW_CODECS[self.down.matrix.codec]
            found["down"] = load.take_columns(self.down, codec.n_bytes(int(ids[0])), n, codec.n_bytes(n))
        ids_at = load.take_numbers(ids)
        gate_bias, up_bias = (0 if bias is None else load.take_numbers(bias[ids]) for bias in (w.gate_bias, w.up_bias))
        load.gather(ids_at, n)
        load.neurons = ColdNeurons(
            n, found.get("gate"), found["up"], found.get("down_t"), found.get("down"), gate_bias, up_bias, ids_at
        )


class MatrixSource:
    """Matrices to stream whole, and their location."""

    def __init__(self, wanted: Matrices, zero_copy: ZeroCopy | None) -> None:
        self.places = [(name, _Place(matrix, zero_copy)) for name, matrix in wanted.named]
        _all_or_none_zero_copy(place for _, place in self.places)

    def cut(self, n_bytes: int) -> Iterator[list[tuple[str, _Place, int, int]]]:
        """Yield the parts for each buffer of n_bytes: name, matrix, first row and number of rows.

        Raises: ValueError if a buffer is too small.
        """
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

    def set(self, load: Load, parts: Sequence[tuple[str, _Place, int, int]]) -> None:
        """Plan these rows into the buffer."""
        load.clear(self)
        for name, place, first, n in parts:
            load.rows.append(ColdRows(name, first, load.take_run(place, first, n)))
        load.numbers = load.used


class ExpertSource:
    """Experts to stream. Matrices adjacent in memory are copied at once."""

    def __init__(self, wanted: Experts, zero_copy: ZeroCopy | None, addresses: dict[FfnWeights, list[int]]) -> None:
        self.blocks, self._zero_copy, self._addresses = wanted.blocks, zero_copy, addresses

    def cut(self, n_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield the first and the number of the experts of each buffer of n_bytes, as even as possible.

        Raises: ValueError if a buffer is too small.
        """
        total, one = len(self.blocks), expert_bytes(self.blocks[0])
        most = (n_bytes - experts_bytes(self.blocks[0], 0)) // one
        if most < 1:
            raise ValueError(f"a buffer of {n_bytes} bytes is too small for experts of {one}")
        n = -(-total // -(-total // most))
        for first in range(0, total, n):
            yield first, min(n, total - first)

    def set(self, load: Load, some: tuple[int, int]) -> None:
        """Plan these experts into the buffer."""
        first, n = some
        load.clear(self)
        blocks = self.blocks_of(some)
        stacks = [self._runs(blocks, which) for which in range(len(blocks[0].matrices))]
        on_gpu = [[self._gpu_address(matrix, *run) for run in runs] for matrix, runs in stacks]
        is_zero_copy = all(at is not None for some in on_gpu for at in some)
        found = {}
        for (name, _), (matrix, runs), addresses in zip(_named(blocks[0]), stacks, on_gpu, strict=True):
            found[name] = load.take_stack(matrix, runs, addresses, self._zero_copy if is_zero_copy else None)
        load.numbers = load.used
        biases = {}
        for name in ("gate_bias", "up_bias", "down_bias"):
            values = [value for block in blocks if (value := getattr(block, name)) is not None]
            biases[name] = load.take_numbers(np.concatenate(values)) if values else 0
        is_transposed = "down_t" in found
        down = found["down_t" if is_transposed else "down"]
        load.experts = ColdExperts(first, n, found.get("gate"), found["up"], down, is_transposed, **biases)

    def blocks_of(self, some: tuple[int, int]) -> tuple[FfnWeights, ...]:
        """Return the experts of a buffer, given their first and number."""
        return self.blocks[some[0] : sum(some)]

    def _runs(self, blocks: Sequence[FfnWeights], which: int) -> tuple[PackedMatrix, list[tuple[int, int]]]:
        """Return the first expert's matrix `which`, and (address, rows) of each run of that matrix in all experts."""
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

    def _gpu_address(self, matrix: PackedMatrix, at: int, n: int) -> int | None:
        n_bytes = matrix.data.strides[0] * (n - 1) + matrix.row_bytes
        return None if self._zero_copy is None else self._zero_copy.find(at, n_bytes)


Source = NeuronSource | MatrixSource | ExpertSource
Planned = tuple[Key, Source, Any]


class Load:
    """The planned contents of one buffer.

    program: fills it on the CPU. fetched: instead, what the GPU copies at once: GPU address, host address, bytes.
    gathered: what it gathers: rows, the GPU address of their ids (0: consecutive) and their number. used: bytes of the
    buffer; ids and biases begin at the offset `numbers`. neurons, rows, experts: what is on the GPU, valid once the
    buffer was sent.
    """

    def __init__(self, buffer: Buffer) -> None:
        self.buffer, self.used, self.numbers = buffer, 0, 0
        self._copies = [Gathering() for _ in range(_MOST_PARTS)]
        self.program = Program([copy.call for copy in self._copies])
        self.neurons: ColdNeurons | None = None
        self.rows: list[ColdRows] = []
        self.experts: ColdExperts | None = None
        self.clear(None)

    def clear(self, source: Source | None) -> None:
        """Discard the contents. source: kept, so that the weights to copy stay alive."""
        self.used, self.numbers, self._source, self._n_copies = 0, 0, source, 0
        self.gathered: list[tuple[list[HostRows], int, int]] = []
        self.fetched: list[tuple[int, int, int]] = []
        self._listed: list[HostRows] = []  # gathered by ids
        self._numbers: list[tuple[int, I32 | F32]] = []
        self.neurons, self.rows, self.experts = None, [], None
        for copy in self._copies:
            copy.clear()

    def take_rows(self, place: _Place, ids: I32) -> StoredMatrix:
        """Add rows by their ids; for rows that the GPU gathers, `gather` sets the address of the ids."""
        matrix, step = place.matrix, _step(place.matrix)
        to = self._take(len(ids) * step)
        if place.gpu_address is not None:
            self._listed.append(HostRows(place.gpu_address, place.stride, matrix.row_bytes, self._gpu(to), step))
        else:
            self._copy(address(ids), len(ids), place.address, matrix.row_bytes, place.stride, to, step)
        return StoredMatrix(len(ids), matrix.n_cols, matrix.codec, self._gpu(to), step)

    def take_run(self, place: _Place, first: int, n: int) -> StoredMatrix:
        """Add n rows, starting at `first`."""
        matrix = place.matrix
        to = self._take_all(place, first * place.stride, n, matrix.row_bytes)
        return StoredMatrix(n, matrix.n_cols, matrix.codec, self._gpu(to), _step(matrix))

    def take_stack(
        self, like: PackedMatrix, runs: Sequence[tuple[int, int]], addresses: Sequence[int | None],
        zero_copy: ZeroCopy | None,
    ) -> StoredMatrix:  # fmt: skip
        """Add rows of matrices like `like`, one after another. runs: host address and rows. addresses: on the GPU.

        zero_copy: None if the CPU copies them.
        """
        step, stride, n_rows = _step(like), like.data.strides[0], sum(n for _, n in runs)
        to = self._take(n_rows * step)
        found = StoredMatrix(n_rows, like.n_cols, like.codec, self._gpu(to), step)
        for (at, n), on_gpu in zip(runs, addresses, strict=True):
            if zero_copy is not None and on_gpu is not None:
                self._fetch(at, HostRows(on_gpu, stride, like.row_bytes, self._gpu(to), step), n, zero_copy)
            else:
                self._copy(address(_ANY_ROWS), n, at, like.row_bytes, stride, to, step)
            to += n * step
        return found

    def take_columns(self, place: _Place, offset: int, n_cols: int, n_bytes: int) -> StoredMatrix:
        """Add n_cols columns of all rows: n_bytes of each, starting at the byte `offset`."""
        matrix = place.matrix
        to = self._take_all(place, offset, matrix.n_rows, n_bytes)
        return StoredMatrix(matrix.n_rows, n_cols, matrix.codec, self._gpu(to), _even(n_bytes))

    def take_numbers(self, values: I32 | F32) -> int:
        """Add 32-bit values and return their GPU address. Call this after all rows are added."""
        if not self._numbers:
            self.numbers = self.used
        to = self._take(values.nbytes)
        self._numbers.append((to, values))
        return self._gpu(to)

    def gather(self, ids: int, n: int) -> None:
        """Set the GPU address of the ids of the rows added by `take_rows`."""
        if self._listed:
            self.gathered.insert(0, (self._listed, ids, n))

    def copy_numbers(self) -> None:
        """Copy ids and biases into the pinned buffer, a few bytes per neuron."""
        for to, values in self._numbers:
            ctypes.memmove(self._host(to), address(values), values.nbytes)

    def _take_all(self, place: _Place, offset: int, n: int, row_bytes: int) -> int:
        """Add n consecutive rows, starting `offset` bytes into the matrix. Return their offset in the buffer."""
        step = _even(row_bytes)
        to = self._take(n * step)
        if place.zero_copy is not None and place.gpu_address is not None:
            rows = HostRows(place.gpu_address + offset, place.stride, row_bytes, self._gpu(to), step)
            self._fetch(place.address + offset, rows, n, place.zero_copy)
        else:
            self._copy(address(_ANY_ROWS), n, place.address + offset, row_bytes, place.stride, to, step)
        return to

    def _fetch(self, at: int, rows: HostRows, n: int, zero_copy: ZeroCopy) -> None:
        """Add n consecutive rows that the GPU reads by zero-copy. at: their host address.

        On an H200, the copy engine has 55 GB/s where a kernel reads rows of 1,152 and of 432 bytes at 38.
        """
        if not rows.stride == rows.row_bytes == rows.step:
            self.gathered.append(([rows], 0, n))
            return
        to = rows.to
        for source, n_bytes in zero_copy.ranges(at, n * rows.step):
            self.fetched.append((to, source, n_bytes))
            to += n_bytes

    def _copy(self, ids: int, n: int, rows: int, row_bytes: int, stride: int, to: int, step: int) -> None:
        if self._n_copies == len(self._copies):
            self._copies.append(Gathering())
            self.program = Program([copy.call for copy in self._copies])
        self._copies[self._n_copies].set(ids, n, rows, row_bytes, stride, self._host(to), step)
        self._n_copies += 1

    def _take(self, n_bytes: int) -> int:
        """Reserve n_bytes of the buffer and return their offset."""
        to, self.used = self.used, _even(self.used + n_bytes, _ALIGNMENT)
        assert self.used <= self.buffer.host.n_bytes, "tiles are cut to fit"
        return to

    def _host(self, offset: int) -> int:
        return self.buffer.host.address + offset

    def _gpu(self, offset: int) -> int:
        return self.buffer.gpu.address + offset


def _named(w: FfnWeights) -> list[tuple[str, PackedMatrix]]:
    return [(name, one) for name in ("gate", "up", "down_t", "down") if (one := getattr(w, name)) is not None]


def _matrices(w: FfnWeights) -> list[tuple[str, PackedMatrix]]:
    """Return the matrices in which a neuron is a row."""
    named = (("gate", w.gate), ("up", w.up), ("down_t", w.down_t))
    return [(name, matrix) for name, matrix in named if matrix is not None]


def _step(w: PackedMatrix) -> int:
    """Return the bytes between rows in a buffer."""
    return _even(w.row_bytes)


def _even(n_bytes: int, to: int = 16) -> int:
    return -(-n_bytes // to) * to
