"""Matrices that stay as the file stores them: views of its mapped bytes, in its codec. It decodes no numbers.

Only rows that the file has in another order are copied, packed as they are.
"""

from __future__ import annotations

from engine.bundle import BundleSource
from engine.model.families import PlannedTensor
from engine.model.model_files import OpenedModel
from engine.model.tensor_tiles import TiledTensor, stored_bytes
from native_kernels.backend import PackedMatrix
from native_kernels.codecs import CODECS


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
        codec = source.tensors[tensor.foreign_name].codec
        rows = source.rows(tensor.foreign_name)[tiled.first : tiled.first + tiled.n_rows]
        return tensor.name, PackedMatrix.view(rows, tiled.n_rows, tiled.n_cols, codec)
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
    source = opened.source
    codec = source.tensors[tensor.foreign_name].codec
    if isinstance(source, BundleSource) or tensor.treatment == "transposed" or _is_one_slice(tensor):
        return 0
    n_cols = tensor.shape[1]
    return tensor.n_elements // n_cols * CODECS[codec].n_bytes(n_cols)


def _is_one_slice(tensor: PlannedTensor) -> bool:
    """Whether our rows lie in the file one after another, in our order."""
    return tensor.treatment == "as is" and (tensor.part is None or tensor.part.groups == 1)
