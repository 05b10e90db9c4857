"""A model's part on the GPU, and the programs and prefill that compute with it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from engine.errors import DeviceMemoryError
from engine.executor.hot_blocks import HotBlocks
from engine.gpu import prompt_setup, sample_activity
from engine.gpu.batch.batch import GpuBatch, batch_ops, open_gpu_batch
from engine.gpu.token.decode_program import PATIENCE_S, GpuDecodeProgram
from engine.gpu.token.token_model import TokenModel
from engine.gpu.token.transformer import GpuTransformer
from engine.gpu.weights.cache import GpuCache, KvRegion
from engine.placement import memory_plan
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError

if TYPE_CHECKING:
    from engine.config import Mode
    from engine.gpu.prefill.pinned_weights import PinnedWeights
    from engine.gpu.prefill.prompts import Prompts
    from engine.gpu.trial.choice import OpenedGpu
    from engine.gpu.weights.loading import LoadedGpu
    from engine.job import Job
    from engine.loading.load_context import LoadContext


class LoadedPart:
    """The memory and programs of one placement, until `close`. The calling thread must have entered the GPU.

    loaded: the weights on the GPU. blocks: the hot neurons; None if no layer has slots for neurons. prompts,
    pinned_weights: None without GPU prefill.
    """

    def __init__(self, opened: OpenedGpu, base: LoadContext, loaded: LoadedGpu) -> None:
        """loaded: owned by this object from now on, even after an error."""
        self.loaded, self._opened, self._base = loaded, opened, base
        self.prompts: Prompts | None = None
        self.pinned_weights: PinnedWeights | None = None
        self.blocks: HotBlocks | None = None
        self._made: dict[Mode, tuple[GpuTransformer, GpuDecodeProgram]] = {}
        self._batch: tuple[tuple[Mode, int], GpuBatch] | None = None
        self._region = KvRegion(opened.gpu, loaded.model.layers, base.opened.config, base.kv_codec, loaded.context)
        side = loaded.hot_side
        if side is not None:
            try:
                self.blocks = HotBlocks(
                    base.opened.config, base.weights, loaded.placed, lambda slots: side, side.neuron_in
                )
            except BaseException:
                loaded.close()
                raise

    def close(self) -> None:
        """Release all GPU memory of the model, but keep the GPU open. CUDA errors are ignored."""
        self.blocks = None
        self._close_batch()
        made, self._made = self._made, {}
        for _, program in made.values():
            with contextlib.suppress(CudaError):
                program.close()
        if self.loaded.expert_slots is not None:
            with contextlib.suppress(CudaError):
                self.loaded.expert_slots.wait()  # the weights are unpinned
        for one in (self.prompts, self.pinned_weights, self.loaded):
            if one is not None:
                with contextlib.suppress(CudaError):
                    one.close()
        self.prompts = self.pinned_weights = None

    def transformer(self, mode: Mode) -> GpuTransformer:
        """Return the transformer of a mode, made at the first call.

        Raises: DeviceMemoryError if the GPU has no memory for the mode's predictors; CudaError, CudaOutOfMemoryError.
        """
        if mode not in self._made:
            self._opened.gpu.enter()
            self._made[mode] = self._make(mode)
        return self._made[mode][0]

    def program(self, mode: Mode) -> GpuDecodeProgram:
        """Return the program of a mode whose transformer exists."""
        return self._made[mode][1]

    def _make(self, mode: Mode) -> tuple[GpuTransformer, GpuDecodeProgram]:
        base, config = self._base, self._base.opened.config
        assert base.backend.kernels is not None, "a GPU is not used without the kernels"
        if mode == "sparse" and not self.loaded.has_predictors:
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
            self._opened.gpu, model, counters, pool, self._region, self._opened.execution, PATIENCE_S
        )  # fmt: skip
        try:
            program.capture()  # here, because a thread that has not entered the GPU compiles the program
            if self.prompts is None and (
                found := prompt_setup.open_prompts(self._opened, base, self.loaded, executor)
            ):  # fmt: skip
                self.prompts, self.pinned_weights = found
            many = None if self.prompts is None else self.prompts.of_mode(executor)
            return GpuTransformer(config, base.weights, executor, operators, program, many), program
        except BaseException:
            program.close()
            raise

    def _model(self, mode: Mode) -> TokenModel:
        base, loaded = self._base, self.loaded
        predictor = base.modes.predictor if mode == "sparse" else None
        tables = None if self.blocks is None else self.blocks.tables
        return TokenModel(
            base.opened.config, base.weights, loaded.model, mode, predictor, tables, loaded.expert_slots
        )  # fmt: skip

    def _add_predictors(self) -> None:
        try:
            self.loaded.add_predictors(self._base.weights, self._base.modes.predictor)
        except CudaOutOfMemoryError as error:
            raise DeviceMemoryError(
                "The GPU does not have enough free memory for the model's predictors.",
                "Load the model again in sparse mode, so that they get a place.",
            ) from error

    def learn_activity(self, mode: Mode, job: Job) -> bool:
        return sample_activity.learn(self, self._base, mode, job)

    def batch(self, mode: Mode, sequences: int) -> GpuBatch:
        """Return the batch model for this many sequences with caches of `new_cache`. Only the latest one is kept.

        Raises: InvalidRequestError with the reason, DeviceMemoryError, CudaError.
        """
        if self._batch is None or self._batch[0] != (mode, sequences):
            self._close_batch()
            gpu, transformer, kernels = self._opened.gpu, self.transformer(mode), self._base.backend.kernels
            assert kernels is not None, "a GPU is not used without the kernels"
            found = open_gpu_batch(
                gpu, self._model(mode), transformer, kernels, self._region, batch_ops(gpu), sequences
            )  # fmt: skip
            self._batch = (mode, sequences), found
        return self._batch[1]

    def _close_batch(self) -> None:
        batch, self._batch = self._batch, None
        if batch is not None:
            with contextlib.suppress(CudaError):
                batch[1].close()

    def new_cache(self, context: int) -> GpuCache:
        """Return an empty cache for `context` tokens. It shares the GPU's KV region with all others."""
        return GpuCache(self._base.opened.config, context, self._region)

    @property
    def part_bytes(self) -> dict[str, int]:
        """Allocated bytes on the GPU, by the placement's parts."""
        scratch = sum(program.n_bytes for _, program in self._made.values())
        scratch += 0 if self._batch is None else self._batch[1].n_bytes
        scratch += 0 if self.prompts is None else self.prompts.n_bytes
        scratch += memory_plan.EXCHANGE_BYTES if self.loaded.hot_side is not None else 0
        return {**self.loaded.part_bytes, "scratch": scratch, "context": memory_plan.context_bytes(self._opened.info)}
