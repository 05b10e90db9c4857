"""Estimate the placement and speed of a model with the solver that places it when it is loaded.

`estimate_of` describes any placement; `estimate` needs only a shape and the sparsity. Layers of such a model are alike,
so each kind is computed once. Reads no model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from engine.config import KvCodec, Mode, ModelConfig
from engine.errors import HostMemoryError, InvalidRequestError
from engine.library.estimate.coverage import stats_of, variants_of
from engine.library.estimate.machines import KnownMachine
from engine.library.estimate.shapes import ShapeBytes, bytes_of, config_of, one_layer_of_each, scaled
from engine.library.records import CatalogueEntry, Estimate, Fits, ModelFormat, ModelShape, Source, Sparsity
from engine.loading.opening import default_context
from engine.model.graph import graph_of
from engine.placement import memory_plan
from engine.placement.activity import activity_of
from engine.placement.cost_model import Machine, with_disk_s
from engine.placement.down_copy import as_loaded
from engine.placement.gpu_bytes import why_not_on_gpu
from engine.placement.greedy import Steps, place_greedily, steps_of
from engine.placement.kv_positions import choose_kv_positions
from engine.placement.memory_plan import Budgets
from engine.placement.model_bytes import I64, PredictorBytes
from engine.placement.oversized import Case, MemoryLimits, with_drafts_that_fit
from engine.placement.placement_problem import Choice, FixedBytes, Hottest, Problem, TokenContext, build_problem
from engine.placement.solver import solve

KV_CODEC: KvCodec = "f16"  # as models are loaded


# --- of a placement


def estimate_of(
    problem: Problem,
    choice: Choice | None,
    machine: KnownMachine,
    budgets: Budgets,
    context: int,
    *,
    predicted_from: Source | Literal["measured"],
    range_s: tuple[float, float] | None = None,
    notes: tuple[str, ...] = (),
) -> Estimate:
    """Return the estimate of a placement.

    choice: None if none fits. range_s: seconds per token at best and at worst, if uncertain; None: as predicted. It is
    without the time for experts from the disk.
    """
    if choice is None:
        return _does_not_fit(problem, budgets, context, predicted_from, notes)
    ways = list(choice.ways)
    has_ffn = problem.computed.any(axis=1)
    hot = np.minimum(problem.blocks[ways] * problem.block, problem.order.shape[1])[has_ffn]
    fits: Fits = "cpu"
    if choice.uses_gpu(problem):
        fits = "gpu" if _has_room_for_all(problem, budgets.vram_bytes) else "hybrid"
    ram_budget = None if problem.disk_block is None else budgets.ram_bytes
    disk_bytes = choice.disk(problem, ram_budget)
    if disk_bytes:
        fits = "disk"
    seconds = choice.seconds(problem)
    best, worst = range_s or (seconds, seconds)
    reading_s = with_disk_s(0.0, choice.disk_read(problem, ram_budget), machine.disk_bytes_per_s)
    predicted, low, high = (
        None if reading_s is None else 1 / (one + reading_s)
        for one in (seconds, max(seconds, worst), min(seconds, best))
    )
    return Estimate(
        fits=fits,
        predicted_tok_s=predicted,
        low_tok_s=low,
        high_tok_s=high,
        predicted_from=predicted_from,
        vram_bytes=choice.vram(problem),
        ram_bytes=choice.ram(problem) - disk_bytes,
        disk_bytes=disk_bytes,
        vram_budget_bytes=budgets.vram_bytes,
        ram_budget_bytes=budgets.ram_bytes,
        gpu_neuron_load=choice.gpu_load(problem) if machine.gpu is not None else None,
        context=context,
        hot_share=float(hot.mean()) / problem.order.shape[1] if machine.gpu is not None else None,
        notes=notes,
    )


def _has_room_for_all(problem: Problem, vram_budget: int) -> bool:
    """Return whether the GPU can hold all layers and the head. A faster placement may leave some to the CPU."""
    can = problem.possible[:, problem.attention_on_gpu].any(axis=1).all() and np.isfinite(problem.head_seconds[1])
    return bool(can) and problem.most_vram <= vram_budget


def _does_not_fit(
    problem: Problem,
    budgets: Budgets,
    context: int,
    predicted_from: Source | Literal["measured"],
    notes: tuple[str, ...],
) -> Estimate:
    """Return the estimate of a model that does not fit: as much as possible on the GPU, the rest in RAM."""
    vram = min(budgets.vram_bytes, problem.most_vram)
    ram = problem.cpu_alone.ram(problem.with_disk) - max(0, vram - problem.fixed_vram)
    return Estimate(
        fits="no",
        predicted_tok_s=None,
        low_tok_s=None,
        high_tok_s=None,
        predicted_from=predicted_from,
        vram_bytes=vram,
        ram_bytes=ram,
        vram_budget_bytes=budgets.vram_bytes,
        ram_budget_bytes=budgets.ram_bytes,
        gpu_neuron_load=None,
        context=context,
        short_bytes=max(1, ram - budgets.ram_bytes),
        notes=notes,
    )


# --- of a shape


@dataclass(frozen=True)
class SolvedEstimate:
    """An estimate with its inputs, for inspection. kv_positions: of the KV cache of a layer on the GPU."""

    estimate: Estimate
    problem: Problem
    choice: Choice | None
    sizes: ShapeBytes
    mode: Mode
    kv_positions: int


def estimate(
    entry: CatalogueEntry,
    machine: KnownMachine,
    vram_budget_gib: float | None = None,
    context: int | None = None,
    *,
    exact: bool = False,
) -> Estimate:
    """Estimate a catalogue entry on the machine, once it is prepared. exact: solve to the end instead of greedily.

    Cost: under 0.1 s if greedy. Raises: DeviceMemoryError for a budget beyond the GPU, and as `bytes_of`.
    """
    found = solve_estimate(
        entry.shape, entry.codec, entry.format, entry.sparsity, machine, vram_budget_gib, context, exact=exact,
        n_draft_layers=entry.n_draft_layers,
    )  # fmt: skip
    return noted(found.estimate, entry.shape, entry.codec, entry.format)


def estimate_shape(
    shape: ModelShape,
    codec: str,
    layout: ModelFormat,
    machine: KnownMachine,
    vram_budget_gib: float | None = None,
    context: int | None = None,
    n_bytes: int | None = None,
    n_draft_layers: int = 0,
) -> Estimate:
    """Estimate a model that the catalogue does not have, with the usual sparsity of its kind.

    n_bytes: of its files, if known. n_draft_layers: layers in the files that draft tokens.
    """
    unknown = Sparsity(source="family")
    found = solve_estimate(
        shape, codec, layout, unknown, machine, vram_budget_gib, context, n_bytes=n_bytes, n_draft_layers=n_draft_layers
    )
    return noted(found.estimate, shape, codec, layout)


def solve_estimate(
    shape: ModelShape,
    codec: str,
    layout: ModelFormat,
    sparsity: Sparsity,
    machine: KnownMachine,
    vram_budget_gib: float | None = None,
    context: int | None = None,
    *,
    n_bytes: int | None = None,
    exact: bool = False,
    n_draft_layers: int = 0,
) -> SolvedEstimate:
    """Return what `estimate` returns, with the placement.

    Raises: InvalidRequestError for an impossible budget or context, and as `estimate`.
    """
    config = config_of(shape)
    if vram_budget_gib is not None and not 0 <= vram_budget_gib < math.inf:
        raise InvalidRequestError(f"The VRAM budget is {vram_budget_gib}; a number of GiB from 0 is needed.")
    if context is not None and context < 1:
        raise InvalidRequestError(f"The context is {context}; at least 1 token is needed.")
    codec, layout = as_prepared(shape, codec, layout)
    sizes = bytes_of(shape, codec, layout, n_draft_layers)
    if n_bytes is not None:
        sizes = scaled(sizes, n_bytes)
    gpu = machine.gpu
    budgets = memory_plan.budgets_of(machine.profile, gpu, vram_budget_gib)
    if context is None:
        free = machine.profile.ram.free_bytes
        context = default_context(config, free if gpu is None else min(free, budgets.vram_bytes), KV_CODEC)
    context = min(context, config.max_context)
    case, limits = Case(sizes.model, KV_CODEC), MemoryLimits(machine.profile, gpu, budgets)
    loaded = replace(case, model=with_drafts_that_fit(case, context, limits))
    share = activity_of(config, "exact").fired_share  # as a load takes it before neurons were counted
    sizes = replace(sizes, model=as_loaded(loaded, context, limits, share, machine.threads))
    notes: list[str] = []
    if not machine.measured:
        notes.append("Not measured on this PC yet; estimated from similar machines.")
    if gpu is not None and why_not_on_gpu(config):
        notes.append("The GPU cannot compute this model yet, so it runs on the CPU alone.")
    asked = _Case(sizes, sparsity, machine, budgets, context)
    if gpu is not None and not replace(case, model=sizes.model).fits_gpu(context, limits):
        asked = replace(asked, kv_positions=choose_kv_positions(context, 0, asked.seconds))
    mode, problem, choice = asked.placed(exact)
    range_s = None
    if choice is not None and sparsity.source == "family" and config.has_zeros:
        seconds = [choice.seconds(asked.problem(mode, variant)) for variant in variants_of(shape, sparsity)]
        range_s = min(seconds), max(seconds)
        notes.append("Estimated from models of the same family.")
    if config.has_zeros and config.walks_by_layer and not sparsity.predictor_share and not config.n_experts:
        notes.append("Estimated without predictors; preparing can train some and make it faster.")
    found = estimate_of(
        problem,
        choice,
        machine,
        budgets,
        context,
        predicted_from=sparsity.source if config.has_zeros else "published",
        range_s=range_s,
        notes=tuple(notes),
    )
    return SolvedEstimate(
        replace(found, by_expert=config.n_experts > 0), problem, choice, sizes, mode, asked.token.on_gpu
    )


def as_prepared(shape: ModelShape, codec: str, layout: ModelFormat) -> tuple[str, ModelFormat]:
    """Return the codec and layout after preparing. A ReLU model of safetensors or an ordinary GGUF becomes a bundle,
    which stores down by neuron and has no 32-bit numbers.
    """
    config = config_of(shape)
    plain = codec.lower()
    if layout in ("bundle", "powerinfer-gguf") or not config.has_zeros or config.n_experts:
        return plain, layout
    kept = {"f32": "f16", "bf16": "f16"}.get(plain, plain)
    if kept not in ("f16", "q8_0", "q4_0"):
        return plain, layout
    return kept, "bundle"


def noted(found: Estimate, shape: ModelShape, codec: str, layout: ModelFormat) -> Estimate:
    """Return the estimate with a note if preparing changes the model's layout."""
    if as_prepared(shape, codec, layout) == (codec.lower(), layout):
        return found
    words = "Estimated for the model as prepared for this PC."
    room = found.vram_budget_bytes + found.ram_budget_bytes
    if found.fits != "no" and bytes_of(shape, codec, layout).model.total > room:
        words += " It has to be prepared first: as it is downloaded it does not fit."
    return replace(found, notes=(words, *found.notes), once_prepared=True)


