"""The CPU's part of a token on GPU and CPU, as calls of kernels: embedding, cold neurons, and the layers and head
placed on the CPU. token_steps.py has the GPU's part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.config import ModelConfig
from engine.decode.decode_calls import DecodeCalls
from engine.decode.ffn_calls import FfnCalls
from engine.executor.feed_forward import ffn_matrices
from engine.executor.slots import SlotTable
from engine.gpu.token.token_memory import COUNTS, SharedMemory
from engine.gpu.token.token_model import TokenModel
from engine.gpu.weights.layers import GpuModel
from engine.model.counters import FfnCounters
from engine.model.graph import graph_of
from engine.model.weights import ModelWeights
from native_kernels.backend import I64
from native_kernels.cpu.ffn.bit_lists import list_bits_calls
from native_kernels.cpu.ffn.sparse_ffn import Buffers, ffn_calls
from native_kernels.cpu.products.gemv import vector_format
from native_kernels.cpu.products.linear import Products, Vector
from native_kernels.cpu.products.row_sums import SUMS
from native_kernels.cpu.runtime.call import Call, Listed
from native_kernels.cpu.runtime.tallies import Counting, Tally

# Stages of the CPU's work for layers placed on the GPU, apart from those of layers placed on the CPU.
COLD, LISTING = "cold", "listing"


def computed_by_cpu(config: ModelConfig, weights: ModelWeights, model: GpuModel) -> frozenset[int]:
    """Return the layers placed on the GPU whose whole FFN the CPU computes.

    Their down is row-wise, no kernel sums single rows of its codec, or a cut-off needs all gates.
    """
    found, graph = [], graph_of(config)
    for i, (layer, w) in enumerate(zip(model.layers, weights.layers, strict=True)):
        if layer is not None and layer.has_cold:
            down_t = w.ffns[0].down_t
            if down_t is None or down_t.codec not in SUMS or graph.ffn(i).spec.cutoff:
                assert layer.block is None, "neurons are split only if each has its own rows"
                found.append(i)
    return frozenset(found)


class CpuCalls:
    """The CPU's buffers of one model's tokens, and the calls over them."""

    def __init__(
        self, model: TokenModel, products: Products, shared: SharedMemory, rows: Sequence[int | None]
    ) -> None:  # fmt: skip
        """rows: as in DecodeCalls."""
        config, weights = model.config, model.weights
        self.ffn = FfnCalls(model.mode, config, weights, products, model.predictor)
        self.calls = DecodeCalls(config, weights, self.ffn, products, shared.stream.array, rows)
        self.by_cpu = computed_by_cpu(config, weights, model.on_gpu)
        self._config = config
        self._weights = weights
        self._model = model.on_gpu
        self._mode = model.mode
        nothing = np.zeros(0, np.int32)
        self._tables = model.tables or [SlotTable(config.ffn_width(i), nothing) for i in range(config.n_layers)]
        self._shared = shared
        self._x = Vector(shared.x.array)
        self._residual = Vector(shared.residual.array)
        self._listed = Listed.empty(config.d_ff)
        self._buffers = Buffers.make(config.d_ff, config.d_model, products.n_workers)
        layers = range(config.n_layers)
        # Layers whose FFN is not split, and layers whose first matrix is computed whole and selects the rest.
        self._elsewhere = np.array([model.on_gpu.layers[i] is None or i in self.by_cpu for i in layers])
        self._decided = np.array([self._is_decided_by_first(i) for i in layers])

    def begin(self, counters: FfnCounters, n_later: int) -> None:
        """Prepare for a token that this many others follow in the run; negative: its result does not count."""
        self.ffn.tallies.set_counts(counters.recent(1) if n_later >= 0 else None)

    def cold(self, i: int) -> list[Call]:
        """Return the calls over the layer's cold neurons, of which the GPU's predictor may select some.

        They read what the GPU published, and write their sum to SharedMemory.cold. Their stages are COLD and LISTING,
        except in layers whose whole FFN the CPU computes.
        """
        shared, counts = self._shared, self.calls.counts[i]
        self._x.renew()
        self._residual.renew()
        if i in self.by_cpu:
            residual = self._x if graph_of(self._config).ffn(i).reads == "stream" else self._residual
            return self.ffn.of_layer(i, self._x, residual, shared.cold.array, counts)
        w = self._weights.layers[i].ffns[0]
        rounding: list[Call] = []
        listing: list[Call] = []
        forms: dict[str, NDArray[Any]] = {}
        assert w.down_t is not None, "cold neurons are added up one by one"
        for matrix in (w.up, *([] if w.gate is None else [w.gate])):
            forms[vector_format(matrix.codec)], more = self._x.as_read_by(matrix.codec, "ffn")
            rounding += more
        neurons = Listed(self._tables[i].cold, self._tables[i].n_cold)
        if self.predicts(i):
            neurons = self._listed
            listing = list_bits_calls(shared.bits.array, self._config.d_ff, neurons, LISTING)
            if rounding:  # independent of the listing, so one barrier after both is enough
                listing = [replace(call, barrier=False) for call in listing]
        matrices = ffn_matrices(graph_of(self._config).ffn(i).spec, w)
        computing = rounding + ffn_calls(
            matrices, forms, shared.cold.array, self._buffers, neurons=neurons,
            counting=Counting(counts.reshape(-1), Tally(self.ffn.tallies, i * self._config.d_ff)),
        )  # fmt: skip
        return listing + [replace(call, stage=COLD) for call in computing]

    def counted(self) -> I64:
        """Return the CPU's counts of the last token in split layers: computed, gate_active and fired, [L, 3]."""
        ours: I64 = self.calls.counts.reshape(self._config.n_layers, -1)[:, :3].astype(np.int64)
        if not self._config.gated:  # sparse_ffn then counts computed neurons as gate_active
            ours[:, 1] = ours[:, 2]
        return ours

    def totals(self, on_gpu: NDArray[np.uint32]) -> tuple[I64, int]:
        """Return a token's counts of all layers, as FfnCounters.layers [L, 4], and the neurons that the GPU computed.

        on_gpu: u32 [L * COUNTS], the GPU's counts.
        """
        theirs = on_gpu.reshape(-1, COUNTS).astype(np.int64)
        ours = np.zeros_like(theirs)
        ours[:, :3] = self.counted()
        for side in (ours, theirs):
            side[self._decided, 0] = side[self._decided, 1]
        found = ours + theirs
        if self._elsewhere.any():
            found[self._elsewhere] = self.ffn.totals(self.calls.counts)[self._elsewhere]
        return found, int(theirs[:, 0].sum())

    def predicts(self, i: int) -> bool:
        """Return whether the GPU publishes selected neurons for this layer."""
        layer = self._model.layers[i]
        predictor = None if layer is None else layer.predictor
        return predictor is not None and (predictor.low_rank is not None or predictor.copy is not None)

    def _is_decided_by_first(self, i: int) -> bool:
        """Return whether the layer's first matrix is computed whole and selects the rest."""
        layer = self._model.layers[i]
        predicts = self.predicts(i) and layer is not None and layer.whole is None
        return self._mode != "dense" and graph_of(self._config).ffn(i).spec.has_zeros and not predicts
