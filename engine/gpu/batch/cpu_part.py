"""The CPU's part of a batch step: whole layers, cold neurons, and chosen experts that are not resident."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import InvalidRequestError
from engine.executor.dense import DenseExecutor
from engine.executor.exact import ExactExecutor
from engine.executor.feed_forward import ffn_matrices
from engine.executor.slots import SlotTable
from engine.executor.union import UnionExecutor
from engine.gpu.batch.batch_experts import BatchExperts
from engine.gpu.batch.batch_memory import BatchMemory
from engine.gpu.batch.batch_runner import OnCpu, Part
from engine.gpu.token.cpu_calls import computed_by_cpu
from engine.model.counters import FfnCounters
from engine.model.graph import graph_of
from engine.model.transformer import Angles, FfnExecutor, RecurInput, Transformer
from engine.session.batch import angles_of
from native_kernels.backend import F32, I64
from native_kernels.cpu.ffn.union_ffn import Words, union_calls
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.call import Listed

if TYPE_CHECKING:
    from engine.gpu.token.token_model import TokenModel
    from engine.gpu.weights.cache import GpuCache, KvRegion
    from engine.gpu.weights.layers import GpuLayer


class CpuPart:
    """Computes on the sequences' rows [B, D].

    by_cpu: layers placed on the GPU whose whole FFN the CPU computes. counts: i64 [L, 5], of the CPU's neurons in one
    step. unions: [L, 2], as UnionExecutor's, over all steps.
    """

    def __init__(self, model: TokenModel, operators: CpuOperators, region: KvRegion, batch: int) -> None:
        """Raises: InvalidRequestError for experts that cannot be computed for several sequences together."""
        config, weights = model.config, model.weights
        self._model, self._region, self._batch = model, region, batch
        self._union: UnionExecutor | None = None  # lends its work memory to cold neurons; None: experts
        self._executor: FfnExecutor
        if model.slots is not None:
            self._executor = DenseExecutor(config, weights, operators)
            if model.mode != "dense" or self._executor.experts is None:
                raise InvalidRequestError("These experts are computed for one sequence at a time.", "Use a batch of 1.")
        else:
            counters = FfnCounters(config.n_layers, config.d_ff, without=config.mixer_only_layers)
            self._executor = self._union = UnionExecutor(
                config, weights, counters, operators, operators.pool, batch, model.predictor
            )
            if model.mode == "dense" or config.gate_cutoffs:  # a cut-off needs all gates, not the union of some
                kind = DenseExecutor if model.mode == "dense" else ExactExecutor
                self._executor = kind(config, weights, operators)
                self._union.name, self._executor.counters = self._executor.name, counters
        self.pool, self.counters = operators.pool, self._executor.counters
        self.transformer = Transformer(config, weights, self._executor, operators)
        self.by_cpu = frozenset() if self._union is None else computed_by_cpu(config, weights, model.on_gpu)
        self.counts: I64 = np.zeros((config.n_layers, 5), np.int64)
        self.unions: I64 = np.zeros((config.n_layers, 2), np.int64) if self._union is None else self._union.unions
        nothing = np.zeros(0, np.int32)
        self._tables = model.tables or [SlotTable(config.ffn_width(i), nothing) for i in range(config.n_layers)]
        self._tokens = np.array([batch], np.int64)
        self._angles: tuple[Angles, ...] | None = None  # of the current step
        self._caches: Sequence[GpuCache] = ()
        self._states: list[tuple[F32, F32]] = []  # of layers on the CPU, before and after the step, of each sequence
        self.inputs: F32 | None = None  # what the tokens of the current step add to each layer, [B, L, P]

    def begin(self, positions: I64, caches: Sequence[GpuCache]) -> tuple[Angles, ...]:
        """Begin a step, and return its RoPE angles."""
        self._angles, self._caches = angles_of(self.transformer, positions), caches
        self._states = [cache.states() for cache in caches]
        return self._angles

    def layer(self, i: int, x: F32) -> F32:
        """Compute a layer that is not on the GPU."""
        assert self._angles is not None, "a step runs"
        return self.transformer.layer(i, x, self._angles, self._attend, self._recur, self.inputs)

    def _attend(self, layer: int, q: F32, k: F32, v: F32) -> F32:
        cpu = self.transformer
        rows = [
            cpu.attend(
                layer, q[b : b + 1], k[b : b + 1], v[b : b + 1], *one.of_layer(layer), one.place(layer, one.length)
            )
            for b, one in enumerate(self._caches)
        ]
        return np.concatenate(rows)

    def _recur(self, layer: int, inputs: RecurInput) -> F32:
        cpu, row = self.transformer, graph_of(self._model.config).rows[layer]
        rows = [
            cpu.recur(layer, inputs.rows(slice(b, b + 1)), before[row], after[row])
            for b, (before, after) in enumerate(self._states)
        ]
        return np.concatenate(rows)

    def cold(
        self, i: int, layer: GpuLayer, memory: BatchMemory, experts: BatchExperts | None, predicts: bool
    ) -> list[Part]:
        """Return the parts for the layer's cold neurons; they write their sums to `memory.host_cold`.

        predicts: the GPU publishes which neurons are needed.
        """
        if self._union is None:
            assert experts is not None, "the model has experts"
            return [OnCpu(()), partial(self._missing, i, memory, experts)]
        if i in self.by_cpu:
            return [OnCpu(()), partial(self._whole, i, memory)]
        w, table = self._model.weights.layers[i].ffns[0], self._tables[i]
        needed: Words | Listed = memory.host_cold_words.array if predicts else Listed(table.cold_buffer, table.n_cold)
        work = replace(self._union.work, buffers=self._union.work.buffers.of_width(w.up.n_rows))
        work.buffers.tally[0] = 0
        matrices = ffn_matrices(graph_of(self._model.config).ffn(i).spec, w)
        calls = union_calls(
            matrices, memory.host_x.array, self._tokens, memory.host_cold.array,
            work, needed=needed, counts=self.counts[i],
        )  # fmt: skip
        if layer.blocks or w.down_bias is None:  # with blocks, the GPU adds the bias
            return [OnCpu(calls)]
        return [OnCpu(calls), partial(self._with_bias, memory, w.down_bias)]

    def _missing(self, i: int, memory: BatchMemory, experts: BatchExperts, x: F32) -> F32:
        """Compute the chosen experts of layer i that are not resident."""
        assert self._model.slots is not None, "the model has experts"
        assert isinstance(self._executor, DenseExecutor), "the constructor made it"
        assert self._executor.experts is not None, "the constructor checked it"
        ids, weights = experts.published()
        missing = self._model.slots.missing_of(i, ids)
        memory.host_cold.array[:] = self._executor.experts.chosen(i, memory.host_x.array, missing, weights, skips=False)
        return x

    def _whole(self, i: int, memory: BatchMemory, x: F32) -> F32:
        normed, residual = memory.host_x.array.copy(), memory.host_stream.array[0].copy()
        reads_stream = self.transformer.graph.ffn(i).reads == "stream"
        memory.host_cold.array[:] = self._executor.ffn(i, normed, normed if reads_stream else residual)
        return x

    @staticmethod
    def _with_bias(memory: BatchMemory, bias: F32, x: F32) -> F32:
        memory.host_cold.array[:] += bias
        return x