@dataclass(frozen=True, eq=False)
class _Case:
    """A model of a shape on a machine."""

    sizes: ShapeBytes
    sparsity: Sparsity
    machine: KnownMachine
    budgets: Budgets
    context: int
    kv_positions: int | None = None

    @property
    def token(self) -> TokenContext:
        """The token whose time is predicted."""
        return TokenContext.typical(self.context, KV_CODEC, kv_positions=self.kv_positions)

    def seconds(self, kv_positions: int) -> float:
        """Return the predicted time of a token with this many positions of KV cache on the GPU."""
        _, problem, choice = replace(self, kv_positions=kv_positions).placed(exact=False)
        return math.inf if choice is None else choice.seconds(problem)

    @property
    def fixed_vram(self) -> int:
        if self.machine.gpu is None:
            return 0
        gpu = self.machine.gpu
        scratch = memory_plan.gpu_scratch_bytes(self.sizes.model, self.token.on_gpu, gpu, self.budgets.vram_bytes)
        return memory_plan.context_bytes(gpu) + scratch

    @property
    def fixed_ram(self) -> int:
        return memory_plan.fixed_ram_bytes(self.sizes.model, self.context, KV_CODEC)

    @property
    def predictor_layer_bytes(self) -> int:
        model = self.sizes.model
        return int(self.sparsity.predictor_share * model.total / model.n_layers)

    @property
    def all_in_ram(self) -> int:
        """Return the RAM of the model with nothing on the GPU."""
        model = self.sizes.model
        kv = int(model.kv_of_layer(self.context, KV_CODEC).sum())
        return self.fixed_ram + model.total + kv + model.n_layers * self.predictor_layer_bytes

    @property
    def ram_budget(self) -> int | None:
        """Return the RAM budget; None if there is enough for everything."""
        return self.budgets.ram_bytes if self.all_in_ram > self.budgets.ram_bytes else None

    @property
    def modes(self) -> list[Mode]:
        if not self.sizes.model.config.has_zeros:
            return ["dense"]
        return ["exact", "sparse"] if self.sparsity.predictor_share else ["exact"]

    def placed(self, exact: bool) -> tuple[Mode, Problem, Choice | None]:
        """Return the fastest placement of all modes, and its mode."""
        found: list[tuple[float, Mode, Problem, Choice | None]] = []
        for mode in self.modes:
            few = self._few(mode, self.sparsity)
            problem = self._all_layers(few)
            choice = self._fast(problem, few)
            found.append((float("inf") if choice is None else choice.seconds(problem), mode, problem, choice))
        _, mode, problem, choice = min(found, key=lambda one: one[0])
        if exact or (choice is None and self._might_fit(problem)):
            try:
                choice = solve(problem, self.budgets.vram_bytes, self.ram_budget).choice
            except HostMemoryError:
                choice = None
        return mode, problem, choice

    def _fast(self, problem: Problem, few: Problem) -> Choice | None:
        """Return a greedy placement. few: the same problem with one layer of each kind."""
        if self.machine.gpu is None:
            return place_greedily(problem, 0, self.ram_budget)
        steps = _steps_of_all(steps_of(few), self.sizes.kinds)
        return place_greedily(problem, self.budgets.vram_bytes, self.ram_budget, steps)

    def _might_fit(self, problem: Problem) -> bool:
        """Return whether a better search could fit what the greedy one did not."""
        if self.machine.gpu is None:
            return False
        on_gpu = max(0, min(self.budgets.vram_bytes, problem.most_vram) - problem.fixed_vram)
        return problem.cpu_alone.ram(problem.with_disk) - on_gpu <= self.budgets.ram_bytes

    def problem(self, mode: Mode, sparsity: Sparsity) -> Problem:
        return self._all_layers(self._few(mode, sparsity))

    def _few(self, mode: Mode, sparsity: Sparsity) -> Problem:
        """Return the placement problem of one layer of each kind."""
        few, model = one_layer_of_each(self.sizes), self.sizes.model
        predictors = _predictors(self.predictor_layer_bytes, few.first_codecs) if mode == "sparse" else None
        gpu_neurons = int(model.gpu_bytes.neuron.sum())
        pinned = 0
        if self.machine.gpu is not None:
            pinned = memory_plan.pinned_bytes(self.machine.profile, self.budgets.ram_bytes - self.all_in_ram)
        return build_problem(
            few,
            _hottest(few.config, mode, sparsity, few.first_codecs, few.unit),
            Machine.of(self.machine.profile, self.machine.threads, self.machine.gpu),
            mode,
            self.token,
            predictors,
            # pinned is of all layers; these are some of them
            FixedBytes(
                self.fixed_vram,
                self.fixed_ram,
                pinned * int(few.gpu_bytes.neuron.sum()) // max(1, gpu_neurons),
            ),
        )

    def _all_layers(self, few: Problem) -> Problem:
        kinds = self.sizes.kinds
        return replace(
            few,
            seconds=few.seconds[kinds],
            vram=few.vram[kinds],
            ram=few.ram[kinds],
            predictor_vram=few.predictor_vram[kinds],
            zero_copy=few.zero_copy[kinds],
            computed=few.computed[kinds],
            disk_block=None if few.disk_block is None else few.disk_block[kinds],
            order=np.broadcast_to(few.order[:1], (len(kinds), few.order.shape[1])),
            tied_from=graph_of(self.sizes.model.config).tied_from,
        )


