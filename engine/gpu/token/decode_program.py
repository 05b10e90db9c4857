"""Decode of one token on GPU and CPU together: a compiled program that launches the GPU and waits for it.

Hot neurons may change slots between two tokens without a new program. A few consecutive tokens can run together,
so that whole matrices are read once (token_group.py). Paper: PowerInfer, sections 4 and 5.3.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.decode.expert_calls import ExpertCalls
from engine.errors import Cancelled, DeviceFailedError
from engine.gpu.token.cpu_calls import COLD, LISTING
from engine.gpu.token.expert_cpu_calls import CpuExpertCalls
from engine.gpu.token.token_group import TokenBuffers, TokenGroup, TokenSetup
from engine.gpu.token.token_memory import COUNTS, TokenMemory
from engine.gpu.token.token_steps import ZERO_COPY
from engine.gpu.weights.cache import GpuCache
from engine.gpu.weights.expert_slots import no_such_expert
from engine.job import CancelCheck, never
from engine.model.counters import FfnCounters
from engine.model.transformer import check_tokens
from engine.placement.gpu_bytes import TOKENS_TOGETHER, tokens_together
from native_kernels.cuda.runtime.driver import CudaError
from native_kernels.cuda.runtime.modules import NoMachineCodeError
from native_kernels.kv_blocks import KvLayout

if TYPE_CHECKING:
    from engine.config import ModelConfig
    from engine.gpu.token.token_model import TokenModel
    from engine.gpu.token.token_runner import Ending, Execution, TokenRunner
    from engine.gpu.token.token_steps import Step
    from engine.gpu.weights.cache import KvRegion
    from engine.gpu.weights.expert_slots import ExpertSlots
    from engine.gpu.weights.layers import GpuModel
    from engine.model.kv_cache import KVCache
    from native_kernels.backend import F32, I32, I64
    from native_kernels.cpu.runtime.jit import Kernel
    from native_kernels.cpu.runtime.pool import Pool
    from native_kernels.cuda.gpu import Gpu

log = logging.getLogger(__name__)

MARK_EVERY_S = 0.5  # between tokens with marks, which measure the GPU's stages
# Internal stages, and the reported stages that include them.
_WITHIN = {COLD: "ffn", LISTING: "predictor", ZERO_COPY: "ffn"}
SEVERAL = (TOKENS_TOGETHER, 4, 2)  # tokens per run; other numbers are padded to the next larger one, and take as long
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
        """patience_s: limit for each exchange. Raises: CudaError, CudaOutOfMemoryError; nothing stays allocated."""
        gpu.enter()
        self.mode = model.mode
        self._gpu = gpu
        self._config = model.config
        self._model = model.on_gpu
        self._counters = counters
        self._region = region
        self._slots = model.slots
        self._timed = self._marks = False
        self._marked_at = 0.0
        self._setup = TokenSetup(gpu, model, pool, region, execution, patience_s)
        self._alone = TokenGroup(self._setup)
        self._several: TokenGroup | None = None  # None before `lay_out`
        together = tokens_together(model.config)
        self._never_together = together == 1  # tokens never run together
        self._sizes = tuple(n for n in SEVERAL if n <= together)

    @staticmethod
    def bytes_for(gpu: Gpu, config: ModelConfig, model: GpuModel, vocabulary: int) -> int:
        """Return the bytes of GPU memory, without captured work."""
        return TokenMemory.bytes_for(gpu, config, model, vocabulary)

    @property
    def n_bytes(self) -> int:
        """Bytes of GPU memory, without captured work."""
        return self._alone.n_bytes + (0 if self._several is None else self._several.n_bytes)

    def close(self) -> None:
        """Release GPU and pinned memory. Idempotent."""
        self._never_together = True  # `lay_out` does nothing from now on
        several, self._several = self._several, None
        try:
            if several is not None:
                several.close()
        finally:
            self._alone.close()

    @property
    def _runner(self) -> TokenRunner:
        return self._alone.runners[1]

    def _all_runners(self) -> list[TokenRunner]:
        return [self._runner, *([] if self._several is None else self._several.runners.values())]

    @property
    def gpu(self) -> Gpu:
        return self._gpu

    @property
    def slots(self) -> ExpertSlots | None:
        """The expert slots; None for a model without experts."""
        return self._slots

    def gpu_steps(self) -> list[list[Step]]:
        """Return the GPU's steps of a token with logits, by segment, for inspection and measurements."""
        return self._runner.plan("logits").segments

    # --- Decoder

    def accepts(self, cache: KVCache) -> bool:
        length = cache.length
        ours = isinstance(cache, GpuCache) and cache.region is self._region
        return ours and (not length or self._alone.rotation.keys_stay_valid(cache.sequence_length, length + 1))

    def measure_stages(self, on: bool = True, on_gpu: bool = False) -> None:
        self._timed, self._marks = on, on and on_gpu
        for runner in self._all_runners():
            runner.reset_times()

    def stage_seconds(self) -> dict[str, float]:
        """As Decoder.stage_seconds. "exchange" is waiting for the GPU; eager execution adds the GPU's operators."""
        found: dict[str, float] = {}
        for runner in self._all_runners():
            for stage, seconds in _by_reported_stage(runner.stage_seconds()).items():
                found[stage] = found.get(stage, 0.0) + seconds
        return found

    def gpu_seconds(self) -> dict[str, float]:
        try:
            self._gpu.enter()
            return _by_reported_stage(self._runner.gpu_seconds())
        except CudaError as error:  # the next token raises it to a caller that can handle it
            log.info("The GPU's stages cannot be read: %s", error)
            return {}

    def chosen_experts(self) -> list[I32 | None]:
        """As Decoder.chosen_experts: of the layers on the CPU; ExpertSlots.heat tells those of the others."""
        ffn = self._alone.tokens[0].cpu.ffn
        if self._slots is None or not isinstance(ffn, ExpertCalls):
            return []
        pairs = zip(ffn.of_last_token(), self._slots.is_on_gpu, strict=True)
        return [None if is_on_gpu else ids for ids, is_on_gpu in pairs]

    def timed_step(
        self, token: int, cache: KVCache, cancelled: CancelCheck = never
    ) -> TimedToken | None:  # fmt: skip
        """Run as `step`, and return the times of both sides; None if the GPU gives none. The token is not counted.

        Raises: as `step`.
        """
        (one,), layers = self._alone.tokens, self._config.n_layers
        before = one.counted.copy()
        counters, self._counters = self._counters, FfnCounters(layers, self._config.n_neurons)
        self._timed = True
        self._runner.reset_times()
        try:
            started = time.perf_counter()
            self._run(self._alone, "logits", [token], cache, cache.length + 1, cancelled, marked=True)
            seconds = time.perf_counter() - started
            on_gpu = self._runner.gpu_seconds()
        except CudaError as error:
            raise DeviceFailedError(f"The GPU failed: {error}.") from error
        finally:
            self._counters, self._timed = counters, False
            by_cpu_s = self._runner.stage_seconds()
            self._runner.reset_times()
        by_gpu = (one.counted - before).reshape(layers, COUNTS)[:, :3].astype(np.int64)
        counted = one.cpu.counted()
        return TimedToken(seconds, by_cpu_s, on_gpu, counted, by_gpu) if on_gpu else None

    def release_marks(self) -> None:
        """Release the GPU memory of timed tokens."""
        self._runner.release_marks()

    def predicts(self, layer: int) -> bool:
        """Return whether the GPU's predictor selects the neurons of a layer."""
        return self._alone.tokens[0].cpu.predicts(layer)

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
        """Return how many tokens `steps` can append to this cache now; 1 before `lay_out`."""
        if self._several is None:
            return 1
        length, rotation = cache.length, self._alone.rotation
        before = cache.sequence_length if length else 1
        return next(
            (n for n in self._sizes if length + n <= cache.capacity and rotation.keys_stay_valid(before, length + n)
             and rotation.is_same(length + 1, length + n)), 1,
        )  # fmt: skip

    def steps(self, tokens: Sequence[int], cache: KVCache, cancelled: CancelCheck = never) -> F32:
        """Append up to `most_tokens` tokens to the cache; return the logits [n, V] after each.

        They equal those of `step`, to the bit. Raises: as `step`.
        """
        if len(tokens) == 1 or self._several is None:
            (token,) = tokens
            return self.step(token, cache, cancelled)[None]
        self.append(tokens, cache, cache.length + len(tokens), cancelled)
        return np.stack(self._several.logits[: len(tokens)])

    def append(
        self, tokens: Sequence[int], cache: KVCache, length: int, cancelled: CancelCheck = never
    ) -> None:  # fmt: skip
        """Append 2 to `most_tokens` tokens to the cache. length: of the whole sequence. Raises: as `step`."""
        assert self._several is not None, "`most_tokens` is 1 without"
        n = len(tokens)
        together = min(size for size in self._sizes if size >= n)
        filled = [*tokens, *[tokens[-1]] * (together - n)]  # later tokens overwrite what the padding appends
        self._run(self._several, "logits", filled, cache, length, cancelled, n)

    def lay_out(self, cache: KVCache) -> None:
        """Capture the runs of several tokens, unless already captured. Cost: 0.1 s or more, once.

        Some models have no such runs: gpu_bytes.tokens_together.
        """
        if self._never_together or self._several is not None:
            return
        with ExitStack() as held:
            try:
                self._gpu.enter()
                several = TokenGroup(self._setup, self._sizes)
                held.callback(several.close)
                for runner in several.runners.values():
                    runner.capture("logits")
                held.pop_all()
                self._several = several
            except (CudaError, NoMachineCodeError) as error:  # a GPU that failed also fails the next token
                log.info("Several tokens do not run together: %s", error)
                self._never_together = True
                with suppress(CudaError):
                    held.close()

    def step(self, token: int, cache: KVCache, cancelled: CancelCheck = never) -> F32:
        """Append the token to the cache; return the logits [V] for the next one.

        Raises: ContextOverflowError, TokenizerMismatchError, HostMemoryError, DeviceFailedError, Cancelled. The cache
        is then unchanged, and the caller may run another token.
        """
        self._run(self._alone, "logits", [token], cache, cache.length + 1, cancelled)
        return self._runner.plan("logits").result.copy()

    # --- for prompts and evaluation

    def hidden(
        self, token: int, cache: KVCache, length: int, cancelled: CancelCheck = never
    ) -> F32:  # fmt: skip
        """Append the token; return the final hidden state [D]. length: of the whole sequence. Raises: as `step`."""
        self._run(self._alone, "hidden", [token], cache, length, cancelled)
        return self._runner.plan("hidden").result.copy()

    @property
    def has_head(self) -> bool:
        """Whether the head is on the GPU."""
        return self._model.head is not None

    def logits(self, hidden: F32) -> F32:
        """Return logits [T, V] of hidden states [T, D]. The head must be on the GPU. Raises: DeviceFailedError."""
        assert self._model.head is not None, "the CPU has the head"
        found, shared = np.empty((len(hidden), self._model.head.n_rows), np.float32), self._alone.tokens[0].shared
        try:
            self._gpu.enter()
            for row, out in zip(hidden, found, strict=True):
                shared.hidden.array[:] = row
                self._runner.run_head()
                out[:] = shared.logits.array
        except CudaError as error:
            raise DeviceFailedError(f"The GPU failed: {error}.") from error
        return found

    # --- a run

    def _run(
        self, group: TokenGroup, ending: Ending, tokens: Sequence[int], cache: KVCache, length: int,
        cancelled: CancelCheck, n_kept: int = 1, marked: bool = False,
    ) -> None:  # fmt: skip
        """Run the tokens in the group, and append the first n_kept. length: of the whole sequence."""
        check_tokens(self._config, np.array(tokens, np.int64), cache)
        assert isinstance(cache, GpuCache), "the program runs on caches of its region"
        started = time.perf_counter()
        try:
            self._gpu.enter()
            cache.claim_region(several=group is not self._alone)
            cache.make_room(len(tokens))
            if self._slots is not None:
                self._slots.begin_run(n_kept)
            group.prepare(tokens, n_kept, cache, length, self._counters)
            marked = marked or (group is self._alone and ending == "logits" and self._should_mark())
            finished = group.run(len(tokens), ending, cancelled, self._timed, marked)
            if finished and self._slots is not None:
                self._slots.exchange_after(time.perf_counter() - started)
        except CudaError as error:
            raise DeviceFailedError(f"The GPU failed: {error}.") from error
        if not finished:
            raise Cancelled
        self._check_choices(group.tokens[: len(tokens)])
        first, last = cache.length, cache.length + n_kept
        cache.tokens[first:last], cache.sequence_length = tokens[:n_kept], length
        if group is self._alone:
            cache.advance(n_kept)
        else:
            cache.advance_together(n_kept, len(tokens))
        if cache.trail is not None:
            cache.note(np.stack([self._hidden_of(one) for one in group.tokens[:n_kept]]))
        for i, one in enumerate(group.tokens[: len(tokens)]):
            one.count(self._counters if i < n_kept else None)
            if self._slots is not None and isinstance(one.cpu, CpuExpertCalls):
                self._slots.missing += one.cpu.missing

    def _check_choices(self, tokens: Sequence[TokenBuffers]) -> None:
        """Raise DeviceFailedError if the GPU chose an expert that does not exist; the CPU has read none for it."""
        for one in tokens:
            if isinstance(one.cpu, CpuExpertCalls) and one.cpu.missing.min() < 0:
                raise no_such_expert(int(one.cpu.missing.argmin()))

    def _hidden_of(self, one: TokenBuffers) -> F32:
        """Return the final hidden state [D] of a token of the last run."""
        found: F32 = one.cpu.calls.final.values if self._model.head is None else one.shared.hidden.array
        return found

    def _should_mark(self) -> bool:
        """Return whether to measure this token's GPU times. Only every MARK_EVERY_S, because marks take time."""
        now = time.perf_counter()
        if not self._marks or now - self._marked_at < MARK_EVERY_S:
            return False
        self._marked_at = now
        return True


def _by_reported_stage(seconds: dict[str, float]) -> dict[str, float]:
    """Return the seconds by reported stage (_WITHIN)."""
    found: dict[str, float] = {}
    for stage, taken in seconds.items():
        name = _WITHIN.get(stage, stage)
        found[name] = found.get(name, 0.0) + taken
    return found
