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
from typing import cast

import numpy as np

from engine.errors import ContextOverflowError, DeviceFailedError, DeviceMemoryError, InvalidRequestError
from engine.gpu.batch.batch_experts import BatchExperts
from engine.gpu.batch.batch_memory import BatchMemory, Exchanged, counts_words
from engine.gpu.batch.batch_runner import BatchRunner, OnGpu, Part
from engine.gpu.batch.batch_steps import BatchSteps
from engine.gpu.batch.cpu_part import CpuPart
from engine.gpu.token.token_model import TokenModel
from engine.gpu.weights.cache import GpuCache, KvRegion
from engine.gpu.weights.layers import GpuExpertFfn, GpuModel
from engine.model.kv_cache import KVCache
from engine.model.transformer import Transformer
from engine.session.batch import check_batch, count, renew
from native_kernels.backend import F32, I64
from native_kernels.cpu.operators import CpuOperators
from native_kernels.cuda.batch_ops import GpuBatchOps
from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.gpu import Gpu, GpuSequences
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError

PATIENCE_S = 10.0  # for one exchange


def why_not(model: GpuModel) -> str:
    """Return in one sentence why a GPU cannot decode sequences of this model together; "" if it can."""
    predictors = [layer.predictor for layer in model.layers if layer is not None and layer.predictor is not None]
    if any(predictor.copy is not None for predictor in predictors):
        return "Predictors that are copies of the weights serve one sequence at a time on a GPU."
    return ""


