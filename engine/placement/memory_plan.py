"""Counts what a model takes beside its weights and caches, and how much of a GPU and of the RAM it may take.

Nothing is forgotten on purpose: the CUDA context, scratch and landing buffers are bytes on the GPU like all others.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np

from engine.config import ModelConfig
from engine.errors import DeviceMemoryError
from engine.machine.cpu_and_ram import RamInfo
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile
from engine.placement.model_bytes import ModelBytes, PredictorBytes
from engine.placement.placement_problem import BOOL, Choice, Problem

# What a CUDA context with its cubins takes where nobody has measured it on the GPU: 300 to 500 MiB are usual.
USUAL_CONTEXT_BYTES = 450 << 20
# Left free of a GPU whose budget nobody gave: the desktop and other programs draw on it too (cli.md's margin).
LEAST_MARGIN_BYTES, MARGIN_SHARE = 512 << 20, 0.04
# Of the RAM, for neurons that the GPU reads there itself: what is pinned is lost to all others.
PINNED_SHARE = 0.125
# Of the RAM, what stays available to others where a model's weights are pinned in place; and below what of it they are
# let go of, so that who was let go of is not just above the border.
IN_PLACE_SHARE, IN_PLACE_LEAST_SHARE = 0.125, 0.0625
# Left free of the RAM, for the window and everybody else.
RAM_MARGIN_BYTES = 1 << 30
# Python, its libraries and the window's process, and buffers of a token: measured with the starter model, rounded up.
PROCESS_BYTES = 384 << 20
# Prefill: positions that pass through a layer at once, and two landing buffers for weights on their way to the GPU.
PREFILL_POSITIONS = 512
LANDING_BYTES = 2 * (32 << 20)
GPU_LANDING_BYTES = 32 << 20
# Of prompts on a GPU: neurons at once, and what is left to them of however small a budget.
_PREFILL_NEURONS, LEAST_PREFILL_BYTES = 4096, 24 << 20
# Of NVIDIA's library of products: for models from this width on, and at most such a part of a budget.
_LIBRARY_WIDTH, _LIBRARY_SHARE = 2048, 0.01
# Of batches on a GPU: where weights become halves, and where neurons of the host's memory are brought for a while.
_TILE_BYTES, STAGING_BYTES = 32 << 20, 2 * (32 << 20)
# Between answers hot neurons are exchanged through this; two modes may be in use at once; a driver gives memory in
# pieces of 2 MiB.
EXCHANGE_BYTES, _DECODERS, GRANULARITY_BYTES = 2 << 20, 2, 16 << 20
# Bytes of neurons for each byte of page tables on the GPU, which are a 512th of what is pinned: that is all of a
# layer's neurons, and copies of those that the GPU reaches for. With 13B, 32B and 70B models 409 to 435 on an H200.
_PINNED_BY_TABLES = 400
# Derived budgets are rounded down to this, so that a few MB more or less elsewhere make no other placement.
BUDGET_STEP_BYTES = 128 << 20


@dataclass(frozen=True)
class Budgets:
    """What may be taken. vram_bytes: 0 where no GPU is to be used. vram_reason: where it comes from, one sentence."""

    vram_bytes: int
    ram_bytes: int
    vram_is_explicit: bool
    vram_reason: str


def budgets_of(profile: HardwareProfile, gpu: GpuInfo | None, vram_budget_gib: float | None) -> Budgets:
    """The budgets of a machine. An explicit VRAM budget is taken as it is, without a margin.

    Raises: DeviceMemoryError for an explicit budget beyond the GPU.
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
                f"A VRAM budget of {vram_budget_gib:g} GiB was asked for; {gpu.name} has {total / 2**30:.2f} GiB.",
                f"Ask for at most {free / 2**30:.2f} GiB, which are free.",
            )
        words = f"The VRAM budget is the {vram_budget_gib:g} GiB that were asked for"
        words += "." if wanted <= free else f", of which {free / 2**30:.2f} are free at the moment."
        return Budgets(wanted, ram, True, words)
    margin = margin_bytes(total)
    budget = max(0, free - margin) // BUDGET_STEP_BYTES * BUDGET_STEP_BYTES
    words = f"The VRAM budget is what is free, less a margin of {margin / 2**20:.0f} MiB for the desktop."
    return Budgets(budget, ram, False, words)


def margin_bytes(total: int) -> int:
    """What stays free of a GPU of that size whose budget nobody gave."""
    return max(LEAST_MARGIN_BYTES, int(MARGIN_SHARE * total))


