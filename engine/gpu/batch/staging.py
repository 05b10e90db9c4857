"""How a batch's step brings neurons of the host's memory onto the GPU: piece by piece, in turn into two halves of a
place there, so that one piece is on its way while the other is computed. It lays out and moves nothing.
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
class Piece:
    """Some slots of a block. source: their rows where they are; staged: the same slots, with rows in the half."""

    source: GpuBlock
    staged: GpuBlock
    half: int

    @property
    def pairs(self) -> list[tuple[GpuMatrix, GpuMatrix]]:
        """Each matrix where it is, and where it goes."""
        return list(zip(_matrices(self.source), _matrices(self.staged), strict=True))


def half_bytes(blocks: Sequence[GpuBlock], most: int) -> int:
    """What a half takes, at most `most`: less where no block needs it. 0 without blocks.

    Raises: ValueError where that holds no neuron.
    """
    if not blocks:
        return 0
    for block in blocks:
        _most_slots(block, most)
    return min(most, max(_staged_bytes(block) for block in blocks))


def pieces_of(block: GpuBlock, halves: Sequence[int], n_bytes: int) -> list[Piece]:
    """The block in pieces of about as many slots, which take turns with the halves, n_bytes each at these addresses."""
    most = _most_slots(block, n_bytes)
    n_pieces = -(-block.n_slots // most)
    each = -(-block.n_slots // n_pieces)
    each = min(most, -(-each // _SLOT_STEP) * _SLOT_STEP)
    found = []
    for number, first in enumerate(range(0, block.n_slots, each)):
        source = _part_of(block, first, min(each, block.n_slots - first))
        half = number % len(halves)
        found.append(Piece(source, _placed(source, halves[half]), half))
    return found


def _most_slots(block: GpuBlock, n_bytes: int) -> int:
    widths = _row_bytes(block)
    most = min(MOST_STAGED_SLOTS, (n_bytes - ALIGNMENT * len(widths)) // sum(widths))
    if most < 1:
        raise ValueError(f"a neuron of {sum(widths)} bytes does not lie in {n_bytes}")
    return most


def _staged_bytes(block: GpuBlock) -> int:
    """Of all of its slots, at most: each plane is aligned."""
    widths = _row_bytes(block)
    return block.n_slots * sum(widths) + ALIGNMENT * len(widths)


def _row_bytes(block: GpuBlock) -> list[int]:
    """Of a neuron in every plane of every matrix."""
    return [width for matrix in _matrices(block) for width in plane_row_bytes(matrix.codec, matrix.n_cols)]


def _matrices(block: GpuBlock) -> list[GpuMatrix]:
    return [one for one in (block.gate, block.up, block.down_t) if one is not None]


def _part_of(block: GpuBlock, first: int, n_slots: int) -> GpuBlock:
    """So many slots from `first` on."""

    def rows(matrix: GpuMatrix) -> GpuMatrix:
        widths = plane_row_bytes(matrix.codec, matrix.n_cols)
        planes = tuple(at + first * width for at, width in zip(matrix.planes, widths, strict=True))
        return replace(matrix, n_rows=n_slots, planes=planes)

    return GpuBlock(
        gate=None if block.gate is None else rows(block.gate),
        up=rows(block.up),
        down_t=rows(block.down_t),
        gate_bias=block.gate_bias and block.gate_bias + 4 * first,
        up_bias=block.up_bias and block.up_bias + 4 * first,
        neuron_in=block.neuron_in + 4 * first,
        fired=block.fired + 4 * first,
    )


def _placed(block: GpuBlock, address: int) -> GpuBlock:
    """The same slots with their matrices from `address` on."""
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


__all__ = ["Piece", "half_bytes", "pieces_of"]
