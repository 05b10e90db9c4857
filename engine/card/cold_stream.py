"""Brings the neurons that are not on the card to it, piece by piece, while it computes; what it does with them it
does not know.

A piece is some neurons' rows of gate, up and down as the file or bundle stores them, gathered by all threads into a
pinned buffer and copied. Of a down that lies row-wise a piece is the neurons' columns.

Whoever computes waits for nobody else: one thread lays pieces out, another one fills buffers and sends each on its way
as soon as it is full, so that neither the processor's threads nor the bus wait for Python.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from engine.model.weights import FfnWeights
from native_kernels.backend import F32, I32, PackedMatrix
from native_kernels.codecs import ROW_CODECS
from native_kernels.cpu.call import Call
from native_kernels.cpu.gather import gather_call
from native_kernels.cpu.pool import Pool, Program
from native_kernels.cuda.prefill_ops import StoredMatrix
from native_kernels.cuda.upload_ring import Buffer, UploadRing

_ALIGNMENT = 256
_WHOLE_BLOCKS = 256  # columns: a part of a row-wise down is whole blocks of any codec


@dataclass(frozen=True)
class ColdPiece:
    """Some neurons on the card: gate, up [n, D]; down_t [n, D], or down [D, n]. ids: i32 [n], which they are."""

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


@dataclass(frozen=True)
class Rates:
    """Bytes a second: of filling buffers while nothing else runs, and of pinned memory to the card."""

    filling: float
    bus: float


class ColdStream:
    """Threads of its own fill buffers ahead of who uses them, as many as the ring has."""

    def __init__(self, ring: UploadRing, pool: Pool) -> None:
        self._ring, self._pool = ring, pool
        self._planner = ThreadPoolExecutor(1, "cold-pieces")
        self._filler = ThreadPoolExecutor(1, "cold-neurons", ring.enter)
        self._planned: Iterator[tuple[int, FfnWeights, I32]] = iter(())
        self._ahead: deque[tuple[int, FfnWeights, Future[_Load]]] = deque()

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
        pieces = [
            (layer, w, np.ascontiguousarray(ids[start : start + n], np.int32))
            for layer, w, ids in layers
            for n in (self.piece_neurons(w, most),)
            for start in range(0, len(ids), n)
        ]
        self._planned = iter(pieces)
        for _ in range(self._ring.n_buffers):
            self._fill_next()

    def pieces(self, layer: int) -> Iterator[ColdPiece]:
        """The layer's neurons that `begin` was told of. What is asked of the card before the next piece is taken is the
        last that may read this one. Raises: what went wrong in filling."""
        while self._ahead and self._ahead[0][0] == layer:
            _, w, filling = self._ahead.popleft()
            load = filling.result()
            self._ring.use(load.buffer)
            yield load.on_card(w)
            self._ring.release(load.buffer)
            self._fill_next()

    def stop(self) -> None:
        """Forgets what was to come; nothing is being filled then."""
        self._planned = iter(())
        while self._ahead:
            filling = self._ahead.popleft()[2]
            if not filling.cancel():
                filling.exception()

    def close(self) -> None:
        """Ends the threads."""
        self.stop()
        self._filler.shutdown()
        self._planner.shutdown()

    def measure(self, layers: Sequence[tuple[int, FfnWeights, I32]], most: int, n_bytes: int = 4 << 30) -> Rates | None:
        """How fast pieces of these layers, as `begin` has them, are filled and sent: each by itself, over the first
        n_bytes. None where there are none. The calling thread must have entered the card."""
        self.stop()
        loads, wanted = [], 0
        for _, w, ids in layers:
            n = self.piece_neurons(w, most)
            for start in range(0, len(ids) if wanted < n_bytes else 0, n):
                loads.append(_Load(self._ring.next(), w, np.ascontiguousarray(ids[start : start + n], np.int32)))
                wanted += loads[-1].used
        if not loads:
            return None
        began = time.perf_counter()
        for load in loads:
            self._ring.wait_for(load.buffer)
            self._pool.run(load.program)
        filling = wanted / (time.perf_counter() - began)
        began = time.perf_counter()
        for load in loads:
            self._ring.send(load.buffer, load.used)
        for load in loads[-self._ring.n_buffers :]:
            self._ring.wait_for(load.buffer)
        return Rates(filling, wanted / (time.perf_counter() - began))

    def _fill_next(self) -> None:
        """A buffer's turn comes again when it was released: with as many ahead as there are buffers never too early."""
        for layer, w, ids in self._planned:
            load = self._planner.submit(_Load, self._ring.next(), w, ids)
            self._ahead.append((layer, w, self._filler.submit(self._filled, load)))
            return

    def _filled(self, planned: Future[_Load]) -> _Load:
        load = planned.result()
        self._ring.wait_for(load.buffer)
        self._pool.run(load.program)
        self._ring.send(load.buffer, load.used)
        return load


