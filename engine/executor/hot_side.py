"""What computes the hot neurons: the border to their device, and the one that is threads of the CPU.

It chooses no neurons and knows no neuron by its number in the layer: it is spoken to in slots (slots.py).
Paper: PowerInfer, section 5.3 (the GPU's executor).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol

import numpy as np

from engine.config import ModelConfig
from engine.executor.listed_neurons import some_of_each
from engine.model.weights import FfnWeights, ModelWeights
from native_kernels.backend import F32, I32, I64, U8, Operators, PackedMatrix
from native_kernels.cpu.runtime.call import ALIGNMENT, aligned_empty


class SideSum(NamedTuple):
    """What one side adds: out [T, D]; of its neurons, how many passed the first activation, and how many fired."""

    out: F32
    opened: int
    fired: int


class HotStore(Protocol):
    """A device that holds the hot neurons."""

    def load(self, layer: int, slots: I32, neurons: I32) -> None:
        """The rows of the neurons [K] of the layer's gate, up and down into its slots [K]. Never during an answer."""

    def take_fired(self, layer: int) -> I64:
        """How often what lies in each slot has fired since this was last asked, [S]. Never during an answer."""


class HotSide(HotStore, Protocol):
    """One that computes those of them that are active too, layer by layer, while the CPU computes the cold ones.
    Bias of down: the CPU's."""

    def start(self, layer: int, x: F32, active: Sequence[I32]) -> None:
        """Begins the layer: x [T, D], normed; for each position the slots to compute, in the order of the sum."""

    def result(self) -> SideSum:
        """Waits for what was started last."""


class HotRows:
    """A copy of the hot neurons' weights in memory of its own, as a device has one: a neuron's rows lie together.

    blocks: per layer a feed-forward block of S neurons, numbered by slots. fired: i64 [sum of S], of all layers one
    after another, from `first` on.
    """

    def __init__(self, weights: ModelWeights, slots: Sequence[int]) -> None:
        """slots: of each layer. They hold nothing yet."""
        self._sources = [layer.ffns[0] for layer in weights.layers]
        self.blocks = [_empty_block(w, n) for w, n in zip(self._sources, slots, strict=True)]
        ends = np.cumsum([0, *slots])
        self.first = [int(end) for end in ends[:-1]]
        self.fired: I64 = np.zeros(int(ends[-1]), np.int64)

    @property
    def n_bytes(self) -> int:
        """What the rows take."""
        return sum(matrix.n_bytes for w in self.blocks for matrix in (w.gate, w.up, w.down_t) if matrix is not None)

    def load(self, layer: int, slots: I32, neurons: I32) -> None:
        """As HotSide says."""
        source, own = self._sources[layer], self.blocks[layer]
        for theirs, mine in ((source.gate, own.gate), (source.up, own.up), (source.down_t, own.down_t)):
            if theirs is not None and mine is not None:
                mine.data[slots] = theirs.data[neurons]
        for bias, my_bias in ((source.gate_bias, own.gate_bias), (source.up_bias, own.up_bias)):
            if bias is not None and my_bias is not None:
                my_bias[slots] = bias[neurons]

    def fired_in(self, layer: int) -> I64:
        """A view of the layer's counts, [S]."""
        start = self.first[layer]
        return self.fired[start : start + self.blocks[layer].up.n_rows]

    def take_fired(self, layer: int) -> I64:
        """As HotSide says."""
        counts = self.fired_in(layer)
        taken = counts.copy()
        counts[:] = 0
        return taken


class CpuHotSide(HotRows):
    """A HotSide whose device is one more thread, on copies of the weights."""

    def __init__(self, config: ModelConfig, weights: ModelWeights, slots: Sequence[int], operators: Operators) -> None:
        """operators: not those of the other side, unless they keep no state."""
        super().__init__(weights, slots)
        self._config = config
        self._operators = operators
        self._thread = ThreadPoolExecutor(1, "hot-side")
        self._started: Future[SideSum] | None = None

    def start(self, layer: int, x: F32, active: Sequence[I32]) -> None:
        """As HotSide says."""
        assert self._started is None, "one layer at a time"
        self._started = self._thread.submit(self._compute, layer, x, active)

    def result(self) -> SideSum:
        """As HotSide says."""
        assert self._started is not None, "a layer was started"
        started, self._started = self._started, None
        return started.result()

    def _compute(self, layer: int, x: F32, active: Sequence[I32]) -> SideSum:
        out, fired, opened = some_of_each(self._config, self.blocks[layer], x, active, self._operators)
        counts = self.fired_in(layer)
        counts += np.count_nonzero(fired, axis=0)
        return SideSum(out, opened, int(np.count_nonzero(fired)))


def _empty_block(w: FfnWeights, n: int) -> FfnWeights:
    assert w.down_t is not None, "hot neurons are taken out of neuron-major matrices"
    matrices = [matrix for matrix in (w.gate, w.up, w.down_t) if matrix is not None]
    widths = [-(-matrix.row_bytes // ALIGNMENT) * ALIGNMENT for matrix in matrices]
    rows: U8 = aligned_empty((n, sum(widths)), np.uint8)
    ends = np.cumsum(widths)
    found = []
    for matrix, width, end in zip(matrices, widths, ends, strict=True):
        part = rows[:, end - width : end - width + matrix.row_bytes]
        found.append(PackedMatrix.view(part, n, matrix.n_cols, matrix.codec))
    *gates, up, down_t = found
    return FfnWeights(
        up=up, gate=gates[0] if gates else None, down_t=down_t,
        gate_bias=None if w.gate_bias is None else np.zeros(n, np.float32),
        up_bias=None if w.up_bias is None else np.zeros(n, np.float32),
    )  # fmt: skip
