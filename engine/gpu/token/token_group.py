"""The tokens that run at once on GPU and CPU: one, or several consecutive tokens of a sequence.

Each token has its own buffers, all laid out alike, and all tokens have the same steps and calls. The products of a
whole matrix with every token's vector are one step, which reads the weights once. Between such steps, the steps of
different tokens run at the same time. Each token gets the same arithmetic as alone, to the bit: it reads the keys and
values that earlier tokens have stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from engine.gpu.token.expert_cpu_calls import cpu_calls
from engine.gpu.token.gpu_rotation import GpuRotation
from engine.gpu.token.token_memory import COUNTS, SharedMemory, TokenMemory, TokenPlaces
from engine.gpu.token.token_plan import TokenPlan, TokenPlans, plan_tokens
from engine.gpu.token.token_runner import TokenRunner
from engine.gpu.token.token_steps import Step, TokenSteps, stage_begins
from engine.job import CancelCheck
from native_kernels.backend import I64
from native_kernels.cpu.products.linear import Products
from native_kernels.cpu.runtime.call import aligned_empty
from native_kernels.cpu.runtime.side_by_side import side_by_side
from native_kernels.cpu.runtime.token_state import NEW_STATE, STATE
from native_kernels.cuda.gpu import VectorBatch

if TYPE_CHECKING:
    from engine.gpu.token.cpu_calls import CpuCalls
    from engine.gpu.token.expert_cpu_calls import CpuExpertCalls
    from engine.gpu.token.token_model import TokenModel
    from engine.gpu.token.token_runner import Ending, Execution
    from engine.gpu.weights.cache import GpuCache, KvRegion
    from engine.model.counters import FfnCounters
    from native_kernels.cpu.runtime.pool import Pool
    from native_kernels.cuda.gpu import Gpu


@dataclass(frozen=True, eq=False)
class TokenSetup:
    """Objects and settings that all tokens of a model in one mode share. patience_s: time limit for each exchange."""

    gpu: Gpu
    model: TokenModel
    pool: Pool
    region: KvRegion
    execution: Execution
    patience_s: float


@dataclass(eq=False)
class TokenBuffers:
    """One token: its GPU addresses, its pinned memory, and the CPU's calls. counted: the GPU's accumulated counts."""

    places: TokenPlaces
    shared: SharedMemory
    cpu: CpuCalls | CpuExpertCalls
    counted: np.ndarray

    def count(self, counters: FfnCounters | None) -> None:
        """Read the counts of the last run, and add them to the counters, if any."""
        counted = self.shared.counts.array.copy()
        layers, on_gpu = self.cpu.totals(counted - self.counted)
        self.counted = counted
        if counters is not None:
            counters.add_decoded(layers, on_gpu)


class TokenGroup:
    """Buffers for one or more tokens, and runs of the first n of them. Not thread-safe; the GPU must be entered.

    runners: by number of tokens. logits: of each token, [V], valid until the next run. Methods raise CudaError.
    """

    def __init__(self, setup: TokenSetup, sizes: Sequence[int] = (1,)) -> None:
        """sizes: the numbers of tokens that can run together, out of 1, 2, 4 and 8.

        Raises: CudaError, CudaOutOfMemoryError; nothing stays allocated.
        """
        gpu, model, config = setup.gpu, setup.model, setup.model.config
        vocabulary = model.weights.head.n_rows
        self._setup, self._sizes = setup, sizes
        self.tokens: list[TokenBuffers] = []
        with ExitStack() as held:
            self._memory = TokenMemory(gpu, config, model.on_gpu, vocabulary, max(sizes))
            held.callback(self._memory.free)
            for places in self._memory.of_token:
                shared = SharedMemory(gpu, config, vocabulary)
                held.callback(shared.free)
                cpu = cpu_calls(model, Products(setup.pool.n_threads), shared, setup.region.rows)
                counted = np.zeros(COUNTS * config.n_layers, np.uint32)
                self.tokens.append(TokenBuffers(places, shared, cpu, counted))
            self.rotation = GpuRotation(gpu, model, [one.frequencies for one in self._memory.of_token])
            self.runners = self._make_runners(self.rotation.first_scale)
            held.callback(self._close_runners)
            self._held = held.pop_all()

    @property
    def n_bytes(self) -> int:
        """Bytes of GPU memory, without captured work."""
        return self._memory.n_bytes

    def close(self) -> None:
        """Release GPU and pinned memory, all of it even after an error. Idempotent."""
        self._held.close()

    def _close_runners(self) -> None:
        with ExitStack() as closing:
            for runner in self.runners.values():
                closing.callback(runner.close)

    def prepare(
        self, tokens: Sequence[int], n_kept: int, cache: GpuCache, length: int, counters: FfnCounters
    ) -> None:  # fmt: skip
        """Set the tokens of the next run and their positions.

        n_kept: of them; the results of the others do not count. length: of the whole sequence.
        """
        self._set_rotation(length)
        states = cache.states_of_run(len(tokens)) if len(tokens) > 1 else cache.states()
        for earlier, (token, one) in enumerate(zip(tokens, self.tokens, strict=False)):
            calls = one.cpu.calls
            calls.set_rotation(length)
            position = cache.length + earlier
            calls.set_token(token, position, cache.local_first, cache.blocks, cache.local_blocks)
            before, after = states[earlier : earlier + 2]
            calls.state[STATE], calls.state[NEW_STATE] = before.ctypes.data, after.ctypes.data
            one.shared.state.array[:3] = position, cache.half, position - cache.local_first
            one.cpu.begin(counters, n_kept - 1 - earlier)

    def run(
        self, n_tokens: int, ending: Ending, cancelled: CancelCheck, timed: bool = False, marked: bool = False
    ) -> bool:  # fmt: skip
        """Run as TokenRunner.run. If the tokens do not finish, reset the flags and read the counts."""
        runner, finished = self.runners[n_tokens], False
        try:
            finished = runner.run(ending, cancelled, timed, marked)
        finally:
            if not finished:
                self._recover(runner)
        return finished

    def _recover(self, runner: TokenRunner) -> None:
        gpu = self._setup.gpu
        try:
            runner.recover()
        finally:
            for one in self.tokens:
                gpu.download(one.counted.ctypes.data, one.places.counts, one.counted.nbytes)
            gpu.synchronize()

    def _set_rotation(self, length: int) -> None:
        """Set the RoPE frequencies on the GPU for a sequence of this length."""
        rotation = self.rotation.change(length)
        if rotation is None:
            return
        if self.rotation.has_other_scale(rotation):
            self._close_runners()
            self.runners = self._make_runners(rotation.scale)
        self.rotation.upload(rotation)

    def _make_runners(self, angle_scale: float) -> dict[int, TokenRunner]:
        setup, plans, found = self._setup, [self._plans(one, angle_scale) for one in self.tokens], {}
        self.logits = [one.logits.result for one in plans]
        for n in self._sizes:
            last, together = self.tokens[n - 1], plans[n - 1]
            if n > 1:  # the CPU waits only for the last token's flag, which the GPU sets after all work
                together = replace(together, logits=self._merged([one.logits for one in plans[:n]]))
            found[n] = TokenRunner(
                setup.gpu, setup.pool, together, last.places, last.shared, setup.execution, setup.patience_s
            )
        return found

    def _plans(self, one: TokenBuffers, angle_scale: float) -> TokenPlans:
        model, config = self._setup.model, self._setup.model.config
        steps = TokenSteps(self._setup.gpu, config, model.on_gpu, model.mode, one.places, one.shared, one.cpu.by_cpu)
        layout = config.kv_layout(self._setup.region.codec)
        return plan_tokens(model.on_gpu, steps, one.cpu, one.shared, layout, angle_scale)

    def _merged(self, plans: Sequence[TokenPlan]) -> TokenPlan:
        n_used: I64 = aligned_empty(1, np.int64)
        n_used[0] = len(plans)
        calls = [side_by_side(calls, n_used) for calls in zip(*(plan.calls for plan in plans), strict=True)]
        segments = [self._merged_steps(one) for one in zip(*(plan.segments for plan in plans), strict=True)]
        return TokenPlan(calls, segments, plans[-1].result)

    def _merged_steps(self, tokens: Sequence[Sequence[Step]]) -> list[Step]:
        gpu, found = self._setup.gpu, []
        chains: list[list[Step]] = [[] for _ in tokens]  # steps that read nothing from other tokens

        def end_chains() -> None:
            nonlocal chains
            if chains[0]:
                found.append(partial(gpu.side_by_side, [partial(_run_all, chain) for chain in chains]))
            chains = [[] for _ in tokens]

        for steps in zip(*tokens, strict=True):
            first = steps[0]
            if first.func == gpu.multiply and self._differ_in_addresses(steps):
                end_chains()
                found.append(partial(first, batch=VectorBatch(len(steps), self._memory.step)))
            elif first.func == gpu.publish and not any(first.args[4:]):  # only the last flag is awaited
                for chain, step in zip(chains, steps[:-1], strict=False):
                    chain += [partial(gpu.copy, one.source, one.to, one.n) for one in step.args[2:4] if one.n]
                end_chains()
                found.append(steps[-1])
            elif first.func in (gpu.publish, gpu.gated_delta):  # in the order of the tokens
                end_chains()
                found += steps
            elif first.func is not stage_begins:
                for chain, step in zip(chains, steps, strict=True):
                    chain.append(step)
                if first.func in (gpu.rotate_and_store, gpu.place_latent):  # later tokens read what it writes
                    end_chains()
        end_chains()
        return found

    def _differ_in_addresses(self, steps: Sequence[Step]) -> bool:
        """Return whether these products differ only in their tokens' addresses."""
        matrices, x, outs, *others = steps[0].args
        for i, step in enumerate(steps):
            _, own_x, own_outs, *own_others = step.args
            moved = own_x.values - x.values, *(own - one for own, one in zip(own_outs, outs, strict=True))
            if set(moved) != {i * self._memory.step} or own_others != others or step.args[0] != matrices:
                return False
        return True


def _run_all(steps: Sequence[Step]) -> None:
    for step in steps:
        step()
