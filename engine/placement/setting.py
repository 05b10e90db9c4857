"""The solver's input: a model, a machine with its figures, budgets, statistics and predictors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from engine.config import MODES, EngineConfig, KvCodec, Mode
from engine.errors import DeviceUnavailableError, EngineError
from engine.executor.adaptation import has_learned
from engine.loading.modes import predictor_ram
from engine.loading.opening import choose_context
from engine.machine.hardware import HardwareProfile, choose_gpu, choose_threads, probe
from engine.machine.measured_hardware import load_profile, recall_expected
from engine.model.model_artefacts import no_predictors, read_predictor, read_stats
from engine.placement import fingerprints, memory_plan
from engine.placement.activity import F32
from engine.placement.concurrent_reads import known_read_rates
from engine.placement.down_copy import as_loaded, fired_share
from engine.placement.gpu_bytes import gpu_cache_bytes
from engine.placement.machine_figures import with_figures, working_set
from engine.placement.memory_plan import Budgets
from engine.placement.model_bytes import I64, ModelBytes, PredictorBytes
from engine.placement.oversized import Case, MemoryLimits, with_drafts_that_fit
from engine.placement.placement_problem import TokenContext
from engine.sparsity.placement import Origins

if TYPE_CHECKING:
    from engine.machine.cpu_and_ram import RamInfo
    from engine.machine.graphics import GpuInfo
    from engine.machine.read_rates import ReadRates
    from engine.model.model_files import OpenedModel
    from engine.model.weights import ModelWeights
    from engine.sparsity.predictor import Predictor
    from engine.sparsity.stats import NeuronStats

# Increase when byte counts or the solver change: older placements are then solved again.
SOLVER_VERSION = 12
# Stands for statistics in the origins of a placement by learned activity, whatever was learned since.
_LEARNED = "learned"


@dataclass(frozen=True, eq=False)
class KnownInputs:
    """Values that the caller of the solver knows already.

    weights: the loaded weights, if their codecs may differ from the files'. gpu: the chosen GPU with current figures.
    predictor: returns the model's predictor without reading it again. ram: figures from before the model was loaded.
    drafts: whether the layer that drafts tokens is loaded; None: if memory can hold it. least_positions: of a
    conversation that the GPU's KV cache must hold.
    """

    weights: ModelWeights | None = None
    gpu: GpuInfo | None = None
    predictor: Callable[[], Predictor] | None = None
    ram: RamInfo | None = None
    drafts: bool | None = None
    least_positions: int = 0


@dataclass(frozen=True, eq=False)
class Setting:
    """The solver's input.

    read_rates: measured read rates of the model's rows, by mode. heat [L, E]: learned choices of experts. is_learned:
    without statistics, but with activity learned from texts. kv_positions: as in TokenContext. least_positions: of a
    conversation that the GPU's KV cache must hold.
    """

    opened: OpenedModel
    model: ModelBytes
    stats: NeuronStats | None
    predictors: PredictorBytes | None
    profile: HardwareProfile
    gpu: GpuInfo | None
    threads: int
    budgets: Budgets
    context: int
    kv_codec: KvCodec
    wanted_mode: Mode
    notes: tuple[str, ...]
    sequences: int = 1
    read_rates: Mapping[Mode, ReadRates] = field(default_factory=dict)
    heat: F32 | None = None
    is_learned: bool = False
    kv_positions: int | None = None
    least_positions: int = 0

    @property
    def token_context(self) -> TokenContext:
        """The token whose time is predicted."""
        return TokenContext.typical(
            self.context, self.kv_codec, self.sequences, self.kv_positions, self.least_positions
        )

    @property
    def fixed_vram(self) -> int:
        """Bytes needed as soon as the GPU is used."""
        if self.gpu is None:
            return 0
        scratch = memory_plan.gpu_scratch_bytes(
            self.model, self.token_context.on_gpu, self.gpu, self.budgets.vram_bytes, self.sequences
        )
        return memory_plan.context_bytes(self.gpu) + scratch

    @property
    def fixed_ram(self) -> int:
        return memory_plan.fixed_ram_bytes(self.model, self.context, self.kv_codec)

    @property
    def kv_of_layer(self) -> I64:
        """Bytes of each layer's cache in RAM, [L]."""
        return self.model.kv_of_layer(self.context, self.kv_codec, self.sequences)

    @property
    def kv_on_gpu(self) -> I64:
        """Bytes of each layer's cache on the GPU, [L]."""
        return gpu_cache_bytes(self.model.config, self.token_context.on_gpu, self.kv_codec, self.sequences)

    @property
    def all_in_ram(self) -> int:
        """Bytes of the model with nothing on the GPU."""
        predictors = 0 if self.predictors is None else int(self.predictors.held.sum())
        return self.fixed_ram + self.model.total + int(self.kv_of_layer.sum()) + predictors

    @property
    def pinned_bytes(self) -> int:
        """Upper limit of pinned host memory for zero-copy neurons, in bytes."""
        if self.gpu is None:
            return 0
        return memory_plan.pinned_bytes(self.profile, self.budgets.ram_bytes - self.all_in_ram)

    def origins(self) -> Origins:
        """Return the origins that a valid placement must have now."""
        in_ram, statistics = self.all_in_ram, _LEARNED if self.is_learned else ""
        return Origins(
            model=self.opened.fingerprint,
            activation=self.opened.config.activation_text,
            statistics=statistics if self.stats is None else fingerprints.of_stats(self.stats),
            predictors="" if self.predictors is None else fingerprints.of_predictors(self.predictors),
            hardware=fingerprints.of_hardware(self.profile, self.gpu, self.threads, self.read_rates),
            vram_budget_bytes=self.budgets.vram_bytes,
            ram_budget_bytes=self.budgets.ram_bytes if in_ram > self.budgets.ram_bytes else None,
            context=self.context,
            kv_codec=self.kv_codec,
            mode=self.wanted_mode,
            solver=SOLVER_VERSION,
            down="by neuron" if self.opened.down_is_row_wise and not self.model.down_is_row_wise else "",
        )


