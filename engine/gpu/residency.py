"""A model's part on a GPU that other programs use as well: what it gives back to them, and when it takes it again.

engine/gpu/placed_model.py places and loads it; engine/gpu/vram_policy.py decides when memory changes hands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.config import Mode
from engine.errors import Cancelled, DeviceFailedError, DeviceMemoryError, EngineError
from engine.gpu.placed_model import PlacedModel
from engine.gpu.trial import budget, choice
from engine.gpu.trial.choice import GpuFullError, GpuUnusableError, OpenedGpu
from engine.gpu.vram_policy import LEAST_GAIN_BYTES, LOOK_EVERY_S
from engine.gpu.weights.expert_slots import ExpertSlots
from engine.job import Job, never
from engine.loading.load_context import LoadContext
from engine.machine.graphics import GpuInfo
from engine.machine.hardware import HardwareProfile
from engine.placement.machine_figures import with_figures, working_set
from engine.placement.model_bytes import ModelBytes
from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError

log = logging.getLogger(__name__)


class GpuResidency(PlacedModel):
    """As PlacedModel, and how it gets on with others. reopen: how a GPU that was given back is opened once more."""

    @property
    def expert_slots(self) -> ExpertSlots | None:
        """The resident experts; None without experts."""
        return None if self._loaded is None else self._loaded.expert_slots

    def save_heat(self, at_once: bool = True) -> float | None:
        """Save the heat of the experts, where the model adapts; as LearnedHot.save. Between answers."""
        self._take_heat()
        return None if self._learned is None else self._learned.save(at_once)

    def make_ready(self, mode: Mode) -> None:
        """So that `transformer` has it: placed anew where there is no room for what the mode needs, and given up where
        the GPU fails. Between answers."""
        try:
            self.transformer(mode)
        except (DeviceMemoryError, CudaOutOfMemoryError):
            self._load_again(mode)
        except CudaError as error:
            self.give_up(str(error))

    # ------------------------------------------------------------ giving back

    def ease(self, at_once: bool = False) -> None:
        """Places the model with less room where others need the GPU's memory. Between answers.

        at_once: because memory ran out, however much is free. Where the person gave the budget, only then.
        """
        if self._loaded is None:
            return
        self.spare_ram()
        free = self._free_bytes()
        if not at_once and not self._policy.is_short(free):
            return
        self._policy.shrink(self._loaded.placement.vram_bytes, free)
        self._note("The GPU's memory ran short: less of the model is there now.")
        self._load_again(self._mode)

    def balance(self, cancelled: Callable[[], bool] = never) -> float | None:
        """Between answers, while nobody waits: gives back where others need the GPU's memory, or RAM that is pinned,
        and takes again what they have left of the GPU's. The seconds after which to look again; None: never.

        cancelled: stops it before anything is moved. Raises nothing; what was done is in `notes`.
        """
        if not self._policy.is_automatic or (self._loaded is None and not self._is_away):
            return LOOK_EVERY_S if self.spare_ram() else None
        if (wait := self._policy.seconds_to_look) > 0:
            return wait
        self.ease()
        try:
            self._take_back(cancelled)
        except Cancelled:
            log.info("What is free of the GPU is not taken now: there is something to answer")
        away = self._loaded is None and not self._is_away
        return None if away else max(self._policy.seconds_to_look, 0.1)

    def _take_back(self, cancelled: Callable[[], bool]) -> None:
        info, held = self._opened.info, self.vram_bytes
        free = self._free_bytes() if self._loaded is not None else budget.free_bytes(info.index)
        now = 0 if self._loaded is None else self._budget_bytes
        found = self._policy.to_take_back(free, held, info.total_bytes or 0, now)
        if found is None or (self._loaded is not None and self._is_all_there):
            return
        limit, more = self._policy.limit, found - self._first_budget_bytes
        # As much as at loading, or hardly more: the placement of then is kept and need not be solved again.
        self._policy.taken(None if limit is not None and 0 <= more < LEAST_GAIN_BYTES else found)
        try:
            if self._loaded is None:
                self._open_again()
            # Once the old part is gone there is no way back.
            self._load_again(self._mode, lambda: self._loaded is not None and cancelled())
        except GpuUnusableError as error:
            log.info("The GPU cannot be had again: %s", error)
        except Cancelled:
            self._policy.limit = limit  # nothing was touched
            raise
        if self._loaded is None:
            self._policy.failed()
            return
        self._is_away = False
        self._policy.worked()
        self._note("Memory of the GPU is free again: more of the model is there now.")

    @property
    def _is_all_there(self) -> bool:
        """Whether nothing of the model could be on the GPU that is not."""
        placement = self._now.placement
        everywhere = placement.attention.count("gpu") == placement.n_layers and placement.head == "gpu"
        return everywhere and placement.hot_neurons == placement.n_layers * placement.neurons

    def _open_again(self) -> None:
        """Raises: GpuUnusableError."""
        if self._reopen is None:
            raise GpuUnusableError("it was given back for good")
        self._opened = self._reopen()
        self._gpu = self._opened.gpu

    def _free_bytes(self) -> int | None:
        """Of the GPU, as its own driver says at once; None: nobody says."""
        if not isinstance(self._gpu, CudaGpu):
            return budget.free_bytes(self._opened.info.index)
        try:
            self._gpu.enter()
            return self._gpu.device.memory()[0]
        except CudaError:
            return None

    def _load_again(self, mode: Mode, cancelled: Callable[[], bool] = never) -> None:
        """Where that fails, the CPU computes from here on, until there is memory again."""
        try:
            self.load(mode, job=Job(cancelled), balancing=False)  # somebody may be waiting for an answer
        except (GpuUnusableError, EngineError, CudaError) as error:
            self.give_up(str(error))
            self._is_away = self._reopen is not None and not isinstance(error, CudaError)

    def after_failure(self, error: DeviceFailedError) -> None:
        """After an answer that ended so: with less room where memory ran out, by the CPU where the GPU is lost.
        The error's hint says what follows."""
        if isinstance(error.__cause__, CudaOutOfMemoryError):
            error.hint = "Send the message again: less of the model is on the GPU now."
            self.ease(at_once=True)
        elif not self._works():
            error.hint = "Send the message again: the CPU computes it. To try the GPU again, load the model again."
            self.give_up(error.message)

    def give_up(self, reason: str) -> None:
        """The GPU is not used any more; reason: half a sentence. Raises nothing."""
        self._is_away = False
        self._drop()
        self._close_gpu()
        self.reason = f"The GPU is not used any more: {reason.rstrip('.')}"

    def stand_aside(self, reason: str) -> None:
        """The GPU is given back until there is memory for the model; reason: a sentence."""
        self._drop()
        self._close_gpu()
        self._is_away, self.reason = self._reopen is not None, reason

    def close(self) -> None:
        """Gives all of it back, the GPU too. A second time does nothing."""
        self._is_away = False
        self._drop()
        self._close_gpu()

    def _works(self) -> bool:
        """Whether the GPU still answers."""
        try:
            self._gpu.enter()
            self._gpu.synchronize()
        except CudaError:
            return False
        return True


