"""Plan the staging of zero-copy neurons for a batch step: in parts that alternate between two GPU buffers ("halves"),
so that one is uploaded while the other is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.placement.gpu_bytes import ALIGNMENT, aligned
from native_kernels.cuda.batch_ops import MOST_STAGED_SLOTS
from native_kernels.cuda.gpu import GpuBlock, GpuMatrix
from native_kernels.cuda.layouts import plane_row_bytes

_SLOT_STEP = 16


@dataclass(frozen=True)
class StagedNeurons:
    """Some slots of a block. source: with rows in host memory. staged: with rows in the GPU buffer `half`."""

    source: GpuBlock
    staged: GpuBlock
    half: int

    @property
    def pairs(self) -> list[tuple[GpuMatrix, GpuMatrix]]:
        """Each matrix in `source` and in `staged`."""
        return list(zip(_matrices(self.source), _matrices(self.staged), strict=True))


def half_bytes(blocks: Sequence[GpuBlock], most: int) -> int:
    """Return the bytes of a half that the blocks can use, at most `most`. 0 without blocks.

    Raises: ValueError if `most` bytes hold no neuron.
    """
    if not blocks:
        return 0
    for block in blocks:
        _most_slots(block, most)
    return min(most, max(_staged_bytes(block) for block in blocks))


def in_halves(block: GpuBlock, halves: Sequence[int], n_bytes: int) -> list[StagedNeurons]:
    """Return the block in parts of about equal size that alternate between the halves.

    halves: GPU addresses. n_bytes: size of each.
    """
    most = _most_slots(block, n_bytes)
    n_parts = -(-block.n_slots // most)
    each = -(-block.n_slots // n_parts)
    each = min(most, -(-each // _SLOT_STEP) * _SLOT_STEP)
    found = []
    for number, first in enumerate(range(0, block.n_slots, each)):
        source = _part_of(block, first, min(each, block.n_slots - first))
        half = number % len(halves)
        found.append(StagedNeurons(source, _placed(source, halves[half]), half))
    return found


def _most_slots(block: GpuBlock, n_bytes: int) -> int:
    widths = _row_bytes(block)
    most = min(MOST_STAGED_SLOTS, (n_bytes - ALIGNMENT * len(widths)) // sum(widths))
    if most < 1:
        raise ValueError(f"a neuron of {sum(widths)} bytes does not lie in {n_bytes}")
    return most


def _staged_bytes(block: GpuBlock) -> int:
    """Return an upper bound of a whole staged block, with the alignment of each plane."""
    widths = _row_bytes(block)
    return block.n_slots * sum(widths) + ALIGNMENT * len(widths)


def _row_bytes(block: GpuBlock) -> list[int]:
    """Return the bytes of a neuron in every plane of every matrix."""
    return [width for matrix in _matrices(block) for width in plane_row_bytes(matrix.codec, matrix.n_cols)]


def _matrices(block: GpuBlock) -> list[GpuMatrix]:
    return [one for one in (block.gate, block.up, block.down_t) if one is not None]


def _part_of(block: GpuBlock, first: int, n_slots: int) -> GpuBlock:
    """Return n_slots slots of the block, from `first` on."""

    rows = range(first, first + n_slots)
    return GpuBlock(
        gate=None if block.gate is None else block.gate.part(rows),
        up=block.up.part(rows),
        down_t=block.down_t.part(rows),
        gate_bias=block.gate_bias and block.gate_bias + 4 * first,
        up_bias=block.up_bias and block.up_bias + 4 * first,
        neuron_in=block.neuron_in + 4 * first,
        fired=block.fired + 4 * first,
    )


def _placed(block: GpuBlock, address: int) -> GpuBlock:
    """Return the same slots with their matrices at `address`."""
    at = address

    def placed(matrix: GpuMatrix) -> GpuMatrix:
        nonlocal at
        planes = []
        for width in plane_row_bytes(matrix.codec, matrix.n_cols):
            planes.append(at)
            at += aligned(matrix.n_rows * width)
        return replace(matrix, planes=tuple(planes))

    gate = None if block.gate is None else placed(block.gate)
    return replace(block, gate=gate, up=placed(block.up), down_t=placed(block.down_t))


__all__ = ["StagedNeurons", "half_bytes", "in_halves"]