def pinned_bytes(profile: HardwareProfile, spare_bytes: int) -> int:
    """How much of the RAM may be pinned for good, with so much to spare beside the model. On Windows none: what may be
    pinned there is scarce, and shared with the GPU's own memory."""
    if sys.platform == "win32":
        return 0
    return max(0, min(int(PINNED_SHARE * profile.ram.total_bytes), spare_bytes))


def may_pin_in_place(ram: RamInfo, cached_bytes: int, is_pinned: bool = False) -> bool:
    """Whether weights may be, or stay, pinned where they lie, so that a GPU reads them there.

    ram: of now. cached_bytes: of mapped files, what the model reads in RAM; the system counts them as free, because it
    could drop them, but pinned pages it cannot, and the model is not to lose the others either. Copies in RAM, and
    files that lie there altogether, are counted as used already and are not among them.
    is_pinned: whether they are.

    Pinned pages cannot be dropped when others need RAM, so others keep an eighth of it, and all is let go of where half
    of that eighth is gone. On Windows never: what may be pinned there is scarce, and shared with the GPU's memory.
    """
    share = IN_PLACE_LEAST_SHARE if is_pinned else IN_PLACE_SHARE
    return sys.platform != "win32" and ram.free_bytes - cached_bytes >= share * ram.total_bytes


def context_bytes(gpu: GpuInfo) -> int:
    """What the CUDA context takes on the GPU."""
    return gpu.context_bytes or USUAL_CONTEXT_BYTES


def library_bytes(config: ModelConfig, gpu: GpuInfo | None, vram_budget: int) -> int:
    """What NVIDIA's library of products takes on the GPU, where there is one and prompts use it; else 0: the products
    of a narrow model gain little by it, and of a small budget it is not worth its part."""
    n_bytes = 0 if gpu is None else gpu.library_bytes or 0
    return n_bytes if config.d_model >= _LIBRARY_WIDTH and n_bytes <= _LIBRARY_SHARE * vram_budget else 0


def scratch_bytes(model: ModelBytes, context: int) -> int:
    """Buffers of decoding and prefill, on whichever side computes: the stream, attention's and the FFN's values of the
    positions that pass at once, logits, and where weights land on their way to the GPU."""
    config = model.config
    positions = min(PREFILL_POSITIONS, context)
    heads = (config.n_heads + 2 * config.n_kv_heads) * config.head_dim
    of_position = 4 * config.d_model + heads + 2 * config.d_ff
    layer = int((model.attention + model.neurons * model.neuron).max())
    return 4 * positions * of_position + 4 * config.vocab_size + min(LANDING_BYTES, 2 * layer)


def gpu_scratch_bytes(
    model: ModelBytes, context: int, gpu: GpuInfo | None, vram_budget: int, sequences: int = 1
) -> int:
    """The same on a GPU that computes: the larger of what loading needs there and what answering does afterwards.
    context: of all sequences together."""
    answering = _DECODERS * _decode_bytes(model.config) + prefill_bytes(model, context, vram_budget) + EXCHANGE_BYTES
    answering += library_bytes(model.config, gpu, vram_budget)
    if sequences > 1:
        answering += batch_bytes(model, sequences)
    return max(GPU_LANDING_BYTES, answering) + GRANULARITY_BYTES + _page_tables(model, vram_budget)


def _page_tables(model: ModelBytes, vram_budget: int) -> int:
    """What the driver takes of a GPU for weights that it pins in the RAM, in place and as copies that are reached for:
    a page table's entry for each page. Nothing where all neurons are on the GPU, or none is pinned."""
    neurons = int((model.neurons * model.neuron).sum())
    if neurons <= vram_budget or model.down_is_row_wise or sys.platform == "win32":
        return 0
    return neurons // _PINNED_BY_TABLES


