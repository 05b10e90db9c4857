"""Decode several sequences together on GPU and CPU, so that each weight is read once for all.

For each layer, the GPU computes the attention of all sequences, publishes the cold neurons that any sequence needs, and
computes the hot neurons while the CPU computes the cold ones. If all layers are placed on the GPU, a step is one
program.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from engine.config import ModelConfig
from engine.errors import ContextOverflowError, DeviceFailedError, DeviceMemoryError, InvalidRequestError
from engine.executor.dense import DenseExecutor
from engine.executor.feed_forward import ffn_matrices
from engine.executor.slots import SlotTable
from engine.executor.union import UnionExecutor
from engine.gpu.batch.batch_experts import BatchExperts
from engine.gpu.batch.batch_memory import BatchMemory, Exchanged, counts_words
from engine.gpu.batch.batch_runner import BatchRunner, OnCpu, OnGpu, Part
from engine.gpu.batch.batch_steps import BatchSteps
from engine.gpu.token.cpu_calls import computed_by_cpu
from engine.gpu.weights.cache import GpuCache, KvRegion
from engine.gpu.weights.layers import GpuExpertFfn, GpuLayer, GpuModel
from engine.model.counters import FfnCounters
from engine.model.kv_cache import KVCache
from engine.model.transformer import Angles, FfnExecutor, Transformer
from engine.model.weights import ModelWeights
from engine.session.batch import angles_of, check_batch, count, renew
from native_kernels.backend import F32, I64
from native_kernels.cpu.ffn.union_ffn import Words, union_calls
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cpu.runtime.call import Listed
from native_kernels.cuda.batch_ops import GpuBatchOps
from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.gpu import Gpu
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError

if TYPE_CHECKING:
    from engine.gpu.weights.expert_slots import ExpertSlots
    from engine.sparsity.predictor import Predictor

PATIENCE_S = 10.0  # for one exchange


def why_not(config: ModelConfig, model: GpuModel) -> str:
    """Return in one sentence why a GPU cannot decode sequences of this model together; "" if it can."""
    predictors = [layer.predictor for layer in model.layers if layer is not None and layer.predictor is not None]
    if any(predictor.copy is not None for predictor in predictors):
        return "Predictors that are copies of the weights serve one sequence at a time on a GPU."
    if config.head_dim > 256:
        return f"Heads of {config.head_dim} numbers are computed for one sequence at a time on a GPU."
    return ""


class GpuBatch:
    """A BatchModel on GPU and CPU. Call `close` before closing the GPU.

    It has no counts per neuron.
    """

    def __init__(
        self, gpu: Gpu, weights: ModelWeights, model: GpuModel, transformer: Transformer, operators: CpuOperators,
        region: KvRegion, tables: Sequence[SlotTable] | None, executor: FfnExecutor, union: UnionExecutor | None,
        ops: GpuBatchOps, batch: int, slots: ExpertSlots | None = None,
    ) -> None:  # fmt: skip
        """transformer: the model for one sequence. executor: computes FFNs on the CPU, except split ones. union: lends
        its work memory to cold neurons. slots: expert slots. A model has either union or slots.

        Raises: InvalidRequestError with the reason of `why_not`; CudaOutOfMemoryError, CudaError.
        """
        config = transformer.config
        if reason := why_not(config, model):
            raise InvalidRequestError(reason, "Use a batch of 1.")
        self.batch, self.counters = batch, executor.counters
        self._gpu, self._config, self._model, self._pool, self._region = gpu, config, model, operators.pool, region
        self._transformer, self._ops, self._executor, self._union = transformer, ops, executor, union
        self._slots = slots
        self._cpu = Transformer(config, weights, executor, operators)
        self._tables = tables or [SlotTable(config.d_ff, np.zeros(0, np.int32))] * config.n_layers
        self._slot = region.slot_positions(batch)
        gpu.enter()
        self._memory = BatchMemory(gpu, config, model, batch, weights.head.n_rows)
        self._experts: BatchExperts | None = None
        if slots is not None:
            try:
                self._experts = BatchExperts(gpu, config, model, ops, batch)
            except BaseException:
                self._memory.free()
                raise
        by_cpu = computed_by_cpu(weights, model) if union is not None else frozenset()
        mode = "dense" if union is None else union.name
        self._steps = BatchSteps(
            gpu, config, model, ops, self._memory, batch, self._slot, mode, by_cpu, self._experts
        )  # fmt: skip
        self._tokens = np.array([batch], np.int64)
        self._staged: I64 = np.zeros((config.n_layers, 2), np.int64)  # zero-copy neurons read, and those used
        self._angles: tuple[Angles, ...] | None = None  # of the current step
        self._caches: Sequence[GpuCache] = ()
        self._runner = BatchRunner(gpu, operators.pool, self._memory, self._parts(), PATIENCE_S)

    def close(self) -> None:
        """Release GPU and pinned memory. Idempotent."""
        self._runner.close()
        if self._memory is not None:
            self._memory.free()
            if self._experts is not None:
                self._experts.free()
            self._ops.close()
            self._memory = cast(BatchMemory, None)

    @property
    def n_bytes(self) -> int:
        """Bytes of GPU memory, without captured work."""
        return self._memory.n_bytes + (0 if self._experts is None else self._experts.n_bytes)

    # -------------------------------------------------------------- BatchModel

    def reset(self) -> None:
        self.counters.reset()
        if self._union is not None:
            self._union.unions[:] = 0
        self._staged[:] = 0
        self._runner.forget_times()

    def union_shares(self) -> F32:
        """As BatchModel.union_shares, for the neurons that the CPU computes."""
        return self._shares(self._staged * 0 if self._union is None else self._union.unions)

    def routed_shares(self) -> F32:
        """As BatchModel.routed_shares."""
        return self._shares(self._staged)

    def _shares(self, neurons: I64) -> F32:
        steps = max(1, self.counters.tokens // self.batch)
        return (neurons / (steps * self._config.d_ff)).astype(np.float32)

    def stage_seconds(self) -> dict[str, float]:
        """As BatchModel.stage_seconds. "exchange" is waiting for the GPU, "ffn" the CPU's cold neurons."""
        return self._runner.stage_seconds()

    def step(self, tokens: I64, caches: Sequence[KVCache]) -> F32:
        check_batch(self._transformer, self.batch, tokens, caches)
        own = [cast(GpuCache, cache) for cache in caches]
        for cache in own:
            if cache.length >= self._slot:
                raise ContextOverflowError(
                    f"Each of {self.batch} sequences has room for {self._slot} tokens on the GPU.",
                    "Load the model for a larger context, or decode fewer sequences together.",
                )
            renew(self._transformer, cache)
        try:
            self._gpu.enter()
            self._region.take_together(own)
            started = time.perf_counter()
            logits = self._run(tokens, own)
            if self._slots is not None:
                self._slots.follow(time.perf_counter() - started)
        except BaseException as error:
            with contextlib.suppress(CudaError):  # the first error is raised
                self._recover()
            if isinstance(error, CudaError):
                raise DeviceFailedError(f"The GPU failed: {error}.") from error
            raise
        for token, cache in zip(tokens, own, strict=True):
            count(cache, int(token))
        return logits

    # -------------------------------------------------------------- one step

    def _run(self, tokens: I64, caches: Sequence[GpuCache]) -> F32:
        memory = self._memory
        positions = np.array([cache.length for cache in caches], np.int64)
        memory.host_states.array[0] = positions
        memory.host_states.array[1] = positions + self._slot * np.arange(self.batch)
        if self._slots is not None:
            self._slots.begin_token()
        self._angles, self._caches = angles_of(self._cpu, positions), caches
        for i, angles in enumerate(self._angles):
            memory.host_angles.array[2 * i : 2 * i + 2] = angles
        x = self._runner.run(self._cpu.embed(tokens, positions))
        self._gpu.synchronize()
        self._count()
        if self._model.head is None:
            return self._cpu.logits(self._cpu.last_norm(x))
        logits: F32 = memory.host_logits.array.copy()
        return logits

    def _parts(self) -> list[Part]:
        """Return the parts of a step, in order."""
        steps, model = self._steps, self._model
        on_gpu = model.layers[0] is not None
        parts: list[Part] = [OnGpu(steps.begin)]
        if on_gpu:  # write the rows before the first launch reads them
            parts = [self._write_stream, *parts, OnGpu(steps.enter)]
        for i, layer in enumerate(model.layers):
            if layer is None:
                parts += self._leaving() if on_gpu else []
                parts.append(partial(self._cpu_layer, i))
                on_gpu = False
                continue
            parts += [] if on_gpu else [self._write_stream, OnGpu(steps.enter)]
            parts.append(OnGpu(partial(steps.layer, i, layer)))
            on_gpu = True
            if layer.has_cold:
                parts += [*self._cold(i, layer), OnGpu(partial(steps.take_cold, i, layer))]
        if model.head is None:
            parts += self._leaving() if on_gpu else []
        else:
            parts += [] if on_gpu else [self._write_stream, OnGpu(steps.enter)]
            parts.append(OnGpu(steps.head))
        return [*parts, OnGpu(steps.end)]

    def _write_stream(self, x: F32) -> F32:
        self._gpu.synchronize()
        self._memory.host_stream.array[:] = x
        return x

    def _leaving(self) -> list[Part]:
        return [OnGpu(self._steps.leave), self._read_stream]

    def _read_stream(self, x: F32) -> F32:
        self._gpu.synchronize()
        found: F32 = self._memory.host_stream.array.copy()
        return found

    def _cpu_layer(self, i: int, x: F32) -> F32:
        assert self._angles is not None, "a step runs"
        return self._cpu.layer(i, x, self._angles, self._attend)

    def _attend(self, layer: int, q: F32, k: F32, v: F32) -> F32:
        row = self._region.rows[layer]
        rows = [
            self._cpu.attend(layer, q[b : b + 1], k[b : b + 1], v[b : b + 1], one.blocks[row], one.layout, one.length)
            for b, one in enumerate(self._caches)
        ]
        return np.concatenate(rows)

    # -------------------------------------------------------------- the CPU's part

    def _cold(self, i: int, layer: GpuLayer) -> list[Part]:
        """Return the CPU's parts for the layer's cold neurons; they write their sums to `host_cold`."""
        memory, config, w = self._memory, self._config, self._cpu.weights.layers[i].ffns[0]
        if self._union is None:
            return [OnCpu(()), partial(self._missing, i)]
        if i in self._steps.by_cpu:
            return [OnCpu(()), partial(self._whole, i)]
        table = self._tables[i]
        needed: Words | Listed = Listed(table.cold_room, table.n_cold)
        if self._steps.predicts(i):
            needed = memory.host_cold_words.array
        self._union.work.buffers.tally[0] = 0
        calls = union_calls(
            ffn_matrices(config, w), memory.host_x.array, self._tokens, memory.host_cold.array, self._union.work,
            needed=needed, counts=self._steps.host_counts[i],
        )  # fmt: skip
        if layer.blocks or w.down_bias is None:  # with blocks, the GPU adds the bias
            return [OnCpu(calls)]
        return [OnCpu(calls), partial(self._with_bias, w.down_bias)]

    def _missing(self, i: int, x: F32) -> F32:
        """Compute the chosen experts of layer i that are not resident."""
        assert self._experts is not None, "the model has experts"
        assert self._slots is not None, "so it has slots"
        assert isinstance(self._executor, DenseExecutor), "as open_gpu_batch makes it"
        assert self._executor.experts is not None, "open_gpu_batch has looked"
        memory, (ids, weights) = self._memory, self._experts.published()
        missing = self._slots.missing_of(i, ids)
        memory.host_cold.array[:] = self._executor.experts.chosen(i, memory.host_x.array, missing, weights, skips=False)
        return x

    def _whole(self, i: int, x: F32) -> F32:
        memory = self._memory
        normed, residual = memory.host_x.array.copy(), memory.host_stream.array.copy()
        reads_stream = self._cpu.graph.ffn(i).reads == "stream"
        memory.host_cold.array[:] = self._executor.ffn(i, normed, normed if reads_stream else residual)
        return x

    def _with_bias(self, bias: F32, x: F32) -> F32:
        self._memory.host_cold.array[:] += bias
        return x

    def _count(self) -> None:
        steps, n_on_gpu = self._steps, 0
        theirs: Exchanged = self._memory.host_counts
        found = theirs.array.reshape(self._config.n_layers, counts_words(self.batch)).astype(np.int64)
        for i, layer in enumerate(self._model.layers):
            if layer is None or i in steps.by_cpu:
                continue
            if layer.experts is not None:
                n_on_gpu += self._count_experts(i, layer.experts, found[i, 2 * self.batch :].tolist())
                continue
            assert self._union is not None, "the layer has neurons"
            gate_active, fired = found[i, : 2 * self.batch].reshape(-1, 2).sum(axis=0).tolist()
            ours = steps.host_counts[i]
            computed = steps.computed_on_gpu(layer, i, gate_active, int(found[i, 2 * self.batch]))
            cold = int(ours[0]) if steps.counts_all(i) else int(ours[1])
            self._union.unions[i] += ours[3:]
            self._staged[i] += found[i, 2 * self.batch + 1 : 2 * self.batch + 3]
            self.counters.add_counted(i, self.batch, computed + cold, gate_active + int(ours[1]), fired + int(ours[2]))
            n_on_gpu += computed
        steps.host_counts[:] = 0
        self.counters.on_gpu = (self.counters.on_gpu or 0) + n_on_gpu

    def _count_experts(self, i: int, ffn: GpuExpertFfn, found: Sequence[int]) -> int:
        """Count the GPU's experts of layer i; return the neurons it computed. found: computed, gate_active, fired."""
        assert self._slots is not None, "the model has experts"
        missing = int(self._slots.missing[i])  # computed by the CPU, which counts them
        computed = found[0] - (0 if ffn.resident is None else missing * self._config.d_ff)
        pairs = self.batch * self._config.n_blocks_used - missing
        self.counters.add_counted(i, pairs, computed, found[1], found[2])
        return computed

    def _recover(self) -> None:
        """Reset counts and flags after a failed step. Raises: CudaError if the GPU no longer computes."""
        self._steps.host_counts[:] = 0
        self._runner.recover()


