"""The GPU memory of prefill: its sizes for a model, its layout and its transfers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engine.config import ModelConfig
from engine.gpu.prefill.cold_buffers import cold_bytes, experts_bytes, least_bytes
from engine.gpu.prefill.layer_inputs import InputRows
from engine.gpu.prefill.stream_rows import StreamRows
from engine.model.transformer import Angles
from engine.model.weights import FfnWeights
from engine.placement.gpu_bytes import input_width, mixed_width
from engine.placement.memory_plan import (
    GPU_PREFILL_POSITIONS,
    STREAMED_EXPERTS_POSITIONS,
    WIDE_EXPERT_TILE_BYTES,
    WIDE_NEURONS,
    WIDE_TILE_BYTES,
)
from native_kernels.backend import F32, I32
from native_kernels.cuda.gpu import GpuBlock, GpuChoice, GpuStreams
from native_kernels.cuda.prefill_ops import GpuPrefillOps
from native_kernels.cuda.prompt_rows import Groups, RoundedRows, Rows, Tile
from native_kernels.cuda.runtime.driver import Event
from native_kernels.cuda.runtime.memory import DeviceMemory, PinnedMemory
from native_kernels.cuda.runtime.upload_ring import UploadRing

MOST_ROWS = 4096  # rows of gate and up per product; enough to occupy every multiprocessor
# A tile that the GPU's cache does not hold costs 4 bytes of traffic per weight. A smaller one costs two launches, of
# some 20 us each, for every 16 Mi weights: more than the traffic from this rate of the GPU's memory on (bytes/s).
_FAST_BYTES_PER_S = 1.7e12
# (positions per chunk, bytes per ring buffer, whether wide: all neurons at once, larger tiles), best first. Products of
# less than 8 MiB do not occupy a GPU. Each chunk streams all cold neurons and experts, and converts weights to
# FP16.
_CHOICES = (
    (GPU_PREFILL_POSITIONS, 32 << 20, True),
    *(
        (positions, size << 20, False)
        for positions, size in (
            (GPU_PREFILL_POSITIONS, 32), (1024, 32), (512, 32), (512, 16), (512, 8), (256, 8), (128, 8), (128, 4),
            (64, 2), (32, 1),
        )
    ),
)  # fmt: skip
# Ring buffers. With three, one is filled, one is sent and one is used. More keep uploads going while the GPU computes
# attention and hot neurons.
LEAST_BUFFERS, MOST_BUFFERS = 3, 6
_ALIGNMENT = 256


@dataclass(frozen=True)
class Sizes:
    """Sizes of the prefill memory of one model.

    positions: per chunk. neurons: hidden values of a position computed at once. buffer_bytes: of each ring buffer.
    tile_bytes: for weights converted to FP16. adds_apart: whether outputs pass a norm before they are added to the
    residual stream. counts_neurons: whether firings are counted per neuron. The other fields describe the model.
    """

    positions: int
    neurons: int
    buffer_bytes: int
    tile_bytes: int
    d_model: int
    qkv: int
    heads: int
    angles: int
    n_layers: int
    d_ff: int
    adds_apart: bool
    counts_neurons: bool
    n_buffers: int = LEAST_BUFFERS
    n_experts: int = 0
    n_used: int = 0  # experts per position
    shared: int = 0  # neurons of the shared expert
    prepared: int = 0  # prepared_width of a delta net
    injected: int = 0  # numbers that a token adds to each layer
    n_streams: int = 1
    rank: int = 0  # of a residual beside attention

    def parts(self, n: int) -> Iterator[range]:
        """Yield the ranges in which n neurons are computed."""
        for first in range(0, n, self.neurons):
            yield range(first, min(n, first + self.neurons))

    def offsets(self) -> tuple[dict[str, int], int]:
        """Return the offset of each buffer in one allocation, and the size of the allocation in bytes."""
        t, wide, even = self.positions, self.d_model, _even
        wanted = {
            "stream": 4 * t * wide * self.n_streams, "apart": 4 * t * wide if self.adds_apart else 0,
            "qkv": 4 * t * self.qkv, "prepared": 4 * t * self.prepared, "mixed": 4 * t * self.heads,
            "first": 4 * t * self.neurons, "up": 4 * t * self.neurons, "angles": 4 * 4 * t * self.angles,
            "attention_in": 2 * t * even(wide), "ffn_in": 2 * t * even(wide), "mixed_in": 2 * t * even(self.heads),
            "hidden_in": 2 * t * even(self.neurons), "factors": 4 * 4 * t, "counts": 8 * t * self.n_layers,
            "tallies": 4 * self.n_layers * self.d_ff if self.counts_neurons else 0,
            "tile": self.tile_bytes,
        }  # fmt: skip
        if self.injected:
            inputs = 4 * t * self.n_layers * self.injected
            wanted |= {"inputs": inputs, "projected": inputs, "injection_gate": 4 * t * self.injected,
                       "injected": 2 * t * even(self.injected) + 4 * t, "uncounted": 8 * t}  # fmt: skip
        if self.n_streams > 1 or self.rank:
            wanted |= {"predicted": 4 * t * wide * self.n_streams, "stream_scores": 4 * t * self.n_streams,
                       "attention_in_f32": 4 * t * wide, "low_rank": 4 * t * self.rank,
                       "low_rank_in": 2 * t * even(self.rank) + 4 * t}  # fmt: skip
        if self.n_experts:
            rows, of_rows = t * self.n_used, max(t * self.n_used * even(self.d_ff), t * even(self.shared))
            wanted |= {
                "scores": 4 * t * self.n_experts, "shared_scores": 4 * t, "ids": 4 * rows, "weights": 4 * (rows + t),
                "starts": 4 * self.n_layers * (self.n_experts + 1), "positions": 4 * rows, "places": 4 * rows,
                "ranks": 4 * self.n_layers * self.n_experts, "all_rows": 8, "normed": 4 * t * wide,
                "expert_in": 2 * rows * even(wide), "expert_factors": 4 * rows, "expert_first": 4 * of_rows,
                "expert_up": 4 * of_rows, "expert_hidden": 2 * of_rows, "hidden_factors": 4 * max(rows, t),
                "expert_out": 4 * rows * wide, "shared_out": 4 * t * wide if self.shared else 0,
            }  # fmt: skip
        found, at = {}, 0
        for name, n_bytes in wanted.items():
            found[name] = at
            at += _even(n_bytes, _ALIGNMENT)
        return found, at

    @property
    def gpu_bytes(self) -> int:
        """Bytes on the GPU, with the ring."""
        return self.offsets()[1] + self.n_buffers * self.buffer_bytes


def sizes_for(
    config: ModelConfig, layers: Sequence[FfnWeights], most: int, budget_bytes: int | None = None,
    counts_neurons: bool = False, gpu_bytes_per_s: float | None = None,
) -> Sizes:  # fmt: skip
    """Return the largest sizes within the budget, or the smallest if none fit.

    layers: the FFNs whose neurons may be streamed. most: maximum positions per chunk. counts_neurons: whether to count
    firings per neuron. gpu_bytes_per_s: reading the GPU's memory, if known.
    """
    layers = [w for w in layers if w.up.n_rows]  # a layer of attention or a state alone has none
    choices = _CHOICES
    if config.n_experts and most > GPU_PREFILL_POSITIONS:
        choices = ((STREAMED_EXPERTS_POSITIONS, 32 << 20, False), *_CHOICES)
    for positions, buffer_bytes, wide in choices:
        sizes = _sizes(config, layers, min(positions, most), buffer_bytes, counts_neurons)
        if wide:
            sizes = _widened(config, sizes, (gpu_bytes_per_s or 0.0) >= _FAST_BYTES_PER_S)
        if budget_bytes is None or sizes.gpu_bytes <= budget_bytes:
            break
    while sizes.n_buffers < MOST_BUFFERS:
        more = replace(sizes, n_buffers=sizes.n_buffers + 1)
        if budget_bytes is not None and more.gpu_bytes > budget_bytes:
            break
        sizes = more
    return sizes


def _sizes(
    config: ModelConfig, layers: Sequence[FfnWeights], positions: int, buffer_bytes: int, counts_neurons: bool
) -> Sizes:
    heads = mixed_width(config)
    at_once = config.d_ff if config.gate_cutoffs else MOST_ROWS // (2 if config.gated else 1)
    neurons = _even(min(at_once, config.d_ff), 256)
    widest = max(config.d_model, heads, neurons)
    largest = max((cold_bytes(w, config.d_ff) for w in layers), default=0)
    least = max((least_bytes(w) for w in layers), default=0)
    tile_bytes = max(min(2 * buffer_bytes, 2 * widest * widest), 4 * widest * 128)
    if config.n_experts:
        largest = max(experts_bytes(w, config.n_experts) for w in layers)
        least = max(experts_bytes(w, 1) for w in layers)
        # At least gate and up of one expert. More experts save launches.
        one = _expert_tile_bytes(config)
        tile_bytes = max(tile_bytes, one, min(4 * buffer_bytes, config.n_experts * one))
    return Sizes(
        positions=positions, neurons=neurons,
        buffer_bytes=_even(max(least, min(buffer_bytes, largest)), _ALIGNMENT),
        tile_bytes=tile_bytes,
        d_model=config.d_model, qkv=input_width(config), heads=heads,
        prepared=0 if config.delta is None else config.delta.prepared_width,
        angles=config.most_rotated // 2, n_layers=config.n_layers, d_ff=config.d_ff,
        adds_apart=config.norms in ("both", "output"), counts_neurons=counts_neurons, n_experts=config.n_experts,
        n_used=config.n_experts_used, shared=config.shared_d_ff, injected=config.layer_embedding_dim,
        n_streams=config.n_streams, rank=config.laurel_rank,
    )  # fmt: skip


def _widened(config: ModelConfig, sizes: Sizes, is_fast: bool) -> Sizes:
    """Return the sizes with more neurons at once and larger tiles. is_fast: of the GPU's memory."""
    neurons = max(sizes.neurons, _even(min(WIDE_NEURONS, config.d_ff), 256))
    tile_bytes = max(sizes.tile_bytes, 4 * max(config.d_model, neurons) * 128)
    if config.n_experts:
        tile_bytes = max(tile_bytes, min(WIDE_EXPERT_TILE_BYTES, config.n_experts * _expert_tile_bytes(config)))
    elif is_fast:
        tile_bytes = max(tile_bytes, min(WIDE_TILE_BYTES, 4 * neurons * config.d_model))
    return replace(sizes, neurons=neurons, tile_bytes=tile_bytes)


