"""The state that a conversation has of its tokens: keys and values, and the state of layers that recur."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from engine.config import KvCodec, ModelConfig
from engine.errors import HostMemoryError, InvalidRequestError
from engine.model.graph import AttentionSpec, graph_of
from engine.model.window_memory import Piece, Turn, WindowMemory, window_positions
from native_kernels import kv_blocks
from native_kernels.backend import F32, I64, U8
from native_kernels.kv_blocks import KvLayout

if TYPE_CHECKING:
    from engine.model.draft_layer import Trail

log = logging.getLogger(__name__)

# Lengths that a conversation with recurrent state can go back to, besides the current one. A state has 63 MB in a model
# of 35 billion parameters (30 layers with 32 heads), 151 MB in one of 27 billion (48 layers with 48 heads).
MOST_SNAPSHOTS = 4
MOST_TOKENS_OF_RUN = 16  # that a compiled program appends together, with a state after each
MOST_BYTES_WITHIN = 512 << 20  # of the states after each token of a run
_COPIED_POSITIONS = 4096  # at once


@dataclass(frozen=True, eq=False)
class StateCopy:
    """A copy of the state after the first `n_tokens` of a run: to [layers that recur, state_size]."""

    n_tokens: int
    to: F32


@dataclass(frozen=True, eq=False)
class CacheCopy:
    """A copy of a cache in RAM, for a cache of the same model on other devices.

    pieces: first position, number of positions, their forms and data. states: by length, the current one among them.
    """

    tokens: list[int]
    sequence_length: int
    pieces: list[tuple[int, int, str, U8]]
    states: dict[int, F32]


class KVCache:
    """Keys and values of one conversation for at most `capacity` tokens, in the kernels' layout.

    context: tokens of the conversation at most. On a GPU, capacity may be less, until the model is placed again.

    The first `length` positions of every layer are filled. Operators write after them (`cached_attention`); `advance`
    counts new positions once every layer has them.

    Layers with a window keep their last positions only (WindowMemory): those from `local_first` on. `make_room` lets
    them forget others before a run, and `pieces` within a long one. Positions before the window of a length are needed
    to cut the cache to it; so the last length that was remembered keeps its own copy of them.

    A layer that recurs (a gated delta net, Mamba-2, a short convolution) has no positions, but one state, which a run
    reads and replaces (`states`). It cannot forget its last tokens; so the cache keeps snapshots, and can be cut only
    to their lengths. Keys and values alone can be cut anywhere.

    Shapes: blocks u8 [A, H_kv, n_blocks, block_bytes] for the A layers with keys and values of their own and without a
    window; those with one are in local_blocks, of the same dimensions. local_capacity: positions in local_blocks.
    rows: each layer's place in them or among the states, as Graph.rows; None for layers whose keys and values are
    elsewhere. tokens i64 [T_max]: the cached tokens; sequence_length: the sequence length that their positions were
    rotated for.
    """

    def __init__(
        self, config: ModelConfig, context: int, codec: KvCodec = "f32", rows: Sequence[int | None] | None = None
    ) -> None:
        """Allocate the cache. rows: None: Graph.rows."""
        if context < 1:
            raise InvalidRequestError(f"A context of {context} tokens was asked for; at least 1 is needed.")
        self.layout, self.local_layout = config.kv_layout(codec), config.kv_layout(codec, local=True)
        self._graph = graph_of(config)
        self.context = self.capacity = context
        self.length = 0
        self.sequence_length = 0
        self.tokens: I64 = np.zeros(context, np.int64)
        self.rows = self._graph.rows if rows is None else tuple(rows)
        self.trail: Trail | None = None  # follows the conversation for a layer that drafts tokens
        self._storing = tuple(_stored(config))  # layers that store keys and values
        self._local = tuple(i for i in self._storing if self._graph.is_local(i))
        here = [i in self._local for i in self._storing if self.rows[i] is not None]
        self._windows = WindowMemory.of(config) if self._local else None
        self.local_capacity = context if self._windows is None else self._windows.capacity(context)
        self.local_first = 0  # the first position of layers with a window
        self._run_first = 0  # the same after the run under way; if that was dropped, they have lost what they need
        self._turn: Turn | None = None
        self._shares = config.n_shared_kv_layers > 0
        self._snapshots: dict[int, F32] = {}  # states by length, ascending
        # States after each token but the last of a run that began at _last_length: memory, and how many are filled.
        self._within: list[F32] = []
        self._n_within = 0
        self._last_length = 0  # before the last `advance`; the state of then is the other half
        self._half = 0  # of `_states`, with the current state
        try:
            self.blocks: U8 = kv_blocks.allocate(here.count(False), config.n_kv_heads, context, self.layout)
            local_heads, _ = config.head_shapes[-1]
            self.local_blocks: U8 = kv_blocks.allocate(
                here.count(True), local_heads, self.local_capacity, self.local_layout
            )
            # The current state and the one that a run writes, by turns: [2, layers that recur, state_size].
            size = 0 if config.recurrence is None else config.recurrence.state_size
            self._states: F32 = np.zeros((2, len(config.delta_layers), size), np.float32)
        except MemoryError as error:
            need = self.bytes_for(config, context, codec)
            raise HostMemoryError(
                f"The cache of {context} tokens of context needs {need} bytes, which are not available.",
                "Choose a smaller context.",
            ) from error

    @staticmethod
    def bytes_for(config: ModelConfig, context: int, codec: KvCodec = "f32") -> int:
        """Return the bytes of a cache for `context` tokens, with all snapshots and states that it may keep."""
        kept = stored_kv_bytes(config, context, codec), turn_bytes(config, context, codec)
        return sum(map(sum, kept)) + state_bytes(config) + within_bytes(config)

    @staticmethod
    def bytes_read(config: ModelConfig, position: int, codec: KvCodec = "f32") -> int:
        """Return the bytes that a token at this position reads of a cache; a state is also written."""
        return sum(read_cache_bytes(config, position, codec))

    @property
    def codec(self) -> KvCodec:
        """How the numbers are stored."""
        return self.layout.codec

    @property
    def n_bytes(self) -> int:
        """Bytes allocated now."""
        of_states = self._states.nbytes + sum(one.nbytes for one in (*self._snapshots.values(), *self._within))
        of_turn = 0 if self._turn is None else self._turn.n_bytes
        return int(self.blocks.nbytes + self.local_blocks.nbytes + of_states + of_turn)

    def of_layer(self, layer: int) -> tuple[U8, KvLayout]:
        """Return the blocks [H_kv, n_blocks, block_bytes] that the layer's attention reads, and their layout."""
        row = self.rows[layer]
        assert row is not None, "the layer's keys and values are here"
        if self._graph.attention(layer).local:
            return self.local_blocks[row], self.local_layout
        return self.blocks[row], self.layout

    def place(self, layer: int, position: int) -> int:
        """Return where the layer's memory has this position."""
        return position - self.local_first if self._graph.is_local(layer) else position

    def make_room(self, n_tokens: int) -> None:
        """Let layers with a window forget positions, so that a run of n_tokens can follow. Call it before every run.

        If the run is longer than what then fits, they forget more within it: see `pieces`. Raises: CudaError.
        """
        assert self._run_first == self.local_first, "`drop_run` follows a run that is not advanced"
        if self._windows is not None and self.length + n_tokens > self.local_first + self.local_capacity:
            end = self.length + n_tokens
            self._forget(self._windows.first_after(self.length, self.local_capacity, end))

    def pieces(self, start: int, n_tokens: int) -> list[Piece]:
        """Return the pieces in which a chunk of a run goes through layers with a window. Call it once for a chunk.

        start: the chunk's first position, right after the run's earlier ones. Each layer shifts its memory (`shift`)
        before a piece. If the run is dropped then, call `drop_run`.
        """
        if self._windows is None:
            return [Piece(slice(0, n_tokens), 0, start)]
        found, first = self._windows.pieces(self._run_first, self.local_capacity, start, n_tokens)
        assert len(found) == 1 or not self._shares, "the run is as long as `most_positions_per_run` at most"
        if first > self._run_first:  # if the run is dropped, nothing that it moves can be used
            self._copy_turn(self.length + kv_blocks.BLOCK)
        self._run_first = first
        return found

    @property
    def most_positions_per_run(self) -> int:
        """Positions of a run at most; more must be split into several."""
        return self._windows.slack if self._windows is not None and self._shares else self.capacity

    def drop_run(self) -> None:
        """Cut the cache to what is valid after a run that was not advanced."""
        self.truncate(self.reusable(self.length))

    def shift(self, layer: int, n_positions: int) -> None:
        """Move what a layer with a window has to the beginning of its memory, less the first n_positions."""
        if 0 < n_positions < self.local_capacity:
            for head in self.of_layer(layer)[0]:
                head[: -(n_positions // kv_blocks.BLOCK)] = head[n_positions // kv_blocks.BLOCK :]

    def _forget(self, first: int) -> None:
        """Let layers with a window forget all positions before `first`."""
        if first <= self.local_first:
            return
        self._copy_turn(first)
        if first < self.length:
            for layer in self._local:
                self.shift(layer, first - self.local_first)
        self.local_first = self._run_first = first

    def _copy_turn(self, first: int) -> None:
        """Copy what the remembered length needs of the positions before `first`, which are about to be lost."""
        turn = self._turn
        if turn is None:
            return
        start, end = turn.first_in_cache, -(-turn.end // kv_blocks.BLOCK) * kv_blocks.BLOCK
        n = min(first, end) - start
        if n <= 0:
            return
        try:
            turn.copies.append((start, n, self._copied(self._forms(self._local), start, n)))
        except HostMemoryError as error:
            self._turn = None
            log.info("The end of the turn is not kept: %s", error.message)

    def forms(self, first: int) -> str:
        """Return how each layer that stores keys and values has those from the position `first` on.

        "b": in blocks; "r": in rows on a GPU; "-": a layer with a window has forgotten some of them.
        """
        return self._forms([i for i in self._storing if i not in self._local or first >= self.local_first])

    def _forms(self, layers: Sequence[int]) -> str:
        forms = {layer: "r" if self.rows[layer] is None else "b" for layer in layers}
        return "".join(forms.get(layer, "-") for layer in self._storing)

    def positions(self, first: int, n_positions: int) -> U8:
        """Return a copy of the keys and values of these positions, of all layers that have them, in order.

        first: a multiple of kv_blocks.BLOCK. Blocks are copied whole. Raises: CudaError, HostMemoryError.
        """
        return self._copied(self.forms(first), first, n_positions)

    def _copied(self, forms: str, first: int, n_positions: int) -> U8:
        sizes = self._piece_sizes(forms, n_positions)
        try:
            found: U8 = np.empty(sum(sizes), np.uint8)
        except MemoryError as error:
            raise HostMemoryError(f"There is no free RAM for a copy of {n_positions} tokens.") from error
        at = 0
        for layer, size in zip(self._storing, sizes, strict=True):
            if size:
                place = first - self._run_first if layer in self._local else first
                self._copy_layer(layer, place, n_positions, found[at : at + size])
            at += size
        return found

    def put_positions(self, first: int, n_positions: int, data: U8, forms: str) -> bool:
        """Write what `positions` returned, of a cache with these forms. `length` stays.

        Of layers with a window, only positions from local_first on, which the data must have. Returns whether the data
        fit this cache; otherwise nothing was written. Raises: CudaError.
        """
        if len(forms) != len(self._storing) or set(forms) - {"b", "r", "-"}:
            return False
        end, by_layer = first + n_positions, dict(zip(self._storing, forms, strict=True))
        needed = [i for i in self._storing if i not in self._local or end > self.local_first]
        if first % kv_blocks.BLOCK or end > self.capacity or "-" in map(by_layer.__getitem__, needed):
            return False
        sizes = self._piece_sizes(forms, n_positions)
        if sum(sizes) != len(data) or (self._local and end > self.local_first + self.local_capacity):
            return False
        self._put(first, n_positions, data, forms)
        return True

    def _put(self, first: int, n_positions: int, data: U8, forms: str) -> None:
        at = 0
        for layer, size, form in zip(self._storing, self._piece_sizes(forms, n_positions), forms, strict=True):
            piece, layout, heads = data[at : at + size], *self._shape(layer)
            at += size
            skipped = max(0, self.local_first - first) if layer in self._local else 0
            own, left = "r" if self.rows[layer] is None else "b", n_positions - skipped
            if form == "-" or left <= 0:
                continue
            if form == "r" and (own == "b" or skipped):
                piece = kv_blocks.from_rows(np.ascontiguousarray(piece), layout, heads, n_positions)
            if skipped or form != own:
                blocks = np.ascontiguousarray(piece).reshape(heads, -1, layout.block_bytes)
                piece = blocks[:, skipped // kv_blocks.BLOCK :]
                piece = kv_blocks.to_rows(piece, layout, left) if own == "r" else piece
            self._put_layer(layer, self.place(layer, first + skipped), left, piece)

    def expect(self, length: int) -> None:
        """Let layers with a window forget all that a sequence of this length does not need, before `put_positions`.

        If its positions do not follow, call `drop_run`. Raises: CudaError.
        """
        if self._windows is not None:
            self._forget(self._windows.first_read(length))

    def first_needed(self, length: int) -> int:
        """Return the first position of layers with a window that a cache of this length must have."""
        return 0 if self._windows is None else self._windows.first_read(length)

    @contextlib.contextmanager
    def staging(self, n_pieces: int, n_positions: int) -> Iterator[Callable[[int, U8], U8]]:
        """Yield stage(number, data): data of up to n_positions, in memory from which put_positions copies fastest.

        Any thread may call it. What it returned is valid until the call for the piece `number` + n_pieces, or the end.
        n_pieces: 0 if such memory is not worth its cost.
        """
        yield lambda number, data: data

    def restore(self, tokens: Sequence[int], sequence_length: int, state: F32 | None = None) -> None:
        """Count positions written by `put_positions` as filled. tokens: all of them. state: required if it recurs."""
        assert (state is not None) == self.recurs, "a state belongs to a cache that recurs"
        if self.trail is not None:
            self.trail.cut(0)
        self._turn, self._run_first = None, self.local_first
        self.length, self.sequence_length = len(tokens), sequence_length
        self.tokens[: self.length] = tokens
        if state is not None:
            self.set_state(state)
            self._last_length = self.length
            self.keep(self.length, state)

    def copied(self) -> CacheCopy:
        """Return a copy of the cache. Raises: CudaError, HostMemoryError."""
        ends = [
            *range(0, self.local_first, _COPIED_POSITIONS),
            *range(self.local_first, self.length, _COPIED_POSITIONS),
        ]
        pieces = []
        for first, end in pairwise([*ends, self.length]):
            pieces.append((first, end - first, self.forms(first), self.positions(first, end - first)))
        states = dict(self._snapshots)
        if self.recurs and self.length:
            states[self.length] = self.state().copy()
        return CacheCopy(self.tokens[: self.length].tolist(), self.sequence_length, pieces, states)

    def put_copy(self, copy: CacheCopy) -> bool:
        """Fill this empty cache with a copy, whose data are released. Return whether it fits; else it stays empty.

        Raises: CudaError.
        """
        length = len(copy.tokens)
        if not length or length > self.capacity:
            return not length
        self.expect(length)
        copy.pieces.reverse()
        while copy.pieces:
            first, n_positions, forms, data = copy.pieces.pop()
            if not self.put_positions(first, n_positions, data, forms):
                self.truncate(0)
                return False
        self.restore(copy.tokens, copy.sequence_length, copy.states.get(length))
        for n, state in copy.states.items():
            self.keep(n, state)
        return True

    @property
    def forgets(self) -> bool:
        """Whether some layers keep their last positions only."""
        return self._windows is not None

    @property
    def snapshots(self) -> dict[int, F32]:
        """The snapshots of states, by length, ascending. Do not change them."""
        return self._snapshots

    @property
    def state_shape(self) -> tuple[int, ...]:
        """[layers that recur, state_size]."""
        return tuple(self._states.shape[1:])

    def _shape(self, layer: int) -> tuple[KvLayout, int]:
        """Return the layout and number of heads of a layer's keys and values."""
        spec = self._graph.attention(layer)
        return (self.local_layout if spec.local else self.layout), spec.n_kv_heads

    def _piece_sizes(self, forms: str, n_positions: int) -> list[int]:
        """Return the bytes of this many positions of each layer with keys and values of its own."""
        found = []
        for layer, form in zip(self._storing, forms, strict=True):
            layout, heads = self._shape(layer)
            n_bytes = {"r": n_positions * layout.row_bytes, "b": layout.n_blocks(n_positions) * layout.block_bytes}
            found.append(heads * n_bytes.get(form, 0))
        return found

    def _copy_layer(self, layer: int, first: int, n_positions: int, to: U8) -> None:
        blocks, layout = self.of_layer(layer)
        start = first // kv_blocks.BLOCK
        some = blocks[:, start : start + layout.n_blocks(n_positions)]
        to.reshape(some.shape)[...] = some

    def _put_layer(self, layer: int, first: int, n_positions: int, data: U8) -> None:
        blocks, layout = self.of_layer(layer)
        start = first // kv_blocks.BLOCK
        some = blocks[:, start : start + layout.n_blocks(n_positions)]
        some[...] = data.reshape(some.shape)

    @property
    def recurs(self) -> bool:
        """Whether it has a state, so that it can be cut only to some lengths."""
        return self._states.size > 0

    def states(self) -> tuple[F32, F32]:
        """Return the states [layers that recur, state_size] that a run reads, and that it writes."""
        self._last_length = self.length  # what the run before had read is written over from now on
        self._n_within = 0
        return self._states[self._half], self._states[1 - self._half]

    def most_per_run(self) -> int:
        """Return the most tokens that a run may have, the limit of `states_of_run`."""
        if not self.recurs:
            return self.capacity
        return 1 + MOST_BYTES_WITHIN // int(self._states[0].nbytes)

    def states_of_run(self, n_tokens: int) -> list[F32]:
        """Return n_tokens + 1 states [layers that recur, state_size]; each token reads one and writes the next.

        After the run, the cache can also be cut to the lengths within it. Raises: HostMemoryError.
        """
        before, after = self.states()
        if not self.recurs:
            return [before] * n_tokens + [after]
        self._n_within = n_tokens - 1
        try:
            while len(self._within) < self._n_within:
                self._within.append(np.empty_like(before))
        except MemoryError as error:
            raise HostMemoryError(f"There is no free RAM for the states of {n_tokens} tokens.") from error
        return [before, *self._within[: self._n_within], after]

    def state(self) -> F32:
        """Return the current state [layers that recur, state_size], valid until the next run."""
        current: F32 = self._states[self._half]
        return current

    def set_state(self, state: F32 | None) -> None:
        """Replace the current state; None: by zeros, the one before any token."""
        self._states[self._half] = 0 if state is None else state

    def advance(self, n_tokens: int) -> None:
        """Count n_tokens as filled after every layer has written them. Until then, dropping a run changes nothing."""
        self._last_length, self.local_first = self.length, self._run_first
        self.length += n_tokens
        self._half = 1 - self._half

    def note(self, hidden: F32) -> None:
        """Give the head's inputs [n, D] at the last n positions to the trail, if there is one."""
        if self.trail is not None:
            self.trail.add(self.length - len(hidden), hidden)

    def remember(self) -> None:
        """Keep the state, so that the cache can be cut to its current length. The least useful snapshot is dropped.

        That is the one with the shortest way from the snapshot before it. Without a state, layers with a window can be
        cut to this length, up to REWIND before it, instead of the one remembered before. Does nothing if memory is
        short.
        """
        if self._windows is not None and self.length:
            first = self._windows.first_stored(self.length)
            self._turn = Turn(first, self.length) if first >= self.local_first else None
        if self.recurs and self.length and self.length not in self._snapshots:
            snapshot = self.new_snapshot()
            if snapshot is not None:
                snapshot[:] = self.state()
                self.keep(self.length, snapshot)

    def new_snapshot(self) -> F32 | None:
        """Return memory for a snapshot [layers that recur, state_size]; None if memory is short."""
        try:
            return np.empty(self._states.shape[1:], np.float32)
        except MemoryError:
            log.info("No snapshot of the state after %d tokens: the memory is short.", self.length)
            return None

    def keep(self, length: int, snapshot: F32) -> None:
        """Keep the snapshot of the state after this many tokens. The least useful one is dropped, as by `remember`."""
        self._snapshots[length] = snapshot
        self._snapshots = dict(sorted(self._snapshots.items()))
        if len(self._snapshots) > MOST_SNAPSHOTS:
            lengths = [0, *list(self._snapshots)[:-1]]  # the newest stays
            ways = {b: b - a for a, b in pairwise(lengths)}
            del self._snapshots[min(ways, key=ways.__getitem__)]

    def reusable(self, length: int) -> int:
        """Return the greatest length up to this one that the cache can be cut to."""
        if not self.recurs:
            return self._reusable_windows(min(length, self.length))
        within = range(self._last_length, min(self._last_length + self._n_within, self.length) + 1)
        found: int = max(one for one in (0, *self._snapshots, *within, self.length) if one <= length)
        return found

    def _reusable_windows(self, length: int) -> int:
        if self._has_windows(length):
            return length
        turn = self._turn
        if turn is None or self.first_needed(min(length, turn.end)) < turn.first:
            return 0
        found = min(length, turn.end)
        is_whole = self._run_first == self.local_first  # else a dropped run has moved positions that were not copied
        return found if is_whole or found <= turn.first_in_cache else 0

    def _has_windows(self, length: int) -> bool:
        """Return whether layers with a window have what they need after this many tokens."""
        return self._run_first == self.local_first <= self.first_needed(length)

    def truncate(self, length: int) -> None:
        """Drop everything from position `length` on.

        Raises: ValueError unless `reusable` returns that length, DeviceFailedError.
        """
        if not 0 <= length <= self.length or self.reusable(length) != length:
            raise ValueError(f"a cache of {self.length} tokens cannot be cut to {length}")
        if self.trail is not None:
            self.trail.cut(length)
        if self.recurs and length != self.length:
            if length == 0 or length in self._snapshots:
                self.set_state(self._snapshots[length] if length else None)
            else:
                self._go_back(length - self._last_length)
            self._snapshots = {kept: state for kept, state in self._snapshots.items() if kept <= length}
            self._last_length, self._n_within = length, 0
        if self._windows is not None:
            self._truncate_windows(length)
        self.length = length

    def _truncate_windows(self, length: int) -> None:
        if length == 0:
            self.local_first = self._run_first = 0
            self._turn = None
        elif not self._has_windows(length):
            turn = self._turn
            assert turn is not None, "`reusable` has checked it"
            self._put_turn(turn, length)
        if self._turn is not None:  # positions from the length on are written over
            self._turn.end = min(self._turn.end, length)
            self._turn = self._turn if self._turn.end > self._turn.first else None

    def _put_turn(self, turn: Turn, length: int) -> None:
        """Let layers with a window have the turn's positions up to `length`, those in the cache further back."""
        start, n = turn.first_in_cache, length - turn.first_in_cache
        for layer in self._local if n > 0 else ():
            kept = np.empty(sum(self._piece_sizes(self._forms([layer]), n)), np.uint8)
            self._copy_layer(layer, start - self.local_first, n, kept)
            self._put_layer(layer, start - turn.first, n, kept)
        self.local_first = self._run_first = turn.first
        for first, n_copied, data in turn.copies:
            self._put(first, n_copied, data, self._forms(self._local))

    def _go_back(self, n_tokens: int) -> None:
        """Return to the state after the first n_tokens of the last run."""
        if n_tokens:
            self.set_state(self._within[n_tokens - 1])
        else:
            self._half = 1 - self._half  # what the run read


def read_cache_bytes(config: ModelConfig, position: int, codec: KvCodec) -> list[int]:
    """Return the bytes of the cache that a token at this position reads in each layer, and writes of a state.

    A layer with a window reads no more positions than it sees.
    """
    found = _by_layer(config, graph_of(config).attentions, position, codec)
    for layer in config.delta_layers:
        found[layer] = 2 * 4 * config.state_size // len(config.delta_layers)
    return found


def stored_kv_bytes(config: ModelConfig, positions: int, codec: KvCodec, sequences: int = 1) -> list[int]:
    """Return the bytes of keys and values that each layer stores; 0 without attention, or if it reads another's.

    positions: of all sequences together.
    """
    return _by_layer(config, _stored(config), positions, codec, window_positions(config, positions, sequences))


def turn_bytes(config: ModelConfig, positions: int, codec: KvCodec) -> list[int]:
    """Return the bytes in RAM, for each layer, of what a conversation keeps to be cut back to the end of a turn."""
    windows = WindowMemory.of(config)
    if windows is None or windows.capacity(positions) == positions:
        return [0] * config.n_layers
    of_windows = {i: spec for i, spec in _stored(config).items() if spec.local}
    return _by_layer(config, of_windows, windows.most_stored, codec, windows.most_stored)


def _stored(config: ModelConfig) -> dict[int, AttentionSpec]:
    return {i: spec for i, spec in graph_of(config).attentions.items() if spec.kv_from is None}


def _by_layer(
    config: ModelConfig, specs: dict[int, AttentionSpec], positions: int, codec: KvCodec, of_window: int | None = None
) -> list[int]:
    """Return the bytes of this many positions in each layer; 0 for those without a spec.

    of_window: the positions of layers with a window; None: those of a layer's own window, at most.
    """
    found = [0] * config.n_layers
    for layer, spec in specs.items():
        layout = config.kv_layout(codec, spec.local)
        seen = positions
        if spec.window is not None:
            seen = min(positions, spec.window) if of_window is None else of_window
        found[layer] = spec.n_kv_heads * layout.n_blocks(seen) * layout.block_bytes
    return found


def state_bytes(config: ModelConfig) -> int:
    """Return the bytes of a conversation's recurrent state, with all stored snapshots; 0 without."""
    return 4 * config.state_size * (2 + MOST_SNAPSHOTS)


def within_bytes(config: ModelConfig) -> int:
    """Return the most bytes of the states after each token of a run but its last; 0 without."""
    size = 4 * config.state_size
    return size * min(MOST_TOKENS_OF_RUN - 1, MOST_BYTES_WITHIN // size) if size else 0
