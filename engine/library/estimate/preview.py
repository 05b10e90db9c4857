"""Placement and speed of an installed model on this machine, for any budget on the slider.

A model is read once and kept as numbers (known_model.py). The placement is the greedy one of
engine/placement/greedy.py, with the figures used when loading.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from engine.config import EngineConfig, KvCodec, Mode
from engine.errors import DeviceMemoryError
from engine.library.estimate.estimates import estimate_of
from engine.library.estimate.known_model import KnownModel, read_known_model
from engine.library.estimate.machines import KnownMachine
from engine.library.records import Estimate, Source
from engine.loading.opening import default_context
from engine.machine.graphics import GpuInfo
from engine.machine.read_rates import ReadRates
from engine.placement import memory_plan
from engine.placement.concurrent_reads import known_read_rates
from engine.placement.cost_model import Machine
from engine.placement.down_copy import as_loaded
from engine.placement.greedy import Steps, place_greedily, steps_of
from engine.placement.kv_positions import choose_kv_positions
from engine.placement.memory_plan import Budgets
from engine.placement.model_bytes import ModelBytes
from engine.placement.oversized import Case, MemoryLimits, with_drafts_that_fit
from engine.placement.placement_problem import Choice, FixedBytes, Problem, TokenContext, build_problem

_KEPT_MODELS, _KEPT_PROBLEMS = 3, 12


class Previews:
    """Cached models of recent previews. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, KnownModel] = OrderedDict()
        self._problems: OrderedDict[tuple[object, ...], tuple[Problem, Steps]] = OrderedDict()

    def preview(
        self,
        path: str | Path,
        machine: KnownMachine,
        vram_budget_gib: float | None = None,
        context: int | None = None,
        *,
        activation: str | None = None,
        kv_codec: KvCodec | None = None,
    ) -> Estimate:
        """Estimate the model's placement and speed. activation, kv_codec: as in EngineConfig.

        Budget and context are limited to the GPU's and the model's, so that any position of a slider works. Cost: the
        first time, reads headers, statistics and predictors, up to 2 s for the largest models; then about 50 ms.
        Raises: as opening a model and reading its artefacts, InvalidRequestError for invalid values.
        """
        EngineConfig(vram_budget_gib=vram_budget_gib, context=context)  # raises for invalid values
        with self._lock:
            return self._preview(Path(path), machine, vram_budget_gib, context, activation or "", kv_codec or "f16")

    def discard(self, path: str | Path) -> None:
        """Forget a model that changed: statistics were counted, predictors were trained."""
        with self._lock:
            for name in [one for one in self._known if one.startswith(f"{Path(path)}\0")]:
                self._discard(name)

    def _preview(
        self, path: Path, machine: KnownMachine, budget: float | None, context: int | None, activation: str,
        kv_codec: KvCodec,
    ) -> Estimate:  # fmt: skip
        name = f"{path}\0{activation}"
        known = self._read(name, path, activation)
        gpu, notes = machine.gpu, list(known.notes)
        budgets = _budgets(machine, gpu, budget)
        free = machine.profile.ram.free_bytes
        room = free if gpu is None else min(free, budgets.vram_bytes or free)
        context = context or default_context(known.config, room, kv_codec)
        context = min(context, known.config.max_context)
        held = 0 if known.predictors is None else int(known.predictors.held.sum())
        stored, limits = Case(known.sizes, kv_codec, must_bytes=held), MemoryLimits(machine.profile, gpu, budgets)
        stored = replace(stored, model=with_drafts_that_fit(stored, context, limits))
        sizes = as_loaded(stored, context, limits, known.fired_share, machine.threads)
        case = _Case(known, sizes, machine, budgets, context, kv_codec)
        if machine.gpu is not None and not replace(stored, model=sizes).fits_gpu(context, limits):
            case = replace(case, kv_positions=self._kv_positions(name, case))
        found: list[tuple[float, Mode, Problem, Choice | None]] = []
        for mode in known.modes:
            problem, steps = self._problem(name, case, mode, "taken")
            choice = place_greedily(problem, budgets.vram_bytes, case.ram_budget, steps)
            found.append((float("inf") if choice is None else choice.seconds(problem), mode, problem, choice))
        _, mode, problem, choice = min(found, key=lambda one: one[0])
        if (rates := case.read_rates.get(mode)) is not None:  # as it is placed when it is loaded
            problem, steps = self._problem(name, case, mode, "taken", rates)
            choice = place_greedily(problem, budgets.vram_bytes, case.ram_budget, steps)
        source: Source | Literal["measured"] = "measured"
        range_s = None
        if known.config.has_zeros and known.stats is None:
            source = "family"
            if choice is not None and not known.config.n_experts:
                seconds = [choice.seconds(self._problem(name, case, mode, end, rates)[0]) for end in ("least", "most")]
                range_s = min(seconds), max(seconds)
            notes.append("Estimated from models of the same family.")
        if not machine.measured:
            notes.append("Not measured on this PC yet; estimated from similar machines.")
        notes.append(budgets.vram_reason)
        estimate = estimate_of(
            problem, choice, machine, budgets, context, predicted_from=source, range_s=range_s, notes=tuple(notes),
        )  # fmt: skip
        return replace(estimate, by_expert=known.config.n_experts > 0)

    def _kv_positions(self, name: str, case: _Case) -> int:
        """Return how many positions of KV cache the GPU has, as `solve_model` chooses them."""

        def seconds(mode: Mode, kv_positions: int) -> float:
            at = replace(case, kv_positions=kv_positions)
            problem, steps = self._problem(name, at, mode, "taken")
            choice = place_greedily(problem, case.budgets.vram_bytes, case.ram_budget, steps)
            return float("inf") if choice is None else choice.seconds(problem)

        mode = min(case.known.modes, key=lambda mode: seconds(mode, case.context))
        return choose_kv_positions(case.context, 0, lambda n: seconds(mode, n))

    # --- what is kept

    def _read(self, name: str, path: Path, activation: str) -> KnownModel:
        known = self._known.get(name)
        if known is not None and known.is_of(path):
            self._known.move_to_end(name)
            return known
        self._discard(name)
        self._known[name] = known = read_known_model(path, activation)
        while len(self._known) > _KEPT_MODELS:
            self._discard(next(iter(self._known)))
        return known

    def _discard(self, name: str) -> None:
        self._known.pop(name, None)
        for key in [key for key in self._problems if key[0] == name]:
            del self._problems[key]

    def _problem(
        self, name: str, case: _Case, mode: Mode, end: str, read_rates: ReadRates | None = None
    ) -> tuple[Problem, Steps]:  # fmt: skip
        """Return the problem and its steps, which are the same for every budget."""
        place = (case.sizes.down_is_row_wise, case.machine.state, case.machine.gpu is None)
        key = (name, *place, case.context, case.kv_positions, case.kv_codec, mode, end, read_rates)
        if key not in self._problems:
            problem = case.problem(mode, end, read_rates)
            self._problems[key] = problem, steps_of(problem)
            while len(self._problems) > _KEPT_PROBLEMS:
                self._problems.popitem(last=False)
        self._problems.move_to_end(key)
        problem, steps = self._problems[key]
        return replace(problem, fixed_vram=case.fixed_vram, fixed_ram=case.fixed_ram + case.sizes.embedding), steps


