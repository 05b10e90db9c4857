"""Matrices left as the file stores them: views of its mapped bytes, in its codec.

Only three kinds are copied: rows that the file stores in another order, the keys' matrices of latent attention where
they are not transposed yet, and a row-wise down, which is transposed so that the weights of inactive neurons can be
skipped (engine/placement/down_copy.py decides whether).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine.bundle.bundle import BundleSource
from engine.errors import ModelFormatError
from engine.model.families import PlannedTensor
from engine.model.model_files import OpenedModel
from engine.model.tensor_tiles import TiledTensor, stored_bytes
from native_kernels.backend import PackedMatrix
from native_kernels.codecs import CODECS, ROW_CODECS, Deviation, codec_by_columns

_NUMBERS = {"f32": np.uint32, "f16": np.uint16, "bf16": np.uint16}  # codecs without blocks
_SAMPLED = 4  # matrices of which some neurons are compared with their copy


@dataclass(frozen=True, eq=False)
class StoredKernels:
    """Kernels that read matrices in their file's codec.

    reason: half a sentence. transpose: copies a row-wise down by neuron; None: down stays as it is.
    """

    reason: str
    transpose: Callable[[PackedMatrix], PackedMatrix] | None = None


class DownCopies:
    """The copies of a model's row-wise downs as down_t [F, D], and how much they differ."""

    def __init__(self, opened: OpenedModel, transpose: Callable[[PackedMatrix], PackedMatrix]) -> None:
        self._opened, self._transpose, self._deviation = opened, transpose, Deviation()
        self._downs = [tensor for tensor in opened.plan if is_row_wise_down(opened, tensor)]
        self._sampled = {one.name for one in self._downs[:: max(1, -(-len(self._downs) // _SAMPLED))]}
        self.ram_bytes = 0

    @property
    def needed_bytes(self) -> int:
        return sum(copy_bytes(self._opened, tensor) for tensor in self._downs)

    @property
    def reason(self) -> str:
        """The reason to report, half a sentence; empty if nothing was copied."""
        if not self.ram_bytes:
            return ""
        words = "; down was copied, so that the weights of each neuron are contiguous"
        if self._deviation.sum_of_squares:
            words += f", in 8 bits, which changed them by {self._deviation.relative_rms:.1%}"
        return words

    def of(self, tensor: PlannedTensor, stored: PackedMatrix) -> PackedMatrix:
        """Return the copy. Raises: ModelFormatError for scales that are not finite."""
        made = self._transpose(stored)
        self.ram_bytes += copy_bytes(self._opened, tensor)
        if made.codec == stored.codec:
            return made
        scales = made.data[:, -2 * -(-made.n_cols // 32) :].view(np.uint16)
        if ((scales & 0x7C00) == 0x7C00).any():
            raise ModelFormatError(f"Tensor {tensor.foreign_name} holds values that are not numbers.")
        if tensor.name in self._sampled:
            tiled = TiledTensor.of(self._opened, tensor)
            stop = min(tiled.row_step, made.n_rows)
            copied = made.block_codec.decode(np.ascontiguousarray(made.data[:stop]))[:, : made.n_cols]
            self._deviation.add(tiled.read_f32(0, stop), copied)
        return made


def is_row_wise_down(opened: OpenedModel, tensor: PlannedTensor) -> bool:
    """Return whether the tensor is a down [D, F] that could be copied by neuron. Experts are never copied."""
    return tensor.treatment == "transposed" and not opened.config.n_experts


def copy_bytes(opened: OpenedModel, tensor: PlannedTensor) -> int:
    """Return the RAM for a row-wise down as down_t, with its rows on cache lines."""
    d, f = tensor.matrix_shape
    codec = codec_by_columns(opened.source.tensors[tensor.foreign_name].codec)
    return f * -(-ROW_CODECS[codec].n_bytes(d) // 64) * 64


def as_stored(opened: OpenedModel, tensor: PlannedTensor) -> tuple[str, PackedMatrix]:
    """Return the matrix in its file's codec, and its name.

    A row-wise down becomes `down` [D, F]: its blocks span neurons, so it cannot be transposed without rounding.
    Cost: reads no weights, except for rows in another order (matrices fused by head, or by column), which are copied at
    file size.
    """
    tiled = TiledTensor.of(opened, tensor)
    source = opened.source
    if isinstance(source, BundleSource):
        found = source.rows(tensor.foreign_name)[tiled.first : tiled.first + tiled.n_rows]
        codec = source.tensors[tensor.foreign_name].codec  # with the suffix that tells SIMD lanes from blocks
        return tensor.name, PackedMatrix.view(found, tiled.n_rows, tiled.n_cols, codec)
    if tensor.treatment == "transposed by head":
        codec = tiled.codec if tiled.codec in _NUMBERS else "f16"
        return tensor.name, PackedMatrix.pack(tiled.read_f32(0, tiled.n_rows), codec)
    if tensor.treatment == "transposed" and tensor.part is not None:  # not down: fused matrices with neurons in columns
        stored = stored_bytes(source, tensor).view(_NUMBERS[tiled.codec]).reshape(tiled.n_cols, -1)
        own = np.ascontiguousarray(stored[:, tiled.order].T)
        return tensor.name, PackedMatrix.view(own.view(np.uint8), tiled.n_rows, tiled.n_cols, tiled.codec)
    if tensor.treatment == "transposed":
        n_rows, n_cols = tensor.matrix_shape
        view = PackedMatrix.view(stored_bytes(source, tensor), n_rows, n_cols, tiled.codec)
        return tensor.name.removesuffix("down_t") + "down", view
    rows = stored_bytes(source, tensor).reshape(tensor.matrix_shape[0], -1)
    if _is_one_slice(tensor):
        part = tensor.part
        rows = rows if part is None else rows[part.start : part.stop]
    else:
        rows = rows[tiled.order]
    return tensor.name, PackedMatrix.view(rows, tiled.n_rows, tiled.n_cols, tiled.codec)


def copied_bytes(opened: OpenedModel, tensor: PlannedTensor) -> int:
    """Return the RAM for the tensor beside the mapped file: vectors are decoded, most matrices cost nothing."""
    if tensor.is_vector:
        return 4 * tensor.n_elements
    if tensor.treatment == "transposed by head" or (tensor.treatment == "transposed" and tensor.part is not None):
        return tensor.n_elements * (4 if opened.source.tensors[tensor.foreign_name].codec == "f32" else 2)
    if isinstance(opened.source, BundleSource) or tensor.treatment == "transposed" or _is_one_slice(tensor):
        return 0
    n_cols, codec = tensor.shape[1], opened.source.tensors[tensor.foreign_name].codec
    return tensor.n_elements // n_cols * CODECS[codec].n_bytes(n_cols)


def _is_one_slice(tensor: PlannedTensor) -> bool:
    """Return whether our rows are contiguous in the file and in our order."""
    return tensor.treatment == "as is" and (tensor.part is None or tensor.part.groups == 1)