def _predictors(layer_bytes: int, codecs: tuple[str, ...]) -> PredictorBytes:
    held = np.full(len(codecs), layer_bytes, np.int64)
    return PredictorBytes(held, held, codecs, (None,) * len(codecs), np.zeros(len(codecs), np.bool_))


@lru_cache(maxsize=4)  # the placements of one model: each mode, several contexts
def _hottest(config: ModelConfig, mode: Mode, sparsity: Sparsity, codecs: tuple[str, ...], unit: int | None) -> Hottest:
    """Return the sorted neurons. Cost: half of an estimate."""
    predictors = _predictors(0, codecs) if mode == "sparse" else None
    return Hottest.of(activity_of(config, mode, stats_of(config, sparsity), predictors), unit)


def _steps_of_all(few: Steps, kinds: I64) -> Steps:
    """Return the steps of all layers from those of one layer of each kind, in the order of `steps_of`."""
    members = [np.flatnonzero(kinds == kind) for kind in range(int(kinds.max()) + 1)]
    layer = np.concatenate([members[kind] for kind in few.layer.tolist()] or [np.zeros(0, np.int64)])
    step = np.repeat(np.arange(len(few.layer)), [len(members[kind]) for kind in few.layer.tolist()])
    order = np.lexsort((-layer, -few.slope[step]))
    step = step[order]
    return Steps(
        layer=layer[order],
        attention_on_gpu=few.attention_on_gpu[step],
        way=few.way[step],
        slope=few.slope[step],
        vram=few.vram[step],
        seconds=few.seconds[step],
        base_way=few.base_way[:, kinds],
    )
