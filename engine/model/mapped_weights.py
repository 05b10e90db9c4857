"""Matrices that stay as the file stores them: views of its mapped bytes, in its codec.

Copied are only rows that the file has in another order, packed as they are, and down where it lies row-wise and is
small: turned, so that neurons which do not fire are left out of it too.
"""

from __future__ import annotations

import numpy as np

from engine.bundle import BundleSource
from engine.model.families import PlannedTensor
from engine.model.model_files import OpenedModel
from engine.model.tensor_tiles import TiledTensor, stored_bytes
from native_kernels.backend import PackedMatrix
from native_kernels.codecs import CODECS

# What may be copied to have down neuron by neuron: all of it of a model of 1 billion parameters in 16 bits. A larger
# one is to be converted into a bundle, so that it need not be in memory twice.
TURNED_BYTES = 384 << 20
_TURNED_ROWS = 256
_PLAIN = ("f32", "f16", "bf16")


def turned_bytes(opened: OpenedModel) -> int:
    """RAM for the row-wise downs of a model whose neurons can be left out, once they are turned; 0 where there are none
    or where they are too large. Experts stay as they are.
    """
    if not opened.config.has_zeros or opened.config.n_experts:
        return 0
    downs = [tensor for tensor in opened.plan if tensor.treatment == "transposed"]
    needed = sum(tensor.n_elements * turned_size(opened, tensor) for tensor in downs)
    return needed if needed <= TURNED_BYTES else 0


def turned_codec(opened: OpenedModel, tensor: PlannedTensor) -> str:
    """The codec of a turned down: the file's where its numbers stand alone, else float32, which loses nothing."""
    codec = opened.source.tensors[tensor.foreign_name].codec
    return codec if codec in _PLAIN else "f32"


def turned(opened: OpenedModel, tensor: PlannedTensor) -> PackedMatrix:
    """A row-wise down as down_t [F, D], copied, with the same values."""
    tiled = TiledTensor.of(opened, tensor)
    codec = turned_codec(opened, tensor)
    rows = np.empty((tiled.n_rows, tiled.n_cols * turned_size(opened, tensor)), np.uint8)
    if tiled.codec in _PLAIN:
        kind = {"f32": np.uint32, "f16": np.uint16, "bf16": np.uint16}[codec]
        stored = stored_bytes(opened.source, tensor).view(kind).reshape(tiled.n_cols, tiled.n_rows)
        for start in range(0, tiled.n_rows, _TURNED_ROWS):
            rows.view(kind)[start : start + _TURNED_ROWS] = stored[:, start : start + _TURNED_ROWS].T
    else:
        step = -(-_TURNED_ROWS // tiled.row_step) * tiled.row_step
        for start in range(0, tiled.n_rows, step):
            stop = min(start + step, tiled.n_rows)
            rows.view(np.float32)[start:stop] = tiled.read_f32(start, stop)
    return PackedMatrix.view(rows, tiled.n_rows, tiled.n_cols, codec)


def turned_size(opened: OpenedModel, tensor: PlannedTensor) -> int:
    """Bytes of one number of a turned down."""
    return 4 if turned_codec(opened, tensor) == "f32" else 2


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
