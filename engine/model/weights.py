"""Loads a model's weights into the layout that the operators read. The main path's data; it computes nothing.

Foreign names end here: families.py plans them, model_files.py has checked them, this file repacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.config import ModelConfig
from engine.cpu_and_ram import memory_limits, read_ram
from engine.errors import Cancelled, HostMemoryError, ModelFormatError, UnsupportedModelError
from engine.model.families import PlannedTensor
from engine.model.model_files import ModelFiles as ModelFiles
from engine.model.model_files import OpenedModel as OpenedModel
from engine.model.model_files import find_model_files as find_model_files
from engine.model.model_files import open_model as open_model
from native_kernels.backend import F32, Codec, PackedMatrix

# RAM that stays free for the KV cache, the window and everybody else.
MARGIN_BYTES = 512 << 20


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """One layer. H_q = H x head_dim, H_kv = H_kv x head_dim."""

    attention_norm: F32  # [D]
    q: PackedMatrix  # [H_q, D]
    k: PackedMatrix  # [H_kv, D]
    v: PackedMatrix  # [H_kv, D]
    o: PackedMatrix  # [D, H_q]
    ffn_norm: F32  # [D]
    gate: PackedMatrix  # [F, D]
    up: PackedMatrix  # [F, D]
    down_t: PackedMatrix  # [F, D]: neuron-major, so that a neuron's column of down is one row


@dataclass(frozen=True, eq=False)
class ModelWeights:
    """All weights in memory. With tied embeddings `head` is `embedding`."""

    embedding: PackedMatrix  # [V, D]
    layers: list[LayerWeights]
    final_norm: F32  # [D]
    head: PackedMatrix  # [V, D]
    codec: Codec
    n_bytes: int


def load_weights(
    opened: OpenedModel,
    progress: Callable[[int, int], None] = lambda done_bytes, total_bytes: None,
    cancelled: Callable[[], bool] = lambda: False,
    extra_bytes: int = 0,
) -> ModelWeights:
    """Reads, checks and repacks every tensor: as float32 where that fits into free RAM, else as float16.

    Units: progress reports bytes of the file done and in total; extra_bytes is RAM that the caller will need beside
    the weights.
    Raises: HostMemoryError with need and have before anything is read, ModelFormatError for weights that are no
    numbers or a norm or embedding that is all zeros, Cancelled between two tensors.
    """
    codec = _choose_codec(opened, extra_bytes)
    plan = opened.plan
    total = sum(opened.source.tensors[tensor.foreign_name].n_bytes for tensor in plan)
    done = 0
    norms: dict[str, F32] = {}
    matrices: dict[str, PackedMatrix] = {}
    for tensor in plan:
        if cancelled():
            raise Cancelled
        try:
            values = _read(opened, tensor)
            if values.ndim == 1:
                norms[tensor.name] = values
            else:
                matrices[tensor.name] = _pack(values, tensor, codec)
        except MemoryError as error:
            raise HostMemoryError(f"The memory ran out while loading {tensor.foreign_name}.") from error
        done += opened.source.tensors[tensor.foreign_name].n_bytes
        progress(done, total)
    return _assemble(opened.config, norms, matrices, codec)


def _choose_codec(opened: OpenedModel, extra_bytes: int) -> Codec:
    """float32 where it fits with a margin, because then nothing is unpacked on use; else float16; else refused."""
    import psutil

    have = read_ram(psutil, memory_limits()).free_bytes  # in a container less than the machine has
    sizes = [math.prod(tensor.shape) for tensor in opened.plan]
    # While one tensor is repacked, it lies there twice as float32.
    spare = extra_bytes + MARGIN_BYTES + 2 * 4 * max(sizes)
    for codec, item_bytes in (("f32", 4), ("f16", 2)):
        need = sum(sizes) * item_bytes + spare
        if need <= have:
            return "f32" if codec == "f32" else "f16"
    raise HostMemoryError(f"The model needs {need / 2**30:.1f} GiB of free RAM; {have / 2**30:.1f} GiB are free.")


def _read(opened: OpenedModel, tensor: PlannedTensor) -> F32:
    values = opened.source.read_f32(tensor.foreign_name)
    # The sum is finite unless a value is not: weights are far too small to overflow it, and it is one fast pass.
    with np.errstate(invalid="ignore", over="ignore"):
        total = values.sum(dtype=np.float64)
    if not np.isfinite(total):
        raise ModelFormatError(f"Tensor {tensor.foreign_name} holds values that are no numbers.")
    if (values.ndim == 1 or tensor.name == "embedding") and not values.any():
        raise ModelFormatError(f"Tensor {tensor.foreign_name} holds nothing but zeros: the file is incomplete.")
    if tensor.treatment == "transposed":
        return values.T
    if tensor.treatment == "rope pairs":
        return _unpair(values, opened.config.head_dim)
    return values


def _unpair(values: F32, head_dim: int) -> F32:
    """Rows of each head from GGUF's order (0, half, 1, half + 1, ...) back to (0, 1, ..., half, half + 1, ...)."""
    pairs: NDArray[np.float32] = values.reshape(-1, head_dim // 2, 2, values.shape[1])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _pack(values: F32, tensor: PlannedTensor, codec: Codec) -> PackedMatrix:
    if codec == "f16" and float(np.abs(values).max()) > float(np.finfo(np.float16).max):
        raise UnsupportedModelError(
            f"Tensor {tensor.foreign_name} holds values beyond 16 bits, and for 32 bits the free RAM is too small."
        )
    return PackedMatrix.pack(values, codec)


def _assemble(
    config: ModelConfig, norms: dict[str, F32], matrices: dict[str, PackedMatrix], codec: Codec
) -> ModelWeights:
    layers = [
        LayerWeights(
            attention_norm=norms[f"{i}.attention_norm"],
            q=matrices[f"{i}.q"],
            k=matrices[f"{i}.k"],
            v=matrices[f"{i}.v"],
            o=matrices[f"{i}.o"],
            ffn_norm=norms[f"{i}.ffn_norm"],
            gate=matrices[f"{i}.gate"],
            up=matrices[f"{i}.up"],
            down_t=matrices[f"{i}.down_t"],
        )
        for i in range(config.n_layers)
    ]
    embedding = matrices["embedding"]
    n_bytes = sum(matrix.n_bytes for matrix in matrices.values()) + sum(norm.nbytes for norm in norms.values())
    return ModelWeights(embedding, layers, norms["final_norm"], matrices.get("head", embedding), codec, n_bytes)