def load_residency(
    info: GpuInfo,
    profile: HardwareProfile,
    threads: int,
    base: LoadContext,
    job: Job = Job(),
) -> tuple[GpuResidency | None, str]:
    """The model's part on the GPU, or None and why there is none, in one sentence.

    Where others hold the GPU's memory, the part is there, not usable yet, with that reason.

    Raises: where the GPU was asked for by name DeviceUnavailableError, or what the solver says; Cancelled.
    """
    engine = base.engine
    base.steps.begin("machine")
    if not engine.hardware_file:  # measured once, before anything lies on the GPU
        if job.cancelled():
            raise Cancelled
        profile = with_figures(profile, threads, working_set(ModelBytes.of(base.opened, base.weights)), gpus=True)
        info = next((one for one in profile.gpus if one.uuid == info.uuid), info)
    try:
        if not info.usable:
            raise GpuUnusableError(info.reasons[-1])
        gpu = info

        base.steps.begin("gpu")

        def open_gpu(cancelled: Callable[[], bool] = never) -> OpenedGpu:
            return choice.open_tried(gpu, profile, threads, not engine.hardware_file, cancelled)

        part = GpuResidency(open_gpu(job.cancelled), base, open_gpu)
        try:
            part.load(engine.mode, job)
        except GpuFullError as error:
            part.stand_aside(f"The CPU computes: {error}")
            if engine.device == "cuda" or engine.vram_budget_gib is not None:
                raise
            choice.refuse(engine, str(error))
            return part, part.reason
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