def batch_ops(gpu: Gpu) -> GpuBatchOps:
    """Return the batch operators of a GPU. Raises: CudaError."""
    assert isinstance(gpu, CudaGpu), "no other GPU has them"
    return GpuBatchOps(gpu)


def open_gpu_batch(
    gpu: Gpu, weights: ModelWeights, model: GpuModel, graph: Transformer, operators: CpuOperators, region: KvRegion,
    tables: Sequence[SlotTable] | None, predictor: Predictor | None, ops: GpuBatchOps, batch: int,
    slots: ExpertSlots | None = None,
) -> GpuBatch:  # fmt: skip
    """Open the batch of a model in the mode of `graph`, which computes one sequence. The batch owns `ops`.

    Raises: InvalidRequestError with the reason, DeviceMemoryError, CudaError; ops are closed then.
    """
    config, dense = graph.config, isinstance(graph.executor, DenseExecutor)
    counters = FfnCounters(config.n_layers, config.d_ff)
    try:
        if slots is not None:
            of_experts = DenseExecutor(config, weights, operators)
            if not dense or of_experts.experts is None:
                raise InvalidRequestError("These experts are computed for one sequence at a time.", "Use a batch of 1.")
            return GpuBatch(gpu, weights, model, graph, operators, region, None, of_experts, None, ops, batch, slots)
        union = UnionExecutor(config, weights, counters, operators, operators.pool, batch, predictor)
        executor: FfnExecutor = union
        if dense:
            union.name, executor = "dense", DenseExecutor(config, weights, operators)
            executor.counters = counters
        return GpuBatch(gpu, weights, model, graph, operators, region, tables, executor, union, ops, batch)
    except CudaOutOfMemoryError as error:
        ops.close()
        raise DeviceMemoryError(
            f"The GPU does not have enough free memory for {batch} sequences together.",
            "Decode fewer together, or load the model with a smaller VRAM budget.",
        ) from error
    except BaseException:
        ops.close()
        raise


__all__ = ["GpuBatch", "batch_ops", "open_gpu_batch", "why_not"]
