"""Memory besides weights and caches, and the share of VRAM and RAM that a model may use.

Every byte is counted: the CUDA context, scratch and upload buffers too.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np

from engine.config import KvCodec, ModelConfig
from engine.errors import DeviceMemoryError
from engine.machine.cpu_and_ram import RamInfo
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile
from engine.placement.gpu_bytes import gpu_cache_bytes, input_width, kv_layer_bytes, mixed_width, tokens_together
from engine.placement.model_bytes import I64, ModelBytes, PredictorBytes
from engine.placement.placement_problem import BOOL, Choice, Problem
from native_kernels.cuda.delta_net import done_bytes

# Bytes of a CUDA context with its cubins if not measured on this GPU; 300 to 500 MiB are usual.
USUAL_CONTEXT_BYTES = 450 << 20
# Free VRAM without an explicit budget, because the desktop and other programs use it too (margin of cli.md).
LEAST_MARGIN_BYTES, MARGIN_SHARE = 512 << 20, 0.04
# Share of the RAM for zero-copy neurons: other programs cannot use pinned memory.
PINNED_SHARE = 0.125
# Share of the RAM that must stay available while weights are pinned in place, and the lower share at which they are
# released. The distance between the two prevents pinning and releasing in turn.
IN_PLACE_SHARE, IN_PLACE_LEAST_SHARE = 0.125, 0.0625
# Free RAM for the window and other programs.
RAM_MARGIN_BYTES = 1 << 30
# Python, libraries, the window's process and a token's buffers: measured with the starter model, rounded up.
PROCESS_BYTES = 384 << 20
# Prefill: positions per chunk on the CPU, the maximum on a GPU, and there if experts are streamed, all of them for each
# chunk; and two buffers for weights that are being uploaded.
PREFILL_POSITIONS, GPU_PREFILL_POSITIONS, STREAMED_EXPERTS_POSITIONS = 512, 2048, 4096
UPLOAD_BYTES = 2 * (32 << 20)
GPU_UPLOAD_BYTES = 32 << 20
# Prefill on a GPU: neurons per tile, and the minimum bytes however small the budget. Where the whole model is on the
# GPU and memory is left, more neurons and larger tiles save launches, which limit the rate of prefill.
_PREFILL_NEURONS, LEAST_PREFILL_BYTES = 4096, 24 << 20
WIDE_NEURONS, WIDE_TILE_BYTES, WIDE_EXPERT_TILE_BYTES, _SPARE_BYTES = 16384, 96 << 20, 1 << 30, 64 << 20
# cuBLAS: used from this model width on, and at most this share of a budget.
_LIBRARY_WIDTH, _LIBRARY_SHARE = 2048, 0.01
# Batches on a GPU: the tile of weights converted to f16, and the staging buffer for neurons from host memory.
_TILE_BYTES, STAGING_BYTES = 32 << 20, 2 * (32 << 20)
_EXPERT_SEGMENTS = 8  # partial sums of an expert's neurons in batches, at most: native_kernels/cuda/expert_batch.py
# The exchange buffer for hot neurons between answers; two modes may be in use at once; drivers allocate in units of 2
# MiB.
EXCHANGE_BYTES, _DECODERS, GRANULARITY_BYTES = 2 << 20, 2, 16 << 20
# Experts copied at once beside a token: about as many as the CPU's share of the time allows.
EXPERTS_AT_ONCE = 8
# Bytes of neurons per byte of page tables on the GPU. Tables take a 512th of the pinned bytes: all of a layer's neurons
# and the copies of zero-copy neurons. 409 to 435 with 13B, 32B and 70B models on an H200.
_PINNED_BY_TABLES = 400
# Derived budgets are rounded down to this, so that small changes in free memory do not change the placement.
BUDGET_STEP_BYTES = 128 << 20


@dataclass(frozen=True)
class Budgets:
    """The memory that a model may use. vram_bytes: 0 without a GPU. vram_reason: one sentence for the user."""

    vram_bytes: int
    ram_bytes: int
    vram_is_explicit: bool
    vram_reason: str


def budgets_of(profile: HardwareProfile, gpu: GpuInfo | None, vram_budget_gib: float | None) -> Budgets:
    """Return the budgets of a machine. An explicit VRAM budget is used without a margin.

    Raises: DeviceMemoryError for an explicit budget larger than the GPU's memory.
    """
    ram = max(0, profile.ram.free_bytes - RAM_MARGIN_BYTES) // BUDGET_STEP_BYTES * BUDGET_STEP_BYTES
    if gpu is None:
        words = "Everything is placed on the CPU: no GPU is used."
        if vram_budget_gib is not None:
            words = "The VRAM budget has no effect: no GPU is used."
        return Budgets(0, ram, vram_budget_gib is not None, words)
    total, free = gpu.total_bytes or 0, gpu.free_bytes or 0
    if vram_budget_gib is not None:
        wanted = int(vram_budget_gib * (1 << 30))
        if wanted > total:
            raise DeviceMemoryError(
                f"A VRAM budget of {vram_budget_gib:g} GiB was requested; {gpu.name} has {total / 2**30:.2f} GiB.",
                f"Ask for at most {free / 2**30:.2f} GiB, which are free.",
            )
        words = f"The VRAM budget is the {vram_budget_gib:g} GiB that you chose"
        words += "." if wanted <= free else f", of which {free / 2**30:.2f} are free at the moment."
        return Budgets(wanted, ram, True, words)
    margin = margin_bytes(total)
    budget = max(0, free - margin) // BUDGET_STEP_BYTES * BUDGET_STEP_BYTES
    words = f"The VRAM budget is what is free, less a margin of {margin / 2**20:.0f} MiB for the desktop."
    return Budgets(budget, ram, False, words)


def margin_bytes(total: int) -> int:
    """Return the bytes that stay free on a GPU of this size without an explicit budget."""
    return max(LEAST_MARGIN_BYTES, int(MARGIN_SHARE * total))


def pinned_bytes(profile: HardwareProfile, spare_bytes: int) -> int:
    """Return how much RAM may stay pinned, given the bytes to spare beside the model.

    0 on Windows, where pinnable memory is scarce and shared with the GPU's own memory.
    """
    if sys.platform == "win32":
        return 0
    return max(0, min(int(PINNED_SHARE * profile.ram.total_bytes), spare_bytes))


def may_pin_in_place(ram: RamInfo, cached_bytes: int, is_pinned: bool = False) -> bool:
    """Return whether weights may be, or stay, pinned in place for zero-copy reads by the GPU.

    ram: current figures. cached_bytes: mapped file pages that the model reads in RAM. The system counts them as free
    because it can drop them, but it cannot drop pinned pages, and the model needs the others too. Copies in RAM, and
    files stored in RAM, count as used already. is_pinned: whether the weights are pinned now.

    An eighth of the RAM must stay available to others; pinned weights are released when half of that eighth is used.
    Always False on Windows, where pinnable memory is scarce and shared with the GPU's own memory.
    """
    share = IN_PLACE_LEAST_SHARE if is_pinned else IN_PLACE_SHARE
    return sys.platform != "win32" and ram.free_bytes - cached_bytes >= share * ram.total_bytes


def context_bytes(gpu: GpuInfo) -> int:
    """Return the bytes of the CUDA context on the GPU."""
    return gpu.context_bytes or USUAL_CONTEXT_BYTES


def library_bytes(config: ModelConfig, gpu: GpuInfo | None, vram_budget: int) -> int:
    """Return the bytes of cuBLAS on the GPU; 0 if it is missing or prefill does not use it.

    Narrow models gain little from it, and it takes too large a share of a small budget.
    """
    n_bytes = 0 if gpu is None else gpu.library_bytes or 0
    return n_bytes if config.d_model >= _LIBRARY_WIDTH and n_bytes <= _LIBRARY_SHARE * vram_budget else 0


def scratch_bytes(model: ModelBytes, context: int) -> int:
    """Return the bytes of decode and prefill buffers on either device.

    They hold the residual stream, the values of attention and FFN for one chunk, logits, and upload buffers.
    """
    config = model.config
    positions = min(PREFILL_POSITIONS, context)
    heads = config.q_width + 2 * config.kv_width
    of_position = 4 * config.d_model + max(heads, _of_delta(config), _of_latent(config)) + 2 * config.d_ff
    of_position += 3 * config.n_layers * config.layer_embedding_dim
    layer = int((model.attention + model.neurons * model.neuron).max())
    return 4 * positions * of_position + 4 * config.vocab_size + min(UPLOAD_BYTES, 2 * layer)


def fixed_ram_bytes(model: ModelBytes, context: int, kv_codec: KvCodec) -> int:
    """Return the bytes in RAM with every placement: process, scratch, and the layer that drafts tokens."""
    return PROCESS_BYTES + scratch_bytes(model, context) + model.drafts_in_ram(context, kv_codec)


def _of_delta(config: ModelConfig) -> int:
    """Return the numbers of a position in a layer with a state: its inputs, and those before they are joined."""
    if config.short_conv is not None:
        return 4 * config.short_conv.channels
    return 0 if config.delta is None else 2 * (config.delta.channels + config.delta.value_width)


def _of_latent(config: ModelConfig) -> int:
    """Return the numbers of a position in latent attention: queries twice, what attention returns, key and values."""
    if config.latent is None:
        return 0
    of_head = config.latent.key_dim + config.rotated + 2 * config.head_dim + config.latent.value_dim
    return config.n_heads * of_head + 2 * config.head_dim


def gpu_scratch_bytes(
    model: ModelBytes, context: int, gpu: GpuInfo | None, vram_budget: int, sequences: int = 1
) -> int:
    """Return the scratch bytes on a computing GPU: the larger need of loading and answering.

    context: tokens of all sequences together.
    """
    together = tokens_together(model.config)
    tokens = 1 if together == 1 else 1 + together
    answering = (
        _DECODERS * tokens * _decode_bytes(model.config)
        + prefill_bytes(model, context, vram_budget, sequences)
        + EXCHANGE_BYTES
    )
    if model.unit:
        answering += expert_exchange_bytes(model.unit * int(model.gpu_bytes.neuron.max()))
    answering += library_bytes(model.config, gpu, vram_budget)
    if sequences > 1:
        answering += batch_bytes(model, sequences)
    return max(GPU_UPLOAD_BYTES, answering) + GRANULARITY_BYTES + _page_tables(model, vram_budget)


def expert_exchange_bytes(expert_bytes: int) -> int:
    """Return the bytes through which experts are exchanged, on the GPU; twice as much is pinned in RAM."""
    return min(GPU_UPLOAD_BYTES, max(1 << 20, EXPERTS_AT_ONCE * expert_bytes))


def _page_tables(model: ModelBytes, vram_budget: int) -> int:
    """Return the driver's page tables on the GPU for weights pinned in RAM, in place or copied.

    0 if all neurons are on the GPU or none is pinned. With a row-wise down only layers outside the GPU are pinned.
    """
    neurons = int((model.neurons * model.neuron).sum())
    if neurons <= vram_budget or sys.platform == "win32":
        return 0
    # About half of a budget at most is not for weights.
    return (neurons - vram_budget // 2 if model.ffn_is_whole else neurons) // _PINNED_BY_TABLES


def longest_chunk(config: ModelConfig) -> int:
    """Return the positions per chunk of a prompt on a GPU, at most, if weights are streamed for each chunk."""
    # Layers that read other layers' keys and values keep no more positions than this.
    return GPU_PREFILL_POSITIONS if config.n_shared_kv_layers or not config.n_experts else STREAMED_EXPERTS_POSITIONS


def prefill_bytes(model: ModelBytes, context: int, vram_budget: int, sequences: int = 1) -> int:
    """Return the prefill buffers for this VRAM budget: all that helps, but a small share of a small budget.

    With experts, this share is larger: every chunk streams all experts that are not on the GPU.
    """
    config = model.config
    weights = int((model.gpu_bytes.attention + model.neurons * model.gpu_bytes.neuron).sum())
    besides = USUAL_CONTEXT_BYTES + weights + int(gpu_cache_bytes(config, context, "f16", sequences).sum())
    positions = min(GPU_PREFILL_POSITIONS, context)
    wide, full = (_all_prefill_bytes(model, positions, is_wide) for is_wide in (True, False))
    for n_bytes in (wide, full):
        if besides + 2 * n_bytes + _SPARE_BYTES <= vram_budget:
            return n_bytes
    if weights > vram_budget:  # prefill may stream layers of the CPU, one KV cache serves all of them
        full += kv_layer_bytes(config, context, "f16") + 8 * kv_layer_bytes(config, positions, "f16")
    if not config.n_experts:
        return int(min(full, max(LEAST_PREFILL_BYTES, vram_budget // 32)))
    share = max(LEAST_PREFILL_BYTES, vram_budget // 8)
    longer = _all_prefill_bytes(model, min(longest_chunk(config), context), wide=False)
    shorter = _all_prefill_bytes(model, positions // 2, wide=False)
    return next((n_bytes for n_bytes in (longer, full, shorter) if n_bytes <= share), share)


def _all_prefill_bytes(model: ModelBytes, positions: int, wide: bool) -> int:
    """Return an upper estimate of the prefill buffers that help chunks of this many positions, in bytes.

    wide: with more neurons at once and larger tiles.
    """
    config = model.config
    neurons = min(WIDE_NEURONS if wide else _PREFILL_NEURONS, config.d_ff)
    if config.gate_cutoffs:  # all gates at once
        neurons = config.d_ff
    heads = mixed_width(config)
    qkv = input_width(config) + (0 if config.delta is None else config.delta.prepared_width)
    of_position = (
        12 * config.d_model + 4 * qkv + 6 * heads + 10 * neurons + 16 * config.most_rotated + 8 * config.n_layers
    )
    of_position += 8 * config.n_streams * (config.d_model + 1) * (config.n_streams > 1) + 6 * config.laurel_rank
    widest = max(config.d_model, heads, min(neurons, _PREFILL_NEURONS))
    of_position += (8 * config.n_layers + 8) * config.layer_embedding_dim
    tile = min(2 * GPU_UPLOAD_BYTES, 2 * widest * widest + 256 * widest)
    if wide:
        tile = max(tile, min(WIDE_TILE_BYTES, 4 * neurons * config.d_model), 256 * neurons + 512 * widest)
    buffer = min(GPU_UPLOAD_BYTES, config.n_placed_neurons * int(model.neuron.max()) + (1 << 16))
    full = positions * of_position + 5 * buffer + tile + 4 * config.n_layers * config.d_ff
    if config.n_experts:
        width = max(config.d_ff, config.shared_d_ff)
        of_experts = 4 * (config.n_experts + 2 * config.d_model + 4 * config.n_experts_used) + 10 * config.shared_d_ff
        of_experts += config.n_experts_used * (6 * (config.d_model + 8) + 10 * (config.d_ff + 8))
        one = 4 * (config.d_model + 8) * (width + 8) + (1 << 10)
        full += positions * of_experts + one
        full += 8 * config.n_layers * (config.n_experts + 1)
        full += min(WIDE_EXPERT_TILE_BYTES, config.n_experts * one) if wide else 4 * GPU_UPLOAD_BYTES
    return full


def batch_bytes(model: ModelBytes, sequences: int) -> int:
    """Return an upper estimate of the bytes for this many sequences decoded together, without their KV cache."""
    config = model.config
    heads = mixed_width(config)
    of_sequence = 32 * config.d_model + 6 * heads + 14 * config.d_ff + 4 * config.vocab_size
    of_sequence += 4 * input_width(config)
    if config.delta is not None:
        of_sequence += 4 * config.delta.prepared_width + done_bytes(config.delta)
    of_sequence += 16 * config.most_rotated + 16 * config.n_layers
    of_sequence += (8 * config.n_layers + 8) * config.layer_embedding_dim
    of_sequence += 8 * config.n_streams * (config.d_model + 1) * (config.n_streams > 1) + 6 * config.laurel_rank
    if config.n_experts:
        parts = (config.n_experts_used + 1) * (1 if model.down_is_row_wise else _EXPERT_SEGMENTS)
        hidden = max(config.n_experts_used * config.d_ff, config.shared_d_ff)
        of_sequence += 4 * config.n_experts + 4 * (parts + 1) * config.d_model + 14 * hidden + (1 << 11)
    widest = max(config.d_model, heads, config.d_ff)
    tile = max(_TILE_BYTES, 512 * widest + (1 << 12))
    staging = min(STAGING_BYTES, 2 * (config.d_ff * int(model.gpu_bytes.neuron.max()) + (1 << 12)))
    return sequences * of_sequence + 8 * config.d_ff + tile + staging + (1 << 16)


def _decode_bytes(config: ModelConfig) -> int:
    """Return an upper estimate of a token's values on the GPU: sums of hot neurons are in up to 33 parts, those of
    experts in up to 96.
    """
    heads = 2 * config.q_width + 2 * config.kv_width
    parts = 128 if config.n_experts else 64
    n_blocks = max(1, config.n_experts_used) + (config.shared_d_ff > 0)
    hidden = 8 * config.d_ff * n_blocks + 8 * config.shared_d_ff + 8 * config.dense_d_ff
    inputs = (config.n_layers + 4) * config.layer_embedding_dim + 2 * config.n_streams * (config.d_model + 64)
    inputs += 4 * config.d_model + 2 * config.laurel_rank
    return 4 * config.vocab_size + 4 * (parts * config.d_model + hidden + 2 * heads + inputs) + (1 << 16)


def check_vram_budget(budgets: Budgets, fixed_bytes: int, smallest_part: int) -> None:
    """Raise DeviceMemoryError, with the minimum, if an explicit budget cannot hold any part."""
    least = fixed_bytes + smallest_part
    if budgets.vram_is_explicit and 0 < budgets.vram_bytes < least:
        rounded_up = f"{math.ceil(1000 * least / 2**30) / 1000:.3f}"
        raise DeviceMemoryError(
            f"A VRAM budget of {budgets.vram_bytes / 2**30:.3f} GiB holds nothing of the model: the CUDA context and "
            f"buffers take {fixed_bytes / 2**30:.3f} GiB, so at least {rounded_up} GiB are needed.",
            f"Ask for --vram-budget {rounded_up} or more, or use --device cpu.",
        )


def vram_parts(
    problem: Problem, choice: Choice, model: ModelBytes, kv_bytes: I64, context_b: int, scratch_b: int
) -> dict[str, int]:
    """Return bytes on the GPU by part. Their sum equals the solver's count."""
    ways = list(choice.ways)
    on_gpu = problem.attention_on_gpu[ways]
    used = choice.uses_gpu(problem)
    parts = {
        "attention": int(model.gpu_bytes.attention[on_gpu].sum()),
        "predictors": int(problem.predictor_vram[np.arange(len(ways)), ways].sum()),
        "kv_cache": int(kv_bytes[on_gpu].sum()),
        "scratch": scratch_b if used else 0,
        "context": context_b if used else 0,
        "head": problem.head_vram[choice.head_on_gpu],
    }
    parts["hot"] = choice.vram(problem) - sum(parts.values())
    return parts


