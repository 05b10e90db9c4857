"""The GPU part of a loaded model: place it, load it, and make it ready to answer.

It can be placed again while the model stays loaded; every conversation then starts with an empty cache.
engine/gpu/residency.py decides when. engine/gpu/token/transformer.py computes.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.config import MODES, Mode
from engine.decode.decode_program import why_not as why_no_program
from engine.errors import DeviceFailedError
from engine.executor.learned_hot import LearnedHot
from engine.gpu import prompt_setup
from engine.gpu.background_reads import pin_weights, prefetch_weights
from engine.gpu.loaded_part import LoadedPart
from engine.gpu.placement_text import hot_share, is_for_want_of_memory, placement_summary, why_unused
from engine.gpu.token.balance import TOKENS, Timed, can_balance, settle, timed
from engine.gpu.trial import budget
from engine.gpu.trial.choice import GpuFullError, GpuUnusableError, OpenedGpu
from engine.gpu.weights.loading import GpuContents, LoadedGpu, load_onto_gpu
from engine.job import CancelCheck, Job
from engine.loading.modes import choose_mode
from engine.model.kv_cache import read_cache_bytes
from engine.placement.setting import KnownInputs
from engine.placement.solving import Solved, solve_model
from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError
from native_kernels.cuda.runtime.modules import NoMachineCodeError, interrupted_by

if TYPE_CHECKING:
    from engine.executor.hot_blocks import HotBlocks
    from engine.gpu.batch.batch import GpuBatch
    from engine.gpu.prefill.cold_stream import Rates
    from engine.gpu.prefill.prefill import StreamingSpeed
    from engine.gpu.prefill.prompts import Prompts
    from engine.gpu.token.transformer import GpuTransformer
    from engine.gpu.vram_policy import VramPolicy
    from engine.gpu.weights.cache import GpuCache
    from engine.gpu.weights.expert_slots import ExpertSlots
    from engine.loading.load_context import LoadContext
    from engine.machine.graphics import GpuInfo
    from engine.machine.read_rates import ReadRates
    from engine.model.prefetch import Prefetch
    from engine.placement.concurrent_reads import ReadTimes
    from engine.placement.setting import Setting
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

    is_usable: whether a part is loaded; False after the GPU failed. generation: incremented when objects made here
    become invalid. reading: prefetch after the load. notes: latest changes, in sentences. reason: why the GPU computes,
    or why no longer, in a sentence.
    """

    def __init__(self, opened: OpenedGpu, base: LoadContext, policy: VramPolicy) -> None:
        """opened: owned by this object from now on. policy: limits the memory, and shrinks when it runs out."""
        self._opened, self._gpu, self._base = opened, opened.gpu, base
        self._part: LoadedPart | None = None
        self._learned = LearnedHot(base.opened) if base.engine.adapt else None
        self._policy = policy
        self.mode: Mode = base.engine.mode
        self.budget_bytes = 0  # of the current placement
        self.first_budget_bytes = 0  # of the first placement
        self._least_positions = 0  # of a conversation that the KV cache must hold, if that has grown
        self.setting: Setting | None = None  # of the current placement
        self._read_rates: dict[Mode, ReadRates] | None = None  # measured with this model; None: remembered ones
        self.reading: Prefetch | None = None
        self.generation = 0
        self.notes: list[str] = []
        self.reason = ""

    # --- loading

    def load(
        self,
        mode: Mode,
        job: Job = Job(),
        balancing: bool = True,
    ) -> Placement:
        """Place the model for a mode and load its GPU part, with less memory if it runs out.

        balancing: time some tokens, and place the model again if one side waits long for the other. That may double the
        time of the load. If nothing is known of the neurons' activity, learn it from sample texts first, and place the
        model again.

        Raises: GpuUnusableError if nothing is placed on the GPU or memory keeps running out; EngineErrors of the
        solver; Cancelled.
        """

        def place(read_rates: dict[Mode, ReadRates] | None) -> Timed:
            self._read_rates = read_rates
            return self._placed(mode, job, balancing)

        first = place(self._read_rates)
        self._base.steps.begin("balancing")
        settle(first, place, not self._base.engine.hardware_file)
        self.reading = prefetch_weights(self._base, self._now)
        pinned, prompts = self._loaded_part.pinned_weights, self._prompts
        if pinned is not None:
            streamed = () if prompts is None else prompts.streamed_matrices
            pin_weights(pinned, self._base, self._now, streamed, self.reading)
        self._base.steps.end()
        return self.placement

    def load_for(self, least_positions: int, job: Job) -> Placement:
        """Load again without balancing, with KV cache for this many positions at least; 0: for the usual number.

        Raises: as `load`; then the earlier minimum applies again.
        """
        before, self._least_positions = self._least_positions, least_positions
        try:
            return self.load(self.mode, job, balancing=False)
        except BaseException:
            self._least_positions = before
            raise

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
                if timing and self._loaded_part.learn_activity(self.mode_and_reason()[0], job):
                    return self._placed(mode, job, timing)  # by what was learned, which happens once
                times = self._timed(solved, job.cancelled) if timing else None
            except CudaOutOfMemoryError as error:
                self._drop()
                self._policy.shrink(placement.vram_bytes, None)
                self.note(f"{placement.vram_bytes / 2**30:.2f} GiB of VRAM was not available: less was placed there.")
                log.info("%s (%s)", self.notes[-1], error)
                continue
            except (CudaError, NoMachineCodeError, DeviceFailedError) as error:
                self._drop()
                raise GpuUnusableError(f"{self._opened.info.name} failed while it was loaded ({error})") from error
            self.reason = placement_summary(self.name, placement, self._base.opened.config)
            self.mode = self.mode_and_reason()[0]
            self.budget_bytes = placement.origins.vram_budget_bytes
            self.first_budget_bytes = self.first_budget_bytes or self.budget_bytes
            self.setting = solved.setting
            return solved, times
        raise GpuFullError(f"the memory of {self._opened.info.name} ran out {_ATTEMPTS} times while it was loaded")

    def _timed(self, solved: Solved, cancelled: CancelCheck) -> ReadTimes | None:
        """Return the times of tokens; None if neither side could take neurons from the other."""
        if not can_balance(solved.setting, self.placement, self._now.model):
            return None
        self._base.steps.begin("balancing")
        program = self._loaded_part.program(self.mode_and_reason()[0])
        sample, cache = self._base.modes.sample, self.new_cache(TOKENS)
        return timed(program, cache, sample, self._base.weights, self._now.model, self.blocks, cancelled)

    def spare_ram(self) -> bool:
        """Return whether weights are pinned in place. If RAM has run short, unpin them. Call this between answers."""
        pinned = None if self._part is None else self._part.pinned_weights
        if pinned is None:
            return False
        if self.expert_slots is not None:
            with contextlib.suppress(CudaError):
                self.expert_slots.wait()
        return pinned.spare()

    def wait_for_weights(self, seconds: float) -> bool:
        """Wait for prefetch and pinning, at most `seconds`. Return whether both have ended."""
        end = time.monotonic() + seconds
        pending = (self.reading, None if self._part is None else self._part.pinned_weights)
        return all(one is None or one.wait(max(0.0, end - time.monotonic())) for one in pending)

    def _solved(self, mode: Mode, cancelled: CancelCheck) -> Solved:
        base, steps = self._base, self._base.steps
        engine = replace(base.engine, mode=mode, context=base.context, kv_cache=base.kv_codec)

        def predictor() -> Predictor:
            steps.begin("predictors")
            found = base.modes.stored_predictor
            steps.begin("placing")
            return found

        steps.begin("placing")
        known = KnownInputs(
            base.weights, self._opened.info, predictor, base.ram, base.drafts is not None, self._least_positions
        )  # fmt: skip
        return solve_model(
            base.opened, engine, job=Job(cancelled), known=known, vram_bytes=self._policy.limit, limit_s=_PLACING_S,
            read_rates=self._read_rates,
        )  # fmt: skip

    def _load(self, placement: Placement, job: Job) -> None:
        base, config, steps = self._base, self._base.opened.config, self._base.steps

        mode = self.mode_and_reason(placement)[0]
        if config.n_experts and (reasons := why_no_program(config, base.weights, mode)):
            raise GpuUnusableError(reasons[0].removesuffix("."))
        if base.weights.expert_reads is not None:
            base.weights.expert_reads.is_needed = placement.disk_bytes > 0
        learned = None if self._learned is None else self._learned.hot(placement)
        steps.begin("predictors")
        predictor = base.modes.predictor if placement.mode == "sparse" else None
        assert base.backend.kernels is not None, "a GPU is not used without the kernels"
        n = base.engine.sequences
        contents = GpuContents(placement, placement.cached_positions, base.kv_codec, learned, n)
        loaded = load_onto_gpu(
            self._gpu, base.backend.kernels.pool, config, base.weights, predictor, contents, job, steps
        )
        self._part = LoadedPart(self._opened, base, loaded)
        if loaded.expert_slots is not None:
            loaded.expert_slots.is_adapting = base.engine.adapt
            if self._learned is not None:
                self._learned.begin(loaded.expert_slots)
        job.stop_if_cancelled()
        steps.begin("programs of the GPU")
        with interrupted_by(job.stop_if_cancelled):
            self.transformer(self.mode_and_reason()[0])  # so that the first answer does not wait for it

    def mode_and_reason(self, placement: Placement | None = None) -> tuple[Mode, str]:
        """Return the mode of the placement, and why. placement: None: the current one."""
        mode: Mode = next(mode for mode in MODES if mode == (placement or self.placement).mode)
        wanted = self._base.opened.config.mode_on_gpu(self._base.engine.mode)
        if wanted == "auto" or mode != wanted:
            zeros = self._base.opened.config.has_zeros
            reason = "Predicted to be the fastest with the GPU" if zeros else choose_mode(self._base.opened, wanted)[1]
            return mode, reason
        return mode, choose_mode(self._base.opened, wanted)[1]

    # --- computing

    @property
    def name(self) -> str:
        return self._opened.info.name

    @property
    def info(self) -> GpuInfo:
        return self._opened.info

    @property
    def chosen(self) -> str:
        """Why this GPU was chosen, in a sentence."""
        return self._base.chosen

    @property
    def is_usable(self) -> bool:
        return self._part is not None

    @property
    def blocks(self) -> HotBlocks | None:
        """The hot neurons; None if no layer has slots for neurons."""
        return None if self._part is None else self._part.blocks

    @property
    def placement(self) -> Placement:
        return self._now.placement

    @property
    def least_positions(self) -> int:
        """Positions that the KV cache must hold for a conversation that has grown; 0: none."""
        return self._least_positions

    @property
    def is_whole(self) -> bool:
        """Whether the whole model is on the GPU."""
        placement = self._now.placement
        everywhere = placement.attention.count("gpu") == placement.n_layers and placement.head == "gpu"
        return everywhere and hot_share(placement, self._base.opened.config) == 1

    def holds(self, n_tokens: int) -> bool:
        """Return whether a conversation of this length, or of the whole context, fits into the KV cache."""
        n_positions = min(n_tokens, self._base.context) * self._base.engine.sequences
        return self._part is None or n_positions <= self.placement.cached_positions

    def transformer(self, mode: Mode) -> GpuTransformer:
        return self._loaded_part.transformer(mode)

    def batch(self, mode: Mode, sequences: int) -> GpuBatch:
        return self._loaded_part.batch(mode, sequences)

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
        return "" if self._prompts is None else self._prompts.products

    @property
    def streaming_way(self) -> str:
        return "" if self._prompts is None else self._prompts.way

    def new_cache(self, context: int) -> GpuCache:
        return self._loaded_part.new_cache(context)

    # --- memory

    @property
    def part_bytes(self) -> dict[str, int]:
        """As LoadedPart.part_bytes; {} if nothing is loaded."""
        return {} if self._part is None else self._part.part_bytes

    @property
    def bytes_per_s(self) -> float | None:
        """Measured bandwidth of the GPU's memory; None: not measured."""
        return self._opened.info.bytes_per_s

    def kv_bytes(self, positions: int) -> list[int]:
        """Return the bytes of keys and values that each layer reads for this many positions, and of a state."""
        return read_cache_bytes(self._base.opened.config, positions, self._base.kv_codec)

    @property
    def vram_bytes(self) -> int:
        """Bytes of this process on the GPU, from the driver; if it gives none, the allocated bytes."""
        if self._part is None:
            return 0
        measured = budget.process_bytes(self._opened.info.index)
        return sum(self.part_bytes.values()) if measured is None else measured

    @property
    def expert_slots(self) -> ExpertSlots | None:
        """The expert slots; None without experts."""
        return None if self._part is None else self._part.loaded.expert_slots

    def save_heat(self, at_once: bool = True) -> float | None:
        """Save the experts' heat if the model adapts, as LearnedHot.save. Call this between answers."""
        self._take_heat()
        return None if self._learned is None else self._learned.save(at_once)

    def free_bytes(self) -> int | None:
        """Return the free bytes of the GPU, from CUDA if it is open; None: unknown."""
        if not isinstance(self._gpu, CudaGpu):
            return budget.free_bytes(self._opened.info.index)
        try:
            self._gpu.enter()
            return self._gpu.device.memory()[0]
        except CudaError:
            return None

    # --- helpers

    def note(self, sentence: str) -> None:
        """Add a note. Only the newest few are kept, because an engine may run for weeks."""
        self.notes = [*self.notes, sentence][-_MOST_NOTES:]

    @property
    def _now(self) -> LoadedGpu:
        return self._loaded_part.loaded

    @property
    def _loaded_part(self) -> LoadedPart:
        assert self._part is not None, "it is loaded"
        return self._part

    @property
    def _prompts(self) -> Prompts | None:
        return None if self._part is None else self._part.prompts

    def _drop(self) -> None:
        """Release all GPU memory of the model, but keep the GPU open."""
        self.generation += 1
        if self._base.weights.expert_reads is not None:  # if the CPU computes alone
            self._base.weights.expert_reads.is_needed = True
        self._take_heat()
        part, self._part = self._part, None
        reading, self.reading = self.reading, None
        if reading is not None:
            reading.close()
        if part is not None:  # without one the GPU may be closed, and entering it again would keep its context
            with contextlib.suppress(CudaError):
                self._gpu.enter()
            part.close()

    def _take_heat(self) -> None:
        """Keep the experts' heat, which is otherwise lost with the slots."""
        if self._learned is not None and self._part is not None and self._now.expert_slots is not None:
            self._learned.take(self._now.expert_slots)

    def close(self, reason: str = "") -> None:
        """Release everything, and close the GPU. Idempotent. reason: why it is not used any more, or ""."""
        self._drop()
        self.reason = reason or self.reason
        with contextlib.suppress(CudaError):
            self._gpu.close()

    def use_gpu(self, opened: OpenedGpu) -> None:
        """Compute on this GPU, which the object owns, from the next load on."""
        self._opened, self._gpu = opened, opened.gpu

    def works(self) -> bool:
        """Return whether the GPU still responds."""
        try:
            self._gpu.enter()
            self._gpu.synchronize()
        except CudaError:
            return False
        return True
