"""The GPU memory of a batch, and the pinned memory that GPU and CPU share for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.config import ModelConfig
from engine.gpu.batch.staging import half_bytes
from engine.gpu.prefill.layer_inputs import InputRows
from engine.gpu.prefill.stream_rows import StreamRows
from engine.gpu.weights.layers import GpuModel
from engine.placement import memory_plan
from engine.placement.gpu_bytes import input_width, mixed_width
from native_kernels.backend import F32, I64
from native_kernels.cuda.delta_net import done_bytes
from native_kernels.cuda.gpu import Gpu, GpuMatrix, GpuStreams
from native_kernels.cuda.prompt_rows import RoundedRows, Rows, Tile

_ALIGNMENT = 256
# Tile of weights converted to FP16: large enough that its product occupies a GPU, small enough for the cache of a large
# GPU. Less is needed if all weights are FP16 already.
_TILE_BYTES, _LEAST_TILE_BYTES = 32 << 20, 1 << 20


def counts_words(batch: int) -> int:
    """Return the u32 words of a layer's counts.

    Per sequence gate_active and fired; then neurons computed, zero-copy neurons read, and those that any sequence used;
    one word of padding.
    """
    return 2 * batch + 4


@dataclass(frozen=True, eq=False)
class Exchanged:
    """An array in pinned memory, its GPU address there (`pinned`), and the GPU copy (`address`; 0: none)."""

    array: Any
    pinned: int
    address: int


class BatchMemory:
    """GPU addresses and host arrays of a batch, until `free`.

    Rows are f32 [B, n]. states: i32 [5, B], lengths and positions in the region, then the
    same within layers with a window, and which of its two recurrent states a sequence reads. prepared, done: of layers
    with a state, as `gated_delta` and GpuDelta. words, cold_words: u32 [F], for
    each neuron the sequences that need it. halves: staging buffers for zero-copy neurons, half_bytes each; 0 if the
    model has none.
    """

    def __init__(self, gpu: Gpu, config: ModelConfig, model: GpuModel, batch: int, vocabulary: int) -> None:
        """Raises: CudaOutOfMemoryError, CudaError; nothing stays allocated."""
        d, b = config.d_model, batch
        layers = [layer for layer in model.layers if layer is not None]
        heads, qkv, delta = mixed_width(config), input_width(config), config.delta
        slots = [block.n_slots for layer in layers for block in layer.blocks]
        neurons = max([*slots, *(layer.whole.up.n_rows for layer in layers if layer.whole)], default=0)
        ranks = [part.a.n_rows for layer in layers if layer.predictor and (part := layer.predictor.low_rank)]
        rank, narrow = max(ranks, default=0), 0 if model.project_out is None else model.project_out.n_rows
        half = config.most_rotated // 2 if config.positions == "rope" else 0
        angles, counts = 4 * b * half, counts_words(b) * config.n_layers
        n_streams, low_rank = config.n_streams, config.laurel_rank
        halves = all(matrix.codec == "f16" for matrix in _matrices(model))
        widest = max(d, heads, neurons, rank, narrow)
        tile = max(_LEAST_TILE_BYTES if halves else _TILE_BYTES, 2 * 2 * 128 * _even(widest))
        wanted = {
            "stream": 4 * b * d * n_streams, "apart": 4 * b * d, "normed": 4 * b * d, "qkv": 4 * b * qkv,
            "mixed": 4 * b * heads, "prepared": 0 if delta is None else 4 * b * delta.prepared_width,
            "done": 0 if delta is None else b * done_bytes(delta),
            "first": 4 * b * neurons, "up": 4 * b * neurons, "inner": 4 * b * rank,
            "expected": 4 * b * config.d_ff if ranks else 0, "words": 4 * config.d_ff, "cold_words": 4 * config.d_ff,
            "narrow": 4 * b * narrow, "logits": 4 * b * vocabulary, "states": 20 * b,
            "angles": 4 * angles, "counts": 4 * counts, "uncounted": 8 * b, "epoch": 8, "tile": tile,
        }  # fmt: skip
        beside = ("beside", "experts_normed", "router_normed")  # where a shared expert is apart
        wanted |= dict.fromkeys(beside, 4 * b * d if config.shared_apart else 0)
        extra, inputs = config.layer_embedding_dim, config.n_layers * config.layer_embedding_dim
        wanted |= {"inputs": 4 * b * inputs, "projected": 4 * b * inputs, "injection_gate": 4 * b * extra}
        wanted |= {"predicted": 4 * b * d * n_streams * (n_streams > 1), "stream_scores": 4 * b * n_streams,
                   "low_rank": 4 * b * low_rank}  # fmt: skip
        widths = {"attention_in": d, "ffn_in": d, "mixed_in": heads, "hidden_in": neurons, "stream_in": d,
                  "inner_in": rank, "narrow_in": narrow, "injected": extra, "low_rank_in": low_rank}  # fmt: skip
        for name, width in widths.items():
            wanted[name] = 2 * b * _even(width) + _ALIGNMENT + 4 * b
        zero_copy = [layer.zero_copy for layer in layers if layer.zero_copy is not None]
        self.half_bytes = half_bytes(zero_copy, memory_plan.STAGING_BYTES // 2)
        wanted |= {"first_half": self.half_bytes, "second_half": self.half_bytes}
        at, n_bytes = _places(wanted)
        shared = {"stream": 4 * b * d * n_streams, "x": 4 * b * d, "cold": 4 * b * d, "cold_words": 4 * config.d_ff,
                  "states": 20 * b, "angles": 4 * angles, "logits": 4 * b * vocabulary, "counts": 4 * counts,
                  "words": 4 * 128, "inputs": 4 * b * inputs}  # fmt: skip
        there, n_pinned = _places(shared)
        self._memory = gpu.allocate(n_bytes)
        try:
            self._pinned = gpu.pin(n_pinned)
        except BaseException:
            self._memory.free()
            raise
        gpu.fill(self._memory.address, 0, n_bytes)
        self._pinned.as_array(np.uint8, n_pinned)[:] = 0
        start = self._memory.address
        self.n_bytes = n_bytes

        def rows(name: str, step: int) -> Rows:
            return Rows(start + at[name], step)

        self.stream, self.apart, self.normed = rows("stream", d), rows("apart", d), rows("normed", d)
        self.beside, self.experts_normed, self.router_normed = (rows(name, d) for name in beside)
        self.qkv, self.mixed = start + at["qkv"], start + at["mixed"]
        self.prepared, self.done = start + at["prepared"], start + at["done"]
        self.first, self.up = rows("first", neurons), rows("up", neurons)
        self.inner, self.expected = rows("inner", rank), rows("expected", config.d_ff)
        self.narrow, self.logits_rows = rows("narrow", narrow), rows("logits", vocabulary)
        self.words, self.epoch = start + at["words"], start + at["epoch"]
        self.uncounted = start + at["uncounted"]
        self.counts_address, self.tile = start + at["counts"], Tile(start + at["tile"], tile)
        self.halves = (start + at["first_half"], start + at["second_half"])
        rounded = {
            name: RoundedRows(start + at[name], _even(width), start + at[name] + -(-2 * b * _even(width) // 256) * 256)
            for name, width in widths.items()
        }
        self.attention_in, self.ffn_in = rounded["attention_in"], rounded["ffn_in"]
        self.mixed_in, self.hidden_in = rounded["mixed_in"], rounded["hidden_in"]
        self.stream_in, self.inner_in, self.narrow_in = rounded["stream_in"], rounded["inner_in"], rounded["narrow_in"]

        self.inputs = InputRows(
            config.n_layers, extra, rows("inputs", inputs), rows("projected", inputs), rows("injection_gate", extra),
            rounded["injected"], self.uncounted,
        )  # fmt: skip

        self.streams: StreamRows | None = None
        if n_streams > 1 or low_rank:
            several = GpuStreams(n_streams, d, self.stream.address, start + at["predicted"], b * d, b)
            self.streams = StreamRows(
                several, start + at["stream_scores"], self.apart, self.normed, rows("low_rank", low_rank),
                rounded["low_rank_in"],
            )  # fmt: skip

        def exchanged(name: str, dtype: Any, *shape: int, on_gpu: str = "") -> Exchanged:
            array = self._pinned.as_array(dtype, int(np.prod(shape)), there[name]).reshape(shape)
            own = start + at[on_gpu or name] if (on_gpu or name) in at else 0
            return Exchanged(array, self._pinned.device_address + there[name], own)

        self.host_stream = exchanged("stream", np.float32, n_streams, b, d)
        self.host_inputs = exchanged("inputs", np.float32, b, inputs)
        self.host_x = exchanged("x", np.float32, b, d, on_gpu="normed")
        self.host_cold = exchanged("cold", np.float32, b, d)
        self.host_cold_words = exchanged("cold_words", np.uint32, config.d_ff)
        self.host_states = exchanged("states", np.int32, 5, b)
        self.swap = self.host_states.address + 16 * b
        self.host_angles = exchanged("angles", np.float32, 4, b, half)
        self.host_logits = exchanged("logits", np.float32, b, vocabulary)
        self.host_counts = exchanged("counts", np.uint32, config.n_layers, counts_words(b))
        line = self._pinned.as_array(np.int64, 64, there["words"])
        self.flag: I64 = line[0:1]
        self.stop: I64 = line[16:17]
        self.status: I64 = line[32:33]
        self.flag_address = self._pinned.device_address + there["words"]

    def angles(self, table: int) -> tuple[int, int]:
        """Return the addresses of cosines and sines of one of the graph's tables of angles, f32 [B, R / 2] each."""
        array: F32 = self.host_angles.array
        one = array[0].nbytes
        return self.host_angles.address + 2 * table * one, self.host_angles.address + (2 * table + 1) * one

    def counts_of(self, layer: int, batch: int) -> int:
        """Return the address of a layer's counts, laid out as in `counts_words`."""
        return self.counts_address + 4 * counts_words(batch) * layer

    def free(self) -> None:
        """Release the memory. Its arrays must not be used afterwards."""
        self._pinned.free()
        self._memory.free()


