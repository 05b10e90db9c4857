"""Layers placed on the CPU that prefill computes on the GPU, with all weights streamed (cold_stream.py).

Only their norms and biases stay on the GPU. All of them share one KV cache there: earlier positions are uploaded from
the host's blocks before a layer's attention, and new ones are downloaded after it for decode on the CPU. Both transfers
overlap with other work of the chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.config import KvCodec, ModelConfig
from engine.gpu.prefill.cold_buffers import ColdRows, Key, Matrices, Neurons, Wanted
from engine.gpu.weights.layout import Region
from engine.gpu.weights.uploads import Numbers
from engine.model.weights import LayerWeights
from native_kernels.backend import F32, U8, PackedMatrix
from native_kernels.cuda.gpu import GpuKv, GpuNorm, Norm
from native_kernels.cuda.prefill_ops import GpuPrefillOps, is_streamed
from native_kernels.cuda.runtime.driver import Event
from native_kernels.cuda.runtime.memory import DeviceMemory, PinnedMemory
from native_kernels.kv_blocks import BLOCK, KvLayout


def can_stream(w: LayerWeights) -> bool:
    """Return whether prefill on the GPU can compute the layer from streamed weights."""
    if w.attention_gate is not None or w.k_up is not None or w.conv is not None:  # a state is in RAM
        return False
    if w.v is None or w.layer_scale is not None:  # heads differ by layer, and there is one KV cache for all
        return False
    if not w.ffns[0].up.n_rows:  # a layer of attention alone, beside layers with a state or an FFN alone
        return False
    if w.embedding_gate is not None:  # so may layers with per-layer embeddings
        return False
    return not w.experts and all(is_streamed(one.codec) for one in matrices_of(w))


def matrices_of(w: LayerWeights) -> list[PackedMatrix]:
    """Return the matrices of a layer's attention and FFN."""
    return [*w.qkv, w.o, *(one for ffn in w.ffns for one in ffn.matrices)]


@dataclass(frozen=True)
class StreamedLayer:
    """Resident data of a streamed layer on the GPU, named as in GpuLayer."""

    q_bias: int
    k_bias: int
    v_bias: int
    o_bias: int
    down_bias: int
    attention_norm: GpuNorm | None
    post_attention_norm: GpuNorm | None
    ffn_norm: GpuNorm | None
    post_ffn_norm: GpuNorm | None
    q_norm: GpuNorm | None
    k_norm: GpuNorm | None
    kv: GpuKv
    sinks: int


