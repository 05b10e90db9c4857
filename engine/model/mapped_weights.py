"""Matrices that stay as the file stores them: views of its mapped bytes, in its codec.

Copied are only rows that the file has in another order, packed as they are, and down where it lies row-wise and is
small: turned, so that neurons which do not fire are left out of it too.
"""

from __future__ import annotations

import numpy as np

from engine.bundle.bundle import BundleSource
from engine.model.families import PlannedTensor
from engine.model.model_files import OpenedModel
from engine.model.tensor_tiles import TiledTensor, stored_bytes
from native_kernels.backend import PackedMatrix
from native_kernels.codecs import CODECS

# What may be copied to have down neuron by neuron: all of it of a model of 1 billion parameters in 16 bits. A larger
# one is to be converted into a bundle, so that it need not be in memory twice.
TURNED_BYTES = 384 << 20
_TURNED_ROWS = 256
_NUMBERS = {"f32": np.uint32, "f16": np.uint16, "bf16": np.uint16}  # codecs whose numbers stand alone


def turned_bytes(opened: OpenedModel) -> int:
    """RAM for the row-wise downs of a model whose neurons can be left out, once they are turned; 0 where there are
    none, where blocks of quants run over neurons, or where they are too large. Experts stay as they are.
    """
    downs = [tensor for tensor in opened.plan if tensor.treatment == "transposed"]
    codecs = {opened.source.tensors[tensor.foreign_name].codec for tensor in downs}
    if not opened.config.has_zeros or opened.config.n_experts or not codecs <= _NUMBERS.keys():
        return 0
    needed = sum(TiledTensor.of(opened, tensor).source_bytes for tensor in downs)
    return needed if needed <= TURNED_BYTES else 0


def turned(opened: OpenedModel, tensor: PlannedTensor) -> PackedMatrix:
    """A row-wise down whose numbers stand alone as down_t [F, D], copied."""
    tiled = TiledTensor.of(opened, tensor)
    stored = stored_bytes(opened.source, tensor).view(_NUMBERS[tiled.codec]).reshape(tiled.n_cols, tiled.n_rows)
    rows = np.empty((tiled.n_rows, tiled.n_cols), stored.dtype)
    for start in range(0, tiled.n_rows, _TURNED_ROWS):
        rows[start : start + _TURNED_ROWS] = stored[:, start : start + _TURNED_ROWS].T
    return PackedMatrix.view(rows.view(np.uint8), tiled.n_rows, tiled.n_cols, tiled.codec)


def as_stored(opened: OpenedModel, tensor: PlannedTensor) -> tuple[str, PackedMatrix]:
    """The matrix in its file's codec, and the name under which it serves.

    A down projection that lies row-wise serves as `down` [D, F]: its blocks run over neurons, so it cannot be turned
    without being decoded.
    Cost: touches no weight, but for rows in another order (matrices fused head by head): those are copied, in the size
    that they have in the file.
    """
    tiled = TiledTensor.of(opened, tensor)
    source = opened.source
    if isinstance(source, BundleSource):
        found = source.rows(tensor.foreign_name)[tiled.first : tiled.first + tiled.n_rows]
        codec = source.tensors[tensor.foreign_name].codec  # with the suffix that tells lanes from blocks
        return tensor.name, PackedMatrix.view(found, tiled.n_rows, tiled.n_cols, codec)
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
    """RAM that the tensor takes beside the mapped file: a vector is decoded, a matrix mostly costs nothing."""
    if tensor.is_vector:
        return 4 * tensor.n_elements
    if isinstance(opened.source, BundleSource) or tensor.treatment == "transposed" or _is_one_slice(tensor):
        return 0
    n_cols, codec = tensor.shape[1], opened.source.tensors[tensor.foreign_name].codec
    return tensor.n_elements // n_cols * CODECS[codec].n_bytes(n_cols)


def _is_one_slice(tensor: PlannedTensor) -> bool:
    """Whether our rows lie in the file one after another, in our order."""
    return tensor.treatment == "as is" and (tensor.part is None or tensor.part.groups == 1)