def _matrices(model: GpuModel) -> Iterator[GpuMatrix]:
    """Yield all matrices that rows are multiplied by."""
    yield from (one for one in (model.head, model.project_out) if one is not None)
    if model.inputs is not None:
        yield from (model.inputs.projection, *model.inputs.streams)
    yield from model.streams_out
    for layer in model.layers:
        if layer is None:
            continue
        yield from (*layer.qkv, layer.o)
        if layer.latent is not None:
            yield from (one for one in (layer.latent.q_down, layer.latent.k_up) if one is not None)
        yield from () if layer.delta is None else layer.delta.projections
        yield from () if layer.attention_gate is None else (layer.attention_gate,)
        if layer.injection is not None:
            yield from (layer.injection.gate, layer.injection.projection)
        if layer.mixing is not None:
            yield layer.mixing.router
        if layer.laurel is not None:
            yield from (layer.laurel.left, layer.laurel.right)
        for block in layer.blocks:
            yield from (one for one in (block.gate, block.up, block.down_t) if one is not None)
        if layer.whole is not None:
            yield from (one for one in (layer.whole.gate, layer.whole.up, layer.whole.down) if one is not None)
        if layer.predictor is not None and (part := layer.predictor.low_rank) is not None:
            yield from (part.a, part.b)


def _places(wanted: dict[str, int]) -> tuple[dict[str, int], int]:
    found, at = {}, 0
    for name, n_bytes in wanted.items():
        found[name] = at
        at += -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
    return found, max(at, _ALIGNMENT)


def _even(n: int) -> int:
    return -(-n // 8) * 8
