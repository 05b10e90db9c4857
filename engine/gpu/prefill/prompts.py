"""Prefill of a loaded model on a GPU, with one memory shared by all modes.

prefill.py does the work; this module decides from how many tokens on it is faster than decode.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from engine.config import KvCodec, ModelConfig
from engine.gpu.prefill.cold_stream import Rates
from engine.gpu.prefill.pinned_weights import PinnedWeights
from engine.gpu.prefill.prefill import GpuPrefill, Sizes, StreamingSpeed, sizes_for, threshold
from engine.gpu.prefill.streamed_layers import StreamedLayers, can_stream, matrices_of
from engine.gpu.weights.cache import GpuCache
from engine.gpu.weights.expert_slots import ExpertSlots
from engine.gpu.weights.layers import GpuModel
from engine.machine.graphics import GpuInfo
from engine.machine.measured_hardware import recall_library, remember_library
from engine.model.kv_cache import StateCopy
from engine.model.transformer import FfnExecutor, Transformer
from engine.model.weights import FfnWeights, LayerWeights, ModelWeights
from engine.placement.memory_plan import GPU_PREFILL_POSITIONS, PREFILL_POSITIONS, longest_chunk
from native_kernels.backend import F32, I64, Operators, PackedMatrix
from native_kernels.cpu.runtime.pool import Pool
from native_kernels.cuda.cublas_trial import use_library
from native_kernels.cuda.cuda_gpu import CudaGpu
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.runtime.driver import Stream

if TYPE_CHECKING:
    from engine.job import ShareProgress

log = logging.getLogger(__name__)

_TIMED_POSITIONS = 64


class Prompts:
    """GPU prefill of one model, until `close`.

    n_bytes: on the GPU. products: a sentence that says which kernels multiply and why, or "" if there was no choice.
    streamed_matrices: matrices of the CPU's layers that long chunks stream. chunk_tokens: positions per chunk.
    """

    def __init__(
        self, gpu: CudaGpu, config: ModelConfig, weights: ModelWeights, model: GpuModel, executor: FfnExecutor,
        operators: Operators, pool: Pool, context: int, kv_codec: KvCodec, room: int, speed: StreamingSpeed,
        in_place: PinnedWeights, library_bytes: int = 0, info: GpuInfo | None = None,
        slots: ExpertSlots | None = None,
    ) -> None:  # fmt: skip
        """context, kv_codec: of a sequence. room: GPU memory limit in bytes. speed: without the CPU's layers. in_place:
        pinned weights, which may grow between prompts. library_bytes: GPU memory for cuBLAS beside `room`; 0: do not
        use it. info: the GPU, to remember whether cuBLAS is faster on it. slots: expert slots.

        Raises: CudaOutOfMemoryError, CudaError; nothing stays allocated.
        """
        ffns, streamed_bytes = _streamed_ffns(config, weights), 0
        streamed = [
            w if layer is None and can_stream(w) else None
            for w, layer in zip(weights.layers, model.layers, strict=True)
        ]
        rate = None if info is None else info.bytes_per_s

        def sized(most: int, room: int) -> Sizes:
            return sizes_for(config, ffns, min(most, context), room, config.has_zeros, rate)

        on_cpu = any(one is None and layer is None for one, layer in zip(streamed, model.layers, strict=True))
        long = longest_chunk(config) if speed.cold_bytes else GPU_PREFILL_POSITIONS
        short = long if config.n_experts else PREFILL_POSITIONS  # if the CPU computes some layers
        sizes = sized(short if on_cpu else long, room)
        if any(streamed):
            streamed_bytes = StreamedLayers.bytes_for(config, streamed, context, kv_codec, sizes.positions)
            less = sized(sizes.positions, room - streamed_bytes)
            with_layers = _with_layers(speed, operators, [w for w in streamed if w is not None])
            fits = less.gpu_bytes + streamed_bytes <= room
            if fits and with_layers.streams_layers(less.positions, in_place=True):
                sizes, speed = less, with_layers
            else:
                why = "does not pay" if fits else "needs more memory"
                log.info("Streaming the CPU's layers in prefill %s", why)
                streamed, streamed_bytes = [None] * len(streamed), 0
                sizes = sized(short, room)  # longer chunks do not make the CPU faster, and take its memory
        layers = [w for w in streamed if w is not None]
        self.streamed_matrices = [one for w in layers for one in matrices_of(w)]
        self._speed = speed
        self._cpu = Transformer(config, weights, executor, operators)
        self._copies = Stream(gpu.device, urgent=True)  # gathers run here beside large products
        self._pinned_weights = in_place
        self.products = ""
        self._ops: GpuPrefillOps | None = None
        self._prefill: GpuPrefill | None = None
        try:
            self._ops = GpuPrefillOps(gpu.device, gpu.stream, self._copies)
            if library_bytes:
                library_bytes *= self._use_library(self._ops, info)
            on_gpu = None
            if layers:
                on_gpu = StreamedLayers(self._ops, config, streamed, context, kv_codec, sizes.positions)
            self._prefill = GpuPrefill(self._cpu, model, self._ops, pool, sizes, in_place, on_gpu, self._streams, slots)
        except BaseException:
            self.close()
            raise
        self.n_bytes = sizes.gpu_bytes + streamed_bytes + library_bytes
        self.chunk_tokens = sizes.positions
        self._least = {way: threshold(speed, in_place=way) for way in (False, True)}

    def _streams(self, n_tokens: int) -> bool:
        """Return whether a chunk of n_tokens streams the CPU's layers, given the weights pinned now."""
        return self._speed.streams_layers(n_tokens, self._pinned_weights.is_all)

    def _use_library(self, ops: GpuPrefillOps, info: GpuInfo | None) -> bool:
        """Return whether cuBLAS is used. The choice is remembered per GPU, because sums may differ in the last bits."""
        shares = {} if info is None else recall_library(info)
        known = dict(shares)
        is_used, self.products = use_library(ops, shares=shares)
        if info is not None and shares != known:
            remember_library(info, shares)
        return is_used

    @property
    def least_tokens(self) -> int:
        """Tokens from which on `run` is faster than decode, given the weights pinned now."""
        return self._least[self._pinned_weights.is_all]

    @property
    def way(self) -> str:
        """How the latest chunk's weights were streamed: "in place" (gathered by the GPU), "ring" (filled by the CPU),
        "both", or "" if none were.
        """
        assert self._prefill is not None, "it is open"
        gathered, filled = self._prefill.buffers
        return ("both" if filled else "in place") if gathered else ("ring" if filled else "")

    def of_mode(self, executor: FfnExecutor) -> PromptsOfMode:
        """Return these prompts for a mode, whose executor computes the layers placed on the CPU and counts."""
        return PromptsOfMode(self, executor)

    @property
    def n_kept(self) -> int:
        return 0 if self._prefill is None else self._prefill.n_kept

    def run(
        self, executor: FfnExecutor, tokens: I64, cache: GpuCache, length: int, progress: ShareProgress,
        copy: StateCopy | None = None,
    ) -> F32:  # fmt: skip
        """Run as GpuPrefill.run; return the last position alone, [1, D], or as many as the cache's trail keeps."""
        assert self._prefill is not None, "it is open"
        self._cpu.executor = executor
        last = 1 if cache.trail is None else cache.trail.most_positions
        return self._prefill.run(tokens, cache, length, progress, last=last, copy=copy)

    def measure(self) -> Rates | None:
        """Measure how fast cold neurons are gathered and sent; None if there are none.

        Call this between answers, in the thread that has entered the GPU.
        """
        assert self._prefill is not None, "it is open"
        return self._prefill.measure()

    def close(self) -> None:
        """Release everything. Idempotent. Raises: CudaError."""
        prefill, ops = self._prefill, self._ops
        self._prefill = self._ops = None
        if prefill is not None:
            prefill.close()
        if ops is not None:
            ops.close()
        self._copies.close()


