"""The memory of a token: a region of GPU memory, and a pinned host region that GPU and CPU share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.config import ModelConfig
from engine.gpu.weights.layers import GpuExpertFfn, GpuLayer, GpuModel
from engine.placement.gpu_bytes import input_width, mixed_width
from native_kernels.cpu.ffn.bit_lists import mask_words
from native_kernels.cuda.gpu import Gpu, GpuChoice, GpuMatrix, GpuStreams, GpuVector, HostMemory
from native_kernels.specs import LatentSpec

_ALIGNMENT = 256
_LINE = 128  # bytes between flags, so that they do not share a cache line
STATE_WORDS = _ALIGNMENT // 4  # u32, before the stream: position, which state is current, position in windows
LOCAL_POSITION = 2
COUNTS = 4  # per layer: computed, gate_active, fired, rows read from the predictor's copy


class _Places:
    """Assigns consecutive addresses."""

    def __init__(self, start: int) -> None:
        self.end = start

    def take(self, n_bytes: int) -> int:
        """Reserve n_bytes, aligned to 256, and return their address."""
        at = self.end
        self.end = at + -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
        return at

    def vector(self, n: int, rounded: bool, rows: int = 1) -> GpuVector:
        """Reserve rows of n f32 values, and the 8-bit form of the first if `rounded`."""
        values = self.take(4 * n * rows)
        if not rounded:
            return GpuVector(n, values)
        return GpuVector(n, values, self.take(-(-n // 64) * 64), self.take(8 * -(-n // 32)))


@dataclass(frozen=True)
class LatentPlaces:
    """Vectors of latent attention, empty without it; the heads' queries are in TokenPlaces.qkv."""

    below: GpuVector  # [query_rank]
    q: int  # [H, key_dim + R]
    k: int  # [rank + R]
    plain: GpuVector  # [H, key_dim]
    mixed: GpuVector  # [H, rank]
    values: GpuVector  # [H * value_dim]


@dataclass(frozen=True)
class TokenPlaces:
    """GPU addresses; f32 unless noted.

    state: i32, [0] is the position, [1] which of two recurrent states is the current one; the streams follow its 256
    bytes, the others behind the first. counts: u32 [L, COUNTS], accumulated over tokens;
    they follow the logits [V], padded to 256 bytes.
    """

    state: int
    stream: GpuVector  # [D], the residual stream, or the first of several
    streams: GpuStreams  # all of them
    stream_scores: int  # [N], by which several streams are mixed
    router_normed: GpuVector  # [D], what these scores are computed from; empty with one stream, like the next
    scaled: GpuVector  # [D], the first stream times weights of the layer
    low_rank: GpuVector  # [R], of a residual of rank R
    attention_in: GpuVector  # [D], named as in engine/model/graph.py
    ffn_in: GpuVector  # [D]
    experts_in: GpuVector  # [D]; empty unless a shared expert is apart, like the next two
    router_in: GpuVector  # [D]
    beside: int  # [D], the output of that shared expert
    qkv: int  # [H + 2 H_kv, head_dim], then [H * head_dim] of gated attention; or the input of a layer with a state
    latent: LatentPlaces
    prepared: int  # [prepared_width] of a layer with a state
    mixed: GpuVector  # [H * head_dim], or [V] of a layer with a state
    attended: int  # [D]
    added: int  # [D], a block's whole output, if a norm or a row-wise down needs it
    inputs: int  # [L, P], what the token adds to each layer; empty without per-layer embeddings, like the next two
    injection_gate: int  # [P]
    injected: GpuVector  # [P]
    zeros: int  # [D]
    bits: int  # u32 [F / 32], neurons selected by the predictor
    first_bits: int  # u32 [F / 32], those of a cascade's first stage
    h: int  # [most slots]
    parts: int  # [most partial sums, D]
    inner: GpuVector  # [highest rank]
    signs: GpuVector  # [D]
    first: int  # [F], of a block with row-wise down
    up: int  # [F]
    hidden: GpuVector  # [F]
    scores: int  # [E + 1], of the router and of the shared expert's gate
    choice: GpuChoice  # of K experts; the CPU reads its ids and weights in one copy, so they are adjacent
    expert_first: int  # [K, F]
    expert_up: int  # [K, F]
    expert_hidden: GpuVector  # [K * F], or the shared expert's or a dense layer's width if larger
    final: GpuVector  # [D], the final hidden state
    narrow: GpuVector  # output of project_out (OPT-350M); empty without it
    logits: int
    counts: int
    angles: tuple[int, int]  # [R / 2, 2] each: the graph's tables of angles
    frequencies: tuple[int, int]  # f64 [R / 2], of each table
    epoch: int  # i64, number of publications to the CPU
    number: int | None = None  # of tokens that run together: which one it is; None: it runs alone

    def expert_hidden_of(self, n: int) -> GpuVector:
        """Return the experts' hidden values as a vector of length n."""
        return GpuVector(n, self.expert_hidden.values, self.expert_hidden.bytes, self.expert_hidden.scales)

    def mixed_of(self, n: int) -> GpuVector:
        """Return the heads' results as a vector of length n."""
        return GpuVector(n, self.mixed.values, self.mixed.bytes, self.mixed.scales)

    def hidden_of(self, n: int) -> GpuVector:
        """Return the hidden values of a block with row-wise down as a vector of length n."""
        return GpuVector(n, self.hidden.values, self.hidden.bytes, self.hidden.scales)

    def inner_of(self, rank: int) -> GpuVector:
        """Return the predictor's low-rank values as a vector of length `rank`."""
        return GpuVector(rank, self.inner.values, self.inner.bytes, self.inner.scales)


