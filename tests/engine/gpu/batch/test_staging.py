"""Neurons in the host's memory come in parts: every slot once, nowhere beyond its half, nor over another plane."""

from __future__ import annotations

import itertools

import pytest

from engine.gpu.batch.staging import half_bytes, in_halves
from native_kernels.cuda.batch_ops import MOST_STAGED_SLOTS
from native_kernels.cuda.gpu import GpuBlock, GpuMatrix
from native_kernels.cuda.layouts import plane_row_bytes

BASE = 1 << 32


def a_block(n_slots: int, n_cols: int, codecs: tuple[str, str, str], gated: bool = True) -> GpuBlock:
    at = BASE
    matrices = []
    for codec in codecs:
        planes = []
        for width in plane_row_bytes(codec, n_cols):
            planes.append(at)
            at += -(-n_slots * width // 256) * 256
        matrices.append(GpuMatrix(n_slots, n_cols, codec, tuple(planes)))
    gate = matrices[0] if gated else None
    return GpuBlock(gate, matrices[1], matrices[2], 4096 if gated else 0, 0, 8192, 16384)


def matrices(block: GpuBlock) -> list[GpuMatrix]:
    return [one for one in (block.gate, block.up, block.down_t) if one is not None]


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("codecs", [("f16",) * 3, ("q4_k", "mxfp4", "q6_k"), ("q8_0", "q8_0", "f32")])
@pytest.mark.parametrize(("n_slots", "most"), [(1, 1 << 20), (1000, 200_000), (1000, 40_000), (40_000, 1 << 26)])
def test_every_slot_is_in_one_piece(n_slots: int, most: int, codecs: tuple[str, str, str], gated: bool) -> None:
    block = a_block(n_slots, 512, codecs, gated)
    size = half_bytes([block], most)
    assert size <= most
    halves = (1 << 20, (1 << 20) + (1 << 28))
    parts = in_halves(block, halves, size)
    assert [part.half for part in parts] == [i % 2 for i in range(len(parts))]
    first = 0
    for part in parts:
        n = part.source.n_slots
        assert 0 < n <= MOST_STAGED_SLOTS
        assert n == part.staged.n_slots
        for one in (part.source, part.staged):
            assert (one.neuron_in, one.fired) == (8192 + 4 * first, 16384 + 4 * first)
            assert one.gate_bias == (4096 + 4 * first if gated else 0)
            assert one.up_bias == 0
        taken = []
        for of_block, source, staged in zip(
            matrices(block), matrices(part.source), matrices(part.staged), strict=True
        ):  # fmt: skip
            assert (source.n_cols, source.codec) == (staged.n_cols, staged.codec) == (of_block.n_cols, of_block.codec)
            for whole, at, to, width in zip(
                of_block.planes, source.planes, staged.planes, plane_row_bytes(source.codec, 512), strict=True
            ):
                assert at == whole + first * width
                assert to % 256 == 0
                taken.append((to, to + n * width))
        start, end = halves[part.half], halves[part.half] + size
        assert taken == sorted(taken)
        assert taken[0][0] == start
        assert taken[-1][1] <= end
        assert all(stop <= following for (_, stop), (following, _) in itertools.pairwise(taken))
        first += n
    assert first == n_slots


def test_a_half_is_as_large_as_it_must_be() -> None:
    assert half_bytes([], 1 << 20) == 0
    small, large = (a_block(n, 512, ("f16",) * 3) for n in (10, 20))
    assert half_bytes([small, large], 1 << 20) == 20 * 3 * 1024 + 3 * 256
    assert len(in_halves(large, (0, 1 << 30), half_bytes([small, large], 1 << 20))) == 1
    with pytest.raises(ValueError, match="does not lie in"):
        half_bytes([small, large], 3000)
