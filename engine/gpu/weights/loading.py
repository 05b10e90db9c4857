"""Loads the part of a model that was placed on the GPU: room for it, what goes there, and all of it back at the end.

Which part that is, solver.py decides; how it lies there, layout.py. Weights of a mapped
file are not kept in RAM besides: what was loaded whole is let go of.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.config import KvCodec, ModelConfig
from engine.gpu.weights.expert_slots import ExpertSlots
from engine.gpu.weights.hot_slots import GpuHotSide
from engine.gpu.weights.landing import Landing, Rows, Upload, give_back, half_for
from engine.gpu.weights.layers import GpuModel
from engine.gpu.weights.layout import GpuLayout, Region, experts_of, lay_out_predictors
from engine.job import Job
from engine.load_steps import LoadSteps
from engine.model.pages import let_go
from engine.model.weights import ModelWeights
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

    pool: whose threads copy what goes there. context, kv_codec: of the keys and values that there is room for.
    placement: what it was loaded by. placed: [L], its neurons with a slot, as far as there was memory for them.
    hot_side: None where no layer has neurons one by one. expert_slots: None without experts. has_predictors: whether
    they lie there. part_bytes: what it takes there, by the placement's parts.
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
        """Loads them too; `model` is another one then. Raises: CudaOutOfMemoryError, CudaError; none are there then."""
        if self.has_predictors:
            return
        needed = Region(0)
        lay_out_predictors(predictor, weights, self.model, needed)
        memory = self.gpu.allocate(max(1, needed.n_bytes))
        try:
            region = Region(memory.address)
            model = lay_out_predictors(predictor, weights, self.model, region)
            with Landing(self.gpu, self.pool, half_for(region.jobs)) as landing:
                landing.run(region.jobs)
        except BaseException:
            give_back([memory])
            raise
        _let_go_of(region.jobs)
        self._memories.append(memory)
        self.model, self.has_predictors = model, True
        self.part_bytes["predictors"] = region.n_bytes

    def close(self) -> None:
        """Gives the memory back. A second time does nothing. A GPU that has failed has nothing left to give."""
        for side in (self.hot_side, self.expert_slots):
            if side is not None:
                side.close()
        give_back(self._memories)


@dataclass(frozen=True, eq=False)
class GpuContents:
    """What of a model goes to the GPU: a placement's part, and the KV cache of so many tokens.

    learned: [L], neurons in the order of their slots, instead of the placement's and as many.
    """

    placement: Placement
    context: int
    kv_codec: KvCodec
    learned: Sequence[I32] | None = None


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
    """Moves the contents there. predictor: None for modes that ask none.

    The calling thread must have entered the GPU. pool: its threads copy the weights. Units: progress in bytes.
    Cost: one reading of those weights; about as long as the file or the bus takes, whichever is slower.
    Raises: CudaOutOfMemoryError, CudaError, Cancelled; nothing is left on the GPU then.
    """
    steps = steps or LoadSteps()
    steps.begin("room on the GPU")
    placement, context, kv_codec = contents.placement, contents.context, contents.kv_codec
    hot = list(placement.in_slots if contents.learned is None else contents.learned)

    def laid_out(bases: tuple[int, int, int]) -> GpuLayout:
        return GpuLayout(config, weights, placement, hot, context, kv_codec, bases)

    *on_gpu, pinned = laid_out((0, 0, 0)).n_bytes
    memories: list[Memory] = []
    reached = 0
    try:
        if pinned:
            try:
                memory = gpu.pin(pinned)
            except CudaOutOfMemoryError:  # the CPU then computes them with the other cold ones
                log.info("%.2f GiB of memory could not be pinned; the GPU reaches for no neurons", pinned / 2**30)
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
        with Landing(gpu, pool, half_for(layout.jobs)) as landing:
            landing.run(layout.jobs, lambda done: job.progress(done, total), job.cancelled)
    except BaseException:
        with contextlib.suppress(CudaError):
            gpu.synchronize()  # what was asked for may still be on its way there
        give_back(memories)
        raise
    steps.begin("letting go")
    _let_go_of(layout.jobs)
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


def _let_go_of(jobs: Sequence[Upload]) -> None:
    """The matrices that are on the GPU as a whole."""
    for job in jobs:
        if isinstance(job, Rows) and job.n_rows == job.source.n_rows:
            let_go(job.source)


def _hot_side(gpu: Gpu, pool: Pool, weights: ModelWeights, model: GpuModel, hot: Sequence[I32]) -> GpuHotSide | None:
    blocks = [() if layer is None else layer.blocks for layer in model.layers]
    if not any(blocks):
        return None
    placed = [ids[: sum(one.n_slots for one in some)] for ids, some in zip(hot, blocks, strict=True)]
    hot_bits = [0 if one is None else one.hot_bits for one in model.layers]
    return GpuHotSide(gpu, pool, weights, blocks, hot_bits, placed)