class TokenMemory:
    """The GPU region of one or more tokens. n_bytes: its size. of_token: the addresses of each token.

    step: bytes from any address of one token to the same address of the next.
    """

    def __init__(self, gpu: Gpu, config: ModelConfig, model: GpuModel, vocabulary: int, n_tokens: int = 1) -> None:
        """Raises: CudaError, CudaOutOfMemoryError; nothing stays allocated."""
        _, self.step = _lay_out(0, gpu, config, model, vocabulary)
        self.n_bytes = n_tokens * self.step
        self._memory = gpu.allocate(self.n_bytes)
        starts = [self._memory.address + i * self.step for i in range(n_tokens)]
        places = [_lay_out(start, gpu, config, model, vocabulary)[0] for start in starts]
        self.of_token = [replace(one, number=i) for i, one in enumerate(places)] if n_tokens > 1 else places
        try:
            gpu.fill(self._memory.address, 0, self.n_bytes)
        except BaseException:
            self._memory.free()
            raise

    @staticmethod
    def bytes_for(gpu: Gpu, config: ModelConfig, model: GpuModel, vocabulary: int) -> int:
        """Return the bytes of one token's region without allocating."""
        return _lay_out(0, gpu, config, model, vocabulary)[1]

    def free(self) -> None:
        """Release the memory."""
        self._memory.free()


@dataclass(frozen=True, eq=False)
class Shared:
    """An array in pinned memory, and its GPU address."""

    array: Any
    address: int


class SharedMemory:
    """Pinned memory that GPU and CPU share.

    To the GPU: state, stream, `inputs` for each layer [L, P], and `cold`, the CPU's sum of cold neurons. From the GPU:
    residual and normed input of a block, bits, final hidden state, logits, counts. Both ways: the flags by which the
    sides wait for each other.

    `stream` is also the CPU's residual stream, so that either side continues where the other ended. It has all streams
    of a model with several, [N D].
    """

    def __init__(self, gpu: Gpu, config: ModelConfig, vocabulary: int) -> None:
        d = config.d_model
        gap = _filled(4 * d)
        logits, extra = _filled(4 * vocabulary), config.n_layers * config.layer_embedding_dim
        streams = config.n_streams * d
        sizes = {
            "into": 4 * (STATE_WORDS + streams), "block": gap + 4 * d, "bits": 4 * _published_words(config),
            "cold": 4 * d, "inputs": 4 * extra, "hidden": 4 * d, "outcome": logits + 4 * COUNTS * config.n_layers,
            "words": 2 * _LINE,
        }  # fmt: skip
        places = _Places(0)
        at = {name: places.take(size) for name, size in sizes.items()}
        memory = self._memory = gpu.pin(places.end)
        memory.as_array(np.uint8, places.end)[:] = 0

        def shared(dtype: Any, count: int, offset: int) -> Shared:
            return Shared(memory.as_array(dtype, count, offset), memory.device_address + offset)

        self.state = shared(np.int32, STATE_WORDS, at["into"])
        self.stream = shared(np.float32, streams, at["into"] + 4 * STATE_WORDS)
        self.inputs = shared(np.float32, extra, at["inputs"])
        self.residual = shared(np.float32, d, at["block"])
        self.x = shared(np.float32, d, at["block"] + gap)
        self.bits = shared(np.uint32, _published_words(config), at["bits"])
        self.cold = shared(np.float32, d, at["cold"])
        self.hidden = shared(np.float32, d, at["hidden"])
        self.logits = shared(np.float32, vocabulary, at["outcome"])
        self.counts = shared(np.uint32, COUNTS * config.n_layers, at["outcome"] + logits)
        self.flag, self.stop = (shared(np.int64, 1, at["words"] + _LINE * i) for i in range(2))

    @property
    def memory(self) -> HostMemory:
        return self._memory

    def free(self) -> None:
        """Release the memory. Its arrays must not be used afterwards."""
        self._memory.free()


