"""Load the part of a model that the solver placed on the GPU: allocate, upload, and release it on close.

layout.py lays it out. Mapped matrices that are uploaded whole are not kept in this process's RAM.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.config import KvCodec, ModelConfig
from engine.gpu.weights.expert_slots import ExpertSlots
from engine.gpu.weights.hot_slots import GpuHotSide
from engine.gpu.weights.layers import GpuModel
from engine.gpu.weights.layout import GpuLayout, Region, experts_of, lay_out_predictors
from engine.gpu.weights.uploads import Rows, Upload, Uploader, give_back, half_for
from engine.job import Job
from engine.load_steps import LoadSteps
from engine.model.pages import let_go
from engine.model.weights import ModelWeights
from engine.model.window_memory import window_positions
from engine.placement.gpu_bytes import n_states
from engine.sparsity.placement import Placement
from engine.sparsity.predictor import Predictor
from native_kernels.backend import I32
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.cuda.gpu import Gpu, Memory
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError

log = logging.getLogger(__name__)


@dataclass(eq=False)
class LoadedGpu:
    """A model's part on the GPU, until `close`.

    pool: copies weights for uploads. context, kv_codec: of the KV cache. placement: the placement it was loaded by.
    placed: [L], its neurons with a slot, without zero-copy neurons if pinning failed. hot_side: None if no layer has
    slots for neurons. expert_slots: None without experts. part_bytes: bytes on the GPU by the placement's parts.
    """

    gpu: Gpu
    pool: Pool
    model: GpuModel
    placement: Placement
    context: int
    kv_codec: KvCodec
    part_bytes: dict[str, int]
    placed: tuple[I32, ...]
    hot_side: GpuHotSide | None = None
    expert_slots: ExpertSlots | None = None
    has_predictors: bool = False
    _memories: list[Memory] = field(default_factory=list)

    def add_predictors(self, weights: ModelWeights, predictor: Predictor) -> None:
        """Load the predictors and replace `model`. Raises: CudaOutOfMemoryError, CudaError; nothing changes then."""
        if self.has_predictors:
            return
        needed = Region(0)
        lay_out_predictors(predictor, weights, self.model, needed)
        memory = self.gpu.allocate(max(1, needed.n_bytes))
        try:
            region = Region(memory.address)
            model = lay_out_predictors(predictor, weights, self.model, region)
            with Uploader(self.gpu, self.pool, half_for(region.jobs)) as uploader:
                uploader.run(region.jobs)
        except BaseException:
            give_back([memory])
            raise
        _release_pages(region.jobs, weights)
        self._memories.append(memory)
        self.model, self.has_predictors = model, True
        self.part_bytes["predictors"] = region.n_bytes

    def close(self) -> None:
        """Release the memory. Idempotent. CUDA errors are ignored, because a failed GPU holds no memory."""
        for side in (self.hot_side, self.expert_slots):
            if side is not None:
                side.close()
        give_back(self._memories)


@dataclass(frozen=True, eq=False)
class GpuContents:
    """The contents to load: a placement's part, and a KV cache of `context` tokens of all sequences together.

    learned: [L], neurons in the order of their slots, as many as the placement's and instead of them.
    """

    placement: Placement
    context: int
    kv_codec: KvCodec
    learned: Sequence[I32] | None = None
    sequences: int = 1


def load_onto_gpu(
    gpu: Gpu,
    pool: Pool,
    config: ModelConfig,
    weights: ModelWeights,
    predictor: Predictor | None,
    contents: GpuContents,
    job: Job = Job(),
    steps: LoadSteps | None = None,
) -> LoadedGpu:
    """Load the contents onto the GPU. predictor: None for modes without one. Units: progress in bytes.

    The calling thread must have entered the GPU. If host memory cannot be pinned, the CPU computes the zero-copy
    neurons instead.
    Cost: one read of the weights, as fast as the slower of disk and bus.
    Raises: CudaOutOfMemoryError, CudaError, Cancelled; nothing is left on the GPU then.
    """
    steps = steps or LoadSteps()
    steps.begin("room on the GPU")
    placement, context, kv_codec = contents.placement, contents.context, contents.kv_codec
    sequences = contents.sequences
    cache = context, window_positions(config, context, sequences), n_states(config, sequences)
    hot = list(placement.in_slots if contents.learned is None else contents.learned)

    def laid_out(bases: tuple[int, int, int]) -> GpuLayout:
        return GpuLayout(config, weights, placement, hot, cache, kv_codec, bases)

    *on_gpu, pinned = laid_out((0, 0, 0)).n_bytes
    memories: list[Memory] = []
    reached = 0
    try:
        if pinned:
            try:
                memory = gpu.pin(pinned)
            except CudaOutOfMemoryError:
                log.info("Couldn't pin %.2f GiB of memory; no zero-copy neurons", pinned / 2**30)
                hot = [ids[: len(own)] for ids, own in zip(hot, placement.hot, strict=True)]
                on_gpu = list(laid_out((0, 0, 0)).n_bytes[:2])
            else:
                reached = memory.device_address
                memories.append(memory)
        for n_bytes in on_gpu:
            memories.append(gpu.allocate(max(1, n_bytes)))
        weights_at, kv_at = memories[-2:]
        layout = laid_out((weights_at.address, kv_at.address, reached))
        gpu.fill(kv_at.address, 0, kv_at.n_bytes)
        total = sum(job.n_units * job.unit for job in layout.jobs)
        steps.begin("weights to the GPU")
        steps.moved(total)
        with Uploader(gpu, pool, half_for(layout.jobs)) as uploader:
            uploader.run(layout.jobs, lambda done: job.progress(done, total), job.cancelled)
    except BaseException:
        with contextlib.suppress(CudaError):
            gpu.synchronize()  # an upload may still run
        give_back(memories)
        raise
    steps.begin("letting go")
    _release_pages(layout.jobs, weights)
    parts = {**layout.part_bytes, "predictors": 0}
    placed = tuple(ids[: len(now)] for ids, now in zip(placement.in_slots, hot, strict=True))
    if config.n_experts:
        placed = tuple(hot)
    loaded = LoadedGpu(gpu, pool, layout.model, placement, context, kv_codec, parts, placed, _memories=memories)
    try:
        loaded.hot_side = _hot_side(gpu, pool, weights, layout.model, hot)
        if config.n_experts:
            experts = [
                experts_of(ids if w.routed else ids[:0], config.d_ff)
                for w, ids in zip(weights.layers, placed, strict=True)
            ]
            loaded.expert_slots = ExpertSlots(gpu, pool, config, weights, layout.model, experts)
        if predictor is not None:
            steps.begin("predictors to the GPU")
            loaded.add_predictors(weights, predictor)
    except BaseException:
        loaded.close()
        raise
    return loaded


def _release_pages(jobs: Sequence[Upload], weights: ModelWeights) -> None:
    """Release the host pages of matrices that are on the GPU whole; from the page cache too if RAM lacks experts."""
    whole = [job.source for job in jobs if isinstance(job, Rows) and job.n_rows == job.source.n_rows]
    if weights.expert_reads is not None and weights.expert_reads.is_needed:
        weights.expert_reads.evict_matrices(whole)
        return
    for matrix in whole:
        let_go(matrix)


def _hot_side(gpu: Gpu, pool: Pool, weights: ModelWeights, model: GpuModel, hot: Sequence[I32]) -> GpuHotSide | None:
    blocks = [() if layer is None else layer.blocks for layer in model.layers]
    if not any(blocks):
        return None
    placed = [ids[: sum(one.n_slots for one in some)] for ids, some in zip(hot, blocks, strict=True)]
    hot_bits = [0 if one is None else one.hot_bits for one in model.layers]
    return GpuHotSide(gpu, pool, weights, blocks, hot_bits, placed)