@dataclass(frozen=True, eq=False)
class _Case:
    known: KnownModel
    sizes: ModelBytes
    machine: KnownMachine
    budgets: Budgets
    context: int
    kv_codec: KvCodec
    kv_positions: int | None = None

    @property
    def token(self) -> TokenContext:
        """The token whose time is predicted."""
        return TokenContext.typical(self.context, self.kv_codec, kv_positions=self.kv_positions)

    @property
    def fixed_vram(self) -> int:
        """The bytes taken as soon as the GPU is used. Of a problem, only these and fixed_ram depend on the budget."""
        if self.machine.gpu is None:
            return 0
        gpu = self.machine.gpu
        scratch = memory_plan.gpu_scratch_bytes(self.sizes, self.token.on_gpu, gpu, self.budgets.vram_bytes)
        return memory_plan.context_bytes(gpu) + scratch

    @property
    def fixed_ram(self) -> int:
        return memory_plan.fixed_ram_bytes(self.sizes, self.context, self.kv_codec)

    @property
    def all_in_ram(self) -> int:
        """The RAM of the model with nothing on the GPU."""
        sizes, predictors = self.sizes, self.known.predictors
        kv = int(sizes.kv_of_layer(self.context, self.kv_codec).sum())
        return self.fixed_ram + sizes.total + kv + (0 if predictors is None else int(predictors.held.sum()))

    @property
    def ram_budget(self) -> int | None:
        """The RAM budget; None if there is enough for everything."""
        return self.budgets.ram_bytes if self.all_in_ram > self.budgets.ram_bytes else None

    @property
    def read_rates(self) -> dict[Mode, ReadRates]:
        """The remembered rates of the model's rows on this machine."""
        machine = self.machine
        return known_read_rates(machine.profile, machine.gpu, machine.threads, self.sizes, self.known.modes)

    def problem(self, mode: Mode, end: str, read_rates: ReadRates | None = None) -> Problem:
        """Return the placement problem. end: which activity to assume. read_rates: as in Machine."""
        known, machine = self.known, self.machine
        predictors = known.predictors if mode == "sparse" else None
        pinned = 0
        if machine.gpu is not None:
            pinned = memory_plan.pinned_bytes(machine.profile, self.budgets.ram_bytes - self.all_in_ram)
        rates = Machine.of(machine.profile, machine.threads, machine.gpu, read_rates)
        return build_problem(
            self.sizes, known.hottest(mode, end), rates, mode, self.token, predictors,
            FixedBytes(self.fixed_vram, self.fixed_ram, pinned),
        )  # fmt: skip


def _budgets(machine: KnownMachine, gpu: GpuInfo | None, budget: float | None) -> Budgets:
    try:
        return memory_plan.budgets_of(machine.profile, gpu, budget)
    except DeviceMemoryError:  # beyond the GPU
        total = 0 if gpu is None else gpu.total_bytes or 0
        return memory_plan.budgets_of(machine.profile, gpu, total / 2**30)


_shared = Previews()


def preview(
    path: str | Path, machine: KnownMachine, vram_budget_gib: float | None = None, context: int | None = None
) -> Estimate:
    """Like Previews.preview, with one instance for the process."""
    return _shared.preview(path, machine, vram_budget_gib, context)