def read_setting(
    opened: OpenedModel,
    engine: EngineConfig,
    known: KnownInputs = KnownInputs(),
) -> Setting:
    """Read the solver's input: machine and figures, budgets, statistics, predictors.

    Raises: the errors of `solve_model` for a missing GPU, missing predictors and unreadable files.
    """
    if engine.mode == "sparse" and not opened.has_predictors:
        raise no_predictors(opened)
    profile = load_profile(engine.hardware_file) if engine.hardware_file else probe()
    if known.ram is not None:
        profile = replace(profile, ram=known.ram)
    threads, _ = choose_threads(profile, engine.threads)
    model = ModelBytes.of(opened, known.weights)
    if not engine.hardware_file:
        profile = with_figures(profile, threads, working_set(model), gpus=engine.device != "cpu")
    gpu, reason = choose_gpu(profile)
    if engine.device == "cuda" and gpu is None:
        raise DeviceUnavailableError(f"The GPU cannot be used. {reason}")
    if engine.device == "cpu":
        gpu = None
    if known.gpu is not None:
        gpu = known.gpu
    notes: list[str] = []
    kv_codec: KvCodec = engine.kv_cache or "f16"
    budgets = memory_plan.budgets_of(profile, gpu, engine.vram_budget_gib)
    room = profile.ram.free_bytes if gpu is None else min(profile.ram.free_bytes, budgets.vram_bytes)
    context = engine.sequences * choose_context(opened, engine.context, room // engine.sequences, kv_codec)
    limits = MemoryLimits(profile, gpu, budgets)
    if known.drafts is None:
        case = Case(model, kv_codec, engine.sequences)
        model = with_drafts_that_fit(case, context // engine.sequences, limits)
    elif not known.drafts:
        model = replace(model, drafts=0)
    stats = read_stats(opened) if opened.config.has_zeros else None  # otherwise all neurons are computed
    if known.weights is None:
        case = Case(model, kv_codec, engine.sequences, sum(predictor_ram(opened, engine.mode)))
        model = as_loaded(case, context // engine.sequences, limits, fired_share(opened, engine.mode), threads)
    predictors, mode = None, engine.mode if gpu is None else opened.config.mode_on_gpu(engine.mode)
    predicts = opened.has_predictors and opened.config.has_zeros and (gpu is None or not opened.config.n_experts)
    if predicts and mode in ("auto", "sparse"):
        try:
            predictor = read_predictor(opened, as_stored=True) if known.predictor is None else known.predictor()
            expected = recall_expected(opened.fingerprint)
            predictors = replace(PredictorBytes.of(predictor, model), expected_to_fired=expected)
            if mode == "auto" and predictor.budget is not None and not predictor.budget.held:
                predictors = None
                notes.append("The model's predictors did not hold their error budget, so that auto does without them.")
        except EngineError as error:
            if mode == "sparse":
                raise
            notes.append(f"The model's predictors cannot be used: {error.message}")
    read_rates: dict[Mode, ReadRates] = {}
    if not engine.hardware_file:
        read_rates = known_read_rates(profile, gpu, threads, model, list(MODES))
    return Setting(
        opened=opened,
        model=model,
        stats=stats,
        predictors=predictors,
        profile=profile,
        gpu=gpu,
        threads=threads,
        budgets=budgets,
        context=context,
        kv_codec=kv_codec,
        wanted_mode=mode,
        notes=tuple(notes),
        sequences=engine.sequences,
        read_rates=read_rates,
        is_learned=stats is None and has_learned(opened),
        least_positions=min(context, known.least_positions),
    )
