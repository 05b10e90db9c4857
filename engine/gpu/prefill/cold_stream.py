"""Stream weights from host memory to the GPU while it computes, in buffers that a worker thread fills ahead of use.

The thread sends each buffer as soon as it is full. cold_buffers.py has what a buffer holds, and how it is filled.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from engine.gpu.prefill.cold_buffers import (
    WHOLE_BLOCKS,
    ColdExperts,
    ColdNeurons,
    ColdRows,
    Experts,
    ExpertSource,
    Key,
    Load,
    Matrices,
    MatrixSource,
    NeuronSource,
    Planned,
    Source,
    Wanted,
    cold_bytes,
    neuron_bytes,
)
from engine.gpu.weights.expert_exchange import ZeroCopy
from engine.model.expert_reads import ExpertReads
from engine.model.prefetch import Span
from engine.model.weights import FfnWeights
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.cuda.prompt_rows import HostRows
from native_kernels.cuda.runtime.upload_ring import Buffer, UploadRing


class Gathers(Protocol):
    """Operators that fetch weights from host memory: native_kernels.cuda.prefill_ops.GpuPrefillOps."""

    def gather(self, rows: Sequence[HostRows], ids: int, n: int) -> None: ...

    def fetch(self, to: int, source: int, n_bytes: int) -> None: ...


@dataclass(frozen=True)
class Rates:
    """Bytes per second of filling buffers on an idle CPU, and of uploads from pinned memory."""

    filling: float
    bus: float


class ColdStream:
    """A worker thread that fills all buffers of a ring ahead of their use.

    gathered, filled: buffers since `begin` that the GPU gathered, and that the pool's threads filled.
    """

    def __init__(
        self, ring: UploadRing, pool: Pool, ops: Gathers | None = None, zero_copy: ZeroCopy | None = None,
        reads: ExpertReads | None = None,
    ) -> None:  # fmt: skip
        """ops, zero_copy: with both, the GPU gathers all weights that it can read. reads: experts on the disk are read
        ahead by it, and leave RAM when they have been copied.

        Addresses that `zero_copy` returns must stay valid until all is streamed or `stop` returns.
        """
        self._ring, self._pool, self._ops = ring, pool, ops
        self._zero_copy = None if ops is None else zero_copy
        self._reads = reads
        self.gathered = self.filled = 0
        self._filler = ThreadPoolExecutor(1, "cold-neurons", ring.enter)
        self._loads: dict[int, Load] = {}  # by id of the ring's buffers, which live as long
        self._planned: Iterator[Planned] = iter(())
        self._ahead: deque[tuple[Key, Future[Load]]] = deque()
        self._addresses: dict[FfnWeights, list[int]] = {}  # of experts' matrices; looking them up is the slowest step

    def most_neurons(self, w: FfnWeights, most: int) -> int:
        """Return the largest number of the layer's neurons that fit in a buffer, at most `most`.

        Raises: ValueError if a buffer is too small.
        """
        n = min(most, max(1, (self._ring.n_bytes - cold_bytes(w, 0)) // neuron_bytes(w)))
        if w.down is not None and n < w.up.n_rows:
            n = n // WHOLE_BLOCKS * WHOLE_BLOCKS
        if n < 1 or cold_bytes(w, n) > self._ring.n_bytes:
            raise ValueError(f"a buffer of {self._ring.n_bytes} bytes is too small for neurons of {neuron_bytes(w)}")
        return n

    def begin(self, wanted: Sequence[tuple[Key, Wanted]], most: int) -> None:
        """Start streaming `wanted`, in the order in which the caller will iterate over it.

        most: neurons per buffer.
        """
        self.stop()
        self.gathered = self.filled = 0
        self._planned = self._cut(wanted, most, self._zero_copy)
        for _ in range(self._ring.n_buffers):
            self._fill_next()

    def neurons(self, key: Key) -> Iterator[ColdNeurons]:
        """Yield the neurons of a key given to `begin`.

        They stay valid only for GPU work queued before the next one is requested. Raises errors of the worker.
        """
        for load in self._loads_of(key):
            assert load.neurons is not None, "these are neurons"
            yield load.neurons

    def rows(self, key: Key) -> Iterator[ColdRows]:
        """Yield rows of the matrices of a key, as `neurons` yields neurons."""
        for load in self._loads_of(key):
            yield from load.rows

    def experts(self, key: Key) -> Iterator[ColdExperts]:
        """Yield the experts of a key, as `neurons` yields neurons."""
        for load in self._loads_of(key):
            assert load.experts is not None, "these are experts"
            yield load.experts

    def _loads_of(self, key: Key) -> Iterator[Load]:
        while self._ahead and self._ahead[0][0] == key:
            load = self._ahead.popleft()[1].result()
            self._ring.use(load.buffer)
            yield load
            self._ring.release(load.buffer)
            self._fill_next()

    def stop(self) -> None:
        """Discard what is still to come, and wait for the buffer being filled."""
        self._planned = iter(())
        while self._ahead:
            filling = self._ahead.popleft()[1]
            if not filling.cancel():
                filling.exception()

    def close(self) -> None:
        """End the thread."""
        self.stop()
        self._filler.shutdown()

    def measure(self, wanted: Sequence[tuple[Key, Wanted]], most: int, n_bytes: int = 4 << 30) -> Rates | None:
        """Measure filling and sending separately over the first n_bytes of `wanted`; None if it is empty.

        The CPU fills all buffers, even if the GPU could gather them. The calling thread must have entered the GPU.
        """
        self.stop()
        sent: list[tuple[Load, int]] = []
        copied, began = 0, time.perf_counter()
        for _, source, part in self._cut(wanted, most):
            load = self._load_of(self._ring.next())
            source.set(load, part)
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
    ) -> Iterator[Planned]:
        for key, one in wanted:
            if isinstance(one, Matrices):
                rows = MatrixSource(one, zero_copy)
                for parts in rows.cut(self._ring.n_bytes):
                    yield key, rows, parts
                continue
            if isinstance(one, Experts):
                experts = ExpertSource(one, zero_copy, self._addresses)
                for some in experts.cut(self._ring.n_bytes):
                    yield key, experts, some
                continue
            neurons = NeuronSource(one.w, zero_copy)
            for ids in neurons.cut(one.ids, self.most_neurons(one.w, most)):
                yield key, neurons, ids

    def _fill_next(self) -> None:
        """Queue the next buffer. At most n_buffers are ahead, so the ring never hands out one still in use."""
        for key, source, part in self._planned:
            load, spans = self._load_of(self._ring.next()), None
            if isinstance(source, ExpertSource) and self._reads is not None and self._reads.is_needed:
                spans = self._reads.request(source.blocks_of(part))
            self._ahead.append((key, self._filler.submit(self._filled, load, source, part, spans)))
            return

    def _load_of(self, buffer: Buffer) -> Load:
        if id(buffer) not in self._loads:
            self._loads[id(buffer)] = Load(buffer)
        return self._loads[id(buffer)]

    def _filled(self, load: Load, source: Source, part: Any, spans: Future[list[Span]] | None) -> Load:
        """spans: what is read from the disk for this buffer."""
        source.set(load, part)
        self._ring.wait_for(load.buffer)
        load.copy_numbers()
        if self._ops is not None and (load.gathered or load.fetched):
            ops, gathered, fetched = self._ops, load.gathered, load.fetched

            def fetch() -> None:
                for one in fetched:
                    ops.fetch(*one)
                for rows, ids, n in gathered:
                    ops.gather(rows, ids, n)

            self._ring.send(load.buffer, load.used, load.numbers, fetch)
            self.gathered += 1
        else:
            self._pool.run(load.program)
            self._ring.send(load.buffer, load.used)
            self.filled += 1
            if self._reads is not None and spans is not None:
                self._reads.evict(spans.result())
        return load
