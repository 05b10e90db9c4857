"""Decode of one token on GPU and CPU together: a compiled program that launches the GPU and waits for it.

Hot neurons may change slots between two tokens without a new program. Paper: PowerInfer, sections 4 and 5.3.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import Cancelled, DeviceFailedError
from engine.gpu.token.cpu_calls import COLD, LISTING
from engine.gpu.token.expert_cpu_calls import cpu_calls
from engine.gpu.token.gpu_rotation import GpuRotation
from engine.gpu.token.token_memory import COUNTS, SharedMemory, TokenMemory
from engine.gpu.token.token_plan import plan_tokens
from engine.gpu.token.token_runner import TokenRunner
from engine.gpu.token.token_steps import ZERO_COPY, TokenSteps
from engine.gpu.weights.cache import GpuCache
from engine.job import never
from engine.model.counters import FfnCounters
from engine.model.transformer import check_tokens
from native_kernels.cpu.products.linear import Products
from native_kernels.cpu.runtime.token_state import NEW_STATE, STATE
from native_kernels.cuda.runtime.driver import CudaError
from native_kernels.kv_blocks import KvLayout

if TYPE_CHECKING:
    from engine.config import ModelConfig
    from engine.gpu.token.token_model import TokenModel
    from engine.gpu.token.token_runner import Ending, Execution
    from engine.gpu.token.token_steps import Step
    from engine.gpu.weights.cache import KvRegion
    from engine.gpu.weights.expert_slots import ExpertSlots
    from engine.gpu.weights.layers import GpuModel
    from engine.model.kv_cache import KVCache
    from native_kernels.backend import F32, I64
    from native_kernels.cpu.runtime.jit import Kernel
    from native_kernels.cpu.runtime.pool import Pool
    from native_kernels.cuda.gpu import Gpu

log = logging.getLogger(__name__)

MARK_EVERY_S = 0.5  # between tokens with marks, which measure the GPU's stages
# Internal stages, and the reported stages that include them.
_WITHIN = {COLD: "ffn", LISTING: "predictor", ZERO_COPY: "ffn"}
PATIENCE_S = 10.0  # for one exchange, which takes some 15 us; a GPU that also drives a display may be busy with it


@dataclass(frozen=True, eq=False)
class TimedToken:
    """One token: its total time, the stage times of both sides, and both sides' counts.

    by_cpu, by_gpu: i64 [L, 3], computed, gate_active and fired.
    """

    seconds: float
    cpu_s: dict[str, float]
    gpu_s: dict[str, float]
    by_cpu: I64
    by_gpu: I64


class GpuDecodeProgram:
    """A Decoder of a model in one mode. Not thread-safe. Call `close` before closing the GPU."""

    def __init__(
        self,
        gpu: Gpu,
        model: TokenModel,
        counters: FfnCounters,
        pool: Pool,
        region: KvRegion,
        execution: Execution = "segments",
        patience_s: float = PATIENCE_S,
    ) -> None:
        """patience_s: time limit for each exchange. Raises: CudaError, CudaOutOfMemoryError; nothing is kept then."""
        gpu.enter()
        config = model.config
        self.mode = model.mode
        self._gpu = gpu
        self._config = config
        self._model = model.on_gpu
        self._counters = counters
        self._pool = pool
        self._region = region
        self._execution: Execution = execution
        self._patience_s = patience_s
        self._slots = model.slots
        self._timed = self._marks = False
        self._marked_at = 0.0
        vocabulary = model.weights.head.n_rows
        self._counted = np.zeros(COUNTS * config.n_layers, np.uint32)  # by the GPU up to now
        with ExitStack() as held:
            self._memory = TokenMemory(gpu, config, model.on_gpu, vocabulary)
            held.callback(self._memory.free)
            self._shared = SharedMemory(gpu, config, vocabulary)
            held.callback(self._shared.free)
            self._rotation = GpuRotation(gpu, model, self._memory.places.frequencies)
            self._cpu = cpu_calls(model, Products(pool.n_threads), self._shared, region.rows)
            self._runner = self._make_runner(self._rotation.first_scale)
            held.pop_all()

    @staticmethod
    def bytes_for(gpu: Gpu, config: ModelConfig, model: GpuModel, vocabulary: int) -> int:
        """Return the bytes of GPU memory, without captured work."""
        return TokenMemory.bytes_for(gpu, config, model, vocabulary)

    @property
    def n_bytes(self) -> int:
        """Bytes of GPU memory, without captured work."""
        return self._memory.n_bytes

    def close(self) -> None:
        """Release GPU and pinned memory. Idempotent."""
        self._runner.close()
        self._memory.free()
        self._shared.free()

    @property
    def gpu(self) -> Gpu:
        """The GPU that computes."""
        return self._gpu

    @property
    def slots(self) -> ExpertSlots | None:
        """The expert slots; None for a model without experts."""
        return self._slots

    def gpu_steps(self) -> list[list[Step]]:
        """Return the GPU's steps of a token with logits, by segment, for inspection and measurements."""
        return self._runner.plan("logits").segments

    # -------------------------------------------------------------- Decoder

    def accepts(self, cache: KVCache) -> bool:
        """As Decoder.accepts."""
        length = cache.length
        ours = isinstance(cache, GpuCache) and cache.region is self._region
        return ours and (not length or self._rotation.keys_stay_valid(cache.sequence_length, length + 1))

    def measure_stages(self, on: bool = True, on_gpu: bool = False) -> None:
        """As Decoder.measure_stages."""
        self._timed, self._marks = on, on and on_gpu
        self._runner.forget_times()

    def stage_seconds(self) -> dict[str, float]:
        """As Decoder.stage_seconds. "exchange" is waiting for the GPU; eager execution adds the GPU's operators."""
        return _by_reported_stage(self._runner.stage_seconds())

    def gpu_seconds(self) -> dict[str, float]:
        """As Decoder.gpu_seconds."""
        try:
            self._gpu.enter()
            return _by_reported_stage(self._runner.gpu_seconds())
        except CudaError as error:  # the next token raises it to a caller that can handle it
            log.info("The GPU's stages cannot be read: %s", error)
            return {}

    def timed_step(
        self, token: int, cache: KVCache, cancelled: Callable[[], bool] = never
    ) -> TimedToken | None:  # fmt: skip
        """Run as `step`, and return the times of both sides; None if the GPU gives none. The token is not counted.

        Raises: as `step`.
        """
        layers, before = self._config.n_layers, self._counted.copy()
        counters, self._counters = self._counters, FfnCounters(layers, self._config.n_neurons)
        self._timed = True
        self._runner.forget_times()
        try:
            started = time.perf_counter()
            self._run("logits", token, cache, cache.length + 1, cancelled, marked=True)
            seconds = time.perf_counter() - started
            on_gpu = self._runner.gpu_seconds()
        except CudaError as error:
            raise DeviceFailedError(f"The GPU failed: {error}.") from error
        finally:
            self._counters, self._timed = counters, False
            by_cpu_s = self._runner.stage_seconds()
            self._runner.forget_times()
        by_gpu = (self._counted - before).reshape(layers, COUNTS)[:, :3].astype(np.int64)
        counted = self._cpu.counted()
        return TimedToken(seconds, by_cpu_s, on_gpu, counted, by_gpu) if on_gpu else None

    def forget_marks(self) -> None:
        """Release the GPU memory of timed tokens."""
        self._runner.forget_marks()

    def predicts(self, layer: int) -> bool:
        """Return whether the GPU's predictor selects the neurons of a layer."""
        return self._cpu.predicts(layer)

    def capture(self) -> None:
        """Capture a token with logits, so that `kernels` no longer needs the GPU.

        Raises: CudaError, CudaOutOfMemoryError.
        """
        self._gpu.enter()
        self._runner.capture("logits")

    def kernels(self, layout: KvLayout) -> list[Kernel]:
        """Return the CPU's kernels of a token over the region's caches. After `capture`, safe in any thread.

        Raises: CudaError, if not captured yet.
        """
        assert layout.codec == self._region.codec, "the GPU keeps keys and values in one way"
        return [call.kernel for call in self._runner.program("logits").calls]

    def most_tokens(self, cache: KVCache) -> int:
        """Return 1: there is no program of several tokens."""
        return 1

    def steps(self, tokens: Sequence[int], cache: KVCache, cancelled: Callable[[], bool] = never) -> F32:
        """Append the only token, as `step`."""
        (token,) = tokens
        return self.step(token, cache, cancelled)[None]

    def lay_out(self, cache: KVCache) -> None:
        """Do nothing: `capture` builds the program."""

    def step(self, token: int, cache: KVCache, cancelled: Callable[[], bool] = never) -> F32:
        """Append the token to the cache; return the logits [V] for the next one.

        Raises: ContextOverflowError, TokenizerMismatchError, HostMemoryError, DeviceFailedError, Cancelled. The cache
        is then unchanged, and the caller may run another token.
        """
        return self._run("logits", token, cache, cache.length + 1, cancelled)

    # -------------------------------------------------------------- for prompts and evaluation

    def hidden(
        self, token: int, cache: KVCache, length: int, cancelled: Callable[[], bool] = never
    ) -> F32:  # fmt: skip
        """Append the token; return the final hidden state [D]. length: of the whole sequence. Raises: as `step`."""
        return self._run("hidden", token, cache, length, cancelled)

    @property
    def has_head(self) -> bool:
        """Whether the head is on the GPU."""
        return self._model.head is not None

    def logits(self, hidden: F32) -> F32:
        """Return logits [T, V] of hidden states [T, D]. The head must be on the GPU. Raises: DeviceFailedError."""
        assert self._model.head is not None, "the CPU has the head"
        found = np.empty((len(hidden), self._model.head.n_rows), np.float32)
        try:
            self._gpu.enter()
            for row, out in zip(hidden, found, strict=True):
                self._shared.hidden.array[:] = row
                self._runner.run_head()
                out[:] = self._shared.logits.array
        except CudaError as error:
            raise DeviceFailedError(f"The GPU failed: {error}.") from error
        return found

    # -------------------------------------------------------------- one token

    def _run(
        self, ending: Ending, token: int, cache: KVCache, length: int, cancelled: Callable[[], bool],
        marked: bool = False,
    ) -> F32:  # fmt: skip
        check_tokens(self._config, np.array([token], np.int64), cache)
        assert isinstance(cache, GpuCache), "the program runs on caches of its region"
        started = time.perf_counter()
        try:
            self._gpu.enter()
            cache.claim_region()
            self._prepare(token, cache, length)
            finished = False
            try:
                marked = marked or (ending == "logits" and self._should_mark())
                finished = self._runner.run(ending, cancelled, self._timed, marked)
            finally:
                if not finished:
                    self._recover()
            if finished and self._slots is not None:
                self._slots.exchange_after(time.perf_counter() - started)
        except CudaError as error:
            raise DeviceFailedError(f"The GPU failed: {error}.") from error
        if not finished:
            raise Cancelled
        cache.tokens[cache.length], cache.sequence_length = token, length
        cache.advance(1)
        self._count()
        return self._runner.plan(ending).result.copy()

    def _should_mark(self) -> bool:
        """Return whether to measure this token's GPU times. Only every MARK_EVERY_S, because marks take time."""
        now = time.perf_counter()
        if not self._marks or now - self._marked_at < MARK_EVERY_S:
            return False
        self._marked_at = now
        return True

    def _prepare(self, token: int, cache: GpuCache, length: int) -> None:
        calls = self._cpu.calls
        self._set_rotation(length)
        calls.set_rotation(length)
        calls.set_token(token, cache.length, cache.blocks, cache.local_blocks)
        calls.state[STATE], calls.state[NEW_STATE] = (states.ctypes.data for states in cache.states())
        self._shared.state.array[:2] = cache.length, cache.half
        if self._slots is not None:
            self._slots.begin_token()
        self._cpu.ffn.tallies.set_counts(self._counters.per_neuron)

    def _count(self) -> None:
        counted = self._shared.counts.array.copy()
        layers, on_gpu = self._cpu.totals(counted - self._counted)
        self._counted = counted
        self._counters.add_decoded(layers, on_gpu)

    def _recover(self) -> None:
        try:
            self._runner.recover()
        finally:
            self._gpu.download(self._counted.ctypes.data, self._memory.places.counts, self._counted.nbytes)
            self._gpu.synchronize()

    # -------------------------------------------------------------- layout

    def _make_runner(self, angle_scale: float) -> TokenRunner:
        gpu, config, model, shared = self._gpu, self._config, self._model, self._shared
        places, cpu = self._memory.places, self._cpu
        steps = TokenSteps(gpu, config, model, self.mode, places, shared, cpu.by_cpu)
        layout = config.kv_layout(self._region.codec)
        plans = plan_tokens(model, steps, cpu, shared, layout, angle_scale)
        return TokenRunner(gpu, self._pool, plans, places, shared, self._execution, self._patience_s)

    def _set_rotation(self, length: int) -> None:
        """Set the RoPE frequencies on the GPU for a sequence of this length."""
        rotation = self._rotation.change(length)
        if rotation is None:
            return
        if self._rotation.has_other_scale(rotation):
            self._runner.close()
            self._runner = self._make_runner(rotation.scale)
        self._rotation.upload(rotation)


def _by_reported_stage(seconds: dict[str, float]) -> dict[str, float]:
    """Return the seconds by reported stage (_WITHIN)."""
    found: dict[str, float] = {}
    for stage, taken in seconds.items():
        name = _WITHIN.get(stage, stage)
        found[name] = found.get(name, 0.0) + taken
    return found
