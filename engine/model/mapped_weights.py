"""Matrices left as the file stores them: views of its mapped bytes, in its codec.

Only three kinds are copied: rows that the file stores in another order, the keys' matrices of latent attention where
they are not transposed yet, and a small row-wise down, which is transposed so that the weights of inactive neurons can
be skipped.
"""

from __future__ import annotations

import numpy as np

from engine.bundle.bundle import BundleSource
from engine.model.families import PlannedTensor
from engine.model.model_files import OpenedModel
from engine.model.tensor_tiles import TiledTensor, stored_bytes
from native_kernels.backend import PackedMatrix
from native_kernels.codecs import CODECS

# Limit for transposing down: a model of 1 billion parameters in 16 bits. Convert larger models to a bundle, which
# avoids a second copy in memory.
TURNED_BYTES = 384 << 20
_TURNED_ROWS = 256
_NUMBERS = {"f32": np.uint32, "f16": np.uint16, "bf16": np.uint16}  # codecs without blocks


def turned_bytes(opened: OpenedModel) -> int:
    """Return the RAM for a model's row-wise downs once transposed.

    0 if there are none, neurons cannot be skipped, blocks span neurons, or they are too large. Experts are never
    transposed.
    """
    downs = [tensor for tensor in opened.plan if tensor.treatment == "transposed"]
    codecs = {opened.source.tensors[tensor.foreign_name].codec for tensor in downs}
    if not opened.config.has_zeros or opened.config.n_experts or not codecs <= _NUMBERS.keys():
        return 0
    needed = sum(TiledTensor.of(opened, tensor).source_bytes for tensor in downs)
    return needed if needed <= TURNED_BYTES else 0


def turned(opened: OpenedModel, tensor: PlannedTensor) -> PackedMatrix:
    """Return a copy of a row-wise down as down_t [F, D]."""
    tiled = TiledTensor.of(opened, tensor)
    stored = stored_bytes(opened.source, tensor).view(_NUMBERS[tiled.codec]).reshape(tiled.n_cols, tiled.n_rows)
    rows = np.empty((tiled.n_rows, tiled.n_cols), stored.dtype)
    for start in range(0, tiled.n_rows, _TURNED_ROWS):
        rows[start : start + _TURNED_ROWS] = stored[:, start : start + _TURNED_ROWS].T
    return PackedMatrix.view(rows.view(np.uint8), tiled.n_rows, tiled.n_cols, tiled.codec)


def as_stored(opened: OpenedModel, tensor: PlannedTensor) -> tuple[str, PackedMatrix]:
    """Return the matrix in its file's codec, and its name.

    A row-wise down becomes `down` [D, F]: its blocks span neurons, so it cannot be transposed without decoding.
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
