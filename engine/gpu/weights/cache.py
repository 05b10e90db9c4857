"""Caches of conversations on a GPU: a model has one region there, which conversations use in turn.

When a conversation takes the region, the previous one's positions and states are saved in host memory, and its own are
restored. So GPU memory does not grow with the number of conversations. Layers placed on the CPU keep their keys, values
and states in host memory, where the snapshots of all states are too.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.config import KvCodec, ModelConfig
from engine.errors import DeviceFailedError, HostMemoryError
from engine.gpu.weights.layers import GpuLayer
from engine.model.graph import graph_of
from engine.model.kv_cache import KVCache
from engine.model.window_memory import WindowMemory
from native_kernels.backend import F32, U8
from native_kernels.cuda.gpu import Gpu, GpuKv
from native_kernels.cuda.runtime.driver import CudaError, CudaOutOfMemoryError
from native_kernels.kv_blocks import BLOCK, GROUP

log = logging.getLogger(__name__)

SLOT_STEP = 8  # positions; every slot is then aligned to 16 bytes
_NUMBER_BYTES: dict[KvCodec, int] = {"f32": 4, "f16": 2, "q8_0": 1}


def host_rows(config: ModelConfig, layers: Sequence[GpuLayer | None]) -> tuple[int | None, ...]:
    """Return the index of each layer's blocks or state in host memory; None for layers placed on the GPU.

    A layer that reads another layer's keys and values has the index of that one.
    """
    graph = graph_of(config)
    found = [row if layer is None else None for row, layer in zip(graph.rows, layers, strict=True)]
    for local in (False, True):
        others = {*config.delta_layers, *config.ffn_only_layers}
        blocks = [i for i in range(len(found)) if i not in others and graph.is_local(i) == local]
        here = sorted({graph.rows[i] for i in blocks if layers[i] is None})
        for i in blocks:
            found[i] = here.index(graph.rows[i]) if layers[i] is None else None
    return tuple(found)


class KvRegion:
    """A model's memory of keys, values and states on the GPU, and its current owner.

    rows: as `host_rows`. capacity: positions, also of what prompts have of layers on the CPU. local_capacity: positions
    of layers with a window; `capacity` if they keep all.
    """

    def __init__(
        self, gpu: Gpu, layers: Sequence[GpuLayer | None], config: ModelConfig, codec: KvCodec, positions: int
    ) -> None:
        """layers: [L], None for layers placed on the CPU. codec: of all layers on either side. positions: of all
        sequences together.
        """
        self.gpu = gpu
        self.codec: KvCodec = codec
        self._of_layer = {i: layer.kv for i, layer in enumerate(layers) if layer is not None and layer.kv is not None}
        self._stored = list(dict.fromkeys(self._of_layer.values()))  # layers that share keys and values have the same
        assert all(kv.codec == codec for kv in self._stored), "all layers have one KV codec"
        self.capacity = positions
        graph = graph_of(config)
        of_windows = {kv for i, kv in self._of_layer.items() if graph.is_local(i)}
        self._parts = [part for kv in self._stored if kv not in of_windows for part in _parts_of(kv)]
        self._local_parts = [part for kv in self._stored if kv in of_windows for part in _parts_of(kv)]
        self.local_capacity = min((kv.capacity for kv in of_windows), default=positions)
        self._windows = WindowMemory.of(config)
        state_rows, self.rows = graph_of(config).rows, host_rows(config, layers)
        self._recurring = config.delta_layers
        self._state_bytes = 0 if config.recurrence is None else 4 * config.recurrence.state_size
        # The states of layers placed on the GPU, by their row in host memory.
        self._states = {
            state_rows[i]: layer.states
            for i, layer in enumerate(layers)
            if layer is not None and layer.states is not None
        }
        self._owner: weakref.ref[GpuCache] | None = None
        self._slots: list[weakref.ref[GpuCache]] = []  # of a batch that shares the region

    def give_to(self, cache: GpuCache) -> None:
        """Give the region to the cache, with its positions and states so far. Call this between tokens.

        Cost: unless the cache owns it already, a download of what the owner has and an upload of what this cache has.
        Raises: CudaError, HostMemoryError.
        """
        owner = None if self._owner is None else self._owner()
        if owner is cache:
            return
        self.clear()
        self._restore(cache)
        self._owner = weakref.ref(cache)

    def clear(self) -> None:
        """Save the owner's positions in host memory, and leave the region without an owner."""
        owner = None if self._owner is None else self._owner()
        if owner is not None:
            owner.saved = self._saved(owner)
            owner.leave_region()
        self._owner = None
        saved = [(cache, self._saved(cache)) for one in self._slots if (cache := one()) is not None]
        for cache, _ in saved:
            cache.leave_region()
        self._slots = []  # once all are saved, so that an error loses none
        for cache, positions in saved:
            cache.saved, cache.slot = positions, Slot()

    @property
    def most_states(self) -> int | None:
        """Sequences whose states fit; None: no layer on the GPU has a state."""
        return min((len(places) // 2 for places in self._states.values()), default=None)

    def slot_positions(self, batch: int) -> int:
        """Return the number of positions for each sequence of a batch."""
        return self.capacity // batch // SLOT_STEP * SLOT_STEP

    def local_slot_positions(self, batch: int) -> int:
        """Return the same of layers with a window; 0 if that is less than they need."""
        if self._windows is None or self.local_capacity == self.capacity:
            return self.slot_positions(batch)
        found = self.local_capacity // batch // BLOCK * BLOCK
        return found if found >= self._windows.most_stored + BLOCK else 0

    def give_to_all(self, caches: Sequence[GpuCache]) -> None:
        """Give each cache a slot of the region, with its positions so far, which must fit into the slot.

        Cost: as `give_to`; nothing if the caches own it already. Raises: as `give_to`.
        """
        if len(caches) == len(self._slots) and all(
            one() is cache for one, cache in zip(self._slots, caches, strict=True)
        ):
            return
        size, local_size = self.slot_positions(len(caches)), self.local_slot_positions(len(caches))
        for cache in caches:
            if cache.length - cache.local_first >= local_size:
                self.give_to(cache)
                cache.make_room(cache.local_capacity)  # so that no more than needed is left
        self.clear()
        for number, cache in enumerate(caches):
            cache.slot = Slot(number * size, number * local_size, local_size, 2 * number)
            self._restore(cache)
        self._slots = [weakref.ref(cache) for cache in caches]

    def save_state(self, place: int, to: F32) -> None:
        """Download the GPU's states of this place to their rows of `to` [layers that recur, state_size].

        Raises: CudaError.
        """
        for row, places in self._states.items():
            self.gpu.download(to[row].ctypes.data, places[place], self._state_bytes)
        self.gpu.synchronize()

    def restore_state(self, source: F32 | None, place: int = 0) -> None:
        """Upload states to this place; None: zeros. Raises: CudaError."""
        for row, places in self._states.items():
            if source is None:
                self.gpu.fill(places[place], 0, self._state_bytes)
            else:
                self.gpu.upload(places[place], source[row].ctypes.data, self._state_bytes)
        self.gpu.synchronize()  # before `source` changes

    def settle_state(self, place: int) -> None:
        """Queue a copy of the GPU's states of this place to the first one. Raises: CudaError."""
        for places in self._states.values():
            self.gpu.copy(places[place], places[0], self._state_bytes // 4)

    @property
    def recurs_in_ram(self) -> bool:
        """Whether layers with a state are placed on the CPU."""
        return any(self.rows[i] is not None for i in self._recurring)

    def _saved(self, cache: GpuCache) -> SavedPositions:
        length, slot = cache.length, cache.slot
        in_windows = max(0, length - cache.local_first)
        sizes = _row_bytes(self._parts) * length, _row_bytes(self._local_parts) * in_windows
        try:
            data, local = (np.empty(size, np.uint8) for size in sizes)
        except MemoryError as error:
            raise HostMemoryError(
                f"There is not enough free RAM for {length} tokens of another conversation.", "Close other programs."
            ) from error
        self._copy(self._parts, slot.first, length, data, length)
        self._copy(self._local_parts, slot.local_first, in_windows, local, in_windows)
        return SavedPositions(data, length, local, cache.local_first)

    def _restore(self, cache: GpuCache) -> None:
        """Upload what the cache had saved of its positions, to its slot."""
        saved, slot, cache.saved = cache.saved, cache.slot, None
        if saved is None:
            return
        self._copy(self._parts, slot.first, cache.length, saved.data, saved.length, upload=True)
        n, n_saved = max(0, cache.length - cache.local_first), saved.length - saved.local_first
        self._copy(self._local_parts, slot.local_first, n, saved.local, n_saved, upload=True)

    def shift(self, layer: int, slot: Slot, n_kept: int, by: int) -> None:
        """Queue a move of n_kept positions of a layer to the slot's beginning, from `by` positions after it."""
        for part in _parts_of(self._of_layer[layer]):
            step = part.capacity * part.row_bytes
            to = part.start + slot.local_first * part.row_bytes
            for done in range(0, n_kept, by):
                n_bytes = min(by, n_kept - done) * part.row_bytes
                at = to + done * part.row_bytes
                self.gpu.move_rows(at, at + by * part.row_bytes, step, n_bytes, part.n_heads)

    def copy_layer(self, layer: int, first: int, length: int, to: U8) -> None:
        """Download positions of one layer, as kv_blocks.to_rows orders them. Raises: CudaError."""
        self._copy(_parts_of(self._of_layer[layer]), first, length, to, length)

    def put_layer(self, layer: int, first: int, length: int, data: U8) -> None:
        """Queue an upload of what `copy_layer` downloaded. Raises: CudaError."""
        self._queue(_parts_of(self._of_layer[layer]), first, length, data, length, upload=True)

    def _copy(
        self, parts: Sequence[_Part], first: int, length: int, host: U8, host_length: int, upload: bool = False
    ) -> None:  # fmt: skip
        """Copy `length` positions from `first` on, of all parts, to or from host memory.

        host: part by part and head by head, host_length positions each.
        """
        self._queue(parts, first, length, host, host_length, upload)
        self.gpu.synchronize()  # before `host` is used or freed

    def _queue(
        self, parts: Sequence[_Part], first: int, length: int, host: U8, host_length: int, upload: bool
    ) -> None:  # fmt: skip
        if not length:
            return
        at = host.ctypes.data
        for part in parts:
            here, step = part.start + first * part.row_bytes, part.capacity * part.row_bytes
            host_step, n_bytes = host_length * part.row_bytes, length * part.row_bytes
            if upload:
                self.gpu.upload_rows(here, step, at, host_step, n_bytes, part.n_heads)
            else:
                self.gpu.download_rows(at, host_step, here, step, n_bytes, part.n_heads)
            at += part.n_heads * host_step


@dataclass(frozen=True)
class _Part:
    """Keys, values or their scales of a layer: n_heads x capacity rows of row_bytes, from the address `start` on."""

    start: int
    row_bytes: int
    n_heads: int
    capacity: int


def _parts_of(kv: GpuKv) -> list[_Part]:
    row = kv.head_dim * _NUMBER_BYTES[kv.codec]
    scales = 2 * -(-kv.head_dim // GROUP)
    parts = [(kv.keys, row), (kv.key_scales, scales), (kv.values, row), (kv.value_scales, scales)]
    some = [part for part in parts[: 2 if kv.is_shared else 4] if part[0]]
    return [_Part(start, row_bytes, kv.n_kv_heads, kv.capacity) for start, row_bytes in some]


def _row_bytes(parts: Sequence[_Part]) -> int:
    return sum(part.n_heads * part.row_bytes for part in parts)


@dataclass(frozen=True)
class Slot:
    """Where a cache's positions begin in the region, and those of layers with a window, of which it has local_size.

    state: the first of its two places for states.
    """

    first: int = 0
    local_first: int = 0
    local_size: int | None = None
    state: int = 0


@dataclass(frozen=True, eq=False)
class SavedPositions:
    """The first `length` positions of a cache in host memory, in the order of KvRegion._copy.

    local: of layers with a window, those from local_first on.
    """

    data: U8
    length: int
    local: U8
    local_first: int


class GpuCache(KVCache):
    """A KVCache whose layers placed on the GPU use the region, while this cache owns it.

    blocks and local_blocks are those of layers placed on the CPU, indexed by region.rows.
    """

    def __init__(self, config: ModelConfig, context: int, region: KvRegion) -> None:
        super().__init__(config, context, region.codec, region.rows)
        self.region = region
        self.capacity = min(context, region.capacity)
        self.saved: SavedPositions | None = None  # while another cache owns the region
        self._own_local_capacity = min(self.local_capacity, region.local_capacity)
        self.slot = Slot()
        self._uploading: list[U8] = []  # by put_positions
        self._state_on_gpu = False  # whether the GPU has the current state, newer than that in host memory
        # Where the GPU has the current state, and the one that the last run read: GpuDeltaNet.states.
        self._place = self._place_before = 0

    @property
    def slot(self) -> Slot:
        """Where the region has this cache: in a place of a batch, or from its beginning on."""
        return self._slot

    @slot.setter
    def slot(self, slot: Slot) -> None:
        self._slot = slot
        own = self._own_local_capacity
        self.local_capacity = own if slot.local_size is None else min(own, slot.local_size)

    def shift(self, layer: int, n_positions: int) -> None:
        if self.rows[layer] is not None:
            super().shift(layer, n_positions)
        elif 0 < n_positions < self.local_capacity:
            self.region.shift(layer, self._slot, self.local_capacity - n_positions, n_positions)

    def expect(self, length: int) -> None:
        """As KVCache.expect. Takes the region."""
        self.region.gpu.enter()
        self.region.give_to(self)
        super().expect(length)

    def claim_region(self, several: bool = False) -> None:
        """Take the region and the state for a run, after which the last one cannot be cut any more.

        several: a run of several tokens, which reads the first state. Raises: as KvRegion.give_to.
        """
        self.region.give_to(self)
        self.claim_state()
        if self._place > (0 if several else 1):
            self.region.settle_state(self._place)
            self._place = 0

    def claim_state(self) -> None:
        """Put the state into the cache's part of the region, which it must have. Raises: CudaError."""
        if self.recurs and not self._state_on_gpu:
            self.region.restore_state(super().state() if self.length else None, self._slot.state)
            self._state_on_gpu, self._place = True, self._slot.state

    def advance(self, n_tokens: int) -> None:
        """As KVCache.advance, after a run that wrote the other of the cache's two states."""
        super().advance(n_tokens)
        self._place_before, self._place = self._place, self._place ^ 1

    def advance_together(self, n_tokens: int, n_run: int) -> None:
        """Count the first n_tokens of a run of n_run, each of which wrote a state of its own."""
        super().advance(n_tokens)
        if self.recurs:
            self._place_before, self._place = 0, 1 + n_tokens
            if n_tokens < n_run and self.region.recurs_in_ram:
                super().set_state(self._within[n_tokens - 1])

    def states_of_run(self, n_tokens: int) -> list[F32]:
        """As KVCache.states_of_run; without memory of its own if the GPU has all states."""
        if self.region.recurs_in_ram:
            return super().states_of_run(n_tokens)
        before, after = self.states()
        self._n_within = n_tokens - 1
        return [before] * n_tokens + [after]

    def _go_back(self, n_tokens: int) -> None:
        on_gpu = self._state_on_gpu
        if not n_tokens or self.region.recurs_in_ram:
            super()._go_back(n_tokens)
        self._state_on_gpu, self._place = on_gpu, 1 + n_tokens if n_tokens else self._place_before

    def leave_region(self) -> None:
        """Save the state before another cache takes the region; what the last run read is lost. Raises: CudaError."""
        self.state()
        self._state_on_gpu, self._last_length, self._n_within = False, self.length, 0

    def state(self) -> F32:
        """As KVCache.state. Raises: CudaError."""
        if self._state_on_gpu:
            self.region.gpu.enter()
            self.region.save_state(self._place, super().state())
        return super().state()

    def set_state(self, state: F32 | None) -> None:
        if state is not None or self.region.recurs_in_ram:  # an empty cache's state on the GPU is not read from RAM
            super().set_state(state)
        self._state_on_gpu = False

    def positions(self, first: int, n_positions: int) -> U8:
        """As KVCache.positions. Takes the region."""
        self.region.gpu.enter()
        self.region.give_to(self)  # without the state, so that the last run can still be cut
        return super().positions(first, n_positions)

    def _put(self, first: int, n_positions: int, data: U8, forms: str) -> None:
        """As KVCache._put. Takes the region."""
        self.region.gpu.enter()
        self.region.give_to(self)
        super()._put(first, n_positions, data, forms)
        self.region.gpu.synchronize()  # before `data` changes
        self._uploading.clear()

    def truncate(self, length: int) -> None:
        try:
            if length and not self._has_windows(length):  # before positions of a turn are put back
                self.region.gpu.enter()
                self.region.give_to(self)
            super().truncate(length)
        except CudaError as error:
            raise DeviceFailedError(f"The GPU failed: {error}.") from error

    @contextlib.contextmanager
    def staging(self, n_pieces: int, n_positions: int) -> Iterator[Callable[[int, U8], U8]]:
        """As KVCache.staging: in pinned memory, which the GPU copies several times as fast as other memory."""
        size = -(-sum(self._piece_sizes(self.forms(self.capacity), n_positions)) // 4096) * 4096
        self.region.gpu.enter()
        try:
            pinned = self.region.gpu.pin(n_pieces * size) if n_pieces else None
        except CudaOutOfMemoryError:
            pinned = None
        if pinned is None:
            yield lambda number, data: data
            return

        def stage(number: int, data: U8) -> U8:
            if data.nbytes > size:
                return data
            to: U8 = pinned.as_array(np.uint8, data.nbytes, number % n_pieces * size)
            to[:] = data
            return to

        try:
            yield stage
        finally:
            pinned.free()

    def _copy_layer(self, layer: int, first: int, n_positions: int, to: U8) -> None:
        if self.rows[layer] is None:
            first += self._slot.local_first if layer in self._local else self._slot.first
            self.region.copy_layer(layer, first, n_positions, to)
        else:
            super()._copy_layer(layer, first, n_positions, to)

    def _put_layer(self, layer: int, first: int, n_positions: int, data: U8) -> None:
        if self.rows[layer] is None:
            first += self._slot.local_first if layer in self._local else self._slot.first
            self.region.put_layer(layer, first, n_positions, data)
            self._uploading.append(data)
        else:
            super()._put_layer(layer, first, n_positions, data)

    def remember(self) -> None:
        """As KVCache.remember. Does nothing either if the GPU failed."""
        try:
            super().remember()
        except CudaError as error:
            log.info("No snapshot of the state after %d tokens: %s", self.length, error)

    @property
    def half(self) -> int:
        """Which of the cache's two states on the GPU is the current one, once it was claimed."""
        return self._place - self._slot.state
