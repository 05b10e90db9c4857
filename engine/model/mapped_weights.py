"""Matrices that stay as the file stores them: views of its mapped bytes, in its codec. It decodes no numbers.

Only rows that the file has in another order are copied, packed as they are.
"""

from __future__ import annotations

from engine.bundle import BundleSource
from engine.model.families import PlannedTensor
from engine.model.model_files import OpenedModel
from engine.model.tensor_tiles import TiledTensor
from native_kernels.backend import PackedMatrix
from native_kernels.codecs import CODECS


def stays_in_pairs(opened: OpenedModel) -> bool:
    """Whether q and k can serve in the order of GGUF's LLaMA: each head's rows in the pairs that are rotated together.

    Attention does not mind the order of a head's numbers as long as q and k agree.
    """
    turned = [tensor for tensor in opened.plan if tensor.treatment == "rope pairs"]
    whole_heads = opened.config.rotated == opened.config.head_dim and not opened.config.qk_norm
    return bool(turned) and whole_heads and all(_is_one_slice(tensor, in_pairs=True) for tensor in turned)


def as_stored(opened: OpenedModel, tensor: PlannedTensor, in_pairs: bool = False) -> tuple[str, PackedMatrix]:
    """The matrix in its file's codec, and the name under which it serves.

    in_pairs: q and k serve in the order that `stays_in_pairs` speaks of.

    A down projection that lies row-wise serves as `down` [D, F]: its blocks run over neurons, so it cannot be turned
    without being decoded.
    Cost: touches no weight, but for rows in another order (matrices fused head by head): those are copied, in the size
    that they have in the file.
    """
    tiled = TiledTensor.of(opened, tensor)
    source = opened.source
    if isinstance(source, BundleSource):
        codec = source.tensors[tensor.foreign_name].codec
        return tensor.name, PackedMatrix.view(source.rows(tensor.foreign_name), tiled.n_rows, tiled.n_cols, codec)
    if tensor.treatment == "transposed":
        n_rows, n_cols = tensor.shape
        view = PackedMatrix.view(source.view(tensor.foreign_name), n_rows, n_cols, tiled.codec)
        return tensor.name.removesuffix("down_t") + "down", view
    rows = source.view(tensor.foreign_name).reshape(tensor.shape[0], -1)
    if _is_one_slice(tensor, in_pairs):
        part = tensor.part
        rows = rows if part is None else rows[part.start : part.stop]
    else:
        rows = rows[tiled.order]
    return tensor.name, PackedMatrix.view(rows, tiled.n_rows, tiled.n_cols, tiled.codec)


def copied_bytes(opened: OpenedModel, tensor: PlannedTensor, in_pairs: bool = False) -> int:
    """RAM that the tensor takes beside the mapped file: a vector is decoded, a matrix mostly costs nothing."""
    if len(tensor.shape) == 1:
        return 4 * tensor.n_elements
    source = opened.source
    codec = source.tensors[tensor.foreign_name].codec
    in_place = isinstance(source, BundleSource) or tensor.treatment == "transposed"
    if in_place or _is_one_slice(tensor, in_pairs):
        return 0
    n_cols = tensor.shape[1]
    return tensor.n_elements // n_cols * CODECS[codec].n_bytes(n_cols)


def _is_one_slice(tensor: PlannedTensor, in_pairs: bool = False) -> bool:
    """Whether our rows lie in the file one after another, in our order or that of the pairs."""
    in_order = tensor.treatment == "as is" or (in_pairs and tensor.treatment == "rope pairs")
    return in_order and (tensor.part is None or tensor.part.groups == 1)