def ram_parts(
    problem: Problem, choice: Choice, model: ModelBytes, predictors: PredictorBytes | None, kv_bytes: I64,
    disk_bytes: int = 0,
) -> dict[str, int]:  # fmt: skip
    """Return bytes in RAM by part. Their sum equals the solver's count, less those that stay on the disk.

    kv_bytes: of each layer's cache in RAM, [L], as the layers are placed.
    """
    on_cpu = ~problem.attention_on_gpu[list(choice.ways)]
    parts = {
        "attention": int(model.attention[on_cpu].sum()),
        "predictors": 0 if predictors is None else int(predictors.held[_asked_by_cpu(problem, choice, model)].sum()),
        "kv_cache": int(kv_bytes.sum()),
        "embedding": model.embedding,
        "scratch": problem.fixed_ram - model.embedding - model.drafts,  # the layer that drafts tokens is cold
        "head": problem.head_ram[choice.head_on_gpu],
    }
    parts["cold"] = choice.ram(problem) - disk_bytes - sum(parts.values())
    return parts


def _asked_by_cpu(problem: Problem, choice: Choice, model: ModelBytes) -> BOOL:
    """Return bool [L]: layers whose predictors run on the CPU."""
    ways = list(choice.ways)
    computes = (problem.blocks[ways] == 0) if model.ffn_is_whole else np.zeros(len(ways), np.bool_)
    return np.asarray(~problem.attention_on_gpu[ways] | computes, np.bool_)


def smallest_part(model: ModelBytes, kv_bytes: I64) -> int:
    """Return the bytes of the smallest part that a GPU can hold: one layer with its KV cache, or the head."""
    gpu = model.gpu_bytes
    layers = (gpu.attention + kv_bytes)[gpu.possible].tolist()
    return int(min([*layers, *([gpu.head] if gpu.head_possible else [])], default=0))
