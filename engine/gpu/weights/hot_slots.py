"""The GPU's slots for neurons: exchange them between answers, and read how often they fired.

decode_program.py computes them. Its captured work stays valid, because only the contents of the slots change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.gpu.weights.layout import bits_of
from engine.gpu.weights.uploads import Numbers, Rows, Upload, Uploader, give_back
from engine.model.weights import FfnWeights, ModelWeights
from native_kernels.backend import I32, I64, PackedMatrix
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.cuda.gpu import Gpu, GpuBlock, HostMemory, Memory

_HALF_BYTES = 1 << 20  # exchanged at once


class GpuHotSide:
    """A HotStore on the GPU. neuron_in: [L] of i32 [S], the neuron in each slot."""

    def __init__(
        self,
        gpu: Gpu,
        pool: Pool,
        weights: ModelWeights,
        blocks: Sequence[tuple[GpuBlock, ...]],
        hot_bits: Sequence[int],
        placed: Sequence[I32],
    ) -> None:
        """blocks: [L], a layer's slots one block after another, loaded with `placed`. hot_bits: [L], GPU addresses.

        Raises: CudaOutOfMemoryError.
        """
        self._gpu, self._blocks, self._bits = gpu, list(blocks), list(hot_bits)
        self._sources = [layer.ffns[0] for layer in weights.layers]
        self.neuron_in = [np.array(ids, np.int32) for ids in placed]
        most = max((len(ids) for ids in self.neuron_in), default=1)
        widest = max(
            (_up(matrix.row_bytes) for ffn in self._sources for matrix in _matrices(ffn)),
            default=16,
        )  # fmt: skip
        self._uploader = Uploader(gpu, pool, max(_HALF_BYTES, widest))
        self._memories: list[Memory] = []
        self._copy: HostMemory | None = None  # of all counts, for `active_slots`
        self._low: NDArray[np.uint8] | None = None  # lowest bytes of the counts in the copy before
        self._is_cleared = self._was_cleared = (
            False  # counts were, after the last copy, or between it and the one before
        )
        try:
            self._list = gpu.allocate(4 * max(1, most))
            self._memories.append(self._list)
            self._counts = gpu.pin(4 * max(1, most))
            self._memories.append(self._counts)
        except BaseException:
            self.close()
            raise

    def load(self, layer: int, slots: I32, neurons: I32) -> None:
        """As HotStore.load; uploads nothing if the slots hold these neurons already. Raises: CudaError."""
        now = self.neuron_in[layer]
        if not self._blocks[layer] or np.array_equal(now[slots], neurons):
            return
        now[slots] = neurons
        start = 0
        for block in self._blocks[layer]:
            its = (slots >= start) & (slots < start + block.n_slots)
            if its.any():
                own = now[start : start + block.n_slots]
                self._uploader.run(self._moved(layer, block, slots[its] - start, neurons[its], own))
            start += block.n_slots
        self._uploader.run([Numbers(bits_of(now, self._sources[layer].up.n_rows), self._bits[layer])])

    def take_fired(self, layer: int) -> I64:
        """As HotStore.take_fired. Raises: CudaError."""
        at = 0
        for block in self._blocks[layer]:
            self._gpu.download(self._counts.address + at, block.fired, 4 * block.n_slots)
            self._gpu.fill(block.fired, 0, 4 * block.n_slots)
            at += 4 * block.n_slots
        self._gpu.synchronize()
        self._is_cleared = True
        counts: I64 = self._counts.as_array(np.uint32, at // 4).astype(np.int64)
        return counts

    def active_slots(self, last: bool = False) -> NDArray[np.bool_] | None:
        """As HotStore.active_slots. Raises: CudaError, CudaOutOfMemoryError."""
        n, active = sum(len(ids) for ids in self.neuron_in), None
        if last:
            self._gpu.synchronize()
        if self._copy is not None:  # a token was computed after the copy was queued, so it has arrived
            low = self._copy.as_array(np.uint32, n).astype(np.uint8)
            if self._low is not None:
                active = low != (np.zeros_like(low) if self._was_cleared else self._low)
            self._low = low
        if last:
            self._discard_copy()
            return active
        if self._copy is None:
            self._copy = self._gpu.pin(4 * max(1, n))
        at = self._copy.address
        for block in (block for blocks in self._blocks for block in blocks):
            self._gpu.download(at, block.fired, 4 * block.n_slots)
            at += 4 * block.n_slots
        self._was_cleared, self._is_cleared = self._is_cleared, False
        return active

    def _discard_copy(self) -> None:
        copy, self._copy, self._low = self._copy, None, None
        give_back([] if copy is None else [copy])

    def _moved(self, layer: int, block: GpuBlock, slots: I32, neurons: I32, own: I32) -> list[Upload]:
        """Return the uploads of neurons [K] into slots [K] of the block. own: the new neurons of all its slots."""
        ffn, list_at = self._sources[layer], self._list.address
        jobs: list[Upload] = [Numbers(np.ascontiguousarray(slots, np.int32), list_at)]
        for source, to in ((ffn.gate, block.gate), (ffn.up, block.up), (ffn.down_t, block.down_t)):
            if source is not None and to is not None:
                jobs.append(Rows(source, to, np.ascontiguousarray(neurons, np.int32), list_at))
        for bias, to_bias in ((ffn.gate_bias, block.gate_bias), (ffn.up_bias, block.up_bias)):
            if bias is not None:
                jobs.append(Numbers(np.ascontiguousarray(bias[own]), to_bias))
        return [*jobs, Numbers(own.copy(), block.neuron_in)]

    def close(self) -> None:
        """Release the memory of exchanges, but not the blocks. Idempotent."""
        self._uploader.close()
        self._discard_copy()
        give_back(self._memories)


def _matrices(ffn: FfnWeights) -> list[PackedMatrix]:
    return [matrix for matrix in (ffn.gate, ffn.up, ffn.down_t) if matrix is not None]


def _up(n: int) -> int:
    return -(-n // 16) * 16