def fit(config: ModelConfig, weights: ModelWeights, context: int, room: int) -> bool:
    """Return whether the smallest prefill memory fits into `room` bytes on the GPU."""
    ffns = _streamed_ffns(config, weights)
    sizes = sizes_for(config, ffns, min(context, PREFILL_POSITIONS), room, config.has_zeros)
    return sizes.gpu_bytes <= room


def _streamed_ffns(config: ModelConfig, weights: ModelWeights) -> list[FfnWeights]:
    """Return an FFN of each layer whose neurons or experts may be streamed: of layers with experts where some are."""
    return [layer.ffns[0] for layer in weights.layers if not config.n_experts or layer.routed]


def _with_layers(speed: StreamingSpeed, operators: Operators, layers: Sequence[LayerWeights]) -> StreamingSpeed:
    """Return the speed with these layers, whose CPU time is extrapolated from one measured product."""
    n_bytes, q = sum(one.n_bytes for w in layers for one in matrices_of(w)), layers[0].q
    return replace(speed, layer_bytes=n_bytes, cpu_position_s=_position_s(operators, q) * n_bytes / q.n_bytes)


def _position_s(operators: Operators, w: PackedMatrix) -> float:
    """Return the CPU's seconds per position for a product of many positions with the matrix: the faster of two runs."""
    x, found = np.ones((_TIMED_POSITIONS, w.n_cols), np.float32), []
    for _ in range(2):  # the first may read the matrix from disk
        began = time.perf_counter()
        operators.matmul(x, w)
        found.append(time.perf_counter() - began)
    return min(found) / _TIMED_POSITIONS


class PromptsOfMode:
    """The prefill of one mode, as GpuTransformer calls it."""

    def __init__(self, prompts: Prompts, executor: FfnExecutor) -> None:
        self._prompts, self._executor = prompts, executor

    @property
    def least_tokens(self) -> int:
        return self._prompts.least_tokens

    @property
    def chunk_tokens(self) -> int:
        return self._prompts.chunk_tokens

    @property
    def n_kept(self) -> int:
        return self._prompts.n_kept

    def run(
        self, tokens: I64, cache: GpuCache, length: int, progress: ShareProgress, copy: StateCopy | None = None
    ) -> F32:
        return self._prompts.run(self._executor, tokens, cache, length, progress, copy)
