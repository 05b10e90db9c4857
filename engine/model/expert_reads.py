"""Read chosen experts ahead from a mapped file that the RAM cannot hold.

Page faults alone read a few pages at a time. The system's page cache keeps the experts that are chosen often. Experts
that a GPU holds, and those that it read for a prompt alone, leave the page cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from engine.model.prefetch import (
    Span,
    advised,
    evict_pages,
    request_function,
    request_pages,
    resident_bytes,
    spans_of,
)
from engine.model.weights import FfnWeights, LayerWeights
from native_kernels.backend import I64, PackedMatrix

# Share of a layer's experts from which on the next layer's are read too: a prompt that chooses so many chooses nearly
# as many there. Fewer would be a guess that is mostly wrong, because layers choose independently.
_MOST_OF_THEM = 0.6
_CHUNK_BYTES = 1 << 20  # a newer request takes effect between two
# Of a measurement of the disk: experts' matrices at most and at least, bytes and seconds after which it ends.
_MOST_SAMPLES, _LEAST_SAMPLES, _SAMPLE_BYTES, _SAMPLE_S = 256, 16, 64 << 20, 1.0
_MOST_RESIDENT = 0.25  # share of a sample
_AT_ONCE = 24  # matrices that a layer of a token requests at once: 8 experts of 3


class ExpertReads:
    """A thread that asks the system to read experts, in the order in which the CPU multiplies them.

    Thread-safe. The thread ends with this object.
    function: i64 [1], address of the C function that requests pages, for decode; 0: memory holds all experts.
    """

    def __init__(
        self,
        layers: Sequence[LayerWeights],
        read: Callable[[int, int], None] = request_pages,
        evict: Callable[[int, int], None] = evict_pages,
        resident: Callable[[int, int], int] = resident_bytes,
    ) -> None:
        """read: starts to read a range of addresses (first, bytes); it may wait for the disk. evict: drops a range from
        RAM. resident: bytes of a range in RAM.
        """
        self._layers = [layer.routed for layer in layers]
        self._read, self._evict, self._resident = read, evict, resident
        self.function: I64 = np.array([request_function()], np.int64)
        self._is_needed = True
        self._newest = 0  # request; older ones stop
        self._ahead: tuple[int, frozenset[int]] = (-1, frozenset())  # layer and experts read as a guess
        self._thread = ThreadPoolExecutor(1, "expert-reads")

    def measure_disk(self, threads: int) -> float | None:
        """Return the bytes/s at which decode with this many threads reads experts from the disk; see `disk_rate`."""
        return disk_rate(self._layers, threads)

    @property
    def is_needed(self) -> bool:
        """Whether memory lacks experts. True at first; False if RAM and a GPU hold all of them together."""
        return self._is_needed

    @is_needed.setter
    def is_needed(self, is_needed: bool) -> None:
        self._is_needed = is_needed
        self.function[0] = request_function() if is_needed else 0

    def choose(self, layer: int, experts: Iterable[int]) -> None:
        """Start to read the experts that a layer is about to compute, then most likely those of the next layer."""
        if not self._is_needed:
            return
        ids = frozenset(one for one in experts if one >= 0)
        self._newest += 1
        self._thread.submit(self._run, self._newest, layer, ids)

    def request(self, blocks: Sequence[FfnWeights]) -> Future[list[Span]]:
        """Start to read these experts; return the address ranges that were not in RAM."""
        return self._thread.submit(self._requested, blocks)

    def evict(self, spans: Sequence[Span]) -> None:
        """Drop these address ranges from RAM, if this process has read them and no other uses them."""
        self._thread.submit(lambda: [self._evict(start, end - start) for start, end in spans])

    def evict_matrices(self, matrices: Iterable[PackedMatrix]) -> None:
        """Drop these matrices from RAM, because a GPU holds them."""
        self.evict(spans_of((one, None) for one in matrices))

    def is_in_ram(self, block: FfnWeights) -> bool:
        """Return whether most of the expert is in RAM; True if unknown."""
        return not self.function[0] or not self._missing([block])

    def wait(self) -> None:
        """Wait until everything was asked for."""
        self._thread.submit(lambda: None).result()

    def _requested(self, blocks: Sequence[FfnWeights]) -> list[Span]:
        missing = self._missing(blocks)
        for start, end in missing:
            self._read(start, end - start)
        return missing

    def _missing(self, blocks: Sequence[FfnWeights]) -> list[Span]:
        """Return the address ranges of which less than 1 - _MOST_RESIDENT is in RAM, in chunks of _CHUNK_BYTES."""
        spans = spans_of((one, None) for block in blocks for one in block.matrices)
        chunks = [(at, min(end, at + _CHUNK_BYTES)) for start, end in spans for at in range(start, end, _CHUNK_BYTES)]
        return [(at, end) for at, end in chunks if self._resident(at, end - at) < (1 - _MOST_RESIDENT) * (end - at)]

    def _run(self, request: int, layer: int, ids: frozenset[int]) -> None:
        known_layer, known = self._ahead
        missing = ids - known if known_layer == layer else ids
        if not self._ask(request, layer, missing):
            return
        following = layer + 1
        routed = self._layers[following] if following < len(self._layers) else ()
        if routed and len(ids) >= _MOST_OF_THEM * len(routed) and self._ask(request, following, ids):
            self._ahead = following, ids

    def _ask(self, request: int, layer: int, ids: frozenset[int]) -> bool:
        """Return whether all were asked for; not if a newer request came."""
        blocks = [self._layers[layer][one] for one in sorted(ids)]
        for matrices in _in_order(blocks):
            for start, end in spans_of((one, None) for one in matrices):
                for at in range(start, end, _CHUNK_BYTES):
                    if request != self._newest:
                        return False
                    self._read(at, min(_CHUNK_BYTES, end - at))
        return True


def disk_rate(
    layers: Sequence[Sequence[FfnWeights]],
    threads: int,
    read: Callable[[int, int], bool] = advised,
    resident: Callable[[int, int], int] = resident_bytes,
    request: Callable[[int, int], None] = request_pages,
) -> float | None:
    """Return the bytes/s at which this many threads read requested experts from the disk, as decode does.

    None if too few experts are on the disk, or if the system does not say (Linux does). Cost: reads up to 64 MB,
    for about a second at most.
    """
    matrices = [matrix for layer in layers for block in layer for matrix in block.matrices]
    some = np.random.default_rng().permutation(len(matrices))[:_MOST_SAMPLES]
    samples: list[tuple[int, int, int]] = []  # address, bytes, bytes in memory (the load has read some rows)
    for i in some.tolist():
        for start, end in spans_of([(matrices[i], None)]):
            before = resident(start, end - start)
            if before <= _MOST_RESIDENT * (end - start):
                samples.append((start, end - start, before))
    if len(samples) < _LEAST_SAMPLES:
        return None
    done, n_read, started = 0, 0, time.perf_counter()
    try:
        with ThreadPoolExecutor(threads) as pool:
            while done < len(samples) and n_read < _SAMPLE_BYTES and time.perf_counter() - started < _SAMPLE_S:
                group = samples[done : done + _AT_ONCE]
                for start, size, _ in group:
                    request(start, size)
                if not all(pool.map(lambda one: read(one[0], one[1]), group)):
                    return None
                done += len(group)
                n_read += sum(size - before for _, size, before in group)
    except OSError:
        return None
    seconds = time.perf_counter() - started
    is_read = all(resident(start, size) >= size for start, size, _ in samples[:done])
    return n_read / seconds if is_read else None


def _in_order(blocks: Sequence[FfnWeights]) -> list[list[PackedMatrix]]:
    """Return the blocks' matrices by kind, first those that are multiplied first."""
    kinds = ([getattr(block, name) for block in blocks] for name in ("gate", "up", "down_t", "down"))
    return [[one for one in kind if one is not None] for kind in kinds]