def prefill_bytes(model: ModelBytes, context: int, vram_budget: int) -> int:
    """What prompts may take of a GPU with that budget: all that helps them, but of a small budget a small part."""
    config = model.config
    positions, neurons = min(PREFILL_POSITIONS, context), min(_PREFILL_NEURONS, config.d_ff)
    heads = config.n_heads * config.head_dim
    qkv = heads + 2 * config.n_kv_heads * config.head_dim
    of_position = 12 * config.d_model + 4 * qkv + 6 * heads + 10 * neurons + 16 * config.rotated + 8 * config.n_layers
    widest = max(config.d_model, heads, neurons)
    buffer = min(GPU_LANDING_BYTES, config.d_ff * int(model.neuron.max()) + (1 << 16))
    full = positions * of_position + 5 * buffer + min(2 * GPU_LANDING_BYTES, 2 * widest * widest + 256 * widest)
    full += 4 * config.n_layers * config.d_ff
    return int(min(full, max(LEAST_PREFILL_BYTES, vram_budget // 48)))


def batch_bytes(model: ModelBytes, sequences: int) -> int:
    """What so many sequences that are decoded together take of a GPU beside their keys and values, generously."""
    config = model.config
    heads = (2 * config.n_heads + 2 * config.n_kv_heads) * config.head_dim
    of_sequence = 32 * config.d_model + 6 * heads + 14 * config.d_ff + 4 * config.vocab_size
    of_sequence += 16 * config.rotated + 16 * config.n_layers
    widest = max(config.d_model, heads, config.d_ff)
    tile = max(_TILE_BYTES, 512 * widest + (1 << 12))
    staging = min(STAGING_BYTES, 2 * (config.d_ff * int(model.gpu_bytes.neuron.max()) + (1 << 12)))
    return sequences * of_sequence + 8 * config.d_ff + tile + staging + (1 << 16)


def _decode_bytes(config: ModelConfig) -> int:
    """What a token's values take on the GPU, generously: the sums of hot neurons are left in up to 33 parts."""
    heads = (2 * config.n_heads + 2 * config.n_kv_heads) * config.head_dim
    return 4 * config.vocab_size + 4 * (64 * config.d_model + 8 * config.d_ff + 2 * heads) + (1 << 16)


def check_vram_budget(budgets: Budgets, fixed_bytes: int, smallest_part: int) -> None:
    """Raises DeviceMemoryError, naming the minimum, for an explicit budget that holds nothing of the model."""
    least = fixed_bytes + smallest_part
    if budgets.vram_is_explicit and 0 < budgets.vram_bytes < least:
        rounded_up = f"{math.ceil(1000 * least / 2**30) / 1000:.3f}"
        raise DeviceMemoryError(
            f"A VRAM budget of {budgets.vram_bytes / 2**30:.3f} GiB holds nothing of the model: the CUDA context and "
            f"buffers take {fixed_bytes / 2**30:.3f} GiB, so that at least {rounded_up} GiB are needed.",
            f"Ask for --vram-budget {rounded_up} or more, or use --device cpu.",
        )


def vram_parts(
    problem: Problem, choice: Choice, model: ModelBytes, kv_bytes: int, context_b: int, scratch_b: int
) -> dict[str, int]:
    """Bytes on the GPU by part; they add up to what the solver counted."""
    ways = list(choice.ways)
    on_gpu = problem.attention_on_gpu[ways]
    used = choice.uses_gpu(problem)
    parts = {
        "attention": int(model.gpu_bytes.attention[on_gpu].sum()),
        "predictors": int(problem.predictor_vram[np.arange(len(ways)), ways].sum()),
        "kv_cache": kv_bytes * int(on_gpu.sum()),
        "scratch": scratch_b if used else 0,
        "context": context_b if used else 0,
        "head": problem.head_vram[choice.head_on_gpu],
    }
    parts["hot"] = choice.vram(problem) - sum(parts.values())
    return parts


def ram_parts(
    problem: Problem, choice: Choice, model: ModelBytes, predictors: PredictorBytes | None, kv_bytes: int
) -> dict[str, int]:
    """Bytes in the RAM by part; they add up to what the solver counted."""
    on_cpu = ~problem.attention_on_gpu[list(choice.ways)]
    parts = {
        "attention": int(model.attention[on_cpu].sum()),
        "predictors": 0 if predictors is None else int(predictors.held[_asked_by_cpu(problem, choice, model)].sum()),
        "kv_cache": kv_bytes * int(on_cpu.sum()),
        "embedding": model.embedding,
        "scratch": problem.fixed_ram - model.embedding,
        "head": problem.head_ram[choice.head_on_gpu],
    }
    parts["cold"] = choice.ram(problem) - sum(parts.values())
    return parts


def _asked_by_cpu(problem: Problem, choice: Choice, model: ModelBytes) -> BOOL:
    """[L]: of which layers the CPU asks the predictors."""
    ways = list(choice.ways)
    computes = (problem.blocks[ways] == 0) if model.down_is_row_wise else np.zeros(len(ways), np.bool_)
    return np.asarray(~problem.attention_on_gpu[ways] | computes, np.bool_)


def smallest_part(model: ModelBytes, kv_bytes: int) -> int:
    """The least that a GPU can be given: one layer with its cache, or the head."""
    gpu = model.gpu_bytes
    layers = (gpu.attention + kv_bytes)[gpu.possible].tolist()
    return int(min([*layers, *([gpu.head] if gpu.head_possible else [])], default=0))
