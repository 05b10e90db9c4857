"""Matrices that stay as the file stores them: views of its mapped bytes, in its codec. It decodes no numbers.

Only rows that the file has in another order are copied, packed as they are; and what a bundle stores in lanes.
"""

from __future__ import annotations

from engine.bundle import BundleSource
from engine.model.families import PlannedTensor
from engine.model.model_files import OpenedModel
from engine.model.tensor_tiles import TiledTensor, stored_bytes
from native_kernels.backend import PackedMatrix
from native_kernels.codecs import CODECS

_LANES = ".lanes"


def as_stored(opened: OpenedModel, tensor: PlannedTensor) -> tuple[str, PackedMatrix]:
    """The matrix in its file's codec, and the name under which it serves.

    A down projection that lies row-wise serves as `down` [D, F]: its blocks run over neurons, so it cannot be turned
    without being decoded.
    Cost: touches no weight, but for rows in another order (matrices fused head by head) and for bundles in q8_0 and
    q4_0: those are copied, in the size that they have in the file.
    """
    tiled = TiledTensor.of(opened, tensor)
    source = opened.source
    if isinstance(source, BundleSource):
        return tensor.name, _of_bundle(source, tiled)
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
    if isinstance(source, BundleSource):
        if not codec.endswith(_LANES):
            return 0
        n_cols = tensor.shape[1]
        n_rows = tensor.n_elements // n_cols
        kept = CODECS[codec.removesuffix(_LANES)]
        return n_rows * (2 * n_cols if n_cols % kept.block_size else kept.n_bytes(n_cols))
    if tensor.treatment == "transposed" or _is_one_slice(tensor):
        return 0
    n_cols = tensor.shape[1]
    return tensor.n_elements // n_cols * CODECS[codec].n_bytes(n_cols)


def _is_one_slice(tensor: PlannedTensor) -> bool:
    """Whether our rows lie in the file one after another, in our order."""
    return tensor.treatment == "as is" and (tensor.part is None or tensor.part.groups == 1)


def _of_bundle(source: BundleSource, tiled: TiledTensor) -> PackedMatrix:
    if not source.tensors[tiled.planned.foreign_name].codec.endswith(_LANES):
        rows = source.rows(tiled.planned.foreign_name)[tiled.first : tiled.first + tiled.n_rows]
        return PackedMatrix.view(rows, tiled.n_rows, tiled.n_cols, tiled.codec)
    if tiled.keeps_blocks_of(tiled.codec):
        blocks = tiled.blocks(0, tiled.n_rows).reshape(tiled.n_rows, -1)
        return PackedMatrix.view(blocks, tiled.n_rows, tiled.n_cols, tiled.codec)
    return PackedMatrix.pack(tiled.read_f32(0, tiled.n_rows), "f16")  # ragged rows are no whole blocks
