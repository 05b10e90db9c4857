"""A model on a GPU that other programs use too: it releases memory to them, and takes it back later.

engine/gpu/placed_model.py places and loads the model; engine/gpu/vram_policy.py has the rules.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from engine.config import Mode
from engine.errors import Cancelled, DeviceFailedError, DeviceMemoryError, EngineError
from engine.gpu.placed_model import PlacedModel
from engine.gpu.trial import budget, choice
from engine.gpu.trial.choice import GpuFullError, GpuUnusableError, OpenedGpu
from engine.gpu.vram_policy import LEAST_GAIN_BYTES, LOOK_EVERY_S, VramPolicy
from engine.job import CancelCheck, Job, never
from engine.loading.load_context import LoadContext
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile
from engine.placement import memory_plan
from engine.placement.kv_positions import kv_sizes
from engine.placement.machine_figures import with_figures, working_set
from engine.placement.model_bytes import ModelBytes
from engine.placement.rebalancing import saved_by_kv
from engine.sparsity.placement import Placement
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError

log = logging.getLogger(__name__)

_THERE_AND_BACK = 2  # placings for a short answer between two of a long chat
_USUAL_ANSWER = 256  # tokens: placing the model again must pay within these


class GpuResidency:
    """Shares GPU memory and RAM between a PlacedModel, which it owns, and other programs."""

    def __init__(self, opened: OpenedGpu, base: LoadContext, reopen: Callable[[], OpenedGpu] | None = None) -> None:
        """opened: owned by `placed` from now on. reopen: opens the GPU again after it was released; may raise
        GpuUnusableError.
        """
        self._base, self._reopen = base, reopen
        self._policy = VramPolicy(base.engine.vram_budget_gib is None)
        self.placed = PlacedModel(opened, base, self._policy)
        self._is_away = False  # the GPU was released because its memory was full, and may be opened again
        self._release_other: Callable[[], bool] = lambda: False
        self._placing_s = 1.0  # that placing for another number of tokens took last
        # The placement, and what saved_by_kv found for it, by KV positions: it plans a placement each time.
        self._savings: tuple[Placement | None, dict[int, float]] = (None, {})

    def release_first(self, other: Callable[[], bool] = lambda: False) -> None:
        """Call `other` before the model releases memory; it returns whether something less useful was released."""
        self._release_other = other

    def make_ready(self, mode: Mode) -> None:
        """Prepare `transformer` for a mode. Call this between answers.

        If the mode needs more memory, place the model again; if the GPU fails, give it up.
        """
        try:
            self.placed.transformer(mode)
        except (DeviceMemoryError, CudaOutOfMemoryError):
            self._load_again(mode)
        except CudaError as error:
            self.give_up(str(error))

    # --- the length of a conversation

    def should_place_for(self, n_prompt: int, n_answer: int) -> bool:
        """Return whether to place the model again for a conversation with an answer of this many tokens at most.

        It does not fit into the KV cache, or an earlier one left so much KV cache that placing again pays, even if the
        earlier one continues afterwards.
        """
        n_tokens = n_prompt + n_answer
        if not self.placed.holds(n_tokens):
            return True
        if not self.placed.is_usable or self.placed.setting is None:
            return False
        fewest = kv_sizes(self._base.context, n_tokens)[0]
        if fewest >= self.placed.least_positions:
            return False
        placement = self.placed.placement
        if self._savings[0] is not placement:
            self._savings = placement, {}
        saved_s = self._savings[1].get(fewest)
        if saved_s is None:
            saved_s = self._savings[1][fewest] = saved_by_kv(self.placed.setting, placement, n_tokens)
        return min(n_answer, _USUAL_ANSWER) * saved_s > _THERE_AND_BACK * self._placing_s

    def place_for(self, n_tokens: int, cancelled: CancelCheck = never) -> None:
        """Place the model again with KV cache for a conversation of this length. All caches become invalid.

        Raises: Cancelled, with nothing changed; no other errors: if it fails, the CPU computes.
        """
        placed, context, began = self.placed, self._base.context, time.monotonic()
        have = placed.placement.cached_positions
        self._release_other()  # it may use what the earlier placement left of the budget
        least = 0 if n_tokens <= kv_sizes(context)[0] else min(n_tokens, context)
        self._attempt(lambda: placed.load_for(least, Job(lambda: placed.is_usable and cancelled())))
        self._placing_s = time.monotonic() - began
        if placed.is_usable:
            if placed.placement.cached_positions > have:
                placed.note("The conversation needs more KV cache on the GPU: less of the model is there now.")
            else:
                placed.note("A shorter conversation needs less KV cache on the GPU: more of the model is there now.")

    # --- sharing

    def make_room(self, at_once: bool = False) -> None:
        """Place the model with less memory if other programs need it. Call this between answers.

        at_once: memory ran out, so shrink whatever is free. With a budget from the user, only that shrinks the model.
        """
        if not self.placed.is_usable:
            return
        self.placed.spare_ram()
        free = self.placed.free_bytes()
        if not at_once and not self._policy.is_short(free):
            return
        if self._release_other():
            free = self.placed.free_bytes()
            if at_once or not self._policy.is_short(free):
                return
        self._policy.shrink(self.placed.placement.vram_bytes, free)
        self.placed.note("The GPU's memory ran short: less of the model is there now.")
        self._load_again(self.placed.mode)

    def balance(self, cancelled: CancelCheck = never) -> float | None:
        """Release GPU memory and pinned RAM that other programs need, or take GPU memory back.

        Call this while the engine is idle. Returns the seconds until the next useful call; None: never. cancelled:
        checked before anything moves. Raises nothing; `notes` says what changed.
        """
        if not self._policy.is_automatic or (not self.placed.is_usable and not self._is_away):
            return LOOK_EVERY_S if self.placed.spare_ram() else None
        if (wait := self._policy.seconds_to_look) > 0:
            return wait
        self.make_room()
        try:
            self._take_back(cancelled)
        except Cancelled:
            log.info("Free GPU memory is not taken now: a request is waiting")
        away = not self.placed.is_usable and not self._is_away
        return None if away else max(self._policy.seconds_to_look, 0.1)

    def _take_back(self, cancelled: CancelCheck) -> None:
        info, held = self.placed.info, self.placed.vram_bytes
        free = self.placed.free_bytes() if self.placed.is_usable else budget.free_bytes(info.index)
        now = self.placed.budget_bytes if self.placed.is_usable else 0
        found = self._policy.to_take_back(free, held, info.total_bytes or 0, now)
        if found is None or (self.placed.is_usable and self.placed.is_whole):
            return
        limit, more = self._policy.limit, found - self.placed.first_budget_bytes
        # If the gain over the first budget is small, use that one, because its placement is stored already.
        self._policy.taken(None if limit is not None and 0 <= more < LEAST_GAIN_BYTES else found)
        try:
            if not self.placed.is_usable:
                self._open_again()
            # Cancelling is safe only while the old part is still loaded.
            self._load_again(self.placed.mode, lambda: self.placed.is_usable and cancelled())
        except GpuUnusableError as error:
            log.info("The GPU cannot be opened again: %s", error)
        except Cancelled:
            self._policy.limit = limit  # nothing has changed
            raise
        if not self.placed.is_usable:
            self._policy.failed()
            return
        self._is_away = False
        self._policy.worked()
        self.placed.note("Memory of the GPU is free again: more of the model is there now.")

    def spare_bytes(self) -> int:
        """Return how many bytes of its budget the model leaves unused, if they are free now."""
        if not self.placed.is_usable:
            return 0
        left, free = self.placed.budget_bytes - self.placed.placement.vram_bytes, self.placed.free_bytes()
        margin = memory_plan.margin_bytes(self.placed.info.total_bytes or 0) if self._policy.is_automatic else 0
        return max(0, left if free is None else min(left, free - margin))

    def _open_again(self) -> None:
        """Open the GPU again. Raises: GpuUnusableError."""
        if self._reopen is None:
            raise GpuUnusableError("it was released for good")
        self.placed.use_gpu(self._reopen())

    def _load_again(self, mode: Mode, cancelled: CancelCheck = never) -> None:
        """Place and load the model again, without balancing, because an answer may be waiting."""
        self._attempt(lambda: self.placed.load(mode, Job(cancelled), balancing=False))

    def _attempt(self, load: Callable[[], Placement]) -> None:
        """Call `load`. If it fails, the CPU computes, until there is memory again."""
        try:
            load()
        except (GpuUnusableError, EngineError, CudaError) as error:
            self.give_up(str(error))
            self._is_away = self._reopen is not None and not isinstance(error, CudaError)

    def after_failure(self, error: DeviceFailedError) -> None:
        """Recover from a failed answer, and set the error's hint.

        If memory ran out, place the model with less; if the GPU no longer works, let the CPU compute.
        """
        if isinstance(error.__cause__, CudaOutOfMemoryError):
            error.hint = "Send the message again: less of the model is on the GPU now."
            self.make_room(at_once=True)
        elif not self.placed.works():
            error.hint = "Send the message again. If the CPU computes it, restart Hearth to use the GPU again."
            self.give_up(error.message)

    def give_up(self, reason: str) -> None:
        """Stop using the GPU for good. reason: half a sentence. Raises nothing."""
        self._is_away = False
        self.placed.close(f"The GPU is not used any more: {reason.rstrip('.')}")

    def release_for_now(self, reason: str) -> None:
        """Release the GPU until it has memory for the model. reason: a sentence."""
        self.placed.close(reason)
        self._is_away = self._reopen is not None

    def close(self) -> None:
        """Release everything, and close the GPU. Idempotent."""
        self._is_away = False
        self.placed.close()


def load_residency(
    info: GpuInfo,
    profile: HardwareProfile,
    threads: int,
    base: LoadContext,
    job: Job = Job(),
) -> tuple[GpuResidency | None, str]:
    """Load the model's GPU part; return it, or None and the reason in one sentence.

    If other programs fill the GPU's memory and the budget is automatic, the returned part is not usable yet.

    Raises: Cancelled; if the user chose the GPU, also DeviceUnavailableError and errors of the solver.
    """
    engine = base.engine
    base.steps.begin("machine")
    if not engine.hardware_file:  # measure before the model takes GPU memory
        job.stop_if_cancelled()
        profile = with_figures(profile, threads, working_set(ModelBytes.of(base.opened, base.weights)), gpus=True)
        info = next((one for one in profile.gpus if one.uuid == info.uuid), info)
    try:
        if not info.usable:
            raise GpuUnusableError(info.reasons[-1])
        gpu = info

        base.steps.begin("gpu")

        def open_gpu(cancelled: CancelCheck = never) -> OpenedGpu:
            return choice.open_tried(gpu, profile, threads, not engine.hardware_file, cancelled)

        part = GpuResidency(open_gpu(job.cancelled), base, open_gpu)
        try:
            part.placed.load(engine.mode, job)
        except GpuFullError as error:
            part.release_for_now(f"The CPU computes: {error}")
            if engine.device == "cuda" or engine.vram_budget_gib is not None:
                raise
            choice.refuse(engine, str(error))
            return part, part.placed.reason
        except BaseException:
            part.close()
            raise
    except GpuUnusableError as error:
        choice.refuse(engine, str(error))
        return None, f"The CPU computes: {error}"
    except EngineError as error:
        if engine.device == "cuda":
            raise
        log.info("The GPU is not used: %s", error)
        return None, f"The CPU computes: {error.message.rstrip('.')}"
    return part, ""
