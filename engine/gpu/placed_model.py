"""The GPU part of a loaded model: place it, load it, and make it ready to answer.

It can be placed again while the model stays loaded; every conversation then starts with an empty cache.
engine/gpu/residency.py decides when. engine/gpu/token/transformer.py computes.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.config import MODES, Mode
from engine.decode.decode_program import why_not as why_no_program
from engine.errors import Cancelled, DeviceFailedError, DeviceMemoryError
from engine.executor.hot_blocks import HotBlocks
from engine.executor.learned_hot import LearnedHot
from engine.gpu import prompt_setup
from engine.gpu.background_reads import pin_weights, prefetch_weights
from engine.gpu.batch.batch import GpuBatch, batch_ops, open_gpu_batch
from engine.gpu.placement_text import is_for_want_of_memory, placement_summary, why_unused
from engine.gpu.token.balance import TOKENS, Timed, can_balance, settle, timed
from engine.gpu.token.decode_program import PATIENCE_S, GpuDecodeProgram
from engine.gpu.token.token_model import TokenModel
from engine.gpu.token.transformer import GpuTransformer
from engine.gpu.trial import budget
from engine.gpu.trial.choice import GpuFullError, GpuUnusableError, OpenedGpu
from engine.gpu.vram_policy import VramPolicy
from engine.gpu.weights.cache import GpuCache, KvRegion
from engine.gpu.weights.loading import GpuContents, LoadedGpu, load_onto_gpu
from engine.job import Job
from engine.loading.modes import choose_mode
from engine.placement import memory_plan
from engine.placement.gpu_bytes import kv_layer_bytes
from engine.placement.setting import KnownInputs
from engine.placement.solving import Solved, solve_model
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError
from native_kernels.cuda.runtime.modules import NoMachineCodeError, interrupted_by

if TYPE_CHECKING:
    from engine.gpu.prefill.cold_stream import Rates
    from engine.gpu.prefill.pinned_weights import PinnedWeights
    from engine.gpu.prefill.prefill import StreamingSpeed
    from engine.gpu.prefill.prompts import Prompts
    from engine.loading.load_context import LoadContext
    from engine.machine.graphics import GpuInfo
    from engine.machine.read_rates import ReadRates
    from engine.model.prefetch import Prefetch
    from engine.placement.concurrent_reads import ReadTimes
    from engine.sparsity.placement import Placement
    from engine.sparsity.predictor import Predictor

log = logging.getLogger(__name__)

_ATTEMPTS = 3  # each with less memory
# Time limit for improving on the greedy placement during a load. Eight seconds gain 1.2 % at most, mostly nothing
# (models of tests/benchmarks/placements.py).
_PLACING_S = 1.5
_MOST_NOTES = 8


class PlacedModel:
    """The GPU part of a model. Call methods in one thread at a time; they enter the GPU themselves.

    is_usable: whether a part is loaded; False after the GPU failed. blocks: the hot neurons; None if no layer has slots
    for neurons. generation: incremented when objects made here become invalid. reading: prefetch after the load. notes:
    latest changes, in sentences. reason: why the GPU computes, or why no longer, in a sentence.
    """

    def __init__(self, opened: OpenedGpu, base: LoadContext, reopen: Callable[[], OpenedGpu] | None = None) -> None:
        """opened: owned by this object from now on. reopen: opens the GPU again after it was released; may raise
        GpuUnusableError.
        """
        self._opened, self._gpu, self._base = opened, opened.gpu, base
        self._loaded: LoadedGpu | None = None
        self._region: KvRegion | None = None
        self._made: dict[Mode, tuple[GpuTransformer, GpuDecodeProgram]] = {}
        self._prompts: Prompts | None = None
        self._pinned_weights: PinnedWeights | None = None
        self._batch: tuple[tuple[Mode, int], GpuBatch] | None = None
        self._learned = LearnedHot(base.opened) if base.engine.adapt else None
        self._policy = VramPolicy(base.engine.vram_budget_gib is None)
        self._reopen = reopen
        self._is_away = False  # the GPU was released because its memory was full, and may be opened again
        self._mode: Mode = base.engine.mode
        self._budget_bytes = 0  # of the current placement
        self._first_budget_bytes = 0  # of the first placement
        self._read_rates: dict[Mode, ReadRates] | None = None  # measured with this model; None: remembered ones
        self.reading: Prefetch | None = None
        self.blocks: HotBlocks | None = None
        self.generation = 0
        self.notes: list[str] = []
        self.reason = ""

    # ------------------------------------------------------------ loading

    def load(
        self,
        mode: Mode,
        job: Job = Job(),
        balancing: bool = True,
    ) -> Placement:
        """Place the model for a mode and load its GPU part, with less memory if it runs out.

        balancing: time some tokens, and place the model again if one side waits long for the other. That may double the
        time of the load.

        Raises: GpuUnusableError if nothing is placed on the GPU or memory keeps running out; EngineErrors of the
        solver; Cancelled.
        """

        def place(read_rates: dict[Mode, ReadRates] | None) -> Timed:
            self._read_rates = read_rates
            return self._placed(mode, job, balancing)

        first = place(self._read_rates)
        self._base.steps.begin("balancing")
        settle(first, place, not self._base.engine.hardware_file)
        self.reading = prefetch_weights(self._base.weights, self._now)
        if self._pinned_weights is not None:
            streamed = () if self._prompts is None else self._prompts.streamed_matrices
            pin_weights(self._pinned_weights, self._base, self._now, streamed, self.reading)
        self._base.steps.end()
        return self.placement

    def _placed(self, mode: Mode, job: Job, timing: bool) -> Timed:
        """Place and load once. With `timing`, return the times of tokens too, if they can be measured."""
        self._gpu.enter()
        for _ in range(_ATTEMPTS):
            solved = self._solved(mode, job.cancelled)
            placement = solved.placement
            self._drop()  # only now, so that cancelling the solver keeps the current part
            if not placement.uses_gpu:
                why = why_unused(placement)
                raise GpuFullError(why) if is_for_want_of_memory(placement) else GpuUnusableError(why)
            try:
                self._load(placement, job)
                times = self._timed(solved, job.cancelled) if timing else None
            except CudaOutOfMemoryError as error:
                self._drop()
                self._policy.shrink(placement.vram_bytes, None)
                self._note(f"{placement.vram_bytes / 2**30:.2f} GiB of VRAM could not be had: less was placed there.")
                log.info("%s (%s)", self.notes[-1], error)
                continue
            except (CudaError, NoMachineCodeError, DeviceFailedError) as error:
                self._drop()
                raise GpuUnusableError(f"{self._opened.info.name} failed while it was loaded ({error})") from error
            self.reason = placement_summary(self.name, placement, self._base.opened.config.n_experts)
            self._mode = self.mode_and_reason()[0]
            self._budget_bytes = placement.origins.vram_budget_bytes
            self._first_budget_bytes = self._first_budget_bytes or self._budget_bytes
            return solved, times
        raise GpuFullError(f"the memory of {self._opened.info.name} ran out {_ATTEMPTS} times while it was loaded")

    def _timed(self, solved: Solved, cancelled: Callable[[], bool]) -> ReadTimes | None:
        """Return the times of tokens; None if neither side could take neurons from the other."""
        if not can_balance(solved.setting, self.placement, self._now.model):
            return None
        self._base.steps.begin("balancing")
        program = self._made[self.mode_and_reason()[0]][1]
        sample, cache = self._base.modes.sample, self.new_cache(TOKENS)
        return timed(program, cache, sample, self._base.weights, self._now.model, self.blocks, cancelled)

    def spare_ram(self) -> bool:
        """Return whether weights are pinned in place. If RAM has run short, unpin them. Call this between answers."""
        return self._pinned_weights is not None and self._pinned_weights.spare()

    def wait_for_weights(self, seconds: float) -> bool:
        """Wait for prefetch and pinning, at most `seconds`. Return whether both have ended."""
        end = time.monotonic() + seconds
        pending = (self.reading, self._pinned_weights)
        return all(one is None or one.wait(max(0.0, end - time.monotonic())) for one in pending)

    def _solved(self, mode: Mode, cancelled: Callable[[], bool]) -> Solved:
        base, steps = self._base, self._base.steps
        engine = replace(base.engine, mode=mode, context=base.context, kv_cache=base.kv_codec)

        def predictor() -> Predictor:
            steps.begin("predictors")
            found = base.modes.stored_predictor
            steps.begin("placing")
            return found

        steps.begin("placing")
        known = KnownInputs(base.weights, self._opened.info, predictor, base.ram)
        return solve_model(
            base.opened, engine, job=Job(cancelled), known=known, vram_bytes=self._policy.limit, limit_s=_PLACING_S,
            read_rates=self._read_rates,
        )  # fmt: skip

    def _load(self, placement: Placement, job: Job) -> None:
        base, config, steps = self._base, self._base.opened.config, self._base.steps

        def look() -> None:
            if job.cancelled():
                raise Cancelled

        mode = self.mode_and_reason(placement)[0]
        if config.n_experts and (reasons := why_no_program(config, base.weights, mode)):
            raise GpuUnusableError(reasons[0].removesuffix("."))
        learned = None if self._learned is None else self._learned.hot(placement)
        steps.begin("predictors")
        predictor = base.modes.predictor if placement.mode == "sparse" else None
        assert base.backend.kernels is not None, "a GPU is not used without the kernels"
        contents = GpuContents(placement, base.context * base.engine.sequences, base.kv_codec, learned)
        loaded = self._loaded = load_onto_gpu(
            self._gpu, base.backend.kernels.pool, config, base.weights, predictor, contents, job, steps
        )
        if loaded.expert_slots is not None:
            loaded.expert_slots.is_following = base.engine.adapt
            if self._learned is not None:
                self._learned.begin(loaded.expert_slots)
        layers = [None if layer is None else layer.kv for layer in loaded.model.layers]
        self._region = KvRegion(self._gpu, layers, base.kv_codec)
        side = loaded.hot_side
        if side is not None:
            self.blocks = HotBlocks(config, base.weights, loaded.placed, lambda slots: side, side.neuron_in)
        look()
        steps.begin("programs of the GPU")
        with interrupted_by(look):
            self.transformer(self.mode_and_reason()[0])  # so that the first answer does not wait for it

    def mode_and_reason(self, placement: Placement | None = None) -> tuple[Mode, str]:
        """Return the mode of the placement, and why. placement: None: the current one."""
        mode: Mode = next(mode for mode in MODES if mode == (placement or self.placement).mode)
        wanted = self._base.engine.mode
        if wanted == "auto" or mode != wanted:
            zeros = self._base.opened.config.has_zeros
            reason = "Predicted to be the fastest with the GPU" if zeros else choose_mode(self._base.opened, wanted)[1]
            return mode, reason
        return mode, choose_mode(self._base.opened, wanted)[1]

    # ------------------------------------------------------------ computing

    @property
    def name(self) -> str:
        """Name of the GPU."""
        return self._opened.info.name

    @property
    def info(self) -> GpuInfo:
        """The GPU and its measured figures."""
        return self._opened.info

    @property
    def chosen(self) -> str:
        """Why this GPU was chosen, in a sentence."""
        return self._base.chosen

    @property
    def is_usable(self) -> bool:
        return self._loaded is not None

    @property
    def placement(self) -> Placement:
        return self._now.placement

    def transformer(self, mode: Mode) -> GpuTransformer:
        """Return the transformer of a mode, made at the first call in each generation.

        Raises: DeviceMemoryError if the GPU has no memory for the mode's predictors; CudaError, CudaOutOfMemoryError.
        """
        if mode not in self._made:
            self._gpu.enter()
            self._made[mode] = self._make(mode)
        return self._made[mode][0]

    def _make(self, mode: Mode) -> tuple[GpuTransformer, GpuDecodeProgram]:
        base, loaded, config = self._base, self._now, self._base.opened.config
        assert self._region is not None, "it is loaded"
        assert base.backend.kernels is not None, "a GPU is not used without the kernels"
        if mode == "sparse" and not loaded.has_predictors:
            self._add_predictors()
        operators = base.backend.operators
        executor = base.modes.executor(mode, operators)
        counters, blocks = executor.counters, self.blocks

        def collect() -> None:
            if blocks is not None and blocks is self.blocks:  # otherwise its counts are gone
                with contextlib.suppress(CudaError):
                    blocks.collect(counters.per_neuron)

        counters.collect_with(collect)
        model, pool = self._model(mode), base.backend.kernels.pool
        program = GpuDecodeProgram(
            self._gpu, model, counters, pool, self._region, self._opened.execution, PATIENCE_S
        )  # fmt: skip
        try:
            program.capture()  # here, because a thread that has not entered the GPU compiles the program
            if self._prompts is None and (found := prompt_setup.open_prompts(self._opened, base, loaded, executor)):
                self._prompts, self._pinned_weights = found
            many = None if self._prompts is None else self._prompts.of_mode(executor)
            return GpuTransformer(config, base.weights, executor, operators, program, many), program
        except BaseException:
            program.close()
            raise

    def _model(self, mode: Mode) -> TokenModel:
        base, loaded = self._base, self._now
        predictor = base.modes.predictor if mode == "sparse" else None
        tables = None if self.blocks is None else self.blocks.tables
        return TokenModel(
            base.opened.config, base.weights, loaded.model, mode, predictor, tables, loaded.expert_slots
        )  # fmt: skip

    def batch(self, mode: Mode, sequences: int) -> GpuBatch:
        """Return the batch model for this many sequences with caches of `new_cache`. Only the latest one is kept.

        Raises: InvalidRequestError with the reason, DeviceMemoryError, CudaError.
        """
        if self._batch is None or self._batch[0] != (mode, sequences):
            self._close_batch()
            transformer, region, kernels = self.transformer(mode), self._region, self._base.backend.kernels
            assert region is not None, "it is loaded"
            assert kernels is not None, "a GPU is not used without the kernels"
            ops = batch_ops(self._gpu)
            found = open_gpu_batch(self._gpu, self._model(mode), transformer, kernels, region, ops, sequences)
            self._batch = (mode, sequences), found
        return self._batch[1]

    def _close_batch(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None:
            with contextlib.suppress(CudaError):
                batch[1].close()

    @property
    def streaming_speed(self) -> StreamingSpeed:
        """As prompt_setup.streaming_speed."""
        return prompt_setup.streaming_speed(self._opened, self._base, self._now.placement)

    def measure_streaming(self) -> Rates | None:
        """As Prompts.measure; None without GPU prefill. Call this between answers. Raises: CudaError."""
        self._gpu.enter()
        return None if self._prompts is None else self._prompts.measure()

    @property
    def products(self) -> str:
        """As Prompts.products."""
        return "" if self._prompts is None else self._prompts.products

    @property
    def streaming_way(self) -> str:
        """As Prompts.way."""
        return "" if self._prompts is None else self._prompts.way

    def _add_predictors(self) -> None:
        loaded = self._now
        try:
            loaded.add_predictors(self._base.weights, self._base.modes.predictor)
        except CudaOutOfMemoryError as error:
            raise DeviceMemoryError(
                "The GPU does not have enough free memory for the model's predictors.",
                "Load the model again in sparse mode, so that they get a place.",
            ) from error

    def new_cache(self, context: int) -> GpuCache:
        """Return an empty cache for `context` tokens. It shares the GPU's KV region with all others."""
        assert self._region is not None, "it is loaded"
        return GpuCache(self._base.opened.config, context, self._region)

    # ------------------------------------------------------------ memory

    @property
    def part_bytes(self) -> dict[str, int]:
        """Allocated bytes on the GPU, by the placement's parts."""
        if self._loaded is None:
            return {}
        scratch = sum(program.n_bytes for _, program in self._made.values())
        scratch += 0 if self._batch is None else self._batch[1].n_bytes
        scratch += 0 if self._prompts is None else self._prompts.n_bytes
        scratch += memory_plan.EXCHANGE_BYTES if self._loaded.hot_side is not None else 0
        return {**self._loaded.part_bytes, "scratch": scratch, "context": memory_plan.context_bytes(self._opened.info)}

    @property
    def bytes_per_s(self) -> float | None:
        """Measured bandwidth of the GPU's memory; None: not measured."""
        return self._opened.info.bytes_per_s

    def kv_bytes(self, positions: int) -> int:
        """Return the bytes of a layer's KV cache for this many positions."""
        return kv_layer_bytes(self._base.opened.config, positions, self._base.kv_codec)

    @property
    def vram_bytes(self) -> int:
        """Bytes of this process on the GPU, from the driver; if it gives none, the allocated bytes."""
        if self._loaded is None:
            return 0
        measured = budget.process_bytes(self._opened.info.index)
        return sum(self.part_bytes.values()) if measured is None else measured

    # ------------------------------------------------------------ helpers

    def _note(self, sentence: str) -> None:
        """Add a note. Only the newest few are kept, because an engine may run for weeks."""
        self.notes = [*self.notes, sentence][-_MOST_NOTES:]

    @property
    def _now(self) -> LoadedGpu:
        assert self._loaded is not None, "it is loaded"
        return self._loaded

    def _drop(self) -> None:
        """Release all GPU memory of the model, but keep the GPU open."""
        self.generation += 1
        self._take_heat()
        self.blocks, self._region = None, None
        reading, self.reading = self.reading, None
        if reading is not None:
            reading.close()
        with contextlib.suppress(CudaError):
            self._gpu.enter()
        self._close_batch()
        made, self._made = self._made, {}
        for _, program in made.values():
            with contextlib.suppress(CudaError):
                program.close()
        for one in (self._prompts, self._pinned_weights, self._loaded):
            if one is not None:
                with contextlib.suppress(CudaError):
                    one.close()
        self._prompts = self._pinned_weights = self._loaded = None

    def _take_heat(self) -> None:
        """Keep the experts' heat, which is otherwise lost with the slots."""
        if self._learned is not None and self._loaded is not None and self._loaded.expert_slots is not None:
            self._learned.take(self._loaded.expert_slots)

    def _close_gpu(self) -> None:
        with contextlib.suppress(CudaError):
            self._gpu.close()
