"""Describe for the user where a loaded model is and how fast it should be, in one line with reasons.

Reads the decisions of engine/gpu and engine/placement.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.errors import EngineError
from engine.gpu.placement_text import experts_text, hot_share
from engine.machine.measured_hardware import recall_disk
from engine.placement.cost_model import with_disk_s

if TYPE_CHECKING:
    from engine.gpu.placed_model import PlacedModel
    from engine.placement.placement_problem import Problem
    from engine.placement.setting import Setting
    from engine.session.loaded_model import LoadedModel

log = logging.getLogger(__name__)

_NARROW = "\u202f"  # narrow no-break space between number and unit
_HARDLY = 0.005  # smaller shares are reported as none


def placement_of(model: LoadedModel) -> dict[str, Any]:
    """Return LoadedModelInfo.placement: the line, the line without the rate (where), reasons and figures.

    Units: bytes, tokens/s, shares from 0 to 1; predicted_tok_s is None without a prediction.
    Cost: none with a GPU; without one half a second for the largest models to predict a token's time, plus a second on
    the first run on a machine to measure RAM bandwidth. Never raises; unknown values are None.
    """
    return _on_gpu(model, model.gpu) if model.gpu is not None else _on_cpu(model)


def _on_gpu(model: LoadedModel, placed: PlacedModel) -> dict[str, Any]:
    placement, gpu = placed.placement, placed.info
    held, total = model.vram_bytes, gpu.total_bytes or 0
    load = placement.gpu_neuron_load
    at_home = placement.attention.count("gpu")
    has_zeros = model.opened.config.has_zeros and placement.mode != "dense"
    config, n_experts = model.opened.config, model.opened.config.n_experts
    share = f"{load:.0%} of the {'active ' if has_zeros else ''}neurons on the GPU"
    if n_experts:
        share = f"{experts_text(placement, config)} on the GPU"
    if load < _HARDLY:
        share = f"the attention of {at_home} of {placement.n_layers} layers on the GPU"
        if not at_home:
            share = "the output head on the GPU"
    where = f"{gpu.name}: {share}, {memory_of(held, total)}"
    notes = [note for note in placement.notes if not note.startswith("Nothing is placed on")]
    why = [placed.chosen, f"{placed.reason.rstrip('.')}."]
    if n_experts and _HARDLY <= load < 1 - _HARDLY:
        why.append(f"About {load:.0%} of the experts that a token uses are on the GPU.")
    if placement.ram_bytes:
        why.append(f"The rest is in RAM: {gib(placement.ram_bytes)}, which the CPU computes.")
    predicted = with_disk_s(placement.objective, placement.disk_read_bytes, recall_disk())
    rate = None if predicted is None else 1 / predicted
    if placement.disk_bytes:
        why.append(disk_sentence(placement.disk_bytes, placement.disk_read_bytes))
    if placed.products:
        why.append(placed.products)
    why.append(f"There is room for a context of {model.context} tokens.")
    if not placed.holds(model.context):
        why.append(
            f"The KV cache on the GPU holds {placement.cached_positions}"
            " tokens until a conversation is longer. It then grows in place of weights."
        )
    return {
        "line": f"{where}, {about(rate)}",
        "where": where,
        "why": _sentences([*why, *filter(None, [model.drafts_reason]), *notes, *model.gpu_notes]),
        "gpu": gpu.name,
        "gpu_neuron_load": load,
        "hot_share": hot_share(placement, config),
        "vram_bytes": held,
        "vram_total_bytes": total,
        "vram_budget_bytes": placement.origins.vram_budget_bytes,
        "ram_bytes": placement.ram_bytes,
        "disk_bytes": placement.disk_bytes,
        "predicted_tok_s": rate,
        "context": model.context,
        "is_automatic": model.is_placed_automatically,
        "experts_on_gpu": sum(placement.resident_experts(n_experts)) if n_experts else None,
    }


def _on_cpu(model: LoadedModel) -> dict[str, Any]:
    predicted, ram_bytes, disk_bytes, notes = None, model.weights.n_bytes, 0, []
    try:
        problem, setting = _alone(model)
        alone, budget = problem.cpu_alone, setting.origins().ram_budget_bytes if model.weights.expert_reads else None
        seconds = with_disk_s(alone.seconds(problem), alone.disk_read(problem, budget), recall_disk())
        predicted, disk_bytes = None if seconds is None else 1 / seconds, alone.disk(problem, budget)
        ram_bytes = alone.ram(problem) - disk_bytes
        notes = [note for note in setting.notes if "placed on the CPU" not in note]
    except EngineError as error:  # the model works without a prediction
        log.info("Speed and memory of %s are not predicted: %s", model.name, error)
    except MemoryError:
        log.info("Speed and memory of %s are not predicted: RAM is short", model.name)
    why = [f"{model.device_reason.rstrip('.')}.", f"{model.threads_reason[:1].upper()}{model.threads_reason[1:]}."]
    why.append(f"There is room for a context of {model.context} tokens.")
    where = f"No GPU is used: all of the model in RAM, {gib(ram_bytes)}"
    if disk_bytes:
        where = f"No GPU is used: {gib(ram_bytes)} in RAM, {gib(disk_bytes)} of experts on the disk"
        why.append(disk_sentence(disk_bytes, alone.disk_read(problem, budget)))
    return {
        "line": f"{where}, {about(predicted)}",
        "where": where,
        "why": _sentences([*why, *filter(None, [model.drafts_reason]), *notes, *model.gpu_notes]),
        "gpu": "",
        "gpu_neuron_load": None,
        "hot_share": None,
        "vram_bytes": 0,
        "vram_total_bytes": 0,
        "vram_budget_bytes": 0,
        "ram_bytes": ram_bytes,
        "disk_bytes": disk_bytes,
        "predicted_tok_s": predicted,
        "context": model.context,
        "is_automatic": model.is_placed_automatically,
        "experts_on_gpu": None,
    }


def _alone(model: LoadedModel) -> tuple[Problem, Setting]:
    from engine.placement.setting import KnownInputs, read_setting
    from engine.placement.solving import problem_of

    engine = replace(
        model.engine, device="cpu", mode=model.mode, context=model.context, kv_cache=model.kv_codec,
        vram_budget_gib=None, threads=model.threads,
    )  # fmt: skip
    known = KnownInputs(
        model.weights, predictor=lambda: model.modes.stored_predictor, ram=model.ram, drafts=model.drafts is not None
    )
    setting = read_setting(model.opened, engine, known)
    return problem_of(setting, model.mode)[0], setting


# --- numbers


def about(tok_s: float | None) -> str:
    """Return a predicted rate with no more digits than are known."""
    if tok_s is None or not tok_s > 0:
        return "speed unknown"
    return f"about {tok_s:.0f}{_NARROW}tok/s" if tok_s >= 9.95 else f"about {tok_s:.1f}{_NARROW}tok/s"


def disk_sentence(disk_bytes: int, disk_read_bytes: int) -> str:
    words = f"{gib(disk_bytes)} of experts are read from the disk when they are chosen"
    return f"{words}: about {gib(disk_read_bytes)} for a token, and nearly all of them for a prompt."


def memory_of(used: int, total: int) -> str:
    """Return memory as sold: 1 GB is 2^30 bytes."""
    size = total / 2**30
    whole = f"{size:.0f}" if size >= 10 else f"{size:.1f}"
    return f"{used / 2**30:.1f} of {whole}{_NARROW}GB"


def gib(n_bytes: int) -> str:
    """Return one size as sold."""
    return f"{n_bytes / 2**30:.1f}{_NARROW}GB" if n_bytes >= 100 << 20 else f"{n_bytes / 2**20:.0f}{_NARROW}MB"


def _sentences(found: list[str]) -> list[str]:
    """Return distinct sentences in order."""
    return list(dict.fromkeys(one for one in found if one.strip(". ")))
