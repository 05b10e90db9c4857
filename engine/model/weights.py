"""Loads a model's weights into the layout that the operators read. The main path's data; it computes nothing.

Foreign names end here: families/ plans them, model_files.py has checked them, this file repacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
from native_kernels.backend import F32, PackedMatrix

# RAM that stays free for the KV cache, the window and everybody else.
MARGIN_BYTES = 512 << 20


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """One layer; what a family does not have is None. H_q = H x head_dim, H_kv = H_kv x head_dim."""

    attention_norm: F32  # [D]
    q: PackedMatrix  # [H_q, D]
    k: PackedMatrix  # [H_kv, D]
    v: PackedMatrix  # [H_kv, D]
    o: PackedMatrix  # [D, H_q]
    up: PackedMatrix  # [F, D]
    ffn_norm: F32 | None = None  # [D]
    gate: PackedMatrix | None = None  # [F, D]
    down_t: PackedMatrix | None = None  # [F, D]: neuron-major, so that a neuron's column of down is one row
    down: PackedMatrix | None = None  # [D, F]: instead of down_t where it is stored so and cannot be turned losslessly
    attention_norm_bias: F32 | None = None  # [D]
    ffn_norm_bias: F32 | None = None  # [D]
    post_attention_norm: F32 | None = None  # [D]
    post_ffn_norm: F32 | None = None  # [D]
    q_norm: F32 | None = None  # [head_dim]
    k_norm: F32 | None = None  # [head_dim]
    q_bias: F32 | None = None  # [H_q]
    k_bias: F32 | None = None  # [H_kv]
    v_bias: F32 | None = None  # [H_kv]
    o_bias: F32 | None = None  # [D]
    gate_bias: F32 | None = None  # [F]
    up_bias: F32 | None = None  # [F]
    down_bias: F32 | None = None  # [D]


@dataclass(frozen=True, eq=False)
class ModelWeights:
    """All weights in memory. With tied embeddings `head` is `embedding`. E = embedding_dim, mostly D."""

    embedding: PackedMatrix  # [V, E]
    layers: list[LayerWeights]
    final_norm: F32 | None  # [D]
    head: PackedMatrix  # [V, E]
    codec: str
    n_bytes: int
    final_norm_bias: F32 | None = None  # [D]
    positions: PackedMatrix | None = None  # [max_context + position_offset, D]
    project_in: PackedMatrix | None = None  # [D, E]
    project_out: PackedMatrix | None = None  # [E, D]
    rope_factors: F32 | None = None  # [rotated / 2]


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
    total = sum(_file_bytes(opened, tensor) for tensor in plan)
    done = 0
    vectors: dict[str, F32] = {}
    matrices: dict[str, PackedMatrix] = {}
    for tensor in plan:
        if cancelled():
            raise Cancelled
        try:
            values = _read(opened, tensor)
            if values.ndim == 1:
                vectors[tensor.name] = values
            else:
                matrices[tensor.name] = _pack(values, tensor, codec)
        except MemoryError as error:
            raise HostMemoryError(f"The memory ran out while loading {tensor.foreign_name}.") from error
        done += _file_bytes(opened, tensor)
        progress(done, total)
    return _assemble(opened.config, vectors, matrices, codec)


def _file_bytes(opened: OpenedModel, tensor: PlannedTensor) -> int:
    """What the tensor takes in the file; of a fused one, its part."""
    return opened.source.tensors[tensor.foreign_name].n_bytes * tensor.n_elements // math.prod(tensor.shape)


def _choose_codec(opened: OpenedModel, extra_bytes: int) -> str:
    """float32 where it fits with a margin, because then nothing is unpacked on use; else float16; else refused."""
    import psutil

    have = read_ram(psutil, memory_limits()).free_bytes  # in a container less than the machine has
    plan = opened.plan
    sizes = [tensor.n_elements for tensor in plan]
    # While one tensor is repacked, it lies there twice as float32.
    spare = extra_bytes + MARGIN_BYTES + 2 * 4 * max(math.prod(tensor.shape) for tensor in plan)
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
    if _must_not_be_zero(tensor) and not values.any():
        raise ModelFormatError(f"Tensor {tensor.foreign_name} holds nothing but zeros: the file is incomplete.")
    if tensor.name == "rope_factors" and not (values > 0).all():
        raise ModelFormatError(f"Tensor {tensor.foreign_name} holds divisors that are not positive.")
    if tensor.part is not None:
        groups = values.reshape(tensor.part.groups, -1, *values.shape[1:])
        values = groups[:, tensor.part.start : tensor.part.stop].reshape(-1, *values.shape[1:])
    if tensor.treatment == "transposed":
        return values.T
    if tensor.treatment == "rope pairs":
        return _unpair(values, opened.config.head_dim)
    if tensor.treatment == "plus one":
        return values + np.float32(1)
    return values


def _must_not_be_zero(tensor: PlannedTensor) -> bool:
    """Norms and the embedding are never all zeros in a whole file; biases, and norms stored less one, may be."""
    if tensor.name == "embedding":
        return True
    return len(tensor.shape) == 1 and tensor.treatment != "plus one" and not tensor.name.endswith("_bias")


def _unpair(values: F32, head_dim: int) -> F32:
    """Rows of each head from GGUF's order (0, half, 1, half + 1, ...) back to (0, 1, ..., half, half + 1, ...)."""
    pairs: NDArray[np.float32] = values.reshape(-1, head_dim // 2, 2, values.shape[1])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _pack(values: F32, tensor: PlannedTensor, codec: str) -> PackedMatrix:
    if codec == "f16" and float(np.abs(values).max()) > float(np.finfo(np.float16).max):
        raise UnsupportedModelError(
            f"Tensor {tensor.foreign_name} holds values beyond 16 bits, and for 32 bits the free RAM is too small."
        )
    return PackedMatrix.pack(values, codec)


def _assemble(
    config: ModelConfig, vectors: dict[str, F32], matrices: dict[str, PackedMatrix], codec: str
) -> ModelWeights:
    tensors: dict[str, Any] = {**vectors, **matrices}
    per_layer: list[dict[str, Any]] = [{} for _ in range(config.n_layers)]
    for name, values in tensors.items():
        layer, dot, field = name.partition(".")
        if dot:
            per_layer[int(layer)][field] = values
    return ModelWeights(
        embedding=matrices["embedding"],
        layers=[LayerWeights(**fields) for fields in per_layer],
        final_norm=vectors.get("final_norm"),
        head=matrices.get("head", matrices["embedding"]),
        codec=codec,
        n_bytes=sum(matrix.n_bytes for matrix in matrices.values()) + sum(v.nbytes for v in vectors.values()),
        final_norm_bias=vectors.get("final_norm_bias"),
        positions=matrices.get("positions"),
        project_in=matrices.get("project_in"),
        project_out=matrices.get("project_out"),
        rope_factors=vectors.get("rope_factors"),
    )
