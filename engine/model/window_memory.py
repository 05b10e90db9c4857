"""Which positions of a sequence layers with a window keep, and what they forget before and within a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.config import ModelConfig
from engine.model.graph import graph_of
from native_kernels import kv_blocks
from native_kernels.backend import U8

# Layers with a window have memory for the window and these positions. A larger slack moves memory less often, and lets
# more positions of a prompt through attention at once; in Gemma 3 12B, 512 positions have 168 MB.
SLACK = 512
# If layers read other layers' keys and values, a run must not be longer than the slack: the positions of a GPU's
# longest prefill chunk.
SHARED_SLACK = 2048
REWIND = 64  # positions that the cache can always be cut by
STORED_TOKENS = 256  # positions that the prompt cache stores together


class Piece(NamedTuple):
    """Rows of a run that go through a layer with a window at once.

    shift: positions that the layer forgets before. place: of the first row in the layer's memory.
    """

    rows: slice
    shift: int
    place: int


@dataclass(frozen=True)
class WindowMemory:
    """The positions that layers with a window have memory for, out of all positions of a sequence.

    Memory begins at a position that is a multiple of `step`, which moves up as positions are forgotten. window: the
    longest of all layers. chunked: as in Scoring.
    """

    window: int
    step: int
    chunked: bool
    slack: int

    @classmethod
    def of(cls, config: ModelConfig) -> WindowMemory | None:
        """Return the memory of a model; None if its layers keep all positions."""
        specs = [spec for spec in graph_of(config).attentions.values() if spec.window is not None]
        # A state cannot be cut where a window can; queries that grow with their position need the true one.
        if not specs or config.recurrence is not None or any(spec.temperature is not None for spec in specs):
            return None
        longest, chunked = max(spec.window or 0 for spec in specs), config.chunked_windows
        step = math.lcm(*(spec.window or 1 for spec in specs), kv_blocks.BLOCK) if chunked else kv_blocks.BLOCK
        slack = SHARED_SLACK if config.n_shared_kv_layers else SLACK
        return cls(longest, step, chunked, max(slack, kv_blocks.BLOCK))

    @property
    def most_stored(self) -> int:
        """Positions that remain at most when others are forgotten."""
        kept = REWIND + self.step - 1 + (0 if self.chunked else self.window - 1)
        return -(-kept // kv_blocks.BLOCK) * kv_blocks.BLOCK

    def capacity(self, positions: int, sequences: int = 1) -> int:
        """Return the positions that fit, for sequences with this many positions in all."""
        return min(positions, sequences * (self.most_stored + self.slack))

    def first_stored(self, length: int) -> int:
        """Return the first stored position when layers forget others, after this many tokens."""
        return self.first_read(max(0, length - REWIND))

    def first_after(self, length: int, capacity: int, end: int) -> int:
        """Return the first stored position when memory of this many positions is full, before a run up to `end`.

        It begins a block of the prompt cache if the run then fits, so that the block with the end's window is whole.
        """
        first = self.first_stored(length)
        whole = first // STORED_TOKENS * STORED_TOKENS
        return whole if whole + capacity >= end else first

    def first_read(self, position: int) -> int:
        """Return the first position that a layer reads at `position` or later, rounded down to a step."""
        first = position if self.chunked else max(0, position - self.window + 1)
        return first // self.step * self.step

    def pieces(self, first: int, capacity: int, start: int, n: int) -> tuple[list[Piece], int]:
        """Return the pieces of n positions from `start` on, and the first position in memory after them.

        first: the first position in memory before. Pieces but the last have a multiple of BLOCK positions.
        """
        found, done = [], 0
        while done < n:
            position, before = start + done, first
            if first + capacity < start + n:
                first = max(first, self.first_after(position, capacity, start + n))
            free = first + capacity - position
            rows = n - done if free >= n - done else free // kv_blocks.BLOCK * kv_blocks.BLOCK
            assert rows > 0, "the slack has a block at least"
            found.append(Piece(slice(done, done + rows), first - before, position - first))
            done += rows
        return found, first


@dataclass(eq=False)
class Turn:
    """Positions `first` to `end` - 1, with which the cache can be cut back to the end of a turn.

    copies: of layers with a window, what they have forgotten of these positions: first position, number, data.
    """

    first: int
    end: int
    copies: list[tuple[int, int, U8]] = field(default_factory=list)

    @property
    def first_in_cache(self) -> int:
        """The first position that was not copied. It may lie after the end."""
        return sum(self.copies[-1][:2]) if self.copies else self.first

    @property
    def n_bytes(self) -> int:
        return sum(data.nbytes for _, _, data in self.copies)


def window_positions(config: ModelConfig, positions: int, sequences: int = 1) -> int:
    """Return how many of the positions of all sequences together a layer with a window has memory for."""
    windows = WindowMemory.of(config)
    return positions if windows is None else windows.capacity(positions, sequences)
