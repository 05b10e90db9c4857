"""The CPU's part of a token of a model with experts, as calls of kernels.

It computes experts that are not resident on the GPU, and like CpuCalls the embedding and the layers and head placed on
the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engine.decode.decode_calls import DecodeCalls
from engine.decode.expert_calls import ExpertCalls
from engine.gpu.token.cpu_calls import COLD, CpuCalls
from engine.gpu.token.token_memory import COUNTS, SharedMemory
from engine.gpu.token.token_model import TokenModel
from engine.gpu.weights.expert_slots import ExpertSlots
from engine.model.counters import FfnCounters
from native_kernels.backend import F32, I64
from native_kernels.cpu.products.linear import Products, Vector
from native_kernels.cpu.runtime.call import Call


class CpuExpertCalls:
    """The buffers of one of a model's tokens on the CPU, and the calls over them.

    missing: i64 [L], the experts that it chose and that are not resident; -1: it chose one that does not exist.
    """

    def __init__(
        self, model: TokenModel, slots: ExpertSlots, products: Products, shared: SharedMemory,
        rows: Sequence[int | None],
    ) -> None:  # fmt: skip
        """rows: as in DecodeCalls."""
        config = model.config
        self.ffn = ExpertCalls(model.mode, config, model.weights, products)
        self.calls = DecodeCalls(config, model.weights, self.ffn, products, shared.stream.array, rows)
        self.by_cpu: frozenset[int] = frozenset()
        self._config = config
        self._mode = model.mode
        self._slots = slots
        self._shared = shared
        self._x = Vector(shared.x.array)
        self._growth: F32 = np.ones(1, np.float32)  # what a choice adds to the heat; 0: it does not count
        self.missing: I64 = np.zeros(config.n_layers, np.int64)
        ffns = [None if layer is None else layer.experts for layer in model.on_gpu.layers]
        self._on_gpu = np.array([ffn is not None for ffn in ffns])
        self._has_slots = np.array([ffn is not None and ffn.resident is not None for ffn in ffns])

    def begin(self, counters: FfnCounters, n_later: int) -> None:
        """Prepare for a token that this many others follow in the run; negative: its result does not count.

        Then the CPU computes no experts of layers on the GPU for it.
        """
        self.ffn.tallies.set_counts(counters.recent(1) if n_later >= 0 else None)
        self._growth[0] = self._slots.growth(n_later) if n_later >= 0 else 0.0
        self.missing.fill(0)

    def cold(self, i: int) -> list[Call]:
        """Return the calls over the layer's chosen experts that are not resident.

        They write their sum to SharedMemory.cold.
        """
        shared, published = self._shared, self._shared.bits.array.view(np.int32)
        self._x.renew()
        residency = replace(self._slots.residency(i), growth=self._growth, missing=self.missing[i : i + 1])
        calls = self.ffn.of_missing(i, self._x, published, residency, shared.cold.array, self.calls.counts[i])
        return [replace(call, stage=COLD) for call in calls]

    def counted(self) -> I64:
        """Return the CPU's counts of the last token: computed, gate_active and fired, [L, 3]."""
        found = self.ffn.totals(self.calls.counts)[:, :3]
        if self._mode == "dense":
            found[self._on_gpu, 0] = self._config.d_ff * self.missing[self._on_gpu]
        return found

    def totals(self, on_gpu: NDArray[np.uint32]) -> tuple[I64, int]:
        """Return a token's counts of all layers, as FfnCounters.layers [L, 4], and the neurons that the GPU computed.

        on_gpu: u32 [L * COUNTS], the GPU's counts, which include non-resident experts as computed.
        """
        config, theirs = self._config, on_gpu.reshape(-1, COUNTS).astype(np.int64)
        if self._mode == "dense" and self._on_gpu.all() and not self.missing.any():  # the CPU computed nothing
            return theirs, int(theirs[:, 0].sum())
        ours = self.counted()
        theirs[:, 0] -= config.d_ff * self.missing * self._has_slots
        if self._mode != "dense":  # the first matrix decides what counts as computed
            theirs[:, 0] = theirs[:, 1]
        found = theirs.copy()
        found[:, :3] += ours
        return found, int(theirs[:, 0].sum())

    def predicts(self, i: int) -> bool:
        """Return False, because the router selects."""
        return False


def cpu_calls(
    model: TokenModel, products: Products, shared: SharedMemory, rows: Sequence[int | None]
) -> CpuCalls | CpuExpertCalls:
    """Return the CPU's part of a model's tokens."""
    found: CpuCalls | CpuExpertCalls
    if model.slots is None:
        found = CpuCalls(model, products, shared, rows)
    else:
        found = CpuExpertCalls(model, model.slots, products, shared, rows)
    found.calls.send_inputs(shared.inputs.array, are_complete=model.on_gpu.inputs is None)
    return found
