"""Solve, store and reuse the placement of an opened model on a machine.

A stored placement is reused if everything that it depends on (Origins) is unchanged. engine/placement/solver.py has the
mathematics.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.bundle import artefacts
from engine.config import EngineConfig, Mode
from engine.errors import EngineError, UnsupportedModelError
from engine.executor.adaptation import can_learn, learned_stats
from engine.executor.learned_hot import read_heat
from engine.job import Job, run_cancellable
from engine.placement import memory_plan
from engine.placement.activity import Activity, activity_of
from engine.placement.cost_model import Machine
from engine.placement.gpu_bytes import why_not_on_gpu
from engine.placement.greedy import place_greedily
from engine.placement.kv_positions import choose_kv_positions, kv_sizes
from engine.placement.memory_plan import Budgets
from engine.placement.placement_problem import I64, FixedBytes, Hottest, Problem, build_problem
from engine.placement.setting import KnownInputs, Setting, read_setting
from engine.placement.solver import TIME_LIMIT_S, Solution, solve
from engine.sparsity.placement import Device, Origins, Placement

if TYPE_CHECKING:
    from engine.machine.read_rates import ReadRates
    from engine.model.model_files import OpenedModel

log = logging.getLogger(__name__)

_STEPS = 4  # of `solve_model`'s progress


@dataclass(frozen=True, eq=False)
class Solved:
    """A placement and how it came about.

    reused: a stored placement is still valid. setting: the solver's input. changed: why the stored placement is no
    longer valid, in words. problem: None if reused.
    """

    placement: Placement
    reused: bool
    setting: Setting
    changed: tuple[str, ...] = ()
    problem: Problem | None = None

    @property
    def experts(self) -> list[int] | None:
        """The experts on the GPU, per layer; None for a model without."""
        n_experts = self.setting.opened.config.n_experts
        return list(self.placement.resident_experts(n_experts)) if n_experts else None

    def to_json(self) -> dict[str, Any]:
        """Return the object that `solve --json` prints and the engine process answers."""
        placement = self.placement
        return {
            "stats": placement.statistics,
            "mode": placement.mode,
            "hot_neurons": placement.hot_neurons,
            "hot_bytes": placement.hot_bytes,
            "vram_bytes": placement.vram_bytes,
            "vram_parts_bytes": placement.vram_parts_bytes,
            "vram_budget_bytes": placement.origins.vram_budget_bytes,
            "ram_bytes": placement.ram_bytes,
            "ram_parts_bytes": placement.ram_parts_bytes,
            "disk_bytes": placement.disk_bytes,
            "disk_read_bytes": placement.disk_read_bytes,
            "predicted_tok_s": placement.predicted_tok_s,
            "gpu_neuron_load": placement.gpu_neuron_load,
            "fired_share": placement.fired_share,
            "objective": placement.objective,
            "gap": placement.gap,
            "layers": list(placement.hot_counts),
            "experts": self.experts,
            "attention_layers": placement.attention.count("gpu"),
            "head": placement.head,
            "context": placement.origins.context,
            "kv_positions": placement.cached_positions,
            "position": placement.position,
            "reused": self.reused,
            "changed": list(self.changed),
            "notes": list(placement.notes),
        }


def solve_model(
    opened: OpenedModel,
    engine: EngineConfig | None = None,
    job: Job = Job(),
    *,
    again: bool = False,
    known: KnownInputs = KnownInputs(),
    vram_bytes: int | None = None,
    limit_s: float = TIME_LIMIT_S,
    read_rates: Mapping[Mode, ReadRates] | None = None,
) -> Solved:
    """Return the placement of a model on this machine or on engine.hardware_file, and store it as an artefact.

    again: solve even if the stored placement is valid. vram_bytes: a temporary budget. limit_s: for the search
    after the greedy placement, which finds little more. read_rates: override the remembered rates. Progress counts
    steps.
    Placements for other codecs, a temporary budget, several sequences or a conversation that has grown are not stored.
    Raises: DeviceMemoryError for a VRAM budget below the minimum, HostMemoryError if the RAM cannot hold the rest,
    DeviceUnavailableError for a missing GPU, UnsupportedModelError for sparse without predictors, the errors of reading
    statistics and predictors, Cancelled.
    """
    engine = engine or EngineConfig()
    job.progress(0, _STEPS)
    weights = known.weights
    setting = read_setting(opened, engine, known)
    if read_rates is not None:
        setting = replace(setting, read_rates=read_rates)
    is_stored = vram_bytes is None and engine.sequences == 1 and (weights is None or weights.hold == "mapped")
    is_stored = is_stored and not known.least_positions
    if vram_bytes is not None:
        words = f"The VRAM budget is the {vram_bytes / 2**30:.2f} GiB available at the moment."
        setting = replace(setting, budgets=Budgets(vram_bytes, setting.budgets.ram_bytes, False, words))
    job.progress(1, _STEPS)
    job.stop_if_cancelled()
    origins = setting.origins()
    stored, changed = _stored(opened, origins) if is_stored else (None, ())
    if stored is not None and not again:
        job.progress(_STEPS, _STEPS)
        return Solved(stored, reused=True, setting=replace(setting, kv_positions=stored.kv_positions))
    placement, problem = _solved(with_learned(setting), origins, job, limit_s)
    setting = replace(setting, kv_positions=placement.kv_positions)
    job.progress(3, _STEPS)
    job.stop_if_cancelled()
    if is_stored:
        _keep(opened, placement, asked_for=weights is None)
    job.progress(_STEPS, _STEPS)
    return Solved(placement, reused=False, setting=setting, changed=changed, problem=problem)


def _keep(opened: OpenedModel, placement: Placement, asked_for: bool) -> None:
    """Save the placement. asked_for: raise errors; otherwise log them, and the next load solves it again."""
    try:
        artefacts.save_placement(opened, placement)
    except EngineError as error:
        if asked_for:
            raise
        log.info("The placement of %s is not stored: %s", opened.name, error)


def with_learned(setting: Setting) -> Setting:
    """Add the activity learned from chats to the statistics.

    It grows with every answer. A new placement uses it, but its change alone does not invalidate a stored placement.
    """
    opened = setting.opened
    if (heat := read_heat(opened)) is not None:
        words = "Experts chosen in recent conversations count."
        return replace(setting, heat=heat, notes=(*setting.notes, words))
    stats = learned_stats(opened, setting.stats) if can_learn(opened) else setting.stats
    if stats is setting.stats:
        return setting
    words = "Neurons that fired in recent conversations count, too."
    if setting.stats is None:
        words = "Which neurons are active was learned from sample texts and conversations."
    return replace(setting, stats=stats, notes=(*setting.notes, words))


def problem_of(setting: Setting, mode: Mode) -> tuple[Problem, Activity]:
    """Return the placement problem of a mode, and the activity that it is built from."""
    activity = activity_by(setting, mode)
    return problem_by(setting, mode, activity), activity


def activity_by(setting: Setting, mode: Mode) -> Activity:
    """Return how likely a mode computes each neuron."""
    predictors = setting.predictors if mode == "sparse" else None
    return activity_of(setting.opened.config, mode, setting.stats, predictors, setting.heat)


def problem_by(
    setting: Setting, mode: Mode, activity: Activity | Hottest, zero_copy_blocks: I64 | None = None
) -> Problem:  # fmt: skip
    """Return the placement problem for a known activity. zero_copy_blocks: as in `build_problem`."""
    return build_problem(
        setting.model,
        activity,
        Machine.of(setting.profile, setting.threads, setting.gpu, setting.read_rates.get(mode)),
        mode,
        setting.token_context,
        setting.predictors if mode == "sparse" else None,
        FixedBytes(setting.fixed_vram, setting.fixed_ram, setting.pinned_bytes),
        zero_copy_blocks,
    )


def _solved(setting: Setting, origins: Origins, job: Job, limit_s: float) -> tuple[Placement, Problem]:
    """Return the fastest placement over the requested modes."""
    # Compare modes by estimated rates: one mode's rows may have been measured and the other's not.
    without_rates, modes = replace(setting, read_rates={}), _modes(setting)
    candidates = [(mode, *problem_of(without_rates if len(modes) > 1 else setting, mode)) for mode in modes]
    job.progress(2, _STEPS)
    vram, ram = setting.budgets.vram_bytes, origins.ram_budget_bytes
    fewest = _with_kv(setting, kv_sizes(setting.context, setting.least_positions)[0])
    smallest = memory_plan.smallest_part(setting.model, fewest.kv_on_gpu)
    memory_plan.check_vram_budget(setting.budgets, fewest.fixed_vram, smallest)
    if len(candidates) > 1:  # the greedy placements decide between the modes
        times = []
        for _, problem, _ in candidates:
            choice = place_greedily(problem, vram, ram)
            times.append(float("inf") if choice is None else choice.seconds(problem))
        candidates = [candidates[times.index(min(times))]]
    job.stop_if_cancelled()
    mode, problem, activity = candidates[0]
    if len(modes) > 1 and mode in setting.read_rates:
        problem = problem_by(setting, mode, activity)
    if fewest is not setting:
        hottest = Hottest.of(activity, setting.model.unit)

        def seconds(kv_positions: int) -> float:
            at = problem_by(_with_kv(setting, kv_positions), mode, hottest)
            choice = place_greedily(at, vram, ram)
            return float("inf") if choice is None else choice.seconds(at)

        chosen = choose_kv_positions(setting.context, setting.least_positions, seconds)
        setting = _with_kv(setting, chosen)
        problem = problem_by(setting, mode, hottest)
    # takes seconds, without I/O
    solution = run_cancellable(job.cancelled, lambda: solve(problem, vram, ram, time_limit_s=limit_s), "solver")
    return placement_of(setting, origins, mode, problem, activity, solution), problem


def _with_kv(setting: Setting, kv_positions: int) -> Setting:
    """Return the setting with this many positions of KV cache on the GPU; several sequences share all of them."""
    if setting.gpu is None or setting.sequences > 1 or kv_positions >= setting.context:
        return setting
    return replace(setting, kv_positions=kv_positions)


def _modes(setting: Setting) -> list[Mode]:
    """Return the modes between which the solver chooses."""
    config, wanted = setting.opened.config, setting.wanted_mode
    if wanted == "dense" or (wanted != "sparse" and not config.has_zeros):
        return ["dense"]
    if wanted == "sparse":
        if setting.predictors is None:
            raise UnsupportedModelError(f"The activation {config.activation} makes no zeros that could be predicted.")
        return ["sparse"]
    return ["exact", "sparse"] if wanted == "auto" and setting.predictors is not None else ["exact"]


def placement_of(
    setting: Setting, origins: Origins, mode: Mode, problem: Problem, activity: Activity, solution: Solution
) -> Placement:
    """Convert the solution to a Placement: ids, devices, bytes."""
    choice, model = solution.choice, setting.model
    ways = list(choice.ways)
    predictors = setting.predictors if mode == "sparse" else None
    device: tuple[Device, Device] = ("cpu", "gpu")
    head = device[choice.head_on_gpu]
    context = 0 if setting.gpu is None else memory_plan.context_bytes(setting.gpu)
    machine = Machine.of(setting.profile, setting.threads, setting.gpu)
    notes = [*setting.notes, setting.budgets.vram_reason, *machine.notes, *activity.notes]
    if model.ffn_is_whole and model.down_is_row_wise and mode != "dense":
        notes.append("The file stores down row by row, so that a token reads all of it; a bundle has it by neuron.")
    if setting.gpu is not None and not choice.uses_gpu(problem):
        least = setting.fixed_vram + memory_plan.smallest_part(model, setting.kv_on_gpu)
        why = why_not_on_gpu(model.config) or (
            "that would not be faster"
            if setting.budgets.vram_bytes >= least
            else "the budget holds nothing of the model"
        )
        notes.append(f"Nothing is placed on {setting.gpu.name}: {why[:1].lower()}{why[1:]}.")
    kept = model.kept_in_ram(setting.context, setting.kv_codec, setting.sequences)
    kv_in_ram = np.where(problem.attention_on_gpu[ways], kept, setting.kv_of_layer)
    zero_copy = tuple(problem.zero_copy_neurons(layer, way) for layer, way in enumerate(ways))
    hot = [problem.hot_neurons(layer, way) for layer, way in enumerate(ways)]
    if model.config.d_ff_by_layer:  # a layer has all of its neurons there, or none
        hot = [ids[ids < width] for ids, width in zip(hot, model.config.d_ff_by_layer, strict=True)]
    for layer in model.config.mixer_only_layers:
        hot[layer] = hot[layer][:0]
    return Placement(
        hot=tuple(hot),
        zero_copy=zero_copy if any(map(len, zero_copy)) else (),
        attention=tuple(device[bool(problem.attention_on_gpu[way])] for way in ways),
        predictor=tuple(device[bool(problem.attention_on_gpu[way]) and not model.ffn_is_whole] for way in ways),
        embedding="cpu",
        head=head,
        neurons=model.neurons,
        statistics=activity.source,
        fired_share=activity.fired_share,
        vram_parts_bytes=memory_plan.vram_parts(
            problem, choice, model, setting.kv_on_gpu, context, setting.fixed_vram - context
        ),
        ram_parts_bytes=memory_plan.ram_parts(
            problem, choice, model, predictors, kv_in_ram, choice.disk(problem, origins.ram_budget_bytes)
        ),
        disk_bytes=choice.disk(problem, origins.ram_budget_bytes),
        disk_read_bytes=choice.disk_read(problem, origins.ram_budget_bytes),
        position=setting.token_context.position,
        objective=solution.seconds,
        gap=solution.gap,
        gpu_neuron_load=choice.gpu_load(problem),
        origins=origins,
        notes=tuple(notes),
        mode=mode,
        kv_positions=setting.kv_positions,
    )


# --- validity of a stored placement


def _stored(opened: OpenedModel, origins: Origins) -> tuple[Placement | None, tuple[str, ...]]:
    """Return the stored placement if it is still valid; otherwise None and what changed."""
    if artefacts.find(opened, "placement") is None:
        return None, ()
    try:
        placement = artefacts.load_placement(opened)
    except EngineError as error:
        return None, (f"the stored one cannot be read ({error.message})",)
    differences = origins.differences(replace(placement.origins, model=origins.model))
    return (None, differences) if differences else (placement, ())
