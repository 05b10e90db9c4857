"""Reads a model's tensors piece by piece in Hearth's own orientation, so that no tensor must fit into memory.

It gives numbers, or untouched blocks where the source's rows are ours; it writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.bundle import BundleSource
from engine.errors import ModelFormatError
from engine.formats.packed_rows import GROUP, check_scales, decode_blocks, decode_rows
from engine.formats.quant import CODECS
from engine.model.families import PlannedTensor
from engine.model.model_files import OpenedModel
from native_kernels.backend import F32
from native_kernels.lane_packing import unpack_rows

U8 = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class TiledTensor:
    """One planned tensor of an open model; a vector is one row.

    codec: how the source stores it. order: the source's row for each of ours, None where they are the same.
    """

    opened: OpenedModel
    planned: PlannedTensor
    n_rows: int
    n_cols: int
    codec: str
    order: NDArray[np.int64] | None

    @classmethod
    def of(cls, opened: OpenedModel, planned: PlannedTensor) -> TiledTensor:
        rows, cols = (1, *planned.shape)[-2:]
        info = opened.source.tensors[planned.foreign_name]
        codec = info.codec.removesuffix(".lanes")
        order = None
        if planned.treatment == "rope pairs":
            # Ours: all first halves of a head's pairs, then all second ones.
            order = np.arange(rows).reshape(-1, opened.config.head_dim // 2, 2).swapaxes(1, 2).reshape(-1)
        if planned.treatment == "transposed":
            rows, cols = cols, rows
        return cls(opened, planned, rows, cols, codec, order)

    @property
    def name(self) -> str:
        return self.planned.name

    @property
    def shape(self) -> tuple[int, ...]:
        """In our orientation."""
        return (self.n_cols,) if len(self.planned.shape) == 1 else (self.n_rows, self.n_cols)

    @property
    def source_bytes(self) -> int:
        return self.opened.source.tensors[self.planned.foreign_name].n_bytes

    @property
    def row_step(self) -> int:
        """Our rows must be read in multiples of this, because the source's blocks span so many of them."""
        return CODECS[self.codec].block_size if self._transposed and self.codec in CODECS else 1

    @property
    def quantised_across_rows(self) -> bool:
        """Whether blocks of the source run over our rows, so that its quants cannot be kept."""
        return self._transposed and self.codec not in ("f32", "f16", "bf16")

    def read_f32(self, start: int, stop: int) -> F32:
        """Our rows start to stop as numbers [stop - start, n_cols]. Raises ModelFormatError for what is no number."""
        with np.errstate(invalid="ignore", over="ignore"):
            values = self._read(start, stop)
            total = values.sum(dtype=np.float64)  # finite unless a value is not: weights are too small to overflow it
        if not np.isfinite(total):
            raise ModelFormatError(f"Tensor {self.planned.foreign_name} holds values that are no numbers.")
        return values

    def keeps_blocks_of(self, codec: str) -> bool:
        """Whether our rows in this codec have the very blocks of the source, so that `blocks` gives them."""
        return self.codec == codec and codec in ("q8_0", "q4_0") and not self._transposed and not self.n_cols % GROUP

    def blocks(self, start: int, stop: int) -> U8:
        """The source's blocks of our rows [stop - start, G, type_size], as GGML lays them out."""
        raw = self._source_rows(start, stop)
        if isinstance(self.opened.source, BundleSource):
            found = unpack_rows(self.codec, raw)
        else:
            found = np.ascontiguousarray(raw).reshape(len(raw), self.n_cols // GROUP, -1)
        check_scales(found, self.planned.foreign_name)
        return found

    @property
    def _transposed(self) -> bool:
        return self.planned.treatment == "transposed"

    def _read(self, start: int, stop: int) -> F32:
        source = self.opened.source
        if isinstance(source, BundleSource):
            entry = source.manifest.tensors[self.planned.foreign_name]
            return decode_rows(entry.codec, source.rows(self.planned.foreign_name)[start:stop], self.n_cols)
        if not self._transposed:
            return decode_blocks(self.codec, self._source_rows(start, stop)).reshape(stop - start, self.n_cols)
        table = source.view(self.planned.foreign_name).reshape(self.n_cols, -1)
        step, n_bytes = CODECS[self.codec].block_size, CODECS[self.codec].type_size
        raw = table[:, start // step * n_bytes : stop // step * n_bytes]
        return np.ascontiguousarray(decode_blocks(self.codec, raw).reshape(self.n_cols, stop - start).T)

    def _source_rows(self, start: int, stop: int) -> U8:
        source = self.opened.source
        if isinstance(source, BundleSource):
            return source.rows(self.planned.foreign_name)[start:stop]
        table = source.view(self.planned.foreign_name).reshape(self.n_rows, -1)
        return table[start:stop] if self.order is None else table[self.order[start:stop]]