class GpuBatch:
    """A BatchModel on GPU and CPU. Call `close` before closing the GPU.

    It has no counts per neuron: rows of no answer (JointSteps) would count, and each layer would need one launch more.
    """

    def __init__(
        self, gpu: Gpu, model: TokenModel, transformer: Transformer, cpu: CpuPart, region: KvRegion, ops: GpuBatchOps,
        batch: int,
    ) -> None:  # fmt: skip
        """transformer: the model for one sequence.

        Raises: InvalidRequestError with the reason of `why_not`; CudaOutOfMemoryError, CudaError.
        """
        config, on_gpu = model.config, model.on_gpu
        if reason := why_not(on_gpu):
            raise InvalidRequestError(reason, "Use a batch of 1.")
        self.batch, self.counters = batch, cpu.counters
        self._gpu, self._config, self._model, self._slots = gpu, config, on_gpu, model.slots
        self._transformer, self._cpu, self._region, self._ops = transformer, cpu, region, ops
        if region.most_states is not None and batch > region.most_states:
            raise InvalidRequestError(
                f"The GPU has memory for the states of {region.most_states} sequences.",
                f"Load the model for {batch} sequences.",
            )
        self._local_slot = region.local_slot_positions(batch)
        self._slot = region.slot_positions(batch) if self._local_slot else 0
        gpu.enter()
        self._memory = BatchMemory(gpu, config, on_gpu, batch, model.weights.head.n_rows)
        self._experts: BatchExperts | None = None
        if model.slots is not None:
            try:
                self._experts = BatchExperts(gpu, config, on_gpu, ops, batch)
            except BaseException:
                self._memory.free()
                raise
        states = self._memory.host_states.address
        sequences = [GpuSequences(batch, self._slot, states), GpuSequences(batch, self._local_slot, states + 8 * batch)]
        self._steps = BatchSteps(gpu, model, ops, self._memory, sequences, cpu.by_cpu, self._experts)
        self._staged: I64 = np.zeros((config.n_layers, 2), np.int64)  # zero-copy neurons read, and those used
        self._runner = BatchRunner(gpu, cpu.pool, self._memory, self._parts(), PATIENCE_S)

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

    # --- BatchModel

    def reset(self) -> None:
        self.counters.reset()
        self._cpu.unions[:] = 0
        self._staged[:] = 0
        self._runner.reset_times()

    def union_shares(self) -> F32:
        """As BatchModel.union_shares, for the neurons that the CPU computes."""
        return self._shares(self._cpu.unions)

    def routed_shares(self) -> F32:
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
            self._region.give_to_all(own)
            for cache in own:
                cache.claim_state()
                cache.make_room(1)
            started = time.perf_counter()
            logits = self._run(tokens, own)
            if self._slots is not None:
                self._slots.exchange_after(time.perf_counter() - started)
        except BaseException as error:
            with contextlib.suppress(CudaError):  # the first error is raised
                self._recover()
            if isinstance(error, CudaError):
                raise DeviceFailedError(f"The GPU failed: {error}.") from error
            raise
        for token, cache in zip(tokens, own, strict=True):
            count(cache, int(token))
        return logits

    # --- one step

    def _run(self, tokens: I64, caches: Sequence[GpuCache]) -> F32:
        memory = self._memory
        positions = np.array([cache.length for cache in caches], np.int64)
        in_windows = positions - np.array([cache.local_first for cache in caches], np.int64)
        rows = np.arange(self.batch)
        halves = [cache.half if cache.recurs else 0 for cache in caches]
        states = positions, positions + self._slot * rows, in_windows, in_windows + self._local_slot * rows, halves
        memory.host_states.array[:] = states
        if self._slots is not None:
            self._slots.begin_run()
        for i, angles in enumerate(self._cpu.begin(positions, caches)):
            for place, values in zip(memory.host_angles.array[2 * i :], angles, strict=False):
                place.reshape(-1)[: values.size] = values.reshape(-1)
        cpu = self._cpu.transformer
        on_gpu = self._model.inputs is not None
        x = cpu.embed(tokens, positions, all_streams=not on_gpu)
        inputs = cpu.layer_embeddings(tokens) if on_gpu else cpu.layer_inputs(tokens, x)
        if inputs is not None:
            memory.host_inputs.array[:] = inputs.reshape(self.batch, -1)
            self._cpu.inputs = inputs
        x = self._runner.run(x)
        self._gpu.synchronize()
        self._count()
        if self._model.head is None:
            return cpu.logits(cpu.last_norm(x))
        logits: F32 = memory.host_logits.array.copy()
        return logits

    def _parts(self) -> list[Part]:
        """Return the parts of a step, in order."""
        steps, model, cpu = self._steps, self._model, self._cpu
        on_gpu = model.layers[0] is not None
        parts: list[Part] = [OnGpu(steps.begin)]
        if on_gpu:  # write the rows before the first launch reads them
            parts = [self._write_stream, *parts, OnGpu(steps.enter), OnGpu(steps.complete_inputs)]
        for i, layer in enumerate(model.layers):
            if layer is None:
                parts += self._leaving() if on_gpu else []
                parts.append(partial(cpu.layer, i))
                on_gpu = False
                continue
            parts += [] if on_gpu else [self._write_stream, OnGpu(steps.enter)]
            parts.append(OnGpu(partial(steps.layer, i, layer)))
            on_gpu = True
            if layer.has_cold:
                cold = cpu.cold(i, layer, self._memory, self._experts, steps.predicts(i))
                parts += [*cold, OnGpu(partial(steps.take_cold, i, layer))]
        if model.head is None:
            parts += self._leaving() if on_gpu else []
        else:
            parts += [] if on_gpu else [self._write_stream, OnGpu(steps.enter)]
            parts.append(OnGpu(steps.head))
        return [*parts, OnGpu(steps.end)]

    def _write_stream(self, x: F32) -> F32:
        self._gpu.synchronize()
        streams = x.reshape(self.batch, -1, self._config.d_model).swapaxes(0, 1)
        self._memory.host_stream.array[: len(streams)] = streams
        return x

    def _leaving(self) -> list[Part]:
        return [OnGpu(self._steps.leave), self._read_stream]

    def _read_stream(self, x: F32) -> F32:
        self._gpu.synchronize()
        found: F32 = self._memory.host_stream.array.swapaxes(0, 1).reshape(self.batch, -1).copy()
        return found

    def _count(self) -> None:
        steps, cpu, n_on_gpu = self._steps, self._cpu, 0
        theirs: Exchanged = self._memory.host_counts
        found = theirs.array.reshape(self._config.n_layers, counts_words(self.batch)).astype(np.int64)
        for i, layer in enumerate(self._model.layers):
            if layer is None or i in cpu.by_cpu:
                continue
            if layer.experts is not None:
                n_on_gpu += self._count_experts(i, layer.experts, found[i, 2 * self.batch :].tolist())
                continue
            gate_active, fired = found[i, : 2 * self.batch].reshape(-1, 2).sum(axis=0).tolist()
            ours = cpu.counts[i]
            computed = steps.computed_on_gpu(layer, i, gate_active, int(found[i, 2 * self.batch]))
            cold = int(ours[0]) if steps.counts_all(i) else int(ours[1])
            cpu.unions[i] += ours[3:]
            self._staged[i] += found[i, 2 * self.batch + 1 : 2 * self.batch + 3]
            self.counters.add_counted(i, self.batch, computed + cold, gate_active + int(ours[1]), fired + int(ours[2]))
            n_on_gpu += computed
        cpu.counts[:] = 0
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
        self._cpu.counts[:] = 0
        self._runner.recover()


def batch_ops(gpu: Gpu) -> GpuBatchOps:
    """Return the batch operators of a GPU. Raises: CudaError."""
    assert isinstance(gpu, CudaGpu), "no other GPU has them"
    return GpuBatchOps(gpu)


def open_gpu_batch(
    gpu: Gpu, model: TokenModel, transformer: Transformer, operators: CpuOperators, region: KvRegion, ops: GpuBatchOps,
    batch: int,
) -> GpuBatch:  # fmt: skip
    """Open the batch of a model. transformer: the model for one sequence. The batch owns `ops`.

    Raises: InvalidRequestError with the reason, DeviceMemoryError, CudaError; ops are closed then.
    """
    try:
        return GpuBatch(gpu, model, transformer, CpuPart(model, operators, region, batch), region, ops, batch)
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
