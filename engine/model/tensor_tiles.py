"""Read a model's tensors in tiles in Hearth's orientation, so that no whole tensor must fit in memory.

Returns numbers, or the source's blocks unchanged if its rows equal ours. Writes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.bundle.bundle import BundleSource
from engine.errors import ModelFormatError
from engine.formats import TensorSource
from engine.formats.packed_rows import GROUP, check_scales, decode_blocks, decode_rows
from engine.formats.quant import CODECS
from engine.model.families import PlannedTensor
from engine.model.model_files import OpenedModel
from native_kernels.backend import F32
from native_kernels.codecs.lane_packing import unpack_rows

U8 = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class TiledTensor:
    """One planned tensor of an open model, in our orientation; a vector is one row.

    codec: the source's codec. order: the source's rows (elements of a vector) that we use, in our order; None if they
    are contiguous from `first` on.
    """

    opened: OpenedModel
    planned: PlannedTensor
    n_rows: int
    n_cols: int
    codec: str
    order: NDArray[np.int64] | None
    first: int = 0

    @classmethod
    def of(cls, opened: OpenedModel, planned: PlannedTensor) -> TiledTensor:
        codec = opened.source.tensors[planned.foreign_name].codec.removesuffix(".lanes")
        order = _order(planned)
        shape, part = planned.matrix_shape, planned.part
        length = len(order) if order is not None else shape[0] if part is None else part.stop - part.start
        if planned.is_vector:
            rows, cols = 1, planned.n_elements
        elif planned.treatment == "transposed by head":
            assert part is not None, "the rows of a fused matrix"
            rows, cols = part.groups * shape[1], part.stop - part.start
        elif planned.treatment == "transposed":
            cols, rows = shape[0], shape[1] if order is None else len(order)
        else:
            rows, cols = length, shape[1]
        first = part.start if part and order is None else 0
        if planned.is_vector and planned.expert is not None and isinstance(opened.source, BundleSource):
            first = planned.expert  # one row per expert there
        return cls(opened, planned, rows, cols, codec, order, first)

    @property
    def name(self) -> str:
        return self.planned.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in our orientation."""
        return (self.n_cols,) if self.planned.is_vector else (self.n_rows, self.n_cols)

    @property
    def source_bytes(self) -> int:
        whole = self.opened.source.tensors[self.planned.foreign_name].n_bytes
        return whole * self.planned.n_elements // math.prod(self.planned.shape)

    @property
    def row_step(self) -> int:
        """Rows must be read in multiples of this, because the source's blocks span that many."""
        return CODECS[self.codec].block_size if self._transposed and self.codec in CODECS else 1

    @property
    def quantised_across_rows(self) -> bool:
        """Whether the source's blocks span our rows, so that its quants cannot be kept."""
        return (self._transposed or self._by_head) and self.codec not in ("f32", "f16", "bf16")

    def read_f32(self, start: int, stop: int) -> F32:
        """Return rows start to stop as f32 [stop - start, n_cols]. Raises: ModelFormatError if not finite."""
        with np.errstate(invalid="ignore", over="ignore"):
            values = self._read(start, stop)
            if not self._transposed and not self._by_head:
                values = self.planned.treated(values)
            total = values.sum(dtype=np.float64)  # weights are too small to overflow it
        if not np.isfinite(total):
            raise ModelFormatError(f"Tensor {self.planned.foreign_name} holds values that are not numbers.")
        return values

    def keeps_blocks_of(self, codec: str) -> bool:
        """Return whether our rows in this codec equal the source's blocks, so that `blocks` works."""
        kept = codec in ("q8_0", "q4_0") and not self.quantised_across_rows
        return self.codec == codec and kept and not self.n_cols % GROUP

    def blocks(self, start: int, stop: int) -> U8:
        """Return the source's blocks of our rows, [stop - start, G, type_size], in GGML's layout."""
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

    @property
    def _by_head(self) -> bool:
        return self.planned.treatment == "transposed by head"

    def _read(self, start: int, stop: int) -> F32:
        source = self.opened.source
        if isinstance(source, BundleSource):
            entry = source.manifest.tensors[self.planned.foreign_name]
            return decode_rows(entry.codec, self._source_rows(start, stop), self.n_cols)
        if self.planned.is_vector:
            vector = decode_blocks(self.codec, stored_bytes(source, self.planned)).reshape(-1)
            return (vector[self.first : self.first + self.n_cols] if self.order is None else vector[self.order])[None]
        if self._by_head:
            return self._read_by_head(start, stop)
        if not self._transposed:
            return decode_blocks(self.codec, self._source_rows(start, stop)).reshape(stop - start, self.n_cols)
        table = stored_bytes(source, self.planned).reshape(self.n_cols, -1)
        step, n_bytes = CODECS[self.codec].block_size, CODECS[self.codec].type_size
        rows: Any = slice(None)
        if self.order is not None:
            wanted = self.order[start:stop]
            start, stop = int(wanted[0]) // step * step, -(-(int(wanted[-1]) + 1) // step) * step
            rows = wanted - start
        raw = table[:, start // step * n_bytes : stop // step * n_bytes]
        return np.ascontiguousarray(decode_blocks(self.codec, raw).reshape(self.n_cols, stop - start).T[rows])

    def _read_by_head(self, start: int, stop: int) -> F32:
        """Return our rows start to stop, [stop - start, n_cols]: of each head, the source's columns."""
        of_head = self.planned.matrix_shape[1]
        first, last = start // of_head, -(-stop // of_head)
        stored = self._source_rows(first * self.n_cols, last * self.n_cols)
        heads = decode_blocks(self.codec, stored).reshape(last - first, self.n_cols, of_head)
        rows = heads.swapaxes(1, 2).reshape(-1, self.n_cols)
        return np.ascontiguousarray(rows[start - first * of_head : stop - first * of_head])

    def _source_rows(self, start: int, stop: int) -> U8:
        source = self.opened.source
        if isinstance(source, BundleSource):
            return source.rows(self.planned.foreign_name)[self.first + start : self.first + stop]
        table = stored_bytes(source, self.planned).reshape(self.planned.matrix_shape[0], -1)
        return table[self.first + start : self.first + stop] if self.order is None else table[self.order[start:stop]]


def stored_bytes(source: TensorSource, planned: PlannedTensor) -> U8:
    """Return a view of the tensor's bytes in the file; of the planned expert, if it holds all experts."""
    data = source.view(planned.foreign_name)
    return data if planned.expert is None else data.reshape(planned.shape[0], -1)[planned.expert]


def _order(planned: PlannedTensor) -> NDArray[np.int64] | None:
    """Return the source's rows in our order; None if they are contiguous."""
    across = planned.treatment == "transposed"
    if planned.part is None or (planned.part.groups == 1 and not across):
        return None
    n_rows = planned.part.n_grouped or planned.matrix_shape[-1 if across else 0]
    rows = np.arange(n_rows).reshape(planned.part.groups, -1)
    return rows[:, planned.part.start : planned.part.stop].reshape(-1)
