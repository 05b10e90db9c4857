"""Read the matrices of a layer's experts as one matrix, expert after expert: docs/bundle.md, section 3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.model.families import PlannedTensor, split_expert_name
from engine.model.tensor_tiles import TiledTensor
from native_kernels.backend import F32

U8 = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class ExpertStack:
    """gate, up or down_t of all experts of a layer, with TiledTensor's interface."""

    name: str
    members: tuple[TiledTensor, ...]

    @property
    def planned(self) -> PlannedTensor:
        """The first expert's tensor."""
        return self.members[0].planned

    @property
    def n_rows(self) -> int:
        return sum(member.n_rows for member in self.members)

    @property
    def n_cols(self) -> int:
        return self.members[0].n_cols

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n_rows, self.n_cols)

    @property
    def codec(self) -> str:
        """The source's codecs; some files use several for a layer's experts."""
        return ", ".join(sorted({member.codec for member in self.members}))

    @property
    def source_bytes(self) -> int:
        return sum(member.source_bytes for member in self.members)

    @property
    def row_step(self) -> int:
        """Largest step, so that few rows are read twice: the shared expert may have other blocks."""
        return max(member.row_step for member in self.members)

    @property
    def quantised_across_rows(self) -> bool:
        return any(member.quantised_across_rows for member in self.members)

    def keeps_blocks_of(self, codec: str) -> bool:
        return all(member.keeps_blocks_of(codec) for member in self.members)

    def read_f32(self, start: int, stop: int) -> F32:
        """Return rows start to stop as f32 [stop - start, n_cols]."""
        return np.concatenate([_whole_blocks(member, *rows) for member, rows in self._within(start, stop)])

    def blocks(self, start: int, stop: int) -> U8:
        """Return the source's blocks of these rows, [stop - start, G, type_size]."""
        return np.concatenate([member.blocks(*rows) for member, rows in self._within(start, stop)])

    def _within(self, start: int, stop: int) -> Iterator[tuple[TiledTensor, tuple[int, int]]]:
        """Yield the experts that have some of these rows, with their own row ranges."""
        before = 0
        for member in self.members:
            first, last = max(start - before, 0), min(stop - before, member.n_rows)
            if first < last:
                yield member, (first, last)
            before += member.n_rows


def _whole_blocks(member: TiledTensor, start: int, stop: int) -> F32:
    """Read the member's rows, which it returns only in multiples of its step."""
    step = member.row_step
    first, last = start // step * step, min(-(-stop // step) * step, member.n_rows)
    return member.read_f32(first, last)[start - first : stop - first]


RowSource = TiledTensor | ExpertStack


def stacked(tensors: Sequence[TiledTensor]) -> list[RowSource]:
    """Return the tensors, with those of a layer's experts combined at the first one's position."""
    out: dict[str, RowSource | list[TiledTensor]] = {}
    for tensor in tensors:
        if not tensor.planned.of_expert:
            out[tensor.name] = tensor
            continue
        layer, _, part = split_expert_name(tensor.name)
        members = out.setdefault(f"{layer}.{part}", [])
        assert isinstance(members, list), "no other tensor has that name"
        members.append(tensor)
    return [ExpertStack(name, tuple(found)) if isinstance(found, list) else found for name, found in out.items()]