def _published_words(config: ModelConfig) -> int:
    """Return the u32 words for a bit per neuron, or for the ids and weights of chosen experts."""
    return max(mask_words(config.d_ff), 2 * config.n_experts_used + 1)


def _filled(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT


def _lay_out(
    start: int, gpu: Gpu, config: ModelConfig, model: GpuModel, vocabulary: int
) -> tuple[TokenPlaces, int]:  # fmt: skip
    """Lay out the GPU region from `start` on. Return its addresses and its size in bytes."""
    layers = [layer for layer in model.layers if layer is not None]
    blocks = [block for layer in layers for block in layer.blocks]
    wholes = [layer.whole for layer in layers if layer.whole is not None]
    of_experts = [layer.experts for layer in layers if layer.experts is not None]
    ranks = [part.a.n_rows for layer in layers if layer.predictor and (part := layer.predictor.low_rank)]
    d, places = config.d_model, _Places(start)
    rounds = _read_bytes(matrix for layer in layers for matrix in _readers(layer))
    if model.inputs is not None:
        rounds |= _read_bytes(one for one in (model.inputs.projection, *model.inputs.streams))
    laurels = [layer.laurel for layer in layers if layer.laurel is not None]
    injections = [layer.injection for layer in layers if layer.injection is not None]
    rounds_head = _read_bytes(one for one in (model.project_out, model.head) if one is not None)
    rounds |= _read_bytes(one for one in model.streams_out)
    rounds_o = _read_bytes(layer.o for layer in layers)
    rounds_inner = _read_bytes(part.b for layer in layers if layer.predictor and (part := layer.predictor.low_rank))
    n_whole, words = config.d_ff if wholes or config.gate_cutoffs else 0, 4 * -(-config.d_ff // 32)
    state = places.take(4 * STATE_WORDS)
    n_streams, of_several = config.n_streams, d if config.n_streams > 1 else 0
    stream = places.vector(d, rounds, n_streams)
    parts = max((sum(gpu.down_parts(block) for block in layer.blocks) for layer in layers), default=0)
    parts = max([parts, *(_expert_parts(gpu, one, config.n_experts_used) for one in of_experts)])
    n_used, apart = config.n_experts_used if of_experts else 0, d if config.shared_apart else 0
    n_hidden = max(n_used * config.d_ff, config.shared_d_ff, config.dense_d_ff) if of_experts else 0
    logits = places.take(4 * vocabulary)
    found = TokenPlaces(
        state=state,
        counts=places.take(4 * COUNTS * config.n_layers),
        logits=logits,
        stream=stream,
        streams=GpuStreams(n_streams, d, stream.values, places.take(4 * n_streams * of_several), d),
        stream_scores=places.take(4 * n_streams),
        router_normed=places.vector(of_several, rounds),
        scaled=places.vector(of_several, rounds),
        low_rank=places.vector(config.laurel_rank, _read_bytes(one.right for one in laurels)),
        attention_in=places.vector(d, rounds),
        ffn_in=places.vector(d, rounds),
        experts_in=places.vector(apart, rounds),
        router_in=places.vector(apart, rounds),
        beside=places.take(4 * apart),
        qkv=places.take(4 * input_width(config)),
        latent=_latent(places, config, layers),
        prepared=places.take(0 if config.delta is None else 4 * config.delta.prepared_width),
        mixed=places.vector(mixed_width(config), rounds_o),
        attended=places.take(4 * d),
        added=places.take(4 * d),
        inputs=places.take(4 * config.n_layers * config.layer_embedding_dim),
        injection_gate=places.take(4 * config.layer_embedding_dim),
        injected=places.vector(config.layer_embedding_dim, _read_bytes(one.projection for one in injections)),
        zeros=places.take(4 * d),
        bits=places.take(words),
        first_bits=places.take(words),
        h=places.take(4 * max((block.n_slots for block in blocks), default=0)),
        parts=places.take(4 * parts * d),
        inner=places.vector(max(ranks, default=0), rounds_inner),
        signs=places.vector(d, rounds),
        first=places.take(4 * n_whole),
        up=places.take(4 * n_whole),
        hidden=places.vector(n_whole, _read_bytes(whole.down for whole in wholes)),
        scores=places.take(4 * (config.n_experts + 1) if of_experts else 0),
        choice=_choice(places, n_used),
        expert_first=places.take(4 * n_hidden),
        expert_up=places.take(4 * n_hidden),
        expert_hidden=places.vector(
            n_hidden,
            _read_bytes(one.down for ffn in of_experts for one in ffn.blocks if not one.down_is_transposed),
        ),
        final=places.vector(d, rounds_head),
        narrow=places.vector(0 if model.project_out is None else model.project_out.n_rows, rounds_head),
        angles=(places.take(4 * config.most_rotated), places.take(4 * config.most_rotated)),
        frequencies=(places.take(4 * config.most_rotated), places.take(4 * config.most_rotated)),
        epoch=places.take(8),
    )
    return found, places.end - start


def _latent(places: _Places, config: ModelConfig, layers: list[GpuLayer]) -> LatentPlaces:
    n, spec = config.n_heads, config.latent or LatentSpec(0, 0, 0)
    matrices = [(one, one.latent) for one in layers if one.latent is not None]
    rotated = config.rotated if matrices else 0
    return LatentPlaces(
        below=places.vector(spec.query_rank, _read_bytes(one.q for one, _ in matrices)),
        q=places.take(4 * n * (spec.key_dim + rotated)),
        k=places.take(4 * (spec.rank + rotated)),
        plain=places.vector(n * spec.key_dim, _read_bytes(latent.k_up for _, latent in matrices)),
        mixed=places.vector(n * spec.rank, _read_bytes(one.v for one, _ in matrices if one.v is not None)),
        values=places.vector(n * spec.value_dim, _read_bytes(one.o for one, _ in matrices)),
    )


def _choice(places: _Places, n_used: int) -> GpuChoice:
    ids = places.take(4 * (3 * n_used + 1))
    return GpuChoice(n_used, ids, ids + 4 * n_used, ids + 4 * (2 * n_used + 1))


def _expert_parts(gpu: Gpu, ffn: GpuExpertFfn, n_used: int) -> int:
    shared = 0 if ffn.shared is None else gpu.expert_parts(ffn.shared, 1)
    return shared + (0 if ffn.resident is None else gpu.expert_parts(ffn.resident, n_used))


def _readers(layer: GpuLayer) -> Iterator[GpuMatrix]:
    """Yield the matrices that read a vector of the model's width."""
    yield from layer.qkv
    if layer.latent is not None and layer.latent.q_down is not None:
        yield layer.latent.q_down
    if layer.attention_gate is not None:
        yield layer.attention_gate
    if layer.injection is not None:
        yield layer.injection.gate
    if layer.mixing is not None:
        yield layer.mixing.router
    if layer.laurel is not None:
        yield layer.laurel.left
    if layer.delta is not None:
        yield from layer.delta.projections
    for block in (*layer.blocks, layer.whole):
        if block is not None:
            yield block.up
            if block.gate is not None:
                yield block.gate
    if layer.experts is not None:
        if layer.experts.router is not None:
            yield layer.experts.router
        for experts in layer.experts.blocks:
            yield experts.up
            if experts.gate is not None:
                yield experts.gate
    if layer.predictor is not None:
        if layer.predictor.low_rank is not None:
            yield layer.predictor.low_rank.a
        if layer.predictor.copy is not None:
            yield layer.predictor.copy.matrix


def _read_bytes(matrices: Iterator[GpuMatrix]) -> bool:
    return any(matrix.reads_bytes for matrix in matrices)
