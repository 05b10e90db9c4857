"""Record which neurons were active for single tokens, from the counts that the executors keep of each neuron.

A token changes a neuron's count by one at most, so counts modulo 256 are compared. Counts of neurons on a GPU are
copied behind each token and read after the next one: nothing waits for the GPU.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from native_kernels.cuda.runtime.driver import CudaError

if TYPE_CHECKING:
    from engine.executor.hot_blocks import HotBlocks
    from engine.model.counters import FfnCounters
    from engine.session.chat_session import ChatSession

    Bits = NDArray[np.uint8]

TOGETHER = 32  # tokens whose counts are compared at once: cheaper than code that has left the cache
_MOST_TOGETHER = 4 << 20  # bytes of such counts
MOST_BYTES = 8 << 20  # of an answer: its last tokens; 146 of 32 layers with 14,336 neurons each


class ActiveNeurons:
    """Call `note` after each token, `ended` at the end, then `bits_of` and `on_gpu`; in any case `close`.

    Bits are u8 [L, ceil(F / 8)], the lowest bit first. Cost of a token with 32 x 14,336 neurons: 0.2 ms on the CPU.
    """

    def __init__(self, session: ChatSession) -> None:
        config = session.model.opened.config
        self._session, self._blocks, self._is_known = session, session.model.hot_blocks, False
        self._generation: int | None = None  # of the model, whose neurons are recorded
        self._shape = config.n_layers, config.n_neurons
        most = max(1, MOST_BYTES // (config.n_layers * -(-config.n_neurons // 8)))
        self._on_cpu: deque[tuple[int, Bits]] = deque(maxlen=most)
        self._on_gpu: deque[tuple[int, Bits]] = deque(maxlen=most)
        self._counters: FfnCounters | None = None  # which count each neuron for this
        size = config.n_layers * config.n_neurons
        together = max(1, min(TOGETHER, _MOST_TOGETHER // size))
        self._low: Bits = np.empty((1 + together, *self._shape), np.uint8)  # counts after each token, not compared yet
        self._places: list[int] = []  # of these tokens
        self._noted = 0  # place of the last token

    def _keep_up(self) -> None:
        """Begin again if the model was placed again: then the GPU computes other neurons."""
        model = self._session.model
        if model.generation == self._generation:
            return
        self._generation, self._blocks = model.generation, model.hot_blocks
        # A GPU without slots does not count its neurons.
        skips = model.opened.config.has_zeros or model.resolve_mode(self._session.mode) == "sparse"
        self._is_known = skips and (model.gpu is None or self._blocks is not None)
        self._places.clear()
        self._on_cpu.clear()
        self._on_gpu.clear()

    def note(self, place: int) -> None:
        """Record a token, and count each neuron until `close`. place: in the answer."""
        self._keep_up()
        if not self._is_known:
            return
        counters = self._session.transformer.executor.counters
        if counters is not self._counters:
            self.close()
            counters.record_per_neuron()
            self._counters = counters
            self._places.clear()
        recent = counters.recent(0)
        assert recent is not None, "it was just switched on"
        self._low[len(self._places)] = recent
        self._places.append(place)
        if len(self._places) == len(self._low):
            self._compare()
        self._read_gpu()
        self._noted = place

    def _compare(self) -> None:
        """Find what each token changed, and keep the counts after the last one."""
        n = len(self._places)
        if n > 1:
            self._on_cpu.extend(zip(self._places[1:], _packed(self._low[1:n] != self._low[: n - 1]), strict=True))
            self._low[0] = self._low[n - 1]
            del self._places[:-1]

    def close(self) -> None:
        """Stop counting each neuron."""
        self._compare()
        if self._counters is not None:
            self._counters.stop_per_neuron()
            self._counters = None

    def ended(self) -> None:
        """Read the counts of the last tokens from the devices."""
        self._compare()
        self._read_gpu(last=True)

    def bits_of(self) -> dict[int, Bits]:
        """Return the bits of each token that is known, by its place."""
        hot = None if self._blocks is None else self._bits_on_gpu(self._blocks)
        if self._blocks is None or hot is None:
            return dict(self._on_cpu)
        slots, found = dict(self._on_gpu), {}
        for place, bits in self._on_cpu:
            if place in slots:
                found[place] = bits & ~hot | self._by_neuron(self._blocks, slots[place])
        return found

    def on_gpu(self) -> Bits | None:
        """Return the neurons that the GPU computes; None without a GPU."""
        return None if self._blocks is None else self._bits_on_gpu(self._blocks)

    def _read_gpu(self, last: bool = False) -> None:
        if self._blocks is None or not self._is_known:
            return
        if self._blocks is not self._session.model.hot_blocks:  # the GPU failed, and others took its place
            self._is_known = False
            return
        try:
            active = self._blocks.hot.active_slots(last)
        except CudaError:  # the next token meets it again, and the answer deals with it
            self._is_known = False
            return
        if active is not None:
            self._on_gpu.append((self._noted, _packed(active)))

    def _bits_on_gpu(self, blocks: HotBlocks) -> Bits:
        return self._by_neuron(blocks, _packed(np.ones(sum(table.n_slots for table in blocks.tables), bool)))

    def _by_neuron(self, blocks: HotBlocks, slots: Bits) -> Bits:
        """Return the bits of neurons, from those of all layers' slots one after another."""
        found, start, flags = np.zeros(self._shape, bool), 0, np.unpackbits(slots, bitorder="little")
        for layer, table in enumerate(blocks.tables):
            found[layer, table.neuron_in] = flags[start : start + table.n_slots]
            start += table.n_slots
        return _packed(found)


def _packed(flags: NDArray[np.bool_]) -> Bits:
    return np.packbits(flags, axis=-1, bitorder="little")