def _expert_tile_bytes(config: ModelConfig) -> int:
    """Return the bytes of a tile whose halves hold one expert's gate and up, or its down, converted to FP16."""
    return 2 * expert_matrix_bytes(config.d_model, max(config.d_ff, config.shared_d_ff)) + 1024


def expert_matrix_bytes(d_model: int, width: int) -> int:
    """Return the bytes of one matrix of an expert in FP16, either way round, at most."""
    return 2 * (d_model + 8) * (width + 8)


def _input_rows(sizes: Sizes, at: dict[str, int]) -> InputRows:
    n, t, all_inputs = sizes.injected, sizes.positions, sizes.n_layers * sizes.injected
    injected = RoundedRows(at["injected"], _even(n), at["injected"] + 2 * t * _even(n))
    return InputRows(
        sizes.n_layers, n, Rows(at["inputs"], all_inputs), Rows(at["projected"], all_inputs),
        Rows(at["injection_gate"], n), injected, at["uncounted"],
    )  # fmt: skip


class PrefillMemory:
    """The GPU memory and the pinned host memory of prefill, until `close`. Addresses are GPU addresses."""

    def __init__(self, ops: GpuPrefillOps, sizes: Sizes) -> None:
        """Raises: CudaOutOfMemoryError; nothing stays allocated."""
        self.sizes, self._ops = sizes, ops
        offsets, n_bytes = sizes.offsets()
        t = sizes.positions
        self._memory = DeviceMemory(ops.device, n_bytes)
        try:
            stream_bytes = 4 * t * sizes.n_streams * sizes.d_model
            self._staging = max(stream_bytes, 4 * sizes.n_layers * max(2 * t, sizes.d_ff))  # an offset
            self._host = PinnedMemory(ops.device, self._staging + stream_bytes)
        except BaseException:
            self._memory.free()
            raise
        try:
            self.ring = UploadRing(ops.device, ops.stream, ops.copy_stream, sizes.buffer_bytes, sizes.n_buffers)
        except BaseException:
            self._host.free()
            self._memory.free()
            raise
        at = {name: self._memory.address + offset for name, offset in offsets.items()}
        self.stream, self.apart, self.qkv, self.mixed = at["stream"], at["apart"], at["qkv"], at["mixed"]
        self.prepared = at["prepared"]
        self.first, self.up = at["first"], at["up"]
        self.tile = Tile(at["tile"], sizes.tile_bytes)
        widths = {"attention_in": sizes.d_model, "ffn_in": sizes.d_model, "mixed_in": sizes.heads,
                  "hidden_in": sizes.neurons}  # fmt: skip
        rounded = {
            name: RoundedRows(at[name], _even(width), at["factors"] + 4 * t * i)
            for i, (name, width) in enumerate(widths.items())
        }
        self.attention_in, self.ffn_in = rounded["attention_in"], rounded["ffn_in"]
        self.mixed_in, self.hidden_in = rounded["mixed_in"], rounded["hidden_in"]
        self._counts, self._tallies, self._counting = at["counts"], at["tallies"], False
        one = 4 * t * sizes.angles
        places = [at["angles"] + i * one for i in range(4)]
        self.angles = ((places[0], places[1]), (places[2], places[3]))
        self._keep: list[F32] = []
        self._uploaded = Event(ops.device)  # what lies at `_staging`
        self._staged: F32 | None = None  # what is to be uploaded from there
        self.states: StateCopies | None = None
        self.experts = ExpertMemory(sizes, at) if sizes.n_experts else None
        self.inputs = _input_rows(sizes, at) if sizes.injected else None
        self._at = at

    def stream_rows(self, n_tokens: int) -> StreamRows | None:
        """Return the memory of several residual streams, or of a residual beside attention, for this many positions.

        None for a model without.
        """
        sizes, at = self.sizes, self._at
        if sizes.n_streams == 1 and not sizes.rank:
            return None
        t, wide, rank = sizes.positions, sizes.d_model, sizes.rank
        streams = GpuStreams(sizes.n_streams, wide, self.stream, at["predicted"], t * wide, n_tokens)
        rounded = RoundedRows(at["low_rank_in"], _even(rank), at["low_rank_in"] + 2 * t * _even(rank))
        return StreamRows(
            streams, at["stream_scores"], Rows(self.apart, wide), Rows(at["attention_in_f32"], wide),
            Rows(at["low_rank"], rank), rounded,
        )  # fmt: skip

    def begin(self, n_layers: int, counts_neurons: bool) -> None:
        """Begin a chunk: wait for the previous one, and clear the counts and gathers."""
        self.settle()
        self._ops.gather_nothing()
        self._keep.clear()
        self._ops.stream.fill(self._counts, 0, 8 * n_layers * self.sizes.positions)
        self._counting = counts_neurons and self.sizes.counts_neurons
        if self._counting:
            self._ops.stream.fill(self._tallies, 0, 4 * n_layers * self.sizes.d_ff)

    def upload_angles(self, angles: Sequence[Angles]) -> None:
        """Upload the RoPE angles of a chunk."""
        for places, pair in zip(self.angles, angles, strict=False):
            for place, values in zip(places, pair, strict=True):
                kept = np.ascontiguousarray(values, np.float32)
                self._keep.append(kept)
                if kept.nbytes:
                    self._ops.stream.upload(place, kept.ctypes.data, kept.nbytes)

    def upload_inputs(self, inputs: F32) -> None:
        """Upload what the tokens of the chunk add to each layer, [T, L, P]."""
        assert self.inputs is not None, "the model has per-layer embeddings"
        self._keep.append(np.ascontiguousarray(inputs, np.float32))
        self._ops.stream.upload(self.inputs.inputs.address, self._keep[-1].ctypes.data, self._keep[-1].nbytes)

    def upload_ranks(self, ranks: I32) -> None:
        """Upload the ranks of all layers' experts, [L, E]."""
        assert self.experts is not None, "the model has experts"
        self._ops.stream.upload(self.experts.ranks, ranks.ctypes.data, ranks.nbytes)
        self._ops.stream.synchronize()

    def upload_range(self, n_tokens: int) -> None:
        """Upload the row range of the shared expert, which covers all positions."""
        assert self.experts is not None, "the model has experts"
        rows = np.array([0, n_tokens], np.int32)
        self._ops.stream.upload(self.experts.all_rows, rows.ctypes.data, rows.nbytes)
        self._ops.stream.synchronize()

    def download_numbers(self, places: Sequence[tuple[int, int]]) -> list[I32]:
        """Download i32 arrays. places: (address, count) of each."""
        at, ends = 0, []
        for address, n in places:
            self._ops.stream.download(self._host.address + 4 * at, address, 4 * n)
            at += n
            ends.append(at)
        self._ops.stream.synchronize()
        found = self._host.as_array(np.int32, at).copy() if at else np.zeros(0, np.int32)
        return list(np.split(found, ends[:-1])) if ends else []

    def stage(self, x: F32) -> None:
        """Copy a residual stream [T, D], or several [T, N D], to pinned memory, for `upload`."""
        self._uploaded.wait()
        by_stream = x.reshape(len(x), -1, self.sizes.d_model).swapaxes(0, 1)
        self._host.as_array(np.float32, x.size, self._staging).reshape(by_stream.shape)[:] = by_stream
        self._staged = x

    def upload(self, x: F32) -> None:
        """Upload the residual stream [T, D], or several [T, N D]."""
        if x is not self._staged:
            self.stage(x)
        n_bytes = 4 * len(x) * self.sizes.d_model
        for i in range(x.nbytes // n_bytes):
            self._ops.stream.upload(self._place(i), self._host.address + self._staging + n_bytes * i, n_bytes)
        self._uploaded.record(self._ops.stream)
        self._staged = None

    def download(self, n_tokens: int, first: int = 0) -> F32:
        """Return rows `first` to n_tokens of the residual stream, or of several [T, N D]. Waits for all queued work."""
        width, n_streams, n = self.sizes.d_model, self.sizes.n_streams, n_tokens - first
        for i in range(n_streams if n else 0):
            to = self._host.address + 4 * n * width * i
            self._ops.stream.download(to, self._place(i) + 4 * first * width, 4 * n * width)
        self._ops.stream.synchronize()
        by_stream = self._host.as_array(np.float32, n_streams * n * width).reshape(n_streams, n, width)
        found: F32 = by_stream.swapaxes(0, 1).reshape(n, n_streams * width).copy()
        return found

    def _place(self, i: int) -> int:
        """Return the address of residual stream i."""
        return self.stream + 4 * i * self.sizes.positions * self.sizes.d_model

    def download_slots(self, blocks: Sequence[GpuBlock | None]) -> list[I32]:
        """Return the neuron in each slot of each block, now."""
        places, at = [], 0
        for block in blocks:
            n = 0 if block is None else block.n_slots
            places.append((at, n))
            if block is not None and n:
                self._ops.stream.download(self._host.address + 4 * at, block.neuron_in, 4 * n)
            at += n
        self._ops.stream.synchronize()
        all_slots = self._host.as_array(np.int32, max(1, at))
        return [all_slots[first : first + n].copy() for first, n in places]

    def counts_of(self, layer: int) -> int:
        """Address of a layer's u32 [T, 2]: neurons with an active gate, and neurons that fired."""
        return self._counts + 8 * layer * self.sizes.positions

    def tally(self, layer: int) -> int:
        """Address of a layer's u32 [F], the firings of each cold neuron; 0 if they are not counted."""
        return self._tallies + 4 * layer * self.sizes.d_ff if self._counting else 0

    def counts(self, n_layers: int, n_tokens: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return the chunk's counts [L, T, 2] and [L, F]; the second is zero if neurons are not counted."""
        t, d_ff = self.sizes.positions, self.sizes.d_ff
        fired = np.zeros((n_layers, d_ff), np.uint32)
        if self._counting:
            fired = self._downloaded(self._tallies, n_layers * d_ff).reshape(n_layers, d_ff)
        counts = self._downloaded(self._counts, 2 * n_layers * t).reshape(n_layers, t, 2)
        return counts[:, :n_tokens], fired

    def _downloaded(self, at: int, n: int) -> NDArray[np.uint32]:
        self._ops.stream.download(self._host.address, at, 4 * n)
        self._ops.stream.synchronize()
        found: NDArray[np.uint32] = self._host.as_array(np.uint32, n).copy()
        return found

    def copies(self, state_size: int) -> StateCopies:
        """Return what copies states of this size to host memory. Raises: CudaOutOfMemoryError, CudaError."""
        if self.states is None:
            self.states = StateCopies(self._ops, 4 * state_size)
        return self.states

    def settle(self) -> None:
        """Wait for all queued work and copies."""
        self._ops.copy_stream.synchronize()
        self._ops.stream.synchronize()

    def close(self) -> None:
        """Release all memory, even if releasing a part fails. Raises: CudaError."""
        with contextlib.ExitStack() as parts:
            for free in (self._memory.free, self._host.free, self.ring.close, self._uploaded.close):
                parts.callback(free)
            if self.states is not None:
                parts.callback(self.states.close)


class StateCopies:
    """Copies states to host memory, one after another, while the GPU continues. n_bytes: pinned."""

    def __init__(self, ops: GpuPrefillOps, n_bytes: int) -> None:
        """Raises: CudaOutOfMemoryError, CudaError; nothing stays allocated."""
        self._stream, self._pinned = ops.stream, PinnedMemory(ops.device, n_bytes)
        try:
            self._arrived = Event(ops.device)
        except BaseException:
            self._pinned.free()
            raise
        self._to: F32 | None = None  # where the state that was asked for last belongs

    def ask(self, state: int, to: F32) -> None:
        """Queue the copy of a state on the GPU to an array in host memory, and end the one before."""
        self.end()
        self._stream.download(self._pinned.address, state, to.nbytes)
        self._arrived.record(self._stream)
        self._to = to

    def end(self) -> None:
        """Wait for the last copy."""
        to, self._to = self._to, None
        if to is not None:
            self._arrived.wait()
            to[:] = self._pinned.as_array(np.float32, to.size)

    def clear(self) -> None:
        """Give up the last copy."""
        self._to = None

    def close(self) -> None:
        """Release the pinned memory."""
        self._arrived.close()
        self._pinned.free()


class ExpertMemory:
    """GPU addresses of a layer's expert values. R = T K rows, grouped by expert.

    rows: expert inputs. first, up: products of gate and up, from which `hidden` is computed. out [R, D]: expert
    outputs. shared_out [T, D]: output of the shared expert. normed [T, D]: input of the router.
    """

    def __init__(self, sizes: Sizes, at: dict[str, int]) -> None:
        self._n_experts = sizes.n_experts
        self.scores, self.shared_scores, self.normed = at["scores"], at["shared_scores"], at["normed"]
        self.choice = GpuChoice(sizes.n_used, at["ids"], at["weights"], 0)
        self._starts, self._positions, self._most = at["starts"], at["positions"], sizes.positions
        self.places, self.ranks, self.all_rows = at["places"], at["ranks"], at["all_rows"]
        self.rows = RoundedRows(at["expert_in"], _even(sizes.d_model), at["expert_factors"])
        self.first, self.up = at["expert_first"], at["expert_up"]
        self._hidden, self._factors = at["expert_hidden"], at["hidden_factors"]
        self.out, self.shared_out = at["expert_out"], at["shared_out"]

    def hidden(self, width: int) -> RoundedRows:
        """Return the hidden values of experts of `width` neurons."""
        return RoundedRows(self._hidden, _even(width), self._factors)

    def groups_of(self, layer: int) -> Groups:
        """Return the rows of each expert of a layer, by rank. They stay valid until the next chunk."""
        n = self._n_experts
        return Groups(n, self._starts + 4 * layer * (n + 1), self._positions, self._most)

    @property
    def all_starts(self) -> int:
        """Address of i32 [L, E + 1]: where the rows of each expert start."""
        return self._starts

    def ranks_of(self, layer: int) -> int:
        """Address of a layer's i32 [E]."""
        return self.ranks + 4 * layer * self._n_experts


def _even(n: int, to: int = 8) -> int:
    return -(-n // to) * to
