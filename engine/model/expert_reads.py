"""Read chosen experts ahead from a mapped file that the RAM cannot hold.

Without it, prefill reads them by page faults, a few pages at a time. Decode needs no help: the system's page cache
keeps the experts that are chosen often, and a token needs few others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from engine.model.prefetch import foretold, spans_of
from engine.model.weights import FfnWeights, LayerWeights
from native_kernels.backend import PackedMatrix

# Share of a layer's experts from which on the next layer's are read too: a prompt that chooses so many chooses nearly
# as many there. Fewer would be a guess that is mostly wrong, because layers choose independently.
_MOST_OF_THEM = 0.6
# Bytes per request: Linux reads no more of one than the device's readahead, which is 128 KB by default.
_REQUEST_BYTES = 128 << 10


class ExpertReads:
    """A thread that asks the system to read experts, in the order in which the CPU multiplies them.

    Thread-safe. The thread ends with this object.
    """

    def __init__(self, layers: Sequence[LayerWeights], read: Callable[[int, int], None] = foretold) -> None:
        """read: starts to read a range of addresses (first, bytes); it may wait for the disk."""
        self._layers = [layer.routed for layer in layers]
        self._read = read
        self._newest = 0  # request; older ones stop
        self._ahead: tuple[int, frozenset[int]] = (-1, frozenset())  # layer and experts read as a guess
        self._thread = ThreadPoolExecutor(1, "expert-reads")

    def choose(self, layer: int, experts: Iterable[int]) -> None:
        """Start to read the experts that a layer is about to compute, then most likely those of the next layer."""
        ids = frozenset(one for one in experts if one >= 0)
        self._newest += 1
        self._thread.submit(self._run, self._newest, layer, ids)

    def wait(self) -> None:
        """Wait until everything was asked for."""
        self._thread.submit(lambda: None).result()

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
                for at in range(start, end, _REQUEST_BYTES):
                    if request != self._newest:
                        return False
                    self._read(at, min(_REQUEST_BYTES, end - at))
        return True


def _in_order(blocks: Sequence[FfnWeights]) -> list[list[PackedMatrix]]:
    """Return the blocks' matrices by kind, first those that are multiplied first."""
    kinds = ([getattr(block, name) for block in blocks] for name in ("gate", "up", "down_t", "down"))
    return [[one for one in kind if one is not None] for kind in kinds]
