"""The keys and values of a conversation on a GPU: a model has one region there, which conversations take in turn.

Who takes it brings back what it has computed, and what was there before goes to the host's memory: so that however many
conversations there are, the GPU's memory stays what it is. Layers whose home is the CPU keep theirs as ever.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.config import KvCodec, ModelConfig
from engine.errors import HostMemoryError
from engine.model.kv_cache import KVCache
from native_kernels.backend import U8
from native_kernels.cuda.gpu import Gpu, GpuKv
from native_kernels.kv_blocks import GROUP

SLOT_STEP = 8  # positions, so that every slot begins on 16 bytes
_NUMBER_BYTES: dict[KvCodec, int] = {"f32": 4, "f16": 2, "q8_0": 1}


class KvRegion:
    """A model's keys and values on the GPU, and whose they are. rows: of every layer, which of the blocks in the
    host's memory are its own; None where its home is the GPU."""

    def __init__(self, gpu: Gpu, layers: list[GpuKv | None], codec: KvCodec) -> None:
        """layers: [L], None for those whose home is the CPU; their codec is this one too."""
        self.gpu = gpu
        self.codec: KvCodec = codec
        self.layers = layers
        at_home = [kv for kv in layers if kv is not None]
        assert all(kv.codec == codec for kv in at_home), "all layers keep their keys and values alike"
        self.capacity = min((kv.capacity for kv in at_home), default=0)
        places = iter(range(len(layers)))
        self.rows: tuple[int | None, ...] = tuple(None if kv is not None else next(places) for kv in layers)
        self._owner: weakref.ref[GpuCache] | None = None
        self._slots: list[weakref.ref[GpuCache]] = []  # of a batch, which has the region together

    @property
    def n_on_host(self) -> int:
        """How many layers keep theirs in the host's memory."""
        return sum(row is not None for row in self.rows)

    def take(self, cache: GpuCache) -> None:
        """The region becomes the cache's, with what it has computed so far. Between tokens.

        Cost: where it is another's, that one's positions to the host and these to the GPU.
        Raises: CudaError, HostMemoryError.
        """
        owner = None if self._owner is None else self._owner()
        if owner is cache:
            return
        self.forget()
        if cache.saved is not None:
            self._restore(cache.saved, cache.length)
            cache.saved = None
        self._owner = weakref.ref(cache)

    def forget(self) -> None:
        """Nobody's from here on, as when the GPU's memory is given back: what the owner has there goes to the host."""
        owner = None if self._owner is None else self._owner()
        if owner is not None:
            owner.saved = self._saved(owner.length)
        self._owner = None
        slots, self._slots = self._slots, []
        for number, one in enumerate(slots):
            if (cache := one()) is not None:
                cache.saved = self._saved(cache.length, number * self.slot_positions(len(slots)))

    def slot_positions(self, batch: int) -> int:
        """How many positions each sequence of a batch has here."""
        return self.capacity // batch // SLOT_STEP * SLOT_STEP

    def take_together(self, caches: Sequence[GpuCache]) -> None:
        """The region becomes the caches', each of which has a slot of it, with what they have computed so far.

        Cost: as take; nothing where it is theirs already. Raises: as take; what the caches hold must fit.
        """
        if len(caches) == len(self._slots) and all(
            one() is cache for one, cache in zip(self._slots, caches, strict=True)
        ):
            return
        self.forget()
        for number, cache in enumerate(caches):
            if cache.saved is not None:
                self._restore(cache.saved, cache.length, number * self.slot_positions(len(caches)))
                cache.saved = None
        self._slots = [weakref.ref(cache) for cache in caches]

    def _saved(self, length: int, first: int = 0) -> SavedPositions:
        pieces = list(self._pieces(length, first))
        try:
            saved = np.empty(sum(size for _, size in pieces), np.uint8)
        except MemoryError as error:
            raise HostMemoryError(
                f"There is no room in RAM for {length} tokens of another conversation.", "Close other programs."
            ) from error
        at = saved.ctypes.data
        for address, size in pieces:
            self.gpu.download(at, address, size)
            at += size
        self.gpu.synchronize()
        return SavedPositions(saved, length)

    def _restore(self, saved: SavedPositions, length: int, first: int = 0) -> None:
        """The first `length` positions of what was saved, to the positions from `first` on."""
        kept, at = saved.data, 0
        wanted = list(self._pieces(length, first))
        for (address, size), (_, saved_size) in zip(wanted, self._pieces(saved.length), strict=True):
            self.gpu.upload(address, kept.ctypes.data + at, size)
            at += saved_size
        self.gpu.synchronize()  # the saved bytes may go now

    def _pieces(self, length: int, first: int = 0) -> Iterator[tuple[int, int]]:
        """Where positions from `first` on of every layer, part and head lie, and their bytes."""
        for kv in self.layers:
            if kv is None:
                continue
            row = kv.head_dim * _NUMBER_BYTES[kv.codec]
            parts = [(kv.keys, row), (kv.values, row)]
            if kv.codec == "q8_0":
                scales = 2 * -(-kv.head_dim // GROUP)
                parts += [(kv.key_scales, scales), (kv.value_scales, scales)]
            for start, size in parts:
                for head in range(kv.n_kv_heads):
                    yield start + (head * kv.capacity + first) * size, length * size


@dataclass(frozen=True, eq=False)
class SavedPositions:
    """Keys and values of the first `length` positions in the host's memory, piece by piece as KvRegion has them."""

    data: U8
    length: int


class GpuCache(KVCache):
    """A KVCache of which the layers at home on the GPU have theirs in the region, while it is this cache's.

    blocks: [layers at home on the CPU, H_kv, n_blocks, block_bytes]; whose they are, region.rows says.
    """

    def __init__(self, config: ModelConfig, context: int, region: KvRegion) -> None:
        super().__init__(config, context, region.codec, region.n_on_host)
        self.region = region
        if any(row is None for row in region.rows):
            self.capacity = min(context, region.capacity)
        self.saved: SavedPositions | None = None  # what the GPU held of this cache when another took the region

    def take(self) -> None:
        """What this cache holds is on the GPU from here on. Raises: as KvRegion.take."""
        self.region.take(self)