class _Load:
    """What goes into one buffer, and where: names to offsets and steps. program: fills it."""

    def __init__(self, buffer: Buffer, w: FfnWeights, ids: I32) -> None:
        self.buffer, self.ids, self.used = buffer, ids, 0
        self.offsets: dict[str, int] = {}
        self.steps: dict[str, int] = {}
        calls = [self._rows(name, matrix) for name, matrix in _matrices(w)]
        if w.down is not None:
            calls.append(self._columns(w.down))
        calls.append(self._numbers("ids", ids))
        for name, bias in (("gate_bias", w.gate_bias), ("up_bias", w.up_bias)):
            if bias is not None:
                calls.append(self._numbers(name, np.ascontiguousarray(bias[ids], np.float32)))
        self.program = Program(calls)

    def _rows(self, name: str, w: PackedMatrix) -> Call:
        return gather_call(w, self.ids, self._place(name, len(self.ids), _step(w)), _step(w))

    def _columns(self, w: PackedMatrix) -> Call:
        """The neurons' part of every row of a row-wise down; the ids follow each other."""
        codec = ROW_CODECS[w.codec]
        first, n = int(self.ids[0]), len(self.ids)
        at, n_bytes = codec.n_bytes(first), codec.n_bytes(n)
        step = _even(n_bytes)
        stored = w.data.view(np.uint8)[:, at : at + n_bytes]
        part = PackedMatrix.view(stored, w.n_rows, n, w.codec)
        everything = np.arange(w.n_rows, dtype=np.int32)
        return gather_call(part, everything, self._place("down", w.n_rows, step), step)

    def _numbers(self, name: str, values: I32 | F32) -> Call:
        """32 bits each, as a matrix of one row."""
        row = PackedMatrix.view(values.view(np.uint8).reshape(1, -1), 1, len(values), "f32")
        return gather_call(row, np.zeros(1, np.int32), self._place(name, len(values), 4), row.row_bytes)

    def on_card(self, w: FfnWeights) -> ColdPiece:
        """Where all of it is once it was sent."""
        n = len(self.ids)
        found = {name: self._matrix(name, n, matrix.n_cols, matrix.codec) for name, matrix in _matrices(w)}
        down = None if w.down is None else self._matrix("down", w.down.n_rows, n, w.down.codec)
        return ColdPiece(
            n, found.get("gate"), found["up"], found.get("down_t"), down, self._address("gate_bias"),
            self._address("up_bias"), self._address("ids"),
        )  # fmt: skip

    def _matrix(self, name: str, n_rows: int, n_cols: int, codec: str) -> StoredMatrix:
        return StoredMatrix(n_rows, n_cols, codec, self._address(name), self.steps[name])

    def _address(self, name: str) -> int:
        return self.buffer.card.address + self.offsets[name] if name in self.offsets else 0

    def _place(self, name: str, count: int, step: int) -> int:
        self.offsets[name], self.steps[name] = self.used, step
        self.used = _even(self.used + count * step, _ALIGNMENT)
        assert self.used <= self.buffer.host.n_bytes, "pieces are cut to fit"
        return self.buffer.host.address + self.offsets[name]


def _matrices(w: FfnWeights) -> list[tuple[str, PackedMatrix]]:
    """Those of which a neuron is a row."""
    named = (("gate", w.gate), ("up", w.up), ("down_t", w.down_t))
    return [(name, matrix) for name, matrix in named if matrix is not None]


def _step(w: PackedMatrix) -> int:
    """From one row to the next in a buffer."""
    return _even(w.row_bytes)


def _even(n_bytes: int, to: int = 16) -> int:
    return -(-n_bytes // to) * to
