"""Set up a model's prefill on the GPU: its memory, and the speed of streaming over the bus."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from engine.gpu.prefill import prompts
from engine.gpu.prefill.pinned_weights import PinnedWeights
from engine.gpu.prefill.prefill import StreamingSpeed
from engine.gpu.prefill.prompts import Prompts
from engine.machine.measured_hardware import recall_disk
from engine.model.graph import graph_of
from engine.placement import memory_plan
from engine.placement.cost_model import UNKNOWN_PCIE_BYTES_PER_S, with_disk_s
from engine.placement.model_bytes import ModelBytes
from native_kernels.cuda.cuda_gpu import CudaGpu

if TYPE_CHECKING:
    from engine.gpu.trial.choice import OpenedGpu
    from engine.gpu.weights.loading import LoadedGpu
    from engine.loading.load_context import LoadContext
    from engine.model.transformer import FfnExecutor
    from engine.sparsity.placement import Placement

log = logging.getLogger(__name__)


def open_prompts(
    opened: OpenedGpu, base: LoadContext, loaded: LoadedGpu, executor: FfnExecutor
) -> tuple[Prompts, PinnedWeights] | None:
    """Open prefill; return None for a GPU without CUDA, if the prefill memory does not hold one expert, or if a layer
    with cold neurons needs all gates at once.

    Raises: CudaError, CudaOutOfMemoryError.
    """
    gpu, config, placement = opened.gpu, base.opened.config, loaded.placement
    if not isinstance(gpu, CudaGpu):
        return None
    assert base.backend.kernels is not None, "a GPU is not used without the kernels"
    budget_bytes = placement.origins.vram_budget_bytes
    sizes, n = ModelBytes.of(base.opened, base.weights), base.engine.sequences
    room = memory_plan.prefill_bytes(sizes, loaded.context, budget_bytes, n)  # as gpu_scratch_bytes has planned
    context = loaded.context // n  # of a sequence
    if config.n_experts and not prompts.fit(config, base.weights, context, room):
        log.info("Prompts have no memory for experts and run token by token")
        return None
    graph = graph_of(config)
    if any(one is not None and one.has_cold and graph.ffn(i).spec.cutoff for i, one in enumerate(loaded.model.layers)):
        log.info("Gates of neurons on the CPU are cut off all at once, so that prompts run token by token")
        return None
    pinned = PinnedWeights(gpu.device)
    found = Prompts(
        gpu, config, base.weights, loaded.model, executor, base.backend.operators, base.backend.kernels.pool,
        context, base.kv_codec, room, streaming_speed(opened, base, placement), pinned,
        memory_plan.library_bytes(config, opened.info, budget_bytes), opened.info, loaded.expert_slots,
    )  # fmt: skip
    if loaded.expert_slots is not None:
        loaded.expert_slots.read_in_place(pinned)
    return found, pinned


def streaming_speed(opened: OpenedGpu, base: LoadContext, placement: Placement) -> StreamingSpeed:
    """Return the speeds that decide about prefill: of bus and CPU, as measured, and the placement's time per token."""
    config, sizes = base.opened.config, ModelBytes.of(base.opened, base.weights)
    layers = enumerate(zip(placement.hot, sizes.neuron, placement.attention, strict=True))
    cold = sum(
        round((1 - len(hot) / max(1, config.placed_neurons_of(i))) * config.n_placed_neurons * int(neuron))
        for i, (hot, neuron, home) in layers
        if home == "gpu"
    )
    bus = opened.info.pcie_bytes_per_s or UNKNOWN_PCIE_BYTES_PER_S
    disk = recall_disk()
    token_s = with_disk_s(placement.objective, placement.disk_read_bytes, disk) or placement.objective
    disk_s = placement.disk_bytes / disk if disk else 0.0
    return StreamingSpeed(cold, bus, opened.cpu_bytes_per_s or bus, token_s, disk_s=disk_s)