class StreamedLayers:
    """The GPU memory of streamed layers and their KV cache, until `close`. layers: [L], None: not streamed."""

    def __init__(
        self, ops: GpuPrefillOps, config: ModelConfig, weights: Sequence[LayerWeights | None], context: int,
        codec: KvCodec, positions: int,
    ) -> None:  # fmt: skip
        """weights: [L], None for layers that are not streamed. context: positions of a sequence. positions: of a chunk.

        Raises: CudaOutOfMemoryError; nothing stays allocated.
        """
        self._ops, self._weights = ops, weights
        self._layout = config.kv_layout(codec)
        self._pending: U8 | None = None  # target of the download under way
        region, *_ = _laid_out(config, weights, context, codec, positions, 0)
        self.n_bytes = region.n_bytes
        self._memory = DeviceMemory(ops.device, region.n_bytes)
        region, self.kv, self.layers, self._blocks = _laid_out(
            config, weights, context, codec, positions, self._memory.address
        )
        try:
            self._pinned = PinnedMemory(ops.device, _blocks_bytes(config, self._layout, positions))
        except BaseException:
            self._memory.free()
            raise
        self._downloaded = Event(ops.device)
        for job in region.jobs:
            assert isinstance(job, Numbers), "matrices are streamed"
            ops.stream.upload(job.to, job.values.ctypes.data, job.values.nbytes)
        ops.stream.synchronize()

    @staticmethod
    def bytes_for(
        config: ModelConfig, weights: Sequence[LayerWeights | None], context: int, codec: KvCodec, positions: int
    ) -> int:
        return _laid_out(config, weights, context, codec, positions, 0)[0].n_bytes

    def wanted(self, i: int, blocks: U8, start: int) -> Iterator[tuple[Key, Wanted]]:
        """Yield the keys and matrices that layer i streams, in order of use.

        blocks: u8 [H_kv, n_blocks, block_bytes], with the sequence's first `start` positions.
        """
        w = self._weights[i]
        assert w is not None, "the layer is streamed"
        if start:
            rows = blocks[:, : self._layout.n_blocks(start)].view(np.float32)
            heads = (PackedMatrix(len(head), head.shape[1], "f32", head) for head in rows)
            yield (i, "kv"), Matrices(tuple((str(number), head) for number, head in enumerate(heads)))
        yield (i, "qkv"), Matrices(tuple(zip("qkv", w.qkv, strict=True)))
        yield (i, "o"), Matrices((("o", w.o),))
        yield (i, "ffn"), Neurons(w.ffns[0], np.arange(w.ffns[0].up.n_rows, dtype=np.int32))

    def restore(self, rows: Iterable[ColdRows], start: int) -> None:
        """Write a layer's first `start` positions into the KV cache on the GPU. rows: of its key (i, "kv")."""
        for some in rows:
            at = some.matrix
            self._ops.read_blocks(at.address, at.n_rows, self.kv, int(some.name), some.first, start)

    def save(self, blocks: U8, start: int, end: int, shift: int = 0) -> None:
        """Download the positions from `start` to `end` to a layer's blocks u8 [H_kv, n_blocks, block_bytes].

        shift: a multiple of BLOCK, by how many positions earlier the blocks have them.
        The download completes in the next `save` or `finish`.
        """
        self.finish()
        first, last = start // BLOCK, -(-end // BLOCK)
        self._ops.write_blocks(self._blocks, last - first, self.kv, first, end)
        self._pending = blocks[:, first - shift // BLOCK : last - shift // BLOCK]
        self._ops.stream.download(self._pinned.address, self._blocks, self._pending.size)
        self._downloaded.record(self._ops.stream)

    def finish(self) -> None:
        """Complete the download under way."""
        if self._pending is not None:
            self._downloaded.wait()
            self._pending[:] = self._pinned.as_array(np.uint8, self._pending.size).reshape(self._pending.shape)
        self.clear()

    def clear(self) -> None:
        """Discard the download under way."""
        self._pending = None

    def close(self) -> None:
        """Release the memory. A second call does nothing."""
        self.clear()
        self._downloaded.close()
        self._pinned.free()
        self._memory.free()


def _laid_out(
    config: ModelConfig, weights: Sequence[LayerWeights | None], context: int, codec: KvCodec, positions: int, base: int
) -> tuple[Region, GpuKv, tuple[StreamedLayer | None, ...], int]:
    """Lay out the memory from `base` on. Return it, its KV cache, its layers and the address of blocks to download."""
    region = Region(base)
    layout, rows = config.kv_layout(codec), config.n_kv_heads * context
    numbers, scales = rows * config.head_dim * layout.value_bytes, 2 * rows * layout.n_groups
    keys, values, key_scales, value_scales = (region.take(n_bytes) for n_bytes in (numbers, numbers, scales, scales))
    kv = GpuKv(codec, keys, values, key_scales, value_scales, config.n_kv_heads, config.head_dim, context)

    def norm(weight: F32 | None, bias: F32 | None = None, kind: Norm = config.norm) -> GpuNorm | None:
        return region.norm(weight, bias, kind, config.norm_eps)

    def streamed(w: LayerWeights) -> StreamedLayer:
        put = region.vector
        return StreamedLayer(
            put(w.q_bias), put(w.k_bias), put(w.v_bias), put(w.o_bias), put(w.down_bias),
            norm(w.attention_norm, w.attention_norm_bias), norm(w.post_attention_norm),
            norm(w.ffn_norm, w.ffn_norm_bias), norm(w.post_ffn_norm), norm(w.q_norm, None, "rms"),
            norm(w.k_norm, None, "rms"), kv, put(w.sinks),
        )  # fmt: skip

    layers = tuple(None if w is None else streamed(w) for w in weights)
    return region, kv, layers, region.take(_blocks_bytes(config, layout, positions))


def _blocks_bytes(config: ModelConfig, layout: KvLayout, positions: int) -> int:
    """Return the most bytes of blocks that hold this many positions, wherever they begin."""
    return config.n_kv_heads * (layout.n_blocks(positions) + 1) * layout.block_bytes
